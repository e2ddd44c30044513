#!/usr/bin/env python3
"""Holds a built library to the oldest rdma-core that it has to load with.

    version_floor.py LIBRARY

The dynamic linker refuses a library that needs a version node which the
installed rdma-core lacks, whether or not the function is ever called. So what
is newer has to be looked up at run time (src/base/real.h).
"""
import re
import subprocess
import sys

# The newest node of each library in release 28.
FLOOR = {
    'libibverbs.so.1': ('IBVERBS_', (1, 8)),
    'libmlx5.so.1': ('MLX5_', (1, 12)),
    'librdmacm.so.1': ('RDMACM_', (1, 2)),
}


def needed_nodes(library):
    """(library, node) of every version that the dynamic linker will ask for."""
    out = subprocess.run(['readelf', '--version-info', '--wide', library], check=True,
                         capture_output=True, text=True, env={'LC_ALL': 'C', 'PATH': '/usr/bin:/bin'})
    needs = out.stdout.partition('Version needs section')[2]
    owner = ''
    for line in needs.splitlines():
        if found := re.search(r'File: (\S+)', line):
            owner = found[1]
        elif found := re.search(r'Name: (\S+)', line):
            yield owner, found[1]


def too_new(owner, node):
    if owner not in FLOOR:
        return False
    prefix, newest = FLOOR[owner]
    # Nodes without a number are private ones: of one release only.
    if not re.fullmatch(prefix + r'\d+(\.\d+)*', node):
        return True
    return tuple(map(int, node[len(prefix):].split('.'))) > newest


def main():
    library = sys.argv[1]
    nodes = list(needed_nodes(library))
    if not any(owner in FLOOR for owner, _ in nodes):
        sys.exit(f'{library} needs nothing of rdma-core: this is not the library')
    bad = sorted(f'{library} needs {node} of {owner}, which rdma-core 28 does not have'
                 for owner, node in nodes if too_new(owner, node))
    if bad:
        sys.exit('\n'.join(bad))


main()
