#!/usr/bin/env python3
"""Private layouts in stripped binaries: generated programs that read them as the
inlines of mlx5_hw.h did, by compiler and option.

    layout_test.py IBVEXP SOURCE_ROOT [COMPILER OPTION...]
"""

import re
import shutil
import subprocess
import sys
import unittest

from audit_case import ROOT, Audit

COMPILER, OPTIONS = (sys.argv[3], sys.argv[4:]) if len(sys.argv) > 3 else ("gcc", ["-O2"])
del sys.argv[3:]
SKIPPED = 77

TYPES = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "void *"}
PUBLIC = {"qp": "struct ibv_qp", "cq": "struct ibv_cq", "srq": "struct ibv_srq", "wq": "struct ibv_exp_wq"}
# Bytes from the private structure to the public one.
CONTAINER = {"qp": 8, "cq": 0, "srq": 8, "wq": 16}

# What the inlines do with them, per object: only fresh objects are mentioned.
INLINES = """
static inline int qp_info(struct ibv_qp *qp, struct qp_info *out) {
	struct private_qp *p = container(private_qp, qp);
	if (p->gen_data_scur_post != 0 || p->rq_head != 0) return -1;
	out->qpn = p->ctrl_seg_qp_num;
	out->dbrec = p->gen_data_db;
	out->sq_buf = (char *)p->buf_buf + p->sq_offset;
	out->sq_cnt = p->sq_wqe_cnt;
	out->sq_stride = 1 << p->sq_wqe_shift;
	out->rq_buf = (char *)p->buf_buf + p->rq_offset;
	out->rq_cnt = p->rq_wqe_cnt;
	out->rq_stride = 1 << p->rq_wqe_shift;
	out->bf_reg = *(void **)p->gen_data_bf;
	out->bf_lock = ((int *)p->gen_data_bf)[2];
	out->bf_size = ((unsigned *)p->gen_data_bf)[20] > 0 ? ((unsigned *)p->gen_data_bf)[19] : 0;
	return 0;
}
static inline int cq_info(struct ibv_cq *cq, struct cq_info *out) {
	struct private_cq *p = container(private_cq, cq);
	if (p->cons_index != 0) return -1;
	out->cqn = p->cqn;
	out->cqe_cnt = cq->cqe + 1;
	out->cqe_size = p->cqe_sz;
	out->buf = *(void **)p->active_buf;
	out->dbrec = p->dbrec;
	return 0;
}
static inline int srq_info(struct ibv_srq *srq, struct srq_info *out) {
	struct private_srq *p = container(private_srq, srq);
	if (p->counter != 0) return -1;
	out->buf = p->buf_buf;
	out->dbrec = p->db;
	out->stride = 1 << p->wqe_shift;
	out->head = p->head;
	out->tail = p->tail;
	return 0;
}
static inline int wq_info(struct ibv_exp_wq *wq, struct cq_info *out) {
	struct private_wq *p = container(private_wq, wq);
	out->buf = (char *)p->buf_buf + p->rq_offset;
	out->cqe_cnt = p->rq_wqe_cnt;
	out->cqe_size = 1 << p->rq_wqe_shift;
	out->dbrec = p->db;
	out->cqn = p->mp_rq_strides_in_wqe;
	return 0;
}
"""

HEAD = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <infiniband/verbs_exp.h>
#define container(type, p) ((struct type *)((char *)(p) - offsetof(struct type, object)))
struct qp_info { uint32_t qpn, sq_cnt, rq_cnt, bf_size; void *dbrec, *sq_buf, *rq_buf, *bf_reg;
	int sq_stride, rq_stride, bf_lock; };
struct cq_info { uint32_t cqn, cqe_cnt, cqe_size; void *buf, *dbrec; };
struct srq_info { void *buf, *dbrec; int stride, head, tail; };
"""

# Callers as applications are: what they learn goes into objects of theirs.
CALLERS = {
    "qp": """
struct tx { char other[72]; struct qp_info info; struct ibv_qp *qp; };
EXPORTED int setup_tx(struct tx *t) {
	struct qp_info i;
	int ret = qp_info(t->qp, &i);
	if (ret) return ret;
	ibv_query_qp(t->qp, 0, 0, 0);
	t->info = i;
	return 0;
}""",
    "cq": """
struct rx { char other[72]; void *buf, *dbrec; uint32_t mask; struct ibv_cq *cq; };
EXPORTED int setup_rx(struct rx *r) {
	struct cq_info i;
	if (cq_info(r->cq, &i)) { ibv_destroy_cq(r->cq); return -1; }
	r->buf = i.buf; r->dbrec = i.dbrec; r->mask = i.cqe_cnt - 1;
	return i.cqe_size == 64 ? (int)i.cqn : -1;
}""",
    "srq": """
struct shared { char other[72]; struct srq_info i; struct ibv_srq *srq; };
EXPORTED int setup_shared(struct shared *s) {
	struct srq_info i;
	if (srq_info(s->srq, &i) || i.stride != 32) { ibv_destroy_srq(s->srq); return -1; }
	s->i = i;
	return 0;
}""",
    "wq": """
EXPORTED int setup_wq(struct ibv_exp_wq *wq, struct cq_info *out) {
	struct cq_info i;
	int ret = wq_info(wq, &i);
	ibv_fork_init();
	*out = i;
	return ret;
}""",
}
TAIL = "\nint main(void) { return 0; }\n"


def members():
    text = (ROOT / "src/tool/audit/binary/layouts.def").read_text()
    for row in re.findall(r"^IBVEXP_LAYOUT_FIELD\((\w+), ([\w.]+), (\d+), (\d+), (\d+)\)", text, re.M):
        yield row[0], row[1].replace(".", "_"), *map(int, row[2:])


def structures(release):
    """With padding, so that every member stands where that release has it."""
    out = []
    for kind, public in PUBLIC.items():
        rows = sorted((at_3x if release == "3.x" else at_4x, size, name)
                      for k, name, size, at_3x, at_4x in members() if k == kind)
        body, at = "", 0
        for offset, size, name in rows:
            if at == 0:
                body += f"\tunion {{ {public} object; char room[{offset}]; }};\n"
            elif offset > at:
                body += f"\tchar gap_{at}[{offset - at}];\n"
            body += f"\t{TYPES[size]} {name};\n".replace("* ", "*")
            at = offset + size
        if CONTAINER[kind]:
            body = f"\tchar before[{CONTAINER[kind]}];\n" + body
        out.append(f"struct private_{kind} {{\n{body}}} __attribute__((packed, aligned(8)));\n")
    return "".join(out)


class Layouts(Audit):
    def build(self, release, kinds, extra=""):
        text = HEAD + structures(release) + INLINES + "".join(CALLERS[k] for k in kinds) + extra + TAIL
        source = self.file("a.c", text)
        program = self.folder / "program"
        subprocess.run([COMPILER, "-w", *OPTIONS, "-I", ROOT / "include", "-DEXPORTED=__attribute__((used))",
                        source, "-o", program, "-libverbs", "-s"], check=True)
        return program

    def judge(self, program):
        report, done = self.report(program)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.program(report), report["files"][0]

    def test_each_object_shows(self):
        for release in ("3.x", "4.x"):
            for kind, what in (("qp", "queue pair"), ("cq", "completion queue")):
                with self.subTest(release=release, kind=kind):
                    verdict, file = self.judge(self.build(release, [kind]))
                    self.assertEqual(verdict["reasons"][0]["severity"], "private", file)
                    self.assertEqual({u["detail"].split(":")[0] for u in file["uses"]}, {what})
                    self.assertRegex(verdict["reasons"][0]["places"][0], "^0x")

    def test_what_other_structures_look_like_shows_nothing(self):
        # Behind a pointer of unknown type: today's ib_write_lat has structures that match.
        for release in ("3.x", "4.x"):
            for kind in ("srq", "wq"):
                with self.subTest(release=release, kind=kind):
                    verdict, file = self.judge(self.build(release, [kind]))
                    self.assertEqual(verdict["standing"], "unused", file)

    def test_releases_are_told_apart(self):
        for release in ("3.x", "4.x"):
            verdict, file = self.judge(self.build(release, ["qp", "cq", "srq"]))
            self.assertEqual(verdict.get("layout"), release, file)
            self.assertEqual(verdict["verdict"], f"works (on structures of libmlx5 {release})")

    def test_completion_parsers_that_read_two_members(self):
        verdict, _ = self.judge(self.build("4.x", [], """
struct ring { struct ibv_cq *cq; char *cqes; };
EXPORTED int map(struct ring *r) {
	struct private_cq *p = container(private_cq, r->cq);
	if (1u << p->cq_log_size != 8 || !p->buf_a_buf) { ibv_destroy_cq(r->cq); return -1; }
	r->cqes = p->buf_a_buf;
	for (int i = 0; i < 8; i++) r->cqes[64 * i + 63] = 1;
	return 0;
}"""))
        self.assertEqual(verdict["reasons"][0]["severity"], "private")

    def test_what_a_verb_created_needs_less(self):
        verdict, _ = self.judge(self.build("4.x", [], """
EXPORTED int fresh(struct ibv_context *context, void **out) {
	struct ibv_cq *cq = ibv_create_cq(context, 1, 0, 0, 0);
	struct private_cq *p = container(private_cq, cq);
	if (!cq) return -1;
	out[0] = p->dbrec;
	out[1] = (void *)(uintptr_t)p->cqn;
	return 0;
}"""))
        self.assertEqual(verdict["reasons"][0]["severity"], "private")

    def test_structures_of_the_program_are_its_own(self):
        """Much of the same size at the same distance, in an order that is no private layout."""
        verdict, file = self.judge(self.build("4.x", [], """
struct own { char head[128]; uint32_t n[100]; void *p[64]; };
EXPORTED long sum(struct own *o) {
	long s = 0;
	ibv_fork_init();
	for (int i = 0; i < 100; i++) s += o->n[i];
	s += o->n[64] + o->n[96] + o->n[88] + o->n[89] + (long)o->p[2] + (long)o->p[15] + (long)o->p[17];
	return s + (long)o->p[16] + o->n[63] + o->n[70] + o->n[71] + *(int *)o->p[18];
}
struct mixed { uint64_t w[128]; };
EXPORTED long mixed(struct mixed *m) {
	ibv_fork_init();
	return m->w[80] + m->w[81] + m->w[82] + m->w[83] + m->w[84] + m->w[22] + *(long *)m->w[37] + m->w[47];
}"""))
        self.assertEqual(verdict["standing"], "unused", file)

    def test_pointers_where_a_completion_queue_has_pairs_of_words(self):
        """As at the end of rdma_cm_id: what is loaded at once may be one pointer."""
        verdict, file = self.judge(self.build("4.x", [], """
struct connected { char head[376]; void *channel; struct ibv_cq *cq; struct ibv_srq *srq; struct ibv_pd *pd; };
EXPORTED struct ibv_mr *begin(struct connected *c, void *bytes) {
	if (c->srq->context != c->cq->context) { ibv_destroy_srq(c->srq); return 0; }
	ibv_get_cq_event(c->channel, &c->cq, &bytes);
	return ibv_reg_mr(c->pd, bytes, 64, 0);
}"""))
        self.assertEqual(verdict["standing"], "unused", file)

    def test_names_of_source_files_in_data(self):
        for name, found in (("/build/include/infiniband/mlx5_hw.h", True), ("mlx5/exp/ib_mlx5_hw.c", True),
                            ("my_mlx5_hw.h", False), ("see mlx5_hw.h", False), ("mlx5_hw.h is gone", False)):
            verdict, file = self.judge(self.build("4.x", [], f"""
EXPORTED void fail(void) {{ puts("{name}"); ibv_fork_init(); }}
"""))
            self.assertEqual("private" in [r["severity"] for r in verdict["reasons"]], found, (name, file))


if shutil.which(COMPILER) is None:
    print(f"{COMPILER} is not installed")
    sys.exit(SKIPPED)
unittest.main(argv=[sys.argv[0]], verbosity=1)
