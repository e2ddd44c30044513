#!/usr/bin/env python3
"""Libraries and programs have what distributions ask of them.

    hardening.py [--fortify] [--cet] FILE...

Always: relocations are read-only once it runs (full RELRO), nothing is bound lazily, no stack is
executable, no segment both writable and executable, code is position-independent. --fortify:
sizes of buffers are checked and stacks are guarded, as with the flags of Debian's packages. --cet:
exported functions begin with a landing pad for indirect branches. Whether the whole file is marked
for it is up to the C library's start files, and Debian 12's are not.
"""

import argparse
import subprocess
import sys


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True,
                          check=True).stdout


def without_landing_pad(path, segments, symbols):
    """Exported functions that do not begin with endbr64."""
    with open(path, "rb") as file:
        content = file.read()
    loads = [[int(word, 16) for word in line.split()[1:5]] for line in segments.splitlines()
             if line.split()[:1] == ["LOAD"]]
    found = []
    for line in symbols.splitlines():
        words = line.split()
        if len(words) < 8 or words[3] != "FUNC" or words[6] == "UND":
            continue
        address = int(words[1], 16)
        for offset, start, _, size in loads:
            at = address - start + offset
            if start <= address < start + size and content[at:at + 4] != b"\xf3\x0f\x1e\xfa":
                found.append(words[7])
    return found


def faults(path, fortify, cet):
    """What is missing, one line each."""
    segments, dynamic, header = (readelf(o, path) for o in ("-l", "-d", "-h"))
    if "GNU_RELRO" not in segments:
        yield "no RELRO"
    if "NOW" not in dynamic:
        yield "binds lazily"
    for line in segments.splitlines():
        words = line.split()
        if words[:1] == ["GNU_STACK"] and "E" in words[6]:
            yield "executable stack"
        if words[:1] == ["LOAD"] and "W" in "".join(words[6:8]) and "E" in "".join(words[6:8]):
            yield "a segment is writable and executable"
    if "TEXTREL" in dynamic:
        yield "relocations in code"
    if "EXEC (" in header:
        yield "not position-independent"
    symbols = readelf("--dyn-syms", path)
    if cet:
        bare = without_landing_pad(path, segments, symbols)
        if bare:
            yield "no landing pad: " + " ".join(bare[:5])
    if fortify and "__stack_chk_fail" not in symbols:
        yield "no stack protector"
    if fortify and "_chk@" not in symbols.replace("__stack_chk", ""):
        yield "no FORTIFY"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fortify", action="store_true")
    parser.add_argument("--cet", action="store_true")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    failed = False
    for path in args.files:
        for fault in dict.fromkeys(faults(path, args.fortify, args.cet)):
            print(f"{path}: {fault}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
