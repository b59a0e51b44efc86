"""What of a hand-in is taken: the assignment's files, in whatever they came.

A hand-in is a folder or a file. Archives in it are opened (zip, tar, and what gzip, bzip2 or xz
made; one inside of another, no deeper). A file is known by its name, also as browsers, Windows and
platforms change it ("forward (1).c", "FORWARD.C", "forward.c.txt"), in any folder. Of what may be
meant by one name the copies with the same content are one; where they differ, one counts that lies
in the folder with most of the files, against those in other folders apart from the ones around it;
else none is taken. What is not taken is named, with the reason.

Nothing is unpacked to a path that an archive names, and of everything no more is read than fits.

Interface: take(submission, files, target) -> Taken; Unusable; Handin(files).add(path), .entries.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass, field

from builder import look_alike
from source_text import as_source, file_kind

FILE_LIMIT = 1 << 20     # bytes of a file that is taken
ARCHIVE_LIMIT = 64 << 20 # bytes of an archive, and of what a compressed tar becomes
MOST_ENTRIES, MOST_ARCHIVES, MOST_ALIKE = 10000, 16, 16
MOST_FILES = 64          # that are copied beside those of the assignment
MOST_NOTES = 12
PLAIN = re.compile(r"[\w+-][\w.+-]{0,80}$", re.ASCII)
NO_SOURCE = (".o", ".a", ".so", ".h")

# What systems and editors add, and nobody hands in.
JUNK = re.compile(r"(^|/)(__MACOSX|\.git|\.svn|\.vscode|\.idea)/|"
                  r"(^|/)(\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)$", re.IGNORECASE)
OPENED = re.compile(r"\.(zip|tar|tgz|tbz2?|txz|gz|bz2|xz)$", re.IGNORECASE)
CLOSED = re.compile(r"\.(7z|rar|zst|zstd|tzst|lz|lzma|lz4|z|arj|cab|iso|dmg|sit|ace|lha)$",
                    re.IGNORECASE)
WRONG_KIND = {"a 7z archive", "a rar archive", "a zstd file"}
STREAMS = {"a gzip file": lambda file: gzip.GzipFile(fileobj=file),
           "a bzip2 file": bz2.BZ2File, "an xz file": lzma.LZMAFile}
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError,
           RuntimeError, ValueError, NotImplementedError, KeyError)
HOW = "Hand in the files as they are, or in one zip or tar"

# What is added to a name where one of that name is there already, in some languages.
COPIED = re.compile(r"(\s*\(\d+\)|[\s_–-]+(copy|kopie|copie|copia)(\s*\(?\d+\)?)?|[-_]\d+)$",
                    re.IGNORECASE)
COPY_OF = re.compile(r"^(copy of|kopie von|copie de|copia de)\s+", re.IGNORECASE)
ADDED = re.compile(r"(\.(txt|text|download)|\s*\(\d+\))$", re.IGNORECASE)


class Unusable(Exception):
    """What was handed in is no submission; the text is for the student."""


@dataclass
class Entry:
    """A file of a hand-in."""
    name: str            # its path within its place
    place: str           # the archive that it is in, as messages show it; "" for none
    read: object         # a function of a number of bytes, which gives at most so many
    wrong: str = ""      # why it is not taken, as the end of a sentence
    meant: str = ""      # the assignment's file that it is
    data: bytes = b""
    was: str = ""

    @property
    def shown(self):
        return "%s in %s" % (self.name, self.place) if self.place else self.name

    @property
    def folder(self):
        return self.name.rpartition("/")[0]

    @property
    def base(self):
        return self.name.rpartition("/")[2]


@dataclass
class Taken:
    """notes: what was done and what was left, a line each; missing: {file: why it is not there}."""
    notes: list = field(default_factory=list)
    missing: dict = field(default_factory=dict)


def which(base, files):
    """The assignment's file that a name means; ""."""
    known = {name.lower(): name for name in files}
    name = unicodedata.normalize("NFKC", base).strip().lower()
    while True:
        stem, dot, ending = name.rpartition(".")
        while stem:
            if stem.strip() + dot + ending.strip() in known:
                return known[stem.strip() + dot + ending.strip()]
            shorter = COPY_OF.sub("", COPIED.sub("", stem))
            if shorter == stem:
                break
            stem = shorter
        shorter = ADDED.sub("", name)
        if shorter == name:
            return ""
        name = shorter


def inside(name):
    """A path of an archive as a path within it, also where Windows made it; None where it leads
    out."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or re.match("[A-Za-z]:", name) or ".." in parts or not parts:
        return None
    return "/".join(parts)


def kind_of(mode):
    """Why something of this mode is not taken; "" for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    for is_it, kind in ((stat.S_ISLNK, "a link: hand in the file itself"),
                        (stat.S_ISDIR, "a folder, not a file"), (stat.S_ISFIFO, "a pipe")):
        if is_it(mode):
            return "is " + kind
    return "is not a regular file"


def reader(path):
    def read(limit):
        with open(path, "rb") as file:
            return file.read(limit)
    return read


class Handin:
    """The files of a hand-in, those of its archives too."""
    most, most_entries, room = ARCHIVE_LIMIT, MOST_ENTRIES, 4 * ARCHIVE_LIMIT

    def __init__(self, files):
        self.files, self.entries, self.notes = files, [], []
        self.archives = 0
        self.open = contextlib.ExitStack() # what entries are read from

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def add(self, submission):
        """Everything of a folder, or of an archive; or a file of the assignment's."""
        if not os.path.isdir(submission):
            entry = Entry(os.path.basename(submission), "", reader(submission))
            if which(entry.base, self.files):
                self.found(entry, 1)
                return
            wrong = self.archive(self.open.enter_context(open(submission, "rb")), "", 1)
            if wrong:
                raise Unusable("What was handed in %s. %s: %s." % (wrong, HOW, listed(self.files)))
            return
        for folder, folders, names in os.walk(submission):
            folders.sort()
            for name in sorted(names) + folders:
                path = os.path.join(folder, name)
                self.found(Entry(os.path.relpath(path, submission), "", reader(path),
                                 kind_of(os.lstat(path).st_mode)), 1)

    def found(self, entry, depth):
        """One thing in a folder or an archive."""
        if JUNK.search(entry.name):
            return
        if len(self.entries) >= self.most_entries:
            self.note("Files beyond the first %d are ignored." % self.most_entries)
            return
        entry.meant = which(entry.base, self.files)
        if entry.wrong or entry.meant:
            if entry.meant: # links and folders of other names are nobody's source code
                self.entries.append(entry)
            return
        try:
            kind = file_kind(entry.read(512))
        except DAMAGED:
            kind = ""
        if CLOSED.search(entry.name) or kind in WRONG_KIND:
            self.note("%s is not taken: archives of this kind are not opened. %s."
                      % (entry.shown, HOW))
        elif OPENED.search(entry.name) or kind in STREAMS or kind.endswith("archive"):
            wrong = self.container(entry, depth)
            if wrong:
                self.note("%s %s." % (entry.shown, wrong))
        else:
            self.entries.append(entry)

    def container(self, entry, depth):
        """An archive in what was handed in: why it is not opened, as the end of a sentence; ""."""
        self.archives += 1
        if depth > 2:
            return "is not taken: it is in an archive inside an archive. " + HOW
        if self.archives > MOST_ARCHIVES:
            return "is not taken: more than %d archives are not opened" % MOST_ARCHIVES
        try:
            file = io.BytesIO(entry.read(ARCHIVE_LIMIT + 1))
        except DAMAGED as problem:
            return "cannot be read (%s)" % problem
        return self.archive(file, entry.shown, depth)

    def archive(self, file, shown, depth):
        """Adds the files of an archive: why it cannot, as the end of a sentence; ""."""
        kind = file_kind(file.read(512))
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if not size:
            return "is empty"
        if size > self.most:
            return "is not taken: it is larger than %d MiB" % (self.most >> 20)
        if kind in WRONG_KIND:
            return "is %s, which is not opened" % kind
        try:
            if kind in STREAMS:
                file = self.unpacked(STREAMS[kind](file))
                if file is None:
                    return "is not taken: it holds more than %d MiB" % (4 * ARCHIVE_LIMIT >> 20)
                packed = file_kind(file.read(512)) == "a tar archive"
                file.seek(0)
                if shown and not packed:
                    self.single(file, shown, depth)
                    return ""
            if kind.endswith("zip archive"):
                self.zip(self.open.enter_context(zipfile.ZipFile(file)), shown, depth)
            else:
                self.tar(self.open.enter_context(tarfile.open(fileobj=file, mode="r:")), shown,
                         depth)
        except DAMAGED as problem:
            return "cannot be unpacked (%s)" % (problem or type(problem).__name__)
        return ""

    def unpacked(self, stream):
        """What a compressed file holds; None where that is too much."""
        file = self.open.enter_context(tempfile.TemporaryFile())
        while True:
            data = stream.read(1 << 16)
            self.room -= len(data)
            if self.room < 0:
                return None
            file.write(data)
            if not data:
                file.seek(0)
                return file

    def single(self, file, shown, depth):
        """A compressed single file: forward.c.gz."""
        def read(limit):
            file.seek(0)
            return file.read(limit)
        base = re.sub(r"\.\w+$", "", shown.partition(" in ")[0].rpartition("/")[2])
        self.found(Entry(base, shown, read), depth + 1)

    def zip(self, archive, shown, depth):
        locked = 0
        for item in archive.infolist():
            if item.filename.endswith(("/", "\\")):
                continue
            mode = item.external_attr >> 16
            wrong = kind_of(mode) if stat.S_IFMT(mode) else ""
            if item.flag_bits & 1:
                locked, wrong = locked + 1, "is encrypted: hand it in without a password"
            self.member(item.filename, shown, depth, wrong, lambda item=item: archive.open(item))
        if locked:
            self.note("%s is encrypted, and its files are not taken: make it without a password."
                      % (shown or "The archive"))

    def tar(self, archive, shown, depth):
        for item in archive:
            wrong = "is a link: hand in the file itself" if item.issym() or item.islnk() else \
                kind_of(stat.S_IFDIR) if item.isdir() else "" if item.isreg() else kind_of(0)
            self.member(item.name, shown, depth, wrong,
                        lambda item=item: archive.extractfile(item))

    def member(self, name, shown, depth, wrong, opened):
        """One file of an archive."""
        path = inside(name)
        if path is None:
            path = name.replace("\\", "/").rpartition("/")[2]
            wrong = "has a path that leads out of its archive (%s)" % name
        if len(path) > 400:
            return

        def read(limit):
            with opened() as source:
                return source.read(limit)
        self.found(Entry(path, shown, read, wrong), depth + 1)

    # ---- Which of them ----

    def choose(self, taken):
        """{name: bytes} of the assignment's files; why others are not there goes to `taken`."""
        main = {place: self.main_folder(place) for place in {e.place for e in self.entries}}
        chosen = {}
        for file in self.files:
            alike = [entry for entry in self.entries if entry.meant == file][:MOST_ALIKE]
            for entry in alike:
                self.look_into(entry)
            usable = [entry for entry in alike if not entry.wrong]
            wrong = ["%s %s." % (entry.shown, entry.wrong) for entry in alike if entry.wrong]
            entry, left = self.one_of(usable, main)
            if entry:
                chosen[file] = entry
                self.tell(entry, left)
            elif usable:
                wrong.insert(0, "%s came more than once, and the files differ: %s. None is taken: "
                             "hand in one." % (file, ", ".join(
                                 entry.shown for entry in sorted(usable, key=lambda entry: (
                                     entry.place, entry.name)))))
            if wrong and not entry:
                taken.missing[file] = " ".join(wrong)
            for text in wrong:
                self.note(text)
        return chosen

    def look_into(self, entry):
        """Reads a file, and sees whether it is text."""
        if entry.wrong:
            return
        try:
            data = entry.read(FILE_LIMIT + 1)
        except PermissionError:
            entry.wrong = "cannot be read: check its permissions"
            return
        except DAMAGED as problem:
            entry.wrong = "is damaged (%s)" % (problem or type(problem).__name__)
            return
        if len(data) > FILE_LIMIT:
            entry.wrong = "has more than %d MiB, which no task needs" % (FILE_LIMIT >> 20)
            return
        entry.data, entry.was, entry.wrong = as_source(data)

    def main_folder(self, place):
        """Of an archive's folders that which holds most of the files, the outermost where several
        do; skeleton/ where two are alike in that, and else both."""
        folders = {}
        for entry in self.entries:
            if entry.place == place and entry.meant and not entry.wrong:
                folders.setdefault(entry.folder, set()).add(entry.meant)
        depths = {folder: (-len(names), folder.count("/") + bool(folder),
                           folder.rpartition("/")[2] != "skeleton")
                  for folder, names in folders.items()}
        return {folder for folder, depth in depths.items() if depth == min(depths.values())}

    @staticmethod
    def one_of(usable, main):
        """(the one that is taken or None, those that are left for another folder's sake)."""
        near = [entry for entry in usable if any(
            folder == entry.folder or not entry.folder or folder.startswith(entry.folder + "/")
            for folder in main[entry.place])]
        for some in (usable, near):
            if some and len({entry.data for entry in some}) == 1:
                best = min(some, key=lambda entry: (entry.base != entry.meant, entry.place))
                return best, [entry for entry in usable if entry.data != best.data]
        return None, []

    def tell(self, entry, left):
        if entry.base != entry.meant:
            self.note("%s was taken as %s." % (entry.shown, entry.meant))
        if entry.was:
            self.note("%s is %s, and is read as UTF-8 with plain line ends." % (
                entry.shown, entry.was))
        for other in left:
            self.note("%s is not taken: %s is, from the folder with most of the files."
                      % (other.shown, entry.shown))

    def others(self, chosen):
        """Files beside the chosen ones, which they may include or which may be misnamed."""
        folders = {(entry.place, entry.folder) for entry in chosen.values()} or {("", "")}
        beside = [entry for entry in self.entries if not entry.meant
                  and (entry.place, entry.folder) in folders]
        headers = [entry.shown for entry in beside if entry.name.endswith(".h")]
        if headers:
            self.note("%s: headers are not taken, the kit's own are used. What a task needs "
                      "belongs in its .c file."
                      % ", ".join(headers[:4] + ["…"] * (len(headers) > 4)))
        return [entry for entry in beside
                if PLAIN.match(entry.base) and not entry.name.endswith(NO_SOURCE)][:MOST_FILES]


def listed(names):
    """a.c, b.c and c.c."""
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + list(names[-1:]))


def take(submission, files, target, optional=()):
    """Copies the files of what was handed in to `target`; nothing is said of
    `optional` ones that are not there."""
    if not os.path.lexists(submission):
        raise Unusable("Nothing was handed in. %s: %s." % (HOW, listed(files)))
    handin, taken = Handin(list(files) + list(optional)), Taken()
    with handin.open:
        handin.add(submission)
        chosen = handin.choose(taken)
        found = sorted({entry.shown for entry in handin.entries})
        needed = [file for file in files if file not in chosen]
        copied = {entry.base: entry for entry in handin.others(chosen)}
        if not chosen:
            raise Unusable("\n".join([nothing(found, files)] + handin.notes[:MOST_NOTES]))
        for name, entry in {**copied, **chosen}.items():
            if name in copied and name not in chosen:
                handin.look_into(entry)
                if entry.wrong:
                    continue
            with open(os.path.join(target, name), "wb") as file:
                file.write(entry.data)
    silent = [file for file in needed if file not in taken.missing]
    taken.notes = handin.notes[:MOST_NOTES]
    if len(handin.notes) > MOST_NOTES:
        taken.notes.append("%d more files are not taken." % (len(handin.notes) - MOST_NOTES))
    if silent:
        alike = [(file, look_alike(file, copied)) for file in silent]
        taken.notes.append(" ".join(["Not handed in: %s." % listed(silent)] + [
            "There is %s: its name must be exactly %s." % (copied[name].shown, file)
            for file, name in alike if name]))
    return taken


def nothing(found, files):
    """Why there is nothing to grade."""
    if not found:
        return "Nothing that can be graded was handed in. %s: %s." % (HOW, listed(files))
    return "None of the files to hand in was found: %s. What came: %s. %s." % (
        listed(files), ", ".join(found[:12] + ["…"] * (len(found) > 12)), HOW)
