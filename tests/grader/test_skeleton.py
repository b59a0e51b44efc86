"""The skeleton generator: regions, what is malformed, drift, and a student's work that must not be
lost."""

import os
import re
import subprocess
import sys
import unittest

from helpers import GRADER, ROOT, TempFolder
import skeleton

HEAD = "/* Task 3: something.\n *\n * More.\n */\n#include \"fsdp.h\"\n"


def make(body, number=3):
    return skeleton.generate(HEAD + body, "reference/x.c", number)


class Regions(unittest.TestCase):
    def test_a_region_becomes_todo_hint_and_not_yet(self):
        text = make("int f(void)\n{\n    //[3.1] Return the\n    //  answer.\n    //? What is it?\n"
                    "    int n = 42;\n    return n;\n    //[end 3.1]\n}\n")
        self.assertEqual(text.split("fsdp.h\"\n")[1],
                         "int f(void)\n{\n    // TODO 3.1: Return the\n    // answer.\n"
                         "    // Hint: What is it?\n    NOT_YET(\"3.1\");\n}\n")

    def test_the_head_says_which_task_it_is(self):
        lines = make("//[3.1] T\nx;\n//[end 3.1]\n").split("\n")
        self.assertEqual(lines[3], " */")
        self.assertIn("Task 3 of 6", lines[4])
        self.assertIn("handouts/3_forward.md", lines[5])
        self.assertIn("`make grade TASK=3`", lines[5])
        self.assertEqual(lines[6], "#include \"fsdp.h\"")

    def test_skeleton_lines_stand_before_not_yet(self):
        text = make("    //[3.1] T\n    //[skeleton] int n = 0;\n    //[skeleton]\n    int n = 7;\n"
                    "    //[end 3.1]\n")
        self.assertTrue(text.endswith("    // TODO 3.1: T\n    int n = 0;\n\n"
                                      "    NOT_YET(\"3.1\");\n"))
        self.assertNotIn("= 7", text)

    def test_indentation_beyond_two_spaces_is_kept(self):
        self.assertIn("// TODO 3.1: T\n//   a = b\n// c\n",
                      make("//[3.1] T\n//    a = b\n//  c\nx;\n//[end 3.1]\n"))

    def test_long_lines_hand_words_on_and_lose_none(self):
        words = ["word%d" % i for i in range(60)]
        source = "    //[3.1] " + " ".join(words[:13]) + "\n    //  " + " ".join(words[13:26]) + \
                 "\n    //  " + " ".join(words[26:]) + "\n    x;\n    //[end 3.1]\n"
        text = make(source)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertEqual(re.findall(r"word\d+", text), words)

    def test_comments_inside_a_solution_go_with_it(self):
        text = make("//[3.1] T\nx;\n//  not text\n// nor this\n//[end 3.1]\n")
        self.assertNotIn("not text", text)
        self.assertNotIn("nor this", text)

    def test_code_outside_regions_is_untouched(self):
        code = "int before;\n\n\tint  odd ;\n"
        self.assertIn(code, make(code + "//[3.1] T\nx;\n//[end 3.1]\n"))


class Malformed(unittest.TestCase):
    def wrong(self, body, line, words):
        with self.assertRaises(skeleton.Malformed) as caught:
            make(body)
        self.assertTrue(str(caught.exception).startswith("reference/x.c:%d: " % line),
                        str(caught.exception))
        self.assertIn(words, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_each_kind(self):
        good = "//[3.1] T\nx;\n//[end 3.1]\n"
        cases = [
            ("//[3.1] T\nx;\n", 6, "no end"),
            ("//[3.1] T\n//[3.2] U\nx;\n//[end 3.2]\n", 7, "inside"),
            ("x;\n//[end 3.1]\n", 7, "no region is open"),
            ("//[3.1] T\nx;\n//[end 3.2]\n", 8, "region 3.1 is open"),
            ("//[3.1] T\n//? H\n//[end 3.1]\n", 6, "no solution"),
            ("//[2.1] T\nx;\n//[end 2.1]\n", 6, "3.1 is due"),
            (good + good, 9, "3.2 is due"),
            ("//? why\n" + good, 6, "hint"),
            ("//[3.1] T\nx;\n//? why\n//[end 3.1]\n", 8, "hint"),
            ("//[skeleton] x\n" + good, 6, "outside"),
            ("//[given] x\n" + good, 6, "not understood"),
            ("//[3.1]\nx;\n//[end 3.1]\n", 6, "not understood"),
            ("int x;\n", 1, "no region"),
        ]
        for body, line, words in cases:
            with self.subTest(body=body):
                self.wrong(body, line, words)

    def test_a_file_that_does_not_open_with_a_comment(self):
        with self.assertRaises(skeleton.Malformed):
            skeleton.generate("#include <x.h>\n//[3.1] T\nx;\n//[end 3.1]\n", "r.c", 3)


class Program(TempFolder):
    """skeleton.py as `make skeleton` and `make check-skeleton` call it."""

    def setUp(self):
        super().setUp()
        for number, name in skeleton.TASKS:
            self.reference(number, name, "return %d;" % number)

    def reference(self, number, name, solution, more=""):
        self.write("reference/%s.c" % name, "/* Task. */\n//[%d.1] Do it.\n%s\n//[end %d.1]\n%s"
                   % (number, solution, number, more))

    def call(self, action):
        return subprocess.run([sys.executable, "-B", os.path.join(GRADER, "skeleton.py"), action,
                               "--reference", "reference", "--skeleton", "skeleton"],
                              cwd=self.folder, capture_output=True, text=True, timeout=20,
                              check=False)

    def test_write_then_check(self):
        self.assertEqual(self.call("check").returncode, 1)
        self.assertEqual(self.call("write").returncode, 0)
        done = self.call("check")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(sorted(os.listdir(self.path("skeleton"))),
                         sorted(name + ".c" for _, name in skeleton.TASKS))

    def test_drift_is_one_line_a_file(self):
        self.call("write")
        self.reference(3, "forward", "return 9;", "int new;\n")
        done = self.call("check")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "skeleton/forward.c is not what reference/forward.c gives: "
                                      "run make skeleton\n")

    def test_another_solution_is_no_drift(self):
        self.call("write")
        self.reference(3, "forward", "return 9;")
        self.assertEqual(self.call("check").returncode, 0)

    def test_a_malformed_region_writes_nothing(self):
        self.write("reference/api.c", "/* T */\n//[6.1] T\nx;\n")
        done = self.call("write")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "reference/api.c:2: region 6.1 has no end\n")
        self.assertFalse(os.path.exists(self.path("skeleton")))

    def test_a_students_work_is_kept(self):
        self.call("write")
        work = self.read("skeleton/forward.c").replace('NOT_YET("3.1");', "return 42;")
        self.write("skeleton/forward.c", work)
        done = self.call("write")
        self.assertIn("kept as skeleton/forward.c.old", done.stdout)
        self.assertEqual(self.read("skeleton/forward.c.old"), work)
        self.assertIn("NOT_YET", self.read("skeleton/forward.c"))


class Kit(unittest.TestCase):
    def test_the_kits_skeleton_is_what_its_reference_gives(self):
        done = subprocess.run([sys.executable, "-B", os.path.join(GRADER, "skeleton.py"), "check"],
                              cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
