#!/usr/bin/env python3
"""Programs in two network namespaces that share nothing but a cable: wire = "udp".

Every row starts a server in one namespace and a client in the other, on fabrics
of different names as in two containers, and expects both to end with status 0.
Without the privilege to make namespaces two addresses of the loopback interface
are the two hosts. Usage:

    udp_programs.py --softhca LIB [--filter TEXT] [--verbose]

The last line is "N passed, N failed, N skipped".
"""

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import cm_programs
import network_programs
from programs import free_port
from results import Results

TIMEOUT = 60


class Row:
    """`lossy`: packets of all kinds are lost on the way. `pairs`: so many at once."""

    def __init__(self, command, lossy=False, pairs=1):
        self.command = command.split()
        self.lossy = lossy
        self.pairs = pairs

    @property
    def program(self):
        return self.command[0]

    @property
    def name(self):
        return " ".join([os.path.basename(self.program)] + self.command[1:] +
                        (["(lossy)"] if self.lossy else []) +
                        ([f"({self.pairs} at once)"] if self.pairs > 1 else []))


def rows():
    # GID 3 is RoCE v2 of the IPv4 address.
    for program in ("rc", "uc", "ud", "srq"):
        yield Row(f"ibv_{program}_pingpong -g 3 -c -n 100")
    yield Row("ibv_xsrq_pingpong -g 3 -n 100")
    yield Row("ibv_rc_pingpong -g 3 -c -n 20 -s 100000")
    perftest = "-F -x 3 -n 100"
    yield Row(f"ib_write_bw {perftest}")
    yield Row(f"ib_read_bw {perftest}")
    yield Row(f"ib_atomic_bw {perftest}")
    yield Row(f"ib_send_lat -c XRC {perftest}")
    yield Row("ibv_rc_pingpong -g 3 -c -n 200 -s 10000", lossy=True)
    yield Row("ib_read_bw -F -x 3 -n 50 -s 200000", lossy=True)
    # The kernel gives the packets of all to whom it likes.
    yield Row("ibv_rc_pingpong -g 3 -c -n 100", pairs=3)


# Every so many of each kind in each process, at intervals that have nothing in common.
FAULTS = [{"kind": "packet", "match": match, "nth": nth}
          for match, step in (("REQUEST", 7), ("ACK", 11), ("READ_RESPONSE", 13))
          for nth in range(step, 8 * step, step)]


def configuration(folder, address, lossy):
    document = {"devices": [{"ports": [{"link": "eth"} | ({"ipv4": address} if address else {})]}],
                "faults": FAULTS if lossy else []}
    path = os.path.join(folder, f"{address or 'namespace'}-{lossy}.json")
    if not os.path.exists(path):   # programs may be reading it
        with open(path, "w", encoding="ascii") as file:
            json.dump(document, file)
    return path


class Hosts:
    """Two hosts, and how a program gets to run on one of them."""

    def __init__(self, lib, network, folder):
        self.lib = lib
        self.network = network   # None: the loopback interface
        self.folder = folder
        self.name = f"udp-{os.getpid()}"

    def address(self, host):
        return f"10.0.1.{host}" if self.network else f"127.0.1.{host}"

    def start(self, host, command, lossy):
        env = dict(os.environ, SOFTHCA_WIRE="udp", SOFTHCA_FABRIC=f"{self.name}-{host}",
                   SOFTHCA_CONFIG=configuration(
                       self.folder, None if self.network else self.address(host), lossy))
        prefix = self.network.prefix(host) if self.network else []
        return subprocess.Popen(
            prefix + ["env", f"LD_PRELOAD={self.lib}", "stdbuf", "-o0"] + command, env=env,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def clean(self):
        for host in (1, 2):
            for left in cm_programs.directories(f"{self.name}-{host}"):
                shutil.rmtree(left, ignore_errors=True)


def run_pairs(hosts, row):
    servers, clients, ports = [], [], []
    try:
        for _ in range(row.pairs):
            ports.append(str(free_port()))
            servers.append(hosts.start(1, row.command + ["-p", ports[-1]], row.lossy))
        deadline = time.time() + TIMEOUT
        for server, port in zip(servers, ports):
            while (not network_programs.bound(server, "tcp", int(port)) and
                   server.poll() is None and time.time() < deadline):
                time.sleep(0.02)
        for port in ports:
            clients.append(hosts.start(2, row.command + ["-p", port, hosts.address(1)], row.lossy))
        outs = [process.communicate(timeout=TIMEOUT)[0] for process in clients + servers]
    except subprocess.TimeoutExpired:
        outs = []
        for process in clients + servers:
            network_programs.kill(process)
            outs.append(process.communicate()[0])
        return False, "timed out\n" + "\n".join(outs)
    text = "\n".join(f"({p.returncode}):\n{out}" for p, out in zip(clients + servers, outs))
    return all(p.returncode == 0 for p in clients + servers), text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--softhca", required=True, help="path of libsofthca.so")
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    results = Results(options.verbose)
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.closing(network_programs.Network()) as network:
        hosts = Hosts(os.path.abspath(options.softhca), network if network.works() else None, folder)
        if not hosts.network:
            print("no network namespaces can be made: addresses of the loopback interface instead")
        for row in rows():
            if options.filter not in row.name:
                continue
            if results.lacks(row.name, row.program):
                continue
            try:
                results.run(row.name, functools.partial(run_pairs, hosts, row))
            finally:
                hosts.clean()
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
