"""What `make bench` makes of its figures: their spread, whether a bound is met, whether something
became slower since the last record of the same machine.

A figure is a list with a number of each round; the rounds are interleaved, so the ratio of two
figures is that of each round. A claim is about the median of many rounds, and counts only where the
spread of what is known of that is smaller than the margin, which is how far it is from the bound.

A record is what a results page keeps for programs, as JSON in a comment at its end:

    {"format": 1, "when": "2026-11-22T22:40:00Z", "level": "quick", "commit": …, "loaded": false,
     "machine": {"cpu": …, "cores": 2, "compiler": …},
     "figures": {NAME: {"unit": "s cpu", "min": …, "median": …, "max": …}}}

Interface: Spread, ratios, known, Claim; embed, read_record, last_record, regressions.
"""

import glob
import json
import math
import os
import re
import statistics
from dataclasses import dataclass

MARK = "bench record"
FORMAT = 1
SLOWER = 1.05    # of the minima of CPU time: what is shown as a regression
CPU = "s cpu"    # the unit of the figures that are compared with an earlier record's
MET, MISSED, UNCERTAIN = "met", "missed", "not certain"
SURE = 0.93      # as sure as five rounds are that the median is between their smallest and largest


@dataclass(frozen=True)
class Spread:
    """The smallest, the median and the largest of some numbers."""
    least: float
    middle: float
    most: float

    @classmethod
    def of(cls, values):
        return cls(min(values), statistics.median(values), max(values))

    @property
    def width(self):
        return self.most - self.least


def ratios(above, below):
    """Of each round."""
    return [a / b for a, b in zip(above, below)]


def known(values):
    """Between which two of the rounds the median of many more lies (the interval of the sign test:
    a round is above that median as often as a coin shows heads). Of five rounds that is their
    smallest and largest, of 31 the 10th and the 22nd: more rounds make it narrower."""
    ordered, n, left_out = sorted(values), len(values), 0

    def outside(k):
        """How often the median has at most k rounds on one of its sides."""
        return 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n

    while 2 * (left_out + 1) < n and outside(left_out + 1) <= 1 - SURE:
        left_out += 1
    return Spread(ordered[left_out], statistics.median(ordered), ordered[n - 1 - left_out])


@dataclass(frozen=True)
class Claim:
    """A bound of a figure, such as a share of the floor that is at least 0.9."""
    what: str
    values: tuple          # of the rounds
    bound: float
    at_least: bool = False # else at most
    wall: bool = False     # of wall time, which means nothing on a loaded machine

    @property
    def spread(self):
        return Spread.of(self.values)

    @property
    def known(self):
        return known(self.values)

    def verdict(self, loaded):
        found = self.known
        margin = found.middle - self.bound if self.at_least else self.bound - found.middle
        if (self.wall and loaded) or len(self.values) < 2 or found.width >= abs(margin):
            return UNCERTAIN
        return MET if margin > 0 else MISSED

    def why(self, loaded):
        """In the words of a table."""
        verdict = self.verdict(loaded)
        if verdict != UNCERTAIN:
            return verdict
        if self.wall and loaded:
            return verdict + ": wall time on a loaded machine"
        if len(self.values) < 2:
            return verdict + ": one round has no spread"
        return verdict + ": the spread is larger than the margin"


# ---- Records ----

def embed(record):
    """A record as the text that ends a page: a line for each entry, and for each figure."""
    def line(name, value):
        return "%s: %s" % (json.dumps(name), json.dumps(value, sort_keys=True))
    figures = [line(*figure) for figure in sorted(record["figures"].items())]
    entries = [line(*entry) for entry in sorted(record.items()) if entry[0] != "figures"]
    text = "{%s,\n\"figures\": {\n%s}}" % (",\n".join(entries), ",\n".join(figures))
    return "<!-- %s\n%s\n-->\n" % (MARK, text.replace("--", "-\\u002d"))


def read_record(text):
    """The record of a page; None where it has none that can be read."""
    found = re.search(r"<!-- %s\n(.*?)\n-->" % MARK, text, re.DOTALL)
    try:
        record = json.loads(found.group(1)) if found else None
        if record is None or record["format"] != FORMAT:
            return None
        str(record["when"]), dict(record["machine"])
        for figure in record["figures"].values():
            str(figure["unit"]), float(figure["min"])
        return record
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def last_record(folder, machine, say=lambda line: None):
    """(file name, record) of the last one of this machine in a folder; None: there is none."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*-bench*.md"))):
        try:
            with open(path, encoding="utf-8") as file:
                record = read_record(file.read())
        except (OSError, UnicodeDecodeError):
            record = None
        if record is None:
            say("%s has no record that can be read: nothing is compared with it" % path)
        elif record["machine"] == machine:
            found.append((record["when"], os.path.basename(path), record))
    return max(found, key=lambda entry: entry[:2])[1:] if found else None


@dataclass(frozen=True)
class Regression:
    """A figure that takes more CPU time than in an earlier record."""
    name: str
    before: float # seconds
    now: float

    @property
    def ratio(self):
        return self.now / self.before


def regressions(figures, earlier):
    """Which minima of CPU time are more than SLOWER of the earlier ones; the largest first."""
    found = []
    for name, figure in figures.items():
        before = earlier.get(name)
        if before is None or figure["unit"] != CPU or before["unit"] != CPU or before["min"] <= 0:
            continue
        if figure["min"] > SLOWER * before["min"]:
            found.append(Regression(name, before["min"], figure["min"]))
    return sorted(found, key=lambda one: (-one.ratio, one.name))
