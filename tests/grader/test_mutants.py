"""mutants.py on a kit in miniature: what it says of mutants that are caught, that survive,
that are caught for another reason, that do not apply or do not compile; of solutions that are
different; and that it leaves nothing behind."""

import glob
import json
import os
import re
import shutil
import signal
import sys
import types
import unittest

from helpers import GRADER, ROOT, TempFolder, processes_with, read, wait_for

import manifest
import mutant_files
import mutants

# What mutants.py asks of the Makefile: variables, and rules for these objects.
MAKEFILE = '''BUILD := build
CC := cc
BASE := -g
LINK := $(CC)
HARNESS_LIB := $(BUILD)/lib/libharness.a
LIBS := $(BUILD)/lib/libkit.a
LDLIBS := -lm
FAILING := -lm
$(BUILD)/lib/%.a:
	@mkdir -p $(@D) && ar rcs $@
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D) && $(CC) -c $< -o $@
$(BUILD)/impl/reference/%.o: reference/%.c
	@mkdir -p $(@D) && $(CC) -c $< -o $@
'''

# A suite of one test, "TEST", that fails with "CALL() is N" where it is not WANT.
SUITE = '''
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int CALL(void);
int main(void)
{
    int fd = atoi(getenv("SHARDLAB_RESULTS_FD")), got = CALL();
    const char *nonce = getenv("SHARDLAB_NONCE");
    dprintf(fd, "{\\"nonce\\": \\"%s\\", \\"test\\": \\"TEST\\", \\"status\\": \\"%s\\", "
                "\\"message\\": \\"CALL is\\\\n  %d\\"}\\n",
            nonce, got == WANT ? "passed" : "failed", got);
    dprintf(fd, "{\\"nonce\\": \\"%s\\", \\"end\\": 1}\\n", nonce);
    return 0;
}
'''

REFERENCE = '''// Task one.
#include <math.h>

static int half(void)
{
    return 3;
}

int one(void)
{
    int n = 0;
    for (int i = 0; i < 2; i++) n += half();
    return n;
}
'''


FOLDERS = {1: "1_one", 2: "2_two"}


class Miniature(TempFolder):
    """A kit of a task `one` (60 points) and a task `two` (40, of which 10 need both)."""

    def setUp(self):
        super().setUp()
        shutil.copytree(GRADER, self.path("grader"), ignore=shutil.ignore_patterns("__pycache__"))
        self.write("Makefile", MAKEFILE)
        self.write("reference/one.c", REFERENCE)
        self.write("reference/two.c", "int one(void);\nint two(void)\n{\n    return 2;\n}\n"
                   "int both(void)\n{\n    return one() * two();\n}\n")
        self.task(1, "one", [("is_six", 60, False)])
        self.task(2, "two", [("is_two", 30, False), ("is_twelve", 10, True)])
        self.suite("one", "one", "is_six", 6)
        self.suite("two", "two", "is_two", 2)
        self.suite("together", "both", "is_twelve", 12)
        self.scratch = self.path("scratch")
        os.mkdir(self.scratch)

    def task(self, number, name, tests, **more):
        self.write("tasks/%d_%s/task.json" % (number, name), json.dumps(dict({
            "number": number, "name": name, "title": name, "files": [name + ".c"], "points":
            sum(points for _, points, _ in tests), "handout": "handouts/%s.md" % name,
            "tests": [{"name": test, "points": points, "title": "%s holds." % test,
                       "hint": "Why %s?" % test, "together": together,
                       **({"parts": ["1.1"]} if more else {})}
                      for test, points, together in tests]}, **more)))

    def suite(self, name, call, test, want):
        path = {"one": "1_one/tests.c", "two": "2_two/tests.c", "together": "2_two/together.c"}
        self.write("tasks/" + path[name], SUITE.replace("CALL", call).replace("TEST", test)
                   .replace("WANT", str(want)))

    def mutant(self, name="wrong_half", old="return 3;", new="return 4;", test="is_six",
               reason="one is 8", **more):
        return dict({"name": name, "wrong": "The half is wrong.", "edits": [[old, new]],
                     "caught_by": {test: reason}}, **more)

    def mutants(self, *entries, task=1):
        self.write("tasks/%s/mutants.json" % FOLDERS[task], json.dumps({"mutants": list(entries)}))

    def start(self, *arguments):
        return self.popen([sys.executable, self.path("grader", "devtools", "mutants.py"),
                           *arguments], TMPDIR=self.scratch)

    def run_it(self, *arguments, status=0):
        """What it prints; nothing may be left behind, however it ends."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, out + err)
        self.assertEqual(os.listdir(self.scratch), [])
        return out + err


class Messages(Miniature):
    """What the messages point at: the test is meant for part 1.1, one(); half() is part 1.2."""

    def setUp(self):
        super().setUp()
        self.task(1, "one", [("is_six", 60, False)],
                  parts={"1.1": ["One?", "one"], "1.2": ["Half?", "half"]},
                  functions={"1.1": ["one"], "1.2": ["half"]})

    def test_a_wrong_cause(self):
        self.mutants(self.mutant())
        out = self.run_it(status=1)
        self.assertIn("a wrong cause: is_six points at part 1.1, and the mistake is in half", out)

    def test_a_part_that_is_right_too(self):
        self.mutants(self.mutant(also={"1.1": "one() makes it of half()"}))
        self.run_it()

    def test_the_part_of_the_edit(self):
        self.mutants(self.mutant(old="i < 2", new="i < 3", reason="one is 9"))
        out = self.run_it("--messages")
        self.assertRegex(out, r"\n1 +wrong_half +one +names it +- \(is_six\)")
        self.assertIn("of 1 mutants, Look: has the right function: 0, 0.0 %", out)
        self.assertIn("of 1 mutants, the first screen or Look: is wrong: 0, 0.0 %", out)

    def test_the_hint_counts_as_what_it_says(self):
        self.mutants(self.mutant(old="i < 2", new="i < 3", reason=r"Why is_six\?$"))
        self.run_it()

    def test_words_that_would_mislead(self):
        for never, status in (("Why", 1), ("one is", 1), ("two is", 0)):
            self.mutants(self.mutant(old="i < 2", new="i < 3", reason="one is", never=never))
            out = self.run_it(status=status)
            self.assertEqual("is_six says \"%s\"" % never in out, status == 1, out)
        self.mutants(self.mutant(never="("))
        self.assertIn("\"never\": ", self.run_it(status=2))

    def test_the_share_and_who_is_wrong(self):
        self.mutants(self.mutant())
        out = self.run_it("--messages", status=1)
        self.assertRegex(out, r"\n1 +wrong_half +half +wrong +- \(is_six\)")
        self.assertIn("of 1 mutants, the first screen or Look: is wrong: 1, 100.0 %", out)

    def test_those_made_by_machine(self):
        """Each has one function; one that lives is mutation.py's business, and no row."""
        out = self.run_it("--machine", "--messages", "--sample", "3")
        rows = re.findall(r"(?m)^1 +one\.c:(\w+):\S+ +(\w+) +(?:wrong|names it|no) ", out)
        self.assertTrue(rows, out)
        for function, at in rows:
            self.assertEqual(function, at)

    def test_reasons_that_are_none(self):
        for also, words in ((["1.1"], "must give a reason"), ({"1.1": " "}, "must give a reason"),
                            ({"1.7": "why"}, "task 1 has no part 1.7")):
            self.mutants(self.mutant(also=also))
            out = self.run_it(status=2)
            self.assertIn(words, out)


class Mutants(Miniature):

    def test_caught(self):
        self.mutants(self.mutant())
        out = self.run_it()
        # Its own test and the one of both files together: 60 and 10 points.
        self.assertRegex(out, r"yes +1 +wrong_half +-70 .* is_six and 1 more")
        self.assertIn("1 mutants, 1 caught for the stated reason", out)

    def test_survivor(self):
        self.mutants(self.mutant(old="i < 2", new="i <= 1"))
        out = self.run_it(status=1)
        self.assertRegex(out, r"no +1 +wrong_half +-0 .* nothing")
        self.assertIn("survives", out)

    def test_another_test_than_stated(self):
        self.mutants(self.mutant(name="good"),
                     self.mutant(name="twelve", old="return 3;", new="return 3 + 0;"), task=1)
        self.mutants(self.mutant(name="other", old="return 2;", new="return 1;", test="is_two",
                                 reason="two is 1", caught_by={"is_twelve": "both is 7"}), task=2)
        out = self.run_it(status=1)
        self.assertIn("wrong: twelve, other", out)
        self.assertIn("another reason: is_twelve says: both is 6", out)

    def test_wrong_reason(self):
        self.mutants(self.mutant(reason="one is 9"))
        out = self.run_it(status=1)
        self.assertIn("another reason: is_six says: one is 8", out)

    def test_does_not_apply(self):
        self.mutants(self.mutant(name="gone", old="return 5;"),
                     self.mutant(name="twice", old="return"))
        out = self.run_it(status=1)
        self.assertIn("does not apply: `return 5;` is not in the reference", out)
        self.assertIn("does not apply: `return` is in 2 places of the reference", out)

    def test_white_space_does_not_matter(self):
        self.mutants(self.mutant(old=["int half(void)", "  {", "return 3;"],
                                 new=["int half(void)", "{", "    return 4;"]))
        self.run_it()

    def test_does_not_compile(self):
        self.mutants(self.mutant(new="return four;"))
        out = self.run_it(status=1)
        self.assertRegex(out, r"does not compile: .*wrong_half/one.c:6:.*four")

    def test_a_warning_that_is_a_mistake_in_a_task_file(self):
        self.write("Makefile", self.read("Makefile").replace(
            "BASE := -g", "BASE := -g\nMISTAKES := -Werror=return-type"))
        self.mutants(self.mutant(new=";"))
        self.assertIn("does not compile", self.run_it(status=1))

    def test_cannot_be_linked(self):
        self.mutants(self.mutant(old="int one(void)", new="int oen(void)"))
        out = self.run_it(status=1)
        self.assertIn("cannot be linked", out)

    def test_stopped(self):
        name = "hangs_%d" % os.getpid()
        self.mutants(self.mutant(name=name, new="for (;;) ;"))
        process = self.start()
        wait_for(lambda: processes_with(name + "/suite-one"), process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3, out + err)
        self.assertIn("stopped by SIGTERM", err)
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertEqual(processes_with(self.scratch), [])

    def test_only_and_task(self):
        self.mutants(self.mutant(name="a"), self.mutant(name="b"))
        self.mutants(self.mutant(name="c", old="return 2;", new="return 1;", test="is_two",
                                 reason="two is 1"), task=2)
        self.assertIn("2 mutants, 2 caught", self.run_it("--only", "a", "--only", "c"))
        self.assertIn("1 mutants, 1 caught", self.run_it("--task", "two"))
        for arguments in (["--only", "d"], ["--task", "3"], ["--only", "a", "--task", "2"]):
            out = self.run_it(*arguments, status=2)
            self.assertIn("there is no", out)

    def test_a_sample_is_the_words_and_goes_by_it(self):
        self.mutants(*[self.mutant(name=name) for name in "abc"])
        self.assertIn("2 mutants, 2 caught", self.run_it("--sample", "2:x"))
        self.assertIn("3 mutants, 3 caught", self.run_it("--sample", "99"))
        many = [types.SimpleNamespace(name="mutant %d" % i) for i in range(50)]
        drawn = [mutants.sample(many, "20:" + word) for word in ("x", "x", "y")]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        for some in drawn: # in their order, each once
            self.assertEqual([m for m in many if m in some], some)
            self.assertEqual(len(some), 20)
        for wrong in ("0", "x", ":x", "-1"):
            out = self.run_it("--sample=" + wrong, status=2)
            self.assertIn("must be a number of solutions", out)

    def test_stopped_while_it_compiles(self):
        self.mutants(self.mutant(new="return 4; /*%s*/" % ("x" * 100000)))
        process = self.start()
        wait_for(lambda: processes_with(self.scratch), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(os.listdir(self.scratch), [])

    def test_two_at_once(self):
        self.mutants(*[self.mutant(name="m%d" % i) for i in range(6)])
        both = [self.start(), self.start()]
        for process in both:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual(os.listdir(self.scratch), [])

    def test_the_reference_stays_as_it_is(self):
        self.mutants(self.mutant())
        before = sorted(os.listdir(self.path("reference")))
        self.run_it()
        self.assertEqual(self.read("reference/one.c"), REFERENCE)
        self.assertEqual(sorted(os.listdir(self.path("reference"))), before)

    def test_kit_that_does_not_build(self):
        self.write("reference/two.c", "int two(void) { return }\n")
        self.mutants(self.mutant())
        out = self.run_it(status=3)
        self.assertIn("the kit itself does not build", out)

    def test_files_that_make_no_sense(self):
        for change, said in (({"caught_by": {"is_seven": "x"}}, "task 1 has no test is_seven"),
                             ({"caught_by": {}}, "must name the tests"),
                             ({"caught_by": {"is_six": "("}}, "the reason of is_six"),
                             ({"edits": [["", "x"]]}, "must name what it replaces"),
                             ({"edits": []}, "list of pairs"),
                             ({"wrong": " "}, "in a sentence"),
                             ({"hint": "x"}, "unknown field")):
            self.mutants(dict(self.mutant(), **change))
            out = self.run_it(status=2)
            self.assertIn(said, out)
        self.mutants(self.mutant(), self.mutant())
        self.assertIn("a second mutant is named wrong_half", self.run_it(status=2))
        self.write("tasks/1_one/mutants.json", "{")
        self.run_it(status=2)


ALTERNATIVE = '''/* sums.c: Adds twice in place of
 * a loop.
 */
// ==== one.c
static int helper(int n)
{
    return n + n;
}

int one(void)
{
    return helper(half());
}
'''


class Alternatives(Miniature):

    def test_full_marks(self):
        self.write("tasks/1_one/alternatives/sums.c", ALTERNATIVE)
        out = self.run_it("--alternatives")
        self.assertRegex(out, r"yes +sums +100/100")

    def test_points_lost(self):
        self.write("tasks/1_one/alternatives/sums.c", ALTERNATIVE.replace("n + n", "n"))
        out = self.run_it("--alternatives", status=1)
        self.assertRegex(out, r"no +sums +30/100")
        self.assertIn("Adds twice in place of a loop.", out)
        self.assertIn("is_six says: one is 3", out)

    def test_functions_of_two_files(self):
        self.write("tasks/1_one/alternatives/sums.c", ALTERNATIVE +
                   "\n// ==== two.c\nint two(void)\n{\n    return 1 + 1;\n}\n")
        self.run_it("--alternatives")
        self.run_it("--alternatives", "--task", "2", "--only", "sums")

    def test_takes_the_place_of_nothing(self):
        self.write("tasks/1_one/alternatives/sums.c", ALTERNATIVE.replace("int one(", "int won("))
        out = self.run_it("--alternatives", status=1)
        self.assertIn("does not apply: it has none of the reference's functions", out)

    def test_file_without_a_sentence(self):
        self.write("tasks/1_one/alternatives/sums.c", ALTERNATIVE.replace("sums.c:", ""))
        self.run_it("--alternatives", status=2)

    def test_what_a_file_turns_into(self):
        part = ALTERNATIVE.partition("// ==== one.c\n")[2]
        text = mutant_files.put_in(REFERENCE, part)
        self.assertEqual(text.count("int one(void)"), 1)
        self.assertLess(text.index("int half(void)"), text.index("int helper(int n)"))
        self.assertNotIn("n += half();", text)


LEAST_MUTANTS, LEAST_ALTERNATIVES = 8, 2


class TheKitsOwn(unittest.TestCase):
    """The mutants and alternatives of tasks and labs are enough, and fit the references."""

    def setUp(self):
        self.tasks = manifest.load_all(ROOT)

    def reference(self, task):
        return {piece.file: read(ROOT, piece.in_kit("reference")) for piece in task.pieces()}

    def test_mutants_apply_and_are_many(self):
        found = mutant_files.load_mutants(self.tasks)
        for task in self.tasks:
            own = [mutant for mutant in found if mutant.task is task]
            if len(own) < LEAST_MUTANTS:
                self.fail("%s/mutants.json has %d mutants, and must have %d or more: what else "
                          "could a student get wrong?" % (task.folder, len(own), LEAST_MUTANTS))
            for mutant in own:
                if mutant_files.edited(task, mutant.edits) == self.reference(task):
                    self.fail("%s/mutants.json: the edits of %s change nothing"
                              % (task.folder, mutant.name))

    def test_alternatives_apply_and_are_some(self):
        for kind in (manifest.TASK, manifest.LAB):
            tasks = [task for task in self.tasks if task.kind is kind]
            texts = {file: text for task in tasks for file, text in self.reference(task).items()}
            found = mutant_files.load_alternatives(tasks)
            for solution in found:
                for file, part in solution.parts.items():
                    if mutant_files.put_in(texts[file], part) == texts[file]:
                        self.fail("alternatives/%s.c is the reference's %s" % (solution.name, file))
            for task in tasks:
                path = os.path.join(ROOT, task.folder, "alternatives")
                number = len(glob.glob(os.path.join(path, "*.c")))
                least = LEAST_ALTERNATIVES if kind is manifest.LAB else 1
                if number < least:
                    self.fail("%s/alternatives has %d files, and must have %d or more: what is "
                              "right, and unlike the reference?" % (task.folder, number, least))


if __name__ == "__main__":
    unittest.main()
