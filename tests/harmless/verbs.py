#!/usr/bin/python3
"""Programs of others that use verbs, on the software HCA, with the library preloaded and without: the
same rows pass, fail and are skipped.

    verbs.py --softhca LIB --library LIB [--short] [--only SCRIPT] [--verbose]

The rows are those of tests/softhca: rdma-core's Python tests, its examples and librdmacm's, perftest,
UCX, Open MPI, libfabric, fio, qperf and DPDK. Rows that differ are run again, since programs of
others have races of their own. A row that is left out on either side is no proof and is counted. The
last line is "N same, N differ, N skipped".
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../softhca")
# With the time that it took, or with a reason.
ROW = re.compile(r"^(ok  |FAIL|skip) (?:(.*) \([\d.]+ s\)|(.*?): .*)$", re.M)
SKIPPED = 77
TRIES = 3
# And the rows of the short form; None: none of them.
SCRIPTS = {
    "pyverbs_suite.py": None,
    "programs.py": "ibv_rc_pingpong",
    "cm_programs.py": "rping",
    "network_programs.py": "fi_pingpong",
    "ucx_programs.py": "UCP over rc_",
    "dpdk_programs.py": None,
}


def run(script, softhca, preload, only, cache):
    """The rows with their results, and the whole output."""
    command = [sys.executable, os.path.join(TESTS, script)]
    if script == "pyverbs_suite.py":
        command += [softhca, cache]
    else:
        command += ["--softhca", softhca] + (["--filter", only] if only else [])
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, env=env | preload, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return {timed or other: result.strip() for result, timed, other in ROW.findall(done.stdout)}, done.stdout


def differing(one, other):
    return sorted(name for name in one | other if one.get(name) != other.get(name))


class Comparison:
    def __init__(self, options, cache):
        self.softhca = os.path.abspath(options.softhca)
        self.library = os.path.abspath(options.library)
        self.cache = cache
        self.verbose = options.verbose
        self.same = self.differ = self.skipped = 0

    def both(self, script, only=None):
        return [run(script, self.softhca, preload, only, self.cache)
                for preload in ({}, {"LD_PRELOAD": self.library})]

    def script(self, script, only):
        (without, text), (with_it, text_with) = self.both(script, only)
        if self.verbose:
            print(text, text_with, sep="\n")
        if not without:
            print(f"skip {script}: {(text.strip() or 'no output').splitlines()[-1]}")
            self.skipped += 1
            return
        left = differing(without, with_it)
        for name in left:
            print(f"again: {name}: {without.get(name)} without the library, {with_it.get(name)} with it")
        for _ in range(TRIES - 1):
            texts = {}
            for name in left if script != "pyverbs_suite.py" else left[:1]:
                (again, text), (again_with, text_with) = self.both(script, name)
                texts |= {n: text_with for n in again}
                without |= again
                with_it |= again_with
            left = [name for name in left if without.get(name) != with_it.get(name)]
        for name in left:
            print(f"FAIL {script}: {name}: {without.get(name)} without the library, "
                  f"{with_it.get(name)} with it\n{texts.get(name, '')}")
        skipped = sum(result == "skip" for name, result in without.items() if name not in left)
        failed = [name for name, result in without.items() if result == "FAIL" and name not in left]
        for name in failed:
            print(f"note {script}: {name} fails with the library as without")
        same = len(without) - len(left) - skipped
        print(f"ok   {script}: {same} rows the same, {skipped} skipped", flush=True)
        self.same += same
        self.differ += len(left)
        self.skipped += skipped

    def status(self):
        print(f"{self.same} same, {self.differ} differ, {self.skipped} skipped")
        if self.same + self.differ == 0:
            return SKIPPED
        return 1 if self.differ else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--short", action="store_true", help="a few rows of each")
    parser.add_argument("--only", default="", help="scripts of which the name contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        comparison = Comparison(options, cache)
        for script, rows in SCRIPTS.items():
            if options.only in script and (rows or not options.short):
                comparison.script(script, rows if options.short else None)
        return comparison.status()


if __name__ == "__main__":
    sys.exit(main())
