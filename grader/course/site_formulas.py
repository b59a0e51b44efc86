"""Formulas of the pages, which are plain text: read once, written as MathML, as JavaScript, or
worked out.

    time = (W - 1) * (α + shard bytes / b)

A block of a page is one where each of its lines is (what follows after two blanks explains it);
a cell of a table where all of it is. They multiply by *, by · or by nothing: `4N/W`, `2(W-1)/W *
N`. A letter is a variable, with digits or _s its index; letters in a row are variables (`VC`),
small ones a word (`lr`, `shard bytes`). Products without a sign bind more tightly than a
quotient.

Interface: parse(text, words) -> node, NotAFormula; mathml(node, display), javascript(node),
value(node, {name: number}); block(lines) and cell(text): MathML, or None where they are no
formula.
"""

import math
import re
from fractions import Fraction
from html import escape

FUNCTIONS = ("max", "min", "sqrt", "Σ")
TOKEN = re.compile(r"\s*(?:(\d+(?:,\d{3})*(?:\.\d+)?)|([a-z]{2,}|[A-Za-zα-ωΣ](?:\d+|_\w)?)|"
                   r"(<=|\+=|[-−+*·/^=<>≤≥≈(){}⌈⌉,]))")
RELATIONS = {"=": "=", "+=": "+=", "<": "<", ">": ">", "<=": "≤", "≤": "≤", "≥": "≥", "≈": "≈"}
NO_FORMULA = re.compile(r"\d[xX][0-9A-Fa-f]|[A-Z]{3}|[A-Za-z]\.|==|[-\w]{3,}=\S|->|--|\.{2}|"
                        r"\d [kKMGT]?i?B\b|\d (ms|µs)\b|\d\d[KMGT]$|[A-Z]\d[A-Z]|\b(ZeRO|Do|No)\b")
MOST = 200 # characters


class NotAFormula(Exception):
    """The text is none; the reason says where it ends to be one."""


# ---- Reading ----
# A node is a tuple: ("number", text), ("name", text), ("word", text), ("call", name, [node]),
# ("minus", node), ("sum", [(sign, node)]), ("product", [node], signs), ("over", node, node),
# ("power", node, node), ("group", "(" or "⌈", node), ("relations", [node, sign, node …]).

def tokens(text):
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise NotAFormula("what is %r?" % text[at:at + 10])
        number, name, sign = match.groups()
        kind = "number" if number else "name" if name else "sign"
        found.append((kind, number or name or sign))
        at = match.end()
    return found


class Reader:
    """Of one text."""

    def __init__(self, text, words):
        self.list = tokens(text) + [("end", "")]
        self.at = 0
        self.words = words # whether words are variables

    def next(self):
        return self.list[self.at]

    def take(self, *signs):
        kind, text = self.next()
        if kind == "sign" and text in signs:
            self.at += 1
            return text
        return None

    def want(self, sign):
        if not self.take(sign):
            raise NotAFormula("%r where %r is due" % (self.next()[1], sign))

    def relations(self):
        found = [self.sum()]
        while True:
            sign = self.take(*RELATIONS)
            if not sign:
                break
            found += [RELATIONS[sign], self.sum()]
        if self.next()[0] != "end":
            raise NotAFormula("what is %r?" % self.next()[1])
        return found[0] if len(found) == 1 else ("relations", found)

    def sum(self):
        parts = [("+", self.product())]
        while True:
            sign = self.take("+", "-", "−")
            if not sign:
                return parts[0][1] if len(parts) == 1 else ("sum", parts)
            parts.append(("+" if sign == "+" else "-", self.product()))

    def product(self):
        """Factors with signs between them; a quotient is of the factor before it."""
        factors = [self.tight()]
        while True:
            sign = self.take("*", "·", "/")
            if not sign:
                return factors[0] if len(factors) == 1 else ("product", factors, "·")
            if sign == "/":
                factors[-1] = ("over", factors[-1], self.tight())
            else:
                factors.append(self.tight())

    def tight(self):
        """Factors without a sign: 4N, 2(W-1), shard bytes."""
        factors = [self.power()]
        while self.next()[0] in ("number", "name") or self.next()[1] in ("(", "⌈"):
            if self.next()[0] == "number":
                raise NotAFormula("a number after another factor")
            factors.append(self.power())
        return factors[0] if len(factors) == 1 else ("product", factors, "")

    def power(self):
        base = self.atom()
        return ("power", base, self.atom()) if self.take("^") else base

    def atom(self):
        kind, text = self.next()
        if self.take("-", "−"):
            return ("minus", self.power())
        if self.take("("):
            inner = self.sum()
            self.want(")")
            return ("group", "(", inner)
        if self.take("⌈"):
            inner = self.sum()
            self.want("⌉")
            return ("group", "⌈", inner)
        if kind not in ("number", "name"):
            raise NotAFormula("%r where a quantity is due" % text)
        self.at += 1
        if kind == "number":
            return ("number", text)
        if text == "Σ":
            return ("call", text, [self.atom()])
        if text in FUNCTIONS and self.take("("):
            arguments = [self.sum()]
            while self.take(","):
                arguments.append(self.sum())
            self.want(")")
            return ("call", text, arguments)
        if len(text) > 1 and text.isalpha() and text.islower():
            if not self.words:
                raise NotAFormula("%r is a word" % text)
            return ("word", text)
        return ("name", text)


def parse(text, words=False):
    """words: whether there may be words."""
    if NO_FORMULA.search(text) or len(text) > MOST:
        raise NotAFormula("it looks like a command, or like code")
    return Reader(text, words).relations()


def parts(node):
    """The node and all below it."""
    yield node
    for child in node[1:]:
        for one in child if isinstance(child, list) else [child]:
            one = one[1] if isinstance(one, tuple) and one[0] in "+-" else one
            if isinstance(one, tuple):
                yield from parts(one)


# ---- Writing ----

def row(*inner):
    return "<mrow>%s</mrow>" % "".join(inner) if len(inner) != 1 else inner[0]


def bare(node):
    """Of a numerator or denominator: brackets around all of it say nothing."""
    return node[2] if node[0] == "group" and node[1] == "(" else node


def identifier(text):
    letter, index = text[0], text[1:].lstrip("_")
    if not index:
        return "<mi>%s</mi>" % letter
    return "<msub><mi>%s</mi><%s>%s</%s></msub>" % (
        (letter,) + (("mn", index, "mn") if index.isdigit() else ("mi", index, "mi")))


def operator(text, *attributes):
    return "<mo%s>%s</mo>" % ("".join(" " + each for each in attributes), escape(text))


def factors(nodes, sign):
    found = []
    for i, node in enumerate(nodes):
        words = "word" in (node[0], nodes[i - 1][0])
        if i and sign:
            found.append(operator(sign))
        elif i and words:
            found.append('<mspace width="0.3em"/>')
        found.append(content(node))
    return row(*found)


def content(node):
    """The node as MathML."""
    kind = node[0]
    if kind == "number":
        return "<mn>%s</mn>" % node[1]
    if kind == "name":
        return identifier(node[1])
    if kind == "word":
        return "<mtext>%s</mtext>" % node[1]
    if kind == "minus":
        return row(operator("−", 'form="prefix"'), content(node[1]))
    if kind == "sum":
        inner = [content(node[1][0][1])]
        for sign, part in node[1][1:]:
            inner += [operator("−" if sign == "-" else "+"), content(part)]
        return row(*inner)
    if kind == "product":
        return factors(node[1], node[2])
    if kind == "over":
        return "<mfrac>%s%s</mfrac>" % (content(bare(node[1])), content(bare(node[2])))
    if kind == "power":
        return "<msup>%s%s</msup>" % (content(node[1]), content(node[2]))
    if kind == "group":
        ends = "⌈⌉" if node[1] == "⌈" else "()"
        return row(operator(ends[0]), content(node[2]), operator(ends[1]))
    if kind == "call":
        return call(node)
    return row(*[operator(part) if isinstance(part, str) else content(part) for part in node[1]])


def call(node):
    name, arguments = node[1], [content(argument) for argument in node[2]]
    if name == "sqrt":
        return "<msqrt>%s</msqrt>" % arguments[0]
    if name == "Σ":
        return row(operator("∑"), arguments[0])
    inner = [operator(",") if i % 2 else arguments[i // 2] for i in range(2 * len(arguments) - 1)]
    return row("<mi>%s</mi>" % name, operator("("), *inner, operator(")"))


def mathml(node, text, display=False):
    """text: what a reader without MathML gets."""
    return '<math%s alttext="%s">%s</math>' % (' display="block"' if display else "",
                                               escape(text, quote=True), content(node))


def javascript(node):
    """An expression of the variables' names; indices are part of them."""
    kind = node[0]
    if kind == "number":
        return node[1].replace(",", "")
    if kind == "name":
        return node[1]
    if kind == "minus":
        return "-(%s)" % javascript(node[1])
    if kind == "sum":
        return "(%s)" % "".join("%s%s" % (sign if i else "", javascript(part))
                                for i, (sign, part) in enumerate(node[1]))
    if kind == "product":
        return "(%s)" % "*".join(javascript(part) for part in node[1])
    if kind == "over":
        return "(%s/%s)" % (javascript(node[1]), javascript(node[2]))
    if kind == "power":
        return "Math.pow(%s,%s)" % (javascript(node[1]), javascript(node[2]))
    if kind == "group":
        return ("Math.ceil(%s)" if node[1] == "⌈" else "(%s)") % javascript(node[2])
    if kind == "call" and node[1] != "Σ":
        return "Math.%s(%s)" % (node[1], ",".join(javascript(part) for part in node[2]))
    raise NotAFormula("%s is no expression" % kind)


def value(node, names):
    """What the formula gives, exactly, where names are whole numbers."""
    kind = node[0]
    if kind == "number":
        return Fraction(node[1].replace(",", ""))
    if kind == "name":
        return Fraction(names[node[1]])
    if kind == "minus":
        return -value(node[1], names)
    if kind == "sum":
        return sum(value(part, names) * (-1 if sign == "-" else 1) for sign, part in node[1])
    if kind == "product":
        return math.prod(value(part, names) for part in node[1])
    if kind == "over":
        return value(node[1], names) / value(node[2], names)
    if kind == "power":
        return value(node[1], names) ** value(node[2], names)
    if kind == "group":
        inner = value(node[2], names)
        return Fraction(math.ceil(inner)) if node[1] == "⌈" else inner
    if kind == "call" and node[1] in ("max", "min"):
        return {"max": max, "min": min}[node[1]](value(part, names) for part in node[2])
    raise NotAFormula("%s has no value" % kind)


# ---- On pages ----

def has_quantities(node):
    """A variable and something done to it: a word with a hyphen is no formula."""
    kinds = {part[0] for part in parts(node)}
    return "name" in kinds and kinds & {"relations", "over", "call", "product", "power", "sum"}


def block(lines):
    """An indented block as MathML, a line each; None where a line is no formula."""
    rows = []
    for line in lines:
        if not line.strip():
            continue
        text, _, more = line.strip().partition("  ")
        try:
            node = parse(text, words=True)
        except NotAFormula:
            return None
        if not has_quantities(node) or node[0] == "product" and not node[2]:
            return None
        more = '<span class="why">%s</span>' % escape(more.strip()) if more.strip() else ""
        rows.append("<div>%s%s</div>" % (mathml(node, text, True), more))
    return '<div class="formula">%s</div>' % "".join(rows) if rows else None


def cell(text):
    """The cell of a table as MathML; None where it is no formula."""
    try:
        node = parse(text.strip())
    except NotAFormula:
        return None
    if not has_quantities(node) or not {"relations", "over", "call", "product", "power"} & {
            part[0] for part in parts(node)}:
        return None
    return mathml(node, text.strip())
