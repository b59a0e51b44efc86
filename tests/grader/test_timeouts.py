"""What a time-out costs on a terminal, and that every test still has a verdict of its own. The
made-up suites do not take the time that they say is over: each start leaves a line with the tests
and the limit that it was given, and these lines are what is checked."""

import functools
import json
import os
import threading
import unittest

from helpers import FakeKit, in_terminal, processes_with

import pace
import timeouts

FACTOR = "0.5"  # of the least limits
FULL, SHORT = 0.5 * pace.LEAST_ELSEWHERE, 0.5 * pace.SHORT

# A suite whose tests run out of time: in which function, by test.
ENDLESS = '''
limit = float(os.environ["SHARDLAB_LIMIT"])
with open(%r, "a") as file:
    file.write(json.dumps(["".join(wanted), limit]) + "\\n")
where = %r
for t in wanted:
    if t in where:
        say(t, "timeout", "the test's limit of %%g s is over: rank 0 was still running at "
            "mine/one.c:%%d (%%s); it last did nothing" %% (limit, 10 + wanted.index(t), where[t]))
        if %r and limit == %r and len(wanted) > 1:
            time.sleep(600) # nobody wants more of it
    elif t + "slow" in where and limit < where[t + "slow"]:
        say(t, "timeout", "the test's limit is over: rank 0 was still running at mine/one.c:3 (g)")
    else:
        say(t, %r)
end()
'''
TIMES = "for t in wanted: say(t, seconds=%r[t])\nend()"


class Quick(FakeKit):
    def setUp(self):
        super().setUp()
        self.reference(a=0.01, b=0.01, c=0.01)
        self.suite("reference/two", "d", TIMES % {"d": 0.01})
        self.suite("reference/together", "e", TIMES % {"e": 0.01})

    def reference(self, **seconds):
        self.suite("reference/one", "abc", TIMES % seconds)

    def endless(self, where, other="passed", suite="one", tests="abc", ended=True):
        """`ended`: the grader ends the suite after the first time-out."""
        self.suite(suite, tests, ENDLESS % (self.path("starts"), where, ended, FULL, other))

    def outcome(self, *arguments):
        """Statuses and limits by test, after a grading."""
        status, _, self.tests, _ = self.grade(*arguments, SHARDLAB_TIME_FACTOR=FACTOR)
        self.assertEqual(status, 0, self.err)
        return ({name: test["status"] for name, test in self.tests.items() if name in "abc"},
                {name: test["limit"] for name, test in self.tests.items() if name in "abc"})

    def starts(self):
        return [tuple(json.loads(line)) for line in self.read("starts").splitlines()]

    def test_one_loop_costs_the_full_limit_once(self):
        self.endless(dict(a="loop", b="loop", c="loop"))
        statuses, limits = self.outcome("--quick")
        self.assertEqual(set(statuses.values()), {"timeout"})
        self.assertEqual(limits, dict(a=FULL, b=SHORT, c=SHORT))
        self.assertEqual(self.starts(), [("abc", FULL), ("bc", SHORT)])
        self.assertIn("a, which takes the reference no longer than this test, was still in loop "
                      "after %g s" % FULL,
                      self.tests["b"]["message"])
        self.assertIn("LIMIT=", self.tests["b"]["message"])
        self.assertIn("limit of %g s is over" % SHORT, self.tests["b"]["message"])

    def test_a_quicker_test_has_the_full_limit_before_it_counts(self):
        self.reference(a=0.02, b=0.02, c=0.001)
        self.endless(dict(a="loop", b="loop", c="loop"))
        statuses, limits = self.outcome("--quick")
        self.assertEqual(set(statuses.values()), {"timeout"})
        self.assertEqual(limits, dict(a=FULL, b=SHORT, c=FULL))
        self.assertEqual(self.starts(), [("abc", FULL), ("bc", SHORT), ("c", FULL)])

    def test_the_quickest_comes_first_and_speaks_for_the_others(self):
        self.reference(a=0.03, b=0.02, c=0.001)
        self.endless(dict(a="loop", b="loop", c="loop"))
        self.assertEqual(self.outcome("--quick")[1], dict(a=FULL, b=SHORT, c=FULL))
        self.assertIn("c, which takes", self.tests["b"]["message"])
        self.assertEqual(self.starts(), [("abc", FULL), ("bc", SHORT), ("c", FULL)])

    def test_elsewhere_means_once_more_with_the_full_limit(self):
        self.endless(dict(a="loop", b="other", c="third"))
        statuses, limits = self.outcome("--quick")
        self.assertEqual(set(statuses.values()), {"timeout"})
        self.assertEqual(set(limits.values()), {FULL})
        self.assertEqual(self.starts(), [("abc", FULL), ("bc", SHORT), ("b", FULL), ("c", FULL)])

    def test_a_slow_test_that_is_right_passes(self):
        self.endless(dict(a="loop", bslow=FULL))
        statuses, limits = self.outcome("--quick")
        self.assertEqual(statuses, dict(a="timeout", b="passed", c="passed"))
        self.assertEqual(limits, dict(a=FULL, b=FULL, c=SHORT))
        self.assertEqual(self.starts(), [("abc", FULL), ("bc", SHORT), ("b", FULL)])

    def test_what_takes_the_reference_long_has_as_many_times_that(self):
        self.reference(a=0.01, b=0.01, c=0.1)
        self.endless(dict(a="loop", b="loop", c="loop"))
        self.assertEqual(self.outcome("--quick")[1]["c"], pace.MARGIN * 0.1)
        self.assertEqual(self.starts(), [("abc", FULL), ("b", SHORT), ("c", pace.MARGIN * 0.1)])

    def test_another_verdict_counts_at_once(self):
        self.endless(dict(a="loop"), other="failed")
        statuses, limits = self.outcome("--quick")
        self.assertEqual(statuses, dict(a="timeout", b="failed", c="failed"))
        self.assertEqual(self.starts(), [("abc", FULL), ("bc", SHORT)])

    def test_what_passed_before_the_time_out_is_not_run_again(self):
        self.endless(dict(b="loop"))
        self.assertEqual(self.outcome("--quick")[0], dict(a="passed", b="timeout", c="passed"))
        self.assertEqual(self.starts(), [("abc", FULL), ("c", SHORT)])

    def test_without_a_time_out_all_have_the_full_limit(self):
        self.endless({})
        self.assertEqual(set(self.outcome("--quick")[1].values()), {FULL})
        self.assertEqual(self.starts(), [("abc", FULL)])

    def test_the_tests_of_all_files_have_the_short_limit_after_it(self):
        self.endless(dict(a="loop", b="loop", c="loop"))
        self.endless(dict(e="loop"), suite="together", tests="e")
        self.outcome("--quick")
        self.assertEqual(self.starts()[-1], ("e", SHORT))
        self.assertEqual(self.tests["e"]["status"], "skipped")
        self.assertIn("What happened:\nthe test's limit", self.tests["e"]["message"])

    def test_a_program_that_does_not_say_that_its_time_is_over(self):
        marker = self.path("marker-of-this-test")
        self.suite("one", "abc", "import subprocess\nwith open(%r, 'a') as file:\n"
                   "    file.write(json.dumps([''.join(wanted), "
                   "float(os.environ['SHARDLAB_LIMIT'])]) + '\\n')\n"
                   "for t in wanted:\n    if t != 'c':\n        subprocess.Popen([sys.executable, "
                   "'-c', 'import time; time.sleep(600)', %r])\n        time.sleep(600)\n"
                   "    say(t)\nend()" % (self.path("starts"), marker))
        status, _, tests, _ = self.grade("--quick", SHARDLAB_TIME_FACTOR="0.15")
        self.assertEqual(status, 0, self.err)
        self.assertEqual([tests[name]["status"] for name in "abc"],
                         ["timeout", "timeout", "passed"])
        # Where it hung is not known, so the second has the full limit, too.
        self.assertEqual([names for names, _ in self.starts()], ["abc", "bc", "c", "b"])
        self.assertEqual(tests["b"]["limit"], 1.5)
        self.assertEqual(processes_with(marker), [])


class Patient(Quick):
    """Where nobody waits, and where somebody has asked for a limit."""

    def test_elsewhere_means_once_more_with_the_full_limit(self):
        self.endless(dict(a="loop", b="loop", c="other"), ended=False)
        for arguments in ((), ("--patient",), ("--quick", "--limit", str(FULL))):
            self.write("starts", "")
            self.assertEqual(set(self.outcome(*arguments)[1].values()), {FULL})
            self.assertEqual(self.starts(), [("abc", FULL)])

    def test_a_terminal_is_where_somebody_waits(self):
        for arguments, starts in (((), [("abc", FULL), ("bc", SHORT)]),
                                  (("--patient",), [("abc", FULL)])):
            self.write("starts", "")
            self.endless(dict(a="loop", b="loop", c="loop"), ended=not arguments)
            status, text = in_terminal(self.command(*arguments), self.folder,
                                       SHARDLAB_TIME_FACTOR=FACTOR)
            self.assertEqual(status, 0, text)
            self.assertEqual(self.starts(), starts)


for name in [name for name in dir(Quick) if name.startswith("test_") and name not in vars(Patient)]:
    setattr(Patient, name, None) # only its own


class Alone(unittest.TestCase):
    def test_nothing_else_runs_beside_one_that_runs_alone(self):
        turns, now, most, lock = timeouts.Turns(), [], [], threading.Lock()
        alone = functools.partial(turns.turn, alone=True)

        def enter(kind, turn):
            for _ in range(20):
                with turn():
                    with lock:
                        now.append(kind)
                        most.append(list(now))
                    os.sched_yield()
                    with lock:
                        now.remove(kind)
        threads = [threading.Thread(target=enter, args=arguments, daemon=True) for arguments in
                   (("among", turns.turn), ("among", turns.turn),
                    ("alone", alone), ("alone", alone))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(len(most), 80)
        for running in most:
            self.assertTrue(running == ["alone"] or "alone" not in running, running)


if __name__ == "__main__":
    unittest.main()
