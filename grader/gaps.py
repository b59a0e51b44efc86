"""Where something is left for a student to write: the regions of the reference that a skeleton
leaves out (course/skeleton.py has their format), and the gaps of a student's file.

A part of a task is 3.2, a part of a lab L1.2: the same number stands for both otherwise.

Interface: begins(line, gaps); parts(source, gaps); first_gap(path) -> (part, line) or None;
looks_written(lines, number): whether there is code beside a NOT_YET.
"""

import re

from files import read_regular_file

PART = r"L?\d+\.\d+[a-z]?" # as messages, hints and NOT_YET name it
BEGIN = re.compile(r"(\s*)//\[(L?\d+\.\d+)\] (\S.*)$")
BEGIN_SECOND = re.compile(r"(\s*)//\[\[(L?\d+\.\d+[a-z])\] (\S.*)$")
GAP = re.compile(r'\s*NOT_YET\("(%s)"\)' % PART)
GAPS = (1, 2) # the levels of regions
# What a skeleton itself has below a NOT_YET in the same block; some have one more line.
GIVEN = re.compile(r"\s*(return \w+;|free\(\w+\);|unit->phase = FSDP_IDLE;|//.*)?\s*$")


def begins(line, gaps=max(GAPS)):
    """Whether a region of one of the first `gaps` levels begins in the line: a match with its
    indentation, name and text, or None."""
    return BEGIN.match(line) or (BEGIN_SECOND.match(line) if gaps > 1 else None)


def parts(source, gaps=max(GAPS)):
    """The parts of a reference, in the order of the file."""
    return [found.group(2) for found in (begins(line, gaps) for line in source.splitlines())
            if found]


def first_gap(path):
    """The first part that is not written in a student's file: (part, line); None where there is
    none, or no file that can be read."""
    text = read_regular_file(path).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        found = GAP.match(line)
        if found:
            return found.group(1), number
    return None


def looks_written(lines, number):
    """Whether the part has code although its NOT_YET, in line `number`, is still there: between the
    comment above it and that line, or below it in the same block."""
    above = lines[number - 2].strip() if number > 1 else ""
    if above and not above.startswith("//") and above[-1] in ";}":
        return True
    depth = below = 0
    for line in lines[number:]:
        depth += line.count("{") - line.count("}")
        if depth < 0:
            break
        below += not GIVEN.match(line)
    return below > 1
