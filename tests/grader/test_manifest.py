"""The manifests: that the kit's own are right, and that the checker sees each way to be wrong."""

import json
import os
import unittest

from helpers import ROOT, TempFolder, build_folder, program, run, speak
import check_tasks
import manifest


class Kit(unittest.TestCase):
    def test_the_kits_manifests_are_right(self):
        tasks = manifest.load(ROOT)
        self.assertEqual(manifest.problems(tasks, ROOT), [])

    def test_other_lists_have_all_tasks_and_headers(self):
        self.assertEqual([], list(check_tasks.check_files(manifest.load(ROOT), ROOT)))
        self.assertEqual([], list(check_tasks.check_headers(manifest.load_all(ROOT), ROOT)))

    def test_names_are_those_of_the_suites(self):
        folder = os.path.join(build_folder(), "impl", "reference", "suite")
        if not os.path.exists(os.path.join(folder, "together")):
            self.skipTest("the suites of the reference are not built")
        done = run(program("devtools/check_tasks.py", "--suites", folder))
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class Wrong(TempFolder):
    def setUp(self):
        super().setUp()
        self.data = {"number": 1, "name": "one", "title": "One", "points": 100, "files": ["one.c"],
                     "handout": "handouts/1_one.md",
                     "parts": {"1.1": ["Which?", "That."], "1.2": ["Where?", "Here.", "There."]},
                     "functions": {"1.1": ["f", "given"], "1.2": ["g"]},
                     "tests": [
                         {"name": "a", "points": 40, "title": "A holds.", "hint": "Why a?",
                          "more": ["Look at a.", "Call a."], "section": "The plan",
                          "parts": ["1.1"]},
                         {"name": "b", "points": 60, "title": "B holds.", "hint": "Why b?",
                          "more": ["Look at b.", "Call b."], "section": "Deep", "together": True}]}
        self.write("reference/one.c", "/* One. */\nint f(int x)\n{\n//[1.1] Write this.\nh();\n"
                   "//[end 1.1]\n}\nstatic int *g(void)\n{\n  //[1.2] And this.\n  h();\n"
                   "  //[end 1.2]\n}\n")
        self.write("handouts/1_one.md", "# One\n\n## The plan\n\n```\n# no heading\n```\n"
                   "    # nor this\n**1.1, 1.2** Begin.\n### Deep ##\n#nor this\n")

    def problems(self):
        self.write("tasks/1_one/task.json", json.dumps(self.data))
        return manifest.problems(manifest.load(self.folder), self.folder)

    def unreadable(self, words):
        self.write("tasks/1_one/task.json", json.dumps(self.data))
        with self.assertRaises(manifest.BadManifest) as caught:
            manifest.load(self.folder)
        self.assertIn(words, str(caught.exception))

    def one(self, words):
        found = self.problems()
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_right_one(self):
        self.assertEqual(self.problems(), [])

    def test_points_that_do_not_add_up(self):
        self.data["tests"][0]["points"] = 41
        self.one("the tests have 101 points, the task has 100")

    def test_a_file_that_is_not_there(self):
        os.unlink(self.path("handouts/1_one.md"))
        self.assertIn("tasks/1_one/task.json: there is no handouts/1_one.md", self.problems())

    def test_a_test_twice(self):
        self.data["tests"][1]["name"] = "a"
        self.one("second test is named a")

    def test_a_hint_that_tells(self):
        self.data["tests"][1]["hint"] = "Use malloc."
        self.one("does not ask a question")

    def test_levels_of_hints(self):
        self.data["tests"][0]["more"] = ["Look at a."]
        self.one('a has 1 hints in "more", not 2')
        self.data["tests"][0]["more"] = ["Look at a.", "Why a?"]
        self.one("two hints of a are the same")
        self.data["tests"][0]["more"] = ["Look at a.", "long " * 100]
        self.one("hint 3 of a has 500 characters")
        del self.data["tests"][0]["more"]
        self.one('a has 0 hints in "more", not 2')

    def test_a_section_that_the_handout_does_not_have(self):
        for heading in ("no heading", "nor this", "The", "the plan", "Deep ##"):
            self.data["tests"][1]["section"] = heading
            self.one('handouts/1_one.md has no heading "%s", which b names' % heading)
        self.data["tests"][1]["section"] = "One"
        self.assertEqual(self.problems(), [])
        del self.data["tests"][1]["section"]
        self.one('b has no "section"')

    def test_parts_are_those_of_the_reference(self):
        self.data["parts"]["1.3"] = ["When?", "Then."]
        self.assertEqual([text.partition(": ")[2] for text in self.problems()],
                         ["handouts/1_one.md has no paragraph **1.3** under a heading",
                          "hints for part 1.3, which reference/one.c does not have"])
        del self.data["parts"]["1.3"], self.data["parts"]["1.2"]
        self.one("part 1.2 has no hints")
        self.data["parts"]["1.2"] = ["Where?"]
        self.one("part 1.2 has 1 hints, not 2 or more")
        self.data["parts"]["1.2"] = ["There.", "Here."]
        self.one("the hint of part 1.2 does not ask")
        del self.data["parts"]
        self.assertEqual([text.partition(": ")[2] for text in self.problems()],
                         ["a is meant for part 1.1, which the task does not have",
                          "part 1.1 has no hints", "part 1.2 has no hints"])

    def test_a_part_with_a_letter_has_hints_of_its_own(self):
        self.write("reference/one.c", self.read("reference/one.c")
                   + "//[[1.2a] And that.\nh();\n//[end 1.2a]\n")
        self.one("part 1.2a has no hints")
        self.data["parts"]["1.2a"] = ["Who?", "He."]
        self.assertEqual(self.problems(), [])

    def test_the_section_of_a_part(self):
        sections = manifest.sections_of_parts(self.read("handouts/1_one.md"))
        parts = ("1.1", "1.2", "1", "1.2a", "1.3a", "a")
        self.assertEqual([manifest.section_of_part(sections, part) for part in parts],
                         ["The plan", "The plan", "", "The plan", "", ""])

    def test_what_grading_can_do_without(self):
        for test in self.data["tests"]:
            del test["more"], test["section"]
        del self.data["parts"], self.data["functions"], self.data["tests"][0]["parts"]
        self.write("tasks/1_one/task.json", json.dumps(self.data))
        task = manifest.load(self.folder)[0]
        self.assertEqual((task.parts, task.tests[0].hints(), task.tests[0].section),
                         ({}, ["Why a?"], ""))

    def test_functions_and_parts(self):
        self.data["functions"]["1.1"] = ["given", "f"]
        self.one('part 1.1 is in f, which must be the first of its "functions"')
        del self.data["functions"]["1.1"]
        self.one('part 1.1 is in f')
        self.data["functions"]["1.1"] = ["f"]
        self.data["tests"][0]["parts"] = ["1.3"]
        self.one("a is meant for part 1.3, which the task does not have")
        self.data["tests"][0]["parts"] = []
        self.one('a has no "parts"')
        self.data["tests"][0]["parts"] = ["1.2"]
        self.data["errors"] = {"no room": "1.9"}
        self.one('the error "no room" names part 1.9, which the task does not have')
        self.data["errors"] = {"no room": "1.2"}
        self.assertEqual(self.problems(), [])

    def test_a_wrong_number(self):
        self.data["number"] = 2
        self.assertIn("number 2, want 1", self.problems()[0])

    def test_fields(self):
        del self.data["tests"][1]["hint"]
        self.unreadable('tasks/1_one/task.json, test 2 has no "hint"')
        self.data["tests"][1]["hint"] = ""
        self.unreadable('"hint" must be a text')
        self.data["tests"][1]["hint"] = "Why?"
        self.data["tests"][1]["together"] = "yes"
        self.unreadable("must be true or false")
        self.data["tests"][1]["together"] = True
        self.data["tests"][1]["pionts"] = 1
        self.unreadable('unknown field "pionts"')
        del self.data["tests"][1]["pionts"]
        for more in ("Why?", ["Why?", 7], [""], {"1": "Why?"}):
            self.data["tests"][1]["more"] = more
            self.unreadable('"more" must be a list of texts')
        del self.data["tests"][1]["more"]
        for parts in ([], {"1.1": "Why?"}, {"1.1": [None]}):
            self.data["parts"] = parts
            self.unreadable('"parts" must be an object of lists of texts')
        del self.data["parts"]
        self.data["points"] = True
        self.unreadable('"points" must be a number')

    def test_lists_that_lack_a_task(self):
        self.write("tasks/1_one/task.json", json.dumps(self.data))
        tasks = manifest.load(self.folder)
        for rows, wrong in (("X(one, f)", 0), ("X(one, g)", 0), ("X(one, h)", 1), ("", 1),
                            ("X(one, f) X(two, f)", 1), ("X(two, f)", 2)):
            self.write("include/report.h", "#define TASK_FILES(X) %s\n" % rows)
            found = list(check_tasks.check_files(tasks, self.folder))
            self.assertEqual(len(found), wrong, found)
        self.assertIn("must have X(one, function), where reference/one.c defines", found[0])
        self.assertIn("has two, which is not a task", found[1])

    def test_headers_that_are_not_listed(self):
        self.write("tasks/1_one/task.json", json.dumps(self.data))
        self.write("reference/one.c", '#include "one.h"\n#include <stdio.h>\n')
        self.write("include/one.h", '#include "deep.h"\n#include "one.h"\n')
        tasks = manifest.load(self.folder)
        for listed, words in ((("one.h", "deep.h"), []), (("one.h",), ["HEADERS lacks deep.h"]),
                              (("deep.h",), ["HEADERS lacks one.h, which reference/one.c"]),
                              (("one.h", "deep.h", "a.h"), ["HEADERS has a.h, which no"])):
            found = list(check_tasks.check_headers(tasks, self.folder, listed))
            self.assertEqual(len(found), len(words), found)
            for text, word in zip(found, words):
                self.assertIn(word, text)

    def test_hidden_tests_that_no_file_has(self):
        self.write("tasks/1_one/hidden.c", "TEST(in_one)\n{\n}\nRANK_TEST(on_ranks, 2)\n")
        course = {"tasks": [{"name": "one", "folder": "tasks/1_one"},
                            {"name": "two", "folder": "tasks/2_two"}], "hidden": {}}
        for suite, name, wrong in (("one", "in_one", 0), ("one", "on_ranks", 0), ("one", "in_o", 1),
                                   ("two", "in_one", 1), ("together", "in_one", 1)):
            course["hidden"]["tests"] = [{"suite": suite, "name": name}]
            found = list(check_tasks.check_hidden(course, self.folder))
            self.assertEqual(len(found), wrong, (suite, name, found))

    def test_names_against_suites(self):
        self.write("tasks/1_one/task.json", json.dumps(self.data))
        tasks = manifest.load(self.folder)
        self.write("suites/one", speak(["a"], "rest()\n"), 0o755)
        self.write("suites/together", speak(["b"], "rest()\n"), 0o755)
        self.assertEqual(check_tasks.check_suites(tasks, self.path("suites")), [])
        self.write("suites/one", speak(["a", "c"], "rest()\n"), 0o755)
        self.assertEqual(check_tasks.check_suites(tasks, self.path("suites")),
                         ["one: test c is in the suite and not in the manifest"])
        self.write("suites/one", speak(["c"], "rest()\n"), 0o755)
        self.assertEqual(len(check_tasks.check_suites(tasks, self.path("suites"))), 2)
        os.unlink(self.path("suites/together"))
        self.assertIn("not built", check_tasks.check_suites(tasks, self.path("suites"))[-1])


if __name__ == "__main__":
    unittest.main()
