#!/usr/bin/env python3
"""Grades a folder with the six task files: builds them, runs the tests, says what came of it.

Each task's tests run with the student's file of that task and the reference's other five, so that a
mistake costs its own points and no others; the tests marked "together" run with all six. A file
that does not compile costs its task, and the tests that need all six.

Exit status: 0 when the grading worked, whatever the score; 2 for a question that makes no sense (no
such folder or task); 3 where the kit or the machine is at fault. An earlier results file goes first
of all. A new one is written in every case, also when somebody stops the grading: it says so first,
and is replaced at the end.

What the tests draw at random (seeds.py) is one seed for the whole grading; the results name it.

A lab is graded as a task is, on its own points: its files with the reference of the tasks and of
the other labs.

Interface: grade.py --impl DIR [--task N|name | --lab N|name|all] [--build DIR] [--out FILE]; `make
grade` calls it. Files: manifest.py (what the tests are worth), builder.py (building), runner.py
(running the tests), report.py (the table).
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import account
import cause
import confinement
import dropped
import intact
import layout
import manifest
import pace
import runner
import seeds
from builder import COMPILE_LIMIT, Builder, Failing, Infrastructure
from files import read_regular_file, write_atomically
from gaps import first_gap, looks_written
from progress import Progress
from report import NOT_YET, Report
from show import Show
from timeouts import Timeouts

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUITES_AT_ONCE = 2
INTERNAL = ("shared", "hints_of") # of a row, what is not in the results file
MEMORY = 4.0             # GiB that the processes of a test may use together


class BadUsage(Exception):
    """Asked for something that makes no sense."""


# ---- Running ----


class Grading:
    """One grading: what is to be graded, and what is known of it so far."""

    def __init__(self, options, tasks):
        self.options = options
        self.kind, self.wanted = manifest.asked(options)
        self.tasks = tasks            # those that are graded
        self.all_tasks = tasks
        self.impl = options.impl
        self.started = time.monotonic()
        self.verdicts = {}            # test name: Verdict
        self.shared = set()           # tests whose message is that of many
        self.builder = None
        self.broken = {}              # task name: Failing, where the file cannot be used
        self.alone = None             # the task's number where it is graded alone
        self.devices = ""             # what the tests ran on
        self.pace = None              # what tests may take
        self.limits = {}              # test name: seconds
        quick = options.quick if options.quick is not None else sys.stdout.isatty()
        self.timeouts = Timeouts(quick)
        self.heard = set()            # tests whose verdict has come
        self.progress = Progress()
        self.account = None           # as whom tests run, where not as the grader
        self.confinement = None       # what they may read and write
        self.seed = None              # what they drew from
        self.show = Show(self, options.html)

    # -- results --

    def results(self):
        """The tests as the results file has them."""
        rows = []
        for task in self.tasks:
            for test in task.tests:
                verdict = self.verdicts.get(test.name)
                if verdict is None:
                    verdict = runner.Verdict("infrastructure",
                                             "The grading did not reach this test.")
                rows.append(row_of(test, task, verdict))
                rows[-1].update(limit=self.limits.get(test.name), shared=test.name in self.shared)
                if verdict.seed is not None:
                    rows[-1]["seed"] = verdict.seed
            cause.fill([row for row in rows if row["task"] == task.number], task,
                       self.sources(task))
        return rows

    def sources(self, task):
        """[(what messages call it, its text)] of the student's file, for a look at its functions; a
        lab may have several. The text is "" where it cannot be read."""
        return [(piece.shown(self.impl),
                 read_regular_file(piece.source(self.impl)).decode("utf-8", "replace"))
                for piece in task.pieces()]

    def gap(self, task):
        """The first part in the student's file that is not written yet, as a sentence; or None."""
        for piece in task.pieces():
            found = first_gap(piece.source(self.impl))
            if found:
                place = "%s:%d" % (piece.shown(self.impl), found[1])
                lines = read_regular_file(piece.source(self.impl)).decode("utf-8", "replace")
                if looks_written(lines.splitlines(), found[1]):
                    return "Part %s looks written: if it is, delete its NOT_YET line, %s." % (
                        found[0], place)
                return "Write part %s, at %s." % (found[0], place)
        return None

    def write(self, status, message=""):
        """The results file: either the old one or the whole new one."""
        os.makedirs(os.path.dirname(os.path.abspath(self.options.out)), exist_ok=True)
        text = json.dumps(self.document(status, message), indent=1, ensure_ascii=False)
        write_atomically(self.options.out, text + "\n")

    def drop(self):
        """Removes an earlier grading's results: where nothing can be written, none is found."""
        try:
            if os.path.isfile(self.options.out):
                os.unlink(self.options.out)
        except OSError as problem:
            raise BadUsage("the results of an earlier grading cannot be removed: %s" % problem)

    def document(self, status, message=""):
        """What the results file holds."""
        rows = [{name: value for name, value in row.items() if name not in INTERNAL}
                for row in self.results()]
        document = {
            "status": status, "message": message,
            "score": round(sum(row["score"] for row in rows), 2),
            "max_score": round(sum(row["max_score"] for row in rows), 2),
            "impl": self.impl, "backend": self.options.backend, "devices": self.devices,
            "seconds": round(time.monotonic() - self.started, 3), "files": self.files_graded(),
            "tests": rows}
        if self.confinement:
            document["confinement"] = self.confinement.told()
        if self.alone:
            document["task"] = self.alone
        if self.kind is manifest.LAB:
            document["labs"] = True
        if self.seed is not None:
            document["seed"] = self.seed
        return document

    def files_graded(self):
        """Which bytes were graded: of each task's file the sum of the source and of the object."""
        files = self.builder.files if self.builder else {}
        return [files[piece.name] for task in self.all_tasks for piece in task.pieces()
                if piece.name in files]

    # -- what is asked for --

    def after(self):
        """What comes when all tests pass, as lines: the next task that has something to write, or
        the demonstration of the six files."""
        if not self.alone and self.kind is manifest.TASK:
            return [self.command("demo"), "  It trains a model with your %s files."
                    % manifest.how_many()]
        others = sorted((task for task in self.all_tasks if task not in self.tasks),
                        key=lambda task: (task.number < self.alone, task.number))
        for task in others:
            if self.gap(task):
                return ["%s, %s" % (task.heading().lower(), task.title),
                        "  Read:  " + task.handout,
                        "  Then:  " + self.command("grade", task.number)]
        everything = "grade" if self.kind is manifest.TASK else "grade " + self.kind.option("all")
        return [self.command(everything), "  It grades all %s." % self.kind.folder()]

    def command(self, word, number=None):
        """The command line for something with these files."""
        same = os.path.abspath(self.options.impl) == os.path.join(ROOT, "skeleton")
        return "make %s%s%s%s" % (
            word, " " + self.kind.option(number) if number else "",
            "" if self.options.backend == "simgpu" else " BACKEND=" + self.options.backend,
            "" if same else " IMPL=%s" % shlex.quote(self.options.impl))

    def choose(self):
        """Checks the folder and the task that were asked for."""
        if self.options.lab and (self.options.task or "").strip():
            raise BadUsage("TASK names a task and LAB a lab: ask for one of them")
        if self.wanted and (self.kind, self.wanted) != (manifest.LAB, "all"):
            chosen = manifest.choose(self.all_tasks, self.wanted)
            if not chosen:
                raise BadUsage("there is no %s %s; the %s are %s" % (
                    self.kind.word, self.wanted, self.kind.folder(), ", ".join(
                        "%d %s" % (task.number, task.name) for task in self.all_tasks)
                    or "none here"))
            self.tasks = chosen
            self.alone = chosen[0].number
        try:
            self.account = account.find(self.options.run_as)
        except account.NoAccount as problem:
            raise BadUsage(str(problem))
        if not os.path.isdir(self.impl):
            raise BadUsage(manifest.no_folder(self.impl))
        if "\n" in os.path.abspath(self.impl):
            raise BadUsage("the path %r has a line break in it: rename the folder"
                           % os.path.abspath(self.impl))

    # -- the work --

    def run(self, report):
        """Grades, and prints each task's part of the table when it is known."""
        builder = Builder(self.impl, self.options.build, self.options.backend,
                          self.options.compile_limit)
        builder.progress = self.progress
        builder.lean = self.kind is manifest.TASK and not builder.NEEDS_ALL
        intact.look(ROOT, complain)
        builder.find_key()
        with builder.locked_folder():
            self.run_locked(builder, report)

    def run_locked(self, builder, report):
        self.builder = builder
        own, together = [[task for task in self.tasks if tests(task)]
                         for tests in (manifest.Task.own, manifest.Task.together)]
        suites = [task.name for task in own] + ["together"] * bool(together)
        builder.common(self.library(), self.test_sources(own, together))
        self.pace = pace.Pace(builder, suites, self.options.limit)
        self.devices = builder.name_devices()
        report.devices(self.devices)
        self.confinement = confinement.Confinement(builder, self.all_tasks)
        if self.confinement.missing():
            with self.progress.cleared():
                complain(self.confinement.missing())
        with self.progress.during(lambda: "Compiling the files in %s …" % builder.shown):
            failing = self.compile(builder, self.all_tasks if together else self.tasks)
        with self.progress.during(self.standing):
            self.run_all(builder, report, failing)
        self.show.trace()
        self.show.take_cost()

    def test_sources(self, own, together):
        """The sources of the suites: of tasks with tests of their own, and with such of all files.
        """
        return [source for task in own for source in task.test_sources()] + \
            [task.folder + "/together" for task in together]

    def library(self):
        """The names of what a suite is linked with apart from the student's file."""
        return [piece.name for task in manifest.load_all(ROOT, self.kind.stage)
                for piece in task.pieces()]

    def standing(self):
        """How far the tests have come, in a line."""
        return "Testing: %d of %d tests done, %d s …" % (
            len(self.heard), sum(len(task.tests) for task in self.tasks),
            time.monotonic() - self.started)

    def run_all(self, builder, report, failing):
        """Runs all tests, and prints each task's part of the table when it is known."""
        with ThreadPoolExecutor(SUITES_AT_ONCE) as pool:
            waiting = [pool.submit(self.own_suite, builder, task, next(
                (failing[piece.name] for piece in task.pieces() if piece.name in failing), None))
                       for task in self.tasks]
            try:
                for task, future in zip(self.tasks, waiting):
                    future.result()
                    if task.together():
                        self.together_suite(builder, task, {**failing, **self.broken})
                    report.task(task, [row for row in self.results() if row["task"] == task.number])
            except BaseException:
                for future in waiting:
                    future.cancel()
                runner.stop()
                raise

    def compile(self, builder, tasks):
        """Compiles the student's files; {task name: Failing} for those that fail."""
        tasks = [piece for task in tasks for piece in task.pieces()]
        with builder.compiling(), ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(builder.compile, tasks))
        builder.complete()
        failing = {}
        for task, (problem, warnings) in zip(tasks, ends):
            if problem:
                failing[task.name] = problem
            elif "warning:" in warnings:
                with self.progress.cleared():
                    complain("The compiler has warnings about %s:\n%s"
                             % (task.file, warnings.strip()[:4000]))
        return failing

    def give_all(self, tests, failing):
        for test in tests:
            self.verdicts[test.name] = runner.Verdict(failing.status, failing.message)
            self.shared.add(test.name)

    def own_suite(self, builder, task, failing):
        """Runs the tests of one task that need only its file."""
        tests = task.own()
        failing = failing or builder.link(task.name, task.pieces())
        if failing:
            self.broken[task.name] = failing
            self.give_all(tests, failing)
        else:
            self.run_suite(task.name, tests)
            self.charge_dropped(task, tests)

    def charge_dropped(self, task, tests):
        """A result that nobody looks at costs the tests of the part whose function drops it."""
        for shown, source in self.sources(task):
            for lost in dropped.find(source, dropped.headers_of(ROOT)):
                parts = cause.parts_of(lost.function, task, source)
                of_it = [test for test in tests if parts & set(test.parts)]
                for test in [test for test in of_it if set(test.parts) <= parts] or of_it:
                    if self.verdicts[test.name].status == "passed":
                        self.verdicts[test.name] = runner.Verdict("failed", lost.sentence(shown))
                if not of_it:
                    with self.progress.cleared():
                        complain(lost.sentence(shown))

    def together_suite(self, builder, task, failing):
        """Runs the tests that need all six files."""
        tests = task.together()
        if failing:
            files = [other.file for other in self.all_tasks if other.name in failing]
            self.give_all(tests, Failing("skipped", "Needs all %s files, and %s cannot be used."
                                         % (manifest.how_many(), " and ".join(files))))
            return
        problem = builder.link("together", self.all_tasks)
        if problem:
            self.give_all(tests, problem)
            return
        self.run_suite("together", tests, any(
            verdict.status == "timeout" for verdict in self.verdicts.values()))
        broken = [str(other.number) for other in self.tasks if other is not task and any(
            self.verdicts[test.name].status != "passed" for test in other.own())]
        for test in tests:
            verdict = self.verdicts[test.name]
            if verdict.status in ("passed", "skipped"):
                continue
            if broken: # whose fault it is cannot be said
                verdict.status = "skipped"
                verdict.message, shared = unjudged(verdict.message, broken)
                if shared:
                    self.shared.add(test.name)
            elif self.alone:
                verdict.message += (
                    "\nThe other %s files are yours too, and were not tested: `make grade` tests "
                    "all %s." % (manifest.how_many(but=1), manifest.how_many()))

    def run_suite(self, name, tests, late=False):
        """`late`: tests have had a time-out that may be the same mistake's."""
        path = os.path.join(ROOT, self.builder.suite(name))
        names = [test.name for test in tests]
        memory = int(self.options.memory * (1 << 30))
        caps = runner.Caps(memory, account=self.account, confinement=self.confinement)
        suite, limit = name, self.pace.of(name, names, runner.Caps(
            memory, confinement=self.confinement))

        def start(some, seconds, first_timeout):
            return runner.run_tests(
                [path], some, seconds, caps, {"SHARDLAB_LIMIT": "%g" % seconds},
                pace.grace(seconds), self.heard.add, first_timeout)
        verdicts, output, limits = self.timeouts.run(start, names, limit, late)
        if limit.open and any(is_mistake(verdict) for verdict in verdicts.values()):
            limit.measure()
            limits = dict.fromkeys(limits, limit.seconds)
        self.limits.update(limits)
        for name, verdict in verdicts.items():
            if verdict.status == "timeout":
                verdict.message += limit.reason(name)
        self.pace.hold(suite, verdicts, limit, caps)
        self.verdicts.update(verdicts)
        self.keep_output(path, output)

    def keep_output(self, program, output):
        """What a suite printed, for whoever looks for more than the table says."""
        folder = os.path.join(os.path.dirname(os.path.abspath(self.options.out)), "output")
        os.makedirs(folder, exist_ok=True)
        write_atomically(os.path.join(folder, os.path.basename(program) + ".txt"), output)


def is_mistake(verdict):
    """Whether a test did not pass, other than for a part that is not written yet."""
    return verdict.status not in ("passed", "skipped") and not NOT_YET.search(verdict.message)


def row_of(test, task, verdict):
    """A test as the results file has it."""
    return {"name": test.name, "task": task.number, "title": test.title, "status": verdict.status,
            "score": test.points if verdict.status == "passed" else 0, "max_score": test.points,
            "message": verdict.message, "hint": test.hint, "more": test.more,
            "handout": task.handout, "section": test.section, "seconds": verdict.seconds,
            "reports": verdict.reports, "shared": False}


def unjudged(message, broken):
    """The message of a test of all six files that fails while tests of these tasks do, and whether
    it is the same for all such tests."""
    ended = "" if NOT_YET.search(message) else " What happened:\n" + message
    return ("Needs all %s files, and is judged only once the tests of %s pass.%s"
            % (manifest.how_many(), counted("task", broken), ended)), not ended


def counted(noun, words):
    """task 3; tasks 3 and 4; tasks 3, 4 and 5."""
    if len(words) == 1:
        return "%s %s" % (noun, words[0])
    return "%ss %s and %s" % (noun, ", ".join(words[:-1]), words[-1])


def seconds(word):
    """A limit from the command line."""
    value = float(word)
    if not 0 < value < 1e6:
        raise ValueError
    return value


def parse(arguments):
    parser = argparse.ArgumentParser(description="Grade a folder with the task files.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="the folder")
    parser.add_argument("--task", default="", metavar="N|name", help="only this task")
    parser.add_argument("--lab", default="", metavar="N|name|all", help="a lab, or all labs")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "grade", "results.json"),
                        metavar="FILE", help="where the results go")
    parser.add_argument("--html", default="", metavar="FILE",
                        help="where a page with results and plots goes (none is made)")
    parser.add_argument("--backend", default="simgpu", choices=("simgpu", "cuda", "emulated-cuda"),
                        help="what the files are built against (simgpu)")
    parser.add_argument("--limit", type=seconds, default=0.0, metavar="SECONDS",
                        help="how long a test may take (%g times what the slowest of the "
                        "reference's takes on this machine, at least %g)"
                        % (pace.MARGIN, pace.LEAST_ELSEWHERE))
    patience = parser.add_mutually_exclusive_group()
    patience.add_argument("--quick", action="store_true", default=None,
                          help="after a time-out other tests of the task get less time at first "
                          "(the default where stdout is a terminal)")
    patience.add_argument("--patient", action="store_false", dest="quick",
                          help="every test gets the full limit (the default elsewhere)")
    parser.add_argument("--run-as", default="", metavar="NAME",
                        help="the account that the tests run as (the grader's own); only "
                        "root can have another")
    parser.add_argument("--memory", type=float, default=MEMORY, metavar="GIB",
                        help="how much memory the processes of a test may use together (%g)"
                        % MEMORY)
    parser.add_argument("--compile-limit", type=float, default=COMPILE_LIMIT, metavar="SECONDS",
                        help="how long compiling a file may take, times SHARDLAB_TIME_FACTOR (%g)"
                        % COMPILE_LIMIT)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    runner.stop_on_signals()
    progress = Progress()
    shown = os.path.basename(os.path.abspath(options.impl))
    report = Report(sys.stdout, shown, progress)
    grading = Grading(options, [])
    grading.progress = progress
    try:
        grading.drop()
        grading.tasks = grading.all_tasks = manifest.load(ROOT, grading.kind)
        grading.choose()
        grading.seed = seeds.choose()
        try:
            grading.show.drop()
        except OSError as problem:
            raise BadUsage("the page cannot be written: %s" % problem)
        if not shutil.which("make"):
            raise Infrastructure("there is no make on this machine: run `sh grader/setup.sh`")
        grading.write("infrastructure", "The grading was started but did not finish.")
        grading.run(report)
        rows = grading.results()

        def again(number):
            # What failed by a draw may pass by another: the same once more, until it passes.
            drew = any(row["task"] == number and row["status"] != "passed" and "seed" in row
                       for row in rows)
            return grading.command("grade", number) + (" SEED=%d" % grading.seed if drew else "")
        report.next_steps(rows, grading.tasks, again, grading.gap, grading.after(),
                          grading.show.line())
        grading.write("graded")
        report.score(sum(row["score"] for row in rows), sum(row["max_score"] for row in rows),
                     grading.alone and grading.tasks[0].heading().lower(), grading.show.write())
        return 0
    except (BadUsage, seeds.BadSeed) as problem:
        return give_up(grading, 2, str(problem))
    except (Infrastructure, intact.Differs, manifest.BadManifest, runner.CannotRun) as problem:
        return give_up(grading, 3, "the grading itself failed, not your code: %s" % problem)
    except (runner.Stopped, KeyboardInterrupt) as problem:
        return give_up(grading, 3, "stopped by %s before the end" % (problem or "Ctrl-C"))
    except BrokenPipeError:
        # Nobody reads the table any more; the results file still has to be right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return give_up(grading, 3, "the grader's output was closed before the end")
    except OSError as problem: # a full disk, a limit of the account: no file of the student's
        return give_up(grading, 3, "the grading itself failed, not your code: %s" % problem)
    except Exception as problem: # whatever it is, there are results, and they say so
        import traceback
        traceback.print_exc()
        return give_up(grading, 3, "the grader has a bug: %s: %s"
                       % (type(problem).__name__, problem))


def complain(text):
    """Says something on stderr; a compiler quotes what a file says, whatever is in it."""
    if sys.stderr.isatty():
        text = "\n".join(layout.fill(text, layout.width_of(sys.stderr)))
    layout.tell(text)


def give_up(grading, status, message):
    """Says why there is no score, on stderr and in the results file."""
    complain("grade: %s" % message)
    grading.verdicts = {}
    try:
        grading.write("infrastructure", message)
    except OSError as problem:
        complain("grade: %s cannot be written: %s" % (grading.options.out, problem))
    return status


if __name__ == "__main__":
    sys.exit(main())
