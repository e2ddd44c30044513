#!/usr/bin/env python3
"""Random programs (differential.cpp) on the engine and on rdma-core's own data path: completions
and memory have to be the same, byte for byte.

    differential.py --preload PATHS [--first N] [--count N] [--link ib|eth]... PROGRAM

What differs for a reason is left out of what the program prints, beside a comment that gives the
reason, or is not part of these programs: what IBVEXP_ENGINE=native refuses (native_test.cpp)."""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile

AT_ONCE = 250  # programs of a process


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preload", required=True)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--link", action="append")
    parser.add_argument("program")
    args = parser.parse_args()

    def run(engine, link, first, count, place):
        out = os.path.join(place, engine)
        fabric = f"{os.environ.get('SOFTHCA_FABRIC', 'differential')}-{os.getpid()}-{engine}"
        env = dict(os.environ, LD_PRELOAD=args.preload, SOFTHCA_LINK=link, IBVEXP_ENGINE=engine,
                   SOFTHCA_FABRIC=fabric, PROGRAMS_OUT=out, FIRST=str(first), COUNT=str(count))
        done = subprocess.run([args.program], env=env, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            print(done.stdout[-1500:], done.stderr[-500:], sep="\n")
            sys.exit(f"{engine}, {link}: ended with {done.returncode}")
        with open(out, encoding="ascii") as lines:
            return lines.read().splitlines()

    compared = 0
    with tempfile.TemporaryDirectory() as place:
        for link in args.link or ["ib", "eth"]:
            for first in range(args.first, args.first + args.count, AT_ONCE):
                count = min(AT_ONCE, args.first + args.count - first)
                ours = run("own", link, first, count, place)
                theirs = run("native", link, first, count, place)
                for one, other in itertools.zip_longest(ours, theirs, fillvalue="nothing"):
                    if one != other:
                        print(f"engine: {one[:600]}", f"native: {other[:600]}", sep="\n")
                        sys.exit(f"{link}: program {one.split()[0]} differs")
                compared += len(ours)
    if compared < 4 * args.count:
        sys.exit(f"only {compared} lines to compare")
    print(f"{args.count} programs, {compared} lines: the same on both data paths")


if __name__ == "__main__":
    main()
