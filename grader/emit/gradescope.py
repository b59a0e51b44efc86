"""Gradescope's results.json.

The fields are those of https://gradescope-autograders.readthedocs.io/en/latest/specs/ (sections
"Output format", "Controlling Test Case Visibility", "Test case status", "Output String
Formatting"). A test is passed or failed there; the grader's own status is a tag, stands in
extra_data, and begins the output where it is neither.

Interface: emit(document, course) -> text.
"""

import json

from emit import common

CHALLENGE = "Tokens/s per GPU"
LIMIT = 4 << 20 # bytes; the page names none


def emit(document, course):
    """The file's text. course: course.json's "visibility", "leaderboard" and "challenge" are
    used."""
    visibility = course.get("visibility", {})

    later = visibility.get("hidden", "visible") in common.LATER
    seen = [test for test in document["tests"] if not (test["hidden"] and later)]

    def make(cap):
        tests, count = [], {}
        for test in document["tests"]:
            count[test["task"]] = count.get(test["task"], 0) + 1
            shown = visibility.get("hidden" if test["hidden"] else "tests", "visible")
            tests.append({
                "score": test["score"], "max_score": test["max_score"],
                "status": "passed" if test["status"] == "passed" else "failed",
                "name": test["name"], "name_format": "text",
                "number": "%s.%d" % (test["task"], count[test["task"]]),
                "output": common.verdict(test, cap), "output_format": "text",
                "tags": ["quiz" if test["quiz"] else "hidden tests" if test["hidden"] else
                         "task %s" % test["task"], test["status"]],
                "visibility": shown,
                "extra_data": {"status": test["status"], "seconds": test["seconds"]}})
        result = {
            "score": common.earned(document), "execution_time": document["seconds"],
            "output": common.summary(document, course, seen), "output_format": "text",
            "visibility": "visible",
            "stdout_visibility": visibility.get("stdout", "hidden"),
            "extra_data": {"status": document["status"], "version": document["version"],
                           "devices": document["devices"], "late": document["late"],
                           "days_late": document["days_late"], "due": document["due"],
                           "notes": document["notes"],
                           "files": document["files"], "confinement": document["confinement"]},
            "tests": tests}
        if course.get("leaderboard"):
            result["leaderboard"] = [{"name": "Score", "value": common.earned(document)}]
        if course.get("challenge"):
            result.setdefault("leaderboard", []).append(
                {"name": CHALLENGE, "value": document["challenge"]})
        return json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    return common.fit(make, LIMIT)
