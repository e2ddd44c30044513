#!/usr/bin/python3
"""ibvexp doctor: doctor_test.py IBVEXP LIBSOFTHCA FAULTS FAKE_LIBIBVERBS FAKE_OF_MLNX_OFED
FOREIGN_DEVICE"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

IBVEXP, SOFTHCA, FAULTS, FAKE, FAKE_MLNX_OFED, FOREIGN = map(os.path.abspath, sys.argv[1:7])
FABRIC = f"doctor-{os.getpid()}"
ENV = dict(os.environ, SOFTHCA_FABRIC=FABRIC, IBVEXP_LOG_LEVEL="error")
ENV.pop("LD_PRELOAD", None)


def tearDownModule():
    for place in "/dev/shm", tempfile.gettempdir():
        shutil.rmtree(f"{place}/softhca-{os.getuid()}-{FABRIC}", ignore_errors=True)


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def ibvexp(self, *arguments, **how):
        return subprocess.run([IBVEXP, *arguments], capture_output=True, text=True, timeout=120,
                              env=how.pop("env", ENV), cwd=self.folder.name, **how)

    def file(self, name, content=b"", mode=0o755):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as f:
            f.write(content)
        os.chmod(path, mode)
        return path


class Doctor(Base):
    def test_software_hca(self):
        done = self.ibvexp("doctor", "--device", "soft", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["usable"])
        (device,) = report["devices"]
        self.assertEqual((device["model"], device["error"]), ("emulated ConnectX-6", ""))
        self.assertEqual(device["ports"][0]["state"], "ACTIVE")
        here = {r["name"]: r["here"] for r in report["rows"]}
        self.assertEqual(here["ibv_exp_create_qp"], "works")
        self.assertEqual(here["ibv_exp_peer_commit_qp"], "refused")

    def test_rows_follow_the_device(self):
        env = dict(ENV, SOFTHCA_FABRIC=FABRIC + "-odp",
                   SOFTHCA_CONFIG=self.file("c.json", b'{"devices": [{"hide": ["odp"]}]}', 0o644))
        done = self.ibvexp("doctor", "--device", "soft", "--json", env=env)
        here = {r["name"]: r["here"] for r in json.loads(done.stdout)["rows"]}
        self.assertEqual(here["IBV_EXP_DEVICE_ODP"], "device")
        shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{FABRIC}-odp", ignore_errors=True)

    def here(self, **more):
        """Row -> what becomes of it, on a device of such an environment."""
        done = self.ibvexp("doctor", "--device", "soft", "--json", env=dict(ENV, **more))
        self.assertEqual(done.returncode, 0, done.stderr)
        return {r["name"]: r["here"] for r in json.loads(done.stdout)["rows"]}

    def test_families_follow_the_device(self):
        ethernet = self.here(SOFTHCA_LINK="eth", SOFTHCA_FABRIC=FABRIC + "-eth")
        infiniband = self.here(SOFTHCA_LINK="ib")
        old = self.here(SOFTHCA_MODEL="cx4", SOFTHCA_FABRIC=FABRIC + "-cx4")
        for row in "ibv_exp_create_flow", "ibv_exp_create_wq", "IBV_EXP_WR_TSO":
            self.assertEqual((ethernet[row], infiniband[row]), ("works", "device"), row)
        self.assertEqual((infiniband["ibv_exp_alloc_dm"], old["ibv_exp_alloc_dm"]),
                         ("works", "device"))
        for which in "-eth", "-cx4":
            shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{FABRIC}{which}", ignore_errors=True)

    def test_device_of_another_provider(self):
        here = self.here(LD_PRELOAD=f"{FOREIGN}:{SOFTHCA}")
        for row in "ibv_exp_create_qp", "ibv_exp_post_send", "ibv_exp_reg_mr", "ibv_exp_create_cq":
            self.assertEqual(here[row], "works", row)
        # Also those that IBVEXP_BEYOND would serve on an mlx5.
        for row in ("ibv_exp_create_dct", "ibv_exp_create_mr", "ibv_exp_query_intf",
                    "IBV_EXP_WR_UMR_FILL", "IBV_EXP_WR_NOP", "IBV_EXP_DEVICE_EXT_ATOMICS"):
            self.assertEqual(here[row], "device", row)

    def test_text(self):
        env = dict(ENV, MLX5_SINGLE_THREADED="1")
        done = self.ibvexp("doctor", "--device", "soft", "--rows", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("Legacy programs work here: mlx5_0 (emulated ConnectX-6)"))
        for words in "rdma-core", "libmlx5.so.1: release", "MLX5_SINGLE_THREADED=1", "ConnectX-6":
            self.assertIn(words, done.stdout)
        table = self.ibvexp("doctor").stdout.split("\nRows of the matrix here\n")[1].split("\n  works  ")[0]
        self.assertIn("\n  Shared receive queues and tag matching  ", table)
        self.assertLessEqual(max(map(len, table.splitlines())), 100)

    def concluded(self, status, outcome, what, advice, *options, **more):
        """Both forms say the same, and no row is called working."""
        env = dict(ENV, **more)
        done = self.ibvexp("doctor", *options, env=env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        first, second = done.stdout.splitlines()[:2]
        self.assertTrue(first.startswith("Legacy programs do not work here: "), first)
        self.assertIn(what, first)
        self.assertIn(advice, second)
        done = self.ibvexp("doctor", *options, "--json", env=env)
        self.assertEqual(done.returncode, status, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["conclusion"]["outcome"], outcome)
        self.assertEqual(report["conclusion"]["status"], status)
        self.assertFalse(report["usable"])
        here = {r["here"] for r in report["rows"]}
        self.assertNotIn("works", here)
        self.assertNotIn("beyond", here)
        return report

    def test_scripts_stand_for_what_they_start(self):
        shutil.copy("/bin/true", self.file("prog"))
        for text, verdict in (("./prog -v", f"it starts {self.folder.name}/prog: uses no experimental verbs"),
                              ("$PROGRAM", "not judged: it is a script, and the program that $PROGRAM starts cannot be determined"),
                              ("./prog\n$PROGRAM", "not judged: ")):
            script = self.file("script", f"#!/bin/sh\n{text}\n".encode())
            done = self.ibvexp("doctor", script)
            self.assertIn(f"\nProgram {script}\n  {verdict}", done.stdout)
        verdict = json.loads(self.ibvexp("doctor", "--json", script).stdout)["program"]["verdict"]
        self.assertRegex(verdict, f"^not judged: .*; it starts {self.folder.name}/prog: uses no")
        words = self.ibvexp("doctor", self.file("words", b"one two\n")).stdout
        self.assertIn("words\n  uses no experimental verbs\n", words)

    def test_libraries_are_part_of_their_program(self):
        library, program = (os.path.join(self.folder.name, name) for name in ("libown.so", "prog"))
        for source, command in (("void *ibv_exp_create_qp(void *, void *);"
                                 "void *made(void *c, void *a) { return ibv_exp_create_qp(c, a); }",
                                 ["-shared", "-fPIC", "-o", library]),
                                ("void *made(void *, void *);"
                                 "int main(void) { return made(0, 0) != 0; }",
                                 ["-o", program, library,
                                  f"-Wl,-rpath,{self.folder.name},--allow-shlib-undefined"])):
            subprocess.run(["cc", "-xc", "-", "-xnone", *command], input=source, text=True, check=True)
        done = self.ibvexp("doctor", "--device", "soft", program)
        self.assertIn(f"\nProgram {program}\n  works\n", done.stdout)

    def test_no_device(self):
        if os.path.exists("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("there is a device")
        report = self.concluded(1, "no device", "there is no RDMA device", "--device soft")
        (row,) = [r for r in report["rows"] if r["name"] == "ibv_exp_create_qp"]
        self.assertEqual((row["here"], row["advice"]), ("device", "no usable device"))

    def library_of_another_age(self, file, source):
        shutil.copy(source, os.path.join(self.folder.name, file))
        os.symlink(file, os.path.join(self.folder.name, "libibverbs.so.1"))
        return {"LD_LIBRARY_PATH": self.folder.name}

    def test_rdma_core_is_too_old(self):
        env = self.library_of_another_age("libibverbs.so.1.5.22.0", FAKE)
        self.concluded(4, "rdma-core too old", "is of rdma-core 22, which is too old",
                       "rdma-core 28 or newer", "--device", "soft", **env)

    def test_mlnx_ofed_comes_first(self):
        env = self.library_of_another_age("libibverbs.so.1.0.0", FAKE_MLNX_OFED)
        self.concluded(5, "legacy libibverbs", "is MLNX_OFED's own library", "LD_LIBRARY_PATH",
                       "--device", "soft", **env)

    def test_run_asks_before_it_starts(self):
        """One line of ours, and none of the dynamic linker's."""
        env = self.library_of_another_age("libibverbs.so.1.0.0", FAKE_MLNX_OFED)
        done = self.ibvexp("run", "--device", "soft", "--", "ibv_devices", env=dict(ENV, **env))
        self.assertEqual((done.returncode, done.stdout), (126, ""))
        (line,) = done.stderr.splitlines()
        self.assertIn("is MLNX_OFED's own library and comes before rdma-core's", line)
        self.assertIn("Way out: take its folder out of LD_LIBRARY_PATH", line)

    def test_run_asks_for_the_path_in_the_program(self):
        self.library_of_another_age("libibverbs.so.1.0.0", FAKE_MLNX_OFED)
        program = os.path.join(self.folder.name, "program")
        subprocess.run(["cc", "-xc", "-o", program, "-", f"-Wl,-rpath,{self.folder.name}"],
                       input="int main(void) { return 0; }", text=True, check=True)
        done = self.ibvexp("run", "--", program)
        self.assertEqual(done.returncode, 126, done.stderr)
        self.assertIn("is MLNX_OFED's own library", done.stderr)
        done = self.ibvexp("doctor", "--device", "soft", program)
        self.assertRegex(done.stdout, "\\n  does not work: .* is MLNX_OFED's own library")

    def test_an_old_libibverbs_without_its_release_in_the_name(self):
        shutil.copy(FAKE, os.path.join(self.folder.name, "libibverbs.so.1"))
        done = self.ibvexp("run", "--device", "soft", "--", "ibv_devices",
                           env=dict(ENV, LD_LIBRARY_PATH=self.folder.name))
        self.assertEqual(done.returncode, 126, done.stderr)
        (line,) = done.stderr.splitlines()
        self.assertIn("libibverbs.so.1 is older than rdma-core. Way out: install rdma-core 28 or newer; if it", line)
        self.assertIn("LD_LIBRARY_PATH", line)

    def test_no_rdma_core(self):
        # A name that cannot be loaded, found before the one that can.
        self.file("libibverbs.so.1", b"no library\n")
        self.concluded(3, "no rdma-core", "libibverbs.so.1 does not load: ", "LD_LIBRARY_PATH",
                       "--device", "soft", LD_LIBRARY_PATH=self.folder.name)

    def test_no_provider(self):
        self.concluded(6, "no provider", "no provider for mlx5_0", "ibverbs-providers",
                       "--device", "soft", LD_PRELOAD=f"{FAULTS}:{SOFTHCA}", FAULT="unknown")
        self.file("libmlx5.so.1", b"no library\n")
        self.concluded(6, "no provider", "libmlx5.so.1 does not load: ", "LD_LIBRARY_PATH",
                       "--device", "soft", LD_LIBRARY_PATH=self.folder.name)

    def test_nodes_may_not_be_opened(self):
        report = self.concluded(7, "no access", "/dev/infiniband/uverbs0 of mlx5_0: Permission",
                                "udev", "--device", "soft", LD_PRELOAD=f"{FAULTS}:{SOFTHCA}", FAULT="nodes")
        self.assertIn("bad", {f["grade"] for f in report["permissions"]})

    def test_wrong_variables_are_bad(self):
        done = self.ibvexp("doctor", "--device", "soft", "--json",
                           env=dict(ENV, IBVEXP_LAYOUT="5", IBVEXP_BEYOND="nop,nops", IBVEXP_LAYUOT="3.x"))
        findings = json.loads(done.stdout)["environment"]
        bad = [f["what"] for f in findings if f["grade"] == "bad"]
        for line in ('IBVEXP_LAYOUT: unknown value "5", allowed: 3.x,4.x',
                     'IBVEXP_BEYOND: unknown feature "nops"; did you mean nop?',
                     "IBVEXP_LAYUOT: unknown variable; did you mean IBVEXP_LAYOUT?"):
            self.assertIn(line, bad)
        # What it is then.
        self.assertTrue(any("4.x layout" in f["what"] for f in findings), findings)

    def test_the_software_hca_without_room(self):
        """As in a container, whose /dev/shm has 64 KiB unless it is asked for more."""
        def in_small_room(*command):
            done = subprocess.run(["unshare", "-rm", "sh", "-c",
                                   'mount -t tmpfs -o size=64k none /dev/shm || exit 77; exec "$@"', "sh",
                                   IBVEXP, *command], capture_output=True, text=True, env=ENV, timeout=60,
                                  check=False)
            if done.returncode == 77 or "unshare" in done.stderr:
                self.skipTest("no name spaces here: " + done.stderr)
            return done
        room = "/dev/shm has 64 KiB; of a container: --shm-size=64m"
        self.assertIn(room, in_small_room("run", "--device", "soft", "--", "ibv_devices").stderr)
        done = in_small_room("doctor", "--device", "soft")
        self.assertEqual(done.returncode, 1)
        self.assertIn(room, done.stderr)
        first, second = done.stdout.splitlines()[:2]
        self.assertEqual(first, "Legacy programs do not work here: the software HCA does not start")
        self.assertIn("--shm-size", second)
        self.assertNotIn("ibvexp run --device soft", done.stdout.split("Devices")[0])

    def test_version(self):
        report = json.loads(self.ibvexp("doctor", "--json").stdout)
        self.assertEqual(self.ibvexp("--version").stdout.split()[-1], report["version"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
