#!/usr/bin/env python3
"""./run test refuses a suite that does not exist, and lists all that do.

    suites.py RUN BUILD
"""

import json
import subprocess
import sys

run, build = sys.argv[1:]
refused = subprocess.run([run, "test", "nosuch"], capture_output=True, text=True, check=False)
listed = set(refused.stderr.rpartition("suites: ")[2].split())
tests = json.loads(subprocess.check_output(["meson", "introspect", "--tests", build]))
# Not all are built everywhere: those of migration need Clang's libraries.
there = {suite.split(":")[-1] for test in tests for suite in test["suite"]}
if refused.returncode != 1 or refused.stdout or not there <= listed:
    print(f"status {refused.returncode}: {refused.stderr}listed {listed}, there are {there}")
    sys.exit(1)
