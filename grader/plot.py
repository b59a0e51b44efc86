"""Plots of a trace as SVG, to stand in a page of HTML.

Colours are classes (k-params, k-sent0 …), so that the page's style sheet can give them light and
dark values; text is the page's. Whatever can be pointed at has a <title>. Nothing comes from the
trace but numbers and the units' names, and those are escaped.

The x of a memory plot is not time: operations stand in the order in which the program queued them.
Two traces are laid over each other by their marks: between two marks both have the same width.

Interface: memory(trace, reference), peaks(trace, reference), traffic(trace, reference) -> SVG as
text; exact(bytes); for timeline.py and others Svg, Scale, legend, stacked.
"""

from html import escape

from trace import COLLECTIVES

WIDTH = 920
LEFT, RIGHT = 70, 12
MARGIN = 140 # on the right, where lines are labelled
KINDS = (("kept", "shards, gradients, moments"), ("params", "unsharded parameters"),
         ("grads", "unsharded gradients"), ("rest", "activations and the rest"))
STREAMS = ("compute", "gather", "reduce", "another")


def exact(count):
    """Bytes to the last one."""
    return "{:,} bytes".format(count)


def short(value):
    """A coordinate."""
    return ("%.1f" % value).rstrip("0").rstrip(".")


def between(first, middle, last):
    """Whether the middle one of three points is on a horizontal or vertical line between them."""
    return any(first[axis] == middle[axis] == last[axis] and
               min(first[1 - axis], last[1 - axis]) <= middle[1 - axis] <=
               max(first[1 - axis], last[1 - axis]) for axis in (0, 1))


def corners(points):
    """Points as they are drawn, rounded, without those in the middle of a straight line."""
    found = []
    for x, y in points:
        here = (round(x, 1), round(y, 1))
        if len(found) > 1 and between(found[-2], found[-1], here):
            found.pop()
        found.append(here)
    return found


class Svg:
    """A drawing as it grows."""

    def __init__(self, height, title, description):
        self.parts = ['<svg viewBox="0 0 %d %d" role="img" class="plot">' % (WIDTH, height),
                      "<title>%s</title>" % escape(title),
                      "<desc>%s</desc>" % escape(description)]

    def add(self, tag, inner="", title="", **attributes):
        words = "".join(' %s="%s"' % (key.rstrip("_").replace("_", "-"),
                                      escape(short(value) if isinstance(value, float)
                                             else str(value)))
                        for key, value in attributes.items())
        if title:
            inner = "<title>%s</title>%s" % (escape(title), inner)
        self.parts.append("<%s%s>%s</%s>" % (tag, words, inner, tag) if inner
                          else "<%s%s/>" % (tag, words))

    def rect(self, x, y, width, height, kind, title=""):
        self.add("rect", title=title, x=float(x), y=float(y), width=float(max(width, 0)),
                 height=float(max(height, 0)), class_=kind)

    def line(self, x1, y1, x2, y2, kind, title=""):
        self.add("line", title=title, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2),
                 class_=kind)

    def marked(self, points, kind, title=""):
        """A line that stands out from whatever lies below it."""
        self.path(points, "halo")
        self.path(points, kind, title)

    def text(self, x, y, words, kind="", anchor="start"):
        self.add("text", escape(words), x=float(x), y=float(y), text_anchor=anchor,
                 **({"class_": kind} if kind else {}))

    def path(self, points, kind, title="", close=False):
        words = "M" + "L".join("%s %s" % (short(x), short(y)) for x, y in corners(points))
        self.add("path", title=title, d=words + ("Z" if close else ""), class_=kind)

    def done(self):
        return "\n".join(self.parts + ["</svg>"])


class Scale:
    """The y axis: bytes from 0 to `most`."""

    def __init__(self, svg, top, bottom, most):
        self.top, self.bottom = top, bottom
        step = 10 ** len(str(int(max(most, 1)))) / 100.0
        while most / step > 6:
            step *= 2 if str(step)[0] in "15" else 2.5
        self.most = step * (int(most / step) + 1)
        ticks = int(round(self.most / step))
        unit, word = (1e6, "MB") if most >= 1e6 else (1e3, "kB")
        for i in range(ticks + 1):
            value = i * step
            svg.line(LEFT, self.y(value), WIDTH - RIGHT, self.y(value), "grid" if i else "axis")
            svg.text(LEFT - 6, self.y(value) + 4, "%g" % round(value / unit, 3), "tick", "end")
        svg.text(LEFT - 6, top - 12, word, "tick", "end")

    def y(self, value):
        return self.bottom - (self.bottom - self.top) * value / self.most


def legend(svg, y, entries):
    """(class, words): a swatch each; a class that begins with line- gives a piece of line."""
    x = float(LEFT)
    for kind, words in entries:
        if kind.startswith("line-"):
            svg.line(x, y - 4, x + 22, y - 4, kind)
        else:
            svg.rect(x, y - 10, 22, 12, kind)
        svg.text(x + 28, y, words, "small")
        x += 28 + 6.3 * len(words) + 22


# ---- Memory over one step ----

class Course:
    """One rank's step, cut at its marks: what is drawn, without where."""

    def __init__(self, trace, rank, step):
        self.marks = []       # (mark, unit)
        self.parts = [[]]     # between two marks: levels after each allocation or free
        levels = trace.levels(rank, step)
        self.first = levels[0]
        for row, level in zip(trace.rows(rank, step), levels[1:]):
            if row[0] in "+-":
                self.parts[-1].append(level)
            elif len(row) == 2:
                self.marks.append(row)
                self.parts.append([])

    def place(self, edges):
        """[(x, level)] as corners of steps, where the parts lie between the edges."""
        level, corners = self.first, [(edges[0], self.first)]
        for part, left, right in zip(self.parts, edges, edges[1:]):
            for i, after in enumerate(part):
                x = left + (right - left) * (i + 1) / (len(part) + 1)
                corners += [(x, level), (x, after)]
                level = after
            corners.append((right, level))
        return corners


def edges_of(course, other, left, right):
    """Where each part begins and ends: as wide as it has operations. The optimizer, which mostly
    has none, still gets room for its name."""
    widths = []
    for i, part in enumerate(course.parts):
        most = max(len(part), len(other.parts[i]) if other else 0)
        widths.append(most + 1.0)
    total = sum(widths)
    for i, mark in enumerate(course.marks):
        if mark[0] == "o":
            widths[i] += 0.08 * total
    scale, edges = (right - left) / sum(widths), [float(left)]
    for width in widths:
        edges.append(edges[-1] + width * scale)
    return edges


def phases(course, edges):
    """(name, left, right), from the marks."""
    begin = next((edges[i + 1] for i, mark in enumerate(course.marks) if mark[0] == "B"), None)
    end = next((edges[i + 1] for i, mark in reversed(list(enumerate(course.marks)))
                if mark[0] == "f"), begin)
    stop = next((edges[i + 1] for i, mark in enumerate(course.marks) if mark[0] == "O"), edges[-1])
    if end is None:
        return [("step", edges[0], edges[-1])]
    return [("forward", edges[0], end), ("loss and backward", end, stop),
            ("optimizer", stop, edges[-1])]


def draw_units(svg, trace, course, edges, y):
    """A bar below the axis for each pass of a block."""
    open_ = {}
    for i, (mark, unit) in enumerate(course.marks):
        if unit < 0 or unit == len(trace.units) - 1:
            continue
        if mark in "FB":
            open_[unit] = edges[i + 1]
        elif unit in open_:
            left, right = open_.pop(unit), edges[i + 1]
            name = trace.units[unit].name
            svg.rect(left, y, right - left, 16, "unit",
                     "%s of %s" % ("forward" if mark == "f" else "backward", name))
            svg.text((left + right) / 2, y + 12, name, "small", "middle")


def hover_parts(svg, trace, course, edges, top, bottom):
    """What is live between two marks, to be pointed at."""
    last = course.first
    for i, part in enumerate(course.parts):
        highest = max([last] + part, key=sum)
        last = part[-1] if part else last
        before = course.marks[i - 1] if i else ("", -1)
        after = course.marks[i] if i < len(course.marks) else ("", -1)
        where = part_name(trace, before, after)
        svg.rect(edges[i], top, edges[i + 1] - edges[i], bottom - top, "hover",
                 "%s: at most %s\n%s" % (where, exact(sum(highest)), "\n".join(
                     "%s: %s" % (words, exact(value))
                     for (_, words), value in zip(KINDS, highest))))


def part_name(trace, before, after):
    """Where a part between two marks is, in words."""
    words = {"F": "forward", "B": "backward"}

    def name(mark):
        return trace.units[mark[1]].name if mark[1] >= 0 else "the step"
    if before[0] == "O":
        return "optimizer"
    if before[0] in words and after[0] == before[0].lower() and after[1] == before[1]:
        return "%s of %s" % (words[before[0]], name(before))
    if after[0] in words:
        return "hooks before the %s of %s" % (words[after[0]], name(after))
    if before[0] in "fb" and before[0]:
        return "after the %s of %s" % (words[before[0].upper()], name(before))
    return "the step's beginning or end"


def stacked(svg, corners, scale):
    """The areas, one on the other."""
    below = [0] * len(corners)
    for number, (kind, words) in enumerate(KINDS):
        above = [low + level[number] for low, (_, level) in zip(below, corners)]
        points = [(x, scale.y(high)) for (x, _), high in zip(corners, above)]
        points += [(x, scale.y(low)) for (x, _), low in zip(reversed(corners), reversed(below))]
        if above != below:
            svg.path(points, "k-" + kind, words, close=True)
        below = above


def memory(trace, reference=None, rank=0):
    """What one rank holds in the course of the last step."""
    step, top, bottom = trace.steps - 1, 44, 300
    course = Course(trace, rank, step)
    other = Course(reference, rank, min(step, reference.steps - 1)) if reference else None
    if other and other.marks != course.marks:
        other = None
    svg = Svg(398, "Memory of rank %d in step %d" % (rank, step + 1),
              "Stacked areas of live bytes in the order of operations; the highest point is %s."
              % exact(max(sum(level) for level in trace.levels(rank, step))))
    edges = edges_of(course, other, LEFT, WIDTH - RIGHT)
    corners = course.place(edges)
    kept = trace.theory_kept()
    bounds = [kept + trace.theory_whole(False), kept + trace.theory_whole(True)]
    highest = [sum(level) for _, level in corners] + bounds
    highest += [sum(level) for _, level in other.place(edges)] if other else []
    areas = phases(course, edges)
    for i, (_, left, right) in enumerate(areas):
        svg.rect(left, top, right - left, bottom - top, "phase%d" % (i % 2))
    scale = Scale(svg, top, bottom, max(highest))
    stacked(svg, corners, scale)
    for words, left, right in areas:
        svg.text((left + right) / 2, top - 8, words, "small", "middle")
    if other:
        svg.marked([(x, scale.y(sum(level))) for x, level in other.place(edges)], "line-ref",
                   "the reference")
    draw_units(svg, trace, course, edges, bottom + 6)
    svg.marked([(LEFT, scale.y(kept)), (WIDTH - RIGHT, scale.y(kept))], "line-theory",
               "16 · padded / W = %s" % exact(kept))
    for (_, left, right), bound in zip(areas, bounds):
        svg.marked([(left, scale.y(bound)), (right, scale.y(bound))], "line-bound",
                   "shards, the root and two blocks%s: %s" % (
                       ", with gradients" if bound == bounds[1] else "", exact(bound)))
    hover_parts(svg, trace, course, edges, top, bottom)
    svg.text((LEFT + WIDTH) / 2, bottom + 38, "operations in the order in which they were queued; "
             "bars: the forward or backward of a block", "small", "middle")
    legend(svg, 366, [("k-" + kind, words) for kind, words in KINDS])
    legend(svg, 390, [("line-bound", "shards, the root and two blocks"),
                      ("line-theory", "16 · padded / W")] +
           ([("line-ref", "reference")] if other else []))
    return svg.done()


# ---- Peaks ----

def peaks(trace, reference=None):
    """The highest level of every rank in every step."""
    top, bottom = 30, 230
    svg = Svg(300, "Peak memory per step and rank",
              "; ".join("step %d: at most %s" % (step + 1, exact(max(
                  trace.table[rank, step].peak for rank in range(trace.world))))
                  for step in range(trace.steps)))
    every = [trace.table[place].peak for place in trace.table]
    if reference:
        every += [reference.table[place].peak for place in reference.table]
    scale = Scale(svg, top, bottom, max(every + [trace.theory_kept()]))
    group = (WIDTH - RIGHT - LEFT) / trace.steps
    bar = min(48.0, group * 0.8 / trace.world)
    for step in range(trace.steps):
        begin = LEFT + group * step + (group - bar * trace.world) / 2
        for rank in range(trace.world):
            draw_peak(svg, scale, trace, (rank, step), begin + bar * rank, bar)
            if reference and (rank, step) in reference.table:
                y = scale.y(reference.table[rank, step].peak)
                svg.marked([(begin + bar * rank + 3, y), (begin + bar * (rank + 1) - 3, y)],
                           "line-ref",
                           "the reference: %s" % exact(reference.table[rank, step].peak))
            svg.text(begin + bar * (rank + 0.5), bottom + 14, str(rank), "tick", "middle")
        svg.text(LEFT + group * (step + 0.5), bottom + 32, "rank, step %d" % (step + 1), "small",
                 "middle")
    legend(svg, 294, [("k-" + kind, words) for kind, words in KINDS] +
           ([("line-ref", "reference")] if reference else []))
    return svg.done()


def draw_peak(svg, scale, trace, place, x, width):
    level = max(trace.levels(*place), key=sum)
    below = 0
    for (kind, words), value in zip(KINDS, level):
        svg.rect(x + 3, scale.y(below + value), width - 6, scale.y(below) - scale.y(below + value),
                 "k-" + kind, "rank %d, step %d, %s: %s of %s" % (
                     place[0], place[1] + 1, words, exact(value), exact(sum(level))))
        below += value


# ---- Communication ----

def traffic(trace, reference=None, rank=0):
    """Bytes that a rank sends in each step, by collective."""
    top, bottom = 30, 250
    svg = Svg(316, "Bytes that rank %d sends per step" % rank,
              "; ".join("step %d: %s" % (step + 1, exact(sum(
                  sent for _, sent in trace.sent(rank, step).values())))
                  for step in range(trace.steps)))
    pairs = [("yours", trace)] + ([("reference", reference)] if reference else [])
    totals = [sum(sent for _, sent in each.sent(rank, step).values())
              for _, each in pairs for step in range(each.steps)]
    scale = Scale(svg, top, bottom, max(totals + [trace.theory_sent(3)]))
    group, bar = (WIDTH - MARGIN - LEFT) / trace.steps, 76.0
    kinds = []
    for step in range(trace.steps):
        begin = LEFT + group * (step + 0.5) - bar * len(pairs) / 2
        for number, (words, each) in enumerate(pairs):
            if step >= each.steps:
                continue
            draw_sent(svg, scale, each.sent(rank, step), begin + bar * number, bar, words, kinds)
            svg.text(begin + bar * (number + 0.5), bottom + 14, words, "tick", "middle")
        svg.text(LEFT + group * (step + 0.5), bottom + 32, "step %d" % (step + 1), "small",
                 "middle")
    for times in (3, 2):
        value = trace.theory_sent(times)
        words = "%d · (W-1)/W · padded" % times
        svg.marked([(LEFT, scale.y(value)), (WIDTH - RIGHT, scale.y(value))], "line-theory",
                   "%s = %s" % (words, exact(value)))
        svg.text(WIDTH - RIGHT - 2, scale.y(value) - 5, words, "tick", "end")
    legend(svg, 310, [("k-sent%d" % COLLECTIVES.index(kind), kind) for kind in kinds])
    return svg.done()


def draw_sent(svg, scale, sent, x, width, words, kinds):
    below = 0
    for kind in COLLECTIVES:
        calls, value = sent.get(kind, (0, 0))
        if not calls:
            continue
        if kind not in kinds:
            kinds.append(kind)
        svg.rect(x + 6, scale.y(below + value), width - 12,
                 scale.y(below) - scale.y(below + value), "k-sent%d" % COLLECTIVES.index(kind),
                 "%s: %s in %d calls, %s" % (words, kind, calls, exact(value)))
        below += value
