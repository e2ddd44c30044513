#!/usr/bin/env python3
"""Compares the library's public ABI with the committed reference, by abidiff of
libabigail (Debian: abigail-tools).

    abi_reference.py SURFACE HEADERS REFERENCE
    abi_reference.py --write SURFACE HEADERS REFERENCE

SURFACE is a library that holds all public types, see surface.py; the library's
own debug information names parameters by templates. What the reference has may
not change or go; what is new may come. --write makes the reference anew, for a
release that means to add to it.
"""

import re
import shutil
import subprocess
import sys

SKIPPED = 77


# Only types of our own headers: those of rdma-core differ between its releases.
def write(surface, headers, reference):
    command = ["abidw", "--headers-dir", headers, "--drop-private-types", "--no-comp-dir-path",
               "--no-corpus-path", "--no-elf-needed", "--drop-undefined-syms", surface]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, end="")
        return 1
    # Not where this copy of the headers lies.
    text = re.sub(r"filepath='[^']*include/infiniband/", "filepath='infiniband/", done.stdout)
    with open(reference, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


def compare(surface, headers, reference):
    command = ["abidiff", "--headers-dir2", headers, "--drop-private-types",
               "--no-added-syms", "--no-show-locs", reference, surface]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    print(done.stdout + done.stderr, end="")
    # 1 and 2: abidiff could not work. 4 and 8: the ABI differs.
    return 1 if done.returncode else 0


def main():
    arguments = sys.argv[1:]
    writing = arguments[0] == "--write"
    if writing:
        arguments.pop(0)
    tool = "abidw" if writing else "abidiff"
    if shutil.which(tool) is None:
        print(f"{tool} is not installed (Debian: apt-get install abigail-tools)")
        return SKIPPED
    return (write if writing else compare)(*arguments)


if __name__ == "__main__":
    sys.exit(main())
