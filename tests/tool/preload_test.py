#!/usr/bin/python3
"""ibvexp under the LD_PRELOAD of others: preload_test.py IBVEXP SUBJECT"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

IBVEXP, SUBJECT = map(os.path.abspath, sys.argv[1:3])
FABRIC = f"preload-{os.getpid()}"
ENV = dict(os.environ, SOFTHCA_FABRIC=FABRIC, IBVEXP_LOG_LEVEL="error")
ENV.pop("LD_PRELOAD", None)
ENV.pop("LD_LIBRARY_PATH", None)
OUTPUT = ["sh", "-c", "echo $LD_PRELOAD"]

# Starts the words behind its first one in the way that it names, with another LD_PRELOAD.
STARTER = r"""
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
  char *none[] = {NULL}, *other[] = {"LD_PRELOAD=libm.so.6", "A=b", NULL};
  char **env = strstr(argv[1], "clear") ? none : other;
  const char *way = argv[1];
  char **words = argv + 2;
  pid_t pid;
  int status = 1;
  if (strstr(way, "environ")) environ = env;
  if (strstr(way, "vfork")) {
    if ((pid = vfork()) == 0) { execve(words[0], words, env); _exit(9); }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  }
  if (strstr(way, "spawnp")) {
    if (posix_spawnp(&pid, words[0], NULL, NULL, words, env)) return 9;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  }
  if (strstr(way, "spawn")) {
    if (posix_spawn(&pid, words[0], NULL, NULL, words, env)) return 9;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  }
  if (strstr(way, "execve-")) execve(words[0], words, env);
  if (strstr(way, "execv-")) execv(words[0], words);
  if (strstr(way, "execvp-")) execvp(words[0], words);
  if (strstr(way, "execvpe-")) execvpe(words[0], words, env);
  if (strstr(way, "execle-")) execle(words[0], words[0], words[1], NULL, env);
  if (strstr(way, "execl-")) execl(words[0], words[0], words[1], NULL);
  if (strstr(way, "execlp-")) execlp(words[0], words[0], words[1], NULL);
  if (strstr(way, "fexecve-")) { FILE *f = fopen(words[0], "r"); fexecve(fileno(f), words, env); }
  return 9;
}
"""


def tearDownModule():
    for place in "/dev/shm", tempfile.gettempdir():
        shutil.rmtree(f"{place}/softhca-{os.getuid()}-{FABRIC}", ignore_errors=True)


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def build(self, name, source, *flags):
        path = os.path.join(self.folder.name, name)
        subprocess.run(["cc", "-xc", "-w", "-o", path, "-", *flags], input=source, text=True,
                       check=True)
        return path

    def broken(self):
        """A library like libvma.so: programs without RDMA do not start with it."""
        return self.build("libbroken.so", "extern int rdma_lib_reset(void);"
                          "int (*keep)(void) = rdma_lib_reset;", "-shared", "-fPIC")

    def ibvexp(self, *arguments, env=ENV):
        return subprocess.run([IBVEXP, *arguments], capture_output=True, text=True, timeout=120,
                              env=env, cwd=self.folder.name, check=False)


class Launcher(Base):
    def test_starts_under_any_preload(self):
        env = dict(ENV, LD_PRELOAD=self.broken())
        done = self.ibvexp("--version", env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.ibvexp("run", "--device", "soft", "--", SUBJECT, "query", env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.ibvexp("run", "--", *OUTPUT, env=env)
        self.assertTrue(done.stdout.endswith(":" + env["LD_PRELOAD"] + "\n"), done)

    def test_starts_under_any_library_path(self):
        """Which goes to the program as it was."""
        for name in "libstdc++.so.6", "libfmt.so.9", "libc.so.6":
            with open(os.path.join(self.folder.name, name), "wb") as file:
                file.write(b"no library")
        # A user's path may break other programs, too: this one is linked statically.
        show = self.build("show", '#include <stdio.h>\n#include <stdlib.h>\n'
                          'int main() { puts(getenv("LD_LIBRARY_PATH")); }', "-static")
        env = dict(ENV, LD_LIBRARY_PATH=self.folder.name)
        done = self.ibvexp("--version", env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.ibvexp("run", "--", show, env=env)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (126, 1), done.stderr)
        env["LD_LIBRARY_PATH"] = "/none/a:/none/b"
        done = self.ibvexp("run", "sh", "-c", "echo $LD_LIBRARY_PATH", env=env)
        self.assertEqual(done.stdout, "/none/a:/none/b\n")

    def test_environment_stays_as_it_was(self):
        env = {"PATH": ENV["PATH"], "LD_PRELOAD": "libm.so.6", "X": "y", "LD_LIBRARY_PATH": "/none"}
        done = self.ibvexp("run", "env", env=env)
        found = dict(line.split("=", 1) for line in done.stdout.splitlines())
        self.assertEqual({n: v for n, v in found.items() if not n.startswith("IBVEXP_")},
                         dict(env, LD_PRELOAD=found["LD_PRELOAD"]))

    def test_doctor_names_what_breaks_programs(self):
        library = self.broken()
        done = self.ibvexp("doctor", "--device", "soft", env=dict(ENV, LD_PRELOAD=library))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"LD_PRELOAD={library}: programs without RDMA do not start with it", done.stdout)


class Children(Base):
    def test_env_with_another_preload(self):
        done = self.ibvexp("run", "--device", "soft", "env", "LD_PRELOAD=" + self.broken(), SUBJECT,
                           "query")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.ibvexp("run", "env", "LD_PRELOAD=libm.so.6", *OUTPUT)
        self.assertIn("libibverbs_exp.so.1", done.stdout)
        self.assertTrue(done.stdout.endswith(":libm.so.6\n"))

    def test_cleared_environment(self):
        """What env -i clears of ours comes back, too."""
        done = self.ibvexp("run", "--device", "soft", "--trace", "t.json", "env", "-i", SUBJECT,
                           "query")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(os.path.join(self.folder.name, "t.json"), encoding="utf-8") as file:
            self.assertIn('"query"', file.read())

    def test_every_way_to_start(self):
        starter = self.build("starter", STARTER)
        ways = [f"{way}-{what}" for what in ("clear", "other") for way in
                ("execve", "execvpe", "execle", "fexecve", "spawn", "spawnp", "vfork")]
        ways += [f"{way}-environ-{what}" for what in ("clear", "other") for way in
                 ("execv", "execvp", "execl", "execlp")]
        script = os.path.join(self.folder.name, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$LD_PRELOAD $A"\n')
        os.chmod(script, 0o755)
        for way in ways:
            words = [starter, way, script, "word"]
            alone = subprocess.run(words, env=ENV, capture_output=True, text=True, check=False)
            done = self.ibvexp("run", *words)
            self.assertEqual((done.returncode, done.stderr), (alone.returncode, ""), way)
            self.assertIn("libibverbs_exp.so.1", done.stdout, way)
            self.assertTrue(done.stdout.rstrip("\n").endswith(alone.stdout.rstrip("\n").strip()), way)
            done = self.ibvexp("run", "--no-follow", *words)
            self.assertEqual(done.stdout, alone.stdout, way)
            self.assertIn(f"{script} was started without it in LD_PRELOAD; it has it without --no-follow",
                          done.stderr, way)

    def test_no_follow_says_nothing_of_programs_that_have_it(self):
        done = self.ibvexp("run", "--no-follow", "--device", "soft", "sh", "-c", f"{SUBJECT} query")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_runs_itself(self):
        done = subprocess.run([IBVEXP, "run", IBVEXP, "run", *OUTPUT], env=ENV, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("libibverbs_exp", done.stdout)

    def test_errors_stay_the_programs(self):
        starter = self.build("starter", STARTER)
        for way in "execve-other", "spawn-clear", "vfork-other":
            self.assertEqual(self.ibvexp("run", starter, way, "/no/such/file").returncode, 9, way)

    def test_a_large_environment(self):
        starter = self.build("starter", STARTER)
        env = dict(ENV, **{f"VARIABLE_{i}": "x" * 1000 for i in range(1000)})
        done = self.ibvexp("run", "env", "LD_PRELOAD=libm.so.6", "sh", "-c",
                           "echo $VARIABLE_999; echo $LD_PRELOAD", env=env)
        self.assertEqual(done.stdout.splitlines()[0], "x" * 1000)
        self.assertIn("libibverbs_exp", done.stdout)
        self.assertEqual(self.ibvexp("run", starter, "execve-clear", "/bin/true", env=env).returncode,
                         0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
