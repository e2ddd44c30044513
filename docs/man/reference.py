#!/usr/bin/env python3
"""Manual pages and completions from what the commands' own --help says.

    reference.py man FOLDER COMMAND=PROGRAM...    ibvexp-COMMAND.1 for each
    reference.py zsh|fish COMMAND=PROGRAM...      to standard output

PROGRAM is asked for "COMMAND --help" if it is ibvexp itself (COMMAND=@PROGRAM), else for "--help".
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from fill import escape


class Option:
    def __init__(self, names, value, text):
        self.names, self.value, self.text = names, value, text

    @property
    def choices(self):
        found = re.search(r"{(.*?)}", self.value)
        return found[1].split(",") if found else []

    @property
    def kind(self):
        """What completes its value: choices, file, dir, any, or nothing for a flag."""
        if self.choices:
            return "choices"
        if not self.value:
            return ""
        if re.search(r"\bDIR\b|\bFOLDER\b", self.value):
            return "dir"
        return "file" if re.search(r"\bFILE\b|\bPROGRAM\b|\bKERNEL\b", self.value) else "any"


class Command:
    """One --help, of CLI11 or argparse."""

    def __init__(self, name, text):
        self.name = name
        blocks = [block for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
        first = blocks.pop(0).splitlines()
        usage = [line for line in first if line.lower().startswith("usage:")]
        about = [line for line in first if not line.lower().startswith("usage:")]
        self.usage = usage[0].split(":", 1)[1].strip()
        if not about:
            about = blocks.pop(0).splitlines()
        self.about = " ".join(line.strip() for line in about).partition(": ibvexp ")[0].rstrip(".")
        self.options, self.arguments, self.commands, self.rest = [], [], [], []
        for block in blocks:
            head, _, body = block.partition("\n")
            title = head.strip().rstrip(":").lower()
            if title == "options":
                self.options = [Option(*self.split(*entry)) for entry in self.entries(body)]
            elif title in ("positionals", "positional arguments"):
                self.arguments = self.entries(body)
            elif title == "subcommands":
                self.commands = self.entries(body)
            else:
                self.rest.append(" ".join(block.split()))
        assert self.options, f"{name}: nothing read of {text}"

    @staticmethod
    def entries(body):
        """(head, text) of each: lines with two blanks in front begin one, deeper ones go on."""
        found = []
        for line in body.splitlines():
            if re.match(r"  \S", line):
                head, _, text = line.strip().partition("  ")
                found.append([head, text.strip()])
            else:
                found[-1][1] = (found[-1][1] + " " + line.strip()).strip()
        return found

    @staticmethod
    def split(head, text):
        names = re.findall(r"(?:^|[ ,])(--?[A-Za-z][A-Za-z-]*)", re.sub(r"(Needs|Excludes):.*", "", head))
        names = sorted(set(names), key=len)
        value = re.sub(r"(?:^|[ ,])--?[A-Za-z][A-Za-z-]*", "", head).replace("{false}", "").strip(" ,")
        value = re.sub(r"\s*(Needs|Excludes):.*| x \d+$", "", value)
        value = re.sub(r"^(TEXT|WHAT):(?={)", "", value).replace("TEXT:", "").replace("INT:INT", "N")
        return names, value, text


def man(command):
    lines = [f'.TH IBVEXP\\-{command.name.upper()} 1 "" "libibverbs_exp" "Experimental verbs"',
             ".SH NAME", f"ibvexp\\-{command.name} \\- {escape(command.about)}",
             ".SH SYNOPSIS", f".B {escape(command.usage)}"]
    for title, entries in ("ARGUMENTS", command.arguments), ("COMMANDS", command.commands):
        if entries:
            lines.append(f".SH {title}")
        for head, text in entries:
            lines += [".TP", f".B {escape(head)}", escape(text)]
    lines.append(".SH OPTIONS")
    for option in command.options:
        names = ", ".join(f"\\fB{escape(name)}\\fR" for name in option.names)
        lines += [".TP", names + (f" \\fI{escape(option.value)}\\fR" if option.value else ""),
                  escape(option.text)]
    if command.rest:
        lines.append(".SH NOTES")
        for text in command.rest:
            lines += [".PP", escape(text)]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR ibvexp (1)", ""])


def quoted(text, marks):
    for mark in marks:
        text = text.replace(mark, " ")
    return text.replace("'", "'\\''")


def zsh(commands):
    out = ["#compdef ibvexp", "# Made from what the commands' --help says.", "_ibvexp() {",
           "  local -a commands=("]
    out += [f"    '{c.name}:{quoted(c.about, ':')}'" for c in commands]
    out += ["  )", "  if ((CURRENT == 2)); then _describe command commands; return; fi", "  case $words[2] in"]
    action = {"choices": None, "file": "_files", "dir": "_files -/", "any": " "}
    for c in commands:
        specs = []
        for option in c.options:
            text = quoted(option.text, "[]:")
            tail = ""
            if option.kind:
                values = f"({' '.join(option.choices)})" if option.choices else action[option.kind]
                tail = f":value:{values}"
            specs += [f"'{name}[{text}]{tail}'" for name in option.names]
        rest = {"run": "_normal", "doctor": "_normal", "vm": "_normal"}.get(c.name, "_files")
        if c.commands:
            rest = f"({' '.join(head for head, _ in c.commands)})"
        out.append(f"    {c.name}) shift words; ((CURRENT--)); _arguments -S {' '.join(specs)} "
                   f"'*::argument:{rest}' ;;")
    return "\n".join([*out, "  esac", "}", '_ibvexp "$@"', ""])


def fish(commands):
    out = ["# Made from what the commands' --help says.",
           f"set -l commands {' '.join(c.name for c in commands)}", "complete -c ibvexp -f -n __fish_use_subcommand"]
    for c in commands:
        out.append(f"complete -c ibvexp -f -n __fish_use_subcommand -a {c.name} -d '{quoted(c.about, '')}'")
        for option in c.options:
            flags = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
            value = {"": "", "choices": f" -x -a '{' '.join(option.choices)}'", "file": " -r -F",
                     "dir": " -x -a '(__fish_complete_directories)'", "any": " -x"}[option.kind]
            out.append(f"complete -c ibvexp -n '__fish_seen_subcommand_from {c.name}' {' '.join(flags)}{value} "
                       f"-d '{quoted(option.text, '')}'")
        for head, text in c.commands:
            out.append(f"complete -c ibvexp -f -n '__fish_seen_subcommand_from {c.name}' -a {head} "
                       f"-d '{quoted(text, '')}'")
    return "\n".join(out) + "\n"


def ask(word):
    name, program = word.split("=", 1)
    words = [program[1:], name] if program.startswith("@") else [program]
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True,
                          env=dict(os.environ, XDG_CACHE_HOME="~/.cache", COLUMNS="100"))
    return Command(name, done.stdout)


def main():
    form, *words = sys.argv[1:]
    if form == "man":
        folder, *words = words
        for command in map(ask, words):
            Path(folder, f"ibvexp-{command.name}.1").write_text(man(command))
    else:
        sys.stdout.write({"zsh": zsh, "fish": fish}[form]([ask(word) for word in words]))


if __name__ == "__main__":
    main()
