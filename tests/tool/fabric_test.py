#!/usr/bin/python3
"""ibvexp fabric, and what processes leave of one: fabric_test.py IBVEXP LIBSOFTHCA"""

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

IBVEXP, SOFTHCA = map(os.path.abspath, sys.argv[1:3])
PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
SLEEP = "import os, time; os.open('/dev/infiniband/rdma_cm', os.O_RDWR); print(1, flush=True); "


class Fabric(unittest.TestCase):
    def setUp(self):
        self.name = f"tool-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"
        self.path = f"{PLACE}/softhca-{os.getuid()}-{self.name}"
        self.env = dict(os.environ, SOFTHCA_FABRIC=self.name)
        self.running = []

    def tearDown(self):
        for process in self.running:
            process.kill()
            process.communicate()
        for path in glob.glob(f"{PLACE}/softhca-*-{self.name}"):
            shutil.rmtree(path, ignore_errors=True)

    def ibvexp(self, *arguments):
        return subprocess.run([IBVEXP, "fabric", *arguments], capture_output=True, text=True,
                              timeout=60, env=self.env)

    def program(self, text, **how):
        """A Python program that sees the device; returns when it has printed a line."""
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE,
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(self.env, LD_PRELOAD=SOFTHCA), **how)
        self.running.append(process)
        process.stdout.readline()
        return process

    def line(self):
        lines = [l for l in self.ibvexp("list").stdout.splitlines() if l.split()[0] == self.name]
        return lines[0] if lines else ""

    def test_the_last_process_removes_it(self):
        first = self.program(SLEEP + "input()")
        second = self.program(SLEEP + "input()")
        self.assertTrue(os.path.isdir(self.path))
        first.communicate("\n")
        self.assertTrue(os.path.isdir(self.path))
        third = self.program("import os; print(os.listdir('/sys/class/infiniband'), flush=True); input()")
        second.communicate("\n")
        self.assertTrue(os.path.isdir(f"{self.path}"))
        third.communicate("\n")
        self.assertFalse(os.path.exists(self.path))

    def test_a_child_that_outlives_its_parent_keeps_it(self):
        text = ("import os, sys\n"
                "fd = os.open('/dev/infiniband/rdma_cm', os.O_RDWR)\n"
                "if os.fork() == 0:\n"
                "    while os.getppid() != 1 and not os.path.exists(sys.argv[1]): pass\n"
                "    os.stat('/sys/class/infiniband/mlx5_0')\n"
                "    print(2, flush=True)\n"
                "    os.dup2(2, 1)\n"
                "    sys.exit(sys.stdin.read() != '')\n"
                "print(1, flush=True)\n")
        with tempfile.TemporaryDirectory() as folder:
            flag = os.path.join(folder, "gone")
            process = subprocess.Popen([sys.executable, "-c", text, flag], stdout=subprocess.PIPE,
                                       stdin=subprocess.PIPE, text=True,
                                       env=dict(self.env, LD_PRELOAD=SOFTHCA))
            self.running.append(process)
            self.assertEqual(process.stdout.readline(), "1\n")
            process.wait(60)
            self.assertTrue(os.path.isdir(self.path))
            open(flag, "w").close()
            self.assertEqual(process.stdout.readline(), "2\n")
            process.stdin.close()
            for _ in range(3000):
                if not os.path.exists(self.path):
                    break
                time.sleep(0.01)
            self.assertFalse(os.path.exists(self.path))
            process.stdout.close()
            self.running.remove(process)

    def test_two_threads_that_exit_at_once_remove_it(self):
        text = ("import ctypes, os, threading\n"
                "os.listdir('/sys/class/infiniband')\n"
                "libc = ctypes.CDLL(None)\n"
                "threading.Thread(target=libc.exit, args=(0,)).start()\n"
                "libc.exit(0)\n")
        for _ in range(20):
            subprocess.run([sys.executable, "-c", text], env=dict(self.env, LD_PRELOAD=SOFTHCA))
            self.assertEqual(glob.glob(f"{self.path}*"), [])

    def test_processes_start_while_others_end(self):
        # One that is killed while it removes the fabric leaves nothing half.
        text = "import os; os.stat('/sys/class/infiniband/mlx5_0/ports/1/gids/0')"
        env = dict(self.env, LD_PRELOAD=SOFTHCA)
        running = []
        for number in range(100):
            running.append(subprocess.Popen([sys.executable, "-S", "-c", text], env=env))
            if len(running) > 3:
                self.assertEqual(running.pop(0).wait(), 0)
            if number % 5 == 0:
                killed = subprocess.Popen([sys.executable, "-S", "-c", text], env=env)
                time.sleep(0.02 + number / 10000)
                killed.kill()
                killed.wait()
        for process in running:
            self.assertEqual(process.wait(), 0)

    def test_others_clear_away_what_the_killed_left(self):
        killed = self.program(SLEEP + "input()")
        killed.kill()
        killed.communicate()
        self.assertTrue(os.path.isdir(self.path))
        other = f"{self.name}-other"
        subprocess.run([sys.executable, "-c", "import os; os.listdir('/sys/class/infiniband')"],
                       env=dict(self.env, LD_PRELOAD=SOFTHCA, SOFTHCA_FABRIC=other), check=True)
        self.assertFalse(os.path.exists(self.path))
        self.assertFalse(os.path.exists(f"{PLACE}/softhca-{os.getuid()}-{other}"))

    def test_list_and_clean(self):
        self.assertEqual(self.line(), "")
        process = self.program(SLEEP + "input()")
        self.assertIn("in use", self.line())
        self.assertIn(pwd.getpwuid(os.getuid()).pw_name, self.line())
        self.assertIn(f": {process.pid} python", self.line())
        self.assertEqual(self.ibvexp("clean", self.name).returncode, 1)
        process.kill()
        process.communicate()
        self.assertIn("left behind", self.line())
        done = self.ibvexp("clean", self.name)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, f"removed {self.path}\n", ""))
        self.assertFalse(os.path.exists(self.path))
        self.assertEqual(self.ibvexp("clean", self.name).returncode, 1)

    def test_what_cannot_be_cleaned_is_trouble(self):
        os.mkdir(self.path, 0o700)
        os.symlink("elsewhere", f"{self.path}/users")
        done = self.ibvexp("clean", self.name)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, f"^ibvexp: {self.path}: .+\n$")
        self.assertTrue(os.path.islink(f"{self.path}/users"))

    def test_two_users_of_one_name(self):
        theirs = f"{PLACE}/softhca-4294967-{self.name}"
        os.mkdir(theirs)
        process = self.program(SLEEP + "input()")
        said = process.communicate("\n")[1]
        self.assertEqual(said.count("user 4294967 has one of this name"), 1, said)

    @unittest.skipIf(os.getuid() != 0, "needs root to give a folder away")
    def test_a_name_that_is_taken_is_an_error(self):
        os.mkdir(self.path)
        os.chown(self.path, 12345, 12345)
        process = self.program("import os\n"
                               "try: os.open('/dev/infiniband/rdma_cm', os.O_RDWR)\n"
                               "except OSError as e: print(e.errno, flush=True)\n"
                               "try: os.listdir('/sys/class/infiniband')\n"
                               "except OSError as e: print(e.errno, flush=True)\n")
        said = process.communicate()[1]
        self.assertEqual(said.count("the name is taken by user 12345"), 1, said)
        self.assertFalse(glob.glob(f"/tmp/softhca-*-{self.name}") and PLACE != "/tmp")

    def test_limits_have_a_name(self):
        def limited(resource, value, text):
            import resource as r
            def limit():
                r.setrlimit(getattr(r, resource), (value, value))
            process = self.program(text, preexec_fn=limit)
            return process.communicate()[1], process.returncode

        said, status = limited("RLIMIT_FSIZE", 1 << 20,
                               "import os\n"
                               "try: os.open('/dev/infiniband/uverbs0', os.O_RDWR)\n"
                               "except OSError as e: assert e.errno == 27, e\n")
        self.assertIn("RLIMIT_FSIZE is 1048576 bytes", said)
        self.assertEqual(status, 0)
        said, status = limited("RLIMIT_FSIZE", 1,
                               "import os\n"
                               "try: os.listdir('/sys/class/infiniband')\n"
                               "except OSError as e: assert e.errno == 27, e\n")
        self.assertIn("RLIMIT_FSIZE is 1 bytes", said)
        self.assertEqual(status, 0)

    def test_a_configuration_that_is_a_pipe_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "config")
            os.mkfifo(fifo)
            self.env["SOFTHCA_CONFIG"] = fifo
            process = self.program("import os; os.listdir('/sys/class/infiniband')")
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 78)
            self.assertIn("not a regular file", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
