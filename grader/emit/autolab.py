"""Autolab's autoresult: feedback, and as the last line of standard output the scores by problem.

https://docs.autolabproject.com/lab/ ("Writing Autograders"): the last line is a JSON string,
{"scores": {"Prob1": 10}, "scoreboard": [10, 10]}, and the names must be exactly those of the
problems on the web site. Each task is a problem, named by its title, and so are the hidden tests
and the quiz. Autolab knows nothing but points, so a grading that failed is 0 points and a sentence
above them.

Interface: emit(document, course) -> text; problems(course) -> {name: points}.
"""

import json

from emit import common
from quiz_questions import QUESTIONS

LIMIT = 900 * 1000 # bytes: of 1,024,000 that Tango keeps, with what make prints
HIDDEN = "Hidden tests"
QUIZ = "Quiz"


def problems(course):
    """The problems as they must be named on the web site, with their points. `course` has "tasks",
    [{"number", "title", "points"}], from where it was loaded."""
    named = {task["title"]: common.number(task["points"]) for task in course["tasks"]}
    hidden = course.get("hidden", {}).get("tests", [])
    if hidden:
        named[HIDDEN] = common.number(sum(test["points"] for test in hidden))
    if course.get("quiz"):
        named[QUIZ] = common.number(course["quiz"] * sum(
            len(question.parts) for question in QUESTIONS.values()))
    return named


def emit(document, course):
    """Feedback and the last line."""
    titles = {task["number"]: task["title"] for task in course["tasks"]}
    scores = dict.fromkeys(problems(course), 0)
    if document["status"] == "graded":
        for test in document["tests"]:
            name = HIDDEN if test["hidden"] else QUIZ if test["quiz"] else titles.get(test["task"])
            if name in scores:
                scores[name] = common.number(scores[name] + test["score"] * (1 - document["late"]))
    board = [common.earned(document)] + list(scores.values())
    if course.get("challenge"):
        board.append(document["challenge"])
    last = json.dumps({"scores": scores, "scoreboard": board})

    def make(cap):
        tests = common.shown(document, course)
        lines = [common.summary(document, course, tests)]
        for test in tests:
            if test["status"] != "passed":
                text = common.verdict(test, cap).replace("\n", "\n    ")
                lines.append("\n%s (%s/%s)\n    %s" % (test["name"], common.points(test["score"]),
                                                   common.points(test["max_score"]), text))
        # A line that begins like a result must not be taken for the result.
        feedback = "\n".join(lines).replace("\n{", "\n {")
        return feedback + "\n" + last + "\n"
    return common.fit(make, LIMIT)
