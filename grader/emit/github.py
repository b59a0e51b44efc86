"""GitHub Actions: annotations beside the lines of code, and a step summary.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands: an annotation
is "::error file=…,line=…,title=…::message" on standard output, with %, CR and LF as %25, %0D and
%0A, and in a property : and , too as %3A and %2C (the escapes are those of actions/toolkit,
packages/core/src/command.ts). Ten errors are shown a step, so one stands for all tests that fail at
one line. A summary is Markdown of at most 1 MiB a step, appended to the file that
GITHUB_STEP_SUMMARY names.

Interface: emit(document, course) -> annotations; summarize(document, course) -> Markdown.
"""

import re

from emit import common

MOST = 10                 # errors that are shown a step
ANNOTATION_LIMIT = 2000   # characters
SUMMARY_LIMIT = 1000 * 1000
PLACE = re.compile(r"(?:^|[\s\[(])([\w./+-]+\.[ch]):(\d+)")
MARKS = {"passed": "✅", "failed": "❌", "error": "💥", "timeout": "⏰", "skipped": "➖",
         "infrastructure": "❔"}


def data(text):
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def field(text):
    return data(text).replace(":", "%3A").replace(",", "%2C")


def command(message, title, place=None):
    """One annotation."""
    where = "file=%s,line=%s," % (field(place[0]), place[1]) if place else ""
    return "::error %stitle=%s::%s" % (where, field(title),
                                       data(common.clean(message, ANNOTATION_LIMIT)))


def emit(document, course):
    """A line for each thing that broke."""
    if document["status"] != "graded":
        return command(common.summary(document), "ShardLab") + "\n"
    lines, told, left = [], {}, 0
    for test in document["tests"]:
        if test["status"] in ("passed", "skipped"):
            continue
        found = PLACE.search(test["message"])
        place = found.groups() if found else None
        if place in told and place:
            continue # the same line fails another test
        told[place] = True
        if len(lines) == MOST - 1:
            left += 1
            continue
        lines.append(command(common.verdict(test), "%s (task %s)" % (test["name"], test["task"]),
                             place))
    if left:
        lines.append(command("%d more places fail: see the summary." % left, "ShardLab"))
    return "".join(line + "\n" for line in lines)


def cell(text):
    """Text in a cell of a Markdown table."""
    text = re.sub(r"([\\`*_{}\[\]()#+!|<>~&@-])", r"\\\1", text)
    return " ".join(text.split())


def fenced(text):
    """Text as it is, in a fence that it does not hold."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "%stext\n%s\n%s" % (fence, text, fence)


def summarize(document, course):
    """The step summary."""
    titles = {task["number"]: task["title"] for task in course.get("tasks", [])}

    def make(cap):
        lines = ["## ShardLab", "", fenced(common.summary(document, course)), ""]
        tests = document["tests"] if document["status"] == "graded" else []
        if tests:
            lines += ["| | Test | Task | Points |", "|---|---|---|---|"]
        for test in tests:
            lines.append("| %s | %s | %s %s | %s/%s |" % (
                MARKS[test["status"]], cell(test["name"]), test["task"],
                cell(titles.get(test["task"], "")), common.points(test["score"]),
                common.points(test["max_score"])))
        for test in tests:
            if test["status"] != "passed":
                lines += ["", "#### %s: %s" % (cell(test["name"]), test["status"]), "",
                          fenced(common.verdict(test, cap))]
        return "\n".join(lines) + "\n"
    return common.fit(make, SUMMARY_LIMIT)
