"""Most generated idempotency keys are short, and soon each of them was used: three of four requests get one of their own."""

import itertools
import re

import schemathesis

BARE_KEY = re.compile(r"[!#-+\--~][!-+\--~]{0,200}")
requests = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    number = next(requests)
    key = case.headers.get("Idempotency-Key")
    fits_the_schema = case.meta is not None and case.meta.generation.mode.is_positive
    if fits_the_schema and number % 4 and isinstance(key, str) and BARE_KEY.fullmatch(key):
        case.headers["Idempotency-Key"] = f"{key}-{number}"
