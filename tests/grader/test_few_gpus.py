"""The tests of BACKEND=cuda where there are few GPUs: each passes or is left out, and none fails
because a world was not there that another run of it counts on. Emulated CUDA is the GPUs."""

import re
import unittest

from helpers import run
import runner


class FewGpus(unittest.TestCase):
    def run_tests(self, gpus):
        """(passed, skipped) of make test; at most so many ranks."""
        done = run(["make", "BACKEND=emulated-cuda", "DRAW=all", "test"], timeout=900, merged=True,
                   environment=runner.clean_environment(), SHARDLAB_MAX_WORLD=str(gpus))
        told = re.search(r"(?m)^(\d+) passed, 0 failed, (\d+) skipped$", done.stdout)
        if done.returncode or not told:
            self.fail("on %d GPUs:\n%s" % (gpus, done.stdout[-6000:]))
        return int(told.group(1)), int(told.group(2))

    def test_one(self):
        passed, skipped = self.run_tests(1)
        self.assertGreater(passed, 300)
        self.assertGreater(skipped, 50)

    def test_two(self):
        self.run_tests(2)

    def test_three(self):
        self.run_tests(3)

    def test_four(self):
        self.run_tests(4)


if __name__ == "__main__":
    unittest.main()
