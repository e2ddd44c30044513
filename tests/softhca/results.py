"""What tests of programs say of their rows: a line for each, and how many there were.

The lines about rows that are left out are read by tests/releases/run.py.
"""

import os
import shutil
import subprocess
import time

SKIPPED = 77   # the exit status, for Meson


def starts(program):
    """Whether the dynamic linker finds all that an installed program asks for. It does not
    where another rdma-core is in front of the distribution's (tests/releases)."""
    env = dict(os.environ, LD_TRACE_LOADED_OBJECTS="1", LD_WARN="1", LD_BIND_NOW="1")
    out = subprocess.run([shutil.which(program)], env=env, capture_output=True, text=True,
                         check=False)
    return not any(word in out.stdout + out.stderr for word in ("not found", "undefined symbol"))


class Results:
    def __init__(self, verbose):
        self.verbose = verbose
        self.passed = self.failed = self.skipped = 0

    def skip(self, name, reason):
        print(f"skip {name}: {reason}")
        self.skipped += 1

    def lacks(self, name, program):
        """Whether the row is left out, since its program does not run on this machine."""
        if shutil.which(program) is None:
            self.skip(name, f"{program} is not installed")
        elif not starts(program):
            self.skip(name, "wants other libraries")
        else:
            return False
        return True

    def run(self, name, job):
        """Runs a row: `job` returns whether all was well, and what the programs said."""
        begin = time.time()
        good, text = job()
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name} ({time.time() - begin:.2f} s)", flush=True)
        if not good or self.verbose:
            print("    " + text.replace("\n", "\n    "), flush=True)

    def status(self):
        """Says how many there were; the exit status."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        if not self.passed and not self.failed and self.skipped:
            return SKIPPED
        return 1 if self.failed or not self.passed else 0
