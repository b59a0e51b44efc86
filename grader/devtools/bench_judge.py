"""What `make bench` makes of its figures: their spread, and whether a bound is met.

A figure is a list with a number of each round; the rounds are interleaved, so the ratio of two
figures is that of each round. A claim is about the median of many rounds, and counts only where the
spread of what is known of that is smaller than the margin, which is how far it is from the bound.

Interface: Spread, ratios, known, Claim.
"""

import math
import statistics
from dataclasses import dataclass

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

    @property
    def spread(self):
        return Spread.of(self.values)

    @property
    def known(self):
        return known(self.values)

    def verdict(self):
        found = self.known
        margin = found.middle - self.bound if self.at_least else self.bound - found.middle
        if len(self.values) < 2 or found.width >= abs(margin):
            return UNCERTAIN
        return MET if margin > 0 else MISSED

    def why(self):
        """In the words of a table."""
        verdict = self.verdict()
        if verdict != UNCERTAIN:
            return verdict
        if len(self.values) < 2:
            return verdict + ": one round has no spread"
        return verdict + ": the spread is larger than the margin"
