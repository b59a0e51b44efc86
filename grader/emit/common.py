"""What all emitters share: a result that is safe to emit, and texts that fit.

The result of a grading holds what programs under test have said: any bytes, any length. load() and
tidy() make of it a document whose every field is there and of its type; what cannot be read at all
becomes a document that says so.

Interface: load(path), tidy(value), infrastructure(message); clean(text, limit); shown(document,
course) hides hidden tests; summary(document, course, tests); verdict(test); fit(make, limit);
STATUSES; LATER.
"""

import json
import math
import re

from alike import short_message
from layout import points

STATUSES = ("passed", "failed", "error", "timeout", "skipped", "infrastructure")
MESSAGE_LIMIT = 4000   # characters of a test's message
NAME_LIMIT = 200       # characters of a name
NOTE_LIMIT = 500       # characters of a note on what was handed in
MOST_NOTES = 20
FILE_LIMIT = 64 << 20  # bytes of a results file that is still read
MOST_TESTS = 1000

# In front of a message, for who sees only passed and failed.
MEANING = {"passed": "", "failed": "", "error": "Error: ", "timeout": "Time-out: ",
           "skipped": "Not judged (skipped): ",
           "infrastructure": "Not judged (the grading itself failed): "}

# Neither XML 1.0 (section 2.2, Char) nor a terminal wants these; lone halves of surrogate pairs
# cannot be written as UTF-8 at all.
BAD = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202f-\u2065\u2070-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd"
                 "\U00010000-\U0010ffff]")


def clean(text, limit=MESSAGE_LIMIT):
    """The text with no character that a reader may stumble over, and not too long."""
    if not isinstance(text, str):
        text = "" if text is None else str(text)
    surplus = len(text) - limit
    if surplus > 0:
        half = limit // 2
        text = "%s\n[%d characters left out]\n%s" % (text[:half], surplus, text[len(text) - half:])
    return BAD.sub("\ufffd", text.replace("\r\n", "\n"))


def number(value, low=0.0, high=1e9):
    """A finite number between the bounds; a whole one without a point."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return low
    value = min(max(value, low), high)
    return int(value) if value == int(value) else round(value, 4)


def tidy_test(entry):
    """One test with every field; None where it is no test at all."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    status = entry.get("status")
    known = status in STATUSES
    most = number(entry.get("max_score"))
    return {
        "name": clean(entry["name"], NAME_LIMIT).replace("\n", " "),
        "task": number(entry.get("task"), 0, 1000),
        "title": clean(entry.get("title"), 500), "hint": clean(entry.get("hint"), 500),
        "handout": clean(entry.get("handout"), NAME_LIMIT).replace("\n", " "),
        "section": clean(entry.get("section"), NAME_LIMIT).replace("\n", " "),
        "status": status if known else "infrastructure",
        "message": clean(entry.get("message")) if known else "The result has an unknown status.",
        # Points come with a pass and with nothing else.
        "score": number(entry.get("score"), 0, most) if status == "passed" else 0,
        "max_score": most, "seconds": number(entry.get("seconds")),
        "hidden": entry.get("hidden") is True, "quiz": entry.get("quiz") is True}


def tidy_files(entries):
    """Which files were graded, with their sums: short texts and yes or no."""
    return [{clean(name, 40): item if isinstance(item, bool) else clean(item, NAME_LIMIT)
             for name, item in list(entry.items())[:8]}
            for entry in (entries if isinstance(entries, list) else [])[:20]
            if isinstance(entry, dict)]


def tidy_confinement(entry):
    """What the kernel kept the tests from (confinement.py); None where none has run."""
    if not isinstance(entry, dict) or not isinstance(entry.get("not_enforced"), list):
        return None
    return {"landlock": number(entry.get("landlock")), "seccomp": entry.get("seccomp") is True,
            "not_enforced": [clean(what, NAME_LIMIT) for what in entry["not_enforced"][:10]]}


def tidy(value):
    """A document with every field, made of whatever is there."""
    if not isinstance(value, dict) or not isinstance(value.get("tests"), list):
        return infrastructure("The grader's results are malformed.")
    tests = [test for test in map(tidy_test, value["tests"][:MOST_TESTS]) if test]
    notes = value.get("notes") if isinstance(value.get("notes"), list) else []
    status = value.get("status")
    status = status if status in ("graded", "error") else "infrastructure"
    most = sum(test["max_score"] for test in tests)
    score = sum(test["score"] for test in tests)
    return {"status": status, "message": clean(value.get("message")),
            "score": number(score) if status == "graded" else 0, "max_score": number(most),
            "late": number(value.get("late"), 0, 1), "seconds": number(value.get("seconds")),
            "days_late": number(value.get("days_late")), "due": clean(value.get("due"), NAME_LIMIT),
            "devices": clean(value.get("devices"), NAME_LIMIT), "tests": tests,
            "notes": [clean(note, NOTE_LIMIT).replace("\n", " ") for note in notes[:MOST_NOTES]],
            "challenge": number(value.get("challenge")), "files": tidy_files(value.get("files")),
            "version": clean(value.get("version"), NAME_LIMIT),
            "confinement": tidy_confinement(value.get("confinement"))}


def infrastructure(message, tests=()):
    """The document of a grading that did not come to an end."""
    return tidy({"status": "infrastructure", "message": message, "tests": list(tests)})


def load(path):
    """The document at a path, whatever is there."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_LIMIT + 1)
        if len(data) > FILE_LIMIT:
            return infrastructure("The grader's results are too large to read.")
        return tidy(json.loads(data.decode("utf-8", "replace")))
    except (OSError, ValueError, RecursionError) as problem:
        return infrastructure("The grader left no results that can be read: %s" % problem)


# ---- What is said ----

LATER = ("hidden", "after_due_date", "after_published")


def earned(document):
    """The points after what lateness takes."""
    return number(document["score"] * (1 - document["late"]))


def summary(document, course=None, tests=None):
    """What stands first: the score, what was not taken, and with the `course` the points by task
    and what to do next, of the tests that are shown (`tests`: all)."""
    text = document["message"]
    if document["status"] == "infrastructure":
        return ("The grading itself failed, not your code. Hand in again, or tell course staff.\n%s"
                % text).strip()
    if document["status"] == "error":
        return text or "What was handed in cannot be graded."
    tests = document["tests"] if tests is None else tests
    scores = [number(sum(test[name] for test in tests)) for name in ("score", "max_score")]
    left = scores[1] < document["max_score"]
    lines = ["Score: %s of %s%s." % (points(number(scores[0] * (1 - document["late"]))),
                                     points(scores[1]), ", without the hidden tests" * left),
             text] + document["notes"]
    if course:
        lines += by_task(tests, course) + next_step(tests, "lab" if course.get("lab") else "task")
    return "\n".join(line for line in lines if line)


def by_task(tests, course):
    """A line for each task with its points, as many as are right, and one for other tests."""
    word = "Lab" if course.get("lab") else "Task"
    titles = {task["number"]: "%s %s  %s" % (word, task["number"], task["title"])
              for task in course["tasks"]}
    groups = {}
    for test in tests:
        name = "Quiz" if test["quiz"] else "Hidden tests" if test["hidden"] else \
            titles.get(test["task"], "")
        groups.setdefault(name, []).append(test)
    return ["%-26s %s/%s" % (name, *(points(number(sum(test[field] for test in group)))
                                     for field in ("score", "max_score")))
            for name, group in groups.items() if name]


def next_step(tests, word):
    """The first test to look at, as lines; none where all pass."""
    for test in tests:
        if test["status"] not in ("passed", "skipped") and not test["quiz"] and not test["hidden"]:
            said = short_message(test["message"]).partition("\n")[0]
            return ["What to do next: %s %s, %s" % (word, test["task"], test["name"])] + \
                ["  " + said] * bool(said) + \
                ["  Read: %s" % test["handout"]] * bool(test["handout"]) + \
                ["  At home: make grade %s=%s" % (word.upper(), test["task"])]
    return []


def verdict(test, cap=MESSAGE_LIMIT):
    """What a student reads of a test that did not pass: why, what should hold, what to ask."""
    if test["status"] == "passed":
        return ""
    text = MEANING[test["status"]] + (clean(test["message"], cap) or "The test did not pass.")
    lines = [text]
    if test["title"] and cap:
        lines.append("What should hold: " + test["title"])
    if test["hint"] and cap:
        lines.append("Ask yourself: " + test["hint"])
    if test["handout"]:
        section = ', section "%s"' % test["section"] if test["section"] else ""
        lines.append("Read: " + test["handout"] + section)
    return "\n".join(lines)


def shown(document, course):
    """The tests for a platform that shows everything at once: hidden ones, unless they are to be
    seen, stand together as one row that tells points and nothing else."""
    hidden = [test for test in document["tests"] if test["hidden"]]
    if not hidden or course.get("visibility", {}).get("hidden") not in LATER:
        return document["tests"]
    score = number(sum(test["score"] for test in hidden))
    most = number(sum(test["max_score"] for test in hidden))
    row = dict(hidden[0], name="hidden tests", task=0, title="Tests that are not shown.", hint="",
               handout="", section="", message="", score=score, max_score=most,
               status="passed" if score == most else "failed",
               seconds=number(sum(test["seconds"] for test in hidden)))
    return [test for test in document["tests"] if not test["hidden"]] + [row]


def fit(make, limit):
    """make(cap) with the longest messages that keep the text within `limit` bytes."""
    for cap in (MESSAGE_LIMIT, 1000, 250, 60):
        text = make(cap)
        if len(text.encode("utf-8")) <= limit:
            return text
    return make(0)
