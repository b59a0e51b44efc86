"""The line on what a complete solution's schedule costs: when there is one, what it may say, and
that no point hangs on it."""

import os
import re
import unittest

from helpers import ROOT, FakeKit, TempFolder, build_folder, speak
import cost
import manifest
import page
import runner
from builder import Builder

GOOD = [41200000000, 38000000000, 20000000000, 1400000000, 67000, 494500]
SLOWER = [52000000000, 38000000000, 20000000000, 10000000000, 67000, 494500]
LINE = re.compile(r"^GPT-2 medium, float, B 8, T 1024, h100x8: \d+\.\d ms per step, \d+ % of "
                  r"communication hidden(; the reference \d+\.\d ms, \d+ %)?$")
RULE = '''$(BUILD)/impl/$(IMPL_KEY)/trace/%: $(SUITES)/trace_%.py
	@mkdir -p $(@D)
	@cp $< $@ && chmod +x $@
'''


class Line(unittest.TestCase):
    def test_says_both_and_rounds_no_share_up_to_all(self):
        own, reference = cost.figures_of(GOOD), cost.figures_of(SLOWER)
        self.assertEqual(cost.line(cost.Cost(own, reference)),
                         "GPT-2 medium, float, B 8, T 1024, h100x8: 41.2 ms per step, 93 % of "
                         "communication hidden; the reference 52.0 ms, 50 %")
        almost = cost.figures_of(GOOD[:3] + [20000000] + GOOD[4:])
        self.assertIn(" 99 % of", cost.line(cost.Cost(almost)))
        whole = cost.figures_of(GOOD[:3] + [0] + GOOD[4:])
        self.assertIn(" 100 % of", cost.line(cost.Cost(whole)))

    def test_takes_nothing_but_figures_of_a_schedule(self):
        for bad in (None, "1 2 3 4 5 6", GOOD[:5], GOOD + [1], [str(n) for n in GOOD],
                    [True] + GOOD[1:], [-1] + GOOD[1:], [1 << 60] + GOOD[1:], [0] + GOOD[1:],
                    [1.5] + GOOD[1:], GOOD[:3] + [GOOD[2] + 1] + GOOD[4:], GOOD[:4] + [0, 0],
                    ["\033[2J"] * 6, {}, [[]] * 6):
            self.assertIsNone(cost.figures_of(bad), bad)

    def test_page_says_why_float_is_slow(self):
        html = page.make({"status": "graded", "tests": []}, cost=cost.Cost(cost.figures_of(GOOD)))
        self.assertIn("41.2 ms per step", html)
        self.assertIn("CUBLAS_TF32_TENSOR_OP_MATH", html)
        self.assertRegex(html, "49[45] TFLOP/s")
        self.assertNotIn("CUBLAS_TF32", page.make({"status": "graded", "tests": []}))


class Channel(TempFolder):
    def test_figures_are_whole_numbers_or_nothing(self):
        for said, want in (("[1, -2]", [1, -2]), ("[1.5]", None), ('["\\u001b[2J"]', None),
                           ("[true]", None), ("7", None), ("[%s]" % ", ".join("1" * 17), None),
                           ("[1e999]", None), ("[%d]" % (1 << 70), None)):
            listener = runner.Listener("n", ["a"])
            listener.add(('{"nonce": "n", "test": "a", "status": "passed", "figures": %s}\n'
                          % said).encode())
            self.assertEqual(listener.verdicts["a"].figures, want, said)


class Graded(FakeKit):
    def setUp(self):
        super().setUp()
        self.append("Makefile", RULE)
        self.cost("", GOOD)
        self.cost("reference/", SLOWER)

    def cost(self, folder, figures, body=None):
        self.write("suites/%strace_cost.py" % folder,
                   speak([cost.TEST], body or "say('cost', figures=%r); end()\n" % figures))

    def said(self, *arguments):
        status, out, _, document = self.grade(*arguments)
        lines = out.rstrip("\n").split("\n")
        self.assertEqual(status, 0, out + self.err)
        self.assertTrue(lines[-1].startswith("Score: "), out)
        return lines, [line for line in lines if "GPT-2" in line], document

    def test_line_comes_before_the_next_step(self):
        lines, found, document = self.said()
        self.assertEqual(document["score"], 100)
        self.assertEqual(found, ["GPT-2 medium, float, B 8, T 1024, h100x8: 41.2 ms per step, 93 % "
                                 "of communication hidden; the reference 52.0 ms, 50 %"])
        after = lines[lines.index(found[0]) + 1]
        self.assertTrue(after.startswith("What to do next: "), lines)

    def test_no_line_while_points_are_missing(self):
        self.suite("two", "d", "say('d', 'failed', 'no'); end()")
        self.assertEqual(self.said()[1], [])

    def test_no_line_for_a_task_alone(self):
        self.assertEqual(self.said("--task", "1")[1], [])

    def test_what_goes_wrong_costs_no_point(self):
        for body in ("say('cost', 'failed', 'no', figures=%r); end()" % GOOD, "sys.exit(1)",
                     "say('cost', figures=['GPT-2 \\x1b[2J'] * 6); end()",
                     "print('COST: GPT-2 medium, 1 ms'); say('cost'); end()"):
            with self.subTest(body):
                self.cost("", None, body + "\n")
                lines, found, document = self.said()
                self.assertEqual((found, document["score"]), ([], 100))
                self.assertIn("All tests pass.", lines)

    def test_a_reference_that_says_nothing_is_left_out(self):
        self.cost("reference/", None, "say('cost'); end()\n")
        found = self.said()[1]
        self.assertEqual(len(found), 1)
        self.assertTrue(LINE.match(found[0]) and "reference" not in found[0], found)


class Reference(unittest.TestCase):
    """The real thing."""

    def test_reference_hides_most_of_its_communication(self):
        builder = Builder(os.path.join(ROOT, "reference"), build_folder(),
                          "simgpu")
        builder.find_key()

        def run(program, account, test):
            verdicts, _ = runner.run_tests([os.path.join(ROOT, program)], [test],
                                           cost.LIMIT * runner.time_factor(), runner.Caps())
            return verdicts[test], ""
        found = cost.take(builder, manifest.load(ROOT), run)
        self.assertIsNotNone(found, "the reference has no cost")
        self.assertRegex(cost.line(found), LINE)
        # Three passes of 2·N·tokens FLOP at the peak of h100x8, 67 TFLOP/s, are the least.
        least = 6 * 354823168 * 8 * 1024 / 67e12
        self.assertGreater(found.own.step / 1e12, least)
        self.assertLess(found.own.step / 1e12, 3 * least)
        self.assertLess(found.own.exposed, found.own.communication / 2)


if __name__ == "__main__":
    unittest.main()
