#!/usr/bin/env bash
# private-postgres.sh URL_FILE: a throw-away PostgreSQL, for with-services.sh.
# Writes its URL to URL_FILE once it answers, lives until its stdin is closed, then removes all of itself. The pipe
# closes whichever way the caller ends, kill -9 included, so no server is ever left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# pg_virtualenv (Debian's postgresql-common) makes a cluster in a temporary folder and runs its argument beside it.
outside() {
  local url_file=$1
  unset "${!PG@}" # the caller's PGHOST, PGOPTIONS and the like are not meant for this server
  sockets=$(mktemp -d /tmp/payonce-pg.XXXXXX)
  chmod 1777 "$sockets" # as root, the server runs as the user postgres
  trap 'rm -rf "$sockets"' EXIT
  local options=(
    -t                           # a temporary folder for root too: two runs at once never share a cluster
    -c "--socketdir=$sockets"    # nothing in /var/run/postgresql
    -o fsync=on                  # pg_virtualenv turns it off; what a crash test or a speed figure says is worth nothing then
    -o max_connections=200       # two instances and tests in parallel, each with pools
    -o ssl=off                   # loopback only
  )
  # TMPDIR: root's may be closed to the user postgres. USER: becomes the superuser's name, which must fit in a URL.
  # LC_ALL: texts sort alike on every machine, and initdb fails if the caller's locale was never generated.
  TMPDIR=/tmp USER=postgres LC_ALL=C.UTF-8 PGPORT=$(free_port) \
    pg_virtualenv "${options[@]}" bash "$0" --inside "$url_file"
}

inside() {
  local url_file=$1 url
  url="postgres://$PGUSER:$PGPASSWORD@127.0.0.1:$PGPORT/payonce"
  createdb payonce
  [ "$(psql -AtX "$url" -c 'show fsync')" = on ] || die "fsync is off in the private PostgreSQL."
  echo "$url" >"$url_file.part"
  mv "$url_file.part" "$url_file" # a reader never sees half a line
  cat >/dev/null
}

if [ "$1" = --inside ]; then inside "$2"; else outside "$1"; fi
