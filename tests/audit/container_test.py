#!/usr/bin/env python3
"""Object files, static libraries, packages and archives are audited as what is in them.

    container_test.py IBVEXP SOURCE_ROOT
"""

import gzip
import io
import itertools
import struct
import subprocess
import tarfile
import unittest
import zipfile

from audit_case import ROOT, Audit, audit

SOURCE = "int f(void) {\n  return ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));\n}\n"


def tar(files, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def rpm(files):
    """Lead, an empty signature, an empty header, and a cpio archive."""
    out = b"\xed\xab\xee\xdb\x03\x00".ljust(96, b"\0")
    out += 2 * b"\x8e\xad\xe8\x01".ljust(16, b"\0")
    cpio = b""
    for name, content in itertools.chain(files.items(), [("TRAILER!!!", b"")]):
        path = name.encode() + b"\0"
        mode = 0o100644 if content else 0
        cpio += b"070701" + b"".join(b"%08X" % n for n in (1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0,
                                                           len(path), 0))
        cpio += path
        cpio += b"\0" * (-len(cpio) % 4) + content
        cpio += b"\0" * (-len(cpio) % 4)
    return out + gzip.compress(cpio)


class ObjectFiles(Audit):
    def objects(self, compiler, *options):
        """Samples as object files, and the same linked into shared objects."""
        for sample in (ROOT / f"tests/samples/exp_{name}.c" for name in ("pingpong", "query", "umr")):
            stem = self.folder / sample.stem
            subprocess.run([compiler, *options, "-w", "-fPIC", "-I", ROOT / "include", "-c", sample,
                            "-o", f"{stem}.o"], check=True)
            subprocess.run([compiler, "-shared", f"{stem}.o", "-o", f"{stem}.so"], check=True)
            yield f"{stem}.o", f"{stem}.so"

    def verbs(self, path):
        report, done = self.report(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {name for _, name, _ in self.uses(report)}

    def test_as_what_they_are_linked_into(self):
        for compiler, *options in (["gcc", "-O2"], ["gcc", "-O0"], ["clang", "-O2", "-ffunction-sections"]):
            for loose, linked in self.objects(compiler, *options):
                with self.subTest(object=loose, compiler=compiler, options=options):
                    expected = self.verbs(linked)
                    self.assertTrue({"ibv_exp_query_device", "ibv_exp_post_send"} & expected, expected)
                    self.assertEqual(self.verbs(loose), expected)

    def test_functions_have_their_names(self):
        source = ROOT / "tests/samples/exp_query.c"
        loose = self.folder / "query.o"
        subprocess.run(["gcc", "-O2", "-g", "-w", "-I", ROOT / "include", "-c", source, "-o", loose], check=True)
        report, _ = self.report(loose)
        places = {u.get("where") for f in report["files"] for u in f["uses"] if u["evidence"] == "slot call"}
        self.assertEqual(places, {"show"})

    def test_static_library(self):
        members = []
        for loose, _ in self.objects("gcc", "-O2"):
            members.append(loose)
        library = self.folder / "libold.a"
        subprocess.run(["ar", "cr", library, *members], check=True)
        report, _ = self.report(library)
        paths = {f["path"] for f in report["files"]}
        self.assertIn(f"{library}(exp_pingpong.o)", paths)
        self.assertEqual(len(paths), len(members))
        self.assertEqual(report["read"]["binaries"], len(members))

    def test_truncated(self):
        loose, _ = next(self.objects("gcc", "-O2"))
        with open(loose, "rb") as f:
            content = f.read()
        self.expect_error(self.file("short.o", content[: len(content) // 2]), "truncated|damaged")


class Packages(Audit):
    def expect(self, path, *members):
        report, done = self.report(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({(f"{path}({m})", "ibv_exp_poll_cq", 2) for m in members}, self.uses(report))

    def test_a_text_that_names_a_format_is_none(self):
        """configure.ac of libmlx5 has "tar-ustar" where an archive has its mark."""
        text = "dnl ".ljust(256) + "\nustar silent-rules\nAC_CHECK_DECLS([ibv_exp_create_qp])\n"
        report, done = self.report(self.file("configure.ac", text))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([name for _, name, _ in self.uses(report)], ["ibv_exp_create_qp"])

    def test_tar_and_zip(self):
        files = {"p-1/a.c": SOURCE.encode(), "p-1/readme": b"ibv_exp_poll_cq", "p-1/b/c.h": SOURCE.encode()}
        for name, mode in (("p.tar", "w"), ("p.tar.gz", "w:gz"), ("p.tgz", "w:gz"), ("p.tar.xz", "w:xz"),
                           ("p.tar.bz2", "w:bz2")):
            with self.subTest(name):
                self.expect(self.file(name, tar(files, mode)), "p-1/a.c", "p-1/b/c.h")
        path = self.folder / "p.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        self.expect(path, "p-1/a.c", "p-1/b/c.h")

    def test_one_in_another(self):
        inner = tar({"d/x.c": SOURCE.encode()})
        self.expect(self.file("outer.tar", tar({"vendor/p.tar.gz": inner}, "w")), "vendor/p.tar.gz/d/x.c")

    def test_debian_package(self):
        root = self.folder / "root"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "usr/src").mkdir(parents=True)
        (root / "usr/src/x.c").write_text(SOURCE)
        (root / "DEBIAN/control").write_text(
            "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y>\nDescription: x\n")
        package = self.folder / "x.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, package], check=True,
                       stdout=subprocess.DEVNULL)
        self.expect(package, "usr/src/x.c")

    def test_rpm(self):
        self.expect(self.file("x.rpm", rpm({"./usr/src/x.c": SOURCE.encode()})), "usr/src/x.c")

    def test_programs_in_packages_have_verdicts(self):
        program = self.folder / "program"
        subprocess.run(["gcc", "-w", "-I", ROOT / "include", ROOT / "tests/samples/exp_query.c", "-o", program,
                        "-libverbs", "-Wl,--unresolved-symbols=ignore-all"], check=True)
        path = self.file("p.tar.gz", tar({"bin/program": program.read_bytes()}))
        report, _ = self.report(path)
        self.assertEqual(self.program(report)["name"], f"{path}(bin/program)")
        self.assertNotEqual(self.program(report)["standing"], "unused")

    def test_folders_with_archives(self):
        self.file("tree/p.tar.gz", tar({"x.c": SOURCE.encode()}))
        self.file("tree/data.gz", gzip.compress(b"ibv_exp_poll_cq"))
        report, done = self.report(self.folder / "tree")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({path.rpartition("/")[2] for path, _, _ in self.uses(report)}, {"p.tar.gz(x.c)"})

    def test_damaged(self):
        whole = tar({"a.c": SOURCE.encode(), "b.c": bytes(100_000)})
        self.expect_error(self.file("cut.tar.gz", whole[:-60]), "damaged archive|truncated")
        library = b"!<arch>\n" + b"x.c/".ljust(48) + b"%-10d`\n" % 4000 + SOURCE.encode()
        self.expect_error(self.file("cut.a", library), "damaged archive|truncated")

    def test_names_of_archives_that_are_none(self):
        """As an interrupted download, or a server's page that says why there is none."""
        self.expect_error(self.file("empty.deb", b""), "not an archive .* named like one: 0 bytes")
        self.expect_error(self.file("page.tar.gz", "<html>404</html>"), "not an archive .* 16 bytes")

    def test_no_file_is_left(self):
        path = self.file("p.tar", tar({"a.c": SOURCE.encode()}, "w"))
        temporary = self.folder / "tmp"
        temporary.mkdir()
        audit(path, env={"TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"})
        self.assertEqual(list(temporary.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=["container_test"])
