"""The results page: hostile texts stay texts, nothing comes from outside, every status is told.

A page is taken apart by html.parser, and what is compared is its structure: with hostile texts in
every field it must be the same, element by element and attribute by attribute, as with plain ones.
"""

import base64
import hashlib
import json
import os
import re
import unittest
from html.parser import HTMLParser

from helpers import FakeKit, TempFolder, program, run
import page
import plot
import timeline
import trace
from page_style import STYLE

HOSTILE = ('"\'></pre></td></table><script>alert(1)</script><img src=http://evil.example/x '
           'onerror=alert(1)><style>*{}</style>&lt;b&gt;\x1b[2J\x00\ud800 <!-- ]]> %s %d {}')
PLAIN = "plain words"
VOID = ("meta", "br")
WORDS = {"passed": "passed", "failed": "failed", "error": "error", "timeout": "time-out",
         "skipped": "skipped", "infrastructure": "no verdict"}
STATUSES = tuple(WORDS)


class Structure(HTMLParser):
    """Every element with its attributes, and the text; notes what is not closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.wrong, self.text = [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, tuple(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += data


def report(word):
    return {"class": word, "title": word, "rank": 1, "device": 0, "pid": 7, "follows": False,
            "calls": [{"call": word, "file": word, "line": 3, "function": word, "stream": word,
                       "rank": 1}],
            "ranges": [{"allocation": word, "where": word, "begin": 0, "end": 16}],
            "hardware": word, "question": word, "read": word, "text": word}


def document(word, status="failed", message=None):
    return {"status": "graded", "message": word, "impl": word, "backend": word, "devices": word,
            "seed": word, "seconds": 1.5, "version": word,
            "files": [{"task": 1, "file": word, "source_sha256": word, "object_sha256": word}],
            "tests": [{"name": word, "task": 1, "title": word, "status": status, "score": 0,
                       "max_score": 2, "message": word if message is None else message,
                       "hint": word, "more": [word, word], "section": word, "handout": word,
                       "seconds": 0.1, "reports": [report(word)]}]}


def small_trace(leak=0):
    """A world of two, two blocks and a root, two steps; `leak`: bytes a step leaves behind."""
    made = trace.Trace(2, 2, [trace.Unit("h.0", 7, 8), trace.Unit("h.1", 7, 8),
                              trace.Unit("root", 3, 4)])
    kept = made.theory_kept()
    for rank in range(2):
        for step in range(2):
            at = 700 * step # a step begins
            rows = [("r", 0, 0, -1, 0, 0, 0, 0), ("w", 1, 0, -1, 0, 0, 0, 0),
                    ("+", 1, 1, 0, 32, 0, at, at), ("c", 1, 0, 0, 32, 16, at, at + 100), ("F", 2),
                    ("F", 0), ("k", 0, 0, -1, 3, 0, at + 100, at + 400), ("f", 0), ("f", 2),
                    ("B", 2), ("B", 0), ("+", 0, 2, 0, 32, 0, at + 400, at + 400),
                    ("k", 0, 0, -1, 2, 0, at + 400, at + 500),
                    ("c", 2, 1, 0, 32, 16, at + 480, at + 580),
                    ("-", 0, 2, 0, 32, 0, at + 580, at + 580), ("b", 0), ("b", 2),
                    ("-", 1, 1, 0, 32, 0, at + 580, at + 580),
                    ("+", 0, 3, -1, leak, 0, at + 590, at + 590), ("O", -1),
                    ("k", 0, 0, -1, 1, 0, at + 600, at + 700), ("o", -1)]
            made.table[rank, step] = trace.Step([kept + leak * step, kept + leak * (step + 1)],
                                                kept + leak * step + max(leak, 64), rows)
    return made


class Pages(unittest.TestCase):
    def page(self, *arguments, **more):
        text = page.make(*arguments, **more)
        made = Structure(text)
        self.assertEqual((made.wrong, made.open), ([], []), "elements do not close in order")
        self.assertTrue(text.startswith("<!DOCTYPE html>\n"))
        return made

    # ---- Hostile texts ----

    def test_hostile_texts_change_no_element_and_no_attribute(self):
        for status in STATUSES:
            plain = self.page(document(PLAIN, status), trace.Outcome(why=PLAIN), PLAIN,
                              {1: PLAIN})
            wild = self.page(document(HOSTILE, status), trace.Outcome(why=HOSTILE), HOSTILE,
                             {1: HOSTILE})
            self.assertEqual(wild.elements, plain.elements, status)
            self.assertIn("<script>alert(1)</script>", wild.text)
            self.assertNotIn("\x1b", wild.text)
            self.assertNotIn("\x00", wild.text)

    def test_hostile_file_names_stay_text(self):
        names = [HOSTILE] * 2
        plain = self.page(document(PLAIN), trace.Outcome(small_trace(), None, [PLAIN] * 2,
                                                         [PLAIN] * 2))
        wild = self.page(document(PLAIN), trace.Outcome(small_trace(), None, names, names))
        self.assertEqual(wild.elements, plain.elements)

    def test_odd_kinds_in_every_field_make_a_page(self):
        for odd in (None, 7, -1e308, float("nan"), True, [], {}, [[]], "x" * 100000):
            test = {name: odd for name in document(PLAIN)["tests"][0]}
            test["name"] = "named"
            value = {name: odd for name in document(PLAIN)}
            self.page(value)
            self.page(dict(value, tests=[test, odd]))
            self.page(dict(document(PLAIN), tests=[dict(test, reports=[odd, {"class": odd}])]))

    # ---- Alone ----

    def test_nothing_comes_from_outside_and_no_script_runs(self):
        outcome = trace.Outcome(small_trace(), small_trace(), ["a.c"], ["b.c"])
        made = self.page(document(PLAIN), outcome, "now", {1: "One"})
        for tag, attributes in made.elements:
            self.assertNotIn(tag, ("script", "link", "img", "iframe", "object", "base", "form"))
            for name, value in attributes:
                self.assertNotIn(name, ("src", "style", "srcset", "action", "data"))
                self.assertFalse(name.startswith("on"), name)
                if name == "href":
                    self.assertRegex(value, r"^#[\w-]+$")
        self.assertIsNone(re.search(r"url\(|@import", STYLE))

    def test_the_policy_allows_the_style_sheet_alone(self):
        text = page.make(document(HOSTILE))
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)
        style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
        total = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self.assertEqual(policy.split("; ")[:2], ["default-src 'none'",
                                                  "style-src 'sha256-%s'" % total])

    def test_every_link_leads_somewhere_once(self):
        made = self.page(document(PLAIN), trace.Outcome(small_trace()), "now")
        ids = [value for _, attributes in made.elements for name, value in attributes
               if name == "id"]
        links = [value[1:] for _, attributes in made.elements for name, value in attributes
                 if name == "href"]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(set(links) - set(ids), set())

    # ---- What is told ----

    def test_every_status_is_a_word(self):
        for status in STATUSES:
            made = self.page(document(PLAIN, status))
            self.assertIn(WORDS[status], made.text)
            self.assertEqual(sum(("class", "status " + status) in attributes
                                 for _, attributes in made.elements), 1)

    def test_points_come_with_a_pass_alone(self):
        value = document(PLAIN)
        value["tests"].append(dict(value["tests"][0], status="passed", score=2, task=2))
        value["tests"].append(dict(value["tests"][0], status="failed", score=2, task=2))
        self.assertIn("ShardLab: 2/6 points", self.page(value).text)

    def test_messages_causes_and_hints(self):
        message = "rank 1: got 3, want 4\nLikely cause: nobody divides\n   by W\nlast words"
        value = document("hint words", message=message)
        value["tests"][0].update(hint="first?", more=["second?", "third!"])
        made = self.page(value)
        text = page.make(value)
        self.assertIn('<p class="cause">Likely cause: nobody divides\n   by W</p>', text)
        self.assertIn("<pre>rank 1: got 3, want 4</pre>", text)
        self.assertIn("<pre>last words</pre>", text)
        folded = re.search(r"<summary>Hint 1</summary><p>first\?</p><details><summary>Hint 2"
                           r"</summary><p>second\?</p><details><summary>Hint 3</summary>"
                           r"<p>third!</p></details></details></details>", text)
        self.assertTrue(folded, "each hint is folded into the one before it")
        self.assertEqual(made.wrong, [])

    def test_reports_are_told_in_full(self):
        text = self.page(document("W0RD")).text
        for words in ("rank 1: W0RD at W0RD:3 in W0RD on W0RD",
                      "bytes 0 to 15 of W0RD allocated at W0RD", "Ask yourself: W0RD",
                      "Read: W0RD", "As simgpu printed it"):
            self.assertIn(words, text)

    def test_a_part_not_written_is_the_next_step(self):
        value = document(PLAIN, message="skeleton/one.c:7: part 1.2 of walk is not written yet "
                                        "(NOT_YET)")
        value["impl"], value["backend"] = "skeleton", "simgpu"
        text = self.page(value).text
        self.assertIn("Write part 1.2, at skeleton/one.c:7.", text)
        self.assertIn("then make grade TASK=1.", text)
        self.assertIn("○ todo", text) # as on the terminal, and no failure
        self.assertNotIn("✗", text)
        value["impl"], value["backend"] = "../mine", "emulated-cuda"
        self.assertIn("make grade TASK=1 BACKEND=emulated-cuda IMPL=../mine.",
                      self.page(value).text)

    def test_what_several_tests_say_is_told_once_and_without_hints(self):
        value = document(PLAIN, "error", "one.c does not compile. one.c:3: no semicolon")
        value["tests"] = [dict(value["tests"][0], name=name) for name in ("a", "b", "c")]
        text = self.page(value).text
        self.assertIn("The same for b, c.", text)
        self.assertNotIn("Hint 2", text)
        # Once with the tests, and once in what to do next.
        self.assertEqual(text.count("no semicolon"), 1 + ("no semicolon" in text.split("Tasks")[0]))

    def test_all_passed(self):
        text = self.page(document(PLAIN, "passed")).text
        self.assertIn("All tests pass.", text)
        self.assertIn("All 1 tests pass", text)
        self.assertIn('class="next done"', page.make(document(PLAIN, "passed")))

    def test_what_is_left_out_is_no_next_step(self):
        text = self.page(document(PLAIN, "skipped", "left out from W = 2 on: 1 GPU here")).text
        self.assertRegex(text, r"All tests pass that can run here\. 1 test of \d+ points is left "
                               r"out: 1 GPU here")

    def test_hidden_tests_tell_points_and_nothing_else(self):
        value = document("seen")
        value["tests"].append(dict(document("S3CRET")["tests"][0], hidden=True))
        text = self.page(value).text
        self.assertNotIn("S3CRET", text)
        self.assertIn("hidden tests", text)
        self.assertIn("S3CRET", self.page(value, staff=True).text)

    def test_a_grading_that_failed_has_no_score(self):
        text = self.page(dict(document(PLAIN), status="infrastructure", message="no make")).text
        self.assertIn("ShardLab: no score", text)
        self.assertIn("The grading itself failed, not your code.", text)
        self.assertIn("no make", text)

    def test_what_is_no_document_says_so(self):
        for value in (None, [], 3, "x", {}, {"tests": {}}):
            self.assertIn("ShardLab: no score", self.page(value).text)

    # ---- Plots ----

    def test_without_a_trace_the_reason_stands_and_the_reference_is_drawn(self):
        made = self.page(document(PLAIN), trace.Outcome(None, small_trace(), ["a.c"], [],
                                                        "It crashed.\nat once"))
        self.assertIn("It crashed.", made.text)
        self.assertIn("The plots show only the reference.", made.text)
        self.assertEqual(sum(tag == "svg" for tag, _ in made.elements), 4)
        made = self.page(document(PLAIN), trace.Outcome(why="It crashed."))
        self.assertEqual(sum(tag == "svg" for tag, _ in made.elements), 0)
        self.assertEqual(sum(tag == "svg" for tag, _ in self.page(document(PLAIN)).elements), 0)

    def test_whose_files_ran(self):
        text = self.page(document(PLAIN), trace.Outcome(small_trace(), None, ["a.c", "b.c"],
                                                        ["c.c"])).text
        self.assertIn("a.c and b.c are yours; c.c is the reference’s.", text)
        self.assertIn("17 parameters in 3 units; with padding 20", text)

    def test_what_was_sent_stands_in_a_table(self):
        text = page.make(document(PLAIN), trace.Outcome(small_trace(), small_trace()))
        self.assertIn('<th scope="row">all-gather</th><td class="number">1</td>'
                      '<td class="number">16</td><td class="number">1</td>', text)


class Plots(unittest.TestCase):
    def draw(self, leak=0, reference=True):
        other = small_trace() if reference else None
        shown = small_trace(leak)
        return [plot.memory(shown, other), plot.peaks(shown, other), plot.traffic(shown, other),
                timeline.draw(shown, other)]

    def test_everything_lies_within_the_drawing(self):
        for leak in (0, 1000, 10 ** 9):
            for drawing in self.draw(leak):
                width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"',
                                                     drawing).groups())
                for x, y in re.findall(r'[ML](-?[\d.]+) (-?[\d.]+)', drawing):
                    self.assertTrue(0 <= float(x) <= width and 0 <= float(y) <= height, (x, y))
                for name, value in re.findall(r' (x|y|x1|x2|y1|y2|width|height)="([^"]*)"',
                                              drawing):
                    self.assertTrue(0 <= float(value) <= max(width, height), (name, value))

    def test_the_reference_is_a_line_of_its_own(self):
        for drawing in self.draw()[:2]:
            self.assertRegex(drawing, r'class="line-ref"><title>the reference')
        for drawing in self.draw(reference=False)[:2]:
            self.assertNotIn('class="line-ref"', drawing)

    def test_corners_on_a_straight_line_are_left_out_and_no_other(self):
        self.assertEqual(plot.corners([(0, 1), (1, 1), (2, 1), (2, 3), (2, 5), (3, 6)]),
                         [(0, 1), (2, 1), (2, 5), (3, 6)])
        spike = [(0, 1), (1, 1), (1, 9), (1, 1), (2, 1)]
        self.assertEqual(plot.corners(spike), spike)

    def test_figures_can_be_pointed_at(self):
        memory, peaks, traffic, steps = self.draw(leak=10)
        kept = small_trace().theory_kept()
        self.assertIn("16 · padded / W = %d bytes" % kept, memory)
        self.assertIn("forward of h.0: at most %d bytes" % (kept + 10 + 32), memory)
        self.assertIn("rank 1, step 2, unsharded gradients: 32 bytes of %d bytes" % (kept + 74),
                      peaks)
        self.assertIn("3 · (W-1)/W · padded = %d bytes" % small_trace().theory_sent(3), traffic)
        self.assertIn("yours: all-gather in 1 calls, 16 bytes", traffic)
        self.assertIn("all-gather h.0: 16 bytes sent, 0.1 µs", steps)
        self.assertIn("forward of h.0: 3 kernels and copies, 0.3 µs", steps)
        self.assertIn("backward of h.0: 2 kernels and copies, 0.1 µs", steps)
        self.assertIn("optimizer: 1 kernels and copies, 0.1 µs", steps)

    def test_each_drawing_has_a_title_and_a_description(self):
        for drawing in self.draw():
            self.assertRegex(drawing, r'^<svg [^>]*role="img"[^>]*>\n<title>[^<]+</title>\n'
                                      r'<desc>[^<]+</desc>')

    def test_marks_in_any_order_are_drawn(self):
        shown = small_trace()
        for rows in ([], [("o", -1), ("b", 0), ("f", 1), ("B", 2)], [("O", -1)], [("f", -1)] * 3,
                     [("F", 0)] * 3 + [("c", 3, 6, -1, 0, 0, 5, 9)],
                     [("k", 3, 0, -1, 1, 0, 0, 1)]):
            for place in shown.table:
                shown.table[place] = trace.Step([0, 0], 0, rows)
            for made in (plot.memory(shown, small_trace()), plot.memory(small_trace(), shown),
                         plot.peaks(shown), plot.traffic(shown),
                         timeline.draw(shown, small_trace())):
                self.assertNotIn("nan", made)
                self.assertEqual(Structure(made).open, [])


class Times(unittest.TestCase):
    def test_what_is_hidden_is_what_lies_beside_kernels(self):
        cost = timeline.schedule(small_trace())
        # Kernels 100-500 and 600-700; an all-gather 0-100, a reduce-scatter 480-580.
        self.assertEqual((cost.step, cost.compute, cost.communication, cost.exposed),
                         (700, 500, 200, 180))
        self.assertAlmostEqual(cost.hidden(), 0.1)
        self.assertEqual(timeline.words(cost), "0.7 µs per step, 10 % of communication hidden, "
                                               "bound by compute")

    def test_intervals(self):
        self.assertEqual(timeline.union([(5, 7), (1, 3), (2, 4), (7, 8), (9, 9)]),
                         [[1, 4], [5, 8]])
        self.assertEqual(timeline.overlap([[0, 10], [20, 30]], [[5, 25], [29, 40]]), 5 + 5 + 1)

    def test_collectives_at_the_same_time_count_once(self):
        shown = small_trace()
        shown.table[0, 1].rows.append(("c", 3, 0, 0, 8, 8, 1180, 1200))
        self.assertEqual(timeline.schedule(shown).communication, 200)

    def test_what_bounds_a_step(self):
        self.assertEqual(timeline.Schedule(100, 90, 50, 10).bound(), "bound by compute")
        self.assertEqual(timeline.Schedule(100, 30, 50, 45).bound(),
                         "bound by exposed communication")
        self.assertEqual(timeline.Schedule(100, 30, 50, 20).bound(),
                         "bound by waits between the kernels")
        self.assertEqual(timeline.Schedule(100, 99, 0, 0).hidden(), 1)

    def test_without_times_there_is_no_timeline(self):
        shown = small_trace()
        for place in shown.table:
            step = shown.table[place]
            shown.table[place] = trace.Step(step.live, step.peak, [
                row if len(row) == 2 else row[:6] + (0, 0) for row in step.rows])
        self.assertIsNone(timeline.schedule(shown))
        self.assertNotIn("in time", page.make(document(PLAIN), trace.Outcome(shown)))
        self.assertIn("One step in time", page.make(document(PLAIN), trace.Outcome(small_trace())))


class CommandLine(TempFolder):
    def run_page(self, *arguments):
        return run(program("page.py", *arguments))

    def test_a_page_of_results(self):
        self.write("results.json", json.dumps(document(HOSTILE)))
        done = self.run_page(self.path("results.json"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(Structure(done.stdout).open, [])

    def test_what_cannot_be_read_is_one_line(self):
        self.write("bad.json", "{")
        self.write("good.json", json.dumps(document(PLAIN)))
        self.write("trace.txt", "TRACE {}\n")
        for arguments in (["bad.json"], ["nowhere.json"], ["good.json", "--trace", "trace.txt"]):
            done = self.run_page(*[self.path(word) if "." in word else word
                                   for word in arguments])
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"^page: [^\n]+\n$")


class Graded(FakeKit):
    """The grader with --html, in a kit whose training cannot be linked."""

    def test_the_page_is_named_in_the_last_line_but_one(self):
        status, out, tests, _ = self.grade("--html", self.path("out", "page.html"))
        self.assertEqual(status, 0)
        self.assertEqual(out.splitlines()[-2:], ["Page:  out/page.html", "Score: 100/100"])
        made = Structure(self.read("out/page.html"))
        self.assertIn("ShardLab: 100/100 points", made.text)
        self.assertIn("Task 2: Two", made.text)
        self.assertIn("The training cannot be linked with your files.", made.text)
        self.assertEqual([test["status"] for test in tests.values()], ["passed"] * 5)

    def test_without_it_there_is_none(self):
        _, out, _, _ = self.grade()
        self.assertNotIn("Page:", out)
        self.assertEqual([name for name in os.listdir(self.path("out"))
                          if name.endswith(".html")], [])

    def test_no_page_of_an_earlier_grading_stays(self):
        self.write("grader/page.py", "def write(*arguments): raise OSError('no room')\n")
        self.write("out/page.html", "old")
        status, out, _, document_ = self.grade("--html", self.path("out", "page.html"))
        self.assertEqual((status, out.splitlines()[-1]), (0, "Score: 100/100"))
        self.assertEqual(document_["status"], "graded")
        self.assertIn("page.html was not written: no room", self.err)
        self.assertNotIn("Page:", out)
        self.assertFalse(os.path.exists(self.path("out", "page.html")))

    def test_a_folder_in_its_place_is_refused(self):
        os.makedirs(self.path("out", "page.html"))
        status, out, _, _ = self.grade("--html", self.path("out", "page.html"))
        self.assertEqual((status, out), (2, ""))
        self.assertIn("the page cannot be written", self.err)


if __name__ == "__main__":
    unittest.main()
