#!/usr/bin/env python3
"""A task file's preprocessed text: made once, checked, and compiled exactly as it is.

A text that is looked at and another that is compiled can differ: by __has_include, by a precompiled
header, by a file that changes between the two. So the file and the headers of its folder are read
once, into a place that holds nothing else, and preprocessed there; what comes of it is checked
(submission.py) and written, and the compiler gets only that text. Its linemarkers name the
student's files, so messages and debug information do too.

Only a folder's own files with plain names (letters, digits, '_', '-', '.') are copied: other names
would mean something to make, too.

The preprocessor reads what is in that place, the kit's headers and what the system has installed,
and nothing else of the kit (confine.c).

Interface: Expansion(words, source, folder, confine, call): .text, .output, .wrong, .failed,
.source_sha256, .needs; compiler_environment(); confined(confine, words, reads, write). expand.py
FILE.i CONFINE -- COMPILER … -c FOLDER/FILE.c -o FILE.o writes FILE.i and FILE.d, which make reads;
make/rules.mk calls it.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile

import submission
from files import write_atomically
from layout import safe, tell
from source_text import as_source

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
FOR_MAKE = re.compile(r"[A-Za-z0-9_./+@,-]+") # paths that make reads as they are
MOST_OWN = 16 << 20                           # bytes of a folder's files together

# A comment by which a reader and gcc know that a case goes on in the next: only this kind of
# comment means something to the compiler.
FALLS_THROUGH = re.compile(rb"fall(?:s|ing)?[ \t-]*thr", re.IGNORECASE)
NOT_OPEN = re.compile(r"error: (?:cannot open file ')?([^'\n]+)'?: Permission denied")
# The options of a compiler that name what it reads.
READS = re.compile(r"(?:-I|-isystem|-iquote|-idirafter|-include|-imacros|-B|--sysroot=?|@)(.*)")
NOT_FOUND = re.compile(r"fatal error: (?:'([^'\n]+)' file not found|([^\n]+): No such file)")


def preprocessor(words):
    """The words of a compilation without those that say what it makes."""
    kept = []
    for i, word in enumerate(words):
        if word not in ("-c", "-o") and (i == 0 or words[i - 1] not in ("-c", "-o")):
            kept.append(word)
    return kept


def called(folder):
    """What __FILE__ calls a folder: by its path, or, where make has a link to it, by its name."""
    path = os.path.join(ROOT, folder)
    if not os.path.islink(path):
        return folder
    return os.path.basename(os.readlink(path)).replace("=", "_")


def included(names):
    """The files of a list that the compiler wrote for make."""
    names = names.partition(":")[2].replace("\\\n", " ")
    return [re.sub(r"\\(.)", r"\1", name).replace("$$", "$")
            for name in re.findall(r"(?:\\.|\S)+", names)]


def compiler_environment():
    """Messages in English, and nothing of make, of whose jobs gcc -v would speak."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MFLAGS")}
    return dict(kept, LC_ALL="C", CCACHE_DISABLE="1") # which would write elsewhere


def confined(confine, words, reads, write):
    """The command that runs a compiler's words so that it writes in one folder, and reads beside
    these what its options and variables name."""
    for i, word in enumerate(words):
        found = READS.fullmatch(word)
        if found:
            reads = reads + [found.group(1) or words[min(i + 1, len(words) - 1)]]
    for name in ("CPATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "CONDA_PREFIX"):
        reads = reads + os.environ.get(name, "").split(os.pathsep)
    options = [option for path in reads if path for option in ("--read", path)]
    return [confine, "--tool", "--without", ROOT] + options + ["--write", write, "--"] + words


def run(words):
    """(exit status, what it printed)"""
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=compiler_environment(), check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace")


class Expansion:
    """One preprocessing. `words`: the compiler and its options; `source`: the file as make calls
    it; `folder`: where it really is; `confine`: the program of confine.c; `call`: runs a command,
    in the limits of a compilation."""

    def __init__(self, words, source, folder, confine, call=run):
        self.text = b""           # preprocessed
        self.output = ""          # what the preprocessor had to say
        self.wrong = ""           # why the text is not to be compiled, without the file's name
        self.failed = False       # whether the preprocessor could not do it: the output says why
        self.source_sha256 = ""   # of the file as it was read
        self.needs = []           # the files that the text was made of, as make calls them
        self.given, self.file = os.path.split(source)
        self.folder = folder
        with tempfile.TemporaryDirectory(prefix="shardlab-text-") as above:
            self.place = os.path.join(os.path.realpath(above), "own")
            os.mkdir(self.place)
            self.copy()
            if not self.wrong:
                self.preprocess(words, os.path.realpath(above), lambda command: call(confined(
                    confine, command, [self.place], os.path.realpath(above))))

    def copy(self):
        """Copies the files of the folder that may be included."""
        total = 0
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if not name.endswith((".c", ".h")) or self.why_not(name):
                continue
            with open(path, "rb") as file:
                data = file.read(submission.MOST_SOURCE + 1)
            total += len(data)
            if total > MOST_OWN and name != self.file:
                continue
            with open(os.path.join(self.place, name), "wb") as file:
                file.write(data)
            if name == self.file:
                self.source_sha256 = hashlib.sha256(data).hexdigest()
                _, was, self.wrong = as_source(data)
                if was:
                    self.wrong = "is %s: save it as UTF-8 with plain line ends" % was
            if FALLS_THROUGH.search(data):
                self.with_comments = True

    with_comments = False # whether a comment may mean something to the compiler

    def why_not(self, name):
        """Why a file of the folder is not copied, as the end of a sentence; ""."""
        path = os.path.join(self.folder, name)
        if "/" in name:
            return "which is not in the folder itself: move it to the folder of the task file"
        if not PLAIN.fullmatch(name):
            return ("whose name has characters other than letters, digits, '_', '-' and '.': "
                    "rename it")
        if not name.endswith((".c", ".h")):
            return "which is neither a .h nor a .c file"
        try:
            wrong = submission.look_at_file(path, self.folder)
        except OSError:
            return "which is not there"
        if not wrong and not os.access(path, os.R_OK):
            wrong = "cannot be read"
        return "which " + wrong if wrong else ""

    def preprocess(self, words, above, call):
        out, files = os.path.join(above, "out"), os.path.join(above, "files")
        command = preprocessor(words)
        command.append("-fmacro-prefix-map=%s=%s" % (self.place, called(self.given)))
        command += ["-C"] * self.with_comments
        command += ["-E", "-v", "-MD", "-MT", "x", "-MF", files, "-o", out]
        status, output = call(command + [os.path.join(self.place, self.file)])
        folders, self.output = self.heard(output)
        if status != 0:
            self.failed = True
            self.wrong = self.not_copied(self.output)
            return
        if os.path.getsize(out) > submission.MOST_EXPANDED:
            self.wrong = ("becomes longer than %d MiB once its macros and headers are expanded"
                          % (submission.MOST_EXPANDED >> 20))
            return
        with open(out, "rb") as file:
            text = file.read()
        with open(files, encoding="utf-8", errors="surrogateescape") as file:
            names = included(file.read())
        shown = text.decode("utf-8", "surrogateescape")
        self.wrong = submission.look_at_source(
            self.place, submission.bare(shown) if self.with_comments else shown,
            [name for name in names if name not in self.forced(words)], folders, ROOT)
        self.text = re.sub(rb'(?m)^(# \d+ ")%s/' % re.escape(os.fsencode(self.place)),
                           lambda found: found.group(1) + os.fsencode(self.given) + b"/", text)
        self.needs = [self.as_given(name) for name in names]

    def forced(self, words):
        """The headers that whoever builds has put in front of every file (-include)."""
        return {word for word, before in zip(words[1:], words) if before == "-include"}

    def heard(self, output):
        """Of what the compiler printed: the folders of headers, and what it says of the file."""
        found = re.search(r"search starts here:\n(.*?)^End of search list\.\n", output,
                          re.DOTALL | re.MULTILINE)
        if not found:
            return [], self.as_given(output)
        said = re.sub(r"(?ms)^COMPILER_PATH=.*", "", output[found.end():])
        return [line.strip() for line in found.group(1).splitlines()
                if line.startswith(" ")], self.as_given(said)

    def as_given(self, text):
        """A text that names the copies, with the names that make has for the files."""
        return text.replace(self.place + "/", self.given + "/")

    def not_copied(self, output):
        """What is wrong with a header that was not found, or that is not to be read; ""."""
        found = NOT_OPEN.search(output)
        if found:
            return submission.foreign_header(found.group(1))
        found = NOT_FOUND.search(output)
        name = (found.group(1) or found.group(2)) if found else ""
        if not name or not os.path.lexists(os.path.join(self.folder, name)):
            return ""
        reason = self.why_not(name)
        return "includes %s, %s" % (name, reason) if reason else ""

    def rule(self, target):
        """What make is told: the text depends on the kit's headers and on the folder's."""
        needs = sorted({name for name in self.needs if FOR_MAKE.fullmatch(name) and (
            name.startswith(self.given + "/") or not name.startswith("/"))})
        return "%s: %s\n%s" % (target, " ".join(needs), "".join(
            "%s:\n" % name for name in needs if not name.endswith("/" + self.file)))


def main(arguments):
    target, confine, words = arguments[0], arguments[1], arguments[3:]
    source = words[words.index("-c") + 1]
    made = Expansion(words, source, os.path.join(ROOT, os.path.dirname(source)), confine)
    if made.wrong:
        tell("%s %s." % (source, made.wrong))
        return 1
    sys.stderr.write(safe(made.output, sys.stderr.encoding))
    if made.failed:
        return 1
    write_atomically(target[:-2] + ".d", made.rule(target))
    write_atomically(target, made.text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
