"""JUnit XML, as CI servers read it.

There is no one specification; the elements and attributes are those of
https://github.com/testmoapp/junitxml, all of which Jenkins' schema (junit-10.xsd of
https://github.com/jenkinsci/xunit-plugin) knows too. A task is a testsuite, and so is a task's
quiz. What failed is a failure; a crash, a time-out and trouble of the grading's own are errors, by
type; a test that was not judged is skipped.

Interface: emit(document, course) -> text.
"""

from xml.sax.saxutils import escape, quoteattr

from emit import common

LIMIT = 8 << 20 # bytes


def attributes(**values):
    """name="value" for each."""
    return "".join(" %s=%s" % (name, quoteattr(str(value))) for name, value in values.items())


def count(tests):
    """What a suite's head says of its tests."""
    statuses = [test["status"] for test in tests]
    return {"tests": len(tests), "failures": statuses.count("failed"),
            "errors": sum(status in ("error", "timeout", "infrastructure") for status in statuses),
            "skipped": statuses.count("skipped"),
            "time": common.number(sum(test["seconds"] for test in tests))}


def case(test, suite, cap):
    """One testcase."""
    head = "  <testcase%s" % attributes(name=test["name"], classname=suite, time=test["seconds"])
    if test["status"] == "passed":
        return head + "/>"
    first = (test["message"] or test["title"]).partition("\n")[0][:max(cap, 60)]
    if test["status"] == "skipped":
        return "%s>\n   <skipped%s/>\n  </testcase>" % (head, attributes(message=first))
    element = "failure" if test["status"] == "failed" else "error"
    # escape() writes ]]> as ]]&gt;, so no text ends what it stands in.
    return "%s>\n   <%s%s>%s</%s>\n  </testcase>" % (
        head, element, attributes(message=first, type=test["status"]),
        escape(common.verdict(test, cap)), element)


def emit(document, course):
    """The file's text."""
    titles = {task["number"]: task["title"] for task in course.get("tasks", [])}
    tests = list(document["tests"])
    if document["status"] != "graded":
        # Readers look only at tests: what happened to the whole is one of them.
        tests = [dict(common.tidy_test({"name": "grading", "status": "infrastructure"}),
                      message=common.summary(document))]

    def make(cap):
        lines = ['<?xml version="1.0" encoding="UTF-8"?>',
                 "<testsuites%s>" % attributes(name="ShardLab", **count(tests))]
        for quiz, number in sorted({(test["quiz"], test["task"]) for test in tests}):
            suite = ("Quiz" if quiz else
                     "Task %s %s" % (number, titles.get(number, "")) if number else "ShardLab")
            group = [test for test in tests if (test["quiz"], test["task"]) == (quiz, number)]
            lines.append(" <testsuite%s>" % attributes(name=suite.strip(), **count(group)))
            lines += [case(test, suite.strip(), cap) for test in group]
            lines.append(" </testsuite>")
        return "\n".join(lines + ["</testsuites>"]) + "\n"
    return common.fit(make, LIMIT)
