"""grader/devtools/given_mutants.py: wrong changes of given code are caught by the kit's own suites;
and what the tool says of a file that makes no sense. A usual run draws a few by SEED; GIVEN_MUTANTS
is how many, and GIVEN_MUTANTS=all tries all; that each can be applied is asked of all."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

from helpers import ROOT, build_folder # which puts the folders of the grader on the path
import given_mutants
import mutant_files

TOOL = os.path.join(ROOT, "grader", "devtools", "given_mutants.py")


class Given(unittest.TestCase):
    def run_tool(self, *arguments):
        done = subprocess.run([sys.executable, "-B", TOOL] + list(arguments), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=3600, check=False)
        return done.returncode, done.stdout

    def drawn(self):
        wanted = os.environ.get("GIVEN_MUTANTS", "4")
        if wanted == "all":
            return []
        seed = os.environ.get("SEED", "1")
        print("drawn by SEED=%s" % seed, flush=True)
        names = [mutant["name"] for *_, mutant in given_mutants.load(given_mutants.FOLDER)]
        return [word for name in sorted(random.Random(int(seed)).sample(names, int(wanted)))
                for word in ("--only", name)]

    def test_each_is_caught(self):
        status, out = self.run_tool("--build", build_folder(), *self.drawn())
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"(\d+) mutants of given code, \1 caught for the stated reason")

    def test_each_changes_its_file(self):
        for source, _, mutant in given_mutants.load(given_mutants.FOLDER):
            with self.subTest(mutant=mutant["name"]):
                text = mutant_files.read(os.path.join(ROOT, source))
                self.assertNotEqual(mutant_files.edit_text(text, mutant["edits"]), text)

    def test_an_unknown_name(self):
        status, out = self.run_tool("--only", "nothing")
        self.assertEqual((status, out), (2, "given_mutants: there is no such mutant\n"))

    def test_what_makes_no_sense(self):
        good = {"name": "a", "wrong": "It is.", "edits": [["x", "y"]],
                "caught_by": {"states/one": "why"}}
        for change in ({"edits": []}, {"caught_by": {"one": "why"}}, {"wrong": 3}, {"more": "x"}):
            self.assert_refused({"file": "lib/x.c", "mutants": [dict(good, **change)]})
        self.assert_refused({"file": "include/x.h", "mutants": [good]}) # compiled in what?

    def assert_refused(self, data):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "x.json"), "w", encoding="utf-8") as file:
                json.dump(data, file)
            with self.assertRaises(mutant_files.BadFile):
                given_mutants.load(folder)


if __name__ == "__main__":
    unittest.main()
