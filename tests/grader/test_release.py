"""What a course hands out and uploads: what is in each archive, what half an archive leaves behind,
and deliver.py on submissions and graders that are broken. test_delivered.py and test_platforms.py
run what is delivered.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import schemas
from archives import COURSE, ENVIRONMENT, FILES, HIDDEN, RELEASE, TASKS, Released, run, unzip
from helpers import ROOT, FakeKit, TempFolder, processes_with, read, wait_for

import deliver
import manifest
import release
import settings


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "there is no reference")
class Archives(Released):

    # ---- What is in them ----

    def test_names(self):
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["shardlab-7-autolab", "shardlab-7-gradescope.zip",
                          "shardlab-7-prairielearn", "shardlab-7-student.tar.gz"])
        self.assertEqual(sorted(os.listdir(os.path.join(self.out, "shardlab-7-autolab"))),
                         ["autograde-Makefile", "autograde.tar"])
        archives = self.archives()
        self.assertEqual({name.partition("/")[0] for name in archives["shardlab-7-gradescope.zip"]},
                         {"setup.sh", "run_autograder", "kit"})
        for archive, files in archives.items():
            for name in files:
                self.assertNotRegex(name, r"(^|/)(\.git|build|reference|__pycache__|bench|devtools|"
                                    r"platforms)/|\.(old|orig|pyc|swp)$|~$|\.\.|^/", archive)
                self.assertEqual(name.endswith(".o"), "given/reference-" in name, name)

    def test_no_archive_holds_a_line_of_the_solution(self):
        """With a search of its own: release.py's could be wrong."""
        known = []
        for folder in ("skeleton", "lib"):
            for at, _, names in os.walk(os.path.join(ROOT, folder)):
                for name in names:
                    if name.endswith((".c", ".h", ".cu", ".cuh")):
                        known.append(" ".join(read(at, name).split()))
        secrets = set()
        for file in FILES:
            regions = re.findall(r"(?m)^ *//\[\d+\.\d+\] [\s\S]*?^ *//\[end \d+\.\d+\]",
                                 read(ROOT, "reference", file))
            self.assertTrue(regions, file)
            for line in "\n".join(regions).split("\n"):
                line = " ".join(line.split())
                if len(line) >= 24 and not line.startswith("//") and \
                        not any(line in text for text in known):
                    secrets.add(line.encode())
        self.assertGreater(len(secrets), 100)
        texts = {} # what most archives have is searched once
        for archive, files in self.archives().items():
            for name, data in files.items():
                texts.setdefault(data, "%s of %s" % (name, archive))
        for data, where in texts.items():
            flat = b" ".join(data.split())
            for line in secrets:
                if line in flat:
                    self.fail("%r is in %s" % (line, where))

    def test_a_solution_that_would_get_out_is_found(self):
        secrets = release.Secrets(ROOT)
        text = read(ROOT, "reference", "forward.c").encode()
        self.assertTrue(secrets.leaks(text))
        patch = b"".join(b"+" + line + b"\n" for line in text.split(b"\n"))
        self.assertTrue(secrets.leaks(patch))
        self.assertEqual(secrets.leaks(read(ROOT, "include", "fsdp.h").encode()), [])

    def test_with_gaps_2_more_is_left_to_be_written_and_is_secret(self):
        out = os.path.join(self.folder, "gaps")
        status, text = run(["make", "-s", "release", "GAPS=2", "OUT=" + out], ROOT)
        self.assertEqual(status, 0, text)
        name = next(name for name in os.listdir(out) if name.endswith("-student.tar.gz"))
        with tarfile.open(os.path.join(out, name)) as archive:
            files = {item.name: archive.extractfile(item).read() for item in archive}
        helper = b"cudaStreamWaitEvent(waiter, ctx->compute_done, 0)"
        self.assertIn(b'NOT_YET("3.6a");', files["shardlab/skeleton/forward.c"])
        self.assertEqual([path for path, data in files.items() if helper in data], [])
        plain = self.archives()["shardlab-7-student.tar.gz"]
        for given, known in ((files["shardlab/grader/given.json"], False),
                             (plain["shardlab/grader/given.json"], True)):
            given = json.loads(given)["tasks/3_forward"]
            self.assertEqual("stream_wait_stream" in given, known)
            self.assertNotIn("fsdp_unshard", given)
        self.assertNotIn(b"3.6a", plain["shardlab/skeleton/forward.c"])
        self.assertIn(helper, plain["shardlab/skeleton/forward.c"])
        self.assertEqual(release.Secrets(ROOT).leaks(helper + b";"), [])
        self.assertTrue(release.Secrets(ROOT, 2).leaks(b"    CUDA_TRY(" + helper + b");"))

    def test_students_get_no_hidden_test_and_nothing_for_staff(self):
        files = self.archives()["shardlab-7-student.tar.gz"]
        for name, data in files.items():
            self.assertNotRegex(name, r"hidden\w*\.c$|mutants|alternatives")
            for test in COURSE["hidden"]["tests"]:
                self.assertNotIn(test["name"].encode(), data, name)
        for archive in self.archives().values():
            self.assertFalse([name for name in archive if name.endswith(release.ONE_FILE)])
        for name in ("handouts/instructors.md", "handouts/interview_answers.md",
                     "grader/course/course.json", "grader/course/release.py",
                     "grader/course/deliver.py", "tests/grader/test_release.py"):
            self.assertNotIn("shardlab/" + name, files)
        # Of the tests those that grade, what they share, and what the results page draws.
        tests = [name for name in files if name.startswith("shardlab/tests/")]
        self.assertEqual({name.split("/")[2] for name in tests}, {"support", "trace"})
        for name in ("Makefile", "README.md", "VERSION", ".github/workflows/grade.yml",
                     "handouts/1_meta_init.md", "tasks/3_forward/tests.c", "examples/train_gpt2.c",
                     "tests/trace/steps.c", "grader/page.py", "grader/plot.py",
                     ".vscode/tasks.json", "grader/trace.py", ".devcontainer/Dockerfile",
                     ".devcontainer/devcontainer.json", "simgpu/man.awk",
                     "grader/hint.py", "grader/watch.py", "grader/regrade.py",
                     "tasks/3_forward/task.json", "tasks/3_forward/rules.c", "LICENSE"):
            self.assertIn("shardlab/" + name, files)

    def test_objects_tell_neither_names_nor_lines(self):
        folder = os.path.join(self.student, "given")
        folder = os.path.join(folder, os.listdir(folder)[0])
        self.assertEqual(sorted(os.listdir(folder)), sorted(file[:-1] + "o" for file in FILES + [
                piece.file for lab in manifest.load(ROOT, manifest.LAB) for piece in lab.pieces()]))
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            self.assertNotIn(".debug", run(["readelf", "-SW", path], folder)[1])
            symbols = [line.split() for line in run(["nm", path], folder)[1].splitlines()]
            local = [line[-1] for line in symbols if line[-2].islower()]
            self.assertEqual([name for name in local if not name.startswith(".L")], [], name)

    def test_the_same_tree_gives_the_same_bytes(self):
        again = os.path.join(self.folder, "again")
        status, text = run(["sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable,
                            RELEASE, "--out", again, "--version", "7"],
                           self.folder, TZ="Asia/Tokyo", CFLAGS="-O0")
        self.assertEqual(status, 0, text)
        self.assertEqual(sorted(os.listdir(again)), sorted(os.listdir(self.out)))
        for folder, _, names in os.walk(self.out):
            for name in names:
                path = os.path.join(folder, name)
                other = os.path.join(again, os.path.relpath(path, self.out))
                with open(path, "rb") as one, open(other, "rb") as two:
                    self.assertEqual(one.read(), two.read(), name)
                self.assertEqual(os.stat(path).st_mode, os.stat(other).st_mode, name)
        with tarfile.open(os.path.join(self.out, "shardlab-7-student.tar.gz")) as archive:
            self.assertEqual({(item.uid, item.gid, item.mtime, item.isreg()) for item in archive},
                             {(0, 0, 1700000000, True)})

    def test_a_release_that_fails_leaves_nothing(self):
        out = os.path.join(self.folder, "failing")
        status, text = run([sys.executable, RELEASE, "--out", out,
                            "--version", "7", "--given", self.folder], ROOT)
        self.assertEqual(status, 1)
        self.assertIn("no folder reference-", text)
        self.assertEqual(os.listdir(out), [])

    # ---- Where they are not all there ----

    def test_5_broken_archives_leave_results_that_say_so(self):
        """The kit is not there, or half of it: each platform's script still leaves a result."""
        root = self.root("source", "submission")
        unzip(os.path.join(self.out, "shardlab-7-gradescope.zip"), os.path.join(root, "source"))
        shutil.rmtree(os.path.join(root, "source", "kit", "grader", "emit"))
        run([os.path.join(root, "source", "run_autograder")], root, AUTOGRADER_ROOT=root)
        text = read(root, "results", "results.json")
        self.assertEqual(schemas.gradescope(text), [])
        self.assertIn("not your code", text)

        here = os.path.join(root, "serverFilesCourse", "shardlab")
        os.makedirs(here)
        shutil.copy(os.path.join(self.out, "shardlab-7-prairielearn", "serverFilesCourse",
                                 "shardlab", "run.sh"), here)
        run([os.path.join(here, "run.sh")], root, AUTOGRADER_ROOT=root)
        text = read(root, "results", "results.json")
        self.assertEqual(schemas.prairielearn(text), [])
        self.assertIs(json.loads(text)["gradable"], False)

        shutil.copy(os.path.join(self.out, "shardlab-7-autolab", "autograde-Makefile"),
                    os.path.join(root, "Makefile"))
        for data in (b"", b"no tar", None):
            path = os.path.join(root, "autograde.tar")
            if data is None:
                os.unlink(path)
            else:
                with open(path, "wb") as file:
                    file.write(data)
            status, text = run(["make"], root)
            self.assertEqual(status, 0, text)
            self.assertEqual(schemas.autolab(text), [])
            self.assertEqual(set(json.loads(text.splitlines()[-1])["scores"].values()), {0})
            self.assertIn("not your code", text)


    # ---- What the student's archive offers ----

    def offered(self):
        """The targets of the archive's `make help`, in its order, and all that it prints."""
        status, text = run(["make", "help"], self.student)
        self.assertEqual(status, 0, text)
        return re.findall(r"(?m)^make (\S+)", text), text

    def test_6_what_is_the_full_kits_says_so_in_a_line(self):
        targets, text = self.offered()
        _, text_of_kit = run(["make", "help"], ROOT)
        kits = set(re.findall(r"(?m)^make (\S+)", text_of_kit)) - set(targets)
        self.assertIn("mutants", kits)
        self.assertNotIn("emulated-cuda", text)
        for words in [[name] for name in sorted(kits)] + [["grade", "BACKEND=emulated-cuda"]]:
            status, text = run(["make"] + words, self.student)
            self.assertEqual(status, 2, text)
            self.assertEqual(len(text.splitlines()), 1, text)
            self.assertIn("make %s belongs to the full kit" % words[-1], text)

    def test_6_pages_name_nothing_that_is_not_there(self):
        """Links, files in code spans, and `make` targets of the archive's pages."""
        targets, _ = self.offered()
        for folder, folders, names in os.walk(self.student):
            folders[:] = [name for name in folders if name != "build"]
            for name in names:
                if not name.endswith(".md"):
                    continue
                text = read(folder, name)
                where = os.path.relpath(os.path.join(folder, name), self.student)
                for link in re.findall(r"\]\(([^)#:]+)\)", text):
                    self.assertTrue(os.path.exists(os.path.join(folder, link)), (where, link))
                for path in re.findall(r"`((?:tests|grader|tasks|lib|include|skeleton|examples)/"
                                       r"[\w./]+\.\w+)`", text):
                    self.assertTrue(os.path.exists(os.path.join(self.student, path)), (where, path))
                for target in re.findall(r"`make (?:\w+=\S+ )*([a-z][\w.-]*)", text):
                    self.assertIn(target, targets, where)


class Walk(TempFolder):
    @unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "there is no reference")
    def test_a_course_whose_points_or_names_are_wrong_is_not_released(self):
        kit = self.path("kit")
        os.mkdir(kit)
        for name in ("grader", "handouts", "include", "labs", "reference", "tasks", "VERSION"):
            copy = shutil.copytree if os.path.isdir(os.path.join(ROOT, name)) else shutil.copy
            copy(os.path.join(ROOT, name), os.path.join(kit, name))
        program = os.path.join(kit, "grader", "course", "release.py")
        for file, old, new, words in (
                ("tasks/3_forward/task.json", '"points": 16', '"points": 17', "the task has 17"),
                ("grader/course/course.json", '"name": "any_slice_of', '"name": "a_slice_of',
                 "no hidden.c has the hidden test a_slice_of"),
                ("tasks/3_forward/task.json", '"number": 3', '"number": 4', "number 4, want 3")):
            text = read(kit, file)
            self.assertIn(old, text)
            with open(os.path.join(kit, file), "w", encoding="utf-8") as changed:
                changed.write(text.replace(old, new, 1))
            status, said = run([sys.executable, program, "--out", os.path.join(kit, "out"),
                                "--version", "7"], ROOT)
            with open(os.path.join(kit, file), "w", encoding="utf-8") as changed:
                changed.write(text)
            self.assertEqual((status, len(said.splitlines())), (1, 1), said)
            self.assertIn(words, said)
            self.assertEqual(os.listdir(os.path.join(kit, "out")), [])

    def test_only_what_is_of_a_kind_is_taken(self):
        for name in ("a.c", "deep/b.h", "notes.md", "x.old", "x.c.old", "x.o", ".hidden.c",
                     "#x.c#", "x.c~", "__pycache__/x.py", ".git/x.c", "build/x.c", "x"):
            self.write("lib/" + name, "text")
        self.assertEqual(sorted(release.walk(self.folder, "lib")),
                         ["lib/a.c", "lib/deep/b.h", "lib/notes.md"])
        os.symlink("/etc/passwd", self.path("lib/link.c"))
        with self.assertRaises(release.BadRelease):
            release.walk(self.folder, "lib")


class CourseFile(unittest.TestCase):
    def test_the_courses_own(self):
        self.assertEqual(settings.problems(COURSE, ROOT), [])

    def test_students_get_fsdp_in_one_file_where_the_course_says_so(self):
        for path in release.ONE_FILE:
            self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)
            self.assertIn(path, release.withheld(dict(settings.DEFAULTS)))
            self.assertNotIn(path, release.withheld(dict(COURSE, one_file=True)))

    def test_a_hidden_test_may_have_more_hints_and_a_section(self):
        hidden = [dict(test, more=["Look."], section="The streams")
                  for test in COURSE["hidden"]["tests"]]
        course = dict(COURSE, hidden=dict(COURSE["hidden"], tests=hidden))
        self.assertEqual(settings.problems(course, ROOT), [])

    def test_what_is_wrong_with_it_is_said(self):
        hidden = COURSE["hidden"]["tests"][0]
        for words, change in (
                ("dates", {"dates": {"due": "tomorrow"}}),
                ("no UTC offset", {"dates": {"due": "2027-03-15T12:00:00"}}),
                ("order", {"dates": {"opens": "2027-03-15T12:00:00+00:00",
                                     "due": "2027-03-14T12:00:00+00:00"}}),
                ("is 'seen': must be one of", {"visibility": {"tests": "seen"}}),
                ("taken_by", {"late": {"percent_per_day": 10, "taken_by": "me"}}),
                ("percent_per_day", {"late": {"percent_per_day": 300, "taken_by": "grader"}}),
                ("unknown field", {"due": "today"}), ("one_file must be", {"one_file": "yes"}),
                ("no task sideways", {"hidden": {"seed": 1, "tests": [
                    dict(hidden, suite="sideways")]}}),
                ("must have suite, name", {"hidden": {"seed": 1, "tests": [{"suite": "api"}]}}),
                ("seed is '7'", {"seed": "7"}), ("seed is True", {"seed": True}),
                ("seed is -1", {"seed": -1}),
                ("seed is 18446744073709551616", {"seed": 1 << 64}),
                ("points is -1", {"hidden": {"seed": 1, "tests": [dict(hidden, points=-1)]}}),
                ("hidden: seed is None", {"hidden": {"tests": []}})):
            with self.subTest(words=words):
                found = settings.problems(dict(COURSE, **change), ROOT)
                self.assertEqual(len(found), 1, found)
                self.assertIn(words, found[0])
        # A suite that was never written: nothing at all is in an empty folder.
        with tempfile.TemporaryDirectory() as folder:
            found = settings.problems(dict(COURSE, hidden={"seed": 1, "tests": [hidden]}), folder)
        self.assertEqual(len(found), 1, found)
        self.assertIn("there is no tasks/1_meta_init/hidden.c", found[0])

    def test_every_task_has_hidden_tests_and_seeds_differ(self):
        suites = {test["suite"] for test in COURSE["hidden"]["tests"]}
        self.assertEqual(suites, {task.name for task in TASKS} | {"together"})
        self.assertEqual(HIDDEN, 10) # handouts/instructors.md says so
        # The visible seed stands in every message; the hidden one must not be guessed from it.
        self.assertNotEqual(COURSE["seed"], COURSE["hidden"]["seed"])


class Lateness(unittest.TestCase):
    def test_lateness(self):
        course = dict(COURSE, late={"percent_per_day": 10, "taken_by": "grader"},
                      dates={"due": "2027-03-15T12:00:00+00:00"})

        def said(came, *own, due=None):
            return deliver.lateness(course, {
                "created_at": came, "assignment": {"due_date": due},
                "users": [{"email": "a", "assignment": {"due_date": date}} for date in own]})

        def share(*words, **more):
            return said(*words, **more).get("late", 0)
        self.assertEqual(said("2027-03-15T12:00:00+00:00"),
                         {"due": "2027-03-15T12:00:00+00:00, from course.json"})
        self.assertEqual(share("2027-03-15T12:00:01+00:00"), 0.1)
        self.assertEqual(share("2027-03-15T12:00:00.000001000+00:00"), 0.1)
        self.assertEqual(share("2027-03-16T12:00:00+00:00"), 0.1)
        self.assertEqual(share("2027-03-16T14:00:01+01:00"), 0.2)
        self.assertEqual(share("2027-05-01T00:00:00+00:00"), 1.0)
        self.assertEqual(share("2027-03-16T12:00:01+00:00", due="2027-03-17T00:00:00+00:00"), 0)
        self.assertEqual(share("yesterday"), 0)
        # A student's own date counts before the assignment's; of a group's, the latest.
        early, late = "2027-03-10T12:00:00-08:00", "2027-03-20T12:00:00-08:00"
        for own, want in (((early,), 0.6), ((late,), 0), ((early, late), 0), ((late, None), 0),
                          ((None,), 0.1), (("soon",), 0.1), ((early, 3), 0.6)):
            with self.subTest(own=own):
                now = said("2027-03-15T20:00:01-08:00", *own, due="2027-03-15T20:00:00-08:00")
                self.assertEqual(now.get("late", 0), want)
                self.assertEqual(now["due"].partition(", from ")[2], "users[].assignment"
                                 if want != 0.1 else "assignment")
        course["late"]["taken_by"] = "platform"
        now = said("2027-03-16T12:00:01+00:00")
        self.assertEqual((now.get("late", 0), now["days_late"]), (0, 2))
        self.assertIn("2 days late", now["message"])
        for metadata in ({}, None, [], {"created_at": 3}, {"assignment": 3}, {"users": 3},
                         {"created_at": "2027-03-16T12:00:01+00:00", "assignment": 3, "users": [
                             3, {}, {"assignment": 3}]}):
            self.assertLessEqual(set(deliver.lateness(course, metadata)),
                                 {"due", "days_late", "message"})
        self.assertEqual(deliver.lateness(dict(course, dates={}), {
            "created_at": "2027-03-16T12:00:01+00:00"}), {})


class Deliver(FakeKit):
    """deliver.py on a kit in miniature whose grader dies in every way."""

    def setUp(self):
        super().setUp()
        self.course()

    def start(self, platform="gradescope", **more):
        return subprocess.Popen(
            [sys.executable, "-B", self.path("grader/course/deliver.py"), "--platform", platform,
             "--submission", self.path("mine"), "--results", self.path("out/result")] +
            more.pop("words", []), cwd=self.folder, env=dict(ENVIRONMENT, TMPDIR=self.path("tmp"),
                                                             **more),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def deliver(self, platform="gradescope", **more):
        os.makedirs(self.path("tmp"), exist_ok=True)
        process = self.start(platform, **more)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(os.listdir(self.path("tmp")), [], text)
        return process.returncode, self.result(platform), text

    def result(self, platform="gradescope"):
        text = self.read("out/result")
        self.assertEqual(getattr(schemas, platform)(text), [])
        return json.loads(text) if platform != "autolab" else text

    def infrastructure(self, words, status=3):
        got, result, text = self.deliver()
        self.assertEqual(got, status, text)
        self.assertEqual((result["score"], result["extra_data"]["status"]), (0, "infrastructure"))
        self.assertIn("not your code", result["output"])
        self.assertIn(words, result["output"])

    def test_all_is_well(self):
        status, result, text = self.deliver()
        self.assertEqual((status, result["score"]), (0, 100), text)
        status, text, _ = self.deliver("autolab")
        self.assertEqual(json.loads(text.splitlines()[-1])["scores"], {"One": 60, "Two": 40})

    def test_all_students_get_the_same_draws(self):
        """The course's seed, whatever the machine's environment has."""
        self.suite("one", "abc", "say('a', 'failed', 'SEED=' + os.environ['SEED'], "
                   "seed=int(os.environ['SEED'])); rest('a')")
        self.course(seed=4711)
        for more in ({}, {"SEED": "5"}, {"SEED": "odd"}):
            status, result, text = self.deliver(**more)
            self.assertEqual(status, 0, text)
            self.assertIn("SEED=4711\n", result["tests"][0]["output"])
            self.assertIn("make grade TASK=1 IMPL=", text)
            self.assertIn(" SEED=4711\n", text)

    def test_what_was_handed_in_is_said_first(self):
        """On top what was done with the files; at the tests why there is none to test."""
        os.rename(self.path("mine/one.c"), self.path("mine/One (1).c"))
        os.unlink(self.path("mine/two.c"))
        os.symlink("/etc/passwd", self.path("mine/two.c"))
        result = self.deliver()[1]
        self.assertEqual(result["score"], 60)
        self.assertEqual(result["output"].split("\n")[:5], [
            "Score: 60 of 100.", "One (1).c was taken as one.c.",
            "two.c is a link: hand in the file itself.", "Task 1  One                60/60",
            "Task 2  Two                0/40"])
        self.assertEqual(result["output"].split("\n")[5:], [
            "What to do next: task 2, d", "  two.c is a link: hand in the file itself.",
            "  Read: handouts/2_two.md", "  At home: make grade TASK=2"])
        self.assertTrue(result["tests"][3]["output"].startswith(
            "Error: two.c is a link: hand in the file itself.\n"), result["tests"][3])
        self.assertTrue(self.deliver("autolab")[1].startswith("Score: 60 of 100.\nOne (1).c was "))

    def test_no_path_of_the_graders_is_shown(self):
        """Neither in the results nor in what is printed: the submission was copied to a place that
        nobody knows."""
        self.suite("one", "abc", "say('a', 'failed', os.path.abspath(sys.argv[0]) + ' ' + "
                   "%r + ': part 1.1 of f is not written yet (NOT_YET)'); rest('a')"
                   % "mine/one.c:1")
        self.write("mine/two.c", "int two(void) { return x; }\n")
        self.write("mine/one.c", "#warning look\nint one(void) { return 1; }\n")
        for platform in ("gradescope", "autolab", "prairielearn"):
            with self.subTest(platform=platform):
                _, result, text = self.deliver(platform)
                self.assertNotIn(self.path("tmp"), json.dumps(result) + text)
                self.assertIn("submission/two.c:1: ", json.dumps(result))
                self.assertIn("submission/one.c:1:", text)

    def test_a_late_submission(self):
        self.course(late={"percent_per_day": 10, "taken_by": "grader"})
        for own, score, said in ((None, 80, "2 days late"), ("16T12:00:00", 90, "1 day late")):
            path = self.write("metadata.json", json.dumps({
                "created_at": "2027-03-16T12:00:01+00:00",
                "assignment": {"due_date": "2027-03-15T12:00:00+00:00"},
                "users": [{"assignment": {"due_date": own and "2027-03-%s+00:00" % own}}]}))
            result = self.deliver(words=["--metadata", path])[1]
            self.assertEqual(result["score"], score)
            self.assertIn(said, result["output"])
        self.assertEqual(result["extra_data"]["due"],
                         "2027-03-16T12:00:00+00:00, from users[].assignment")

    def test_a_grader_that_crashes(self):
        self.write("grader/grade.py", "raise SystemExit(1)\n")
        self.infrastructure("No such file")
        self.write("grader/grade.py", "import sys\nout = sys.argv[sys.argv.index('--out') + 1]\n"
                   "open(out, 'w').write('{')\n")
        self.infrastructure("Expecting")
        self.write("grader/grade.py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
        self.infrastructure("No such file")

    def test_every_test_has_its_full_limit(self):
        self.write("grader/grade.py", "import sys\nopen(%r, 'w').write(' '.join(sys.argv))\n"
                   % self.path("words"))
        self.infrastructure("No such file")
        self.assertIn(" --patient", self.read("words"))

    def test_a_grader_that_hangs(self):
        self.course(limit_seconds=1)
        self.suite("one", "abc", "time.sleep(50)")
        began = time.monotonic()
        self.infrastructure("longer than")
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(processes_with(self.path("build")), [])

    def test_a_kit_that_does_not_build(self):
        self.write("Makefile", "$(error no kit)\n")
        self.infrastructure("no kit")
        self.write("grader/course/course.json", "{")
        self.infrastructure("course.json cannot be read")

    def test_a_submission_that_is_no_archive(self):
        shutil.rmtree(self.path("mine"))
        self.write("mine", "no archive")
        status, result, _ = self.deliver()
        self.assertEqual((status, result["score"], result["extra_data"]["status"]),
                         (0, 0, "error"))
        self.assertIn("cannot be unpacked", result["output"])

    def test_stopped_and_killed(self):
        for number, words in ((signal.SIGTERM, "stopped by SIGTERM"),
                              (signal.SIGKILL, "did not finish")):
            with self.subTest(signal=number):
                os.makedirs(self.path("tmp"), exist_ok=True)
                started = self.path("started%d" % number)
                self.suite("one", "abc", "open(%r, 'w').close()\n"
                           "for i in range(100):\n    time.sleep(0.1)\n" % started)
                process = self.start()
                wait_for(lambda: os.path.exists(started), process)
                self.assertIn("did not finish", self.result()["output"])
                process.send_signal(number)
                process.wait(timeout=30)
                result = self.result()
                self.assertEqual(result["extra_data"]["status"], "infrastructure")
                self.assertIn(words, result["output"])
                for word in (self.path("grader"), self.path("build")):
                    if number == signal.SIGTERM:
                        self.assertEqual(processes_with(word), [])
                    for pid in processes_with(word):
                        os.kill(pid, signal.SIGKILL)
                process.communicate(timeout=30)


if __name__ == "__main__":
    unittest.main()
