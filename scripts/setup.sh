#!/usr/bin/env bash
# Makes a bare Debian 12 ready to build, run and test PBXT. Safe to repeat: what is there is not touched, and a second run
# takes well under two seconds.
#
# What it does, in this order:
#   1. Debian packages that are missing: compiler, Python, the shared libraries the server needs, sysbench (as root, apt-get)
#   2. the Rust toolchain named in rust-toolchain.toml: only checked, never installed behind your back
#   3. build/venv: the Python packages of scripts/requirements.txt
#   4. build/mariadb and build/mariadb-headers: a private MariaDB server and the headers of the same version
# It never installs, replaces, downgrades or stops a MariaDB server of this machine.
set -euo pipefail

# Whoever asks what it does, or mistypes, wants nothing installed.
if [ $# -gt 0 ]; then
  explanation=$(sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0")
  case "$1" in
    -h | --help) printf '%s\n' "$explanation"; exit 0 ;;
    *) printf 'setup: %s is unknown: there are no options.\n%s\n' "$1" "$explanation" >&2; exit 2 ;;
  esac
fi
cd "$(dirname "$0")/.."
mkdir -p build

# One line per purpose; the names are those of Debian 12.
packages=(
  gcc g++ make git ca-certificates patch xz-utils                 # build the core and the plugin; unpack sources
  binutils dpkg-dev lintian                                       # the Debian package of `make package`, and what judges it
  perl procps                                                     # the server's own test driver
  python3 python3-venv                                            # every script but this one
  libaio1 libnuma1 libpcre2-8-0 libpcre2-posix3 liburing2         # what mariadbd links to
  libssl3 libpam0g libsystemd0 libcrypt1 zlib1g
  libedit2 libncurses6 libtinfo6 libmariadb3                      # the client programs
  libsnappy1v5 liblz4-1 libzstd1                                  # MyRocks, the engine we are compared with
  sysbench                                                        # load generator of `make bench`
  librocksdb7.8                                                   # RocksDB as a library, for `make bench-compare`
  valgrind                                                        # counts the instructions of the hot paths
)

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "${packages[@]}" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

install_packages() {
  command -v apt-get >/dev/null || stop "apt-get is missing: this script knows Debian 12 (bookworm) only."
  local missing
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || stop "packages are missing and you are not root: run \`apt-get install ${missing[*]}\` as root, then again."
  say "installing ${missing[*]}"
  apt-get update >build/apt-install.log 2>&1 || stop "apt-get update failed: check the network (build/apt-install.log has the details)."
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --no-upgrade "${missing[@]}" >>build/apt-install.log 2>&1 ||
    stop "apt-get install failed: see the end of build/apt-install.log."
}

check_rust() {
  local wanted have
  wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  command -v cargo >/dev/null || stop "cargo is missing (Debian's own is too old): install rustup from https://rustup.rs, then \`rustup toolchain install $wanted\`."
  have=$(cargo --version 2>/dev/null | cut -d' ' -f2) || stop "the Rust toolchain $wanted is missing: run \`rustup toolchain install $wanted\`."
  [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ] ||
    stop "Rust $have is older than $wanted: run \`rustup toolchain install $wanted\`."
}

install_python() {
  local stamp=build/venv/.installed
  cmp -s scripts/requirements.txt "$stamp" && return 0
  say "Python packages into build/venv"
  local python=python3
  python3 -c 'import ensurepip, venv' 2>/dev/null || python=/usr/bin/python3
  [ -x build/venv/bin/pip ] || "$python" -m venv build/venv >build/pip.log 2>&1 || stop "python3 -m venv failed: see build/pip.log."
  build/venv/bin/pip install --quiet --requirement scripts/requirements.txt >>build/pip.log 2>&1 ||
    stop "pip could not install scripts/requirements.txt: check the network (build/pip.log has the details)."
  cp scripts/requirements.txt "$stamp"
}

install_packages
check_rust
install_python
[ -e build/mariadb/VERSION ] && [ -d build/mariadb-headers ] || python3 scripts/matched_pair.py
say "ready: MariaDB $(cat build/mariadb/VERSION), $(cargo --version)"
