"""Where every test goes: each test file is in one tier, and the tiers are what is run
(tests/tiers.txt, grader/devtools/tiers.py, run_tests.py)."""

import contextlib
import io
import re
import unittest

from helpers import ROOT, TempFolder, outside_make, read, run

import run_tests
import test_all
import tiers

TEXT = '''
test  tests/a/*.c
long  tests/a/slow.c          # it is slow
more  tests/a/one.c TIMES=9   # nine times
wait  tests/a/one.c           # it sleeps
part  tests/b/*.c             # test_x runs them
'''


class List(unittest.TestCase):
    FILES = ["tests/a/one.c", "tests/a/slow.c", "tests/b/x.c"]

    def said(self, text, files=None):
        return tiers.problems(tiers.parse(text), files or self.FILES, lambda file: ["Other"])

    def test_a_name_comes_before_a_pattern(self):
        known = tiers.parse(TEXT)
        self.assertEqual([known.of(file) for file in self.FILES], ["test", "long", "part"])
        self.assertEqual(known.more("tests/a/one.c"), [{"TIMES": "9"}])
        self.assertEqual([known.waits(file) for file in self.FILES], [True, False, False])
        self.assertEqual(self.said(TEXT), [])

    def test_what_is_wrong_is_said(self):
        for text, words in (
                (TEXT.replace("part", "#"), "tests/b/x.c has no tier"),
                (TEXT + "long tests/a/slow.c # twice\n", "tests/a/slow.c has more than one tier"),
                (TEXT + "long tests/*/x.c # two patterns\n", "tests/b/x.c has more than one tier"),
                (TEXT + "long tests/a/gone.c # once\n", "there is no tests/a/gone.c"),
                (TEXT.replace("# it is slow", ""), "give a reason"),
                (TEXT.replace("a/one.c TIMES", "a/slow.c TIMES"), "`more` is for what"),
                (TEXT + "wait tests/a/slow.c # long\n", "`wait` is for what"),
                (TEXT + "draw tests/a/one.c 2\n", "give a reason"),
                (TEXT + "draw tests/a/one.c 2 Other Some # two\n", "one.c has no class Some")):
            found = self.said(text)
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])

    def test_lines_that_make_no_sense(self):
        for line in ("soon tests/a.c", "test", "more tests/a.c # why", "test tests/a.c X=1",
                     "more tests/a.c nine # why", "wait tests/a.c X=1 # why", "test tests/a.c 3",
                     "draw tests/a.c # why", "draw tests/a.c 1 # why", "draw tests/a.c x # why",
                     "draw tests/a.c 0 # why", "draw tests/a.c X=1 # why"):
            with self.assertRaisesRegex(tiers.BadList, "line 1: "):
                tiers.parse(line)

    def test_a_draw_is_the_seeds_and_each_test_comes_up(self):
        names = ["c", "a", "b", "e", "d"]
        for share, count in ((1, 5), (2, 3), (3, 2), (5, 1), (9, 1)):
            draw, came = tiers.Draw(share), set()
            for seed in range(100):
                chosen = draw.of(names, seed, "one.c")
                self.assertEqual(len(chosen), count)
                self.assertEqual(chosen, [name for name in names if name in chosen])
                self.assertEqual(chosen, draw.of(names, seed, "one.c"))
                came.update(chosen)
            self.assertEqual(came, set(names))
        files = [str(number) for number in range(20)]
        self.assertGreater(len({tuple(tiers.Draw(2).of(names, 1, file)) for file in files}), 1)

    def test_what_is_of_other_classes_is_not_drawn(self):
        names = ["One.a", "Two.a", "One.b", "Onely.a", "One.c", "Two.b", "One.d"]
        draw = tiers.parse("draw tests/a.py 2 One Three # slow").draw("tests/a.py")
        for seed in range(20):
            chosen = draw.of(names, seed, "a.py")
            self.assertEqual([name for name in chosen if not name.startswith("One.")],
                             ["Two.a", "Onely.a", "Two.b"])
            self.assertEqual(len(chosen), 5)
        self.assertEqual(draw.of(["Two.a"], 1, "a.py"), ["Two.a"])

    def test_the_file_that_a_suite_is_made_of(self):
        for suite, file in (("build/simgpu/tests/race", "simgpu/tests/race.c"),
                            ("build/cuda/tests/nn/gpt2", "tests/nn/gpt2.c"),
                            ("/x/build/impl/reference/suite/api", "tasks/6_api/tests.c"),
                            ("tests/grader/test_x.py", "tests/grader/test_x.py"),
                            ("elsewhere/one", None)):
            self.assertEqual(tiers.source_of(suite), file)


class Choosing(unittest.TestCase):
    """What run_tests.py does with the list."""
    SUITES = ["build/tests/a/one", "build/tests/a/slow", "build/tests/b/x"]

    def setUp(self):
        known = tiers.parse(TEXT)
        kept, tiers.load = tiers.load, lambda: known
        self.addCleanup(setattr, tiers, "load", kept)

    def test_each_tier_has_its_own(self):
        one, slow, _ = self.SUITES
        times = run_tests.Run(one, (("TIMES", "9"),))
        for tier, want in (("test", [run_tests.Run(one)]), ("long", [times, run_tests.Run(slow)])):
            self.assertEqual(run_tests.in_tier(tiers.load(), self.SUITES, tier), want)

    def test_what_is_drawn_from_is_whole_in_the_long_tier(self):
        one, slow, _ = self.SUITES
        known = tiers.parse(TEXT + "draw tests/a/one.c 3 # it is slow\n"
                            "draw tests/a/slow.c 2 Slow # too\n")
        known.lines = [line for line in known.lines if line.tier != "long"]
        self.assertEqual(run_tests.in_tier(known, self.SUITES, "test"),
                         [run_tests.Run(one, draw=tiers.Draw(3)),
                          run_tests.Run(slow, draw=tiers.Draw(2, ("Slow",)))])
        self.assertEqual(run_tests.in_tier(known, self.SUITES, "test", everything=True),
                         [run_tests.Run(one), run_tests.Run(slow)])
        # With more of what is drawn, once is enough.
        self.assertEqual(run_tests.in_tier(known, self.SUITES, "long"),
                         [run_tests.Run(one, (("TIMES", "9"),)), run_tests.Run(slow)])

    def test_what_is_in_no_tier_is_not_left_out(self):
        for suite in ("build/tests/c/new", "elsewhere"):
            with self.assertRaisesRegex(tiers.BadList, "is in no tier"):
                run_tests.in_tier(tiers.load(), [suite], "test")


class TestAll(TempFolder):
    """make test-all, with steps of its own."""

    def run_steps(self, *steps, alone=()):
        self.write("steps", "".join("%s\t%s\n" % step for step in steps))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = test_all.main(["--results", self.path("made", "results.md"), "--steps",
                                    self.path("steps")]
                                   + [word for name in alone for word in ("--step", name)])
        return status, out.getvalue(), self.read("made/results.md").splitlines()

    def test_a_line_for_each_run(self):
        status, out, lines = self.run_steps(("one", "echo 3 passed"), ("two", "echo a | cat"))
        self.assertEqual(status, 0)
        self.assertIn("3 passed\n", out)
        self.assertRegex(lines[-1], r"^\| \d{4}-\d\d-\d\d \d\d:\d\d \| .* \| all passed \| one: 3 "
                         r"passed, \d+ s; two: a, \d+ s \|$")
        self.assertEqual(self.run_steps(("one", "true"))[2][:-1], lines)

    def test_a_step_that_fails_stops_no_other_and_is_named(self):
        status, out, lines = self.run_steps(
            ("one", "echo 1 failed; echo 'make: *** [x] Error 1'; exit 2"), ("two", "echo ran"))
        self.assertEqual(status, 1)
        self.assertIn("| failed: one | one: 1 failed, ", lines[-1])
        self.assertIn("two: ran, ", lines[-1])

    def test_a_step_alone_is_no_run_of_all(self):
        steps = ("one", "echo 1 passed"), ("two words", "echo 2 passed"), ("three", "false")
        status, _, lines = self.run_steps(*steps, alone=["two words"])
        self.assertEqual(status, 0)
        self.assertRegex(lines[-1], r"\| passed, 1 of 3 steps \| two words: 2 passed, \d+ s \|$")
        status, _, lines = self.run_steps(*steps, alone=["one", "three"])
        self.assertEqual(status, 1)
        self.assertIn("| failed: three, 2 of 3 steps | one: 1 passed, ", lines[-1])
        with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit):
            self.run_steps(*steps, alone=["four"])
        self.assertIn("there is no step four: the steps are one, two words, three", err.getvalue())
        self.assertEqual(self.read("made/results.md").splitlines(), lines)

    def test_the_kits_own_steps_run_every_tier(self):
        commands = [command for _, command in test_all.STEPS]
        self.assertEqual(commands[:3], ["make test", "make long-tests",
                                        "python3 -B grader/devtools/documented.py --long"])


class TheKit(unittest.TestCase):
    def test_each_test_file_is_in_one_tier(self):
        files = tiers.test_files()
        self.assertGreater(len(files), 60)
        self.assertEqual(tiers.problems(tiers.load(), files), [])

    def test_what_make_runs_is_what_is_listed(self):
        """`make test`, `make test-simgpu` and `make long-tests` hand their suites to the runner,
        which chooses by tier: together they name every file that is not a part."""
        handed, known = set(), tiers.load()
        for backend in ("simgpu", "emulated-cuda"):
            shown = run(
                ["make", "-s", "--no-print-directory", "tiers-print-suites", "BACKEND=" + backend,
                 "--eval=tiers-print-suites: ; @: $(info $(SUITES_TO_RUN))"], status=0,
                environment=outside_make("BUILD", "IMPL", "SANITIZE")).stdout
            handed |= {tiers.source_of(word) for word in shown.split()}
        listed = {file for file in tiers.test_files() if known.of(file) in ("test", "draw", "long")}
        self.assertEqual(sorted(handed & listed), sorted(listed))
        text = "".join(re.findall(r"(?m)^\t.*--tier.*$", read(ROOT, "make", "devtools.mk")))
        self.assertEqual(re.findall(r"--tier (\w+)", text), ["test", "test", "long"])


if __name__ == "__main__":
    unittest.main()
