#!/usr/bin/env python3
"""Runs the example programs with the student's files: `make demo`, `demo-oom`, `examples`.

A file that is not complete yet (a part is not written) or that cannot be used (it does not compile)
is replaced by the reference's object, and named with the reason. What is linked so lies in
build/impl/KEY/bin, and build/bin/PROGRAM leads to what was linked last.

An error while the training runs ends it: a report of simgpu, an error that the program passes on, a
crash, a step that does not end, figures that are not equal where they should be. What happened and
the nearest line of the student's files are said at the end.

    demo      trains examples/demo.c on RANKS GPUs, on sums or on the text of a file
    oom       a model too large for one GPU of 64 MB: alone it fails, with FSDP on four it trains
    examples  links all programs of examples/ and says where they are

Exit status: 0 when all went well; 1 where the training failed; 2 for a question that makes no
sense; 3 where the kit or the machine is at fault; 130 when somebody stopped it.

Interface: demo.py ACTION --impl DIR --build DIR --backend NAME [--ranks N] [--data FILE]
[--flags TEXT] [--html FILE].
Files: builder.py (compiling), runner.py (reports), gaps.py, manifest.py (tasks), page.py.
"""

import argparse
import glob
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import dataclass, field

import layout
import manifest
import runner
from builder import GIVEN_IS_MADE, Builder, Infrastructure
from gaps import first_gap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_RANKS = 64
WIDTH = 79             # of what is printed
GRACE = 3.0           # seconds that the ranks get to end by themselves
LIMIT = 1800.0        # seconds that a program may take
STEP_LIMIT = 60.0     # … and the few steps that are drawn
OOM_BYTES = "64M"
OOM_FLAGS = ["--batch", "1", "--brief", "--sample", "0"]
# Classes of reports that are no mistake of the program by themselves.
HARMLESS = ("out-of-memory",)


class BadUsage(Exception):
    """Asked for something that makes no sense; the text says what, in a line."""


# ---- Which files run ----

@dataclass
class Files:
    """Of the six files, those of the student's that run, and why the others do not."""
    tasks: list
    shown: str                                # what messages call the folder
    again: str                                # what names it on a command line: " IMPL=DIR", or ""
    own: list = field(default_factory=list)   # tasks
    why: dict = field(default_factory=dict)   # task name: why the reference's runs

    def replace(self, task, why):
        self.own = [other for other in self.own if other is not task]
        self.why[task.name] = why

    def names(self):
        return " ".join(task.name for task in self.own)

    def say(self, out):
        """What runs, before it does."""
        given = [task for task in self.tasks if task not in self.own]
        if not given:
            print("All %s files are yours, from %s/." % (manifest.how_many(), self.shown), file=out)
        elif not self.own:
            print("None of the %s files in %s/ can run yet. The reference's run instead:"
                  % (manifest.how_many(), self.shown), file=out)
        else:
            print("From %s/: %s. The reference's run instead of:"
                  % (self.shown, ", ".join(task.file for task in self.own)), file=out)
        for task in given:
            layout.tell(textwrap.fill(self.why[task.name], WIDTH, break_on_hyphens=False,
                                      initial_indent="  %-14s" % task.file,
                                      subsequent_indent=" " * 16), out)
        print(file=out, flush=True)


def choose_files(builder, tasks):
    """Compiles what is complete."""
    usual = builder.impl == os.path.join(ROOT, "skeleton")
    files = Files(tasks, layout.safe(builder.shown),
                  "" if usual else layout.safe(" IMPL=%s" % shlex.quote(builder.impl)))
    for task in tasks:
        gap = first_gap(os.path.join(builder.impl, task.file))
        if gap:
            files.why[task.name] = "part %s is not written yet (%s/%s:%d)" % (
                gap[0], builder.shown, task.file, gap[1])
            continue
        failing, warnings = builder.compile(task)
        if failing:
            files.why[task.name] = failing.message.splitlines()[0]
            continue
        if "warning:" in warnings:
            layout.tell("The compiler has warnings about %s:\n%s"
                        % (task.file, warnings.strip()[:4000]))
        files.own.append(task)
    return files


def program_of(builder, name):
    return "%s/impl/%s/bin/%s" % (builder.build, builder.key, name)


def programs():
    """The names of all examples."""
    return sorted(os.path.basename(path)[:-2]
                  for path in glob.glob(os.path.join(ROOT, "examples", "*.c")))


def given_to(builder, sources):
    """What programs are made of apart from the six files, for make: of sources in C; and the
    launcher."""
    return ["%s/bin/launch" % builder.build, "%s/lib/libexamples.a" % builder.build] + [
        "%s/obj/%s.o" % (builder.build, os.path.splitext(source)[0]) for source in sources]


def link_with(builder, names, targets):
    """All that is not the student's is made already, but for the reference's programs."""
    reference = builder.key == "reference"
    with builder.locked_build(True):
        return builder.make(targets, jobs=2, impl="reference" if reference else None,
                            extra=["OWN=" + names] + ([] if reference else GIVEN_IS_MADE))


def link(builder, files, targets):
    """Links programs with the files that run. One that cannot be linked is replaced, too."""
    status, output = link_with(builder, files.names(), targets)
    if status == 0:
        return
    if link_with(builder, "", targets)[0] != 0:
        raise Infrastructure("the examples do not build:\n%s" % output.strip()[-4000:])
    for task in list(files.own):
        status, output = link_with(builder, task.name, targets)
        if status != 0:
            files.replace(task, why_not_linked(builder, task, output))
    status, output = link_with(builder, files.names(), targets)
    if status != 0:
        raise BadUsage("the files of %s cannot be linked with each other: %s"
                       % (builder.shown, first_error(output)))


def why_not_linked(builder, task, output):
    with builder.compiling():
        missing = sorted(builder.own_names(task) - builder.objects[task.name].defined())
    if missing:
        return "it does not define %s, which other files call" % missing[0]
    return "it cannot be linked: %s" % first_error(output)


def first_error(output):
    """The line of a linker's output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        found = re.search(r"(undefined reference to|multiple definition of) .*", line)
        if found:
            return found.group()
    return lines[0] if lines else "make gave no further output"


def prepare(options, names):
    """Builds programs; (Builder, Files)."""
    tasks = manifest.load(ROOT)
    builder = Builder(options.impl, options.build, options.backend)
    builder.find_key()
    given = builder.key == "reference" # an archive has only its objects
    if not given and not os.path.isdir(builder.impl):
        raise BadUsage(manifest.no_folder(options.impl))
    with builder.locked_folder():
        builder.common([piece.name for task in manifest.load_all(ROOT) for piece in task.pieces()],
                       [], given_to(builder, ["examples/%s.c" % name for name in names]))
        targets = [program_of(builder, name) for name in names]
        if given:
            files = None
            status, output = link_with(builder, "", targets)
            if status != 0:
                raise Infrastructure("the examples do not build:\n%s" % output.strip()[-4000:])
        else:
            with builder.compiling():
                files = choose_files(builder, tasks)
            link(builder, files, targets)
        for name in names:
            lead_to(builder, name)
    if files:
        files.say(sys.stdout)
    else:
        print("All %s files are the reference's.\n" % manifest.how_many(), flush=True)
    return builder, files


def lead_to(builder, name):
    """build/bin/NAME leads to the program that was linked last."""
    path = os.path.join(ROOT, builder.build, "bin", name)
    wanted = os.path.join("..", "impl", builder.key, "bin", name)
    if os.path.islink(path) and os.readlink(path) == wanted:
        return
    fresh = "%s.%d" % (path, os.getpid())
    os.symlink(wanted, fresh)
    os.replace(fresh, path)


# ---- Running ----

def mistakes(reports):
    """The reports that are a program's mistakes."""
    return [report for report in reports if report["class"] not in HARMLESS]


@dataclass
class Ending:
    """How a program ended."""
    status: int
    said: str        # on standard error, as far as it was kept
    reports: list    # simgpu's
    marks: list      # "started" and "done", as far as it came


class Run:
    """A program as ranks, in the same terminal. What it says on standard error passes through."""

    NOISE = re.compile(r"launch: rank \d+ (ended with status|was killed by signal)")
    KEPT = 1 << 16

    def __init__(self, builder, ranks, arguments, environment=None, quiet=False):
        self.quiet = quiet       # standard error is kept and not shown
        self.said = []
        self.kept = 0
        self.stopping = False
        self.folder = tempfile.TemporaryDirectory(prefix="shardlab-demo-")
        self.reports_file = os.path.join(self.folder.name, "reports.jsonl")
        self.marks_file = os.path.join(self.folder.name, "progress")
        launch = os.path.join(ROOT, builder.build, "bin", "launch")
        limit = LIMIT * runner.time_factor()
        self.command = [launch, "-n", str(ranks), "--limit", "%g" % limit] + arguments
        self.environment = dict(os.environ, SIMGPU_REPORT=self.reports_file,
                                SHARDLAB_PROGRESS=self.marks_file, **(environment or {}))
        self.process = None
        self.reader = threading.Thread(target=self.read, daemon=True)

    def start(self):
        # Work done by the ranks is in process groups of their own: the launcher ends them.
        self.process = subprocess.Popen(self.command, cwd=ROOT, env=self.environment,
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.reader.start()

    def read(self):
        """Passes on what the first rank that speaks has to say; four ranks with one mistake would
        say it four times."""
        speaker = None
        for line in self.process.stderr:
            text = line.decode("utf-8", "replace")
            if self.kept < self.KEPT:
                self.said.append(text)
                self.kept += len(text)
            rank = re.match(r"(?:simgpu: |\[)rank (\d+)", text)
            if rank and speaker is None:
                speaker = rank.group(1)
            if self.quiet or self.stopping or self.NOISE.match(text) or \
                    rank and rank.group(1) != speaker:
                continue
            sys.stderr.write(layout.safe(text))
            sys.stderr.flush()

    def reports(self):
        try:
            with open(self.reports_file, encoding="utf-8", errors="replace") as file:
                return runner.clean_reports(file.read(runner.OUTPUT_LIMIT))
        except OSError:
            return []

    def marks(self):
        try:
            with open(self.marks_file, encoding="utf-8", errors="replace") as file:
                return file.read(1000).split()
        except OSError:
            return []

    def end(self):
        """Ends the ranks, and whoever started them."""
        self.stopping = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process is None or self.process.poll() is not None:
                return
            self.process.send_signal(number)
            try:
                self.process.wait(GRACE)
                return
            except subprocess.TimeoutExpired:
                continue

    def wait(self):
        """Runs it to the end. A mistake that simgpu reports is one: what comes after it is worth
        nothing, so nobody has to wait for it. However it goes, the ranks have ended before the
        folder goes."""
        try:
            self.start()
            while True:
                try:
                    self.process.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    if mistakes(self.reports()):
                        try:
                            self.process.wait(GRACE / 2) # what else it has to say
                        except subprocess.TimeoutExpired:
                            self.end()
                        break
            self.reader.join(GRACE)
            return Ending(self.process.returncode, "".join(self.said), self.reports(),
                          self.marks())
        finally:
            self.end()
            self.folder.cleanup()


# ---- What went wrong ----

PLACE = re.compile(r"(?P<file>[\w.+-]+\.c):(?P<line>\d+)(?: \((?P<function>\w+)\))?")


def own_place(text, files):
    """The first place in one of the student's files that a text names, as they are called; None."""
    names = [task.file for task in files.own] if files else []
    for found in PLACE.finditer(text):
        if found.group("file") in names:
            place = "%s/%s:%s" % (files.shown, found.group("file"), found.group("line"))
            if found.group("function"):
                place += " (%s)" % found.group("function")
            return place, found.group("file")
    return None


def place_of_report(report, files):
    """The same for a report: of its calls the first in a file of the student's."""
    for call in report.get("calls", []):
        text = "%s:%s" % (os.path.basename(call.get("file") or ""), call.get("line"))
        if call.get("function"):
            text += " (%s)" % call["function"]
        found = own_place(text, files)
        if found:
            return found
    return own_place(report.get("text") or "", files)


def what_happened(ending, files):
    """(A clause, the place or None)"""
    wrong = mistakes(ending.reports)
    for report in wrong:
        place = place_of_report(report, files)
        if place:
            return "simgpu reports: %s" % report["title"], place
    if wrong:
        return "simgpu reports: %s" % wrong[0]["title"], None
    # A rank that still runs is the cause of those that wait for it.
    lines = [line for line in ending.said.splitlines()
             if re.match(r"\[rank \d+\]|[\w./-]+\.c:", line)]
    for word in ("crashed", "still running", ""):
        for line in lines:
            place = own_place(line, files)
            if word in line and place:
                return line, place
    return (lines[0] if lines else "it ended before its last line, with status %d; does a file "
            "call exit?" % ending.status), None


def tell_failure(ending, files, out):
    """What happened, where, and what to do, below what the program and simgpu have said."""
    text, place = what_happened(ending, files)
    layout.tell("\n" + textwrap.fill("The training failed: " + text, WIDTH,
                                     break_on_hyphens=False), out)
    if place:
        task = next(task for task in files.own if task.file == place[1])
        print("  Your line: %s\n  To test this file alone: make grade TASK=%d%s"
              % (place[0], task.number, files.again), file=out)
    elif files and files.own:
        print("  No line of yours is named. To find the file: make grade%s" % files.again, file=out)
    out.flush()


# ---- The three things to do ----

def demo(options):
    arguments = options.flags
    if options.data:
        arguments.append(os.path.abspath(options.data))
    builder, files = prepare(options, ["demo"])
    if options.html and os.path.lexists(options.html):
        os.unlink(options.html) # an earlier run's
    status = conclude(Run(builder, options.ranks,
                          [program_of(builder, "demo")] + arguments).wait(), files)
    if status == 0 and options.html:
        draw(builder, files, options)
    return status


def draw(builder, files, options):
    """The page: one step in virtual time of a model like the demonstration's."""
    import page # much code, and seldom asked for
    import trace
    ranks = min(options.ranks, trace.DEMO_RANKS)

    def run(program, account, test):
        verdicts, output = runner.run_tests(
            [os.path.join(ROOT, program)], [test], STEP_LIMIT * runner.time_factor(),
            runner.Caps(), {trace.DEMO_WORLD: str(ranks)})
        return verdicts[test], output
    own = files.own if files else []
    given = [task.file for task in files.tasks if task not in own] if files else []
    with builder.locked_folder():
        outcome = trace.take_demo(builder, [task.name for task in own],
                                  ([task.file for task in own], given), run)
    page.write_demo(options.html, outcome, ranks, time.strftime("%Y-%m-%d %H:%M %Z"))
    layout.tell("Page:  %s" % options.html, sys.stdout)


def conclude(ending, files):
    """The last words about a run; the exit status."""
    if ending.status == 0 and "done" in ending.marks and not mistakes(ending.reports):
        print("\nThis ran with %s." % whose(files), flush=True)
        return 0
    if ending.status == 2 and not ending.marks: # it has said what is wrong with the question
        return 2
    tell_failure(ending, files, sys.stderr)
    return 1


def whose(files):
    """Which files a program ran with, in words."""
    if not files:
        return "the reference's %s files" % manifest.how_many()
    if not files.own:
        return whose(None) + ", since none of yours is complete yet"
    if len(files.own) == len(files.tasks):
        return "your %s files" % manifest.how_many()
    names = [task.file for task in files.own]
    return "your %s and the reference's other files" % ", ".join(names)


def oom(options):
    builder, files = prepare(options, ["train_gpt2"])
    program = program_of(builder, "train_gpt2")
    text = [options.data] if options.data else sorted(
        os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "handouts", "*.md")))
    memory = {"SIMGPU_MEMORY": OOM_BYTES, "GPULOG_MEMORY": OOM_BYTES}
    print("== Alone on one GPU of 64 MB, without FSDP ==", flush=True)
    ending = Run(builder, 1, [program] + OOM_FLAGS + ["--unsharded", "--steps", "1"] + text, memory,
                 quiet=True).wait()
    full = out_of_memory(ending)
    if ending.status == 0 or not full or mistakes(ending.reports):
        sys.stderr.write(layout.safe(ending.said))
        if ending.status == 0:
            print("\nThe training failed: it should have run out of memory, but did not. Does "
                  "meta_materialize allocate every parameter and its gradient?", file=sys.stderr)
        else:
            tell_failure(ending, files, sys.stderr)
        return 1
    print("%s\n\n== On four GPUs of 64 MB, with FSDP ==" % full, flush=True)
    return conclude(Run(builder, 4, [program] + OOM_FLAGS + ["--steps", "30"] + text,
                        memory).wait(), files)


def out_of_memory(ending):
    """What was said of a full device: simgpu's report but for its question, or the line of the call
    that failed; ""."""
    for report in ending.reports:
        if report["class"] in HARMLESS:
            text, question = report.get("text") or report["title"], report.get("question")
            end = text.find(question) if question else -1
            return (text[:text.rfind("\n", 0, end)] if end > 0 else text).rstrip()
    return next((line for line in ending.said.splitlines() if "out of memory" in line), "")


def examples(options):
    builder, files = prepare(options, programs())
    print("%s/bin has %s, linked with %s." % (builder.build, ", ".join(programs()), whose(files)))
    return 0


# ---- The command line ----

def count(text):
    """RANKS."""
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= MOST_RANKS:
        raise BadUsage("RANKS=%s: must be a whole number of GPUs, from 1" % text[:40])
    return int(text)


def split_flags(text):
    """DEMO_FLAGS as words."""
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise BadUsage("DEMO_FLAGS=%s: %s" % (text, problem))


def check_data(path):
    """DATA, before anything is built."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as problem:
        raise BadUsage("DATA=%s: %s" % (path, problem.strerror))


def parse(arguments):
    parser = argparse.ArgumentParser(description="Run an example with the student's files.")
    parser.add_argument("action", choices=["demo", "oom", "examples"])
    parser.add_argument("--impl", required=True, metavar="DIR", help="the folder of the task files")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("--backend", default="simgpu", choices=("simgpu", "cuda", "emulated-cuda"))
    parser.add_argument("--ranks", default="4", metavar="N", help="GPUs (4)")
    parser.add_argument("--data", default="", metavar="FILE", help="a text to learn (sums)")
    parser.add_argument("--flags", default="", metavar="TEXT", help="options of the program")
    parser.add_argument("--html", default="", metavar="FILE",
                        help="where a page with one step in time goes (none is made)")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        options.ranks = count(options.ranks)
        options.flags = split_flags(options.flags)
        if options.data:
            check_data(options.data)
        return {"demo": demo, "oom": oom, "examples": examples}[options.action](options)
    except BadUsage as problem:
        layout.tell("demo: %s" % problem)
        return 2
    except (Infrastructure, manifest.BadManifest) as problem:
        layout.tell("demo: the kit or the machine is at fault, not your code: %s" % problem)
        return 3
    except (runner.Stopped, KeyboardInterrupt):
        print("\ndemo: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
