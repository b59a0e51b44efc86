#!/usr/bin/env python3
"""Checks that the manifests are right: numbers, points, files, and the names of the tests.

The names are compared with what the suites themselves list, for those suites that are built.

Interface: check_tasks.py [--suites DIR]   DIR holds the suites of one implementation, for example
build/impl/reference/suite. One line for each thing that is wrong; exit status 1 if there is any.
"""

import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest
import runner


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


def main():
    parser = argparse.ArgumentParser(description="Check the tasks' manifests.")
    parser.add_argument("--suites", metavar="DIR",
                        help="compare names with the suites in this folder")
    options = parser.parse_args()
    try:
        kinds = [manifest.load(ROOT, kind) for kind in (manifest.TASK, manifest.LAB)]
    except manifest.BadManifest as problem:
        print(problem)
        return 1
    found = [line for tasks in kinds for line in manifest.problems(tasks, ROOT)]
    if options.suites:
        found += check_suites(sum(kinds, []), options.suites)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
