#!/usr/bin/env python3
"""What becomes of tests/samples: converted, compiles, runs alike; as the table in docs/migrate.md.

    table.py MIGRATE SOURCES HELPER BUILD LIBEXP SOFTHCA DOCUMENT CC...

A run counts as alike if the migrated program, without the library, ends and says on the software HCA what
the legacy one does with it.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import sample_test

BEGIN, END = "<!-- samples: ./run migrated -->\n", "<!-- end -->\n"


def row(name, runs, tools, sources, helper, legacy, libraries, compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = sample_test.copy(sources, name, Path(folder))
        report = Path(folder, "report.json")
        sample_test.migrate(tools, source, "--write", "--report", report)
        said = json.loads(report.read_text())
        program = source.with_suffix("")
        made = subprocess.run([*compiler, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1",
                               "-I", helper, source, "-o", program, "-lrdmacm", "-lmlx5", "-libverbs"],
                              capture_output=True, text=True)
        alike = 0
        for run in runs if made.returncode == 0 else []:
            before = sample_test.output_of(legacy, run, libraries)
            alike += before[0] == 0 and before == sample_test.output_of(program, run, libraries[1:])
        comments = sum(len(file["lost"]) for file in said["files"])
        return (f"| `{name}` | {said['converted']} of {said['uses']} | {comments} | "
                f"{'no' if made.returncode else 'yes'} | {alike} of {len(runs)} |\n")


def main():
    tools, sources, helper, build, lib_exp, softhca, document, *compiler = sys.argv[1:]
    with open(Path(__file__).parent / "samples.toml", "rb") as file:
        samples = tomllib.load(file)
    table = "| Sample | Converted | Comments | Compiles | Runs alike |\n| --- | ---: | ---: | --- | ---: |\n"
    for name, expected in samples.items():
        table += row(name, expected.get("runs", []), tools, Path(sources), helper, Path(build, "tests/samples", name),
                     [lib_exp, softhca], compiler)
    print(table)
    text = Path(document).read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    assert pattern.search(text), f"{document} has no place for the table"
    Path(document).write_text(pattern.sub(lambda _: BEGIN + "\n" + table + "\n" + END, text))
    return 0


sys.exit(main())
