#!/usr/bin/env python3
"""DPDK of the distribution on the software HCA: two hosts forward frames.

dpdk-testpmd with the mlx5 driver (dv_flow_en=0) on one host sends bursts; that
on the other host swaps the addresses and sends them back; both count. Usage:

    dpdk_programs.py --softhca LIB [--verbose]

Without dpdk-testpmd and its mlx5 driver, or where no network interface can be
made (the driver asks one for its address), the exit status is 77. The last line
is "N passed, N failed, N skipped".
"""

import argparse
import functools
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from results import SKIPPED, Results

ADDRESS = "5348:00:00.0"   # of the first device, sysfs_tree.cpp
BURSTS, BURST = 8, 32
ROWS = (  # name, queues, device arguments
    ("one queue, vector receive", 1, "rx_vec_en=1"),
    ("one queue, scalar receive", 1, "rx_vec_en=0"),
    ("two queues, vector receive", 2, "rx_vec_en=1"),
    ("two queues, scalar receive", 2, "rx_vec_en=0"),
)


def drivers():
    """The plug-ins that testpmd needs, or None."""
    names = ("net_mlx5", "bus_pci", "mempool_ring")
    found = [glob.glob(f"/usr/lib/*/dpdk/pmds-*/librte_{name}.so") for name in names]
    return [paths[0] for paths in found] if all(found) else None


class Testpmd:
    """An interactive testpmd on host `host`; what it prints is read as it comes."""

    def __init__(self, lib, folder, interface, host, queues, arguments):
        config = os.path.join(folder, f"host{host}.json")
        with open(config, "w", encoding="ascii") as out:
            json.dump({"host": host, "devices": [
                {"ports": [{"link": "eth", "netdev": interface}]}]}, out)
        # Lines as they are written, and only the device of this test.
        command = ["stdbuf", "-oL", "dpdk-testpmd"]
        for driver in drivers():
            command += ["-d", driver]
        command += ["-l", "0,1", "--no-huge", "-m", "512", "--no-telemetry",
                    f"--file-prefix=softhca-{os.getpid()}-{host}",
                    "-a", f"{ADDRESS},dv_flow_en=0,{arguments}", "--", "-i",
                    f"--rxq={queues}", f"--txq={queues}", "--rxd=512", "--txd=1024",
                    "--total-num-mbufs=8192", "--txonly-multi-flow"]
        env = dict(os.environ, SOFTHCA_CONFIG=config, SOFTHCA_FABRIC=f"dpdk-{os.getpid()}")
        env["LD_PRELOAD"] = (env.get("LD_PRELOAD", "") + " " + lib).strip()
        self.text = ""
        self.process = subprocess.Popen(command, env=env, cwd=folder, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while char := self.process.stdout.read(1):
            self.text += char

    def wait_for(self, text, seconds=60, begin=0):
        deadline = time.time() + seconds
        while text not in self.text[begin:]:
            if self.process.poll() is not None or time.time() > deadline:
                raise RuntimeError(f"no '{text}' from testpmd")
            time.sleep(0.05)

    def say(self, *lines):
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()

    def counted(self):
        """Frames received and sent so far."""
        begin = len(self.text)
        self.say("show port stats 0")
        self.wait_for("Tx-bps", begin=begin)
        numbers = {}
        for key, number in re.findall(r"([RT]X-packets): *(\d+)", self.text[begin:]):
            numbers[key] = int(number)
        return numbers["RX-packets"], numbers["TX-packets"]

    def end(self):
        try:
            self.say("stop", "quit")
            self.process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
        return self.process.wait()


def run(lib, folder, interfaces, queues, arguments):
    pmds = [Testpmd(lib, folder, interface, host + 1, queues, arguments)
            for host, interface in enumerate(interfaces)]
    first, second = pmds
    wanted = BURSTS * BURST * queues
    try:
        for pmd in pmds:
            pmd.wait_for("testpmd> ")
        second.say("set fwd macswap", "start")
        second.wait_for("macswap packet forwarding")
        first.say("set fwd rxonly", f"start tx_first {BURSTS}")
        deadline = time.time() + 60
        while first.counted() != (wanted, wanted) and time.time() < deadline:
            time.sleep(0.2)
        counts = [pmd.counted() for pmd in pmds]
        good = counts == [(wanted, wanted)] * 2
        text = f"received and sent: {counts}, wanted {wanted} each"
    except RuntimeError as error:
        good, text = False, str(error)
    ended = [pmd.end() for pmd in pmds]
    if ended != [0, 0]:
        good, text = False, text + f"\nended with {ended}"
    return good, text + "".join(f"\n--- host {i + 1}:\n{p.text}" for i, p in enumerate(pmds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--softhca", required=True, help="path of libsofthca.so")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    lib = os.path.abspath(options.softhca)
    if shutil.which("dpdk-testpmd") is None or drivers() is None:
        print("skip: dpdk-testpmd and its mlx5 driver are not installed")
        return SKIPPED
    interfaces = [f"sdpk{os.getpid() % 10**7}{end}" for end in "ab"]
    if subprocess.run(["ip", "link", "add", interfaces[0], "type", "veth", "peer", "name",
                       interfaces[1]], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("skip: no network interface can be made")
        return SKIPPED
    results = Results(options.verbose)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, queues, arguments in ROWS:
                results.run(name, functools.partial(run, lib, folder, interfaces, queues,
                                                    arguments))
    finally:
        subprocess.run(["ip", "link", "delete", interfaces[0]], check=False)
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
