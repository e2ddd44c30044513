#!/usr/bin/env python3
"""What the library costs a program without verbs at its start, beside libibverbs and libmlx5,
and what `ibvexp run` costs.

    start_bench.py --library LIB --ibvexp IBVEXP [--rounds N] [--document FILE]
    start_bench.py --library LIB --ibvexp IBVEXP --check

Processor time of user and system, of all processes of a command, is the median of rounds in which
all commands are started in turn; instructions are callgrind's, in user space. --document: the table
goes between the two marks in that file. --check: instructions of the quick rows alone; fails if
one takes more than its limit. Time is not judged: it depends on the machine.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

# What `command` takes more than `beside`: the target in milliseconds, the limit of --check in
# millions of instructions.
Row = namedtuple("Row", "title command beside target limit")

RDMA_CORE = "libibverbs.so.1:libmlx5.so.1"
BIG = 100 << 20
QUICK = ("true", "python3")
# Without what meson sets, which changes what a start takes.
PLAIN = {name: value for name, value in os.environ.items()
         if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_PERTURB_")}
SKIPPED = 77


def make_big(folder):
    """A program of 100 MB of code that does nothing."""
    source, program = folder / "big.c", folder / "big"
    source.write_text(f'__asm__(".text\\n.fill {BIG // 8}, 8, 0x0840f066c3c35548\\n");\n'
                      "int main(void) { return 0; }\n", encoding="utf-8")
    subprocess.run(["gcc", "-o", program, source], check=True)
    return str(program)


def commands(args, folder):
    """By name, environment and words."""
    found = {"alone": ({}, ["/bin/true"]),
             "rdma-core": ({"LD_PRELOAD": RDMA_CORE}, ["/bin/true"]),
             "library": ({"LD_PRELOAD": args.library}, ["/bin/true"])}
    programs = {"true": ["/bin/true"]}
    for name, words in (("python3", ["-S", "-c", "pass"]), ("clang", ["--version"])):
        if (path := shutil.which(name)) and (name in QUICK or not args.check):
            programs[name] = [os.path.realpath(path), *words]
    if not args.check:
        programs["big"] = [make_big(folder)]
    for name, words in programs.items():
        found[name] = ({}, words)
        found[f"run {name}"] = ({}, [args.ibvexp, "run", "--", *words])
    return found


def rows(found):
    titles = {"true": "`/bin/true`", "python3": "`python3 -S -c pass`", "clang": "`clang --version`",
              "big": "100 MB of code"}
    all_rows = [Row("preloaded into `/bin/true`, beyond libibverbs and libmlx5", "library", "rdma-core",
                    0.3, 0.2)]
    for name, title in titles.items():
        small = name == "true"
        all_rows.append(Row(f"`ibvexp run`: {title}", f"run {name}", name, 5 if small else 30,
                            5 if small else 6))
    return [row for row in all_rows if row.command in found]


def processor_time(environment, words):
    """Milliseconds, of the processes that the command starts, too."""
    null = os.open("/dev/null", os.O_RDWR)
    pid = os.posix_spawn(words[0], words, {**PLAIN, **environment},
                         file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)])
    os.close(null)
    _, status, used = os.wait4(pid, 0)
    assert status == 0, words
    return (used.ru_utime + used.ru_stime) * 1e3


def instructions(environment, words):
    """Of all processes of a command, in millions; the dynamic linker's count."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "--tool=callgrind", "--trace-children=yes",
                        "--callgrind-out-file=/dev/null", f"--log-file={folder}/%p", *words],
                       env={**PLAIN, **environment}, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        texts = [log.read_text(encoding="utf-8") for log in Path(folder).iterdir()]
    counts = [int(n) for text in texts for n in re.findall(r"Collected : (\d+)", text)]
    assert counts, words
    return sum(counts) / 1e6


def check(found):
    counts = {name: instructions(*command) for name, command in found.items()}
    failed = False
    for row in rows(found):
        taken = counts[row.command] - counts[row.beside]
        print(f"{row.title}: {taken:.2f} million instructions, {row.limit} allowed")
        failed |= taken > row.limit
    return 1 if failed else 0


def table(found, rounds):
    times = {name: [] for name in found}
    for _ in range(rounds):
        for name, command in found.items():
            times[name].append(processor_time(*command))
    counts = {name: instructions(*command) for name, command in found.items()}
    yield "| | alone, ms | with, ms | more | target | million instructions more |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows(found):
        before, after = (statistics.median(times[name]) for name in (row.beside, row.command))
        yield (f"| {row.title} | {before:.1f} | {after:.1f} | {after - before:.1f} | {row.target} | "
               f"{counts[row.command] - counts[row.beside]:.2f} |")


def write_between(document, mark, lines):
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->\n"
    head, rest = document.read_text(encoding="utf-8").split(begin)
    document.write_text(head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1],
                        encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--ibvexp", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--document", type=Path)
    args = parser.parse_args()
    args.library, args.ibvexp = os.path.abspath(args.library), os.path.abspath(args.ibvexp)
    if not shutil.which("valgrind"):
        print("valgrind is missing")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        found = commands(args, Path(name))
        if args.check:
            return check(found)
        lines = list(table(found, args.rounds))
    print("\n".join(lines))
    if args.document:
        write_between(args.document, "start", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
