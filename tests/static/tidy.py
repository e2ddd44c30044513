#!/usr/bin/env python3
"""clang-tidy finds nothing with the checks of .clang-tidy.

    tidy.py SOURCE_ROOT BUILD [FILE...]

Without files: one of each room, which takes a few seconds; ./run tidy looks at all. The compile
commands of the build are g++'s: options that clang does not know, and the precompiled headers, are
left out.

The checks are those of clang-tidy 14; the test is skipped with other releases.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clang14

SAMPLE = ("src/base/log.cpp", "src/trace/tally.cpp", "src/translate/queue/engine/post_send.cpp",
          "src/translate/verbs/flow.cpp", "src/exp/events.cpp", "src/softhca/model/fetch.cpp",
          "src/tool/elf_head.cpp")
FINDING = re.compile(r"^\S+:\d+:\d+: (?:warning|error): .*\[[^\[\]]+\]$", re.MULTILINE)


def for_clang(command):
    """The arguments of a compile command without what only g++ takes."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word == "-include":
            next(words)
        elif word != "ccache" and not word.startswith(("-W", "-fpch-preprocess", "-mmem")):
            kept.append(word)
    return kept


def write_commands(build, folder):
    with open(build / "compile_commands.json", encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        entry["arguments"] = for_clang(entry.pop("command"))
    with open(Path(folder) / "compile_commands.json", "w", encoding="utf-8") as file:
        json.dump(entries, file)


def main():
    root, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    files = sys.argv[3:] or SAMPLE
    program = clang14.find("clang-tidy")
    if not program:
        return 77
    with tempfile.TemporaryDirectory() as folder:
        write_commands(build, folder)

        def look_at(name):
            return subprocess.run([program, "--quiet", "-p", folder, name], cwd=root,
                                  capture_output=True, text=True)

        with ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
            runs = list(pool.map(look_at, files))
    findings = 0
    for name, run in zip(files, runs):
        found = len(FINDING.findall(run.stdout))
        findings += found
        if found or run.returncode:
            print(run.stdout or f"{name}: {run.stderr}")
    print(len(files), "files,", findings, "findings")
    return 1 if findings or any(run.returncode for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
