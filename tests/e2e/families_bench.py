#!/usr/bin/env python3
"""Instructions per frame of the interface families and of libmlx5's own
functions (IBVEXP_ENGINE=native) for the same frames, counted by callgrind.

    families_bench.py --softhca LIB --library LIB [--check] PROGRAM

Counted is what the program, libmlx5 and this library execute; the device, and
the lock functions in which it steps, are not. --check: fail unless posting
takes at most 0.7 and polling at most 0.8 of libmlx5's instructions.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

COUNTED = ("libmlx5", "libibverbs_exp")
ROWS = (
    ("post one frame", "native-post-1", "family-post-1", 1, 0.7),
    ("post 16 frames", "native-post-16", "family-post-16", 16, 0.7),
    ("poll 16 sends", "native-poll-send-16", "family-poll-send-16", 16, 0.8),
    ("poll 16 receives", "native-poll-receive-16", "family-poll-receive-16", 16, 0.8),
)


def instructions(path, program, libraries=COUNTED):
    """Self cost of the program and the libraries in one dump."""
    total, counted, skip = 0, False, False
    with open(path, encoding="utf-8") as dump:
        for line in dump:
            if line.startswith("ob="):
                name = os.path.basename(line[3:].strip())
                counted = name.startswith(libraries) or name == program
            elif line.startswith("calls="):
                skip = True  # the next line is the cost of what was called
            elif re.match(r"^[0-9+*-]", line):
                if skip:
                    skip = False
                elif counted:
                    total += int(line.split()[-1])
    return total


def count(command, softhca, libraries, more, name="", counted=COUNTED):
    """Instructions of each phase of a program on the software HCA, in it and in the counted
    libraries. name: distinguishes those that run at once."""
    if not shutil.which("valgrind"):
        print("valgrind is missing")
        sys.exit(77)
    fabric = f"bench-{os.getpid()}{name}{len(libraries)}"
    counts = {}
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out")
        env = dict(os.environ, LD_PRELOAD=":".join([*libraries, softhca]), SOFTHCA_FABRIC=fabric,
                   **more)
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=no",
             "--compress-pos=no", "--fair-sched=yes", f"--callgrind-out-file={out}", *command],
            env=env, capture_output=True, text=True, check=False)
        shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{fabric}", ignore_errors=True)
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            sys.exit(1)
        for dump in glob.glob(out + "*"):
            with open(dump, encoding="utf-8") as text:
                trigger = re.search(r"desc: Trigger: Client Request: (\S+)", text.read())
            if trigger:
                phase = trigger.group(1)
                found = instructions(dump, os.path.basename(command[0]), counted)
                counts[phase] = min(found, counts.get(phase, found))
    return counts


def run(title, more):
    """What was asked for, and the counts of each phase with each set of variables."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("program")
    args = parser.parse_args()
    return args, *(count([args.program], args.softhca, [args.library], env) for env in more)


def main():
    os.environ["SOFTHCA_LINK"] = "eth"
    args, libmlx5, ours = run(__doc__, [{"IBVEXP_ENGINE": "native"}, {}])
    failed = False
    print(f"{'instructions per frame':24} {'libmlx5':>8} {'family':>8} {'ratio':>6}")
    for title, native, family, frames, limit in ROWS:
        before, after = libmlx5[native] / frames, ours[family] / frames
        print(f"{title:24} {before:8.1f} {after:8.1f} {after / before:6.2f}")
        failed |= after > limit * before or before == 0 or after == 0
    return 1 if failed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
