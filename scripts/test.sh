#!/usr/bin/env bash
# `make test`: every test. Needs DATABASE_URL and REDIS_URL; with-services.sh gives both.
set -euo pipefail
cd "$(dirname "$0")/.."

if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --locked "$@"
  cargo test --quiet --locked --doc # nextest leaves the examples in the documentation out
else
  cargo test --locked "$@"
fi
