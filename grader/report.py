"""What a person reads of a grading: a table on the terminal.

Plain text; marks are coloured on a terminal, unless NO_COLOR is set (https://no-color.org).

Interface: Report(stream).devices(line), .task(task, results), .next_steps(results, tasks, again,
gap), .score(...); points(value); to_read(handout, section).
"""

import os
import re
import textwrap

WIDTH = 100  # where sentences wrap
TABLE = 68   # where the column of points ends
MARKS = {"passed": ("ok", "32"), "failed": ("FAIL", "31"), "timeout": ("TIME", "31"),
         "error": ("ERROR", "31"), "skipped": ("skip", "33"), "infrastructure": ("????", "33")}

# What fsdp_not_yet says: path:line: part 3.2 of function is not written yet (NOT_YET).
NOT_YET = re.compile(r"(?P<place>[^\s\]]+\.c:\d+): part (?P<part>\d+\.\d+[a-z]?) of (?P<function>\w+) "
                     r"is not written yet")

# What differs where two tests show the same report: the rank, the line of the test, what it drew.
RANK = re.compile(r"\b(?:rank|device) \d+\b(?: of \d+)?")
PLACE = re.compile(r" \(tests/[\w/.]+:\d+\)(?:\n\(drawn.*\))?$")

# What a terminal would take for a command.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def points(value):
    """A number of points with at most two decimals and no trailing zeros."""
    return ("%.2f" % value).rstrip("0").rstrip(".")


def short_message(message):
    """The message, or of a NOT_YET only which part is not written."""
    found = NOT_YET.search(message)
    if found:
        return "part %s is not written yet: %s, in %s" % (found.group("part"), found.group("place"),
                                                          found.group("function"))
    return message


def to_read(handout, section):
    """What to read, as one line."""
    return '%s, section "%s"' % (handout, section) if section else handout


class Report:
    def __init__(self, stream):
        self.stream = stream
        self.colours = stream.isatty() and not os.environ.get("NO_COLOR")
        self.blocks = {} # of the present task: a report without what differs, and who showed it

    def say(self, text=""):
        self.stream.write(CONTROL.sub("?", text) + "\n")
        self.stream.flush()

    def row(self, mark, text, earned):
        """A line of the table: mark, text, points at its right edge."""
        word, colour = MARKS[mark]
        shown = CONTROL.sub("?", "%s%s" % (text.ljust(TABLE - 9 - 8), earned.rjust(8)))
        word = word.ljust(5)
        if self.colours:
            word = "\033[%sm%s\033[0m" % (colour, word)
        self.stream.write("  %s  %s\n" % (word, shown))

    def paragraph(self, text, indent):
        for line in text.splitlines() or [""]:
            inner = line[:len(line) - len(line.lstrip())]
            filled = textwrap.wrap(line, WIDTH - indent, break_long_words=False,
                                   break_on_hyphens=False, subsequent_indent=inner) or [""]
            for part in filled:
                self.say(" " * indent + part)

    def devices(self, line):
        """What the tests run on: the first line."""
        self.say("On %s" % line)
        self.say()

    def task(self, task, results):
        """A task's heading and tests. `results` are dicts as in the results file, in order."""
        earned = sum(result["score"] for result in results)
        full = sum(result["max_score"] for result in results)
        heading = "Task %d  %s" % (task.number, task.title)
        self.say(heading.ljust(TABLE - 8) + ("%s/%s" % (points(earned), points(full))).rjust(8))
        told = set()
        self.blocks = {}
        for result in results:
            if result["name"] in told:
                continue
            alike = self.same_gap(result, results)
            if len(alike) > 1:
                told.update(other["name"] for other in alike)
                self.folded(alike)
            else:
                self.test(result)
        self.say()

    @staticmethod
    def same_gap(result, results):
        """The tests that fail for the same reason as this one, where that reason is the same for
        many: a part not written yet, a file that does not compile."""
        gap = NOT_YET.search(result["message"]) or result["shared"]
        if result["status"] == "passed" or not gap:
            return [result]
        message = short_message(result["message"])
        return [other for other in results if other["status"] == result["status"]
                and short_message(other["message"]) == message]

    def folded(self, alike):
        full = sum(result["max_score"] for result in alike)
        self.row(alike[0]["status"], "%d tests" % len(alike), "0/%s" % points(full))
        self.paragraph(", ".join(result["name"] for result in alike), 9)
        self.paragraph(short_message(alike[0]["message"]), 11)

    def test(self, result):
        self.row(result["status"], result["name"],
                 "%s/%s" % (points(result["score"]), points(result["max_score"])))
        if result["status"] != "passed":
            if not NOT_YET.search(result["message"]):
                self.paragraph(result["title"], 9)
            if result["message"]:
                self.paragraph(self.told_once(result), 11)

    def told_once(self, result):
        """The message; of a block that an earlier test of the task has shown already, the head and
        that test's name."""
        message = short_message(result["message"])
        block = RANK.sub("", PLACE.sub("", message))
        if message.count("\n") < 3:
            return message
        first = self.blocks.setdefault(block, result["name"])
        if first == result["name"]:
            return message
        return "%s\n   (the same as in %s)" % (message.partition("\n")[0], first)

    def next_steps(self, results, tasks, again, gap):
        """The first test that did not pass, and what to do about it. `again` makes the command that
        grades one task, `gap` names the first part of a task that is not written."""
        first = next((result for result in results if result["status"] != "passed"), None)
        if first is None:
            self.say("All tests pass.")
            return
        task = next(task for task in tasks if task.number == first["task"])
        if first["shared"]: # no test ran: a file is missing, or does not compile or link
            self.say("What to do next: task %d, %s" % (task.number, task.file))
            self.paragraph(short_message(first["message"]), 2)
        else:
            self.say("What to do next: task %d, %s" % (task.number, first["name"]))
            self.paragraph(first["title"], 2)
            # A hint is for who has written something; where a part is missing, that is the reason.
            missing = NOT_YET.search(first["message"]) and gap(task)
            self.paragraph(missing or "Hint: " + first["hint"], 2)
        # Where no test ran, the section of the first of them has nothing to do with it.
        self.say("  Read:  %s" % to_read(first["handout"],
                                         "" if first["shared"] else first.get("section")))
        self.say("  Then:  %s" % again(task.number))

    def score(self, earned, full, alone=None, page=""):
        """The last line, and in front of it the path of the page, where there is one."""
        self.say()
        if page:
            self.say("Page:  %s" % page)
        self.say("Score: %s/%s%s" % (points(earned), points(full),
                                     " (task %d alone)" % alone if alone else ""))
