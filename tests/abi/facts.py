#!/usr/bin/env python3
"""Keep the facts about the legacy interface that the ABI tests compare with.

The originals are compiler probes of the legacy headers, one JSON file per
release, kept outside this repository. facts/ holds the part that the tests
need, so that they run wherever the sources do:

    facts.py reduce SHARED   write facts/ from the originals in SHARED
    facts.py check SHARED    compare facts/ with them; exit 77 if not there
"""

import json
import pathlib
import sys

FACTS = pathlib.Path(__file__).resolve().parent / "facts"

# Releases whose every name is compared, and all whose slots are.
FULL = ("4.6", "4.9")
ALL = ("3.1-0.0.6", "3.1-1.0.0", "3.1-1.5.7", "3.2-1.0.1", "3.2-2.0.0", "3.3",
       "3.4", "4.0", "4.1", "4.3", "4.6", "4.9")

# Headers that applications include. driver.h and driver_exp.h are the
# interface between the legacy library and its providers, which cannot be
# loaded into rdma-core whatever we declare; their names are kept, so that the
# tests can say what they leave out.
PUBLIC = ("verbs.h", "verbs_exp.h", "peer_ops.h", "ofa_verbs.h")


def members(raw):
    """Fields as [name, offset, size, type or nested fields]."""
    out = []
    for m in raw:
        if "bit_offset" in m:
            raise SystemExit(f"bit-field {m['name']}: offsets cannot be compared")
        nested = m.get("anonymous_type")
        kind = {nested["kind"]: members(nested["members"])} if nested else m["type"]
        out.append([m["name"], m["offset"], m["size"], kind])
    return out


def public(table):
    return {k: v for k, v in table.items() if v["header"] in PUBLIC}


def release(shared, name):
    raw = json.loads((shared / "abi" / f"mlnx-ofed-{name}.json").read_text())
    anonymous = [e for e in raw["anonymous_enums"] if e["header"] in PUBLIC]
    left_out = {}
    for table in ("structs", "enums", "functions", "typedefs", "macro_aliases"):
        for key, value in raw[table].items():
            if value["header"] not in PUBLIC:
                left_out.setdefault(value["header"], []).append(key)
    return {
        "structs": {k: {"header": v["header"], "size": v["size"],
                        "align": v["align"], "members": members(v["members"])}
                    for k, v in public(raw["structs"]).items()},
        "enums": {k: {"header": v["header"], "size": v["size"],
                      "signed": v["signed"], "constants": v["constants"]}
                  for k, v in public(raw["enums"]).items()},
        "anonymous_enums": sorted(
            ({"header": e["header"], "constants": e["constants"]}
             for e in anonymous), key=lambda e: sorted(e["constants"])),
        "macro_constants": public(raw["macro_constants"]),
        "function_like_macros": public(raw["function_like_macros"]),
        "typedefs": public(raw["typedefs"]),
        "functions": {k: {"header": v["header"], "kind": v["kind"],
                          "type": v["type"]}
                      for k, v in public(raw["functions"]).items()},
        "left_out": {k: sorted(v) for k, v in left_out.items()},
    }


def slots(shared):
    out = {}
    for name in ALL:
        raw = json.loads((shared / "abi" / f"mlnx-ofed-{name}.json").read_text())
        table = raw["verbs_context_exp"]
        out[name] = {"size": table["size"],
                     "slots": {s["name"]: s["offset_from_end"]
                               for s in table["slots"]}}
    return out


def names(shared):
    """Every name of the catalogue of the legacy interface."""
    raw = json.loads((shared / "spec" / "verbs.json").read_text())
    return {
        "entry_points": {e["name"]: e["kind"] for e in raw["entry_points"]},
        "context_slots": {s["slot"]: s["offset"] for s in raw["context_slots"]},
        "constants": sorted(c["name"] for e in raw["enums"]
                            for c in e["constants"]),
        "other_macros": sorted(m["name"] for m in raw["other_macros"]),
        "struct_sizes": raw["struct_sizes"],
    }


def dump(value, depth=2, indent=""):
    """JSON with one line per entry: small, and readable as a difference."""
    if depth and isinstance(value, dict) and value:
        inner = indent + " "
        body = ",\n".join(f"{inner}{json.dumps(k)}: {dump(v, depth - 1, inner)}"
                          for k, v in value.items())
        return "{\n" + body + "\n" + indent + "}"
    return json.dumps(value)


def files(shared):
    out = {f"mlnx-ofed-{n}.json": release(shared, n) for n in FULL}
    out["slots.json"] = slots(shared)
    out["names.json"] = names(shared)
    return {name: dump(value) + "\n" for name, value in out.items()}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("reduce", "check"):
        raise SystemExit(__doc__)
    shared = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "reduce":
        FACTS.mkdir(exist_ok=True)
        for name, text in files(shared).items():
            (FACTS / name).write_text(text)
        return 0
    if not (shared / "abi").is_dir():
        print("the original facts are not on this machine")
        return 77
    wrong = [name for name, text in files(shared).items()
             if (FACTS / name).read_text() != text]
    for name in wrong:
        print(f"facts/{name} differs from the originals; run facts.py reduce")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
