"""What of a hand-in is taken (grader/course/handin.py), in all the forms in which people hand in,
and the line that they read of what is not; and the same of a file that is graded where it lies.
"""

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import tempfile
import unittest
import zipfile

from archives import FILES
from helpers import FakeKit, TempFolder, read

import handin

OPTIONAL = ("answers.txt", "plan.txt")
SIX = {name: "int %s;\n" % name[:-2] for name in FILES}
REST = {name: text for name, text in SIX.items() if name != "forward.c"}
CODE = "int forward; // straße\n"
NOT_FORWARD = "Not handed in: forward.c."
LINK = "is a link: hand in the file itself"
NUL = "has a NUL byte in line 2: it is damaged, or not text; save it again"
HOW = "Hand in the files as they are, or in one zip or tar"
NOT_OPENED = "is not taken: archives of this kind are not opened. " + HOW


def zipped(files, **more):
    """The bytes of a zip, {name: text or bytes}."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **more) as archive:
        for name, text in files.items():
            item = zipfile.ZipInfo("placeholder")
            item.filename = name # as it is, with its backslashes
            archive.writestr(item, text)
    return file.getvalue()


def zipped_link(name, to):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        item = zipfile.ZipInfo(name)
        item.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(item, to)
    return file.getvalue()


def tarred(files, kind=tarfile.REGTYPE, to=""):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, text in files.items():
            item, data = tarfile.TarInfo(name), text.encode()
            item.type, item.linkname = kind, to
            item.size = len(data) if kind == tarfile.REGTYPE else 0
            archive.addfile(item, io.BytesIO(data))
    return file.getvalue()


def encrypted(files):
    """The same with the flag of an encrypted member, in both headers."""
    data = bytearray(zipped(files))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(mark, place + 4)
    return bytes(data)


def damaged(files):
    """A zip with one wrong byte in the content of its first file."""
    data = bytearray(zipped(files))
    data[30 + len(next(iter(files))) + 2] ^= 0xff
    return bytes(data)


class Taking(TempFolder):
    maxDiff = None

    def put(self, files):
        """A folder with these files, text or bytes."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, data in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data if isinstance(data, bytes) else data.encode("utf-8"))
        return folder

    def take(self, submission):
        """({name: text}, notes, {file: reason})"""
        target = tempfile.mkdtemp(dir=self.folder)
        taken = handin.take(submission, FILES, target, OPTIONAL)
        return ({name: read(target, name) for name in os.listdir(target)}, taken.notes,
                taken.missing)

    def forward(self, files, want, *notes, rest=True):
        """Of a folder with these and the other five: what forward.c is then, and what is said."""
        got, said, missing = self.take(self.put({**(REST if rest else {}), **files}))
        self.assertEqual(got.get("forward.c"), want)
        self.assertEqual({name: got.get(name) for name in REST}, REST if rest else
                         dict.fromkeys(REST))
        said = [line for line in said if rest or not line.startswith("Not handed in: ")]
        self.assertEqual(said, list(notes))
        self.assertEqual("forward.c" in missing,
                         want is None and bool(notes) and not notes[0].startswith(NOT_FORWARD))
        return missing.get("forward.c")

    # ---- Names ----

    def test_names_that_mean_a_file(self):
        for name in ("forward (1).c", "forward(2).c", "Forward.c", "FORWARD.C", "forward.C",
                     "forward.c.txt", "forward (1).c.txt", "forward - Copy.c",
                     "forward - Copy (2).c", "forward copy.c", "forward copy 2.c",
                     "Copy of forward.c", "forward-1.c", "forward_2.c", " forward.c", "forward .c",
                     "forward.c (1)", "forward – Kopie.c", "Kopie von forward.c", "ｆorward.c",
                     "forward.c.download", "forward\u00a0(1).c"):
            with self.subTest(name=name):
                self.forward({name: CODE}, CODE, "%s was taken as forward.c." % name)

    def test_names_that_mean_none(self):
        for name in ("forward.cpp", "forward.bak", "forward.c~", "forward.c.orig", "forward",
                     "my_forward.c", "forwards.c", "forward.txt"):
            with self.subTest(name=name):
                said = "There is %s: its name must be exactly forward.c." % name
                self.forward({name: CODE}, None, "%s %s" % (NOT_FORWARD, said)
                             if name != "forward.c~" else NOT_FORWARD) # which is not copied
        self.forward({"old.c": CODE}, None, NOT_FORWARD)

    def test_what_systems_add_is_no_hand_in(self):
        for name in ("__MACOSX/forward.c", "._forward.c", "__MACOSX/._forward.c", ".DS_Store",
                     "Thumbs.db", "desktop.ini", ".git/forward.c", "README.md", "old.o"):
            with self.subTest(name=name):
                self.forward({name: "x", "forward.c": CODE}, CODE)

    def test_two_that_may_be_meant(self):
        for one, two in (("forward.c", "forward (1).c"), ("Forward.c", "forward.C"),
                         ("forward.c.txt", "forward - Copy.c")):
            with self.subTest(one=one, two=two):
                reason = self.forward(
                    {one: CODE, two: "other"}, None, "forward.c came more than once, and the files "
                    "differ: %s. None is taken: hand in one."
                    % ", ".join(sorted((one, two))))
                self.assertIn("more than once", reason)
                _, said, _ = self.take(self.put({**REST, one: CODE, two: CODE}))
                self.assertNotIn("more than once", " ".join(said))

    def test_the_optional_files(self):
        got, said, missing = self.take(self.put({**SIX, "Answers (1).txt": "a"}))
        self.assertEqual((got["answers.txt"], said, missing),
                         ("a", ["Answers (1).txt was taken as answers.txt."], {}))

    def test_a_header_of_ones_own(self):
        self.forward({"forward.c": CODE, "mine.h": "x"}, CODE,
                     "mine.h: headers are not taken, the kit's own are used. What a task needs "
                     "belongs in its .c file.")

    # ---- Folders ----

    def test_folders(self):
        tree = {"shardlab/skeleton/" + name: text for name, text in SIX.items()}
        got, said, _ = self.take(self.put({**tree, "README.md": "",
                                           "shardlab/other/forward.c": "another"}))
        self.assertEqual(got, SIX)
        self.assertEqual(said, ["shardlab/other/forward.c is not taken: shardlab/skeleton/forward.c"
                                " is, from the folder with most of the files."])
        # The same number in two folders: the one that students write in; else neither.
        got, said, _ = self.take(self.put({**tree, **{
            "shardlab/reference/" + name: "x" for name in SIX}}))
        self.assertEqual((got, len(said)), (SIX, 6))
        with self.assertRaises(handin.Unusable) as caught:
            self.take(self.put({folder + name: folder for name in SIX for folder in ("a/", "b/")}))
        self.assertIn("forward.c came more than once, and the files differ: a/forward.c, "
                      "b/forward.c.", str(caught.exception))
        # A folder for each task; and one outside of the folder of the others is no older one.
        got, said, _ = self.take(self.put({"%s/%s" % (name[:-2], name): text
                                           for name, text in SIX.items()}))
        self.assertEqual((got, said), (SIX, []))
        got, said, missing = self.take(self.put({**tree, "forward.c": "newer"}))
        self.assertEqual((got, list(missing)), (REST, ["forward.c"]))

    # ---- What is in a file ----

    def test_encodings(self):
        utf16 = "%s is UTF-16, and is read as UTF-8 with plain line ends." % "forward.c"
        returns = ("forward.c is a text whose lines end in CR only, and is read as UTF-8 with "
                   "plain line ends.")
        text = CODE * 3
        for what, data, want, notes in (
                ("mark", b"\xef\xbb\xbf" + text.encode(), text, []),
                ("16", text.encode("utf-16"), text, [utf16]),
                ("16be", b"\xfe\xff" + text.encode("utf-16-be"), text, [utf16]),
                ("16le without", text.encode("utf-16-le"), text, [utf16]),
                ("16be without", text.encode("utf-16-be"), text, [utf16]),
                ("32", text.encode("utf-32"), text, [utf16.replace("16", "32")]),
                ("cr lf", b"int a;\r\nint b;\r\n", "int a;\nint b;\n", []),
                ("cr", b"int a;\rint b;\r", "int a;\nint b;\n", [returns])):
            with self.subTest(what=what):
                self.forward({"forward.c": data}, want, *notes)
        folder = self.put({**REST, "forward.c": "// straße".encode("latin-1")})
        target = tempfile.mkdtemp(dir=self.folder)
        self.assertEqual(handin.take(folder, FILES, target).notes, [])
        with open(os.path.join(target, "forward.c"), "rb") as file:
            self.assertEqual(file.read(), b"// stra\xdfe")

    def test_what_is_no_text(self):
        for data, words in (
                (b"int a;\nint \0b;\n" + b"x" * 40, NUL),
                (b"", "is empty"), (b" \n\n", "is empty"),
                (zipped(SIX), "is a zip archive, not text"),
                (b"\x7fELF\2\1", "is compiled code, not text"),
                (b"%PDF-1.4\n", "is a PDF, not text"),
                (b"\xff\xfea\0\0\xd8", "begins like UTF-16, and is damaged after that: save it "
                                      "again"),
                (b"x" * (handin.FILE_LIMIT + 1), "has more than 1 MiB, which no task needs")):
            with self.subTest(words=words):
                reason = self.forward({"forward.c": data}, None, "forward.c %s." % words)
                self.assertEqual(reason, "forward.c %s." % words)

    def test_what_is_no_file(self):
        for make, words in (
                (lambda path: os.symlink("/etc/passwd", path), LINK),
                (lambda path: os.symlink("nowhere", path), LINK),
                (os.mkfifo, "is a pipe"), (os.mkdir, "is a folder, not a file")):
            with self.subTest(words=words):
                folder = self.put(REST)
                make(os.path.join(folder, "forward.c"))
                got, said, missing = self.take(folder)
                self.assertEqual((got, said), (REST, ["forward.c %s." % words]))
                self.assertEqual(missing, {"forward.c": said[0]})

    @unittest.skipIf(os.geteuid() == 0, "root reads everything")
    def test_what_cannot_be_read(self):
        folder = self.put(SIX)
        os.chmod(os.path.join(folder, "forward.c"), 0)
        self.assertEqual(self.take(folder)[1], ["forward.c cannot be read: check its permissions."])

    # ---- Archives ----

    def test_archives(self):
        tree = {"mine/skeleton/" + name: text for name, text in SIX.items()}
        tar = tarred(tree)
        windows = {name.replace("/", "\\"): text for name, text in tree.items()}
        for name, data in (
                ("x.zip", zipped(tree)), ("HANDIN.ZIP", zipped(tree)), ("x.zip", zipped(windows)),
                ("x.zip", zipped({"mine\\": "", "mine\\skeleton\\": "", **windows})),
                ("x.zip", zipped({**tree, "__MACOSX/mine/skeleton/._api.c": "\0\5"})),
                ("x.tar", tar), ("x.tar.gz", gzip.compress(tar)), ("X.TGZ", gzip.compress(tar)),
                ("x.tar.bz2", bz2.compress(tar)), ("x.tar.xz", lzma.compress(tar)),
                ("x.zip", tar), ("x.tar", zipped(tree)), ("handin", zipped(tree)),
                ("outer.zip", zipped({"inner/in.zip": zipped(tree)})),
                ("outer.zip", zipped({"in.TAR.GZ": gzip.compress(tar)}))):
            with self.subTest(name=name):
                folder = self.put({name: data})
                self.assertEqual(self.take(folder), (SIX, [], {}))
                self.assertEqual(self.take(os.path.join(folder, name)), (SIX, [], {}))

    def test_several_archives(self):
        half = dict(list(REST.items())[:2])
        other = {name: text for name, text in SIX.items() if name not in half}
        got, said, _ = self.take(self.put({"1.zip": zipped(half), "2.tar": tarred(other)}))
        self.assertEqual((got, said), (SIX, []))
        self.assertEqual(self.take(self.put({"1.zip": zipped(SIX), "2.zip": zipped(SIX)}))[:2],
                         (SIX, []))
        got, said, _ = self.take(self.put({"1.zip": zipped(SIX),
                                           "2.zip": zipped({**SIX, "forward.c": "newer"})}))
        self.assertEqual((got, said), (REST, [
            "forward.c came more than once, and the files differ: forward.c in 1.zip, forward.c in "
            "2.zip. None is taken: hand in one."]))
        got, said, _ = self.take(self.put({"1.zip": zipped(REST), "forward.c": CODE}))
        self.assertEqual((got, said), ({**REST, "forward.c": CODE}, []))
        got, said, _ = self.take(self.put({"1.zip": zipped(SIX), "forward.c": CODE}))
        self.assertEqual((got, said), (REST, [
            "forward.c came more than once, and the files differ: forward.c, forward.c in 1.zip. "
            "None is taken: hand in one."]))
        self.forward({"forward.c.gz": gzip.compress(CODE.encode())}, CODE)

    def test_archives_that_are_not_opened(self):
        zips = {"%d.zip" % i: zipped({"x%d.c" % i: "x"}) for i in range(handin.MOST_ARCHIVES + 1)}
        for name, data, words in (
                ("w.7z", b"7z\xbc\xaf\x27\x1c\0", NOT_OPENED),
                ("w.RAR", b"Rar!\x1a\x07\1", NOT_OPENED),
                ("w.zip", b"Rar!\x1a\x07\1", NOT_OPENED),
                ("w.zip", b"PK\x03\x04 and no more", "cannot be unpacked (File is not a zip file)"),
                ("w.zip", b"", "is empty"),
                ("w.tgz", gzip.compress(tarred(SIX))[:60], "cannot be unpacked (Compressed file "
                 "ended before the end-of-stream marker was reached)"),
                ("w.zip", encrypted({"forward.c": CODE}),
                 "is encrypted, and its files are not taken: make it without a password"),
                ("w.zip", zipped({"a.zip": zipped({"b.zip": zipped({"forward.c": CODE})})}), None),
                ("w.zip", zipped(zips), None)):
            with self.subTest(name=name, words=words):
                got, said, _ = self.take(self.put({**REST, name: data}))
                self.assertEqual(got, REST)
                if words:
                    self.assertIn("%s %s." % (name, words), said)
                else:
                    self.assertRegex(said[0], r"^(b.zip in a.zip in w.zip is not taken: it is in "
                                     r"an archive inside|15.zip in w.zip is not taken: more than)")

    def test_members_that_are_not_taken(self):
        for data, words in (
                (zipped_link("forward.c", "/etc/passwd"), LINK),
                (tarred({"forward.c": ""}, tarfile.SYMTYPE, "/etc/passwd"),
                 LINK),
                (tarred({"forward.c": ""}, tarfile.LNKTYPE, "/etc/passwd"),
                 LINK),
                (tarred({"forward.c": ""}, tarfile.CHRTYPE), "is not a regular file"),
                (tarred({"../../forward.c": "x"}),
                 "has a path that leads out of its archive (../../forward.c)"),
                (zipped({"..\\forward.c": "x"}),
                 "has a path that leads out of its archive (..\\forward.c)"),
                (zipped({"/forward.c": "x"}),
                 "has a path that leads out of its archive (/forward.c)"),
                (zipped({"C:\\w\\forward.c": "x"}),
                 "has a path that leads out of its archive (C:\\w\\forward.c)"),
                (encrypted({"forward.c": "x"}), "is encrypted: hand it in without a password"),
                (damaged({"forward.c": CODE}), "is damaged (Bad CRC-32 for file 'forward.c')")):
            with self.subTest(words=words):
                got, said, missing = self.take(self.put({**REST, "w.zip": data}))
                self.assertEqual(got, REST)
                self.assertIn("forward.c in w.zip %s." % words, said)
                self.assertEqual(missing, {"forward.c": "forward.c in w.zip %s." % words})
        self.assertFalse(os.path.exists(os.path.join(os.path.dirname(self.folder), "forward.c")))

    def test_archives_that_would_fill_the_disk(self):
        zeros = bytes(1 << 20)
        bomb = io.BytesIO()
        with gzip.GzipFile(fileobj=bomb, mode="wb") as file:
            for _ in range(4 * (handin.ARCHIVE_LIMIT >> 20) + 1):
                file.write(zeros)
        large = zipped({"forward.c": zeros + b"x"}, compression=zipfile.ZIP_DEFLATED)
        for name, data, words in (
                ("w.tgz", bomb.getvalue(), "w.tgz is not taken: it holds more than 256 MiB."),
                ("w.zip", large, "forward.c in w.zip has more than 1 MiB, which no task needs.")):
            with self.subTest(name=name):
                got, said, _ = self.take(self.put({**REST, name: data}))
                self.assertEqual((got, said[0]), (REST, words))

    def test_nothing_to_grade_is_said_once(self):
        for files, words in (
                (None, "Nothing was handed in. %s: meta_init.c, flat_param.c, forward.c, "
                       "backward.c, optimizer.c and api.c." % HOW),
                ({}, "Nothing that can be graded was handed in. %s: meta_init.c" % HOW),
                ({"main.c": "x", "notes.txt": "y"}, "None of the files to hand in was found: "
                 "meta_init.c, flat_param.c, forward.c, backward.c, optimizer.c and api.c. What "
                 "came: main.c, notes.txt. %s." % HOW),
                ({"w.7z": b"7z\xbc\xaf\x27\x1c"}, "w.7z is not taken: archives of this kind")):
            with self.subTest(words=words), self.assertRaises(handin.Unusable) as caught:
                self.take(self.path("nowhere") if files is None else self.put(files))
            self.assertIn(words, str(caught.exception))
        for name, data, words in (
                ("w.tar", b"no tar at all", "cannot be unpacked (truncated header"),
                ("w.zip", b"PK\x03\x04", "cannot be unpacked (File is not a zip"),
                ("w", b"7z\xbc\xaf\x27\x1c", "is a 7z archive, which is not"),
                ("w", b"", "is empty")):
            with self.subTest(words=words), self.assertRaises(handin.Unusable) as caught:
                self.take(os.path.join(self.put({name: data}), name))
            self.assertTrue(str(caught.exception).startswith("What was handed in " + words),
                            caught.exception)


class InPlace(FakeKit):
    """What the grader says of a file where it lies: `make grade`, which changes nothing there."""

    def message(self):
        status, out, results, _ = self.grade("--task", "1")
        self.assertEqual(status, 0, out + self.err)
        self.assertEqual({test["status"] for test in results.values()}, {"error"})
        messages = {test["message"] for test in results.values()}
        self.assertEqual(len(messages), 1)
        return messages.pop()

    def test_what_the_file_is(self):
        path = self.path("mine/one.c")
        text = "int one(void) { return 1; }\n"

        def holds(data):
            def make(path):
                with open(path, "wb") as file:
                    file.write(data)
            return make
        for make, words in (
                (os.mkdir, "mine/one.c is a folder, not a file."),
                (lambda path: os.symlink("nowhere.c", path),
                 "mine/one.c is a link to a file that is not there: put the file itself there."),
                (holds(b""), "one.c is empty."),
                (holds(text.encode("utf-16")),
                 "one.c is UTF-16: save it as UTF-8 with plain line ends."),
                (holds(text.replace("\n", "\r").encode()), "one.c is a text whose lines end in CR "
                 "only: save it as UTF-8 with plain line ends."),
                (holds(text.encode() + b"\0"), "one.c %s." % NUL),
                (holds(zipped({"one.c": text})), "one.c is a zip archive, not text.")):
            with self.subTest(words=words):
                if os.path.isdir(path):
                    os.rmdir(path)
                elif os.path.lexists(path):
                    os.unlink(path)
                make(path)
                self.assertEqual(self.message(), words)

    def test_what_word_processors_write(self):
        for code, words in (
                ("return “x”[0];",
                 "(left double quotation mark), as word processors write: type \""),
                ("return 2 – 1;", "(en dash), as word processors write: type -"),
                ("return\u00a01;", "an invisible or foreign character (no-break space): delete it"),
                ("return 1；", "(fullwidth semicolon), as word processors write: type ;"),
                ("return 1\u200b;", "(zero width space): delete it")):
            with self.subTest(code=code):
                self.write("mine/one.c", "// “Ünïcode” – is fine here\nint one(void)\n{\n    "
                           "const char *s = \"“\";\n    %s\n}\n" % code)
                found = self.message()
                self.assertIn("one.c does not compile. mine/one.c:5: ", found)
                self.assertIn(". The line has ", found)
                self.assertTrue(found.endswith(words), found)


if __name__ == "__main__":
    unittest.main()
