#!/usr/bin/env python3
"""Runs a sample on the software HCA: alone, or as server and client on two
emulated hosts.

    samples.py --preload LIB... [--pair [--address HOST]] [--expect TEXT] [--leaks]
               [--timeout SECONDS] -- PROGRAM ARGS

--leaks runs it under valgrind: it must not read what is not there, and free all.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# Fair, or a program that polls leaves no turn to the device's thread.
VALGRIND = ["valgrind", "-q", "--trace-children=yes", "--fair-sched=yes", "--leak-check=full",
            "--show-leak-kinds=definite,indirect", "--errors-for-leak-kinds=definite,indirect",
            "--error-exitcode=9"]
SKIPPED = 77


def start(command, preload, fabric, host, leaks):
    env = dict(os.environ, SOFTHCA_FABRIC=fabric, SOFTHCA_HOST=str(host))
    preload = "LD_PRELOAD=" + ":".join(preload)
    # Not into valgrind itself.
    command = (VALGRIND if leaks else []) + ["env", preload] + command
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preload", action="append", default=[])
    parser.add_argument("--pair", action="store_true")
    parser.add_argument("--address", default="127.0.0.1", help="where the client finds the server")
    parser.add_argument("--expect", default="")
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if args.leaks and shutil.which("valgrind") is None:
        print("valgrind is not installed")
        return SKIPPED

    fabric = f"sample-{os.getpid()}"
    commands = [args.command]
    if args.pair:
        port = ["-p", str(free_port())]
        commands = [args.command + port, args.command + port + [args.address]]
    processes = [start(c, args.preload, fabric, i + 1, args.leaks) for i, c in enumerate(commands)]
    failed = False
    for process in processes:
        try:
            output, _ = process.communicate(timeout=300 if args.leaks else args.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += "timed out\n"
        print(output, end="")
        if process.returncode != 0 or args.expect not in output:
            failed = True
    for place in ("/dev/shm", os.environ.get("TMPDIR", tempfile.gettempdir())):
        shutil.rmtree(os.path.join(place, f"softhca-{os.getuid()}-{fabric}"), ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
