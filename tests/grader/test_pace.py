"""Limits of time that come from the reference's own time on this machine."""

import json
import os
import time
import unittest

from helpers import FakeKit, processes_with

import pace

SLOW = "for t in wanted:\n    say(t, seconds=%r)\nend()"
# The reference is measured where one of the student's tests takes too long, or fails.
WRONG = "for t in wanted:\n    say(t, 'failed', 'two is not three')\nend()"


class Limits(FakeKit):

    def limits(self, *arguments, **more):
        status, _, tests, _ = self.grade(*arguments, **more)
        self.assertEqual(status, 0, self.err)
        return {name: test["limit"] for name, test in tests.items()}

    def test_a_quick_reference_leaves_the_least(self):
        self.assertEqual(set(self.limits().values()), {pace.LEAST_ELSEWHERE})

    def test_the_slowest_test_of_the_reference_gives_the_limit_of_its_suite(self):
        self.suite("reference/one", "abc", "for t, s in zip(wanted, (0.1, 2.0, 0.3)):\n"
                   "    say(t, seconds=s)\nend()")
        self.suite("one", "abc", WRONG)
        limits = self.limits()
        self.assertEqual({name: limits[name] for name in "abcde"},
                         {"a": 2 * pace.MARGIN, "b": 2 * pace.MARGIN, "c": 2 * pace.MARGIN,
                          "d": pace.LEAST_ELSEWHERE, "e": pace.LEAST_ELSEWHERE})

    def test_how_slow_the_student_is_changes_nothing(self):
        self.suite("one", "abc", SLOW % 9.0)
        self.assertEqual(self.limits()["a"], pace.LEAST_ELSEWHERE)

    def test_somebody_who_asks_for_a_limit_gets_it_and_nothing_is_measured(self):
        self.suite("reference/one", "abc", "sys.exit(9)")
        self.assertEqual(set(self.limits("--limit", "3.5").values()), {3.5})

    def test_a_slow_machine_may_be_called_slow(self):
        self.assertEqual(self.limits(SHARDLAB_TIME_FACTOR="3")["a"], 3 * pace.LEAST_ELSEWHERE)

    def test_a_limit_that_is_none_is_refused(self):
        for word in ("0", "-1", "nan", "inf", "soon"):
            process = self.start("--limit", word)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, word)
            self.assertIn("--limit", err)

    def test_a_mistake_counts_only_where_the_reference_makes_none(self):
        self.suite("reference/one", "abc", WRONG)
        self.assertEqual(self.grade()[3]["status"], "graded")
        self.suite("one", "abc", WRONG)
        self.assertEqual(self.grade()[3]["status"], "infrastructure")

    def test_a_test_that_did_not_run_has_no_limit(self):
        self.write("mine/one.c", "int one(\n")
        self.assertIsNone(self.limits()["a"])

    def test_the_program_is_told(self):
        self.suite("one", "abc", "for t in wanted:\n    say(t, 'failed', "
                   "os.environ.get('SHARDLAB_LIMIT', 'none'))\nend()")
        tests = self.grade(SHARDLAB_LIMIT="1")[2]
        self.assertEqual(tests["a"]["message"], "10")

    def test_a_timeout_says_where_the_limit_comes_from(self):
        self.suite("one", "abc", "for t in wanted:\n    say(t, 'timeout' if t == 'b' else "
                   "'passed', 'it is over')\nend()")
        tests = self.grade()[2]
        self.assertEqual(tests["b"]["message"], "it is over\nThe reference took 0.25 s for this "
                         "test on this machine. LIMIT=60 allows more.")


class Measuring(FakeKit):

    def setUp(self):
        super().setUp()
        # A reference that leaves a line each time it runs.
        self.suite("reference/one", "abc",
                   "open(%r, 'a').write('x')\n%s" % (self.path("runs"), SLOW % 1.0))
        self.write("runs", "")
        self.suite("one", "abc", WRONG)

    def limit(self):
        return self.grade()[2]["a"]["limit"]

    def test_nobody_waits_for_it_where_all_passes_or_nothing_is_written(self):
        gap = "mine/one.c:3: part 1.1 of f is not written yet (handouts/1_meta_init.md)"
        for say in ("say(t, seconds=9.0)", "say(t, 'skipped')", "say(t, 'failed', %r)" % gap):
            self.suite("one", "abc", "for t in wanted:\n    %s\nend()" % say)
            self.assertEqual(self.limit(), 10)
        self.assertEqual(self.read("runs"), "")

    def test_a_test_that_may_take_longer_runs_once_more(self):
        text = ("import time\nfor t in wanted:\n"
                "    with open(%r, 'a') as file: file.write(os.environ['SHARDLAB_LIMIT'] + t)\n"
                "    late = t == 'b' and os.environ['SHARDLAB_LIMIT'] == '10'\n"
                "    say(t, 'timeout' if late else 'passed')\n"
                "    time.sleep(%d if late else 0)\nend()")
        # Where somebody waits, the suite is ended at its first time-out; the others run then.
        for mode, ended, starts in (("--patient", 0, "10a10b10c20b"),
                                    ("--quick", 60, "10a10b20b20c")):
            self.suite("one", "abc", text % (self.path("starts"), ended))
            self.write("starts", "")
            os.remove(self.path("build/impl/reference/suite/one.pace")) if ended else 0
            tests = self.grade(mode)[2]
            self.assertEqual({tests[name]["status"] for name in "abc"}, {"passed"})
            self.assertEqual((tests["b"]["limit"], self.read("starts")), (20, starts))

    def test_once_is_enough(self):
        self.assertEqual([self.limit(), self.limit()], [20, 20])
        self.assertEqual(self.read("runs"), "x")

    def test_another_program_is_measured_anew(self):
        self.limit()
        self.suite("reference/one", "abc", SLOW % 3.0)
        self.assertEqual(self.limit(), 60)

    def test_another_machine_is_measured_anew(self):
        self.limit()
        notes = "build/impl/reference/suite/one.pace"
        known = json.loads(self.read(notes))
        self.write(notes, json.dumps(dict(known, machine="a faster one")))
        self.assertEqual(self.limit(), 20)
        self.assertEqual(self.read("runs"), "xx")

    def test_notes_that_make_no_sense_are_replaced(self):
        notes = "build/impl/reference/suite/one.pace"
        self.limit()
        good = json.loads(self.read(notes))
        for text in ("", "[]", "{}", json.dumps(dict(good, seconds={"a": 1})),
                     json.dumps(dict(good, seconds={"a": -1, "b": 0, "c": 0})),
                     json.dumps(dict(good, seconds={"a": "x", "b": 0, "c": 0})),
                     json.dumps(dict(good, seconds={"a": 1e300, "b": 0, "c": 0}))):
            self.write(notes, text)
            self.assertEqual(self.limit(), 20, text)
            self.assertEqual(json.loads(self.read(notes)), good)

    def test_a_reference_that_fails_is_nobodys_loss(self):
        self.suite("reference/one", "abc", "say('a', 'failed', 'two is not three')\nrest('a')")
        status, _, tests, document = self.grade()
        self.assertEqual((status, document["status"]), (3, "infrastructure"))
        self.assertIn("the reference itself does not pass a (failed): two is not three",
                      document["message"])
        self.assertEqual({test["status"] for test in tests.values()}, {"infrastructure"})

    def test_a_reference_that_skips_is_no_trouble(self):
        self.suite("reference/one", "abc", "say('a', 'skipped', 'no GPU')\nrest('a')")
        self.assertEqual(self.limit(), 10)

    def test_stopped_while_measuring(self):
        marker = self.path("marker-of-this-test")
        self.suite("reference/one", "abc", "import subprocess\n"
                   "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', %r])\n"
                   "open(%r, 'w').write('up')\ntime.sleep(600)" % (marker, self.path("runs")))
        process = self.start()
        self.addCleanup(process.kill)
        for _ in range(600):
            if self.read("runs") == "up":
                break
            time.sleep(0.05)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn("stopped by SIGTERM", err)
        self.assertEqual(processes_with(marker), [])


if __name__ == "__main__":
    unittest.main()
