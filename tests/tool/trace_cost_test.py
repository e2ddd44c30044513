#!/usr/bin/python3
"""What tracing costs while it is off: instructions of libibverbs_exp per post and
poll, against the same library built without tracing.

    trace_cost_test.py LIBSOFTHCA SUBJECT LIBRARY UNTRACED
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOFTHCA, SUBJECT, LIBRARY, UNTRACED = sys.argv[1:5]
FABRIC = f"trace-cost-{os.getpid()}"
CALLS = 100
ALLOWED = 2


def own_instructions(callgrind_out, library):
    """Cost of the library's own functions. Names are written once, then numbered."""
    names, inside, total, after_calls = {}, False, 0, False
    for line in callgrind_out.splitlines():
        found = re.match(r"(ob|cob)=\((\d+)\)(?: (.*))?$", line)
        if found:
            kind, number, name = found.groups()
            if name:
                names[number] = name
            if kind == "ob":
                inside = os.path.realpath(names[number]) == os.path.realpath(library)
        elif line.startswith("calls="):
            after_calls = True
        elif re.match(r"[-+*\d]\S* \d+$", line):
            if inside and not after_calls:
                total += int(line.split()[1])
            after_calls = False
    return total


def measure(library, mode, function):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        env = dict(os.environ, SOFTHCA_FABRIC=FABRIC, LD_PRELOAD=f"{library}:{SOFTHCA}")
        done = subprocess.run(
            ["valgrind", "-q", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={out}",
             f"--toggle-collect={function}", SUBJECT, mode], env=env, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        with open(out, encoding="utf-8") as f:
            return own_instructions(f.read(), library)


class Cost(unittest.TestCase):
    def tearDown(self):
        for place in "/dev/shm", tempfile.gettempdir():
            shutil.rmtree(f"{place}/softhca-{os.getuid()}-{FABRIC}", ignore_errors=True)

    def compare(self, mode):
        for function in "measured_post", "measured_poll":
            with self.subTest(mode=mode, function=function):
                with_it = measure(LIBRARY, mode, function) / CALLS
                without = measure(UNTRACED, mode, function) / CALLS
                print(f"{mode} {function}: {with_it} instructions, {without} without tracing")
                self.assertGreater(without, 5)
                self.assertLessEqual(with_it - without, ALLOWED)

    def test_slots(self):
        self.compare("cost-slots")

    def test_symbols(self):
        self.compare("cost-symbols")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
