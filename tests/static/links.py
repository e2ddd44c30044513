#!/usr/bin/env python3
"""Links of the documents lead somewhere, and files that they name exist.

    links.py SOURCE_ROOT

A link leads to a file or a folder, and its fragment to a heading. A file that is
named in code style exists there, below src or tests, or in a room of the library;
words in capitals in its name stand for anything.
"""

import re
import sys
from functools import cache
from pathlib import Path

LINK = re.compile(r'(?:\]\(|\bsrc(?:set)?=")([^)"#\s]*)(#[^)"\s]*)?[)"]')
NAMED = re.compile(r"`([\w./*-]+\.(?:h|cpp|c|def|py|md|map|json|build))`")
# Names of files that are not ours.
FOREIGN = {"infiniband/verbs.h", "mlx5_hw.h", "used.json", "verbs.h"}
ROOMS = ("", "src", "tests", "src/exp", "src/table", "src/translate", "src/translate/verbs",
         "src/translate/queue", "src/translate/convert", "src/softhca", "include")


def slug(heading):
    """The fragment of a heading, as GitHub forms it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return "#" + re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-")


@cache
def fragments(path):
    return {slug(m) for m in re.findall(r"^#+ +(.+)$", path.read_text(encoding="utf-8"), re.M)}


def without_code(text):
    return re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)


def exists(root, folder, name):
    pattern = re.sub(r"[A-Z]{2,}", "*", name)
    if "/" not in pattern:
        return any(True for part in ("src", "tests", "include", "docs")
                   for _ in (root / part).rglob(pattern)) or any(root.glob(pattern))
    return any(any(base.glob(pattern)) for base in (folder, *(root / room for room in ROOMS)))


def main():
    root = Path(sys.argv[1]).resolve()
    documents = sorted([*root.glob("*.md"), *(f for folder in ("docs", "src", "tests")
                                              for f in (root / folder).rglob("*.md"))])
    faults = []
    for document in documents:
        text = without_code(document.read_text(encoding="utf-8"))
        where = document.relative_to(root)
        for number, line in enumerate(text.splitlines(), 1):
            for target, fragment in LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                path = (document.parent / target).resolve() if target else document
                if not path.exists():
                    faults.append(f"{where}:{number}: there is no {target}")
                elif fragment and path.suffix == ".md" and fragment not in fragments(path):
                    faults.append(f"{where}:{number}: {path.name} has no heading {fragment}")
            for name in NAMED.findall(line):
                if name not in FOREIGN and not exists(root, document.parent, name):
                    faults.append(f"{where}:{number}: there is no file {name}")
    print("\n".join(faults) or f"{len(documents)} documents")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
