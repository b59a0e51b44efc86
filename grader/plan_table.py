"""Plans side by side: COMPARE="strategy=zero2,zero3 recompute=no,blocks" plans each combination of
the values, with the other settings as they are, and prints a table, the fastest that fits marked.

Interface: main(program, settings) -> exit status; combinations(text) -> list of settings.
"""

import itertools

import layout
import sweep

MOST = 64 # plans of a table
OWN = ("JSON", "TIMELINE", "FIT", "SWEEP", "SVG", "COMPARE")


def combinations(text):
    """Each choice of one value for each name, as a dict; the last name's values change first."""
    axes = {}
    for word in text.split():
        name, equals, values = word.partition("=")
        name, values = name.upper(), values.split(",")
        if not equals or not name or not all(values):
            raise sweep.BadSweep("COMPARE: \"%s\" is not name=value,value, as strategy=zero2,zero3"
                                 % word[:60])
        if name in OWN or name in axes:
            raise sweep.BadSweep("COMPARE: %s %s" % (
                name, "is given twice" if name in axes else "is nothing to compare"))
        axes[name] = values
    found = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    if not 2 <= len(found) <= MOST:
        raise sweep.BadSweep("COMPARE=\"%s\" has %d plans: must be 2 to %d"
                             % (text[:60], len(found) if axes else 0, MOST))
    return found


def row(found):
    """(cells, seconds of a token on a GPU or None where it does not fit)"""
    point = sweep.point_of("", found)
    memory = max(rank["peak"] for rank in found["ranks"]) / (1 << 30)
    cells = ["%.1f" % memory, "%.1f" % (1e3 * point.seconds), "%.0f" % point.tokens,
             "%.1f %%" % (100 * point.mfu), "%.1f %%" % (100 * point.exposed)]
    return cells, 1 / point.tokens if point.fits else None


def print_table(names, rows):
    """rows: (values, cells, time, what is wrong)"""
    head = [name.lower() for name in names] + ["GiB", "ms", "tokens/s", "MFU", "exposed"]
    table = [head] + [values + (cells or ["-"] * 5) for values, cells, _, _ in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    best = min((time for _, _, time, _ in rows if time), default=None)
    notes = [""] + [wrong or ("does not fit" if not time else "fastest" if time == best else "")
                    for _, _, time, wrong in rows]
    for line, note in zip(table, notes):
        left = [cell.ljust(width) for cell, width in zip(line[:len(names)], widths)]
        right = [cell.rjust(width) for cell, width in zip(line[len(names):], widths[len(names):])]
        print("  ".join(left + right + [note]).rstrip())


def main(program, settings):
    """A table of the plans; exit status."""
    settings = dict(setting.partition("=")[::2] for setting in settings)
    rows, refused = [], []
    try:
        chosen = combinations(settings.pop("COMPARE"))
        for name in OWN + tuple(chosen[0]):
            if name in settings:
                raise sweep.BadSweep("COMPARE cannot be combined with %s" % name)
        for choice in chosen:
            try:
                cells, time = row(sweep.plan(program, dict(settings, **choice)))
                rows.append((list(choice.values()), cells, time, ""))
            except sweep.TooLarge:
                rows.append((list(choice.values()), None, None, "does not fit, by terabytes"))
            except sweep.BadSweep as problem:
                refused.append("(%d) %s" % (len(refused) + 1, problem))
                rows.append((list(choice.values()), None, None, "(%d)" % len(refused)))
    except sweep.BadSweep as problem:
        layout.tell("plan: %s" % problem)
        return 2
    print_table(list(chosen[0]), rows)
    for line in refused:
        print(line)
    return 2 if len(refused) == len(rows) else 0
