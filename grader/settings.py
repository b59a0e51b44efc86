"""What a course decides: grader/course/course.json, and the points of tasks/*/task.json beside it.

    name, title, course  what it is called
    version     the course's own; empty: the kit's, in VERSION
    dates       opens, due, late_until: ISO 8601 with an offset; late_until may be null
    late        percent_per_day, and who takes it: "platform" (its own rules; the kit only says how
                late it was) or "grader" (on Gradescope, which tells when a submission came, and
                when it was due)
    visibility  of tests, hidden (tests) and stdout, in Gradescope's words: visible,
                after_due_date, after_published, hidden
    leaderboard whether Gradescope shows one
    run_as      the account whose processes the tests are where the grader runs as root, so that
                they can neither read nor write what is the grader's; empty: the grader's own
    limit_seconds  how long the grading of one submission may take, all together
    seed        what the visible suites draw shapes and worlds from on a platform: the same for all
                students, so that the draw costs nobody points that it does not cost the others. Who
                loses a test reads it there, and can run the same at home
    lab         empty: the assignment is the six tasks; else a lab's name, or "all" for all labs,
                and the assignment is that in their place, with no hidden tests
    quiz        points of each right answer of the quiz (answers.txt, quiz.py), beside those of the
                tests; 0: the quiz is no part of the assignment, as with a lab
    challenge   whether the challenge (plan.txt, challenge.py) is planned, for Gradescope's
                leaderboard and Autolab's scoreboard
    one_file    whether students get FSDP in one file (handouts/one_file.md, examples/fsdp_300.c),
                which shows the solution of tasks 2 to 5: in their archive and on their site
    hidden      seed: the same for the hidden suites; tests: suite (a task: its hidden.c; or
                "together"), name,
                points, title, hint, and if you like more and section, as in manifest.py

A student archive has no course.json: load() then gives defaults and no hidden tests.

Interface: load(root) -> dict with "tasks" added; tasks_of(course, root); problems(course, root);
BadCourse.
"""

import datetime
import json
import os
import re

import manifest
import seeds

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")
DEFAULTS = {"name": "shardlab", "title": "ShardLab", "course": "", "version": "", "dates": {},
            "late": {"percent_per_day": 0, "taken_by": "platform"},
            "visibility": {"tests": "visible", "hidden": "after_published", "stdout": "hidden"},
            "leaderboard": False, "lab": "", "run_as": "nobody", "limit_seconds": 540, "seed": 1,
            "quiz": 0, "challenge": False, "one_file": False,
            "hidden": {"seed": 1, "tests": []}}


class BadCourse(Exception):
    """course.json cannot be used; the text says why."""


def when(text):
    """A date of course.json, or of a platform's."""
    # Python reads nanoseconds, as Ruby writes them, from 3.11 on.
    date = datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    if date.tzinfo is None:
        raise ValueError("%s has no UTC offset, such as +01:00" % text)
    return date


def load(root=ROOT):
    """The course, checked."""
    path = os.path.join(root, "grader", "course", "course.json")
    course = dict(DEFAULTS)
    if os.path.exists(path):
        try:
            with open(path, encoding="utf-8") as file:
                course.update(json.load(file))
        except (OSError, ValueError) as problem:
            raise BadCourse("grader/course/course.json cannot be read: %s" % problem)
    course["tasks"] = [{"number": task.number, "name": task.name, "title": task.title,
                        "points": task.points, "file": task.file, "handout": task.handout,
                        "folder": task.folder, "files": [piece.file for piece in task.pieces()]}
                       for task in tasks_of(course, root)]
    if course["lab"]:
        course["hidden"], course["quiz"] = DEFAULTS["hidden"], 0
        course["challenge"] = False
    found = problems(course, root)
    if found:
        raise BadCourse("grader/course/course.json: " + "; ".join(found))
    return course


def tasks_of(course, root):
    """What the assignment is made of, as manifest.Tasks."""
    if not course["lab"]:
        return manifest.load(root)
    labs = manifest.load(root, manifest.LAB)
    chosen = labs if course["lab"] == "all" else manifest.choose(labs, str(course["lab"]))
    if not chosen:
        raise BadCourse("grader/course/course.json: there is no lab %s" % course["lab"])
    return chosen


def problems(course, root):
    """What is wrong with it, a line each."""
    found = ["unknown field \"%s\"" % name for name in course
             if name not in DEFAULTS and name != "tasks"]
    try:
        dates = [when(course["dates"][name]) for name in ("opens", "due", "late_until")
                 if course["dates"].get(name)]
        if dates != sorted(dates):
            found.append("the dates are not in order")
    except (TypeError, ValueError, AttributeError) as problem:
        found.append("dates: %s" % problem)
    for what, shown in course["visibility"].items():
        if shown not in VISIBILITIES:
            found.append("visibility of %s is %r: must be one of %s" % (what, shown,
                                                                 ", ".join(VISIBILITIES)))
    if course["late"].get("taken_by") not in ("platform", "grader"):
        found.append("late: taken_by must be platform or grader")
    if not 0 <= course["late"].get("percent_per_day", -1) <= 100:
        found.append("late: percent_per_day must be a number from 0 to 100")
    quiz = course["quiz"]
    if isinstance(quiz, bool) or not isinstance(quiz, (int, float)) or not 0 <= quiz <= 100:
        found.append("quiz is %r: must be the points of an answer, from 0 to 100" % (quiz,))
    found += ["%s must be true or false" % name for name in ("challenge", "one_file")
              if course[name] not in (True, False)]
    for name, seed in (("seed", course["seed"]), ("hidden: seed", course["hidden"].get("seed"))):
        if not seeds.is_seed(seed):
            found.append("%s is %r: must be a whole number from 0 to %d" % (name, seed, seeds.MOST))
    hidden = {task["name"]: [task["folder"] + "/hidden.c"] for task in course["tasks"]}
    hidden["together"] = [task["folder"] + "/hidden_together.c" for task in course["tasks"]]
    for test in course["hidden"]["tests"]:
        if set(test) - {"more", "section"} != {"suite", "name", "points", "title", "hint"}:
            found.append("a hidden test must have suite, name, points, title and hint")
        elif test["suite"] not in hidden:
            found.append("hidden test %s: there is no task %s" % (test["name"], test["suite"]))
        elif not any(os.path.exists(os.path.join(root, path)) for path in hidden[test["suite"]]):
            found.append("hidden test %s: there is no %s" % (test["name"],
                                                             hidden[test["suite"]][-1]))
        elif isinstance(test["points"], bool) or not isinstance(
                test["points"], (int, float)) or not 0 < test["points"] < 1e6:
            found.append("hidden test %s: points is %r: must be a number above 0"
                         % (test["name"], test["points"]))
    return found
