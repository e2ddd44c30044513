#!/usr/bin/env python3
"""Instructions of the data path: rdma-core's without the library, and the library's
for the same work. One table.

    hotpath_bench.py --softhca LIB --library LIB [--engine WORD] [--check [--slack RATIO]]
                     PROGRAM MODERN

native   rdma-core without the library: base verbs; for what these cannot do, and in the
         rows below the line, the interface that replaces the experimental one
exp      experimental verbs (families for frames)
base     base verbs through the library
beside   the same beside one of each kind of experimental object; the ratio is to base

Counted by callgrind is what the program, libmlx5 and this library execute, less the
harness; the device, and the lock and copy functions of libc, are not. --check: fail
unless base verbs, and what replaces others, are within their targets, and the
experimental verb takes at most so many instructions more than the base verb as the
search for the operation table. --slack: so much more, since targets are met with one
compiler and one rdma-core.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import families_bench

KINDS = ("send", "srq", "short", "write", "read", "cas", "inline", "ud", "raw", "frame", "error")
# Verb, count: of rdma-core's instructions, at most.
TARGETS = {("post", 1): 0.66, ("post", 16): 0.60, ("poll", 1): 0.75, ("poll", 16): 0.75,
           ("recv", 1): 0.75, ("recv", 16): 0.75}
# Frames through the families, and the base verbs for them.
FAMILIES = {("post", "burst"): "frame", ("post", "pending"): "frame", ("recv", "burst"): "raw",
            ("poll", "cnt"): "frame", ("poll", "length"): "raw"}
MODERN = ("dc", "dc-write", "key", "pattern", "stamped", "packed")
MODERN_TARGET = 0.75
BESIDE = 1.02

# Instructions.
SEARCH = 45


def target(verb, kind, count):
    if kind == "inline" and verb == "post":
        return 0.72
    if kind in MODERN:
        return MODERN_TARGET
    return 0.65 if kind == "empty" else TARGETS[verb, count]


def rows(counts, kinds):
    for verb in ("post", "poll", "recv"):
        for kind in kinds:
            for count in (1, 16):
                if f"{verb}-{kind}-{count}" in counts:
                    yield verb, kind, count


class Table:
    """Prints rows, and knows whether all are within their limits."""

    def __init__(self, slack):
        self.failed, self.slack = False, slack
        print(f"{'instructions, each':22} {'native':>8} {'exp':>8} {'ratio':>6} {'base':>8} "
              f"{'ratio':>6} {'beside':>8} {'ratio':>6} {'target':>7}")

    def row(self, row, native, exp, base=None, beside=None):
        verb, kind, count = row
        limit = target(*row)
        judged = exp if base is None else base
        bad = native <= 0 or judged <= 0 or judged > limit * self.slack * native
        text = f"{f'{verb} {kind} of {count}':22} {native:8.1f} {exp:8.1f} {exp / native:6.2f} "
        if base is None:
            text += f"{'':32}"
        else:
            bad |= exp > base + SEARCH or beside > BESIDE * base
            text += f"{base:8.1f} {base / native:6.2f} {beside:8.1f} {beside / base:6.2f} "
        text += f"{limit:7.2f}"
        if judged > limit * native:
            text += " missed"
        print(text + (" WORSE" if bad else ""))
        self.failed |= bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--engine")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--slack", type=float, default=1.0)
    parser.add_argument("program")
    parser.add_argument("modern")
    args = parser.parse_args()
    os.environ["SOFTHCA_LINK"] = "eth"
    more = {"IBVEXP_ENGINE": args.engine} if args.engine else {}

    def count(job):
        program, mode, ours = job
        found = families_bench.count([program, mode, "-g", "1"], args.softhca,
                                     [args.library] if ours else [], more if ours else {}, mode)
        return {phase: (n - found["harness-nothing-1"]) / int(phase.rsplit("-", 1)[1])
                for phase, n in found.items()}

    jobs = ((args.program, "base", False), (args.program, "exp", True), (args.program, "base", True),
            (args.program, "beside", True), (args.modern, "native", False),
            (args.modern, "exp", True))
    with ThreadPoolExecutor(2) as pool:
        native, exp, base, beside, modern, replaced = pool.map(count, jobs)
    table = Table(args.slack)
    for row in [("poll", "empty", 1), *rows(native, KINDS)]:
        phase = "{}-{}-{}".format(*row)
        table.row(row, native[phase], exp[phase], base[phase], beside[phase])
    for (verb, kind), plain in FAMILIES.items():
        for n in (1, 16):
            table.row((verb, kind, n), native[f"{verb}-{plain}-{n}"], exp[f"{verb}-{kind}-{n}"])
    for row in rows(modern, MODERN):
        phase = "{}-{}-{}".format(*row)
        table.row(row, modern[phase], replaced[phase])
    return 1 if table.failed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
