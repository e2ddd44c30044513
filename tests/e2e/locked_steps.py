#!/usr/bin/env python3
"""Locked instructions, allocations and system calls of the data path: rdma-core's
without the library, and the library's for the same work.

    locked_steps.py --softhca LIB --library LIB STEPPER PROGRAM MODERN

The rows are those of hotpath_bench.py, executed step by step. Fails if the library has
more of anything than rdma-core; the least of several rounds, since the first one binds and
initializes. A call of the device's pthread_spin_lock() counts as the one locked instruction
of libc's.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import hotpath_bench

COUNTED = ("locked instructions", "allocations", "system calls")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("stepper")
    parser.add_argument("program")
    parser.add_argument("modern")
    args = parser.parse_args()
    symbols = subprocess.run(["nm", "-D", args.softhca], capture_output=True, text=True, check=True)
    lock = re.search(r"^(\w+) T pthread_spin_lock$", symbols.stdout, re.M)[1]

    def count(program, mode, library):
        fabric = f"locked-{os.getpid()}"
        env = dict(os.environ, SOFTHCA_LINK="eth", SOFTHCA_FABRIC=fabric, IBVEXP_ENGINE="own",
                   LOCKED_STEPS_PRELOAD=":".join([*library, args.softhca]))
        done = subprocess.run([args.stepper, os.path.realpath(args.softhca), lock, program, mode,
                               "-g", "1"], env=env, capture_output=True, text=True, check=False)
        shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{fabric}", ignore_errors=True)
        if done.returncode == 77:
            print("programs may not be traced here")
            sys.exit(77)
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            sys.exit(1)
        counts = {}
        for line in done.stdout.splitlines():
            phase, *numbers = line.rsplit(" ", 3)
            numbers = tuple(map(int, numbers))
            if phase:
                counts[phase] = tuple(map(min, counts.get(phase, numbers), numbers))
        return counts

    ours = [args.library]
    columns = [("base", count(args.program, "base", []), count(args.program, "base", ours)),
               ("exp", None, count(args.program, "exp", ours)),
               ("modern", count(args.modern, "native", []), count(args.modern, "exp", ours))]
    native = columns[0][1]
    for (verb, kind), plain in hotpath_bench.FAMILIES.items():
        native[f"{verb}-{kind}-1"] = one = native[f"{verb}-{plain}-1"]
        # Of these functions each call is one frame.
        single = kind in ("pending", "length")
        native[f"{verb}-{kind}-16"] = (tuple(16 * n for n in one) if single
                                       else native[f"{verb}-{plain}-16"])
    bad = 0
    for title, of, found in columns:
        for phase, numbers in sorted(found.items()):
            allowed = (of or native)[phase]
            print(f"{title:7} {phase:22} {allowed} {numbers}")
            for what, least, here in zip(COUNTED, allowed, numbers):
                if here > least:
                    print(f"  {here} {what}, rdma-core has {least}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
