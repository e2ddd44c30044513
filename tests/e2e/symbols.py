#!/usr/bin/env python3
"""The exported symbols are those of entries.def and the few that interpose.

    symbols.py LIBRARY ENTRIES.DEF
"""

import re
import subprocess
import sys

NODES = {"exp_1_0": "IBVERBS_EXP_1.0", "ibverbs_1_1": "IBVERBS_1.1", "rdmacm_1_0": "RDMACM_1.0"}

# In front of rdma-core's own. The 1.0 forms are passed on.
TWO_AGES = ("ibv_get_device_list", "ibv_open_device", "ibv_close_device", "ibv_create_qp",
            "ibv_modify_qp", "ibv_destroy_qp", "ibv_create_cq", "ibv_destroy_cq", "ibv_resize_cq",
            "ibv_get_cq_event", "ibv_dereg_mr", "ibv_get_async_event", "ibv_ack_async_event",
            "ibv_modify_srq", "ibv_query_srq", "ibv_destroy_srq")
INTERPOSED = {f"{name}@@IBVERBS_1.1" for name in TWO_AGES}
INTERPOSED |= {f"{name}@IBVERBS_1.0" for name in TWO_AGES}
# Of the plug-in interface, the one call that an application imports.
INTERPOSED |= {"ibv_cmd_modify_qp@IBVERBS_1.0"}
INTERPOSED |= {"ibv_import_device@@IBVERBS_1.10", "mlx5dv_open_device@@MLX5_1.7"}


def main():
    library, rows = sys.argv[1:]
    with open(rows, encoding="utf-8") as file:
        entries = re.findall(r"^IBVEXP_ENTRY\((\w+),\s*\w+,\s*(\w+),\s*(\w+)", file.read(), re.M)
    expected = set(INTERPOSED)
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
