#!/usr/bin/python3
"""What SOFTHCA_PCAP records, judged by tshark: pcap_test.py LIBSOFTHCA SOFTHCA_TESTS"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from programs import free_port
from results import starts

SOFTHCA, TESTS = map(os.path.abspath, sys.argv[1:3])
TSHARK = shutil.which("tshark")


class Pcap(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.folder.name, "wire.pcapng")
        self.env = dict(os.environ, SOFTHCA_PCAP=self.file,
                        SOFTHCA_FABRIC=f"pcap-{os.getpid()}-{self.id().rsplit('.', 1)[1]}")

    def tearDown(self):
        self.folder.cleanup()

    def pair(self, link, program, *arguments):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")
        if not starts(program):
            self.skipTest(f"{program} wants other libraries")
        env = dict(self.env, SOFTHCA_LINK=link, LD_PRELOAD=SOFTHCA)
        command = ["timeout", "120", program, "-p", str(free_port()), *arguments]
        server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        try:
            for _ in range(50):
                client = subprocess.run([*command, "127.0.0.1"], env=env, capture_output=True,
                                        text=True, timeout=130)
                if client.returncode == 0 or server.poll() is not None:
                    break
            self.assertEqual(client.returncode, 0, client.stdout + client.stderr)
            server.wait(120)
        finally:
            server.kill()
            server.communicate()

    def fields(self, *names, where=None):
        """A list of the values of each field, packet by packet."""
        # Only what is asked for must be right: other protocols guess ports.
        command = [TSHARK, "-n", "-r", self.file, "-T", "fields", "-E", "separator=|",
                   "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
        for name in names:
            command += ["-e", name]
        if where:
            command += ["-Y", where]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split("|") for line in done.stdout.splitlines()]

    def well_formed(self):
        self.assertEqual(self.fields("frame.number", where="_ws.malformed"), [])
        self.assertEqual(self.fields("frame.number", where="ip.checksum.status == 0"), [])
        self.assertEqual(self.fields("frame.number", where="udp.checksum.status == 0"), [])

    def transport(self):
        self.well_formed()
        all_of_them = self.fields("infiniband.bth.destqp", "infiniband.bth.psn",
                                  "infiniband.bth.opcode")
        self.assertTrue(all(len(f) == 3 and all(f) for f in all_of_them))
        return [(int(q, 0), int(p, 0), int(o, 0)) for q, p, o in all_of_them]

    def check_connection(self, link):
        # 4000 bytes over an MTU of 1024: first, two middle ones, last.
        self.pair(link, "ibv_rc_pingpong", "-s", "4000", "-n", "20", "-m", "1024",
                  *(["-g", "1"] if link == "eth" else []))
        packets = self.transport()
        per_qp = {}
        for qp, psn, opcode in packets:
            if opcode in (0, 1, 2):
                per_qp.setdefault(qp, []).append((psn, opcode))
        self.assertEqual(len(per_qp), 2)
        for sent in per_qp.values():
            self.assertEqual([o for _, o in sent], [0, 1, 1, 2] * 20)
            self.assertEqual([p for p, _ in sent],
                             [(sent[0][0] + i) % (1 << 24) for i in range(80)])
        acknowledges = [p for _, p, o in packets if o == 17]
        self.assertTrue(acknowledges)
        self.assertTrue(all(int(s[0], 0) >> 5 == 0
                            for s in self.fields("infiniband.aeth.syndrome",
                                                 where="infiniband.bth.opcode == 17")))

    def test_a_connection_over_infiniband(self):
        self.check_connection("ib")
        self.assertEqual(len(self.fields("infiniband.lrh.slid", where="!infiniband.lrh")), 0)

    def test_a_connection_over_ethernet(self):
        self.check_connection("eth")
        self.assertEqual({f[0] for f in self.fields("udp.dstport")}, {"4791"})

    def test_datagrams(self):
        self.pair("ib", "ibv_ud_pingpong", "-s", "1000", "-n", "20")
        packets = self.transport()
        self.assertEqual({o for _, _, o in packets}, {100})
        for qp in {q for q, _, _ in packets}:
            sent = [p for q, p, _ in packets if q == qp]
            self.assertEqual(sent, [(sent[0] + i) % (1 << 24) for i in range(20)])

    def test_reads(self):
        self.pair("eth", "ib_read_bw", "-n", "50", "-s", "9000", "-x", "1", "-F")
        self.assertLessEqual({12, 13, 14, 15}, {o for _, _, o in self.transport()})

    def test_dynamic_connections(self):
        self.pair("ib", "ib_write_bw", "-c", "DC", "-n", "50", "-s", "9000", "-F")
        self.assertIn(17, {o for _, _, o in self.transport()})

    def test_raw_ethernet(self):
        done = subprocess.run([TESTS, "[#eth_raw_test]"], capture_output=True, text=True,
                              timeout=120, env=dict(self.env, SOFTHCA_LINK="eth"))
        self.assertEqual(done.returncode, 0, done.stdout)
        # Frames of tests are cut short on purpose: link and network must be right.
        self.assertTrue(self.fields("eth.dst", where="ip"))


if __name__ == "__main__":
    if TSHARK is None:
        print("tshark is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
