#!/usr/bin/env python3
"""Write a text file as a C++ header: embed.py INPUT OUTPUT NAMESPACE NAME"""

import pathlib
import sys

source, output, namespace, name = sys.argv[1:]
text = pathlib.Path(source).read_text(encoding="utf-8")
# Compilers limit the length of one literal.
size = 8000
parts = [text[i:i + size] for i in range(0, len(text), size)]
literals = "\n".join(f'    R"ibvexp({part})ibvexp"' for part in parts)
pathlib.Path(output).write_text(
    f"#pragma once\n#include <string_view>\nnamespace {namespace} {{\n"
    f"inline constexpr std::string_view {name} =\n{literals};\n}}\n", encoding="utf-8")
