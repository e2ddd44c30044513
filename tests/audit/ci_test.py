#!/usr/bin/env python3
"""ibvexp audit in continuous integration: suppressions, baselines, configuration,
formats, and what changed between two reports.

    ci_test.py IBVEXP SOURCE_ROOT
"""

import csv
import io
import json
import re
import subprocess
import sys
import unittest

from audit_case import IBVEXP, ROOT, Audit, audit

REFUSED = "ibv_exp_peer_commit_qp(c, &t, &bad);"


class Suppressions(Audit):
    def status(self, text, *more):
        return audit("--fail-on", "refused,beyond", *more, self.file("a.c", text)).returncode

    def test_comments(self):
        for text, status in (
                (f"{REFUSED}\n", 1),
                (f"{REFUSED} // ibvexp-audit: ignore\n", 0),
                (f"/* ibvexp-audit: ignore: cannot happen */\n{REFUSED}\n", 0),
                (f"/* several lines\n * ibvexp-audit: ignore\n */\n{REFUSED}\n", 0),
                (f"{REFUSED} // ibvexp-audit: ignore ibv_exp_peer_commit_qp\n", 0),
                (f"{REFUSED} // ibvexp-audit: ignore ibv_exp_poll_dc_info\n", 1),
                (f"{REFUSED}\n// ibvexp-audit: ignore\n", 1),
                (f"{REFUSED} // always\n\n// ibvexp-audit: ignore\n", 1),
                (f"// ibvexp-audit: ignore\n\n{REFUSED}\n", 1),
                (f"// ibvexp-audit: nonsense\n{REFUSED}\n", 1),
                (f"{REFUSED}\n// ibvexp-audit: ignore-file\n", 0)):
            self.assertEqual(self.status(text), status, text)

    def test_they_are_listed_all_the_same(self):
        source = self.file("a.c", f"{REFUSED} // ibvexp-audit: ignore\n")
        report, _ = self.report(source)
        self.assertTrue(report["files"][0]["uses"][0]["suppressed"])
        self.assertEqual(self.program(report)["standing"], "works")
        result, = json.loads(audit("--format", "sarif", source).stdout)["runs"][0]["results"]
        self.assertEqual(result["suppressions"], [{"kind": "inSource"}])

    def test_configuration(self):
        config = self.file(".ibvexp-audit.json", json.dumps(
            {"fail-on": ["refused"], "exclude": ["third_party"],
             "ignore": ["ibv_exp_peer_commit_qp", {"name": "ibv_exp_poll_dc_info", "path": "old/*.c"}]}))
        self.file("third_party/a.c", "ibv_exp_arm_dct(d, &a);\n")
        self.file("old/a.c", "ibv_exp_poll_dc_info(c, e, 1, 1);\n" + REFUSED)
        self.assertEqual(audit(".", cwd=self.folder).returncode, 0)
        self.assertEqual(audit("--config", config, self.folder).returncode, 0)
        self.file("new/a.c", "ibv_exp_poll_dc_info(c, e, 1, 1);\n")
        self.assertEqual(audit(".", cwd=self.folder).returncode, 1)
        self.assertEqual(audit("--fail-on", "private", ".", cwd=self.folder).returncode, 0)
        for text, words in (("{", "parse error"), ('{"fail_on": []}', 'unknown key "fail_on"'),
                            ('{"fail-on": ["all"]}', "refused beyond private unjudged any"), ("[]", "not a JSON object")):
            config.write_text(text)
            done = audit(".", cwd=self.folder)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(words, done.stderr)


class Baselines(Audit):
    def test_only_what_is_new_fails(self):
        source = self.file("a.c", f"{REFUSED}\n")
        baseline = self.folder / "baseline.json"
        audit("-q", "--json", baseline, source)
        check = ("--fail-on", "refused", "--baseline", baseline, source)
        self.assertEqual(audit(*check).returncode, 0)
        self.file("a.c", f"\n\n{REFUSED}\n")
        self.assertEqual(audit(*check).returncode, 0, "lines move")
        self.file("a.c", f"{REFUSED}\n{REFUSED}\n")
        self.assertEqual(audit(*check).returncode, 1, "one more of the same")
        self.file("a.c", f"{REFUSED}\nibv_exp_poll_dc_info(c, e, 1, 1);\n")
        self.assertEqual(audit(*check).returncode, 1, "another one")

    def test_what_is_no_report(self):
        source = self.file("a.c", f"{REFUSED}\n")
        for name, text in (("missing.json", None), ("text.json", "no JSON"), ("other.json", "{}"),
                           ("old.json", '{"format": "ibvexp-audit", "version": 1}')):
            path = self.file(name, text) if text else self.folder / name
            done = audit("--baseline", path, source)
            self.assertEqual(done.returncode, 2)
            self.assertIn(name, done.stderr)

    def test_two_reports_compared(self):
        old, new = self.folder / "old.json", self.folder / "new.json"
        source = self.file("app/a.c", f"{REFUSED}\nibv_exp_poll_cq(c);\n").parent
        audit("-q", "--json", old, source)
        self.file("app/a.c", f"ibv_exp_poll_cq(c);\n{REFUSED}\n")
        audit("-q", "--json", new, source)
        self.assertEqual(audit("--diff", old, new).stdout, "No difference.\n")
        self.file("app/a.c", "ibv_exp_poll_cq(c);\nibv_exp_poll_cq(c);\no = IBV_EXP_WR_NOP;\n")
        audit("-q", "--json", new, source)
        done = audit("--diff", old, new)
        self.assertEqual(done.returncode, 0)
        path = source / "a.c"
        self.assertEqual(done.stdout.splitlines(), [
            f"{source}: works, 1 feature off: ibv_exp_peer_commit_qp -> "
            "works, --beyond nop adds IBV_EXP_WR_NOP",
            f"+ {path}: 1 IBV_EXP_WR_NOP (beyond)",
            f"+ {path}: 1 ibv_exp_poll_cq (works)",
            f"- {path}: 1 ibv_exp_peer_commit_qp (refused)"])
        self.assertEqual(audit("--diff", old, new, "--fail-on", "refused").returncode, 0)
        self.assertEqual(audit("--diff", old, new, "--fail-on", "beyond").returncode, 1)
        changes = json.loads(audit("--diff", old, new, "--format", "json").stdout)
        self.assertEqual([len(changes[k]) for k in ("programs", "added", "removed")], [1, 2, 1])


class Formats(Audit):
    def setUp(self):
        super().setUp()
        self.source = self.file("a,b.c", f"  {REFUSED}\nibv_exp_poll_cq(c);\no = IBV_EXP_WR_NOP;\n")

    def test_gcc(self):
        lines = audit("--format", "gcc", self.source, self.folder / "none").stdout.splitlines()
        self.assertEqual(lines[0], f"{self.source}:1:3: error: ibv_exp_peer_commit_qp is unsupported [refused]")
        self.assertRegex(lines[1], r":3:5: warning: IBV_EXP_WR_NOP is beyond \(IBVEXP_BEYOND=nop\).* \[beyond\]$")
        self.assertRegex(lines[2], "none: error: no such file or directory")
        self.assertEqual(len(lines), 3)

    def test_github(self):
        lines = audit("--format", "github", self.source).stdout.splitlines()
        where = str(self.source).replace(",", "%2C")
        self.assertRegex(lines[0], f"^::error file={where},line=1,col=3,title=ibv_exp_peer_commit_qp::ibv_exp_peer_commit_qp is")
        self.assertRegex(lines[1], f"^::warning file={where},line=3,col=5,title=IBV_EXP_WR_NOP::")

    def test_markdown(self):
        text = audit("--format", "md", self.source).stdout
        self.assertIn("works, 1 feature off: ibv\\_exp\\_peer\\_commit\\_qp", text)
        self.assertRegex(text, r"\| refused \| ibv\\_exp\\_peer\\_commit\\_qp \| .*a,b.c:1 \|")

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(audit("--format", "csv", self.source).stdout)))
        self.assertEqual([(r["path"], r["line"], r["name"], r["severity"]) for r in rows],
                         [(str(self.source), "1", "ibv_exp_peer_commit_qp", "refused"),
                          (str(self.source), "2", "ibv_exp_poll_cq", "works"),
                          (str(self.source), "3", "IBV_EXP_WR_NOP", "beyond")])

    def test_the_others_too(self):
        self.assertEqual(json.loads(audit("--format", "json", self.source).stdout)["format"], "ibvexp-audit")
        self.assertIn("<!doctype html>", audit("--format", "html", self.source).stdout)
        self.assertEqual(audit("--format", "nonsense", self.source).returncode, 2)

    def test_sarif_as_github_wants_it(self):
        outside = self.file("else/x.c", f"{REFUSED}\n")
        program = self.compile("app", "#include <infiniband/verbs_exp.h>\nint main() { ibv_exp_get_device_list(0); }",
                               "-I", ROOT / "include", "-Wl,--unresolved-symbols=ignore-all")
        run, = json.loads(audit("--format", "sarif", "a,b.c", outside, program, cwd=self.folder).stdout)["runs"]
        driver = run["tool"]["driver"]
        self.assertTrue(driver["informationUri"] and driver["semanticVersion"])
        for rule in driver["rules"]:
            for text in (rule["shortDescription"], rule["fullDescription"], rule["help"]):
                self.assertRegex(text["text"], r"\.$")
            self.assertRegex(rule["name"], r"^[A-Z][A-Za-z0-9]*$")
            self.assertTrue(rule["helpUri"])
        self.assertTrue(run["originalUriBaseIds"]["SRCROOT"]["uri"].endswith("/"))
        prints = set()
        for result in run["results"]:
            where = result["locations"][0]["physicalLocation"]
            self.assertNotRegex(where["artifactLocation"]["uri"], "^(/|file:)")
            self.assertEqual(where["artifactLocation"]["uriBaseId"], "SRCROOT")
            self.assertGreaterEqual(where["region"]["startLine"], 1)
            self.assertRegex(result["message"]["text"], r"\.$")
            self.assertEqual(result["level"] == "none", result["kind"] == "informational")
            prints.add(json.dumps(result["partialFingerprints"]))
        self.assertEqual(len(prints), len(run["results"]))

    def test_reports_say_what_of_and_when(self):
        done = subprocess.run([IBVEXP, "audit", "--format", "json", self.source], capture_output=True, check=True,
                              env={"SOURCE_DATE_EPOCH": "86400"})
        report = json.loads(done.stdout)
        self.assertEqual(report["date"], "1970-01-02T00:00:00Z")
        self.assertEqual(report["inputs"], [str(self.source)])
        self.assertTrue(re.fullmatch(r"[0-9.]+(-rc[0-9]+)?", report["tool"]["version"]))


unittest.main(argv=[sys.argv[0]], verbosity=1)
