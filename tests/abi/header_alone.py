#!/usr/bin/env python3
"""Compile the public headers as a user would, with warnings as errors.

    header_alone.py COMPILER STANDARD INCLUDE_DIR NAMES_JSON [SYSTEM_INCLUDE]

One compiler and one language standard per run; every order of inclusion, both
ways to call, and the ways in which programs use them (idioms.h).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

EXP = "infiniband/verbs_exp.h"
BASE = "infiniband/verbs.h"
PEER = "infiniband/peer_ops.h"
OFA = "infiniband/ofa_verbs.h"
MLX5DV = "infiniband/mlx5dv.h"
EXTERN = ["-DIBVEXP_EXTERN_CALLS"]

INCLUSIONS = {
    "alone": [EXP],
    "after verbs.h": [BASE, EXP],
    "before verbs.h": [EXP, BASE],
    "peer_ops.h alone": [PEER],
    "peer_ops.h first": [PEER, EXP, BASE],
    "ofa_verbs.h alone": [OFA],
    "ofa_verbs.h first": [OFA, EXP],
    "twice": [EXP, PEER, EXP, PEER],
    "with rdma_cma.h and mlx5dv.h": ["rdma/rdma_cma.h", EXP,
                                     MLX5DV],
    "before rdma_cma.h and mlx5dv.h": [EXP, "rdma/rdma_cma.h",
                                       MLX5DV],
}

# What a program gets from verbs.h alone when include/legacy is in front.
LEGACY = [[BASE], [BASE, EXP], [EXP, BASE], ["rdma/rdma_cma.h"],
          [MLX5DV, OFA], [OFA, MLX5DV, PEER]]
LEGACY_NAMES = ("extern struct ibv_xrc_domain *a_domain;\n"
                "extern struct ibv_exp_dct *a_dct;\n"
                "extern int a_type;\nint a_type = IBV_EXP_QPT_DC_INI;\n"
                "struct around { int front; struct ibv_srq srq; };\n"
                "extern struct around *around(struct ibv_srq *srq);\n"
                "struct around *around(struct ibv_srq *srq)\n"
                "{ return container_of(srq, struct around, srq); }\n")

# Written for mlx5_hw.h or mlx5dv.h: where it finds the first, it brings the names of the
# second itself. Beside it, a program that has rdma-core's as well.
DIRECT = "infiniband/mlx5_hw.h"
OWN_DIRECT_VERBS = """
struct mlx5dv_qp { uint32_t own; };
struct mlx5dv_obj { struct { struct ibv_qp *in; struct mlx5dv_qp *out; } qp; };
enum mlx5dv_obj_type { MLX5DV_OBJ_QP = 1, MLX5DV_OBJ_CQ = 2, MLX5DV_OBJ_SRQ = 4,
                       MLX5DV_OBJ_RWQ = 8, MLX5DV_OBJ_DM = 16, MLX5DV_OBJ_AH = 32 };
int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type);
int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	struct ibv_mlx5_qp_info info;
	return obj_type & MLX5DV_OBJ_QP ? ibv_mlx5_exp_get_qp_info(obj->qp.in, &info) : -1;
}
"""
BOTH_DIRECT_VERBS = """
extern struct mlx5dv_obj an_object;
extern int (*a_function)(struct mlx5dv_obj *obj, uint64_t obj_type);
int (*a_function)(struct mlx5dv_obj *obj, uint64_t obj_type) = mlx5dv_init_obj;
"""

# External under either way to call: they have no slot.
ALWAYS_EXTERNAL = {"ibv_exp_get_device_list", "ibv_exp_rereg_mr"}
# Inline under either way to call.
ALWAYS_INLINE = {"verbs_get_exp_ctx"}
# Declared elsewhere or not at all, see differences.json.
NOT_DECLARED = {"rdma_establish", "rdma_init_qp_attr"}


def entry_points(names_json):
    names = json.loads(pathlib.Path(names_json).read_text())["entry_points"]
    return sorted(n for n in names
                  if not n.startswith(("ibv_exp_cmd_", "ibv_cmd_"))
                  and n not in NOT_DECLARED)


def source(includes, body=""):
    return "".join(f"#include <{i}>\n" for i in includes) + body + \
        "int main(void) { return 0; }\n"


def uses(names):
    """Takes every function's address, so that each body is compiled."""
    table = ", ".join(f"(function *)&{n}" for n in names)
    # The tables are read through a volatile pointer: nothing is optimised out.
    return ("typedef void function(void);\n"
            f"function *const volatile used[] = {{ {table} }};\n"
            "extern function *const volatile *used_table;\n"
            "function *const volatile *used_table = used;\n")


class Compiler:
    def __init__(self, command, standard, include, system, scratch):
        self.cplusplus = "++" in standard
        language = "c++" if self.cplusplus else "c"
        self.prefix = [command, f"-std={standard}", "-Wall", "-Wextra",
                       "-pedantic", "-Werror", f"-I{include}"]
        if system and system != "/usr/include":
            self.prefix += ["-isystem", system]
        self.language = ["-x", language]
        self.scratch = pathlib.Path(scratch)
        self.failures = 0

    def run(self, what, text, *options):
        path = self.scratch / "t.txt"
        path.write_text(text)
        done = subprocess.run([*self.prefix, *options, *self.language, str(path)],
                              capture_output=True, text=True)
        if done.returncode:
            self.failures += 1
            print(f"--- {what}\n{done.stderr}")
        return not done.returncode

    def takes(self, text):
        """Whether a text without anything of ours compiles."""
        path = self.scratch / "t.txt"
        path.write_text(text)
        return subprocess.run([*self.prefix, "-fsyntax-only", *self.language, str(path)],
                              capture_output=True).returncode == 0

    def fail(self, what):
        self.failures += 1
        print(f"--- {what}")


def undefined(path):
    out = subprocess.run(["nm", "-u", str(path)], capture_output=True, text=True,
                         check=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


def check_symbols(compiler, names):
    """A legacy binary contains no ibv_exp_ symbol; door B contains them all."""
    names = set(names)
    text = source([EXP, PEER], uses(sorted(names)))
    obj = compiler.scratch / "t.o"
    # Casting between function types is the point here.
    options = ["-O2", "-Wno-cast-function-type", "-c", "-o", str(obj)]
    xrc_and_cm = {n for n in names
                  if not n.startswith("ibv_exp_")} - ALWAYS_INLINE
    for what, flags, expected in (
            ("inline calls", [], ALWAYS_EXTERNAL | xrc_and_cm),
            ("external calls", EXTERN, names - ALWAYS_INLINE)):
        if not compiler.run(f"all functions, {what}", text, *options, *flags):
            continue
        found = undefined(obj)
        wrong = (found & names) ^ expected
        if wrong:
            compiler.fail(f"{what}: unexpected or missing symbols {sorted(wrong)}")


def main():
    command, standard, include, names_json, system = (sys.argv + [""])[1:6]
    with tempfile.TemporaryDirectory() as scratch:
        compiler = Compiler(command, standard, include, system, scratch)
        # Its inlines call what strict modes do not declare, which newer compilers refuse.
        direct = compiler.takes(source([MLX5DV]))
        if not direct:
            print(f"without {MLX5DV}, which does not compile by itself")
        for what, includes in INCLUSIONS.items():
            if MLX5DV in includes and not direct:
                continue
            for flags in ([], EXTERN):
                compiler.run(f"{what} {' '.join(flags)}", source(includes),
                             "-fsyntax-only", *flags)
        for includes in LEGACY:
            if MLX5DV in includes and not direct:
                continue
            text = source(includes, LEGACY_NAMES)
            legacy = f"-I{pathlib.Path(include) / 'legacy'}"
            what = f"include/legacy, {includes}"
            compiler.run(what, text, "-fsyntax-only", legacy)
            if compiler.cplusplus:
                compiler.run(f'{what}, inside extern "C"',
                             f'extern "C" {{\n{text}}}\n', "-fsyntax-only", legacy)
        legacy = f"-I{pathlib.Path(include) / 'legacy'}"
        compiler.run("mlx5_hw.h and mlx5dv_ names of the program's own",
                     source([DIRECT], OWN_DIRECT_VERBS), "-fsyntax-only", legacy)
        if direct:
            compiler.run("mlx5dv.h in front of mlx5_hw.h",
                         source([MLX5DV, DIRECT], BOTH_DIRECT_VERBS), "-fsyntax-only", legacy)
        idioms = pathlib.Path(__file__).with_name("idioms.h").read_text()
        for flags in ([], EXTERN):
            # Optimised: the warnings that need data flow come with it.
            compiler.run(f"idioms {' '.join(flags)}", source([EXP], idioms),
                         "-O2", "-S", "-o", "/dev/null", *flags)
        if compiler.cplusplus:
            compiler.run('inside extern "C"', f'extern "C" {{\n'
                         f"{source([EXP, PEER])}}}\n", "-fsyntax-only")
        check_symbols(compiler, entry_points(names_json))
    return 1 if compiler.failures else 0


if __name__ == "__main__":
    sys.exit(main())
