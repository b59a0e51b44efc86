"""A step in time: what rank 0's streams did when, on a modelled machine, as SVG.

The times are in the trace (tests/trace/steps.c): simgpu's clock plays the ranks' logs again on
tests/trace/picture.machine, which is as slow as the model is small. So they depend on the schedule,
not on the computer. A trace without a clock has none, and no timeline.

Communication is hidden while kernels run on the same GPU, and exposed while none does. A collective
begins here when its last rank has arrived, so that waiting for others counts to what they do.

Interface: schedule(trace) -> Schedule or None; words(schedule); draw(trace, other, names) -> SVG.
"""

import re
from dataclasses import dataclass

import plot
from plot import KINDS, LEFT, RIGHT, STREAMS, WIDTH
from trace import COLLECTIVES, add

PASSES = {"F": "forward", "B": "backward"}
LANES = (1, 0, 2, 3) # from above: all-gathers, kernels, reduce-scatters, other streams
HIGH = 30 # of a lane
RANK = 0
JOIN = 500 # nanoseconds: a gap that cannot be seen


def duration(nanoseconds):
    """A time in the unit in which it has few digits."""
    if nanoseconds < 1e6:
        return "%.1f µs" % (nanoseconds / 1e3)
    return "%.2f ms" % (nanoseconds / 1e6)


@dataclass
class Box:
    lane: int
    begin: int # nanoseconds since the step began
    end: int
    words: str
    kind: str
    title: str
    moves: bool # communication
    count: int = 0 # of kernels

    def told(self):
        title = self.title.replace("#", str(self.count)) if self.count else self.title
        return "%s, %s" % (title, duration(self.end - self.begin))


@dataclass
class Schedule:
    """All in nanoseconds."""
    step: int
    compute: int
    communication: int
    exposed: int

    def hidden(self):
        """The share of communication that is hidden; 1 where there is none."""
        return 1 - self.exposed / self.communication if self.communication else 1.0

    def bound(self):
        """What takes the step's time, in a few words."""
        rest = self.step - self.compute - self.exposed
        most = max(self.compute, self.exposed, rest)
        return "bound by %s" % ("compute" if most == self.compute else
                                "exposed communication" if most == self.exposed else
                                "waits between the kernels")


def union(pairs):
    """Intervals in order that do not overlap, from any."""
    found = []
    for begin, end in sorted(pairs):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        elif end > begin:
            found.append([begin, end])
    return found


def length(pairs):
    return sum(end - begin for begin, end in pairs)


def overlap(first, second):
    """How long two unions have in common."""
    common = 0
    for begin, end in first:
        common += sum(max(0, min(end, high) - max(begin, low)) for low, high in second)
    return common


def begin_of(trace):
    """Where the last step begins: where the work of the one before has ended. (The host runs ahead:
    it has begun to queue the step before that.)"""
    if trace.steps == 1:
        return 0
    return max([0] + [row[7] for row in trace.rows(RANK, trace.steps - 2)
                      if len(row) > 2 and row[0] in "kc"])


def short(kind):
    """"AG" for all-gather; a name of one word stays."""
    return "".join(re.findall(r"\b\w", kind)).upper() if "-" in kind else kind


def box_of(trace, row, where, origin):
    """The box of a row of kernels or of a collective."""
    lane, begin, end = row[1], row[6] - origin, row[7] - origin
    if row[0] == "k":
        mark, unit = where
        name = trace.units[unit].name if mark in PASSES and unit >= 0 else ""
        words = name if name else "step" if mark == "O" else ""
        title = "%s# kernels and copies" % (
            "%s of %s: " % (PASSES[mark], name) if name else "optimizer: " if mark == "O" else "")
        return Box(lane, begin, end, words, "s-" + (mark or "k").lower(), title, False, row[4])
    kind = COLLECTIVES[row[2]]
    unit = trace.units[row[3]].name if row[3] >= 0 else ""
    return Box(lane, begin, end, ("%s %s" % (short(kind), unit)).strip(), "k-sent%d" % row[2],
               "%s %s: %s sent" % (kind, unit, plot.exact(row[5])), True)


def boxes_of(trace):
    """Rank 0's last step; empty where the trace has no times."""
    boxes, where, origin = [], [("", -1)], begin_of(trace)
    for row in trace.rows(RANK, trace.steps - 1):
        if len(row) == 2:
            if row[0] in "FBO":
                where.append(row)
            elif len(where) > 1:
                where.pop()
        elif row[0] in "kc" and row[7] > 0:
            boxes.append(box_of(trace, row, where[-1], origin))
    return boxes


def joined(boxes):
    """Kernels of one pass that follow each other at once, as one box."""
    found, last = [], {}
    for box in boxes:
        before = last.get(box.lane)
        if (before and not box.moves and (before.words, before.kind) == (box.words, box.kind)
                and box.begin - before.end < JOIN):
            before.end = box.end
            before.count += box.count
        else:
            found.append(box)
            last[box.lane] = box
    return found


def schedule(trace):
    """What the step costs; None where the trace has no times."""
    boxes = boxes_of(trace)
    if not boxes:
        return None
    compute = union([(box.begin, box.end) for box in boxes if not box.moves])
    moved = union([(box.begin, box.end) for box in boxes if box.moves])
    return Schedule(max(box.end for box in boxes), length(compute), length(moved),
                    length(moved) - overlap(moved, compute))


def words(cost):
    """"1.93 ms per step, 91 % of communication hidden, bound by compute"."""
    return "%s per step, %.0f %% of communication hidden, %s" % (
        duration(cost.step), 100 * cost.hidden(), cost.bound())


# ---- Drawing ----

def draw_lanes(svg, boxes, top, x):
    lanes = [lane for lane in LANES if any(box.lane == lane for box in boxes)]
    tops = {lane: top + (HIGH + 8) * i for i, lane in enumerate(lanes)}
    for lane in lanes:
        svg.text(LEFT - 8, tops[lane] + HIGH / 2 + 4, STREAMS[lane], "small", "end")
        svg.line(LEFT, tops[lane] + HIGH / 2, WIDTH - RIGHT, tops[lane] + HIGH / 2, "grid")
    for box in joined(boxes):
        left, right = x(box.begin), x(box.end)
        svg.rect(left, tops[box.lane], right - left, HIGH, box.kind, box.told())
        fits = [words for words in (box.words, box.words.partition(" ")[2])
                if words and right - left > 5.6 * len(words)]
        if fits: # "AG h.0", else "h.0"
            svg.text((left + right) / 2, tops[box.lane] + HIGH / 2 + 4, fits[0],
                     "box" if box.moves else "box-k", "middle")


def lanes_high(boxes):
    return (HIGH + 8) * len({box.lane for box in boxes})


def levels_in_time(trace):
    """[(nanoseconds, levels)]: memory by kind after each allocation and free, in time's order."""
    origin = begin_of(trace)
    now = list(trace.levels(RANK, trace.steps - 1)[0])
    found = [(0, tuple(now))]
    moves = [row for row in trace.rows(RANK, trace.steps - 1) if row[0] in "+-" and len(row) > 2]
    for row in sorted(moves, key=lambda row: row[6]):
        add(now, row)
        found.append((max(0, row[6] - origin), tuple(now)))
    return found


def draw_memory(svg, trace, top, bottom, x, end):
    levels = levels_in_time(trace)
    scale = plot.Scale(svg, top, bottom, max(sum(level) for _, level in levels))
    corners, before = [], levels[0][1]
    for when, level in levels:
        corners += [(x(min(when, end)), before), (x(min(when, end)), level)]
        before = level
    corners.append((x(end), before))
    plot.stacked(svg, corners, scale)


def ticks(svg, y, end, x):
    """The axis: five to ten marks of time."""
    step = 10 ** (len(str(int(max(end, 1)))) - 1)
    while end / step < 5:
        step /= 2
    unit, name = (1e3, "µs") if end < 1e6 else (1e6, "ms")
    for i in range(int(end / step) + 1):
        svg.line(x(i * step), y, x(i * step), y + 5, "axis")
        svg.text(x(i * step), y + 18, "%g" % (i * step / unit), "tick", "middle")
    svg.text(WIDTH - RIGHT, y + 34, name, "tick", "end")


def draw(trace, other=None, names=("yours", "the reference without prefetch")):
    """The step of `trace`, above that of `other` on the same axis, and below both its memory."""
    rows = [(name, boxes_of(each), schedule(each)) for name, each in zip(names, (trace, other))
            if each and schedule(each)]
    end = max(cost.step for _, _, cost in rows)
    top = 14
    height = sum(lanes_high(boxes) + 40 for _, boxes, _ in rows) + 250
    svg = plot.Svg(height, "One step of rank %d in time" % RANK,
                   "; ".join("%s: %s" % (name, words(cost)) for name, _, cost in rows))

    def x(when):
        return LEFT + (WIDTH - LEFT - RIGHT) * max(0, when) / end
    for name, boxes, cost in rows:
        svg.text(LEFT, top + 8, "%s: %s" % (name, words(cost)), "small")
        draw_lanes(svg, boxes, top + 18, x)
        svg.line(x(cost.step), top + 14, x(cost.step), top + 14 + lanes_high(boxes), "line-bound")
        top += lanes_high(boxes) + 40
    draw_memory(svg, trace, top + 10, top + 160, x, end)
    ticks(svg, top + 162, end, x)
    plot.legend(svg, height - 8, [("k-" + kind, text) for kind, text in KINDS])
    return svg.done()
