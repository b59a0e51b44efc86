"""A few gradings of the same solutions with every core busy come out the same: flakiness.py, which
makes many of them when asked to (grader/devtools/flakiness.py --times 50)."""

import os
import subprocess
import sys
import unittest

from helpers import DEVTOOLS, ROOT, TempFolder, build_folder


class Flakiness(TempFolder):
    def test_three_gradings_under_load_give_the_same_scores(self):
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(DEVTOOLS, "flakiness.py"), "--times", "3",
             "--build",
             build_folder(), "--out", self.path("out")], cwd=ROOT, capture_output=True, text=True,
            timeout=1500, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"reference +3 gradings .* score 100 \(3 times\)")
        self.assertRegex(done.stdout, r"half-done +3 gradings .* score [1-9][0-9]* \(3 times\)")
        self.assertTrue(done.stdout.endswith("The scores stay.\n"))


if __name__ == "__main__":
    unittest.main()
