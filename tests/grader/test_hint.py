"""make hint: one level after the other, what is remembered, what is said where no hint helps."""

import json
import os
import shutil
import signal
import sys
import unittest

from helpers import FakeKit, ROOT, processes_with, wait_for
import essence
import hint
import manifest
import release

GAPPED = '''int one(void)
{
    // TODO 1.1: Return one.
    NOT_YET("1.1");
}
'''


class Hints(FakeKit):
    """The miniature kit, with hints: "Why a?", "Look at a.", "Call a." and so on."""

    def setUp(self):
        super().setUp()
        for path, parts in (("tasks/1_one/task.json", {"1.1": ["Which?", "That."]}),
                            ("tasks/2_two/task.json", {})):
            data = json.loads(self.read(path))
            for test in data["tests"]:
                test["more"] = ["Look at %s." % test["name"], "Call %s." % test["name"]]
                test["section"] = "The plan"
            self.write(path, json.dumps(dict(data, parts=parts)))
        self.write("handouts/1_one.md", "# One\n\n## Parts\n\n**1.1** Begin.\n\n## The plan\n")

    def start_hint(self, *arguments, impl="mine"):
        # A limit of its own, so that the reference need not be measured.
        return self.popen([sys.executable, self.path("grader", "hint.py"), "--impl", impl,
                           "--limit", "60", *arguments])

    def hint(self, *arguments, status=0, **more):
        """What it prints, and that it ends as it should; self.err has what is on stderr."""
        process = self.start_hint(*arguments, **more)
        out, self.err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, out + self.err)
        self.assertNotIn("Traceback", self.err)
        return out

    def given(self, *arguments, **more):
        """The lines of the hints alone."""
        return [line.strip() for line in self.hint(*arguments, **more).splitlines()
                if line.startswith("  Hint ")]

    def failing(self, name="b", message="x"):
        """Task one with a test that does not pass."""
        self.suite("one", "abc", "say(%r, 'failed', %r); rest(%r)" % (name, message, name))


class Levels(Hints):
    B = ["Hint 1 of 3: Why b?", "Hint 2 of 3: Look at b.", "Hint 3 of 3: Call b."]

    def test_one_more_each_time(self):
        self.failing()
        for level in (1, 2, 3, 3):
            self.assertEqual(self.given(), self.B[:level])

    def test_what_is_printed(self):
        self.failing("b", "rank 1: w[3] is 2, want 3")
        self.assertEqual(self.hint().splitlines(), [
            "Task 1  One",
            "  FAIL   b                                                      0/20",
            "         b holds.", "           rank 1: w[3] is 2, want 3", "",
            "  Hint 1 of 3: Why b?", "",
            '  Read:  handouts/1_one.md, section "The plan"',
            "  Next:  make hint IMPL=mine   for hint 2",
            "  Then:  make grade TASK=1 IMPL=mine"])
        self.assertEqual(self.err, "")
        self.assertIn("  Next:  make hint TASK=1 IMPL=mine   for hint 3\n",
                      self.hint("--task", "one"))
        out = self.hint()
        self.assertIn("That is the last hint.", out)
        self.assertNotIn("Next:", out)

    def test_a_changed_file_gives_no_new_level_at_once(self):
        self.failing()
        self.assertEqual(self.given(), self.B[:1])
        self.write("mine/one.c", "int one(void) { return 2; }\n")
        out = self.hint()
        self.assertIn("one.c has changed since your last hint", out)
        self.assertIn(self.B[0], out)
        self.assertNotIn(self.B[1], out)
        self.assertEqual(self.given(), self.B[:2])
        self.write("mine/two.c", "int two(void) { return 2; }\n") # not this task's file
        self.assertEqual(self.given(), self.B)
        self.write("mine/one.c", "int one(void) { return 3; }\n")
        self.assertNotIn("changed since", self.hint()) # there is no other one to be had

    def test_a_level_outright(self):
        self.failing()
        self.assertEqual(self.given("--level", "2"), self.B[:2])
        self.assertEqual(self.given("--level", "1"), self.B[:1])
        self.assertEqual(self.given(), self.B) # two had been seen
        self.assertEqual(self.given("--level", "900"), self.B)

    def test_each_test_has_levels_of_its_own(self):
        self.suite("one", "abc", "say('b', 'failed', 'x'); say('c', 'timeout', 'y'); rest('bc')")
        self.given()
        self.assertEqual(self.given("--test", "c"), ["Hint 1 of 3: Why c?"])
        self.assertIn("TIME   c", self.hint("--test", "c"))
        self.assertEqual(self.given(), self.B[:2])
        self.assertEqual(self.hint("--test", "a"), "a passes.\n")

    def test_each_folder_has_levels_of_its_own(self):
        self.failing()
        self.given()
        self.write("other/one.c", self.read("mine/one.c"))
        self.assertEqual(self.given("--task", "1", impl="other"), self.B[:1])
        self.assertEqual(self.given(), self.B[:2])

    def test_what_failed_by_a_draw_is_looked_at_again(self):
        self.failing("b", "w[3] is 2, want 3 (SEED=7)")
        lines = self.hint().splitlines()
        self.assertRegex(lines[-2], r"^  Next:  make hint IMPL=mine SEED=\d+   for hint 2$")
        self.assertRegex(lines[-1], r"^  Then:  make grade TASK=1 IMPL=mine SEED=\d+$")

    def test_a_long_message_is_cut_and_cannot_command_the_terminal(self):
        self.failing("b", "\x1b[2Jred\n" + "\n".join("line %d" % i for i in range(50)))
        out = self.hint()
        self.assertNotIn("\x1b", out)
        self.assertIn("line 6\n", out)
        self.assertNotIn("line 7\n", out)
        self.assertIn("(all of it: make grade TASK=1 IMPL=mine | cat)", out)


RACE = """rank 1 of 2: simgpu: rank 1, device 1: two operations on the same memory, and neither \
waits for the other [race between streams]
   kernel_add_out, called at 1_one/tests.c:192 (read_whole),
      192 | need_cuda(kernel_add_out(out, unit->flat.unsharded_param.data, \
unit->flat.unsharded_param.data, n, compute)
   on stream A, non-blocking, (made at support/harness.c:121 (rank_main)),
   reads bytes 0 to 415 of flat->unsharded_param.data, the 416 bytes allocated at \
mine/one.c:58 (fsdp_unshard).
   It does not wait for
   ncclAllGather, called at mine/one.c:59 (fsdp_unshard),
       59 | NCCL_TRY(ncclAllGather(flat->sharded_param.data, flat->unsharded_param.data, \
(size_t)flat->shard_nume
   which writes the same bytes.
   On a GPU they run in either order or at once: the read may see the old bytes, or half \
of the new.
   An event was recorded after that work (at mine/one.c:61 (fsdp_unshard)),
   and stream A did not wait for it.
   Is there a cudaStreamWaitEvent missing?
   Read: simgpu/pages/mistakes.md, "Race between streams" (tasks/1_one/tests.c:228)
(drawn: 3 layers. The same again: SEED=1)"""
RACE_REPORT = {"class": "race-between-streams", "title": "two operations", "follows": False,
               "hardware": "On a GPU they run in either order or at once: the read may see the "
                           "old bytes, or half of the new.",
               "question": "Is there a cudaStreamWaitEvent missing?",
               "calls": [{"file": "1_one/tests.c", "function": "read_whole"},
                         {"file": "mine/one.c", "function": "fsdp_unshard"}]}


class Essence(unittest.TestCase):
    """What is shown of a message: what matters, in 80 columns."""

    def essence(self, message, *reports):
        task = manifest.Task(1, "one", "One", 1, ["one.c"], "handouts/1_one.md")
        text = essence.essence({"message": message, "reports": list(reports)}, task,
                               "make grade TASK=1")
        for line in text.splitlines():
            self.assertLessEqual(len(line), 69, line)
        return text

    def test_a_report_shows_its_diagnosis(self):
        lines = self.essence(RACE, RACE_REPORT).splitlines()
        self.assertEqual(lines, [
            "rank 1 of 2: simgpu: rank 1, device 1: two operations on the same",
            "memory, and neither waits for the other [race between streams]",
            "   ncclAllGather, called at mine/one.c:59 (fsdp_unshard),",
            "   An event was recorded after that work (at mine/one.c:61",
            "   (fsdp_unshard)),",
            "   and stream A did not wait for it.",
            "   Is there a cudaStreamWaitEvent missing?",
            "… (all of it: make grade TASK=1 | cat)"])

    def test_a_report_without_its_fields(self):
        text = self.essence(RACE)
        self.assertIn("two operations on the same", text)
        self.assertIn("(all of it: ", text)

    def test_a_likely_cause_is_shown_behind_many_lines(self):
        text = self.essence("\n".join("line %d" % i for i in range(50))
                            + "\nLikely cause: " + "is it divided twice, " * 8 + "or not at all?\n"
                            + "(drawn: 3 layers. The same again: SEED=1)")
        self.assertTrue(text.startswith("line 0\n"))
        self.assertNotIn("line 8\n", text)
        self.assertIn("\nLikely cause: is it divided twice,", text)
        self.assertIn("or not at all?\n… (all of it: make grade TASK=1 | cat)", text)

    def test_a_short_message_is_shown_as_it_is(self):
        self.assertEqual(self.essence("w[3] is 2, want 3"), "w[3] is 2, want 3")


class ByCause(Hints):
    """The hints of a failed test are those of the part that its message points at."""

    def setUp(self):
        super().setUp()
        path = "tasks/1_one/task.json"
        data = json.loads(self.read(path))
        data["parts"] = {"1.1": ["Which?", "That."], "1.2": ["Sum?", "A sum."]}
        data["functions"] = {"1.1": ["one"], "1.2": ["add_up"]}
        self.write(path, json.dumps(data))

    def test_hints_of_the_part(self):
        self.failing("b", "add_up gives 3, want 4")
        self.assertEqual(self.given("--level", "9"), ["Hint 1 of 2: Sum?", "Hint 2 of 2: A sum."])

    def test_where_to_look(self):
        self.write("mine/one.c", "int add_up(int x)\n{\n    return x;\n}\n")
        self.failing("b", "add_up gives 3, want 4")
        self.assertIn("  Look:  part 1.2, add_up, mine/one.c:1\n", self.hint())


class Gapped(Hints):
    """A file whose first part is not written: no grading is needed."""

    def setUp(self):
        super().setUp()
        self.write("mine/one.c", GAPPED)


class Gaps(Gapped):
    def test_no_build_is_needed(self):
        os.unlink(self.path("Makefile"))
        shutil.rmtree(self.path("build"))
        self.assertEqual(self.hint().splitlines(), [
            "Task 1  One: part 1.1 is not written yet",
            "  mine/one.c:4: the comment above says what belongs there.", "",
            "  Hint 1 of 2: Which?", "", '  Read:  handouts/1_one.md, section "Parts"',
            "  Next:  make hint IMPL=mine   for hint 2", "  Then:  make grade TASK=1 IMPL=mine"])
        self.assertEqual(self.given(), ["Hint 1 of 2: Which?", "Hint 2 of 2: That."])
        self.assertEqual(os.listdir(self.path("build")), ["hints.json"])

    def test_a_part_without_hints(self):
        self.write("mine/one.c", GAPPED.replace("1.1", "1.7"))
        out = self.hint()
        self.assertIn("part 1.7 is not written yet", out)
        self.assertIn("There is no hint for this one.", out)

    def test_a_file_that_is_no_text(self):
        with open(self.path("mine/one.c"), "wb") as file:
            file.write(b"\xff\xfe\x00\n    NOT_YET(\"1.1\");\n")
        self.assertEqual(self.given(), ["Hint 1 of 2: Which?"])

    def test_the_first_task_that_is_not_finished(self):
        self.write("mine/one.c", "int one(void) { return 1; }\n")
        self.suite("two", "d", "say('d', 'failed', 'x'); end()")
        self.assertEqual(self.given(), ["Hint 1 of 3: Why d?"])
        self.assertEqual(self.given("--task", "two"), ["Hint 1 of 3: Why d?",
                                                       "Hint 2 of 3: Look at d."])


class WithoutAHint(Hints):
    def test_a_file_that_does_not_compile(self):
        self.write("mine/one.c", "int one(void) { return 1 }\n")
        out = self.hint()
        self.assertIn("no test could run", out)
        self.assertIn("mine/one.c:1: expected ‘;’ before ‘}’ token".replace("‘", "'")
                      .replace("’", "'"), out)
        self.assertNotIn("Hint", out)

    def test_a_file_that_is_not_there(self):
        os.unlink(self.path("mine/two.c"))
        out = self.hint()
        self.assertIn("mine has no two.c", out)
        self.assertNotIn("Hint", out)

    def test_tests_that_die_alike_have_hints(self):
        self.suite("two", "d", "print('mine/two.c:3: a pointer to nowhere', flush=True)\n"
                   "os.kill(os.getpid(), signal.SIGSEGV)")
        out = self.hint("--task", "2")
        self.assertIn("SIGSEGV", out)
        self.assertIn("mine/two.c:3", out)
        self.assertIn("Hint 1 of 3: Why d?", out)

    def test_a_test_that_waits_for_another_file(self):
        self.task(1, "one", [("a", 10), ("b", 20), ("c", 20)], [("e", 10)])
        self.task(2, "two", [("d", 40)], [])
        self.write("mine/two.c", "int two(void) { return 1 }\n")
        out = self.hint("--task", "1")
        self.assertIn("Needs all two files, and two.c cannot be used.", out)
        self.assertIn("  Next:  make hint IMPL=mine\n", out)
        self.assertNotIn("Hint", out)

    def test_a_test_that_meets_a_gap_in_another_file(self):
        self.suite("together", "e", "say('e', 'failed', 'rank 0: mine/one.c:7: part 1.2 of f is "
                   "not written yet (NOT_YET)'); end()")
        out = self.hint("--task", "2")
        self.assertIn("part 1.2 is not written yet: mine/one.c:7, in f\n", out)
        self.assertIn("  Next:  make hint IMPL=mine\n", out)
        self.assertNotIn("Hint", out)

    def test_all_pass(self):
        self.assertEqual(self.hint("--task", "1").splitlines(), [
            "Task 1  One: all 3 tests pass", "  Next:  task 2, Two: handouts/2_two.md",
            "  Then:  make hint TASK=2 IMPL=mine"])
        self.assertEqual(self.hint().splitlines(), [
            "Task 1  One: all 3 tests pass", "Task 2  Two: all 2 tests pass",
            "  Next:  make grade IMPL=mine"])

    def test_what_too_few_gpus_leave_out_has_no_hint(self):
        self.suite("one", "abc", "say('a'); say('b', 'skipped', 'left out from W = 2 on: "
                   "1 GPU here; SHARE_GPU=1 lets ranks share one'); say('c'); end()")
        self.assertEqual(self.hint("--task", "1").split(), (
            "Task 1  One: 2 of 3 tests pass, the others are left out: 1 GPU here; SHARE_GPU=1 lets "
            "ranks share one  Next: task 2, Two: handouts/2_two.md  Then: make hint TASK=2 "
            "IMPL=mine").split())
        self.assertEqual(self.hint("--test", "b"),
                         "b is left out: 1 GPU here; SHARE_GPU=1 lets ranks share one\n")

    def test_questions_that_make_no_sense(self):
        for arguments, words in (
                (["--task", "7"], "there is no task 7; the tasks are 1 one, 2 two"),
                (["--test", "zz"], "there is no test zz"),
                (["--test", "d", "--task", "1"], "d is a test of task 2, not of task 1"),
                (["--level", "0"], "a level is a whole number, 1 or more, not 0"),
                (["--level", "two"], "not two")):
            self.assertEqual(self.hint(*arguments, status=2), "")
            self.assertIn(words, self.err)
            self.assertEqual(self.err.count("\n"), 1)
        self.assertEqual(self.hint(impl="nowhere", status=2), "")
        self.assertIn("nowhere is not a folder", self.err)

    def test_a_kit_that_does_not_build_is_no_fault_of_the_students(self):
        self.write("Makefile", "nonsense\n")
        self.assertEqual(self.hint(status=3), "")
        self.assertIn("the grading itself failed, not your code", self.err)

    def test_it_can_be_stopped(self):
        self.suite("one", "abc", "time.sleep(600)")
        process = self.start_hint("--task", "1")
        wait_for(lambda: processes_with(self.path("build/impl/mine/suite/one")), process, 30)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out), (3, ""))
        self.assertEqual(err, "hint: stopped by SIGTERM before the end\n")
        self.assertEqual(processes_with(self.folder), [])


class State(Gapped):
    def test_a_broken_state_is_as_good_as_none(self):
        mine = self.path("mine")
        for text in ("", "{", "[]", "7", "null", '{"x": 1}', "[" * 100000, "\xff",
                     json.dumps({mine: []}), json.dumps({mine: {"1.1": 3}}),
                     json.dumps({mine: {"1.1": {"sum": 1, "seen": 2}}}),
                     json.dumps({mine: {"1.1": {"sum": "x", "seen": True}}}),
                     json.dumps({mine: {"1.1": {"sum": "x", "seen": -5}}}),
                     json.dumps({mine: {"1.1": {"sum": "x", "seen": 10 ** 9}}})):
            self.write("build/hints.json", text)
            self.assertEqual(self.given(), ["Hint 1 of 2: Which?"], text[:60])
            self.assertEqual(self.err, "")
            state = json.loads(self.read("build/hints.json"))
            self.assertEqual(state[mine]["1.1"]["seen"], 1)

    def test_folders_that_are_gone_are_forgotten(self):
        entry = {"1.1": {"sum": "x", "seen": 2}}
        self.write("build/hints.json", json.dumps({"/nowhere/at/all": entry, self.folder: entry}))
        self.given()
        self.assertEqual(sorted(json.loads(self.read("build/hints.json"))),
                         sorted([self.folder, self.path("mine")]))

    def test_a_state_that_cannot_be_written(self):
        os.makedirs(self.path("build/hints.json"))
        self.assertEqual(self.given(), ["Hint 1 of 2: Which?"])
        self.assertIn("hint: cannot record which hints you have seen", self.err)
        self.assertEqual([name for name in os.listdir(self.path("build")) if "hints" in name],
                         ["hints.json"])

    def test_a_choice_of_levels(self):
        seen = {"sum": "now", "seen": 2}
        for entry, now, asked, want in (
                (None, "now", 0, (1, False)), (seen, "now", 0, (3, False)),
                (seen, "new", 0, (2, True)), (seen, "new", 1, (1, False)),
                (dict(seen, seen=9), "now", 0, (3, False)), (seen, "now", 9, (3, False))):
            self.assertEqual(hint.choose_level(entry, 3, now, asked), want)
        self.assertEqual(hint.choose_level(None, 0, "now", 0), (0, False))


class Kit(unittest.TestCase):
    """The kit's own hints."""

    def test_no_hint_is_a_line_of_the_solution(self):
        secrets = release.Secrets(ROOT)
        for task in manifest.load(ROOT):
            for text in [text for test in task.tests for text in test.hints()] + \
                    [text for hints in task.parts.values() for text in hints]:
                self.assertEqual(secrets.leaks(text.encode()), [])

    def test_the_skeletons_first_gaps_have_hints(self):
        for task in manifest.load(ROOT):
            part, line = hint.first_gap(os.path.join(ROOT, "skeleton", task.file))
            self.assertEqual(part, "%d.1" % task.number)
            self.assertGreater(line, 10)
            self.assertIn(part, task.parts)


if __name__ == "__main__":
    unittest.main()
