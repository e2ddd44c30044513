#!/usr/bin/env python3
"""A program that has no or few descriptors left leaves its fabric, and its output stays whole.

    few_descriptors.py PRELOAD PROGRAM
"""

import glob
import os
import resource
import subprocess
import sys


def main():
    preload, program = sys.argv[1:]
    failed = False
    for left in (0, 1, 2, 3, 10):
        fabric = f"few-descriptors-{os.getpid()}-{left}"
        done = subprocess.run([program, str(left)], capture_output=True, text=True, check=False,
                              env=dict(os.environ, LD_PRELOAD=preload, SOFTHCA_FABRIC=fabric),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                    (64, 64)))
        rest = glob.glob(f"/dev/shm/softhca-{os.getuid()}-{fabric}*")
        if done.returncode != 0 or done.stdout != "buffered until the end\n" or rest:
            failed = True
            print(f"{left} left: status {done.returncode}, {done.stdout!r}, {done.stderr!r}", *rest)
    return failed


if __name__ == "__main__":
    sys.exit(main())
