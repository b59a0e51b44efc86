"""make bench: what it makes of figures (spread against margin, a loaded machine), its pages; and
the command on programs that print made-up figures. test_bench_run.py runs the real ones.
"""

import json
import os
import random
import signal
import sys
import unittest

from helpers import TempFolder, hears_ctrl_c, processes_with, program, run, wait_for

import bench
import bench_judge
import bench_page
import bench_run
import bench_sections
from bench_judge import MET, MISSED, UNCERTAIN, Claim, Spread

def tables(text):
    """The number of cells in each row, for each table of a page."""
    found, inside = [], False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append(line.count("|") - 1)
        inside = line.startswith("|")
    return found


def claim(values, bound, **more):
    return Claim("x", tuple(values), bound, **more)


class Judged(unittest.TestCase):
    def test_spread(self):
        self.assertEqual(Spread.of([3, 1, 10, 2]), Spread(1, 2.5, 10))
        self.assertEqual(Spread.of([3, 1, 10]).width, 9)
        self.assertEqual(bench_judge.ratios([6, 2], [3, 4]), [2, 0.5])

    def test_a_claim_counts_where_the_spread_is_smaller_than_the_margin(self):
        for values, bound, at_least, want in (
                ([0.95, 0.96, 0.97], 0.90, True, MET),
                ([0.85, 0.86, 0.87], 0.90, True, MISSED),
                ([0.91, 0.96, 0.97], 0.90, True, UNCERTAIN),   # spread 0.06, margin 0.06
                ([0.899, 0.901, 0.902], 0.90, True, UNCERTAIN),
                ([0.40, 0.41, 0.42], 0.45, False, MET),
                ([0.46, 0.50, 0.48], 0.45, False, UNCERTAIN),
                ([0.50, 0.51, 0.52], 0.45, False, MISSED),
                ([0.45, 0.45], 0.45, False, UNCERTAIN)):
            got = claim(values, bound, at_least=at_least)
            self.assertEqual(got.verdict(), want, values)
            self.assertEqual(got.why().split(":")[0], want)

    def test_the_median_of_many_rounds(self):
        # By hand: of n coins as many as k are heads, or as many tails, in so many of 2**n cases.
        for n, left_out in ((1, 0), (3, 0), (5, 0), (8, 0),  # 2 * (1 + 8) of 256 is 7.03 %
                            (9, 1), (10, 1),                 # 2 * (1 + 9) of 512 is 3.9 %
                            (11, 2), (31, 9)):               # 2 * (1 + 11 + 55) of 2048 is 6.5 %
            values = random.Random(n).sample(range(1, n + 1), n)
            found = bench_judge.known(values)
            self.assertEqual((found.least, found.most), (1 + left_out, n - left_out), n)
            self.assertEqual(found.middle, (n + 1) / 2)

    def test_more_rounds_know_more(self):
        five = [0.39, 0.40, 0.41, 0.42, 0.47]
        nine = [0.38, 0.39, 0.4, 0.4, 0.41, 0.41, 0.42, 0.42, 0.47]
        self.assertEqual(claim(five, 0.45).verdict(), UNCERTAIN)
        self.assertEqual(claim(nine, 0.45).verdict(), MET)
        self.assertEqual(claim([2 - x for x in nine], 1.55, at_least=True).verdict(), MET)
        self.assertEqual(claim(nine, 0.37).verdict(), MISSED)

    def test_one_round_has_no_spread(self):
        self.assertIn("one round", claim([2.0], 1.0, at_least=True).why())

    def test_loaded(self):
        self.assertTrue(bench_run.is_loaded(0.2, 0.0, 2))
        self.assertFalse(bench_run.is_loaded(0.05, 9.0, 2)) # the load is of the build before
        self.assertTrue(bench_run.is_loaded(None, 1.0, 2))
        self.assertFalse(bench_run.is_loaded(None, 0.1, 2))

    def test_busy_seconds(self):
        ticks = os.sysconf("SC_CLK_TCK")
        lines = ["intr 5", "cpu  %d 1 2 1000 500 3 4 5 600 0" % (10 * ticks), "cpu0 7"]
        self.assertAlmostEqual(bench_run.busy_seconds(lines), 10 + 15 / ticks)
        self.assertIsNone(bench_run.busy_seconds([]))


class Pages(TempFolder):
    def test_numbers(self):
        for x, text in ((0, "0"), (0.012345, "0.0123"), (1.2345, "1.23"), (123.45, "123"),
                        (12345.6, "12346"), (1e-7, "0")):
            self.assertEqual(bench_page.number(x), text)
        self.assertEqual(bench_page.spread(Spread(0.001, 0.002, 0.004), 1e3), "2 (1–4)")
        self.assertEqual(bench_page.spread(Spread(2, 2, 2)), "2")
        self.assertEqual([bench_page.size(n) for n in (12, 1024, 64 << 20)],
                         ["12 B", "1 KiB", "64 MiB"])

    def test_no_page_is_overwritten(self):
        self.write("2026-01-01-bench.md", "of that morning")
        self.write("2026-01-02-bench.md", "of another day")
        paths = [bench_page.write(self.folder, "2026-01-01", text) for text in ("second", "third")]
        self.assertEqual([os.path.basename(path) for path in paths],
                         ["2026-01-01-bench-2.md", "2026-01-01-bench-3.md"])
        self.assertEqual([self.read(name) for name in sorted(os.listdir(self.folder))],
                         ["second", "third", "of that morning", "of another day"])

    def test_a_page_that_cannot_be_written_leaves_nothing(self):
        with self.assertRaises(UnicodeEncodeError):
            bench_page.write(self.folder, "2026-01-01", "\udc80")
        self.assertEqual(os.listdir(self.folder), [])


class Asked(unittest.TestCase):
    def told(self, level="quick", memory=64, rounds=""):
        options = type("Options", (), {"level": level, "rounds": rounds})
        before, bench_run.available_memory = bench_run.available_memory, lambda: memory << 30
        try:
            return bench.check(options)
        finally:
            bench_run.available_memory = before

    def test_what_can_be_asked_for(self):
        for level in bench_sections.LEVELS:
            self.assertEqual(self.told(level), "")
        for rounds in "1", "31", "1000":
            self.assertEqual(self.told(rounds=rounds), "")

    def test_what_cannot(self):
        self.assertIn("no BENCH=long: it is quick or full", self.told("long"))
        self.assertIn("BENCH=full needs 14 GiB of memory, and 9.0 are free",
                      self.told("full", memory=9))
        self.assertEqual(self.told("full", memory=0), "") # unknown
        for rounds in "0", "-5", "1001", "five", "2.5", " ", "²":
            self.assertEqual(self.told(rounds=rounds),
                             "ROUNDS=%s: must be a number from 1 to 1000" % rounds)

    def test_ranks_have_equal_parts_of_the_batch(self):
        for level in bench_sections.LEVELS.values():
            for model, _ in level.models:
                self.assertEqual([model.batch % ranks for ranks in level.ranks],
                                 [0] * len(level.ranks), model.name)


# Programs with the names of bench/*.c's that print figures: a step takes as many seconds of CPU
# time as the file `slow` says, with fused attention twice as many.
LAUNCH = '#!/bin/sh\nshift 2\nexec "$@"\n'
STEP = '''#!%s -SE
import json, os, sys
here = os.path.dirname(os.path.abspath(sys.argv[0]))
slow = float(open(os.path.join(here, "slow")).read()) * (2 if "fused" in sys.argv else 1)
steps = int(sys.argv[sys.argv.index("--steps") + 1])
print(json.dumps(dict(ranks=1, parameters=1, tokens=64, start_user=[0.5], start_sys=[0.25],
                      start_wall=[1.0], first=2.0, cpu=[slow] * steps, wall=[0.5] * steps,
                      peak=[1 << 20], loss=1.0)))
''' % sys.executable
PRODUCTS = ('#!/bin/sh\necho "blas made-up 1.0"\necho "product TN 4 4 4 2 0.1"\n'
            'case "$*" in *blocks) echo "pass 0.988";; *) echo "pass 0.95";; esac\n')
COLLECTIVES = ('#!/bin/sh\nfor i in all-gather reduce-scatter all-reduce memcpy; do '
               'echo "$i 1024 0.002 0.001"; done\n')


class Command(TempFolder):
    def setUp(self):
        super().setUp()
        hears_ctrl_c()
        self.write("build/bench/slow", "1.0")
        for name, text in (("bin/launch", LAUNCH), ("bench/train_step", STEP),
                           ("bench/products", PRODUCTS), ("bench/collectives", COLLECTIVES)):
            self.write("build/" + name, text, 0o755)
        self.command = program("devtools/bench.py", "--level", "test", "--build",
                               self.path("build"), "--out", self.path("out"))

    def run_it(self, *more):
        return run(self.command + list(more), self.folder, timeout=300)

    def pages(self):
        return [self.read("out/" + name) for name in sorted(os.listdir(self.path("out")))]

    def test_a_page(self):
        done = self.run_it()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        page, = self.pages()
        for rows in tables(page):
            self.assertEqual(len(set(rows)), 1, page)
        self.assertGreaterEqual(len(tables(page)), 7)
        self.assertIn("| tiny: plain, share of the floor | 0.95 | 0.95–0.95 | ≥ 0.88 | met |",
                      page)
        self.assertIn("| plain, 1 thread | 1000 | 95 % (95–95) |", page)
        self.assertIn("| plain, fused attention, 1 thread | 2000 | 48 % (48–48) |", page)
        self.assertIn("simgpu's blocks, also on one thread: 1.04 of that.", page)

    def test_rounds(self):
        done = self.run_it("--rounds", "3")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("round 3 of 3", done.stdout)
        self.assertNotIn("of 2\n", done.stdout)
        self.assertIn("| command | `make bench BENCH=test ROUNDS=3`, ", self.pages()[0])

    def test_a_program_that_fails(self):
        self.write("build/bench/collectives", "#!/bin/sh\necho no device left >&2\nexit 3\n", 0o755)
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Abench: `.*collectives.*` ends with 3: no device left\n\Z")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_a_program_that_prints_something_else(self):
        for name in ("products", "collectives", "train_step"):
            text = self.read("build/bench/" + name)
            self.write("build/bench/" + name, "#!/bin/sh\necho hello\n", 0o755)
            done = self.run_it()
            self.write("build/bench/" + name, text, 0o755)
            self.assertEqual(done.returncode, 1, name)
            self.assertRegex(done.stderr, r"\Abench: .* printed no (pass|figures): .*hello.*\n\Z")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_bad_use_is_one_line(self):
        for more, words in ((["--level", "slow"], "there is no BENCH=slow"),
                            (["--rounds", "0"], "ROUNDS=0: must be a number from 1 to 1000")):
            done = self.run_it(*more)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"\Abench: %s.*\n\Z" % words)

    def test_ctrl_c_leaves_nothing(self):
        word = "shardlab-bench-%d" % os.getpid()
        self.write("build/bench/train_step",
                   '#!/bin/sh\ntouch "$(dirname "$0")/there"\nsh -c "sleep 600; : %s"\n' % word,
                   0o755)
        for number in signal.SIGINT, signal.SIGTERM:
            process = self.popen(self.command)
            wait_for(lambda: os.path.exists(self.path("build/bench/there"))
                     and processes_with(word), process, 240)
            process.send_signal(number)
            _, said = process.communicate(timeout=240)
            self.assertEqual((process.returncode, said),
                             (130, "bench: stopped; nothing is written\n"))
            self.assertEqual(processes_with(word), [])
            self.assertFalse(os.path.exists(self.path("out")))
            os.unlink(self.path("build/bench/there"))


class Programs(unittest.TestCase):
    def test_the_environment_of_a_run(self):
        os.environ["SIMGPU_CHECK"] = "off"
        self.addCleanup(os.environ.pop, "SIMGPU_CHECK")
        environment = bench_run.Shop("build").environment
        self.assertNotIn("SIMGPU_CHECK", environment)
        self.assertIn("PATH", environment)

    def test_rounds_are_interleaved(self):
        order = []

        class Shop:
            def run(self, command, env):
                order.append(command)
                return json.dumps({"cpu": [1.0, 3.0]}), 0.0, 0.0
        variants = [bench_run.Variant(key, key, key) for key in "AB"]
        found = bench_run.run_rounds(Shop(), variants, 3, lambda line: None)
        self.assertEqual("".join(order), "ABABAB")
        self.assertEqual(bench_sections.of_rounds(found["A"], "cpu"), [2.0] * 3)

    def test_as_many_threads_as_cores(self):
        level = bench_sections.LEVELS["test"]
        for cores, most in ((1, 2), (2, 2), (6, 4), (12, 8), (64, 16)):
            one = bench_sections.Bench(bench_run.Shop("build"), level, cores, print)
            variants = bench_sections.step_variants(one, bench_sections.TINY, 2)
            ours = {v.title: v.env for v in variants if v.title.startswith("plain, ")
                    and "fused" not in v.title}
            want = [n for n in (1, 2, 4, 8, 16) if n <= most]
            self.assertEqual(list(ours), ["plain, %d thread%s" % (n, "s"[:n > 1]) for n in want])
            self.assertEqual([env["SIMGPU_THREADS"] for env in ours.values()], list(map(str, want)))


if __name__ == "__main__":
    unittest.main()
