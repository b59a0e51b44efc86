#!/usr/bin/env python3
"""Grades again what a platform exported, by the kit as it is now, and shows what changed.

    grade_export.py EXPORT [--before PATH] [--out DIR] [--build DIR]        (make regrade)

EXPORT is what the platform's own export gives, as an archive or unpacked (exports.py has the
forms). Each submission is graded as on a platform (deliver.py), one after another. In DIR are then
results/STUDENT.json, in the form that Gradescope reads, changes.csv (a line for each student) and
index.html: points before and after, and each test that changed. What was before is taken from
--before (an earlier DIR, or a CSV with a column student and a column points), else from the export
where it has it (Gradescope, Autolab), else from the run before in the same DIR.

Exit status 0 where every submission was graded; 3 where a grading failed, which the page names; 2
for an export or a file that cannot be read.
"""

import argparse
import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import exports
import handin
import page
from emit import common
from files import write_atomically
from page_style import STYLE

STUDENT = ("student", "email", "uid", "sid", "username", "name")
POINTS = ("after", "points", "score", "total", "total score")
FIELDS = ("student", "before", "after", "change", "tests that changed", "message")


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


def load(path):
    """The result in a file; None where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return result_of(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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


# ---- The work ----

def grade(student, options, path, work):
    """Grades a submission: its result, None where the grading failed."""
    folder = student.folder
    if student.files:
        folder = tempfile.mkdtemp(dir=work)
        for name, file in student.files.items():
            shutil.copyfile(file, os.path.join(folder, name.replace("/", "_")))
    metadata = os.path.join(work, "metadata.json")
    with open(metadata, "w", encoding="utf-8") as file:
        json.dump(student.metadata, file)
    command = [sys.executable, "-B", os.path.join(ROOT, "grader", "course", "deliver.py"),
               "--platform", "gradescope", "--submission", folder, "--results", path,
               "--metadata", metadata] + (["--build", options.build] if options.build else [])
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return load(path)


def row_of(student, before, after, path):
    """A student's line."""
    row = dict.fromkeys(FIELDS, "")
    row["student"] = student.who
    if before:
        row["before"] = common.points(before["score"])
    if after is None:
        with open(path, encoding="utf-8") as file:
            row["message"] = json.load(file).get("output", "").replace("\n", " ")
        return row
    row["after"] = common.points(after["score"])
    row["message"] = after["said"]
    if before:
        row["change"] = "%+g" % round(after["score"] - before["score"], 2)
        row["tests that changed"] = "\n".join(changed(before, after))
    return row


def line_of(row):
    """The same for a terminal."""
    return "%-40s %6s -> %6s  %5s  %s" % (
        row["student"][:40], row["before"] or "?", row["after"] or "?",
        row["change"], row["tests that changed"].split("\n")[0]
        if row["after"] else row["message"][:60])


def table(rows):
    """The page: those that lost points first, then those that gained, then the others."""
    def order(row):
        change = float(row["change"] or 0)
        return (row["after"] != "", change >= 0, -abs(change), row["student"])
    moved = [row for row in rows if row["tests that changed"] or row["change"] not in ("", "+0")]
    unknown = sum(not row["before"] for row in rows)
    failed = sum(not row["after"] for row in rows)
    facts = "%d submissions were graded again: %d changed, %d did not, of %d it is not known " \
        "what they had before." % (len(rows) - failed, len(moved), len(rows) - failed - len(moved)
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


def in_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    # A cell that begins so would be a formula where the table is opened.
    writer.writerows({name: "'" + value if name in ("student", "message")
                      and value[:1] in "=+-@\t" and value else value
                      for name, value in row.items()} for row in rows)
    return text.getvalue()


def make_room(out):
    """Moves a finished run's results aside, which are what was before."""
    results, kept = os.path.join(out, "results"), os.path.join(out, "before")
    index = os.path.join(out, "index.html")
    os.makedirs(out, exist_ok=True)
    if os.path.exists(index):
        shutil.rmtree(kept, ignore_errors=True)
        os.rename(results, kept)
        os.unlink(index)
    os.makedirs(results, exist_ok=True)
    return results, kept


def parse():
    parser = argparse.ArgumentParser(description="Grade again what a platform exported.")
    parser.add_argument("export", metavar="EXPORT", help="the platform's export")
    parser.add_argument("--before", default="", metavar="PATH",
                        help="results of before: a folder of such a run, or a CSV")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "regrade"), metavar="DIR")
    parser.add_argument("--build", default="", metavar="DIR", help="build tree")
    return parser.parse_args()


def main():
    options = parse()
    work = tempfile.mkdtemp(prefix="shardlab-regrade-")
    try:
        folder = options.export
        if not os.path.isdir(folder):
            folder = os.path.join(work, "export")
            os.mkdir(folder)
            unpack(options.export, folder)
        students = exports.read(folder)
        results, kept = make_room(options.out)
        before, rows = Before(options.before, kept), []
        for student in students:
            path = os.path.join(results, file_name(student.key) + ".json")
            was = before.of(student)
            rows.append(row_of(student, was, grade(student, options, path, work), path))
            print(common.clean(line_of(rows[-1])), flush=True)
        write_atomically(os.path.join(options.out, "changes.csv"), in_csv(rows))
        write_atomically(os.path.join(options.out, "index.html"), table(rows))
        print("Page:  %s" % os.path.join(options.out, "index.html"))
        return 0 if all(row["after"] for row in rows) else 3
    except (BadUsage, exports.BadExport, OSError) as problem:
        print("regrade: %s: %s" % (options.export, problem), file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
