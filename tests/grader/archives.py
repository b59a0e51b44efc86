"""A release, unpacked and run as each platform runs it: what test_release.py, test_delivered.py and
test_platforms.py share.

A platform is set up once, in a root of its own, by what is in its archive, and grades submissions
with the script that it would start; what comes of it is a Result.

Interface: run(command, folder, **more), unzip(path, folder), Released (.out, .student, .build,
.solutions, .archives(), .root(), .attacked()), warm(build), PLATFORMS: {name: class}, each with
.grade(folder) -> Result; FILES, TASKS, COURSE, FULL, HIDDEN, QUIZ, DONE, HALF,
HALF_HIDDEN.
"""

import glob
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile
from dataclasses import dataclass

import helpers
import schemas
from attack_files import (TARGET_FILE, decoy_now, honest, in_front, lay_decoy, names_it, reference,
                          refused_groups)
from helpers import GRADER, ROOT, build_folder, processes_with, read

import manifest
import runner
import settings
import skeleton
from quiz_questions import QUESTIONS, Draw
from release import flat
from test_quiz import oracle

RELEASE = os.path.join(GRADER, "course", "release.py")
TASKS = manifest.load(ROOT)
FILES = [task.file for task in TASKS]
COURSE = settings.load(ROOT)
HIDDEN = sum(test["points"] for test in COURSE["hidden"]["tests"])
FULL = sum(task.points for task in TASKS)
QUIZ = COURSE["quiz"] * sum(len(question.parts) for question in QUESTIONS.values())
DONE = ("meta_init", "flat_param", "optimizer") # of the half-done solution
HALF = sum(test.points for task in TASKS if task.name in DONE for test in task.own())
HALF_HIDDEN = sum(test["points"] for test in COURSE["hidden"]["tests"] if test["suite"] in DONE)

# The files that Tango's driver (autodriver.c) allows a grading, in KiB. Its limit on processes
# counts all of an account's, which a test cannot know.
TANGO = "ulimit -f 102400 && exec make"

ENVIRONMENT = dict(os.environ, NO_INSTALL="1", PYTHONDONTWRITEBYTECODE="1",
                   SOURCE_DATE_EPOCH="1700000000")
for name in ("IMPL", "BUILD", "TASK", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WERROR", "BLAS"):
    ENVIRONMENT.pop(name, None)


def run(command, folder, **more):
    """(exit status, what it printed)"""
    done = helpers.run(command, folder, 280 * runner.time_factor(), merged=True,
                       environment=ENVIRONMENT, **more)
    return done.returncode, done.stdout


def solutions(folder):
    """Writes the three solutions: {name: folder}. The reference's has the quiz's answers, too."""
    texts = {}
    for task in TASKS:
        text = reference(task.file)
        texts[task.name] = (text, skeleton.generate(text, task.name, task))
    folders = {}
    for what, done in (("reference", [task.name for task in TASKS]), ("skeleton", []),
                       ("half", DONE)):
        folders[what] = os.path.join(folder, what)
        os.mkdir(folders[what])
        for name, (solved, empty) in texts.items():
            with open(os.path.join(folders[what], name + ".c"), "w", encoding="utf-8") as file:
                file.write(solved if name in done else empty)
    with open(os.path.join(folders["reference"], "answers.txt"), "w", encoding="utf-8") as file:
        file.write("numbers for: seed 77\n")
        for number, question in QUESTIONS.items():
            right = oracle(question.draw(Draw("seed 77|task %d" % number)))
            file.writelines("%s = %r\n" % (question.name(part), right[question.name(part)])
                            for part in question.parts)
    return folders


def unzip(path, folder):
    """Unpacks as unzip does: with permissions and times."""
    with zipfile.ZipFile(path) as archive:
        for item in archive.infolist():
            target = archive.extract(item, folder)
            os.chmod(target, item.external_attr >> 16 & 0o777)
            moment = time.mktime(item.date_time + (0, 0, -1))
            os.utime(target, (moment, moment))


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "there is no reference")
class Released(unittest.TestCase):
    """One release, and one build tree."""
    maxDiff = None
    fair = None # points of honest work without an attack, once known

    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.realpath(tempfile.mkdtemp(prefix="shardlab-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        os.chmod(cls.folder, 0o755) # as a platform's folders are: tests have another account there
        cls.out = os.path.join(cls.folder, "out")
        status, text = run([sys.executable, RELEASE, "--out", cls.out,
                            "--version", "7"], ROOT)
        if status != 0:
            raise AssertionError(text)
        cls.solutions = solutions(cls.folder)
        with tarfile.open(os.path.join(cls.out, "shardlab-7-student.tar.gz")) as archive:
            archive.extractall(cls.folder)
        cls.student = os.path.join(cls.folder, "shardlab")
        cls.build = os.path.join(cls.student, "build")

    def archives(self):
        """{archive: {path: bytes}}"""
        found = {}
        for folder, _, names in os.walk(self.out):
            for name in names:
                path = os.path.join(folder, name)
                shown = os.path.relpath(path, self.out)
                if name.endswith((".tar", ".tar.gz")):
                    with tarfile.open(path) as archive:
                        found[shown] = {item.name: archive.extractfile(item).read()
                                        for item in archive}
                elif name.endswith(".zip"):
                    with zipfile.ZipFile(path) as archive:
                        found[shown] = {item: archive.read(item) for item in archive.namelist()}
                else:
                    top = shown.partition("/")[0]
                    with open(path, "rb") as file:
                        found.setdefault(top, {})[shown.partition("/")[2]] = file.read()
        return found

    def root(self, *folders):
        """A platform's root."""
        root = tempfile.mkdtemp(dir=self.folder, prefix="root-")
        os.chmod(root, 0o755)
        for folder in folders:
            os.mkdir(os.path.join(root, folder))
        return root

    # ---- On a platform ----

    def check(self, result):
        """A result is valid for its platform, and no program of the submission's is left."""
        self.assertEqual(result.status, 0, result.text)
        self.assertEqual(result.wrong, [], result.text[-400:])
        self.assertNotIn("not your code", result.text)
        self.assertEqual(processes_with(self.build), [])

    def submission(self, files):
        """A folder with these files, {name: text}."""
        folder = tempfile.mkdtemp(dir=self.folder, prefix="submission-")
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        return folder

    def attacked(self, platform, attacks):
        """Attacks as the platform's script grades them, and as its account: what is refused costs
        its task and is called by its name, and what runs gains nothing."""
        for group in refused_groups(attacks):
            names = [attack.name for attack, _ in group]
            with self.subTest(platform=type(platform).__name__, attacks=names):
                result = platform.grade(self.submission(
                    {file: in_front(attack.text, file) for attack, file in group}))
                self.check(result)
                self.assertEqual(result.score, 0, result.text)
                self.assertEqual([attack.name for attack, file in group
                                  if not names_it(attack, file, result.said)], [], result.said)
        running = [attack for attack in attacks if not attack.refused]
        if running and self.fair is None: # which is the same on every platform
            result = platform.grade(self.submission({TARGET_FILE: honest()}))
            self.check(result)
            self.assertGreater(result.score, 5)
            type(self).fair = result.score
        for attack in running:
            with self.subTest(platform=type(platform).__name__, attack=attack.name):
                before = lay_decoy()
                result = platform.grade(self.submission({TARGET_FILE: in_front(attack.text)}))
                self.check(result)
                self.assertLessEqual(result.score, self.fair + 0.01, result.text)
                self.assertEqual(glob.glob("/tmp/shardlab-attack-*"), [])
                self.assertEqual(decoy_now(), before)
                self.assertNotIn("STOLEN", result.said)


def warm(build):
    """Fills a build tree with what the kit's own has that is no suite and none of the reference:
    the archives hold the same sources, and are older than it."""
    os.makedirs(build)
    for name in ("obj", "lib", "made_with", "config.mk"):
        path = os.path.join(build_folder(), name)
        if os.path.isdir(path):
            shutil.copytree(path, os.path.join(build, name), symlinks=True)
        else:
            shutil.copy2(path, build)


@dataclass
class Result:
    """What a platform is left with."""
    status: int      # of its script
    wrong: list      # what its format does not allow
    score: float     # points
    said: str        # all that it says of the tests, with single blanks
    text: str        # what the script printed
    document: object # the result, as the platform reads it


class Gradescope:
    def __init__(self, case):
        self.case = case
        self.root = case.root("source", "results")
        unzip(os.path.join(case.out, "shardlab-7-gradescope.zip"),
              os.path.join(self.root, "source"))
        shutil.copy(os.path.join(self.root, "source", "run_autograder"), self.root)

    def grade(self, submission):
        target = os.path.join(self.root, "submission")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(submission, target)
        status, text = run([os.path.join(self.root, "run_autograder")], self.root,
                           AUTOGRADER_ROOT=self.root, SHARDLAB_BUILD=self.case.build)
        result = read(self.root, "results", "results.json")
        document = json.loads(result)
        return Result(status, schemas.gradescope(result), document["score"], flat("\n".join(
            test["output"] for test in document["tests"])), text, document)


class Autolab:
    """Each handin is graded in an empty folder."""

    def __init__(self, case):
        self.case = case

    def grade(self, submission):
        root = self.case.root()
        for name in ("autograde-Makefile", "autograde.tar"):
            shutil.copy(os.path.join(self.case.out, "shardlab-7-autolab", name), root)
        os.rename(os.path.join(root, "autograde-Makefile"), os.path.join(root, "Makefile"))
        with tarfile.open(os.path.join(root, "handin.tar"), "w") as archive:
            archive.add(submission, "skeleton")
        status, text = run(["bash", "-c", TANGO], root, SHARDLAB_BUILD=self.case.build)
        shutil.rmtree(root)
        last = json.loads(text.splitlines()[-1])
        return Result(status, schemas.autolab(text), sum(last["scores"].values()), flat(text), text,
                      last)


class PrairieLearn:
    def __init__(self, case):
        self.case = case
        self.root = case.root("student")
        made = os.path.join(case.out, "shardlab-7-prairielearn")
        shutil.copytree(os.path.join(made, "serverFilesCourse"),
                        os.path.join(self.root, "serverFilesCourse"))
        info = json.loads(read(made, "questions", "shardlab", "info.json"))
        self.options = info["externalGradingOptions"]
        self.entry = self.options["entrypoint"].replace("/grade", self.root, 1)
        page = read(made, "questions", "shardlab", "question.html")
        # pl-file-upload takes files of these names alone, and demands the first.
        self.needed, self.taken = (
            re.search(r'<pl-file-upload[^>]* %s="([^"]*)"' % name, page).group(1).split(",")
            for name in ("file-names", "optional-file-names"))

    def grade(self, submission):
        shutil.rmtree(os.path.join(self.root, "student"))
        shutil.copytree(submission, os.path.join(self.root, "student"), ignore=lambda _, names: [
            name for name in names if name not in self.needed + self.taken])
        status, text = run([self.entry], self.root, AUTOGRADER_ROOT=self.root,
                           SHARDLAB_BUILD=self.case.build)
        result = read(self.root, "results", "results.json")
        document = json.loads(result)
        return Result(status, schemas.prairielearn(result),
                      document.get("score", 0) * (FULL + HIDDEN + QUIZ), flat("\n".join(
                          test.get("output", "") + test.get("message", "")
                          for test in document["tests"])), text, document)


PLATFORMS = {"gradescope": Gradescope, "autolab": Autolab, "prairielearn": PrairieLearn}
