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

What frees or destroys may fail unheard. A function with a NOT_YET is not finished, and is left out.

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
        if self.how:
            return text + ": look at it, or return it."
        return text + ": write %s(%s(…))%s." % (
            use, self.call, "" if family else ", or IGNORE_STATUS(…) where that is meant")


@functools.lru_cache(maxsize=None)
def declared(headers):
    """The names of functions, and of pointers to functions, that return a Status in these headers,
    and of the types of such pointers."""
    names, types = set(), set()
    for path in headers:
        with open(path, encoding="utf-8") as file:
            text = COMMENT.sub(blank, file.read())
        types |= set(re.findall(r"\btypedef\s+%s\s*\(\s*\*\s*(\w+)\s*\)" % STATUS, text))
        names |= returning(text) | of_types(text, types)
    return names - {"fail"}, types


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
    """Whether the next statement that has the variable, from `at` on, assigns it anew, with nothing
    on the way that may go elsewhere."""
    name = re.escape(variable)
    for statement in re.finditer(r"[^;{}]*[;{}]", body[at:]):
        text = statement.group()
        if text[-1] != ";" or BRANCH.match(text):
            return False
        if re.search(r"\b%s\b" % name, text):
            begins = re.match(r"\s*%s\s*=(?!=)" % name, text)
            return begins is not None and not re.search(r"\b%s\b" % name, text[begins.end():])
    return False


def find(source, headers):
    """All of a file."""
    text = COMMENT.sub(blank, source)
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text)
    contracts, types = declared(headers)
    known = contracts | returning(text) | of_types(text, types)
    known -= {name for name, _, _ in places_of(source)} - returning(text) # the file's own, of void
    found = []
    for name, begin, end in places_of(source):
        opens = text.index("{", begin)
        body = text[opens:end]
        if re.search(r"\bNOT_YET\s*\(", body):
            continue
        in_status = re.search(r"\b%s\s+\*?$|\b%s\s+\w+\s*\(" % (STATUS, STATUS), text[begin:opens])
        lost = [(at, call, "") for at, call in calls(body, known, in_status is not None)]
        lost += stored(body, known)
        found += [Dropped(text.count("\n", 0, opens + at) + 1, name, call, how)
                  for at, call, how in sorted(lost)]
    return found


def headers_of(root):
    """The contracts."""
    return tuple(sorted(glob.glob(os.path.join(root, "include", "*.h"))))
