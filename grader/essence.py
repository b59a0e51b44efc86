"""What matters of a test's message, where all of it is more than a reader can see at once.

Interface: essence(row, task, again) -> text of 69 columns.
"""

import re
import textwrap

import cause
from alike import short_message

WORDS_LINES = 8         # lines of a test's own words that are shown
COLUMNS = 69            # of a message, which stands 11 columns in: together 80


def diagnosis(report, lines):
    """Of a report's lines those that say what is wrong: they follow what a GPU would do, up to what
    is to be read."""
    def part_of(line, field):
        return line.strip() and (" ".join(line.split())
                                 in " ".join((report.get(field) or "").split()))
    hardware = [at for at, line in enumerate(lines) if part_of(line, "hardware")]
    asked = [at for at, line in enumerate(lines) if any(
        part_of(sentence, "question") for sentence in re.split(r"(?<=[.?]) ", line))]
    end = next((at for at, line in enumerate(lines) if line.strip().startswith("Read:")),
               len(lines))
    if not asked:
        return []
    begin = hardware[-1] + 1 if hardware and hardware[-1] < asked[0] else asked[0]
    return lines[begin:max(end, asked[-1] + 1)]


def essence(row, task, again):
    """What matters of a message: its first lines; of a report also the first call in the student's
    file and what is wrong there; and the likely cause. again: the command that grades the task."""
    words, likely, text = cause.split(short_message(row["message"]))
    lines = words.strip().splitlines()
    cut = len(lines) > WORDS_LINES
    shown = lines[:WORDS_LINES]
    if text:
        told = [line for line in text.splitlines() if not line.startswith("(drawn: ")]
        calls = [line for line in told[1:] for place in [cause.PLACE.search(line)]
                 if place and task.named(place.group("file"))] or told[1:2]
        calls.sort(key=lambda line: " called at " not in line) # a call before an allocation
        # A report comes after the head "rank 0 of 2: ", on its line.
        shown = shown[:-1] + [" ".join((shown[-1:] or [""]) + told[:1])]
        shown += calls[:1] + diagnosis(cause.first_report(row), told)
        cut = True
    if likely:
        shown.append("Likely cause: " + likely.partition("\n")[0].strip())
    if cut:
        shown.append("… (all of it: %s | cat)" % again)
    return "\n".join(part for line in shown for part in textwrap.wrap(
        line, COLUMNS, break_long_words=False, break_on_hyphens=False,
        subsequent_indent=line[:len(line) - len(line.lstrip())]))
