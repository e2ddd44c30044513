#!/usr/bin/python3
"""ibvexp verify: verify_test.py IBVEXP"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

IBVEXP = os.path.abspath(sys.argv[1])
ENV = dict(os.environ)
ENV.pop("LD_PRELOAD", None)


class Verify(unittest.TestCase):
    def verify(self, *arguments, **more):
        with tempfile.TemporaryDirectory() as folder:
            files = {name: os.path.join(folder, name) for name in ("json", "junit", "report")}
            options = [word for name, file in files.items() for word in (f"--{name}", file)]
            done = subprocess.run([IBVEXP, "verify", *arguments, *options], capture_output=True,
                                  text=True, timeout=280, env=dict(ENV, **more))
            written = {}
            for name, file in files.items():
                if os.path.exists(file):
                    with open(file, encoding="utf-8") as f:
                        written[name] = f.read()
        return done, written

    def test_the_software_hca_is_as_expected(self):
        done, written = self.verify("--device", "soft", "--link", "ib", "--only", "objects")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(written["report"], done.stdout)
        rows = {r["name"]: r for r in json.loads(written["json"])["rows"]}
        self.assertEqual(rows["ibv_exp_query_gid_attr"]["judgement"], "as on the software HCA")
        suite = xml.etree.ElementTree.fromstring(written["junit"])
        self.assertEqual(suite.get("failures"), "0")
        self.assertEqual(int(suite.get("tests")), len(suite.findall("testcase")))
        # Nothing of the site.
        self.assertNotIn(os.uname().nodename, done.stdout)
        self.assertNotIn(os.uname().release, done.stdout)
        self.assertIsNone(re.search(r"0x[0-9a-f]{6,}|([0-9a-f]{1,4}:){3,}", done.stdout))

    def test_what_differs_is_named(self):
        fault = {"kind": "command", "match": "DEVICE/QUERY_GID_ENTRY", "repeat": True,
                 "error": "EIO"}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump({"faults": [fault]}, config)
            config.flush()
            done, written = self.verify("--device", "soft", "--link", "ib", "--only", "objects",
                                        SOFTHCA_CONFIG=config.name)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        rows = {r["name"]: r for r in json.loads(written["json"])["rows"]}
        self.assertEqual(rows["ibv_exp_query_gid_attr"]["judgement"], "differs")
        (check,) = rows["ibv_exp_query_gid_attr"]["checks"]
        self.assertIn("GID", check["name"])
        self.assertIn("objects_test.cpp:", check["failed"])
        suite = xml.etree.ElementTree.fromstring(written["junit"])
        self.assertNotEqual(suite.get("failures"), "0")

    def test_what_the_device_lacks_is_not_there(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump({"devices": [{"hide": ["dc"]}]}, config)
            config.flush()
            done, written = self.verify("--device", "soft", "--link", "ib", "--only", "dc",
                                        SOFTHCA_CONFIG=config.name)
        rows = {r["name"]: r["judgement"] for r in json.loads(written["json"])["rows"]}
        self.assertEqual(rows["IBV_EXP_DEVICE_DC_TRANSPORT"], "not there")
        self.assertEqual(rows["ibv_exp_create_dct"], "not there")
        self.assertNotIn("differs", rows.values(), done.stdout)

    def test_no_device(self):
        if os.path.exists("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("there is a device")
        done, written = self.verify()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no RDMA device", done.stderr)
        self.assertEqual(written, {})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
