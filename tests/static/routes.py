#!/usr/bin/env python3
"""Every function that rdma-core exports has a line in routes.def, and none else.

    routes.py SOURCE_ROOT [MAP_FILE...]

The list of exports is tests/abi/facts/rdma_core_exports.txt. With version maps of a newer
rdma-core (libibverbs.map.in, libmlx5.map) says what they have beyond.
"""

import re
import sys
from pathlib import Path

WORDS = {"taken", "modern", "passes", "inside"}


def exports(path):
    """(library, node, name) of the committed list."""
    lines = (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))
    return {tuple(fields[:3]) for fields in lines}


def names_of_map(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    bodies = re.findall(r"\{(.*?)\}", text.replace("@IBVERBS_PABI_VERSION@", ""), flags=re.S)
    return {name.rstrip("_") for body in bodies
            for name in re.findall(r"(\w+);", body.split("local:")[0])}


def main():
    root = Path(sys.argv[1])
    routes = re.findall(r"^IBVEXP_ROUTE\(([\w.]+), ([\w.]+), (\w+), (\w+)\)",
                        (root / "src/exp/routes.def").read_text(), re.M)
    known = exports(root / "tests/abi/facts/rdma_core_exports.txt")
    listed = {route[:3] for route in routes}
    faults = [f"no route: {' '.join(e)}" for e in sorted(known - listed)]
    faults += [f"a route of nothing: {' '.join(e)}" for e in sorted(listed - known)]
    faults += [f"twice: {name}" for name in sorted({r[:3] for r in routes
                                                    if sum(r[:3] == o[:3] for o in routes) > 1})]
    faults += [f"{name}: {what}?" for _, _, name, what in routes if what not in WORDS]
    for path in map(Path, sys.argv[2:]):
        faults += [f"{path.name}: {name} is new"
                   for name in sorted(names_of_map(path) - {name for _, _, name in listed})]
    print("\n".join(faults))
    return 1 if faults or not known else 0


if __name__ == "__main__":
    sys.exit(main())
