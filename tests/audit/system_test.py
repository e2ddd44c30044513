#!/usr/bin/env python3
"""Audit binaries of this system: none of them uses experimental verbs.

    system_test.py IBVEXP [all]

A sample of them, RDMA programs and libraries first; "all" takes every one. Of the
processor time it measures whether two cores take less than 5 s for 10 million
instructions, and of memory, what the largest library here takes.
"""

import json
import os
import pathlib
import resource
import struct
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


def code_bytes(path):
    """Of the executable segments."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[4] != 2:
            return 0
        offset, = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(offset)
        segments = [struct.unpack_from("<IIQQQQ", file.read(size)) for _ in range(count)]
    return sum(s[5] for s in segments if s[0] == 1 and s[1] & 1)


# An instruction is a little over 4 bytes long.
BYTES_PER_INSTRUCTION = 4.5


def check_speed(chosen):
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    instructions = sum(map(code_bytes, chosen)) / BYTES_PER_INSTRUCTION
    seconds = (used.ru_utime + used.ru_stime) / instructions * 10e6
    print(f"{instructions / 1e6:.1f} million instructions; {seconds:.1f} s of processor time for 10 million, "
          f"{used.ru_maxrss >> 10} MB")
    assert seconds < 2 * 5


def largest():
    """Such as Rust's LLVM library, with 200 MB."""
    folders = [pathlib.Path("/usr/lib/x86_64-linux-gnu"), *pathlib.Path.home().glob(".rustup/toolchains/*/lib")]
    found = [p for folder in folders for p in folder.glob("*.so*") if p.is_file() and not p.is_symlink()]
    return max(found, key=lambda p: p.stat().st_size)


def check_memory(ibvexp, path):
    """Below 250 MB, however large the binary: that of its largest function."""
    # With it, which meson sets, memory that is given back is written to once more.
    env = {name: value for name, value in os.environ.items() if name != "MALLOC_PERTURB_"}
    child = subprocess.Popen([ibvexp, "audit", "-q", path], env=env)
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0, status
    print(f"{path.name}: {path.stat().st_size >> 20} MB take {used.ru_maxrss >> 10} MB")
    assert used.ru_maxrss < 250 << 10


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
    check_speed(chosen)
    check_memory(ibvexp, largest())
    # The library of this project, if it is installed, is meant to have the names.
    found = [f for f in report["files"] if f["uses"] and "libibverbs_exp" not in f["path"]]
    for file in found:
        for use in file["uses"]:
            print(file["path"], report["subjects"][use["subject"]]["name"], use)
    sys.exit(1 if found else 0)


main()
