# For what runs in guests (tests/kernel/checks, tests/vm/checks): a line for each check,
# "ok NAME" or "FAIL NAME (STATUS)" and what was printed. Sourced with $build set.
# shellcheck shell=bash
library=$build/src/exp/libibverbs_exp.so.1
ibvexp=$build/src/tool/ibvexp
samples=$build/tests/samples
log=/tmp/check.log

# Checks whose name does not match $only are left out.
check() {
  local name=$1
  shift
  # shellcheck disable=SC2053
  [[ $name == ${only:-*} ]] || return 0
  if "$@" >$log 2>&1; then echo "ok $name"; else
    echo "FAIL $name ($?)"
    sed 's/^/    /' $log
  fi
}
# With the library, as a legacy program has it.
with() { LD_PRELOAD=$library timeout 100 "$@"; }
without() { timeout 100 "$@"; }
ends_with() {
  local wanted=$1 status=0
  shift
  "$@" || status=$?
  ((status == wanted))
}
# both HOW PROGRAM ARGS: once as a server, once with the server's $address behind.
both() {
  local server status=0
  "$@" &
  server=$!
  # Programs of the connection manager do not show in /proc/net/tcp.
  for _ in {1..20}; do
    grep -qs ' 00000000:0000 0A ' /proc/net/tcp && break
    sleep 0.1
  done
  "$@" ${address--} || status=$?
  ((status == 0)) || kill $server 2>/dev/null
  wait $server && return $status
}
pair() { both with "$@"; }
same_devinfo() {
  ibv_devinfo -v | grep -v 'hca_core_clock' >/tmp/without
  with ibv_devinfo -v | grep -v 'hca_core_clock' >/tmp/with
  [[ -s /tmp/with ]] && diff /tmp/without /tmp/with
}
