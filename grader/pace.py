"""How long tests may take: measured, from what the reference takes for them on this machine.

A fixed limit fails slow machines and bores fast ones. So a suite runs once linked with the
reference, and the slowest of its tests gives the limit of all of them: MARGIN times that, and at
least LEAST seconds, because a machine that is idle now may be crowded later. The times are kept
beside the reference's suite, and count for this very program on this sort of machine. Until they
are needed nobody waits for them: a suite has LEAST seconds for a test at first, and the reference
runs as soon as a test of the student's takes longer or fails. What has passed, and what is not
written yet, needs no limit. Should the reference fail a test, the kit or the machine is at fault:
nobody loses points by a test that the solution does not pass. That is looked at again, whatever is
known of earlier times, where a test of the student's ended by a signal, took too long or lacked
something that the machine gives (memory, files, processes): not where it found wrong values, which
say nothing of the machine. The reference then runs as the tests did: their account (account.py) may
have limits that the grader's has not.

Where somebody waits, a test may have less after a time-out (timeouts.py): SHORT seconds, or MARGIN
times what it takes the reference itself, whichever is more.

Interface: Pace(builder, suites, fixed).of(suite, tests, caps) -> Limit(seconds, reference), .hold(
suite, verdicts, limit, caps) raises Infrastructure where the machine is at fault; where
`reference` holds seconds by test; fixed: seconds that somebody asked for, nothing is measured then;
Limit.short(test), .measure() where it is .open, which may raise Infrastructure.
"""

import contextlib
import json
import os
import platform
import re
import shutil
from dataclasses import dataclass, field

import runner
from builder import ROOT, Infrastructure
from files import digest, write_atomically

MARGIN = 20.0                # times the reference's own time
LEAST = {"cuda": 60.0}       # seconds; a GPU's libraries take some to start
LEAST_ELSEWHERE = 10.0
SHORT = 2.0                  # seconds, times SHARDLAB_TIME_FACTOR
GRACE = 5.0                  # seconds
# What a test says that lacked something of the machine's, or was ended from outside.
LACKING = re.compile(
    r"Cannot allocate memory|out of memory|Too many open files|Resource temporarily unavailable|"
    r"File too large|File size limit|No space left|Operation not permitted|killed by signal|"
    r"\bSIG[A-Z]+\b|rlimit|ulimit|cannot (?:start|fork|map|open|create|make)|"
    r"\b(?:mmap|fork|pipe|memfd_create|ftruncate|pthread_create|shm_open)\b", re.IGNORECASE)
PATIENCE = 300.0             # seconds a test of the reference may take while it is measured


@dataclass
class Limit:
    """What a test of a suite may take."""
    seconds: float
    reference: dict = field(default_factory=dict) # test name: seconds of the reference, if known
    measured: object = None # what returns the two above; None: these are them

    @property
    def open(self):
        """Whether the reference has not run yet."""
        return self.measured is not None

    def measure(self):
        """From now on the limit is what the reference's time says."""
        if self.open:
            self.seconds, self.reference = self.measured()
            self.measured = None

    def short(self, test):
        """Seconds for a test of a task that has had a time-out already."""
        own = MARGIN * self.reference.get(test, 0)
        return min(self.seconds, round(max(SHORT * runner.time_factor(), own), 1))

    def reason(self, test):
        """Where the limit comes from, as the end of a message."""
        if test not in self.reference:
            return ""
        return ("\nThe reference took %.2g s for this test on this machine. LIMIT=%g allows more."
                % (self.reference[test], 6 * self.seconds))


def grace(seconds):
    """Seconds for a test with this limit, if it can still speak, to say itself that its time is
    over, and where its ranks are."""
    return min(seconds, GRACE)


class Pace:
    """The limits of one grading."""

    def __init__(self, builder, suites, fixed=0.0):
        self.fixed = fixed
        self.builder = builder
        known = [suite for suite in suites if os.path.exists(notes(self.path_of(suite)))]
        self.paths = {} if fixed or not known else builder.reference_suites(known)
        self.least = LEAST.get(builder.backend, LEAST_ELSEWHERE) * runner.time_factor()

    def of(self, suite, tests, caps=None):
        """The limit for these tests of a suite."""
        if self.fixed:
            return Limit(self.fixed)
        seconds = recall(self.paths[suite], tests) if suite in self.paths else None
        if seconds is None:
            return Limit(self.least, measured=lambda: self.measure(suite, tests, caps))
        return Limit(self.from_reference(seconds), seconds)

    def path_of(self, suite):
        return os.path.join(ROOT, self.builder.suite(suite, "reference"))

    def from_reference(self, seconds):
        return round(max(self.least, MARGIN * max(seconds.values(), default=0)), 1)

    def measure(self, suite, tests, caps):
        """Runs the reference, and keeps its times."""
        if suite not in self.paths:
            self.paths.update(self.builder.reference_suites([suite]))
        seconds = measure(self.paths[suite], tests, caps)
        remember(self.paths[suite], seconds)
        return self.from_reference(seconds), seconds

    def hold(self, suite, verdicts, limit, caps=None):
        """Whether the reference passes, here and now, the tests that may have failed because of the
        machine."""
        tests = [name for name, verdict in verdicts.items()
                 if verdict.status in ("error", "timeout")
                 or verdict.status == "failed" and LACKING.search(verdict.message)]
        if not tests:
            return
        if suite not in self.paths:
            self.paths.update(self.builder.reference_suites([suite]))
        seconds = max(limit.seconds, self.least)
        with self.within_reach(suite, caps) as path:
            again, _ = runner.run_tests([path], tests, seconds, caps,
                                        {"SHARDLAB_LIMIT": "%g" % seconds}, grace(seconds))
        for name in tests:
            if again[name].status not in ("passed", "skipped"):
                raise Infrastructure(
                    "this machine is too slow just now, or has a limit (ulimit -a), so that the "
                    "reference itself does not pass %s (%s): %s"
                    % (name, again[name].status, again[name].message))


    @contextlib.contextmanager
    def within_reach(self, suite, caps):
        """The reference's suite, where the account of the tests may run it: for as long as this
        takes a copy beside the student's. (Its code is in every student's archive, as objects.)"""
        path = self.paths[suite]
        if not caps or not caps.account:
            yield path
            return
        copy = os.path.join(ROOT, self.builder.suite("reference-" + suite))
        try:
            try:
                shutil.copyfile(path, copy)
                os.chmod(copy, 0o755)
            except OSError as problem:
                raise Infrastructure("%s cannot be written: %s" % (copy, problem.strerror))
            yield copy
        finally:
            if os.path.exists(copy):
                os.unlink(copy)


def measure(path, tests, caps):
    """Seconds that the reference takes for each of the tests."""
    verdicts, _ = runner.run_tests([path], tests, PATIENCE * runner.time_factor(), caps)
    for name in tests:
        if verdicts[name].status not in ("passed", "skipped"):
            raise Infrastructure("on this machine the reference itself does not pass %s (%s): %s"
                                 % (name, verdicts[name].status, verdicts[name].message))
    return {name: verdicts[name].seconds for name in tests}


def machine():
    """What sort of machine this is, in a line."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            model = next((line.partition(":")[2].strip() for line in file
                          if line.startswith("model name")), "")
    except OSError:
        model = "" # not Linux
    model = model or platform.processor() # which starts a program
    return "%s, %s, %s cores" % (platform.machine(), model, os.cpu_count())


def notes(path):
    return path + ".pace"


def recall(path, tests):
    """What an earlier measurement of this program found; None where there is none to be used."""
    try:
        with open(notes(path), encoding="utf-8") as file:
            known = json.load(file)
        if known["program"] != digest(path) or known["machine"] != machine():
            return None
        seconds = {name: float(known["seconds"][name]) for name in tests}
    except (OSError, ValueError, KeyError, TypeError):
        return None # the next measurement replaces it
    return seconds if all(0 <= value < 1e6 for value in seconds.values()) else None


def remember(path, seconds):
    """Keeps a measurement. Whatever it says, no limit falls below LEAST."""
    text = json.dumps({"program": digest(path), "machine": machine(),
                       "seconds": seconds}, indent=1)
    try:
        write_atomically(notes(path), text + "\n")
    except OSError:
        pass # measured again the next time
