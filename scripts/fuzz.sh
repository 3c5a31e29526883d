#!/usr/bin/env bash
# `make fuzz`: schemathesis against a running service, by the committed OpenAPI document. No answer may be a 5xx or one that
# the document does not describe, and the books must be right afterwards. fuzz/schemathesis.toml says what is checked.
# FUZZ_EXAMPLES is the number of cases per operation and phase, FUZZ_SEED the seed. Needs DATABASE_URL; with-services.sh gives it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

schemathesis_version=4.32.5
examples=${FUZZ_EXAMPLES:-200}
seed=${FUZZ_SEED:-1}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
payonce=$target/debug/payonce
document=$PWD/openapi/openapi.json
venv=$target/schemathesis-$schemathesis_version

main() {
  require "make fuzz" has_curl curl ca-certificates
  install_schemathesis
  work=$(mktemp -d)
  trap stop EXIT
  trap 'exit 130' INT TERM HUP
  serve
  fill_dictionaries
  say "seed $seed, $examples examples"
  local status=0
  # In the background, since bash runs a trap only after a foreground command has ended.
  fuzz &
  fuzzer=$!
  wait "$fuzzer" || status=$?
  say "requests answered, by status: $(answered)"
  if grep -E 'ERROR payonce|panicked' "$work/log" >&2; then die "the service reported the errors above."; fi
  "$payonce" audit
  return "$status"
}

has_curl() { have curl; }
has_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

install_schemathesis() {
  [ ! -e "$venv/installed" ] || return 0
  require "make fuzz" has_venv python3-venv
  say "installing schemathesis $schemathesis_version into $venv"
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$schemathesis_version"
  touch "$venv/installed"
}

serve() {
  "$payonce" migrate >/dev/null
  api_key=$("$payonce" api-key create --tenant fuzz --quiet)
  "$payonce" serve --listen 127.0.0.1:0 >"$work/served" 2>"$work/log" &
  server=$!
  base=$(address_of "$work/served" "$server" "$work/log")
}

stop() {
  kill ${fuzzer:+"$fuzzer"} "$server" 2>/dev/null || true
  wait
  rm -rf "$work"
}

# Accounts with money, and payments between them.
fill_dictionaries() {
  local currency payer payee payment
  cp fuzz/schemathesis.toml fuzz/hooks.py "$work/"
  for currency in USD USD USD USD JPY; do
    payer=$(create /accounts "{\"currency\":\"$currency\",\"name\":\"payer\"}")
    payee=$(create /accounts "{\"currency\":\"$currency\",\"name\":\"payee\"}")
    create "/accounts/$payer/deposits" "{\"amount\":\"1000000000\",\"currency\":\"$currency\"}" >/dev/null
    payment=$(create /payments "{\"payer_account_id\":\"$payer\",\"payee_account_id\":\"$payee\",\"amount\":\"1000000\",\"currency\":\"$currency\"}")
    printf '"%s"\n' "$payer" "$payee" >>"$work/accounts.dict"
    printf '"%s"\n' "$payment" >>"$work/payments.dict"
  done
}

# Prints the id of what was made.
create() {
  local answer
  answer=$(curl -sS --fail-with-body "$base$1" -H "Authorization: Bearer $api_key" -H "Idempotency-Key: $RANDOM-$RANDOM-$RANDOM" \
    -H 'Content-Type: application/json' -d "$2") || die "POST $1 was answered: $answer"
  [[ $answer =~ \"id\":\"([^\"]+)\" ]] || die "POST $1 was answered without an id: $answer"
  echo "${BASH_REMATCH[1]}"
}

# Becomes the fuzzer, so it is to be run in the background.
fuzz() {
  # It leaves files where it runs.
  cd "$work"
  export PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1
  exec "$venv/bin/st" run "$document" --url "$base" \
    --header "Authorization: Bearer $api_key" --max-examples "$examples" --seed "$seed"
}

answered() {
  curl -sS "$base/metrics" | sed -n 's/^payonce_http_request_seconds_count{.*status="\([0-9]*\)".*} \([0-9]*\)$/\1 \2/p' |
    awk '{ count[$1] += $2; all += $2 } END { for (s in count) printf "%s: %d, ", s, count[s]; print "all: " all + 0 }'
}

main
