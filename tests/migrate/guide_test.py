#!/usr/bin/env python3
"""What the migration guide calls "before" is migrated as a whole, and compiles without the
experimental header, as C11 and as C++17.

    guide_test.py MIGRATE GUIDE HELPER CC... -- CXX...
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BEGIN = "#include <errno.h>\n#include <stdint.h>\n#include <string.h>\n"
LANGUAGES = {"c": "-std=gnu11", "cpp": "-std=gnu++17"}
# Designators in C++ have an order of their own, and the structures another one now.
WARNINGS = {"c": ["-Wextra", "-Werror"], "cpp": ["-Werror", "-Wno-deprecated"]}


def fragments(guide):
    """(heading, code) of each fragment."""
    heading = ""
    for part in re.split(r"^## ", Path(guide).read_text(), flags=re.M):
        heading = part.splitlines()[0]
        for code in re.findall(r"^```c before\n(.*?)^```", part, re.M | re.S):
            yield heading, code


def compiles(compiler, language, source, helper=None):
    flags = ["-I", helper] if helper else []
    return subprocess.run([*compiler, LANGUAGES[language], "-Wall", *WARNINGS[language], *flags,
                           "-fsyntax-only", source], capture_output=True, text=True)


def main():
    tool, guide, helper, *rest = sys.argv[1:]
    split = rest.index("--")
    compilers = {"c": rest[:split], "cpp": rest[split + 1:]}
    done, failed = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for heading, code in fragments(guide):
            for language, compiler in compilers.items():
                source = Path(folder, f"fragment.{language}")
                source.write_text(BEGIN + "#include <infiniband/verbs_exp.h>\n" + code)
                before = compiles([*compiler, "-I", str(Path(helper).parent)], language, source)
                if language == "cpp" and before.returncode != 0:
                    continue  # was C only
                made = subprocess.run([os.path.abspath(tool), "--write", source, "--",
                                       LANGUAGES[language]], capture_output=True, text=True)
                after = compiles(compiler, language, source, helper)
                done += 1
                if made.returncode != 0 or after.returncode != 0:
                    failed.append(f"{heading} ({language}): {made.stderr}{after.stderr}")
    print(f"{done} fragments", *failed, sep="\n")
    return 1 if failed or not done else 0


sys.exit(main())
