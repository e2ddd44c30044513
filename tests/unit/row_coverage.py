#!/usr/bin/env python3
"""Every row is named by a test.

    row_coverage.py SOURCE_ROOT [--list]

A test names a row by a tag [row:NAME] with the row's name or id. For rows that are
native, translated or partial only that counts, and it says: who breaks what the row
does breaks this test. Other rows may also be named by a test that uses their
enumerator or function or, when it walks over the tables, by a tag of the rows it walks
over: [rows:entry,refused], [rows:owner=ENUM,refused], [rows:family=NAME]. --list prints
which file names which row.
"""

import re
import sys
from pathlib import Path

MACRO = re.compile(r"^IBVEXP_(ENTRY|CONSTANT|FEATURE|SAME|LIMIT)\((.*?)\)\s*$", re.S | re.M)
COLUMN = re.compile(r'\s*("(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*|[^,]*)(?:,|$)', re.S)
# What says what the library does. Generated lists of names do not.
TESTS = ("tests/unit/*_test.cpp", "tests/e2e/*", "tests/samples/*.c", "tests/abi/inline_*.cpp",
         "tests/abi/idioms.h", "tests/abi/dispatch.h", "tests/abi/header_alone.py")


class Row:
    def __init__(self, kind, columns):
        if kind == "ENTRY":
            self.id = self.name = columns[0]
            self.family, self.owner, self.door = columns[1], "", columns[2]
            self.verdict, self.kind = columns[5], "entry"
            return
        self.door = None
        self.id = columns[0]
        if kind == "FEATURE":
            self.name = columns.pop(1).strip('"')
        else:
            self.name = self.id
        self.family, self.owner = columns[1], columns[2]
        if kind == "LIMIT":
            self.kind, self.verdict = "limit", "sentinel"
        elif kind == "SAME":
            self.kind, self.verdict = columns[3], "native"
        else:
            self.kind, self.verdict = columns[3], columns[4]

    @property
    def served(self):
        return self.verdict in ("native", "translated", "partial") and self.door != "inline_only"

    @property
    def refused(self):
        return self.verdict in ("unsupported", "beyond")

    def selected_by(self, words):
        for word in words:
            key, _, value = word.partition("=")
            if key == "entry" and self.kind == "entry":
                continue
            if key == "symbol" and self.door in ("symbol", "slot_and_symbol"):
                continue
            if key == "slot" and self.door == "slot_and_symbol":
                continue
            if key == "refused" and self.refused:
                continue
            if key == "limit" and self.kind == "limit":
                continue
            if key in ("owner", "family", "kind", "verdict") and getattr(self, key) == value:
                continue
            return False
        return True


def read_rows(root):
    rows = []
    for path in [root / "src/table/entries.def", *sorted((root / "src/table/features").glob("*.def"))]:
        for kind, text in MACRO.findall(path.read_text(encoding="utf-8")):
            columns = [c.strip() for c in COLUMN.findall(text)]
            rows.append(Row(kind, columns))
    return rows


def main():
    root = Path(sys.argv[1])
    everything = read_rows(root)
    rows = [r for r in everything if r.door != "absent"]
    by_word = {}
    for r in rows:
        by_word.setdefault(r.name, []).append(r)
        by_word.setdefault(r.id, []).append(r)
    named = {}

    known = {r.name for r in everything} | {r.id for r in everything}
    failed = False
    for pattern in TESTS:
        for path in sorted(root.glob(pattern)):
            if not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for tag in re.findall(r"\[row:([^\]]+)\]", text):
                if tag not in known:
                    print(f"{path.relative_to(root)}: there is no row {tag}")
                    failed = True
                for r in by_word.get(tag, ()):
                    named.setdefault(id(r), path)
            for tag in re.findall(r"\[rows:([^\]]+)\]", text):
                chosen = [r for r in rows if r.selected_by(tag.split(","))]
                if not any(r.selected_by(tag.split(",")) for r in everything):
                    print(f"{path.relative_to(root)}: no row is {tag}")
                    failed = True
                for r in chosen:
                    if not r.served:
                        named.setdefault(id(r), path)
            for word in set(re.findall(r"\w+", text)):
                for r in by_word.get(word, ()):
                    if not r.served:
                        named.setdefault(id(r), path)

    for r in rows:
        if id(r) not in named:
            print(f"no test names {r.id} ({r.family}, {r.owner or r.kind}, {r.verdict})")
            failed = True
        elif "--list" in sys.argv:
            print(f"{r.id}: {named[id(r)].relative_to(root)}")
    print(f"{len(named)} of {len(rows)} rows are named by a test")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
