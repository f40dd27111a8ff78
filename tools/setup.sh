# Sourced by ../demo and ../check: what must be installed, and the build. Idempotent; says what it does and how long it took.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

started=$SECONDS
stage_name="" stage_started=$SECONDS
stage_times=()
# stage NAME: ends the running stage, starts another.
stage() {
  [ -z "$stage_name" ] || stage_times+=("$(printf '%5ds  %s' $((SECONDS - stage_started)) "$stage_name")")
  stage_name=$1 stage_started=$SECONDS
  [ -z "$1" ] || printf '\n== %s\n' "$1"
}
die() {
  printf '\n%s\n' "$*" >&2
  exit 1
}

# One line for each package of Debian 12: its name, then a command or file that shows it is there.
build_packages='g++ g++
cmake cmake
ninja-build ninja
ccache ccache
ca-certificates /etc/ssl/certs/ca-certificates.crt
libboost1.81-dev /usr/include/boost/beast.hpp
libboost-json1.81-dev /usr/lib/x86_64-linux-gnu/libboost_json.a
libcli11-dev /usr/include/CLI/CLI.hpp
libfmt-dev /usr/include/fmt/format.h
libspdlog-dev /usr/include/spdlog/spdlog.h
libssl-dev /usr/include/openssl/evp.h
libgtest-dev /usr/include/gtest/gtest.h
python3 python3'
check_packages='python3-venv /usr/share/doc/python3-venv
curl curl
nodejs node
npm npm
libbenchmark-dev /usr/include/benchmark/benchmark.h
clang-16 clang++-16
libclang-rt-16-dev /usr/lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.fuzzer-x86_64.a'

there() { case $1 in /*) [ -e "$1" ] ;; *) command -v "$1" >/dev/null 2>&1 ;; esac; }

# The Rust toolchain: cargo 1.85 or later from PATH, else Debian's cargo-web.
cargo_is_new_enough() {
  local version
  version=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
  [ -n "$version" ] || return 1
  set -- $version
  [ "$1" -gt 1 ] || [ "$2" -ge 85 ]
}

# install_packages LIST: installs what is missing as root, else says the one line that does.
install_packages() {
  local missing=() name probe
  while read -r name probe; do
    there "$probe" || missing+=("$name")
  done <<<"$1"
  cargo_is_new_enough || missing+=(cargo-web)
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null 2>&1 || die "These Debian packages, or what they hold, are missing: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    die "Some packages are missing. Run this, then try again:
  sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  printf 'installing %s\n' "${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq || die "apt-get update failed"
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >build/apt.log 2>&1 || { tail -n 20 build/apt.log; die "apt-get install failed (build/apt.log)"; }
  hash -r
  cargo_is_new_enough || die "cargo 1.85 or later is needed; PATH has $(cargo --version 2>/dev/null || echo none)"
}

# build_release TARGET...: configures and builds build/release.
build_release() {
  local configured=build/release/CMakeCache.txt
  # A folder that was moved or copied keeps paths that are no more.
  if [ -e "$configured" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$configured"; then rm -rf build/release; fi
  cmake --preset release >build/configure.log 2>&1 || { tail -n 30 build/configure.log; die "configuring failed (build/configure.log)"; }
  cmake --build build/release --target "$@" || die "building failed"
}

mkdir -p build
