#!/usr/bin/env bash
# shellcheck disable=SC2317 # functions are called by name and by traps
# `make run`: one instance with an API key and two funded accounts, to try payonce by hand until Ctrl-C.
# Needs DATABASE_URL and REDIS_URL; with-services.sh gives both.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

payonce=${CARGO_TARGET_DIR:-target}/release/payonce
start_limit_seconds=30
stopping=

main() {
  require "scripts/run.sh" has_curl curl ca-certificates
  "$payonce" migrate >/dev/null
  api_key=$("$payonce" api-key create --tenant demo --scopes read,write --quiet)
  choose_address
  serve
  alice=$(open_account Alice)
  bob=$(open_account Bob)
  deposit "$alice" 100.00
  deposit "$bob" 100.00
  print_guide
  wait_for_the_end
}

has_curl() { have curl; }

# LISTEN is used as it is; otherwise 8080, or any free port if 8080 belongs to somebody else.
choose_address() {
  [ -z "${LISTEN:-}" ] || return 0
  LISTEN=127.0.0.1:8080
  port_is_free 8080 || LISTEN=127.0.0.1:$(free_port)
}

# Its log shares the terminal with the guide: what the libraries tell of themselves is left out.
serve() {
  RUST_LOG=${RUST_LOG:-warn,payonce=info} "$payonce" serve --listen "$LISTEN" >/dev/null &
  server=$!
  trap stop EXIT
  trap 'stopping=yes; tell_server_to_end' INT TERM HUP
  base=http://${LISTEN/#0.0.0.0:/127.0.0.1:}
  local deadline=$((SECONDS + start_limit_seconds))
  until curl -fs "$base/health/ready" >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || ended
    [ "$SECONDS" -lt "$deadline" ] || die "payonce did not become ready within $start_limit_seconds s."
    sleep 0.1
  done
}

# Whichever way this script ends; from the terminal's Ctrl-C the server has heard already. It finishes what is under way.
tell_server_to_end() { kill -TERM "$server" 2>/dev/null || true; }
stop() {
  tell_server_to_end
  wait "$server" || true
}

# Ctrl-C is the way out, not a failure.
ended() {
  [ -z "$stopping" ] || exit 0
  die "payonce serve ended by itself; its last words are above."
}

new_key() { cat /proc/sys/kernel/random/uuid; }

# post PATH JSON: prints the answer's body; an answer other than 2xx ends the script with that body.
post() {
  curl -sS --fail-with-body "$base$1" -H "Authorization: Bearer $api_key" -H "Idempotency-Key: $(new_key)" \
    -H 'Content-Type: application/json' -d "$2"
}

open_account() {
  local account
  account=$(post /accounts "{\"currency\":\"USD\",\"name\":\"$1\"}") || die "POST /accounts answered: $account"
  [[ $account =~ \"id\":\"([^\"]+)\" ]] || die "POST /accounts answered without an id: $account"
  echo "${BASH_REMATCH[1]}"
}

deposit() {
  local answer
  answer=$(post "/accounts/$1/deposits" "{\"amount\":\"$2\",\"currency\":\"USD\"}") || die "the deposit was answered: $answer"
}

print_guide() {
  cat <<EOF

payonce is running. Ctrl-C stops it.

  address     $base
  Swagger UI  $base/swagger-ui/   (Authorize takes the API key)
  API key     $api_key
  Alice       $alice   (100.00 USD)
  Bob         $bob   (100.00 USD)

Pay once. Paste it twice: the second answer is the first one again, and Bob has 5.00 more, not 10.00.

curl -iw '\n' $base/payments -H 'Authorization: Bearer $api_key' -H 'Idempotency-Key: $(new_key)' -H 'Content-Type: application/json' -d '{"payer_account_id":"$alice","payee_account_id":"$bob","amount":"5.00","currency":"USD"}'

EOF
}

# A signal ends the wait, not the server.
wait_for_the_end() {
  while kill -0 "$server" 2>/dev/null; do wait "$server" || true; done
  ended
}

main
