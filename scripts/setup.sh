#!/usr/bin/env bash
# setup.sh [servers]: what a build needs besides Rust: a C linker and libpq (Diesel speaks to PostgreSQL through it). With
# `servers`, also what is needed by commands that run a PostgreSQL and a Redis of their own, to kill them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# Asking dpkg would refuse a libpq that came from elsewhere, so the question is the real one: does a program link?
can_link_libpq() {
  local program status=0
  local -a where=()
  have cc && have pg_config || return 1
  where=(-L "${PQ_LIB_DIR:-$(pg_config --libdir 2>/dev/null || echo /usr/lib)}")
  program=$(mktemp)
  echo 'int main(void) { return 0; }' | cc -xc - "${where[@]}" -lpq -o "$program" 2>/dev/null || status=1
  rm -f "$program"
  return "$status"
}

have cargo || die "cargo is not on the PATH: install Rust (rustup) first."
require "building payonce" can_link_libpq gcc libc6-dev libpq-dev
if [ "${1:-}" = servers ]; then
  require_postgres
  require_redis
fi
