#!/usr/bin/env python3
"""Each of cases/NAME.before becomes NAME.after, byte by byte, with these exit statuses.

    cases_test.py MIGRATE [--update]

--update writes what is made now; read the difference before you commit it.
"""

import difflib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = Path(__file__).parent / "cases"
# 1: something is left.
STATUS = {"domains.c": 0, "fields.c": 0, "inactive.c": 1, "initiator.c": 0, "layout.c": 0, "left.c": 1, "macros.c": 1,
          "own.c": 0, "plus_plus.cpp": 0, "pointers.cpp": 0, "wider.c": 0}

def migrate(tool, source, *options):
    return subprocess.run([os.path.abspath(tool), source, *options], capture_output=True, text=True)


def check(tool, name, folder, update):
    """Faults of one case."""
    source, report = Path(folder, name), Path(folder, "report.json")
    source.write_text((CASES / f"{name}.before").read_text())
    done = migrate(tool, source, "--write", "--report", report)
    if done.returncode != STATUS[name]:
        yield f"{name}: exit status {done.returncode}: {done.stderr}"
    made = source.read_text()
    after = CASES / f"{name}.after"
    if update:
        after.write_text(made)
    wanted = after.read_text()
    if made != wanted:
        yield "".join(difflib.unified_diff(wanted.splitlines(True), made.splitlines(True),
                                           f"{name}.after", "made"))
    said = json.loads(report.read_text())
    if said["whole"] != (STATUS[name] == 0):
        yield f"{name}: whole: {said['whole']}"
    if said["uses"] != said["converted"] + said["left"]:
        yield f"{name}: {said['uses']} are not {said['converted']} and {said['left']}"
    for change in said["files"][0]["changes"]:
        if change["row"] and change["row"] != change["legacy"]:
            yield f"{name}: {change}"
    again = migrate(tool, source)
    if again.returncode != STATUS[name] or again.stdout:
        yield f"{name}: a second run changes it: {again.stdout}"


def trouble(tool, folder):
    """Wrong arguments change nothing."""
    source = Path(folder, "broken.c")
    text = "#include <infiniband/verbs_exp.h>\nint f(void) { return ibv_exp_nothing; }\n"
    source.write_text(text)
    done = migrate(tool, source, "--write")
    if done.returncode != 2 or source.read_text() != text:
        yield f"broken.c: {done.returncode}: {source.read_text()}"
    Path(folder, "words").write_text("one two\n")
    Path(folder, "none.c").write_text("int x;\n")
    Path(folder, "off.c").write_text("#ifdef WITH\nint x = IBV_EXP_QP_STATE;\n#endif\n")
    Path(folder, "gone.c").write_text('#include "gone.h"\n')
    for words, status, said in ((["words"], 2, "words is no C or C++ source by its name"),
                                (["none.c"], 0, "no experimental verbs in these sources"),
                                (["off.c"], 1, "\n1 use is not compiled with these flags\n"),
                                (["gone.c"], 2, "(-- -I FOLDER)"),
                                (["none.c", "-p", "."], 2, "there is no compile_commands.json in .")):
        done = subprocess.run([os.path.abspath(tool), *words], capture_output=True, text=True, cwd=folder)
        if done.returncode != status or said not in done.stderr or "100.0 %" in done.stderr:
            yield f"{words}: {done.returncode}: {done.stderr}"
    for words, said in ((["nowhere.c"], "ibvexp: migrate: SOURCES: File does not exist: nowhere.c"),
                        (["--wirte", "broken.c"], "ibvexp: unknown option --wirte; did you mean --write?"),
                        ([], "ibvexp: migrate: SOURCES is required")):
        done = subprocess.run([os.path.abspath(tool), *words], capture_output=True, text=True, cwd=folder)
        if done.returncode != 2 or done.stderr != f"{said}\nibvexp migrate --help lists what there is\n":
            yield f"{words}: {done.returncode}: {done.stderr}"


def numbers(tool, folder):
    """Singular and plural follow the count."""
    source = Path(folder, "one.c")
    for uses in 1, 2:
        source.write_text("#include <infiniband/verbs_exp.h>\n" + "".join(
            f"int f{n}(void) {{ return IBV_EXP_QP_STATE; }}\n" for n in range(uses)))
        said = migrate(tool, source).stderr
        if f"{uses} of {uses} use{'s' if uses > 1 else ''} converted" not in said:
            yield f"one.c: {said}"


def fails_afterwards(tool, folder):
    """A result that does not compile is not written."""
    source = Path(folder, "size.c")
    text = ("#include <infiniband/verbs_exp.h>\n"
            "_Static_assert(sizeof(struct ibv_exp_device_attr) > 480, \"of its time\");\n")
    source.write_text(text)
    done = migrate(tool, source, "--write")
    if done.returncode != 2 or source.read_text() != text or "nothing was written" not in done.stderr:
        yield f"size.c: {done.returncode}: {done.stderr}{source.read_text()}"
    if "ibv_device_attr_ex" not in migrate(tool, source).stdout:
        yield "size.c: not shown"


def no_helper(tool, folder):
    """With --no-helper no helper header is included."""
    source = Path(folder, "memory.c")
    source.write_text("#include <infiniband/verbs_exp.h>\n"
                      "struct ibv_mr *f(struct ibv_exp_reg_mr_in *in)\n"
                      "{\n\treturn ibv_exp_reg_mr(in);\n}\n")
    done = migrate(tool, source, "--no-helper", "--write")
    if done.returncode != 1 or "ibvexp_" in source.read_text():
        yield f"memory.c: {done.returncode}: {source.read_text()}"


def database(tool, folder):
    """Flags come from compile_commands.json, and the header beside changes once."""
    Path(folder, "both.h").write_text("#include <infiniband/verbs_exp.h>\n"
                                      "static const int mask = IBV_EXP_QP_STATE;\n")
    for name in "ab":
        Path(folder, f"{name}.c").write_text('#include "both.h"\n#ifndef WITH\n#error no flag\n'
                                             f"#endif\nint {name}(void) {{ return mask; }}\n")
    commands = [{"directory": folder, "file": f"{n}.c", "command": f"cc -DWITH -c {n}.c"}
                for n in "ab"]
    Path(folder, "compile_commands.json").write_text(json.dumps(commands))
    done = migrate(tool, Path(folder, "a.c"), Path(folder, "b.c"), "-p", folder, "--write",
                   "--report", Path(folder, "report.html"))
    both = Path(folder, "both.h").read_text()
    if done.returncode or both != ("#include <infiniband/verbs.h>\n"
                                   "static const int mask = IBV_QP_STATE;\n"):
        yield f"both.h: {done.returncode}: {done.stderr}{both}"
    if "IBVEXP1001" not in Path(folder, "report.html").read_text():
        yield "report.html"


def without_command(tool, folder):
    """A source that the database does not name is an error, not a source without experimental verbs."""
    source = Path(folder, "a.c")
    source.write_text("#include <infiniband/verbs_exp.h>\nint x = IBV_EXP_QP_STATE;\n")
    Path(folder, "compile_commands.json").write_text("[]")
    done = migrate(tool, source, "-p", folder)
    if done.returncode != 2 or f"a.c is not in {folder}/compile_commands.json" not in done.stderr:
        yield f"{done.returncode}: {done.stderr}"


def places(tool, folder):
    """Links to sources, lines that end as those of Windows do, and what cannot be written."""
    text = ("#include <infiniband/verbs_exp.h>\nint f(struct ibv_context *c)\n{\n"
            "\tstruct ibv_exp_device_attr a = { 0 };\n\ta.comp_mask = IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE;\n"
            "\treturn ibv_exp_query_device(c, &a);\n}\n")
    source, link = Path(folder, "own/a.c"), Path(folder, "link.c")
    source.parent.mkdir()
    link.symlink_to(source)
    for ends in "\n", "\r\n":
        source.write_text(text.replace("\n", ends), newline="")
        done = migrate(tool, link, "--write")
        made = source.read_bytes().decode()
        wanted = ends.join(("{", "\tstruct ibv_device_attr_ex a = { 0 };", "\treturn ibv_query_device_ex(c, NULL, &a);"))
        if done.returncode or wanted not in made or not link.is_symlink():
            yield f"{ends!r}: {done.returncode}: {done.stderr}{made!r}"
    source.write_text(text)
    Path(folder, "file").write_text("")
    done = migrate(tool, source, "--out-root", Path(folder, "file/x"))
    if done.returncode != 2 or f"cannot create {folder}/file/x: Not a directory" not in done.stderr:
        yield f"{done.returncode}: {done.stderr}"
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", os.path.abspath(tool), source], capture_output=True,
                          text=True)
    if done.returncode != 2 or "standard output is closed" not in done.stderr:
        yield f"{done.returncode}: {done.stderr}"


# accelio's way: each branch defines what the sources use.
BRANCHES = """\
#include <infiniband/verbs.h>
#ifdef HAVE_MPAGES_EXP
#include <infiniband/verbs_exp.h>
#define my_device_attr ibv_exp_device_attr
#define my_query_device ibv_exp_query_device
#else
#define my_device_attr ibv_device_attr
#define my_query_device ibv_query_device
#endif
"""


def portable(tool, folder):
    """A source that compiles with rdma-core alone without a macro still does afterwards, or is left alone."""
    header, source, config = (Path(folder, name) for name in ("own.h", "own.c", "config.h"))
    header.write_text(BRANCHES)
    text = ('#include "config.h"\n#include "own.h"\nint f(struct ibv_context *c)\n{\n'
            "\tstruct my_device_attr attr;\n\n\treturn my_query_device(c, &attr);\n}\n")
    source.write_text(text)
    config.write_text("#define HAVE_MPAGES_EXP 1\n")
    report = Path(folder, "report.json")
    done = migrate(tool, source, "--write", "--report", report)
    if done.returncode != 1 or source.read_text() != text or header.read_text() != BRANCHES:
        yield f"own.c: {done.returncode}: {done.stderr}{source.read_text()}"
    if "IBVEXP1106 HAVE_MPAGES_EXP" not in done.stderr or "\n0 of 3 uses" not in done.stderr:
        yield f"own.c: {done.stderr}"
    # Uses that each branch has for itself are converted.
    text = ('#include "config.h"\n#include <infiniband/verbs.h>\n#ifdef HAVE_MPAGES_EXP\n'
            "#include <infiniband/verbs_exp.h>\n#endif\nint f(struct ibv_context *c)\n{\n"
            "#ifdef HAVE_MPAGES_EXP\n\tstruct ibv_exp_device_attr attr;\n\n"
            "\treturn ibv_exp_query_device(c, &attr);\n#else\n\tstruct ibv_device_attr attr;\n\n"
            "\treturn ibv_query_device(c, &attr);\n#endif\n}\n")
    source.write_text(text)
    done = migrate(tool, source, "--write")
    if done.returncode or "ibv_query_device_ex(c, NULL, &attr)" not in source.read_text():
        yield f"each: {done.returncode}: {done.stderr}{source.read_text()}"
    # Where the flags lead to the experimental header, nothing is known of rdma-core alone.
    source.write_text("#include <infiniband/verbs_exp.h>\n#ifdef WITH\nint x = IBV_EXP_QP_STATE;\n#endif\n"
                      "int f(struct ibv_exp_device_attr *a)\n{\n\treturn a->max_dm_size + a->ooo_caps.rc_caps;\n}\n")
    done = migrate(tool, source, "--", f"-I{Path(__file__).parents[2] / 'include'}")
    if done.returncode != 1 or "IBVEXP1106" in done.stderr or "ibv_device_attr_ex" not in done.stdout:
        yield f"flags: {done.returncode}: {done.stderr}"


def second_pass(tool, folder):
    """Other flags convert the rest, in the wider form that the first run chose, and take its comment."""
    source = Path(folder, "two.c")
    source.write_text("#include <infiniband/verbs_exp.h>\n#ifdef STAMPED\n"
                      "int stamped(struct ibv_cq *cq, struct ibv_exp_wc *wc)\n{\n"
                      "\treturn ibv_exp_poll_cq(cq, 1, wc, sizeof(*wc)) ? (int)wc->timestamp : 0;\n}\n"
                      "#else\nint plain(struct ibv_cq *cq, struct ibv_exp_wc *wc)\n{\n"
                      "\treturn ibv_exp_poll_cq(cq, 1, wc, sizeof(*wc));\n}\n#endif\n")
    first = migrate(tool, source, "--write", "--", "-DSTAMPED")
    if first.returncode != 1 or "/* IBVEXP1104 ibv_exp_poll_cq" not in source.read_text():
        yield f"first: {first.returncode}: {first.stderr}{source.read_text()}"
    second = migrate(tool, source, "--write")
    made = source.read_text()
    if second.returncode or "IBVEXP" in made or made.count("ibvexp_poll_cq(cq, 1, wc)") != 2:
        yield f"second: {second.returncode}: {second.stderr}{made}"


def guarded(tool, folder):
    """A helper header is included after the others, under the #if of its uses."""
    header, source = Path(folder, "base.h"), Path(folder, "base.c")
    header.write_text("#include <infiniband/verbs.h>\n#ifdef WITH_EXP\n"
                      "#include <infiniband/verbs_exp.h>\n#endif\n")
    source.write_text('#include "base.h"\n#include <stdio.h>\n#ifdef WITH_EXP\n'
                      "struct ibv_mr *f(struct ibv_exp_reg_mr_in *in)\n{\n"
                      "\treturn ibv_exp_reg_mr(in);\n}\n#endif\nint g(void) { return puts(\"\"); }\n")
    done = migrate(tool, source, "--write", "--", "-DWITH_EXP")
    if done.returncode or ('#include <stdio.h>\n#ifdef WITH_EXP\n#include <ibvexp_migrate.h>\n#endif\n'
                           not in source.read_text()):
        yield f"{done.returncode}: {done.stderr}{source.read_text()}"


CONFIGURE = """\
AC_CHECK_HEADERS([infiniband/verbs_exp.h], [HAVE_VERBS_EXP=yes], [HAVE_VERBS_EXP=no])
dnl IBV_EXP_ACCESS_ON_DEMAND in a comment
AC_TRY_LINK([#include <infiniband/verbs_exp.h>], [int x = IBV_EXP_ACCESS_ON_DEMAND;], [odp=yes])
AC_CHECK_LIB([ibverbs], [ibv_exp_create_cq], [x=yes])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([
  # include <infiniband/verbs_exp.h>
  ], [return IBV_EXP_ACCESS_ON_DEMAND;])], [odp=yes])
# include infiniband/verbs_exp.h in a comment
LIBS="-libverbs $LIBS"
"""


def build(tool, folder):
    """Build files change where one line does it; --out-root and --backup keep what was there."""
    source, configure = Path(folder, "src/mr.c"), Path(folder, "configure.ac")
    source.parent.mkdir()
    text = ("#include <infiniband/verbs_exp.h>\nstruct ibv_mr *f(struct ibv_exp_reg_mr_in *in)\n{\n"
            "\treturn ibv_exp_reg_mr(in);\n}\n")
    source.write_text(text)
    configure.write_text(CONFIGURE)
    Path(folder, "CMakeLists.txt").write_text("target_link_libraries(app ibverbs)\n")
    done = migrate(tool, source, "--out-root", Path(folder, "out"))
    if done.returncode != 1 or source.read_text() != text or configure.read_text() != CONFIGURE:
        yield f"--out-root: {done.returncode}: {done.stderr}"
    made = Path(folder, "out/configure.ac").read_text().splitlines()
    wanted = [l if l.endswith("in a comment") else
              l.replace("verbs_exp.h", "verbs.h").replace("IBV_EXP_", "IBV_").replace("-lib", "-lmlx5 -lib")
              for l in CONFIGURE.splitlines()]
    if made != wanted or "ibvexp_reg_mr" not in Path(folder, "out/src/mr.c").read_text():
        yield "\n".join(made)
    if Path(folder, "out/CMakeLists.txt").read_text() != "target_link_libraries(app mlx5 ibverbs)\n":
        yield "CMakeLists.txt"
    if "configure.ac:4: IBVEXP1107 ibv_exp_create_cq" not in done.stderr or "-lmlx5" not in done.stderr:
        yield done.stderr
    done = migrate(tool, source, "--write", "--backup")
    if Path(folder, "src/mr.c.orig").read_text() != text or source.read_text() == text:
        yield f"--backup: {done.returncode}: {done.stderr}"


def headers(tool, folder):
    """A header in another folder: what it declares is the program's own, and with --headers it changes."""
    Path(folder, "include").mkdir()
    Path(folder, "src").mkdir()
    header, source = Path(folder, "include/wrap.h"), Path(folder, "src/wrap.cpp")
    header.write_text("#include <memory>\n#include <infiniband/verbs_exp.h>\nnamespace wrap {\n"
                      "struct ibv_exp_wq_deleter {\n"
                      "  void operator()(ibv_exp_wq *wq) { ibv_exp_destroy_wq(wq); }\n};\n"
                      "using ibv_exp_wq_t = std::unique_ptr<ibv_exp_wq, ibv_exp_wq_deleter>;\n"
                      "const char *ibv_exp_text(int);\n}\n")
    text = ('#include "wrap.h"\nwrap::ibv_exp_wq_t make(ibv_context *c, ibv_exp_wq_init_attr *attr) {\n'
            "  return wrap::ibv_exp_wq_t(ibv_exp_create_wq(c, attr));\n}\n"
            "const char *text() { return wrap::ibv_exp_text(IBV_EXP_WQS_RDY); }\n")
    source.write_text(text)
    flags = ("--", "-xc++", "-std=c++17", f"-I{folder}/include")
    report = Path(folder, "report.json")
    done = migrate(tool, source, "--report", report, *flags)
    alone = json.loads(report.read_text())
    if done.returncode == 1 or alone["files"][0]["left"]:
        yield f"alone: {done.returncode}: {alone}"
    done = migrate(tool, source, "--headers", Path(folder, "include"), "--write", *flags)
    if done.returncode or "ibv_exp_destroy" in header.read_text() or "verbs_exp.h" in header.read_text():
        yield f"with --headers: {done.returncode}: {done.stderr}{header.read_text()}"
    wanted = (text.replace("ibv_exp_create_wq", "ibv_create_wq").replace("IBV_EXP_WQS", "IBV_WQS")
              .replace("ibv_exp_wq_init_attr", "ibv_wq_init_attr"))
    if source.read_text() != wanted:
        yield source.read_text()


def main():
    tool = sys.argv[1]
    faults = []
    listed = {p.stem for p in CASES.glob("*.before")}
    assert listed == set(STATUS), listed ^ set(STATUS)
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        for name in sorted(STATUS):
            faults += check(tool, name, folder, "--update" in sys.argv)
        for other in (trouble, numbers, fails_afterwards, no_helper, database, without_command, places, portable,
                      second_pass, guarded, build, headers):
            sub = Path(folder, other.__name__)
            sub.mkdir()
            faults += [f"{other.__name__}: {fault}" for fault in other(tool, str(sub))]
    print(*faults, sep="\n")
    return 1 if faults else 0


sys.exit(main())
