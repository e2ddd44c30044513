#!/usr/bin/env python3
"""What the software HCA costs beside other ways between two processes of one machine:

    bench_beside.py --softhca LIB

UCX of the distribution (ucx-utils) sends the same messages over its shared memory, over
TCP through the loopback interface, and over the transports of the emulated device, all
in one run; latencies are half round trips, ratios are to shared memory. Then rc_x among
idle processes, and what a process costs that has the device open and does nothing. On a
machine with other load, or with no more processors than the two programs take, the
figures of transports that post without libmlx5 (_x) say little: a thread of the
device competes for the processor. Without UCX the exit status is 77.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time

from cm_programs import directories
from programs import free_port, listening
from results import SKIPPED
from ucx_programs import DEVICE, environment, finish, start, ucx_perftest

REPEATS = 3   # the best counts: other load of the machine only ever adds
SCENARIOS = (
    ("shared memory", "posix,self", None),
    ("TCP, loopback", "tcp,self", None),
    ("rc_v", "rc_v,self", "ib"),
    ("rc_x", "rc_x,self", "ib"),
    ("dc_x", "dc_x,self", "ib"),
    ("ud_x", "ud_x,self", "ib"),
    ("rc_v, RoCE", "rc_v,self", "eth"),
)
# Test, arguments, column of the result (the average, or all data by all time), factor,
# whether more is better.
MEASURES = (
    ("latency, 8 B, us", "tag_lat", "-s 8 -n 2000 -w 200", 1, 2, False),
    ("latency, 4 KiB, us", "tag_lat", "-s 4096 -n 1000 -w 100", 1, 2, False),
    ("64 KiB, MB/s", "tag_bw", "-s 65536 -n 500 -w 50", 5, 1, True),
)
AMONG = (8, 32)   # processes of one fabric, of which two work


def fabric_name():
    return f"beside-{os.getpid()}"


def measure(lib, tls, link, test, arguments, column):
    """One result of ucx_perftest, or None."""
    port = free_port()
    command = ucx_perftest() + ["-p", str(port), "-f", "-t", test, *arguments.split()]
    fabric = fabric_name()

    def env(host):
        if link is None:
            return dict(os.environ, UCX_TLS=tls)
        return environment(lib, link, host, fabric, UCX_TLS=tls, UCX_NET_DEVICES=DEVICE)

    server = start(command, env(1))
    deadline = time.time() + 20
    while not listening(port) and server.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    client = start(command + ["localhost"], env(2))
    text = finish(client, 60)
    finish(server, 10)
    rows = [words for words in map(str.split, text.splitlines())
            if len(words) == 8 and words[0].isdigit()]
    return float(rows[-1][column]) if rows else None


def waiting_process(lib, fabric):
    """One that has the device open and does nothing."""
    return subprocess.Popen(["ibv_asyncwatch"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, env=environment(lib, "ib", 1, fabric))


def idle(lib, seconds=3):
    """Microseconds of processor and wake-ups, a second, of a process that waits."""
    process = waiting_process(lib, fabric_name())
    tick = os.sysconf("SC_CLK_TCK")

    def used():
        ticks = switches = 0
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{task}/stat", encoding="ascii") as file:
                words = file.read().rpartition(")")[2].split()
                ticks += int(words[11]) + int(words[12])
            with open(f"/proc/{process.pid}/task/{task}/status", encoding="ascii") as file:
                switches += sum(int(line.split()[1]) for line in file
                                if line.startswith("voluntary"))
        return ticks, switches

    try:
        time.sleep(1.5)
        before = used()
        time.sleep(seconds)
        after = used()
    finally:
        process.terminate()
        process.wait()
    return ((after[0] - before[0]) * 1e6 / tick / seconds, (after[1] - before[1]) / seconds)


def row(lib, name, tls, link, base):
    """One line of the table; `base` keeps the first line's results."""
    print(f"{name:20}", end="", flush=True)
    for title, test, arguments, column, factor, more in MEASURES:
        results = [measure(lib, tls, link, test, arguments, column) for _ in range(REPEATS)]
        results = [factor * r for r in results if r is not None]
        if not results:
            print(f"{'-':>24} {'':7}", end="", flush=True)
            continue
        best = max(results) if more else min(results)
        base.setdefault(title, best)
        print(f"{best:24.2f} {best / base[title]:6.2f}x", end="", flush=True)
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--softhca", required=True, help="path of libsofthca.so")
    lib = os.path.abspath(parser.parse_args().softhca)
    if shutil.which("ucx_perftest") is None:
        print("ucx_perftest is not installed (ucx-utils)")
        return SKIPPED
    print(f"{'':20}" + "".join(f"{title:>24} {'ratio':>7}" for title, *_ in MEASURES))
    base = {}
    for name, tls, link in SCENARIOS:
        row(lib, name, tls, link, base)
    if shutil.which("ibv_asyncwatch") is None:
        return 0
    for number in AMONG:
        others = [waiting_process(lib, fabric_name()) for _ in range(number - 2)]
        try:
            time.sleep(1)
            row(lib, f"rc_x, {number} processes", "rc_x,self", "ib", base)
        finally:
            for process in others:
                process.terminate()
            for process in others:
                process.wait()
    processor, wakes = idle(lib)
    print(f"idle: {processor:.0f} us of processor and {wakes:.1f} wake-ups a second")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:   # ended by a signal, waiting processes leave their fabric
        for left in directories(fabric_name()):
            shutil.rmtree(left, ignore_errors=True)
