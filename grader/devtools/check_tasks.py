#!/usr/bin/env python3
"""Checks that the manifests and course.json are right: numbers, points, files, and the names of the
tests; and that lists of tasks and of their headers that are elsewhere have all of them. `make test`
runs it, and so does a release (grader/course/release.py).

The names of tests are compared with what the suites themselves list, for those that are built;
those of hidden tests with their source.

Interface: check_tasks.py [--suites DIR]   DIR holds the suites of one implementation, for example
build/impl/reference/suite. One line for each thing that is wrong; exit status 1 if there is any.
"""

import argparse
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest
import runner
import settings
import submission


def differences(shown, wanted, listed):
    """What two lists of names disagree on."""
    found = ["%s: test %s is in the manifest and not in the suite" % (shown, name)
             for name in wanted if name not in listed]
    found += ["%s: test %s is in the suite and not in the manifest" % (shown, name)
              for name in listed if name not in wanted]
    found += ["%s: test %s is in the suite twice" % (shown, name)
              for name in sorted(set(listed)) if listed.count(name) > 1]
    return found


def check_suites(tasks, folder):
    """Compares names with those of the suites in the folder."""
    wanted = {task.name: [test.name for test in task.own()] for task in tasks}
    wanted["together"] = [test.name for task in tasks for test in task.together()]
    found = []
    for name, names in wanted.items():
        program = os.path.abspath(os.path.join(folder, name))
        if not os.path.exists(program):
            found.append("%s: not built" % os.path.relpath(program))
            continue
        try:
            found += differences(name, names, runner.list_tests([program]))
        except runner.CannotRun as problem:
            found.append(str(problem))
    return found


def check_files(tasks, root):
    """TASK_FILES of include/report.h, by which reports know the file of a task."""
    table = manifest.text_of(root, "include/report.h").partition("#define TASK_FILES(X)")[2]
    rows = dict(re.findall(r"\bX\((\w+), (\w+)\)", table))
    for task in tasks:
        heads = map(manifest.FUNCTION.match, manifest.reference_text(task, root).splitlines())
        if rows.get(task.name) not in [head.group(1) for head in heads if head]:
            yield ("include/report.h: TASK_FILES must have X(%s, function), where %s defines the "
                   "function" % (task.name, task.in_kit("reference")))
    for name in sorted(set(rows) - {task.name for task in tasks}):
        yield "include/report.h: TASK_FILES has %s, which is not a task" % name


def check_headers(tasks, root, listed=submission.headers_for(None)):
    """The headers in submission.py: those that a student's file has by its own includes."""
    found, ahead = {}, [(piece.in_kit("reference"), piece.in_kit("reference"))
                        for task in tasks for piece in task.pieces()]
    for path, why in ahead:
        for name in re.findall(r'(?m)^#include "([^"]+)"', manifest.text_of(root, path)):
            if name not in found:
                found[name] = why
                ahead.append((os.path.join("include", name), why))
    for name in sorted(set(found) - set(listed)):
        yield ("grader/submission.py: HEADERS lacks %s, which %s has by its includes: a student's "
               "file that calls what it declares would be refused" % (name, found[name]))
    for name in sorted(set(listed) - set(found)):
        yield "grader/submission.py: HEADERS has %s, which no reference has by its includes" % name


def check_hidden(course, root):
    """The names of hidden tests, in their files."""
    for test in course["hidden"]["tests"]:
        stem = "hidden_together" if test["suite"] == "together" else "hidden"
        text = "".join(manifest.text_of(root, path) for task in course["tasks"]
                       for path in ["%s/%s.c" % (task["folder"], stem)]
                       if test["suite"] in ("together", task["name"])
                       and os.path.exists(os.path.join(root, path)))
        if not re.search(r"(?m)^\w*TEST\w*\(\s*%s\b" % re.escape(test["name"]), text):
            yield "grader/course/course.json: no %s.c has the hidden test %s of %s" % (
                stem, test["name"], test["suite"])


def main():
    parser = argparse.ArgumentParser(description="Check the tasks' manifests.")
    parser.add_argument("--suites", metavar="DIR",
                        help="compare names with the suites in this folder")
    options = parser.parse_args()
    try:
        kinds = [manifest.load(ROOT, kind) for kind in (manifest.TASK, manifest.LAB)]
        course = settings.load(ROOT)
    except (manifest.BadManifest, settings.BadCourse) as problem:
        print(problem)
        return 1
    found = [line for tasks in kinds for line in manifest.problems(tasks, ROOT)]
    found += [*check_files(kinds[0], ROOT), *check_headers(sum(kinds, []), ROOT),
              *check_hidden(course, ROOT)]
    if options.suites:
        found += check_suites(sum(kinds, []), options.suites)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
