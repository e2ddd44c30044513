#!/usr/bin/env python3
"""Kills one of two programs at any moment, and looks at the other.

    kill.py BUILD [ROUNDS [SEED]]

The survivor ends by itself, or still reacts: a program that waits for a message of a peer that is
gone has no request on its way, and waits for ever as it would on hardware. It then ends at SIGTERM.
It ends neither by a signal of its own nor with success; if it has said a status, it is one of those
that a dead peer leads to. Afterwards two fresh programs meet in the same fabric, which is gone when
they have ended.
"""

import collections
import concurrent.futures
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from samples import free_port  # noqa: E402

# Program, arguments that make it long and those that make it short, link layers, address.
PAIRS = [
    ("exp_pingpong", ["-c", "rc"], ["-n", "400000"], ["-n", "20"], "ib eth", "127.0.0.1"),
    ("exp_pingpong", ["-c", "uc"], ["-n", "400000"], ["-n", "20"], "ib eth", "127.0.0.1"),
    ("exp_cm", [], ["-n", "400000"], ["-n", "5"], "ib eth", "10.0.1.1"),
    ("exp_xrc", ["-m", "old"], ["-n", "400000"], ["-n", "40"], "ib eth", "127.0.0.1"),
    ("exp_xrc", ["-m", "exp"], ["-n", "400000"], ["-n", "40"], "ib eth", "127.0.0.1"),
    ("exp_rss", [], ["-n", "400000"], ["-n", "2000"], "eth", "127.0.0.1"),
    ("exp_udp_stream", [], ["-n", "4000000"], ["-n", "300"], "eth", "127.0.0.1"),
]
# exp_dc has its targets in processes of its own.
DEAD_PEER = re.compile(r"reject|retry|flush|timeout|timed out|unreachable|reset|refused|closed|end of file|"
                       r"disconnect|nobody|lost|peer|connection|12\b|13\b|5\b", re.I)
# A dead peer is noticed within two seconds: seven tries, four times the timeout each. A
# program that has polled for longer than that has no request on its way.
SECONDS_TO_END = 8
SECONDS_OF_POLLING = 2.5
# Of two programs that need a hundredth of one: others may have all processors for long.
SECONDS_FOR_A_FEW = 600


class Round:
    def __init__(self, build, seed):
        self.build, self.number = build, seed
        self.random = random.Random(seed)
        name, self.args, self.long, self.short, links, self.address = self.random.choice(PAIRS)
        self.link = self.random.choice(links.split())
        if self.link == "eth" and name in ("exp_pingpong", "exp_xrc"):
            self.args = self.args + ["-g", "1"]
        self.name = name
        self.fabric = f"kill-{os.getpid()}-{seed}"

    def start(self, length):
        port = ["-p", str(free_port())]
        started = []
        for side, more in enumerate(([], [self.address])):
            env = dict(os.environ, SOFTHCA_FABRIC=self.fabric, SOFTHCA_LINK=self.link,
                       SOFTHCA_HOST=str(side + 1),
                       LD_PRELOAD=f"{self.build}/src/exp/libibverbs_exp.so.1:"
                                  f"{self.build}/src/softhca/preload/libsofthca.so")
            out = tempfile.TemporaryFile("w+")
            started.append((subprocess.Popen(
                [f"{self.build}/tests/samples/{self.name}"] + self.args + length + port + more,
                env=env, stdout=out, stderr=out), out))
            time.sleep(0.05)
        return started

    @staticmethod
    def text(out):
        out.seek(0)
        return out.read()

    def survivor(self):
        """A word on what became of it, and what is wrong with that, if anything."""
        started = self.start(self.long)
        time.sleep(self.random.random() ** 2 * 0.8)
        victim = self.random.randrange(2)
        started[victim][0].send_signal(signal.SIGKILL)
        started[victim][0].wait()
        process, out = started[1 - victim]
        status = ends(process)
        if status is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return "stuck", "neither ended nor reacted"
            return "waited", None
        text = self.text(out)
        if status < 0:
            return "crashed", f"signal {-status}: {text[-300:]}"
        if status == 0:
            return "had ended", None
        if text and not DEAD_PEER.search(text):
            return "ended", f"said: {text[-300:]}"
        return "ended", None

    def usable(self):
        started = self.start(self.short)
        wrong = None
        for process, out in started:
            try:
                status = process.wait(SECONDS_FOR_A_FEW)
            except subprocess.TimeoutExpired:
                status = "no end"
            if status != 0 and wrong is None:
                wrong = f"the next program in the fabric: {status}: {self.text(out)[-300:]}"
        for process, _ in started:
            process.kill()
            process.wait()
        if wrong:
            return wrong
        left = [p for p in (f"/dev/shm/softhca-{os.getuid()}-{self.fabric}",
                            f"{tempfile.gettempdir()}/softhca-{os.getuid()}-{self.fabric}")
                if os.path.exists(p)]
        return f"left: {left}" if left else None


def processor_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ends(process):
    """Its status; None: it waits for its peer."""
    begun, used = time.monotonic(), processor_seconds(process.pid)
    while time.monotonic() < begun + SECONDS_TO_END:
        try:
            return process.wait(0.05)
        except subprocess.TimeoutExpired:
            if processor_seconds(process.pid) > used + SECONDS_OF_POLLING:
                return None
    return None


def play(build, number):
    one = Round(build, number)
    word, fault = one.survivor()
    return one, word, fault or one.usable()


def main():
    build = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    seen, wrong = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or 2)) as pool:
        numbers = range(seed * 1000000, seed * 1000000 + rounds)
        for one, word, fault in pool.map(lambda number: play(build, number), numbers):
            seen[f"{one.name}: {word}"] += 1
            if fault:
                wrong += 1
                print(f"round {one.number}: {one.name} {one.args} {one.link}: {fault}", flush=True)
    for what, count in sorted(seen.items()):
        print(f"{what}: {count}")
    print(f"{rounds} rounds, seed {seed}: {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
