#!/usr/bin/env python3
"""Audit binaries of this system: none of them uses experimental verbs.

    system_test.py IBVEXP [all]

A sample of them, RDMA programs and libraries first; "all" takes every one.
"""

import json
import pathlib
import subprocess
import sys

SAMPLE = 250
LARGEST = 8 << 20
RELATED = ("libibverbs", "librdmacm", "libmlx5", "libmlx4", "ibv_", "ib_", "rping", "libc.so", "libstdc++")


def binaries():
    folders = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64")
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF":
                yield path


def main():
    ibvexp, *how = sys.argv[1:]
    everything = list(binaries())
    chosen = everything
    if how != ["all"]:
        small = [p for p in everything if p.stat().st_size < LARGEST]
        related = [p for p in small if p.name.startswith(RELATED)]
        step = max(1, len(small) // SAMPLE)
        chosen = sorted(set(related + small[::step]))
    done = subprocess.run([ibvexp, "audit", "--json", "-", *chosen], stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    print(f"{report['read']['binaries']} of {len(everything)} binaries read")
    assert report["read"]["binaries"] == len(chosen) > 50
    # The library of this project, if it is installed, is meant to have the names.
    found = [f for f in report["files"] if f["uses"] and "libibverbs_exp" not in f["path"]]
    for file in found:
        for use in file["uses"]:
            print(file["path"], report["subjects"][use["subject"]]["name"], use)
    sys.exit(1 if found else 0)


main()
