#!/usr/bin/env python3
"""What the contracts' functions and the handouts' rules are held by: tests/claims.txt.

The table has a heading for each document, and below it an entry for each function or rule, with the
tests that fail where it is broken, and the wrong solutions (mutants.py, given_mutants.py) that
break it. A long entry goes on in lines that are indented further:

    fsdp.h
      meta_numel: counts_elements | numel_in_32_bits number_without_shape
      meta_params,meta_count/order: walks_each_parameter_once | children_first
          tied_counted_twice
      header/grows: …         holds for all of fsdp.h
      helpers: …              functions without a rule that a mutant breaks
    handouts/1
      1.1: as fsdp.h meta_numel

In place of tests and mutants stands "as", and whose they are. A test of one of the kit's own suites
is SUITE/NAME, and proves what given code does.

The check fails for a function of a header that is in no entry, a name, a test or a mutant that is
not there, a mutant that loses none of its entry's tests, and one that is in no entry (those of
given code may be). Of kernels.h part 4 is checked: the other parts are formulas.

Interface: claims.py [--task N] prints the table and checks it; exit status 0, or 1 with a line for
each thing that is wrong; read_table(text) -> (claims, helpers); check(claims, helpers, code, tests,
mutants, owed) -> what is wrong.
"""

import argparse
import fnmatch
import glob
import os
import re
import sys
import textwrap
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import given_mutants
import manifest
import mutant_files
import submission

TABLE = os.path.join("tests", "claims.txt")
# Where a header begins to make claims: its first line, if it is not in here.
BEGINS = {"kernels.h": "// ---- 4."}
# Headers for tasks and labs that only given code implements: its own suites hold it.
GIVEN = {"nn.h", "box_muller.h", "check.h", "not_yet.h", "host_kernels.h", "safetensors.h",
         "e4m3.h", "buffer.h", "dtype.h", "rounding.h"}


class BadTable(Exception):
    """tests/claims.txt cannot be understood."""


@dataclass
class Claim:
    document: str               # "fsdp.h", "handouts/1"
    name: str                   # "meta_params/order"
    tests: list = field(default_factory=list)
    mutants: list = field(default_factory=list)
    same: str = ""              # the claim that has the tests and mutants

    def full(self):
        return "%s %s" % (self.document, self.name)

    def given(self):
        """Whether one of the kit's own suites proves it."""
        return any("/" in test for test in self.tests)


def read_table(text):
    """(the claims, {header: its helpers})."""
    claims, helpers, document = [], {}, ""
    for entry in re.sub(r"\n {3,}", " ", re.sub(r"(?m)^#.*", "", text)).splitlines():
        if re.match(r"\S", entry):
            document = entry.strip()
        elif entry.strip():
            found = re.fullmatch(r"  (\S+): (?:as (\S.*)|([^|]*)(?:\|(.*))?)", entry)
            if not found or not document:
                raise BadTable("%s: cannot be read: \"%s\"" % (TABLE, entry.strip()))
            name, same, first, second = (part or "" for part in found.groups())
            if name == "helpers":
                helpers[document] = first.split()
            else:
                claims.append(Claim(document, name, first.split(), second.split(), same))
    by_name = {claim.full(): claim for claim in claims}
    if len(by_name) < len(claims):
        raise BadTable("%s: two entries have one name: %s" % (TABLE, ", ".join(sorted(
            {claim.full() for claim in claims if by_name[claim.full()] is not claim}))))
    for claim in claims:
        if claim.same and claim.same not in by_name:
            raise BadTable("%s: %s: there is no %s" % (TABLE, claim.full(), claim.same))
        if claim.same:
            claim.tests, claim.mutants = by_name[claim.same].tests, by_name[claim.same].mutants
    return claims, helpers


# ---- What there is ----

def functions(code):
    """The names that a header without its comments declares as functions."""
    while "{" in code:
        code = re.sub(r"\{[^{}]*\}", ";", code)
    return re.findall(r"(?m)^(?!typedef)\w[\w \t*]*?\b(\w+)\((?=[^;]*\)\s*;)", code)


def headers(root):
    """{contract header: its text without comments, from where it makes claims}."""
    found = {}
    for name in sorted(set(submission.headers_for(None)) - GIVEN):
        with open(os.path.join(root, "include", name), encoding="utf-8") as file:
            text = file.read()
        text = text[text.index(BEGINS[name]) if name in BEGINS else 0:]
        found[name] = re.sub(r"(?s)/\*.*?\*/|//[^\n]*|^#[^\n]*", "", text)
    return found


def known_tests(root, tasks):
    """The tests that grade, and those of the kit's own suites as SUITE/NAME."""
    names = {test.name for task in tasks for test in task.tests}
    for path in glob.glob(os.path.join(root, "tests", "*", "*.c")):
        with open(path, encoding="utf-8") as file:
            names |= {"%s/%s" % (os.path.basename(path)[:-2], name) for name in re.findall(
                r"(?m)^\w*TEST\w*\((\w+)", file.read())}
    return names


def known_mutants(tasks):
    """{name: the tests that it must lose}, and the names of those that must be in an entry."""
    found = {mutant.name: set(mutant.caught_by) for mutant in mutant_files.load_mutants(tasks)}
    owed = set(found)
    for _, _, mutant in given_mutants.load(given_mutants.FOLDER):
        # A test that grades has no suite in front of it in the table.
        found[mutant["name"]] = {name for test in mutant["caught_by"]
                                 for name in (test, test.split("/")[1])}
    return found, owed


# ---- The check ----

def check_names(claims, helpers, code):
    """What is wrong with the names of headers' entries."""
    wrong = []
    for header, text in code.items():
        # The contract of X_default is that of X.
        declared = [name for name in functions(text) if not name.endswith("_default")]
        words = set(re.findall(r"\w+", text))
        named = set(helpers.get(header, []))
        for claim in claims:
            if claim.document == header:
                named |= set(claim.name.split("/")[0].split(","))
        wrong += ["%s %s has no entry" % (header, name) for name in declared
                  if not any(fnmatch.fnmatchcase(name, pattern) for pattern in named)]
        wrong += ["%s has no %s" % (header, name) for name in sorted(named - {"header"})
                  if not fnmatch.filter(words, name)]
    return wrong


def check(claims, helpers, code, tests, mutants, owed):
    """What is wrong with the table."""
    wrong = check_names(claims, helpers, code)
    for claim in claims:
        for what, names, known in (("test", claim.tests, tests),
                                   ("mutant", claim.mutants, mutants)):
            if not names:
                wrong.append("%s: it has no %s" % (claim.full(), what))
            wrong += ["%s: there is no %s %s" % (claim.full(), what, name)
                      for name in names if name not in known]
        wrong += ["%s: mutant %s loses none of its tests, but %s" % (
            claim.full(), name, ", ".join(sorted(mutants[name])))
            for name in claim.mutants
            if name in mutants and not mutants[name] & set(claim.tests)]
    named = {name for claim in claims for name in claim.mutants}
    return wrong + ["no entry names mutant %s" % name for name in sorted(owed - named)]


def check_table(root=ROOT):
    """(the claims of the table, what is wrong with it, the tasks and labs)."""
    with open(os.path.join(root, TABLE), encoding="utf-8") as file:
        claims, helpers = read_table(file.read())
    tasks = manifest.load_all(root)
    mutants, owed = known_mutants(tasks)
    return claims, check(claims, helpers, headers(root), known_tests(root, tasks), mutants,
                         owed), tasks


def show(claims, groups):
    """The table, a task or lab at a time, each entry where it first belongs."""
    shown = set()
    for title, wanted in groups:
        print(title)
        for claim in claims:
            if claim.full() in shown or not wanted(claim):
                continue
            shown.add(claim.full())
            print("  " + claim.full())
            for what, names in ("tests", claim.tests), ("mutants", claim.mutants):
                print(textwrap.fill("%-8s %s" % (what, ", ".join(names)), 98,
                                    initial_indent="      ", subsequent_indent=" " * 15))
        print()


def main(arguments=None):
    parser = argparse.ArgumentParser(description="What the contracts claim, and what proves it.")
    parser.add_argument("--task", type=int, default=0, help="the claims of one task")
    options = parser.parse_args(arguments)
    try:
        claims, wrong, tasks = check_table()
    except (BadTable, OSError, manifest.BadManifest, mutant_files.BadFile) as problem:
        print("claims: %s" % problem, file=sys.stderr)
        return 2
    groups = [("%s, %s" % (task.heading(), task.title),
               lambda claim, own={test.name for test in task.tests}: own & set(claim.tests))
              for task in tasks
              if not options.task or task.heading() == "Task %d" % options.task]
    show(claims, groups + ([] if options.task else [("Given code", Claim.given)]))
    print("%d claims, %d of them of given code; proved by %d tests, broken by %d mutants" % (
        len(claims), sum(claim.given() for claim in claims),
        len({name for claim in claims for name in claim.tests}),
        len({name for claim in claims for name in claim.mutants})))
    for line in wrong:
        print("claims: %s" % line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
