#!/usr/bin/env python3
"""Runs the hidden tests of course.json on a folder with the six files.

hidden.c in a task's folder is a suite like tests.c and is linked as that one: with the student's
file of the task and the reference's others, or, hidden_together.c, with all of the student's. They
draw their shapes and worlds (tests/support/draw.h) from the course's hidden.seed, the same for
everybody, whatever SEED is. The student archive has neither the suites nor course.json.

The grading is grade.py's own, with these tests in the place of the manifests' and these suites in
the place of the tasks'.

Interface: hidden.py --impl DIR --out FILE [--build DIR], and grade.py's other options; the results
are as grade.py's, and so is the exit status.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import grade
import manifest
import settings

SUITES = "hidden" # where they are in the build tree, beside suite/


class Builder(grade.Builder):
    """Links the hidden suites."""

    NEEDS_ALL = True

    def suite(self, name, key=None):
        folder, _, name = super().suite(name, key).rpartition("/")
        return "%s/%s/%s" % (os.path.dirname(folder), SUITES, name)


class Grading(grade.Grading):
    """Leaves out the tasks that have no hidden tests."""

    def own_suite(self, builder, task, failing):
        if task.own():
            super().own_suite(builder, task, failing)

    def test_sources(self, own, together):
        return [task.folder + "/hidden" for task in own] + \
            [task.folder + "/hidden_together" for task in together]


def tasks_of(course, root):
    """The manifests' tasks with the hidden tests in the place of theirs."""
    tasks = manifest.load(root)
    for task in tasks:
        suites = [task.name] + ["together"] * bool(task.together())
        task.tests = [made(test) for test in course["hidden"]["tests"] if test["suite"] in suites]
    return tasks


def made(test):
    return manifest.Test(test["name"], test["points"], test["title"], test["hint"],
                         test["suite"] == "together", section=test.get("section", ""))


def main():
    course = settings.load()
    tasks = tasks_of(course, ROOT)
    os.environ["SEED"] = str(course["hidden"]["seed"])
    grade.manifest.load = lambda root, kind: tasks
    grade.Builder = Builder
    grade.Grading = Grading
    return grade.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
