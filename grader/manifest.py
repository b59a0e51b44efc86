"""The manifests tasks/N_name/task.json and labs/N_name/lab.json: what each task or lab is worth,
and which tests it has.

A manifest holds the number, name, title, points, the files that students write, the handout, and
the tests in order. A test has a name (as the suite's --list prints it), points, a title (one
sentence: what must hold) and a hint (a question). A test marked "together" runs in the suite
`together`, which is linked with the student's files of all tasks; the others run in the suite named
after the task.

Hints come in levels, for `make hint`. The first asks, each further one tells more: a test's `hint`,
then those of its list `more`; and in `parts`, an object by part number ("3.1"), a list of hints for
each part of the file while it is not written. `section` is the heading in the handout to read. To
grade, none of `more`, `section` and `parts` is needed (hidden tests may have none of them).

Which hints a failed test gets is chosen by its cause (cause.py). For that the task has `functions`:
for each part the function that holds it, and given ones that do nothing but call it, and `errors`:
what given code, or a report of two streams, says when a part has been done wrong (… is any word),
and which; a test has `parts`, those that it is meant for and its hints ask about, and `reports`,
the classes of simgpu's reports that its hints help with, whatever test they come in.

The folder of a manifest holds what tests the files too: tests.c, tests_OTHER.c and rules*.c, which
are its suite, hidden.c, mutants.json and alternatives/. Of `files` the first is NAME.c for a task
of that name; there may be others where the idea has several parts. What differs between tasks and
labs is in TASK and LAB. In a folder of a student's (IMPL=DIR) each file has its own name.

Interface: load(root, kind) returns the Tasks of a kind in order, load_all(root) tasks and labs;
problems(tasks, root) returns what is wrong with them, a line each; choose(tasks, wanted) the task
of a number or name; asked(options) what a command is about; how_many() and no_folder(path), words
of messages; Task.source(impl), .shown(impl), .named(path), .pieces(), .heading(), .option();
Test.hints(); headings(text) and sections_of_parts(text) of a handout, section_of_part(sections,
part); whole(part); BadManifest.
"""

import dataclasses
import glob
import json
import os
import re
import string
from dataclasses import dataclass, field

import gaps

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

FURTHER = 2          # hints of a test after the first
PART_LEVELS = 2      # hints of a part, at least
LONGEST_HINT = 450   # characters
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()

HEADING = re.compile(r"#{1,6} +(\S.*?) *#*$")
PARAGRAPH = re.compile(r"\*\*([L\d.a-z, ]+)\*\*") # **1.6, 1.7** opens what a handout says of parts
FUNCTION = re.compile(r"[A-Za-z_][\w *]*?\b(\w+)\([^;]*$") # a definition's head, at the margin
FENCE = re.compile(r" {0,3}(```|~~~)")


class BadManifest(Exception):
    """A manifest that cannot be read; the text names the file and what is wrong."""


@dataclass(frozen=True)
class Kind:
    """What all tasks have in common, or all labs."""
    word: str            # in headings, commands (TASK=3) and names (tasks/N_name/task.json)
    stage: int           # a suite is linked with the files of its own stage and of those before
    place: str           # of a file's reference and skeleton in the kit
    letter: str = ""     # in front of a part's number
    of_many: bool = True # a file says of how many it is one

    def folder(self):
        return self.word + "s"

    def manifest(self):
        return self.word + ".json"

    def option(self, number):
        """How a command names one of them."""
        return "%s=%s" % (self.word.upper(), number)


TASK = Kind("task", 1, "{sort}/{file}")
LAB = Kind("lab", 2, "{folder}/{sort}{other}.c", "L", False)


@dataclass
class Test:
    name: str
    points: float
    title: str
    hint: str
    together: bool = False
    more: list = field(default_factory=list)
    section: str = ""
    parts: list = field(default_factory=list)
    reports: list = field(default_factory=list)

    def hints(self):
        """The hints in levels: the first asks, the last tells."""
        return [self.hint] + self.more


@dataclass
class Task:
    number: int
    name: str
    title: str
    points: float
    files: list
    handout: str
    tests: list = field(default_factory=list)
    path: str = ""
    parts: dict = field(default_factory=dict)
    functions: dict = field(default_factory=dict)
    errors: dict = field(default_factory=dict)
    sections: dict = field(default_factory=dict) # from the handout: the heading above each part
    kind: Kind = TASK
    of: int = 1                                  # so many of the kind there are
    file: str = ""                               # of a piece: its own of the files

    def __post_init__(self):
        self.file = self.file or self.files[0]
        self.folder = os.path.dirname(self.path)

    def heading(self):
        """Task 3, or Lab 1."""
        return "%s %d" % (self.kind.word.capitalize(), self.number)

    def option(self):
        """How a command names it."""
        return self.kind.option(self.number)

    def label(self):
        """What its parts' numbers begin with: 3, or L1."""
        return "%s%d" % (self.kind.letter, self.number)

    def test_sources(self):
        """The sources of its suite, without the ending."""
        more = [path for name in ("tests_*.c", "rules*.c")
                for path in glob.glob(os.path.join(ROOT, self.folder, name))]
        return [self.folder + "/tests"] + sorted(os.path.relpath(path, ROOT)[:-2] for path in more)

    def in_kit(self, sort):
        """The path in the kit of its reference or skeleton (sort)."""
        return self.kind.place.format(sort=sort, file=self.file, folder=self.folder, other=""
                                      if self.file == self.files[0] else "_" + self.file[:-2])

    def in_own_folder(self):
        """Whether its files are in a folder of its own in the kit."""
        return "{folder}" in self.kind.place

    def source(self, impl):
        """Where the student's file is, for the folder that IMPL names."""
        above, sort = os.path.split(os.path.realpath(impl))
        if self.in_own_folder() and sort in ("skeleton", "reference") and \
                above == os.path.realpath(ROOT):
            return os.path.join(ROOT, self.in_kit(sort))
        return os.path.join(impl, self.file)

    def shown(self, impl):
        """What messages call that file: folder/file.c, and of a lab labs/folder/file.c."""
        path = os.path.abspath(self.source(impl)).split(os.sep)
        return "/".join(path[-3:] if path[-3:-2] == ["labs"] else path[-2:])

    def named(self, path):
        """Whether a path in a message is the student's file."""
        folder, name = os.path.split(path)
        folder = os.path.basename(folder)
        if folder == os.path.basename(self.folder):
            return name in [os.path.basename(piece.in_kit(sort)) for piece in self.pieces()
                            for sort in ("skeleton", "reference")]
        return name in [piece.file for piece in self.pieces()]

    def pieces(self):
        """A task for each of its files, by the file's name; the first is the task itself."""
        return [self] + [dataclasses.replace(self, name=file[:-2], file=file)
                         for file in self.files[1:] if self.file == self.files[0]]

    def own(self):
        """The tests of the task's own suite."""
        return [test for test in self.tests if not test.together]

    def together(self):
        """The tests that need the files of all tasks."""
        return [test for test in self.tests if test.together]


# What a manifest's fields are, with the sort of value each must be.
TASK_FIELDS = {"number": "a whole number", "name": "a text", "title": "a text",
               "points": "a number", "files": "a list of texts", "handout": "a text",
               "tests": "a list"}
TASK_OPTIONS = {"parts": "an object of lists of texts",
                "functions": "an object of lists of texts", "errors": "an object of texts"}
TEST_FIELDS = {"name": "a text", "points": "a number", "title": "a text", "hint": "a text"}
TEST_OPTIONS = {"together": "true or false", "more": "a list of texts", "section": "a text",
                "parts": "a list of texts", "reports": "a list of texts"}


def is_texts(value):
    return isinstance(value, list) and all(isinstance(item, str) and item.strip() for item in value)


SORTS = {"a whole number": lambda v: isinstance(v, int) and not isinstance(v, bool),
         "a number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
         "a text": lambda v: isinstance(v, str) and v.strip() != "",
         "a list": lambda v: isinstance(v, list),
         "a list of texts": is_texts,
         "an object of lists of texts": lambda v: isinstance(v, dict) and all(map(is_texts,
                                                                               v.values())),
         "an object of texts": lambda v: isinstance(v, dict) and is_texts(list(v.values())),
         "true or false": lambda v: isinstance(v, bool)}


def take(data, fields, where, optional):
    """The fields of a JSON object, checked: each there unless it is optional, of its sort, and
    nothing else."""
    if not isinstance(data, dict):
        raise BadManifest("%s is not a JSON object" % where)
    for name in fields:
        if name not in data:
            raise BadManifest("%s has no \"%s\"" % (where, name))
    known = {**fields, **optional}
    for name, value in data.items():
        if name not in known:
            raise BadManifest("%s: unknown field \"%s\"" % (where, name))
        if not SORTS[known[name]](value):
            raise BadManifest("%s: \"%s\" must be %s, not %r" % (where, name, known[name], value))
    return data


def load_task(path, shown, kind):
    """One manifest."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError) as problem:
        raise BadManifest("%s cannot be read: %s" % (shown, problem))
    data = take(data, TASK_FIELDS, shown, TASK_OPTIONS)
    if not data["files"]:
        raise BadManifest("%s: \"files\" is empty" % shown)
    task = Task(**data, path=shown, kind=kind)
    task.tests = [Test(**take(entry, TEST_FIELDS, "%s, test %d" % (shown, i + 1), TEST_OPTIONS))
                  for i, entry in enumerate(task.tests)]
    for part in [part for part in task.functions if part != whole(part)]:
        task.functions.setdefault(whole(part), []).extend(task.functions.pop(part))
    task.errors = {error: whole(part) for error, part in task.errors.items()}
    for test in task.tests:
        test.parts = list(dict.fromkeys(map(whole, test.parts)))
    return task


def whole(part):
    """The part that a part with a letter belongs to: only a skeleton of GAPS=2 has those, so no
    message names one but a NOT_YET of such a skeleton."""
    return part.rstrip(string.ascii_lowercase)


def load(root, kind=TASK):
    """All of a kind, by number; no labs where there is no folder of them."""
    above = kind.folder()
    if kind is not TASK and not os.path.isdir(os.path.join(root, above)):
        return []
    try:
        names = sorted(os.listdir(os.path.join(root, above)))
    except OSError as problem:
        raise BadManifest("%s cannot be read: %s" % (above, problem))
    shown = [os.path.join(above, name, kind.manifest()) for name in names]
    tasks = [load_task(os.path.join(root, path), path, kind) for path in shown
             if os.path.exists(os.path.join(root, path))]
    if not tasks:
        raise BadManifest("%s holds no %s" % (above, kind.manifest()))
    for task in tasks:
        sections = sections_of_parts(text_of(root, task.handout))
        task.sections = {part: section_of_part(sections, part) for part in task.parts}
        task.of = len(tasks)
    return sorted(tasks, key=lambda task: task.number)


def load_all(root, stage=LAB.stage):
    """The tasks, then the labs; or those up to a stage."""
    return [task for kind in (TASK, LAB) if kind.stage <= stage for task in load(root, kind)]


def how_many(root=ROOT, but=0):
    """How many files the tasks have, apart from so many, in a word: six."""
    number = len(glob.glob(os.path.join(root, TASK.folder(), "*", TASK.manifest()))) - but
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def no_folder(path):
    """What is wrong with an IMPL that is no folder."""
    return "%s is not a folder: IMPL must name one with the %s task files" % (path, how_many())


def asked(options):
    """What options of the command line are about: (kind, number or name; "" or "all" for all)."""
    kind = LAB if options.lab else TASK
    return kind, (options.lab or options.task or "").strip()


def choose(tasks, wanted):
    """Those that a word asks for: a number, a name, or the two as the folder has them."""
    return [task for task in tasks
            if wanted in (str(task.number), task.name, os.path.basename(task.folder))]


def outline(text):
    """The lines of a Markdown text that are not fenced, each with the heading above it."""
    heading, fence = "", None
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = None if fence else mark.group(1)
        elif not fence:
            found = HEADING.match(line)
            heading = found.group(1) if found else heading
            yield heading, line


def headings(text):
    """The headings of a Markdown text, in order."""
    return [heading for heading, line in outline(text) if HEADING.match(line)]


def sections_of_parts(text):
    """{part ("3.1"): the heading in a handout under which its paragraph is}."""
    found = {}
    for heading, line in outline(text):
        paragraph = PARAGRAPH.match(line)
        for part in paragraph.group(1).replace(",", " ").split() if paragraph else ():
            found.setdefault(part, heading)
    return found


def section_of_part(sections, part):
    """The heading for a part, of those that sections_of_parts found, or "". A part with a letter
    that has no paragraph of its own is explained with the part."""
    return sections.get(part) or sections.get(whole(part), "")


def text_of(root, path):
    """The text of a file of the kit; empty where it is not there, which is said elsewhere."""
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def reference_text(task, root):
    """The text of its reference, of both files where it has two."""
    return "".join(text_of(root, piece.in_kit("reference")) for piece in task.pieces())


def skeleton_functions(task, root):
    """{part: the function of the reference that it is in}."""
    found, function = {}, ""
    for line in reference_text(task, root).splitlines():
        head = FUNCTION.match(line)
        begin = gaps.BEGIN.match(line)
        function = head.group(1) if head else function
        if begin:
            found[begin.group(2)] = function
    return found


def bad_hints(task, root):
    """What is wrong with the hints of a task and with what it says to read."""
    handout = text_of(root, task.handout)
    known, sections = headings(handout), sections_of_parts(handout)
    for test in task.tests:
        if len(test.more) != FURTHER:
            yield "%s has %d hints in \"more\", not %d" % (test.name, len(test.more), FURTHER)
        if not test.parts and not test.together:
            yield "%s has no \"parts\"" % test.name
        for part in test.parts:
            if part not in task.parts:
                yield "%s is meant for part %s, which the task does not have" % (test.name, part)
        if not test.section:
            yield "%s has no \"section\"" % test.name
        elif test.section not in known:
            yield "%s has no heading \"%s\", which %s names" % (task.handout, test.section,
                                                               test.name)
    regions = gaps.parts(reference_text(task, root))
    for part in regions:
        if part not in task.parts:
            yield "part %s has no hints" % part
    holder = skeleton_functions(task, root)
    for error, part in task.errors.items():
        if part not in task.parts:
            yield "the error \"%s\" names part %s, which the task does not have" % (error, part)
    for part, hints in task.parts.items():
        if part in holder and task.functions.get(part, [""])[0] != holder[part]:
            yield "part %s is in %s, which must be the first of its \"functions\"" % (
                part, holder[part])
        if not section_of_part(sections, part):
            yield "%s has no paragraph **%s** under a heading" % (task.handout, part)
        if part not in regions:
            yield "hints for part %s, which %s does not have" % (part, task.in_kit("reference"))
        if len(hints) < PART_LEVELS:
            yield "part %s has %d hints, not %d or more" % (part, len(hints), PART_LEVELS)
    for name, levels in ([(test.name, test.hints()) for test in task.tests]
                         + [("part " + part, hints) for part, hints in task.parts.items()]):
        if levels and not levels[0].strip().endswith("?"):
            yield "the hint of %s does not ask a question" % name
        for level, text in enumerate(levels, 1):
            if len(text) > LONGEST_HINT:
                yield "hint %d of %s has %d characters, more than %d" % (level, name, len(text),
                                                                         LONGEST_HINT)
        if len(set(levels)) != len(levels):
            yield "two hints of %s are the same" % name


def problems(tasks, root):
    """What is wrong with the manifests taken together; an empty list where nothing is."""
    found = []
    seen = set()
    for place, task in enumerate(tasks, 1):
        def wrong(text, task=task):
            found.append("%s: %s" % (task.path, text))
        if task.number != place:
            wrong("number %d, want %d" % (task.number, place))
        if task.folder != "%s/%d_%s" % (task.kind.folder(), task.number, task.name):
            wrong("a manifest of %d_%s in another folder" % (task.number, task.name))
        if task.file != task.name + ".c":
            wrong("the file is %s, not %s.c" % (task.file, task.name))
        points = sum(test.points for test in task.tests)
        if points != task.points:
            wrong("the tests have %g points, the task has %g" % (points, task.points))
        for path in [piece.in_kit("reference") for piece in task.pieces()] + [task.handout]:
            if not os.path.exists(os.path.join(root, path)):
                wrong("there is no %s" % path)
        for test in task.tests:
            if test.points <= 0:
                wrong("test %s is worth %g" % (test.name, test.points))
            if test.together and task.kind is not TASK:
                wrong("test %s is marked \"together\", which tests of %s are not"
                      % (test.name, task.kind.folder()))
            if test.name in seen:
                wrong("a second test is named %s" % test.name)
            seen.add(test.name)
        for text in bad_hints(task, root):
            wrong(text)
    return found
