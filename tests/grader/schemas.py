"""What the documentation of each platform says of its results, as checks: each returns what is
wrong with a text, an empty list where nothing is. Written from the pages that grader/emit/ cites,
not from the emitters.

Interface: gradescope, prairielearn, autolab, junit, annotations (text) -> [problem].
"""

import json
import re
import xml.etree.ElementTree

NUMBER, TEXT, LIST, DICT = (int, float), str, list, dict
VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
FORMATS = ("text", "html", "simple_format", "md", "ansi")

GRADESCOPE = {"score": NUMBER, "execution_time": NUMBER, "output": TEXT, "output_format": FORMATS,
              "test_output_format": FORMATS, "test_name_format": FORMATS, "visibility": VISIBILITY,
              "stdout_visibility": VISIBILITY, "extra_data": DICT, "tests": LIST,
              "leaderboard": LIST}
GRADESCOPE_TEST = {"score": NUMBER, "max_score": NUMBER, "status": ("passed", "failed"),
                   "name": TEXT, "name_format": FORMATS, "number": TEXT, "output": TEXT,
                   "output_format": FORMATS, "tags": LIST, "visibility": VISIBILITY,
                   "extra_data": DICT}
PRAIRIELEARN = {"gradable": bool, "score": NUMBER, "message": TEXT, "output": TEXT, "images": LIST,
                "tests": LIST, "format_errors": LIST}
PRAIRIELEARN_TEST = {"name": TEXT, "description": TEXT, "points": NUMBER, "max_points": NUMBER,
                     "message": TEXT, "output": TEXT}

# What neither XML 1.0 nor a reader of texts wants: control characters but tab and newline.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")


def constant(name):
    raise ValueError("%s is not JSON" % name)


def strict(text):
    """JSON as the standard has it: no NaN; and text that UTF-8 can carry."""
    text.encode("utf-8")
    return json.loads(text, parse_constant=constant)


def compare(value, fields, where, required):
    """A JSON object against its fields: no other ones, each of its type or one of its words."""
    if not isinstance(value, dict):
        return ["%s is no object" % where]
    found = ["%s has no %s" % (where, name) for name in required if name not in value]
    for name, item in value.items():
        want = fields.get(name)
        if want is None:
            found.append("%s has a field %s, which is not documented" % (where, name))
        elif isinstance(want, tuple) and isinstance(want[0], str):
            if item not in want:
                found.append("%s: %s is %r" % (where, name, item))
        elif not isinstance(item, want) or isinstance(item, bool) and want is not bool:
            found.append("%s: %s is a %s" % (where, name, type(item).__name__))
        elif isinstance(item, str) and CONTROL.search(item):
            found.append("%s: %s has control characters" % (where, name))
    return found


def parsed(text):
    try:
        return strict(text), []
    except (ValueError, UnicodeError) as problem:
        return None, [str(problem)]


def gradescope(text):
    value, found = parsed(text)
    if found:
        return found
    found = compare(value, GRADESCOPE, "results", ("score", "output", "tests"))
    for i, test in enumerate(value.get("tests", [])):
        where = "test %d" % i
        found += compare(test, GRADESCOPE_TEST, where, ("name", "score", "max_score", "status"))
        if not 0 <= test.get("score", -1) <= test.get("max_score", -1):
            found.append("%s: score %r of %r" % (where, test.get("score"), test.get("max_score")))
        if not all(isinstance(tag, str) for tag in test.get("tags", [])):
            found.append("%s: tags are texts" % where)
    for line in value.get("leaderboard", []):
        found += compare(line, {"name": TEXT, "value": NUMBER + (str,), "order": ("asc", "desc")},
                         "leaderboard", ("name", "value"))
    return found


def prairielearn(text):
    value, found = parsed(text)
    if found:
        return found
    found = compare(value, PRAIRIELEARN, "results", ("gradable", "score"))
    if not 0 <= value.get("score", -1) <= 1:
        found.append("the score is %r" % value.get("score"))
    if len(text.encode()) > 1000000:
        found.append("larger than 1 MB")
    for i, test in enumerate(value.get("tests", [])):
        found += compare(test, PRAIRIELEARN_TEST, "test %d" % i, tuple(PRAIRIELEARN_TEST))
    return found


def autolab(text):
    """The last line of standard output."""
    value, found = parsed(text.rstrip("\n").rpartition("\n")[2])
    if found:
        return found
    found = compare(value, {"scores": DICT, "scoreboard": LIST}, "the last line", ("scores",))
    for name, score in value.get("scores", {}).items():
        if not isinstance(score, NUMBER) or isinstance(score, bool) or score < 0:
            found.append("%s has the score %r" % (name, score))
    return found


COUNTS = {"tests", "failures", "errors", "skipped"}
JUNIT = {"testsuites": ({"name", "time"} | COUNTS, {"testsuite"}),
         "testsuite": ({"name", "time"} | COUNTS, {"testcase"}),
         "testcase": ({"name", "classname", "time"}, {"failure", "error", "skipped"}),
         "failure": ({"message", "type"}, set()), "error": ({"message", "type"}, set()),
         "skipped": ({"message"}, set())}


def junit(text):
    try:
        text.encode("utf-8")
        if CONTROL.search(text):
            return ["control characters"]
        root = xml.etree.ElementTree.fromstring(text.encode("utf-8"))
    except (xml.etree.ElementTree.ParseError, UnicodeError) as problem:
        return [str(problem)]
    found = [] if root.tag == "testsuites" else ["the root is %s" % root.tag]
    for node in root.iter():
        attributes, children = JUNIT.get(node.tag, (set(), set()))
        found += ["%s: attribute %s" % (node.tag, name) for name in node.attrib
                  if name not in attributes]
        found += ["%s in %s" % (child.tag, node.tag) for child in node if child.tag not in children]
        if node.tag in ("testsuites", "testsuite"):
            want = {"tests": len(list(node.iter("testcase"))),
                    "failures": len(list(node.iter("failure"))),
                    "errors": len(list(node.iter("error"))),
                    "skipped": len(list(node.iter("skipped")))}
            found += ["%s: %s is %s, want %d" % (node.tag, name, node.get(name), number)
                      for name, number in want.items() if node.get(name) != str(number)]
    return found


def annotations(text):
    """Workflow commands: each line one, with nothing unescaped in it."""
    found = []
    for line in text.split("\n")[:-1]:
        match = re.fullmatch(r"::error ([^:]*)::(.*)", line)
        if not match or CONTROL.search(line):
            found.append("no annotation: %r" % line[:100])
            continue
        for field in match.group(1).split(","):
            if not re.fullmatch(r"(file|line|title)=[^=]*", field) and "title=" not in field:
                found.append("no property: %s" % field[:100])
    if len(text.split("\n")) - 1 > 10:
        found.append("more than ten errors")
    return found
