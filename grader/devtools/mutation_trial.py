"""Builds one mutant made by machine, and runs the tests on it until one kills it (mutation.py).

A time-out says little on a machine that others use. It is believed where the mutant has taken three
times the limit too, and the reference, run at that moment, has passed within the limit itself; else
what becomes of the mutant is *unclear*.

Interface: Workshop(build, tasks), its folder; Bench(shop, task, folder, seed), its key,
.learn(function, test), .try_one(mutant, folder) -> Result; SEEDS.
"""

import collections
import hashlib
import math
import os
import resource
import subprocess
import threading
import time
from dataclasses import dataclass, field

import mutants
import runner
from builder import Infrastructure
from mutation_results import Result

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REFERENCE = os.path.join(ROOT, "reference")
SEEDS = 20                   # for a mutant that only drawn cases kill
MARGIN, LEAST = 25.0, 2.0    # a test's limit: times the reference's own time, and seconds at least
AGAIN = 3.0                  # times the limit, for a test that has timed out
HANGS = 3                    # seeds for a mutant that a test times out with: each takes its limit
CPU_MARGIN, CPU_LEAST = 5.0, 1.0 # the same for processor time, which a busy machine leaves as it is
MEMORY = 3 << 30             # bytes that a mutant's processes may use together
START = 0.03                 # seconds that the start of a suite costs, whatever it runs


class Unclear(Exception):
    """A test timed out, and so did the reference: the machine is too busy for a verdict."""


@dataclass
class Case:
    """A test of a suite, as the reference passes it."""
    suite: str
    name: str
    seconds: float
    cost: float              # seconds of the processor's time
    draws: bool              # sooner or later; its known cases come first
    tries: collections.Counter = field(default_factory=collections.Counter)   # by function
    kills: collections.Counter = field(default_factory=collections.Counter)

    def worth(self, function):
        """Kills of the function's mutants to expect per second; what it does to those of other
        functions counts little."""
        rate = (1 + sum(self.kills.values())) / (2 + sum(self.tries.values()))
        return (self.kills[function] + rate) / (self.tries[function] + 1) / self.cost


# ---- Building ----

class Workshop(mutants.Kit):
    """The kit's objects, and what compiles and links a mutant in a folder of its own."""

    def __init__(self, build, tasks):
        super().__init__(build, tasks)
        self.folder = os.path.join(ROOT, self.build, "mutation")
        os.makedirs(self.folder, exist_ok=True)
        # Each mutant needs a link of its suite: by the quicker linker, where there is one.
        self.quick = [] if self.command(self.linker + ["-fuse-ld=gold", "-Wl,--version"]) else [
            "-fuse-ld=gold"]

    def object(self, file, text, folder):
        """Compiles a text as `file`; (object, sum of its code) or (None, what is wrong). The text
        names itself reference/FILE, so that __FILE__ says nothing of the folder."""
        source = os.path.join(folder, file)
        made = source[:-2] + ".o"
        with open(source, "w", encoding="utf-8") as out:
            out.write('# 1 "reference/%s"\n%s' % (file, text))
        wrong = self.command(self.compiler + ["-c", source, "-o", made])
        return (None, wrong) if wrong else (made, code_sum(made))

    def all_but_one(self, suite, sources, task, folder):
        """An object that holds a suite and what it needs, but not the task's file: to be linked
        with every mutant of that file. It has its lines, by which tests know given code."""
        target = os.path.join(folder, "%s-without-%s.o" % (suite, task.name))
        objects = [self.test_object(source) for source in sources]
        objects += [self.reference(other) for other in self.tasks if other is not task]
        wrong = self.command(self.linker + ["-r", "-nostdlib"] + objects +
                             ["-Wl,--start-group"] + self.libraries + ["-Wl,--end-group"] +
                             ["-o", target])
        if wrong:
            raise Infrastructure("%s cannot be linked: %s" % (suite, wrong))
        return target

    def program(self, suite, rest, made, folder):
        """The suite with a mutant; rest: all_but_one's. The libraries are for what a mutant calls
        and nobody else does."""
        target = os.path.join(folder, "suite-" + suite)
        wrong = self.command(self.linker + self.quick + [rest, made] + self.libraries + self.late +
                             ["-o", target])
        if wrong:
            raise Infrastructure("%s cannot be linked: %s" % (suite, wrong))
        return target


def code_sum(path):
    """The sum of an object without what debuggers read, which changes no code."""
    bare = path + ".bare"
    done = subprocess.run(["objcopy", "--strip-debug", path, bare], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise Infrastructure("objcopy: %s" % done.stdout.decode("utf-8", "replace").strip())
    return file_sum(bare)


def file_sum(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def children_time():
    """Seconds of the processor's time that this program's children have used, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- Running ----

class Bench:
    """What the mutants of one task are tried with."""

    def __init__(self, shop, task, folder, seed):
        self.shop, self.task, self.seed = shop, task, seed
        self.lock, self.measuring = threading.Lock(), threading.Lock()
        self.known = {}      # sum of object code: Result
        self.suites = {}     # those to run, the task's own first: names of tests
        self.cases = {}      # suite: [Case]; those of `together` when it is first run
        self.rest = {}       # suite: all that is linked with a mutant
        self.original = {}   # suite: the program of the reference
        self.learned = []    # (function, "SUITE: TEST") of kills in earlier runs
        with open(os.path.join(REFERENCE, task.file), encoding="utf-8") as file:
            made, self.code = shop.object(task.file, file.read(), folder)
        if not made:
            raise Infrastructure("reference/%s does not compile: %s" % (task.file, self.code))
        sums = [str(seed), self.code]
        having = [each for each in shop.tasks if each.together()]
        for suite, sources, tests in (
                (task.name, task.test_sources(), task.own()),
                ("together", [each.folder + "/together" for each in having],
                 [test for each in having for test in each.together()])):
            if tests:
                self.rest[suite] = shop.all_but_one(suite, sources, task, folder)
                sums.append(file_sum(self.rest[suite])) # the program knows its folder
                self.suites[suite] = [test.name for test in tests]
                self.original[suite] = self.link_original(suite, made, folder)
        self.measured(task.name)
        self.key = hashlib.sha256("".join(sums).encode()).hexdigest()[:16]

    def link_original(self, suite, made, folder):
        """The reference's program, where no mutant's replaces it."""
        own = os.path.join(folder, "original-" + self.task.name)
        os.makedirs(own, exist_ok=True)
        return self.shop.program(suite, self.rest[suite], made, own)

    def measured(self, suite):
        """The cases of a suite."""
        with self.measuring:
            if suite not in self.cases:
                self.cases[suite] = [self.measure(suite, name) for name in self.suites[suite]]
                for function, test in self.learned:
                    self.count(suite, function, test)
            return self.cases[suite]

    def measure(self, suite, name):
        """What the reference takes for a test; of the cost, no less."""
        began = children_time()
        verdict = runner.run_tests([self.original[suite]], [name], 60 * runner.time_factor(),
                                   environment={"SEED": str(self.seed)})[0][name]
        if verdict.status != "passed":
            raise Infrastructure("the reference does not pass %s of %s: %s"
                                 % (name, suite, verdict.message))
        return Case(suite, name, verdict.seconds, children_time() - began + START,
                    verdict.seed is not None)

    def learn(self, function, test):
        """An earlier run's kill: by the test SUITE: NAME."""
        self.learned.append((function, test))

    def count(self, suite, function, test):
        for case in self.cases[suite]:
            if "%s: %s" % (suite, case.name) == test:
                case.tries[function] += 1
                case.kills[function] += 1

    def in_order(self, suite, function):
        """The cases of a suite: first those that kill most mutants of the function for the time
        that they take."""
        cases = self.measured(suite)
        with self.lock:
            return sorted(cases, key=lambda case: -case.worth(function))

    def start(self, program, case, seed, times=1.0):
        """(verdict, whether the test is known to have begun) of a program, in so many times the
        limit."""
        limit = times * max(LEAST, MARGIN * case.seconds) * runner.time_factor()
        heard = set()
        # One that computes without end is known by that, however busy the machine is.
        caps = runner.Caps(memory=MEMORY, cpu=math.ceil(max(CPU_LEAST, CPU_MARGIN * case.cost)))
        verdicts, _ = runner.run_tests([program], [case.name], limit, caps,
                                       {"SHARDLAB_LIMIT": "%g" % limit, "SEED": str(seed)},
                                       grace=5.0, heard=heard.add)
        return verdicts[case.name], case.name in heard

    def run(self, program, case, seed):
        """(how the case kills: "" (not at all), failed, error or timeout; whether before it has
        drawn anything)."""
        verdict, heard = self.start(program, case, seed)
        if verdict.status == "timeout" and seed == self.seed:
            verdict, heard = self.start(program, case, seed, AGAIN)
        if verdict.status == "timeout":
            original, _ = self.start(self.original[case.suite], case, seed)
            if original.status != "passed":
                raise Unclear("%s: %s" % (case.suite, case.name))
        # A program that died before its verdict did not say whether it had drawn.
        fixed = not case.draws or (heard and verdict.seed is None)
        return "" if verdict.status in ("passed", "skipped") else verdict.status, fixed

    def first_kill(self, programs, suite, seed, function):
        """(case, how, whether before a draw) of the first kill, or None. A case that had drawn
        before it killed has one that comes after it looked at too: a known case may do the same."""
        drawn = None
        for case in self.in_order(suite, function):
            if drawn and seed != self.seed:
                break
            how, fixed = self.run(programs(suite), case, seed)
            if runner.stopping.is_set():
                raise runner.Stopped("the end of the run")
            with self.lock:
                case.tries[function] += 1
                case.kills[function] += bool(how and fixed)
            if how and fixed:
                return case, how, True
            drawn = drawn or ((case, how, False) if how else None)
        return drawn

    def judge(self, programs, function):
        """(outcome, case, how, seeds with which it lives) of a mutant of the function that
        compiles."""
        drawn = None
        for suite in self.suites:
            found = self.first_kill(programs, suite, self.seed, function)
            if found and found[2]:
                return ("fixed",) + found[:2] + ([],)
            drawn = drawn or (found and found[:2])
        if not drawn:
            return "alive", None, "", []
        more_seeds = HANGS if drawn[1] == "timeout" else SEEDS
        for seed in range(self.seed + 1, self.seed + more_seeds):
            if self.run(programs(drawn[0].suite), drawn[0], seed)[0]:
                continue
            if not any(self.first_kill(programs, suite, seed, function) for suite in self.suites):
                return ("some seeds",) + drawn + ([seed],)
        return ("seeds",) + drawn + ([],)

    def same(self, mutant, code):
        """The result of an earlier mutant with the same object code, or None."""
        with self.lock:
            known = self.known.get(code)
        return known and Result(mutant.id, known.outcome, known.by, known.how, code, self.key, 0.0,
                                known.lives)

    def try_one(self, mutant, folder):
        began = time.monotonic()
        made, code = self.shop.object(mutant.file, mutant.text, folder)
        if not made:
            return Result(mutant.id, "not valid", code, key=self.key)
        if code == self.code:
            return Result(mutant.id, "same code", code=code, key=self.key)
        known = self.same(mutant, code)
        if known:
            return known
        linked = {}

        def programs(suite):
            if suite not in linked:
                linked[suite] = self.shop.program(suite, self.rest[suite], made, folder)
            return linked[suite]
        try:
            outcome, case, how, lives = self.judge(programs, mutant.function)
        except Unclear as problem:
            return Result(mutant.id, "unclear", str(problem), "timeout", code, self.key)
        result = Result(mutant.id, outcome, "%s: %s" % (case.suite, case.name) if case else "", how,
                        code, self.key, round(time.monotonic() - began, 2), lives)
        with self.lock:
            self.known[code] = result
        return result
