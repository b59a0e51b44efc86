"""make bench with the real programs, on a tiny model: a page with every section and figures
that can be.
"""

import os
import re
import unittest

from helpers import TempFolder, build_folder, outside_make, run

from test_bench import tables


def make(*words):
    return run(["make", "-s", "bench", "BUILD=" + build_folder(), *words], timeout=900,
               environment=outside_make())


class Run(TempFolder):
    def test_a_page_of_figures(self):
        done = make("BENCH=test", "OUT=" + self.path("out"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        name, = os.listdir(self.path("out"))
        self.assertRegex(name, r"\A\d{4}-\d\d-\d\d-bench\.md\Z")
        page = self.read("out/" + name)
        for rows in tables(page):
            self.assertEqual(len(set(rows)), 1, page)
        for heading in ("Bounds", "A training step: a tiny GPT-2",
                        "Collectives against memcpy", "Growth", "Checks and the clock"):
            self.assertIn("\n## %s\n" % heading, page)
        self.assertRegex(page, r"\| BLAS \| [^|]*\d+\.\d+")
        # 10 linear products of a layer and of the head, and 6 of each sequence and head.
        products = re.findall(r"(?m)^\| [NT][NT] \|.*$", page)
        self.assertEqual(sum(int(row.split("|")[5]) for row in products), 4 * 3 + 3 + 6 * 4 * 2)
        steps = re.findall(r"(?m)^\| (plain|W)[^|]*\| ([\d.]+) \((\S+)–(\S+)\) \|", page)
        self.assertGreaterEqual(len(steps), 5, page)
        for _, *figures in steps:
            middle, least, most = map(float, figures)
            self.assertTrue(0 < least <= middle <= most < 60e3, figures)

    def test_bad_use_builds_nothing(self):
        for word, text in (("BENCH=slow", "no BENCH=slow"),
                           ("ROUNDS=x", "ROUNDS=x: must be a number")):
            done = make(word, "OUT=" + self.path("out"))
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            first, *rest = done.stderr.splitlines()
            self.assertTrue(first.startswith("bench: ") and text in first, first)
            self.assertTrue(all(line.startswith("make: ") for line in rest), rest)
        self.assertFalse(os.path.exists(self.path("out")))


if __name__ == "__main__":
    unittest.main()
