"""The wrong and the right solutions on which the tests are tried, as they are written down: mutants
(mutants.json of a task or lab) and alternatives (alternatives/*.c); see mutants.py.

Interface: load_mutants(tasks), load_alternatives(tasks) and machine_made(tasks) -> [Solution];
edit_text(text, edits), edited(task, edits) and put_in(text, part) change the reference;
write_sources(solution, tasks, folder); read(path), functions(text), reference_of(task),
pieces(tasks); BadFile, DoesNotApply.
"""

import glob
import json
import os
import re
from dataclasses import dataclass, field

import gaps
import manifest
from mutation_operators import mutants_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class BadFile(Exception):
    """A file of mutants or an alternative that cannot be understood."""


class DoesNotApply(Exception):
    """The place that a mutant changes is not in the reference, or is there more than once."""


@dataclass
class Solution:
    """What is to be tested: a mutant or an alternative."""
    name: str
    task: object                     # the manifest's Task; None: several files
    about: str                       # one sentence
    edits: list = field(default_factory=list)      # (old, new), for a mutant
    caught_by: dict = field(default_factory=dict)  # test: regular expression
    also: dict = field(default_factory=dict)       # part that is right, too: the reason
    never: str = ""                                # what a message or hint may not say
    parts: dict = field(default_factory=dict)      # file: text of functions, for an alternative
    texts: dict = field(default_factory=dict)      # file: its text, for a mutant made by machine
    function: str = ""                             # and where that one has its mistake


# ---- Mutants: a place in the reference, and what stands there instead ----

def joined(text, where):
    """A string, or a list of lines."""
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "\n".join(text)
    if not isinstance(text, str):
        raise BadFile("%s must be a string or a list of lines" % where)
    return text


def read_mutant(entry, task, path):
    """One mutant of a file."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise BadFile("%s: a mutant without a name" % path)
    where = "%s, %s" % (path, entry["name"])
    unknown = set(entry) - {"name", "wrong", "edits", "caught_by", "also", "never"}
    if unknown:
        raise BadFile("%s: unknown field \"%s\"" % (where, sorted(unknown)[0]))
    if not isinstance(entry.get("wrong"), str) or not entry["wrong"].strip():
        raise BadFile("%s: \"wrong\" must say in a sentence what is wrong" % where)
    edits, caught_by = entry.get("edits"), entry.get("caught_by")
    if not isinstance(edits, list) or not edits or \
            not all(isinstance(edit, list) and len(edit) == 2 for edit in edits):
        raise BadFile("%s: \"edits\" must be a list of pairs, old and new" % where)
    edits = [(joined(old, where), joined(new, where)) for old, new in edits]
    if not all(old.split() for old, _ in edits):
        raise BadFile("%s: an edit must name what it replaces" % where)
    if not isinstance(caught_by, dict) or not caught_by:
        raise BadFile("%s: \"caught_by\" must name the tests that it loses" % where)
    names = {test.name for test in task.tests}
    for test in caught_by:
        if test not in names:
            raise BadFile("%s: %s has no test %s" % (where, task.heading().lower(), test))
    never = entry.get("never", "")
    for what, words in [("the reason of %s" % test, reason)
                        for test, reason in caught_by.items()] + [('"never"', never)]:
        try:
            re.compile(words)
        except (re.error, TypeError) as problem:
            raise BadFile("%s: %s: %s" % (where, what, problem))
    also = entry.get("also", {})
    if not isinstance(also, dict) or not all(isinstance(reason, str) and reason.strip()
                                             for reason in also.values()):
        raise BadFile("%s: \"also\" must give a reason for each part" % where)
    for part in also:
        if part not in task.parts:
            raise BadFile("%s: %s has no part %s" % (where, task.heading().lower(), part))
    return Solution(entry["name"], task, entry["wrong"], edits, caught_by, also, never)


def load_mutants(tasks):
    """All mutants, by task."""
    found, seen = [], set()
    for task in tasks:
        path = os.path.join(ROOT, task.folder, "mutants.json")
        if not os.path.exists(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError) as problem:
            raise BadFile("%s: %s" % (path, problem))
        if not isinstance(data, dict) or not isinstance(data.get("mutants"), list):
            raise BadFile("%s must have a list \"mutants\"" % path)
        for entry in data["mutants"]:
            mutant = read_mutant(entry, task, path)
            if mutant.name in seen:
                raise BadFile("%s: a second mutant is named %s" % (path, mutant.name))
            seen.add(mutant.name)
            found.append(mutant)
    return found


def written(text):
    """The lines of a reference that a student writes."""
    lines, inside = set(), False
    for number, line in enumerate(text.splitlines(), 1):
        inside = (inside or bool(gaps.begins(line))) and not line.strip().startswith("//[end")
        if inside:
            lines.add(number)
    return lines


def machine_made(tasks):
    """Every change that a machine makes to what students write of the six files
    (mutation_operators.py)."""
    return [Solution(mutant.id, task, mutant.change(), texts={task.file: mutant.text},
                     function=mutant.function)
            for task in tasks if task.kind is manifest.TASK for text in [reference_of(task)]
            for mutant in mutants_of(task.file, text)
            if mutant.line in (written(text) or {mutant.line})]


def edit_text(text, edits):
    """The text with each old replaced by its new. White space counts for nothing when old is looked
    for, so that a line broken elsewhere is still found; but it must be found in just one place."""
    for old, new in edits:
        words = old.split()
        pattern = r"\s+".join(re.escape(word) for word in words)
        places = list(re.finditer(pattern, text))
        if len(places) != 1:
            raise DoesNotApply("`%s` is %s the reference" % (" ".join(words), "not in" if not places
                               else "in %d places of" % len(places)))
        text = text[:places[0].start()] + new + text[places[0].end():]
    return text


# ---- Alternatives: functions that take the place of the reference's ----

def functions(text):
    """The function definitions of a C file in the kit's layout: [(name, begin, end)]. A head at the
    left margin, then { and } on lines of their own."""
    found = []
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    i = 0
    while i < len(lines):
        if lines[i].rstrip() != "{":
            i += 1
            continue
        head = i
        while head > 0 and re.match(r"[\w\s].*[^;}\s]\s*$", lines[head - 1]):
            head -= 1
        end = i
        while end < len(lines) - 1 and lines[end].rstrip() != "}":
            end += 1
        name = re.search(r"(\w+)\(", "".join(lines[head:i]))
        if name:
            found.append((name.group(1), starts[head], starts[end + 1]))
        i = end + 1
    return found


def put_in(text, part):
    """The reference's text with the functions of `part` in the places of those of the same name.
    What stands between them (a helper, a variable) goes in front of the next that takes a place."""
    new, done = functions(part), 0
    here = {name for name, _, _ in functions(text)}
    taken = [entry for entry in new if entry[0] in here]
    if not taken:
        raise DoesNotApply("it has none of the reference's functions")
    for name, begin, end in taken:
        place = [entry for entry in functions(text) if entry[0] == name]
        if len(place) != 1:
            raise DoesNotApply("%s is in %d places of the reference" % (name, len(place)))
        text = text[:place[0][1]] + part[done:end].lstrip("\n") + text[place[0][2]:]
        done = end
    return text + part[done:]


def load_alternatives(tasks):
    """All alternatives, by task. A file begins with a comment "name: what is done another way", and
    has a line "// ==== file.c" in front of the functions for that file."""
    found = []
    for task, path in [(task, path) for task in tasks for path in sorted(glob.glob(
            os.path.join(ROOT, task.folder, "alternatives", "*.c")))]:
        name = os.path.basename(path)
        files = {piece.file for piece in pieces([other for other in tasks
                                                 if other.kind is task.kind])}
        with open(path, encoding="utf-8") as file:
            text = file.read()
        about = re.match(r"/\* %s: (.*?)\*/" % re.escape(name), text, re.DOTALL)
        cuts = re.split(r"^// ==== (\S+)$\n", text, flags=re.MULTILINE)
        parts = dict(zip(cuts[1::2], cuts[2::2]))
        if not about or not parts or not set(parts) <= files:
            raise BadFile("%s must begin with a comment \"%s: …\", and name the files of its "
                          "functions in lines \"// ==== file.c\"" % (path, name))
        sentence = re.sub(r"\s*\n \* ?", " ", about.group(1)).strip()
        found.append(Solution(name[:-2], None, sentence, parts=parts))
    return found


# ---- The changed files ----

def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def pieces(tasks):
    """A task for each file (manifest.Task.pieces)."""
    return [piece for task in tasks for piece in task.pieces()]


def reference_of(task):
    """The text of a file of the reference."""
    return read(os.path.join(ROOT, task.in_kit("reference")))


def edited(task, edits):
    """{file: its text after the edits}; where a task has several, each edit is in one of them."""
    texts = {piece.file: reference_of(piece) for piece in task.pieces()}
    for edit in edits:
        done = {}
        for file, text in texts.items():
            try:
                done[file] = edit_text(text, [edit])
            except DoesNotApply as problem:
                why = problem
        if len(done) != 1:
            raise why if not done else DoesNotApply("`%s` is in several files" % edit[0])
        texts.update(done)
    return texts


def write_sources(solution, tasks, folder):
    """Writes the changed files; {task name: path}."""
    written = {}
    texts = solution.texts or (edited(solution.task, solution.edits) if solution.task else {})
    for task in pieces([solution.task] if solution.task else tasks):
        if task.file not in texts and task.file not in solution.parts:
            continue
        text = texts.get(task.file) or put_in(reference_of(task), solution.parts[task.file])
        written[task.name] = os.path.join(folder, task.file)
        with open(written[task.name], "w", encoding="utf-8") as file:
            file.write(text)
    return written
