"""A Status that nobody looks at in a student's file, or the error of a call of CUDA's, NCCL's or
cuBLAS's in a function that returns a Status.

The compiler warns of the first where a header has CHECKED_STATUS (include/check.h). It does not see
a Status of the file's own functions, one that is stored and then overwritten, nor errors of
libraries whose headers are NVIDIA's; and a warning costs nothing. So the text is looked at, as far
as C can be read without a compiler:

  dropped      a statement that is a call: `fsdp_unshard(unit);`, also in parentheses, after
               `(void)` or `if (…)`
  never read   a variable that is assigned, and nobody reads; `(void)` in front of it is no reading
  overwritten  an assignment of a call, and the next statement that has the variable assigns it
               again, with no branch between them
  ignored      IGNORE_STATUS of a call whose Status could be returned: neither below an
               `if (status != OK)`, an else or a label, where another error is on its way, nor in
               what a function of the contracts calls that returns none

What frees, removes or destroys may fail unheard. A function with a NOT_YET is not finished, and is
left out.

Interface: find(source, headers) -> [Dropped], in the order of the file; Dropped.sentence(path).
"""

import functools
import glob
import os
import re
from dataclasses import dataclass

from cause import COMMENT, blank, places_of

STATUS = r"(?:CHECKED_)?Status"
ERRORS = r"(?:%s|cudaError_t|ncclResult_t|cublasStatus_t)" % STATUS
LIBRARY = re.compile(r"(cuda|nccl|cublas|kernel_)\w*$")
MAY_FAIL = re.compile(r"Free|Destroy|Abort|Finalize|GetLastError|PeekAtLastError|GetError|"
                      r"GetVersion|Unregister")
TRIES = {"cuda": "CUDA_TRY", "kernel_": "CUDA_TRY", "nccl": "NCCL_TRY", "cublas": "CUBLAS_TRY"}
CALL = re.compile(r"(?P<opened>(?:\(\s*(?:void\s*\)\s*)?)*)"
                  r"(?P<of>(?:\w+(?:\[[^\]\n]*\])?(?:->|\.))*)(?P<name>\w+)\s*\(")
IGNORE = re.compile(r"\bIGNORE_STATUS\s*\(")
REMOVES = re.compile(r"_(?:remove|destroy)$")
# An `if` that asks for a failure, an `else`, a label.
FAILED = re.compile(r"!=\s*OK\b|^\s*(?:!\s*)?\w*(?:status|err|fail|ok)\w*\s*$|^else$|"
                    r"^(?!default)\w+\s*:$", re.IGNORECASE)
IGNORED = "dropped by IGNORE_STATUS where it could be returned"
BRANCH = re.compile(r"\s*(?:(?:if|else|for|while|do|switch|case|default|return|goto|break|continue)"
                    r"\b|\w+\s*:)")


@dataclass
class Dropped:
    """One result that is lost."""
    line: int
    function: str # in which
    call: str     # whose
    how: str      # "": dropped; else what became of it

    def sentence(self, path):
        """What a message says."""
        family = LIBRARY.match(self.call)
        text = "%s:%d (%s): the %s of %s is %s" % (
            path, self.line, self.function, "error" if family else "Status", self.call,
            self.how or "dropped")
        use = TRIES[family.group(1)] if family else "TRY"
        if self.how == IGNORED:
            return text + ": write %s(%s(…))." % (use, self.call)
        if self.how:
            return text + ": look at it, or return it."
        return text + ": write %s(%s(…))%s." % (
            use, self.call, "" if family else ", or IGNORE_STATUS(…) if you mean to ignore it")


@dataclass
class Function:
    """One of the file."""
    returns_it: bool # a Status
    opens: int       # where its body begins
    body: str


@functools.lru_cache(maxsize=None)
def declared(headers):
    """The names of functions, and of pointers to functions, that return a Status in these headers;
    of the types of such pointers; and of functions that return something else, or nothing."""
    names, types, others = set(), set(), set()
    for path in headers:
        with open(path, encoding="utf-8") as file:
            text = COMMENT.sub(blank, file.read())
        types |= set(re.findall(r"\btypedef\s+%s\s*\(\s*\*\s*(\w+)\s*\)" % STATUS, text))
        names |= returning(text) | of_types(text, types)
        others |= set(re.findall(r"\b(\w+)\s*\(", text))
    return names - {"fail"}, types, others - names


def returning(text):
    """The names of what is declared to return a Status."""
    return set(re.findall(r"\b%s\s+(\w+)\s*\(" % STATUS, text)) | set(
        re.findall(r"\b%s\s*\(\s*\*\s*(\w+)\s*\)\s*\(" % STATUS, text))


def of_types(text, types):
    """The names of variables of these types."""
    return set(re.findall(r"\b(?:%s)\s+(\w+)\b" % "|".join(map(re.escape, sorted(types))), text)
               ) if types else set()


def close(text, at):
    """The place after the parenthesis that closes the one at `at`; -1: there is none."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return -1


def begins_statement(text, at):
    """Whether a statement begins at this place of a body."""
    before = text[:at].rstrip()
    if before.endswith(")"):
        depth, i = 0, len(before) - 1
        while i >= 0:
            depth += {")": 1, "(": -1}.get(before[i], 0)
            if depth == 0:
                break
            i -= 1
        return re.search(r"\b(?:if|for|while|switch)\s*$", before[:max(i, 0)]) is not None
    return re.search(r"[;{}]$|\b(?:else|do)$|"
                     r"(?:\bcase\b[^;{}?:]*|\bdefault\s*|[;{}]\s*\w+\s*):$", before) is not None


def calls(body, known, checks_libraries):
    """[(place, name)] of calls that are statements."""
    found = []
    for match in CALL.finditer(body):
        name = match.group("name")
        library = LIBRARY.match(name) and not match.group("of")
        if not (checks_libraries and not MAY_FAIL.search(name) if library else name in known):
            continue
        end = close(body, match.end() - 1)
        opened = match.group("opened")
        closes = r"(?:\s*\)){0,%d}\s*[;,]" % (opened.count("(") - opened.count(")"))
        if end > 0 and re.match(closes, body[end:]) and begins_statement(body, match.start()):
            found.append((match.start("name"), name))
    return found


def stored(body, known):
    """[(place, name, what became of it)] of results that a variable takes and nobody reads."""
    found = []
    for variable in sorted(set(re.findall(r"\b%s\s+(\w+)\s*[=;,]" % ERRORS, body))):
        name = re.escape(variable)
        taken = re.compile(r"\b(?:%s\s+)?%s\s*=(?!=)\s*(?P<call>%s)?" % (
            ERRORS, name, CALL.pattern))
        takes = list(taken.finditer(body))
        no_reads = r"\b%s\s+%s\s*[;,]|\(\s*void\s*\)\s*%s\s*;" % (ERRORS, name, name)
        reads = len(re.findall(r"\b%s\b" % name, body)) - len(takes) - len(
            re.findall(no_reads, body))
        for take in takes:
            called = take.group("name")
            if not called or not (called in known or LIBRARY.match(called)):
                continue
            end = close(body, take.end() - 1)
            if end < 0 or not re.match(r"\s*;", body[end:]): # more than a call
                continue
            if reads == 0:
                found.append((take.start(), called,
                              "stored in `%s`, which nobody reads" % variable))
            elif is_overwritten(body, body.index(";", end) + 1, variable):
                found.append((take.start(), called, "stored in `%s`, which is overwritten before "
                              "anybody reads it" % variable))
    return found


def is_overwritten(body, at, variable):
    """Whether the next statement that has the variable, from `at` on, assigns it again, with
    nothing on the way that may go elsewhere."""
    name = re.escape(variable)
    for statement in re.finditer(r"[^;{}]*[;{}]", body[at:]):
        text = statement.group()
        if text[-1] != ";" or BRANCH.match(text):
            return False
        if re.search(r"\b%s\b" % name, text):
            begins = re.match(r"\s*%s\s*=(?!=)" % name, text)
            return begins is not None and not re.search(r"\b%s\b" % name, text[begins.end():])
    return False


def conditions(body, at):
    """What is in front of the statement at this place and of the blocks around it: the conditions,
    "else", or a label's name and its colon."""
    found = re.findall(r"[;{}]\s*(\w+\s*:)(?!:)", body[:at])
    while True:
        before = body[:at].rstrip()
        while before.endswith(")"):
            begin, depth = len(before), 0
            while begin > 0:
                begin -= 1
                depth += {")": 1, "(": -1}.get(before[begin], 0)
                if depth == 0:
                    break
            found.append(before[begin + 1:-1])
            before = re.sub(r"\b(?:if|while|for|switch)\s*$", "", before[:begin]).rstrip()
        if before.endswith("else"):
            found.append("else")
        depth = 1
        while at > 0 and depth:
            at -= 1
            depth += {"}": 1, "{": -1}.get(body[at], 0)
        if depth:
            return found


def may_ignore(functions, others, name, at, seen=()):
    """Whether an error has no way out at a place of a function's body, or another is on its way
    there. others: the contracts' functions that return no Status."""
    if any(FAILED.search(what) for what in conditions(functions[name].body, at)):
        return True
    if functions[name].returns_it or name in seen:
        return False
    return name in others or any(
        may_ignore(functions, others, caller, call.start(), seen + (name,))
        for caller, function in functions.items()
        for call in re.finditer(r"\b%s\s*\(" % re.escape(name), function.body))


def ignored(functions, others, name, known):
    """[(place, name, what became of it)] of results that IGNORE_STATUS drops where it must not."""
    body, found = functions[name].body, []
    for drop in IGNORE.finditer(body):
        call = CALL.search(body, drop.end())
        if call and call.group("name") in known and not REMOVES.search(call.group("name")) and \
                not may_ignore(functions, others, name, drop.start()):
            found.append((drop.start(), call.group("name"), IGNORED))
    return found


def find(source, headers):
    """All of a file."""
    text = COMMENT.sub(blank, source)
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text)
    contracts, types, others = declared(headers)
    known = contracts | returning(text) | of_types(text, types)
    known -= {name for name, _, _ in places_of(source)} - returning(text) # the file's own, of void
    functions, found = {}, []
    for name, begin, end in places_of(source):
        opens = text.index("{", begin)
        gives = re.search(r"\b%s\s+\*?$|\b%s\s+\w+\s*\(" % (STATUS, STATUS), text[begin:opens])
        functions[name] = Function(gives is not None, opens, text[opens:end])
    for name, function in functions.items():
        if re.search(r"\bNOT_YET\s*\(", function.body):
            continue
        lost = [(at, call, "") for at, call in calls(function.body, known, function.returns_it)]
        lost += stored(function.body, known) + ignored(functions, others, name, known)
        found += [Dropped(text.count("\n", 0, function.opens + at) + 1, name, call, how)
                  for at, call, how in sorted(lost)]
    return found


def headers_of(root):
    """The contracts."""
    return tuple(sorted(glob.glob(os.path.join(root, "include", "*.h"))))
