#!/usr/bin/env bash
# `make conformance`: the score card of the service at $URL; without URL, of two instances of our own, after a proof that the
# cases can fail. The latter needs DATABASE_URL and REDIS_URL; with-services.sh gives both.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

payonce=${CARGO_TARGET_DIR:-target}/debug/payonce
conformance=${CARGO_TARGET_DIR:-target}/debug/examples/conformance
work=
job=
servers=()

main() {
  trap stop EXIT
  trap 'exit 130' INT TERM HUP
  if [ -z "${URL:-}" ]; then
    run "$conformance" --self-test
    serve_two_of_our_own
  fi
  run "$conformance" ${JSON:+--json "$JSON"}
}

# In the background, since bash runs a trap only after a foreground command has ended.
run() {
  "$@" &
  job=$!
  wait "$job"
  job=
}

# Everything that a case may need, so that none is skipped.
serve_two_of_our_own() {
  work=$(mktemp -d)
  "$payonce" migrate >/dev/null
  API_KEY=$(create_key conformance)
  API_KEY_ROTATED=$(create_key conformance)
  API_KEY_OTHER_TENANT=$(create_key "somebody else")
  API_KEY_READ_ONLY=$(create_key conformance --scopes read)
  API_KEY_REVOKED=$(create_key conformance)
  "$payonce" api-key revoke "$API_KEY_REVOKED" >/dev/null
  serve a
  serve b
  URL=$(address_of "$work/a" "${servers[0]}" "$work/a.log")
  URL_B=$(address_of "$work/b" "${servers[1]}" "$work/b.log")
  export URL URL_B API_KEY API_KEY_ROTATED API_KEY_OTHER_TENANT API_KEY_READ_ONLY API_KEY_REVOKED
}

create_key() { "$payonce" api-key create --quiet --tenant "$@"; }

serve() {
  "$payonce" serve --listen 127.0.0.1:0 >"$work/$1" 2>"$work/$1.log" &
  servers+=($!)
}

stop() {
  kill ${job:+"$job"} "${servers[@]}" 2>/dev/null || true
  wait
  [ -z "$work" ] || rm -rf "$work"
}

main
