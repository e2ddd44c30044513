"""Fills the option and switch lists of a manual page: fill.py TEMPLATE IBVEXP-MATRIX"""

import json
import subprocess
import sys


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def entries(rows, describe):
    return "\n".join(f".TP\n{describe(r)}\n{escape(r['help'])}" for r in rows)


def option(row):
    allowed = ", ".join(row["allowed"]) if row["type"] in ("choice", "boolean") else ""
    default = f" (default {escape(row['default'])})" if row["default"] else ""
    # Words of .BR follow each other without a space.
    return f'.BR {row["name"]} " {escape(allowed)}{default}"'


def main():
    template, matrix = sys.argv[1:]
    tables = json.loads(subprocess.run([matrix, "--json"], check=True, capture_output=True).stdout)
    with open(template, encoding="utf-8") as file:
        text = file.read()
    switches = [s for s in tables["switches"] if s["status"] == "done"]
    none = "No switch works in this release.\n"
    text = text.replace("@OPTIONS@\n", entries(tables["options"], option) + "\n")
    text = text.replace("@SWITCHES@\n", entries(switches, lambda s: f".B {s['name']}") + "\n"
                        if switches else none)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
