#!/usr/bin/env python3
"""Lines and branches that ran, of what was built with -Db_coverage=true.

    coverage.py BUILD FOLDER... [--missing FILE]

Branches of exceptions (any call may throw) and of lines that never ran are left out: the first
would count what the compiler adds, the second stand under lines. --missing lists the branches of
a file that went one way only.
"""

import argparse
import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile


def reports(build):
    """What gcov says of each object."""
    objects = []
    for folder, _, files in os.walk(build):
        objects += [os.path.join(folder, f) for f in files if f.endswith(".gcda")]
    for begin in range(0, len(objects), 20):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run(["gcov", "--json-format", "--branch-probabilities",
                            "--preserve-paths"] + objects[begin:begin + 20], cwd=out,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            for name in os.listdir(out):
                with gzip.open(os.path.join(out, name), "rt", encoding="utf-8") as file:
                    yield json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--missing", default="")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    root = os.path.abspath(os.path.join(args.build, ".."))
    lines = collections.defaultdict(collections.Counter)
    branches = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
    for report in reports(args.build):
        for file in report["files"]:
            path = os.path.relpath(os.path.join(report["current_working_directory"],
                                                file["file"]), root)
            if not any(path.startswith(folder + "/") for folder in args.folders):
                continue
            for line in file["lines"]:
                number = line["line_number"]
                lines[path][number] += line["count"]
                for i, branch in enumerate(b for b in line["branches"] if not b["throw"]):
                    branches[path][number][i] += branch["count"]
    print("| Folder | Lines | ran | % | Branches | taken | % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    table = collections.defaultdict(lambda: [0, 0, 0, 0])
    for path, counts in lines.items():
        for row in (os.path.dirname(path), "all"):
            table[row][0] += len(counts)
            table[row][1] += sum(c > 0 for c in counts.values())
            for number, ways in branches[path].items():
                if counts[number] == 0:
                    continue
                table[row][2] += len(ways)
                table[row][3] += sum(c > 0 for c in ways.values())
    for name, (all_lines, ran, ways, taken) in sorted(table.items(), key=lambda i: (i[0] == "all", i)):
        print(f"| {name} | {all_lines} | {ran} | {100 * ran / max(all_lines, 1):.1f} | {ways} | "
              f"{taken} | {100 * taken / max(ways, 1):.1f} |")
    if args.missing:
        for number, ways in sorted(branches[args.missing].items()):
            if lines[args.missing][number] and not all(ways.values()):
                print(f"{args.missing}:{number}: {sum(c == 0 for c in ways.values())} of {len(ways)}")
        print("never ran:", [n for n, c in sorted(lines[args.missing].items()) if c == 0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
