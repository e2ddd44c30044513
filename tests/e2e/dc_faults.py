#!/usr/bin/env python3
"""Creating DC objects while a command of the kernel, or an allocation, fails once.

    dc_faults.py PROGRAM FAIL_ALLOC LIBRARY SOFTHCA
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile

COMMANDS = ["QP/CREATE", "QP/DESTROY", "CQ/CREATE", "WRITE/ALLOC_PD", "WRITE/EX_MODIFY_QP",
            "WRITE/MODIFY_QP", "WRITE/QUERY_QP", "WRITE/QUERY_PORT", "DEVICE/QUERY_PORT",
            "WRITE/QUERY_DEVICE", "WRITE/EX_QUERY_DEVICE", "UAR/ALLOC"]


def run(program, mode, preload, fabric, config=None):
    env = dict(os.environ, LD_PRELOAD=":".join(preload), SOFTHCA_FABRIC=fabric)
    if config:
        env["SOFTHCA_CONFIG"] = config
    done = subprocess.run([program, mode], env=env, capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout, done.stdout + done.stderr


def main():
    program, fail_alloc, library, softhca = sys.argv[1:]
    fabric = f"dc-faults-{os.getpid()}"
    failed = seen = 0
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "faults.json")
        for command in COMMANDS:
            # The first of these is libmlx5's own, when the device is opened; it goes
            # on without what it asked for.
            for nth in range(2 if command == "WRITE/EX_QUERY_DEVICE" else 1, 20):
                with open(config, "w", encoding="utf-8") as file:
                    json.dump({"faults": [{"kind": "command", "match": command, "nth": nth,
                                           "error": "ENOSPC"}]}, file)
                status, said, everything = run(program, "commands", [library, softhca], fabric,
                                               config)
                if status == 3:
                    continue        # it hit the preparations
                if status != 0:
                    print(f"{command} {nth}: status {status}\n{everything}")
                    failed += 1
                elif "failed:" not in said:
                    break           # beyond the last command
                else:
                    seen += 1
                    reason = int(said.split("failed:")[1].split(":")[1].split()[0])
                    # A trial that failed shows as a missing capability.
                    if reason != errno.ENOSPC and "ibv_exp_query_device" not in said:
                        print(f"{command} {nth}: {said}")
                        failed += 1
    print(f"{seen} commands failed")
    if seen < 6:
        failed += 1
    status, said, everything = run(program, "memory", [fail_alloc, library, softhca], fabric)
    print(said, end="")
    if status != 0:
        print(f"status {status}\n{everything}")
        failed += 1
    for place in ("/dev/shm", tempfile.gettempdir()):
        shutil.rmtree(os.path.join(place, f"softhca-{os.getuid()}-{fabric}"), ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
