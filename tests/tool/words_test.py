#!/usr/bin/python3
"""The words of a program reach it byte for byte: words_test.py IBVEXP RUN"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

IBVEXP, RUN = map(os.path.abspath, sys.argv[1:3])
# What shells, devices, addresses and our own command line look like.
TYPICAL = [b"", b"[]", b"[a,b]", b"[0..5],[12..17]", b"[fe80::1]", b'{"ports": [1, 2]}', b"--", b"-",
           b"-l", b"--help", b"--report", b"x.html", b"--beyond=nop", b"--device", b"soft", b"run",
           b"audit", b"a,b", b"\"'\\$(x)`", b" ", b"\n", b"\xff\xfe", b"\xc3(", b"%p"]
SHOW = b"""#include <stdio.h>
int main(int argc, char **argv) {
  for (int i = 0; i < argc; i++) { fputs(argv[i], stdout); putchar(0); }
}
"""


def vectors(count):
    """Random argument vectors, the same in each run."""
    chance = random.Random(29)
    def word():
        if chance.random() < 0.6:
            return chance.choice(TYPICAL)
        return bytes(chance.randrange(1, 256) for _ in range(chance.randrange(12)))
    yield [b"[ 1 = 1 ]", b"[a,b]"]
    for _ in range(count):
        yield [word() for _ in range(chance.randrange(8))]


class Words(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.show = os.path.join(cls.folder.name, "show").encode()
        subprocess.run(["cc", "-xc", "-o", cls.show, "-"], input=SHOW, check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def reach(self, count, *command, show=None, env=None):
        """All of them, behind the command and the program."""
        show = self.show if show is None else show
        for words in vectors(count):
            done = subprocess.run([*command, *([show] if show else []), *words], timeout=60,
                                  capture_output=True, cwd=self.folder.name, check=False, env=env)
            self.assertEqual(done.returncode, 0, (words, done.stderr))
            self.assertEqual(done.stdout.split(b"\0")[1:-1], words)
        self.assertEqual(self.files(), {"show"})

    def files(self):
        return {name for name in os.listdir(self.folder.name) if not name.startswith(".")}

    def test_run(self):
        self.reach(60, IBVEXP, "run", "--")

    def test_run_without_dashes(self):
        """As with env and nice, options end at the first word that is none."""
        self.reach(60, IBVEXP, "run")
        self.reach(10, IBVEXP, "run", "--device=soft", "--no-follow", "--beyond", "nop")

    def test_program_names(self):
        for name in b"[a,b]", b"audit", b"[]":
            os.symlink(self.show, os.path.join(self.folder.name.encode(), name))
            try:
                done = subprocess.run([IBVEXP, "run", b"./" + name, b"[x,y]"], timeout=60, check=True,
                                      capture_output=True, cwd=self.folder.name)
                self.assertEqual(done.stdout, b"./" + name + b"\0[x,y]\0")
            finally:
                os.unlink(os.path.join(self.folder.name.encode(), name))
        done = subprocess.run([IBVEXP, "run", "--", ""], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (127, "ibvexp: : not found in PATH\n"))

    def test_options_of_the_program(self):
        done = subprocess.run([IBVEXP, "run", "echo", "--report", "z.html"], capture_output=True,
                              text=True, cwd=self.folder.name, check=True)
        self.assertEqual(done.stdout, "--report z.html\n")
        self.assertEqual(self.files(), {"show"})
        done = subprocess.run([IBVEXP, "run", "--no-such-option", "echo"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_migrate(self):
        """With a program in the place of ibvexp-migrate that shows what it is given."""
        with tempfile.TemporaryDirectory() as place:
            copy = shutil.copy(IBVEXP, place)
            shutil.copy(IBVEXP + "-main", place)
            shutil.copy(self.show, os.path.join(place, "ibvexp-migrate"))
            self.reach(40, copy, "migrate", show=b"")
            os.remove(os.path.join(place, "ibvexp-migrate"))
            done = subprocess.run([copy, "migrate", "a.c"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("package ibvexp-migrate", done.stderr)

    def test_the_run_script(self):
        """Its builds are taken for done."""
        with tempfile.TemporaryDirectory() as place:
            tools = os.path.join(place, "tools")
            build = os.path.join(place, "build")
            os.makedirs(tools)
            for name, says in (("ninja", "ninja: no work to do."), ("dpkg-query", "installed")):
                with open(os.path.join(tools, name), "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho '{says}'\n")
                os.chmod(os.path.join(tools, name), 0o755)
            real = os.path.dirname(os.path.dirname(os.path.dirname(IBVEXP)))
            os.makedirs(build)
            os.symlink(os.path.join(real, "src"), os.path.join(build, "src"))
            open(os.path.join(build, "build.ninja"), "w", encoding="utf-8").close()
            env = dict(os.environ, BUILD_DIR=build, PATH=f"{tools}:{os.environ['PATH']}")
            for command in "legacy", "soft":
                self.reach(15, RUN, command, "--", env=env)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
