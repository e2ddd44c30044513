#!/usr/bin/env python3
"""Build the file that calls every verb and compare the audit of the stripped binary
with the debug information.

    recall.py RECALL SOURCE INCLUDE COMPILER OPTION...

Twice: with our headers, and with the look-up as a macro, which is how legacy
headers have it: compilers then leave other functions out of line.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
MACRO = """\
#define verbs_get_exp_ctx_op(ctx, op)                                          \\
	({                                                                     \\
		struct verbs_context_exp *legacy_table = verbs_get_exp_ctx(ctx); \\
		(!legacy_table ||                                              \\
		 legacy_table->sz < sizeof(*legacy_table) -                    \\
				    offsetof(struct verbs_context_exp, op) ||  \\
		 !legacy_table->op)                                            \\
			? NULL                                                 \\
			: legacy_table;                                        \\
	})
"""


def legacy_headers(include, folder):
    """A copy of the headers whose look-up is a macro."""
    copy = folder / "include"
    shutil.copytree(include, copy)
    header = copy / "infiniband" / "verbs_exp_table.h"
    text = header.read_text()
    begin = text.index("#define verbs_get_exp_ctx_op")
    end = text.index("\n\n", begin)
    header.write_text(text[:begin] + MACRO + text[end:])
    return copy


def main():
    recall, source, include, compiler, *options = sys.argv[1:]
    if shutil.which(compiler) is None:
        print(f"{compiler} is not installed")
        return SKIPPED
    if "-fuse-ld=lld" in options and shutil.which("ld.lld") is None:
        print("lld is not installed")
        return SKIPPED
    strip = "strip"
    if compiler.startswith("aarch64-linux-gnu-"):
        # Its libibverbs need not be there: nothing is run. The headers are any machine's.
        strip = "aarch64-linux-gnu-strip"
        options += ["-idirafter", "/usr/include", "-Wl,--unresolved-symbols=ignore-all"]
    else:
        options += ["-libverbs"]
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for headers in (pathlib.Path(include), legacy_headers(include, folder)):
            program = folder / "program"
            subprocess.run([compiler, "-x", "c++", "-std=gnu++17", "-g", "-w", "-I", headers, source,
                            "-o", program, *options], check=True)
            stripped = folder / "stripped"
            subprocess.run([strip, "-o", stripped, program], check=True)
            failed |= subprocess.run([recall, program, stripped], check=False).returncode != 0
    return 1 if failed else 0


sys.exit(main())
