#!/usr/bin/env python3
"""Every C and C++ file has the checked-in style.

    format.py SOURCE_ROOT

The style is that of clang-format 14, which Debian 12 has; other releases format
some lines otherwise, so the test is skipped with them.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

RELEASE = "14"


def main():
    root = Path(sys.argv[1])
    program = shutil.which("clang-format-" + RELEASE) or shutil.which("clang-format")
    if not program:
        print("clang-format is not installed")
        return 77
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if not re.search(rf"version {RELEASE}\.", version.stdout):
        print("needs clang-format", RELEASE, "and not", version.stdout.strip())
        return 77
    files = sorted(str(f) for folder in ("src", "tests") for f in (root / folder).rglob("*")
                   if f.suffix in (".c", ".h", ".cpp"))
    done = subprocess.run([program, "--dry-run", "--Werror", *files])
    if done.returncode == 0:
        print(len(files), "files")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
