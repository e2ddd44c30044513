#!/usr/bin/env python3
"""Instructions of the data path: rdma-core's without the library, and the library's
for the same work through experimental and through base verbs. One table.

    hotpath_bench.py --softhca LIB --library LIB [--engine WORD] [--check] PROGRAM

Counted by callgrind is what the program, libmlx5 and this library execute, less the
harness; the device, and the lock and copy functions of libc, are not. --check: fail
unless the base verb of each row is within what has been reached, and the experimental
one takes at most so many instructions more as the search for the operation table.
"""

import argparse
import os
import sys

import families_bench

KINDS = ("send", "srq", "short", "write", "read", "cas", "inline", "ud")
# Verb, count: of rdma-core's instructions, at most.
TARGETS = {("post", 1): 0.66, ("post", 16): 0.60, ("poll", 1): 0.75, ("poll", 16): 0.75,
           ("recv", 1): 0.75, ("recv", 16): 0.75}

# Where the target is not met: libmlx5's own does nothing but the list.
REACHED = {("recv", "srq", 1): 0.90, ("recv", "srq", 16): 0.97}
# Instructions.
SEARCH = 66


def target(verb, kind, count):
    if kind == "inline" and verb == "post":
        return 0.72
    return 0.65 if kind == "empty" else TARGETS[verb, count]


def rows(counts):
    yield "poll", "empty", 1
    for verb in ("post", "poll", "recv"):
        for kind in KINDS:
            for count in (1, 16):
                if f"{verb}-{kind}-{count}" in counts:
                    yield verb, kind, count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--engine")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("program")
    args = parser.parse_args()
    more = {"IBVEXP_ENGINE": args.engine} if args.engine else {}
    native = families_bench.count([args.program, "base"], args.softhca, [], {})
    ours = families_bench.count([args.program, "exp"], args.softhca, [args.library], more)
    base = families_bench.count([args.program, "base"], args.softhca, [args.library], more)
    failed = False
    print(f"{'instructions, each':22} {'native':>8} {'exp':>8} {'ratio':>6} {'base':>8} {'ratio':>6}"
          f" {'target':>6}")
    for verb, kind, count in rows(native):
        phase = f"{verb}-{kind}-{count}"
        n, e, b = ((c[phase] - c["harness-nothing-1"]) / count for c in (native, ours, base))
        limit = target(verb, kind, count)
        failed |= n <= 0 or b > max(limit, REACHED.get((verb, kind, count), 0)) * n
        failed |= e > b + SEARCH
        print(f"{f'{verb} {kind} of {count}':22} {n:8.1f} {e:8.1f} {e / n:6.2f} {b:8.1f} "
              f"{b / n:6.2f} {limit:6.2f}")
    return 1 if failed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
