#!/usr/bin/python3
"""The snippets of the migration guide compile: snippets_test.py GUIDE INCLUDE CC..."""

import re
import subprocess
import sys

COMMON = "#include <errno.h>\n#include <stdint.h>\n#include <string.h>\n"
MODERN = "#include <infiniband/mlx5dv.h>\n#include <infiniband/verbs.h>\n"
HEADERS = {"before": "#include <infiniband/verbs_exp.h>\n", "after": MODERN, "by hand": MODERN}
# What comes after knows at most the helpers of this project.
FOLDERS = {"before": ["", "/legacy"], "after": ["/migrate"], "by hand": []}


def main():
    guide, include, *compiler = sys.argv[1:]
    with open(guide, encoding="utf-8") as file:
        blocks = re.findall(r"^```c (before|after|by hand)\n(.*?)^```", file.read(), re.M | re.S)
    counts, failed = dict.fromkeys(HEADERS, 0), False
    for kind, code in blocks:
        counts[kind] += 1
        flags = [f"-I{include}{folder}" for folder in FOLDERS[kind]]
        done = subprocess.run([*compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror",
                               "-fsyntax-only", *flags, "-x", "c", "-"],
                              input=COMMON + HEADERS[kind] + code, text=True)
        if done.returncode != 0:
            print(f"{kind} {counts[kind]} does not compile", file=sys.stderr)
            failed = True
    print(*(f"{count} {kind}" for kind, count in counts.items()), sep=", ")
    return 1 if failed or counts["before"] != counts["after"] or not blocks else 0


sys.exit(main())
