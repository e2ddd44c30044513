#!/usr/bin/env python3
"""Instructions per request and completion of the experimental verbs and of the
base verbs for the same work, counted by callgrind in one run.

    post_bench.py --softhca LIB --library LIB [--check] PROGRAM

What is counted: see families_bench.py. --check: fail unless posting takes at most
1.25 of the base verb's instructions, and polling 1.4 for one completion, 1.2 each
for many; past the engine (IBVEXP_ENGINE=native) 1.35, 1.7 and 1.6. The inlines of legacy programs, which look for the operation table, count.
"""

import os
import sys

import families_bench

KINDS = ("write", "inline", "read", "atomic", "receive")
LIMITS = {("post", 1): 1.25, ("post", 16): 1.25, ("poll", 1): 1.4, ("poll", 16): 1.2}
PAST_ENGINE = {("post", 1): 1.35, ("post", 16): 1.35, ("poll", 1): 1.7, ("poll", 16): 1.6}


def main():
    args, counts = families_bench.run(__doc__, [{}])
    failed = False
    limits = LIMITS if os.environ.get("IBVEXP_ENGINE", "own") in ("", "own") else PAST_ENGINE
    print(f"{'instructions':24} {'base':>8} {'exp':>8} {'ratio':>6}")
    for verb in ("post", "poll"):
        for count in (1, 16):
            for kind in KINDS:
                phase = f"{verb}-{kind}-{count}"
                base, exp = counts[f"base-{phase}"] / count, counts[f"exp-{phase}"] / count
                print(f"{verb + ' ' + kind + ', each of ' + str(count):24} {base:8.1f} {exp:8.1f} "
                      f"{exp / base:6.2f}")
                failed |= exp > limits[verb, count] * base or base == 0 or exp == 0
    return 1 if failed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
