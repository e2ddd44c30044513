#!/usr/bin/env python3
"""Each option that a command's --help has stands in its manual page and in the completions, which their
shells read.

    reference_test.py FOLDER COMMAND=PROGRAM...

FOLDER has what docs/man/reference.py made.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path


def options(text):
    """Of the lines that an option begins."""
    heads = [line.split("  ")[1] for line in text.splitlines() if re.match(r"  -", line)]
    return {name for head in heads for name in re.findall(r"(?:^|[ ,])(--[a-z][a-z-]*)", head)
            if not re.search(rf"(Needs|Excludes):.*{name}", head)}


def asked(shell, *words):
    return subprocess.run([shell, *words], capture_output=True, text=True, check=True).stdout.split()


def main():
    folder, *words = sys.argv[1:]
    made = {name: Path(folder, name).read_text() for name in ("_ibvexp", "ibvexp.fish")}
    faults = []
    for word in words:
        name, program = word.split("=", 1)
        command = [program[1:], name] if program.startswith("@") else [program]
        text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        page = Path(folder, f"ibvexp-{name}.1").read_text().replace("\\-", "-").replace("\\fR", " ")
        zsh = next(line for line in made["_ibvexp"].splitlines() if line.startswith(f"    {name})"))
        fish = [line for line in made["ibvexp.fish"].splitlines() if f"_from {name}'" in line]
        wanted = options(text)
        if len(wanted) < 1:
            faults.append(f"{name}: no option read")
        for option in wanted:
            if f"\\fB{option} " not in page:
                faults.append(f"{name}: {option} is not in the page")
            if f"'{option}[" not in zsh or not any(f"-l {option[2:]} " in line for line in fish):
                faults.append(f"{name}: {option} is not completed")
    for shell, file in ("zsh", "_ibvexp"), ("fish", "ibvexp.fish"):
        if shutil.which(shell):
            subprocess.run([shell, "-n", Path(folder, file)], check=True)
    if shutil.which("fish"):
        source = f"source {Path(folder, 'ibvexp.fish')}; complete -C "
        if "table" not in asked("fish", "-c", source + "'ibvexp audit --format '"):
            faults.append("fish offers no formats")
        if "clean" not in asked("fish", "-c", source + "'ibvexp fabric '"):
            faults.append("fish offers no commands of fabric")
    print(*faults, sep="\n")
    return 1 if faults else 0


sys.exit(main())
