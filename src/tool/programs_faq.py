#!/usr/bin/env python3
"""Puts what is known about programs into the FAQ: programs_faq.py PROGRAMS FAQ [--check]"""

import configparser
import pathlib
import sys
import textwrap

BEGIN, END = "<!-- programs.def: ninja faq -->\n", "<!-- end of programs.def -->\n"


def paragraph(entry):
    text = entry["why"]
    for key in "run", "do":
        if key in entry:
            text += " " + entry[key]
    if "set" in entry:
        text += f" `ibvexp run` sets `{entry['set']}`."
    if "where" in entry:
        text += f" (Since {entry['since']}.)"
    lines = textwrap.wrap(text.replace("\n", " "), 105, break_long_words=False, break_on_hyphens=False)
    return f"**{entry['title']}**\n" + "\n".join(lines) + "\n"


def main():
    programs, faq = map(pathlib.Path, sys.argv[1:3])
    entries = configparser.ConfigParser(interpolation=None, delimiters="=")
    entries.read_string(programs.read_text(encoding="utf-8"))
    before, rest = faq.read_text(encoding="utf-8").split(BEGIN)
    old, after = rest.split(END)
    made = "\n".join(paragraph(entries[name]) for name in entries.sections())
    if sys.argv[3:] == ["--check"]:
        sys.exit(0 if old == made else f"{faq}: differs from {programs}; 'ninja faq' writes it")
    faq.write_text(before + BEGIN + made + END + after, encoding="utf-8")


main()
