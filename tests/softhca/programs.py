#!/usr/bin/env python3
"""Programs that never heard of the software HCA, run on it in pairs.

Every row starts a server and a client of ibverbs-utils or perftest as two
processes (of two emulated hosts where the row says so) and expects both to
end with status 0. Usage:

    programs.py --softhca LIB [--full] [--filter TEXT] [--verbose]
    programs.py --own ib|eth [--full] [--filter TEXT] [--verbose]

--own takes the machine's own device, which has that link layer: in a guest of ibvexp vm,
that of the kernel's driver. --full runs the long sweeps (all sizes, many QPs) as well. The
last line is "N passed, N failed, N skipped".
"""

import argparse
import functools
import os
import socket
import subprocess
import sys
import time

from results import Results


class Row:
    def __init__(self, program, args="", link="ib", hosts=1, full=False, server_args=None,
                 client_args="", timeout=60, output=None):
        self.program = program
        self.args = args.split()
        self.link = link
        self.hosts = hosts
        self.full = full
        self.server_args = (server_args or "").split()
        self.client_args = client_args.split()
        self.timeout = timeout
        self.output = output   # text that the client must print

    @property
    def name(self):
        parts = [self.link, self.program] + self.args
        if self.hosts == 2:
            parts.append("(two hosts)")
        return " ".join(parts)


def pingpongs():
    for link in ("ib", "eth"):
        gid = "" if link == "ib" else " -g 1"
        for program, variants in {
            "ibv_rc_pingpong": ("", "-e", "-t", "-o", "-c", "-c -e -n 200", "-N", "-N -t -c",
                                "-O -c", "-o -P -c", "-j -c", "-s 1000000 -n 50 -c"),
            "ibv_uc_pingpong": ("", "-e", "-c"),
            "ibv_ud_pingpong": ("", "-e", "-c"),
            "ibv_srq_pingpong": ("", "-e", "-c", "-q 8 -c", "-o"),
            "ibv_xsrq_pingpong": ("", "-e", "-o"),
        }.items():
            for v in variants:
                yield Row(program, (v + gid).strip(), link)
        for program in ("ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"):
            yield Row(program, ("-c" + gid), link, hosts=2)


def perftests():
    quick = "-n 500 -F"
    for link in ("ib", "eth"):
        gid = "" if link == "ib" else " -x 1"
        base = quick + gid
        for transport in ("RC", "UC", "UD", "XRC", "DC"):
            yield Row("ib_send_bw", f"-c {transport} {base}", link)
            yield Row("ib_send_lat", f"-c {transport} {base}", link)
        for transport in ("RC", "UC", "XRC", "DC"):
            yield Row("ib_write_bw", f"-c {transport} {base}", link)
            yield Row("ib_write_lat", f"-c {transport} {base}", link)
        for transport in ("RC", "XRC", "DC"):
            yield Row("ib_read_bw", f"-c {transport} {base}", link)
            yield Row("ib_read_lat", f"-c {transport} {base}", link)
            yield Row("ib_atomic_bw", f"-c {transport} {base}", link)
            yield Row("ib_atomic_lat", f"-c {transport} {base}", link)
        yield Row("ib_atomic_bw", f"-A CMP_AND_SWAP {base}", link)
        yield Row("ib_send_bw", f"-c UD -g {base}", link)
        yield Row("ib_write_bw", f"-b {base}", link)
        yield Row("ib_send_bw", f"-b {base}", link)
        yield Row("ib_read_bw", f"-b {base}", link)
        yield Row("ib_send_bw", f"--use-srq -q 4 {base}", link)
        yield Row("ib_send_bw", f"-c DC --use-srq -q 2 {base}", link)
        yield Row("ib_send_bw", f"-e {base}", link)
        yield Row("ib_send_lat", f"-e {base}", link)
        yield Row("ib_write_bw", f"-q 64 -n 50 -F{gid}", link)
        yield Row("ib_send_lat", f"-I 200 {base}", link)
        yield Row("ib_send_bw", f"{base}", link, hosts=2)
        yield Row("ib_send_bw", f"-c DC {base}", link, hosts=2)
        yield Row("ib_read_lat", f"{base}", link, hosts=2)
        for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
            yield Row(program, f"-a -n 100 -F{gid}", link, full=link == "eth", timeout=600)
        for transport in ("UC", "XRC", "DC"):
            yield Row("ib_write_bw", f"-c {transport} -a -n 50 -F{gid}", link, full=True, timeout=600)
            yield Row("ib_send_bw", f"-c {transport} -a -n 50 -F{gid}", link, full=True, timeout=600)
        yield Row("ib_send_bw", f"-q 64 -n 50 -F{gid}", link, full=True, timeout=600)
        yield Row("ib_read_bw", f"-q 64 -n 50 -F{gid}", link, full=True, timeout=600)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listening(port):
    # Looks without connecting: a stray connection would be taken for the peer.
    want = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as f:
                for line in f.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[1].rsplit(":", 1)[1] == want:
                        return True
        except OSError:
            pass
    return False


def environment(lib, row, host, fabric):
    env = dict(os.environ)
    if lib is None:
        return env
    env["LD_PRELOAD"] = (env.get("LD_PRELOAD", "") + " " + lib).strip()
    env["SOFTHCA_LINK"] = row.link
    env["SOFTHCA_HOST"] = str(host)
    env["SOFTHCA_FABRIC"] = fabric
    env.pop("SOFTHCA_CONFIG", None)
    return env


def run_row(lib, row, fabric):
    port = free_port()
    common = [row.program, "-p", str(port)] + row.args
    server = subprocess.Popen(common + row.server_args, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env=environment(lib, row, 1, fabric))
    client = None
    try:
        deadline = time.time() + row.timeout
        while not listening(port) and server.poll() is None and time.time() < deadline:
            time.sleep(0.01)
        client = subprocess.Popen(common + row.client_args + ["127.0.0.1"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=environment(lib, row, row.hosts, fabric))
        out_client, _ = client.communicate(timeout=row.timeout)
        out_server, _ = server.communicate(timeout=row.timeout)
    except subprocess.TimeoutExpired:
        outs = []
        for p in (client, server):
            if p is not None:
                p.kill()
                outs.append(p.communicate()[0])
        return False, "timed out\n" + "\n".join(outs)
    text = f"client ({client.returncode}):\n{out_client}\nserver ({server.returncode}):\n{out_server}"
    good = client.returncode == 0 and server.returncode == 0
    if row.output is not None and row.output not in out_client:
        good = False
    return good, text


def parse(description, full):
    """The options of a list of programs."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    device = parser.add_mutually_exclusive_group(required=True)
    device.add_argument("--softhca", type=os.path.abspath, help="path of libsofthca.so")
    device.add_argument("--own", choices=("ib", "eth"), help="the machine's own device, its link layer")
    parser.add_argument("--full", action="store_true", help=full)
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    options = parse(__doc__, "the long sweeps as well")
    fabric = f"programs-{os.getpid()}"
    results = Results(options.verbose)
    for row in list(pingpongs()) + list(perftests()):
        if (options.filter not in row.name or (row.full and not options.full) or
                row.link != (options.own or row.link)):
            continue
        if not results.lacks(row.name, row.program):
            results.run(row.name, functools.partial(run_row, options.softhca, row, fabric))
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
