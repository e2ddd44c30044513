#!/usr/bin/env python3
"""The library does not call itself by way of what it exports.

    one_way.py CORE LIBRARY

CORE: the static library of all rooms; LIBRARY: what it becomes, which exports names of rdma-core. What lies below src/exp refers to nothing that src/exp defines: rdma-core's functions
behind the ones that we interpose are reached through base/real.h. Read from the built objects'
symbols, since an include does not show a call."""

import re
import subprocess
import sys

BELOW = ("base", "table", "trace", "translate")


def symbols(path, *options):
    """(object, defined names, undefined names) of each object in a file."""
    listed = subprocess.run(["nm", "--print-file-name", *options, path], capture_output=True, text=True,
                            check=True).stdout
    objects = {}
    for line in listed.splitlines():
        where, rest = re.split(r":(?=\s*[0-9a-f ]{16} )", line, maxsplit=1)
        kind, name = rest.split()[-2:]
        defined, undefined = objects.setdefault(where, (set(), set()))
        (undefined if kind in "Uw" else defined).add(name.split("@")[0])
    return objects


def main():
    core, library = sys.argv[1:]
    inside = symbols(core)
    room = re.compile(r"_(" + "|".join(BELOW) + r")_[^/]*\.o$")
    exported = set().union(*(defined for defined, _ in symbols(library, "-D").values()))
    for where, (defined, _) in inside.items():
        if not room.search(where):
            exported |= defined
    below = {where: found for where, found in inside.items() if room.search(where)}
    if len(below) < 50 or "ibv_destroy_qp" not in exported:
        print(f"{core}: {len(below)} objects below src/exp: is this the library?")
        return 1
    own = set().union(*(defined for defined, _ in below.values()))
    failed = 0
    for where, (_, undefined) in sorted(below.items()):
        for name in sorted((undefined & exported) - own):
            print(f"{where.rsplit(':', 1)[-1]}: {name} is what src/exp exports: use real()")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
