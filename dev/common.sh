# shellcheck shell=bash
# What run, dev/run and packaging/run have in common; sourced by them.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD_DIR:-$here/build}
[[ $build = /* ]] || build=$here/$build
source=$here
state=$here/.run

# What a build on a fresh Debian 12 or Ubuntu 24.04 needs, the demo included.
packages=(
  g++ meson ninja-build pkg-config libibverbs-dev librdmacm-dev nlohmann-json3-dev catch2
  libcli11-dev libfmt-dev libarchive-dev libpugixml-dev libcapstone-dev libdw-dev libelf-dev
  ibverbs-providers python3
)
# What the tests run besides.
test_packages=(
  clang clang-format lld ibverbs-utils perftest rdmacm-utils python3-jsonschema python3-pyverbs
  valgrind iproute2 abigail-tools
)
[[ ${CC:-} != clang ]] || packages+=(clang lld)
# What ibvexp migrate needs, and with it the suite "migrate".
migrate_packages=(libclang-common-14-dev libclang-14-dev libclang-cpp14-dev llvm-14-dev)

# Of the tests; tests/static/suites.py compares them with Meson's.
suites=(unit abi softhca e2e truth tool audit migrate harmless campaigns static browser)

# Below the build folder.
library=src/softhca/preload/libsofthca.so
exp_library=src/exp/libibverbs_exp.so.1
pci_server=src/softhca/pci/softhca-pci

say() { echo "run: $*" >&2; }
fail() { say "$*"; exit 1; }

on_soft() { LD_PRELOAD="$build/$library${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"; }

# Runs a command quietly: now and then a word of where it is, all of its output
# if it fails.
quietly() {
  local name=$1 log=$state/$1.log reporter status=0
  shift
  : >"$log"
  # The sleep may outlive us: it holds neither the lock nor a pipe of ours.
  (while sleep 30 9>&- >/dev/null 2>&1; do say "$name: $(tail -n 1 "$log" | cut -c 1-100)"; done) &
  reporter=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$reporter" 2>/dev/null || true
  wait "$reporter" 2>/dev/null || true
  if ((status)); then
    tail -n 60 "$log" >&2
    fail "failed: $* (all output: $log)"
  fi
}

missing_packages() {
  local p
  for p in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null) = installed ]] || echo "$p"
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    command -v meson >/dev/null && command -v pkg-config >/dev/null && return
    fail "this is no Debian; install what these packages contain: ${packages[*]}"
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "missing packages; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  quietly apt-update "${as_root[@]}" apt-get update
  quietly apt-install "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
  # The build folder was configured without them.
  [[ ! -f $build/build.ninja ]] || quietly configure meson setup --reconfigure "$build" "$source"
}

# Ubuntu 22.04 has an older Meson than meson.build asks for.
check_meson() {
  local want have
  want=$(sed -n "s/^  meson_version: '>= \(.*\)',$/\1/p" "$source/meson.build")
  have=$(meson --version)
  [[ $(printf '%s\n' "$want" "$have" | sort -V | head -n 1) = "$want" ]] ||
    fail "Meson $have is too old to build with, $want or newer is needed; the portable packages and the" \
      "tarball run on older systems (README.md, Packages)"
}

# Builds the named targets, or everything.
do_build() {
  mkdir -p "$state"
  # One at a time: a server and a client may be started together.
  exec 9>"$state/lock"
  flock 9
  install_packages
  if [[ ! -f $build/build.ninja ]]; then
    check_meson
    say "configuring $build"
    # Options are words: no quotes.
    # shellcheck disable=SC2086
    quietly configure meson setup ${MESON_ARGS:-} "$build" "$source"
  fi
  if ! ninja -C "$build" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
    say "building"
    quietly build ninja -C "$build" ${JOBS:+-j "$JOBS"} "$@"
  fi
  exec 9>&-
}

# Builds everything and runs the named suites, or all.
do_test() {
  local chosen=() s status=0
  for s in "$@"; do
    [[ " ${suites[*]} " = *" $s "* ]] || fail "there is no suite $s; suites: ${suites[*]}"
    chosen+=(--suite "$s")
  done
  packages+=("${test_packages[@]}")
  [[ " $* " != *" browser "* ]] || packages+=(chromium chromium-driver python3-selenium)
  if [[ " $* " = *" migrate "* ]]; then
    packages+=("${migrate_packages[@]}")
    install_packages
    MESON_ARGS="${MESON_ARGS:-} -Dmigrate=enabled"
    [[ ! -f $build/build.ninja ]] || quietly configure meson configure "$build" -Dmigrate=enabled
  fi
  do_build
  meson test -C "$build" --no-rebuild --print-errorlogs --num-processes "${JOBS:-$((2 * $(nproc)))}" \
    ${chosen[@]+"${chosen[@]}"} || status=$?
  # A log of an earlier run would count for nothing: meson rewrites it first.
  /usr/bin/python3 "$here/tests/support/summary.py" "$build/meson-logs/testlog.json" || status=1
  exit "$status"
}
