"""What the tests of ibvexp audit share: running it, and asking its report.

Tests are started as: TEST.py IBVEXP SOURCE_ROOT
"""

import os
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

IBVEXP, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()


def audit(*arguments, **more):
    return subprocess.run([IBVEXP, "audit", *map(str, arguments)], capture_output=True, text=True,
                          errors="replace", timeout=240, check=False, **more)


class Audit(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def report(self, *arguments):
        done = audit("--json", "-", *arguments)
        return json.loads(done.stdout), done

    def uses(self, report):
        return {(f["path"], report["subjects"][u["subject"]]["name"], u.get("line"))
                for f in report["files"] for u in f["uses"]}

    def expect_error(self, path, words, *more):
        """One clear line, the rest is audited all the same, and the status says so."""
        good = self.file("good.c", "ibv_exp_poll_cq(a);\n")
        done = audit("--json", "-", path, good, *more)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(str(path), lines[0])
        self.assertRegex(lines[0], words)
        self.assertEqual(done.returncode, 2)
        self.assertIn((str(good), "ibv_exp_poll_cq", 1), self.uses(json.loads(done.stdout)))

    def program(self, report, name=None):
        """The verdict of one program, or of the only one."""
        found = [p for p in report["programs"] if name is None or p["name"] == str(name)]
        self.assertEqual(len(found), 1, report["programs"])
        return found[0]

    def compile(self, name, code, *options, compiler="g++", language="c++"):
        """A stripped program."""
        source = self.file(name + ".source", code)
        program = self.folder / name
        subprocess.run([compiler, "-O2", "-w", "-s", "-x", language, source, "-x", "none", *options, "-o", program,
                        "-libverbs"],
                       check=True)
        return program
