#!/usr/bin/python3
"""The snippets of the migration guide compile: snippets_test.py GUIDE INCLUDE CC..."""

import re
import subprocess
import sys

COMMON = "#include <errno.h>\n#include <stdint.h>\n#include <string.h>\n"
HEADERS = {"before": "#include <infiniband/verbs_exp.h>\n",
           "after": "#include <infiniband/mlx5dv.h>\n#include <infiniband/verbs.h>\n"}


def main():
    guide, include, *compiler = sys.argv[1:]
    with open(guide, encoding="utf-8") as file:
        blocks = re.findall(r"^```c (before|after)\n(.*?)^```", file.read(), re.M | re.S)
    counts, failed = {"before": 0, "after": 0}, False
    for kind, code in blocks:
        counts[kind] += 1
        # What comes after knows nothing of this project.
        flags = ["-I", include] if kind == "before" else []
        done = subprocess.run([*compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror",
                               "-fsyntax-only", *flags, "-x", "c", "-"],
                              input=COMMON + HEADERS[kind] + code, text=True)
        if done.returncode != 0:
            print(f"{kind} {counts[kind]} does not compile", file=sys.stderr)
            failed = True
    print(f"{counts['before']} before, {counts['after']} after")
    return 1 if failed or counts["before"] != counts["after"] or not blocks else 0


sys.exit(main())
