#!/usr/bin/env python3
"""Makes what a course hands out and uploads, from this one tree.

    release.py --out DIR        (make release; --gaps 2 leaves more of the skeleton to be written)

    shardlab-V-student.tar.gz      for students: skeleton, given code, handouts, tests to be seen
    shardlab-V-gradescope.zip      for Gradescope: setup.sh, run_autograder, kit/
    shardlab-V-autolab/            for Autolab: autograde-Makefile, autograde.tar
    shardlab-V-prairielearn/       for PrairieLearn: serverFilesCourse/, questions/, Dockerfile

V is the version: that of VERSION, or of course.json where it has one, and the commit. No archive
holds the reference's source. What isolated grading needs of it are six objects, without debug
information and local names, compiled behind platforms/quiet.h. Before anything is packed every file
is searched for lines of the solution (class Secrets), and for hidden tests where students are to
get it.

Files are taken by folder and kind from lists in this file; the skeleton is generated. For the same
tree the archives are the same to the byte: sorted, with one owner and one time. Everything is made
in a temporary folder within DIR and moved to its name at the end.

Interface: release.py --out DIR [--at COMMIT] [--version V] [--gaps 1|2] [--given DIR …]
[--suites DIR]
Files: platforms/ (what is particular to each), course.json (settings.py reads it), deliver.py (what
grades).
"""

import argparse
import gzip
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
import zipfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import answers
import cause
import challenge
import intact
import manifest
import settings
import skeleton
from emit import autolab

KINDS = (".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".md", ".svg", ".sh", ".py", ".json", ".mk",
         ".awk", ".machine")

# What every kit needs to grade: folders, taken whole, and single files.
KIT_FOLDERS = ("examples", "gpulog", "include", "labs", "lib", "plan", "simgpu", "tasks",
               "tests/support")
# What of these folders is in no archive: of a task or lab, what students are to find out, and how
# the tests are tested; the tests of simgpu and gpulog. Hidden tests are only in those that grade.
NOT_RELEASED = re.compile(r"(tasks|labs)/[^/]+/(reference.*\.c|mutants\.json|alternatives/.*)$|"
                          r"(simgpu|gpulog)/tests/")
HIDDEN = re.compile(r"(tasks|labs)/[^/]+/hidden\w*\.c$")
KIT_FILES = ("LICENSE",)
# What students get in addition: no test of the kit itself, only those that grade (tasks and labs,
# above) and the program that the results page draws.
STUDENT_FOLDERS = (".devcontainer", ".vscode", "handouts", "tests/trace")
STUDENT_FILES = (".clang-format", ".devcontainer/Dockerfile", ".gitignore")
# Of handouts/, what is for staff and for those who have the whole kit.
FOR_STAFF = ("handouts/commands.md", "handouts/instructors.md", "handouts/interview_answers.md")
# FSDP in one file: what tasks 2 to 5 ask for. Students get it where the course says so.
ONE_FILE = ("handouts/one_file.md", "examples/fsdp_300.c")
# Of grader/course/, what those for platforms grade with. Of grader/ itself and of its emit/ every
# archive has all, of grader/devtools/ none has any.
COURSE_FILES = ("course.json", "deliver.py", "handin.py", "hidden.py")
# Rules of make for what no archive holds.
KIT_RULES = ("make/devtools.mk", "make/emulated_cuda.mk", "make/release.mk", "make/site.mk")


class BadRelease(Exception):
    """Nothing can be released; the text says why."""


@dataclass
class Entry:
    """A file of an archive."""
    data: bytes
    executable: bool = False


# ---- What is secret ----

def flat(text):
    """Text with every run of blanks as one, so that indentation hides nothing."""
    return " ".join(text.split())


class Secrets:
    """The lines of the solution: those that the skeleton leaves out of reference/, and calls in
    them without the macro around them. A line that is as short as `return OK;` says nothing, and
    one that the skeleton, lib/ or simgpu/ has too is no secret; nor is the call of a function with
    one name, as every test has it."""

    SHORTEST = 24 # characters
    BARE_CALL = re.compile(r"\w+\(\w+\);?$")
    MACRO = re.compile(r"^(?:CUDA_|NCCL_|CUBLAS_)?TRY\((.*)\);$")

    def __init__(self, root, gaps=1):
        self.gaps = gaps
        self.lines = set()
        given = []
        for piece in pieces(root):
            self.lines.update(self.solution(read(os.path.join(
                root, piece.in_kit("reference"))).decode("utf-8")))
        given += skeleton.files(root, gaps).values()
        for path in sorted(walk(root, "lib") + walk(root, "simgpu")):
            given.append(read(os.path.join(root, path)).decode("utf-8"))
        known = "\n".join(flat(line) for text in given for line in text.split("\n"))
        self.lines = {line for line in self.lines if line not in known}
        self.encoded = {line.encode("utf-8"): line for line in self.lines}
        self.known = {} # {a file's bytes: what leaks() said}: most files are in each archive

    def solution(self, text):
        """Lines of regions, flattened."""
        inside = in_head = False
        for line in text.split("\n"):
            if skeleton.begins(line, self.gaps):
                inside = in_head = True
            elif skeleton.END.match(line):
                inside = False
            elif inside and in_head and (skeleton.HINT.match(line) or
                                         skeleton.MORE_TEXT.match(line)):
                pass # the skeleton shows it
            elif inside and not skeleton.INSTEAD.match(line):
                in_head = False
                line = flat(line)
                call = self.MACRO.match(line)
                for secret in [line] + ([call.group(1)] if call else []):
                    if len(secret) >= self.SHORTEST and not self.BARE_CALL.match(secret):
                        yield secret

    def leaks(self, data):
        """Which lines of the solution a file holds."""
        if data not in self.known:
            text = b" ".join(data.split())
            self.known[data] = sorted(line for code, line in self.encoded.items() if code in text)
        return self.known[data]


# ---- Collecting ----

def pieces(root):
    """The files of all tasks and labs, each as a manifest.Task."""
    return [piece for task in manifest.load_all(root) for piece in task.pieces()]


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as problem:
        raise BadRelease("%s cannot be read: %s" % (path, problem))


def walk(root, folder, kinds=KINDS):
    """The files of a folder that are of a kind to be released, as paths within the tree. What
    editors, compilers and git leave behind has other names."""
    found = []
    for at, folders, names in os.walk(os.path.join(root, folder)):
        folders[:] = sorted(name for name in folders
                            if not name.startswith((".", "__")) and name != "build")
        for name in sorted(names):
            path = os.path.join(at, name)
            if name.endswith(kinds) and not name.startswith((".", "#")):
                if os.path.islink(path):
                    raise BadRelease("%s is a link, which may not work elsewhere" % path)
                found.append(os.path.relpath(path, root))
    return found


def withheld(course):
    """What students of the course do not get of the pages and examples."""
    return FOR_STAFF + (() if course["one_file"] else ONE_FILE)


def entry(root, path):
    """A file of the tree as it is."""
    data = read(os.path.join(root, path))
    return Entry(data, data.startswith(b"#!"))


def grader_files(root, of_course=()):
    """The grader: what is in grader/ itself, the emitters, and these files of grader/course/."""
    return [path for path in walk(root, "grader")
            if not path.startswith(("grader/course/", "grader/devtools/"))] + \
        ["grader/course/" + name for name in of_course]


def make_files(root):
    """The Makefile and its parts."""
    return ["Makefile"] + [path for path in walk(root, "make") if path not in KIT_RULES]


def collect(root, folders, files):
    """{path: Entry}"""
    paths = [path for folder in folders for path in walk(root, folder)
             if not NOT_RELEASED.match(path)] + list(files)
    return {path: entry(root, path) for path in paths}


def objects(root):
    """The reference as objects of this machine: {path: Entry}. They are built in a folder of their
    own, because make cannot build in one whose path has spaces, which the release's may have."""
    with tempfile.TemporaryDirectory(prefix="shardlab-release-") as build:
        return objects_built_in(build, root)


def objects_built_in(build, root):
    machine = os.uname().machine
    names = [piece.name for piece in pieces(root)]
    paths = [os.path.join(build, "impl", "reference", name + ".o") for name in names]
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("MAKE", "MFLAGS")) and name not in
                   ("IMPL", "BUILD", "CFLAGS", "TASK", "BACKEND", "SANITIZE")}
    quiet = os.path.join(ROOT, "grader", "course", "platforms", "quiet.h")
    command = ["make", "-s", "-j2", "--no-print-directory", "-C", root, "BUILD=" + build,
               "IMPL=reference", "CFLAGS=-O2 -Iinclude -Isimgpu/include -Igpulog/include -include "
               + shlex.quote(quiet)] + paths
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise BadRelease("the reference does not compile:\n%s"
                         % done.stdout.decode("utf-8", "replace"))
    entries = {}
    for name, path in zip(names, paths):
        done = subprocess.run(["strip", "--strip-unneeded", "--discard-all", "-R", ".comment",
                               path], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise BadRelease("strip: %s" % done.stderr.strip())
        entries["given/reference-%s/%s.o" % (machine, name)] = Entry(read(path))
    return entries


def other_objects(folders, names):
    """Objects of other machines: of each folder given, its reference-<machine> folders."""
    entries = {}
    for folder in folders:
        found = [name for name in sorted(os.listdir(folder)) if name.startswith("reference-")]
        if not found:
            raise BadRelease("%s has no folder reference-<machine>" % folder)
        for inner in found:
            for name in names:
                path = os.path.join(folder, inner, name + ".o")
                entries["given/%s/%s.o" % (inner, name)] = Entry(read(path))
    return entries


def dates(course):
    """The dates as students read them."""
    names = (("opens", "Opens"), ("due", "Due"), ("late_until", "Last day, late"))
    form = "%A %-d %B %Y, %H:%M %Z"
    lines = ["%s: %s" % (label, settings.when(course["dates"][name]).strftime(form))
             for name, label in names if course["dates"].get(name)]
    percent = course["late"]["percent_per_day"]
    if percent and course["dates"].get("late_until"):
        lines.append("Late: %g %% of the score a day" % percent)
    return "".join("- %s\n" % line for line in lines)


def filled(path, **values):
    """A template of platforms/ with its @NAME@s replaced."""
    text = read(os.path.join(ROOT, "grader", "course", "platforms", path)).decode("utf-8")
    for name, value in values.items():
        text = text.replace("@%s@" % name.upper(), value)
    left = re.search(r"@[A-Z]+@", text)
    if left:
        raise BadRelease("platforms/%s needs %s, which has no value" % (path, left.group()))
    return Entry(text.encode("utf-8"), text.startswith("#!"))


def with_sums(files):
    """The files of a kit, and what says that they are these."""
    text = intact.sums({path: file.data for path, file in files.items()})
    return dict(files, **{intact.NAME: Entry(text.encode("utf-8"))})


class Contents:
    """What goes into the archives: a dict of path: Entry each."""

    def __init__(self, root, version, given, gaps):
        self.root = root
        self.version = version
        self.course = settings.load(root)
        self.gaps = gaps
        self.secrets = Secrets(root, gaps)
        names = [piece.name for piece in pieces(root)]
        others = other_objects(given, names) # first: what is missing there is soon known
        self.given = {**objects(root), **others}
        self.made = {"VERSION": Entry((version + "\n").encode()), cause.GIVEN: Entry(
            json.dumps(cause.given(root, gaps), indent=1).encode())}

    def student(self):
        """The archive for students."""
        machines = sorted({path.split("/")[1].partition("-")[2] for path in self.given})
        course = self.course["course"]
        files = collect(self.root, KIT_FOLDERS + STUDENT_FOLDERS, KIT_FILES + STUDENT_FILES)
        files = {path: file for path, file in files.items()
                 if path not in withheld(self.course) and not HIDDEN.match(path)}
        files.update(collect(self.root, (), grader_files(self.root) + make_files(self.root)))
        files.update(self.given)
        files.update(self.made)
        for path, text in skeleton.files(self.root, self.gaps).items():
            files[path] = Entry(text.encode("utf-8"))
        files["README.md"] = filled("student/README.md", title=self.course["title"],
                                    course=course + "\n" if course else "",
                                    dates=dates(self.course), machines=", ".join(machines),
                                    version=self.version)
        files[".github/workflows/grade.yml"] = filled("github/grade.yml")
        self.check(files)
        hidden = [test["name"].encode() for test in self.course["hidden"]["tests"]]
        for path, file in files.items():
            if HIDDEN.match(path) or any(name in file.data for name in hidden):
                raise BadRelease("%s would give a hidden test away" % path)
        return with_sums(files)

    def kit(self):
        """The part of every archive for graders."""
        files = collect(self.root, KIT_FOLDERS, KIT_FILES)
        files = {path: file for path, file in files.items() if path not in ONE_FILE}
        files.update(collect(self.root, (), grader_files(self.root, COURSE_FILES) +
                             make_files(self.root)))
        files.update((path, Entry(text.encode("utf-8")))
                     for path, text in skeleton.files(self.root, self.gaps).items()
                     if path in files)
        files.update(self.given)
        files.update(self.made)
        self.check(files)
        return with_sums(files)

    def check(self, files):
        """No file holds a line of the solution."""
        for path, file in sorted(files.items()):
            if path in ONE_FILE: # there only where the course gives the solution
                continue
            leaks = self.secrets.leaks(file.data)
            if leaks:
                raise BadRelease("%s holds a line of the solution: %s" % (path, leaks[0]))

    def gradescope(self):
        files = {"kit/" + path: file for path, file in self.kit().items()}
        for name in ("setup.sh", "run_autograder"):
            files[name] = filled("gradescope/" + name)
        return files

    def autolab(self):
        """The Makefile, and what autograde.tar holds."""
        nothing = {"scores": dict.fromkeys(autolab.problems(self.course), 0)}
        files = {"kit/" + path: file for path, file in self.kit().items()}
        files["kit/autolab.sh"] = filled("autolab/autolab.sh")
        return filled("autolab/autograde-Makefile", nothing=json.dumps(nothing)), files

    def prairielearn(self):
        here = "serverFilesCourse/shardlab/"
        files = {here + "kit/" + path: file for path, file in self.kit().items()}
        files[here + "run.sh"] = filled("prairielearn/run.sh")
        files["Dockerfile"] = filled("prairielearn/Dockerfile")
        # The same question in every release of the same course.
        number = uuid.uuid5(uuid.NAMESPACE_URL, "%s %s" % (self.course["name"],
                                                           self.course["course"]))
        question = "questions/%s/" % self.course["name"]
        names = ",".join(file for task in self.course["tasks"] for file in task["files"])
        extra = [name for name, wanted in ((answers.NAME, self.course["quiz"]),
                                           (challenge.NAME, self.course["challenge"])) if wanted]
        files[question + "info.json"] = filled("prairielearn/info.json", uuid=str(number),
                                               title=self.course["title"].replace('"', "'"))
        files[question + "question.html"] = filled(
            "prairielearn/question.html", files=names,
            optional=' optional-file-names="%s"' % ",".join(extra) if extra else "",
            extra=" With them you may hand in %s." % " and ".join(extra) if extra else "")
        return files


# ---- Packing ----

def tar_bytes(files, prefix, moment):
    """An uncompressed tar, the same for the same files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            item = tarfile.TarInfo(prefix + path)
            item.size = len(files[path].data)
            item.mode = 0o755 if files[path].executable else 0o644
            item.mtime = moment
            item.uname = item.gname = "root"
            archive.addfile(item, io.BytesIO(files[path].data))
    return out.getvalue()


def tar_gz_bytes(files, prefix, moment):
    out = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=moment) as packed:
        packed.write(tar_bytes(files, prefix, moment))
    return out.getvalue()


def zip_bytes(files, moment):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            item = zipfile.ZipInfo(path, time.gmtime(max(moment, 315532800))[:6]) # from 1980 on
            item.create_system = 3 # Unix, for the permissions
            item.external_attr = (0o100755 if files[path].executable else 0o100644) << 16
            item.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(item, files[path].data)
    return out.getvalue()


def put(path, data, executable=False, moment=None):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, 0o755 if executable else 0o644)
    if moment is not None:
        os.utime(path, (moment, moment))


def make_all(contents, folder, base, moment):
    """Writes all archives below a folder; their names in it."""
    put(os.path.join(folder, base + "-student.tar.gz"),
        tar_gz_bytes(contents.student(), contents.course["name"] + "/", moment))
    put(os.path.join(folder, base + "-gradescope.zip"), zip_bytes(contents.gradescope(), moment))
    makefile, files = contents.autolab()
    put(os.path.join(folder, base + "-autolab", "autograde-Makefile"), makefile.data, moment=moment)
    put(os.path.join(folder, base + "-autolab", "autograde.tar"), tar_bytes(files, "", moment),
        moment=moment)
    for path, file in contents.prairielearn().items():
        put(os.path.join(folder, base + "-prairielearn", path), file.data, file.executable, moment)
    return sorted(os.listdir(folder))


def move(source, target):
    """Puts a file or folder in the place of one that may be there from before."""
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    os.replace(source, target)


# ---- Versions ----

def git(root, *words):
    """What git says; None where there is no git or no repository of this tree."""
    try:
        done = subprocess.run(["git", "-C", root] + list(words), stdin=subprocess.DEVNULL,
                              capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def describe(root, commit):
    """The commit's short name, with a mark where the tree is not the commit's; "" outside git."""
    if not os.path.exists(os.path.join(root, ".git")):
        return ""
    name = git(root, "rev-parse", "--short", commit)
    changed = commit == "HEAD" and git(root, "status", "--porcelain")
    return name.decode().strip() + ("-changed" if changed else "") if name else ""


def version_of(root, commit="HEAD"):
    """The course's version or the kit's, and the commit."""
    words = [settings.load(root)["version"] or read(os.path.join(root, "VERSION")).decode().strip(),
             describe(ROOT, commit)]
    return "-".join(word for word in words if word)


def moment_of(root, commit):
    """The time that all files get: SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/
    source-date-epoch/), or the commit's."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is None and os.path.exists(os.path.join(root, ".git")):
        text = (git(root, "log", "-1", "--format=%ct", commit) or b"").decode().strip()
    return int(text) if text and text.isdigit() else 1735689600


def export(commit, folder):
    """The tree of a commit, unpacked."""
    data = git(ROOT, "archive", "--format=tar", commit)
    if data is None:
        raise BadRelease("git has no commit %s" % commit)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder)


def check_tasks(root, suites):
    """What `make test` asks of manifests and course.json, of the tree that is released."""
    program = os.path.join(root, "grader", "devtools", "check_tasks.py")
    done = subprocess.run([sys.executable, "-B", program] + ["--suites", suites] * bool(suites),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wrong = (done.stdout + done.stderr).splitlines()
    if done.returncode != 0:
        more = len(wrong) - 1
        raise BadRelease(wrong[0] + (" (%d more things: python3 grader/devtools/check_tasks.py)"
                                     % more if more else ""))


def release(options):
    """Makes everything; the names in options.out."""
    os.makedirs(options.out, exist_ok=True)
    work = tempfile.mkdtemp(prefix=".release-", dir=options.out)
    try:
        root, commit = ROOT, options.at or "HEAD"
        if options.at:
            root = os.path.join(work, "tree")
            export(options.at, root)
        check_tasks(root, options.suites)
        version = options.version
        if not version:
            version = version_of(root, commit)
        if not re.fullmatch(r"[\w.+-]+", version):
            raise BadRelease("version %s cannot be part of a file name" % version)
        contents = Contents(root, version, options.given, int(options.gaps))
        done = os.path.join(work, "done")
        os.mkdir(done)
        base = "%s-%s" % (contents.course["name"], version)
        names = make_all(contents, done, base, moment_of(ROOT, commit))
        for name in names:
            move(os.path.join(done, name), os.path.join(options.out, name))
        return names
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description="Make the archives for students and platforms.")
    parser.add_argument("--out", required=True, metavar="DIR", help="where they go")
    parser.add_argument("--at", default="", metavar="COMMIT",
                        help="release the tree of this commit (the working tree)")
    parser.add_argument("--version", default="", metavar="V",
                        help="the version (that of VERSION and the commit)")
    parser.add_argument("--gaps", choices=tuple(map(str, skeleton.GAPS)), default="1",
                        help="2: leave out function bodies and given helpers too")
    parser.add_argument("--given", action="append", default=[], metavar="DIR",
                        help="given/ of a release made on another kind of machine, to include")
    parser.add_argument("--suites", default="", metavar="DIR",
                        help="compare the manifests' tests with the suites in this folder")
    options = parser.parse_args()

    def stop(number, frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        for name in release(options):
            path = os.path.join(options.out, name)
            size = os.path.getsize(path) if os.path.isfile(path) else None
            print("%s%s" % (os.path.relpath(path), "  %d kB" % (size / 1000) if size else "/"))
        return 0
    except (BadRelease, settings.BadCourse, manifest.BadManifest, skeleton.Malformed,
            OSError) as problem:
        print("release: %s" % problem, file=sys.stderr)
    except KeyboardInterrupt:
        print("release: stopped; nothing was released", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
