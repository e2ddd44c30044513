#!/usr/bin/env python3
"""Lets each mutant live once and sees whether a test notices.

    hunt.py LIST BUILD [--only PATTERN] [--jobs N] [--goal PERCENT]

BUILD is a build of the tree that mutate.py wrote. A mutant is killed when one of
its tests fails, crashes or hangs; the tests are those of its family, run in the
order of the list until one does. First all of them are run without a mutant, and
have to pass. Prints each survivor and the score, and fails below the goal. A
mutant that the list expects to survive, with a reason, counts as a survivor.
"""

import argparse
import fnmatch
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import mutate  # noqa: E402

# How much longer than without a mutant a test may take.
PATIENCE = 4
AT_LEAST_SECONDS = 10
AT_MOST_SECONDS = 120


class Test:
    def __init__(self, build, known):
        self.name = known["name"]
        self.command = known["cmd"]
        # A program of Catch2, which gets a pattern or nothing: one failure is enough.
        if all(argument.startswith("[") for argument in self.command[1:]):
            self.command = [*self.command, "--abort"]
        self.environment = known["env"]
        self.folder = known["workdir"] or build  # as Meson does
        self.depends = known["depends"]
        self.seconds = AT_MOST_SECONDS

    fabrics = itertools.count()

    def fails(self, mutant):
        """How, or nothing."""
        environment = dict(os.environ, **self.environment, ALIVE_MUTANT=str(mutant))
        # Two of a kind run at the same time.
        if "SOFTHCA_FABRIC" in environment:
            environment["SOFTHCA_FABRIC"] = f"mutant-{os.getpid()}-{next(Test.fabrics)}"
        process = subprocess.Popen(self.command, env=environment, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return "" if process.wait(timeout=self.seconds) in (0, 77) else "fails"
        except subprocess.TimeoutExpired:
            return "hangs"
        finally:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", f"--{what}", str(build)], check=True,
                                     capture_output=True, text=True).stdout)


def tests_of(build):
    tests = {}
    for known in introspect(build, "tests"):
        # Suites share some names: what the list names is the library's, not the software HCA's.
        name, of_device = known["name"], any("softhca" in suite for suite in known["suite"])
        if name not in tests or not of_device:
            tests[name] = Test(build, known)
    return tests


def make(build, tests):
    """Builds what these tests need."""
    files = {target["id"]: target["filename"] for target in introspect(build, "targets")}
    wanted = sorted({os.path.relpath(file, build) for test in tests for target in test.depends
                     for file in files[target]})
    done = subprocess.run(["ninja", "-C", str(build), *wanted], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print(done.stdout[-8000:], file=sys.stderr)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list")
    parser.add_argument("build")
    parser.add_argument("--only", default="*", help="names of mutants, as a pattern")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--goal", type=float, default=95)
    options = parser.parse_args()

    mutants = [m for m in mutate.load(options.list) if fnmatch.fnmatch(m["name"], options.only)]
    if not mutants:
        print(f"no mutant is named {options.only}: they are FAMILY.NAME, as in {options.list}",
              file=sys.stderr)
        return 2
    known = tests_of(options.build)
    wanted = {name for m in mutants for name in m["tests"]}
    if missing := wanted - known.keys():
        print("no such test:", *sorted(missing), file=sys.stderr)
        return 2
    if not make(options.build, [known[name] for name in wanted]):
        return 2

    def settle(name):
        test = known[name]
        start = time.monotonic()
        failed = test.fails(0)
        taken = time.monotonic() - start
        test.seconds = min(AT_MOST_SECONDS, max(AT_LEAST_SECONDS, PATIENCE * taken))
        return name if failed else None

    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        if broken := [name for name in pool.map(settle, sorted(wanted)) if name]:
            print("fails without a mutant:", *broken, file=sys.stderr)
            return 2

        said = threading.Lock()

        def hunt(mutant):
            killer, how = next(((t, how) for t in mutant["tests"]
                                if (how := known[t].fails(mutant["number"]))), (None, ""))
            with said:
                if killer:
                    hung = " (hangs)" if how == "hangs" else ""
                    print(f"{mutant['number']:4} killed by {killer}{hung}: {mutant['name']}",
                          flush=True)
                else:
                    why = f" ({mutant['survives']})" if mutant["survives"] else ""
                    print(f"{mutant['number']:4} SURVIVES: {mutant['name']}{why}", flush=True)
            return killer is not None

        killed = list(pool.map(hunt, mutants))

    unexpected = [m for m, dead in zip(mutants, killed) if not dead and not m["survives"]]
    score = 100 * sum(killed) / max(1, len(killed))
    print(f"{sum(killed)} of {len(killed)} mutants killed ({score:.1f} %) "
          f"in {time.monotonic() - start:.0f} s; {len(unexpected)} survivors without a reason")
    return 0 if score >= options.goal else 1


if __name__ == "__main__":
    sys.exit(main())
