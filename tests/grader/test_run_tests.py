"""The runner of `make test`: counts, the closing line, and suites that do not do as they should."""

import re
import unittest

from helpers import TempFolder, program, run, speak
import tiers

UNITTEST = '''import os, time, unittest
class Some(unittest.TestCase):
    def test_good(self):
        pass
    def test_other(self):
        %s
'''


class RunTests(TempFolder):
    def suite(self, name, body, tests=("a", "b", "c")):
        return self.write(name, speak(tests, body + "\n"), 0o755)

    def start(self, *arguments, **more):
        done = run(program("devtools/run_tests.py", *arguments), self.folder,
                   SHARDLAB_TIME_FACTOR="1", **more)
        return done.returncode, done.stdout, done.stderr

    def call(self, *arguments, **more):
        status, out, err = self.start(*arguments, **more)
        self.assertEqual(err, "")
        return status, out, out.splitlines()[-1]

    def test_all_pass(self):
        one, two = self.suite("one", "print('noise'); rest()"), self.suite("two", "rest()", "d")
        status, out, last = self.call(one, two)
        self.assertEqual((status, last), (0, "4 passed, 0 failed"))
        self.assertNotIn("noise", out)
        self.assertRegex(out, r"(?m)^one +3 passed +\d+\.\d s$")

    def test_one_fails_and_its_output_is_shown(self):
        one = self.suite("one", "print('noise', flush=True); say('a'); say('b', 'failed', 'is 2'); "
                                "say('c'); end()")
        status, out, last = self.call(one)
        self.assertEqual((status, last), (1, "2 passed, 1 failed"))
        self.assertIn("noise\n", out)
        self.assertIn("FAILED b: is 2", out)

    def test_what_failed_is_named_at_the_end(self):
        one = self.suite("one", "say('a'); say('b', 'failed', 'is 2\\nnot 3'); say('c'); end()")
        two, none = self.suite("two", "rest()"), self.suite("none", "rest()", ())
        dead = self.suite("dead", "os._exit(1)", "d")
        status, out, _ = self.call("--jobs", "1", one, dead, none, two, SEED="1")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"\ntwo +3 passed +\d+\.\d s\n"
                              r"one: FAILED b: is 2\ndead: [A-Z]+ d: .*\n"
                              r"none: it has no tests\n5 passed, 3 failed\n$")

    def test_the_seed_is_told_where_something_failed_that_drew(self):
        one = self.suite("one", "say('a', seed=int(os.environ['SEED'])); say('b', 'failed', 'x', "
                                "seed=int(os.environ['SEED'])); say('c'); end()")
        two = self.suite("two", "print(os.environ['SEED']); say('a', 'failed'); "
                                "say('b', seed=8812); rest('ab')")
        status, out, last = self.call(one, SEED="8812")
        self.assertEqual((status, last), (1, "2 passed, 1 failed"))
        self.assertIn("The same again: make test SEED=8812\n", out)
        self.assertNotIn("The same again", self.call(two, SEED="8812")[1])
        drawn = [self.call(one, SEED="")[1] for _ in range(2)]
        seeds = {re.search(r"make test SEED=(\d+)\n", text).group(1) for text in drawn}
        self.assertEqual(len(seeds), 2)
        # One for all suites.
        out = self.call(one, two, SEED="")[1]
        seed = re.search(r"make test SEED=(\d+)\n", out).group(1)
        self.assertIn("\n%s\n" % seed, out)

    def test_a_seed_that_is_none(self):
        one = self.suite("one", "rest()")
        status, out, err = self.start(one, SEED="eight")
        self.assertEqual((status, out), (2, ""))
        self.assertEqual(err, "run_tests: SEED is 'eight': must be a whole number from 0 to "
                              "18446744073709551615\n")

    def test_a_draw_that_is_none(self):
        self.assertEqual(self.start(self.suite("one", "rest()"), DRAW="some"),
                         (2, "", "run_tests: DRAW is 'some': must be all, or not set\n"))

    def test_a_suite_that_dies(self):
        one = self.suite("one", "say('a'); os.kill(os.getpid(), signal.SIGABRT)")
        status, _, last = self.call(one)
        self.assertEqual((status, last), (1, "1 passed, 2 failed"))

    def test_a_suite_without_tests(self):
        self.assertEqual(self.call(self.suite("one", "rest()", ()))[::2], (1, "0 passed, 1 failed"))

    def test_a_suite_that_is_not_there(self):
        self.assertEqual(self.call(self.path("nothing"))[::2], (1, "0 passed, 1 failed"))

    def test_a_suite_that_hangs(self):
        one = self.suite("one", "say('a')\nif 'b' in wanted: time.sleep(600)\nrest(('a', 'b'))")
        status, out, last = self.call("--limit", "0.5", one)
        self.assertEqual(status, 1)
        self.assertIn("TIMEOUT b", out)

    def test_python_files(self):
        cases = {"pass": (0, "2 passed, 0 failed"),
                 "self.fail('so it is')": (1, "1 passed, 1 failed"),
                 "1 / 0": (1, "1 passed, 1 failed"), "os._exit(0)": (1, "1 passed, 1 failed"),
                 "self.skipTest('no reason')": (0, "1 passed, 0 failed, 1 skipped")}
        for body, want in cases.items():
            with self.subTest(body=body):
                status, out, last = self.call(self.write("test_it.py", UNITTEST % body))
                self.assertEqual((status, last), want)
                self.assertEqual("1 skipped" in out, "skipTest" in body)

    def test_a_failing_subtest_fails_its_test(self):
        body = "for i in range(3):\n            with self.subTest(i=i): self.assertNotEqual(i, 1)"
        self.assertEqual(self.call(self.write("test_it.py", UNITTEST % body))[2],
                         "1 passed, 1 failed")

    def test_of_a_file_in_the_draw_tier_some_tests_run_and_the_seed_is_told(self):
        file, draw = next((line.pattern, line.draw) for line in tiers.load().lines
                          if line.tier == tiers.DRAW and line.draw.classes)
        share, some = draw.share, draw.classes[0]
        body = "".join("    def test_%d(self):\n        self.assertFalse(os.environ.get('BAD'))\n"
                       % i for i in range(4 * share))
        head = "import os, unittest\nclass %s(unittest.TestCase):\n" % some
        suite = self.write(file, head + body)
        status, out, last = self.call("--tier", "test", suite, SEED="8812", DRAW="")
        self.assertEqual((status, last), (0, "4 passed, 0 failed"))
        left = 4 * share - 4
        self.assertIn("4 passed, %d not drawn" % left, out)
        self.assertIn("\n%d tests were not drawn by SEED=8812: make test-all has them\n" % left,
                      out)
        failed = []
        for _ in range(2):
            _, out, last = self.call("--tier", "test", suite, SEED="8812", DRAW="", BAD="1")
            self.assertEqual(last, "0 passed, 4 failed")
            self.assertIn("The same again: make test SEED=8812\n", out)
            failed.append(re.findall(r"(?m)^failed (\S+)$", out))
        self.assertEqual((len(failed[0]), failed[0]), (4, failed[1]))
        for tier, draw in (("test", "all"), ("long", "")):
            _, out, last = self.call("--tier", tier, suite, DRAW=draw)
            self.assertEqual(last, "%d passed, 0 failed" % (4 * share))
            self.assertNotIn("not drawn", out)

    def test_python_that_does_not_load(self):
        status, _, last = self.call(self.write("test_it.py", "import nothing_of_that_name\n"))
        self.assertEqual((status, last), (1, "0 passed, 1 failed"))

    def test_a_failing_class_setup_fails_its_tests(self):
        text = UNITTEST % "pass" + ("    @classmethod\n    def setUpClass(cls):\n"
                                    "        raise OSError('x')\n")
        status, _, last = self.call(self.write("test_it.py", text))
        self.assertEqual((status, last), (1, "0 passed, 2 failed"))


if __name__ == "__main__":
    unittest.main()
