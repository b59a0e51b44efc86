"""The spelling of the pages, hints, contracts and task files, by Debian's codespell (a list of
common misspellings) where it is installed."""

import glob
import os
import shutil
import unittest

from helpers import ROOT, TempFolder, run

# Words that codespell takes for misspelt ones.
KNOWN = "dout,nd,nin"
PLACES = ("*.md", "CITATION.cff", "bench/results/*.md", "handouts/*.md", "handouts/figures/*.svg",
          "labs/*/*.md", "labs/*/lab.json", "gpulog/*.md", "simgpu/*.md", "simgpu/pages/*.md",
          "tasks/*/task.json", "include/*.h", "skeleton/*.c", "make/*.mk",
          "grader/course/platforms/student/*.md", ".devcontainer/*")


def misspelt(paths):
    return run(["codespell", "--ignore-words-list", KNOWN, *paths], timeout=280, merged=True).stdout


@unittest.skipUnless(shutil.which("codespell"), "there is no codespell: apt-get install codespell")
class Spelling(TempFolder):
    def test_the_pages(self):
        paths = [path for place in PLACES for path in glob.glob(os.path.join(ROOT, place))]
        self.assertGreater(len(paths), 60)
        self.assertEqual(misspelt(sorted(paths)), "")

    def test_it_finds_one(self):
        wrong = "rec" + "ieve"
        self.assertIn(wrong, misspelt([self.write("page.md", "They " + wrong + " it.\n")]))


if __name__ == "__main__":
    unittest.main()
