#!/usr/bin/env python3
"""What the migration guide calls "before" is migrated as a whole, is what stands there
as "after", and compiles without the experimental header, as C11 and as C++17, with all
releases of rdma-core at hand. What it calls "by hand" compiles with rdma-core alone.

    guide_test.py MIGRATE GUIDE HELPER [--update] CC... -- CXX...

--update writes the "after" of each "before"; read the difference before you commit it.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import releases

BEGIN = "#include <errno.h>\n#include <stdint.h>\n#include <string.h>\n"
LEGACY = "#include <infiniband/verbs_exp.h>\n"
MODERN = "#include <infiniband/mlx5dv.h>\n#include <infiniband/verbs.h>\n"
LANGUAGES = {"c": "-std=gnu11", "cpp": "-std=gnu++17"}
# Designators in C++ have an order of their own, and the structures another one now.
WARNINGS = {"c": ["-Wextra", "-Werror"], "cpp": ["-Werror", "-Wno-deprecated"]}
BEFORE = re.compile(r"^```c before\n(.*?)^```\n(?:\n```c after\n(.*?)^```\n)?", re.M | re.S)


class Case:
    def __init__(self, tool, helper, compilers, folder):
        self.tool, self.helper, self.compilers, self.folder = os.path.abspath(tool), helper, compilers, folder
        self.failed = []

    def compiles(self, language, source, folders):
        flags = [f for folder in folders for f in ("-I", str(folder))]
        return subprocess.run([*self.compilers[language], LANGUAGES[language], "-Wall", *WARNINGS[language],
                               *flags, "-fsyntax-only", source], capture_output=True, text=True)

    def migrate(self, language, code):
        """The new text of a fragment, or None where it was C only."""
        source = Path(self.folder, f"fragment.{language}")
        source.write_text(BEGIN + LEGACY + code)
        include = Path(self.helper).parent
        before = self.compiles(language, source, [include, include / "legacy"])
        if before.returncode != 0:
            if language == "c":
                self.failed.append(f"before: {before.stderr}")
            return None
        made = subprocess.run([self.tool, "--write", source, "--", LANGUAGES[language]],
                              capture_output=True, text=True)
        if made.returncode != 0:
            self.failed.append(f"{language}: {made.stderr}")
        for folders in [[], *([h] for h in releases.headers())]:
            after = self.compiles(language, source, [self.helper, *folders])
            if after.returncode != 0:
                self.failed.append(f"{language} {folders}: {after.stderr}")
        return source.read_text().replace(BEGIN, "", 1)

    def by_hand(self, code):
        source = Path(self.folder, "by_hand.c")
        source.write_text(BEGIN + MODERN + code)
        done = self.compiles("c", source, [])
        if done.returncode != 0:
            self.failed.append(f"by hand: {done.stderr}")


def shown(text):
    """Includes of rdma-core's own headers go without saying."""
    lines = [l for l in text.splitlines(True)
             if not l.startswith("#include <infiniband/")]
    return "".join(lines).lstrip("\n")


def main():
    tool, guide, helper, *rest = sys.argv[1:]
    update = "--update" in rest
    rest = [r for r in rest if r != "--update"]
    split = rest.index("--")
    compilers = {"c": rest[:split], "cpp": rest[split + 1:]}
    text, count = Path(guide).read_text(), 0
    with tempfile.TemporaryDirectory() as folder:
        case = Case(tool, helper, compilers, folder)

        def renew(match):
            nonlocal count
            count += 1
            after = shown(case.migrate("c", match[1]) or "")
            case.migrate("cpp", match[1])
            if not update and after != match[2]:
                case.failed.append(f"the tool makes something else (--update):\n{after}")
            return f"```c before\n{match[1]}```\n\n```c after\n{after}```\n"

        new = BEFORE.sub(renew, text)
        for code in re.findall(r"^```c by hand\n(.*?)^```", text, re.M | re.S):
            case.by_hand(code)
    if update:
        Path(guide).write_text(new)
    print(f"{count} fragments", *case.failed, sep="\n")
    return 1 if case.failed or not count else 0


sys.exit(main())
