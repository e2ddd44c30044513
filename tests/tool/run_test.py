#!/usr/bin/python3
"""ibvexp run: run_test.py IBVEXP SUBJECT LIBRARIES PRIVATE SILENT"""

import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

IBVEXP, SUBJECT = map(os.path.abspath, sys.argv[1:3])
LIBRARIES, PRIVATE, SILENT = sys.argv[3], *map(os.path.abspath, sys.argv[4:6])
FABRIC = f"run-{os.getpid()}"
ENV = dict(os.environ, SOFTHCA_FABRIC=FABRIC, IBVEXP_LOG_LEVEL="error")
ENV.pop("LD_PRELOAD", None)
# Answers of other builds are none.
CACHE = tempfile.TemporaryDirectory()
ENV["XDG_CACHE_HOME"] = CACHE.name


def tearDownModule():
    for place in "/dev/shm", tempfile.gettempdir():
        shutil.rmtree(f"{place}/softhca-{os.getuid()}-{FABRIC}", ignore_errors=True)


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.trace = os.path.join(self.folder.name, "t.json")

    def tearDown(self):
        self.folder.cleanup()

    def ibvexp(self, *arguments, **how):
        return subprocess.run([IBVEXP, *arguments], capture_output=True, text=True, timeout=120,
                              env=how.pop("env", ENV), cwd=self.folder.name, **how)

    def processes(self):
        with open(self.trace, encoding="utf-8") as f:
            return json.load(f)["processes"]

    def file(self, name, content=b"", mode=0o755):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as f:
            f.write(content)
        os.chmod(path, mode)
        return path


# Every way to run shall look the same from outside.
WAYS = [], ["--trace", "t.json"]


class Run(Base):
    def test_runs_legacy_programs(self):
        for way in WAYS:
            done = self.ibvexp("run", "--device", "soft", *way, "--", SUBJECT, "query")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        (process,) = self.processes()
        self.assertEqual(process["state"], "exited")

    def test_exit_status_and_output(self):
        for way in WAYS:
            done = self.ibvexp("run", *way, "--", "sh", "-c", "cat; echo err >&2; exit 7",
                               input="through\n")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "through\n", "err\n"))

    def served_by(self, done):
        """What the last line says, and the command in it."""
        (line,) = done.stderr.splitlines()
        said, command = line.split(" Served by: ")
        return said, command

    def test_what_a_switch_would_have_served(self):
        """The last line is a command that serves it, as it stands."""
        for way in WAYS:
            done = self.ibvexp("run", "--device", "soft", *way, "--", SUBJECT, "nops")
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            said, command = self.served_by(done)
            self.assertEqual(said, "ibvexp: refused: IBV_EXP_WR_NOP (3 times).")
            self.assertEqual(shlex.split(command), ["ibvexp", "run", "--device", "soft", *way,
                                                    "--beyond", "nop", "--", SUBJECT, "nops"])
            again = subprocess.run(f"{IBVEXP}{command.removeprefix('ibvexp')}", shell=True, env=ENV,
                                   capture_output=True, text=True, cwd=self.folder.name,
                                   timeout=120)
            self.assertEqual((again.returncode, again.stdout, again.stderr), (0, "", ""))

    def test_switches_turn_themselves_on(self):
        """One line for a switch, and none for those that nothing asks for."""
        warns = dict(ENV, IBVEXP_LOG_LEVEL="warn")
        for way in WAYS:
            done = self.ibvexp("run", "--device", "soft", *way, "--beyond", "auto", "--", SUBJECT, "nops",
                               env=warns)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (0, "", "ibvexp: IBVEXP_BEYOND=auto: a request needs nop (IBV_EXP_WR_NOP)\n"))
        done = self.ibvexp("run", "--device", "soft", "--beyond", "auto", "--", SUBJECT, "query",
                           env=warns)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_names_switches_to_a_program_that_gave_up(self):
        """It saw clear capability bits; one that ends well missed none."""
        gave_up = ["sh", "-c", f"{SUBJECT} query; exit 3"]
        for way in WAYS:
            done = self.ibvexp("run", "--device", "soft", *way, "--", *gave_up)
            self.assertEqual(done.returncode, 3)
            said, command = done.stderr.splitlines()[-1].split(" If it misses one: ")
            self.assertIn("cross_channel, erasure_coding, masked_atomics, nop, shared_mr", said)
            again = subprocess.run(f"{IBVEXP}{command.removeprefix('ibvexp')}", shell=True, env=ENV,
                                   capture_output=True, text=True, cwd=self.folder.name, timeout=120)
            self.assertEqual((again.returncode, again.stderr), (3, ""))
            done = self.ibvexp("run", "--device", "soft", *way, "--", SUBJECT, "query")
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_command_keeps_switches_and_words(self):
        """Also of what a child of the program is refused."""
        program = ["sh", "-c", f"{SUBJECT} 'nops'; exit 4"]
        done = self.ibvexp("run", "--device", "soft", "--beyond", "mp_rq_poll", "--", *program)
        self.assertEqual(done.returncode, 4)
        _, command = self.served_by(done)
        self.assertEqual(shlex.split(command), ["ibvexp", "run", "--device", "soft", "--beyond",
                                                "mp_rq_poll,nop", "--", *program])

    def deaf(self, status):
        """A program whose interpreter is not the C library's: nothing is preloaded."""
        loader = self.file("loader.s", """
            .globl _start
            _start:
            #ifdef __x86_64__
              mov $60, %eax; mov $STATUS, %edi; syscall
            #else
              mov x8, #93; mov x0, #STATUS; svc #0
            #endif
            """.replace("STATUS", str(status)).encode())
        os.rename(loader, loader.replace(".s", ".S"))
        loader = loader.replace(".s", "")
        source = self.file("main.c", b"int main(void) { return 0; }")
        for command in (["-nostdlib", "-static", "-o", loader, loader + ".S"],
                        ["-o", source[:-2], source, f"-Wl,--dynamic-linker={loader}"]):
            subprocess.run(["gcc", *command], check=True, cwd=self.folder.name)
        return source[:-2]

    def test_says_that_nothing_loaded_the_library(self):
        done = self.ibvexp("run", "--", self.deaf(3))
        self.assertEqual(done.returncode, 3)
        self.assertIn("no process of this program loaded libibverbs_exp", done.stderr)

    def test_without_a_device_it_is_the_program_and_a_line(self):
        if os.path.exists("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("there is a device")
        for program in (["ibv_devinfo", "-v"], ["ibv_rc_pingpong", "localhost"], ["ibv_devices"],
                        [SUBJECT, "query"]):
            plain = subprocess.run(program, capture_output=True, timeout=60, env=ENV, check=False)
            done = subprocess.run([IBVEXP, "run", "--beyond", "nop", *program], capture_output=True,
                                  timeout=60, env=ENV, check=False)
            self.assertEqual((done.returncode, done.stdout), (plain.returncode, plain.stdout))
            self.assertTrue(done.stderr.startswith(plain.stderr), (plain.stderr, done.stderr))
            (line,) = done.stderr.removeprefix(plain.stderr).decode().splitlines()
            self.assertTrue(line.startswith("ibvexp: there is no RDMA device"), line)
            self.assertIn("ibvexp doctor", line)
            soft = ["ibvexp", "run", "--device", "soft", "--beyond", "nop", "--", *program]
            self.assertTrue(line.endswith("On the software HCA: " + shlex.join(soft)), line)
        # What looks for no device hears nothing.
        done = self.ibvexp("run", "--", "true")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_crash_where_private_structures_are_read(self):
        def crash(mode, **more):
            done = self.ibvexp("run", "--device", "soft", "--", SUBJECT, mode,
                               env=dict(ENV, LD_PRELOAD=PRIVATE, **more))
            self.assertEqual(done.returncode, -signal.SIGSEGV)
            return done.stderr
        self.assertIn(f"in {os.path.realpath(PRIVATE)}, which reads private structures",
                      crash("crash-reader"))
        self.assertIn("IBVEXP_ENGINE=native has no such structures",
                      crash("crash-reader", IBVEXP_ENGINE="native"))
        # Elsewhere, beside such a library: no cause is known.
        self.assertEqual(crash("crash-own"), "")

    def test_what_a_program_reads_is_found_once(self):
        env = dict(ENV, XDG_CACHE_HOME=self.folder.name)
        run = ["run", "--device", "soft", "--", SUBJECT, "query"]
        self.assertEqual(self.ibvexp(*run, env=env).stderr, "")
        answers = f"{self.folder.name}/libibverbs_exp/layouts"
        with open(answers, encoding="utf-8") as f:
            lines = f.read().splitlines()
        self.assertRegex("\n".join(lines), r"^[0-9a-f]+ [0-9a-f]+ none$")
        # From now on that file is believed, but for what is no answer, or one of another ibvexp.
        audit, build_id, _ = lines[0].split()
        said = f"ibvexp: setting IBVEXP_LAYOUT=3.x, the layout that {os.path.realpath(SUBJECT)} reads"
        for answer, wanted in ((f"{audit} {build_id} 3.x", said), (f"{audit} {build_id} 5.x", ""),
                               (f"{audit[:-1]} {build_id} 3.x", "")):
            with open(answers, "w", encoding="utf-8") as f:
                f.write(answer + "\n")
            self.assertEqual(self.ibvexp(*run, env=env).stderr[:len(wanted) or None], wanted)

    def test_a_provider_is_no_part_of_the_program(self):
        """What it reads behind the objects of verbs is its own."""
        program = os.path.join(self.folder.name, "program")
        subprocess.run(["cc", "-xc", "-o", program, "-", "-Wl,--no-as-needed", "-libverbs", "-lmlx5"],
                       input="int main(void) { return 0; }", text=True, check=True)
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        provider = re.search(r"libmlx5\.so\.1 => (\S+)", loaded)[1]
        notes = subprocess.run(["readelf", "-n", program, provider], capture_output=True, text=True,
                               check=True).stdout
        own, of_provider = re.findall("Build ID: ([0-9a-f]+)", notes)
        self.ibvexp("run", "--device", "soft", "--", program,
                    env=dict(ENV, XDG_CACHE_HOME=self.folder.name))
        with open(f"{self.folder.name}/libibverbs_exp/layouts", encoding="utf-8") as f:
            answers = f.read()
        self.assertIn(f" {own} none\n", answers)
        self.assertNotIn(of_provider, answers)

    def test_libraries_that_name_no_verb_are_read_beside_those_that_do(self):
        env = dict(ENV, XDG_CACHE_HOME=self.folder.name, LD_PRELOAD=SILENT)
        done = self.ibvexp("run", "--device", "soft", "--", SUBJECT, "query", env=env)
        said = f"ibvexp: setting IBVEXP_LAYOUT=3.x, the layout that {os.path.realpath(SILENT)} reads"
        self.assertEqual(done.stderr[:len(said)], said)
        self.assertEqual(self.ibvexp("run", "--device", "soft", "--", "true", env=env).stderr, "")

    def test_a_library_that_the_user_may_not_read_is_named(self):
        if os.getuid() == 0 and shutil.which("setpriv") is None:
            self.skipTest("root may read all, and there is no setpriv")
        tool, copy = os.path.dirname(IBVEXP), os.path.join(self.folder.name, "tool")
        os.makedirs(copy)
        for name in "ibvexp", "ibvexp-main":
            shutil.copy(os.path.join(tool, name), copy)
        library = os.path.join(os.path.realpath(self.folder.name), "exp", "libibverbs_exp.so.1")
        os.makedirs(os.path.dirname(library))
        shutil.copy(LIBRARIES.split(":")[0], library)
        os.chmod(library, 0)
        os.chmod(self.folder.name, 0o755)
        user = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.getuid() == 0 else []
        done = subprocess.run([*user, os.path.join(copy, "ibvexp"), "run", "--device", "soft", "--", "true"],
                              capture_output=True, text=True, timeout=60, check=False, env=ENV)
        self.assertEqual((done.returncode, done.stderr), (2, f"ibvexp: {library}: Permission denied\n"))

    def test_programs_run_without_their_audit(self):
        tool = os.path.dirname(IBVEXP)
        copy = os.path.join(self.folder.name, "build/src/tool")
        os.makedirs(copy)
        for name in os.listdir(os.path.dirname(tool)):
            if name != "tool":
                os.symlink(os.path.join(os.path.dirname(tool), name), os.path.join(copy, "..", name))
        for name in os.listdir(tool):
            if name in ("ibvexp", "ibvexp-main"):
                shutil.copy(os.path.join(tool, name), copy)
            elif name != "ibvexp-audit":
                os.symlink(os.path.join(tool, name), os.path.join(copy, name))
        done = subprocess.run([os.path.join(copy, "ibvexp"), "run", "--device", "soft", "--", SUBJECT, "query"],
                              capture_output=True, text=True, timeout=120, check=False,
                              env=dict(ENV, XDG_CACHE_HOME=self.folder.name))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ibvexp: ibvexp audit failed", done.stderr)

    def test_signals_of_others_end_the_program_beside_private_structures(self):
        for number in signal.SIGSEGV, signal.SIGBUS, signal.SIGILL:
            process = subprocess.Popen([IBVEXP, "run", "--device", "soft", "--", SUBJECT, "wait"],
                                       env=dict(ENV, LD_PRELOAD=PRIVATE), cwd=self.folder.name,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            os.kill(int(process.stdout.readline()), number)
            self.assertEqual((process.communicate(timeout=60), process.returncode),
                             (("", ""), -number))

    def test_leaves_no_file(self):
        env = dict(ENV, TMPDIR=self.folder.name)
        self.ibvexp("run", "--device", "soft", "--", SUBJECT, "query", env=env)
        self.assertEqual([n for n in os.listdir(self.folder.name) if n.startswith("ibvexp-")], [])

    def test_death_by_signal(self):
        for way in WAYS:
            for number in signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM:
                done = self.ibvexp("run", *way, "--", "sh", "-c", f"kill -{number.value} $$")
                self.assertEqual(done.returncode, -number)

    def test_passes_signals_on(self):
        script = 'trap "exit 9" TERM; trap "exit 8" USR2; echo ready; while :; do sleep 0.1; done'
        for way in WAYS:
            for number, status in (signal.SIGTERM, 9), (signal.SIGUSR2, 8):
                process = subprocess.Popen([IBVEXP, "run", *way, "--", "sh", "-c", script], env=ENV,
                                           cwd=self.folder.name, stdout=subprocess.PIPE)
                process.stdout.readline()
                process.send_signal(number)
                self.assertEqual(process.wait(60), status)
                process.stdout.close()

    def test_dies_with_its_launcher(self):
        process = subprocess.Popen([IBVEXP, "run", "--trace", "t.json", "--", "sh", "-c",
                                    "echo $$; exec sleep 1000"], env=ENV, cwd=self.folder.name,
                                   stdout=subprocess.PIPE, text=True)
        pid = int(process.stdout.readline())
        process.kill()
        process.wait(60)
        process.stdout.close()
        for _ in range(600):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except FileNotFoundError:
                return
            time.sleep(0.1)
        self.fail("the program goes on")

    def test_crashed_programs_are_traced(self):
        done = self.ibvexp("run", "--device", "soft", "--trace", "t.json", "--", SUBJECT, "kill")
        self.assertEqual(done.returncode, -signal.SIGKILL)
        (process,) = self.processes()
        self.assertEqual(process["state"], "ended")
        self.assertEqual(os.listdir(self.folder.name), ["t.json"])

    def test_audit_gathers_what_killed_programs_left(self):
        for _ in range(2):
            self.ibvexp("run", "--device", "soft", "--trace", "t-%p.json", "--", SUBJECT, "kill")
        traces = glob.glob(os.path.join(self.folder.name, "t-*.json"))
        self.assertEqual(len(traces), 2)
        self.assertEqual(len(os.listdir(self.folder.name)), 4)
        done = self.ibvexp("audit", *traces)
        self.assertIn("2 traces", done.stdout)
        self.assertIn("ibv_exp_query_device", done.stdout)
        self.assertEqual(len(os.listdir(self.folder.name)), 2)

    def test_ranks_of_a_launcher_share_a_trace(self):
        # As mpirun does: a process that starts several and collects their output.
        ranks = [subprocess.Popen([IBVEXP, "run", "--device", "soft", "--trace", "t.json", "--",
                                   SUBJECT, "query"], env=ENV, cwd=self.folder.name)
                 for _ in range(4)]
        self.assertEqual([r.wait(120) for r in ranks], [0] * 4)
        self.assertEqual(len({p["id"] for p in self.processes()}), 4)

    def test_ranks_may_have_traces_of_their_own(self):
        for rank in "12":
            self.ibvexp("run", "--device", "soft", "--trace", "t-%h-%p.json", "--", SUBJECT, "query")
        traces = glob.glob(os.path.join(self.folder.name, "t-*.json"))
        self.assertEqual(len(traces), 2)
        done = self.ibvexp("audit", *traces)
        self.assertIn("2 traces", done.stdout)
        done = self.ibvexp("run", "--trace", "t-%p.json", "--report", "r.html", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--report", done.stderr)

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_mpirun(self):
        """Both ways round, with two ranks."""
        mpirun = ["mpirun", "--oversubscribe", "-np", "2"]
        if os.geteuid() == 0:
            mpirun.insert(1, "--allow-run-as-root")
        run = [IBVEXP, "run", "--device", "soft", "--trace"]
        program = ["--", SUBJECT, "query"]
        for command in (mpirun + run + ["t-%p.json"] + program,
                        run + ["t.json", "--"] + mpirun + program[1:]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENV,
                                  cwd=self.folder.name)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(glob.glob(os.path.join(self.folder.name, "t-*.json"))), 2)
        self.assertEqual(len(self.processes()), 2)

    def test_starts_launchers(self):
        script = f"'{SUBJECT}' query & '{SUBJECT}' refused & wait"
        done = self.ibvexp("run", "--device", "soft", "--trace", "t.json", "--", "sh", "-c", script)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sorted(p["arguments"][1] for p in self.processes()), ["query", "refused"])

    def test_keeps_what_is_preloaded(self):
        env = dict(ENV, LD_PRELOAD="libm.so.6")
        done = self.ibvexp("run", "--", "sh", "-c", "echo $LD_PRELOAD", env=env)
        self.assertTrue(done.stdout.strip().endswith(":libm.so.6"))

    def refused(self, status, message, *arguments):
        done = self.ibvexp("run", *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(message, done.stderr)
        self.assertTrue(done.stderr.startswith("ibvexp: ") or status == 2, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_missing_programs(self):
        self.refused(127, "No such file", "--", "/nonexistent/program")
        self.refused(127, "not found in PATH", "--", "no-such-program-anywhere")
        self.file("here")
        self.refused(127, "not found in PATH; did you mean ./here?", "--", "here")
        self.refused(126, "not executable", "--", self.file("plain", mode=0o644))
        self.refused(126, "is a folder", "--", self.folder.name + "/")
        self.refused(2, "PROGRAM is required")

    def test_programs_that_cannot_be_preloaded(self):
        source = self.file("p.c", b"int main(void) { return 0; }\n")
        static = os.path.join(self.folder.name, "static")
        subprocess.run(["cc", "-static", "-o", static, source], check=True)
        self.refused(126, "statically linked", "--", static)
        script = self.file("script", f"#!{static}\n".encode())
        self.refused(126, "statically linked", "--", script)
        subprocess.run(["cc", "-o", os.path.join(self.folder.name, "suid"), source], check=True)
        suid = os.path.join(self.folder.name, "suid")
        os.chmod(suid, 0o4755)
        self.refused(126, "is set-user-ID", "--", suid)
        os.chmod(suid, 0o2755)
        self.refused(126, "is set-group-ID", "--", suid)
        with open(suid, "rb") as f:
            elf = bytearray(f.read())
        elf[4] = 1
        self.refused(126, "no x86-64 program", "--", self.file("old", bytes(elf)))
        elf[4] = 2
        elf[elf.index(b"/lib64/ld-")] = 0
        self.refused(126, "damaged", "--", self.file("nameless", bytes(elf)))

    def test_programs_that_are_cut_off(self):
        source = self.file("p.c", b"int data[4096] = {1}; int main(void) { return 0; }\n")
        whole = os.path.join(self.folder.name, "whole")
        subprocess.run(["cc", "-s", "-o", whole, source], check=True)
        with open(whole, "rb") as f:
            elf = f.read()
        for size in (5, 63, 80, 1000, len(elf) // 2):
            cut = self.file(f"cut{size}", elf[:size])
            self.refused(126, f"cut off: it has {size} bytes of at least ", "--", cut)
        # Section headers stand behind all else, and programs run without them.
        self.assertEqual(self.ibvexp("run", "--", self.file("headless", elf[:-64])).returncode, 0)

    def test_static_libibverbs_in_a_dynamic_program(self):
        """Also to the audit: whatever of the inlines it has, nothing answers them."""
        source = self.file("p.c", b"""
            #include <infiniband/verbs_exp.h>
            int main(void) {
              struct ibv_exp_device_attr attr = {.comp_mask = 0};
              struct ibv_device **list = ibv_get_device_list(0);
              return ibv_exp_query_device(ibv_open_device(list[0]), &attr);
            }""")
        include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include")
        program = os.path.join(self.folder.name, "own")
        built = subprocess.run(["cc", "-I", include, "-o", program, source, "-Wl,-Bstatic", "-libverbs",
                                "-Wl,-Bdynamic", "-lnl-route-3", "-lnl-3", "-lpthread", "-ldl"],
                               capture_output=True, text=True, check=False)
        if built.returncode != 0:
            self.skipTest("no static libibverbs here: " + built.stderr)
        for strip in [], ["strip", program]:
            subprocess.run(strip or ["true"], check=True)
            self.refused(126, "contains its own copy of libibverbs", "--", program)
            done = self.ibvexp("audit", program)
            self.assertIn("does not work: it contains its own copy of libibverbs",
                          " ".join(done.stdout.split()))

    def test_texts_of_libibverbs_in_another_program(self):
        """The texts alone, or with what libibverbs calls, are no copy of it."""
        quotes = b"""
            #include <dirent.h>
            #include <stdio.h>
            #include <sys/mman.h>
            #include <sys/resource.h>
            static const char *const texts[] = {
              "/class/infiniband_verbs", "%s/class/infiniband_verbs", "class/infiniband_verbs/abi_version",
              "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "SYSFS_PATH", "libibverbs: Warning: ",
              "libibverbs: Warning: couldn't load driver '%s': %s\\n",
              "libibverbs: Warning: no userspace device-specific driver found for %s\\n"};
            int main(int argc, char **argv) {
              void *volatile calls[] = {CALLS};
              for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) puts(texts[i]);
              return argc > 3 ? argv[1][0] : 3 + !calls[0];
            }"""
        for calls, strip in (b"madvise, getrlimit, readdir", []), (b"readdir", ["-s"]):
            source = self.file("quotes.c", quotes.replace(b"CALLS", calls))
            subprocess.run(["cc", *strip, "-o", source[:-2], source], check=True)
            done = self.ibvexp("run", "--", source[:-2])
            self.assertEqual((done.returncode, done.stderr), (3, ""))
            self.assertNotIn("contains its own copy", self.ibvexp("audit", source[:-2]).stdout)

    def linked_with(self, name, linker):
        """A program that names another dynamic linker."""
        program = os.path.join(self.folder.name, name)
        source = self.file("p.c", b"int main(void) { return 0; }\n")
        subprocess.run(["cc", f"-Wl,--dynamic-linker={linker}", "-o", program, source], check=True)
        return program

    def test_programs_of_other_systems(self):
        self.refused(126, "is linked with musl", "--",
                     self.linked_with("alpine", "/lib/ld-musl-x86_64.so.1"))
        nix = self.linked_with("nix", "/nix/store/none/ld-linux-x86-64.so.2")
        self.refused(126, "/nix/store/none/ld-linux-x86-64.so.2, which is not here", "--", nix)
        self.refused(126, "/no/such/python, which does not exist", "--",
                     self.file("script", b"#!/no/such/python -u\n"))
        # One line each.
        for program in nix, self.folder.name + "/script":
            done = self.ibvexp("run", "--", program)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_programs_with_address_sanitizer(self):
        """Their runtime insists on being the first library of all."""
        source = self.file("p.c", b"int main(void) { return 3; }\n")
        program = os.path.join(self.folder.name, "sanitized")
        built = subprocess.run(["gcc", "-fsanitize=address", "-o", program, source],
                               capture_output=True, check=False)
        if built.returncode != 0:
            self.skipTest("gcc has no libasan here")
        done = self.ibvexp("run", "--device", "soft", "--", program)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        self.assertNotIn("ASan", done.stderr)

    def test_continuous_integration_hears_of_refusals(self):
        soft = ["run", "--device", "soft", "--fail-on-refused", "--"]
        self.assertEqual(self.ibvexp(*soft, SUBJECT, "query").returncode, 0)
        done = self.ibvexp(*soft, SUBJECT, "refused")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("ibvexp: refused: ibv_exp_", done.stderr)
        # Also where no row but the verb's says so.
        done = self.ibvexp(*soft, SUBJECT, "keep-valid")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("ibvexp: refused: ibv_exp_rereg_mr (once)", done.stderr)
        # A failure of the program's own is more.
        done = self.ibvexp(*soft, "sh", "-c", f"{SUBJECT} refused; exit 3")
        self.assertEqual(done.returncode, 3)
        # Who drops the library has not shown anything.
        done = self.ibvexp(*soft, self.deaf(0))
        self.assertEqual(done.returncode, 125, done.stderr)

    def test_a_trace_fails_on_what_the_run_fails_on(self):
        config = self.file("faults.json", json.dumps({"faults": [
            {"kind": "command", "match": "CQ/CREATE", "error": "EOPNOTSUPP"}]}).encode(), 0o644)
        for mode, env, refused in (("query", {}, None), ("refused", {}, "ibv_exp_create_qp"),
                                   ("keep-valid", {}, "ibv_exp_rereg_mr"), ("nops", {}, "IBV_EXP_WR_NOP"),
                                   ("share", {}, "ibv_exp_reg_shared_mr"),
                                   ("refused-queue", {"SOFTHCA_CONFIG": config}, "ibv_exp_create_cq")):
            trace = os.path.join(self.folder.name, f"{mode}.json")
            done = self.ibvexp("run", "--device", "soft", "--fail-on-refused", "--trace", trace, "--",
                               SUBJECT, mode, env={**ENV, **env})
            self.assertEqual(done.returncode, 125 if refused else 0, (mode, done.stderr))
            if refused:
                self.assertIn(f"ibvexp: refused: {refused} (", done.stderr)
            audited = self.ibvexp("audit", "--quiet", "--fail-on", "refused", trace)
            self.assertEqual(audited.returncode, 1 if refused else 0, (mode, audited.stderr))

    def doubted(self, why, *command):
        done = self.ibvexp("run", "--device", "soft", "--fail-on-refused", *command)
        self.assertEqual(done.returncode, 125, (command, done.stderr))
        self.assertIn(why, done.stderr)

    def test_fail_on_refused_wants_a_device_opened(self):
        for program in ["true"], ["sh", "-c", "exit 0"], [self.deaf(0)]:
            self.doubted("no process of this program opened a device", "--", *program)

    def test_fail_on_refused_counts_programs_without_the_library(self):
        with_library = f"{SUBJECT} query"
        self.doubted(f"{SUBJECT} was started without it", "--no-follow", "--", "sh", "-c",
                     f"{with_library}; env -u LD_PRELOAD {with_library}; true")
        deaf = self.deaf(0)
        self.doubted("no process of this program", "--", deaf)
        source = self.file("s.c", b'''#include <stdio.h>
            int main(void) { puts(NAME); return 0; }''')
        def static(name, text):
            program = os.path.join(self.folder.name, name)
            subprocess.run(["cc", "-static", f'-DNAME="{text}"', "-o", program, source], check=True)
            return program
        own = static("own", "libibverbs: Warning: %s /class/infiniband_verbs")
        self.doubted(f"{own} is statically linked", "--", "sh", "-c", f"{with_library}; {own}")
        privileged = shutil.copy("/bin/true", os.path.join(self.folder.name, "privileged"))
        os.chmod(privileged, 0o4755)
        for start in f"{privileged}", f"exec {privileged}", "cd /; ./" + privileged[1:]:
            self.doubted("is set-user-ID", "--", "sh", "-c", f"{with_library}; {start}")
        # A static program without verbs and what it starts.
        done = self.ibvexp("run", "--device", "soft", "--fail-on-refused", "--", "sh", "-c",
                           f"{static('plain', 'hello')}; env -i {with_library}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_fail_on_refused_counts_what_another_ibvexp_ran(self):
        self.doubted("refused: ibv_exp_", "--", IBVEXP, "run", "--", SUBJECT, "refused")
        self.doubted("refused: ibv_exp_", "--", "sh", "-c", f"{IBVEXP} run {SUBJECT} refused")
        done = self.ibvexp("run", "--device", "soft", "--fail-on-refused", "--", "sh", "-c",
                           f"{IBVEXP} run -- {SUBJECT} query")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_bad_options(self):
        self.refused(2, 'no device "mlx5_77"', "--device", "mlx5_77", "--", "true")
        self.refused(2, "no device", "--device", "../../etc", "--", "true")
        self.refused(2, 'unknown feature "magic"', "--beyond", "magic", "--", "true")
        self.refused(2, "No such file", "--trace", "/nonexistent/t.json", "--", "true")
        self.file("diary", b"my diary\n", 0o644)
        self.refused(2, "is no trace", "--trace", "diary", "--", "true")
        self.file("cut", b'{"format":"ibvexp-trace","version":1,"processes":[\n{"id', 0o644)
        self.refused(2, "damaged", "--trace", "cut", "--", "true")

    def test_a_report_that_cannot_be_written_is_named_before_the_program_starts(self):
        started = os.path.join(self.folder.name, "started")
        for report, why in (("/nonexistent/r.html", "No such file"), ("..", "Is a directory")):
            self.refused(2, f"cannot write {report}: {why}", "--report", report, "--", "touch", started)
        self.assertFalse(os.path.exists(started))
        done = self.ibvexp("audit", "--html", "/nonexistent/r.html", SUBJECT)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("cannot write /nonexistent/r.html: No such file", done.stderr)

    def test_the_form_of_a_report_follows_its_name(self):
        for name, start in (("r.json", "{"), ("r.html", "<!doctype html>"), ("r", "<!doctype html>")):
            done = self.ibvexp("run", "--device", "soft", "--report", name, "--", SUBJECT, "query")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(os.path.join(self.folder.name, name), encoding="utf-8") as f:
                self.assertTrue(f.read().startswith(start), name)
        with open(os.path.join(self.folder.name, "r.json"), encoding="utf-8") as f:
            run = json.load(f)["run"]
        self.assertEqual((run["program"], run["ended"]), (f"{SUBJECT} query", "with status 0"))

    def test_wrong_words_and_the_right_ones(self):
        self.file("prog")
        for words, line in (
                (["adit", "x"], "unknown command adit; did you mean audit?"),
                (["docotr"], "unknown command docotr; did you mean doctor?"),
                (["trace", "x"], "unknown command trace; did you mean ibvexp run --trace FILE -- PROGRAM?"),
                (["./prog", "-x"], "unknown command ./prog; did you mean ibvexp run -- ./prog?"),
                (["frobnicate"], "unknown command frobnicate"),
                (["fabric", "lst"], "unknown command lst; did you mean list?"),
                (["run", "--devise", "soft", "true"], "unknown option --devise; did you mean --device?"),
                (["audit", "--fail_on=refused", "x"],
                 "unknown option --fail_on=refused; did you mean --fail-on?"),
                (["matrix", "--xyzzy"], "unknown option --xyzzy"),
                ([], "a command is required"),
                (["fabric"], "fabric: a command is required"),
                (["run"], "run: PROGRAM is required"),
                (["audit", "--format", "txt", "x"],
                 "audit: --format: txt not in {table,json,sarif,html,gcc,github,md,csv}"),
                (["fabric", "clean", "--al"], "unknown option --al")):
            done = self.ibvexp(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            first, second = done.stderr.splitlines()
            self.assertEqual(first, "ibvexp: " + line)
            self.assertRegex(second, r"^ibvexp( [a-z]+)* --help lists what there is$")
        self.assertEqual(second, "ibvexp fabric clean --help lists what there is")
        self.refused(2, 'unknown feature "nops"; did you mean nop? Known: ', "--beyond", "nops", "--", "true")

    def known(self, *functions):
        """A program that loads a libucm with these functions."""
        source = self.file("ucm.c", "".join(f"void {f}(void) {{}}\n" for f in functions).encode())
        library = os.path.join(self.folder.name, "libucm.so.0")
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libucm.so.0", "-o", library, source],
                       check=True)
        main = self.file("main.c", b"#include <stdlib.h>\n"
                                   b"int main(int n, char **v) { return n > 1 ? atoi(v[1]) : 0; }\n")
        program = os.path.join(self.folder.name, "ucx")
        subprocess.run(["cc", "-o", program, main, "-Wl,--no-as-needed", library, "-Wl,-rpath,$ORIGIN"],
                       check=True)
        return program

    def test_what_is_known_about_programs_is_set(self):
        title = "UCX up to 1.5 dies with `munmap_chunk(): invalid pointer`."
        program = self.known()
        done = self.ibvexp("run", "--", program)
        self.assertEqual((done.returncode, done.stderr), (0, f"ibvexp: UCX_MEM_EVENTS=n: {title}\n"))
        # The user's word counts.
        done = self.ibvexp("run", "--", program, env=dict(ENV, UCX_MEM_EVENTS="y"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.ibvexp("doctor", program)
        self.assertIn(f"  -  {title} ", done.stdout)
        self.assertIn("`ibvexp run` sets UCX_MEM_EVENTS=n.", done.stdout)
        # Of later releases it is not true.
        done = self.ibvexp("run", "--", self.known("ucm_test_events"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # The variable reaches the program.
        script = self.file("ucx.sh", b"#!/bin/sh\necho $OF_MINE\n")
        env = dict(ENV, XDG_CONFIG_HOME=self.folder.name)
        os.mkdir(os.path.join(self.folder.name, "ibvexp"))
        users = self.file("ibvexp/programs.def", b"[mine]\ntitle = Mine.\nfile = ucx.sh\nset = OF_MINE=1\n", 0o644)
        done = self.ibvexp("run", "--", script, env=env)
        self.assertEqual((done.stdout, done.stderr), ("1\n", "ibvexp: OF_MINE=1: Mine.\n"))
        # An entry of the same name replaces ours.
        self.file("ibvexp/programs.def", b"[ucx-malloc-hooks]\ntitle = Off.\nfile = none\n", 0o644)
        done = self.ibvexp("run", "--", self.known(), env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.file("ibvexp/programs.def", b"# mine\n[mine]\nfiel = x\n", 0o644)
        done = self.ibvexp("run", "--", "true", env=env)
        self.assertEqual((done.returncode, done.stderr),
                         (2, f"ibvexp: {users}:3: unknown key fiel; did you mean file?\n"))

    def test_what_is_known_about_programs_is_named_when_they_fail(self):
        bench = shutil.copy(self.known("ucm_test_events"), os.path.join(self.folder.name, "ib_send_bw"))
        hangs = "perftest hangs at its end with `-q N`"
        # Status 124: a time limit.
        done = self.ibvexp("run", "--", bench, "124", "-q", "8")
        self.assertEqual(done.returncode, 124)
        self.assertIn(hangs, done.stderr)
        # A program that ends by itself does not hang, whatever else is wrong.
        for words in ["124"], ["0", "-q8"], ["1", "-q", "8"]:
            self.assertNotIn(hangs, self.ibvexp("run", "--", bench, *words).stderr)
        self.assertIn(hangs, self.ibvexp("doctor", "--json", bench, "-q", "8").stdout)

    def test_a_switch_is_named_to_programs_that_looked_for_it(self):
        folder = os.path.join(self.folder.name, "ibvexp")
        os.mkdir(folder)
        self.file("ibvexp/programs.def", b"[mine]\ntitle = No atomics.\nfile = s.sh\nswitch = masked_atomics\n"
                                         b"do = Do it.\n", 0o644)
        env = dict(ENV, XDG_CONFIG_HOME=self.folder.name)
        for first, named in ("true", False), (f"{SUBJECT} query", True):
            script = self.file("s.sh", f"#!/bin/sh\n{first}\nexit 3\n".encode())
            for beyond in [], ["--beyond", "masked_atomics"]:
                done = self.ibvexp("run", "--device", "soft", *beyond, "--", script, env=env)
                self.assertEqual(done.returncode, 3)
                self.assertEqual("No atomics." in done.stderr, named and not beyond, (first, beyond))

    def test_launchers_are_named_with_what_to_type(self):
        """It is one line, and a shell takes it as it stands."""
        for name in "sudo", "su":
            os.chmod(self.file(name, b"\177ELF"), 0o4755)
        ours = shlex.join([IBVEXP, "run", "--device", "soft", "--"])
        for words, instead in (
                (["./sudo", "-nu", "me", "-E", "A=1", "./p", "a b"], f"./sudo -nu me -E A=1 {ours} ./p 'a b'"),
                (["./sudo", "--user", "me", "--", "./p"], f"./sudo --user me -- {ours} ./p"),
                (["./su", "-", "me", "-c", "./p -x"], f"./su - me -c '{ours} ./p -x'"),
                (["./su", "-c", "cd /x; ./p", "me"], None)):
            done = self.ibvexp("run", "--device", "soft", "--", *words)
            self.assertEqual((done.returncode, done.stdout), (126, ""))
            (line,) = done.stderr.splitlines()
            self.assertTrue(line.startswith(f"ibvexp: {words[0]} is not started. The dynamic linker preloads nothing"), line)
            said = line.split(" Type: ")[1]
            if instead:
                self.assertEqual(said, instead)
            else:
                self.assertEqual(shlex.split(said), ["./su", "-c", f"{ours} sh -c 'cd /x; ./p'", "me"])
        self.refused(126, "Put `ibvexp run` after it: `sudo ibvexp run -- PROGRAM`", "./sudo", "-i")

    def test_a_folder_for_temporary_files_that_is_gone(self):
        env = dict(ENV, TMPDIR="/nonexistent")
        for way in [], ["--fail-on-refused"], ["--report", "r.html"]:
            done = self.ibvexp("run", "--device", "soft", *way, "--", SUBJECT, "query", env=env)
            self.assertEqual((done.returncode, done.stderr), (0, ""), way)

    def test_other_programs_are_refused_with_a_way_out(self):
        static = os.path.join(self.folder.name, "static")
        source = self.file("p.c", b"int main(void) { return 0; }\n")
        subprocess.run(["cc", "-static", "-o", static, source], check=True)
        with open(static, "rb") as f:
            image = bytearray(f.read())
        image[8:11] = b"AI\x02"
        self.refused(126, "take out what is inside with --appimage-extract, then ibvexp run -- squashfs-root/AppRun",
                     "--", self.file("app.AppImage", bytes(image)))
        narrow = self.file("narrow", b"\177ELF\1\1\1" + bytes(9) + struct.pack("<HH", 2, 3) + bytes(5000))
        self.refused(126, "program, and the library serves only those: build it anew", "--", narrow)
        self.assertIn("`ibvexp run` refuses it: ", self.ibvexp("doctor", narrow).stdout)

    def test_log_levels_have_the_lines_that_they_promise(self):
        def lines(level, *options):
            done = self.ibvexp("run", "--device", "soft", *options, "--", SUBJECT, "query",
                               env=dict(ENV, IBVEXP_LOG_LEVEL=level))
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            return done.stderr.splitlines()
        self.assertEqual(lines("warn"), [])
        version = self.ibvexp("--version").stdout.split()[-1]
        process, device = lines("info", "--beyond", "nop")
        self.assertRegex(process, f"^ibvexp: libibverbs_exp {re.escape(version)}, /.*/libibverbs.so.1.[0-9.]+, "
                                  "engine own, layout 4.x, switches nop$")
        self.assertEqual(device, "ibvexp: mlx5_0: opened, queues driven by this library")
        debug = lines("debug")
        self.assertIn("ibvexp: ibv_exp_query_device: done", debug)
        self.assertIn("ibvexp: IBV_EXP_DEVICE_NOP is clear: IBVEXP_BEYOND=nop sets it where the device "
                      "has it", debug)
        self.assertTrue(any("IBV_EXP_DEVICE_CAPI is clear: not supported. " in l for l in debug), debug)
        self.assertIn("unknown value", lines("trace")[0])

    def test_the_matrix_looks_one_name_up(self):
        done = self.ibvexp("matrix", "ibv_exp_create_dct")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("ibv_exp_create_dct: translated\n"), done.stdout)
        for words in "on rdma-core  mlx5dv_create_qp", "Example, from docs/migrating.md:", "mlx5dv_create_qp(":
            self.assertIn(words, done.stdout)
        self.assertIn("turned on by  --beyond nop\n", self.ibvexp("matrix", "IBV_EXP_WR_NOP").stdout)
        row = json.loads(self.ibvexp("matrix", "--json", "ibv_exp_create_dct").stdout)
        self.assertEqual((row["name"], row["family"], row["verdict"]), ("ibv_exp_create_dct", "dc", "translated"))
        done = self.ibvexp("matrix", "cross_channel")
        self.assertIn("turned on by  --beyond cross_channel, or IBVEXP_BEYOND=cross_channel\n", done.stdout)
        self.assertIn("\n    ibv_exp_post_task\n", done.stdout)
        self.assertIn("allowed       3.x,4.x\n", self.ibvexp("matrix", "IBVEXP_LAYOUT").stdout)
        self.assertEqual(json.loads(self.ibvexp("matrix", "--json", "nop").stdout)["status"], "done")
        self.assertIn("did you mean cross_channel?", self.ibvexp("matrix", "--json", "cross_chanel").stderr)
        done = self.ibvexp("matrix", "ibv_exp_create_dtc")
        self.assertEqual((done.returncode, done.stderr), (
            2, "ibvexp: ibv_exp_create_dtc is no name of the matrix; did you mean ibv_exp_create_dct?\n"))

    def test_the_matrix_looks_types_up(self):
        def said(*words):
            done = self.ibvexp("matrix", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout
        text = said("ibv_exp_send_wr")
        self.assertTrue(text.startswith("ibv_exp_send_wr: a structure\n"), text)
        for line in ("  for           ibv_exp_post_send", "  on rdma-core  ibv_send_wr",
                     "    ibv_exp_send_wr.dc: translated -> mlx5dv_wr_set_dc_addr",
                     "    ibv_exp_send_wr.exp_opcode -> ibv_send_wr.opcode"):
            self.assertIn(line, text.splitlines())
        text = said("ibv_exp_send_wr.exp_opcode")
        for line in ("ibv_exp_send_wr.exp_opcode: a member", "  of            ibv_exp_send_wr",
                     "  on rdma-core  ibv_send_wr.opcode", "    IBV_EXP_WR_SEND: native -> IBV_WR_SEND"):
            self.assertIn(line, text.splitlines())
        # Of a member that names its values in a comment, inside of a union, and of an enumeration.
        self.assertIn("    IBV_EXP_SEND_INLINE: native -> IBV_SEND_INLINE\n", said("ibv_exp_send_wr.exp_send_flags"))
        self.assertIn("on rdma-core  ibv_send_wr.imm_data\n", said("ibv_exp_send_wr.ex.imm_data"))
        self.assertIn("an enumeration\n  of            ibv_exp_send_wr\n", said("ibv_exp_wr_opcode"))
        # Of a member of a member, by the structure that it stands in.
        for name in "ibv_exp_device_attr.ooo_caps.rc_caps", "ibv_exp_ooo_caps.rc_caps":
            self.assertEqual(said(name), "ibv_exp_ooo_caps.rc_caps: a member\n  of            ibv_exp_ooo_caps\n")
        # One whose row is at the outer structure.
        for name in "ibv_exp_device_attr.mp_rq_caps.supported_qps", "ibv_exp_mp_rq_caps.supported_qps":
            self.assertIn("ibv_exp_device_attr.mp_rq_caps.supported_qps: query only\n", said(name))
            self.assertEqual(json.loads(said("--json", name))["name"],
                             "ibv_exp_device_attr.mp_rq_caps.supported_qps")
        # One with a row of its own says what the row says.
        self.assertTrue(said("ibv_exp_send_wr.dc").startswith("ibv_exp_send_wr.dc: translated\n"))
        as_json = json.loads(said("--json", "ibv_exp_send_wr"))
        self.assertEqual((as_json["kind"], as_json["for"], as_json["target"]),
                         ("structure", ["ibv_exp_post_send"], "ibv_send_wr"))
        self.assertIn({"name": "ibv_exp_send_wr.tso", "verdict": "translated", "target": "ibv_wr_send_tso"},
                      as_json["parts"])
        for word, meant in (("ibv_exp_send_wr.exp_opcod", "ibv_exp_send_wr.exp_opcode"),
                            ("ibv_exp_snd_wr", "ibv_exp_send_wr"), ("ibv_exp_wr_opcodes", "ibv_exp_wr_opcode"),
                            ("ibv_exp_ooo_caps.rc_cap", "ibv_exp_ooo_caps.rc_caps")):
            done = self.ibvexp("matrix", word)
            self.assertEqual((done.returncode, done.stderr), (
                2, f"ibvexp: {word} is no name of the matrix; did you mean {meant}?\n"))
        done = self.ibvexp("matrix", "exp_opcode")
        self.assertEqual((done.returncode, done.stderr), (2, (
            "ibvexp: exp_opcode is a member of ibv_exp_wc, ibv_exp_send_wr: look up ibv_exp_wc.exp_opcode\n")))

    def test_rows_name_members_as_programs_write_them(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        listed = pathlib.Path(self.folder.name, "members")
        subprocess.run([sys.executable, root / "src/tool/api_structures.py", listed,
                        *(root / "include/infiniband").glob("*.h")], check=True)
        types = {f"{structure}.{path}": kind for structure, path, kind in
                 re.findall(r'API_MEMBER\((\w+), "([\w.]+)", "(\w*)"\)', listed.read_text())}

        def is_member(name):
            if name in types:
                return True
            outer = max((m for m in types if name.startswith(m + ".")), key=len, default=None)
            if outer is None or any(m.startswith(outer + ".") for m in types):
                return False
            inner = types[outer] + name[len(outer):]
            # Of what is inside rdma-core's structures nothing is listed.
            return is_member(inner) if types[outer] else True
        rows = [row["name"] for family in json.loads(self.ibvexp("matrix", "--json").stdout)["families"]
                for row in family["features"] if row["kind"] == "field" and "." in row["name"]]
        self.assertGreater(len(rows), 60)
        self.assertEqual([row for row in rows if not is_member(row)], [])

    def test_what_is_no_program_is_named(self):
        script = os.path.join(self.folder.name, "script")
        with open(script, "w", encoding="utf-8", newline="") as f:
            f.write("#!/bin/sh\r\ntrue\r\n")
        os.chmod(script, 0o755)
        for program, said in ((self.folder.name, "is a folder; name a program in it"),
                              (script, f"is a script with Windows line ends: sed -i 's/\\r$//' {script}")):
            done = self.ibvexp("run", "--", program)
            self.assertEqual((done.returncode, done.stderr), (126, f"ibvexp: {program} {said}\n"))

    def test_unknown_variables_are_named(self):
        done = self.ibvexp("run", "--device", "soft", "--", SUBJECT, "query",
                           env=dict(ENV, IBVEXP_LOGLEVEL="debug"))
        self.assertEqual((done.returncode, done.stderr), (
            0, "ibvexp: IBVEXP_LOGLEVEL: unknown variable; did you mean IBVEXP_LOG_LEVEL?\n"))

    def test_one_device_of_several(self):
        config = self.file("two.json", b'{"devices": [{"name": "first"}, {"name": "second"}]}', 0o644)
        env = dict(ENV, SOFTHCA_CONFIG=config, LD_PRELOAD=LIBRARIES, SOFTHCA_FABRIC=FABRIC + "-two")
        def names(**more):
            done = subprocess.run(["ibv_devices"], env=dict(env, **more), capture_output=True,
                                  text=True, check=True)
            return [l.split()[0] for l in done.stdout.splitlines()[2:]]
        self.assertEqual(names(), ["first", "second"])
        self.assertEqual(names(IBVEXP_DEVICE="second"), ["second"])
        self.assertEqual(names(IBVEXP_DEVICE="third"), [])
        # A list ends with a null, also for who does not ask for the count.
        to_its_end = ("import ctypes\n"
                      "verbs = ctypes.CDLL(None)\n"
                      "verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)\n"
                      "devices = verbs.ibv_get_device_list(None)\n"
                      "count = 0\n"
                      "while devices[count]: count += 1\n"
                      "print(count)\n")
        for wanted, count in ("", 2), ("first", 1), ("second", 1), ("third", 0):
            done = subprocess.run([sys.executable, "-c", to_its_end], env=dict(env, IBVEXP_DEVICE=wanted),
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, f"{count}\n", wanted)
        shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{FABRIC}-two", ignore_errors=True)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
