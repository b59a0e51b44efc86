#!/usr/bin/env python3
"""The quiz: asks what a step of training keeps, sends and takes, with numbers drawn for each
student, and marks the answers.

The questions are added to answers.txt in the student's folder, where the answers are written, too.
What is right the planner says (plan.py), which runs the reference dry on the numbers drawn: nothing
here was typed in. An answer that is wrong in a way that quiz_questions.py knows gets the step that
was missed.

The numbers come from an id (ID=anna@example.edu) or from a seed (SEED=8812; drawn where neither is
given), and answers.txt names it: the same file has the same questions everywhere. A platform that
knows who hands in wants that id (--known).

Interface: quiz.py --impl DIR [--build DIR] [--task N|name | --lab N|name] [--id NAME]
[--known NAME …] [--mark-only] [--out FILE]; `make quiz`. The results are a part's name, points and
message each, as tests have them. Exit status: 0 when the marking worked; 2 for a question that
makes no sense; 3 where the kit is at fault.
Files: answers.py (the file), quiz_questions.py and lab_questions.py (the questions), plan.py.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import types

import answers
import demo
import layout
import manifest
import plan
import runner
import seeds
from builder import ROOT, Infrastructure
from files import write_atomically
from lab_questions import LAB_QUESTIONS
from quiz_questions import QUESTIONS, Draw, Figures

LIMIT = 120.0 # seconds of a plan, times SHARDLAB_TIME_FACTOR
WIDTH = 79
ID = re.compile(r"[\w.+@-]{1,80}")


class BadUsage(Exception):
    """Asked for something that makes no sense; the text says what, in a line."""


# ---- What is asked ----

def chosen_questions(options):
    """The questions of the tasks, or of the labs, that are asked for; else the tasks'."""
    kind, wanted = manifest.asked(options)
    tasks = manifest.load(ROOT, kind)
    if wanted not in ("", "all"):
        chosen = manifest.choose(tasks, wanted)
        if not chosen:
            what = kind.folder()[:-1]
            raise BadUsage("there is no %s %s; the %ss are %s" % (what, wanted, what, ", ".join(
                "%d %s" % (task.number, task.name) for task in tasks)))
        tasks = chosen
    known = LAB_QUESTIONS if options.lab else QUESTIONS
    return [known[task.number] for task in tasks if task.number in known]


def key_of(options, there):
    """Whose numbers: "id NAME" or "seed N". there: what answers.txt says."""
    asked = ""
    if options.id:
        if not ID.fullmatch(options.id):
            raise BadUsage("ID is %s: letters, digits and . + @ - _" % ascii(options.id[:90]))
        asked = "id " + options.id
    elif os.environ.get("SEED"):
        asked = "seed %d" % seeds.choose()
    if there and asked and asked != there:
        raise BadUsage("%s has the questions of %s: for other numbers, first move that file away"
                       % (answers.NAME, there))
    return there or asked or "seed %d" % seeds.choose()


def planned(program, setting, strategy):
    """The planner's figures, as its JSON has them."""
    with tempfile.TemporaryDirectory(prefix="shardlab-quiz-") as folder:
        out = os.path.join(folder, "plan.json")
        try:
            done = subprocess.run(
                [program, "JSON=" + out, "ADVICE=no"] + setting.plan(strategy),
                env=runner.clean_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                text=True, check=False, timeout=LIMIT * runner.time_factor())
        except subprocess.TimeoutExpired:
            raise Infrastructure("a plan took more than %g s" % (LIMIT * runner.time_factor()))
        if done.returncode != 0:
            raise Infrastructure("the planner failed: %s" % done.stderr.strip()[-2000:])
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def figures_of(program, question, key):
    """The drawn numbers of a question, and what is planned for them."""
    setting = question.draw(Draw("%s|task %s" % (key, question.task)))
    return Figures(setting, {strategy: planned(program, setting, strategy)
                             for strategy in question.strategies})


def asked_parts(question, figures):
    return [(question.name(part), part.ask % figures.words()) for part in question.parts]


# ---- Marking ----

def row(question, part, status, message=""):
    """A part as tests are in the results."""
    return {"name": "quiz " + question.name(part), "task": question.task, "title": "",
            "status": status, "score": int(status == "passed"), "max_score": 1, "message": message}


def mark(question, part, figures, given, line):
    """An answer's row. given: what stands in the file; None where it has no such part."""
    if not given:
        return row(question, part, "skipped", "No answer yet.")
    try:
        value = answers.value_of(given)
    except answers.BadAnswers as problem:
        return row(question, part, "failed", "%s:%d: %s" % (answers.NAME, line, problem))
    if question.close(value, part.right(figures)):
        return row(question, part, "passed")
    for wrong, missed in part.missed:
        if question.close(value, wrong(figures)):
            return row(question, part, "failed", missed)
    return row(question, part, "failed", "Wrong. " + part.how)


def mark_all(program, questions, given, key):
    """[(Question, Figures, rows)]"""
    found = []
    for question in questions:
        figures = figures_of(program, question, key)
        found.append((question, figures, [
            mark(question, part, figures, given.given.get(question.name(part)),
                 given.line.get(question.name(part)))
            for part in question.parts]))
    return found


def unknown(given):
    """A part that no question has."""
    names = {question.name(part) for known in (QUESTIONS, LAB_QUESTIONS)
             for question in known.values() for part in question.parts}
    for name in given.given:
        if name not in names:
            raise answers.BadAnswers("%s:%d: no question has a part %s"
                                     % (answers.NAME, given.line[name], name))


# ---- What is said ----

MARKS = {"passed": "right", "failed": "wrong", "skipped": "open"}


def say(marked):
    for question, _, rows in marked:
        print("%s" % question.title)
        for result in rows:
            head = "  %-4s %-6s " % (result["name"].split()[1], MARKS[result["status"]])
            text = result["message"] if result["status"] == "failed" else ""
            layout.tell("\n".join(textwrap.wrap(
                text, WIDTH, initial_indent=head, subsequent_indent=" " * 14,
                break_on_hyphens=False)) or head.rstrip(), sys.stdout)
        print()


def tell_next(options, marked, shown, added):
    """What to do next, and the last line."""
    rows = [result for _, _, part in marked for result in part]
    if added:
        print("The questions are in %s: write your answers there, then run this again." % shown)
    elif any(result["status"] == "skipped" for result in rows):
        print("Questions without an answer are in %s." % shown)
    earned = sum(result["score"] for result in rows)
    print("Quiz: %d of %d%s" % (earned, len(rows), " (%s only)" % (
        "lab " + options.lab if options.lab else "task %s" % marked[0][0].task)
                                if options.task or options.lab else ""))


# ---- All together ----

def check_known(options, key):
    """Whether these are the questions of who hands in."""
    if options.known and key not in ["id " + name for name in options.known]:
        raise answers.BadAnswers(
            "%s has the numbers of %s, but %s handed it in. `make quiz ID=%s` asks the questions "
            "with your numbers." % (answers.NAME, key, options.known[0],
                                    shlex.quote(options.known[0])))


def run(options):
    """(what is marked, whether questions were added, whose numbers)."""
    if not os.path.isdir(options.impl):
        raise BadUsage(manifest.no_folder(options.impl))
    path = os.path.join(options.impl, answers.NAME)
    questions = chosen_questions(options)
    given = answers.read(path)
    unknown(given)
    key = key_of(options, given.key)
    check_known(options, key)
    program = plan.build_program(types.SimpleNamespace(impl="reference",
                                                       build=options.build))[0]
    marked = mark_all(program, questions, given, key)
    added = not options.mark_only and answers.write(path, key, [
        (question.title, question.text(figures), asked_parts(question, figures))
        for question, figures, _ in marked])
    return marked, added, key


def document(status, message, marked=(), key=""):
    rows = [result for _, _, part in marked for result in part]
    return {"status": status, "message": message, "numbers": key,
            "score": sum(result["score"] for result in rows), "max_score": len(rows),
            "tests": rows}


def parse(arguments):
    parser = argparse.ArgumentParser(description="Ask and mark the quiz.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="where answers.txt is")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("--task", default="", metavar="N|name", help="only this task's questions")
    parser.add_argument("--lab", default="", metavar="N|name",
                        help="this lab's questions instead")
    parser.add_argument("--id", default="", metavar="NAME", help="whose numbers the questions have")
    parser.add_argument("--known", action="append", default=[], metavar="NAME",
                        help="who hands in: answers with the numbers of others do not count")
    parser.add_argument("--mark-only", action="store_true", help="add no questions to the file")
    parser.add_argument("--out", default="", metavar="FILE", help="where the results go")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)

    def leave(status, *result):
        if options.out:
            write_atomically(options.out, json.dumps(document(*result), indent=1) + "\n")
        return status
    try:
        marked, added, key = run(options)
    except answers.BadAnswers as problem: # the student's: there are no points
        layout.tell("quiz: %s" % problem)
        return leave(2, "error", str(problem))
    except (BadUsage, demo.BadUsage, seeds.BadSeed) as problem:
        layout.tell("quiz: %s" % problem)
        return leave(2, "error", str(problem))
    except (Infrastructure, manifest.BadManifest, OSError) as problem:
        layout.tell("quiz: the quiz itself failed, not your answers: %s" % problem)
        return leave(3, "infrastructure", str(problem))
    say(marked)
    tell_next(options, marked, os.path.relpath(os.path.join(options.impl, answers.NAME)), added)
    return leave(0, "graded", "", marked, key)


if __name__ == "__main__":
    sys.exit(main())
