#!/usr/bin/env python3
"""The software HCA asks the kernel itself for memory (base/memory_calls.h): libc's functions
for it are overwritten by programs that watch memory, while our thread may be in one.

    memory_calls.py LIBSOFTHCA
"""

import subprocess
import sys

WATCHED = {"mmap", "mmap64", "munmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt"}


def main():
    wanted = subprocess.run(["nm", "-D", "--undefined-only", sys.argv[1]], capture_output=True,
                            text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in wanted.splitlines()}
    print(*(f"{name}() of libc is called" for name in sorted(names & WATCHED)), sep="\n")
    return 1 if names & WATCHED or not names else 0


if __name__ == "__main__":
    sys.exit(main())
