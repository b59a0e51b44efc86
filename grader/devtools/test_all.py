#!/usr/bin/env python3
"""`make test-all`: every test of the kit; what came of it is a line of bench/results/test-all.md.

`make test`; the tests of the long tier, and longer runs of others (tests/tiers.txt); `make grade`
and `make test` on Debian 11 to 13 and on Ubuntu 22.04 and 24.04 (fresh-machine); the commands
that README and handouts print and that take longer, all mutants, alternatives and flakiness among
them (documented.py); and a draw of machine-made mutants, whose full set is `make mutation` and
takes an hour. A step that fails stops none of the others. Whoever commits the line has run it on
what the line names: a commit, and whether files were changed since.

Interface: test_all.py [--step NAME …] [--results FILE] [--steps FILE]; exit status 1 if a step
failed. Steps can be run one by one, each with a line of its own; a wrong name is answered by all of
them. A file of steps has lines `name<tab>command`.
"""

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from bench_run import output_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULTS = os.path.join(ROOT, "bench", "results", "test-all.md")
STEPS = (("test", "make test"),
         ("long tests", "make long-tests"),
         ("commands", "python3 -B grader/devtools/documented.py --long"),
         ("machine-made mutants", "make mutation SAMPLE=400 SEED=%(seed)d"),
         ("machines", "for suite in bookworm trixie bullseye noble jammy; do "
                      "grader/devtools/fresh-machine --suite $suite 'make grade' "
                      "'make grade IMPL=reference' 'make test' || exit; done"))
HEAD = """# make test-all

A line for each run, the last one last: grader/devtools/test_all.py writes it, whoever ran it
commits it. `+` after a commit: files were changed since. Minutes are of the clock and of the
processor.

| when (UTC) | commit | machine | load before | minutes, processor | result | steps |
|---|---|---|---|---|---|---|
"""


@dataclass
class Step:
    name: str
    status: int
    last: str       # the last line that it printed
    seconds: float

    def told(self):
        return "%s: %s, %.0f s" % (self.name, self.last or "no output", self.seconds)


def run_step(name, command):
    """Runs a command in the kit; what it prints passes through, its last line is kept."""
    print("== %s: %s" % (name, command), flush=True)
    began, last = time.monotonic(), ""
    process = subprocess.Popen(["sh", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    try:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if line.strip() and not line.startswith("make"): # "make: *** [...] Error 1"
                last = line.strip()
        status = process.wait()
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.terminate()
            process.wait()
    return Step(name, status, last, time.monotonic() - began)


def head():
    """The commit, with a + where files were changed since; and a number drawn by it."""
    commit = output_of("git", "rev-parse", "HEAD")
    changed = bool(output_of("git", "status", "--porcelain"))
    return (commit[:10] or "no commit") + "+" * changed, int(commit[:8] or "1", 16)


def processor():
    """The machine, in a few words."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            model = next(line.partition(":")[2].strip() for line in file
                         if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return "%s, %d cores" % (model, os.cpu_count() or 1)


def row(commit, load, steps, seconds, spent, planned):
    """The line of the table. `planned`: how many steps there are."""
    failed = [step.name for step in steps if step.status != 0]
    some = ", %d of %d steps" % (len(steps), planned) if len(steps) < planned else ""
    cells = [datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), commit,
             processor(), "%.1f" % load, "%.0f, %.0f" % (seconds / 60, spent / 60),
             ("failed: " + ", ".join(failed) if failed else "passed" if some else "all passed")
             + some,
             "; ".join(step.told() for step in steps)]
    return "| %s |\n" % " | ".join(cell.replace("|", "/") for cell in cells)


def record(path, line):
    """Appends a line, under the head where the file is new; as one write of the whole file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = HEAD
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
        file.write(text + line)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def steps_of(path):
    if not path:
        return STEPS
    with open(path, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t", 1)) for line in file if "\t" in line]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description="Run every test of the kit, and record the result.")
    parser.add_argument("--results", default=RESULTS, metavar="FILE",
                        help="where the line goes (bench/results/test-all.md)")
    parser.add_argument("--steps", default="", metavar="FILE", help="other steps, a line each")
    parser.add_argument("--step", action="append", default=[], metavar="NAME",
                        help="only this step; may be given several times")
    options = parser.parse_args(arguments)
    known = steps_of(options.steps)
    for name in options.step:
        if name not in dict(known):
            parser.error("there is no step %s: the steps are %s"
                         % (name, ", ".join(step for step, _ in known)))
    chosen = [step for step in known if not options.step or step[0] in options.step]
    commit, seed = head()
    load, began, before = os.getloadavg()[0], time.monotonic(), resource.getrusage(
        resource.RUSAGE_CHILDREN)
    steps = []
    for name, command in chosen:
        steps.append(run_step(name, command.replace("%(seed)d", str(seed))))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    line = row(commit, load, steps, time.monotonic() - began, spent, len(known))
    record(options.results, line)
    print(line, end="")
    return 1 if any(step.status != 0 for step in steps) else 0


if __name__ == "__main__":
    sys.exit(main())
