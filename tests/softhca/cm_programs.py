#!/usr/bin/env python3
"""Programs that connect through librdmacm, run on the software HCA in pairs.

Every row starts a server and a client of rdmacm-utils or perftest (-R) as two
processes, of one or of two emulated hosts, on both link layers, and expects
both to end with status 0. A few rows show what must fail, and how. Usage:

    cm_programs.py --softhca LIB [--preload LIB] [--filter TEXT] [--verbose]

The last line is "N passed, N failed, N skipped".
"""

import argparse
import functools
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

from results import Results

SERVER_HOST = 1


class Row:
    def __init__(self, server, client, link, hosts, timeout=60, output=None):
        self.server = server.split()
        self.client = client.split()
        self.link = link
        self.hosts = hosts
        self.timeout = timeout
        self.output = output   # text that the server must print

    @property
    def name(self):
        hosts = "one host" if self.hosts == 1 else "two hosts"
        return f"{self.link} {hosts}: " + " ".join(self.client)


def address(link, hosts):
    # Links of a kind are the first device's, whatever the kind.
    return "127.0.0.1" if hosts == 1 else f"10.0.1.{SERVER_HOST}"


def rows():
    for link in ("ib", "eth"):
        for hosts in (1, 2):
            to = address(link, hosts)
            for server, client, output in (
                ("rping -s -v -V -C 100", "rping -c -v -V -C 100 -a {}", "rdma-ping-99"),
                ("rping -s -V -C 10 -S 4096", "rping -c -V -C 10 -S 4096 -a {}", None),
                ("ucmatose -c 20", "ucmatose -c 20 -s {}", "return status 0"),
                ("ucmatose -f ip -m", "ucmatose -f ip -m -s {}", "return status 0"),
                ("udaddy -c 5", "udaddy -c 5 -s {}", "return status 0"),
                ("udaddy -p 0x0002", "udaddy -p 0x0002 -s {}", "return status 0"),
                ("rdma_server", "rdma_client -s {}", "rdma_server: end 0"),
                ("rdma_xserver", "rdma_xclient -s {}", "rdma_xserver: end 0"),
                ("rdma_xserver -c x", "rdma_xclient -c x -s {}", "rdma_xserver: end 0"),
                ("mckey -m 224.1.2.3", "mckey -m 224.1.2.3 -s", "data transfers complete"),
                ("riostream -S 1024 -C 50", "riostream -S 1024 -C 50 -s {}", None),
                ("rstream -S 4096 -C 50", "rstream -S 4096 -C 50 -s {}", None),
            ):
                yield Row(server, client.format(to), link, hosts, output=output)
            for test in (
                "ib_send_bw -R -F -n 300", "ib_send_lat -R -F -n 300", "ib_write_lat -R -F -n 300",
                "ib_read_bw -R -q 4 -F -n 300", "ib_atomic_lat -R -F -n 300",
                "ib_send_lat -c UD -R -F -n 300", "ib_write_bw -z -F -n 300",
            ):
                yield Row(test, f"{test} {to}", link, hosts)


def environment(lib, link, host, fabric):
    env = dict(os.environ)
    env["LD_PRELOAD"] = (env.get("LD_PRELOAD", "") + " " + lib).strip()
    env.update(SOFTHCA_LINK=link, SOFTHCA_HOST=str(host), SOFTHCA_FABRIC=fabric)
    env.pop("SOFTHCA_CONFIG", None)
    return env


def start(command, lib, link, host, fabric):
    # Unbuffered, so that what a killed program has said is known.
    return subprocess.Popen(["stdbuf", "-o0"] + command, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            env=environment(lib, link, host, fabric))


def directories(fabric):
    tmp = os.environ.get("TMPDIR", "/tmp")
    return [d for base in ("/dev/shm", tmp, "/tmp") for d in glob.glob(f"{base}/softhca-*-{fabric}")]


def listening(server, fabric, deadline):
    """Waits until the server has announced its addresses to the fabric, which
    is its first step towards listening."""
    while time.time() < deadline and server.poll() is None:
        if any(os.path.getsize(d + "/cm") > 0 for d in directories(fabric)
               if os.path.exists(d + "/cm")):
            return
        time.sleep(0.02)


def settled(process, seconds=5):
    """Waits until the process has slept for 0.2 s, or been busy for 0.5 s more: what it
    began is done, and it waits for others, some by looking again and again. One that
    has no processor does neither."""
    deadline = time.time() + seconds
    slept, busy, begin = 0, 0, None
    while slept < 10 and busy < 0.5 and time.time() < deadline and process.poll() is None:
        time.sleep(0.02)
        try:
            with open(f"/proc/{process.pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return
        slept = slept + 1 if fields[0] == "S" else 0
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        begin = used if begin is None else begin
        busy = used - begin


# rping closes its channel while a thread of its own may be about to look for the
# next event there, and then ends with that thread's status, all work done: on any
# device. Such a run says nothing and is repeated once.
RPINGS_OWN_RACE = "rdma_get_cm_event: Bad file descriptor"


def run_row(lib, row, fabric):
    good, text = run_once(lib, row, fabric)
    if not good and "DISCONNECT EVENT" in text and text.rstrip().endswith(RPINGS_OWN_RACE):
        good, text = run_once(lib, row, fabric)
    return good, text


def run_once(lib, row, fabric):
    server = start(row.server, lib, row.link, SERVER_HOST, fabric)
    client = None
    try:
        listening(server, fabric, time.time() + row.timeout)
        settled(server)   # from there to the listener or the group
        client = start(row.client, lib, row.link, row.hosts, fabric)
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
    return good and (row.output is None or row.output in out_server), text


def refused(lib, fabric):
    """No server listens: the connection is rejected, and soon."""
    client = start("rping -c -C 1 -v -a 127.0.0.1".split(), lib, "ib", 1, fabric)
    out, _ = client.communicate(timeout=20)
    return client.returncode != 0 and "REJECTED" in out, out


def unreachable(lib, fabric):
    """An address outside of the emulated network."""
    client = start("rping -c -C 1 -v -a 192.0.2.250".split(), lib, "eth", 1, fabric)
    out, _ = client.communicate(timeout=20)
    return client.returncode != 0 and "ADDR_ERROR" in out, out


def killed_client(lib, fabric):
    """The server hears of it and ends."""
    server = start("rping -s -v".split(), lib, "ib", 1, fabric)
    listening(server, fabric, time.time() + 20)
    client = start("rping -c -v -a 127.0.0.1".split(), lib, "ib", 1, fabric)
    for line in client.stdout:
        if "rdma-ping-" in line:
            break
    client.send_signal(signal.SIGKILL)
    client.wait()
    try:
        out, _ = server.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        server.kill()
        return False, server.communicate()[0]
    return "DISCONNECT" in out, out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--softhca", required=True, help="path of libsofthca.so")
    parser.add_argument("--preload", help="a library to load in front of the programs as well")
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    lib = os.path.abspath(options.softhca)
    if options.preload:
        lib = os.path.abspath(options.preload) + " " + lib
    results = Results(options.verbose)
    jobs = [(row.name, row.client[0], row) for row in rows()]
    jobs += [(f.__doc__.rstrip("."), "rping", f) for f in (refused, unreachable, killed_client)]
    for number, (name, program, job) in enumerate(jobs):
        if options.filter not in name:
            continue
        if results.lacks(name, program):
            continue
        fabric = f"cm-programs-{os.getpid()}-{number}"
        if isinstance(job, Row):
            job = functools.partial(run_row, row=job)
        try:
            results.run(name, functools.partial(job, lib, fabric=fabric))
        finally:
            for left in directories(fabric):
                shutil.rmtree(left, ignore_errors=True)
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
