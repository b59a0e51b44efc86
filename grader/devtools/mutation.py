#!/usr/bin/env python3
"""Mutation by machine: is there a line of the reference that may be wrong and no test sees it?

Every statement and expression of reference/*.c is changed in every way of mutation_operators.py,
one at a time, and the tests that grade are run on the result: its own task's suite, then
`together`. The hand-written mutants (mutants.py) are mistakes that students make, with the reason
for which they must be caught; these here only have to be caught. What becomes of a mutant:

  not valid    it does not compile as a task file must (the Makefile's flags)
  same code    its object code is the original's: equivalent, nothing is run
  fixed        killed by a fixed case: a test fails, errors or takes too long before it has drawn
               anything. A mutant's run ends with its first kill.
  seeds        killed by cases that draw shapes alone, and by them with all of SEEDS seeds
  some seeds   killed by these with some seeds, alive with another: needs a fixed case
  alive        every test passes. It is equivalent, and tests/mutants/machine/equivalent.json has
               the reason, or the tests have a hole. What simgpu reports in a test that passes costs
               a student no point, so it kills nothing; it is only noted.

Results go to build/mutation/results.jsonl as they come. RESUME=1 takes those over that were found
with the same programs and seed, RESUME=kills every kill, also of other tests: they only grow
stricter.

Interface: mutation.py [--task N] [--only ID] [--sample N] [--resume 1|kills] [--seeds N] [--jobs N]
[--own] [--list] [--build DIR]; exit status 0: none alive without a reason; 1: some are; 2: a
question or a list that makes no sense; 3: the kit or the machine is at fault.
Files: mutation_source.py, mutation_operators.py, mutation_results.py (the list of reasons).
"""

import argparse
import collections
import hashlib
import math
import os
import queue
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest
import mutants
import runner
import seeds
from builder import Builder, Infrastructure
from mutation_operators import mutants_of
from mutation_results import (JUDGED, KILLED, OWN, BadList, Record, Result, load_judged,
                              load_kills, load_results)
from mutation_source import BadSource

REFERENCE = os.path.join(ROOT, "reference")
SEEDS = 20
JOBS = 2
MARGIN, LEAST = 25.0, 2.0    # a test's limit: times the reference's own time, and seconds at least
AGAIN = 3.0                  # times the limit, for a test that has timed out
HANGS = 3                    # seeds for a mutant that a test times out with: each takes its limit
CPU_MARGIN, CPU_LEAST = 5.0, 1.0 # the same for processor time, which a busy machine leaves as it is
MEMORY = 3 << 30             # bytes that a mutant's processes may use together
LOOK = 1.0                   # seconds between two looks at them
START = 0.03                 # seconds that the start of a suite costs, whatever it runs


@dataclass
class Case:
    """A test of a suite, as the reference passes it."""
    suite: str
    name: str
    seconds: float
    cost: float              # seconds of the processor's time
    draws: bool              # sooner or later; its known cases come first
    reports: bool            # simgpu reports something with the reference too
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
        rule = "mutation-print-flags: ; @printf '%s\\n' '$(MISTAKES)'"
        status, output = Builder(REFERENCE, build, "simgpu").make(["mutation-print-flags"],
                                                                  extra=["--eval=" + rule])
        if status != 0:
            raise Infrastructure("the Makefile does not say how it compiles:\n%s" % output[-2000:])
        self.mistakes = shlex.split(output)
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
        wrong = self.command(self.compiler + self.mistakes + ["-c", source, "-o", made])
        return (None, wrong) if wrong else (made, code_sum(made))

    def all_but_one(self, suite, task, folder):
        """An object that holds a suite and what it needs, but not the task's file: to be linked
        with every mutant of that file. It has its lines, by which tests know given code."""
        target = os.path.join(folder, "%s-without-%s.o" % (suite, task.name))
        objects = [self.test_object("tests/tasks/" + suite)]
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

    def __init__(self, shop, task, folder, seed, own):
        self.shop, self.task, self.seed = shop, task, seed
        self.lock = threading.Lock()
        self.known = {}      # sum of object code: Result
        self.cases = []      # in the order of their suites
        self.rest = {}       # suite: all that is linked with a mutant
        with open(os.path.join(REFERENCE, task.file), encoding="utf-8") as file:
            made, self.code = shop.object(task.file, file.read(), folder)
        if not made:
            raise Infrastructure("reference/%s does not compile: %s" % (task.file, self.code))
        sums = [str(seed), self.code]
        for suite, tests in ((task.name, task.own()),
                             ("together", [t for each in shop.tasks for t in each.together()])):
            if tests:
                self.rest[suite] = shop.all_but_one(suite, task, folder)
                program = shop.program(suite, self.rest[suite], made, folder)
                sums.append(file_sum(self.rest[suite])) # the program knows its folder
                if suite == task.name or not own:
                    self.measure(suite, program, [test.name for test in tests])
        self.key = hashlib.sha256("".join(sums).encode()).hexdigest()[:16]

    def measure(self, suite, program, names):
        for name in names:
            began = children_time()
            verdict = runner.run_tests([program], [name], 60 * runner.time_factor(),
                                       environment={"SEED": str(self.seed)})[0][name]
            if verdict.status != "passed":
                raise Infrastructure("the reference does not pass %s of %s: %s"
                                     % (name, suite, verdict.message))
            self.cases.append(Case(suite, name, verdict.seconds, children_time() - began + START,
                                   verdict.seed is not None, bool(verdict.reports)))

    def learn(self, function, name):
        """An earlier run's kill: by the test SUITE: NAME."""
        for case in self.cases:
            if "%s: %s" % (case.suite, case.name) == name:
                case.tries[function] += 1
                case.kills[function] += 1

    def in_order(self, suite, function):
        """The cases of a suite: first those that kill most mutants of the function for the time
        that they take."""
        with self.lock:
            return sorted((case for case in self.cases if case.suite == suite),
                          key=lambda case: -case.worth(function))

    def run(self, program, case, seed, times=1.0):
        """(how the case kills: "" (not at all), failed, error or timeout; whether before it has
        drawn anything; whether it passes with a report of simgpu's that the reference has not)."""
        limit = times * max(LEAST, MARGIN * case.seconds) * runner.time_factor()
        heard = set()
        # One that computes without end is known by that, however busy the machine is.
        caps = runner.Caps(memory=MEMORY, cpu=math.ceil(max(CPU_LEAST, CPU_MARGIN * case.cost)))
        verdict = runner.run_tests([program], [case.name], limit, caps,
                                   {"SHARDLAB_LIMIT": "%g" % limit, "SEED": str(seed)},
                                   grace=5.0, heard=heard.add)[0][case.name]
        if verdict.status == "timeout" and times == 1.0 and seed == self.seed:
            return self.run(program, case, seed, AGAIN) # the machine may have been busy
        # A program that died before its verdict did not say whether it had drawn.
        fixed = not case.draws or (case.name in heard and verdict.seed is None)
        if verdict.status in ("passed", "skipped"):
            return "", fixed, bool(verdict.reports) and not case.reports
        return verdict.status, fixed, False

    def first_kill(self, programs, suite, seed, function):
        """(case, how, whether before a draw) of the first kill, or None; and the first case that
        passed with a report, or None. A case that had drawn before it killed has one that comes
        after it looked at too: a known case may do the same."""
        drawn = reported = None
        for case in self.in_order(suite, function):
            if drawn and seed != self.seed:
                break
            how, fixed, report = self.run(programs(suite), case, seed)
            if runner.stopping.is_set():
                raise runner.Stopped("the end of the run")
            with self.lock:
                case.tries[function] += 1
                case.kills[function] += bool(how and fixed)
            if how and fixed:
                return (case, how, True), None
            drawn = drawn or ((case, how, False) if how else None)
            reported = reported or (case if report else None)
        return drawn, reported

    def judge(self, programs, more_seeds, own, function):
        """(outcome, case, how, seeds with which it lives) of a mutant of the function that
        compiles. own: the task's suite alone."""
        drawn = reported = None
        suites = [self.task.name] if own else list(dict.fromkeys(case.suite for case in self.cases))
        for suite in suites:
            found, report = self.first_kill(programs, suite, self.seed, function)
            reported = reported or report
            if found and found[2]:
                return ("fixed",) + found[:2] + ([],)
            drawn = drawn or (found and found[:2])
        if not drawn:
            return "alive", reported, OWN if own else "report" if reported else "", []
        if drawn[1] == "timeout":
            more_seeds = min(more_seeds, HANGS)
        for seed in range(self.seed + 1, self.seed + more_seeds):
            if self.run(programs(drawn[0].suite), drawn[0], seed)[0]:
                continue
            if not any(self.first_kill(programs, suite, seed, function)[0] for suite in suites):
                return ("some seeds",) + drawn + ([seed],)
        return ("seeds",) + drawn + ([],)

    def same(self, mutant, code):
        """The result of an earlier mutant with the same object code, or None."""
        with self.lock:
            known = self.known.get(code)
        return known and Result(mutant.id, known.outcome, known.by, known.how, code, self.key, 0.0,
                                known.lives, known.seeds)

    def try_one(self, mutant, folder, options):
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
        outcome, case, how, lives = self.judge(programs, options.seeds, options.own,
                                                mutant.function)
        result = Result(mutant.id, outcome, "%s: %s" % (case.suite, case.name) if case else "", how,
                        code, self.key, round(time.monotonic() - began, 2), lives, options.seeds)
        with self.lock:
            self.known[code] = result
        return result


# ---- All of them ----

def run_all(benches, chosen, done, options, folder, record):
    """Tries every mutant that has no result yet; the results by id."""
    results, free = dict(done), queue.Queue()
    for number in range(options.jobs):
        own = os.path.join(folder, "worker-%d" % number)
        os.makedirs(own, exist_ok=True)
        free.put(own)

    def one(mutant):
        own = free.get()
        try:
            if runner.stopping.is_set():
                return None
            result = benches[mutant.file].try_one(mutant, own, options)
            if runner.stopping.is_set():
                return None # what ended it was not a test
            record.add(result)
            return mutant, result
        finally:
            free.put(own)
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(one, mutant) for mutant in chosen if mutant.id not in done]
        try:
            for number, future in enumerate(waiting, 1):
                got = future.result()
                if got is None:
                    continue
                results[got[0].id] = got[1]
                if got[1].outcome in ("alive", "some seeds"):
                    show(got[0], got[1])
                if number % 100 == 0:
                    print("… %d of %d" % (number, len(waiting)), flush=True)
        except BaseException:
            for future in waiting:
                future.cancel()
            runner.stop()
            raise
    return results


def show(mutant, result):
    what = "alive" if result.outcome == "alive" else "needs a fixed case (alive with SEED=%s)" % (
        ", ".join(map(str, result.lives)))
    print("%s  reference/%s:%d  %s\n%s" % (what, mutant.file, mutant.line, mutant.id,
                                           "\n".join("    " + line
                                                     for line in mutant.diff().splitlines())),
          flush=True)


def summary(chosen, results, judged, seconds):
    """Prints what came out; the exit status."""
    counts = collections.Counter()
    left, wrong, reports = [], [], 0
    for mutant in chosen:
        result = results[mutant.id]
        outcome = result.outcome
        if mutant.id in judged:
            if outcome in KILLED + ("not valid", "some seeds"):
                wrong.append((mutant, result))
            outcome = "judged" if outcome == "alive" else outcome
        elif outcome in ("alive", "some seeds"):
            left.append((mutant, result))
        reports += outcome == "alive" and bool(result.by)
        counts[outcome] += 1
    tried = len(chosen) - counts["not valid"] - counts["same code"] - counts["judged"]
    killed = counts["fixed"] + counts["seeds"]
    if left:
        print("\nWithout a reason:")
    for mutant, result in left:
        show(mutant, result)
    for mutant, result in wrong:
        print("judged equivalent, but %s (%s, %s): %s" % (result.outcome, result.by, result.how,
                                                          mutant.id))
    print("\n%d mutants in %.0f s" % (len(chosen), seconds))
    for what, number in (
            ("not valid (do not compile)", counts["not valid"]),
            ("equivalent by object code", counts["same code"]),
            ("equivalent, with a reason", counts["judged"]),
            ("killed by a fixed case", counts["fixed"]),
            ("killed by drawn cases, with every seed", counts["seeds"]),
            ("killed with some seeds: need a fixed case", counts["some seeds"]),
            ("alive without a reason", counts["alive"])):
        print("  %5d  %s" % (number, what))
    print("Score: %d of %d killed, %.1f %%" % (killed, tried, 100.0 * killed / max(1, tried)))
    if reports:
        print("Of those alive %d make simgpu report something in a test that passes." % reports)
    return 1 if left or wrong else 0


def choose(options, tasks, everything, seed):
    """The mutants that were asked for."""
    chosen = everything
    if options.task:
        files = [task.file for task in tasks if options.task in (str(task.number), task.name)]
        if not files:
            raise mutants.BadUsage("there is no task %s" % options.task)
        chosen = [mutant for mutant in chosen if mutant.file == files[0]]
    if options.only:
        unknown = set(options.only) - {mutant.id for mutant in chosen}
        if unknown:
            raise mutants.BadUsage("there is no mutant %s" % sorted(unknown)[0])
        chosen = [mutant for mutant in chosen if mutant.id in options.only]
    if options.sample:
        drawn = random.Random(seed).sample(range(len(chosen)), min(options.sample, len(chosen)))
        chosen = [chosen[i] for i in sorted(drawn)]
        print("%d drawn by SEED=%d" % (len(chosen), seed))
    if not chosen:
        raise mutants.BadUsage("there is nothing to try")
    return chosen


def make_all(tasks):
    """Every mutant of every task's file."""
    found = []
    for task in tasks:
        with open(os.path.join(REFERENCE, task.file), encoding="utf-8") as file:
            try:
                found += mutants_of(task.file, file.read())
            except BadSource as problem:
                raise mutants.BadUsage("reference/%s, %s" % (task.file, problem))
    return found


def parse(arguments):
    parser = argparse.ArgumentParser(description="Change every line of the reference, and see "
                                     "whether the tests notice.")
    parser.add_argument("--task", default="", metavar="N|name", help="those of one task")
    parser.add_argument("--only", action="append", metavar="ID", help="this one (may be repeated)")
    parser.add_argument("--sample", type=int, default=0, metavar="N",
                        help="so many, drawn by SEED")
    parser.add_argument("--resume", default="", choices=["", "1", "kills"],
                        help="1: what the same programs gave; kills: every earlier kill as well")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N",
                        help="seeds for one that drawn cases alone kill (%d)" % SEEDS)
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N")
    parser.add_argument("--own", action="store_true",
                        help="run the task's own suite alone: quicker; a later --resume 1 runs "
                        "`together` on what that leaves alive")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--build", default="", metavar="DIR", help="build tree")
    return parser.parse_args(arguments)


def run(options):
    began = time.monotonic()
    if not options.sample:
        os.environ.setdefault("SEED", mutants.MUTANTS_SEED)
        os.environ["SEED"] = os.environ["SEED"] or mutants.MUTANTS_SEED
    seed = seeds.choose()
    tasks = manifest.load(ROOT)
    everything = make_all(tasks)
    judged = load_judged(JUDGED, {mutant.id: mutant for mutant in everything})
    chosen = choose(options, tasks, everything, seed)
    if options.list:
        for mutant in chosen:
            print("%s  %d  %s" % (mutant.id, mutant.line, mutant.change()))
        return 0
    shop = Workshop(options.build, tasks)
    with tempfile.TemporaryDirectory(prefix="shardlab-mutation-") as folder:
        os.environ["TMPDIR"] = folder # what a compiler leaves that was stopped goes with the rest
        benches = {task.file: Bench(shop, task, folder, seed, options.own) for task in tasks
                   if any(mutant.file == task.file for mutant in chosen)}
        path = os.path.join(shop.folder, "results.jsonl")
        for result in load_kills(path):
            file, function = result.id.split(":")[:2]
            if file in benches:
                benches[file].learn(function, result.by)
        keys = {file: bench.key for file, bench in benches.items()}
        known = load_results(path, keys, options) if options.resume else {}
        done = {mutant.id: known[mutant.id] for mutant in chosen if mutant.id in known}
        if done:
            print("%d have a result already" % len(done))
        record = Record(path)
        results = run_all(benches, chosen, done, options, folder, record)
    return summary(chosen, results, judged, time.monotonic() - began)


def main(arguments=None):
    options = parse(arguments)
    runner.stop_on_signals()
    runner.Family.LOOK = LOOK
    try:
        return run(options)
    except (mutants.BadUsage, BadList, seeds.BadSeed) as problem:
        print("mutation: %s" % problem, file=sys.stderr)
        return 2
    except (Infrastructure, manifest.BadManifest, runner.CannotRun) as problem:
        print("mutation: %s" % problem, file=sys.stderr)
        return 3
    except (runner.Stopped, KeyboardInterrupt) as problem:
        print("mutation: stopped by %s; RESUME=1 goes on" % (problem or "Ctrl-C"), file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
