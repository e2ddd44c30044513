#!/usr/bin/env python3
"""What `ibvexp audit` takes of a tree and of its largest program beside `grep -r`, and `ibvexp
migrate` of the samples beside `clang -fsyntax-only`.

    audit_bench.py --ibvexp IBVEXP --source ROOT [--migrate MIGRATE] [--tree /usr/lib] [--rounds N]
                   [--document FILE]

All files are read once before; then the two commands of a row run in turn, and the medians count.
--document: the table goes between the two marks in that file. Nothing is judged: time depends on
the machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tool"))
from start_bench import write_between  # pylint: disable=wrong-import-position

# 1: found nothing, or something; 2 and 3: files that cannot be read, too.
Row = namedtuple("Row", "title command beside statuses beside_statuses", defaults=[(0, 1, 2, 3)] * 2)
Cost = namedtuple("Cost", "seconds processor megabytes")

# Nothing has it.
STRING = "ibvexp_" + "in_no_file"


def is_elf(path):
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def largest(tree):
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    return max(filter(is_elf, files), key=lambda path: path.stat().st_size)


def rows(args):
    def beside(path):
        return ["grep", "-r", STRING, str(path)]
    yield Row(f"audit of `{args.tree}`", [args.ibvexp, "audit", "-q", str(args.tree)], beside(args.tree))
    program = largest(args.tree)
    yield Row(f"audit of `{program.name}`, {program.stat().st_size >> 20} MB",
              [args.ibvexp, "audit", "-q", str(program)], beside(program))
    if args.migrate:
        samples = sorted(map(str, (args.source / "tests/samples").glob("exp_*.c")))
        flags = [f"-I{args.source / folder}" for folder in ("include/legacy", "include")]
        yield Row(f"migrate of {len(samples)} samples", [args.migrate, *samples],
                  ["clang", "-fsyntax-only", "-w", *flags, *samples], (0, 1), (0,))


def cost(words, statuses):
    begin = time.monotonic()
    null = os.open("/dev/null", os.O_RDWR)
    pid = os.posix_spawnp(words[0], words, os.environ,
                          file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)])
    os.close(null)
    _, status, used = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) in statuses, words
    return Cost(time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median(costs):
    return Cost(*(statistics.median(values) for values in zip(*costs)))


def table(args):
    yield "| | seconds | of processor | MiB | beside: seconds | of processor | ratio of seconds |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows(args):
        subprocess.run(row.beside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        taken, beside = [], []
        for _ in range(args.rounds):
            taken.append(cost(row.command, row.statuses))
            beside.append(cost(row.beside, row.beside_statuses))
        ours, theirs = median(taken), median(beside)
        yield (f"| {row.title} | {ours.seconds:.1f} | {ours.processor:.1f} | {ours.megabytes:.0f} | "
               f"{theirs.seconds:.1f} | {theirs.processor:.1f} | {ours.seconds / theirs.seconds:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ibvexp", required=True)
    parser.add_argument("--source", required=True, type=Path)
    parser.add_argument("--migrate")
    parser.add_argument("--tree", type=Path, default=Path("/usr/lib"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--document", type=Path)
    args = parser.parse_args()
    lines = list(table(args))
    print("\n".join(lines))
    if args.document:
        write_between(args.document, "audit", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
