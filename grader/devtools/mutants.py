#!/usr/bin/env python3
"""Wrong solutions that the tests must catch, and right ones that they must let pass.

A *mutant* is the reference with one mistake in one file, such as students make. It stands in the
mutants.json of its task's or lab's folder with the tests that must fail and, for each of them, a
regular expression that the test's message or hint must match: a mistake that is caught for another
reason teaches the wrong thing. An *alternative* (alternatives/*.c there) is right, but does its
work in another way than the reference; it must get all points. One that changes the files of
several tasks lies with the first of them.

The tests draw shapes and worlds from a seed (seeds.py). For mutants it is always the same: one that
is caught only by some draws must not be caught today and survive tomorrow. Alternatives must
hold whatever is drawn, so theirs is a new one each time, and is told. SEED sets either.

Each is tested as the grader tests a student's: the changed file with the reference's others in its
task's or lab's own suite, and, of a task, once more all together. The objects of the kit are built
once; of a mutant only its own file is compiled, in a temporary folder.

The messages of a mutant are held to it as well, those of its side tests included: what they point
at must not be a wrong cause (messages.py). Which functions are right is known from where the edits
lie; "also" in a mutant gives further parts of the task, each with the reason why it is right, too;
"never", a regular expression, what messages and hints may not say.

Interface: mutants.py [--only NAME] [--task N | --lab N] [--sample N:WORD] [--alternatives |
--machine] [--messages] [--build DIR]; exit status 0 when all went as it should, 1 where a mutant
survives, is caught for another reason, names a wrong cause, does not apply or does not compile, or
where an alternative loses points; 2 for a question that makes no sense; 3 where the kit or the
machine is at fault.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest
import messages
import mutant_files
import runner
import seeds
from builder import Builder, Infrastructure
from mutation_results import BadList

REFERENCE = os.path.join(ROOT, "reference")
AT_ONCE = 2
TEST_LIMIT = 40.0        # seconds a test may take, times SHARDLAB_TIME_FACTOR
COMPILE_LIMIT = 120.0
MUTANTS_SEED = "1"


class BadUsage(Exception):
    """Asked for something that makes no sense."""


@dataclass
class Outcome:
    solution: mutant_files.Solution
    trouble: str = ""      # "": it went as it should
    lost: list = field(default_factory=list)       # the manifest's Tests that did not pass
    verdicts: dict = field(default_factory=dict)
    rows: list = field(default_factory=list)       # of a mutant's task, as it would be graded
    named: object = None   # messages.Screen
    seconds: float = 0.0
    full: float = 0.0      # of an alternative: points of all tasks, or of its labs


# ---- Building ----

class Kit:
    """The kit's own objects, and the commands that make a suite out of them and a file."""

    def __init__(self, build, tasks):
        self.tasks = tasks
        builder = Builder(REFERENCE, build, "simgpu")
        rule = ("grader-print-commands: ; @printf '%s\\n' '$(BUILD)' "
                "'$(CC) $(BASE) $(MISTAKES) $(HALF_DONE) $(CFLAGS) $(INCLUDES)' "
                "'$(LINK) $(LDFLAGS)' "
                "'$(HARNESS_LIB) $(LIBS)' '-lcmocka $(KIT_LIBS) $(LDLIBS)' '$(FAILING)'")
        # A mistake may be one that the compiler warns of: the kit's own strictness is not for it.
        status, output = builder.make(["grader-print-commands"],
                                      extra=["--eval=" + rule, "WERROR="])
        lines = output.splitlines()[-6:] # the last may be empty
        if status != 0 or len(lines) != 6:
            raise Infrastructure("the Makefile does not say how it builds:\n%s"
                                 % output[-2000:])
        self.build = lines[0]
        (self.compiler, self.linker, self.libraries, self.late,
         self.failing) = map(shlex.split, lines[1:]) # failing: of the labs' suites
        targets = self.libraries + [self.test_object(source) for task in tasks
                                    for source in task.test_sources()]
        targets += [self.test_object(task.folder + "/together") for task in tasks
                    if task.together()]
        targets += [self.reference(task) for task in mutant_files.pieces(tasks)]
        with self.lock():
            status, output = builder.make(targets, jobs=2)
        if status != 0:
            raise Infrastructure("the kit itself does not build:\n%s"
                                 % output.strip()[-4000:])

    @contextlib.contextmanager
    def lock(self):
        """One at a time builds in a tree; the tree itself is the lock, so that no file is left."""
        path = os.path.join(ROOT, self.build)
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def test_object(self, source):
        return "%s/obj/%s.o" % (self.build, source)

    def reference(self, task):
        return "%s/impl/reference/%s.o" % (self.build, task.name)

    def command(self, words):
        """What went wrong, or ""."""
        try:
            done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False,
                                  env=dict(os.environ, LC_ALL="C"),
                                  timeout=COMPILE_LIMIT * runner.time_factor())
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
        output = done.stdout.decode("utf-8", "replace")
        errors = [line for line in output.splitlines() if "error" in line or "undefined" in line]
        return "" if done.returncode == 0 else (errors + output.splitlines() + ["?"])[0]

    def compile(self, source, target):
        return self.command(self.compiler + ["-c", source, "-o", target])

    def link(self, kind, sources, changed, target):
        """A suite of a task or lab; changed: {task name: object} that stands in for the
        reference's."""
        objects = [changed.get(task.name) or self.reference(task)
                   for task in mutant_files.pieces(self.tasks) if task.kind.stage <= kind.stage]
        failing = self.failing if kind.stage > 1 else []
        return self.command(self.linker + failing +
                            [self.test_object(source) for source in sources] +
                            objects + self.libraries + self.late + ["-o", target])


# ---- Running and judging ----

def run_all(kit, solution, folder):
    """The verdicts of the changed files' own suites and of all together, and "" or why there are
    none."""
    objects, verdicts = {}, {}
    for name, source in mutant_files.write_sources(solution, kit.tasks, folder).items():
        objects[name] = source[:-2] + ".o"
        problem = kit.compile(source, objects[name])
        if problem:
            return {}, "does not compile: %s" % problem
    changed = {task.name: {piece.name: objects[piece.name] for piece in task.pieces()
                           if piece.name in objects} for task in kit.tasks}
    suites = [(task.name, task.kind, task.test_sources(), changed[task.name], task.own())
              for task in kit.tasks if changed[task.name]]
    suites += [("together", task.kind, [task.folder + "/together"], objects, task.together())
               for task in kit.tasks if any(changed[other.name] for other in kit.tasks
                                            if other.kind is task.kind)]
    for name, kind, sources, own, tests in suites:
        if not tests:
            continue
        # A machine makes many, and what such a test says is not shown beside a task's own tests.
        if solution.texts and any(verdict.status != "passed" for verdict in verdicts.values()):
            verdicts.update((test.name, runner.Verdict("failed", "not run")) for test in tests)
            continue
        program = os.path.join(folder, "suite-" + name)
        problem = kit.link(kind, sources, own, program)
        if problem:
            return {}, "cannot be linked: %s" % problem
        verdicts.update(runner.run_tests([program], [test.name for test in tests],
                                         TEST_LIMIT * runner.time_factor())[0])
        os.unlink(program)
    return verdicts, ""


def said(verdict, row):
    """What a student reads of a test that failed, on one line."""
    return " ".join((verdict.message + "\n" + row["hint"]).split())


def look_at_messages(outcome, task, own):
    """What a student would read of a mutant; "" or the test that names a wrong cause. own: the
    folder of its files."""
    right = messages.Right(outcome.solution,
                           "".join(map(mutant_files.reference_of, task.pieces())))
    outcome.rows = messages.rows_of(task, outcome.verdicts, [
        ("%s/%s" % (os.path.basename(own), piece.file),
         mutant_files.read(os.path.join(own, piece.file))) for piece in task.pieces()])
    outcome.named = messages.Screen(outcome.rows, right)
    found = ["%s %s" % (row["name"], messages.wrong(row, right)) for row in outcome.rows
             if messages.wrong(row, right)]
    return "a wrong cause: %s, and the mistake is in %s" % (
        "; ".join(found), ", ".join(sorted(right.functions))) if found else ""


def judge_mutant(outcome):
    """Why the mutant is not caught as it should be, or ""."""
    lost = {test.name for test in outcome.lost}
    if not lost:
        return "survives: every test passes"
    for name, reason in outcome.solution.caught_by.items():
        row = [row for row in outcome.rows if row["name"] == name]
        if name not in lost or not row:
            return "%s passes" % name
        verdict = outcome.verdicts[name]
        if not re.search(reason, said(verdict, row[0])):
            return "another reason: %s says: %s" % (name, " ".join(verdict.message.split())[:300])
    return ""


def judge_alternative(outcome):
    """Which tests a right solution loses, or ""."""
    return "; ".join("%s says: %s" % (test.name, " ".join(
        outcome.verdicts[test.name].message.split())[:300]) for test in outcome.lost)


def try_one(kit, solution, folder):
    """Builds and tests one solution in a folder of its own."""
    outcome, began = Outcome(solution), time.monotonic()
    tests = {test.name: test for task in kit.tasks for test in task.tests}
    misled = ""
    with tempfile.TemporaryDirectory(dir=folder) as above:
        # Messages show a file's folder: let it be the solution's name.
        own = os.path.join(above, re.sub(r"[^\w.+-]", "_", solution.name))
        os.mkdir(own)
        try:
            outcome.verdicts, outcome.trouble = run_all(kit, solution, own)
            if solution.task and not outcome.trouble:
                misled = look_at_messages(outcome, solution.task, own)
        except mutant_files.DoesNotApply as problem:
            outcome.trouble = "does not apply: %s" % problem
    touched = [task for task in kit.tasks
               if any(piece.file in solution.parts for piece in task.pieces())]
    if manifest.TASK in [task.kind for task in touched]:
        touched = [task for task in kit.tasks if task.kind is manifest.TASK]
    outcome.full = sum(task.points for task in touched)
    outcome.lost = [tests[name] for name in tests if name in outcome.verdicts
                    and outcome.verdicts[name].status != "passed"]
    if not outcome.trouble:
        outcome.trouble = (judge_mutant(outcome) or misled if solution.task
                           else judge_alternative(outcome))
    if solution.texts: # whether one made by machine may live or does not compile is mutation.py's
        outcome.trouble = ""
    outcome.seconds = time.monotonic() - began
    return outcome


def show(outcome, verbose):
    """A line of the table, and more below it where something is not as it should be."""
    solution = outcome.solution
    points = sum(test.points for test in outcome.lost)
    names = [test.name for test in outcome.lost]
    if solution.task:
        named = [name for name in names if name in solution.caught_by]
        others = len(names) - len(named)
        text = ", ".join(named) + (" and %d more" % others if others else "") if named else \
            ", ".join(names)
        print("%-4s %-2s %-32s -%-4g %4.1f s  %s" % ("no" if outcome.trouble else "yes",
              solution.task.label(), solution.name,
              points, outcome.seconds, text or "nothing"))
    else:
        print("%-4s %-32s %3g/%-3g %4.1f s" % ("no" if outcome.trouble else "yes", solution.name,
              outcome.full - points, outcome.full, outcome.seconds))
    if outcome.trouble:
        print("       %s\n       %s" % (solution.about, outcome.trouble))
    if verbose:
        for test in outcome.lost:
            print("       %s: %s" % (test.name, outcome.verdicts[test.name].message))
    sys.stdout.flush()


def run_solutions(kit, solutions, folder, verbose):
    """Tests all, two at a time; the outcomes in order."""
    outcomes = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = []
        try:
            for solution in solutions:
                waiting.append(pool.submit(try_one, kit, solution, folder))
            for future in waiting:
                outcomes.append(future.result())
                show(outcomes[-1], verbose)
        except BaseException:
            for future in waiting:
                future.cancel()
            runner.stop()
            raise
    return outcomes


def sample(solutions, asked):
    """So many of them, drawn by a word: 100:abc. The same word draws the same ones."""
    number, _, word = asked.partition(":")
    if not number.isdigit() or int(number) == 0:
        raise BadUsage("--sample %s: must be a number of solutions, or NUMBER:WORD" % asked)
    drawn = sorted(solutions, key=lambda solution: hashlib.sha256(
        ("%s %s" % (word, solution.name)).encode()).digest())[:int(number)]
    return [solution for solution in solutions if solution in drawn]


def choose(options, solutions, tasks):
    """Those that were asked for."""
    kind, wanted = manifest.asked(options)
    if wanted:
        some = [task for task in tasks if task.kind is kind]
        task = some if (kind, wanted) == (manifest.LAB, "all") else manifest.choose(some, wanted)
        if not task:
            raise BadUsage("there is no %s %s" % (kind.word, wanted))
        files = {piece.file for piece in mutant_files.pieces(task)}
        solutions = [s for s in solutions if s.task in task or files & set(s.parts)]
    if options.only:
        unknown = set(options.only) - {solution.name for solution in solutions}
        if unknown:
            raise BadUsage("there is no %s" % sorted(unknown)[0])
        solutions = [solution for solution in solutions if solution.name in options.only]
    if options.sample:
        solutions = sample(solutions, options.sample)
    if not solutions:
        raise BadUsage("there is nothing to test")
    return solutions


def show_messages(outcomes):
    """The table of first screens (messages.py), and how many are wrong."""
    print("task, mutant, where the mistake is, whether the first screen names it, its line Look:")
    for outcome in outcomes:
        print("%-3s %-34s %s" % (outcome.solution.task.label(), outcome.solution.name,
                                 outcome.named.line()))
    count = max(1, len(outcomes))
    for sentence, test in (
            ("the first screen names the right function or rule", lambda screen: screen.names),
            ("Look: has the right function", lambda screen: screen.looks == messages.RIGHT),
            ("the first screen or Look: is wrong", lambda screen: screen.misleads())):
        names = [outcome.solution.name for outcome in outcomes if test(outcome.named)]
        print("of %d mutants, %s: %d, %.1f %%" % (len(outcomes), sentence, len(names),
                                                  100.0 * len(names) / count))


def summary(options, outcomes, seconds):
    bad = [outcome.solution.name for outcome in outcomes if outcome.trouble]
    if options.alternatives:
        print("%d alternatives, %d with full marks, %.0f s"
              % (len(outcomes), len(outcomes) - len(bad), seconds))
    else:
        print("%d mutants, %d caught for the stated reason, %.0f s"
              % (len(outcomes), len(outcomes) - len(bad), seconds))
    if bad:
        print("wrong: %s" % ", ".join(bad))
    if options.messages:
        show_messages([outcome for outcome in outcomes if outcome.rows and outcome.lost])
    return 1 if bad else 0


def parse():
    parser = argparse.ArgumentParser(description="Test the tests: with solutions that are wrong, "
                                     "and with some that are right in another way.")
    parser.add_argument("--alternatives", action="store_true",
                        help="the right ones instead of the wrong ones")
    parser.add_argument("--machine", action="store_true",
                        help="the machine-made ones instead (mutation.py), for --messages")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help="this one (may be repeated)")
    parser.add_argument("--task", default="", metavar="N|name", help="those of one task")
    parser.add_argument("--lab", default="", metavar="N|name|all", help="those of a lab")
    parser.add_argument("--sample", default="", metavar="N[:WORD]",
                        help="so many, drawn by the word")
    parser.add_argument("--messages", action="store_true",
                        help="the table of first screens: which name the mistake's function")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="what each test that failed says")
    return parser.parse_args()


def run(options):
    began = time.monotonic()
    tasks = manifest.load_all(ROOT)
    load = (mutant_files.load_alternatives if options.alternatives else
            mutant_files.machine_made if options.machine else mutant_files.load_mutants)
    solutions = choose(options, load(tasks), tasks)
    if not options.alternatives and not os.environ.get("SEED"):
        os.environ["SEED"] = MUTANTS_SEED
    seed = seeds.choose()
    with tempfile.TemporaryDirectory(prefix="shardlab-mutants-") as folder:
        os.environ["TMPDIR"] = folder # what a compiler leaves that was stopped goes with the rest
        kit = Kit(options.build, tasks)
        print("as it should be, " + ("name, score, time" if options.alternatives else
                                     "task, mutant, points lost, time, tests lost"))
        outcomes = run_solutions(kit, solutions, folder, options.verbose)
    if any(outcome.trouble for outcome in outcomes):
        print("The tests drew from SEED=%d." % seed)
    return summary(options, outcomes, time.monotonic() - began)


def exit_status(program, work, options, after_stop=""):
    """What work(options) returns; 2 or 3, after a line that says why, where it cannot be done."""
    runner.stop_on_signals()
    try:
        return work(options)
    except (BadUsage, BadList, mutant_files.BadFile, seeds.BadSeed) as problem:
        status, why = 2, problem
    except (Infrastructure, manifest.BadManifest, runner.CannotRun) as problem:
        status, why = 3, problem
    except (runner.Stopped, KeyboardInterrupt) as problem:
        status, why = 3, "stopped by %s%s" % (problem or "Ctrl-C", after_stop)
    print("%s: %s" % (program, why), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(exit_status("mutants", run, parse()))
