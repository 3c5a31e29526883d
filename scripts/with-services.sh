#!/usr/bin/env bash
# with-services.sh COMMAND…: runs COMMAND with DATABASE_URL and REDIS_URL pointing to running servers; its exit status is
# COMMAND's. Each variable that is set already is used as it is. For the rest: Docker Compose if an engine answers, else
# private throw-away servers. Whatever is started here is removed at the end, on Ctrl-C and TERM too.
# A server that happens to run on a standard port is never used.
#
# PAYONCE_KILL_REDIS is exported as well: a shell command that kills the Redis at once; empty if the Redis is not ours.
set -euo pipefail
caller_folder=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

start_limit_seconds=120 # initdb takes 3 s on two idle cores; a busy CI machine may need many times that
compose_project=        # set while containers of ours may exist
work=                   # a folder for the time of the start only
declare -A keepers=()   # service → process id of its private-*.sh

main() {
  [ $# -gt 0 ] || die "usage: with-services.sh COMMAND [ARGUMENT…]"
  trap remove_services EXIT
  export PAYONCE_KILL_REDIS=
  choose_services
  cd "$caller_folder"
  run "$@"
}

choose_services() {
  local missing=()
  if [ -n "${DATABASE_URL:-}" ]; then say "PostgreSQL: DATABASE_URL as it is set"; else missing+=(postgres); fi
  if [ -n "${REDIS_URL:-}" ]; then say "Redis: REDIS_URL as it is set"; else missing+=(redis); fi
  [ ${#missing[@]} -gt 0 ] || return 0
  if docker_answers; then
    start_in_compose "${missing[@]}" && return
    say "Docker Compose did not bring up ${missing[*]}: private servers instead"
    remove_containers
  fi
  start_private "${missing[@]}"
}

# --- Docker Compose

docker_answers() {
  have docker && timeout 20 docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1
}

# A project name of our own, and port 0 (= any free one), so that runs side by side never meet.
compose() {
  PAYONCE_PG_PORT=0 PAYONCE_REDIS_PORT=0 \
    docker compose --project-name "$compose_project" --file "$repository/docker-compose.yml" "$@"
}
repository=$PWD

# Called in a condition, where bash ignores `set -e`: every step says for itself what its failure means.
start_in_compose() {
  compose_project=payonce-run-$$
  compose up --detach --wait "$@" >&2 || return
  local service address
  for service in "$@"; do
    address=127.0.0.1:$(compose port "$service" "$(inner_port "$service")" | sed 's/.*://') || return
    "announce_$service" "$address" || return
    say "$service: Docker Compose project $compose_project, on $address"
  done
}

inner_port() { if [ "$1" = postgres ]; then echo 5432; else echo 6379; fi; }
announce_postgres() { use_postgres "postgres://payonce:payonce@$1/payonce"; }
announce_redis() {
  export REDIS_URL="redis://$1/"
  PAYONCE_KILL_REDIS="docker compose --project-name $compose_project kill --signal KILL redis"
}

remove_containers() {
  [ -n "$compose_project" ] || return 0
  compose down --volumes --timeout 1 >/dev/null 2>&1 || say "docker compose down failed for project $compose_project"
  compose_project=
}

# --- private servers

start_private() {
  local service
  for service in "$@"; do "require_$service"; done
  work=$(mktemp -d)
  # The private servers live as long as this pipe has a writer, and this shell is the only one.
  mkfifo "$work/alive"
  exec 9<>"$work/alive"
  for service in "$@"; do keep "$service"; done
  for service in "$@"; do await "$service"; done
  rm -rf "$work"
}

# In a session of its own, because Ctrl-C goes to the whole process group, and COMMAND should find its servers until it ends.
keep() {
  setsid "scripts/private-$1.sh" "$work/$1.url" <"$work/alive" >"$work/$1.log" 2>&1 9>&- &
  keepers[$1]=$!
}

await() {
  local service=$1 answer deadline=$((SECONDS + start_limit_seconds))
  until [ -s "$work/$service.url" ]; do
    if ! kill -0 "${keepers[$service]}" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      cat "$work/$service.log" >&2
      die "the private $service did not start; its output is above."
    fi
    sleep 0.1
  done
  mapfile -t answer <"$work/$service.url"
  "use_private_$service" "${answer[@]}"
}

use_private_postgres() {
  use_postgres "$1"
  say "PostgreSQL: a private one on ${1#*@} (pg_virtualenv, fsync on)"
}

use_private_redis() {
  export REDIS_URL=$1
  PAYONCE_KILL_REDIS="kill -9 $2"
  say "Redis: a private one on ${1#redis://}"
}

# libpq lets PGSSLMODE, PGOPTIONS and others add to a URL. They were meant for another server.
use_postgres() {
  local name
  for name in "${!PG@}"; do
    [ "$name" = PG_CONFIG ] || unset "$name" # PG_CONFIG is for builds
  done
  export DATABASE_URL=$1
}

# --- the command, and the end

# In the background, since bash runs a trap only after a foreground command has ended. A background command starts with
# INT ignored and no stdin; both are put right.
run() {
  local status interrupted
  (
    trap - INT QUIT
    exec "$@"
  ) <&0 9>&- &
  local command=$!
  trap 'interrupted=yes' INT # the terminal sent it to COMMAND too
  trap 'interrupted=yes; kill -TERM "$command" 2>/dev/null || true' TERM HUP
  while :; do
    interrupted=
    wait "$command" && status=0 || status=$?
    [ -n "$interrupted" ] || return "$status"
  done
}

remove_services() {
  trap '' INT TERM HUP # a second Ctrl-C must not leave half of it behind
  exec 9>&-
  [ ${#keepers[@]} = 0 ] || wait "${keepers[@]}" || true
  [ -z "$work" ] || rm -rf "$work"
  remove_containers
}

main "$@"
