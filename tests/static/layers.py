#!/usr/bin/env python3
"""Every source file lies in a layer and includes only what its layer may see.

    layers.py SOURCE_ROOT

Fails on an include that points up or sideways, on one that is not written from
the root of its part, on a circle of files, on a file that no layer lists, and on a
file name that stands twice in a part.
ARCHITECTURE.md says what each layer is for.
"""

import re
import sys
from pathlib import Path

# Root of the includes, then its layers from the bottom up: folder, and the
# folders below it that it may include. What lies deeper belongs to the folder.
PARTS = {
    "src": {
        "base": [],
        "table": ["base"],
        "trace": ["base", "table"],
        "translate/convert": ["base", "table"],
        "translate/state": ["base", "table", "translate/convert"],
        "translate/queue": ["base", "table", "trace", "translate/convert", "translate/state"],
        "translate/verbs": ["base", "table", "trace", "translate/convert", "translate/state",
                            "translate/queue"],
        "exp": ["base", "table", "trace", "translate/convert", "translate/state",
                "translate/queue", "translate/verbs"],
        # Reads the tables and what was traced; nothing else of the library.
        "tool": ["base", "table", "trace"],
    },
    # Knows nothing of the library above.
    "src/softhca": {
        "base": [],
        "config": ["base"],
        "fault": ["base", "config"],
        "wire": ["base", "config"],
        "model": ["base", "config", "fault", "wire"],
        # Precompiled for all of the core: nothing above the model.
        "pch": ["base", "config", "fault", "wire", "model"],
        "engine": ["base", "config", "fault", "wire", "model"],
        "firmware": ["base", "config", "fault", "wire", "model", "engine"],
        "uverbs": ["base", "config", "fault", "wire", "model", "engine", "firmware"],
        "umad": ["base", "config", "fault", "wire", "model", "engine", "firmware", "uverbs"],
        "cm": ["base", "config", "fault", "wire", "model", "engine", "firmware", "uverbs",
               "umad"],
        "nldev": ["base", "config", "fault", "wire", "model", "engine", "firmware", "uverbs",
                  "umad", "cm"],
        "preload": ["base", "config", "fault", "wire", "model", "engine", "firmware", "uverbs",
                    "umad", "cm", "nldev"],
        # The other body: a process of its own, with a kernel in a virtual machine above.
        "pci": ["base", "config", "fault", "wire", "model", "engine", "firmware"],
    },
}

# What a layer reads of another part, which knows nothing of it.
SEAMS = {"tool": {"softhca/wire/listing.h"}}

# Made by the build.
GENERATED = {"report_template.h", "api_names.inc", "api_structures.inc", "programs_text.h", "migrating_text.h"}

SUFFIXES = {".h", ".cpp", ".c", ".def", ".inc"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def layer_of(path, layers):
    """The layer of a path below a part's root, or None."""
    inside = [name for name in layers if name == "" or path.startswith(name + "/")]
    return max(inside, key=len) if inside else None


def check_order(layers):
    """The layers name only those before them: then there is no circle of layers."""
    seen = set()
    for name, below in layers.items():
        yield from (f"{name}: {other} is not below it" for other in below if other not in seen)
        seen.add(name)


def find_circle(graph):
    """Files that include each other, as a list from one back to itself; or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for other in graph.get(node, ()):
            if found := visit(other):
                return found
        done.add(path.pop())
        return None

    for node in graph:
        if found := visit(node):
            return found
    return None


# Where the data path has two ways of doing a thing, until one of them is left.
TWICE = {"src": {"translate/queue"}}


def check_names(part, files):
    """Two files of one name in different folders."""
    folders = {}
    for path in map(Path, sorted(files)):
        folders.setdefault(path.name, []).append(path)
    for name, paths in folders.items():
        if len(paths) > 1 and not any(p.is_relative_to(f) for p in paths
                                      for f in TWICE.get(part, ())):
            yield f"{name} stands twice: " + ", ".join(map(str, paths))


def check_part(base, layers, files):
    """Faults of the files of one part; files are relative to its root."""
    graph = {}
    for path in files:
        own = layer_of(path, layers)
        if own is None:
            yield f"{path}: no layer lists it"
            continue
        text = (base / path).read_text()
        for match in INCLUDE.finditer(text):
            wanted = match[1]
            line = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            if wanted in GENERATED or wanted in SEAMS.get(own, ()):
                continue
            if wanted not in files:
                yield f'{line}: "{wanted}" is not written from {base.name}/, or does not exist'
                continue
            graph.setdefault(path, []).append(wanted)
            other = layer_of(wanted, layers)
            if other is not None and other != own and other not in layers[own]:
                yield f'{line}: {own} may not include {other}: "{wanted}"'
    if circle := find_circle(graph):
        yield "circle: " + " -> ".join(circle)


def main():
    root = Path(sys.argv[1])
    faults, count = [], 0
    for part, layers in PARTS.items():
        base = root / part
        others = [root / p for p in PARTS if p != part and p.startswith(part + "/")]
        files = {str(f.relative_to(base)) for f in base.rglob("*")
                 if f.suffix in SUFFIXES and not any(f.is_relative_to(o) for o in others)}
        count += len(files)
        faults += check_order(layers)
        faults += check_names(part, files)
        faults += check_part(base, layers, files)
    print("\n".join(sorted(faults)) or f"{count} files")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
