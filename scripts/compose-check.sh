#!/usr/bin/env bash
# `make compose-check`: docker-compose.yml read by a parser. Docker's own if the client has it (no engine is needed), else a
# plain YAML parser, which finds broken syntax and a missing service but not a misspelt option.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# Debian's package is for Debian's python3; another python3 may come first on the PATH.
python_with_yaml() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import yaml' 2>/dev/null && echo "$python" && return
  done
  return 1
}
has_yaml() { python_with_yaml >/dev/null; }

check_with_python() {
  require "checking docker-compose.yml" has_yaml python3-yaml
  "$(python_with_yaml)" - <<'PYTHON'
import sys, yaml

try:
    services = yaml.safe_load(open("docker-compose.yml"))["services"]
except yaml.YAMLError as error:
    sys.exit(f"docker-compose.yml is not YAML: {error}")
problems = [f"the service {name} is missing" for name in ("postgres", "redis", "payonce") if name not in services]
problems += [f"{name} has no healthcheck" for name in ("postgres", "redis") if "healthcheck" not in services.get(name, {})]
problems += [f"{name} has neither image nor build" for name, s in services.items() if not {"image", "build"} & set(s)]
sys.exit("docker-compose.yml: " + "; ".join(problems) if problems else 0)
PYTHON
}

if have docker && docker compose version >/dev/null 2>&1; then
  docker compose --profile app --file docker-compose.yml config --quiet
  say "docker-compose.yml is fine (docker compose config)"
else
  check_with_python
  say "docker-compose.yml is fine (YAML parser; no docker compose here)"
fi
