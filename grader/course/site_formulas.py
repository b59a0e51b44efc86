"""Formulas of the pages, which are plain text there: found, and written as TeX for Sphinx
(site/conf.py makes MathML of it); those of site/memory.json as JavaScript, or worked out.

    time = (W - 1) * (α + shard bytes / b)

A block of a page is one where each of its lines is (what follows after two blanks explains it);
a cell of a table where all of it is. They multiply by *, by · or by nothing: `4N/W`, `2(W-1)/W *
N`. A letter is a variable, with digits or _s its index; small letters in a row are a word (`lr`,
`shard bytes`). Products without a sign bind more tightly than a quotient. memory.json writes every
product with *.

Interface: tex(text); block(lines) and cell(text): MyST's Markdown, None where they are no formula;
javascript(text), value(text, {name: number}).
"""

import math
import re
from fractions import Fraction

WORD = r"(?<![a-z])(?!(?:max|min|sqrt)\()[a-z]{2,}"
WORDS = re.compile("%s(?: %s)*" % (WORD, WORD))
GROUP = re.compile(r"(sqrt|max|min|Σ)?(?:\(([^()⌈⌉]*)\)|⌈([^()⌈⌉]*)⌉)")
OPERAND = r"((?:\0\d+\0|[\w.,^])(?: ?\0\d+\0|[\w.^])*)"
QUOTIENT = re.compile(OPERAND + r"\s*/\s*" + OPERAND)
SIGNS = (("*", r"\cdot "), ("·", r"\cdot "), ("−", "-"), ("α", r"\alpha "), ("Σ", r"\sum "),
         ("<=", r"\le "), ("≤", r"\le "), ("≥", r"\ge "), ("≈", r"\approx "))
TOKEN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|[a-z]{2,}|[A-Za-zα-ωΣ](?:\d+|_\w)?|<=|\+=|"
                   r"[-−+*·/^=<>≤≥≈()⌈⌉,\s]")
NO_FORMULA = re.compile(r"\d[xX][0-9A-Fa-f]|[A-Z]{3}|[A-Za-z]\.|==|[-\w]{3,}=\S|->|--|\.{2}|"
                        r"\d [kKMGT]?i?B\b|\d (ms|µs)\b|\d\d[KMGT]$|[A-Z]\d[A-Z]|\b(ZeRO|Do|No)\b|"
                        r"[a-z]{2,}\d|[\w)] \d|[a-z]{2,},|[a-z]{3,}-[a-z]{3,}")
DOES = re.compile(r"[*·/^=<>≤≥≈(⌈+]|\d[A-Za-z]|[A-Z]{2}|[a-z][A-Z]") # something to a variable
MOST = 200 # characters


# ---- As TeX ----

def tex(text):
    kept = []

    def keep(piece):
        kept.append(piece)
        return "\0%d\0" % (len(kept) - 1)

    def bare(operand):
        """Brackets around all of a numerator or denominator say nothing."""
        inside = re.fullmatch(r"\0(\d+)\0", operand)
        piece = kept[int(inside.group(1))] if inside else ""
        return piece[1:-1] if piece.startswith("(") else operand

    def quotients(piece):
        while QUOTIENT.search(piece):
            piece = QUOTIENT.sub(lambda found: keep(r"\frac{%s}{%s}" % (
                bare(found.group(1)), bare(found.group(2)))), piece, count=1)
        return piece

    def group(found):
        name, inner, rounded = found.groups()
        if rounded is not None:
            return keep(r"\lceil %s \rceil" % quotients(rounded))
        if name == "sqrt":
            return keep(r"\sqrt{%s}" % quotients(inner))
        return (keep("\\" + name if name != "Σ" else name) if name else "") + \
            keep("(%s)" % quotients(inner))

    text = WORDS.sub(lambda found: keep(r"\;\text{%s}\;" % found.group()), text)
    while GROUP.search(text):
        text = GROUP.sub(group, text)
    text = quotients(text)
    def expanded(found):
        piece = kept[int(found.group(1))]
        high = any(kept[int(inner)].startswith(r"\frac")
                   for inner in re.findall("\0(\\d+)\0", piece))
        return r"\left(%s\right)" % piece[1:-1] if high and piece[0] == "(" else piece

    while "\0" in text:
        text = re.sub("\0(\\d+)\0", expanded, text)
    text = re.sub(r"\\;(?=\s*([-−+=<>)}*·,]|$))", "", text) # a word's blanks, beside a sign
    text = re.sub(r"(^|[-−+=<>({*·])(\s*)\\;", r"\1\2", text)
    text = re.sub(r"(?<![A-Za-z\\])([A-Za-z])(\d+)", r"\1_{\2}", text)
    for sign, command in SIGNS:
        text = text.replace(sign, command)
    return text


# ---- As a program ----

def program(text, *signs):
    """The formula with what another language calls its signs."""
    for old, new in zip(("⌈", "⌉", "^"), signs):
        text = text.replace(old, new)
    return text


def javascript(text):
    return re.sub(r"\b(max|min)\(", r"Math.\1(", program(text, "Math.ceil(", ")", "**"))


def value(text, names):
    """What the formula gives, exactly, where names are whole numbers."""
    functions = {"max": max, "min": min, "ceil": math.ceil, "__builtins__": {}}
    return eval(program(text, "ceil(", ")", "**"), functions, # of the kit's own file
                {name: Fraction(number) for name, number in names.items()})


# ---- On pages ----

def is_formula(text, words):
    return len(text) <= MOST and bool(
        not TOKEN.sub("", text) and not NO_FORMULA.search(text) and DOES.search(text)
        and re.search(r"(?<![a-z])[A-Za-zα-ω](?![a-z])", text) and (words or not WORDS.search(text))
        and text.count("(") == text.count(")") and text.count("⌈") == text.count("⌉"))


def block(lines):
    """An indented block; None where a line is no formula."""
    rows = []
    for line in filter(str.strip, lines):
        text, _, more = line.strip().partition("  ")
        if not is_formula(text, True):
            return None
        rows.append(tex(text) + (r" \qquad \text{%s}" % more.strip() if more.strip() else ""))
    return "\n\n".join("```{math}\n%s\n```" % row for row in rows) if rows else None


def cell(text):
    """The cell of a table; None where it is no formula."""
    return "{math}`%s`" % tex(text.strip()) if is_formula(text.strip(), False) else None
