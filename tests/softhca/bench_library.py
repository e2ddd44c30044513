#!/usr/bin/env python3
"""What libibverbs_exp costs on the software HCA: the same programs with rdma-core alone, with
the library in front, and with rdma-core's own data path behind it (IBVEXP_ENGINE=native).

    bench_library.py --softhca LIB --library LIB PINGPONG

Latencies are half round trips of ib_send_lat, rates those of ib_send_bw, 8 bytes; PINGPONG is
tests/samples/exp_pingpong, which there is no rdma-core alone for. Server and client are pinned,
to a processor each and then to one for both, and take turns with the others: medians of all
rounds. Ratios are to the first column of a row. Without perftest the exit status is 77.
"""

import argparse
import os
import shutil
import statistics
import sys
import time

from programs import free_port, listening
from results import SKIPPED
from ucx_programs import finish, start

ROUNDS = 5
TARGET = 1.3   # of rdma-core alone: latency, and its inverse
COLUMNS = ("rdma-core", "library", "native")
PERFTEST = "-s 8 --use_old_post_send -F"


def pair(lib, library, column, processors, server, client):
    """Runs both; what the client prints, and its seconds."""
    port = free_port()
    env = dict(os.environ, SOFTHCA_FABRIC=f"library-{os.getpid()}",
               LD_PRELOAD=lib if column == "rdma-core" else f"{library}:{lib}")
    if column == "native":
        env["IBVEXP_ENGINE"] = "native"

    def pinned(command, processor):
        return start(["taskset", "-c", str(processor), *command, "-p", str(port)], env)

    other = pinned(server, processors[0])
    deadline = time.time() + 20
    while not listening(port) and other.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    begin = time.time()
    text = finish(pinned(client, processors[-1]), 120)
    seconds = time.time() - begin
    finish(other, 20)
    return text, seconds


def perftest(program, count, width, column):
    """A function that measures: the value in `column` of the line of `width` words."""
    command = [program, "-n", str(count), *PERFTEST.split()]

    def run(*where):
        text, _ = pair(*where, command, [*command, "localhost"])
        rows = [words for words in map(str.split, text.splitlines())
                if len(words) == width and words[0] == "8"]
        return float(rows[-1][column]) if rows else None
    return run


def pingpong(program):
    command = [program, "-n", "5000"]

    def run(*where):
        text, seconds = pair(*where, command, [*command, "localhost"])
        return seconds if "all bytes verified" in text else None
    return run


def row(title, measure, columns, places, more, where):
    found = {column: [] for column in columns}
    for _ in range(ROUNDS):
        for column, results in found.items():
            results.append(measure(*where[:2], column, where[2]))
    print(f"{title:40}" + (f"{'':18}" if columns != COLUMNS else ""), end="")
    base = missed = None
    for column, results in found.items():
        results = [r for r in results if r is not None]
        if not results:
            print(f"{'-':>18}", end="")
            continue
        middle = statistics.median(results)
        base = base or middle
        ratio = middle / base
        missed = missed or (column == "library" and columns == COLUMNS and
                            (1 / ratio if more else ratio) > TARGET)
        print(f"{middle:11.{places}f} {ratio:5.2f}x", end="")
    print(" missed" if missed else "", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("pingpong")
    args = parser.parse_args()
    if shutil.which("ib_send_lat") is None:
        print("ib_send_lat is not installed (perftest)")
        return SKIPPED
    print(f"{'':40}" + "".join(f"{column:>11} {'ratio':>6}" for column in COLUMNS))
    usable = sorted(os.sched_getaffinity(0))
    for title, processors in (("two processors", usable[:2]), ("one processor", usable[:1])):
        if title == "two processors" and len(processors) < 2:
            continue
        where = (os.path.abspath(args.softhca), os.path.abspath(args.library), processors)
        row(f"{title}: latency, us", perftest("ib_send_lat", 3000, 9, 4), COLUMNS, 2, False, where)
        row(f"{title}: million messages/s", perftest("ib_send_bw", 20000, 5, 4), COLUMNS, 3, True,
            where)
        row(f"{title}: exp_pingpong, s", pingpong(os.path.abspath(args.pingpong)),
            ("library", "native"), 2, False, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
