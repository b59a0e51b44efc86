#!/usr/bin/env python3
"""What include/fsdp.h, the labs' headers and the handouts' rules claim, and what proves each claim.

A *claim* is a sentence, or a part of one, that a wrong solution can break. tests/claims.txt has an
entry for each: its number, the text as it stands in the document, the tests that fail where it is
broken, and the wrong solutions of a task's or lab's mutants.json that break it:

    fsdp.h/meta_numel/1
      says     Elements of a parameter: the product of its shape.
      tests    counts_elements
      mutants  numel_in_32_bits number_without_shape

  as N        instead of tests and mutants: what claim N has
  given       given code does it, which no student writes, or a skeleton has already: a test may be
              one of the kit's own suites (tests/fsdp, labs, nn or checkpoint: seams/NAME), and a
              mutant is one of tests/mutants/given
  definition  in place of a number, with "says" alone: it says what a thing is, or asks, and nothing
              can break it

A long text goes on in lines that are indented further. The check fails for a text that is not in
its document (any more), for a sentence of which a part is in no entry, for a claim without a test
or without a mutant, for a mutant that loses none of the claim's tests, and for one that breaks no
claim. The sentences are those of every comment of the headers (of kernels.h those of part 4: the
other parts are formulas), and of a handout those of its numbered
parts and rules ("**2.1** …", "1. *One owner.* …") that are no questions.

Interface: claims.py [--task N] prints the table and checks it; exit status 0, or 1 with a line for
each thing that is wrong; check(root) -> (claims, what is wrong).
"""

import argparse
import glob
import json
import os
import re
import sys
import textwrap
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join("tests", "claims.txt")
HEADER = "fsdp.h"
# The headers of labs, with the folders whose mutants must each break a claim.
LABS_HEADERS = {"mesh.h": "1_strategies", "strategy.h": "1_strategies",
                "precision.h": "2_mixed_precision", "prefetch.h": "3_prefetch",
                "recompute.h": "4_memory", "offload.h": "4_memory",
                "checkpoint.h": "5_checkpoints", "layout_rule.h": "6_per_parameter",
                "per_parameter.h": "6_per_parameter", "fp8_gather.h": "6_per_parameter",
                "pipeline.h": "7_pipeline"}
# A header of which a part makes claims: that after this line.
PARTS = {"kernels.h": "// ---- 4."}
HEADERS = (HEADER, *LABS_HEADERS, *PARTS)


class BadTable(Exception):
    """tests/claims.txt cannot be understood."""


@dataclass
class Entry:
    number: str                 # "fsdp.h/meta_numel/1"; "": a definition
    document: str               # "fsdp.h", "handouts/1"
    line: int
    says: str = ""
    tests: list = field(default_factory=list)
    mutants: list = field(default_factory=list)
    same: str = ""              # the claim that has the tests and mutants
    given: bool = False


def one_line(text):
    return " ".join(text.split())


# ---- The documents ----

def sentences(paragraph):
    """The sentences of a text; a point within one is followed by no capital letter."""
    text = one_line(paragraph)
    return [part for part in re.split(r"(?<=[.?!])\)?\s+(?=[A-Z*`(])", text) if part]


def header_paragraphs(text):
    """The comments of a C header: lines of comment one after another are a paragraph."""
    found, current, inside = [], [], False
    for line in text.splitlines() + [""]:
        block = inside or line.startswith("/*")
        comment = re.search(r"//\s?(.*)$", line)
        if block:
            inside = "*/" not in line
            words = re.sub(r"^(/\*+| \*(?!/)) ?|\s*\*/\s*$", "", line)
            if words.startswith("  ") or not words.strip(): # a table, the end of a paragraph
                found.append(current)
                current = []
            else:
                current.append(words)
        elif comment and not re.match(r"// -{5,}", line):
            if not re.match(r"\s*//", line):
                found.append(current)
                current = []
            if comment.group(1).strip():
                current.append(comment.group(1))
            else:
                found.append(current)
                current = []
        else:
            found.append(current)
            current = []
    return [" ".join(lines) for lines in found if lines]


def handout_paragraphs(text):
    """Those that begin with the number of a part, or are a numbered rule with a name."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^(\d+\. )", r"\n\1", text)
    return [re.sub(r"^(\*\*[\d., ]+\*\*|\d+\.)\s*", "", paragraph.strip())
            for paragraph in re.split(r"\n\s*\n", text)
            if re.match(r"\*\*\d\.\d|\d+\. \*", paragraph.strip())]


def documents(root):
    """{name: sentences} of all that makes claims."""
    found = {}
    for header in HEADERS:
        path = os.path.join(root, "include", header)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if header in PARTS:
            text = text[text.index("\n", text.index(PARTS[header])):]
        found[header] = [s for p in header_paragraphs(text) for s in sentences(p)]
    for path in sorted(glob.glob(os.path.join(root, "handouts", "[0-9]_*.md"))):
        with open(path, encoding="utf-8") as file:
            found["handouts/" + os.path.basename(path)[0]] = [
                s for p in handout_paragraphs(file.read()) for s in sentences(p)
                if not s.endswith("?")]
    return found


# ---- The table ----

def read_table(path):
    """The entries of tests/claims.txt."""
    entries, key = [], ""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for at, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            words = line.split()
            definition = words[0] == "definition"
            number = "" if definition else words[0]
            if len(words) != 1 + definition:
                raise BadTable("%s:%d: a number, or \"definition\" and a document" % (path, at))
            document = words[1] if definition else number.rpartition("/")[0]
            if not definition:
                document = number.split("/")[0]
                if document not in HEADERS:
                    document = "/".join(number.split("/")[:2])
            entries.append(Entry(number, document, at))
            key = ""
            continue
        if not entries:
            raise BadTable("%s:%d: a line before the first entry" % (path, at))
        entry = entries[-1]
        if re.match(r"  \S", line):
            key, _, rest = line.strip().partition(" ")
        else:
            rest = line
        rest = one_line(rest)
        if key == "says":
            entry.says = one_line(entry.says + " " + rest)
        elif key in ("tests", "mutants"):
            getattr(entry, key).extend(rest.split())
        elif key == "as":
            entry.same = rest
        elif key == "given":
            entry.given = True
        else:
            raise BadTable("%s:%d: nobody knows \"%s\"" % (path, at, key))
    return entries


def known_tests(root):
    """The tests that grade, and those of the kit's own suites as suite/test."""
    names = set()
    for pattern in "tasks/*/task.json", "labs/*/lab.json":
        for path in glob.glob(os.path.join(root, pattern)):
            with open(path, encoding="utf-8") as file:
                names |= {test["name"] for test in json.load(file)["tests"]}
    for folder in "fsdp", "labs", "nn", "checkpoint":
        for path in glob.glob(os.path.join(root, "tests", folder, "*.c")):
            with open(path, encoding="utf-8") as file:
                suite = os.path.basename(path)[:-2]
                names |= {suite + "/" + name for name in re.findall(
                    r"^\w*TEST\w*\((\w+)", file.read(), re.MULTILINE)}
    return names


def known_mutants(root):
    """{name: the tests that it must lose}, and the names of those that must each break a claim."""
    found, owed = {}, set()
    paths = sorted(glob.glob(os.path.join(root, "tasks", "*", "mutants.json")))
    paths += [os.path.join(root, "labs", folder, "mutants.json")
              for folder in sorted(set(LABS_HEADERS.values()))]
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                own = {mutant["name"]: set(mutant["caught_by"])
                       for mutant in json.load(file)["mutants"]}
            found.update(own)
            owed |= set(own)
    for path in sorted(glob.glob(os.path.join(root, "tests", "mutants", "given", "*.json"))):
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        for part in data if isinstance(data, list) else [data]:
            # A test that grades has no suite in front of it in the table.
            found.update({mutant["name"]: set(mutant["caught_by"]) | {
                test.split("/")[1] for test in mutant["caught_by"]} for mutant in part["mutants"]})
    return found, owed


# ---- The check ----

def check_proofs(entries, root):
    """What is wrong with the tests and mutants of the claims; fills in those of "as"."""
    wrong, tests = [], known_tests(root)
    mutants, owed = known_mutants(root)
    claims = {entry.number: entry for entry in entries if entry.number}
    for number, entry in claims.items():
        if entry.same:
            other = claims.get(entry.same)
            if other is None or other.same:
                wrong.append("%s: no claim %s has tests of its own" % (number, entry.same))
                continue
            entry.tests, entry.mutants, entry.given = other.tests, other.mutants, other.given
        if not entry.tests:
            wrong.append("%s: no test proves it: \"%s\"" % (number, entry.says))
        if not entry.mutants:
            wrong.append("%s: no mutant breaks it: \"%s\"" % (number, entry.says))
        wrong += ["%s: there is no test %s" % (number, name)
                  for name in entry.tests if name not in tests]
        for name in entry.mutants:
            if name not in mutants:
                wrong.append("%s: there is no mutant %s" % (number, name))
            elif not mutants[name] & set(entry.tests):
                wrong.append("%s: mutant %s need not lose any of its tests, but %s" % (
                    number, name, ", ".join(sorted(mutants[name]))))
    broken = {name for entry in claims.values() for name in entry.mutants}
    wrong += ["mutant %s breaks no claim" % name for name in mutants
              if name in owed and name not in broken]
    return wrong


def check_texts(entries, texts):
    """Texts that are in no document, and sentences that are in no entry."""
    wrong, found = [], set()
    for document, all_sentences in texts.items():
        says = sorted({entry.says for entry in entries if entry.document == document},
                      key=len, reverse=True)
        for sentence in all_sentences:
            left = sentence
            for text in says:
                if text and text in left:
                    left = left.replace(text, " ", 1)
                    found.add((document, text))
            if re.search(r"\w", left):
                wrong.append("%s: in no claim, and no definition: \"%s\"" % (document,
                                                                           one_line(left)))
    for entry in entries:
        if (entry.document, entry.says) not in found:
            wrong.append("%s:%d: not in %s: \"%s\"" % (TABLE, entry.line, entry.document,
                                                        entry.says))
    return wrong


def check(root=ROOT):
    """(the claims, what is wrong with them)."""
    entries = read_table(os.path.join(root, TABLE))
    numbers = [entry.number for entry in entries if entry.number]
    wrong = ["%s: twice" % number for number in sorted(set(numbers)) if numbers.count(number) > 1]
    wrong += check_proofs(entries, root) + check_texts(entries, documents(root))
    return [entry for entry in entries if entry.number], wrong


def tasks_of(root):
    """[(number, title, its tests)]."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, "tasks", "*", "task.json"))):
        with open(path, encoding="utf-8") as file:
            task = json.load(file)
        found.append((task["number"], task["title"], {test["name"] for test in task["tests"]}))
    return found


def show(claims, root, task):
    """The table, a task at a time; what given code claims comes last."""
    groups = [("Task %d, %s" % (number, title), [
        claim for claim in claims if tests & set(claim.tests)], number)
        for number, title, tests in tasks_of(root)]
    groups.append(("Given code", [claim for claim in claims if claim.given], 0))
    shown = set()
    for title, group, number in groups:
        if task and number != task:
            continue
        print(title)
        for claim in group:
            if claim.number in shown:
                continue
            shown.add(claim.number)
            print(textwrap.fill("%s: %s" % (claim.number, claim.says), 98, initial_indent="  ",
                                subsequent_indent="      "))
            for what in ("tests", "mutants"):
                names = getattr(claim, what)
                if names:
                    print(textwrap.fill("%-8s %s" % (what, ", ".join(names)), 98,
                                        initial_indent="      ", subsequent_indent=" " * 15))
        print()


def main(arguments=None):
    parser = argparse.ArgumentParser(description="What the contract claims, and what proves it.")
    parser.add_argument("--task", type=int, default=0, help="the claims of one task")
    options = parser.parse_args(arguments)
    try:
        claims, wrong = check()
    except (BadTable, OSError, ValueError) as problem:
        print("claims: %s" % problem, file=sys.stderr)
        return 2
    show(claims, ROOT, options.task)
    mutants = {name for claim in claims for name in claim.mutants}
    print("%d claims, %d of them of given code; proved by %d tests, broken by %d mutants" % (
        len(claims), sum(claim.given for claim in claims),
        len({name for claim in claims for name in claim.tests}), len(mutants)))
    for line in wrong:
        print("claims: %s" % line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
