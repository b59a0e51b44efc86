"""The functions, statements and tokens of a C file in the style of reference/*.c.

No full parser: it knows declarations, expressions, if, for, while, do, return, break and continue,
which is what the six files are written in. Anything else (switch, goto, a label) is a BadSource
with its line, so that nothing is passed over silently.

Interface: Source(text) -> .tokens, .functions; Function: .name, .result, .statements (all of them,
outer before inner); Statement: .kind, .first, .last (tokens), .head (tokens of the condition),
.bodies, .in_block, .in_loop; Source.close(i), .split(begin, end, ","), .cut(begin, end); BadSource.
"""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r'''
    (?P<blank>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fFlL]?|\d+[eE][+-]?\d+[fFlL]?)
  | (?P<integer>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=
           |[-+*/%&|^~!<>=?:;,.(){}\[\]])
''', re.VERBOSE | re.DOTALL | re.MULTILINE)

OPEN = {"(": ")", "[": "]", "{": "}"}
TYPES = {"int", "char", "float", "double", "bool", "void", "long", "unsigned", "size_t", "int32_t",
         "int64_t", "uint32_t", "uint64_t", "uint8_t", "uintptr_t"}
QUALIFIERS = {"const", "static", "struct", "enum", "volatile"}
UNKNOWN = {"switch", "goto", "case", "default", "asm"}


class BadSource(Exception):
    """The file holds something that this reader does not know; the text says where."""


@dataclass
class Token:
    kind: str
    text: str
    begin: int
    end: int
    line: int


@dataclass
class Statement:
    kind: str            # declaration, simple, return, jump, if, for, while, do, block
    first: int           # its first token and its last, both included
    last: int
    head: tuple = ()     # the tokens inside of the parentheses of if, for and while: [begin, end)
    bodies: list = field(default_factory=list)
    in_block: bool = True   # between braces, where a declaration may stand; else a loop's body, say
    in_loop: bool = False
    function: object = None


@dataclass
class Function:
    name: str
    result: str          # the type, as it is written
    begin: int           # the body's braces
    end: int
    head: int            # the first token of its head
    statements: list = field(default_factory=list)


class Source:
    def __init__(self, text):
        self.text = text
        self.tokens = self.read_tokens()
        self.pairs = self.find_pairs()
        self.functions = self.find_functions()

    def read_tokens(self):
        tokens, place, line = [], 0, 1
        while place < len(self.text):
            found = TOKEN.match(self.text, place)
            if not found:
                raise BadSource("line %d: not C: %s" % (line, self.text[place:place + 20]))
            if found.lastgroup != "blank":
                tokens.append(Token(found.lastgroup, found.group(), place, found.end(), line))
            line += found.group().count("\n")
            place = found.end()
        return tokens

    def find_pairs(self):
        pairs, stack = {}, []
        for i, token in enumerate(self.tokens):
            if token.kind != "mark":
                continue
            if token.text in OPEN:
                stack.append(i)
            elif token.text in OPEN.values():
                if not stack or OPEN[self.tokens[stack[-1]].text] != token.text:
                    raise BadSource("line %d: %s without its beginning" % (token.line, token.text))
                pairs[stack.pop()] = i
        if stack:
            raise BadSource("line %d: nothing closes %s" % (self.tokens[stack[-1]].line,
                                                            self.tokens[stack[-1]].text))
        return pairs

    def close(self, i):
        """The token that closes the one at i."""
        return self.pairs[i]

    def is_mark(self, i, *texts):
        return (0 <= i < len(self.tokens) and self.tokens[i].kind == "mark"
                and self.tokens[i].text in texts)

    def cut(self, begin, end):
        """The text of tokens [begin, end)."""
        return self.text[self.tokens[begin].begin:self.tokens[end - 1].end] if begin < end else ""

    def words(self, begin, end):
        """The same with one blank between tokens: what does not change when lines are broken."""
        return " ".join(token.text for token in self.tokens[begin:end])

    def split(self, begin, end, mark):
        """The parts of tokens [begin, end) between marks outside of any bracket: [(begin, end)]."""
        parts, i, start = [], begin, begin
        while i < end:
            if i in self.pairs:
                i = self.pairs[i]
            elif self.is_mark(i, mark):
                parts.append((start, i))
                start = i + 1
            i += 1
        if start < end or parts:
            parts.append((start, end))
        return parts

    def find_functions(self):
        functions, i, head = [], 0, 0
        while i < len(self.tokens):
            if self.is_mark(i, "{"):
                if self.is_mark(i - 1, ")"):
                    functions.append(self.read_function(head, i))
                i = self.close(i)
                if not self.is_mark(i + 1, ";", ","):
                    head = i + 1
            elif self.is_mark(i, ";"):
                head = i + 1
            elif self.is_mark(i, "("):
                i = self.close(i)
            i += 1
        return functions

    def read_function(self, head, begin):
        parameters = next(i for i in range(head, begin) if self.is_mark(i, "("))
        function = Function(self.tokens[parameters - 1].text,
                            self.words(head, parameters - 1).replace("static ", ""), begin,
                            self.close(begin), head)
        Reader(self, function).block(begin, False)
        function.statements.sort(key=lambda statement: (statement.first, -statement.last))
        return function


class Reader:
    """Reads the statements of one function."""

    def __init__(self, source, function):
        self.source = source
        self.function = function

    def block(self, i, in_loop):
        """The statements between the brace at i and its pair."""
        end, i = self.source.close(i), i + 1
        while i < end:
            i = self.statement(i, True, in_loop).last + 1

    def add(self, *values, **more):
        statement = Statement(*values, function=self.function, **more)
        self.function.statements.append(statement)
        return statement

    def statement(self, i, in_block, in_loop):
        source, token = self.source, self.source.tokens[i]
        where = {"in_block": in_block, "in_loop": in_loop}
        if token.text in UNKNOWN or (token.kind == "name" and source.is_mark(i + 1, ":")):
            raise BadSource("line %d: mutation knows no %s" % (token.line, token.text))
        if source.is_mark(i, "{"):
            self.block(i, in_loop)
            return self.add("block", i, source.close(i), **where)
        if token.text in ("if", "for", "while"):
            return self.headed(token.text, i, where)
        if token.text == "do":
            body = self.statement(i + 1, False, True)
            opened = body.last + 2
            return self.add("do", i, source.close(opened) + 1, (opened + 1, source.close(opened)),
                            [body], **where)
        end = i
        while not source.is_mark(end, ";"):
            end = source.close(end) + 1 if end in source.pairs else end + 1
        kind = {"return": "return", "break": "jump", "continue": "jump"}.get(
            token.text, "declaration" if self.is_declaration(i) else "simple")
        return self.add(kind, i, end, **where)

    def headed(self, kind, i, where):
        source = self.source
        closed = source.close(i + 1)
        bodies = [self.statement(closed + 1, False, where["in_loop"] or kind != "if")]
        if kind == "if" and bodies[0].last + 1 < len(source.tokens) and \
                source.tokens[bodies[0].last + 1].text == "else":
            bodies.append(self.statement(bodies[0].last + 2, False, where["in_loop"]))
        return self.add(kind, i, bodies[-1].last, (i + 2, closed), bodies, **where)

    def is_declaration(self, i):
        tokens = self.source.tokens
        if tokens[i].text in QUALIFIERS or tokens[i].text in TYPES:
            return True
        if tokens[i].kind != "name" or self.source.is_mark(i + 1, "("):
            return False
        i += 1
        while self.source.is_mark(i, "*"):
            i += 1
        return tokens[i].kind == "name"
