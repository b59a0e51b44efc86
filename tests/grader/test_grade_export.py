"""Grading again what platforms exported (grader/course/grade_export.py, exports.py): each form on a
kit in miniature, and what the page says of before and after.
"""

import csv
import json
import os
import shutil
import signal
import sys
import tarfile
import unittest

import schemas
from helpers import FakeKit, TempFolder, hears_ctrl_c, processes_with, run, wait_for

import exports
import grade_export

FILES = {"one.c": "int one(void) { return 1; }\n", "two.c": "int two(void) { return 1; }\n"}

POINTS = grade_export.POINTS_FIELDS
METADATA = """---
submission_11:
  :submitters:
  - :name: Anna Adams
    :sid: '1'
    :email: anna@example.edu
  :created_at: 2027-03-14 12:00:00.000000000 Z
  :score: 70.0
  :status: processed
  :results:
    score: 70.0
    tests:
    - name: a
      score: 10.0
      status: passed
      output: ''
      extra_data:
        status: passed
    - score: 0.0
      max_score: 30.0
      name: d
      status: failed
      output: |-
        Error: nothing
        name: e
        extra_data:
          status: passed
      extra_data:
        status: timeout
    - name: f
      status: passed
      output: "a line\\n      name: x\\n  that goes
        on\\n  :score: 3"
      tags:
      - task 1
      - passed
      extra_data:
        status: passed
  :history:
  - :id: 7
    :created_at: 2027-03-13 12:00:00.000000000 Z
    :score: 5.0
    :results:
      tests:
      - name: a
        status: failed
'submission_12':
  :submitters:
  - :name: Ben, "B" O''Hara
    :sid: 2
  - :name: 'Cleo: x'
    :email: cleo@example.edu
  :created_at: 2027-03-14 12:00:00.000000000 Z
  :score:
  :status: unprocessed
"""


class Forms(TempFolder):
    """Who handed in what, by each platform's names."""

    def put(self, *names):
        for name in names:
            self.write("in/" + name, name)
        return self.path("in")

    def found(self, folder):
        return {student.who: {name: os.path.relpath(path, folder) for name, path in
                              student.files.items()} or os.path.relpath(student.folder, folder)
                for student in exports.read(folder)}

    def test_forms(self):
        for platform, names, want in (
                ("moodle", ["Anna Adams_17_assignsubmission_file_/one.c",
                            "Ben_18_assignsubmission_file_/x.zip"],
                 {"Anna Adams_17": "Anna Adams_17_assignsubmission_file_",
                  "Ben_18": "Ben_18_assignsubmission_file_"}),
                ("one of moodle", ["Anna Adams_17_assignsubmission_file_/skeleton/one.c"],
                 {"Anna Adams_17": "Anna Adams_17_assignsubmission_file_"}),
                ("flat moodle", ["Anna_17_assignsubmission_file_one.c",
                                 "Anna_17_assignsubmission_file_two.c"],
                 {"Anna_17": {"one.c": "Anna_17_assignsubmission_file_one.c",
                              "two.c": "Anna_17_assignsubmission_file_two.c"}}),
                ("canvas", ["adamsanna_LATE_123_456_flat_param.c", "adamsanna_LATE_123_457_one.c",
                            "adamsanna_124_458_one-1.c"],
                 {"adamsanna_123": {"flat_param.c": "adamsanna_LATE_123_456_flat_param.c",
                                    "one.c": "adamsanna_LATE_123_457_one.c"},
                  "adamsanna_124": {"one-1.c": "adamsanna_124_458_one-1.c"}}),
                ("prairielearn", ["Homework1/anna@x.edu_1_shardlab_1_%d_%d_flat_param.c"
                                  % (i, 90 + i) for i in (2, 9, 10)],
                 {"anna@x.edu": {"flat_param.c":
                                 "Homework1/anna@x.edu_1_shardlab_1_10_100_flat_param.c"}}),
                ("autolab", ["anna@x.edu_2_handin.tar", "anna@x.edu_10_handin.tar",
                             "ben@x.edu_1_handin.tar"],
                 {"anna@x.edu": {"handin.tar": "anna@x.edu_10_handin.tar"},
                  "ben@x.edu": {"handin.tar": "ben@x.edu_1_handin.tar"}}),
                ("autolab's own", ["hw/anna@x.edu/2_handin.tar", "hw/anna@x.edu/10_handin.tar"],
                 {"anna@x.edu": {"handin.tar": "hw/anna@x.edu/10_handin.tar"}}),
                ("by hand", ["subs/anna/one.c", "subs/ben/skeleton/one.c", "subs/cleo.tar.gz",
                             "subs/.DS_Store", "__MACOSX/x"],
                 {"anna": "subs/anna", "ben": "subs/ben", "cleo": {"cleo.tar.gz":
                                                                   "subs/cleo.tar.gz"}}),
                ("one by hand", ["anna/skeleton/one.c"], {"anna": "anna"})):
            with self.subTest(platform=platform):
                shutil.rmtree(self.path("in"), ignore_errors=True)
                self.assertEqual(self.found(self.put(*names)), want)

    def test_nothing(self):
        self.put("README.md")
        with self.assertRaises(exports.BadExport):
            exports.read(self.path("in"))

    def test_gradescope(self):
        self.put("assignment_1_export/submission_11/one.c", "assignment_1_export/submission_12/x.c")
        self.write("in/assignment_1_export/submission_metadata.yml", METADATA)
        anna, ben = exports.read(self.path("in"))
        if anna.key != "submission_11":
            anna, ben = ben, anna
        self.assertEqual((anna.key, anna.who), ("submission_11", "anna@example.edu"))
        self.assertEqual(anna.before, {"score": 70, "tests": {
            "a": "passed", "d": "timeout", "f": "passed"}})
        self.assertEqual(anna.metadata["created_at"], "2027-03-14T12:00:00.000000000+00:00")
        self.assertEqual(anna.metadata["users"][0]["email"], "anna@example.edu")
        self.assertEqual(ben.before, None)
        self.assertEqual(ben.who, 'Ben, "B" O\'\'Hara, cleo@example.edu')

    def test_autolabs_feedback_has_the_points(self):
        self.put("anna@x.edu/1_handin.tar", "anna@x.edu/2_handin.tar")
        self.write("in/anna@x.edu/1_autograde.txt", '{"scores": {"One": 1}}\n')
        self.write("in/anna@x.edu/2_autograde.txt", 'Score: 7\n{"scores": {"One": 4, "Two": 3}}\n')
        student, = exports.read(self.path("in"))
        self.assertEqual(student.before, {"score": 7, "tests": {}})


class Batch(FakeKit):
    def setUp(self):
        super().setUp()
        self.course(dates={"due": "2027-03-13T12:00:00+00:00"})

    def batch(self, export, *words):
        return [sys.executable, "-B", self.path("grader/course/grade_export.py"), export,
                "--out", self.path("again"), "--jobs", "1", *words]

    def grade_all(self, export, *words, status=0):
        """What was printed."""
        return run(self.batch(export, *words), self.folder, 300, status, merged=True).stdout

    def csv(self, name):
        with open(self.path("again", name), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


class Again(Batch):
    def regrade(self, export, *words, status=0):
        """({student: row}, the page, what was printed)"""
        text = self.grade_all(export, "--compare", *words, status=status)
        return text if status == 2 else (
            {row["student"]: row for row in self.csv("changes.csv")},
            self.read("again/index.html"), text)

    def submission(self, folder, **files):
        for name, text in {**FILES, **files}.items():
            self.write("%s/%s" % (folder, name), text)

    def test_gradescopes_export(self):
        self.submission("export/submission_11")
        self.submission("export/submission_12")
        self.write("export/submission_metadata.yml", METADATA)
        rows, page, text = self.regrade(self.path("export"))
        row = rows["anna@example.edu"]
        self.assertEqual((row["before"], row["after"], row["change"]), ("70", "100", "+30"))
        self.assertEqual(row["tests that changed"].split("\n"), [
            "b: passed, was not there", "c: passed, was not there", "d: passed, was timeout",
            "e: passed, was not there", "f: not there any more, was passed"])
        other, = (row for who, row in rows.items() if "cleo" in who)
        self.assertEqual((other["before"], other["after"], other["change"]), ("", "100", ""))
        self.assertIn("2 submissions were graded again: 1 changed, 0 did not, 1 without an",
                      page)
        self.assertIn("d: passed, was timeout<br>", page)
        self.assertRegex(text, r"anna@example.edu +70 -> +100 +\+30  b: passed")
        self.assertEqual(schemas.gradescope(self.read("again/results/submission_11.json")), [])
        self.assertEqual(self.csv("points.csv")[3:], [
            dict(zip(POINTS, ("anna@example.edu", task, points, "1 day", "")))
            for task, points in (("task 1", "60"), ("task 2", "40"), ("all", "100"))])

    def test_an_archive_twice(self):
        """The run before is what was before; and of a submission that is broken it says why."""
        self.submission("subs/anna", **{"one.c": "int one(void) { return x; }\n"})
        self.submission("subs/<b>=ben")
        shutil.make_archive(self.path("export"), "zip", self.folder, "subs")
        rows, page, _ = self.regrade(self.path("export.zip"))
        self.assertEqual({who: (row["before"], row["after"]) for who, row in rows.items()},
                         {"anna": ("", "30"), "<b>=ben": ("", "100")})
        self.suite("two", "d", "say('d', 'failed', 'w is 1'); end()")
        self.write("tasks/2_two/tests.c", "// as of now\n") # which that suite is made from
        rows, page, _ = self.regrade(self.path("export.zip"))
        self.assertEqual({who: (row["before"], row["after"], row["change"],
                                row["tests that changed"]) for who, row in rows.items()},
                         {"anna": ("30", "0", "-30", "d: failed, was passed"),
                          "<b>=ben": ("100", "70", "-30", "d: failed, was passed")})
        self.assertLess(page.index("&lt;b&gt;=ben"), page.index("anna"))
        self.assertNotIn("<b>", page)
        self.assertIn("one.c does not compile", rows["anna"]["message"])
        one = next(row for row in self.csv("points.csv") if row["student"] == "anna")
        self.assertEqual((one["task"], one["points"], one["late"]), ("task 1", "0", ""))
        self.assertRegex(one["message"], r"\Aa: Error: one.c does not compile")
        self.write("points.csv", "Email,Name,Points\nx,anna,12.5\ny,<b>=ben,70\n")
        rows, page, _ = self.regrade(self.path("export.zip"), "--before", self.path("points.csv"))
        self.assertEqual({who: (row["before"], row["change"]) for who, row in rows.items()},
                         {"anna": ("12.5", "-12.5"), "<b>=ben": ("70", "+0")})
        self.assertIn("1 changed, 1 did not, 0 without an", page)

    def test_autolabs_handins(self):
        self.submission("skeleton")
        os.mkdir(self.path("subs"))
        for version in (1, 2):
            with tarfile.open(self.path("subs/anna@x.edu_%d_handin.tar" % version), "w") as file:
                file.add(self.path("skeleton"), "skeleton")
            self.write("skeleton/two.c", "no C\n")
        with tarfile.open(self.path("export.tar.gz"), "w:gz") as file:
            file.add(self.path("subs"), "subs")
        rows, _, _ = self.regrade(self.path("export.tar.gz"))
        self.assertEqual(rows["anna@x.edu"]["after"], "60")

    def test_what_cannot_be_done(self):
        self.write("nothing/README.md", "x")
        self.write("points.csv", "a,b\n1,2\n")
        self.submission("subs/anna")
        for export, words, said in (
                ("nowhere.zip", (), "No such file"), ("nothing", (), "it holds no submissions"),
                ("points.csv", (), "cannot be unpacked"),
                ("subs", ("--before", self.path("points.csv")), "has no column for students")):
            with self.subTest(said=said):
                self.assertIn(said, self.regrade(self.path(export), *words, status=2))

    def test_a_grading_that_failed(self):
        self.submission("subs/anna")
        self.write("grader/grade.py", "raise SystemExit(1)\n")
        rows, page, _ = self.regrade(self.path("subs"), status=3)
        self.assertEqual(rows["anna"]["after"], "")
        self.assertIn("not your code", rows["anna"]["message"])
        self.assertIn("The grading of 1 failed", page)
        self.assertEqual([(row["task"], row["points"]) for row in self.csv("points.csv")],
                         [("all", "")])
        self.assertIn("1 of them to grade", self.grade_all(self.path("subs"), status=3))

    def test_nothing_goes_on_when_it_is_killed(self):
        self.suite("one", "abc", "time.sleep(100)")
        self.submission("subs/anna")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number=number):
                process = self.popen(self.batch(self.path("subs")))
                wait_for(lambda: processes_with(self.path("build/impl")), process)
                process.send_signal(number)
                process.communicate(timeout=60)
                wait_for(lambda: not processes_with(self.folder))


# In place of deliver.py: it says when it begins and ends, and writes its result in two halves.
DELIVERED = """import json, os, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
text = "".join(open(os.path.join(words["--submission"], name)).read()
               for name in sorted(os.listdir(words["--submission"])))
def log(what):
    with open(LOG, "a") as file:
        file.write("%s %s\\n" % (what, text))
log("begin")
result = json.dumps({"score": len(text), "output": "", "tests": [{
    "name": "a", "score": len(text), "output": "", "tags": ["task 1", "passed"],
    "extra_data": {"status": "passed"}}], "extra_data": {"status": "graded"}})
with open(words["--results"], "w") as file:
    file.write(result[:9])
    file.flush()
    time.sleep(0.1)
    file.write(result[9:])
log("end")
"""


class Thirty(Batch):
    """30 submissions, and a batch of them that is interrupted."""

    def setUp(self):
        super().setUp()
        hears_ctrl_c()
        self.write("grader/course/deliver.py", "LOG = %r\n" % self.path("log") + DELIVERED)
        for i in range(30):
            self.write("in/adams%02d%s_%d_7_one.c" % (i, "_LATE" * (i == 3), 100 + i), "n%02d" % i)

    def results(self):
        """{who: document} of what is there under its final name, each complete."""
        folder = self.path("again/results")
        return {name[:-5]: json.loads(self.read(os.path.join(folder, name)))
                for name in os.listdir(folder) if name} if os.path.isdir(folder) else {}

    def begun(self):
        """Whose gradings were begun since this was asked last."""
        lines = self.read("log").split("\n")[:-1] if os.path.exists(self.path("log")) else []
        self.write("log", "")
        return [line.split(" n")[1] for line in lines if line.startswith("begin")]

    def interrupted(self, number, count):
        """A batch that gets a signal when so many results are there: its status, what it said and
        whose results were there."""
        process = self.popen(self.batch(self.path("in"), "--jobs", "3"))
        wait_for(lambda: len(self.results()) >= count, process)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        wait_for(lambda: not processes_with(self.path("grader/course/deliver.py")))
        self.assertFalse(os.path.exists(self.path("again/points.csv")))
        return process.returncode, said, {name[5:7] for name in self.results()}

    def test_interrupted_and_resumed(self):
        status, said, first = self.interrupted(signal.SIGINT, 4)
        self.assertEqual(status, 130)
        self.assertRegex(said, "(%d|%d) of 30 are graded, and the same command goes on" % (
            len(first) - 1, len(first))) # the last one may not be counted yet
        self.assertEqual(os.listdir(self.path("again")), ["results"])
        self.begun()
        status, _, second = self.interrupted(signal.SIGKILL, 11)
        self.assertEqual(status, -signal.SIGKILL)
        self.assertLess(len(second), 30)
        again = self.begun()
        self.assertFalse(first & set(again), "graded twice")
        text = self.grade_all(self.path("in"), "--jobs", "3")
        self.assertIn("%d of them to grade" % (30 - len(second)), text)
        last = self.begun()
        self.assertEqual(sorted(last), sorted({"%02d" % i for i in range(30)} - second))
        self.assertEqual(sorted(os.listdir(self.path("again"))), ["points.csv", "results"])
        self.assertEqual(len(self.results()), 30)
        rows = self.csv("points.csv")
        self.assertEqual([row["student"] for row in rows[::2]],
                         ["adams%02d_%d" % (i, 100 + i) for i in range(30)])
        self.assertEqual([row["student"] for row in rows if row["late"]], ["adams03_103"] * 2)
        table = self.read("again/points.csv")

        # What is the same is not graded again: another name or place of the export is no change.
        shutil.make_archive(self.path("export"), "zip", self.folder, "in")
        self.grade_all(self.path("export.zip"))
        self.assertEqual((self.begun(), self.read("again/points.csv")), ([], table))
        for what, change, want in (
                ("a submission", lambda: self.write("in/adams07_107_7_one.c", "n7!"), ["7!"]),
                ("one more", lambda: self.write("in/bea_200_7_one.c", "nbea"), ["bea"]),
                ("a file more", lambda: self.write("in/adams08_108_8_two.c", "."), ["08."]),
                ("a failed one", lambda: self.write("again/results/adams09_109.json", json.dumps(
                    dict(self.results()["adams09_109"], extra_data={"status": "infrastructure"}))),
                 ["09"]),
                ("the course", lambda: self.append("grader/course/course.json", "\n"), 31),
                ("a test", lambda: self.write("tasks/1_one/tests.c", "x"), 31)):
            with self.subTest(change=what):
                change()
                self.grade_all(self.path("in"), "--jobs", "3")
                begun = self.begun()
                self.assertEqual(begun if isinstance(want, list) else len(begun), want)

    def test_so_many_at_a_time(self):
        self.grade_all(self.path("in"), "--jobs", "3")
        now = most = 0
        for line in self.read("log").split("\n")[:-1]:
            now += 1 if line.startswith("begin") else -1
            most = max(most, now)
        self.assertEqual(most, 3)

    def test_two_at_once(self):
        process = self.popen(self.batch(self.path("in")))
        wait_for(self.results, process)
        self.assertIn("another run grades into", self.grade_all(self.path("in"), status=2))
        self.assertEqual(process.wait(60), 0)
        process.communicate()


if __name__ == "__main__":
    unittest.main()
