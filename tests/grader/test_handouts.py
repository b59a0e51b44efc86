"""The handouts as chapters: what each has, that questions are answered where the pages say, and
that the numbers of figures and worked examples are those of the formulas. What is measured
(figures/memory.svg, figures/step.svg) is drawn again by test_documented.py."""

import glob
import math
import os
import re
import struct
import unittest

import helpers
import links
from helpers import ROOT
import manifest

HANDOUTS = os.path.join(ROOT, "handouts")
TASKS = manifest.load(ROOT)
CHAPTERS = [os.path.join(ROOT, task.handout) for task in TASKS]


def read(*parts):
    return helpers.read(HANDOUTS, *parts)


def page(name):
    """A page as one line, so that a sentence is found across the end of a line."""
    return " ".join(read(name).split())


def plain(n):
    return "{:,}".format(n)


class Gpt2:
    """GPT-2's numbers of parameters, counted from its shapes."""

    def __init__(self, vocab, tokens, layers, dim):
        self.wte, self.wpe = vocab * dim, tokens * dim
        self.root = self.wte + self.wpe + 2 * dim
        norms = 2 * (2 * dim)
        attention = 3 * dim * dim + 3 * dim + dim * dim + dim
        mlp = 4 * dim * dim + 4 * dim + 4 * dim * dim + dim
        self.block = norms + attention + mlp
        self.all = self.root + layers * self.block
        self.layers = layers


MEDIUM = Gpt2(50257, 1024, 24, 1024)
SMALL = Gpt2(256, 64, 2, 64)


def padded(numel, ranks):
    return -(-numel // ranks) * ranks


def hours(levels):
    """To plan for parts of these levels, and one hour for the page."""
    return math.ceil(1 + sum({"easy": 0.25, "medium": 0.5, "hard": 1}[level] for level in levels))


class Chapters(unittest.TestCase):
    def test_each_has_its_parts_in_order(self):
        numbered = sorted(glob.glob(os.path.join(HANDOUTS, "[0-9]*_*.md")))
        self.assertEqual(sorted(CHAPTERS + [os.path.join(HANDOUTS, "0_start.md")]), numbered)
        for path in CHAPTERS:
            text = read(os.path.basename(path))
            found = re.findall(r"(?m)^## (.*)$", text)
            with self.subTest(os.path.basename(path)):
                last = -1
                for name in ("The question", "The idea", "What to implement", "Worked example",
                             "You are done when", "Common mistakes", "Accounting",
                             "Further questions"):
                    at = [i for i, heading in enumerate(found) if heading.startswith(name)]
                    self.assertTrue(at, name)
                    self.assertGreater(at[0], last, name)
                    last = at[0]
                self.assertIn("What PyTorch does", found)
                self.assertIn("](figures/", text)
                self.assertRegex(text, r"`torch/[\w/]+\.(py|h)`")

    def test_points_are_those_of_the_tasks(self):
        overview = read("README.md")
        for task in TASKS:
            name, points = os.path.basename(task.handout), task.points
            self.assertRegex(read(name), r"(?m)^File: `skeleton/\w+\.c`\. %d points\b" % points)
            self.assertIn("Score: %d/%d (task %d only)" % (points, points, task.number),
                          page(name))
            self.assertRegex(overview, r"\(%s\) \| .* \| %d \|" % (re.escape(name), points))

    def test_a_chapter_is_read_in_one_sitting(self):
        for path in CHAPTERS:
            words = len(read(os.path.basename(path)).split())
            self.assertLess(words, 3200, os.path.basename(path))

    def test_says_the_hours_to_plan_and_what_one_can_do_then(self):
        for path in CHAPTERS:
            text = read(os.path.basename(path))
            levels = re.findall(r"(?m)^\| \d\.\d \| .+ \| (easy|medium|hard) \|$", text)
            opening = " ".join(text.split("\n\n")[1].split())
            self.assertIn("Plan %d hours. Afterwards you can" % hours(levels), opening, path)
            self.assertEqual(len(re.findall(r"\bhours?\b", text)), 1, path)


class Labs(unittest.TestCase):
    """What each lab's page has, as a chapter."""
    def pages(self):
        return [(lab, helpers.read(ROOT, lab.handout))
                for lab in manifest.load(ROOT, manifest.LAB)]

    def test_each_has_its_parts_in_order(self):
        for lab, text in self.pages():
            found = re.findall(r"(?m)^## (.*)$", text)
            wanted = ["The question", "What to implement", "You are done when", "Common mistakes",
                      "Accounting"]
            self.assertEqual([name for name in found if name in wanted], wanted, lab.name)
            self.assertIn("Score: 20/20", text)
            self.assertIn("| What you see | What to ask yourself |", text)
            self.assertIn("<details><summary>Answers</summary>", text)
            self.assertIn("*Your measurement.* `make quiz LAB=%d`" % lab.number, text)
            if lab.name != "checkpoints": # which has no stream
                self.assertRegex(text, r"(?m)^\| who \|.*stream.*\||^\| compute stream \|")
            self.assertLess(len(text.split()), 3300)
            self.assertLessEqual(len(text.splitlines()), 300)

    def test_the_table_of_parts_and_the_hours_to_plan(self):
        for lab, text in self.pages():
            rows = re.findall(r"(?m)^\| (L\d\.\d+) \| `(\w+)` \| .+ \| (easy|medium|hard) \|$",
                              text)
            whole = [part for part in lab.parts if manifest.whole(part) == part]
            self.assertEqual([part for part, _, _ in rows], sorted(
                whole, key=lambda part: int(part.partition(".")[2])))
            for part, function, _ in rows:
                self.assertIn(function, lab.functions[part])
            self.assertIn("Plan %d hours" % hours([level for _, _, level in rows]), text)

    def test_which_questions_it_answers(self):
        """Both pages say the same."""
        goals = read("learning_goals.md").split("## To answer")[1]
        for lab, text in self.pages():
            said = re.search(r"answers questions? ([\d, and]+) of", " ".join(text.split()[:120]))
            self.assertEqual(re.findall(r"\d+", said.group(1)), re.findall(
                r"(?m)^\| (\d+)\. .*%s" % re.escape(lab.handout), goals))


class Questions(unittest.TestCase):
    def rows(self, heading):
        text = read("learning_goals.md").split("## " + heading)[1].split("\n## ")[0]
        return [row.split(" | ") for row in re.findall(r"(?m)^\| (.*) \|$", text)][1:]

    def test_each_goal_and_question_has_a_place(self):
        goals, questions = self.rows("To do"), self.rows("To answer")
        self.assertEqual(len(goals), 7)
        self.assertEqual([row[0].split(".")[0] for row in questions],
                         [str(number) for number in range(1, 16)])
        for row in goals + questions:
            self.assertRegex(row[1], r"\]\([\w./]+\.md", row[0])

    def test_the_places_are_there(self):
        path = os.path.join(HANDOUTS, "learning_goals.md")
        self.assertGreater(len(links.of_page(read(path))), 25)
        self.assertEqual(links.problems([path]), [])

    def test_twenty_questions_and_their_answers(self):
        numbers = [str(number) for number in range(1, 21)]
        asked = re.findall(r"(?m)^(\d+)\. \*([^*]+)\.\* ", read("interview.md"))
        self.assertEqual([number for number, _ in asked], numbers)
        self.assertLessEqual({name for _, name in asked}, {"Start", "In PyTorch", "Outlook"} | {
            task.heading() for task in TASKS})
        answers = re.findall(r"(?m)^\| (\d+) \| .+ \| .+\? \(.+\) \|$",
                             read("interview_answers.md"))
        self.assertEqual(answers, numbers)


class Figures(unittest.TestCase):
    def figure(self, name):
        return read("figures", name + ".svg")

    def boxes(self, name, kind):
        """[(x, y, width, height, the text within)] of a figure's boxes of a kind."""
        form = (r'<rect class="%s" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" '
                r'height="([\d.]+)"[^>]*/>'
                r'(?:\n  <text [^>]*>([^<]*)</text>)?' % kind)
        found = [tuple(map(float, box[:4])) + (box[4],)
                 for box in re.findall(form, self.figure(name))]
        self.assertTrue(found, (name, kind))
        return found

    def test_counter(self):
        """Eleven elements: who makes which block, and whose slice is how long."""
        elements = self.boxes("counter", "element")
        self.assertEqual([box[4] for box in elements], [str(i) for i in range(11)])
        left, wide = elements[0][0], elements[0][2]
        places = re.findall(r'font-size="11">(\d)</text>', self.figure("counter"))
        self.assertEqual(places, [str(i % 4) for i in range(11)])
        want = []
        for ranks in (1, 2, 3):
            shard = padded(11, ranks) // ranks
            want += [(r, r * shard, min(11, (r + 1) * shard)) for r in range(ranks)]
        slices = self.boxes("counter", "slice")
        self.assertEqual([box[4] for box in slices], ["rank %d: [%d, %d)" % row for row in want])
        for box, (_, begin, end) in zip(slices, want):
            self.assertEqual((box[0], box[2]), (left + begin * wide, (end - begin) * wide))
        self.assertEqual((6 // 4, 6 % 4), (1, 2)) # the sentence below it
        self.assertIn("element 6 makes block 1 and takes place 2", self.figure("counter"))

    def test_stages(self):
        """The bars are as high as their bytes: 14 units of the drawing each."""
        ranks = 8
        want = [(4, 4, 8), (4, 4, 8 / ranks), (4, 4 / ranks, 8 / ranks),
                (4 / ranks, 4 / ranks, 8 / ranks)]
        for i, kind in enumerate(("parameters", "gradients", "moments")):
            heights = [box[3] for box in self.boxes("stages", kind)]
            self.assertEqual(heights, [14 * bar[i] for bar in want])
        sums = re.findall(r'font-size="14">([\d.]+)</text>', self.figure("stages"))
        self.assertEqual(sums, ["%g" % sum(bar) for bar in want])
        alt = "DDP %s, ZeRO-1 %s, ZeRO-2 %s, ZeRO-3 %s" % tuple(sums)
        self.assertIn(alt, page("4_backward.md"))
        self.assertIn(alt, self.figure("stages"))

    def test_norm(self):
        gradient = [int(box[4]) for box in self.boxes("norm", "gradient")]
        shards = [gradient[i:i + 4] for i in range(0, 12, 4)]
        squares = [sum(v * v for v in shard) for shard in shards]
        self.assertEqual([box[4] for box in self.boxes("norm", "squares")], list(map(str, squares)))
        self.assertIn("%d + %d + %d = %d on" % (*squares, sum(squares)), self.figure("norm"))
        self.assertEqual({box[4] for box in self.boxes("norm", "norm")},
                         {"norm %g" % math.sqrt(sum(squares))})
        roots = [math.sqrt(s) for s in squares]
        line = "%g + %g + %.3f = %.3f" % (*roots, sum(roots))
        self.assertIn(line, self.figure("norm"))
        self.assertIn("| 2 | 4 4 and padding 0 0 | %d | %.3f |" % (squares[2], roots[2]),
                      read("5_optimizer.md"))

    def test_units(self):
        for numel, texts in ((SMALL.block, ("figures/units.svg", "6_api.md")),
                             (SMALL.root, ("figures/units.svg", "6_api.md"))):
            for name in texts:
                for n in (numel, padded(numel, 3), padded(numel, 3) // 3):
                    self.assertIn(plain(n), read(name))
        shards = padded(SMALL.root, 3) // 3 + 2 * padded(SMALL.block, 3) // 3
        self.assertIn("%s elements per rank, %s in all" % (plain(shards), plain(SMALL.all)),
                      self.figure("units"))
        self.assertIn("16 x %s = %s bytes" % (plain(shards), plain(16 * shards)),
                      page("6_api.md"))

    def test_flat_parameter(self):
        """Ten elements on three ranks, as the page's table and figure have them."""
        sizes, offsets = (3, 4, 3), (0, 3, 7)
        self.assertEqual(offsets, tuple(sum(sizes[:i]) for i in range(3)))
        total, shard = padded(sum(sizes), 3), padded(sum(sizes), 3) // 3
        self.assertEqual((total, shard), (12, 4))
        for rank in range(3):
            begin, end = rank * shard, (rank + 1) * shard
            held = ["%s[%d,%d) at %d" % (name, max(begin - at, 0), min(end - at, n),
                                         max(at - begin, 0))
                    for name, at, n in zip("abc", offsets, sizes)
                    if max(begin, at) < min(end, at + n)]
            valid = max(0, min(10 - begin, shard))
            self.assertIn("| %d | [%d, %d) | %d | %s | %d |" % (
                rank, begin, end, valid, ", ".join(held), shard - valid), read("2_flat_param.md"))
        labels = re.findall(r">([^<>\n]+)</text>", self.figure("flat_parameter"))
        for text in ("a (3)", "b (4)", "c (3)"):
            self.assertTrue(any(text.split()[0] in label for label in labels), text)


class Numbers(unittest.TestCase):
    """Those of the worked examples, by the formulas of the pages."""

    def has(self, name, *texts):
        text = page(name)
        for wanted in texts:
            self.assertIn(wanted, text, name)

    def test_gpt2_medium(self):
        n, shard = MEDIUM.all, MEDIUM.all // 8
        self.assertEqual(n % 8, 0)
        self.assertEqual(n, 354823168)
        self.has("1_meta_init.md", "4 x %s = %s bytes" % (plain(n), plain(4 * n)),
                 plain(4 * n // 8), plain(8 * 4 * n))
        self.has("2_flat_param.md", "16N = %s bytes" % plain(16 * n), plain(shard),
                 *("| %s |" % plain(b * n // 8) for b in (4, 8, 16)))
        self.has("3_forward.md", plain(7 * shard * 4), plain(MEDIUM.block),
                 plain(7 * MEDIUM.block // 8 * 4), plain(4 * (MEDIUM.root + 2 * MEDIUM.block)))
        unsharded = 8 * (MEDIUM.root + 2 * MEDIUM.block)
        self.has("4_backward.md", plain(3 * 7 * n // 8 * 4), plain(2 * 7 * n // 8 * 4),
                 plain((3 * n - MEDIUM.root) * 7 // 8 * 4), plain(unsharded),
                 plain(16 * n // 8 + unsharded))
        self.has("5_optimizer.md", plain(8 * n), plain(7 * 4 * shard))
        self.has("6_api.md", plain(16 * n // 8 + 8 * n), plain(MEDIUM.wte), plain(4 * MEDIUM.wte))

    def test_philox_and_box_muller(self):
        """The worked example of task 1: counter 0, key 0."""
        x, key = [0, 0, 0, 0], [0, 0]
        for _ in range(10):
            p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
            x = [p1 >> 32 ^ x[1] ^ key[0], p1 & 0xffffffff, p0 >> 32 ^ x[3] ^ key[1],
                 p0 & 0xffffffff]
            key = [(key[0] + 0x9E3779B9) % 2 ** 32, (key[1] + 0xBB67AE85) % 2 ** 32]
        self.has("1_meta_init.md", "gives " + " ".join("%08x" % word for word in x))
        normals = []
        for a, b in (x[:2], x[2:]):
            u, phi = (a + 1) / 2 ** 32, 2 * math.pi * b / 2 ** 32
            r = math.sqrt(-2 * math.log(u))
            normals += [r * math.cos(phi), r * math.sin(phi)]
            if len(normals) == 2:
                self.has("1_meta_init.md", "u = %.6f, phi = %.6f, r = %.6f" % (u, phi, r))
        self.has("1_meta_init.md", "%.6f (the cosine) and %.6f (the sine)" % tuple(normals[:2]),
                 "make %.6f and %.6f" % tuple(normals[2:]))

    def test_what_an_all_gather_costs(self):
        latency, bandwidth, ranks = 5e-6, 100e9, 8
        block, bias = 4 * MEDIUM.block, 4 * 1024

        def row(size, messages):
            alone = messages * (ranks - 1) * latency * 1e6
            moving = (ranks - 1) / ranks * size / bandwidth * 1e6
            return "%.0f µs | %s µs | %.0f µs" % (
                alone, "%.0f" % moving if moving > 1 else "%.2f" % moving, alone + moving)
        self.has("3_forward.md", "%s bytes, at once | %s" % (plain(block), row(block, 1)),
                 "one of its biases, %s bytes | %s" % (plain(bias), row(bias, 1)),
                 "12 parameters, one by one | %s" % row(block, 12),
                 "%.1f ms on 1,024 ranks" % (1023 * latency * 1e3))
        self.has("interview_answers.md", row(block, 1).split("| ")[2],
                 row(block, 12).split("| ")[2])
        # Tokens with which an all-gather hides: 2 F/b (W-1)/W.
        self.has("3_forward.md", "is %s tokens" % plain(round(2 * 100e12 / 100e9 * 7 / 8)))

    def test_reduce_scatter_and_all_reduce(self):
        size = padded(10, 3)
        self.has("4_backward.md", "2 * 2/3 * 12 = %d | 12 |" % (2 * 2 * size // 3),
                 "2/3 * 12 = %d | %d |" % (2 * size // 3, size // 3))

    def test_sums_and_averages(self):
        """The worked example of the backward."""
        ranks = [[r * (i + 1) if i < 10 else 0 for i in range(12)] for r in (1, 2, 3)]
        sums = [sum(column) for column in zip(*ranks)]
        for name, row in [("sum", sums), ("average", [s // 3 for s in sums])]:
            text = re.search(r"(?m)^    %s +([\d |]+)$" % name, read("4_backward.md")).group(1)
            self.assertEqual([int(word) for word in text.replace("|", " ").split()], row)

    def test_adamw(self):
        p, m, v = 1.0, 0.0, 0.0
        for t, g in ((1, 0.5), (2, -0.5)):
            decayed = p - 0.1 * 0.5 * p
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
            mean, square = m / (1 - 0.9 ** t), v / (1 - 0.95 ** t)
            p = decayed - 0.1 * mean / math.sqrt(square)
            row = "| %d | %g | %g | %g | %g | %g | %g | %g |" % (
                t, g, decayed, m, v, round(mean, 6), round(square, 6), round(p, 6))
            self.assertIn(row, read("5_optimizer.md"))

    def test_rounding_to_bf16(self):
        """The master copy's example: float's bits, cut to bf16's 16."""
        def bits(x):
            return struct.unpack("I", struct.pack("f", x))[0]
        after_one = struct.unpack("f", struct.pack("I", bits(1.0) + (1 << 16)))[0]
        self.assertEqual(after_one, 1.0078125)
        self.assertLess(0.001, (after_one - 1) / 2) # so 1.001 is rounded to 1
        self.has("outlook.md", "the next number after 1 is %s." % after_one)

    def test_bubbles(self):
        for stages in (4, 8):
            cells = ["%d/%d = %.0f %%" % (stages - 1, m + stages - 1,
                                          100 * (stages - 1) / (m + stages - 1)) for m in (4, 16)]
            self.has("outlook.md", "| P = %d | %s | %s |" % (stages, *cells))
        first = next(m for m in range(1, 100) if 7 / (m + 7) < 0.1)
        self.has("outlook.md", "(%d: 7/%d.)" % (first, first + 7))

    def test_padding_of_rows(self):
        rows = padded(1000, 512) - 1000
        self.has("2_flat_param.md", "(%d of %s rows, %.1f %%" % (
            rows, plain(padded(1000, 512)), 100 * rows / padded(1000, 512)))


if __name__ == "__main__":
    unittest.main()
