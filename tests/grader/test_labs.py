"""The labs: their manifests, texts, skeletons, mutants and alternatives fit each other, and the
grader, hints and releases know them."""

import json
import os
import re
import unittest

from helpers import ROOT, TempFolder, build_folder, program, run
from test_skeleton import CALLS, regions_of

import gaps
import manifest
import release
import settings
import skeleton

LABS = manifest.load(ROOT, manifest.LAB)


def text_of(piece):
    return skeleton.read(os.path.join(ROOT, piece.in_kit("reference")))


def regions(piece):
    """Of the regions of a lab's file, by part: (text, questions, solution)."""
    return {part: (text, asked, "\n".join(lines))
            for part, (text, asked, lines) in regions_of(text_of(piece)).items()}


class Manifests(unittest.TestCase):
    def test_they_are_right(self):
        self.assertEqual(manifest.problems(LABS, ROOT), [])

    def test_names_are_those_of_the_suites(self):
        folder = os.path.join(build_folder(), "impl", "reference", "suite")
        if not all(os.path.exists(os.path.join(folder, lab.name)) for lab in LABS):
            self.skipTest("the suites of the reference are not built")
        done = run(program("devtools/check_tasks.py", "--suites", folder))
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_parts_ask_and_name_no_call_and_the_last_hint_does(self):
        for lab in LABS:
            for piece in lab.pieces():
                for part, (text, asked, solution) in regions(piece).items():
                    with self.subTest(part=part):
                        self.assertEqual(CALLS.findall(text), [])
                        self.assertTrue(asked or part[-1].isalpha(), "it asks nothing")
                        for call in set(re.findall(r"\b((?:cuda|nccl)[A-Z]\w+|kernel_\w+)\(",
                                                   solution)) - {"cudaEventRecord",
                                                                 "cudaStreamWaitEvent"}:
                            self.assertIn(call, lab.parts[part][-1])

    def test_a_file_of_a_student_and_one_of_the_kit(self):
        lab = LABS[0]
        self.assertEqual(lab.shown(os.path.join(ROOT, "skeleton")), "labs/%d_%s/skeleton.c" % (
            lab.number, lab.name))
        self.assertEqual(lab.shown("/somewhere/mine"), "mine/%s.c" % lab.name)
        second = lab.pieces()[1]
        self.assertEqual(second.shown(os.path.join(ROOT, "reference")),
                         "labs/1_strategies/reference_%s" % second.file)
        self.assertTrue(lab.named("1_strategies/skeleton_%s" % second.file))
        self.assertTrue(lab.named("mine/" + second.file))
        self.assertFalse(lab.named("1_strategies/tests.c"))

    def test_fields(self):
        with self.assertRaises(manifest.BadManifest):
            manifest.take({"file": "one.c"}, manifest.TASK_FIELDS, "lab.json", {})


class Releases(unittest.TestCase):
    def test_students_get_no_solution_and_no_mutants(self):
        files = release.collect(ROOT, ("labs",), ())
        for lab in LABS:
            folder = lab.folder
            for name in ("skeleton.c", "tests.c", "lab.json", "handout.md"):
                self.assertIn("%s/%s" % (folder, name), files)
        for path in files:
            self.assertNotRegex(path, r"reference|mutants|alternatives")

    def test_the_solutions_lines_are_secret(self):
        secrets = release.Secrets(ROOT)
        for lab in LABS:
            for piece in lab.pieces():
                self.assertTrue(secrets.leaks(text_of(piece).encode()), piece.file)
                made = skeleton.files(ROOT)[piece.in_kit("skeleton")]
                self.assertEqual(secrets.leaks(made.encode()), [], piece.file)


class Courses(unittest.TestCase):
    def test_an_assignment_of_labs(self):
        whole = settings.tasks_of(dict(settings.DEFAULTS, lab="all"), ROOT)
        self.assertEqual([task.name for task in whole], [lab.name for lab in LABS])
        one = settings.tasks_of(dict(settings.DEFAULTS, lab="strategies"), ROOT)
        self.assertEqual([piece.file for piece in one[0].pieces()],
                         ["strategies.c", "ddp.c", "slices.c"])
        with self.assertRaises(settings.BadCourse):
            settings.tasks_of(dict(settings.DEFAULTS, lab="nothing"), ROOT)


class Grading(TempFolder):
    def call(self, name, *arguments):
        done = run(program(name, *arguments), timeout=900)
        return done.returncode, done.stdout, done.stderr

    def grade(self, impl, *arguments):
        return self.call("grade.py", "--impl", impl, "--build", build_folder(), "--out",
                         self.path("results.json"), *arguments)

    def test_the_skeleton_gets_nothing(self):
        status, out, error = self.grade("skeleton", "--lab", "all")
        full = sum(lab.points for lab in LABS)
        self.assertEqual(status, 0, out + error)
        self.assertEqual(out.splitlines()[-1], "Score: 0/%g" % full)
        document = json.loads(self.read("results.json"))
        self.assertTrue(document["labs"])
        self.assertEqual({row["status"] for row in document["tests"]}, {"failed"})

    def test_words_that_make_no_sense(self):
        for arguments, said in ((("--lab", "nothing"), "there is no lab nothing; the labs are 1 "),
                                (("--lab", "1", "--task", "1"), "ask for one of them")):
            status, _, error = self.grade("skeleton", *arguments)
            self.assertEqual(status, 2)
            self.assertIn(said, error)

    def test_a_hint_for_the_first_gap(self):
        status, out, _ = self.call("hint.py", "--impl", "skeleton", "--lab", "strategies",
                                   "--build", self.path("build"))
        self.assertEqual(status, 0)
        self.assertIn("Lab 1  Strategies: part L1.1 is not written yet", out)
        self.assertIn("labs/1_strategies/skeleton.c:", out)
        self.assertIn("make hint LAB=1", out)
        self.assertIn("make grade LAB=1", out)

    def test_gaps_of_both_levels(self):
        lab = LABS[0]
        ones = [part for piece in lab.pieces() for part in gaps.parts(text_of(piece), 1)]
        self.assertEqual(ones, ["L1.%d" % (i + 1) for i in range(len(ones))])
        self.assertTrue(all(part[-1].isalpha() for part in lab.parts if part not in ones))

    def test_no_page_or_message_names_a_part_that_no_skeleton_has(self):
        for task in manifest.load_all(ROOT):
            labels = [part for part in task.parts if part != manifest.whole(part)]
            pages = {task.handout: manifest.text_of(ROOT, task.handout)}
            for piece in task.pieces():
                pages[piece.in_kit("skeleton")] = skeleton.read(
                    os.path.join(ROOT, piece.in_kit("skeleton")))
            for test in task.tests:
                pages[test.name] = " ".join(
                    [test.title, *test.hints(), *test.parts, *task.functions])
            pages["hints"] = " ".join(text for levels in task.parts.values() for text in levels)
            pages["errors"] = " ".join(task.errors.values())
            for name, text in pages.items():
                with self.subTest(name):
                    self.assertEqual([label for label in labels
                                      if re.search(r"\b%s\b" % re.escape(label), text)], [])


if __name__ == "__main__":
    unittest.main()
