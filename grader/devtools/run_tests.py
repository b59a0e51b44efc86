#!/usr/bin/env python3
"""Runs the kit's own tests for `make test` and `make test-all`: suites in C, and unittest files in
Python.

Every suite gets one line: how many tests, how many failed, how long. A suite with a failure shows
all that it printed, and its failed tests are named once more at the end, where they are seen in a
log of which only the end is kept. The last line is `N passed, N failed`, counted in tests. A suite
that runs no test, or dies, has failed: nothing passes by not being there. All suites draw from one
seed (seeds.py), which is named where a test failed that had drawn something.

Three run at a time, in the order given: the longest come first. That is one more than two
processors have work for, because ranks, and graders, wait for each other now and then. The Python
files build and grade whole implementations and keep out of each other's way by the grader's own
locks. Beside the three runs one of those that mostly wait (tests/tiers.txt), unless --jobs 1 wants
nothing beside.

Of the suites given, --tier test runs those that belong to `make test`, and --tier long those that
only `make test-all` runs, with the longer runs of others (tests/tiers.txt, tiers.py). Of some files
the test tier runs a draw of their tests, and says how many were not drawn and by which seed;
DRAW=all in the environment runs all of them.

Interface: run_tests.py [--build DIR] [--tier test|long] [--jobs N] [--limit SECONDS] [--prefix
WORDS] SUITE|FILE.py …; exit status 1 if anything failed. run_tests.py --unittest FILE.py makes a
suite, as runner.py knows it, of a unittest file.
"""

import argparse
import json
import os
import signal
import sys
import time
import traceback
import unittest
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import runner
import seeds
import tiers


# ---- A unittest file as a suite ----

def each_test(suite):
    """The single tests of a unittest suite."""
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from each_test(entry)
        else:
            yield entry


def short_name(test):
    """Class.method: the name of a unittest test among those of its file."""
    return ".".join(test.id().split(".")[-2:])


class Teller(unittest.TestResult):
    """Writes a verdict for each test to the results pipe, as a suite in C does."""

    def __init__(self):
        super().__init__()
        descriptor = os.environ.pop("SHARDLAB_RESULTS_FD", None)
        self.nonce = os.environ.pop("SHARDLAB_NONCE", "")
        self.pipe = os.fdopen(int(descriptor), "w", encoding="utf-8") if descriptor else None
        if descriptor:
            os.set_inheritable(int(descriptor), False)
        self.told = 0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.worst = ("passed", "")

    def note(self, status, problem):
        text = "".join(traceback.format_exception(*problem))
        print(text, flush=True)
        if self.worst[0] in ("passed", "skipped"):
            self.worst = (status, str(problem[1]) or text.strip().splitlines()[-1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note("failed", err)

    def addError(self, test, err):
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self.note("error", err)
        else:
            # setUpClass: its tests stay without a verdict, and count as failed for that.
            print("".join(traceback.format_exception(*err)), flush=True)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            print(subtest, flush=True)
            self.note("failed", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if isinstance(test, unittest.TestCase) and getattr(self, "worst", None):
            self.worst = ("skipped", reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.worst = ("failed", "passed although it was marked as failing")

    def stopTest(self, test):
        super().stopTest(test)
        status, message = self.worst
        print("%s %s" % (status, short_name(test)), flush=True)
        self.write(test=short_name(test), status=status, message=message,
                   seconds=round(time.monotonic() - self.began, 3))
        self.told += 1

    def write(self, **entry):
        if self.pipe:
            self.pipe.write(json.dumps(dict(entry, nonce=self.nonce)) + "\n")
            self.pipe.flush()


def run_unittest(path, arguments):
    """--list, --only NAME --only NAME …, or all: a unittest file that speaks the suites'
    protocol."""
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    module = os.path.splitext(os.path.basename(path))[0]
    tests = list(each_test(unittest.defaultTestLoader.loadTestsFromName(module)))
    if arguments[:1] == ["--list"]:
        for test in tests:
            print(short_name(test))
        return 0
    if arguments:
        tests = [test for test in tests if short_name(test) in arguments[1::2]]
    teller = Teller()
    unittest.TestSuite(tests).run(teller)
    teller.write(end=teller.told)
    return 0 if teller.wasSuccessful() else 1


# ---- Running them all ----

@dataclass
class Outcome:
    """What a suite came to."""
    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    text: str # why and what it printed, where something failed; else the figures it shows
    failures: tuple = () # for each test that failed: what, which, why
    drew: bool = False # a test failed that had drawn something
    not_drawn: int = 0 # tests of it that were left to `make test-all`


@dataclass(frozen=True)
class Run:
    """A suite that is to be run."""
    path: str
    settings: tuple = ()  # (name, value): goes into its environment
    draw: tiers.Draw = tiers.Draw() # which of its tests are run


def in_tier(known, suites, tier, everything=False):
    """[Run]: what of the suites a tier runs. `everything`: nothing is left to a draw."""
    chosen = []
    for suite in suites:
        file = tiers.source_of(suite)
        where = known.of(file) if file else None
        if where is None:
            raise tiers.BadList("%s is in no tier of tests/tiers.txt" % (file or suite))
        more = [Run(suite, tuple(settings.items())) for settings in known.more(file)]
        if tier == tiers.LONG:
            chosen += more
        if where == tier or where == tiers.DRAW and (tier == tiers.TEST or not more):
            all_of_it = tier == tiers.LONG or everything
            chosen.append(Run(suite, draw=tiers.Draw() if all_of_it else known.draw(file)))
    return chosen


def run_suite(run, seed, limit, prefix):
    """Runs one suite to its end; a program of C behind the words of `prefix`."""
    began, path = time.monotonic(), run.path
    command = prefix + [os.path.abspath(path)]
    if path.endswith(".py"):
        command = [sys.executable, os.path.abspath(__file__), "--unittest", os.path.abspath(path)]

    def outcome(passed, failed, skipped, text, failures=()):
        words = ["%s=%s" % setting for setting in sorted(run.settings)]
        return Outcome(" ".join([os.path.relpath(path)] + words), passed, failed, skipped,
                       time.monotonic() - began, text, tuple(failures))

    def not_run(why):
        return outcome(0, 1, 0, "  %s\n" % why, [why])
    try:
        names = runner.list_tests(command[-1:] if prefix and not path.endswith(".py") else command)
        if not names:
            return not_run("it has no tests")
        wanted = run.draw.of(names, seed, os.path.basename(path))
        verdicts, output = runner.run_tests(command, wanted, limit * runner.time_factor(),
                                            environment=dict(run.settings))
    except runner.CannotRun as problem:
        return not_run(str(problem))
    bad = {name: verdict for name, verdict in verdicts.items()
           if verdict.status not in ("passed", "skipped")}
    skipped = sum(verdict.status == "skipped" for verdict in verdicts.values())
    # A suite has figures to show: lines that begin with a bar.
    text = "".join("  %s\n" % line for line in output.splitlines() if line.startswith("| "))
    failures = ["%s %s: %s" % (verdict.status.upper(), name, verdict.message)
                for name, verdict in bad.items()]
    if bad:
        text = output if output.endswith("\n") or not output else output + "\n"
        text += "".join("  %s\n" % failure for failure in failures)
    done = outcome(len(verdicts) - len(bad) - skipped, len(bad), skipped, text, failures)
    done.drew = any(run.draw.share > 1 or verdict.seed is not None for verdict in bad.values())
    done.not_drawn = len(names) - len(wanted)
    return done


def tell(outcome):
    """A suite's line, and what it printed where it failed."""
    what = "%d passed" % outcome.passed
    if outcome.skipped:
        what += ", %d skipped" % outcome.skipped
    if outcome.failed:
        what += ", %d FAILED" % outcome.failed
    if outcome.not_drawn:
        what += ", %d not drawn" % outcome.not_drawn
    print("%-48s %-32s %6.1f s" % (outcome.name, what, outcome.seconds))
    if outcome.text:
        print(outcome.text, end="")
    sys.stdout.flush()


def run_all(chosen, waiting, seed, options):
    """The outcomes of the suites as they end: of `chosen` as many at a time as there are jobs, and
    of `waiting` one beside them."""
    with ThreadPoolExecutor(max(1, options.jobs)) as pool, ThreadPoolExecutor(1) as beside:
        futures = [where.submit(run_suite, run, seed, options.limit, options.prefix.split())
                   for where, runs in ((pool, chosen), (beside, waiting)) for run in runs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            runner.stop()
            raise


def main():
    if sys.argv[1:2] == ["--unittest"]:
        return run_unittest(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description="Run the kit's own tests.")
    parser.add_argument("--jobs", type=int, default=min(3, 1 + (os.cpu_count() or 1)), metavar="N",
                        help="suites that run at the same time (3)")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS",
                        help="how long a test may take, times SHARDLAB_TIME_FACTOR (300)")
    parser.add_argument("--build", default="build", metavar="DIR",
                        help="where the kit is built, for the tests in Python (build)")
    parser.add_argument("--prefix", default="", metavar="WORDS",
                        help="put in front of every program in C, such as a tool that watches it")
    parser.add_argument("--tier", choices=(tiers.TEST, tiers.LONG),
                        help="of the suites, those of this tier (all, as they are)")
    parser.add_argument("suites", nargs="*", metavar="SUITE|FILE.py")
    options = parser.parse_args()
    if not options.suites:
        print("run_tests: no suites were given", file=sys.stderr)
        return 1
    draw = os.environ.get("DRAW", "")
    if draw not in ("", "all"):
        print("run_tests: DRAW is %s: must be all, or not set" % ascii(draw[:40]), file=sys.stderr)
        return 2
    waiting = []
    try:
        chosen = [Run(suite) for suite in options.suites]
        if options.tier:
            known = tiers.load()
            chosen = in_tier(known, options.suites, options.tier, draw == "all")
            waiting = [run for run in chosen if options.jobs > 1
                       and known.waits(tiers.source_of(run.path))]
        seed = seeds.choose()
    except (seeds.BadSeed, tiers.BadList) as problem:
        print("run_tests: %s" % problem, file=sys.stderr)
        return 2

    os.environ["SHARDLAB_TEST_BUILD"] = os.path.abspath(options.build)
    # For programs without the harness, in a build with sanitizers; tests/support/sanitize.c has the
    # same for suites, and the reasons.
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    os.environ.setdefault("TSAN_OPTIONS", "atexit_sleep_ms=0")

    def stop(number, frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)

    passed = failed = skipped = not_drawn = 0
    drew = False
    failures = []
    others = [run for run in chosen if run not in waiting]
    try:
        for outcome in run_all(others, waiting, seed, options):
            tell(outcome)
            passed += outcome.passed
            failed += outcome.failed
            skipped += outcome.skipped
            not_drawn += outcome.not_drawn
            drew = drew or outcome.drew
            failures += ["%s: %s" % (outcome.name, failure.splitlines()[0])
                         for failure in outcome.failures]
    except KeyboardInterrupt:
        print("stopped before the end", file=sys.stderr)
        return 1
    for failure in failures:
        print(failure)
    if not_drawn:
        print("%d tests were not drawn by SEED=%d: make test-all has them" % (not_drawn, seed))
    if drew:
        print("Some that failed had drawn what they ran on. The same again: make test SEED=%d"
              % seed)
    print("%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
