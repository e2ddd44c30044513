#!/usr/bin/env python3
"""Prints which rows of the compatibility matrix the processes of a trace used
(IBVEXP_TRACE), and how often.

    rows_used.py TRACE.json
"""

import json
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        processes = json.load(file)["processes"]
    latest = {p["id"]: p for p in processes}   # a process may have written twice
    total = {}
    for process in latest.values():
        for row in process["rows"]:
            key = (row["kind"] != "entry", row["family"], row["name"])
            sums = total.setdefault(key, {"verdict": row["verdict"], "calls": 0, "refused": 0,
                                         "failed": 0})
            sums["calls"] += row["calls"]
            sums["refused"] += row["refusals"]
            sums["failed"] += row["failures"]
    for (feature, family, name), sums in sorted(total.items()):
        other = f", {sums['refused']} refused" if sums["refused"] else ""
        # What any program meets: exp_dc posts until a send queue is full.
        other += f", {sums['failed']} failed (queue full, ...)" if sums["failed"] else ""
        print(f"  {'  ' if feature else ''}{name:<44} {sums['verdict']:<11} "
              f"{sums['calls']:>7}{other}")
    entries = sum(1 for key in total if not key[0])
    print(f"{entries} entry points and {len(total) - entries} features, "
          f"in {len(latest)} processes.")
    return 0 if entries else 1


if __name__ == "__main__":
    sys.exit(main())
