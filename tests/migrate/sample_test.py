#!/usr/bin/env python3
"""A sample is migrated, compiled without the experimental header, and run on the
software HCA: alone it says what the legacy one says with the library. It also compiles
with the headers of other releases of rdma-core that are at hand.

    sample_test.py NAME MIGRATE SOURCES HELPER LEGACY LIBEXP SOFTHCA CC...

SOURCES is tests/samples, HELPER the folder of ibvexp_migrate.h, LEGACY the sample
as it is. samples.toml says what is expected.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import releases

HERE = Path(__file__).parent
RUN = HERE.parent / "e2e/samples.py"


def migrate(tool, source, *options):
    return subprocess.run([os.path.abspath(tool), source.name, *options], cwd=source.parent, text=True,
                          capture_output=True)


def copy(sources, name, to):
    """The sample and the headers that it includes; the path of the copy."""
    wanted = [f"{name}.c"]
    for file in wanted:
        text = (sources / file).read_text()
        (to / file).write_text(text)
        wanted += [h for h in re.findall(r'^#include "(.*)"', text, re.M) if h not in wanted]
    return to / f"{name}.c"


def output_of(program, run, preload):
    command = [sys.executable, RUN]
    for library in preload:
        command += ["--preload", library]
    if run.get("pair"):
        command.append("--pair")
    if "address" in run:
        command += ["--address", run["address"]]
    env = dict(os.environ, SOFTHCA_LINK=run.get("link", "ib"), **run.get("env", {}))
    done = subprocess.run([*command, "--", program, *run["args"]], env=env, text=True,
                          capture_output=True)
    lines = [l for l in done.stdout.splitlines()
             if "changing" not in run or not l.startswith(run["changing"])]
    return done.returncode, lines


def check_whole(runs, source, tool, helper, legacy, lib_exp, softhca, compiler):
    done = migrate(tool, source, "--write")
    print(done.stderr, end="")
    assert done.returncode == 0, "not converted"
    again = migrate(tool, source)
    assert (again.returncode, again.stdout) == (0, ""), "a second run changes something"

    program = source.with_suffix("")
    compile = [*compiler, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1",
               "-I", helper, source]
    subprocess.run([*compile, "-o", program, "-lrdmacm", "-lmlx5", "-libverbs"], check=True)
    for headers in releases.headers():
        print("with", headers)
        subprocess.run([*compile, "-fsyntax-only", "-isystem", headers], check=True)
    needed = subprocess.run(["readelf", "-d", program], text=True, capture_output=True).stdout
    assert "ibverbs_exp" not in needed
    for run in runs:
        before = output_of(legacy, run, [lib_exp, softhca])
        after = output_of(program, run, [softhca])
        print(run, *after[1], sep="\n")
        assert before[0] == 0, f"the legacy sample fails: {before}"
        assert before == after, f"{before} before"


def main():
    name, tool, sources, helper, legacy, lib_exp, softhca, *compiler = sys.argv[1:]
    with open(HERE / "samples.toml", "rb") as file:
        expected = tomllib.load(file)[name]
    with tempfile.TemporaryDirectory() as folder:
        source = copy(Path(sources), name, Path(folder))
        if "left" not in expected:
            check_whole(expected["runs"], source, tool, helper, legacy, lib_exp, softhca, compiler)
            return
        done = migrate(tool, source)
        print(done.stderr, end="")
        assert done.returncode == 1, f"it is whole now; the list says: {expected['left']}"


if __name__ == "__main__":
    main()
