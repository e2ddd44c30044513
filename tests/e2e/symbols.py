#!/usr/bin/env python3
"""The exported symbols are those of entries.def and the few that interpose.

    symbols.py LIBRARY ENTRIES.DEF ROUTES.DEF
"""

import re
import subprocess
import sys
from pathlib import Path

NODES = {"exp_1_0": "IBVERBS_EXP_1.0", "ibverbs_1_1": "IBVERBS_1.1", "rdmacm_1_0": "RDMACM_1.0"}

# Of the plug-in interface, the one call that an application imports.
PLUG_IN = "ibv_cmd_modify_qp@IBVERBS_1.0"

# In front of the C library's, of any node.
OPENER = "dlopen"


def interposed(path):
    """In front of rdma-core's own, by routes.def. Of two nodes, the older is no default."""
    found = {PLUG_IN, OPENER}
    routes = re.findall(r"^IBVEXP_ROUTE\((\w+), ([\w.]+), (\w+), taken\)", path.read_text(), re.M)
    for library, node, name in routes:
        older = any(o == name and n != node and later(n, node) for l, n, o in routes if l == library)
        found.add(f"{name}{'@' if older else '@@'}{node}")
    return found


def later(node, than):
    number = lambda text: [int(part) for part in text.split("_")[1].split(".")]
    return number(node) > number(than)


def main():
    library, rows, routes = sys.argv[1:]
    with open(rows, encoding="utf-8") as file:
        entries = re.findall(r"^IBVEXP_ENTRY\((\w+),\s*\w+,\s*(\w+),\s*(\w+)", file.read(), re.M)
    expected = interposed(Path(routes))
    for name, door, node in entries:
        if door in ("slot_and_symbol", "symbol"):
            expected.add(f"{name}@@{NODES[node]}")

    output = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                            capture_output=True, text=True).stdout
    found = {fields[2] for fields in map(str.split, output.splitlines()) if fields[1] in "TtWwi"}
    for name in sorted(expected - found):
        print(f"not exported: {name}")
    for name in sorted(found - expected):
        print(f"exported without a row: {name}")
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main())
