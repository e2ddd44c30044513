#!/usr/bin/python3
"""Traces of a program whose calls are known: trace_test.py LIBRARIES SUBJECT SCHEMA"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import jsonschema

LIBRARIES, SUBJECT, SCHEMA = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3]
FABRIC = f"trace-{os.getpid()}"


def tearDownModule():
    for place in "/dev/shm", tempfile.gettempdir():
        shutil.rmtree(f"{place}/softhca-{os.getuid()}-{FABRIC}", ignore_errors=True)


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.folder.name, "trace.json")

    def tearDown(self):
        self.folder.cleanup()

    def start(self, mode, file=None, **env):
        return subprocess.run([SUBJECT, mode], cwd=self.folder.name, timeout=120,
                              env=dict(os.environ, LD_PRELOAD=LIBRARIES, SOFTHCA_FABRIC=FABRIC,
                                       IBVEXP_LOG_LEVEL="error",
                                       IBVEXP_TRACE=file or self.file, **env),
                              capture_output=True, text=True)

    def processes(self, file=None):
        with open(file or self.file, encoding="utf-8") as f:
            document = json.load(f)
        with open(SCHEMA, encoding="utf-8") as f:
            jsonschema.validate(document, json.load(f))
        return document["processes"]

    def trace(self, mode, **env):
        """Runs to a good end and returns the only process."""
        done = self.start(mode, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        (process,) = self.processes()
        self.assertEqual(process["state"], "exited")
        self.assertEqual(self.left_over(), [])
        return process

    def left_over(self):
        return glob.glob(self.file + ".*")

    def counts(self, process, name):
        for row in process["rows"]:
            if row["name"] == name:
                return tuple(row[c] for c in ("calls", "successes", "refusals", "failures"))
        return None

    def row(self, process, name):
        return next(r for r in process["rows"] if r["name"] == name)

    def test_counts(self):
        process = self.trace("query")
        self.assertEqual(self.counts(process, "ibv_exp_query_device"), (3, 3, 0, 0))
        self.assertEqual(self.counts(process, "IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS"), (3, 3, 0, 0))
        self.assertEqual(process["program"], os.path.realpath(SUBJECT))
        self.assertEqual(process["arguments"], [SUBJECT, "query"])

    def test_call_site(self):
        process = self.trace("query")
        note = process["notes"][self.row(process, "ibv_exp_query_device")["first_call"]]
        self.assertEqual(note["entry"], "ibv_exp_query_device")
        self.assertEqual(note["words"], "comp_mask 0x8")
        self.assertEqual(len(note["arguments"]), 2)
        self.assertEqual(note["module"], os.path.realpath(SUBJECT))
        place = subprocess.run(["addr2line", "-fe", note["module"], note["offset"]], check=True,
                               capture_output=True, text=True).stdout
        self.assertIn(place.split()[0], ("query", "ibv_exp_query_device", "main"))

    def test_refusals(self):
        process = self.trace("refused")
        self.assertEqual(self.counts(process, "ibv_exp_post_task"), (1, 0, 1, 0))
        self.assertEqual(self.counts(process, "ibv_exp_create_qp"), (2, 0, 1, 1))
        self.assertEqual(self.counts(process, "IBV_EXP_QP_CREATE_CROSS_CHANNEL"), (1, 0, 1, 0))
        # Of both requests, neither of which came to anything.
        self.assertEqual(self.counts(process, "IBV_EXP_QP_INIT_ATTR_PD"), (2, 0, 0, 2))
        note = process["notes"][self.row(process, "ibv_exp_create_qp")["first_refusal"]]
        self.assertEqual(note["errno"], 95)
        self.assertIn("IBV_EXP_QP_CREATE_CROSS_CHANNEL", note["reason"])
        self.assertIn("exp_create_flags 0x4", note["words"])

    def test_no_refusal_counts_as_success(self):
        """Whatever the shape in which a verb answers with one."""
        process = self.trace("shapes")
        for shape, name, expected in [
                ("positive", "ibv_exp_query_gid_attr", (1, 0, 0, 1)),
                ("positive_bad", "ibv_exp_post_task", (1, 0, 1, 0)),
                ("negative", "ibv_exp_query_values", (1, 0, 0, 1)),
                ("minus_one", "ibv_exp_setenv", (1, 0, 0, 1)),
                ("null_errno", "ibv_exp_create_res_domain", (1, 0, 0, 1)),
                ("null_status", "ibv_exp_query_intf", (3, 0, 1, 2)),
                ("zero", "ibv_exp_cqe_ts_to_ns", (1, 0, 0, 1)),
                ("void_errno", "ibv_exp_dealloc_ec_calc", (1, 0, 0, 1))]:
            with self.subTest(shape):
                self.assertEqual(self.counts(process, name), expected)
        note = process["notes"][self.row(process, "ibv_exp_query_intf")["first_refusal"]]
        self.assertEqual(note["errno"], 95)

    def test_chain(self):
        process = self.trace("chain")
        self.assertEqual(self.counts(process, "ibv_exp_post_send"), (1, 0, 1, 0))
        self.assertEqual(self.counts(process, "IBV_EXP_WR_RDMA_WRITE"), (2, 1, 0, 1))
        self.assertEqual(self.counts(process, "IBV_EXP_WR_CQE_WAIT"), (1, 0, 1, 0))
        self.assertEqual(self.counts(process, "IBV_EXP_SEND_SIGNALED"), (3, 1, 0, 2))
        self.assertEqual(self.counts(process, "IBV_EXP_WC_RDMA_WRITE"), (1, 1, 0, 0))

    def test_threads(self):
        process = self.trace("threads")
        self.assertEqual(self.counts(process, "ibv_exp_query_device"), (2000, 2000, 0, 0))

    def test_nothing_traced_without_devices(self):
        self.assertEqual(self.start("nothing").returncode, 0)
        self.assertFalse(os.path.exists(self.file))

    def test_fork(self):
        for mode, state in ("fork", "exited"), ("fork-hard", "ended"):
            with self.subTest(mode):
                self.assertEqual(self.start(mode).returncode, 0)
                by_calls = {self.counts(p, "ibv_exp_query_device")[0]: p for p in self.processes()}
                self.assertEqual(by_calls[1]["state"], "exited")
                self.assertEqual(by_calls[2]["state"], state)
                self.assertEqual(by_calls[2]["parent"], by_calls[1]["pid"])
                self.assertEqual(self.left_over(), [])
            os.unlink(self.file)

    def test_exec(self):
        self.assertEqual(self.start("exec").returncode, 0)
        before, after = self.processes()
        self.assertEqual(before["pid"], after["pid"])
        self.assertNotEqual(before["arguments"], after["arguments"])
        self.assertEqual(self.counts(before, "ibv_exp_query_device"), (1, 1, 0, 0))
        self.assertEqual(self.counts(after, "ibv_exp_query_device"), (3, 3, 0, 0))
        self.assertEqual((before["state"], after["state"]), ("ended", "exited"))

    def test_killed(self):
        self.assertEqual(self.start("kill").returncode, -signal.SIGKILL)
        self.assertEqual(len(self.left_over()), 1)
        # The next one finds what it left.
        self.assertEqual(self.start("query").returncode, 0)
        by_state = {p["state"]: p for p in self.processes()}
        self.assertEqual(self.counts(by_state["ended"], "ibv_exp_query_device"), (5, 5, 0, 0))
        self.assertEqual(self.left_over(), [])

    def test_crash_inside_a_call(self):
        self.assertEqual(self.start("crash").returncode, -signal.SIGSEGV)
        self.assertEqual(self.start("query").returncode, 0)
        ended = next(p for p in self.processes() if p["state"] == "ended")
        self.assertEqual(self.counts(ended, "ibv_exp_post_send"), (1, 0, 0, 0))
        note = ended["notes"][self.row(ended, "ibv_exp_post_send")["first_call"]]
        self.assertEqual(note["arguments"][1], "0x8")

    def test_signal(self):
        self.assertEqual(self.start("signal").returncode, -signal.SIGKILL)
        (process,) = self.processes()
        self.assertEqual(process["state"], "running")
        self.assertEqual(self.counts(process, "ibv_exp_query_device"), (1, 1, 0, 0))
        self.start("query")
        again = [p for p in self.processes() if p["id"] == process["id"]]
        self.assertEqual([p["state"] for p in again], ["running", "ended"])
        self.assertEqual(self.counts(again[1], "ibv_exp_query_device"), (2, 2, 0, 0))

    def test_signal_of_the_program(self):
        self.trace("own-signal")

    def test_file_name(self):
        self.assertEqual(self.start("chdir", file="trace.json").returncode, 0)
        self.assertEqual(len(self.processes()), 1)
        self.assertEqual(self.start("query", file="t.%h.%p.json").returncode, 0)
        (file,) = glob.glob(os.path.join(self.folder.name, f"t.{os.uname().nodename}.*.json"))
        self.assertIn(f".{self.processes(file)[0]['pid']}.", file)

    def refused_file(self, file, message):
        done = self.start("query", file=file)
        self.assertEqual(done.returncode, 0)
        self.assertIn("IBVEXP_TRACE", done.stderr)
        self.assertIn(message, done.stderr)
        self.assertIn("nothing is traced", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_bad_files(self):
        self.refused_file("/nonexistent/t.json", "No such file")
        self.refused_file(self.folder.name, "Is a directory")
        with open(self.file, "w", encoding="utf-8") as f:
            f.write("my diary\n")
        self.refused_file(self.file, "is no trace")
        with open(self.file, encoding="utf-8") as f:
            self.assertEqual(f.read(), "my diary\n")
        os.unlink(self.file)
        self.start("query")
        with open(self.file, "a", encoding="utf-8") as f:
            f.write("more")
        self.refused_file(self.file, "damaged")
        self.refused_file("/dev/null", "is no trace")
        self.refused_file("x" * 5000, "too long")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
