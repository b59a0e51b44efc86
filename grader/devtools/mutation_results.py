"""What became of mutants, and which of those alive are so with a reason (mutation.py).

tests/mutants/machine/equivalent.json: {"equivalent": [{"reason": …, "mutants": {id: change, …}}]};
`change` as mutation.py --list prints it. An entry whose mutant is not there any more, or is killed,
is an error.

A result is a line of build/mutation/results.jsonl, of one mutant; the last one counts.

Interface: Result, Record(path).add(result), load_results(path, keys, kills), load_kills(path),
load_judged(path, mutants_by_id); JUDGED, KILLED; BadList.
"""

import json
import os
import threading
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JUDGED = os.path.join(ROOT, "tests", "mutants", "machine", "equivalent.json")
KILLED = ("fixed", "seeds")


class BadList(Exception):
    """The list of those judged equivalent is wrong."""


@dataclass
class Result:
    id: str
    outcome: str
    by: str = ""             # the suite and the test that kills it, or what the compiler says
    how: str = ""            # failed, error, timeout
    code: str = ""           # sum of the object code
    key: str = ""            # sum of the programs without a mutant
    seconds: float = 0.0
    lives: list = field(default_factory=list) # seeds with which no test kills it


def load_judged(path, mutants_by_id):
    """{id: reason}; an entry that fits no mutant is an error."""
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file)["equivalent"]
        pairs = [(name, change, entry["reason"]) for entry in entries
                 for name, change in entry["mutants"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadList("%s: must hold {\"equivalent\": [{\"reason\": …, \"mutants\": {id: change}}]}"
                      ": %r" % (path, problem))
    judged, wrong = {}, []
    for name, change, reason in pairs:
        mutant = mutants_by_id.get(name)
        if not isinstance(reason, str) or len(reason.split()) < 3:
            wrong.append("%s: its reason must be a sentence" % name)
        elif name in judged:
            wrong.append("%s is there twice" % name)
        elif not mutant:
            wrong.append("%s: there is no such mutant any more" % name)
        elif mutant.change() != change:
            wrong.append("%s makes another change: %s" % (name, mutant.change()))
        judged[name] = reason
    if wrong:
        raise BadList("%s:\n  %s" % (path, "\n  ".join(wrong)))
    return judged


def read_results(path):
    """Every result of the file, in order."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        try:
            yield Result(**json.loads(line))
        except (ValueError, TypeError):
            continue # a line that Ctrl-C has cut


def load_kills(path):
    """Every kill by a fixed case, whichever programs it was found with."""
    return [result for result in read_results(path) if result.outcome == "fixed"]


def load_results(path, keys, kills):
    """Earlier results that still count, by id. `keys`: {file: key}; `kills`: those count whatever
    the key."""
    found = {}
    for result in read_results(path):
        same = result.key == keys.get(result.id.partition(":")[0])
        if result.outcome != "unclear" and (same or kills and result.outcome in KILLED):
            found[result.id] = result
    return found


class Record:
    """The file of results: a line for each, as they come."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.lock = threading.Lock()

    def add(self, result):
        with self.lock:
            self.file.write(json.dumps(result.__dict__) + "\n")
            self.file.flush()
