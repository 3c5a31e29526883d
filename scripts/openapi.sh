#!/usr/bin/env bash
# openapi.sh write|check: openapi/openapi.json is generated from the code; `write` renews it, `check` fails if it is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

committed=openapi/openapi.json
mkdir -p openapi
# In the same folder as the target, so that the mv below is atomic and a failed run leaves the old document whole.
generated=$(mktemp "$committed.XXXXXX")
trap 'rm -f "$generated"' EXIT
cargo run --quiet --locked -- openapi >"$generated"

case ${1:-} in
  write)
    chmod 644 "$generated" # mktemp makes it 600
    mv "$generated" "$committed"
    ;;
  check)
    diff -u "$committed" "$generated" ||
      die "$committed is not what the code says (above: - committed, + generated). Run \`make openapi\` and commit the result."
    ;;
  *) die "usage: openapi.sh write|check" ;;
esac
