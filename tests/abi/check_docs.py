#!/usr/bin/env python3
"""Every public function has a description that says what a caller must know.

    check_docs.py INCLUDE_DIR NAMES_JSON

Looks for the comment "name - what it does" in front of each declaration, and
in it for what the call returns and where the rule comes from.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True  # the source directory stays as it is

from header_alone import entry_points  # noqa: E402

COMMENT = re.compile(r"/\*\n \* (\w+)(?:\(\))? - (.*?)\*/\n(.*?);", re.S)


def main():
    include, names_json = sys.argv[1:3]
    found, problems = {}, []
    for path in sorted((pathlib.Path(include) / "infiniband").glob("*.h")):
        for name, text, declaration in COMMENT.findall(path.read_text()):
            found[name] = text
            if not re.search(rf"\b{name}\(", declaration):
                problems.append(f"{path.name}: {name}: not followed by its declaration")
            for word in ("Returns", "Rule:"):
                if word not in text:
                    problems.append(f"{path.name}: {name}: does not say {word!r}")
    for name in entry_points(names_json):
        if name not in found:
            problems.append(f"{name}: no description")
    print("\n".join(problems) or f"{len(found)} descriptions")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
