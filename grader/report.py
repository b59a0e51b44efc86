"""What a person reads of a grading: a table, then one thing to do next, then the score.

The message of a test that did not pass is shown in full once for each cause (alike.py), over all
tasks; later tests with that cause name the first. On a terminal the table is brief: what passes is
counted, a task with nothing but parts to write is one line, and the full message of the first
cause, the one to look at next, stands below the table, so that it is on the last screen. Anywhere
else each test that ran has a row of its own, and every message stands at its test.

Plain text, filled to the terminal's width (layout.py); marks are coloured on a terminal, unless
NO_COLOR is set (https://no-color.org).

Interface: Report(stream, own, progress).devices(line), .task(task, results), .next_steps(results,
tasks, again, gap, after), .score(...); for one test .test(result), .message(result, indent) and
.forget(); say(text), paragraph(text, indent); points(value); to_read(handout, section).
"""

import contextlib
import os
import re

import layout
from alike import NOT_YET, cause, foremost, is_todo, left_out, looks_right, not_judged, \
    short_message
from essence import essence
from layout import points

TABLE = 68   # where the column of points ends
NAMES = 60   # columns of names in a row for many tests
MARKS = {"passed": ("ok", "32"), "failed": ("FAIL", "31"), "todo": ("todo", "36"),
         "timeout": ("TIME", "31"), "error": ("ERROR", "31"), "skipped": ("skip", "33"),
         "infrastructure": ("????", "33")}


# How a report of simgpu's begins in a test's message, which names the rank already.
SIMGPU = re.compile(r"^((?:in rule \w+: )?rank \d+ of \d+: )simgpu: rank \d+(?:, device \d+)?: ")
LONG = 9     # a message of more lines on a terminal stands without the test's title
ROOM = 14    # and one of more lines stands there in short: a screen has 24


def to_read(handout, section):
    """What to read, as one line."""
    return '%s, section "%s"' % (handout, section) if section else handout


def mark_of(result):
    """The word for a test's status; a part that is not written yet is no failure to a reader."""
    return "todo" if is_todo(result) else result["status"]


def counted(results):
    """1 test; 8 tests."""
    return "%d test%s" % (len(results), "" if len(results) == 1 else "s")


def all_but(results):
    """What is said where nothing is wrong, and these tests were left out."""
    return "All tests pass that can run here. %s of %s points %s left out: %s" % (
        counted(results), points(sum(result["max_score"] for result in results)),
        "is" if len(results) == 1 else "are", left_out(results[0]))


def sum_of(results):
    """The points of several tests: earned and possible."""
    return "%s/%s" % (points(sum(result["score"] for result in results)),
                      points(sum(result["max_score"] for result in results)))


def some_names(results):
    """The names, or as many as a line takes and how many there are besides."""
    names = [result["name"] for result in results]
    shown = names[:1]
    while len(shown) < len(names) and len(", ".join(shown + [names[len(shown)]])) <= NAMES:
        shown.append(names[len(shown)])
    left = len(names) - len(shown)
    return ", ".join(shown) + (" and %d more" % left if left else "")


def to_write(results):
    """How many tests miss a part, and the first of these parts."""
    parts = {NOT_YET.search(result["message"]).group("part") for result in results}
    first = min(parts, key=lambda part: [int(number) for number in part.lstrip("L").split(".")])
    return "%s: part %s%s" % (counted(results), first, " …" if len(parts) > 1 else "")


class Silent:
    """No line of progress stands where the report is printed."""

    def cleared(self):
        return contextlib.nullcontext()


class Report:
    def __init__(self, stream, own="", progress=None):
        self.stream = stream
        self.own = own               # what messages call the student's folder
        self.progress = progress or Silent()
        self.brief = stream.isatty()
        self.colours = self.brief and not os.environ.get("NO_COLOR")
        self.width = layout.width_of(stream)
        self.encoding = getattr(stream, "encoding", None)
        self.table = min(TABLE, self.width)
        self.causes = {}             # cause: the first test that showed it
        self.below = None            # the test whose message next_steps shows, below the table

    # -- lines --

    def put(self, text):
        with self.progress.cleared():
            self.stream.write(text + "\n")
            self.stream.flush()

    def say(self, text=""):
        self.put(layout.safe(text, self.encoding))

    def paragraph(self, text, indent):
        self.lines(layout.fill(text, self.width, indent))

    def marked(self, mark):
        """A status as its word of five columns, coloured where that is wanted."""
        word, colour = MARKS[mark]
        return "\033[%sm%s\033[0m" % (colour, word.ljust(5)) if self.colours else word.ljust(5)

    def row(self, mark, text, earned):
        """A line of the table: mark, text, points at its right edge."""
        shown = "%s%s" % (text.ljust(self.table - 9 - 8), earned.rjust(8))
        self.put("  %s  %s" % (self.marked(mark), layout.safe(shown, self.encoding)))

    def devices(self, line):
        """What the tests run on: the first line."""
        self.say("On %s" % line)
        self.say()

    # -- the table --

    def task(self, task, results):
        """A task's heading and tests. `results` are dicts as in the results file, in order."""
        heading = "%s  %s" % (task.heading(), task.title)
        if self.brief and self.below is None: # on a terminal it waits until the table is done
            self.below = foremost([row for row in results if row["status"] != "passed"])
        if self.brief and self.one_line(heading, results):
            return
        self.say(heading.ljust(self.table - 8) + sum_of(results).rjust(8))
        done = set()
        for result in results:
            if result["name"] not in done:
                alike = self.alike(result, results)
                done.update(other["name"] for other in alike)
                (self.several if len(alike) > 1 else self.test_or_mark)(alike)
        if not self.brief:
            self.say()

    def one_line(self, heading, results):
        """A task of which there is one thing to say, in a line; False where there is more."""
        marks = {mark_of(result) for result in results}
        mark = marks.pop() if len(marks) == 1 else ""
        if mark not in ("passed", "todo"):
            return False
        text = to_write(results) if mark == "todo" else counted(results)
        earned = sum_of(results)
        self.put("%s%s  %s" % (layout.safe(heading.ljust(24), self.encoding), self.marked(mark),
                               text.ljust(self.table - 24 - 7 - 8) + earned.rjust(8)))
        return True

    def alike(self, result, results):
        """The tests that are shown in one row with this one. Anywhere: those that miss the same
        part, or whose file does not compile. On a terminal: all that pass, all that miss some
        part, all that are not judged, and all whose cause an earlier test has shown."""
        if self.brief and mark_of(result) in ("passed", "todo"):
            return [other for other in results if mark_of(other) == mark_of(result)]
        reason = self.cause(result)
        told = self.causes.get(reason, result["name"]) != result["name"]
        if reason is None or not (is_todo(result) or result.get("shared") or self.brief
                                  and (told or not_judged(result["message"]))):
            return [result]
        return [other for other in results if other["status"] == result["status"]
                and self.cause(other) == reason
                and self.causes.get(reason, "") != other["name"]]

    def several(self, alike):
        """One row for several tests."""
        first, mark = alike[0], mark_of(alike[0])
        if self.brief and mark in ("passed", "todo"):
            self.row(mark, to_write(alike) if mark == "todo" else counted(alike), sum_of(alike))
            return
        self.row(mark, counted(alike), sum_of(alike))
        self.paragraph(some_names(alike) if self.brief else
                       ", ".join(result["name"] for result in alike), 9)
        self.message(first, 9 if self.brief else 11)

    def test_or_mark(self, alike):
        """One row for one test."""
        result, = alike
        if self.brief and is_todo(result):
            self.several(alike)
        else:
            self.test(result)

    def test(self, result):
        """A test's row and, where it did not pass, what should hold and what was found."""
        self.row(mark_of(result), result["name"], sum_of([result]))
        if result["status"] == "passed":
            return
        known = self.brief and self.cause(result) in self.causes
        if not is_todo(result) and not known and self.below is not result:
            self.paragraph(result["title"], 9)
        self.message(result, 11)

    # -- messages --

    def cause(self, result):
        """What tests must have in common to be shown as one. On a terminal it is all the same what
        happened in tests that are not judged."""
        aside = self.brief and not_judged(result["message"])
        return aside or cause(result, self.own)

    def laid_out(self, result, indent):
        """A test's message as the lines that show it."""
        text = short_message(result["message"])
        if self.brief:
            text = not_judged(text) or SIMGPU.sub(r"\1", text)
        return layout.fill(text, self.width, indent, self.brief)

    def lines(self, lines):
        for line in lines:
            self.say(line)

    def message(self, result, indent):
        """Why a test did not pass: in full the first time, after that the first test's name."""
        if not result["message"]:
            return
        reason = self.cause(result)
        first = self.causes.setdefault(reason, result["name"])
        if self.below is result:
            return
        if first == result["name"]:
            self.lines(self.laid_out(result, indent))
        elif self.brief:
            self.paragraph("the same cause as in %s" % first, indent)
        elif is_todo(result) or result["message"].count("\n") < 3:
            self.paragraph(short_message(result["message"]), indent)
        else:
            head = result["message"].partition("\n")[0]
            self.paragraph("%s\n   (the same cause as in %s)" % (head, first), indent)

    def forget(self):
        """What was shown is not on the screen any more."""
        self.causes = {}

    # -- the end --

    def next_steps(self, results, tasks, again, gap, after=(), cost=""):
        """The first test that did not pass, and what to do about it. `again` makes the command that
        grades one task, `gap` names the first part of a task that is not written, `after` is what
        comes when all tests pass, as lines; `cost` is what a step costs then, "" where that is not
        known. A command is never broken: it is to be copied."""
        if self.brief:
            self.say()
        wrong = [result for result in results if result["status"] != "passed"]
        first = foremost(wrong)
        if first is None and wrong:
            self.paragraph(all_but(wrong), 0)
            return
        if first is None:
            self.say("All tests pass.")
            if cost:
                self.say(cost)
            self.lines(["What to do next: " + line if i == 0 else line
                        for i, line in enumerate(after)])
            return
        task = next(task for task in tasks if task.number == first["task"])
        if first["shared"]: # no test ran: a file is missing, or does not compile or link
            self.say("What to do next: %s, %s" % (task.heading().lower(), task.file))
            self.paragraph(short_message(first["message"]), 2)
        else:
            self.say("What to do next: %s, %s" % (task.heading().lower(), first["name"]))
            # A hint is for who has written something; where a part is missing, that is the reason.
            missing = NOT_YET.search(first["message"]) and gap(task)
            waits = self.below and self.below["name"] == first["name"] and not missing
            message = self.laid_out(first, 2) if waits else []
            if len(message) > ROOM:
                message = self.laid_out(dict(first, message=essence(first, task,
                                                                    again(task.number))), 2)
            if len(message) <= LONG:
                self.paragraph(first["title"], 2)
            self.lines(message)
            if missing:
                own = [result for result in wrong if result["task"] == first["task"]]
                self.paragraph(" ".join(filter(None, [looks_right(own), missing])), 2)
            else:
                self.advice(first)
        self.where_to_read(first)
        self.say("  Then:  %s" % again(task.number))

    def advice(self, result):
        """The hint and the place that belong to a test's message. One that asks something itself
        has no hint beside it (cause.py)."""
        if result["hint"]:
            self.paragraph("Hint: " + result["hint"], 2)
        if result.get("look"):
            self.paragraph("Look:  %s" % result["look"], 2)

    def where_to_read(self, result):
        """Where no test ran, the section of the first of them has nothing to do with it."""
        section = "" if result.get("shared") else result.get("section")
        self.paragraph("Read:  %s" % to_read(result["handout"], section), 2)

    def score(self, earned, full, alone=None, page=""):
        """The last line, and in front of it the path of the page, where there is one."""
        self.say()
        if page:
            self.say("Page:  %s" % page)
        # Past say(), which lets no other line begin so.
        self.put("Score: %s/%s%s" % (points(earned), points(full),
                                     " (%s only)" % alone if alone else ""))
