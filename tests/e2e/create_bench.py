#!/usr/bin/env python3
"""Instructions to create and destroy objects as the first ones and among many.

    create_bench.py --softhca LIB --library LIB [--objects N] [--check] PROGRAM

native   rdma-core without the library
base     base verbs through the library
exp      experimental verbs; "burst" and "poll" are ibv_exp_query_intf() and
         ibv_exp_release_intf() of a queue pair and of a completion queue

Counted by callgrind is what the program, libibverbs, libmlx5 and this library execute; the
kernel's part, and libc's, are not. libmlx5 searches for a free user index from the lowest
on, so that each queue pair, target and work queue takes longer than the one before.
--check: fail if anything takes more than a tenth more among many than as the first, that
search aside, or if opening and closing a device takes more than the target.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import families_bench

LIBRARIES = ("libibverbs", "libmlx5")
FLAT = 1.1
OPEN_CLOSE = 1.15
WITH_USER_INDEX = ("qp", "dci", "dct", "wq")
KINDS = ("cq", "srq", "qp", "mr", "dci", "dct", "wq", "key", "domain", "burst", "poll")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--objects", default="30000")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("program")
    args = parser.parse_args()
    os.environ["SOFTHCA_LINK"] = "eth"

    def count(job):
        mode, ours = job
        found = families_bench.count([args.program, mode, "-g", "1", "-n", args.objects],
                                     args.softhca, [args.library] if ours else [],
                                     {"IBVEXP_ENGINE": "own"} if ours else {},
                                     f"create-{mode}", LIBRARIES)
        return {phase: n - found["harness-nothing-1"] for phase, n in found.items()}

    with ThreadPoolExecutor(2) as pool:
        columns = list(pool.map(count, (("base", False), ("base", True), ("exp", True))))
    search = columns[0][f"create-qp-{args.objects}"] - columns[0]["create-qp-1"]
    failed = False
    titles = ("native", "base", "exp")
    print(f"{'instructions':16}" + "".join(f"{title + ', first':>15} {args.objects:>8} {'ratio':>6}"
                                           for title in titles))
    for verb in ("create", "destroy"):
        for kind in KINDS:
            text = f"{verb + ' ' + kind:16}"
            for title, found in zip(titles, columns):
                first = found.get(f"{verb}-{kind}-1")
                if first is None:
                    text += " " * 31
                    continue
                among = found[f"{verb}-{kind}-{args.objects}"]
                text += f"{first:15} {among:8} {among / first:6.2f}"
                own = search if verb == "create" and kind in WITH_USER_INDEX else 0
                failed |= title != "native" and among - own > FLAT * first
            print(text.rstrip())
    native, ours, _ = (found["open-close-device-1"] for found in columns)
    print(f"{'open and close':16}{native:15}{'':16}{ours:15}   ratio {ours / native:.2f}, "
          f"target {OPEN_CLOSE}")
    return 1 if args.check and (failed or ours > OPEN_CLOSE * native) else 0


if __name__ == "__main__":
    sys.exit(main())
