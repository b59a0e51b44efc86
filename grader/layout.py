"""Texts for a terminal: nothing in them commands it, no line is wider than it, and none looks like
the grader's score. Whatever comes from outside (compilers, programs, names of files) passes safe().

A message is prose, source lines and tables. Prose is filled to the width; simgpu breaks its
sentences where it names a place, so indented lines that go on in the middle of a sentence are
joined first. A source line ("   64 | free(x);") keeps its shape and is cut at the width. Lines with
gaps in them, which are tables, keep theirs as long as they fit.

Interface: width_of(stream); safe(text, encoding); tell(text, stream); fill(text, width, indent,
close) -> lines; cut(text, width); points(value).
"""

import re
import shutil
import sys
import textwrap

LEAST, MOST = 50, 100 # columns, however narrow or wide the terminal is
PLAIN = 80            # columns where there is no terminal

# What a terminal would take for a command, and what turns the direction of a line.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
                     r"\ud800-\udfff\ufeff]")

# How the grader's last line begins, which programs and people read.
SCORE = re.compile(r"^([^\w\n]*)(score)(?=[^\w\n]*:)", re.IGNORECASE | re.MULTILINE)

SOURCE = re.compile(r"\s*\d+ \| ")
TABLE = re.compile(r"\S {2,}\S")
GOES_ON = re.compile(r"[a-z(]") # how a line begins that goes on in the middle of a sentence


def width_of(stream):
    """Columns to fill: the terminal's, or a fixed number where the stream is none."""
    if not stream.isatty():
        return PLAIN
    return min(max(shutil.get_terminal_size((PLAIN, 24)).columns, LEAST), MOST)


def safe(text, encoding=None):
    """The text with no character that commands a terminal or that the encoding does not have, and
    no line that begins as the score does."""
    text = SCORE.sub(r'\1"\2"', CONTROL.sub("?", text))
    return text.encode(encoding, "replace").decode(encoding) if encoding else text


def tell(text, stream=None):
    """Prints a text that may hold what others have said; on stderr, where no stream is named."""
    stream = stream or sys.stderr
    print(safe(text, getattr(stream, "encoding", None)), file=stream, flush=True)


def cut(text, width):
    """The text, or its beginning and a sign that there was more."""
    return text if len(text) <= width else text[:width - 1].rstrip() + "…"


def points(value):
    """A number of points with at most two decimals and no trailing zeros."""
    return ("%.2f" % value).rstrip("0").rstrip(".")


def margin(line):
    return len(line) - len(line.lstrip(" "))


def keeps_its_shape(line):
    return bool(SOURCE.match(line) or TABLE.search(line))


def goes_on(line, before, close):
    """Whether a line belongs to the paragraph of the line before it: it goes on with its sentence;
    or, in a close paragraph, it is a sentence that neither asks nor says what to read."""
    if keeps_its_shape(line) or keeps_its_shape(before):
        return False
    if not before.endswith((".", "?", "!", ":")):
        return bool(GOES_ON.match(line.strip()))
    return close and before.endswith(".") and not line.endswith("?") \
        and not line.strip().startswith("Read: ")


def joined(text, close):
    """The lines of the text, those joined that belong to one paragraph. Lines that are not indented
    stay as they are. What comes after the last source line may be one close paragraph."""
    lines = []
    given = text.expandtabs(4).splitlines()
    facts = max((i for i, line in enumerate(given) if SOURCE.match(line)), default=len(given))
    for i, line in enumerate(given):
        before = lines[-1] if lines else ""
        indented = margin(line) and margin(line) == margin(before)
        if indented and goes_on(line, before, close and i > facts):
            lines[-1] = "%s %s" % (before, line.strip())
        else:
            lines.append(line.rstrip())
    return lines or [""]


def fill(text, width, indent=0, close=False):
    """The text as lines of at most `width` columns, `indent` of them empty. A word that is longer,
    such as a path, is not broken. `close`: in fewer lines, with longer paragraphs."""
    filled, room = [], width - indent
    for line in joined(text, close):
        if SOURCE.match(line):
            parts = [cut(line, room)]
        elif len(line) <= room:
            parts = [line]
        else:
            parts = textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False,
                                  subsequent_indent=" " * margin(line)) or [""]
        filled += [(" " * indent + part).rstrip() for part in parts]
    return filled
