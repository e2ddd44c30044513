#!/usr/bin/python3
"""ibvexp verify: verify_test.py IBVEXP"""

import json
import os
import re
import socket
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
        # A variable that the library does not have, of a CI job: doctor has a line about it on standard error.
        done, written = self.verify("--device", "soft", "--link", "ib", "--only", "objects", IBVEXP_IMAGE="ours")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
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
        differ = sum(r["judgement"] == "differs" for r in rows.values())
        self.assertRegex(done.stdout, rf"\n *{differ} {'row differs' if differ == 1 else 'rows differ'}\n")
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

    def test_checks_that_there_are_not(self):
        for options, said in ((["--only", "objcts"], 'no checks "objcts"; did you mean objects? Known: adversarial '),
                              (["--only", "pingpong-cr", "--peer", "127.0.0.1"], "did you mean pingpong-rc? Known: ping"),
                              (["--only", "ethernet", "--link", "ib"], "no checks of ethernet are for link layer ib")):
            done, written = self.verify("--device", "soft", *options)
            self.assertEqual((done.returncode, done.stdout, written), (2, "", {}))
            self.assertTrue(done.stderr.startswith("ibvexp: "), done.stderr)
            self.assertIn(said, done.stderr)

    def test_no_device(self):
        if os.path.exists("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("there is a device")
        done, written = self.verify()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no RDMA device", done.stderr)
        self.assertIn("What to do: ibvexp doctor; ibvexp verify --device soft checks", done.stderr)
        self.assertEqual(written, {})

    def with_peer(self, *arguments, link="ib", peer_link=None, **more):
        """What this side of two hosts says; the other one serves it, as it is."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        fabric = f"verify-{os.getpid()}-{port}"
        command = [IBVEXP, "verify", "--device", "soft", "--port", port, "--timeout", "60"]
        listening = subprocess.Popen([*command, "--link", peer_link or link, "--listen"],
                                     env=dict(ENV, SOFTHCA_FABRIC=fabric),
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            done, written = self.verify(*command[2:], "--link", link, "--peer", "127.0.0.1",
                                        *arguments, SOFTHCA_FABRIC=fabric, **more)
            listening.wait(30)
        finally:
            listening.kill()
            listening.communicate()
        return done, written, listening.returncode

    def test_two_hosts(self):
        for link in ("ib", "eth"):
            done, written, served = self.with_peer(link=link)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(served, 0)
            rows = {r["name"]: r for r in json.loads(written["json"])["rows"]}
            names = {c["name"] for r in rows.values() for c in r["checks"]}
            self.assertLessEqual({"pingpong-rc", "pingpong-uc", "xrc-exp", "cm-rc", "cm-ud"}, names)
            self.assertEqual("rss" in names, link == "eth")
            self.assertEqual(rows["rdma_create_qp_exp"]["judgement"], "as on the software HCA")

    def test_what_differs_between_two_hosts_is_named(self):
        fault = {"kind": "wqe", "match": "SEND_IMM", "nth": 3, "syndrome": "local_protection"}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump({"faults": [fault]}, config)
            config.flush()
            done, written, served = self.with_peer("--only", "pingpong-rc",
                                                   SOFTHCA_CONFIG=config.name)
        self.assertEqual((done.returncode, served), (1, 0), done.stdout + done.stderr)
        self.assertIn("this side: exit status 1", done.stdout)
        self.assertIn("\n1 check, 0 passed\n", done.stdout)
        suite = xml.etree.ElementTree.fromstring(written["junit"])
        self.assertEqual(suite.get("failures"), "1")

    def test_a_peer_of_another_link_layer(self):
        done, written, _ = self.with_peer(peer_link="eth")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r'says "ibvexp-verify \S+ eth", not "ibvexp-verify \S+ ib"')
        self.assertEqual(written, {})

    def test_no_peer(self):
        done, written = self.verify("--device", "soft", "--peer", "127.0.0.1", "--port", "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("127.0.0.1, port 1: Connection refused", done.stderr)
        self.assertEqual(written, {})

    def test_a_peer_asks_for_what_is_not_in_the_list(self):
        """Nothing but names of the list is understood, and a long line ends it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        listening = subprocess.Popen([IBVEXP, "verify", "--device", "soft", "--listen", "--port", str(port)],
                                     env=ENV, stderr=subprocess.PIPE, text=True)
        try:
            self.assertIn(f"waiting at port {port}", listening.stderr.readline())
            with socket.create_connection(("127.0.0.1", port)) as peer, peer.makefile("rw") as lines:
                self.assertRegex(lines.readline(), r"^ibvexp-verify \S+ ib$")
                for asked in ("pair ../../../bin/sh", "pair", "run pingpong-rc"):
                    lines.write(asked + "\n")
                    lines.flush()
                    self.assertEqual(lines.readline(), "unknown\n")
                lines.write("x" * 1000)
                lines.flush()
                self.assertEqual(listening.wait(30), 0)
        finally:
            listening.kill()
            listening.communicate()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
