#!/usr/bin/python3
"""What SECURITY.md promises about files and the environment:
security_test.py PRIVILEGED_SUBJECT LIBSOFTHCA TRACE_SUBJECT

As root, who can be somebody else."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

SUBJECT, SOFTHCA, TRACE_SUBJECT = (os.path.abspath(a) for a in sys.argv[1:4])
SOMEBODY = 65534


class Files(unittest.TestCase):
    def setUp(self):
        # As /tmp: everybody may put files there, and take away his own.
        self.folder = tempfile.mkdtemp()
        os.chmod(self.folder, 0o1777)
        self.log, self.trace = (os.path.join(self.folder, n) for n in ("log", "trace.json"))

    def tearDown(self):
        shutil.rmtree(self.folder)

    def start(self, before=None, **env):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("IBVEXP_")}
        environment.pop("LD_PRELOAD", None)
        return subprocess.run([SUBJECT], env=environment | env, preexec_fn=before, timeout=60,
                              capture_output=True, text=True, check=False)

    def both(self, before=None, **env):
        return self.start(before, IBVEXP_LOG_FILE=self.log, IBVEXP_TRACE=self.trace, **env)

    def test_variables_of_a_program_that_gains_rights_are_ignored(self):
        def gain():
            os.setresuid(SOMEBODY, 0, 0)

        done = self.both(gain, IBVEXP_STRICT="1")
        self.assertEqual((done.returncode, done.stdout), (0, "secure 1\n"))
        self.assertIn("must not be null", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])
        # Else they are not.
        done = self.both()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "secure 0\n", ""))
        self.assertEqual(sorted(os.listdir(self.folder)), ["log", "trace.json"])

    def test_nobody_but_the_owner_may_write_what_is_written(self):
        self.both(lambda: os.umask(0))
        for path in self.log, self.trace:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o644)

    def link(self, name, owner):
        """A link to a file of ours; returns that."""
        target = os.path.join(self.folder, "ours")
        open(target, "w", encoding="utf-8").close()
        os.symlink(target, name)
        os.chown(name, owner, owner, follow_symlinks=False)
        return target

    def test_links_of_others_are_not_followed_by_a_log(self):
        target = self.link(self.log, SOMEBODY)
        done = self.start(IBVEXP_LOG_FILE=self.log)
        self.assertEqual(os.stat(target).st_size, 0)
        self.assertIn("IBVEXP_LOG_FILE: cannot be opened", done.stderr)
        self.assertIn("must not be null", done.stderr)

    def test_links_of_others_are_not_followed_by_a_trace(self):
        target = self.link(self.trace, SOMEBODY)
        done = self.start(IBVEXP_TRACE=self.trace)
        self.assertEqual(os.stat(target).st_size, 0)
        self.assertIn("Permission denied; nothing is traced", done.stderr)

    def test_own_links_are_followed(self):
        target = self.link(self.log, 0)
        self.start(IBVEXP_LOG_FILE=self.log)
        self.assertGreater(os.stat(target).st_size, 0)

    def test_links_of_others_are_followed_where_they_alone_may_put_files(self):
        os.chmod(self.folder, 0o755)
        target = self.link(self.log, SOMEBODY)
        self.start(IBVEXP_LOG_FILE=self.log)
        self.assertGreater(os.stat(target).st_size, 0)


class Fabric(unittest.TestCase):
    """The folder of a fabric belongs to one user, and to nobody else."""

    name = f"security-{os.getpid()}"
    folder = f"/dev/shm/softhca-0-{name}"

    def tearDown(self):
        if os.path.islink(self.folder):
            os.unlink(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def open_device(self):
        return subprocess.run([TRACE_SUBJECT, "query"], timeout=120, capture_output=True, text=True,
                              env=dict(os.environ, LD_PRELOAD=SOFTHCA, SOFTHCA_FABRIC=self.name),
                              check=False)

    def test_a_folder_of_somebody_else_is_refused(self):
        os.mkdir(self.folder)
        os.chown(self.folder, SOMEBODY, SOMEBODY)
        self.assertIn(f"the name is taken by user {SOMEBODY}", self.open_device().stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_link_is_refused(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            os.symlink(elsewhere, self.folder)
            self.assertIn("the name is taken", self.open_device().stderr)
            self.assertEqual(os.listdir(elsewhere), [])

    def test_a_folder_that_others_may_read_is_closed(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        self.open_device()
        if os.path.exists(self.folder):
            self.assertEqual(stat.S_IMODE(os.stat(self.folder).st_mode), 0o700)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: needs root, to be somebody else", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
