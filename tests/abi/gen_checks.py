#!/usr/bin/env python3
"""Write the ABI checks as C source that compiles as C and as C++.

    gen_checks.py FACTS_DIR DIFFERENCES OUTPUT

Each fact of the releases compared becomes a check, except where
differences.json says that ours differs and why: then ours is compared with
what is said there. An entry there that no fact needs, or whose legacy value is
not the recorded one, is an error, so that the list cannot grow stale.
"""

import json
import pathlib
import sys

FULL = ("4.6", "4.9")
# Where we declare something ourselves, types are compared too, not only sizes.
OURS = ("verbs_exp.h", "peer_ops.h", "ofa_verbs.h")


class Facts:
    """fact kind and name -> value -> releases, in order of appearance."""

    def __init__(self):
        self.table = {}

    def add(self, release, fact, name, value, **code):
        entry = self.table.setdefault((fact, name), {"values": {}, **code})
        entry["values"].setdefault(value, []).append(release)


def walk(members, base, path):
    for name, offset, size, kind in members:
        full = path if name is None else f"{path}.{name}" if path else name
        if name is not None:
            yield full, base + offset, size, kind if isinstance(kind, str) else None
        if isinstance(kind, dict):
            (nested,) = kind.values()
            yield from walk(nested, base + offset, full)


def collect(facts_dir):
    facts = Facts()
    for release in FULL:
        raw = json.loads((facts_dir / f"mlnx-ofed-{release}.json").read_text())
        add_structs(facts, release, raw)
        add_enums(facts, release, raw)
        for name, macro in raw["macro_constants"].items():
            facts.add(release, "value", name, macro["value"], ours=f"(long long)({name})")
            facts.add(release, "width", name, macro["type_size"], ours=f"sizeof({name})")
        for name in raw["function_like_macros"]:
            facts.add(release, "definition", name, 1, macro=name)
        for name, typedef in raw["typedefs"].items():
            facts.add(release, "type", name, typedef["type"],
                      same=f"*({name} *)0")
        for name, function in raw["functions"].items():
            if function["header"] in OURS:
                facts.add(release, "type", f"{name}()", function["type"],
                          same=f"{name}", function=name)
            else:
                facts.add(release, "existence", f"{name}()", 1,
                          ours=f"sizeof(&{name}) == sizeof(void (*)(void))",
                          function=name)
    add_slots(facts, json.loads((facts_dir / "slots.json").read_text()))
    add_names(facts, json.loads((facts_dir / "names.json").read_text()))
    return facts


# These grow at the front: sizes differ by design, places count from the end.
GROW_AT_FRONT = ("struct verbs_context", "struct verbs_context_exp")


def add_structs(facts, release, raw):
    for tag, struct in raw["structs"].items():
        facts.add(release, "size", tag, struct["size"], ours=f"sizeof({tag})",
                  struct=tag)
        if tag in GROW_AT_FRONT:
            for name, offset, _, _ in struct["members"]:
                facts.add(release, "distance from the end", f"{tag}.{name}",
                          struct["size"] - offset,
                          ours=f"sizeof({tag}) - offsetof({tag}, {name})",
                          struct=tag, member=name)
        facts.add(release, "alignment", tag, struct["align"],
                  ours=f"ALIGN_OF({tag})", struct=tag)
        for path, offset, size, kind in walk(struct["members"], 0, ""):
            name = f"{tag}.{path}"
            where = {"struct": tag, "member": path}
            if tag != "struct verbs_context":
                facts.add(release, "offset", name, offset,
                          ours=f"offsetof({tag}, {path})", **where)
            facts.add(release, "size", name, size,
                      ours=f"sizeof(MEMBER({tag}, {path}))", **where)
            if kind and struct["header"] in OURS:
                facts.add(release, "type", name, kind,
                          same=f"MEMBER({tag}, {path})", **where)


def add_enums(facts, release, raw):
    for tag, enum in raw["enums"].items():
        full = f"enum {tag}"
        facts.add(release, "size", full, enum["size"], ours=f"sizeof({full})")
        if enum["header"] in OURS:
            facts.add(release, "sign", full, int(enum["signed"]),
                      ours=f"NEGATIVE({full})")
        for name, value in enum["constants"].items():
            facts.add(release, "value", name, value, ours=f"(long long)({name})")
            if enum["header"] in OURS:
                facts.add(release, "enumeration", name, full,
                          ours=f"ENUMERATOR_OF({name}, {full})", truth=True)
    for enum in raw["anonymous_enums"]:
        for name, value in enum["constants"].items():
            facts.add(release, "value", name, value, ours=f"(long long)({name})")


def add_slots(facts, releases):
    """Slots keep their distance from the end of the table in all releases."""
    table = "struct verbs_context_exp"
    for release, raw in releases.items():
        for name, distance in raw["slots"].items():
            facts.add(release, "distance from the end", f"{table}.{name}", distance,
                      ours=f"sizeof({table}) - offsetof({table}, {name})",
                      struct=table, member=name)


def add_names(facts, raw):
    """The catalogue that the compatibility tables are made from."""
    for name, kind in raw["entry_points"].items():
        facts.add("catalogue", "existence", f"{name}()", 1,
                  ours=f"sizeof(&{name}) == sizeof(void (*)(void))",
                  function=name)
    for name in raw["constants"] + raw["other_macros"]:
        facts.add("catalogue", "existence", name, 1,
                  ours=f"sizeof({name}) > 0")
    for name, offset in raw["context_slots"].items():
        facts.add("catalogue", "offset", f"struct verbs_context_exp.{name}", offset,
                  ours=f"offsetof(struct verbs_context_exp, {name})")
    for name, size in raw["struct_sizes"].items():
        facts.add("catalogue", "size", f"struct {name}", size,
                  ours=f"sizeof(struct {name})", struct=f"struct {name}")


class Differences:
    """What differs on purpose. See the head of differences.json."""

    def __init__(self, path):
        self.entries = {}
        self.used = set()
        for group in json.loads(path.read_text())["groups"]:
            if not group.get("reason"):
                raise SystemExit(f"{path}: group without reason")
            entries = [{"fact": "absence", "name": n}
                       for n in group.get("absent", [])]
            for entry in entries + group.get("entries", []):
                key = (entry["fact"], entry["name"], entry.get("release"))
                if key in self.entries:
                    raise SystemExit(f"{path}: {key} twice")
                self.entries[key] = entry

    def find(self, fact, name, release):
        for key in ((fact, name, release), (fact, name, None)):
            if key in self.entries:
                self.used.add(key)
                return self.entries[key]
        return None

    def absent(self, what):
        """Whole things that ours lacks: every fact about them is covered."""
        key = ("absence", what, None)
        if key in self.entries:
            self.used.add(key)
            return True
        return False

    def unused(self):
        return sorted(str(k) for k in set(self.entries) - self.used)


def is_absent(diff, entry, name):
    candidates = [name]
    if "struct" in entry:
        candidates.append(entry["struct"])
        path = entry.get("member", "")
        while path:
            candidates.append(f"{entry['struct']}.{path}")
            path = path.rpartition(".")[0]
    return any([diff.absent(c) for c in candidates])


def quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def number(value):
    # The smallest long long has no literal.
    return "-9223372036854775807LL - 1" if value == -1 << 63 else f"{value}LL"


def render(facts, diff):
    lines, errors, macros, seen = [], [], [], set()
    for (fact, name), entry in facts.table.items():
        if is_absent(diff, entry, name):
            continue
        for value, releases in entry["values"].items():
            at_least, expected, label = 0, value, []
            groups = {}
            for release in releases:
                found = diff.find(fact, name, release)
                groups.setdefault(json.dumps(found), []).append(release)
            for found, label in groups.items():
                found = json.loads(found)
                at_least, expected = 0, value
                if found:
                    if found["legacy"] != value:
                        errors.append(f"{fact} of {name}: legacy is {value}, not "
                                      f"{found['legacy']}")
                    expected = found.get("ours", found.get("ours_at_least"))
                    at_least = int("ours" not in found)
                    if expected == value:
                        errors.append(f"{fact} of {name}: does not differ")
                text = " ".join(label)
                if "macro" in entry:
                    macros.append(entry["macro"])
                    ours = f"HAVE_{entry['macro']}"
                elif "same" in entry:
                    ours, expected = f"SAME_TYPE({entry['same']}, {expected})", 1
                elif entry.get("truth"):
                    ours, expected = entry["ours"], 1
                else:
                    ours = f"(long long)({entry['ours']})"
                row = (f"\t{{{quote(fact)}, {quote(name)}, {quote(text)}, "
                       f"{number(expected)}, {ours}, {at_least}}},")
                if row not in seen:
                    seen.add(row)
                    lines.append(row)
    return lines, errors, sorted(set(macros))


def absences(diff):
    """Prove each absence where the language can: it ends with a compile error
    when rdma-core gains the name, and the entry has to go."""
    out = []
    for fact, name, _ in diff.entries:
        if fact != "absence":
            continue
        if name.endswith("()"):
            out.append(f"extern char {name[:-2]}[1];")
        elif name.startswith("struct ") and "." in name:
            tag, _, path = name.partition(".")
            out.append("#ifdef __cplusplus\n"
                       f"template <typename T> concept has_{len(out)} = "
                       f"requires(T t) {{ t.{path}; }};\n"
                       f"static_assert(!has_{len(out)}<{tag}>);\n#endif")
        elif name.startswith("struct "):
            out.append(f"enum {{ absent_{len(out)} }};\n{name} {{ int none; }};")
        else:
            out.append(f"#ifdef {name}\n#error {name} is defined now\n#endif")
    return out


def main():
    facts_dir, differences, output = map(pathlib.Path, sys.argv[1:4])
    diff = Differences(differences)
    lines, errors, macros = render(collect(facts_dir), diff)
    errors += [f"{differences.name}: {k} is not needed" for k in diff.unused()]
    if errors:
        raise SystemExit("\n".join(errors))
    text = ["/* Generated by gen_checks.py. */", '#include "check.h"', ""]
    text += absences(diff)
    for name in macros:
        text.append(f"#ifdef {name}\n#define HAVE_{name} 1\n#else\n"
                    f"#define HAVE_{name} 0\n#endif")
    text += ["", "static const struct abi_check checks[] = {", *lines, "};", "",
             "int main(void)", "{",
             "\treturn abi_run(checks, sizeof(checks) / sizeof(checks[0]));",
             "}", ""]
    output.write_text("\n".join(text))


if __name__ == "__main__":
    main()
