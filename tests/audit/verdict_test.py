#!/usr/bin/env python3
"""Will it run? The verdicts of ibvexp audit, by what programs ask for.

    verdict_test.py IBVEXP SOURCE_ROOT
"""

import json
import platform
import subprocess
import sys
import unittest

from audit_case import ROOT, Audit, audit

REQUEST = """
    #include <string.h>
    #include <infiniband/verbs_exp.h>
    int request(struct ibv_qp *qp) {
        struct ibv_exp_send_wr wr, *bad;
        memset(&wr, 0, sizeof(wr));
        wr.exp_opcode = OPCODE;
        wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
        return ibv_exp_post_send(qp, &wr, &bad);
    }
    int main(int argc, char **argv) { return argc < 9 ? 0 : request((struct ibv_qp *)argv[1]); }
"""
INCLUDE = ("-I", ROOT / "include")


class Sources(Audit):
    def judge(self, text):
        source = self.file("app/a.c", text)
        report, done = self.report(source.parent)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.program(report, source.parent), source

    def test_everyday_verbs_run(self):
        """What verbs refuse for other callers is not held against this one."""
        verdict, _ = self.judge("struct ibv_exp_qp_init_attr a;\nqp = ibv_exp_create_qp(c, &a);\n"
                                "ibv_exp_modify_qp(qp, &b, IBV_EXP_QP_STATE); ibv_exp_post_send(qp, &w, &bad);\n"
                                "ibv_exp_create_cq(c, 1, 0, 0, 0, &q); ibv_exp_poll_cq(cq, 1, wc, sizeof(wc));\n"
                                "ibv_exp_reg_mr(&in);\n")
        self.assertEqual(verdict["standing"], "works")
        self.assertEqual(verdict["verdict"], "works")
        self.assertEqual(verdict["reasons"], [])
        self.assertEqual(verdict["command"], "ibvexp run -- PROGRAM")

    def test_refused_requests_are_named_with_their_places(self):
        verdict, source = self.judge("ibv_exp_create_qp(c, &a);\n a.flags |= IBV_EXP_SEND_WITH_CALC;\n"
                                     "b.flags = IBV_EXP_SEND_WITH_CALC;\nibv_exp_peer_commit_qp(c, &t, &bad);\n")
        self.assertEqual(verdict["standing"], "off")
        self.assertEqual(verdict["verdict"], "works, 2 features off: "
                                             "IBV_EXP_SEND_WITH_CALC, ibv_exp_peer_commit_qp")
        flag, verb = verdict["reasons"]
        self.assertEqual(flag["places"], [f"{source}:2", f"{source}:3"])
        self.assertEqual(flag["count"], 2)
        self.assertEqual(verb["places"], [f"{source}:4"])

    def test_the_command_is_one_that_a_shell_finds(self):
        self.compile("prog", REQUEST.replace("OPCODE", "IBV_EXP_WR_SEND"), *INCLUDE)
        done = audit("prog", cwd=self.folder)
        self.assertIn("  $ ibvexp run -- ./prog\n", done.stdout)
        # One of an archive is none yet.
        subprocess.run(["tar", "cf", "all.tar", "prog"], cwd=self.folder, check=True)
        done = audit("all.tar", cwd=self.folder)
        self.assertIn("  $ ibvexp run -- PROGRAM\n", done.stdout)

    def test_switches_are_named(self):
        verdict, _ = self.judge("wr.exp_opcode = IBV_EXP_WR_NOP;\n"
                                "wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;\n")
        self.assertEqual(verdict["standing"], "beyond")
        self.assertEqual(verdict["verdict"], "works, --beyond masked_atomics,nop adds "
                         "IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP, IBV_EXP_WR_NOP")
        self.assertEqual(verdict["command"], "ibvexp run --beyond masked_atomics,nop -- PROGRAM")

    def test_strides_of_shared_queues_need_no_switch_of_work_queues(self):
        """Both ibv_exp_wc and ibv_exp_create_srq_attr have a member mp_wr."""
        attributes = "struct ibv_exp_create_srq_attr a;\na.mp_wr.log_stride_size = 6;\n" \
                     "b = (struct ibv_exp_create_srq_attr){.mp_wr = {.log_num_of_strides = 9}};\n"
        verdict, _ = self.judge(attributes)
        self.assertEqual(verdict["verdict"], "works")
        completions = "struct ibv_exp_wc wc;\nif (wc.exp_opcode == IBV_EXP_WC_RECV_NOP) x(wc.mp_wr.byte_len);\n"
        verdict, _ = self.judge(attributes + completions)
        self.assertEqual(verdict["verdict"], "works, --beyond mp_rq_poll adds IBV_EXP_WC_RECV_NOP, ibv_exp_wc.mp_wr")
        shared = "a.comp_mask = IBV_EXP_CREATE_SRQ_MP_WR;\n"
        verdict, _ = self.judge(attributes + completions + shared)
        self.assertEqual(verdict["verdict"], "works, --beyond mp_srq adds IBV_EXP_CREATE_SRQ_MP_WR")
        verdict, _ = self.judge(attributes + completions + shared + "w.comp_mask |= IBV_EXP_CREATE_WQ_MP_RQ;\n")
        self.assertEqual(verdict["switches"], ["mp_rq_poll", "mp_srq"])

    def test_a_switch_that_was_declined_is_not_offered(self):
        verdict, _ = self.judge("struct ibv_exp_cq_init_attr a;\na.peer_direct_attrs = p;\n"
                                "cq = ibv_exp_create_cq(c, 1, 0, 0, 0, &a);\n")
        self.assertEqual(verdict["standing"], "off")
        self.assertNotIn("switches", verdict)

    def test_refused_fields_count_as_requests(self):
        verdict, source = self.judge("struct ibv_exp_qp_attr a;\na.flow_entropy = 3;\n"
                                     "ibv_exp_modify_qp(qp, &a, m);\n")
        self.assertEqual(verdict["reasons"][0]["name"], "ibv_exp_qp_attr.flow_entropy")
        self.assertEqual(verdict["reasons"][0]["places"], [f"{source}:2"])

    def test_fields_that_are_set_to_nothing_do_not(self):
        verdict, source = self.judge("struct ibv_exp_cq_init_attr a = {.peer_direct_attrs = nullptr,};\n"
                                     "a.peer_direct_attrs = NULL;\na.peer_direct_attrs =\n  0;\n"
                                     "cq = ibv_exp_create_cq(c, 1, 0, 0, 0, &a);\n")
        self.assertEqual(verdict["standing"], "works")
        verdict, source = self.judge("struct ibv_exp_cq_init_attr a;\na.peer_direct_attrs = 0 + p;\n"
                                     "if (a.peer_direct_attrs == NULL) x();\na.peer_direct_attrs = NULLABLE;\n")
        self.assertEqual(verdict["reasons"][0]["places"], [f"{source}:{n}" for n in (2, 3, 4)])

    def test_the_same_member_of_something_else_does_not(self):
        report, _ = self.report(self.file("b/b.c", "a.flow_entropy = 3;\n"))
        self.assertEqual(report["programs"], [])
        report, _ = self.report(self.file("c/c.c", "flow_entropy = ibv_exp_poll_cq(c);\n"))
        self.assertEqual(self.program(report)["standing"], "works")

    def test_what_is_never_reported_differs_from_what_works(self):
        verdict, _ = self.judge("if (attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_INFO) x();\n")
        self.assertEqual(verdict["standing"], "works")
        report, _ = self.report(self.folder / "app")
        self.assertEqual(report["counts"]["severity"]["off"], 1)
        self.assertEqual(report["counts"]["severity"]["works"], 0)

    def test_asking_whether_a_name_exists_is_no_request(self):
        self.file("app/configure.ac", "AC_CHECK_DECLS([IBV_EXP_WR_CQE_WAIT])\n")
        verdict, _ = self.judge("#ifdef IBV_EXP_WR_CQE_WAIT\n#endif\nibv_exp_poll_cq(c);\n")
        self.assertEqual(verdict["standing"], "works")

    def test_private_layouts(self):
        verdict, source = self.judge("#include <infiniband/mlx5_hw.h>\nibv_exp_poll_cq(c);\n")
        self.assertEqual(verdict["reasons"][0]["severity"], "private")
        self.assertIn("works (on structures of libmlx5", verdict["verdict"])
        self.assertEqual(verdict["reasons"][0]["places"], [f"{source}:1"])
        report, _ = self.report(source)
        self.assertRegex(report["subjects"][report["files"][0]["uses"][0]["subject"]]["note"], "IBVEXP_LAYOUT")
        # Served without a word where the release does not show.
        self.assertEqual(verdict["command"], "ibvexp run -- PROGRAM")

    def test_copies_of_private_structures(self):
        own = "struct mlx5_cq {\n  struct ibv_cq ibv_cq;\n  struct ibv_exp_peer_direct_attr *p;\n};\n"
        source = self.file("app/own.h", own)
        verdict, _ = self.judge("ibv_exp_poll_cq(c);\n")
        self.assertEqual(verdict["reasons"][0]["severity"], "private")
        self.assertEqual(verdict["reasons"][0]["places"], [f"{source}:1"])
        for other in ("struct mlx5_cq;\nint f(struct mlx5_cq *c) { ibv_exp_poll_cq(0); }\n", own.replace("exp_", ""),
                      own.replace("mlx5_cq", "mlx5_cq_table")):
            self.file("app/own.h", other)
            self.assertEqual(self.judge("ibv_exp_poll_cq(c);\n")[0]["standing"], "works", other)

    def test_a_provider_beside_the_program_is_not_the_program(self):
        provider = self.file("app/drivers/libmlx5/src/verbs.c", "ibv_exp_cmd_create_qp(c); ibv_exp_peer_commit_qp(c, t, b);\n")
        self.file("app/drivers/libmlx5/src/mlx5.h", "int a = IBV_EXP_WR_NOP;\n")
        self.file("app/drivers/libmlx5/configure.ac", "AC_CHECK_DECLS([IBV_EXP_WR_CQE_WAIT])\n")
        verdict, source = self.judge("ibv_exp_poll_cq(c);\n")
        self.assertEqual(verdict["verdict"], "works")
        report, _ = self.report(source.parent)
        other = self.program(report, provider.parent)
        self.assertEqual(other["standing"], "fails")
        self.assertEqual(other["verdict"], "does not work: it is a provider of the legacy libibverbs, which today's "
                                           "does not load: applications do not need it")
        # Alone, it is what was asked about.
        report, _ = self.report(self.folder / "app/drivers")
        self.assertEqual(self.program(report)["standing"], "fails")
        self.assertEqual(self.program(report)["name"], str(self.folder / "app/drivers"))

    def test_names_that_a_program_declares_itself_are_its_own(self):
        self.file("app/own.h", "static inline int ibv_exp_frobnicate(int x) { return x; }\n")
        verdict, _ = self.judge("ibv_exp_poll_cq(c); ibv_exp_frobnicate(1); ibv_exp_strange(2);\n")
        report, _ = self.report(self.folder / "app")
        self.assertEqual({s["name"] for s in report["subjects"] if s["severity"] == "unknown"}, {"ibv_exp_strange"})
        self.assertEqual(verdict["standing"], "works")

    def test_a_copy_of_the_headers_asks_for_nothing(self):
        self.file("app/verbs_exp.h", (ROOT / "include/infiniband/verbs_exp.h").read_text())
        verdict, _ = self.judge("ibv_exp_poll_cq(c);\n")
        self.assertEqual(verdict["reasons"], [])

    def test_files_that_are_named_are_one_program(self):
        one, two = self.file("one.c", "ibv_exp_poll_cq(c);\n"), self.file("two.c", "ibv_exp_peer_commit_qp(c, t, b);\n")
        report, _ = self.report(one, two)
        self.assertEqual(self.program(report)["name"], "2 files")

    def test_the_verdict_stands_on_top(self):
        source = self.file("a.c", "ibv_exp_peer_commit_qp(c, &t, &bad);\n")
        lines = audit(source).stdout.splitlines()
        self.assertEqual(lines[0], f"{source}: works, 1 feature off: ibv_exp_peer_commit_qp")
        self.assertIn(f"{source}:1", lines[1])
        self.assertEqual(lines[2], "  $ ibvexp run -- PROGRAM")


QUERY = """
    #include <string.h>
    #include <infiniband/verbs_exp.h>
    int query(struct ibv_context *context) {
        struct ibv_exp_device_attr attr;
        memset(&attr, 0, sizeof(attr));
        attr.comp_mask = MASK;
        return ibv_exp_query_device(context, &attr) || attr.comp_mask == 0;
    }
    int main(int argc, char **argv) { return argc < 9 ? 0 : query((struct ibv_context *)argv[1]); }
"""


class Binaries(Audit):
    def test_a_query_of_all_that_there_is_needs_no_switch(self):
        for mask, verdict in (("IBV_EXP_DEVICE_ATTR_RESERVED - 1", "works"), ("(1 << 24) - 1", "works"),
                              ("IBV_EXP_DEVICE_ATTR_EC_CAPS", "works, --beyond erasure_coding adds "
                                                              "IBV_EXP_DEVICE_ATTR_EC_CAPS")):
            report, _ = self.report(self.compile("prog", QUERY.replace("MASK", mask), *INCLUDE))
            self.assertEqual(self.program(report)["verdict"], verdict, mask)

    def judge(self, *arguments):
        report, done = self.report(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.program(report, arguments[-1])

    def test_everyday_verbs_run(self):
        program = self.compile("app", REQUEST, "-DOPCODE=IBV_EXP_WR_SEND", *INCLUDE)
        verdict = self.judge(program)
        self.assertEqual(verdict["verdict"], "works")
        self.assertEqual(verdict["command"], f"ibvexp run -- {program}")

    def test_what_is_asked_for_decides(self):
        request = REQUEST.replace("IBV_EXP_SEND_SIGNALED", "IBV_EXP_SEND_WITH_CALC")
        program = self.compile("app", request, "-DOPCODE=IBV_EXP_WR_SEND", *INCLUDE)
        verdict = self.judge(program)
        self.assertEqual(verdict["standing"], "off")
        self.assertEqual([r["name"] for r in verdict["reasons"]], ["IBV_EXP_SEND_WITH_CALC"])
        self.assertRegex(verdict["reasons"][0]["places"][0], r"^0x[0-9a-f]+$")

    def test_evidence_names_function_offset_and_line_where_they_are_left(self):
        source = self.file("app.cpp", REQUEST.replace("int request", "__attribute__((noinline)) int request"))
        program = self.folder / "app"
        subprocess.run(["g++", "-O2", "-g", "-w", "-fno-ipa-cp", "-DOPCODE=IBV_EXP_WR_NOP", *INCLUDE, source, "-o",
                        program, "-libverbs"], check=True)
        place = self.judge(program)["reasons"][0]["places"][0]
        self.assertRegex(place, r"request.*\(.*app\.cpp:9\)")
        subprocess.run(["strip", "-g", program], check=True)
        self.assertRegex(self.judge(program)["reasons"][0]["places"][0], r"^_Z7requestP6ibv_qp.*\+0x[0-9a-f]+$")

    def test_switches(self):
        program = self.compile("my app", REQUEST, "-DOPCODE=IBV_EXP_WR_NOP", *INCLUDE)
        verdict = self.judge(program)
        self.assertEqual(verdict["standing"], "beyond")
        self.assertEqual(verdict["command"], f"ibvexp run --beyond nop -- '{program}'")

    def test_flags_that_a_branch_chooses(self):
        code = '''
            #include <string.h>
            #include <infiniband/verbs_exp.h>
            int main(int argc, char **argv) {
                struct ibv_exp_reg_mr_in in;
                memset(&in, 0, sizeof(in));
                in.pd = (struct ibv_pd *)argv[1];
                in.addr = argv;
                in.length = 4096;
                in.exp_access = argc > 2 ? IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_PHYSICAL_ADDR
                                         : IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
                return ibv_exp_reg_mr(&in) == NULL;
            }'''
        for compiler in "gcc", "clang":
            program = self.compile("app", code, *INCLUDE, compiler=compiler, language="c")
            self.assertEqual(self.judge(program)["verdict"], "works, 1 feature off: IBV_EXP_ACCESS_PHYSICAL_ADDR",
                             compiler)

    def test_static_programs_cannot(self):
        """Only the call is needed, so libibverbs itself is left out."""
        source = self.file("a.c", "typedef int (*slot)(void *, void *);\n#define WORD(p) (*(unsigned long *)(p))\n"
                                  "int main(int n, char **context) { char *c = context[n];\n"
                                  "char *end = c - WORD(c - 8) + 328; if (WORD(end - 8) < 16) return 38;\n"
                                  "slot s = *(slot *)(end - 16); return s ? s(c, 0) : 38; }\n")
        for kind in ("-static", "-static-pie"):
            program = self.folder / "static"
            subprocess.run(["gcc", "-O2", kind, source, "-o", program], check=True)
            verdict = self.judge(program)
            self.assertEqual(verdict["standing"], "fails", kind)
            self.assertIn("does not work: it is statically linked", verdict["verdict"])
            self.assertNotIn("command", verdict)
        subprocess.run(["gcc", "-O2", source, "-o", program], check=True)
        self.assertEqual(self.judge(program)["standing"], "works")
        program.chmod(0o4755)
        self.assertIn("set-user-ID", self.judge(program)["verdict"])

    def test_other_machines(self):
        """Whose library is another one, or none. What is imported shows in any of them."""
        library = self.folder / "liblegacy.so"
        subprocess.run(["gcc", "-shared", "-x", "c", "-o", library,
                        self.file("l.c", "int ibv_exp_poll_cq(void *cq) { return cq != 0; }\n")], check=True)
        program = self.compile("app", "int ibv_exp_poll_cq(void *); int main(void) { return ibv_exp_poll_cq(0); }",
                               library, compiler="gcc", language="c")
        self.assertEqual(self.judge(program)["standing"], "works")
        here = platform.machine().replace("_", "-")
        numbers = {"x86-64": 62, "aarch64": 183}
        (there,) = numbers.keys() - {here}
        code = bytearray(program.read_bytes())
        for machine, why in ((numbers[there], f"it is {there} code, and the library here is for {here}: "
                                               f"it needs one that is built for {there}"),
                             (21, "it is ppc64 code: the library is for x86-64 and aarch64")):
            code[18:20] = machine.to_bytes(2, "little")
            verdict = self.judge(self.file("other", bytes(code)))
            self.assertEqual(verdict["standing"], "fails")
            self.assertIn(why, verdict["verdict"])

    def test_copies_of_private_structures(self):
        """Where debug information says so, and optimisation does not show what is read."""
        own = "namespace own { struct mlx5_cq { struct ibv_cq first; char cq_log_size; }; }\n"
        use = "extern own::mlx5_cq *seen; own::mlx5_cq *seen;\n"
        for text, standing in ((own + use, "works (on structures of libmlx5)"), ("struct mlx5_cq;\nmlx5_cq *seen;\n", "works")):
            source = self.file("app.cpp", REQUEST + text)
            program = self.folder / "app"
            subprocess.run(["g++", "-O0", "-g", "-w", "-DOPCODE=IBV_EXP_WR_SEND", *INCLUDE, source, "-o", program,
                            "-libverbs"], check=True)
            self.assertEqual(self.judge(program)["verdict"], standing)

    def test_nothing_experimental(self):
        program = self.compile("app", "int main() { return 0; }")
        self.assertEqual(self.judge(program)["standing"], "unused")

    def test_libraries_count_with_recursive(self):
        library = self.compile("libapp.so", REQUEST, "-DOPCODE=IBV_EXP_WR_CQE_WAIT", "-shared", "-fPIC", *INCLUDE)
        middle = self.compile("libmiddle.so", "", "-shared", "-Wl,--no-as-needed", library, "-Wl,-rpath,$ORIGIN")
        program = self.compile("app", "int main() { return 0; }", "-Wl,--no-as-needed", middle, "-Wl,-rpath,$ORIGIN",
                               "-Wl,-rpath-link," + str(self.folder))
        self.assertEqual(self.judge(program)["standing"], "unused")
        verdict = self.judge("--recursive", program)
        self.assertEqual(verdict["standing"], "beyond")
        self.assertEqual(verdict["command"], f"ibvexp run --beyond cross_channel -- {program}")


class Traces(Audit):
    def judge(self, *rows):
        row = {"kind": "entry", "family": "x", "verdict": "partial", "calls": 1, "successes": 0, "refusals": 0,
               "failures": 0}
        process = {"id": "h-1", "program": "/bin/app", "notes": [], "rows": [{**row, **r} for r in rows]}
        trace = self.file("t.json", json.dumps({"format": "ibvexp-trace", "version": 1, "processes": [process]}))
        report, done = self.report(trace)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.program(report, "/bin/app")

    def test_what_was_not_refused_runs(self):
        verdict = self.judge({"name": "ibv_exp_post_send"}, {"name": "ibv_exp_arm_dct"})
        self.assertEqual(verdict["verdict"], "works")

    def test_what_was_refused_counts(self):
        verdict = self.judge({"name": "ibv_exp_post_send", "refusals": 1},
                             {"name": "IBV_EXP_SEND_WITH_CALC", "refusals": 1})
        self.assertEqual(verdict["verdict"], "works, 1 feature off: IBV_EXP_SEND_WITH_CALC")

    def test_a_verb_that_refused_counts_where_nothing_says_why(self):
        verdict = self.judge({"name": "ibv_exp_post_send", "refusals": 1})
        self.assertEqual(verdict["verdict"], "works, 1 feature off: ibv_exp_post_send")

    def test_switches(self):
        verdict = self.judge({"name": "IBV_EXP_WR_NOP", "refusals": 2})
        self.assertEqual(verdict["command"], "ibvexp run --beyond nop -- /bin/app")

    def test_an_answer_that_was_left_out_is_no_refusal(self):
        verdict = self.judge({"name": "IBV_EXP_DEVICE_ATTR_TUNNELED_ATOMIC", "refusals": 1})
        self.assertEqual(verdict["verdict"], "works")


class Unreadable(Audit):
    def test_no_all_clear_for_what_could_not_be_read(self):
        done = audit(self.folder / "none")
        self.assertIn("No experimental verbs in what could be judged.", done.stdout)
        self.assertIn("No experimental verbs.", audit(self.file("a.c", "int x;\n")).stdout)


class FailOn(Audit):
    def test_classes(self):
        files = {"any": "ibv_exp_create_qp(c, &a);\n", "beyond": "o = IBV_EXP_WR_NOP;\n",
                 "refused": "ibv_exp_poll_dc_info(c, e, 1, 1);\n", "private": "#include <mlx5_hw.h>\n"}
        for kind, text in files.items():
            source = self.file(f"{kind}.c", text)
            for level in files:
                expected = 1 if level in (kind, "any") else 0
                self.assertEqual(audit("--fail-on", level, source).returncode, expected, (kind, level))
        both = audit("--fail-on", "beyond,refused", self.folder / "refused.c")
        self.assertEqual(both.returncode, 1)
        self.assertEqual(audit("--fail-on", "nonsense", self.folder).returncode, 2)

    def test_findings_and_errors_are_both_reported(self):
        source = self.file("a.c", "ibv_exp_poll_dc_info(c, e, 1, 1);\n")
        self.assertEqual(audit("--fail-on", "refused", source, self.folder / "none").returncode, 3)
        self.assertEqual(audit(source, self.folder / "none").returncode, 2)


unittest.main(argv=[sys.argv[0]], verbosity=1)
