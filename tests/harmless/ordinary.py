#!/usr/bin/python3
"""Ordinary programs with the library preloaded and without: the same output, the same errors, the
same exit status.

    ordinary.py --library LIB [--ibvexp IBVEXP] [--short] [--filter TEXT] [--verbose]

Each row of ordinary.toml is a shell script, run in an empty folder: without the library, with
LD_PRELOAD, and under `ibvexp run`. Programs that are not installed are skipped. Where a run differs,
all are made again, since a busy machine makes some programs say other things. The last line is
"N passed, N failed, N skipped".
"""

import argparse
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../softhca"))
from results import Results  # noqa: E402  pylint: disable=wrong-import-position

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECONDS = 180
TRIES = 3


def run(script, before, preload):
    """Exit status, output and errors."""
    with tempfile.TemporaryDirectory(prefix="harmless-") as folder:
        env = {"PATH": PATH, "HOME": folder, "LANG": "C.UTF-8", "TZ": "UTC", "TERM": "dumb",
               "USER": "root", "LOGNAME": "root"} | preload
        process = subprocess.Popen(before + ["sh", "-ec", script], cwd=folder, env=env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        try:
            texts = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            texts = process.communicate()
            return "timed out", *texts
        return process.returncode, *(text.replace(folder.encode(), b"FOLDER") for text in texts)


def show(way, result):
    status, out, errors = result
    return f"--- {way}: {status}\n{out.decode(errors='replace')}{errors.decode(errors='replace')}"


def compare(script, ways):
    """A job of Results.run()."""
    for _ in range(TRIES):
        results = {way: run(script, *how) for way, how in ways.items()}
        if len(set(results.values())) == 1:
            return True, show("all", results["without"])
    return False, "".join(show(*one) for one in results.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--ibvexp")
    parser.add_argument("--short", action="store_true", help="only rows that are marked so")
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    ways = {"without": ([], {}),
            "LD_PRELOAD": ([], {"LD_PRELOAD": os.path.abspath(options.library)})}
    if options.ibvexp:
        ways["ibvexp run"] = ([os.path.abspath(options.ibvexp), "run"], {})
    with open(os.path.join(HERE, "ordinary.toml"), "rb") as file:
        rows = tomllib.load(file)["program"]
    results = Results(options.verbose)
    for row in rows:
        if options.filter not in row["name"] or (options.short and not row.get("short")):
            continue
        missing = [p for p in row.get("needs", [row["name"]]) if shutil.which(p, path=PATH) is None]
        if missing:
            results.skip(row["name"], "not installed: " + ", ".join(missing))
            continue
        results.run(row["name"], functools.partial(compare, row["run"], ways))
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
