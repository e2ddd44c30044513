#!/usr/bin/env python3
"""The public members of objects are after each verb what they are without the library, and queues are
granted the same.

    public_members.py --without PRELOAD --with PRELOAD PROGRAM
"""

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys

LINKS = {"ib": [], "eth": ["-g", "1"]}
# What rdma-core changes after creation: a walk that does not see it change shows nothing.
CHANGING = ("comp_events_completed", "async_events_completed", "events_completed", "state", "cqe",
            "refcnt")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", required=True)
    parser.add_argument("--with", required=True, dest="preload")
    parser.add_argument("program")
    args = parser.parse_args()

    def members(link, engine):
        fabric = f"public-members-{link}-{os.getpid()}"
        env = dict(os.environ, SOFTHCA_LINK=link, SOFTHCA_FABRIC=fabric,
                   LD_PRELOAD=args.preload if engine else args.without)
        if engine:
            env["IBVEXP_ENGINE"] = engine
        done = subprocess.run([args.program, *LINKS[link]], env=env, capture_output=True, text=True,
                              check=False, timeout=100)
        shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{fabric}", ignore_errors=True)
        if done.returncode != 0:
            sys.exit(f"{link}, {engine or 'without the library'}: {done.returncode}\n{done.stderr}")
        return done.stdout.splitlines()

    failed = False
    for link in LINKS:
        without = members(link, None)
        for member in CHANGING:
            if len(set(re.findall(rf"\.{member}=(\d+)", "\n".join(without)))) < 2:
                sys.exit(f"{link}: {member} has one value all the time")
        for engine in ("own", "native"):
            found = members(link, engine)
            difference = list(difflib.unified_diff(without, found, "without", engine, n=0,
                                                   lineterm=""))
            if difference:
                failed = True
                print(f"{link}, IBVEXP_ENGINE={engine}:", *difference[:60], sep="\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
