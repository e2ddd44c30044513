#!/usr/bin/env python3
"""Every verb that the library exports: rdma-core's instructions without it, and what base and
experimental verbs take through it. One table, rows above their target first.

    verbs_bench.py --softhca LIB --library LIB --tables SRC [--check] [--document FILE]
                   [--timed HOTPATH MODERN MANY THREADS] HOTPATH MODERN MANY THREADS CREATE CALLS

The rows are those of hotpath_bench.py, create_bench.py, many_bench.c, threads_bench.c and
calls_bench.c. --timed: the programs of the data path once more, which print times (timing.h). A verb of the
tables (entries.def, routes.def and the operations of doors.cpp) that no row calls fails, unless
the tables refuse it or NOT_COUNTED says why. --document: the table goes between the two marks
in that file.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import create_bench
import hotpath_bench

Row = namedtuple("Row", "name native base exp target")

# What the rows call: base verbs and experimental ones.
VERBS = {
    "post": "ibv_post_send ibv_exp_post_send",
    "poll": "ibv_poll_cq ibv_exp_poll_cq",
    "recv": "ibv_post_recv ibv_post_srq_recv",
    "bind": "ibv_bind_mw",
    "notify": "ibv_req_notify_cq",
    "get": "ibv_get_cq_event",
    "ack": "ibv_ack_cq_events",
    "open and close device": "ibv_open_device ibv_close_device",
    "create cq": "ibv_create_cq ibv_exp_create_cq",
    "create srq": "ibv_create_srq ibv_exp_create_srq",
    "create qp": "ibv_create_qp ibv_exp_create_qp",
    "create mr": "ibv_exp_reg_mr",
    "create ah": "ibv_create_ah",
    "create dct": "ibv_exp_create_dct",
    "create key": "ibv_exp_create_mr",
    "create domain": "ibv_exp_create_res_domain",
    "create burst": "ibv_exp_query_intf",
    "destroy burst": "ibv_exp_release_intf",
    "destroy cq": "ibv_destroy_cq",
    "destroy srq": "ibv_destroy_srq",
    "destroy qp": "ibv_destroy_qp",
    "destroy mr": "ibv_dereg_mr",
    "destroy dct": "ibv_exp_destroy_dct",
    "destroy domain": "ibv_exp_destroy_res_domain",
    "modify init": "ibv_modify_qp ibv_exp_modify_qp",
    "query device": "ibv_exp_query_device",
    "get devices": "ibv_get_device_list ibv_exp_get_device_list",
    "query port": "ibv_exp_query_port",
    "query gid": "ibv_exp_query_gid_attr",
    "moderate cq": "ibv_modify_cq ibv_exp_modify_cq",
    "query clock": "ibv_exp_query_values",
    "prefetch mr": "ibv_exp_prefetch_mr",
    "alloc dm": "ibv_exp_alloc_dm",
    "copy dm": "ibv_exp_memcpy_dm",
    "free dm": "ibv_exp_free_dm",
    "create flow": "ibv_create_flow ibv_exp_create_flow",
    "destroy flow": "ibv_exp_destroy_flow",
    "create wq": "ibv_create_wq ibv_exp_create_wq",
    "create table": "ibv_exp_create_rwq_ind_table",
    "destroy table": "ibv_exp_destroy_rwq_ind_table",
    "modify wq": "ibv_exp_modify_wq",
    "destroy wq": "ibv_exp_destroy_wq",
    "open xrcd": "ibv_open_xrc_domain",
    "create xrcsrq": "ibv_create_srq_ex ibv_create_xrc_srq",
    "number xrcsrq": "ibv_get_srq_num",
    "create xrcqp": "ibv_create_qp_ex ibv_create_xrc_rcv_qp",
    "modify xrcqp": "ibv_modify_xrc_rcv_qp",
    "query xrcqp": "ibv_query_xrc_rcv_qp",
    "open xrcqp": "ibv_open_qp ibv_reg_xrc_rcv_qp",
    "destroy xrcqp": "ibv_unreg_xrc_rcv_qp",
    "close xrcd": "ibv_close_xrc_domain",
    "setenv context": "ibv_exp_setenv",
    "private context": "ibv_exp_use_priv_env",
    "convert clock": "ibv_exp_cqe_ts_to_ns",
    "query key": "ibv_exp_query_mkey",
    "query dct": "ibv_exp_query_dct",
    "get function": "ibv_exp_get_provider_func",
    "bind window": "ibv_bind_mw ibv_exp_bind_mw",
    "change mr": "ibv_exp_rereg_mr",
    "query qp": "ibv_query_qp",
    "query srq": "ibv_query_srq",
    "limit srq": "ibv_modify_srq",
    "get async": "ibv_get_async_event",
    "ack async": "ibv_ack_async_event",
    "resize cq": "ibv_resize_cq",
    "attach group": "ibv_attach_mcast",
    "detach group": "ibv_detach_mcast",
    "reply ah": "ibv_create_ah_from_wc",
    "pace qp": "ibv_modify_qp_rate_limit",
}
NOT_COUNTED = {
    "ibv_import_device": "as ibv_open_device(), of another process",
    "ibv_qp_to_qp_ex": "hands the object behind on", "ibv_set_ece": "hands the object behind on",
    "ibv_query_ece": "hands the object behind on",
    "ibv_query_qp_data_in_order": "hands the object behind on",
    "ibv_post_srq_ops": "hands the object behind on",
    "rdma_create_qp_exp": "ibv_exp_create_qp() and librdmacm's own",
    "rdma_establish": "librdmacm's messages", "rdma_init_qp_attr": "librdmacm's own",
}
TARGET = 1.15
RUNS = 5


def served(tables):
    """Verbs that have to be in a row, and those that the tables refuse."""
    text = (tables / "table/entries.def").read_text(encoding="utf-8")
    entries = re.findall(r"^IBVEXP_ENTRY\((\w+), \w+, (\w+), \w+, \w+,\s*(\w+),", text, re.M)
    wanted, refused = set(), set()
    for name, door, verdict in entries:
        if door not in ("slot_and_symbol", "symbol"):
            continue
        if verdict in ("unsupported", "beyond"):
            refused.add(name)
        else:
            wanted.add(name)
    routes = (tables / "exp/routes.def").read_text(encoding="utf-8")
    wanted |= set(re.findall(r"^IBVEXP_ROUTE\(libibverbs, \S+, (\w+), taken\)", routes, re.M))
    doors = (tables / "translate/queue/doors.cpp").read_text(encoding="utf-8")
    wanted |= {f"ibv_{name}" for name in re.findall(r"(?:replace|take)\([\w.]+, &(\w+)\)", doors)}
    return wanted, refused


def data_path(args, hotpath, modern, many, threads, **how):
    for (verb, kind, n), native, exp, base, _ in hotpath_bench.measure(
            args.softhca, args.library, hotpath, modern, "own", **how):
        yield Row(f"{verb} {kind} of {n}", native, base, exp, hotpath_bench.target(verb, kind, n))
    for program in (many, threads):
        native, base, exp = create_bench.measure(args.softhca, args.library, program, [],
                                                 hotpath_bench.LIBRARIES, **how)
        for phase in sorted(native):
            name, n = phase.rsplit("-", 1)
            verb, kind = name.split("-", 1)
            if verb == "harness":
                continue
            each = int(n)
            of = "" if program == threads else f" of {n}"
            yield Row(f"{verb} {kind.replace('-', ' ')}{of}", native[phase] / each,
                      base[phase] / each, exp[phase] / each,
                      hotpath_bench.target(verb, kind, 16 if of and each > 1 else 1))


def nanoseconds(command, softhca, libraries, more, *_):
    """Of each phase, as the program says. On one processor, for its caches, unless it has threads;
    before other programs, if that is allowed."""

    def first():
        if not os.path.basename(command[0]).startswith("threads"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        except PermissionError:
            pass

    fabric = f"bench-{os.getpid()}"
    env = dict(os.environ, LD_PRELOAD=":".join([*libraries, softhca]), SOFTHCA_FABRIC=fabric, **more)
    done = subprocess.run(command, env=env, preexec_fn=first, capture_output=True, text=True,
                          check=False)
    shutil.rmtree(f"/dev/shm/softhca-{os.getuid()}-{fabric}", ignore_errors=True)
    if done.returncode != 0:
        print(done.stdout, done.stderr)
        sys.exit(1)
    return {phase: float(ns) for phase, ns in map(str.split, done.stdout.splitlines())}


def times(args):
    """The least of each phase in several runs, in each of which native, exp and base take turns."""
    least = {}

    def least_so_far(command, softhca, libraries, *more):
        found = nanoseconds(command, softhca, libraries, *more)
        before = least.setdefault((*command, *libraries), found)
        before.update((phase, min(ns, before[phase])) for phase, ns in found.items())
        return before

    for _ in range(RUNS):
        found = list(data_path(args, *args.timed, counter=least_so_far, at_once=1))
    return {row.name: row[1:4] for row in found}


def rows(args):
    yield from data_path(args, args.hotpath, args.modern, args.many, args.threads)
    for program, objects in ((args.create, ["-n", "16"]), (args.calls, [])):
        native, base, exp = create_bench.measure(args.softhca, args.library, program, objects,
                                                 create_bench.LIBRARIES)
        for phase in sorted({*native, *base, *exp}):
            name, of = phase.removeprefix("call-").rsplit("-", 1)
            verb, kind = name.split("-", 1)
            if verb == "harness" or of != "1":
                continue
            if name == "open-close-device":
                verb, kind = "open and close", "device"
            yield Row(f"{verb} {kind}", native.get(phase), base.get(phase), exp.get(phase),
                      create_bench.TARGETS.get((verb, kind), TARGET))


def missed(row):
    """By how much the worst of the two is above the target; less than 1: it is not."""
    if not row.native:
        return 0
    judged = row.base if row.base is not None else row.exp
    if row.target >= 1 and row.exp is not None:
        judged = max(judged, row.exp)
    return judged / row.native / row.target


def text(row, took):
    def shares(native, *ours):
        yield f"{native:.1f}" if native else ""
        for n in ours:
            yield "" if n is None else f"{n / native:.2f}" if native else f"{n:.0f}"
    target = f"{row.target:.2f}" if row.native else ""
    cells = [row.name, *shares(*row[1:4]), target, *shares(*took.get(row.name, [None] * 3))]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--tables", required=True, type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--document", type=Path)
    parser.add_argument("--timed", nargs=4)
    for program in ("hotpath", "modern", "many", "threads", "create", "calls"):
        parser.add_argument(program)
    args = parser.parse_args()
    found = list(rows(args))
    took = times(args) if args.timed else {}
    above = sorted((row for row in found if missed(row) > 1), key=missed, reverse=True)
    table = ["| | native | base | exp | target | native, ns | base | exp |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    table += [text(row, took) for row in above]
    table += [text(row, took) for row in found if row not in above]
    print("\n".join(table))
    names = [row.name for row in found]
    called = set()
    for row, verbs in VERBS.items():
        if any(name == row or name.startswith(row + " ") for name in names):
            called.update(verbs.split())
    wanted, refused = served(args.tables)
    for name in sorted(refused):
        print(f"{name}: refused, ENOTSUP")
    for name in sorted(wanted & set(NOT_COUNTED)):
        print(f"{name}: not counted: {NOT_COUNTED[name]}")
    lacking = sorted(wanted - called - set(NOT_COUNTED))
    for name in lacking:
        print(f"{name}: NO ROW")
    if args.document:
        whole = args.document.read_text(encoding="utf-8")
        begin, end = "<!-- verbs -->\n", "<!-- /verbs -->\n"
        head, rest = whole.split(begin)
        args.document.write_text(head + begin + "\n".join(table) + "\n" + end +
                                 rest.split(end)[1], encoding="utf-8")
    return 1 if lacking or (args.check and above) else 0


if __name__ == "__main__":
    sys.exit(main())
