#!/usr/bin/env python3
# Runs a program that mixes interfaces at random (mixed.cpp) without the library, with it, and
# with experimental verbs in the place of ibv_create_qp(), and compares what it prints.
#   mixed.py --preload PATHS --without PATHS [--first SEED] [--seeds N] [--rounds N] PLAIN EXP
import argparse
import difflib
import os
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preload", required=True, help="with the library")
    parser.add_argument("--without", required=True, help="LD_PRELOAD without the library")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=250)
    parser.add_argument("plain")
    parser.add_argument("exp")
    args = parser.parse_args()

    def run(seed, link, threads, program, preload, what):
        env = dict(os.environ, LD_PRELOAD=preload, SOFTHCA_LINK=link,
                   SOFTHCA_FABRIC=f"{os.environ.get('SOFTHCA_FABRIC', 'mixed')}-{what}")
        done = subprocess.run([program, str(seed), str(args.rounds)] + threads, env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            print(done.stdout[-400:], done.stderr[-400:], sep="\n")
            sys.exit(f"{what}, seed {seed}, {link} {threads}: ended with {done.returncode}")
        return done.stdout.splitlines()

    lines = 0
    for seed in range(args.first, args.first + args.seeds):
        for link in ("ib", "eth"):
            for threads in ([], ["threads"]):
                without = run(seed, link, threads, args.plain, args.without, "without")
                lines += len(without)
                for program, what in ((args.plain, "with"), (args.exp, "exp")):
                    found = run(seed, link, threads, program, args.preload, what)
                    difference = list(difflib.unified_diff(without, found, "without", what, n=2,
                                                           lineterm=""))
                    if difference:
                        print(*difference[:40], sep="\n")
                        sys.exit(f"{what}, seed {seed}, {link} {threads}: "
                                 f"not the same as without the library")
    if lines < args.seeds * args.rounds:
        sys.exit(f"only {lines} lines to compare")
    print(f"{args.seeds} seeds, {lines} lines: the same with the library as without")


main()
