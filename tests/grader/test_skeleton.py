"""The skeleton generator: regions, what is malformed, drift, and a student's work that must not be
lost."""

import os
import re
import subprocess
import unittest

from helpers import ROOT, TempFolder, outside_make, program, run
import gaps
import manifest
import skeleton

HEAD = "/* Task 3: something.\n *\n * More.\n */\n#include \"fsdp.h\"\n"


TASKS = manifest.load(ROOT)


def make(body, gaps=1):
    return skeleton.generate(HEAD + body, "reference/x.c", TASKS[2], gaps)


class Regions(unittest.TestCase):
    def test_a_region_becomes_todo_hint_and_not_yet(self):
        text = make("int f(void)\n{\n    //[3.1] Return the\n    //  answer.\n    //? What is it?\n"
                    "    int n = 42;\n    return n;\n    //[end 3.1]\n}\n")
        self.assertEqual(text.split("fsdp.h\"\n")[1],
                         "int f(void)\n{\n    // TODO 3.1: Return the\n    // answer.\n"
                         "    // Hint: What is it?\n    NOT_YET(\"3.1\");\n}\n")

    def test_a_hint_goes_on_in_the_next_line(self):
        for mark in ("?", " "):
            text = make("//[3.1] T\n//? Who waits\n//%s for whom?\n//? Why?\nx;\n"
                        "//[end 3.1]\n" % mark)
            self.assertIn("// Hint: Who waits for whom?\n// Hint: Why?\nNOT_YET", text)

    def test_the_head_says_which_task_it_is(self):
        lines = make("//[3.1] T\nx;\n//[end 3.1]\n").split("\n")
        self.assertEqual(lines[3], " */")
        self.assertIn("Task 3 of %d." % len(TASKS), lines[4])
        self.assertIn("handouts/3_forward.md", lines[6])
        self.assertIn("`make grade TASK=3`", lines[6])
        self.assertEqual(lines[7], "#include \"fsdp.h\"")

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


class SecondLevel(unittest.TestCase):
    BODY = ("f()\n{\n    //[[3.1a] Helps.\n    //? How?\n    // why\n    help();\n"
            "    //[end 3.1a]\n}\n//[3.1] T\nx;\n//[end 3.1]\n")

    def test_it_is_given_with_gaps_1(self):
        self.assertEqual(make(self.BODY).split("fsdp.h\"\n")[1],
                         "f()\n{\n    // why\n    help();\n}\n// TODO 3.1: T\nNOT_YET(\"3.1\");\n")

    def test_it_is_left_to_be_written_with_gaps_2(self):
        self.assertEqual(make(self.BODY, gaps=2).split("fsdp.h\"\n")[1],
                         "f()\n{\n    // TODO 3.1a: Helps.\n    // Hint: How?\n"
                         "    NOT_YET(\"3.1a\");\n}\n// TODO 3.1: T\nNOT_YET(\"3.1\");\n")

    def test_parts_in_the_order_of_the_file(self):
        self.assertEqual(gaps.parts(self.BODY), ["3.1a", "3.1"])
        self.assertEqual(gaps.parts(self.BODY, 1), ["3.1"])


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
            ("//[2.1] T\nx;\n//[end 2.1]\n", 6, "where 3.1 must come"),
            (good + good, 9, "where 3.2 must come"),
            ("//? why\n" + good, 6, "hint"),
            ("//[3.1] T\nx;\n//? why\n//[end 3.1]\n", 8, "hint"),
            ("//[skeleton] x\n" + good, 6, "outside"),
            ("//[given] x\n" + good, 6, "malformed mark"),
            ("//[3.1]\nx;\n//[end 3.1]\n", 6, "malformed mark"),
            ("int x;\n", 1, "no region"),
            ("//[3.1a] T\nx;\n//[end 3.1a]\n", 6, "malformed mark"),
            ("//[[3.1] T\nx;\n//[end 3.1]\n", 6, "malformed mark"),
            ("//[[3.1a] T\nx;\n//[end 3.1]\n", 8, "region 3.1a is open"),
            ("//[[3.1a] T\n" + good, 7, "inside"),
            (good + "//[[3.1b] T\nx;\n//[end 3.1b]\n", 9, "where 3.1a must come"),
            (good + "//[[3.2a] T\nx;\n//[end 3.2a]\n", 9, "part 3.2, which this file does not"),
            ("//[[3.1a] T\nx;\n//[end 3.1a]\n", 1, "no region"),
        ]
        for body, line, words in cases:
            with self.subTest(body=body):
                self.wrong(body, line, words)

    def test_a_file_that_does_not_open_with_a_comment(self):
        with self.assertRaises(skeleton.Malformed):
            skeleton.generate("#include <x.h>\n//[3.1] T\nx;\n//[end 3.1]\n", "r.c", TASKS[2])


class Program(TempFolder):
    """skeleton.py as `make skeleton` and `make check-skeleton` call it."""

    def setUp(self):
        super().setUp()
        for task in TASKS:
            self.reference(task.number, task.name, "return %d;" % task.number)
            self.write(task.path, manifest.text_of(ROOT, task.path))

    def reference(self, number, name, solution, more=""):
        self.write("reference/%s.c" % name, "/* Task. */\n//[%d.1] Do it.\n%s\n//[end %d.1]\n%s"
                   % (number, solution, number, more))

    def call(self, action, *more, folder="skeleton", status=0):
        return run(program("course/skeleton.py", action, "--root", ".", "--skeleton", folder,
                           *more), self.folder, status=status)

    def test_write_then_check(self):
        self.call("check", status=1)
        self.call("write")
        self.assertEqual(self.call("check").stdout, "")
        self.assertEqual(sorted(os.listdir(self.path("skeleton"))),
                         sorted(task.file for task in TASKS))

    def test_drift_is_one_line_a_file(self):
        self.call("write")
        self.reference(3, "forward", "return 9;", "int new;\n")
        done = self.call("check", status=1)
        self.assertEqual(done.stdout, "skeleton/forward.c is not what reference/forward.c gives: "
                                      "run make skeleton\n")

    def test_gaps_2_goes_to_another_folder(self):
        self.reference(3, "forward", "return 9;", "//[[3.1a] Help.\nhelp();\n//[end 3.1a]\n")
        self.call("write", "--gaps", "2", folder="more")
        self.assertIn('NOT_YET("3.1a");', self.read("more/forward.c"))
        self.assertEqual(gaps.first_gap(self.path("more/forward.c"))[0], "3.1")
        self.write("more/forward.c", self.read("more/forward.c").replace('NOT_YET("3.1");', "f();"))
        self.assertEqual(gaps.first_gap(self.path("more/forward.c"))[0], "3.1a")
        self.call("check", "--gaps", "2", folder="more", status=1)
        self.call("write")
        self.assertNotIn("3.1a", self.read("skeleton/forward.c"))

    def test_gaps_that_make_no_sense(self):
        kit = self.path("skeleton")
        for chosen, folder, words in (("3", "more", "must be 1 or 2, not 3"), ("", "more", "not "),
                                      ("2", kit, "name another folder, OUT=DIR"),
                                      ("2", "", "name another folder, OUT=DIR")):
            done = self.call("write", "--gaps", chosen, folder=folder, status=2)
            self.assertEqual(done.stdout, "")
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse(os.path.exists(self.path("more")))

    def test_another_solution_is_no_drift(self):
        self.call("write")
        self.reference(3, "forward", "return 9;")
        self.call("check")

    def test_a_malformed_region_writes_nothing(self):
        self.write("reference/api.c", "/* T */\n//[6.1] T\nx;\n")
        done = self.call("write", status=1)
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
        done = run(program("course/skeleton.py", "check"), merged=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


# What a TODO may not name: the calls are for the student to find.
CALLS = re.compile(r"\b(?:cuda|nccl|cublas)[A-Z]\w*|\bkernel_\w+|\bmem(?:set|cpy)\b")
SAME_WORDS = 9 # a run of so many words in two texts is one text in two places


def reference(name):
    return skeleton.read(os.path.join(ROOT, "reference", name + ".c"))


def code(text):
    """The lines of a C source without // comments and blank lines: what is compiled."""
    lines = (re.sub(r"\s*//.*", "", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line]


def regions(name, gaps=2):
    return regions_of(reference(name), gaps)


def regions_of(source, gaps=2):
    """Of a reference's regions, by part: (text, questions, solution's lines)."""
    found, part, head = {}, None, False
    for line in source.splitlines():
        begin = skeleton.begins(line, gaps)
        if begin:
            part, head = begin.group(2), True
            found[part] = ([begin.group(3)], [], [])
        elif skeleton.END.match(line):
            part = None
        elif part and head and skeleton.HINT.match(line):
            found[part][1].append(skeleton.HINT.match(line).group(1))
        elif part and head and skeleton.MORE_TEXT.match(line):
            found[part][0].append(skeleton.MORE_TEXT.match(line).group(1).strip())
        elif part:
            head = False
            found[part][2].append(line)
    return {part: (" ".join(text), asked, lines) for part, (text, asked, lines) in found.items()}


def runs(text):
    """Every run of SAME_WORDS words."""
    words = re.findall(r"[\w']+", text.lower())
    return {" ".join(words[i:i + SAME_WORDS]) for i in range(len(words) - SAME_WORDS + 1)}


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "there is no reference")
class Texts(unittest.TestCase):
    """What a TODO says: the state to reach and a question, and nothing twice."""

    def test_every_todo_asks_and_names_no_call(self):
        for task in TASKS:
            for part, (text, asked, _) in regions(task.name).items():
                with self.subTest(part=part):
                    self.assertEqual(CALLS.findall(text), [], text)
                    if not part[-1].isalpha():
                        self.assertTrue(asked, "part %s asks nothing" % part)
                    for question in asked:
                        self.assertIn("?", question)

    def test_each_text_is_in_one_place(self):
        """The reference's TODOs, the handout, and the hints of `make hint`."""
        for task in TASKS:
            seen = {}
            places = [("TODO %s" % part, " ".join([text] + asked))
                      for part, (text, asked, _) in regions(task.name).items()]
            places += [("hint of %s" % part, text) for part, hints in task.parts.items()
                       for text in hints]
            places.append((task.handout, manifest.text_of(ROOT, task.handout)))
            for place, text in places:
                for words in runs(text):
                    self.assertEqual(seen.setdefault(words, place), place, words)

    def test_the_recipe_is_the_last_hint(self):
        """A function that a solution calls and the TODO does not name is in the last hint."""
        for task in TASKS:
            for part, (text, _, lines) in regions(task.name).items():
                calls = set(re.findall(r"\b((?:cuda|nccl)[A-Z]\w+|kernel_\w+)\(", "\n".join(lines)))
                for call in calls:
                    self.assertIn(call, task.parts[part][-1], part)

    def test_no_file_is_longer_than_280_lines(self):
        for task in TASKS:
            self.assertLessEqual(len(reference(task.name).splitlines()), 280, task.name)


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "there is no reference")
class KitGaps2(TempFolder):
    """What `make skeleton GAPS=2` leaves to be written in the kit."""

    def test_it_compiles_as_task_files_do_with_no_warning(self):
        for task in TASKS:
            self.write(task.file, skeleton.generate(reference(task.name), task.name, task, 2))
        objects = ["%s/impl/%s/%s.o" % (self.path("build"), self.key(), task.name)
                   for task in TASKS]
        done = run(["make", "-s", "--no-print-directory", "WERROR=1", "BUILD=" + self.path("build"),
                    "IMPL=" + self.folder, *objects], timeout=240,
                   environment=outside_make("IMPL", "BUILD"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def key(self):
        """What the Makefile calls the folder in its build tree."""
        total = subprocess.run(["cksum"], input=self.folder.encode(), capture_output=True,
                               timeout=20, check=True).stdout.split()[0].decode()
        return "%s-%s" % (os.path.basename(self.folder), total)

    def test_the_solutions_put_back_give_the_reference(self):
        for task in TASKS:
            name, solved = task.name, regions(task.name)
            lines = []
            for line in skeleton.generate(reference(name), name, task, 2).splitlines():
                gap = gaps.GAP.match(line)
                lines += solved.pop(gap.group(1))[2] if gap else [line]
            self.assertEqual(solved, {}, "parts that the skeleton of %s does not have" % name)
            self.assertEqual(code("\n".join(lines)), code(reference(name)))

    def test_each_letter_has_hints_and_is_a_gap_with_gaps_2_alone(self):
        letters = 0
        for task in TASKS:
            text = reference(task.name)
            more = set(gaps.parts(text)) - set(gaps.parts(text, 1))
            letters += len(more)
            for part in more:
                self.assertGreaterEqual(len(task.parts.get(part, [])), manifest.PART_LEVELS, part)
                for level in skeleton.GAPS:
                    self.assertEqual(
                        'NOT_YET("%s")' % part
                        in skeleton.generate(text, task.file, task, level), level == 2)
        self.assertGreater(letters, 20)


if __name__ == "__main__":
    unittest.main()
