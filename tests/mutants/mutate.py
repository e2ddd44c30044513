#!/usr/bin/env python3
"""Writes every mutant of the list into a copy of the sources, to be chosen at run time.

    mutate.py LIST SOURCE_ROOT TREE
    mutate.py LIST SOURCE_ROOT --check

LIST is mutants.toml. TREE becomes a copy of the repository's files in which the
mutants lie; files that stay as they are keep their time. --check only sees whether
every mutant still finds its place. A mutant replaces a piece of text that stands once in its file (or once in its
context, which stands once in the file):

    statement   "to.a = from.a;"  ->  if (alive) { new } else { old }
    expression  "from.a"          ->  (alive ? (new) : (old))

A piece that ends with a semicolon is a statement, and so are a block and a row of a macro. So one build serves
all of them; ALIVE_MUTANT names the one that is alive, by its place in the list
from 1 on.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path


# A row of a macro list stands where a statement does.
ROW = re.compile(r"IBVEXP_[A-Z_]+\([^()]*\)")


class ListError(Exception):
    pass


def load(path):
    """The mutants of a list, in order, with the tests that have to notice each."""
    listed = tomllib.loads(Path(path).read_text())
    mutants = []
    names = set()
    for family, content in listed["family"].items():
        for mutant in content["mutant"]:
            name = f"{family}.{mutant['name']}"
            if name in names:
                raise ListError(f"{name} stands twice in the list")
            names.add(name)
            mutants.append({
                "number": len(mutants) + 1,
                "name": name,
                "file": mutant.get("file", content.get("file")),
                "old": mutant["old"].strip("\n"),
                "new": mutant["new"].strip("\n"),
                "context": mutant.get("context", mutant["old"]).strip("\n"),
                "tests": mutant.get("tests", content.get("tests")),
                "survives": mutant.get("survives"),
            })
    return mutants


def place(text, mutant):
    """Where the piece stands: start and end."""
    if text.count(mutant["context"]) != 1:
        raise ListError(f"{mutant['name']}: its text stands {text.count(mutant['context'])} times in "
                        f"{mutant['file']}: {mutant['context'].splitlines()[0]}")
    if mutant["context"].count(mutant["old"]) != 1:
        raise ListError(f"{mutant['name']}: its text does not stand once in its context")
    start = text.index(mutant["context"]) + mutant["context"].index(mutant["old"])
    return start, start + len(mutant["old"])


def is_statement(mutant):
    old = mutant["old"].strip()
    return old.endswith(";") or old.endswith("}") and ";" in old or ROW.fullmatch(old) is not None


def has_comma(expression):
    """Whether it is a list, outside of its brackets."""
    depth = 0
    for character in re.sub(r"\"[^\"]*\"|'.'|<[^<>()]*>", "", expression):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            return True
    return False


def check_form(text, start, mutant):
    """A piece that is half of a statement or of an expression would not compile."""
    old, new = mutant["old"].strip(), mutant["new"].strip()
    if any(piece.count(left) != piece.count(right) for piece in (old, new)
           for left, right in ("()", "{}", "[]")):
        raise ListError(f"{mutant['name']}: brackets are not closed")
    # mutants.h changes nothing that the compiler evaluates.
    if re.search(r"\bconstexpr\b[^;{}]*=[^;{}]*$", text[:start]):
        raise ListError(f"{mutant['name']}: a constant keeps its value; mutate where it is used")
    if is_statement(mutant):
        before = re.sub(r"//.*", "", text[:start]).rstrip()
        if re.match(r"else\b|:(?!:)|[?.,=<>&|]", old) or not re.search(r"(^|[;{}):\]]|\belse)$", before):
            raise ListError(f"{mutant['name']}: ends as a statement and does not begin as one")
    elif has_comma(old):
        raise ListError(f"{mutant['name']}: two arguments are no expression; mutate one or the whole call")
    elif not old or not new or re.match(r"&&|[|=,?<>]|:(?!:)|(if|for|while|switch|do|default|case|return)\b|.*;", old) or \
            re.search(r"([&|=,?:<>({]|[^=<>!]=[^=].*)$", old):
        raise ListError(f"{mutant['name']}: neither a statement nor an expression")


def switchable(mutant):
    old, new, number = mutant["old"], mutant["new"], mutant["number"]
    if is_statement(mutant):
        return f"if (IBVEXP_MUTANT({number})) {{ {new} }} else {{ {old} }}"
    return f"(IBVEXP_MUTANT({number}) ? ({new}) : ({old}))"


def mutate(text, mutants):
    """The text of a file with all of its mutants. Two may not overlap."""
    places = sorted((place(text, m) + (m,) for m in mutants), key=lambda p: p[0])
    out, end = [], 0
    for start, stop, mutant in places:
        if start < end:
            raise ListError(f"{mutant['name']} overlaps the mutant before it")
        check_form(text, start, mutant)
        out += [text[end:start], switchable(mutant)]
        end = stop
    return "".join(out) + text[end:]


def copy(root, tree, changed):
    """All files of the repository, with other contents for some."""
    names = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True,
                           capture_output=True, text=True).stdout.split("\0")
    # What is gone from there goes here, but for what was built.
    for stale in tree.rglob("*"):
        if stale.is_file() and stale.relative_to(tree).parts[0] != "build" and \
                str(stale.relative_to(tree)) not in names:
            stale.unlink()
    for name in filter(None, names):
        source, target = root / name, tree / name
        if not source.is_file():
            continue
        content = changed.get(name) or source.read_bytes()
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(source.stat().st_mode)


def main():
    mutants = load(sys.argv[1])
    root = Path(sys.argv[2])
    header = Path(__file__).with_name("mutants.h").resolve()
    changed = {}
    faults = 0
    for name in sorted({m["file"] for m in mutants}):
        try:
            text = mutate((root / name).read_text(), [m for m in mutants if m["file"] == name])
            changed[name] = f'#include "{header}"\n#line 1\n{text}'.encode()
        except (ListError, FileNotFoundError) as error:
            print(error, file=sys.stderr)
            faults += 1
    if faults == 0:
        if sys.argv[3] != "--check":
            copy(root, Path(sys.argv[3]), changed)
        print(len(mutants), "mutants")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
