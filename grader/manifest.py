"""The manifests tasks/N_name/task.json: what each task is worth and which tests it has.

A manifest holds the task's number, name, title, points, the file that students write, the handout,
and its tests in order. A test has a name (as the suite's --list prints it), points, a title (one
sentence: what must hold) and a hint (a question). A test marked "together" runs in the suite
`together`, which is linked with all six of the student's files; the others run in the suite named
after the task.

Interface: load(root) returns the Tasks in order; problems(tasks, root) returns what is wrong with
them, a line each; BadManifest.
"""

import json
import os
from dataclasses import dataclass, field

FULL_SCORE = 100


class BadManifest(Exception):
    """A manifest that cannot be read; the text names the file and what is wrong."""


@dataclass
class Test:
    name: str
    points: float
    title: str
    hint: str
    together: bool = False


@dataclass
class Task:
    number: int
    name: str
    title: str
    points: float
    file: str
    handout: str
    tests: list = field(default_factory=list)
    path: str = ""

    def own(self):
        """The tests of the task's own suite."""
        return [test for test in self.tests if not test.together]

    def together(self):
        """The tests that need all six files."""
        return [test for test in self.tests if test.together]


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# What a manifest's fields are, with the sort of value each must be.
TASK_FIELDS = {"number": "whole", "name": "text", "title": "text", "points": "number",
               "file": "text", "handout": "text", "tests": "list"}
TEST_FIELDS = {"name": "text", "points": "number", "title": "text", "hint": "text"}
SORTS = {"whole": lambda v: isinstance(v, int) and not isinstance(v, bool),
         "number": is_number,
         "text": lambda v: isinstance(v, str) and v.strip() != "",
         "list": lambda v: isinstance(v, list)}


def take(data, fields, where, optional=()):
    """The fields of a JSON object, checked: each there, of its sort, and nothing else."""
    if not isinstance(data, dict):
        raise BadManifest("%s is not a JSON object" % where)
    for name, sort in fields.items():
        if name not in data:
            raise BadManifest("%s has no \"%s\"" % (where, name))
        if not SORTS[sort](data[name]):
            raise BadManifest("%s: \"%s\" must be a %s, not %r" % (where, name, sort, data[name]))
    for name in data:
        if name not in fields and name not in optional:
            raise BadManifest("%s: nobody knows a field \"%s\"" % (where, name))
    return {name: data[name] for name in fields}


def load_task(path, shown):
    """One manifest."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError) as problem:
        raise BadManifest("%s cannot be read: %s" % (shown, problem))
    task = Task(**take(data, TASK_FIELDS, shown), path=shown)
    tests = []
    for i, entry in enumerate(task.tests):
        where = "%s, test %d" % (shown, i + 1)
        test = Test(**take(entry, TEST_FIELDS, where, optional=("together",)))
        test.together = entry.get("together", False)
        if not isinstance(test.together, bool):
            raise BadManifest("%s: \"together\" must be true or false" % where)
        tests.append(test)
    task.tests = tests
    return task


def load(root):
    """All tasks, by number."""
    folder = os.path.join(root, "tasks")
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        raise BadManifest("tasks cannot be read: %s" % problem)
    tasks = []
    for name in names:
        path = os.path.join(folder, name, "task.json")
        if os.path.exists(path):
            tasks.append(load_task(path, os.path.join("tasks", name, "task.json")))
    if not tasks:
        raise BadManifest("tasks holds no task.json")
    return sorted(tasks, key=lambda task: task.number)


def problems(tasks, root):
    """What is wrong with the manifests taken together; an empty list where nothing is."""
    found = []
    seen = set()
    for place, task in enumerate(tasks, 1):
        def wrong(text, task=task):
            found.append("%s: %s" % (task.path, text))
        if task.number != place:
            wrong("number %d where %d is due" % (task.number, place))
        if os.path.dirname(task.path) != "tasks/%d_%s" % (task.number, task.name):
            wrong("a manifest of %d_%s in another folder" % (task.number, task.name))
        if task.file != task.name + ".c":
            wrong("the file is %s, not %s.c" % (task.file, task.name))
        points = sum(test.points for test in task.tests)
        if points != task.points:
            wrong("the tests have %g points, the task has %g" % (points, task.points))
        for path in (os.path.join("reference", task.file), task.handout):
            if not os.path.exists(os.path.join(root, path)):
                wrong("there is no %s" % path)
        for test in task.tests:
            if test.points <= 0:
                wrong("test %s is worth %g" % (test.name, test.points))
            if test.name in seen:
                wrong("a second test is named %s" % test.name)
            if not test.hint.strip().endswith("?"):
                wrong("the hint of %s asks nothing" % test.name)
            seen.add(test.name)
    total = sum(task.points for task in tasks)
    if total != FULL_SCORE:
        found.append("tasks: all tasks together have %g points, not %d" % (total, FULL_SCORE))
    return found
