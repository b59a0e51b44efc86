#!/usr/bin/env python3
"""Generates the files that students edit: skeleton/X.c from reference/X.c.

The reference is the source of truth. What a student is to write is a region of it:

    //[3.2] What must be true afterwards, not how. In the reference the same words explain the
    //  solution; further lines begin with two spaces.
    //? A hint, as a question (any number of these lines, after the text)
    //[skeleton] int n = 0;
    the solution, on as many lines as it takes
    //[end 3.2]

and becomes in the skeleton

    // TODO 3.2: What must be true afterwards, not how. In the reference the same words explain the
    // solution; further lines begin with two spaces.
    // Hint: A hint, as a question (any number of these lines, after the text)
    int n = 0;
    NOT_YET("3.2");

at the region's indentation. A `//[skeleton] code` line, of which there are usually none, is code
that is in the skeleton instead of the solution. A variable that only the solution needs belongs
inside the region, or the skeleton compiles with a warning. A comment within the solution, with one
space, is removed with it. Everything outside regions is copied as it is, and after the comment that
opens the file come two lines that say which task it is.

A course may want more to be written: a region of the second level, such as the body of a helper,

    //[[3.2a] What must be true afterwards.
    the solution
    //[end 3.2a]

is a region only with GAPS=2; else its solution is copied and its marks are not. The letter is
added to the part that the helper belongs to, and letters of one part are in order.

The files of the labs are made in the same way, labs/N_name/skeleton.c from reference.c there, with
parts L1.1, L1.2 …; where there are several files the parts are counted through all.

Interface: skeleton.py write | check [--root DIR] [--skeleton DIR] [--gaps 1|2]; files() for
release.py. What the grader knows of regions and gaps is in gaps.py.
"""

import argparse
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

from files import write_atomically
import manifest
from gaps import GAPS, PART, begins

WIDTH = 100

END = re.compile(r"\s*//\[end (%s)\]\s*$" % PART)
INSTEAD = re.compile(r"\s*//\[skeleton\](?: (.*))?$")
MORE_TEXT = re.compile(r"\s*//  (\s*\S.*)$")
HINT = re.compile(r"\s*//\? (\S.*)$")
MARK = re.compile(r"\s*//[\[?]")


class Malformed(Exception):
    """A region that is not as the format wants it; the text begins with file:line."""


class Region:
    """One region while it is read: where it began, and what the skeleton will show."""

    def __init__(self, line, indent, name, text, given=False):
        self.line = line
        self.indent = indent
        self.name = name
        self.text = [text]
        self.hints = []
        self.instead = []
        self.code = []      # the solution
        self.given = given  # the skeleton has the solution

    def lines(self):
        """The region as the skeleton has it."""
        if self.given:
            return self.code
        shown = comment(self.indent, ["TODO %s: %s" % (self.name, self.text[0])] + self.text[1:])
        for hint in self.hints:
            shown += comment(self.indent, ["Hint: " + hint])
        shown += [(self.indent + code).rstrip() for code in self.instead]
        shown.append('%sNOT_YET("%s");' % (self.indent, self.name))
        return shown


class Order:
    """Whether regions are numbered in order: those of the first level from 1 on, and the letters of
    each part from a on."""

    def __init__(self, number, first=1):
        self.number = number
        self.first = first
        self.regions = 0
        self.letters = {} # of a part: how many regions of the second level, and the line of one

    def due(self, name, line):
        """The name that is due where the region `name` begins."""
        if not name[-1].isalpha():
            self.regions += 1
            return "%s.%d" % (self.number, self.first + self.regions - 1)
        many = self.letters.get(name[:-1], (0, line))[0]
        self.letters[name[:-1]] = (many + 1, line)
        return name[:-1] + chr(ord("a") + many)

    def orphan(self):
        """(line, part) of a lettered region whose part is not in the file, or None."""
        known = {"%s.%d" % (self.number, self.first + i) for i in range(self.regions)}
        return next(((line, part) for part, (_, line) in self.letters.items()
                     if part not in known), None)


def comment(indent, text):
    """Lines of text as // comments. A line too long hands its last words on to the next one, so
    that the rest stays wrapped as the author wrapped it."""
    lines = []
    room = WIDTH - len(indent) - len("// ")
    left_over = ""
    for i, line in enumerate(text):
        line = left_over + line
        left_over = ""
        while len(line) > room:
            cut = line.rfind(" ", 0, room + 1)
            if cut <= 0:
                break
            line, left_over = line[:cut].rstrip(), line[cut + 1:].strip()
            if i + 1 < len(text):
                left_over += " "
                break
            lines.append(indent + "// " + line)
            line, left_over = left_over, ""
        lines.append(indent + "// " + line.rstrip())
    return lines


def generate(source, shown_name, task, gaps=1, first=1):
    """The skeleton's text for a reference's, with the regions of the first `gaps` levels left to be
    written. `shown_name` is what messages call the reference; regions must be numbered 3.1, 3.2 …
    for task 3, in order, from `first` on. Raises Malformed."""

    def wrong(line, what):
        raise Malformed("%s:%d: %s" % (shown_name, line, what))

    out = []
    region = None
    order = Order(task.label(), first)
    in_head = False  # only text and hints so far
    for at, line in enumerate(source.splitlines(), 1):
        begin = begins(line)
        end = END.match(line)
        instead = INSTEAD.match(line)
        hint = HINT.match(line)
        if begin:
            if region:
                wrong(at, "region %s begins inside region %s, which began in line %d"
                      % (begin.group(2), region.name, region.line))
            want = order.due(begin.group(2), at)
            if begin.group(2) != want:
                wrong(at, "region %s begins where %s must come" % (begin.group(2), want))
            region = Region(at, *begin.groups(), given=not begins(line, gaps))
            in_head = True
        elif end:
            if region is None:
                wrong(at, "the end of region %s, but no region is open" % end.group(1))
            if end.group(1) != region.name:
                wrong(at, "the end of region %s, but region %s is open"
                      % (end.group(1), region.name))
            if not any(code.strip() for code in region.code):
                wrong(region.line, "region %s holds no solution" % region.name)
            out += region.lines()
            region = None
        elif instead:
            if region is None:
                wrong(at, "a //[skeleton] line outside a region")
            region.instead.append(instead.group(1) or "")
            in_head = False
        elif hint:
            if region is None or not in_head:
                wrong(at, "a hint that does not follow the text of a region")
            if region.hints and region.hints[-1][-1] not in "?.":
                region.hints[-1] += " " + hint.group(1) # it goes on
            else:
                region.hints.append(hint.group(1))
        elif MARK.match(line):
            wrong(at, "malformed mark: %s" % line.strip())
        elif region is None:
            out.append(line)
        elif in_head and MORE_TEXT.match(line):
            text = MORE_TEXT.match(line).group(1)
            if region.hints:
                region.hints[-1] += " " + text
            else:
                region.text.append(text)
        else:
            in_head = False
            region.code.append(line)
    if region:
        wrong(region.line, "region %s has no end" % region.name)
    if order.regions == 0:
        wrong(1, "this file has no region: it leaves a student nothing to write")
    if order.orphan():
        wrong(order.orphan()[0], "a region with a letter of part %s, which this file does not have"
              % order.orphan()[1])
    return "\n".join(with_note(out, shown_name, task_note(task))) + "\n"


def task_note(task):
    """The lines about a task or lab."""
    return ["// %s%s. Each TODO says what must hold afterwards and asks a question. Write"
            % (task.heading(), " of %d" % task.of if task.kind.of_many else ""),
            "// the code that makes it hold.",
            "// The handout is %s; `make grade %s` says how far you are."
            % (task.handout, task.option())]


def texts(task, root, gaps=1):
    """[(piece of a task or lab, the skeleton's text)] of the references below `root`. Raises
    Malformed, OSError or UnicodeDecodeError."""
    made, first = [], 1
    for piece in task.pieces():
        shown = piece.in_kit("reference")
        text = read(os.path.join(root, shown))
        made.append((piece, generate(text, shown, task, gaps, first)))
        first += sum(1 for line in text.splitlines() if begins(line, 1))
    return made


def files(root, gaps=1):
    """{path in the kit: the skeleton's text} of all tasks and labs. Raises as texts() does."""
    return {piece.in_kit("skeleton"): text for task in manifest.load_all(root)
            for piece, text in texts(task, root, gaps)}


def with_note(lines, shown_name, note):
    """Puts the lines about the task after the comment that opens the file."""
    if not lines or not lines[0].startswith("/*"):
        raise Malformed("%s:1: the file does not open with a comment that says what it is"
                        % shown_name)
    close = next((i for i, line in enumerate(lines) if "*/" in line), None)
    if close is None:
        raise Malformed("%s:1: the comment that opens the file has no end" % shown_name)
    return lines[:close + 1] + note + lines[close + 1:]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def holds_work(old, new):
    """Whether somebody may have written a solution into `old`: a place that `new` leaves to be
    written is no longer marked in it."""
    marks = re.compile(r'NOT_YET\("(%s)"\)' % PART)
    return not set(marks.findall(new)) <= set(marks.findall(old))


def write(wanted):
    """Writes every file that differs. One that holds somebody's work is kept beside it."""
    for path, (text, _) in wanted.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shown = os.path.relpath(path)
        if os.path.exists(path):
            old = read(path)
            if old == text:
                continue
            if holds_work(old, text):
                write_atomically(path + ".old", old)
                print("%s had something written in it: kept as %s.old" % (shown, shown))
        write_atomically(path, text)
        print("wrote %s" % shown)
    return 0


def check(wanted):
    """One line for each file that is not what the reference gives."""
    drifting = {path: source for path, (text, source) in wanted.items()
                if not os.path.exists(path) or read(path) != text}
    for path, source in drifting.items():
        print("%s is not what %s gives: run make skeleton"
              % (os.path.relpath(path), os.path.relpath(source)))
    return 1 if drifting else 0


def main():
    parser = argparse.ArgumentParser(description="Make the skeleton, or compare it.")
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("--root", default=ROOT, metavar="DIR", help="the kit (this one)")
    parser.add_argument("--skeleton", default="", metavar="DIR",
                        help="another folder, with all files in it as in a student's")
    parser.add_argument("--gaps", default="1", metavar="LEVEL",
                        help="1, or 2 to leave out function bodies and given helpers too")
    arguments = parser.parse_args()
    root, folder = arguments.root, arguments.skeleton
    if arguments.gaps not in map(str, GAPS):
        print("skeleton: GAPS must be 1 or 2, not %s" % arguments.gaps, file=sys.stderr)
        return 2
    in_kit = os.path.realpath(folder or os.path.join(root, "skeleton")) == os.path.realpath(
        os.path.join(root, "skeleton"))
    if arguments.gaps != "1" and in_kit:
        print("skeleton: skeleton/ itself is GAPS=1: name another folder, OUT=DIR", file=sys.stderr)
        return 2
    wanted, problems = {}, []
    try:
        tasks = manifest.load_all(root)
    except manifest.BadManifest as problem:
        tasks, problems = [], [str(problem)]
    for task in tasks:
        try:
            for piece, text in texts(task, root, int(arguments.gaps)):
                path = os.path.join(root, piece.in_kit("skeleton")) if in_kit else \
                    os.path.join(folder, piece.file)
                wanted[path] = text, os.path.join(root, piece.in_kit("reference"))
        except Malformed as problem:
            problems.append(str(problem))
        except (OSError, UnicodeDecodeError) as problem:
            problems.append("a file of %s cannot be read: %s" % (task.folder, problem))
    if problems:
        # Nothing is written: a skeleton of two references of different days helps nobody.
        print("\n".join(problems), file=sys.stderr)
        return 1
    return write(wanted) if arguments.action == "write" else check(wanted)


if __name__ == "__main__":
    sys.exit(main())
