#!/usr/bin/env python3
"""Which of the kit's tests `make test` runs, and which only `make test-all`: tests/tiers.txt.

A line of that file is a tier, a test file or a pattern of such, settings, and a reason after `#`:

    test  simgpu/tests/*.c
    draw  tests/grader/test_demo.py 4 Demo              # it trains: of 4 tests of the class one
    long  tests/grader/test_platforms.py                # every archive, on every platform
    more  simgpu/tests/kills.c SIMGPU_KILLS=600         # runs of the test tier, longer
    wait  simgpu/tests/time.c                           # it mostly waits: it runs beside the others
    part  tests/trace/steps.c                           # no suite of its own: what runs it

A file's tier is that of the line with its name, else of the pattern that matches it; it must be one
alone. What is not in the test tier has a reason. Of a file in the draw tier, or of the classes that
are named, `make test` runs one of so many tests, which the seed draws; `make test-all` has all.

Interface: load(path) -> Tiers; Tiers.of(file) -> tier or None, .more(file) -> [{setting: value}],
.waits(file), .draw(file) -> Draw; Draw.of(names, seed, file) -> those drawn; test_files(root);
problems(tiers, files); source_of(suite); BadList.
"""

import fnmatch
import glob
import os
import random
import re
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(ROOT, "tests", "tiers.txt")
TEST, DRAW, LONG, MORE, PART, WAIT = "test", "draw", "long", "more", "part", "wait"
# Folders of tests/ whose .c files are no tests: what tests share, and solutions to try them on.
NO_TESTS = ("support", "attacks")


class BadList(Exception):
    """The list makes no sense; the text says where."""


@dataclass(frozen=True)
class Draw:
    """Of which tests of a file one of so many is run."""
    share: int = 1
    classes: tuple = () # those of these classes; of a file in C, or where none is named, all

    def of(self, names, seed, file):
        """The names without those that the seed leaves out. One of `share` is rounded up."""
        subject = sorted(name for name in names
                         if not self.classes or name.partition(".")[0] in self.classes)
        count = -(-len(subject) // self.share)
        chosen = set(random.Random("%d %s" % (seed, file)).sample(subject, count))
        return [name for name in names if name in chosen or name not in subject]


@dataclass
class Line:
    number: int
    tier: str
    pattern: str
    settings: dict
    reason: str
    draw: Draw = Draw()

    def matches(self, file):
        return fnmatch.fnmatchcase(file, self.pattern)


@dataclass
class Tiers:
    lines: list = field(default_factory=list)

    def lines_of(self, file):
        """The lines that say where a file goes: those with its name, else the patterns."""
        found = [line for line in self.lines
                 if line.tier not in (MORE, WAIT) and line.matches(file)]
        return [line for line in found if line.pattern == file] or found

    def of(self, file):
        """The tier of a test file; None where none is given."""
        return next((line.tier for line in self.lines_of(file)), None)

    def more(self, file):
        """The settings with which test-all runs a file once more."""
        return [line.settings for line in self.lines if line.tier == MORE and line.matches(file)]

    def waits(self, file):
        """Whether a file's tests mostly wait, for a limit or for each other."""
        return any(line.tier == WAIT and line.matches(file) for line in self.lines)

    def draw(self, file):
        """What is drawn of a file in `make test`; where it runs all, Draw()."""
        return next((line.draw for line in self.lines_of(file)), Draw())


def parse(text):
    tiers = Tiers()
    for number, line in enumerate(text.splitlines(), 1):
        words, _, reason = line.partition("#")
        words = words.split()
        if not words:
            continue
        draw = Draw()
        if words[0] == DRAW and len(words) > 2 and words[2].isdecimal() and int(words[2]) > 1:
            draw, words = Draw(int(words[2]), tuple(words[3:])), words[:2]
        settings = dict(word.split("=", 1) for word in words[2:] if "=" in word)
        if words[0] not in (TEST, DRAW, LONG, MORE, PART, WAIT) or len(words) < 2 or \
                len(settings) != len(words) - 2 or bool(settings) != (words[0] == MORE) or \
                (draw.share > 1) != (words[0] == DRAW):
            raise BadList("line %d: %r: want a tier (test, draw, long, more, part, wait), a file, "
                          "for `more` settings, and for `draw` a number above 1 and perhaps classes"
                          % (number, line))
        tiers.lines.append(Line(number, words[0], words[1], settings, reason.strip(), draw))
    return tiers


def load(path=LIST):
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


def test_files(root=ROOT):
    """The test files there are: tests/FOLDER/NAME.c, tests/grader/test_NAME.py, those of suites in
    the folders of tasks and labs, and simgpu's and gpulog's own."""
    found = [path for pattern in ("tests/*/*.c", "tests/grader/test_*.py", "tasks/*/tests.c",
                                  "labs/*/tests.c", "tasks/*/together.c", "tasks/*/hidden*.c",
                                  "simgpu/tests/*.c", "simgpu/tests/clock/*.c", "gpulog/tests/*.c")
             for path in glob.glob(os.path.join(root, pattern))]
    files = sorted(os.path.relpath(path, root) for path in found)
    return [file for file in files if file.split("/")[1] not in NO_TESTS]


def source_of(suite):
    """The test file that a suite of `make test` is made of: a program of the build tree, or a file
    of Python itself."""
    found = re.search(
        r"(?:^|/)((?:simgpu/tests|gpulog/tests|tests/\w+)/(?:clock/)?\w+)(\.py)?$", suite)
    if found:
        return found.group(1) + (found.group(2) or ".c")
    found = re.search(r"(?:^|/)impl/[^/]+/suite/(\w+)$", suite)
    if not found:
        return None
    own = [path for path in glob.glob(os.path.join(ROOT, "*", "[0-9]*_*", "tests.c"))
           if os.path.basename(os.path.dirname(path)).partition("_")[2] == found.group(1)]
    own += glob.glob(os.path.join(ROOT, "tasks", "*", "together.c"))
    return os.path.relpath(own[0], ROOT)


def classes_of(file, root=ROOT):
    """The classes that a test file in Python defines."""
    try:
        with open(os.path.join(root, file), encoding="utf-8") as text:
            return re.findall(r"(?m)^class (\w+)\(", text.read())
    except OSError:
        return []


def problems(tiers, files, classes=classes_of):
    """What is wrong with the list, a line each."""
    said = []
    for file in files:
        lines = tiers.lines_of(file)
        if len(lines) != 1:
            said.append("tests/tiers.txt: %s has %s; say `test %s`, or `long` and why" % (
                file, "no tier" if not lines else "more than one tier: lines %s" % ", ".join(
                    str(line.number) for line in lines), file))
    for line in tiers.lines:
        matched = [file for file in files if line.matches(file)]
        if not matched:
            said.append("tests/tiers.txt:%d: there is no %s" % (line.number, line.pattern))
        said += ["tests/tiers.txt:%d: %s has no class %s" % (line.number, line.pattern, name)
                 for name in line.draw.classes if name not in classes(line.pattern)]
        if line.tier in (MORE, WAIT) and any(tiers.of(file) not in (TEST, DRAW)
                                             for file in matched):
            said.append("tests/tiers.txt:%d: `%s` is for what `make test` runs too"
                        % (line.number, line.tier))
        if line.tier != TEST and not line.reason:
            said.append("tests/tiers.txt:%d: %s: give a reason after #" % (line.number, line.tier))
    return said
