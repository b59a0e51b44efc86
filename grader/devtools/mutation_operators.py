"""What mutation by machine does to a C file: one small change at a time, everywhere it fits.

An operator is a function (source, statement) that yields changes: a change is a list of (begin,
end, new text), places in the file. Those on statements take the whole statement; those on
expressions the tokens that belong to the statement itself, and not to one inside of it: of an `if`
its condition, of a `for` its three parts.

A mutant's id is the file, the function, the operator, and a sum of the statement's words and of the
change: it stays the same while other lines are edited, and when lines are broken elsewhere.

Interface: OPERATORS {name: function}; mutants_of(file, text) -> [Mutant]; Mutant: .id, .file,
.function, .operator, .line, .text (of the whole file, with as many lines as before), .change() "old
=> new", .diff().
"""

import difflib
import hashlib
import re
from dataclasses import dataclass

from mutation_source import TYPES, Source

# Names of one kind, of which one may be taken for the other.
SIBLINGS = [
    ["compute_stream", "all_gather_stream", "reduce_scatter_stream"],
    ["sharded_param", "sharded_grad"], ["unsharded_param", "unsharded_grad"],
    ["shard", "replicate"], ["all_gather_state", "reduce_scatter_state"],
    ["iter_forward_root", "iter_backward_root"], ["beta1", "beta2"], ["least", "greatest"],
    ["numel", "padded", "shard_numel"], ["rank", "size"], ["rank", "world"],
    ["fsdp_all_gather", "fsdp_reduce_scatter"], ["all_gather", "reduce_scatter"],
    ["FLAT_SHARDED", "FLAT_UNSHARDING", "FLAT_UNSHARDED"],
    ["FSDP_IDLE", "FSDP_FORWARD", "FSDP_PRE_BACKWARD", "FSDP_POST_BACKWARD"],
    ["FSDP_RESHARD_AUTO", "FSDP_RESHARD_ALWAYS", "FSDP_RESHARD_NEVER"],
    ["ERR_ARGUMENT", "ERR_MEMORY"], ["ERR_CUDA", "OK"], ["OK", "ERR_CUDA"],
    ["INIT_NORMAL", "INIT_ONE", "INIT_ZERO"], ["ncclSum", "ncclAvg", "ncclMax", "ncclProd"],
    ["ncclDouble", "ncclFloat"], ["true", "false"],
    ["cudaStreamNonBlocking", "cudaStreamDefault"], ["cudaEventDisableTiming", "cudaEventDefault"],
    ["cudaMemcpyDeviceToHost", "cudaMemcpyHostToDevice"],
]
# The last word of an expression that is a whole number.
WHOLE = re.compile(r"(numel|bytes|padded|offset|begin|end|valid|both_begin|both_end|size|world|rank"
                   r"|count|room|max|n|n_\w+|i|at|t|taken|place|point|multiple|round)$")
RELATIONS = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"],
             "==": ["!="], "!=": ["=="]}
ARITHMETIC = {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], ">>": ["<<"],
              "<<": [">>"], "^": ["|"], "&": ["|"], "|": ["&"]}
NARROW = {"int64_t": "int32_t", "uint64_t": "uint32_t", "size_t": "uint32_t", "double": "float"}
INTEGERS = {"int", "int64_t", "uint64_t", "uint32_t", "size_t"}
NO_CALL = {"if", "for", "while", "return", "sizeof", "do"}
NO_VALUE = {"Status": "OK", "bool": "false", "int": "0", "int64_t": "0", "void": ""}


@dataclass
class Mutant:
    id: str
    file: str
    function: str
    operator: str
    line: int
    text: str
    before: str          # the lines that differ, on one
    after: str
    original: str

    def change(self):
        return "%s => %s" % (self.before, self.after)

    def diff(self):
        """The lines that differ, as `diff -u` shows them, without context."""
        lines = difflib.unified_diff(self.original.splitlines(), self.text.splitlines(),
                                     lineterm="", n=0)
        return "\n".join(line for line in list(lines)[2:] if line.strip() != "+")


# ---- What operators are made of ----

def own(source, statement):
    """The token ranges that belong to the statement itself."""
    if statement.kind == "for":
        return source.split(statement.head[0], statement.head[1], ";")
    if statement.head:
        return [statement.head]
    return [(statement.first, statement.last)] if statement.kind not in ("block", "jump") else []


def swapped(source, begin, end, new):
    """A change of tokens [begin, end)."""
    return (source.tokens[begin].begin, source.tokens[end - 1].end, new)


def wrapped(source, statement, before, after):
    """A change that puts text around a statement."""
    begin, end = source.tokens[statement.first].begin, source.tokens[statement.last].end
    return [(begin, begin, before), (end, end, after)]


def each_token(source, statement):
    for begin, end in own(source, statement):
        yield from range(begin, end)


def initialiser(source, statement):
    """Of a declaration of one variable the tokens behind its `=`: (begin, end), or None."""
    parts = source.split(statement.first, statement.last, ",")
    if statement.kind != "declaration" or len(parts) != 1:
        return None
    sides = source.split(statement.first, statement.last, "=")
    if len(sides) != 2 or source.is_mark(sides[1][0], "{"):
        return None
    return sides[1]


def is_binary(source, statement, i):
    """Whether the mark at i stands between two operands, and is no part of a type."""
    before, after = source.tokens[i - 1], source.tokens[i + 1]
    if before.kind not in ("name", "integer", "float") and before.text not in (")", "]"):
        return False
    if before.text in TYPES | {"sizeof", "return"} or after.text in ("*", ")", ","):
        return False
    if source.tokens[i].text == "*" and before.kind == "name":
        # `Type *name`: of a declaration, or in a cast.
        if before.text[0].isupper() and not before.text.isupper():
            return False
    return not (before.text == ")" and is_cast(source, i - 1))


def is_cast(source, closed):
    """Whether the parenthesis that ends here holds nothing but a type."""
    begin = closed
    while not (source.is_mark(begin, "(") and source.close(begin) == closed):
        begin -= 1
    words = [token.text for token in source.tokens[begin + 1:closed]]
    return bool(words) and all(word in TYPES or word in ("*", "const") or (
        word[0].isupper() and not word.isupper()) for word in words)


def calls(source, statement):
    """The calls in a statement: (name's token, the ranges of its arguments)."""
    for i in each_token(source, statement):
        if source.tokens[i].kind == "name" and source.is_mark(i + 1, "(") and \
                source.tokens[i].text not in NO_CALL:
            yield i, source.split(i + 2, source.close(i + 1), ",")


def is_whole(source, begin, end):
    """Whether tokens [begin, end) look like a whole number that is no literal."""
    words = [token.text for token in source.tokens[begin:end]]
    if not words or (len(words) == 1 and source.tokens[begin].kind == "integer"):
        return False
    if words[0] in ("&", "!", "*") or any(word in ("?", ",", "{", "=") for word in words):
        return False
    if words[:2] == ["(", "size_t"] or words[0] in ("buffer_bytes", "meta_numel", "min64", "max64"):
        return True
    flat = [token for token in words if re.match(r"\w", token)]
    return bool(flat) and bool(WHOLE.match(flat[-1])) and words[-1] not in (")", "]")


def is_constant(source, begin, end):
    """Whether tokens [begin, end) are only numbers and names in capitals."""
    return all(token.kind in ("integer", "float", "mark") or token.text.isupper()
               for token in source.tokens[begin:end])


def by_one(source, begin, end):
    """The two changes of an expression by one."""
    text = source.cut(begin, end)
    if end - begin > 1:
        text = "(%s)" % text
    return [[swapped(source, begin, end, text + sign)] for sign in (" + 1", " - 1")]


# ---- Operators on statements ----

def delete(source, statement):
    """The statement is gone."""
    if statement.kind not in ("declaration", "block"):
        yield [swapped(source, statement.first, statement.last + 1, ";")]


def once(source, statement):
    """Done the first time only that the program comes by."""
    if statement.kind in ("simple", "if", "for", "do", "while"):
        yield wrapped(source, statement, "{ static int once_; if (!once_++) { ", " } }")


def first_of_all(source, statement):
    """A loop that ends after one pass."""
    if statement.kind in ("for", "while", "do"):
        yield wrapped(source, statement.bodies[0], "{ ", " break; }")


def early_return(source, statement):
    """The function returns after the statement, as if all were done."""
    value = NO_VALUE.get(statement.function.result)
    if value is None:
        value = "NULL" if statement.function.result.endswith("*") else "0"
    leave = " return%s;" % (" " + value if value else "")
    if statement.kind in ("simple", "if", "for", "while", "do"):
        yield wrapped(source, statement, "{ ", leave + " }")
    elif statement.kind == "declaration" and statement.in_block:
        yield wrapped(source, statement, "", leave)


def keep(source, statement):
    """A value is kept across calls: what it was at first stays, for every object."""
    kept = ("({ static int set_; static __typeof__(%s) kept_; if (!set_) { set_ = 1; kept_ = (%s);"
            " } kept_; })")
    value = initialiser(source, statement)
    if statement.kind == "simple":
        sides = source.split(statement.first, statement.last, "=")
        value = sides[1] if len(sides) == 2 else None
    if value and is_constant(source, *value):
        place = source.tokens[statement.first].begin
        if statement.kind == "declaration" and source.tokens[statement.first].text != "static":
            yield [(place, place, "static ")]
    elif value:
        text = source.cut(*value)
        yield [swapped(source, value[0], value[1], kept % (text, text))]


def unchecked(source, statement):
    """A function of ours fails, and its caller goes on."""
    for i in each_token(source, statement):
        if source.tokens[i].text == "TRY" and source.is_mark(i + 1, "("):
            end = source.close(i + 1)
            yield [swapped(source, i, end + 1, source.cut(i + 2, end))]


def shared(source, statement):
    """What grows in each object grows in one place for all of them."""
    words = source.words(statement.first, statement.last)
    found = re.fullmatch(r"(\w+ -> \w+) (\+\+|--|\+= .*|-= .*)", words)
    if statement.kind == "simple" and found:
        member, grow = found.groups()
        member = member.replace(" ", "")
        new = "{ static __typeof__(%s) all_; all_ %s; %s = all_; }" % (member, grow, member)
        yield [swapped(source, statement.first, statement.last + 1, new)]


# ---- Operators on expressions ----

def negate(source, statement):
    """A condition is true where it was not."""
    if statement.kind in ("if", "while", "do"):
        yield [swapped(source, *statement.head, "!(%s)" % source.cut(*statement.head))]
    for i in each_token(source, statement):
        if source.is_mark(i, "?"):
            begin = i
            while begin > statement.first and not source.is_mark(begin - 1, "=", ",", "(") and \
                    source.tokens[begin - 1].text != "return":
                begin -= 1
                if source.is_mark(begin, ")"):
                    begin = next(k for k in range(begin, 0, -1)
                                 if source.is_mark(k, "(") and source.close(k) >= begin)
            if begin < i:
                yield [swapped(source, begin, i, "!(%s)" % source.cut(begin, i))]
    for begin, end in own(source, statement):
        if statement.kind in ("return", "simple", "for"):
            continue
        parts = source.split(begin, end, "&&")
        for part in parts if len(parts) > 1 else []:
            yield [swapped(source, *part, "!(%s)" % source.cut(*part))]


def logic(source, statement):
    """And for or, and only one of two conditions."""
    for i in each_token(source, statement):
        if source.is_mark(i, "!"):
            yield [swapped(source, i, i + 1, "")]
        if not source.is_mark(i, "&&", "||"):
            continue
        yield [swapped(source, i, i + 1, "||" if source.tokens[i].text == "&&" else "&&")]
        neutral = "1" if source.tokens[i].text == "&&" else "0"
        begin, end = operand_before(source, i), operand_after(source, statement, i)
        yield [swapped(source, begin, i, neutral)]
        yield [swapped(source, i + 1, end, neutral)]


STOPS = ("&&", "||", "?", ":", ",", ";", "=", "{")


def operand_before(source, i):
    """Where the operand on the left of a && or || begins."""
    begin = i
    while not source.is_mark(begin - 1, "(", *STOPS) and source.tokens[begin - 1].text != "return":
        begin -= 1
        if source.is_mark(begin, ")", "]"):
            begin = next(k for k in range(begin, 0, -1)
                         if k in source.pairs and source.close(k) == begin)
    return begin


def operand_after(source, statement, i):
    """Where the operand on the right of a mark ends."""
    end = i + 1
    while end <= statement.last and not source.is_mark(end, ")", "]", "}", *STOPS):
        end = source.close(end) + 1 if end in source.pairs else end + 1
    return end


def relation(source, statement):
    """One comparison for another."""
    for i in each_token(source, statement):
        for other in RELATIONS.get(source.tokens[i].text, []):
            yield [swapped(source, i, i + 1, other)]


def swap(source, statement):
    """Two neighbours change places: arguments of a call, or values of an initialiser."""
    lists = [parts for i, parts in calls(source, statement) if source.tokens[i].text != "fail"]
    lists += [source.split(i + 1, source.close(i), ",") for i in each_token(source, statement)
              if source.is_mark(i, "{")]
    for parts in lists:
        for one, two in zip(parts, parts[1:]):
            if source.words(*one) != source.words(*two):
                yield [swapped(source, *one, source.cut(*two)),
                       swapped(source, *two, source.cut(*one))]


def sibling(source, statement):
    """A stream, a buffer, a group, a state for another."""
    for i in each_token(source, statement):
        for names in SIBLINGS:
            for other in names if source.tokens[i].text in names else []:
                if other != source.tokens[i].text and (names[0] not in ("OK", "ERR_CUDA")
                                                       or source.tokens[i].text == names[0]):
                    yield [swapped(source, i, i + 1, other)]


def off_by_one(source, statement):
    """One more, and one less: of a bound, an index, a count."""
    for i in each_token(source, statement):
        token = source.tokens[i]
        if token.kind == "integer":
            digits = token.text.rstrip("uUlL")
            tail, value = token.text[len(digits):], int(digits, 0)
            for other in (value + 1, value - 1):
                yield [swapped(source, i, i + 1, "%d%s" % (other, tail))]
        if source.is_mark(i, "<", ">", "<=", ">="):
            end = operand_after(source, statement, i)
            if not (end == i + 2 and source.tokens[i + 1].kind == "integer"):
                yield from by_one(source, i + 1, end)
        if source.is_mark(i, "[") and is_whole(source, i + 1, source.close(i)):
            yield from by_one(source, i + 1, source.close(i))
    for _, parts in calls(source, statement):
        for part in parts:
            if is_whole(source, *part):
                yield from by_one(source, *part)
    value = None
    if statement.kind == "declaration" and source.tokens[statement.first].text in INTEGERS:
        value = initialiser(source, statement)
    elif statement.kind == "simple":
        sides = [part for mark in ("=", "+=")
                 for part in source.split(statement.first, statement.last, mark)]
        ends = [part for part in sides if part[1] == statement.last and part[0] > statement.first]
        if ends and is_whole(source, statement.first, ends[0][0] - 1):
            value = ends[0]
        elif ends and source.is_mark(statement.first, "*") and \
                is_whole(source, statement.first + 1, ends[0][0] - 1):
            value = ends[0]
    elif statement.kind == "return" and statement.function.result in INTEGERS:
        value = (statement.first + 1, statement.last)
    if value and not (value[1] - value[0] == 1 and source.tokens[value[0]].kind == "integer"):
        yield from by_one(source, *value)


def constant(source, statement):
    """Another constant."""
    for i in each_token(source, statement):
        token = source.tokens[i]
        if token.kind == "float":
            tail = "f" if token.text[-1] in "fF" else ""
            value = float(token.text.rstrip("fFlL"))
            for other in ([1.0, -1.0] if value == 0 else [0.0, 2 * value, -value, value * 1.001]):
                yield [swapped(source, i, i + 1, "%r%s" % (other, tail))]
        elif token.kind == "integer":
            digits = token.text.rstrip("uUlL")
            if int(digits, 0) > 1:
                yield [swapped(source, i, i + 1, "0" + token.text[len(digits):])]
                yield [swapped(source, i, i + 1, "%d%s" % (2 * int(digits, 0),
                                                          token.text[len(digits):]))]
        elif token.text == "NULL" and source.is_mark(i - 1, ",") and source.is_mark(i + 1, ","):
            yield [swapped(source, i, i + 1, "(void *)1")]


def arithmetic(source, statement):
    """One operation for another."""
    for i in each_token(source, statement):
        for other in ARITHMETIC.get(source.tokens[i].text, []):
            if source.tokens[i].kind == "mark" and is_binary(source, statement, i):
                yield [swapped(source, i, i + 1, other)]


def assign(source, statement):
    """= for +=, += for =, and no ++ or the other way round."""
    for i in each_token(source, statement):
        text = source.tokens[i].text
        if text in ("+=", "-=", "*=", "/="):
            yield [swapped(source, i, i + 1, "=")]
        elif text == "=" and statement.kind == "simple":
            yield [swapped(source, i, i + 1, "+=")]
        elif text in ("++", "--"):
            yield [swapped(source, i, i + 1, "")]
            yield [swapped(source, i, i + 1, "--" if text == "++" else "++")]


def narrow(source, statement):
    """32 bits for 64."""
    for i in each_token(source, statement):
        other = NARROW.get(source.tokens[i].text)
        if other:
            yield [swapped(source, i, i + 1, other)]


OPERATORS = {
    "delete": delete, "once": once, "first-of-all": first_of_all, "early-return": early_return,
    "keep": keep, "unchecked": unchecked, "shared": shared, "negate": negate, "logic": logic,
    "relation": relation, "swap": swap, "sibling": sibling, "off-by-one": off_by_one,
    "constant": constant, "arithmetic": arithmetic, "assign": assign, "narrow": narrow,
}


# ---- Mutants ----

def apply(text, change):
    """The text with the change, and with as many line breaks in each place as before."""
    for begin, end, new in sorted(change, reverse=True):
        breaks = text.count("\n", begin, end) - new.count("\n")
        if breaks < 0:
            new, breaks = " ".join(new.split()), text.count("\n", begin, end)
        text = text[:begin] + new + "\n" * breaks + text[end:]
    return text


def words_of(source, statement):
    """The statement's own words; those of the statements inside of it are not part of it."""
    end = statement.head[1] + 1 if statement.head and statement.kind != "do" else statement.last + 1
    return source.words(statement.first, end)


def place_of(source, statement, begin):
    """Where a change begins, counted in tokens from the statement's first."""
    return sum(1 for token in source.tokens[statement.first:statement.last + 1]
               if token.begin < begin)


def make(source, file, operator, statement, change):
    text = apply(source.text, change)
    old, new = source.text.splitlines(), text.splitlines()
    lines = [i for i in range(len(old)) if old[i] != new[i]]
    before, after = (" ".join(word for i in lines for word in side[i].split())
                     for side in (old, new))
    what = "".join("%d %s\0" % (0 if statement.head and begin >= source.tokens[statement.last].end
                                else place_of(source, statement, begin), " ".join(new_text.split()))
                   for begin, _, new_text in change)
    if operator == "first-of-all": # where the loop's body ends is no part of it
        what = ""
    total = hashlib.sha256((words_of(source, statement) + "\0" + what).encode()).hexdigest()[:8]
    return Mutant("%s:%s:%s:%s" % (file, statement.function.name, operator, total), file,
                  statement.function.name, operator, lines[0] + 1, text, before, after, source.text)


def mutants_of(file, text):
    """Every mutant of a file, in the order of its lines. A change that another operator makes too
    is the first one's."""
    source, found, seen, ids = Source(text), [], {text}, {}
    for function in source.functions:
        for statement in function.statements:
            for operator, changes in OPERATORS.items():
                for change in changes(source, statement):
                    mutated = apply(text, change)
                    if mutated in seen:
                        continue
                    seen.add(mutated)
                    mutant = make(source, file, operator, statement, change)
                    ids[mutant.id] = ids.get(mutant.id, 0) + 1
                    if ids[mutant.id] > 1: # the same statement twice in one function
                        mutant.id += "-%d" % ids[mutant.id]
                    found.append(mutant)
    return sorted(found, key=lambda mutant: mutant.line)
