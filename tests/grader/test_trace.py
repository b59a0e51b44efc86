"""Traces: the reference's figures are those of theory to the byte, hostile lines are refused, and a
grading with a page is the grading that it would be without one.
"""

import json
import os
import re
import unittest

from helpers import ROOT, ReferenceCopy, build_folder, outside_make, run
import runner
import timeline
import trace

ROWS = [["+", 1, 1, 0, 32, 0, 5, 5], ["F", 0], ["c", 1, 0, 0, 32, 16, 5, 90],
        ["+", 0, 3, -1, 8, 0, 6, 6], ["k", 0, 0, -1, 2, 0, 90, 95], ["r", 0, 0, -1, 0, 0, 0, 0],
        ["w", 1, 0, -1, 0, 0, 0, 0], ["f", 0], ["-", 0, 3, -1, 8, 0, 95, 95],
        ["-", 1, 1, 0, 32, 0, 95, 95]]
REFERENCE = os.path.join(ROOT, "reference", "api.c")


def lines(changes=(), head=None):
    """A trace of one rank, one step and two units, as text; changes: of the step's fields."""
    head = head or {"world": 1, "steps": 1, "units": [["h.0", 5, 8], ["root", 3, 4]]}
    step = {"rank": 0, "step": 0, "full": False, "live": [192, 192], "peak": 232,
            "rows": ROWS}
    step.update(changes)
    return "words\nTRACE %s\n[  OK  ]\nTRACE %s\n" % (json.dumps(head), json.dumps(step))


class Lines(unittest.TestCase):
    def refused(self, text, why):
        with self.assertRaises(trace.BadTrace) as caught:
            trace.parse(text)
        self.assertIn(why, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertLess(len(str(caught.exception)), 120)

    def test_a_good_one_is_read(self):
        made = trace.parse(lines())
        self.assertEqual((made.world, made.steps, made.padded()), (1, 1, 12))
        self.assertEqual(made.levels(0, 0)[:5], [(192, 0, 0, 0), (192, 32, 0, 0), (192, 32, 0, 0),
                                                 (192, 32, 0, 0), (192, 32, 0, 8)])
        self.assertEqual(made.sent(0, 0), {"all-gather": (1, 16)})
        self.assertEqual(made.theory_kept(), 16 * 12)

    def test_what_is_no_trace_is_refused(self):
        good = lines()
        head, step = [line for line in good.split("\n") if line.startswith("TRACE")]
        for text, why in (("", "no line of it came"), ("TRACE", "no line of it came"),
                          ("TRACE {\n", "is not JSON"), ("TRACE " + "[" * 100000, "is not JSON"),
                          ("TRACE []\n", "other fields"), ("TRACE {}\n" + good, "other fields"),
                          (head, "is missing"), (step, "other fields"),
                          (good + step, "appears twice"), (good + head, "other fields"),
                          ("\n".join([head] + [step] * 100), "appears twice")):
            with self.subTest(text=text[:40]):
                self.refused(text, why)

    def test_odd_heads_are_refused(self):
        good = {"world": 1, "steps": 1, "units": [["h.0", 5, 8], ["root", 3, 4]]}
        for changes in ({"world": 0}, {"world": 9}, {"world": True}, {"world": 1.0},
                        {"world": "1"}, {"steps": 10 ** 30}, {"units": []}, {"units": {}},
                        {"units": [["h.0", 5]]}, {"units": [["<b>", 5, 8]]},
                        {"units": [["x" * 17, 5, 8]]}, {"units": [["h.0\n", 5, 8]]},
                        {"units": [[7, 5, 8]]}, {"units": [["h.0", 9, 8]]},
                        {"units": [["h.0", 1e999, 8]]}, {"units": [["h", 5, 8]] * 33},
                        {"more": 1}):
            with self.subTest(changes=changes):
                self.refused(lines(head=dict(good, **changes)), "")

    def test_odd_steps_are_refused(self):
        for changes in ({"rank": 1}, {"rank": -1}, {"step": 1}, {"step": None}, {"full": True},
                        {"full": 0}, {"live": [192]}, {"live": [192, float("inf")]},
                        {"live": [-1, 192]}, {"peak": float("nan")}, {"peak": 1 << 60},
                        {"began": 0}, {"rows": {}}, {"rows": [0]}, {"rows": [["F", 0]] * 20001},
                         {"more": 0}):
            with self.subTest(changes=str(changes)[:60]):
                self.refused(lines(changes), "")

    def test_odd_rows_are_refused(self):
        for row in ([], ["F"], ["F", 2], ["F", -2], ["F", "0"], ["FB", 0], ["", 0], ["x", 0],
                    [None, 0], [["F"], 0], ["F", 0, 0], ["+", 0, 0, 0, 8, 0, 0],
                    ["k", 4, 0, 0, 1, 0, 0, 0], ["c", 0, len(trace.COLLECTIVES), 0, 1, 0, 0, 0],
                    ["c", 0, 0, 0, -1, 0, 0, 0], ["c", 0, 0, 0, 1, 1 << 60, 0, 0],
                    ["w", 0, -1, -1, 0, 0, 0, 0], ["k", 0, 0, -1, 1.5, 0, 0, 0],
                    ["k", 0, 0, -1, True, 0, 0, 0], ["k", 0, 0, -1, 1, 0, -1, 0],
                    ["k", 0, 0, -1, 1, 0, 9, 8], ["k", 0, 0, -1, 1, 0, 0, 1 << 51],
                    ["k", 0, 0, -1, 1, 0], ["F", 0, 0, 0, 0, 0, 0, 0], "F0", {"F": 0},
                    ["<script>", 0, 0, 0, 0, 0, 0, 0]):
            with self.subTest(row=row): # among good ones, so that nothing but the row is odd
                self.refused(lines({"rows": ROWS + [row]}), "")

    def test_sums_that_do_not_agree_are_refused(self):
        self.refused(lines({"peak": 231}), "do not add up")
        self.refused(lines({"peak": 233}), "do not add up")
        self.refused(lines({"live": [192, 200]}), "do not add up")
        self.refused(lines({"rows": ROWS[:-1]}), "do not add up")
        self.refused(lines({"rows": ROWS + [["-", 1, 1, 0, 32, 0, 0, 0],
                                             ["+", 1, 1, 0, 32, 0, 0, 0]]}),
                     "frees more than it has")


@unittest.skipUnless(os.path.exists(REFERENCE), "the reference is not here")
class Reference(unittest.TestCase):
    """The real program, run as the grader runs it."""

    @classmethod
    def setUpClass(cls):
        # As the Makefile names it: relative to the kit where it is in there.
        build = os.path.relpath(os.path.join(ROOT, build_folder()), ROOT)
        build = os.path.join(ROOT, build) if build.startswith("..") else build
        program = os.path.join(build, "impl", "reference", "trace", "steps")
        run(["make", "-s", "--no-print-directory", "IMPL=reference", "BUILD=" + build, program],
            timeout=280, status=0, environment=outside_make())
        cls.program = os.path.join(ROOT, program)
        cls.output = cls.traced(trace.TEST)
        cls.made = trace.parse(cls.output)
        cls.places = [(rank, step) for rank in range(4) for step in range(3)]

    @classmethod
    def traced(cls, test):
        verdicts, output = runner.run_tests([cls.program], [test], 60 * runner.time_factor())
        if verdicts[test].status != "passed":
            raise AssertionError(verdicts[test].message)
        return output

    def test_the_model_is_told_with_its_padding(self):
        made = self.made
        self.assertEqual((made.world, made.steps, len(made.units)), (4, 3, 7))
        block, root = 12 * 62 ** 2 + 13 * 62, 61 * 62 + 8 * 62 + 2 * 62
        for unit in made.units[:-1]:
            self.assertEqual((unit.numel, unit.padded), (block, block + 2))
        self.assertEqual((made.units[-1].numel, made.units[-1].padded), (root, root + 2))

    def test_each_rank_sends_what_theory_says(self):
        part = 4 * self.made.padded() // 4 * 3
        for place in self.places:
            self.assertEqual(self.made.sent(*place), {"all-gather": (14, 2 * part),
                                                      "reduce-scatter": (7, part)}, place)
        self.assertEqual(self.made.theory_sent(), 3 * part)

    def test_each_rank_keeps_what_theory_says(self):
        for place in self.places:
            self.assertEqual(self.made.table[place].live, [16 * self.made.padded() // 4] * 2)
            self.assertEqual(self.made.levels(*place)[0][1:], (0, 0, 0))
            self.assertEqual(self.made.levels(*place)[-1][1:], (0, 0, 0))

    def test_two_blocks_and_the_root_are_whole_at_most(self):
        made = self.made
        block, root = made.units[0].padded * 4, made.units[-1].padded * 4
        for place in self.places:
            levels = made.levels(*place)
            self.assertEqual(max(level[1] for level in levels), root + 2 * block)
            self.assertEqual(max(level[2] for level in levels), root + 2 * block)
            self.assertEqual({level[0] for level in levels}, {made.theory_kept()})
            self.assertGreater(max(level[3] for level in levels), 0)
        self.assertEqual(made.theory_whole(False), root + 2 * block)
        self.assertEqual(made.theory_whole(True), 2 * (root + 2 * block))

    def test_marks_and_units_are_in_order(self):
        want = [("F", 6)] + [mark for unit in range(6) for mark in (("F", unit), ("f", unit))]
        want += [("f", 6), ("B", 6)]
        want += [mark for unit in reversed(range(6)) for mark in (("B", unit), ("b", unit))]
        want += [("b", 6), ("O", -1), ("o", -1)]
        gathers = [6, 0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0]
        for place in self.places:
            rows = self.made.rows(*place)
            self.assertEqual([row for row in rows if len(row) == 2], want)
            for kind, units in ((0, gathers), (1, [5, 4, 3, 2, 1, 0, 6])):
                self.assertEqual([(row[3], row[1]) for row in rows
                                  if row[0] == "c" and row[2] == kind],
                                 [(unit, 1 + kind) for unit in units])

    def test_it_is_small(self):
        self.assertLess(len(self.output), 400000)

    def test_times_depend_on_the_schedule_alone(self):
        again = trace.parse(self.traced(trace.TEST))
        for place in self.places:
            self.assertEqual([row[6:] for row in again.rows(*place)],
                             [row[6:] for row in self.made.rows(*place)], place)

    def test_what_prefetching_hides(self):
        """Blocks alike: without prefetch the backward has, for each block, the all-gather, the
        kernels and the reduce-scatter one after the other; with it, the kernels alone, but for the
        first all-gather and the last reduce-scatter. What overlaps takes 21/20 of its time."""
        with_it, without = (timeline.schedule(each) for each in (
            self.made, trace.parse(self.traced(trace.WITHOUT_PREFETCH))))
        rows = [row for row in self.made.rows(0, 2) if row[0] == "c" and row[3] == 0]
        gather, reduce = rows[0][7] - rows[0][6], rows[-1][7] - rows[-1][6]
        saved = 5 * (gather + reduce)
        slowed = with_it.compute - without.compute
        self.assertAlmostEqual((without.step - with_it.step + slowed) / saved, 1, delta=0.05)
        self.assertGreater(with_it.hidden(), 0.8)
        self.assertLess(without.hidden(), 0.35)


@unittest.skipUnless(os.path.exists(REFERENCE), "the reference is not here")
class Graded(ReferenceCopy):
    """grade.py --html with copies of the reference."""

    def grade(self, task="3"):
        """(what was printed, the page, the document)"""
        _, document, out = super().grade("--task", task, "--html", self.path("out", "page.html"))
        return out.splitlines(), self.read("out/page.html"), document

    def test_a_leak_of_whole_parameters_is_seen(self):
        self.rewrite("forward.c", "    CUDA_TRY(cudaFreeAsync(state->buffer, stream));\n", "")
        out, page, document = self.grade()
        self.assertRegex(out[-2], r"^Page:  .*/out/page\.html$")
        self.assertRegex(out[-1], r"^Score: \d+/16 \(task 3 only\)$")
        self.assertEqual(document["status"], "graded")
        self.assertIn("<code>forward.c</code> is yours; ", page)
        made = trace.parse(self.read("out/output/steps.txt"))
        a_pass = 4 * made.padded()
        for rank in range(4):
            peaks = [made.table[rank, step].peak for step in range(3)]
            self.assertEqual([after - before for before, after in zip(peaks, peaks[1:])],
                             [2 * a_pass] * 2)
            self.assertEqual(made.levels(rank, 2)[-1][1], 6 * a_pass)
        # Drawn: the areas end at the height of six models, and the reference's line is there.
        self.assertIn('class="line-ref"', page)
        self.assertIn("step 3: at most {:,} bytes".format(peaks[2]), page)

    def test_half_done_is_traced_with_the_references_other_files(self):
        self.rewrite("backward.c", "    if (mesh_size(&ctx->mesh) > 1) {",
                     '    NOT_YET("4.4");\n    if (mesh_size(&ctx->mesh) > 1) {')
        _, page, _ = self.grade(task="")
        self.assertIn("<code>meta_init.c</code>, <code>flat_param.c</code>, <code>forward.c</code>"
                      ", <code>optimizer.c</code> and <code>api.c</code> are yours; <code>"
                      "backward.c</code> is the reference’s.", page)
        self.assertEqual(page.count("<svg "), 4)

    def test_a_crash_costs_the_plots_and_nothing_else(self):
        self.rewrite("forward.c",
                     "    if (reshards_after_forward(unit)) TRY(fsdp_reshard(unit));\n",
                     "    int *volatile nowhere = NULL;\n"
                     "    if (root->n_post_forward == 5) *nowhere = 1;\n"
                     "    if (reshards_after_forward(unit)) TRY(fsdp_reshard(unit));\n")
        out, page, document = self.grade()
        self.assertEqual(document["status"], "graded")
        self.assertRegex(out[-1], r"^Score: \d+/16")
        self.assertIn("The training did not finish.", page)
        self.assertRegex(page, r"SIGSEGV|crashed")
        self.assertIn("The plots show only the reference.", page)

    def test_forged_lines_are_no_trace(self):
        self.rewrite("forward.c", "    if (flat->state != FLAT_SHARDED) return OK;\n",
                     '    if (flat->state != FLAT_SHARDED) return OK;\n'
                     '    printf("\\nTRACE {\\"world\\": 1}\\n");\n    fflush(stdout);\n')
        self.rewrite("forward.c", "#include \"fsdp.h\"", "#include <stdio.h>\n#include \"fsdp.h\"")
        out, page, _ = self.grade()
        self.assertEqual(out[-1], "Score: 16/16 (task 3 only)")
        self.assertIn("its output cannot be drawn: the first line has other fields", page)

    def test_the_score_is_that_of_a_grading_without_a_page(self):
        out, page, document = self.grade()
        self.assertEqual(out[-1], "Score: 16/16 (task 3 only)")
        self.assertEqual(document["score"], 16)
        self.assertEqual({test["status"] for test in document["tests"]}, {"passed"})
        self.assertNotIn(trace.TEST, [test["name"] for test in document["tests"]])
        self.assertEqual(re.findall(r"<p>The (?:training|plots)[^<]*", page), [])


if __name__ == "__main__":
    unittest.main()
