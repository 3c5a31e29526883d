#!/usr/bin/env bash
# `make deny`: bans, licences and sources of all dependencies (deny.toml).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# Compiling it takes minutes (3 min 20 s on two cores), so a person is asked first, and CI is not.
may_install() { [ "${PAYONCE_INSTALL_TOOLS:-}" = 1 ] || [ "${CI:-}" = true ]; }

if ! have cargo-deny; then
  if may_install; then
    say "compiling cargo-deny; once per machine, takes minutes"
    # A new minor version may ask for another deny.toml. CARGO_TARGET_DIR would put the tool's build among ours.
    env -u CARGO_TARGET_DIR cargo install --quiet --locked --version '^0.20' cargo-deny || say "cargo-deny could not be installed"
  else
    say "cargo-deny is not installed (PAYONCE_INSTALL_TOOLS=1 make deny compiles it)"
  fi
fi

PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
if ! have cargo-deny; then
  say "SKIPPED: dependencies were not checked"
  exit 0
fi
cargo deny --locked check --hide-inclusion-graph bans licenses sources
