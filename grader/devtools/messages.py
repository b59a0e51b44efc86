"""What the messages of a mutant say: whether they name its cause, or a wrong one.

The right functions of a mutant are those of the reference that its edits lie in; the right parts of
the task are those that these functions belong to, and those of the mutant's field "also" (part: the
reason why that part is right, too).

Every test that a mutant loses is held to it, the side tests as well: the part that its message
points at and the hints that it gets (cause.py) must be of a right part, and so must the functions
that its likely cause names. A question or a likely cause without a name is judged by the mutant's
field "never", which neither message nor hint may match.

The first screen is what a terminal of 80 columns and 24 lines shows when `make grade TASK=n` is
over. It names the cause where it has the name of a right function, or where the message that it
shows has a likely cause or simgpu's report that says the reason for which the mutant must be
caught; and where no hint on it is a wrong part's.

Interface: Right(solution, reference); rows_of(task, verdicts, files); wrong(row, right) -> "" or
what is wrong; Screen(rows, right): .names, .looks, .misleads(), .line(); RIGHT, WRONG.
"""

import io
import re

import alike
import cause
import grade
from manifest import whole
from report import Report

COLUMNS, LINES = 80, 24
RIGHT, WRONG = "right", "wrong"
# How a report begins, which a terminal shows without these words (report.py).
HEAD = re.compile(r"^simgpu: rank \d+(?:, device \d+)?: ")


class Right:
    """The functions and parts of a mutant."""

    def __init__(self, solution, reference):
        self.solution = solution
        self.task = solution.task
        bounds = cause.places_of(reference)
        self.functions = {solution.function} - {""}
        for old, _ in solution.edits:
            pattern = r"\s+".join(re.escape(word) for word in old.split())
            for found in re.finditer(pattern, reference):
                self.functions |= {name for name, begin, end in bounds
                                   if begin < found.end() and found.start() < end}
        self.at = set(self.functions) # where the mistake is
        self.parts = {whole(part) for part in solution.also}
        for function in self.functions:
            self.parts |= cause.parts_of(function, self.task, reference)
        for part in self.parts:
            self.functions |= set(self.task.functions.get(part, []))

    def says_reason(self, message):
        """Whether a message says why the mutant must be caught."""
        text = " ".join(message.split())
        return any(re.search(reason, text) for reason in self.solution.caught_by.values())


def rows_of(task, verdicts, files):
    """The rows of `make grade TASK=n`, with the hints that a student would get."""
    rows = []
    broken = any(verdicts[test.name].status != "passed" for test in task.own())
    for test in task.tests:
        verdict = verdicts[test.name] # a suite gives each of its tests one
        row = grade.row_of(test, task, verdict)
        if test.together and broken and verdict.status not in ("passed", "skipped"):
            row["status"] = "skipped"
            row["message"], row["shared"] = grade.unjudged(verdict.message, [str(task.number)])
        rows.append(row)
    cause.fill(rows, task, files)
    return rows


def wrong(row, right):
    """The wrong cause that a row names, or ""."""
    task = right.task
    if row["status"] in ("passed", "skipped", "infrastructure"):
        return ""
    if row["part"] and row["part"] not in right.parts:
        return "points at part %s" % row["part"]
    misled = right.solution.never and re.search(
        right.solution.never, " ".join((row["message"] + "\n" + row["hint"]).split()))
    if misled:
        return "says \"%s\"" % misled.group()
    if row["hint"] or row["more"]:
        test = [test for test in task.tests if test.name == row["hints_of"]]
        if test and test[0].parts and not right.parts & set(test[0].parts):
            return "has the hints of %s" % row["hints_of"]
    likely = cause.split(row["message"])[1]
    named = {name for names in task.functions.values() for name in names
             if re.search(r"\b%s\b" % name, likely) and "_" in name}
    if named and not named & right.functions:
        return "has a likely cause that names %s" % ", ".join(sorted(named))
    return ""


class Terminal(io.StringIO):
    """Takes what a terminal would."""

    def isatty(self):
        return True


def screen(rows, task):
    """What a terminal shows at the end of the grading."""
    stream = Terminal()
    report = Report(stream)
    report.width, report.colours = COLUMNS, False
    report.table = min(report.table, COLUMNS)
    report.task(task, rows)
    report.next_steps(rows, [task], lambda number: "make grade TASK=%d" % number,
                      lambda task: None)
    report.score(sum(row["score"] for row in rows), sum(row["max_score"] for row in rows),
                 task.number)
    lines = []
    for line in stream.getvalue().splitlines():
        lines.append([line[at:at + COLUMNS] for at in range(0, len(line), COLUMNS)] or [""])
    shown, room = [], LINES - 1 # the prompt takes a line
    for parts in reversed(lines):
        shown[:0] = ["".join(parts[-room:])] if room > 0 else []
        room -= len(parts)
    return "\n".join(shown)


def names_cause(text, rows, right):
    """Whether a text that a student sees names the cause of the mutant, and no other."""
    if any(row["hint"] and row["hint"][:60] in " ".join(text.split()) and wrong(row, right)
           for row in rows):
        return False
    if any(re.search(r"\b%s\b" % name, text) for name in right.functions):
        return True
    flat = " ".join(text.split())
    for row in rows:
        words, likely, report = cause.split(row["message"])
        for told in (likely, report):
            told = HEAD.sub("", " ".join(told.split()))
            if told[:60] and told[:60] in flat and right.says_reason(row["message"]):
                return True
    return False


class Screen:
    """What the first screen of a mutant says."""

    def __init__(self, rows, right):
        self.right = right
        self.first = alike.foremost([row for row in rows if row["status"] != "passed"])
        self.names = bool(self.first) and names_cause(screen(rows, right.task), rows, right)
        self.look = self.first["look"] if self.first else ""
        part, function = (self.look.split(", ") + ["", ""])[:2]
        self.looks = "" if not self.look else RIGHT if (
            function in right.functions or part[len("part "):] in right.parts) else WRONG

    def misleads(self):
        """Whether it names a wrong function: in Look:, a hint, or a likely cause."""
        if not self.first:
            return False
        shown = self.first["part"] if self.first["look"] or self.first["hint"] else ""
        return self.looks == WRONG or bool(wrong(dict(self.first, more=[], part=shown),
                                                 self.right))

    def line(self):
        """A line of the table."""
        told = "wrong" if self.misleads() else "names it" if self.names else "no"
        return "%-30s %-8s %s" % (", ".join(sorted(self.right.at)), told, "%s %s (%s)" % (
            self.looks, self.look, self.first["name"]) if self.look else "- (%s)"
            % self.first["name"])
