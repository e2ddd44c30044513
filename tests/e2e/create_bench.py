#!/usr/bin/env python3
"""Instructions to create and destroy objects as the first ones and among many.

    create_bench.py --softhca LIB --library LIB [--objects N] [--check [--slack RATIO]]
                    PROGRAM [CALLS]

native   rdma-core without the library
base     base verbs through the library
exp      experimental verbs; "burst" and "poll" are ibv_exp_query_intf() and
         ibv_exp_release_intf() of a queue pair and of a completion queue

Counted by callgrind is what the program, libibverbs, libmlx5 and this library execute; the
kernel's part, and libc's, are not. libmlx5 searches for a free user index from the lowest
on, so that each queue pair, target and work queue takes longer than the one before.
--check: fail if anything takes more than a tenth more among many than as the first, that
search aside, or more than its share of rdma-core's instructions, or if opening and closing
a device takes more than the target. CALLS: calls_bench, whose verbs in CALL_LIMITS are
counted, too.
"""

import argparse
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import families_bench

LIBRARIES = ("libibverbs", "libmlx5")
FLAT = 1.1
OPEN_CLOSE = 1.15
# Of rdma-core's instructions for the same, base and experimental verbs: what is wanted, and
# for what is not there yet, what it may not grow beyond.
TARGETS = {("create", "cq"): 1.5, ("create", "srq"): 1.5, ("create", "qp"): 1.5,
           ("create", "mr"): 1.15, ("create", "ah"): 1.1, ("destroy", "mr"): 1.15,
           ("modify", "init"): 1.15, ("modify", "rtr"): 1.15, ("modify", "rts"): 1.15,
           ("modify", "reset"): 1.15, ("query", "device"): 2.0}
LIMITS = {**TARGETS, ("create", "qp"): 1.69, ("create", "mr"): 1.26, ("destroy", "cq"): 1.22,
          ("destroy", "srq"): 1.24, ("destroy", "qp"): 1.28, ("modify", "init"): 1.29,
          ("modify", "rtr"): 1.29, ("modify", "rts"): 1.31, ("modify", "reset"): 1.46}
# The same for other verbs.
CALL_LIMITS = {"get-async": 1.15, "ack-async": 1.15, "create-table": 1.73, "close-xrcd": 1.97,
               "open-xrcd": 1.69, "open-xrcqp": 1.85, "create-xrcqp": 1.15,
               "destroy-xrcqp": 1.48, "number-xrcsrq": 1.27, "destroy-xrcsrq": 1.83,
               "copy-dm": 1.9, "free-dm": 1.74, "create-flow": 1.68,
               "destroy-flow": 1.63, "destroy-table": 1.64, "destroy-wq": 1.86,
               "query-port": 1.45, "prefetch-mr": 1.75, "moderate-cq": 1.51, "query-qp": 1.15,
               "change-mr": 1.5, "query-gid": 1.53, "modify-wq": 1.43,
               "query-srq": 1.15, "limit-srq": 1.15, "attach-group": 1.15, "detach-group": 1.15,
               "resize-cq": 1.15}
WITH_USER_INDEX = ("qp", "dci", "dct", "wq")
KINDS = ("cq", "srq", "qp", "mr", "ah", "dci", "dct", "wq", "key", "domain", "burst", "poll")
STATES = ("init", "rtr", "rts", "reset")
ROWS = [*(("create", kind) for kind in KINDS), *(("destroy", kind) for kind in KINDS),
        *(("modify", state) for state in STATES), ("query", "device")]


def measure(softhca, library, program, objects, counted=LIBRARIES, counter=families_bench.count,
            at_once=2):
    """What each phase executes without the library, by base verbs through it, and by experimental
    ones. counter: as in hotpath_bench.py."""
    os.environ["SOFTHCA_LINK"] = "eth"

    def count(job):
        mode, ours = job
        found = counter([program, mode, "-g", "1", *objects], softhca, [library] if ours else [],
                        {"IBVEXP_ENGINE": "own"} if ours else {},
                        f"{os.path.basename(program)}-{mode}", counted)
        return {phase: n - found["harness-nothing-1"] for phase, n in found.items()}

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(count, (("base", False), ("base", True), ("exp", True))))


def check_calls(args):
    """Whether a verb of CALL_LIMITS is above its own."""
    native, *ours = measure(args.softhca, args.library, args.calls, [], LIBRARIES)
    failed = False
    for name, limit in CALL_LIMITS.items():
        phase = f"call-{name}-1"
        shares = [found[phase] / native[phase] for found in ours if phase in found]
        bad = max(shares) > limit * args.slack
        failed |= bad
        print(f"{name:16}{native[phase]:15}" + "".join(f" {share:5.2f}" for share in shares) +
              f"   limit {limit}" + (" WORSE" if bad else ""))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--objects", default="30000")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--slack", type=float, default=1.0)  # as in hotpath_bench.py
    parser.add_argument("program")
    parser.add_argument("calls", nargs="?")
    args = parser.parse_args()
    columns = measure(args.softhca, args.library, args.program, ["-n", args.objects])
    search = columns[0][f"create-qp-{args.objects}"] - columns[0]["create-qp-1"]
    failed = False
    titles = ("native", "base", "exp")
    print(f"{'instructions':16}" + "".join(f"{title + ', first':>15} {'share':>5} {args.objects:>8}"
                                           for title in titles))
    for verb, kind in ROWS:
        text, bad = f"{verb + ' ' + kind:16}", False
        native = columns[0].get(f"{verb}-{kind}-1")
        for title, found in zip(titles, columns):
            first = found.get(f"{verb}-{kind}-1")
            if first is None:
                text += " " * 30
                continue
            share = f"{first / native:.2f}" if native else ""
            among = found.get(f"{verb}-{kind}-{args.objects}", "")
            text += f"{first:15} {share:>5} {among:>8}"
            own = search if verb == "create" and kind in WITH_USER_INDEX else 0
            if title != "native":
                bad |= among != "" and among - own > FLAT * first
                most = LIMITS.get((verb, kind), math.inf) * args.slack
                bad |= native is not None and first > most * native
        failed |= bad
        print(text.rstrip() + (" WORSE" if bad else ""))
    if args.calls:
        failed |= check_calls(args)
    native, ours, _ = (found["open-close-device-1"] for found in columns)
    print(f"{'open and close':16}{native:15}{'':16}{ours:15}   ratio {ours / native:.2f}, "
          f"target {OPEN_CLOSE}")
    return 1 if args.check and (failed or ours > OPEN_CLOSE * native) else 0


if __name__ == "__main__":
    sys.exit(main())
