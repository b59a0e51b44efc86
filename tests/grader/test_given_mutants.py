"""grader/devtools/given_mutants.py: wrong changes of given code are caught by the kit's own suites;
and what the tool says of a file that makes no sense. A usual run draws a few by SEED; GIVEN_MUTANTS
is how many, and GIVEN_MUTANTS=all tries all; that each can be applied is asked of all."""

import json
import os
import random
import unittest

from helpers import ROOT, TempFolder, build_folder, program, run
import given_mutants
import mutant_files


class Given(TempFolder):
    def run_tool(self, *arguments):
        done = run(program("devtools/given_mutants.py", *arguments), timeout=3600, merged=True)
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
        self.write("x.json", json.dumps(data))
        with self.assertRaises(mutant_files.BadFile):
            given_mutants.load(self.folder)


if __name__ == "__main__":
    unittest.main()
