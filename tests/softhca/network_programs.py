#!/usr/bin/env python3
"""fio, qperf, libfabric and rsockets of the distribution, on two hosts of the software HCA.

Every row starts a server on one emulated host and a client on another and
expects the client to end with status 0, and the server too unless it serves
for ever. Programs that exchange addresses by sockets of the kernel, or look at
the machine's interfaces, get two network namespaces whose interfaces have the
addresses of the emulated ports; without the privilege to make them their rows
are skipped. Usage:

    network_programs.py --softhca LIB [--full] [--filter TEXT] [--verbose]

The last line is "N passed, N failed, N skipped".
"""

import argparse
import contextlib
import filecmp
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cm_programs
from programs import free_port
from results import Results

TIMEOUT = 60
SERVER = "10.0.1.1"    # the first port of host 1
INTERFACE = "softhca0"
# What a race of the program's own looks like: such a run is repeated. fio asks for no
# retries where the receiver is late, and waits half a second for it to get ready.
FIOS_OWN_RACE = "RNR retry counter exceeded"
# Of fi_pingpong, where the machine is busy: all messages are there and compared, and the side that
# hears of the other's end first destroys the queue pair with completions in its queue that it has
# not read. libibverbs takes them out, as it should, and libfabric (rxm_close_conn, vrb_flush_sq of
# 1.17) calls them flushed, or waits for them for ever.
AFTER_THE_LAST = re.compile(r"^1m +20 +=20 .*\n\[error\] .*cq_readerr: Work Request Flushed Error"
                            r"|^timed out\n(?:.*\n)*1m +20 +=20 ", re.M)
REPEATS = 3


class Row:
    """{port} and {to} of the commands are filled in. `ready` says how the server shows that it
    listens: "cm" by announcing itself to the fabric, "tcp" or "udp" by a socket of that port."""

    def __init__(self, link, server, client, ready, network=False, serves_for_ever=False,
                 to=SERVER, output=None, same=None):
        self.link = link
        self.server = server
        self.client = client
        self.ready = ready
        self.network = network
        self.serves_for_ever = serves_for_ever
        self.to = to
        self.output = output   # text that the client must print
        self.same = same       # two files that must be equal in the end

    @property
    def name(self):
        words = (w for w in self.client.split() if "{" not in w and w not in ("-P", "-lp", "-p"))
        return f"{self.link} {' '.join(words)}"

    @property
    def program(self):
        return self.client.split()[0]


def fio(link, verb):
    return Row(link, "fio --name=server --ioengine=rdma --port={port} --rw=read --bs=64k"
                     " --size=2m --iodepth=32",
               "fio --name=client --ioengine=rdma --hostname={to} --port={port} --rw=write"
               f" --bs=64k --size=2m --iodepth=1 --verb={verb}", "cm", output="err= 0")


# Without the connection manager qperf knows no GIDs, as RoCE wants them.
def qperf(link, tests):
    managed = link == "eth"
    return Row(link, "qperf -lp {port}",
               f"qperf {{to}} -lp {{port}} -t 1 {'-cm 1 ' if managed else ''}{tests}",
               "tcp", network=managed, serves_for_ever=True,
               to=SERVER if managed else "127.0.0.1")


def pingpong(link, endpoint):
    provider = "verbs;ofi_rxm" if endpoint == "rdm" else "verbs"
    common = f"fi_pingpong -p {provider} -e {endpoint} -c -I 20"
    return Row(link, common + " -B {port}", common + " -P {port} {to}", "tcp", network=True)


def rows(folder):
    original, copy = os.path.realpath("/bin/sh"), f"{folder}/copy"
    # In the suite: what differs most; the rest is for --full.
    yield fio("ib", "write")
    yield fio("ib", "send")
    yield fio("eth", "read")
    yield qperf("ib", "rc_rdma_read_bw ver_rc_compare_swap ud_lat")
    yield qperf("eth", "rc_bw ver_rc_fetch_add")
    for link in ("ib", "eth"):
        for endpoint in ("rdm", "dgram"):
            yield pingpong(link, endpoint)
        yield Row(link, "rcopy", f"rcopy {original} {{to}}:{copy}-{link}", "cm", serves_for_ever=True,
                  output="done", same=(original, f"{copy}-{link}"))
    # Datagrams of rsockets have no GRH, so there are none on RoCE.
    yield Row("ib", "udpong -b {to} -p {port}", "udpong -s {to} -p {port} -C 50 -S 1024", "udp",
              network=True, serves_for_ever=True)


def more_rows():
    for link in ("ib", "eth"):
        for verb in ("write", "read", "send"):
            yield fio(link, verb)
        yield qperf(link, "rc_lat rc_bw rc_bi_bw rc_rdma_write_lat rc_rdma_write_bw"
                          " rc_rdma_write_poll_lat rc_rdma_read_lat rc_rdma_read_bw")
        yield qperf(link, "rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add")
        yield pingpong(link, "msg")
    yield qperf("ib", "uc_lat uc_bw uc_bi_bw uc_rdma_write_lat uc_rdma_write_bw"
                      " uc_rdma_write_poll_lat ud_lat ud_bw ud_bi_bw")


class Network:
    """Two network namespaces, an interface in each, joined by a cable. Each lives as long as a
    process that waits for the end of its input."""

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                         text=True) for _ in range(2)]

    def prefix(self, host):
        return ["nsenter", f"--net=/proc/{self.holders[host - 1].pid}/ns/net"]

    def works(self):
        try:
            for holder in self.holders:   # what comes back has passed through the namespace
                print("there?", file=holder.stdin, flush=True)
                if holder.stdout.readline() == "":
                    return False
            first, second = (str(holder.pid) for holder in self.holders)
            run = dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # Made inside, so that the machine's own namespace never sees them.
            subprocess.run(self.prefix(1) + ["ip", "link", "add", INTERFACE, "type", "veth", "peer",
                                             "name", INTERFACE, "netns", second], **run)
            for host in (1, 2):
                for command in ("link set lo up", f"addr add 10.0.1.{host}/24 dev {INTERFACE}",
                                f"link set {INTERFACE} up"):
                    subprocess.run(self.prefix(host) + ["ip"] + command.split(), **run)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def close(self):
        for holder in self.holders:
            with contextlib.suppress(OSError):
                holder.stdin.close()
            holder.wait()


def start(command, network, lib, link, host, fabric):
    env = cm_programs.environment(lib, link, host, fabric)
    # Unbuffered, so that what a killed program has said is known. Only the program itself runs
    # on the device.
    program = ["env", f"LD_PRELOAD={env.pop('LD_PRELOAD')}", "stdbuf", "-o0"] + command
    return subprocess.Popen((network.prefix(host) if network else []) + program, env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)


def kill(process):
    """With the processes that it has forked, or their output has no end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def bound(process, kind, port):
    """Whether a socket of the process's network waits at the port."""
    listening = {"tcp": "0A", "udp": "07"}[kind]
    for table in (kind, kind + "6"):
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/net/{table}",
                                                encoding="ascii") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == listening and fields[1].endswith(f":{port:04X}"):
                    return True
    return False


def wait_until_ready(row, server, port, fabric):
    deadline = time.time() + TIMEOUT
    if row.ready == "cm":
        cm_programs.listening(server, fabric, deadline)
        cm_programs.settled(server)   # from there to the listener
        return
    while not bound(server, row.ready, port) and server.poll() is None and time.time() < deadline:
        time.sleep(0.02)


def run_once(lib, row, network, fabric):
    port = free_port()
    fill = {"port": port, "to": row.to}
    network = network if row.network else None
    server = start(row.server.format(**fill).split(), network, lib, row.link, 1, fabric)
    client = None
    try:
        wait_until_ready(row, server, port, fabric)
        client = start(row.client.format(**fill).split(), network, lib, row.link, 2, fabric)
        out_client, _ = client.communicate(timeout=TIMEOUT)
        if row.serves_for_ever:
            kill(server)
        out_server, _ = server.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        outs = []
        for process in (client, server):
            if process is not None:
                kill(process)
                outs.append(process.communicate()[0])
        return False, "timed out\n" + "\n".join(outs)
    text = f"client ({client.returncode}):\n{out_client}\nserver ({server.returncode}):\n{out_server}"
    good = client.returncode == 0 and (row.serves_for_ever or server.returncode == 0)
    good = good and (row.output is None or row.output in out_client)
    good = good and (row.same is None or filecmp.cmp(*row.same, shallow=False))
    return good, text


def run_row(lib, row, network, fabric):
    for _ in range(REPEATS):
        good, text = run_once(lib, row, network, fabric)
        if good or (FIOS_OWN_RACE not in text and not AFTER_THE_LAST.search(text)):
            break
    return good, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--softhca", required=True, help="path of libsofthca.so")
    parser.add_argument("--full", action="store_true", help="every test of qperf as well")
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    lib = os.path.abspath(options.softhca)
    results = Results(options.verbose)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Network()) as network:
        network_works = network.works()
        every = list(rows(folder)) + (list(more_rows()) if options.full else [])
        for number, row in enumerate(every):
            if options.filter not in row.name:
                continue
            if results.lacks(row.name, row.program):
                continue
            if row.network and not network_works:
                results.skip(row.name, "no network namespaces can be made")
                continue
            fabric = f"network-programs-{os.getpid()}-{number}"
            try:
                results.run(row.name, functools.partial(run_row, lib, row, network, fabric))
            finally:
                for left in cm_programs.directories(fabric):
                    shutil.rmtree(left, ignore_errors=True)
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
