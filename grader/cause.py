"""What a failed test points at, and the hints that belong to that.

A test's own hints ask about the parts that it is meant for, but a mistake in any other part can
fail it too, and then they mislead. So hints are chosen by the cause, as far as it is told, in this
order:

  1. the part that is not written yet (NOT_YET);
  2. the part whose function the test's own words name, where it is only one part, or that the
     manifest's "errors" gives for what given code says;
  3. the part in whose function simgpu's report has its place. A report of two operations that do
     not wait for each other names those that clash, not the wait that is missing: it points at who
     recorded the wrong event, or waits for it or on another stream; at the part that both are in;
     at who freed what is in use; or at what the manifest's "errors" gives for the streams that it
     names. A send and a receive of two parts that one function has called point at that function:
     it calls them in another order than the other rank's. An uninitialised read points at who
     allocated it;
  4. the part that an earlier test of the task points at by 1 to 3: the rest mostly follows;
  5. the only part that the test is meant for: then the test's own hints, which are about less.

Where none of these says anything, `make hint` gives the test's own hints (with a report those of a
test that is meant for reports of its class, the manifest's "reports"), and the first screen has
none: of parts that nothing points at most are right. Where the message has a likely cause, or a
report's question, or says what a function of the task does, the first hint is left out, too: it may
be about something else; and where a rule fails. `make hint` gives the rest.

By 5 a part has hints, and no line `Look:`: that the test is meant for it is no evidence. `Look:`
names the line where a rank crashed or was still running, else the function that the message names,
else the part's own; and no function that is as the skeleton gives it.

One row of a task is the foremost, which the first screen shows: the first failure, unless given
code found it, or simgpu's report points at no part, and a later test of the task says more. Where
that is a rule, it is the first other test that names a function of the rule's part, if there is
one.

A function of the student's own belongs to the parts whose functions call it.

Interface: fill(rows, task, files) fills in the fields of a task's rows, in order: hint, more,
section, part, look (where the part is), ask (what the message asks, for a page that shows it apart
from the message), hints_of (a part or a test), foremost;
point(row, task, source) -> Pointer; told(message); split(message).
"""

import functools
import hashlib
import json
import os
import re
from dataclasses import dataclass

from alike import NOT_YET, RULE
from gaps import begins
from manifest import LAB, ROOT, load_all, text_of, whole

LIKELY = re.compile(r"^ *Likely cause: ", re.MULTILINE)
REPORT = "simgpu: "
# A place in a message: folder/backward.c:88 (fsdp_reduce_grad).
PLACE = re.compile(r"(?P<file>(?:[\w.+-]+/)*[\w.+-]+\.c):(?P<line>\d+) \((?P<function>\w+)\)")
# Of a report about two operations: the place of a record or a wait that is not as it should be.
MISPLACED = re.compile(r"(?:an event that was recorded (?:at|on \S+ \(at)|that waits for it \(at) "
                       r"(\S+ \(\w+\))")
# A wait, and where its event was recorded: one of the two is wrong.
RECORD = re.compile(r"The wait at (\S+ \(\w+\)) is for an event that was recorded "
                    r"(?:on ctx->(\w+)_stream \()?at (\S+?):(\d+) \((\w+)\)")
EVENTS = {"recorded": re.compile(r"\bcudaEventRecord\(([^,]+),"),
          "awaited": re.compile(r"\bcudaStreamWaitEvent\([^,]+,\s*([^,]+),")}
# A place that says more than the function which the test called.
QUEUED = re.compile(r"\bat (\S+ \(\w+\)) is queued on another stream")
UNRECORDED = "Is the cudaEventRecord missing"
CALLER = re.compile(r"called by (\w+) \((\S+:\d+)\)$")
IN_USE = re.compile(r"memory is freed while another stream may still use it.* did not wait for it")
# An operation that would fill an allocation, and begins in its middle.
SHIFTED = re.compile(r"\b(\d+) bytes from byte [1-9]\d* .*?, the \1 bytes allocated at")
# What given code says of a call that did not work: the call is the test's, and no cause.
CALL_FAILED = re.compile(r"\b\w+\([^\n]*?\) failed(?= \()")
# Whose result a function drops (dropped.py): no part of that one is at fault.
DROPS = re.compile(r"the (?:Status|error) of \w+ is (?=dropped|stored)[^\n]*")
# A crash in a file that is not the student's: whose mistake led there, the place does not say.
CRASHED_ELSEWHERE = re.compile(
    r"crashed \([^\n]*?\) at (?:reference|lib|nn|fsdp|kernels|launch|support|tasks)/")
# How a message with a place begins where a rank ended, or hung.
ENDED = re.compile(r"\bcrashed \(|\bwas still running at |\bcalled exit\(|\bwas waiting|"
                   r"^No verdict within ")
NOWHERE = re.compile(r"\bnull pointer\b")
CRASHED = re.compile(r"\bcrashed \(")
NO_PLACE = ("out-of-memory", "leak", "deadlock") # their places are not where the mistake is
NO_HINT = ("skipped", "infrastructure")
GIVEN = os.path.join("grader", "given.json") # which release.py writes
# Reports about two operations: neither of their places is where the mistake is.
TWO = ("race-between-streams", "race-with-the-host", "lifetime")
UNWRITTEN = "uninitialised-read"
MISMATCH = "collective-mismatch"


@dataclass
class Pointer:
    """The part that a message points at; "": none."""
    part: str = ""
    sure: int = 0 # 2: the message names its function; 1: a report's place is in it; 0: a guess


# ---- Whose function it is ----

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
DEFINITION = re.compile(r"(\w+)\s*\([^;{}]*\)\s*$")


def blank(match):
    """As many blanks as the text has characters, its line ends kept."""
    return re.sub(r"[^\n]", " ", match.group())


def places_of(source):
    """The functions of a C file, as far as it can be read: [(name, begin, end)]."""
    found, depth, begin, head = [], 0, 0, 0
    text = COMMENT.sub(blank, source)
    for match in re.finditer(r"[{};]", text):
        if match.group() == "{":
            if depth == 0:
                begin = match.start()
            depth += 1
        elif match.group() == "}" and depth > 0:
            depth -= 1
            if depth == 0:
                name = DEFINITION.search(text, head, begin)
                if name:
                    found.append((name.group(1), head, match.end()))
                head = match.end()
        elif depth == 0:
            head = match.end()
    return found


def bodies(source):
    """{name: text} of the functions of a C file."""
    text = COMMENT.sub(blank, source)
    return {name: text[text.index("{", begin):end] for name, begin, end in places_of(source)}


def digests(source):
    """{name: digest} of the functions of a C file; comments, strings and blanks do not count."""
    return {name: hashlib.sha256("".join(body.split()).encode()).hexdigest()[:8]
            for name, body in bodies(source).items()}


def given(root, gaps):
    """{folder of a task or lab: {name: digest}} of the functions in which the skeleton leaves
    nothing out."""
    found = {}
    for task in load_all(root):
        for source in (text_of(root, piece.in_kit("reference")) for piece in task.pieces()):
            digest = digests(source)
            found.setdefault(task.folder, {}).update(
                (name, digest[name]) for name, begin, end in places_of(source)
                if not any(begins(line, gaps) for line in source[begin:end].splitlines()))
    return found


@functools.lru_cache(None)
def given_here():
    """The same of this kit: a release has no reference, but these in a file."""
    text = text_of(ROOT, GIVEN)
    return json.loads(text) if text else given(ROOT, 1)


def given_in(task, source):
    """The functions of a student's file that are as the skeleton gives them."""
    known = given_here().get(task.folder, {})
    return {name for name, digest in digests(source).items() if known.get(name) == digest}


def parts_of(function, task, source):
    """The parts of the task that a function belongs to, its own or those that call it."""
    own = {part for part, names in task.functions.items() if function in names}
    if own or function not in source:
        return own
    text = bodies(source)
    seen, ahead, parts = {function}, [function], set()
    while ahead:
        call = re.compile(r"\b%s\s*\(" % re.escape(ahead.pop()))
        for name in [name for name, body in text.items() if call.search(body)]:
            held = {part for part, names in task.functions.items() if name in names}
            parts |= held
            if not held and name not in seen:
                ahead.append(name)
            seen.add(name)
    return parts


def only(parts):
    """The one element of a set, or ""."""
    return next(iter(parts)) if len(parts) == 1 else ""


# ---- What a message says ----

def split(message):
    """(the test's words, the likely cause, simgpu's report), each perhaps empty."""
    likely = LIKELY.search(message)
    words, cause = (message[:likely.start()], message[likely.end():]) if likely else (message, "")
    at = words.find(REPORT)
    return (words[:at], cause, words[at:]) if at >= 0 else (words, cause, "")


def told(message, task, source):
    """Whether the message itself says what to think about: a likely cause, a report's question, a
    result that is dropped, or what a function of the task does."""
    words, cause, report = split(message)
    return bool(cause or report or DROPS.search(words) or named(words, task, source))


def named(text, task, source):
    """The parts whose functions a text names, those at a place in the student's file included."""
    known = {name: part for part, names in task.functions.items() for name in names}
    text = DROPS.sub("", CALL_FAILED.sub("", text))
    # `walk` is a word, too: it counts where it is called.
    words = {word for word in re.findall(r"\b\w+_\w+\b|\b\w+(?=\(\))", text) if word in known}
    # One that is as the skeleton gives it is right, and the other is meant.
    parts = {known[word] for word in words - given_in(task, source) or words}
    for place in PLACE.finditer(text):
        if task.named(place.group("file")):
            parts |= parts_of(place.group("function"), task, source)
    return parts


def says(text, error):
    """Whether a text has what a manifest's "errors" names, where … is any one word."""
    return bool(re.search(re.escape(error).replace("…", r"\S+"), text))


def called_by(function, task, source):
    """The parts whose functions a function calls, and its own."""
    body = bodies(source).get(function, "")
    pointers = set(re.findall(r"->(\w+)\s*\(", body)) # unit->all_gather(unit): fsdp_all_gather
    return parts_of(function, task, source) | {
        part for part, names in task.functions.items()
        if any(re.search(r"\b%s\s*\(" % re.escape(name), body) or
               name.partition("_")[2] in pointers for name in names)}


def is_given(entry, task):
    """Whether given code makes a call for a lab's function."""
    return task.kind is LAB and (entry.get("path") or "").startswith("in ")


def of_calls(calls, task, source):
    """The parts that calls of a report are made in; {None} where one is not the student's. In a lab
    given code makes many for it, with what other parts have made ready: those say nothing."""
    parts = set()
    for entry in calls:
        here = task.named(entry.get("file") or "") and not is_given(entry, task)
        parts |= parts_of(entry.get("function") or "", task, source) if here else {None}
    return parts


def of_allocations(report, task, source, whose):
    """The parts that the memory of a report was allocated in; whose(function, …): the parts."""
    parts = set()
    for entry in report.get("ranges") or []:
        place = PLACE.match(entry.get("where") or "")
        if place and task.named(place.group("file")):
            parts |= whose(place.group("function"), task, source)
    return parts


def of_order(calls, task, source):
    """The part of the function that has called those of two parts, from two lines, or ""."""
    callers = [CALLER.search(entry.get("path") or "") for entry in calls]
    if len(calls) != 2 or None in callers or callers[0].group(2) == callers[1].group(2) or \
            callers[0].group(1) != callers[1].group(1):
        return ""
    parts = [of_calls([entry], task, source) for entry in calls]
    return only(parts_of(callers[0].group(1), task, source)) if parts[0] != parts[1] else ""


def is_right(record, source):
    """Whether the wait of a RECORD should be for another event: this one is ctx->compute_done,
    recorded on ctx->compute_stream, or is recorded by given code, or in a function that itself
    waits for it."""
    _, stream, _, line, function = record.groups()
    body = bodies(source).get(function, "")
    recorded, awaited = (set(EVENTS[what].findall(body)) for what in ("recorded", "awaited"))
    said = source.split("\n")[int(line) - 1:int(line)]
    return recorded <= awaited or bool(stream) and stream + "_done" in "".join(said)


def of_report(report, text, task, source):
    """The part that simgpu's report points at, or "" (where a call and an allocation differ, one of
    the two, unless the sizes agree)."""
    kind, calls = report.get("class"), report.get("calls") or []
    flat = " ".join(text.split())
    misplaced, record = MISPLACED.search(flat), RECORD.search(flat)
    if record and task.named(record.group(3)) and is_right(record, source):
        misplaced = record
    given = ["%s:%s" % (entry.get("file"), entry.get("line")) for entry in calls
             if is_given(entry, task)]
    if misplaced and misplaced.group(1).split(" ")[0] not in given:
        return only(named(misplaced.group(1), task, source))
    if kind == UNWRITTEN: # who allocated it, where it has nobody else fill it
        return only(of_allocations(report, task, source, called_by))
    if kind in TWO:
        if UNRECORDED in flat: # who was to record it?
            return ""
        frees = [entry for entry in calls if "Free" in (entry.get("call") or "")]
        return only(of_calls(calls, task, source)) or only(
            of_calls(frees if IN_USE.search(flat) else [], task, source) - {None}) or next(
                (part for error, part in task.errors.items() if says(flat, error)), "")
    if kind in NO_PLACE or NOWHERE.search(report.get("title") or ""):
        return "" # nobody allocated it: the call is right
    parts = of_calls(calls[:1], task, source)
    if not SHIFTED.search(flat):
        parts |= of_allocations(report, task, source, parts_of)
    caller = of_order(calls, task, source) if kind == MISMATCH else ""
    return caller or only(parts - {None})


def first_report(row):
    """The report that the message shows, of those that are no consequence of another."""
    first = [entry for entry in row.get("reports") or [] if not entry.get("follows")]
    return next((entry for entry in first if entry["title"] in " ".join(row["message"].split())),
                first[0] if first else {})


def point(row, task, source):
    """What a row's message points at, by itself."""
    gap = NOT_YET.search(row["message"])
    if gap:
        return Pointer(gap.group("part") if gap.group("part") in task.parts else "", 2)
    words, cause, text = split(row["message"])
    for error, part in task.errors.items():
        if says(words, error): # given code says it, perhaps of what an earlier mistake has led to
            return Pointer(part, 1)
    queued = QUEUED.search(words)
    if queued:
        words = queued.group(1)
    both = named(words, task, source) | named(cause, task, source)
    part = only(named(words, task, source)) or only(both)
    if part or not text:
        return Pointer(part, 2 if part else 0)
    report = first_report(row)
    part = of_report(report, text, task, source)
    return Pointer(part, 1 if part and report.get("class") != UNWRITTEN else 0)


# ---- The hints of a task's rows ----

def says_nothing(message):
    """Whether what is wrong was found where it is not about the test."""
    return bool(CALL_FAILED.search(message) or CRASHED_ELSEWHERE.search(message))


def chosen(row, test, pointer, task, failed):
    """The levels that a test which did not pass gets, and where they are from: a part or a test."""
    if pointer.part:
        return task.parts.get(pointer.part, []), "part " + pointer.part
    kind = first_report(row).get("class")
    if not pointer.part and (says_nothing(row["message"]) or ENDED.search(row["message"])):
        return [], "" # given code found something wrong, and the test is not about that
    if not split(row["message"])[2]:
        return test.hints(), test.name
    for other in task.tests:
        if kind in other.reports and other.name in failed:
            return other.hints(), other.name
    return [], ""


def weight(row, pointer):
    """How much a row tells of a mistake: nothing where given code found it, or where simgpu's
    report points at no part."""
    if not pointer.part and (says_nothing(row["message"]) or split(row["message"])[2]):
        return 0
    return 2 if pointer.sure == 2 and not NOT_YET.search(row["message"]) else 1


def shown_first(failures):
    """Of rows that did not pass, each with what it points at by itself, the foremost."""
    first, pointer = failures[0] if weight(*failures[0]) else max(
        failures, key=lambda failure: weight(*failure))
    if not RULE.search(first["message"]):
        return first
    return next((row for row, own in failures if own.part == pointer.part and
                 weight(row, own) == 2 and not RULE.search(row["message"])), first)


def look(part, task, files, words=""):
    """Where the part is: "part 4.6, fsdp_pre_backward, skeleton/backward.c:126". words: the test's,
    which may name a place in it, or one of its functions."""
    source = "".join(text for _, text in files)
    own = set(digests(source)) - given_in(task, source)
    places = [place for place in PLACE.finditer(words) if task.named(place.group("file"))
              and part in parts_of(place.group("function"), task, source)]
    place = next((place for place in places if place.group("function") in own), None)
    if place and ENDED.search(words):
        return "part %s, %s, %s:%s" % ((part,) + place.group("function", "file", "line"))
    names = task.functions.get(whole(part), [""]) # the first is written (manifest.py)
    name = next((name for name in names if name in own and re.search(
        r"\b%s\b" % re.escape(name), words)), names[0])
    for path, source in files:
        for function, begin, _ in places_of(source):
            if function == name:
                line = source[:source.index(name + "(", begin)].count("\n") + 1
                return "part %s, %s, %s:%d" % (part, name, path, line)
    return "part %s, %s" % (part, name) if name else ""


def ask(message, report):
    """What the message itself asks, in a sentence or two, or ""."""
    words, likely, text = split(message)
    if likely:
        return "Likely cause: " + likely.partition("\n")[0].strip()
    if text and report.get("title") and report.get("question"):
        return "simgpu: %s. %s" % (report["title"], report["question"])
    return "" if text else " ".join(words.split())


def fill(rows, task, files):
    """Gives each row of the task that did not pass what it points at and the hints that belong to
    that. `files`: (what messages call it, its text) of the student's file; a lab may have
    several."""
    source = "".join(text for _, text in files)
    tests = {test.name: test for test in task.tests}
    failed = {row["name"] for row in rows if row["status"] != "passed"}
    before, failures = Pointer(), []
    for row in rows:
        test = tests[row["name"]]
        row.update(part="", look="", ask="", hints_of=test.name, foremost=False)
        if row["status"] == "passed":
            continue
        if row["status"] in NO_HINT or row.get("shared"):
            row.update(hint="", more=[], hints_of="")
            continue
        pointer = point(row, task, source)
        failures.append((row, pointer))
        if pointer.sure < 2 and before.sure >= max(1, pointer.sure) and not test.together:
            pointer = before
        said = "".join(split(row["message"])[:2])
        report = first_report(row)
        if pointer.sure == 1 and report.get("class") not in TWO: # the one call that is not right
            said += " ".join(call.get("function") or "" for call in report.get("calls") or [])
        found = look(pointer.part, task, files, said) if pointer.part else ""
        levels, origin = chosen(row, test, pointer, task, failed)
        if not pointer.part and len(test.parts) == 1 and not split(row["message"])[2] \
                and not says_nothing(row["message"]) and not ENDED.search(row["message"]):
            pointer = Pointer(test.parts[0])
        # A hint is about what most go wrong with, and what a rule asks is something else.
        asks = any(pattern.search(row["message"]) for pattern in (CRASHED, RULE)) or told(
            row["message"], task, source) and not NOT_YET.search(row["message"])
        row.update(part=pointer.part, hints_of=origin, look=found,
                   ask=ask(row["message"], first_report(row)) if asks else "",
                   hint="" if asks or not pointer.part or not levels else levels[0],
                   more=levels if asks or not pointer.part else levels[1:])
        shown = found and not NOT_YET.search(row["message"])
        if pointer.part and (shown or pointer.part not in test.parts):
            row["section"] = task.sections.get(pointer.part) or row["section"]
        if pointer.sure and not before.sure:
            before = pointer
    if failures:
        shown_first(failures)["foremost"] = True
