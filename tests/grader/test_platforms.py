"""What a course hands out and uploads: each archive is unpacked and run as its platform runs it, on
the reference, the skeleton and a half-done solution, and on every attack (tests/attacks).

The student archive is built from nothing; the others share its build tree, because they hold the
same sources. Of the long tier: test_delivered.py has a draw of this.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import threading
import unittest

import schemas
from archives import (COURSE, DONE, ENVIRONMENT, FILES, FULL, HALF, HALF_HIDDEN, HIDDEN, PLATFORMS,
                      QUIZ, TASKS, Released, run)
from attack_files import ATTACKS
from helpers import read
import manifest

COUNT = manifest.how_many() # of the files, in a word

# What the student's archive offers: the words to try each target with, and what it then prints.
OFFERED = {
    "grade": (["TASK=1"], r"(?m)^Score: \d+/%d " % TASKS[0].points),
    "hint": (["TASK=1"], r"\S"),
    "watch": ([], r"Ctrl-C ends this"),
    "gdb": (["TEST=counts_elements"], r"(?i)gdb"),
    "challenge": ([], r"(?m)^Challenge: \d+ tokens/s per GPU"),
    "quiz": (["TASK=1", "ID=anna"], r"(?m)^Quiz: 0 of 5 \(task 1 only\)$"),
    "demo": (["DEMO_FLAGS=--steps 3 --layers 1 --dim 16 --heads 2 --batch 8"],
             r"reduce-scatter"),
    "start": ([], r"race between streams[\s\S]*examples/missing_wait.c, then: make start"),
    "compare": ([], r"HSDP, 2 replicas"),
    "plan": (["MODEL=gpt2-xl", "GPUS=1024", "BATCH=4096"], r"\S"),
    "demo-oom": ([], r"(?i)out of device memory[\s\S]*with FSDP"),
    "build": ([], r"\A"),
    "simgpu": ([], r"\A"),
    "install": (["DESTDIR=build/package"], r"\A"),
    "deps": ([], r"^$"),
    "compile_commands.json": ([], r"\A"),
    "clean": ([], r"\A"),
    "help": ([], r"^make grade"),
}
# The reference has all that there is.
WANTED = (("skeleton", 0), ("half", HALF + HALF_HIDDEN), ("reference", FULL + HIDDEN + QUIZ))


class Platforms(Released):
    """In the order of the names: the first builds what the others use."""

    def test_1_student_and_github(self):
        """The workflow's own lines, in the order of the file, on a tree built from nothing."""
        lines = re.findall(r"(?m)^ +run: (.+)$", read(self.student, ".github/workflows/grade.yml"))
        self.assertEqual(len(lines), 2)
        self.assertEqual(sorted(os.listdir(os.path.join(self.student, "skeleton"))), sorted(FILES))
        for what, want in (("skeleton", 0), ("half", HALF), ("reference", FULL)):
            with self.subTest(solution=what):
                for name in FILES:
                    if what != "skeleton": # which is how the archive comes
                        shutil.copy(os.path.join(self.solutions[what], name),
                                    os.path.join(self.student, "skeleton", name))
                        os.utime(os.path.join(self.student, "skeleton", name))
                summary = os.path.join(self.folder, "summary-" + what)
                status, text = run(["bash", "-ec", lines[0]], self.student)
                self.assertEqual(status, 0, text)
                self.assertEqual(text.rstrip().splitlines()[-1], "Score: %d/%d" % (want, FULL))
                status, text = run(["bash", "-ec", lines[1]], self.student,
                                   GITHUB_STEP_SUMMARY=summary)
                self.assertEqual(status, 0 if what == "reference" else 1, text)
                self.assertEqual(schemas.annotations(text), [])
                self.check_page(what, want)
                self.check_demo(what)
                for file, _ in re.findall(r"file=([^,]+),line=(\d+)", text):
                    self.assertTrue(os.path.exists(os.path.join(self.student, file)), file)
                self.assertEqual("file=skeleton/" in text, what != "reference")
                self.assertIn("Score: %d of %d" % (want, FULL), read(summary))

    def check_demo(self, what):
        """The demo of a solution that lies in the archive's skeleton/: the reference is there as
        objects alone."""
        flags = "DEMO_FLAGS=--steps 3 --layers 1 --dim 16 --heads 2 --batch 8"
        status, text = run(["make", "-s", "demo", "RANKS=2", flags], self.student)
        self.assertEqual(status, 0, text)
        whose = {"skeleton": "This ran with the reference's %s files, since none of yours" % COUNT,
                 "half": "and the reference's other files.",
                 "reference": "This ran with your %s files." % COUNT}
        self.assertIn(whose[what], text)
        self.assertEqual(text.count("is not written yet"),
                         {"skeleton": len(FILES), "half": len(FILES) - len(DONE),
                          "reference": 0}[what])

    def check_page(self, what, want):
        """The page of a solution that lies in the archive's skeleton/."""
        status, text = run(["make", "grade", "HTML=1"], self.student)
        self.assertEqual(status, 0, text)
        self.assertEqual(text.splitlines()[-2:], ["Page:  build/grade/results.html",
                                                  "Score: %d/%d" % (want, FULL)])
        page = read(self.student, "build/grade/results.html")
        self.assertEqual(page.count("<svg "), 4)
        whose = {"skeleton": "None of your files is complete yet",
                 "half": "<code>optimizer.c</code> are yours; <code>forward.c</code>, "
                         "<code>backward.c</code> and <code>api.c</code> are the reference’s.",
                 "reference": "<code>api.c</code> are yours."}
        self.assertIn(whose[what], page)

    def test_2_gradescope(self):
        platform = PLATFORMS["gradescope"](self)
        status, text = run(["bash", os.path.join(platform.root, "source", "setup.sh")],
                           platform.root, AUTOGRADER_ROOT=platform.root)
        self.assertEqual(status, 0, text)
        for what, want in WANTED:
            with self.subTest(solution=what):
                graded = platform.grade(self.solutions[what])
                self.check(graded)
                result = graded.document
                self.assertEqual((result["score"], result["extra_data"]["status"],
                                  result["extra_data"]["version"]), (want, "graded", "7"),
                                 graded.text)
                self.assertEqual(sum(test["max_score"] for test in result["tests"]),
                                 FULL + HIDDEN + QUIZ)
                hidden = [test for test in result["tests"]
                          if test["visibility"] == COURSE["visibility"]["hidden"]]
                self.assertEqual([test["name"] for test in hidden],
                                 [test["name"] for test in COURSE["hidden"]["tests"]])
        if os.geteuid() == 0: # the tests' account is another, and these are none of its business
            kit = os.path.join(platform.root, "source", "kit")
            hidden = glob.glob(os.path.join(kit, "tasks", "*", "hidden*.c"))
            self.assertGreater(len(hidden), 0)
            for path in hidden + [os.path.join(kit, "grader"), os.path.join(kit, "given"),
                                  os.path.join(self.build, "impl", "reference"),
                                  os.path.join(self.build, "obj", "tasks")]:
                self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)

    def test_3_autolab(self):
        platform = PLATFORMS["autolab"](self)
        for what, want in WANTED:
            with self.subTest(solution=what):
                graded = platform.grade(self.solutions[what])
                self.check(graded)
                self.assertEqual(graded.score, want, graded.text)
                self.assertEqual(list(graded.document["scores"]),
                                 [task.title for task in TASKS] + ["Hidden tests", "Quiz"])

    def test_4_prairielearn(self):
        platform = PLATFORMS["prairielearn"](self)
        self.assertTrue(platform.options["enabled"])
        self.assertLess(COURSE["limit_seconds"], platform.options["timeout"])
        self.assertEqual(platform.options["serverFilesCourse"], ["shardlab/"])
        for what, want in WANTED:
            with self.subTest(solution=what):
                graded = platform.grade(self.solutions[what])
                self.check(graded)
                result = graded.document
                self.assertEqual((result["gradable"], result["score"]),
                                 (True, round(want / (FULL + HIDDEN + QUIZ), 4)), graded.text)
                self.assertEqual(sum(test["points"] for test in result["tests"]), want)
                self.assertNotIn(COURSE["hidden"]["tests"][0]["name"], str(result))

    def test_5_every_attack_on_every_platform(self):
        for make in PLATFORMS.values():
            self.attacked(make(self), ATTACKS)

    def test_6_every_target_of_make_help_works(self):
        targets = re.findall(r"(?m)^make (\S+)", run(["make", "help"], self.student)[1])
        self.assertEqual(sorted(targets), sorted(OFFERED))
        self.assertEqual(targets[0], "grade")
        targets.sort(key=lambda target: target == "clean") # last
        for target in targets:
            words, printed = OFFERED[target]
            with self.subTest(target=target):
                if target == "watch":
                    status, text = self.watch()
                else:
                    status, text = run(["make", target] + words, self.student)
                self.assertEqual(status, 0, text)
                self.assertRegex(text, printed)
        self.assertFalse(os.path.exists(self.build))

    def watch(self):
        """make watch until its first grading is done, and then Ctrl-C."""
        process = subprocess.Popen(["make", "-s", "watch", "TASK=1"], cwd=self.student,
                                   env=ENVIRONMENT, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        alarm = threading.Timer(280, os.killpg, (process.pid, signal.SIGKILL))
        alarm.start()
        try:
            text = ""
            for line in process.stdout:
                text += line
                if "Ctrl-C ends this" in line:
                    os.killpg(process.pid, signal.SIGINT)
            process.wait()
            self.assertNotIn("Traceback", text)
            # make itself is ended by the signal, as every program of the terminal is.
            return 0 if "Ctrl-C" in text else 1, text
        finally:
            alarm.cancel()
            process.stdout.close()


if __name__ == "__main__":
    unittest.main()
