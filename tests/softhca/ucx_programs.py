#!/usr/bin/env python3
"""UCX and Open MPI of the distribution, in their default settings, on the
software HCA.

UCX writes its WQEs and reads its CQEs itself (rc_x, dc_x, ud_x) or posts through
libmlx5 (rc_v, ud_v); in the first case it makes queues by firmware commands (DEVX) or by
verbs. Open MPI uses UCX as it finds it. Every row runs
ucx_perftest as two processes of two emulated hosts, or mpirun. Usage:

    ucx_programs.py --softhca LIB [--full] [--filter TEXT] [--verbose]
    ucx_programs.py --own ib|eth [--full] [--filter TEXT] [--verbose]

--own takes the machine's own device, which has that link layer. --full runs every test of
ucx_perftest, not only some. Programs that are not installed are skipped; with none of
them the exit status is 77. The last line is "N passed, N failed, N skipped".
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from programs import free_port, listening, parse
from results import Results

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICE = "mlx5_0:1"

# Tests of ucx_perftest: name, arguments, whether only --full runs it.
UCP_TESTS = (
    ("tag_lat", "-n 20 -w 2", False),
    ("tag_lat", "-n 20 -w 2 -s 100000", False),
    ("tag_bw", "-n 50 -w 5 -s 4096", False),
    ("tag_bw", "-n 20 -w 2 -s 1000000", True),
    ("tag_lat", "-n 20 -w 2 -D iov,iov -s 100,2000,300", True),
    ("tag_lat", "-U -n 20 -w 2", True),
    ("tag_sync_lat", "-n 20 -w 2", True),
    ("tag_sync_bw", "-n 20 -w 2", True),
    ("ucp_put_lat", "-n 20 -w 2", False),
    ("ucp_put_bw", "-n 20 -w 2 -s 65536", False),
    ("ucp_get", "-n 20 -w 2 -s 65536", False),
    ("ucp_add", "-n 20 -w 2", True),
    ("ucp_fadd", "-n 20 -w 2", False),
    ("ucp_swap", "-n 20 -w 2", True),
    ("ucp_cswap", "-n 20 -w 2 -s 8", True),
    ("stream_lat", "-n 20 -w 2", True),
    ("stream_bw", "-n 20 -w 2", True),
    ("ucp_am_lat", "-n 20 -w 2", True),
    ("ucp_am_bw", "-n 20 -w 2 -s 8192", True),
)
# The third: transports without it. UCX has the swap of UCT only with queues of DEVX.
UCT_TESTS = (
    ("am_lat", "-n 20 -w 2 -D short", ""),
    ("am_lat", "-n 20 -w 2 -D bcopy -s 1000", ""),
    ("am_lat", "-n 20 -w 2 -D zcopy -s 1000", ""),
    ("am_bw", "-n 50 -w 5 -D bcopy -s 1000", ""),
    ("put_lat", "-n 20 -w 2 -D short", "ud"),
    ("put_lat", "-n 20 -w 2 -D bcopy -s 1000", "ud"),
    ("put_bw", "-n 20 -w 2 -D zcopy -s 60000", "ud"),
    ("get", "-n 20 -w 2 -D bcopy -s 1000", "ud"),
    ("get", "-n 20 -w 2 -D zcopy -s 60000", "ud"),
    ("add_lat", "-n 20 -w 2", "ud atomics"),
    ("add_mr", "-n 20 -w 2", "ud atomics"),
    ("fadd", "-n 20 -w 2", "ud atomics"),
    ("cswap", "-n 20 -w 2", "ud atomics"),
)
TRANSPORTS = {"rc_v": "rc_verbs", "rc_x": "rc_mlx5", "dc_x": "dc_mlx5", "ud_v": "ud_verbs",
              "ud_x": "ud_mlx5"}


class Row:
    def __init__(self, name, link, run, program):
        self.name = name
        self.link = link
        self.run = run
        self.program = program   # that it needs


def environment(lib, link, host, fabric, **more):
    if lib is None:
        return dict(os.environ, **more)
    env = dict(os.environ, SOFTHCA_LINK=link, SOFTHCA_HOST=str(host), SOFTHCA_FABRIC=fabric,
               **more)
    env["LD_PRELOAD"] = (env.get("LD_PRELOAD", "") + " " + lib).strip()
    env.pop("SOFTHCA_CONFIG", None)
    return env


def finish(process, timeout):
    """Output; the process and what it has started are killed if it does not end."""
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out = process.communicate()[0] + "\ntimed out"
    return out


def start(command, env, cwd=None):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=env, cwd=cwd, start_new_session=True)


@functools.cache
def ucx_perftest():
    """The command. Where it was built with MPI it takes every start without a terminal as one
    by mpirun, unless it is asked not to."""
    usage = subprocess.run(["ucx_perftest", "-h"], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, check=False).stdout
    return ["ucx_perftest"] + (["-P", "0"] if "MPI mode" in usage else [])


def perftest(lib, link, fabric, tests, timeout, **more):
    """A server and a client that go through `tests`, lines of a batch file. The client
    prints a row of results, which begins with its name, for each."""
    port = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as batch:
        batch.writelines(line + "\n" for line in tests)
        batch.flush()
        command = ucx_perftest() + ["-p", str(port), "-f", "-b", batch.name]
        server = start(command, environment(lib, link, 1, fabric, **more))
        deadline = time.time() + timeout
        while not listening(port) and server.poll() is None and time.time() < deadline:
            time.sleep(0.01)
        client = start(command + ["localhost"], environment(lib, link, 2, fabric, **more))
        results = finish(client, timeout)
        text = f"client:\n{results}\nserver:\n{finish(server, 20)}"
    done = [line.split()[0] for line in results.splitlines() if re.match(r" *\w+ +\d+ ", line)]
    wanted = [line.split()[0] for line in tests]
    if done != wanted:
        text += f"\nresults of {done}, not of {wanted}"
    return client.returncode == 0 and server.returncode == 0 and done == wanted, text


def ucp(transport, tests, **more):
    lines = [f"{name}_{i} -t {name} {arguments}" for i, (name, arguments) in enumerate(tests)]
    return lambda lib, link, fabric: perftest(
        lib, link, fabric, lines, 300, UCX_TLS=f"{transport},self", UCX_NET_DEVICES=DEVICE, **more)


def ucx_version():
    if shutil.which("ucx_info") is None:
        return (0, 0)
    text = finish(start(["ucx_info", "-v"], dict(os.environ)), 60)
    return tuple(int(n) for n in re.search(r"ersion:? (\d+)\.(\d+)", text).groups())


def uct(transport, devx):
    kind, api = transport.split("_")
    without = {kind, "verbs" if api == "v" else "mlx5"}
    # With its own WQEs UCX then adds an offset to addresses of atomics that only memory keys of
    # DEVX take off again, also where it has none of those.
    if api == "x" and ucx_version() >= (1, 16):
        without.add("atomics")
    lines = [f"{name}_{i} -t {name} -x {TRANSPORTS[transport]} -d {DEVICE} {arguments}"
             for i, (name, arguments, lacking) in enumerate(UCT_TESTS)
             if not without & set(lacking.split())]
    return lambda lib, link, fabric: perftest(lib, link, fabric, lines, 300,
                                              UCX_IB_MLX5_DEVX=devx)


def ucx_info(lib, link, fabric):
    process = start(["ucx_info", "-d"], environment(lib, link, 1, fabric))
    text = finish(process, 60)
    return process.returncode == 0 and all(
        f"Transport: {name}\n" in text for name in TRANSPORTS.values()), text


def mpi(ranks, transport=None):
    """The ring program, compiled here: nothing of MPI is needed to build the project.
    In the default settings, in which ranks of one machine also use shared memory, or
    over one transport of the device alone."""
    def run(lib, link, fabric):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "ring")
            compiler = start(["mpicc", "-O1", "-o", program, os.path.join(HERE, "mpi_ring.c")],
                             dict(os.environ))
            text = finish(compiler, 120)
            if compiler.returncode != 0:
                return False, text
            env = environment(lib, link, 1, fabric)
            # Only mpirun's children are to have the device.
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)]
            if lib is not None:
                preload = env.pop("LD_PRELOAD")
                command += ["-x", f"LD_PRELOAD={preload}", "-x", "SOFTHCA_LINK", "-x", "SOFTHCA_FABRIC"]
            if transport is not None:
                command += ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "-x",
                            f"UCX_TLS={transport},self", "-x", f"UCX_NET_DEVICES={DEVICE}"]
            command.append(program)
            process = start(command, env, folder)
            text = finish(process, 240)
        return process.returncode == 0 and f"{ranks} ranks: all verified" in text, text
    return run


def rows(full):
    for link in ("ib", "eth"):
        yield Row("ucx_info -d", link, ucx_info, "ucx_info")
        tests = [(n, a) for n, a, only_full in UCP_TESTS if full or not only_full]
        for transport in TRANSPORTS:
            for devx in ("y", "n") if transport.endswith("x") else ("y",):
                name = transport + (", no DEVX" if devx == "n" else "")
                if full or link == "ib" or devx == "y":
                    yield Row(f"ucx_perftest, UCP over {name}", link,
                              ucp(transport, tests, UCX_IB_MLX5_DEVX=devx), "ucx_perftest")
                if full or link == "ib":
                    yield Row(f"ucx_perftest, UCT {name}", link, uct(transport, devx),
                              "ucx_perftest")
        if full or link == "ib":
            tags = {"UCX_IB_MLX5_DEVX": "y", "UCX_RC_MLX5_TM_ENABLE": "y"}
            yield Row("ucx_perftest, UCP over rc_x, hardware matches tags", link,
                      ucp("rc_x", tests, UCX_RC_MLX5_TM_MP_SRQ_ENABLE="n", **tags), "ucx_perftest")
            # "y" is an error where UCX finds no strides, or needs no tags.
            if link == "ib" and ucx_version() >= (1, 11):
                yield Row("ucx_perftest, UCP over rc_x, hardware matches tags, in strides", link,
                          ucp("rc_x", [test for test in tests if test[0].startswith("tag")],
                              UCX_RC_MLX5_TM_MP_SRQ_ENABLE="y", **tags), "ucx_perftest")
        for ranks in (2, 4):
            yield Row(f"mpirun, {ranks} ranks", link, mpi(ranks), "mpicc")
            for transport in ("rc_v", "rc_x", "dc_x", "ud_x") if full or ranks == 2 else ():
                yield Row(f"mpirun, {ranks} ranks over {transport}", link, mpi(ranks, transport),
                          "mpicc")


def main():
    options = parse(__doc__, "every test of ucx_perftest")
    results = Results(options.verbose)
    for number, row in enumerate(rows(options.full)):
        name = f"{row.link}: {row.name}"
        if options.filter not in name or row.link != (options.own or row.link):
            continue
        if shutil.which(row.program) is None:
            results.skip(name, f"{row.program} is not installed")
            continue
        fabric = f"ucx-{os.getpid()}-{number}"
        results.run(name, functools.partial(row.run, options.softhca, row.link, fabric))
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
