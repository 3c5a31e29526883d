#!/usr/bin/env bash
# `make bench`: payments/s over HTTP against pgbench with the same statements, in turn, on one server. See bench/README.md.
# Needs DATABASE_URL and REDIS_URL; with-services.sh gives both.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

payonce=${CARGO_TARGET_DIR:-target}/release/payonce
rounds=${BENCH_ROUNDS:-3}
seconds=${BENCH_SECONDS:-10}
in_flight=${BENCH_IN_FLIGHT:-128}
work=$(mktemp -d)

main() {
  require "make bench" has_wrk wrk
  require "make bench" has_pgbench postgresql-contrib
  "$payonce" migrate >/dev/null
  API_KEY=$("$payonce" api-key create --tenant bench --quiet)
  psql -qAt "$DATABASE_URL" -f bench/accounts.sql >/dev/null
  tenant=$(psql -qAt "$DATABASE_URL" -c "SELECT tenant_id FROM tenants WHERE name = 'bench'")
  ACCOUNTS=$work/accounts
  psql -qAt "$DATABASE_URL" -c "SELECT id FROM accounts WHERE kind = 'standard'" >"$ACCOUNTS"
  export API_KEY ACCOUNTS
  serve
  clients=$(best_clients)
  echo "pgbench is fastest with $clients clients; $in_flight requests in flight over HTTP; $rounds rounds of $seconds s each"
  local round
  for ((round = 1; round <= rounds; round++)); do
    by_hand "$clients" "$seconds" | tee -a "$work/by_hand" | sed 's/^/pgbench       /'
    over_http "$round" | tee -a "$work/over_http" | sed 's/^/over HTTP     /'
  done
  "$payonce" audit
  echo "payments/s over pgbench: $(ratio)"
}

has_wrk() { have wrk; }
has_pgbench() { have pgbench; }

serve() {
  "$payonce" serve --listen 127.0.0.1:0 >"$work/served" &
  server=$!
  trap 'kill "$server" 2>/dev/null || true; wait "$server" || true; rm -rf "$work"' EXIT
  base=$(address_of "$work/served" "$server")
}

# Prints transactions a second.
by_hand() {
  pgbench --no-vacuum --protocol=prepared --file=bench/payment.sql --define="tenant=$tenant" \
    --client="$1" --jobs=2 --time="$2" "$DATABASE_URL" >"$work/pgbench" 2>&1 || die "pgbench failed: $(head -n 5 "$work/pgbench")"
  sed -n 's/^tps = \([0-9]*\).*/\1/p' "$work/pgbench"
}

best_clients() {
  local clients
  for clients in 4 16 32 64; do echo "$(by_hand "$clients" 3) $clients"; done | sort -n | tail -n 1 | cut -d' ' -f2
}

# Prints payments a second; fails if any answer was not 201.
over_http() {
  local result
  result=$(KEY_PREFIX=round-$1 wrk --threads 1 --connections "$in_flight" --duration "${seconds}s" --latency \
    --script bench/payments.lua "$base" | sed -n 's/^RESULT //p')
  read -r rate failed p50 p99 <<<"$result"
  [ "$failed" -eq 0 ] || die "$failed requests were not answered 201."
  echo "$rate   p50 $p50 ms, p99 $p99 ms"
}

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
ratio() { awk -v a="$(median "$work/over_http")" -v b="$(median "$work/by_hand")" 'BEGIN { printf "%.2f\n", a / b }'; }

main
