# shellcheck shell=bash
# Shared by the scripts beside it: messages, packages, free ports. Sourced, never run.

# Messages go to stderr: stdout belongs to the command that a script wraps.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
  have apt-get && { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
}

# What the commands here need, all of them together, for whoever has to ask somebody to install it.
all_packages="gcc libc6-dev libpq-dev postgresql redis-tools curl ca-certificates python3-yaml"

# require WHY CHECK PACKAGE…: makes sure that the command CHECK succeeds, installing the packages if it does not.
require() {
  local why=$1 check=$2
  shift 2
  "$check" && return
  can_install ||
    die "$why needs the Debian packages $*, and they can't be installed without root: apt-get install $* (everything that any command here needs: apt-get install $all_packages)."
  say "installing $* ($why)"
  apt_install "$@" || die "apt-get could not install $*; its output is above."
  "$check" || die "$why: $* are installed, and $check still fails."
}

# In a subshell, whose EXIT trap runs on Ctrl-C as well.
apt_install() (
  log=$(mktemp)
  trap 'rm -f "$log"; restore_default_cluster' EXIT
  case " $* " in *" postgresql "*) avoid_default_cluster ;; esac
  { apt_get update && apt_get install --yes --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    exit 1
  }
)

# Another apt (unattended-upgrades, mostly) may hold the lock for a while.
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@"
}

# Debian's postgresql creates and starts a cluster on the standard port when it is installed. Nobody asked for that one.
# The installer reads createcluster.d; the file goes away again, so that a later installation by hand does as usual.
no_cluster_conf=/etc/postgresql-common/createcluster.d/payonce.conf
avoid_default_cluster() {
  as_root mkdir -p "${no_cluster_conf%/*}"
  echo 'create_main_cluster = false' | as_root tee "$no_cluster_conf" >/dev/null
}
restore_default_cluster() {
  [ ! -e "$no_cluster_conf" ] || as_root rm -f "$no_cluster_conf"
}

# A port that nobody listens on, from below the range that the kernel hands out to outgoing connections.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 10000))
    port_is_free "$port" && break
  done
  echo "$port"
}

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

require_postgres() { require "a private PostgreSQL" has_postgres postgresql; }
has_postgres() { have pg_virtualenv && compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' >/dev/null; }
require_redis() { require "a private Redis" has_redis redis-tools; }
has_redis() { have redis-cli && { have redis-server || have redis-check-rdb; }; }

# address_of SERVED PID [LOG]: waits until `payonce serve`, whose stdout is the file SERVED, says where it listens, and
# prints that. LOG is the file of its stderr, if that is not the terminal.
address_of() {
  local address deadline=$((SECONDS + 30))
  until address=$(sed -n 's/^payonce listens on \(http:[^,]*\),.*/\1/p' "$1") && [ -n "$address" ]; do
    if ! kill -0 "$2" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      die "payonce serve did not start.${3:+ Its last words: $(tail -n 5 "$3")}"
    fi
    sleep 0.1
  done
  echo "$address"
}
