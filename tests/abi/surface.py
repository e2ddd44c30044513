#!/usr/bin/env python3
"""Writes a C file that holds a pointer to each function of the public headers,
the operation table and the function families, so that debug information has all
public types.

    surface.py ENTRIES.DEF OUTPUT.c
"""

import re
import sys

# Declared by librdmacm.
FOREIGN = ("rdma_establish", "rdma_init_qp_attr")
FAMILIES = ("ibv_exp_qp_burst_family", "ibv_exp_qp_burst_family_v1", "ibv_exp_wq_family",
            "ibv_exp_cq_family", "ibv_exp_cq_family_v1")


def main():
    rows, output = sys.argv[1:]
    with open(rows, encoding="utf-8") as file:
        entries = re.findall(r"^IBVEXP_ENTRY\((\w+),\s*\w+,\s*(\w+)", file.read(), re.M)
    with open(output, "w", encoding="utf-8") as file:
        file.write("#define IBVEXP_EXTERN_CALLS\n")
        for header in ("verbs_exp", "ofa_verbs", "peer_ops"):
            file.write(f"#include <infiniband/{header}.h>\n")
        for name, door in entries:
            if door in ("slot_and_symbol", "symbol") and name not in FOREIGN:
                file.write(f"__typeof__(&{name}) surface_{name};\n")
        file.write("struct verbs_context_exp surface_table;\n")
        for name in FAMILIES:
            file.write(f"struct {name} surface_{name};\n")


if __name__ == "__main__":
    main()
