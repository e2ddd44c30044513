#!/usr/bin/env python3
"""Writes a library for the linker alone: the names and version nodes of an
installed library, and in addition those that the library of MLNX_OFED had.

    stand_in.py LIBRARY ENTRIES.DEF NODE OUTPUT.c OUTPUT.map

Programs that are linked with it refer to symbols as a legacy binary does. At run
time the installed library is loaded, which has the same soname.
"""

import re
import subprocess
import sys

NODES = {"IBVERBS_1.1": "ibverbs_1_1", "RDMACM_1.0": "rdmacm_1_0"}


def main():
    library, rows, node, source, script = sys.argv[1:]
    nodes = {}
    output = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                            capture_output=True, text=True).stdout
    for fields in map(str.split, output.splitlines()):
        name, _, version = fields[2].partition("@@")
        if fields[1] in "TtWwi" and version and "PRIVATE" not in version:
            nodes.setdefault(version, set()).add(name)
    with open(rows, encoding="utf-8") as file:
        entries = re.findall(r"^IBVEXP_ENTRY\((\w+),\s*\w+,\s*\w+,\s*(\w+)", file.read(), re.M)
    legacy = {name for name, of in entries if of == NODES[node]}
    for names in nodes.values():
        names -= legacy   # moved to another node since
    nodes.setdefault(node, set()).update(legacy)

    nodes = {version: names for version, names in nodes.items() if names}

    with open(source, "w", encoding="utf-8") as file:
        for names in nodes.values():
            for name in sorted(names):
                file.write(f"void {name}(void);\nvoid {name}(void) {{}}\n")
    with open(script, "w", encoding="utf-8") as file:
        for version, names in nodes.items():
            file.write(f"{version} {{\n\tglobal:\n")
            for name in sorted(names):
                file.write(f"\t\t{name};\n")
            file.write("};\n")


if __name__ == "__main__":
    main()
