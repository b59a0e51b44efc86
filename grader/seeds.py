"""The seed that the suites draw shapes and worlds from (tests/support/draw.h).

One for everything that a program runs: SEED in the environment, which `make … SEED=8812` sets, or
one drawn again. It goes on to the tests by the environment.

Interface: choose() -> the seed, and SEED is set to it; is_seed(value); BadSeed.
"""

import os
import secrets

MOST = (1 << 64) - 1
MOST_DRAWN = 10 ** 9 # people type it


class BadSeed(Exception):
    """SEED is no seed; the text says why."""


def is_seed(value):
    """Whether a value from a JSON document is a seed."""
    return type(value) is int and 0 <= value <= MOST


def choose():
    """The seed of this run."""
    text = os.environ.get("SEED", "")
    if not text:
        seed = secrets.randbelow(MOST_DRAWN)
    elif text.isascii() and text.isdigit() and len(text) < 40 and int(text) <= MOST:
        seed = int(text)
    else:
        raise BadSeed("SEED is %s: must be a whole number from 0 to %d" % (ascii(text[:40]), MOST))
    os.environ["SEED"] = str(seed)
    return seed
