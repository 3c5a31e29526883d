#!/usr/bin/env bash
# private-redis.sh URL_FILE: a throw-away Redis, for with-services.sh; lives as private-postgres.sh does.
# URL_FILE gets two lines: the URL, and the process id for whoever wants to kill it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# One binary goes by several names, and takes its role from the name it is called by. Debian's redis-tools has it as
# redis-check-rdb, so the package redis-server, which would start a service, need not be installed.
start() {
  local binary
  binary=$(command -v redis-server || command -v redis-check-rdb)
  (exec -a redis-server "$binary" --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder") </dev/null &
  pid=$!
}

answers() { [ "$(redis-cli -h 127.0.0.1 -p "$port" ping 2>/dev/null)" = PONG ]; }

stop() {
  kill "$pid" 2>/dev/null || true # it may have been killed on purpose
  wait "$pid" || true
  rm -rf "$folder"
}

folder=$(mktemp -d /tmp/payonce-redis.XXXXXX)
port=$(free_port)
start
trap stop EXIT
until answers; do
  kill -0 "$pid" 2>/dev/null || die "the private redis-server ended while it was starting."
  sleep 0.1
done
printf '%s\n' "redis://127.0.0.1:$port/" "$pid" >"$1.part"
mv "$1.part" "$1"
cat >/dev/null
