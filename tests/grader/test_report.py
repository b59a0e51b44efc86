"""What a person reads of a grading: on a terminal of some width, and anywhere else. The lines that
a terminal gets are read from a pseudo-terminal."""

import io
import json
import os
import re
import threading
import unittest

from helpers import FakeKit, ROOT, in_terminal

import alike
import layout
import progress
import report

COLOUR = re.compile(r"\x1b\[[0-9]*m")


def seen(line):
    """What of a line is seen in the end, where a carriage return begins it again."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part):]
    return shown.rstrip()


RACE = ("rank %d of 2: simgpu: rank %d, device %d: two operations race [race]\n"
        "   kernel_add, called at mine/one.c:%d (add_all),\n"
        "       12 | CUDA_TRY(kernel_add(a_long_name_of_a_buffer, another_name, count, stream));\n"
        "   reads bytes 0 to %d of a buffer that was made somewhere else, and much earlier,\n"
        "   by somebody.\n"
        "   On a GPU it reads what was there before.\n"
        "   Is there a wait missing?\n"
        "   Read: simgpu/pages/mistakes.md, \"Race\" (tasks/1_one/tests.c:%d)")


def race(test, line=7):
    """A test that shows the race; its numbers are its own."""
    n = ord(test)
    return "say(%r, 'failed', %r, reports=%r)" % (
        test, RACE % (n % 2, n % 2, n % 2, line, n * 4, n), json.dumps({
            "class": "race", "title": "two operations race", "rank": n % 2, "follows": False,
            "calls": [{"call": "kernel_add", "file": "mine/one.c", "line": line},
                      {"call": "kernel_%s" % test, "file": "1_one/tests.c", "line": n}]}) + "\n")


def asking():
    """The race, from a report that has its question in a field of its own, as simgpu's have."""
    return race("a").replace('"follows"', '"question": "Is there a wait missing?", "follows"')


def todo(test, part):
    return ("say(%r, 'failed', 'mine/one.c:7: part %s of f is not written yet (NOT_YET)')"
            % (test, part))


class Terminal(FakeKit):
    """On a terminal."""

    def screen(self, *arguments, columns=80, impl="mine", **more):
        status, text = in_terminal(self.command(*arguments, impl=impl), self.folder, columns,
                                   **more)
        self.assertEqual(status, 0, text)
        self.assertNotIn("Traceback", text)
        self.raw = text
        lines = [seen(line) for line in COLOUR.sub("", text).split("\n")[:-1]]
        self.assertLessEqual(max(map(len, lines)), columns)
        return lines

    def last(self, lines):
        """What is on the last screen: from the heading of the end on."""
        return lines[max(i for i, line in enumerate(lines) if line.startswith("What to do next")):]

    def test_everything_passes(self):
        lines = self.screen()
        self.assertEqual(lines, [
            "On 2 made-up devices", "",
            "Task 1  One             ok     3 tests                         60/60",
            "Task 2  Two             ok     2 tests                         40/40", "",
            "All tests pass.",
            "What to do next: make demo IMPL=mine",
            "  It trains a model with your two files.", "",
            "Score: 100/100"])

    def test_what_is_not_written_is_one_line_and_no_failure(self):
        self.suite("one", "abc", "; ".join([todo("a", "1.2"), todo("b", "1.10"), todo("c", "1.3"),
                                            "end()"]))
        lines = self.screen()
        self.assertIn("Task 1  One             todo   3 tests: part 1.2 …              0/60",
                      lines)
        self.assertNotIn("FAIL", "\n".join(lines))
        self.assertEqual(self.last(lines)[0], "What to do next: task 1, a")

    def test_what_is_not_written_beside_what_passes(self):
        self.suite("one", "abc", "say('a'); %s; %s; end()" % (todo("b", "1.2"), todo("c", "1.2")))
        lines = self.screen()
        self.assertIn("  ok     a                                                     10/10", lines)
        self.assertIn("  todo   2 tests: part 1.2                                      0/50", lines)

    def test_one_mistake_is_told_once_and_at_the_end(self):
        self.suite("one", "abc", "%s; %s; %s; end()" % (race("a"), race("b"), race("c")))
        self.suite("together", "e", race("e") + "; end()")
        lines = self.screen()
        text = "\n".join(lines)
        self.assertEqual(text.count("Is there a wait missing?"), 1)
        self.assertEqual([line for line in lines if "FAIL" in line], [
            "  FAIL   a                                                      0/10",
            "  FAIL   2 tests                                                0/50"])
        at = lines.index("  FAIL   2 tests                                                0/50")
        self.assertEqual(lines[at + 1:at + 3], ["         b, c",
                                                "         the same cause as in a"])
        self.assertIn("is judged only once the tests of task 1", text)
        last = self.last(lines)
        self.assertLessEqual(len(last), 23)
        self.assertEqual(last[:3], [
            "What to do next: task 1, a",
            "  rank 1 of 2: two operations race [race]" if len(last) > 19 else "  a holds.",
            last[2]])
        self.assertIn("     kernel_add, called at mine/one.c:7 (add_all),", last)
        self.assertIn("     Is there a wait missing?", last)
        self.assertEqual(last[-4:-2], ["  Read:  handouts/1_one.md",
                                       "  Then:  make grade TASK=1 IMPL=mine"])
        self.assertNotIn("Hint:", text) # the report asks already
        self.assertEqual(last[-2:], ["", "Score: 30/100"])

    def test_a_report_of_many_lines_is_told_in_short(self):
        """The end is on one screen; all of the report is in the output that is no terminal's."""
        more = "".join("   by somebody, and line %d of it.\\n" % i for i in range(30))
        said = asking().replace("   by somebody.", more + "   by somebody.")
        self.assertIn("line 7 of it", said)
        self.suite("one", "abc", said + "; rest('a')")
        lines = self.screen()
        last = self.last(lines)
        self.assertLessEqual(len(last), 23)
        text = " ".join(" ".join(last).split())
        for words in ("two operations race", "kernel_add, called at mine/one.c:7 (add_all),",
                      "Is there a wait missing?", "(all of it: make grade TASK=1 IMPL=mine | cat)",
                      "Read: handouts/1_one.md", "Score: 90/100"):
            self.assertIn(words, text)
        self.assertIn("and line 7 of it", " ".join(self.grade()[1].split()))

    def test_what_a_message_asks_is_told_once(self):
        """A likely cause, or a report's question, stands in the message and nowhere else."""
        self.suite("one", "abc", "say('a', 'failed', 'x is 3\\nLikely cause: a sum?'); rest('a')")
        self.assertEqual("\n".join(self.screen()).count("Likely cause: a sum?"), 1)
        self.suite("one", "abc", asking() + "; rest('a')")
        text = " ".join(" ".join(self.screen()).split())
        self.assertEqual(text.count("Is there a wait missing?"), 1)
        self.assertIn("Read: handouts/1_one.md Then: make grade", text)

    def test_each_cause_is_told_in_full(self):
        self.suite("one", "abc", "%s; %s; %s; end()" % (race("a"), race("b", 30), race("c")))
        text = "\n".join(self.screen())
        self.assertEqual(text.count("Is there a wait missing?"), 2)
        self.assertEqual(text.count("mine/one.c:30 (add_all)"), 1)
        self.assertEqual(text.count("mine/one.c:7 (add_all)"), 1)

    def test_a_cause_is_told_once_over_all_tasks(self):
        self.suite("one", "abc", race("a") + "; rest('a')")
        self.suite("two", "d", race("d") + "; end()")
        lines = self.screen()
        self.assertEqual("\n".join(lines).count("Is there a wait missing?"), 1)
        self.assertIn("           the same cause as in a", lines)

    def test_a_file_that_does_not_compile(self):
        self.write("mine/one.c", "int one(\n")
        lines = self.screen()
        self.assertIn("  ERROR  3 tests                                                0/60", lines)
        last = self.last(lines)
        self.assertEqual(last[0], "What to do next: task 1, one.c")
        self.assertTrue(last[1].startswith("  one.c does not compile. mine/one.c:"), last)
        self.assertEqual("\n".join(lines).count("does not compile"), 1)

    def test_a_crash(self):
        self.suite("one", "abc", "for t in wanted:\n    if t in 'ac':\n        say(t, 'failed', "
                   "'rank %d of 2: crashed (segmentation fault, address 0x%x) at mine/one.c:8 (f) "
                   "(tasks/1_one/tests.c:%d)' % (t == 'c', ord(t), ord(t)))\n"
                   "    else: say(t)\nend()")
        lines = self.screen()
        self.assertEqual("\n".join(lines).count("crashed"), 1)
        self.assertIn("           the same cause as in a", lines)

    def test_widths(self):
        self.suite("one", "abc", "%s; %s; %s; end()" % (race("a"), race("b", 30), race("c")))
        for columns in (60, 80, 100, 120, 200):
            lines = self.screen(columns=columns)
            self.assertEqual(lines[-1], "Score: 40/100")
            self.assertLessEqual(max(map(len, lines)), layout.MOST)
            source = [line for line in lines if "12 | CUDA_TRY" in line]
            self.assertEqual([line.endswith("…") for line in source], [columns < 100] * 2, source)

    def test_colours_and_none(self):
        self.suite("one", "abc", "say('a', 'failed', 'x'); rest('a')")
        self.screen()
        self.assertIn("\x1b[31mFAIL \x1b[0m", self.raw)
        self.screen(NO_COLOR="1")
        self.assertNotIn("\x1b", self.raw)

    def test_nothing_that_tests_say_commands_the_terminal(self):
        evil = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08 \u202e \ud800"
        self.write("mine/two.c", "#warning \x1b[2J\nint two(void) { return 1; }\n")
        self.suite("one", "abc", "say('a', 'failed', %s); say('b', 'failed', %s); "
                   "say('c', 'failed', %s); end()"
                   % tuple(ascii(text) for text in (evil, "x\n   y\n  %s" % evil, "z" + evil)))
        self.screen(NO_COLOR="1")
        for character in "\x1b\x07\x9b\x08\u202e":
            self.assertNotIn(character, self.raw)
        self.assertIn("warnings about two.c", self.raw)

    def test_an_encoding_that_has_not_all_characters(self):
        self.suite("one", "abc", "say('a', 'failed', 'caf\\u00e9 \\u2026'); rest('a')")
        self.assertIn("Score: 90/100", self.screen(PYTHONIOENCODING="ascii"))

    def test_the_next_task_and_the_demo(self):
        self.assertEqual(self.last(self.screen("--task", "1")), [
            "What to do next: make grade IMPL=mine", "  It grades all tasks.", "",
            "Score: 60/60 (task 1 only)"])
        self.write("mine/two.c", "int two(void)\n{\n    NOT_YET(\"2.1\");\n    return 1;\n}\n")
        lines = self.screen("--task", "1")
        self.assertEqual(self.last(lines), [
            "What to do next: task 2, Two", "  Read:  handouts/2_two.md",
            "  Then:  make grade TASK=2 IMPL=mine", "", "Score: 60/60 (task 1 only)"])

    def test_the_folder_that_is_meant_needs_no_name(self):
        os.rename(self.path("mine"), self.path("skeleton"))
        self.assertIn("What to do next: make demo", self.screen(impl="skeleton"))


class Elsewhere(FakeKit):
    """In a pipe or a file: every test has its row, and nothing is left out."""

    def test_rows_and_reports(self):
        self.suite("one", "abc", "say('a'); %s; %s; end()" % (race("b"), race("c")))
        _, out, tests, _ = self.grade()
        self.assertIn("Is there a wait missing?", tests["c"]["message"]) # the file has all of it
        for row in (r"  ok     a +10/10", r"  FAIL   b +0/20", r"  FAIL   c +0/30",
                    r"  ok     d +30/30"):
            self.assertRegex(out, r"(?m)^%s$" % row)
        self.assertEqual(out.count("Is there a wait missing?"), 1)
        self.assertIn("(the same cause as in b)", out)
        self.assertLessEqual(max(map(len, out.splitlines())), layout.PLAIN)
        self.assertNotIn("\x1b", out)
        # The report stands at its test, above the end.
        self.assertLess(out.index("Is there a wait"), out.index("What to do next"))

    def test_what_a_message_asks_is_told_once(self):
        self.suite("one", "abc", "say('a', 'failed', 'x is 3\\nLikely cause: a sum?'); rest('a')")
        self.assertEqual(self.grade()[1].count("Likely cause: a sum?"), 1)
        self.suite("one", "abc", asking() + "; rest('a')")
        self.assertEqual(self.grade()[1].count("Is there a wait missing?"), 1)

    def test_a_test_without_a_hint(self):
        self.suite("one", "abc", "say('a', 'failed', 'x'); rest('a')") # points at no part
        self.assertNotIn("Hint", self.grade()[1])

    def test_a_message_that_utf8_cannot_carry(self):
        self.suite("one", "abc", "say('a', 'failed', 'x\\ud800y'); rest('a')")
        status, _, tests, _ = self.grade()
        self.assertEqual(status, 0, self.err)
        self.assertEqual(tests["a"]["message"], "x?y")


class Layout(unittest.TestCase):
    def test_prose_is_filled_and_keeps_its_margin(self):
        text = "head\n   one two three four\n   five six.\n   Seven."
        self.assertEqual(layout.fill(text, 20, 2), [
            "  head", "     one two three", "     four five six.", "     Seven."])

    def test_source_keeps_its_shape_and_is_cut(self):
        self.assertEqual(layout.fill("     64 | free(a,    b);", 30, 2),
                         ["       64 | free(a,    b);"])
        self.assertEqual(layout.fill("  64 | free(a,    b);", 16, 0), ["  64 | free(a,…"])

    def test_tables_keep_their_shape_where_they_fit(self):
        table = "   rank 0   1 2 3\n   rank 1   4 5 6"
        self.assertEqual(layout.fill(table, 40), table.split("\n"))

    def test_lines_at_the_margin_stay_apart(self):
        text = "rank 0 was here (f)\nrank 1 was there (g)"
        self.assertEqual(layout.fill(text, 40), text.split("\n"))

    def test_close_paragraphs_begin_after_the_last_source_line(self):
        text = ("head\n   a line.\n   Another line.\n   12 | x;\n   It reads.\n"
                "   On a GPU it fails.\n   Why?\n   Read: a page")
        self.assertEqual(layout.fill(text, 60, 0, True), [
            "head", "   a line.", "   Another line.", "   12 | x;",
            "   It reads. On a GPU it fails.", "   Why?", "   Read: a page"])

    def test_a_word_that_is_too_long_stays_whole(self):
        self.assertIn("x" * 90, layout.fill("a " + "x" * 90 + " b", 40))

    def test_no_text(self):
        self.assertEqual(layout.fill("", 40, 2), [""])


class Causes(unittest.TestCase):
    def same(self, one, other, **more):
        rows = [dict({"status": "failed", "message": text, "reports": []}, **more)
                for text in (one, other)]
        return alike.cause(rows[0], "mine") == alike.cause(rows[1], "mine")

    def test_rules_ranks_addresses_and_test_lines_do_not_count(self):
        self.assertTrue(self.same("rank 0 of 2: crashed (address 0x12) at mine/a.c:3 (f) "
                                  "(tasks/1_a/tests.c:9)",
                                  "in rule two_add_up: rank 2 of 3: crashed (address 0x77) at "
                                  "mine/a.c:3 (f) (tasks/1_a/tests.c:99)\n"
                                  "(drawn: 3 ranks. The same again: SEED=1)"))

    def test_places_count(self):
        self.assertFalse(self.same("rank 0 of 2: crashed at mine/a.c:3 (f)",
                                   "rank 0 of 2: crashed at mine/a.c:4 (f)"))
        self.assertFalse(self.same("x\n y\n z at mine/a.c:3\n w", "x\n y\n z at mine/a.c:4\n w"))

    def test_numbers_count_in_a_short_message_and_not_in_a_likely_cause(self):
        self.assertFalse(self.same("want 3, got 4", "want 3, got 5"))
        self.assertTrue(self.same("got 4\nLikely cause: 1/2 of it, and there are 2 ranks?",
                                  "got 7 here\nLikely cause: 1/3 of it, and there are 3 ranks?"))
        self.assertFalse(self.same("got 4\nLikely cause: too small?",
                                   "got 4\nLikely cause: too large?"))

    def test_the_line_that_refuses(self):
        self.assertTrue(self.same("wrap(a) failed (reference/two.c:41: a: no ranks)",
                                  "wrap(b) failed (/home/mine/two.c:41: b: no ranks)"))
        self.assertFalse(self.same("wrap(a) failed (mine/two.c:41: a: no ranks)",
                                   "wrap(a) failed (mine/two.c:43: a: no ranks)"))

    def test_what_passed_has_none(self):
        self.assertIsNone(alike.cause({"status": "passed", "message": ""}, "mine"))


class Stream(io.StringIO):
    def isatty(self):
        return True


class Progress(unittest.TestCase):
    def test_a_line_is_written_over_and_cleared(self):
        stream = Stream()
        line = progress.Progress(stream)
        line.write("Testing: 10 of 12")
        line.write("Testing: 9")
        line.clear()
        line.clear()
        self.assertEqual(stream.getvalue(), "\rTesting: 10 of 12\rTesting: 9       \r%s\r"
                         % (" " * 17))

    def test_no_line_comes_between_clearing_and_printing(self):
        stream = Stream()
        line = progress.Progress(stream)
        line.write("Testing")
        other = threading.Thread(target=line.write, args=("Testing more",), daemon=True)
        with line.cleared():
            other.start()
            other.join(0.2)
            stream.write("Done\n")
        other.join(30)
        self.assertEqual(stream.getvalue(), "\rTesting\r       \rDone\n\rTesting more")

    def test_the_report_clears_it(self):
        stream = Stream()
        line = progress.Progress(stream)
        line.write("Testing")
        report.Report(stream, "", line).say("Done")
        self.assertEqual(stream.getvalue(), "\rTesting\r       \rDone\n")

    def test_building_counts_the_files_that_are_made(self):
        made = "tests/grader/test_report.py" # make's paths have no space in them: they are relative
        building = progress.Building(progress.Progress(Stream()), lambda: (0, (
            "cc -O2 -c a.c -o %s\ncc -c b.c -MMD -o /nowhere/b.o\nar rcs lib.a\n"
            % (made[:-3] + ".o"))))
        building.objects = {made, "/nowhere/b.o"}
        building.began = os.stat(os.path.join(ROOT, made)).st_mtime + 60
        self.assertRegex(building.text(), r"^Building the kit, once: 0 of 2 files, ")
        building.began -= 120
        self.assertRegex(building.text(), r"^Building the kit, once: 1 of 2 files, ")
        building.objects = None
        building.text()
        self.assertEqual(building.objects, {made[:-3] + ".o", "/nowhere/b.o"})

    def test_nothing_is_written_where_there_is_no_terminal(self):
        stream = io.StringIO()
        line = progress.Progress(stream)
        with line.during(lambda: "Testing"):
            pass
        line.clear()
        self.assertEqual(stream.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
