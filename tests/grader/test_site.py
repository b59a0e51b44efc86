"""The site, apart from what Sphinx and a browser do (make check-site): which pages are on it, where
their links lead, what becomes a formula; the closed form of memory and the timelines against the
planner."""

import glob
import json
import os
import random
import re
import sys
import unittest

from helpers import COURSE, ROOT, TempFolder, build_folder

sys.path.insert(0, COURSE)
import links
import manifest
import release
import site_build
import site_check
import site_data
import site_formulas
import site_pages
from planner import make

REFERENCE = os.path.isdir(os.path.join(ROOT, "reference"))


class Formulas(unittest.TestCase):
    def test_what_they_are_worth(self):
        names = {"N": 12, "W": 4, "R": 10, "S": 4, "u": 5, "b": 3}
        for text, wanted, javascript in (
                ("4 * N/W", 12, "4 * N/W"), ("4 * (⌈R/S⌉ + u)", 32, "4 * (Math.ceil(R/S) + u)"),
                ("max(R, u) + 2^u", 42, "Math.max(R, u) + 2**u"),
                ("12 * (R - u) / (4 * W)", 3.75, None), ("N - W - u", 3, "N - W - u")):
            with self.subTest(text=text):
                self.assertEqual(site_formulas.value(text, names), wanted)
                if javascript:
                    self.assertEqual(site_formulas.javascript(text), javascript)

    def test_tex(self):
        for text, wanted in (
                ("4N/W", r"\frac{4N}{W}"), ("n > 1", "n > 1"), ("b1^t", "b_{1}^t"),
                ("2(W-1)/W * N", r"\frac{2(W-1)}{W} \cdot N"),
                ("n(2P − R)(S - 1)/S", r"\frac{n(2P - R)(S - 1)}{S}"),
                ("12 (R - u) / 4W", r"\frac{12 (R - u)}{4W}"),
                ("4(u + max(R, u))/S", r"\frac{4(u + \max(R, u))}{S}"),
                ("S * ⌈u/S⌉", r"S \cdot \lceil \frac{u}{S} \rceil"),
                ("x / (sqrt(v / (1 - b)) + eps)",
                 r"\frac{x}{\sqrt{\frac{v}{1 - b}} + \text{eps}}"),
                ("time = (W - 1) * (α + shard bytes / b)", r"\text{time} = (W - 1) \cdot "
                 r"\left(\alpha + \frac{\text{shard bytes}}{b}\right)"),
                ("R + max over i of u(i)", r"R + \text{max over}\; i \;\text{of}\; u(i)")):
            self.assertEqual(" ".join(site_formulas.tex(text).split()), wanted)
        self.assertEqual(site_formulas.cell(" n > 1 "), "{math}`n > 1`")
        self.assertEqual(site_formulas.block(["p = 1 / m    of the time", "", "q = p"]),
                         "```{math}\np = \\frac{1}{m} \\qquad \\text{of the time}\n```\n\n"
                         "```{math}\nq = p\n```")

    def test_what_is_none(self):
        for text in ("DDP", "ZeRO-3", "AG 1", "h.0", "1,398,101", "2, 4, 8", "48 · 203 MB", "1F1B",
                     "all-gather", "shard bytes / b", "16", "", "Do", "4 * (N", "80G",
                     "P/S, or nP/S"):
            self.assertIsNone(site_formulas.cell(text), text)
        for line in ("make grade TASK=4", "make plan MODEL=gpt2-xl GPUS=1024", "a b c d",
                     "SIMGPU_DRY=1 ./program", "x = f(y);", "gcc libc6-dev make", "p0 = 0xD2 * x0",
                     "python3 -B grader/plan.py", "if (a == b) return a / b;"):
            self.assertIsNone(site_formulas.block([line]), line)
        self.assertIsNone(site_formulas.block(["a = 1", "while a divides, and a / 2 does not"]))


class Pages(TempFolder):
    def stage(self, **options):
        out = self.path("src")
        return out, site_pages.stage(ROOT, out, **options)

    def test_every_page_is_there(self):
        wanted = {os.path.relpath(path, ROOT) for pattern in (
            "README.md", "handouts/*.md", "labs/*/handout.md", "simgpu/README.md",
            "simgpu/pages/*.md") for path in glob.glob(os.path.join(ROOT, pattern))}
        out, staged = self.stage(staff=True)
        self.assertEqual(set(staged), wanted | {"figures/%s.md" % name for name in
                                                ("memory", "timeline", "ring")})
        self.assertEqual(len(staged), len(set(staged)))
        index = site_pages.read(os.path.join(out, "index.md"))
        for page in staged:
            self.assertIn(page[:-3], index)

    def test_what_is_hidden(self):
        out, staged = self.stage()
        for page in release.FOR_STAFF + release.ONE_FILE[:1]:
            self.assertNotIn(page, staged)
            self.assertFalse(os.path.exists(os.path.join(out, page)))
        self.assertNotIn("For course staff", site_pages.read(os.path.join(out, "index.md")))
        secrets = site_pages.release.Secrets(ROOT) if REFERENCE else None
        for page in staged:
            text = site_pages.read(os.path.join(out, page))
            self.assertNotRegex(text, r"\]\([^)]*(interview_answers|instructors|one_file)\.md")
            if secrets:
                self.assertEqual(secrets.leaks(text.encode()), [], page)

    def test_links_lead_somewhere(self):
        for options in ({}, {"staff": True}, {"repository": "https://example.org/kit"}):
            out, staged = self.stage(**options)
            paths = [os.path.join(out, page) for page in staged + ["index.md"]]
            self.assertEqual(links.problems(paths), [])

    def test_what_becomes_of_a_link(self):
        staged = ["a/one.md", "two.md"]
        text = ("[x](../two.md#y) [the\nlicense](../LICENSE) `[c](../no.c)` [`d`](../b/d.c) "
                "[b/e.c](../b/e.c) [w](https://x.org) [z](#here)\n\n    [k](../LICENSE)\n\n"
                "```\n[f](../LICENSE)\n```\n")
        self.assertEqual(site_pages.rewritten("a/one.md", text, staged), text.replace(
            "[the\nlicense](../LICENSE)", "the\nlicense (`LICENSE`)").replace(
                "[`d`](../b/d.c)", "`d` (`b/d.c`)").replace("[b/e.c](../b/e.c)", "b/e.c"))
        there = site_pages.rewritten("a/one.md", text, staged, "https://h.org/kit/")
        self.assertIn("[`d`](https://h.org/kit/b/d.c)", there)
        self.assertIn("[x](../two.md#y)", there)

    def test_formulas_of_pages(self):
        out, _ = self.stage()
        for page, formula in (("handouts/3_forward.md", "time = (W - 1) * (α + shard bytes / b)"),
                              ("handouts/5_optimizer.md", "p = p - lr * (g + wd * p)"),
                              ("handouts/4_backward.md", "2(W-1)/W * N"),
                              ("labs/1_strategies/handout.md", "16P/S")):
            self.assertIn(site_formulas.tex(formula), site_pages.read(os.path.join(out, page)))
        for path in glob.glob(os.path.join(out, "**", "*.md"), recursive=True):
            for found in re.findall(r"\{math\}[`\n]([^`]*)`", site_pages.read(path)):
                self.assertNotRegex(found, r"\b(make|build|python3?|git|cc)\b|\.\w|_[a-z]{2}")

    def test_the_start_page_has_a_card_for_each(self):
        """With a command, and no second menu."""
        out, _ = self.stage()
        index = site_pages.read(os.path.join(out, "index.md"))
        for kind, word in ((manifest.TASK, "TASK"), (manifest.LAB, "LAB")):
            for task in manifest.load(ROOT, kind):
                self.assertIn("(%s)**" % task.handout, index)
                self.assertIn("\n    make grade %s=%d\n" % (word, task.number), index)
        self.assertEqual(index.count("{toctree}"), index.count(":hidden:"))

    def test_code_is_left_alone(self):
        """What is in blocks and spans of code is on the staged page as it was."""
        out, staged = self.stage()
        for page in staged:
            before = site_pages.pieces(site_pages.read(site_pages.source(ROOT, page)))
            after = site_pages.read(os.path.join(out, page))
            for kind, lines in before:
                if kind == "fence" or kind == "block" and not site_formulas.block(lines):
                    indent = "    " if kind == "block" else ""
                    text = "\n".join(indent + line if line else "" for line in lines)
                    self.assertIn(text.rstrip(), after, page)

    def test_a_figure_that_moves_is_named(self):
        out, _ = self.stage()
        for page in ("handouts/3_forward.md", "handouts/4_backward.md", "README.md"):
            text = site_pages.read(os.path.join(out, page))
            self.assertRegex(text, r"\(\S*figures/\w+\.md\)\.\*")


class Html(TempFolder):
    """What make check-site finds without a browser."""

    def test_links(self):
        self.write("a.html", '<a href="b.html#x">1</a><a href="b.html#y">2</a>'
                             '<a href="c.html">3</a><a href="https://x.org/">4</a>'
                              '<a href="#top">5</a>'
                             '<script src="https://x.org/s.js"></script><img src="no.svg">')
        self.write("b.html", '<h1 id="x">b</h1>')
        self.assertEqual(sorted(site_check.links(self.folder)), [
            "a.html: b.html#y: there is no such anchor", "a.html: c.html leads nowhere",
            "a.html: loads https://x.org/s.js from elsewhere", "a.html: no.svg leads nowhere"])


@unittest.skipUnless(REFERENCE, "the reference is not here")
class Figures(TempFolder):
    program = os.path.join(build_folder(), "impl", "reference", "bin", "plan")

    @classmethod
    def setUpClass(cls):
        make("reference")

    def setUp(self):
        super().setUp()
        self.planner = site_data.Planner(self.program, self.path("plans"))
        self.memory = site_data.Memory(ROOT)

    def test_memory_is_the_planner_s(self):
        """Each strategy in each precision, models and worlds drawn."""
        data, draw = self.memory.data, random.Random(8812)
        points = [site_data.Point(draw.randrange(len(data["models"])),
                                  draw.randrange(len(data["worlds"])), strategy, precision)
                  for strategy in range(len(data["strategies"]))
                  for precision in range(len(data["precisions"]))]
        plans = self.planner.all([(self.memory.settings(point), "JSON") for point in points])
        for point, plan in zip(points, plans):
            self.assertEqual(self.memory.values(point), site_data.measured(plan), point)
            units = plan["ranks"][0]["units"]
            names = self.memory.names(point)
            self.assertEqual(names["N"], plan["formulas"]["parameters"])
            if names["S"] > 1:
                self.assertEqual([units[0]["padded"], units[1]["padded"]], [names["Q"], names["U"]])

    def test_a_formula_that_is_wrong_is_found(self):
        point = site_data.Point(0, 2, 3, 0)
        plan = self.planner.ask(self.memory.settings(point), "JSON")
        self.memory.data["categories"][3]["zero3"] = "a * (Q + 3 * U)"
        self.assertNotEqual(self.memory.values(point), site_data.measured(plan))

    def test_timelines(self):
        grid = site_data.Grid(self.planner, (50,), (1024,), (1,))
        (cell,) = grid.cells().values()
        end = cell["step"] / site_data.TENTH
        for lane, kind, unit, begin, stop in cell["boxes"]:
            self.assertTrue(0 <= begin <= stop <= end + 1, (lane, kind, unit))
        named = {kind: [box[2] for box in cell["boxes"] if box[1] == kind] for kind in "AR"}
        blocks = ["h.%d" % i for i in range(site_data.MODEL["LAYERS"])]
        self.assertEqual(named["A"], ["root"] + blocks + blocks[::-1])
        self.assertEqual(named["R"], blocks[::-1] + ["root"])
        for kind in "FB":
            units = {box[2] for box in cell["boxes"] if box[1] == kind}
            self.assertEqual(units, set(blocks) | {"root"})
        text = grid.javascript()
        data = json.loads(text[text.index("timelineData = ") + 15:text.rindex(";")])
        self.assertEqual(data["cells"][0], json.loads(json.dumps(cell)))

    def test_an_answer_is_kept(self):
        settings = {"LAYERS": 2, "HEADS": 2, "DIM": 20, "VOCAB": 61, "SEQ": 16, "GPUS": 2}
        first = self.planner.ask(settings, "JSON")
        self.planner.run = None # nothing is asked again
        self.assertEqual(self.planner.ask(settings, "JSON"), first)

    def test_what_the_planner_refuses(self):
        with self.assertRaisesRegex(site_data.NoPlan, "GPUS=0: must be"):
            self.planner.ask({"GPUS": 0}, "JSON")

    def test_tables(self):
        text = site_build.memory_table(self.memory)
        self.assertEqual(len(re.findall(r"(?m)^\| (DDP|ZeRO)", text)), 12)
        self.assertIn("{math}`", site_build.memory_formulas(self.memory))
        self.assertIn("| 3 | rank 0: 0, 3, 2, 1; ", site_build.ring_table())


if __name__ == "__main__":
    unittest.main()
