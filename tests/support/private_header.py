#!/usr/bin/env python3
"""Writes a C++ header with the private structures of the legacy provider, as a program
compiled with mlx5_hw.h had them.

    private_header.py PRIVATE_LAYOUTS.JSON OUTPUT.h

One structure for each release, with the provider's structures as members: types that
are no structures of the provider become bytes, pointers or integers of the same size.
"""

import json
import re
import sys

RELEASES = {"Release34": "3.4", "Release49": "4.9"}
INTEGERS = {1: "std::uint8_t", 2: "std::uint16_t", 4: "std::uint32_t", 8: "std::uint64_t"}


def declare(member, known):
    name, size, kind = member["name"] or "unnamed", member["size"], member["type"]
    pointer = re.fullmatch(r"struct (\w+) \*", kind)
    if pointer and pointer[1] in known:
        return f"struct {pointer[1]} *{name}"
    if kind.endswith("*"):
        return f"void *{name}"
    whole = re.fullmatch(r"struct (\w+)", kind)
    if whole and whole[1] in known:
        return f"struct {whole[1]} {name}"
    if not whole and not kind.endswith("]") and size in INTEGERS:
        return f"{INTEGERS[size]} {name}"
    return f"std::uint8_t {name}[{size}]"


def structure(name, facts, known):
    yield f"  struct {name} {{"
    at = 0
    for member in facts["members"]:
        if member["offset"] > at:
            yield f"    std::uint8_t unused_{at}[{member['offset'] - at}];"
        yield f"    {declare(member, known)};"
        at = member["offset"] + member["size"]
    if facts["size"] > at:
        yield f"    std::uint8_t unused_{at}[{facts['size'] - at}];"
    yield "  };"
    yield f"  static_assert(sizeof({name}) == {facts['size']});"
    for member in facts["members"]:
        if member["name"]:
            yield f"  static_assert(offsetof({name}, {member['name']}) == {member['offset']});"


def ordered(layouts):
    """Structures after those that they hold."""
    done = []

    def visit(name):
        if name in done:
            return
        for member in layouts[name]["members"]:
            whole = re.fullmatch(r"struct (\w+)", member["type"])
            if whole and whole[1] in layouts and whole[1] != name:
                visit(whole[1])
        done.append(name)

    for name in layouts:
        visit(name)
    return done


def main():
    source, output = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        facts = json.load(file)
    lines = ["#pragma once", "#include <cstddef>", "#include <cstdint>"]
    for title, release in RELEASES.items():
        layouts = {name: of for name, of in {**facts["4.9"], **facts[release]}.items()
                   if name.startswith(("mlx5_", "general_", "ctrl_", "data_", "mpw_", "odp_",
                                       "verbs_"))}
        lines.append(f"struct {title} {{")
        lines += [f"  struct {name};" for name in layouts]
        for name in ordered(layouts):
            lines += structure(name, layouts[name], layouts)
        lines.append("};")
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
