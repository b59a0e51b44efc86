"""PrairieLearn's results.json.

https://docs.prairielearn.com/externalGrading/ ("Grading results"): the score is a number from 0 to
1; "gradable": false costs no attempt, and format_errors says why; the file is held to 1 MB; tests
have a name, description, points, max_points, message and output. There is no visibility: hidden
tests that are not to be seen stand together as one row.

Interface: emit(document, course) -> text.
"""

import json

from emit import common

LIMIT = 1000 * 1000 # bytes


def emit(document, course):
    """The file's text."""
    most = document["max_score"]
    gradable = document["status"] == "graded"

    shown = common.shown(document, course) if gradable else []

    def make(cap):
        result = {"gradable": gradable,
                  "score": common.number(common.earned(document) / most if most else 0, 0, 1),
                  "message": common.summary(document, course, shown),
                  "output": "", "images": [],
                  "tests": [{"name": test["name"], "description": test["title"],
                             "points": test["score"], "max_points": test["max_score"],
                             "message": test["status"], "output": common.verdict(test, cap)}
                            for test in shown]}
        if not gradable:
            result["format_errors"] = [common.summary(document)]
        return json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    return common.fit(make, LIMIT)
