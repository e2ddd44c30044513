#!/usr/bin/env python3
"""List the structures of the public headers: api_structures.py OUTPUT HEADER...

    API_STRUCTURE(structure)
    API_MEMBER(structure, "path", "type")
    API_TAKES(verb, structure)

Members of unnamed structures have paths, ex.imm_data. The type is a structure or an
enumeration: the declared one, or that which a comment names. At a member: enum ibv_exp_x, or
IBV_EXP_X_*, what all constants begin with; above an enumeration: ibv_exp_s.member.
"""

import os
import pathlib
import re
import sys

output, *headers = sys.argv[1:]
texts = [pathlib.Path(header).read_text() for header in headers]
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
STRUCTURE = re.compile(r"^struct (ibv_exp_\w+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
ENUMERATION = re.compile(r"((?:/\*(?:(?!\*/).)*\*/\n)?)^(?:__extension__ )?enum (\w+) \{\n(.*?)^\};",
                         re.DOTALL | re.MULTILINE)
VERB = re.compile(r"\b(ibv_exp_\w+)\(([^(){};]*struct ibv_exp_[^(){};]*)\)")

beginnings, named_by = {}, {}
for text in texts:
    for comment, name, body in ENUMERATION.findall(text):
        constants = re.findall(r"^\t(\w+)", body, re.MULTILINE)
        beginnings.setdefault(os.path.commonprefix(constants).rpartition("_")[0] + "_", name)
        for member in re.findall(r"\bibv_exp_\w+\.[\w.]*\w", comment):
            named_by[member] = name


def type_of(structure, path, declared, comment):
    if member := named_by.get(f"{structure}.{path}"):
        return member
    if found := re.search(r"\b(?:enum|struct) (ibv_exp_\w+)", declared) or re.search(r"\benum (\w+)", comment):
        return found[1]
    found = re.search(r"\b(IBV_EXP_\w+_)\*", comment)
    return beginnings.get(found[1], "") if found else ""


def members(structure, body):
    """Of a structure as our headers write one: a declaration a line, a tab for each level."""
    open_at, found = [[]], []
    for line in body.splitlines():
        comment = " ".join(COMMENT.findall(line))
        code = COMMENT.sub("", line).strip()
        if code.endswith("{"):
            open_at.append([])
        elif code.startswith("}"):
            inner, name = open_at.pop(), re.match(r"\} *(\w*)", code)[1]
            open_at[-1] += [((f"{name}.{path}" if name else path), *rest) for path, *rest in inner]
            if name:
                open_at[-1].append((name, "", ""))
        elif declared := re.match(r"(.*?)\(\*(\w+)\)|(.*?)(\w+)(?:\[\w+\])?;", code):
            open_at[-1].append((declared[2] or declared[4], declared[1] or declared[3], comment))
    assert len(open_at) == 1, structure
    for path, declared, comment in open_at[0]:
        found.append((path, type_of(structure, path, declared, comment)))
    return found


lines = []
structures = {name: body for text in texts for name, body in STRUCTURE.findall(text)}
for name, body in structures.items():
    lines.append(f"API_STRUCTURE({name})")
    lines += [f'API_MEMBER({name}, "{path}", "{kind}")' for path, kind in members(name, body)]
takes = {(verb, taken) for text in texts for verb, parameters in VERB.findall(COMMENT.sub("", text))
         for taken in re.findall(r"struct (ibv_exp_\w+)", parameters) if taken in structures}
lines += [f"API_TAKES({verb}, {taken})" for verb, taken in sorted(takes)]
pathlib.Path(output).write_text("".join(line + "\n" for line in lines))
