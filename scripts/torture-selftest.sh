#!/usr/bin/env bash
# `make torture-selftest`: can the torture fail? Each patch in tests/mutations breaks a promise of the service. It is applied to a
# copy of the sources, built, and tortured: that must be found. The service as it is must pass in the same way.
# MUTATIONS="a.patch b.patch" takes other patches, yours for example; TORTURE_SECONDS another time for each.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

torture=$(realpath "${CARGO_TARGET_DIR:-target}/release/examples/torture")
copy=${CARGO_TARGET_DIR:-target}/mutations
mapfile -t patches < <(for patch in ${MUTATIONS:-tests/mutations/*.patch}; do realpath "$patch"; done)
export TORTURE_SECONDS=${TORTURE_SECONDS:-90}
missed=0

main() {
  mkdir -p "$copy"
  torture_with "" || die "the service as it is does not pass: $copy/as_it_is.log"
  local patch name
  for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    if torture_with "$patch"; then
      missed=$((missed + 1))
      result="NOT FOUND"
    else
      result="found: $(violations "$name" | sed -n 1p | cut -c 11-130)"
    fi
    printf '%-34s %s\n' "$name" "$result"
  done
  echo "${#patches[@]} mutations, $missed not found"
  [ "$missed" = 0 ]
}

# Succeeds if nothing wrong is found. A mutation that can't be applied, built or tortured is an error of its own. Called in a
# condition, where bash ignores `set -e`: every step says for itself what its failure means.
torture_with() {
  local patch=$1 name=as_it_is status=0
  [ -z "$patch" ] || name=$(basename "$patch" .patch)
  fresh_sources || die "the sources could not be copied to $copy."
  [ -z "$patch" ] || git -C "$copy/sources" apply "$patch" || die "$patch does not fit the sources."
  CARGO_TARGET_DIR=$copy/build cargo build --quiet --locked --bin payonce --manifest-path "$copy/sources/Cargo.toml" >"$copy/$name.log" 2>&1 ||
    die "$name does not build: $copy/$name.log"
  PAYONCE_BIN=$(realpath "$copy/build/debug/payonce") "$torture" >"$copy/$name.log" 2>&1 || status=$?
  case $status in
    0) return 0 ;;
    1)
      [ -n "$(violations "$name")" ] || die "$name: the torture found no violation, and could not go on: $copy/$name.log"
      return 1
      ;;
    *) die "$name: the torture ended with $status: $copy/$name.log" ;;
  esac
}

# That too little happened to prove anything is no finding.
violations() { grep '^VIOLATION ' "$copy/$1.log" | grep -v '^VIOLATION it proves nothing'; }

# Newer than what was built last, so that cargo sees them.
fresh_sources() {
  rm -rf "$copy/sources" && mkdir -p "$copy/sources" &&
    git ls-files -z Cargo.toml Cargo.lock src migrations openapi examples tests | tar --null --files-from=- -cf - | tar -xmf - -C "$copy/sources" &&
    git -C "$copy/sources" init --quiet
}

main
