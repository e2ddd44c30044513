#!/usr/bin/env python3
"""List the names of the API that the public headers have, rows or not:
api_names.py OUTPUT HEADER..."""

import pathlib
import re
import sys

output, *headers = sys.argv[1:]
names = set()
for header in headers:
    names.update(re.findall(r"\b(?:ibv_exp_|IBV_EXP_)\w+", pathlib.Path(header).read_text()))
pathlib.Path(output).write_text("".join(f'"{name}",\n' for name in sorted(names)))
