"""skeleton/answers.txt, in which a student answers the quiz: which numbers the questions have, and
an answer for each part of a question.

    numbers for: seed 8812

    # 3a. How many all-gathers does a step have? …
    3a = 2 * 12 + 1

An answer is a number, or numbers with + - * / and brackets. What begins with # is text.

Interface: read(path) -> Answers; value_of(text); write(path, key, questions) adds the questions
that are not in the file yet and keeps all else; BadAnswers.
"""

import ast
import operator
import os
import re
import textwrap
from dataclasses import dataclass, field

from files import read_regular_file, write_atomically

NAME = "answers.txt"
LARGEST_FILE = 1 << 16
LONGEST = 200     # characters of an answer
DEEPEST = 100    # signs and brackets in one another
MOST = 1e30       # of a number on the way
KEY = re.compile(r"(seed|id) (\S.{0,99})")
LINE = re.compile(r"(L?\d[a-z])\s*=\s*(.*)")
HEAD = """\
# The quiz: write each answer after its "=", as a number, or as numbers with + - * / and
# brackets. An answer is right if it is within 1 %%; a count below 1000 must be exact.
# `make quiz TASK=3` adds the questions of a task, LAB=3 that of a lab; both mark the answers.
# The questions' numbers are drawn for you: leave the next line as it is.
numbers for: %s
"""
WIDTH = 92


class BadAnswers(Exception):
    """The file, or an answer in it, cannot be read; the text says what is wrong."""


@dataclass
class Answers:
    """What the file says."""
    key: str = ""                              # "seed 8812", "id anna@example.edu"; "": no file
    given: dict = field(default_factory=dict)  # "3a": what stands behind the "="
    line: dict = field(default_factory=dict)   # "3a": in which line


def read(path):
    """The answers; none where there is no file."""
    if not os.path.lexists(path):
        return Answers()
    if not os.path.isfile(path) or os.path.getsize(path) > LARGEST_FILE:
        raise BadAnswers("%s is not a regular file of at most %d bytes" % (path, LARGEST_FILE))
    return parse(read_regular_file(path).decode("utf-8", "replace"), path)


def parse(text, path):
    answers = Answers()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        where = "%s:%d" % (path, number)
        if line.startswith("numbers for:"):
            key = line.partition(":")[2].strip()
            if answers.key or not KEY.fullmatch(key):
                raise BadAnswers('%s: must be one line "numbers for: seed N" or "numbers for: id '
                                 'NAME"' % where)
            answers.key = key
            continue
        found = LINE.fullmatch(line)
        if not found:
            raise BadAnswers('%s: must be an answer, such as "3a = 12", or a line that begins '
                             'with #'
                             % where)
        part, given = found.groups()
        if part in answers.given:
            raise BadAnswers("%s: line %d already answers %s: delete one of the two"
                             % (where, answers.line[part], part))
        answers.given[part], answers.line[part] = given.strip(), number
    if not answers.key:
        raise BadAnswers('%s: the line "numbers for: …" is missing; it says which numbers your '
                         "questions have. Put it back, or start a new file" % path)
    return answers


# ---- Arithmetic ----

SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
         ast.Div: operator.truediv}


def value_of(text):
    """The number that an answer is. BadAnswers: what is wrong with it."""
    if len(text) > LONGEST:
        raise BadAnswers("an answer has at most %d characters" % LONGEST)
    if re.search(r"\d,\d", text):
        raise BadAnswers("write numbers without commas: 1234567, or 1.2e6")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        tree = None
    value = work_out(tree, DEEPEST)
    if abs(value) > MOST:
        raise BadAnswers("the number is too large")
    return value


def work_out(node, depth):
    if depth == 0:
        raise BadAnswers("too many signs and brackets")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) \
            and abs(node.value) <= MOST:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = work_out(node.operand, depth - 1)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
        left, right = work_out(node.left, depth - 1), work_out(node.right, depth - 1)
        if isinstance(node.op, ast.Div) and right == 0:
            raise BadAnswers("divides by zero")
        value = SIGNS[type(node.op)](left, right)
        if not abs(value) <= MOST:
            raise BadAnswers("the number is too large")
        return value
    raise BadAnswers("must be a number, or numbers with + - * / and brackets, without units")


# ---- Writing ----

def comment(text, indent=""):
    return "\n".join(textwrap.wrap(text, WIDTH, initial_indent="# ",
                                   subsequent_indent="# " + indent, break_on_hyphens=False))


def question(title, text, parts):
    """A question as it stands in the file. parts: [(name, what is asked)]."""
    lines = ["", "# ---- %s ----" % title, comment(text)]
    for name, ask in parts:
        lines += ["#", comment("%s. %s" % (name, ask), "    "), "%s =" % name]
    return "\n".join(lines) + "\n"


def write(path, key, questions):
    """Adds the questions, [(title, text, parts)], of which the file has no part yet. Returns
    whether it added any."""
    there = read(path)
    new = [asked for asked in questions
           if not any(name in there.given for name, _ in asked[2])]
    if not new:
        return False
    text = (read_regular_file(path).decode("utf-8", "replace") if there.key else HEAD % key)
    if not text.endswith("\n"):
        text += "\n"
    write_atomically(path, text + "".join(question(*asked) for asked in new))
    return True
