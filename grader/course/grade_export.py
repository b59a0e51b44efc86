#!/usr/bin/env python3
"""Grades all that a platform exported, by the kit as it is now; or shows what changed since before.

    grade_export.py EXPORT [--jobs N] [--out DIR] [--build DIR]             (make grade-all)
    grade_export.py EXPORT --compare [--before PATH] ...                    (make regrade)

EXPORT is what the platform's own export gives, as an archive or unpacked (exports.py has the
forms). Each submission is graded as on a platform (deliver.py), N at a time, with the same draws
for all. In DIR are then results/STUDENT.json, in the form that Gradescope reads, and points.csv: a
line for each student's task and one for all. A result says what it was made from, the kit and the
submission (extra_data.digest); where a new one would be made from the same, it is kept. So who is
interrupted, however that happens, runs the same command again and loses what was being graded.

With --compare there are also changes.csv (a line for each student) and index.html: points before
and after, and each test that changed. What was before is taken from
--before (an earlier DIR, or a CSV with a column student and a column points), else from the export
where it has it (Gradescope, Autolab), else from the run before in the same DIR.

Exit status 0 where every submission was graded; 3 where a grading failed, which the results name;
130 where it was interrupted; 2 for an export or a file that cannot be read.
"""

import argparse
import base64
import csv
import ctypes
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import emit
import exports
import handin
import intact
import page
import runner
from emit import common
from files import digest, write_atomically
from page_style import STYLE

STUDENT = ("student", "email", "uid", "sid", "username", "name")
POINTS = ("after", "points", "score", "total", "total score")
FIELDS = ("student", "before", "after", "change", "tests that changed", "message")
POINTS_FIELDS = ("student", "task", "points", "late", "message")
KIT = intact.WATCHED + ("reference", "Makefile", "VERSION") # what a result depends on
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1


class BadUsage(Exception):
    """What was asked for cannot be done; the text says why."""


class Packed(handin.Handin):
    """The files of a packed export, as they are."""
    most = room = 4 << 30

    def found(self, entry, depth):
        if not entry.wrong:
            self.entries.append(entry)


def unpack(path, folder):
    """Writes an export's files below a folder."""
    opened = Packed(())
    with opened.open, open(path, "rb") as file:
        wrong = opened.archive(file, "", 1)
        if wrong:
            raise BadUsage("%s %s" % (path, wrong))
        for entry in opened.entries:
            target = os.path.join(folder, entry.name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as copy:
                copy.write(entry.read(handin.ARCHIVE_LIMIT))


def file_name(key):
    """A student's name as the name of a file."""
    plain = re.sub(r"[^\w.@+-]", "_", key)[:80]
    return plain if plain == key else "%s-%s" % (plain, hashlib.sha256(
        key.encode("utf-8", "replace")).hexdigest()[:6])


# ---- Before and after ----

def result_of(document):
    """What a result says, to compare with another; None where nothing was graded."""
    extra = document.get("extra_data") or {}
    if extra.get("status") == "infrastructure":
        return None
    return {"score": float(document["score"]), "said": document.get("output", ""), "tests": {
        test["name"]: test["extra_data"]["status"] for test in document["tests"]}}


def document_at(path):
    """A result's document; {} where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return document if isinstance(document, dict) else {}
    except (OSError, ValueError):
        return {}


def load(path):
    """The result in a file, to compare; None where there is none."""
    try:
        return result_of(document_at(path))
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def from_csv(path):
    """{student: points}"""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {name.strip().lower(): name for name in (rows[0] if rows else {}) if name}
    who = [names[name] for name in STUDENT if name in names]
    points = next((names[name] for name in POINTS if name in names), None)
    if not who or not points:
        raise BadUsage("%s has no column for students (%s) or none for points (%s)" % (
            path, ", ".join(STUDENT), ", ".join(POINTS)))
    return {row[column]: exports.number(row[points] or "") for row in rows for column in who}


class Before:
    """What submissions were graded with."""

    def __init__(self, given, kept):
        self.points, self.folders = {}, []
        if given and os.path.isdir(given):
            self.folders = [given, os.path.join(given, "results")]
        elif given:
            try:
                self.points = from_csv(given)
            except (OSError, ValueError, csv.Error) as problem:
                raise BadUsage("%s cannot be read: %s" % (given, problem))
        self.given, self.kept = given, kept

    def of(self, student):
        """{"score", "tests"}; None where it is not known."""
        for name in (student.key, student.who):
            if self.points.get(name) is not None:
                return {"score": self.points[name], "tests": {}}
        file = file_name(student.key) + ".json"
        found = [load(os.path.join(folder, file)) for folder in self.folders]
        if not self.given:
            found += [student.before, load(os.path.join(self.kept, file))]
        return next(filter(None, found), None)


def changed(before, after):
    """The tests whose status differs, a line each. Where the earlier result had passed and failed
    alone, as some exports do, the others count as failed."""
    lines = []
    for name, now in after["tests"].items():
        was = before["tests"].get(name)
        alike = was == now or was == "failed" and now != "passed"
        if before["tests"] and not alike:
            lines.append("%s: %s, was %s" % (name, now, was or "not there"))
    return lines + ["%s: not there any more, was %s" % (name, was)
                    for name, was in before["tests"].items() if name not in after["tests"]]


# ---- What a result is made from ----

def add_to(total, path):
    """Adds a file, or what is below a folder, to a digest: names, kinds and contents."""
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names) + folders:
            add_file(total, os.path.join(folder, name), os.path.relpath(folder, path) + "/" + name)
    if not os.path.isdir(path):
        add_file(total, path, os.path.basename(path))


def add_file(total, path, name):
    mode = os.lstat(path).st_mode
    data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b""
    total.update(b"%s\0%o %d\0" % (os.fsencode(name), stat.S_IFMT(mode), len(data)))
    total.update(data)
    if stat.S_ISREG(mode):
        try:
            total.update(digest(path).encode())
        except PermissionError: # which the grading says, too
            total.update(b"?")


def kit_digest():
    total = hashlib.sha256()
    for name in KIT:
        if os.path.exists(os.path.join(ROOT, name)):
            add_to(total, os.path.join(ROOT, name))
    return total.hexdigest()


def digest_of(student, kit):
    total = hashlib.sha256(json.dumps([kit, student.metadata], sort_keys=True).encode())
    for path in [student.folder] if student.folder else map(student.files.get,
                                                            sorted(student.files)):
        add_to(total, path)
    return total.hexdigest()


def made_from(path):
    """The digest of what a result was made from; "" where there is none, or its grading failed."""
    return str(document_at(path).get("extra_data", {}).get("digest", "")) if load(path) else ""


# ---- The work ----

class Work:
    """Gradings, some at a time. What is not finished is in a folder of its own; a result comes to
    its place by being renamed."""

    def __init__(self, options, work, results):
        self.options, self.work, self.results = options, work, results
        self.running = {} # {process: (student, the result's file, digest)}

    def start(self, student, digest):
        place = tempfile.mkdtemp(dir=self.work)
        folder = student.folder
        if student.files:
            folder = os.path.join(place, "files")
            os.mkdir(folder)
            for name, file in student.files.items():
                shutil.copyfile(file, os.path.join(folder, name.replace("/", "_")))
        metadata, result = os.path.join(place, "metadata.json"), os.path.join(place, "result.json")
        write_atomically(metadata, json.dumps(student.metadata))
        command = [sys.executable, "-B", os.path.join(ROOT, "grader", "course", "deliver.py"),
                   "--platform", "gradescope", "--submission", folder, "--results", result,
                   "--metadata", metadata]
        command += ["--build", self.options.build] if self.options.build else []
        # In a session of its own, which no Ctrl-C reaches; and it ends in order when this one does,
        # however that is (there are no threads here).
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
        self.running[process] = student, result, digest

    def finish(self):
        """Waits for one, and returns its student."""
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        done = next(process for process in self.running if process.poll() is not None)
        student, result, digest = self.running.pop(done)
        document = document_at(result) or json.loads(emit.emit(
            "gradescope", common.infrastructure("The grading was ended."), {}))
        document.setdefault("extra_data", {})["digest"] = digest
        write_atomically(result, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        os.replace(result, os.path.join(self.results, file_name(student.key) + ".json"))
        shutil.rmtree(os.path.dirname(result), ignore_errors=True)
        return student

    def stop(self):
        """Ends those that run: each ends its tests."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait()


def grade(students, options, work, results, kept):
    """Grades all whose results are not there; yields each student when the result is."""
    kit, left = kit_digest(), []
    for student in students:
        name, digest = file_name(student.key) + ".json", digest_of(student, kit)
        if made_from(os.path.join(results, name)) == digest:
            yield student
        elif made_from(os.path.join(kept, name)) == digest:
            shutil.copyfile(os.path.join(kept, name), os.path.join(work, name))
            os.replace(os.path.join(work, name), os.path.join(results, name))
            yield student
        else:
            left.append((student, digest))
    print("%d submissions, %d of them to grade." % (len(students), len(left)), flush=True)
    gradings = Work(options, work, results)
    try:
        while left or gradings.running:
            while left and len(gradings.running) < options.jobs:
                gradings.start(*left.pop(0))
            yield gradings.finish()
    finally:
        gradings.stop()


# ---- What is said ----

def points_of(student, document):
    """The lines of points.csv: one for each task, and one for all."""
    extra, tests = document.get("extra_data", {}), {}
    for test in document["tests"]:
        tests.setdefault(test["tags"][0], []).append(test)
    days = extra.get("days_late")
    late = "%g day%s" % (days, "s" * (days != 1)) if days else "late" * student.late
    rows = [(task, sum(test["score"] for test in group), next(
        ("%s: %s" % (test["name"], test["output"].partition("\n")[0]) for test in group
         if test["extra_data"]["status"] != "passed"), "")) for task, group in tests.items()]
    graded = extra.get("status") == "graded"
    said = " ".join(extra.get("notes", [])) if graded else document["output"].replace("\n", " ")
    rows.append(("all", document["score"] if extra.get("status") != "infrastructure" else None,
                 said))
    return [dict(zip(POINTS_FIELDS, (
        student.who, task, "" if points is None else common.points(points), late, message)))
        for task, points, message in rows]


def row_of(student, before, path):
    """A student's line of changes.csv."""
    row, after = dict.fromkeys(FIELDS, ""), load(path)
    row["student"] = student.who
    if before:
        row["before"] = common.points(before["score"])
    if after is None:
        row["message"] = document_at(path).get("output", "").replace("\n", " ")
        return row
    row["after"] = common.points(after["score"])
    row["message"] = after["said"]
    if before:
        row["change"] = "%+g" % round(after["score"] - before["score"], 2)
        row["tests that changed"] = "\n".join(changed(before, after))
    return row


def line_of(row, compared):
    """The same for a terminal."""
    was = "%6s -> " % (row["before"] or "?") if compared else ""
    return ("%-40s %s%6s  %s" % (
        row["student"][:40], was, row["after"] or "?",
        "%5s  %s" % (row["change"], row["tests that changed"].partition("\n")[0])
        if row["after"] and compared else "" if row["after"] else row["message"][:60])).rstrip()


def table(rows):
    """The page: those that lost points first, then those that gained, then the others."""
    def order(row):
        change = float(row["change"] or 0)
        return (row["after"] != "", change >= 0, -abs(change), row["student"])
    moved = [row for row in rows if row["tests that changed"] or row["change"] not in ("", "+0")]
    unknown = sum(not row["before"] for row in rows)
    failed = sum(not row["after"] for row in rows)
    facts = "%d submissions were graded again: %d changed, %d did not, %d without " \
        "an earlier score." % (len(rows) - failed, len(moved), len(rows) - failed - len(moved)
                              - unknown, unknown)
    if failed:
        facts += " The grading of %d failed: grade these again." % failed
    head = "".join('<th scope="col">%s</th>' % name.capitalize() for name in FIELDS)
    body = "".join("<tr>%s</tr>" % "".join(
        page.tag("td", page.text(row[name]).replace("\n", "<br>")) for name in FIELDS)
        for row in sorted(rows, key=order))
    title = "Graded again"
    return "\n".join([
        page.HEAD % (base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode(), title,
                     STYLE), "<main>", page.tag("h1", title), page.tag("p", facts),
        "<table><thead><tr>%s</tr></thead><tbody>%s</tbody></table>" % (head, body),
        "</main>\n</body>\n</html>\n"])


def in_csv(fields, rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    # A cell that begins so would be a formula where the table is opened.
    writer.writerows({name: "'" + value if name in ("student", "message")
                      and value[:1] in "=+-@\t" and value else value
                      for name, value in row.items()} for row in rows)
    return text.getvalue()


def make_room(options):
    """The folders of a run: its results, those of the finished run before, which are moved aside
    to be compared with, and what is not finished."""
    out = options.out
    results, kept, work = (os.path.join(out, name) for name in ("results", "before", "unfinished"))
    os.makedirs(out, exist_ok=True)
    lock = os.open(out, os.O_RDONLY) # until this program ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadUsage("another run grades into %s at this moment" % out)
    if options.compare and os.path.exists(os.path.join(out, "index.html")):
        shutil.rmtree(kept, ignore_errors=True)
        os.rename(results, kept)
    for name in ("index.html", "changes.csv", "points.csv"): # they come when all are graded
        if os.path.exists(os.path.join(out, name)):
            os.unlink(os.path.join(out, name))
    shutil.rmtree(work, ignore_errors=True)
    for folder in (results, work):
        os.makedirs(folder, exist_ok=True)
    return results, kept, work


def parse():
    parser = argparse.ArgumentParser(description="Grade what a platform exported.")
    parser.add_argument("export", metavar="EXPORT", help="the platform's export")
    parser.add_argument("--jobs", type=int, metavar="N", default=max(1, (os.cpu_count() or 2) // 2),
                        help="how many at a time (half as many as there are processors)")
    parser.add_argument("--compare", action="store_true", help="with what was before")
    parser.add_argument("--before", default="", metavar="PATH",
                        help="results of before: a folder of such a run, or a CSV")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "grade-all"), metavar="DIR")
    parser.add_argument("--build", default="", metavar="DIR", help="build tree")
    return parser.parse_args()


def write_tables(options, students, rows, results):
    """The CSVs and the page, when all are graded."""
    lines = [line for student in students for line in points_of(
        student, document_at(os.path.join(results, file_name(student.key) + ".json")))]
    write_atomically(os.path.join(options.out, "points.csv"), in_csv(POINTS_FIELDS, lines))
    if options.compare:
        write_atomically(os.path.join(options.out, "changes.csv"), in_csv(FIELDS, rows))
        write_atomically(os.path.join(options.out, "index.html"), table(rows))
    print("Points: %s%s" % (os.path.join(options.out, "points.csv"), "\nPage:  %s" % os.path.join(
        options.out, "index.html") if options.compare else ""))


def main():
    options = parse()
    rows, students, work = [], [], None
    try:
        results, kept, work = make_room(options)
        runner.stop_on_signals()
        folder = options.export
        if not os.path.isdir(folder):
            folder = os.path.join(work, "export")
            os.mkdir(folder)
            unpack(options.export, folder)
        students = exports.read(folder)
        before = Before(options.before, kept)
        for student in grade(students, options, work, results, kept):
            path = os.path.join(results, file_name(student.key) + ".json")
            rows.append(row_of(student, before.of(student) if options.compare else None, path))
            print("%3d/%d  %s" % (len(rows), len(students), common.clean(
                line_of(rows[-1], options.compare))), flush=True)
        write_tables(options, students, rows, results)
        return 0 if all(row["after"] for row in rows) else 3
    except (BadUsage, exports.BadExport, OSError) as problem:
        print("grade_export: %s: %s" % (options.export, problem), file=sys.stderr)
        return 2
    except runner.Stopped as problem:
        print("grade_export: stopped by %s; %d of %d are graded, and the same command goes on from "
              "there" % (problem, len(rows), len(students)), file=sys.stderr)
        return 130
    finally:
        if work:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
