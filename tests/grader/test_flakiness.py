"""A few gradings of the same solutions with every core busy come out the same: flakiness.py, which
makes many of them when asked to (grader/devtools/flakiness.py --times 50)."""

import unittest

from helpers import TempFolder, build_folder, program, run


class Flakiness(TempFolder):
    def test_three_gradings_under_load_give_the_same_scores(self):
        done = run(program("devtools/flakiness.py", "--times", "3", "--build", build_folder(),
                           "--out", self.path("out")), timeout=1500, status=0)
        self.assertRegex(done.stdout, r"reference +3 gradings .* score 100 \(3 times\)")
        self.assertRegex(done.stdout, r"half-done +3 gradings .* score [1-9][0-9]* \(3 times\)")
        self.assertTrue(done.stdout.endswith("The scores do not vary.\n"))


if __name__ == "__main__":
    unittest.main()
