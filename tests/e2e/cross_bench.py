#!/usr/bin/env python3
"""What a barrier or an allreduce over four processes costs the program that posts, waits and posts at
each step, and the one that leaves the steps to the device (exp_reduce).

    cross_bench.py --softhca LIB --library LIB [--rounds N] PROGRAM

Steps (messages that the program waits for before it goes on), calls that post, completions that it takes
and times that it is woken: as rank 0 counts them. Instructions, in one process: see families_bench.py.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import families_bench

WAYS = {"program": "by the program", "device": "left to the device"}
COUNTED = ("steps", "posts", "completions", "wakeups")
# Of four processes each writes a dump, and the one that starts them an empty one.
PROCESSES = 4


def run(args, command):
    fabric = f"bench-cross-{os.getpid()}"
    env = dict(os.environ, LD_PRELOAD=f"{args.library}:{args.softhca}", SOFTHCA_FABRIC=fabric,
               IBVEXP_BEYOND="cross_channel")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{fabric}", ignore_errors=True)
    if done.returncode != 0 or "all sums verified" not in done.stdout:
        print(done.stdout, done.stderr)
        sys.exit(done.returncode or 1)
    return done.stdout


def counts(args, way):
    """Of one operation."""
    said = run(args, [args.program, "-n", str(args.rounds), "-m", way])
    operations = int(re.search(r"(\d+) operations", said).group(1))
    return {what: int(re.search(rf"(\d+) {what}", said).group(1)) / operations for what in COUNTED}


def instructions(args, way):
    """Of one operation in one process."""
    with tempfile.TemporaryDirectory() as place:
        run(args, ["valgrind", "--tool=callgrind", "--toggle-collect=go_together*", "--compress-strings=no",
                   "--compress-pos=no", "--fair-sched=yes", f"--callgrind-out-file={place}/out.%p",
                   args.program, "-n", str(args.rounds), "-m", way])
        found = [families_bench.instructions(dump, os.path.basename(args.program))
                 for dump in glob.glob(place + "/out.*")]
        found = [each for each in found if each != 0]
        if len(found) != PROCESSES:
            print(f"{len(found)} dumps of callgrind where {PROCESSES} are due")
            sys.exit(1)
        return sum(found) / len(found) / (2 * args.rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("program")
    args = parser.parse_args()
    rows = {way: counts(args, way) for way in WAYS}
    if shutil.which("valgrind"):
        for way, row in rows.items():
            row["instructions"] = instructions(args, way)
    else:
        print("valgrind is missing: instructions are not counted")
    print(f"{'for one barrier or allreduce':30}" + "".join(f"{title:>20}" for title in WAYS.values()))
    for what in rows["program"]:
        print(f"{what:30}" + "".join(f"{rows[way][what]:20.2f}" for way in WAYS))
    print("The processor adds up in both ways: IBV_EXP_SEND_WITH_CALC is refused.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
