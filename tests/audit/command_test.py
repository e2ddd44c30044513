#!/usr/bin/env python3
"""Run ibvexp audit as its users do, on good input and bad.

    command_test.py IBVEXP SOURCE_ROOT        in the environment: SAMPLE_BINARY
"""

import json
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys
import unittest

from audit_case import IBVEXP, ROOT, Audit, audit

SAMPLE = pathlib.Path(os.environ["SAMPLE_BINARY"])


class Samples(Audit):
    def test_every_use_of_a_verb_is_listed_with_its_verdict(self):
        """Against a search that knows no C, and the matrix."""
        report, done = self.report(ROOT / "tests/samples")
        self.assertEqual(done.returncode, 0, done.stderr)
        uses = self.uses(report)
        matrix = json.loads(subprocess.run([IBVEXP, "matrix", "--json"], capture_output=True, check=True).stdout)
        verdicts = {e["name"]: e["verdict"] for f in matrix["families"] for e in f["entries"] + f["features"]}
        expected = 0
        for path in (ROOT / "tests/samples").glob("*.[ch]"):
            text = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m[0].count("\n"), path.read_text(), flags=re.S)
            for number, line in enumerate(text.splitlines(), 1):
                for name in re.findall(r"\b(?:ibv_exp_|IBV_EXP_)\w+", re.sub(r'"[^"]*"', "", line)):
                    expected += 1
                    self.assertIn((str(path), name, number), uses)
        self.assertGreater(expected, 50)
        for subject in report["subjects"]:
            if subject["name"] in verdicts:
                self.assertEqual(subject["verdict"].replace("-", "").replace(" ", "_"),
                                 verdicts[subject["name"]])
            self.assertNotEqual(subject["verdict"], "unknown", subject)

    def test_binary(self):
        stripped = self.folder / "stripped"
        subprocess.run(["strip", "-o", stripped, SAMPLE], check=True)
        whole, _ = self.report(SAMPLE)
        bare, _ = self.report(stripped)
        verbs = [{name for _, name, _ in self.uses(r) if name.startswith("ibv_exp_")} for r in (whole, bare)]
        self.assertEqual(*verbs)
        self.assertLessEqual({"ibv_exp_create_qp", "ibv_exp_post_send", "ibv_exp_poll_cq",
                              "ibv_exp_reg_mr", "ibv_exp_create_cq", "ibv_exp_modify_qp"}, verbs[1])
        self.assertIn("MLNX_OFED", bare["files"][0]["header"])
        lines = {u["line"] for f in whole["files"] for u in f["uses"] if "line" in u}
        self.assertTrue(lines, "debug information gives lines")

    def test_libraries_are_followed(self):
        report, _ = self.report("--recursive", SAMPLE)
        self.assertGreater(report["read"]["binaries"], 3)


class MachineCode(Audit):
    HEAD = """
        typedef int (*slot)(void *, void *);
        #define WORD(p) (*(unsigned long *)(p))
        int main(void) { return 0; }
    """

    def names(self, code, *options):
        source = self.file("a.c", self.HEAD + code)
        program = self.folder / "program"
        subprocess.run(["g++", "-x", "c++", "-O2", "-w", "-s", *options, source, "-o", program], check=True)
        report, done = self.report(program)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {report["subjects"][u["subject"]]["name"] for u in report["files"][0]["uses"]}, report

    def test_lookup_of_today(self):
        """The idiom as headers since 3.1 have it: the test that the next ones can fail."""
        names, _ = self.names("""
            int call(char *context, void *arg) {
                char *end = context - WORD(context - 8) + 328;
                if (WORD(end - 8) < 16) return 38;
                slot s = *(slot *)(end - 16);
                return s ? s(context, arg) : 38;
            }""")
        self.assertEqual(names, {"ibv_exp_create_qp"})

    def test_address_arithmetic_alone_is_no_use(self):
        names, _ = self.names("""
            int call(char *p, void *arg) {
                slot s = *(slot *)(p - WORD(p - 8) + 312);
                return s ? s(p, arg) : 38;
            }""")
        self.assertEqual(names, set())

    def test_a_size_that_does_not_fit_the_slot_is_no_use(self):
        names, _ = self.names("""
            int call(char *p, void *arg) {
                char *end = p - WORD(p - 8) + 328;
                if (WORD(end - 8) < 64) return 38;
                slot s = *(slot *)(end - 16);
                return s ? s(p, arg) : 38;
            }""")
        self.assertEqual(names, set())

    def test_lookup_of_2_x_headers_has_a_verdict_of_its_own(self):
        names, report = self.names("""
            int call(char *context, void *arg) {
                char *verbs = context - 64;
                char *table = verbs - WORD(verbs - 8);
                if (WORD(table + 272) < 16) return 38;
                slot s = *(slot *)(table + 264);
                return s ? s(context, arg) : 38;
            }""")
        self.assertEqual(names, {"ibv_exp_create_qp", "2.x operation table"})
        self.assertEqual(report["files"][0]["header"], "MLNX_OFED 2.x")

    def test_a_number_in_an_instruction_is_no_padding(self):
        """Without unwind tables a push behind zeros begins a function; 0x150 is one if it stands
        at a multiple of 16, as clang 19 has it here."""
        names, _ = self.names("""
            extern "C" void *allocate(void *attr);
            asm(R"(
                    .text
                    .p2align 4
                allocate:
                    push %rax
                    mov (%rdi), %rax
                    mov (%rax), %rax
                    test %rax, %rax
                    je 1f
                    cmpq $-1, 0x140(%rax)
                    jne 1f
                    testb $0x40, -9(%rax)
                    je 1f
                    lea -0x150(%rax), %rcx
                    sub -8(%rax), %rcx
                    je 1f
                    cmpq $0x150, 0x290(%rcx)
                    jb 1f
                    mov 0x148(%rcx), %rax
                    test %rax, %rax
                    je 1f
                    call *%rax
                    jmp 2f
                1:  xor %eax, %eax
                2:  pop %rcx
                    ret
            )");
            void *twice(void *attr) { return allocate(allocate(attr)); }
            """, "-fno-asynchronous-unwind-tables", "-fno-exceptions")
        self.assertEqual(names, {"ibv_exp_alloc_mkey_list_memory"})

    def test_flags_and_opcodes_show(self):
        names, _ = self.names("""
            #include <string.h>
            #include <infiniband/verbs_exp.h>
            int wait_for(struct ibv_qp *qp) {
                struct ibv_exp_send_wr wr, *bad;
                memset(&wr, 0, sizeof(wr));
                wr.exp_opcode = IBV_EXP_WR_CQE_WAIT;
                wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
                return ibv_exp_post_send(qp, &wr, &bad);
            }""", "-I", ROOT / "include", "-libverbs")
        self.assertEqual(names, {"ibv_exp_post_send", "IBV_EXP_WR_CQE_WAIT", "IBV_EXP_SEND_SIGNALED"})

    def test_private_layouts_leave_names(self):
        names, _ = self.names("""
            extern "C" __attribute__((visibility("default"))) int ibv_mlx5_exp_get_qp_info(void) { return 0; }
            """, "-shared", "-fPIC")
        self.assertEqual(names, {"mlx5_hw.h"})


class Outputs(Audit):
    def test_json_follows_its_schema(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("needs python3-jsonschema")
        schema = json.loads((ROOT / "docs/audit.schema.json").read_text())
        report, _ = self.report(ROOT / "tests/samples", SAMPLE, self.folder / "missing")
        self.assertEqual([f["path"] for f in report["files"] if "error" in f],
                         [str(self.folder / "missing")])
        jsonschema.validate(report, schema)

    def test_sarif(self):
        sarif = self.folder / "report.sarif"
        source = self.file("a.c", "ibv_exp_poll_dc_info(c, e, 1, 1);\nibv_exp_poll_cq(c);\n")
        self.assertEqual(audit("-q", "--sarif", sarif, source).returncode, 0)
        run, = json.loads(sarif.read_text())["runs"]
        rules = run["tool"]["driver"]["rules"]
        for result in run["results"]:
            self.assertEqual(rules[result["ruleIndex"]]["id"], result["ruleId"])
        levels = {r["ruleId"]: r["level"] for r in run["results"]}
        self.assertEqual(levels, {"ibv_exp_poll_dc_info": "error", "ibv_exp_poll_cq": "none"})
        region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
        self.assertEqual(region, {"startLine": 1, "startColumn": 1})

    def test_html_needs_nothing_else(self):
        page = self.folder / "report.html"
        audit("-q", "--html", page, self.file("</script>.c", "ibv_exp_poll_cq(c);\n"))
        text = page.read_text()
        self.assertEqual(text.count("</script"), 2)
        self.assertNotRegex(text, r"(?:src|href)=\"?https?:")

    def test_no_progress_and_no_colour_in_a_pipe(self):
        done = audit(self.file("a.c", "ibv_exp_poll_cq(c);\n"))
        self.assertNotIn("\033", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertIn("\033[", audit("--color", "always", self.folder).stdout)

    def test_progress_on_a_terminal(self):
        for i in range(200):
            self.file(f"{i}.c", "ibv_exp_poll_cq(c);\n" * 100)
        shown = subprocess.run(["script", "-qec", f"{IBVEXP} audit -q {self.folder}", "/dev/null"],
                               capture_output=True, text=True, check=True,
                               env={**os.environ, "TERM": "xterm"}).stdout
        self.assertIn("files", shown)

    def test_private_layouts_have_a_verdict_of_their_own(self):
        report, _ = self.report(self.file("a.c", "#include <infiniband/mlx5_hw.h>\n"))
        self.assertEqual(report["subjects"][0]["verdict"], "private layout")


class BadInput(Audit):
    def test_missing(self):
        self.expect_error(self.folder / "nothing.c", "no such file")

    def test_truncated_elf(self):
        whole = SAMPLE.read_bytes()
        for size in (5, 40, 64, 200, 4096, len(whole) // 3):
            self.expect_error(self.file("short", whole[:size]), "ELF")

    def test_damaged_elf_does_not_stop_it(self):
        whole = SAMPLE.read_bytes()
        for i in range(0, 4096, 97):
            damaged = bytearray(whole)
            damaged[i:i + 8] = b"\xff" * 8
            done = audit(self.file("damaged", bytes(damaged)))
            self.assertIn(done.returncode, (0, 2), (i, done.stderr))

    def test_debug_information_that_is_nested_without_end(self):
        """libdw goes down into blocks by recursion."""
        range_of = struct.pack("<QI", 0, 1 << 30)
        # A unit and a block: with children, DW_AT_low_pc and DW_AT_high_pc.
        kinds = b"".join(bytes([number, tag, 1, 0x11, 1, 0x12, 6, 0, 0])
                         for number, tag in ((1, 0x11), (2, 0x0b)))
        unit = struct.pack("<HIB", 4, 0, 8) + b"\1" + range_of + (b"\2" + range_of) * 300_000
        add = []
        for name, content in (("abbrev", kinds + b"\0"),
                              ("info", struct.pack("<I", len(unit)) + unit)):
            (self.folder / name).write_bytes(content)
            add += ["--add-section", f".debug_{name}={self.folder / name}"]
        bare, nested = self.folder / "bare", self.folder / "nested"
        subprocess.run(["objcopy", "--strip-debug", SAMPLE, bare], check=True)
        subprocess.run(["objcopy", *add, bare, nested], check=True)
        report, done = self.report(nested)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(report["files"][0]["uses"])

    def test_dangling_link(self):
        link = self.folder / "link.c"
        link.symlink_to("nowhere")
        self.expect_error(link, "dangling link")
        self.assertEqual(audit(self.folder).returncode, 2)

    def test_links_in_a_circle(self):
        (self.folder / "loop").symlink_to(self.folder)
        self.file("a.c", "ibv_exp_poll_cq(c);\n")
        report, done = self.report(self.folder)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(report["files"]), 1)

    def test_what_the_kernel_shows_is_no_program(self):
        others = [word for name in set(os.listdir("/")) - {"proc", "sys"} for word in ("--exclude", name)]
        done = audit(*others, "/")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_empty_name(self):
        self.assertIn("ibvexp: '': a name is expected", audit("").stderr)

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_unreadable(self):
        path = self.file("secret.c", "ibv_exp_poll_cq(c);\n")
        path.chmod(0)
        self.expect_error(path, "Permission denied")

    def test_not_utf8(self):
        path = self.file("latin\udce9.c".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"),
                         b"// caf\xe9 \xff\nibv_exp_poll_cq(c); /* \xc3\x28 */\n")
        report, done = self.report(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["files"][0]["uses"][0]["line"], 2)

    def test_huge_sparse_file(self):
        for name, words in (("huge.c", "256 MB"), ("huge", "neither ELF")):
            path = self.file(name, b"")
            with path.open("r+b") as file:
                file.truncate(4 << 30)
            self.expect_error(path, words)

    def test_huge_sparse_elf(self):
        path = self.file("huge", SAMPLE.read_bytes())
        with path.open("r+b") as file:
            file.truncate(4 << 30)
        report, done = self.report(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(report["files"][0]["uses"])

    def test_corrupt_trace(self):
        trace = '{"format": "ibvexp-trace", "version": 1, "processes": ['
        for text, words in ((trace, "corrupt trace"), (trace + "{}]}", "corrupt trace"),
                            ('{"format": "ibvexp-trace", "version": 7}', "version 7"),
                            ('{"format": "ibvexp-trace", "version": ' + "[" * 10**6 + "]" * 10**6 + "}",
                             "version array"),
                            ('{"format": "else"}', "not a trace")):
            self.expect_error(self.file("trace.json", text), words)

    def test_pipe(self):
        path = self.folder / "pipe.c"
        os.mkfifo(path)
        self.expect_error(path, "not a regular file")


class Scale(Audit):
    def test_a_large_tree(self):
        """A fifth of 100,000 files: of 60 s on two cores, and in little memory."""
        files, text = 20_000, "static int f(struct ibv_qp *qp) { return ibv_post(qp); } /* text */\n" * 40
        for i in range(files):
            self.file(f"{i // 100}/{i}.c", text + ("ibv_exp_poll_cq(c);\n" if i % 10 == 0 else ""))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        report, done = self.report("-q", self.folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["read"]["sources"], files)
        self.assertEqual(report["counts"]["uses"], files // 10)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2 * 60 / 5)
        self.assertLess(after.ru_maxrss, 500 << 10)


class Traces(Audit):
    def test_what_happened(self):
        row = {"name": "ibv_exp_poll_cq", "kind": "entry", "family": "cq", "verdict": "partial", "calls": 7,
               "successes": 6, "refusals": 1, "failures": 0, "first_refusal": 0}
        process = {"id": "h-1", "program": "/bin/app", "rows": [row],
                   "notes": [{"arguments": [], "module": "/bin/app", "offset": "0x12", "reason": "too wide"}]}
        earlier = {**process, "rows": [{**row, "calls": 3}]}
        trace = {"format": "ibvexp-trace", "version": 1, "processes": [earlier, process]}
        report, done = self.report(self.file("t.json", json.dumps(trace)))
        self.assertEqual(done.returncode, 0, done.stderr)
        use, = report["files"][0]["uses"]
        self.assertEqual(use["count"], 7)
        self.assertIn("too wide", use["detail"])
        self.assertIn("6 successes, 1 refusal;", use["detail"])
        self.assertIn("/bin/app+0x12", use["detail"])  # which is no file

    def test_words_by_name(self):
        """What the program asked for, as it wrote it."""
        for entry, words, expected in [
                ("ibv_exp_create_qp", "qp_type 0x2, comp_mask 0x3, exp_create_flags 0x4",
                 "qp_type 0x2, comp_mask IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_XRCD, "
                 "exp_create_flags IBV_EXP_QP_CREATE_CROSS_CHANNEL"),
                ("ibv_exp_create_cq", "comp_mask 0x0", "comp_mask 0"),
                ("ibv_exp_post_send", "exp_opcode 0x0, exp_send_flags 0x8000000000000002",
                 "exp_opcode IBV_EXP_WR_RDMA_WRITE, "
                 "exp_send_flags IBV_EXP_SEND_SIGNALED | 0x8000000000000000"),
                ("ibv_exp_post_send", "exp_opcode 0xfff, exp_send_flags 0x", "exp_opcode 0xfff, exp_send_flags 0x"),
                ("", "of_tomorrow 0x1", "of_tomorrow 0x1")]:
            with self.subTest(words):
                row = {"name": "ibv_exp_poll_cq", "kind": "entry", "family": "cq", "verdict": "partial",
                       "calls": 1, "successes": 0, "refusals": 1, "failures": 0, "first_refusal": 0}
                note = {"arguments": [], "words": words, **({"entry": entry} if entry else {})}
                process = {"id": "h-1", "program": "/bin/app", "rows": [row], "notes": [note]}
                trace = {"format": "ibvexp-trace", "version": 1, "processes": [process]}
                report, done = self.report(self.file("t.json", json.dumps(trace)))
                self.assertEqual(done.returncode, 0, done.stderr)
                use, = report["files"][0]["uses"]
                self.assertIn(expected, use["detail"])

    def detail_of(self, module, offset):
        row = {"name": "ibv_exp_poll_cq", "kind": "entry", "family": "cq", "verdict": "partial", "calls": 1,
               "successes": 1, "refusals": 0, "failures": 0, "first_call": 0}
        process = {"id": "h-1", "program": str(module), "rows": [row],
                   "notes": [{"arguments": [], "module": str(module), "offset": offset}]}
        trace = {"format": "ibvexp-trace", "version": 1, "processes": [process]}
        report, done = self.report(self.file("t.json", json.dumps(trace)))
        self.assertEqual(done.returncode, 0, done.stderr)
        use, = report["files"][0]["uses"]
        return use["detail"]

    def test_call_sites_have_function_and_line(self):
        report, _ = self.report(SAMPLE)
        call = next(u for u in report["files"][0]["uses"] if u["evidence"] == "slot call" and u.get("line")
                    and report["subjects"][u["subject"]]["name"] == "ibv_exp_poll_cq")
        self.assertRegex(self.detail_of(SAMPLE, call["address"]),
                         rf"{call['where']} \(.*exp_pingpong\.c:{call['line']}\) in {SAMPLE}")
        stripped = self.folder / "stripped"
        subprocess.run(["strip", "-o", stripped, SAMPLE], check=True)
        self.assertIn(f"{stripped}+{call['address']}", self.detail_of(stripped, call["address"]))
        self.expect_error(self.file("bad.json", json.dumps(
            {"format": "ibvexp-trace", "version": 1, "processes": [
                {"id": "h-1", "program": "p", "rows": [
                    {"name": "x", "calls": 1, "successes": 0, "refusals": 0, "failures": 0, "first_call": 0}],
                 "notes": [{"arguments": [], "module": "m", "offset": "there"}]}]})), "no number")


unittest.main(argv=[sys.argv[0]], verbosity=1)
