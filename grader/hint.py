#!/usr/bin/env python3
"""Gives a hint for the first thing that is missing or wrong: it asks before it tells.

The problem is the first part of the task's file that is not written (a NOT_YET), which takes no
build to find; else the first test that does not pass, found by grading that task. Without a task it
is the first task that is not finished. Its hints come in levels, written in tasks/*/task.json.

A test's hints are those of the part that its failure points at (cause.py), and of its message that
is shown which matters: the first lines, the place in the file, what is wrong, the likely cause.

Which level: the first call for a problem shows hint 1, each further call with the same file one
more. Where the file has changed since, what was seen is shown again and nothing new: whoever has
tried something gets time to think about it, and the next call, with that file, gives one more.
--level asks for a level outright; those below it are shown too. What was seen is remembered in the
build tree (hints.json, by folder and problem). Without that file, or with a broken one, the hints
begin again.

A file that does not compile gets the compiler's message and no hint. Exit status: 0 with or without
a hint; 2 for a question that makes no sense; 3 where the kit or the machine is at fault.

Interface: hint.py --impl DIR [--task N|name | --lab N|name|all] [--test NAME] [--level N] [--build
DIR]; `make hint`. Files: regrade.py (the grading), manifest.py (the hints), report.py (the lines).
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass

import grade
import layout
import manifest
import page
import runner
import seeds
from essence import essence
from files import read_regular_file, write_atomically
from gaps import first_gap, looks_written
from regrade import ROOT, Regrading, ask, choose, no_test_ran
from report import NOT_YET, Report, foremost, left_out, to_read

MOST_LEVELS = 1000      # what a state file may say


class Infrastructure(Exception):
    """The kit or the machine is at fault; the text says how."""


@dataclass
class Problem:
    """What is missing or wrong, and what there is to say about it."""
    task: object
    key: str          # the part or the test
    hints: list
    section: str
    show: object      # show(report) prints what it is
    files: list       # whose contents say whether something was tried since
    drawn: bool = False # the test drew at random: another draw may pass


# ---- What the problem is ----


def gap_problem(task, options, piece, gap):
    """A part that is not written yet, in a file of the task's."""
    part, line = gap
    path = piece.source(options.impl)
    shown = "%s:%d" % (piece.shown(options.impl), line)

    def show(report):
        report.say("%s  %s: part %s is not written yet" % (task.heading(), task.title, part))
        lines = read_regular_file(path).decode("utf-8", "replace").splitlines()
        report.paragraph("%s: %s" % (
            shown, "you have written code there: if it is the part, delete this line."
            if looks_written(lines, line) else "the comment above says what belongs there."), 2)
    section = manifest.section_of_part(
        manifest.sections_of_parts(manifest.text_of(ROOT, task.handout)), part)
    return Problem(task, part, task.parts.get(part, []), section, show, [path])


def test_problem(task, options, row):
    """A test that does not pass."""
    test = next(test for test in task.tests if test.name == row["name"])
    files = [piece.source(options.impl) for piece in task.pieces()]
    if test.together:
        files = [os.path.join(options.impl, name) for name in sorted(os.listdir(options.impl))]

    def show(report):
        report.say("%s  %s" % (task.heading(), task.title))
        report.test(dict(row, message=essence(row, task, command("grade", options, task.number))))
        if row.get("look"):
            report.say("  Look:  %s" % row["look"])
    return Problem(task, test.name, row["hints"], row["section"], show,
                   [path for path in files if path.endswith(".c")],
                   "SEED=" in row["message"])


def graded(task, options):
    """The rows of a fresh grading of the task."""
    def relay(line):
        if not line.startswith(("Building", "Another")):
            return # the compiler's warnings are for who grades
        layout.tell(line)
    grading = Regrading(options, "hint", task.number, relay)
    try:
        grading.done()
    finally:
        grading.stop()
    document = grading.document()
    if document["status"] != "graded":
        raise Infrastructure(document["message"])
    return page.tidy(json.loads(read_regular_file(grading.out).decode("utf-8")))["tests"]


def look_at(task, options, report):
    """The task's Problem; None where it is finished, False where no hint helps: what is to be said
    then has been."""
    for piece in () if options.test else task.pieces():
        gap = first_gap(piece.source(options.impl))
        if gap:
            return gap_problem(task, options, piece, gap)
    rows = graded(task, options)
    broken = no_test_ran(task, rows)
    if broken:
        report.say("%s  %s: no test could run, and no hint helps with that" %
                   (task.heading(), task.title))
        report.paragraph(broken, 2)
        return False
    options.left_out += [row for row in rows if left_out(row) and options.test in ("", row["name"])]
    rows = [row for row in rows if row["status"] != "passed" and not left_out(row)
            and options.test in ("", row["name"])]
    if not rows:
        return None
    row = foremost(rows)
    if row["status"] == "infrastructure":
        raise Infrastructure(row["message"])
    problem = test_problem(task, options, row)
    if row["status"] == "skipped" or (problem.key in [test.name for test in task.together()]
                                      and NOT_YET.search(row["message"])):
        problem.show(report) # another file is the reason, and has hints of its own
        report.say("  Next:  %s" % command("hint", options))
        return False
    return problem


# ---- What has been seen ----


def load_state(path):
    """{folder: {problem: {"sum": text, "seen": number}}}, as far as the file says so."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}

    def right(entry):
        return (isinstance(entry, dict) and isinstance(entry.get("sum"), str)
                and type(entry.get("seen")) is int and 0 < entry["seen"] <= MOST_LEVELS)
    return {folder: {key: {"sum": entry["sum"], "seen": entry["seen"]}
                     for key, entry in problems.items() if right(entry)}
            for folder, problems in (data.items() if isinstance(data, dict) else [])
            if isinstance(problems, dict) and os.path.isdir(folder)}


def content(files):
    """A sum of the files' contents."""
    total = hashlib.sha256()
    for path in files:
        total.update(hashlib.sha256(read_regular_file(path)).digest())
    return total.hexdigest()


def choose_level(entry, total, now, asked):
    """(how many hints to show, whether a file changed since the last were)."""
    seen = min(entry["seen"], total) if entry else 0
    if asked:
        return min(asked, total), False
    if seen and entry["sum"] != now:
        return seen, True
    return min(seen + 1, total), False


# ---- What is said ----


def command(word, options, number=None, test="", drawn=False):
    """The command line for something."""
    text = "make " + word
    if number:
        text += " " + manifest.asked(options)[0].option(number)
    if test:
        text += " TEST=%s" % test
    if options.backend != "simgpu":
        text += " BACKEND=" + options.backend
    if os.path.abspath(options.impl) != os.path.join(ROOT, "skeleton"):
        text += " IMPL=" + shlex.quote(options.impl)
    if drawn:
        text += " SEED=%d" % options.seed
    return text


def give(problem, options, report):
    """Shows the problem and its hints up to the level that is due, and remembers it."""
    path = os.path.join(ROOT, options.build, "hints.json")
    state, folder = load_state(path), os.path.abspath(options.impl)
    seen = state.setdefault(folder, {})
    now, total = content(problem.files), len(problem.hints)
    level, changed = choose_level(seen.get(problem.key), total, now, options.level)
    problem.show(report)
    report.say()
    if changed and level < total:
        report.paragraph("%s changed since your last hint. What you have seen, once more:" % (
            "Your files have" if len(problem.files) > 1 else problem.task.file + " has"), 2)
        report.say()
    for number, text in enumerate(problem.hints[:level], 1):
        report.paragraph("Hint %d of %d: %s" % (number, total, text), 2)
        report.say()
    report.say("  Read:  %s" % to_read(problem.task.handout, problem.section))
    number = problem.task.number if options.task or options.lab else None
    again = command("hint", options, number, options.test, problem.drawn)
    if level < total:
        report.say("  Next:  %s   for hint %d" % (again, level + 1))
    elif total:
        report.paragraph("That is the last hint. If it does not help, show course staff what you "
                         "have tried.", 2)
    else:
        report.say("  There is no hint for this one.")
    report.say("  Then:  %s" % command("grade", options, problem.task.number,
                                       drawn=problem.drawn))
    if level:
        before = seen.get(problem.key, {"seen": 0})["seen"]
        seen[problem.key] = {"sum": now, "seen": max(level, before)}
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, json.dumps(state, indent=1) + "\n")
        except OSError as wrong:
            layout.tell("hint: cannot record which hints you have seen: %s" % wrong)


def finished(tasks, everything, options, report):
    """Nothing is wrong: says so, and what comes next."""
    if options.test:
        report.say("%s is left out: %s" % (options.test, left_out(options.left_out[0]))
                   if options.left_out else "%s passes." % options.test)
        return
    for task in tasks:
        count, out = len(task.tests), [row for row in options.left_out
                                       if row["task"] == task.number]
        said = "all %d tests pass" % count if count > 1 else "its test passes"
        if out:
            said = "%d of %d tests pass, the others are left out: %s" % (
                count - len(out), count, left_out(out[0]))
        report.paragraph("%s  %s: %s" % (task.heading(), task.title, said), 0)
    following = [task for task in everything if task.number == tasks[-1].number + 1]
    if following:
        report.say("  Next:  %s, %s: %s" % (following[0].heading().lower(), following[0].title,
                                            following[0].handout))
        report.say("  Then:  %s" % command("hint", options, following[0].number))
    else:
        report.say("  Next:  %s" % command("grade", options))


def parse(arguments):
    parser = argparse.ArgumentParser(description="Give a hint for what is missing or wrong.")
    ask(parser)
    parser.add_argument("--test", default="", metavar="NAME", help="a hint for this test")
    parser.add_argument("--level", default="", metavar="N", help="the hints 1 to N")
    return parser.parse_args(arguments)


def check(options, everything):
    """Checks what is asked for; the tasks to look at."""
    options.test = options.test.strip()
    if options.test:
        owner = [task for task in everything if any(test.name == options.test
                                                    for test in task.tests)]
        if not owner:
            raise grade.BadUsage("there is no test %s; `make grade` lists the tests" % options.test)
        if options.task.strip() not in ("", str(owner[0].number), owner[0].name):
            raise grade.BadUsage("%s is a test of %s, not of task %s" % (
                options.test, owner[0].heading().lower(), options.task.strip()))
    if options.level and not re.fullmatch(r"[1-9][0-9]{0,2}", options.level):
        raise grade.BadUsage("a level is a whole number, 1 or more, not %s" % options.level)
    options.level = int(options.level or 0)
    tasks = choose(options, everything)
    options.left_out = []
    options.seed = seeds.choose()
    return owner if options.test else tasks


def run(options, report):
    everything = manifest.load(ROOT, manifest.asked(options)[0])
    tasks = check(options, everything)
    for task in tasks:
        problem = look_at(task, options, report)
        if problem:
            give(problem, options, report)
        if problem is not None:
            return
    finished(tasks, everything, options, report)


def main(arguments=None):
    options = parse(arguments)
    runner.stop_on_signals()
    try:
        run(options, Report(sys.stdout))
        return 0
    except (grade.BadUsage, seeds.BadSeed) as problem:
        status, message = 2, str(problem)
    except (Infrastructure, manifest.BadManifest) as problem:
        status, message = 3, "the grading itself failed, not your code: %s" % problem
    except (runner.Stopped, KeyboardInterrupt) as problem:
        status, message = 3, "stopped by %s before the end" % (problem or "Ctrl-C")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    layout.tell("hint: %s" % message)
    return status


if __name__ == "__main__":
    sys.exit(main())
