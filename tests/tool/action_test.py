#!/usr/bin/env python3
"""The composite action of docs/ci/action: its steps run as a runner runs them.

    action_test.py IBVEXP ACTION.yml SUBJECT
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

try:
    import yaml
except ImportError:
    sys.exit(77)

IBVEXP, ACTION, SUBJECT = map(os.path.abspath, sys.argv[1:4])


class Action(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        with open(ACTION, encoding="utf-8") as f:
            self.action = yaml.safe_load(f)
        # What ./run package tarball makes has the program there.
        self.tarball = os.path.join(self.folder, "t.tar.gz")
        program = os.path.join(self.folder, "program")
        with open(program, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nexec {IBVEXP} "$@"\n')
        os.chmod(program, 0o755)
        with tarfile.open(self.tarball, "w:gz") as archive:
            archive.add(program, "libibverbs_exp-1-x86_64/bin/ibvexp")

    def value(self, text, inputs):
        known = {**{f"inputs.{name}": value for name, value in inputs.items()},
                 "github.run_id": f"{os.getpid()}"}
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda m: known[m[1]], text)

    def wanted(self, step, inputs):
        """The few conditions that the action has."""
        condition = step.get("if", "always()").strip("${} ")
        terms = [t.strip() for t in condition.split("&&")]
        def holds(term):
            if term in ("always()", "!cancelled()"):
                return True
            name, operator, value = re.fullmatch(r"inputs\.([\w-]+) (!=|==) '(\w*)'", term).groups()
            return (inputs[name] == value) == (operator == "==")
        return all(map(holds, terms))

    def start(self, **given):
        """Names of the steps that failed. What a step of others takes has to be there."""
        inputs = {name: given.pop(name.replace("-", "_"), one.get("default"))
                  for name, one in self.action["inputs"].items()}
        self.assertFalse(given)
        path = os.path.join(self.folder, "path")
        env = dict(os.environ, RUNNER_TEMP=self.folder, GITHUB_PATH=path)
        failed, self.output = [], ""
        for step in self.action["runs"]["steps"]:
            # As a runner: after a failure only what asks for it.
            anyway = re.search(r"always\(\)|!cancelled\(\)", step.get("if", ""))
            if not self.wanted(step, inputs) or (failed and not anyway):
                continue
            if "uses" in step:
                self.assertRegex(step["uses"], r"^[\w/-]+@v\d+$")
                for key in "path", "sarif_file":
                    if key in step["with"]:
                        self.assertTrue(os.path.exists(os.path.join(self.folder, step["with"][key])), step)
                continue
            if os.path.exists(path):
                with open(path, encoding="utf-8") as f:
                    env["PATH"] = ":".join([*f.read().split(), os.environ["PATH"]])
            more = {name: self.value(value, inputs) for name, value in step.get("env", {}).items()}
            self.assertEqual(step["shell"], "bash")
            self.assertNotIn("${{", step["run"])
            done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                                  cwd=self.folder, env={**env, **more}, capture_output=True, text=True,
                                  timeout=240, check=False)
            self.output += done.stdout + done.stderr
            if done.returncode != 0:
                failed.append(step["name"])
        return failed

    def test_a_program_and_its_sources(self):
        with open(os.path.join(self.folder, "a.c"), "w", encoding="utf-8") as f:
            f.write("ibv_exp_peer_commit_qp(c, &t, &bad);\n")
        self.assertEqual(self.start(tarball=self.tarball, run=f"{SUBJECT} query"), [], self.output)
        for name in "used.html", "audit.sarif":
            self.assertEqual(os.path.exists(os.path.join(self.folder, "ibvexp-reports", name)), name == "used.html")
        self.assertEqual(self.start(tarball=self.tarball, audit="a.c"), [])
        self.assertEqual(self.start(tarball=self.tarball, audit="a.c", fail_on="refused"), ["audit"])

    def test_a_refused_request_fails_it(self):
        self.assertEqual(self.start(tarball=self.tarball, run=f"{SUBJECT} refused; true", audit=SUBJECT), ["run"])
        self.assertIn("refused: ibv_exp_post_task", self.output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
