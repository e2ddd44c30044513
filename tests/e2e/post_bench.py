#!/usr/bin/env python3
"""Instructions per request and completion of the experimental verbs and of the
base verbs for the same work, counted by callgrind in one run.

    post_bench.py --softhca LIB --library LIB [--check] PROGRAM

What is counted: see families_bench.py. --check: fail unless a call takes at most
so many instructions more than the base verb's, most of which are the search for the
operation table in the inlines of legacy programs: 40 for a post, 64 for a completion;
and each of many at most 1.2 of the base verb's.
"""

import sys

import families_bench

KINDS = ("write", "inline", "read", "atomic", "receive")
# Times the base verb's, and so many instructions more.
LIMITS = {("post", 1): (1, 40), ("post", 16): (1.2, 0), ("poll", 1): (1, 64), ("poll", 16): (1.2, 0)}


def main():
    args, counts = families_bench.run(__doc__, [{}])
    failed = False
    print(f"{'instructions':24} {'base':>8} {'exp':>8} {'ratio':>6}")
    for verb in ("post", "poll"):
        for count in (1, 16):
            for kind in KINDS:
                phase = f"{verb}-{kind}-{count}"
                base, exp = counts[f"base-{phase}"] / count, counts[f"exp-{phase}"] / count
                print(f"{verb + ' ' + kind + ', each of ' + str(count):24} {base:8.1f} {exp:8.1f} "
                      f"{exp / base:6.2f}")
                times, more = LIMITS[verb, count]
                failed |= exp > times * base + more or base == 0 or exp == 0
    return 1 if failed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
