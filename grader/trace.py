"""A trace: what every rank did in a few steps of training, for the plots of the results page.

tests/trace/steps.c is run like any suite, with those of the student's files that are complete and
the reference's other ones. Its log comes as lines "TRACE {…}" of what it prints, where the code
under test may print too. So every field is checked, and figures that do not agree with each other
are no trace. A trace is for looking at: no points hang on it, and without one there is a sentence
that says why.

The first line has the world, the steps, and for each unit its name, elements and padded elements
(the root last). Then a line for each rank and step: the bytes that live before and after it, the
peak, and rows in program order:
    ["F", unit]  a mark: F f, the forward of a unit begins and ends; B b, its backward; O o, the
                 optimizer
    [kind, stream, what, unit, bytes, sent, begin, end]
                 +, -: memory comes or goes, `what` for (KEPT …); c: a collective (COLLECTIVES);
                 k: `bytes` kernels and copies; r, w: the record of an event, a wait for it; begin,
                 end: nanoseconds on the clock of a modelled machine, 0 where there is none

Interface: take(builder, own, tasks, run, account), take_demo(builder, own, files, run) -> Outcome;
parse(text) -> Trace; BadTrace; Trace.levels, .sent, .rows, .theory_kept, .theory_whole,
.theory_sent.
"""

import json
import os
import re
from dataclasses import dataclass, field

import runner
from files import write_atomically
from report import NOT_YET

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEST, WITHOUT_PREFETCH = "steps", "steps_without_prefetch"
KEPT, PARAMS, GRADS, REST = range(4)
TABLE = os.path.join(ROOT, "gpulog", "include", "gpulog_collectives.h")
with open(TABLE, encoding="utf-8") as rows:
    COLLECTIVES = re.findall(r'\bROW\(\w+,[\s\\]+\w+,[\s\\]+\w+,[\s\\]+"([^"]+)"', rows.read())
MARKS = "FfBbOo"
MOST_RANKS, MOST_STEPS, MOST_UNITS, MOST_ROWS = 8, 8, 32, 20000
MOST_BYTES = 1 << 46
MOST_TIME = 1 << 50 # nanoseconds
FLOAT = 4


class BadTrace(Exception):
    """What was printed is no trace; the text says why, in a clause."""


@dataclass
class Unit:
    name: str
    numel: int
    padded: int


@dataclass
class Step:
    """What one rank did in one step."""
    live: list   # bytes before and after
    peak: int
    rows: list   # tuples: (mark, unit), or (kind, stream, what, unit, bytes, sent, begin, end)


@dataclass
class Trace:
    world: int
    steps: int
    units: list
    table: dict = field(default_factory=dict) # (rank, step): Step

    def rows(self, rank, step):
        return self.table[rank, step].rows

    def levels(self, rank, step):
        """Bytes kept, of unsharded parameters, of unsharded gradients, and the rest: in the
        beginning, and after each row."""
        now = [self.table[rank, 0].live[0], 0, 0, 0]
        for before in range(step):
            for row in self.rows(rank, before):
                add(now, row)
        found = [tuple(now)]
        for row in self.rows(rank, step):
            add(now, row)
            found.append(tuple(now))
        return found

    def sent(self, rank, step):
        """{collective: (calls, bytes that this rank sent)}"""
        found = {}
        for row in self.rows(rank, step):
            if row[0] == "c":
                calls, sent = found.get(COLLECTIVES[row[2]], (0, 0))
                found[COLLECTIVES[row[2]]] = (calls + 1, sent + row[5])
        return found

    def padded(self):
        return sum(unit.padded for unit in self.units)

    def theory_kept(self):
        """Parameters, gradients and two moments of a shard: 16·padded/W bytes."""
        return 4 * FLOAT * self.padded() // self.world

    def theory_whole(self, backward):
        """The root and two units, whole; in the backward their gradients too."""
        blocks = sorted((unit.padded for unit in self.units[:-1]), reverse=True)[:2]
        return (self.units[-1].padded + sum(blocks)) * FLOAT * (2 if backward else 1)

    def theory_sent(self, times=3):
        """times·(W-1)/W·padded elements, in bytes."""
        return times * FLOAT * self.padded() // self.world * (self.world - 1)


def add(now, row):
    """Counts one row's memory in."""
    if row[0] in "+-":
        now[row[2]] += row[4] if row[0] == "+" else -row[4]


# ---- Reading ----

def whole(value, low, high, what):
    """The value, if it is a whole number within the bounds."""
    if type(value) is not int or not low <= value <= high:
        raise BadTrace("%s is not a number between %d and %d" % (what, low, high))
    return value


def known(entry, names, what):
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise BadTrace("%s has other fields than it should" % what)
    return [entry[name] for name in names]


def items(value, low, high, what):
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise BadTrace("%s is not a list of %d to %d" % (what, low, high))
    return value


def parse_head(entry):
    world, steps, units = known(entry, ("world", "steps", "units"), "the first line")
    trace = Trace(whole(world, 1, MOST_RANKS, "the world"),
                  whole(steps, 1, MOST_STEPS, "the number of steps"), [])
    for unit in items(units, 1, MOST_UNITS, "the units"):
        name, numel, padded = items(unit, 3, 3, "a unit")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.]{1,16}", name):
            raise BadTrace("a unit has an invalid name")
        trace.units.append(Unit(name, whole(numel, 1, MOST_BYTES, "a unit's size"),
                                whole(padded, numel, MOST_BYTES, "a unit's padded size")))
    return trace


# What each field of a row may be, by the row's kind: stream, what, bytes.
LIMITS = {"+": (3, 3, MOST_BYTES), "-": (3, 3, MOST_BYTES),
          "c": (3, len(COLLECTIVES) - 1, MOST_BYTES), "k": (3, 0, MOST_ROWS),
          "r": (3, MOST_ROWS, 0), "w": (3, MOST_ROWS, 0)}


def parse_row(row, units):
    row = items(row, 2, 8, "a row")
    kind = row[0]
    if isinstance(kind, str) and len(kind) == 1 and kind in MARKS and len(row) == 2:
        return kind, whole(row[1], -1, units - 1, "a mark's unit")
    if not isinstance(kind, str) or kind not in LIMITS or len(row) != 8:
        raise BadTrace("a row is of an unknown kind")
    streams, whats, most = LIMITS[kind]
    return (kind, whole(row[1], 0, streams, "a stream"), whole(row[2], 0, whats, "a row's what"),
            whole(row[3], -1, units - 1, "a row's unit"), whole(row[4], 0, most, "a row's bytes"),
            whole(row[5], 0, MOST_BYTES, "what a row sent"),
            whole(row[6], 0, MOST_TIME, "when a row began"),
            whole(row[7], row[6], MOST_TIME, "when a row ended"))


def parse_step(entry, trace):
    rank, step, full, live, peak, rows = known(
        entry, ("rank", "step", "full", "live", "peak", "rows"), "a line of a step")
    place = (whole(rank, 0, trace.world - 1, "a rank"), whole(step, 0, trace.steps - 1, "a step"))
    if place in trace.table:
        raise BadTrace("rank %d, step %d appears twice" % place)
    if full is not False:
        raise BadTrace("there were more operations than can be drawn")
    live = [whole(value, 0, MOST_BYTES, "the live bytes") for value in items(live, 2, 2, "live")]
    rows = [parse_row(row, len(trace.units)) for row in items(rows, 0, MOST_ROWS, "the rows")]
    trace.table[place] = Step(live, whole(peak, 0, MOST_BYTES, "the peak"), rows)


def check_sums(trace):
    """What came and went must add up to the live bytes and the peaks."""
    for rank in range(trace.world):
        for step in range(trace.steps):
            if (rank, step) not in trace.table:
                raise BadTrace("rank %d, step %d is missing" % (rank, step))
        for step in range(trace.steps):
            levels, entry = trace.levels(rank, step), trace.table[rank, step]
            if any(value < 0 for level in levels for value in level):
                raise BadTrace("rank %d frees more than it has" % rank)
            sums = [sum(level) for level in levels]
            if [sums[0], sums[-1]] != entry.live or max(sums) != entry.peak:
                raise BadTrace("the bytes of rank %d, step %d do not add up" % (rank, step))


def parse(text):
    """The trace in what a program printed; BadTrace."""
    trace = None
    for line in text.split("\n"):
        if not line.startswith("TRACE "):
            continue
        try:
            entry = json.loads(line[len("TRACE "):])
        except (ValueError, RecursionError):
            raise BadTrace("one of its lines is not JSON")
        if trace is None:
            trace = parse_head(entry)
        elif len(trace.table) >= MOST_RANKS * MOST_STEPS:
            raise BadTrace("it has too many lines")
        else:
            parse_step(entry, trace)
    if trace is None:
        raise BadTrace("no line of it came")
    check_sums(trace)
    return trace


# ---- Taking ----

@dataclass
class Outcome:
    """What there is to draw."""
    trace: object = None      # the student's; None: there is none, and `why` says why
    reference: object = None  # None: nothing to compare with
    own: list = field(default_factory=list)    # files of the student's that ran
    given: list = field(default_factory=list)  # files that were the reference's
    why: str = ""
    unhidden: object = None   # the reference's without prefetch; None: there is none


def program_of(builder, key, name=TEST):
    return "%s/impl/%s/trace/%s" % (builder.build, key, name)


def link(builder, key, own, name=TEST):
    """Links the program; "" or what make said."""
    program = program_of(builder, key, name)
    if key != "reference" and os.path.lexists(os.path.join(ROOT, program)):
        os.unlink(os.path.join(ROOT, program)) # which files are in it has no time
    with builder.locked_build(True):
        status, output = builder.make([program], jobs=2,
                                      extra=["OWN=" + " ".join(own)] + builder.with_libraries(),
                                      impl="reference" if key == "reference" else None)
    return "" if status == 0 else output.strip()[-2000:] or "make gave no output"


def no_trace(verdict):
    """Why a run that did not pass left no trace, as sentences."""
    gap = NOT_YET.search(verdict.message)
    if gap:
        return "Part %s is not written yet (%s), and the training needs it." % (
            gap.group("part"), gap.group("place"))
    if verdict.status == "skipped":
        return "The training cannot run here: %s" % verdict.message
    return "The training did not finish.\n%s" % verdict.message


def reference_trace(builder, run, test=TEST):
    """The reference's, from the build tree where it is as new as the program; None without one."""
    kept = os.path.join(ROOT, builder.build, "trace", "reference_%s.txt" % test)
    try:
        if link(builder, "reference", []):
            return None
        program = os.path.join(ROOT, program_of(builder, "reference"))
        if os.path.exists(kept) and os.path.getmtime(kept) > os.path.getmtime(program):
            with open(kept, encoding="utf-8") as file:
                return parse(file.read(runner.OUTPUT_LIMIT * 2))
    except (OSError, ValueError, BadTrace):
        pass # made again below
    verdict, output = run(program_of(builder, "reference"), None, test)
    if verdict.status != "passed":
        return None
    lines = [line for line in output.split("\n") if line.startswith("TRACE ")]
    try:
        trace = parse(output)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        write_atomically(kept, "\n".join(lines) + "\n")
        return trace
    except (OSError, BadTrace):
        return None


def with_files(outcome, builder, own, run, account):
    """The outcome, with the trace of the student's files, or why there is none."""
    wrong = link(builder, builder.key, own)
    if wrong:
        outcome.why = "The training cannot be linked with your files.\n%s" % wrong
        return outcome
    verdict, output = run(program_of(builder, builder.key), account, TEST)
    if verdict.status != "passed":
        outcome.why = no_trace(verdict)
        return outcome
    try:
        outcome.trace = parse(output)
    except BadTrace as problem:
        outcome.why = ("The training ran, but its output cannot be drawn: %s. Does your code "
                       "print lines that begin with TRACE?" % problem)
    return outcome


DEMO_WORLD = "SHARDLAB_TRACE_WORLD" # a variable: the demonstration's model, on so many ranks
DEMO_RANKS = 4 # at most


def take_demo(builder, own, files, run):
    """The trace of the demonstration's model. own: names of the tasks whose files are the
    student's; files: what those are called, and those of the reference's."""
    outcome = Outcome(own=files[0], given=files[1])
    return with_files(outcome, builder, own, run, None)


def take(builder, own, tasks, run, account=None):
    """The traces of a grading. own: the names of tasks whose file is complete and may run; tasks:
    all; run(program, account, test) -> (Verdict, output), where the student's runs as `account`."""
    files = {task.name: task.file for task in tasks}
    outcome = Outcome(own=[files[name] for name in own],
                      given=[file for name, file in files.items() if name not in own])
    outcome.reference = reference_trace(builder, run)
    outcome.unhidden = reference_trace(builder, run, WITHOUT_PREFETCH)
    if not own:
        outcome.why = ("None of your files is complete yet, so this is what the reference does: "
                       "where you are going.")
        return outcome
    if builder.key == "reference":
        outcome.trace, outcome.reference = outcome.reference, None
        outcome.why = "" if outcome.trace else "The reference left no trace."
        return outcome
    return with_files(outcome, builder, own, run, account)
