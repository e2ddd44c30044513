#!/usr/bin/env python3
"""What bindgen makes of the headers for programs that include <infiniband/verbs.h> alone:
every enumerator of MLNX_OFED is one of its own enumeration, with its value.

    bindings.py INCLUDE FACTS.JSON DIFFERENCES.JSON RDMA_CORE_INCLUDE
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WORD = 1 << 64


def environment():
    """With Debian 12's libclang where newer ones are installed beside it: its bindgen reads no
    other."""
    library = Path("/usr/lib/llvm-14/lib")
    return {**({"LIBCLANG_PATH": str(library)} if library.is_dir() else {}), **os.environ}


def main():
    include, facts, differences, rdma_core = sys.argv[1:]
    if shutil.which("bindgen") is None:
        print("there is no bindgen")
        return 77
    # Values that are not the recorded ones, and names that are not there, each with a reason.
    ours, absent = {}, set()
    for group in json.loads(Path(differences).read_text(encoding="utf-8"))["groups"]:
        absent.update(group.get("absent", []))
        ours.update({entry["name"]: entry["ours"] for entry in group.get("entries", [])
                     if entry["fact"] == "value" and entry.get("release") != "4.6"})
    with tempfile.TemporaryDirectory() as folder:
        header = Path(folder) / "all.h"
        header.write_text("#include <infiniband/verbs.h>\n#include <infiniband/peer_ops.h>\n"
                          "#include <infiniband/driver.h>\n", encoding="utf-8")
        made = subprocess.run(["bindgen", "--no-layout-tests", header, "--", f"-I{include}/legacy",
                               f"-I{include}", *([f"-I{rdma_core}"] if rdma_core else [])],
                              capture_output=True, text=True, check=False, env=environment())
    if made.returncode != 0:
        print(made.stderr)
        return 1
    bound = {name: int(value) % WORD for name, value in
             re.findall(r"pub const (\w+)\s*:\s+\w+\s+=\s+(-?\d+)\s*;", made.stdout)}
    wrong = [name for name in ("ibv_read_sysfs_file", "ibv_get_sysfs_path")
             if f"pub fn {name}(" not in made.stdout]
    count = 0
    for name, enumeration in json.loads(Path(facts).read_text(encoding="utf-8"))["enums"].items():
        for constant, value in enumeration["constants"].items():
            if constant in absent:
                continue
            count += 1
            found = bound.get(f"{name}_{constant}")
            if found != ours.get(constant, value) % WORD:
                wrong.append(f"{name}: {constant} = {value}: found {found}")
    print(*wrong, f"{count} enumerators, {len(wrong)} wrong", sep="\n")
    return 1 if wrong or count < 700 else 0


if __name__ == "__main__":
    sys.exit(main())
