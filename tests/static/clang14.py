"""Tools of clang 14, which Debian 12 has; other releases find and format other things."""

import re
import shutil
import subprocess

RELEASE = "14"


def find(tool):
    """The program, or None with a line that says why."""
    program = shutil.which(f"{tool}-{RELEASE}") or shutil.which(tool)
    if not program:
        print(tool, "is not installed")
        return None
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if not re.search(rf"version {RELEASE}\.", version.stdout):
        print(f"needs {tool} {RELEASE} and not", version.stdout.strip())
        return None
    return program
