"""Doing nothing earns nothing: of each task and lab the skeleton without its NOT_YET lines, and
with functions that return OK, or refuse, at once, against all tests that need its files alone."""

import os
import re
import tempfile
import unittest
from unittest import mock

from helpers import ROOT, build_folder

import cause
import manifest
import mutant_files
import mutants
import runner

LIMIT = 20.0 # seconds of a test, times SHARDLAB_TIME_FACTOR
REFUSAL = 'return fail(ERR_ARGUMENT, "refused");'


def returns(head, refuses):
    """What ends a function with this head at once."""
    if re.search(r"\bvoid\s+\w+\s*\(", head):
        return "return;"
    return REFUSAL if refuses and re.search(r"\bStatus\s+\w+\s*\(", head) else "return 0;"


def nothing_done(text, kind):
    """A skeleton's text in which each part is done by nothing: its NOT_YET is taken out ("left
    out"), or its function returns "at once", or "refuses"."""
    for name, begin, end in reversed(cause.places_of(text)):
        if "NOT_YET(" not in text[begin:end]:
            continue
        opens = begin + cause.COMMENT.sub(cause.blank, text[begin:end]).index("{")
        ended = returns(text[begin:opens], kind == "refuses")
        body = "{\n    %s\n}" % ended
        if kind == "left out":
            body = re.sub(r'NOT_YET\("[^"]*"\);(\s*\}\Z)?',
                          lambda gap: ended + gap.group(1) if gap.group(1) else ";",
                          text[opens:end])
        text = text[:opens] + body + text[end:]
    return text


class NothingDone(unittest.TestCase):
    def earned(self, kit, task, kind, folder):
        """The tests that pass."""
        objects = {}
        for piece in task.pieces():
            source = os.path.join(folder, piece.file)
            with open(source, "w", encoding="utf-8") as file:
                file.write(nothing_done(mutant_files.read(os.path.join(
                    ROOT, piece.in_kit("skeleton"))), kind))
            objects[piece.name] = source[:-2] + ".o"
            self.assertEqual(kit.compile(source, objects[piece.name]), "")
        suite = os.path.join(folder, "suite")
        self.assertEqual(kit.link(task.kind, task.test_sources(), objects, suite), "")
        names = [test.name for test in task.own()]
        verdicts = runner.run_tests([suite], names, LIMIT * runner.time_factor())[0]
        return [name for name in names if verdicts[name].status == "passed"]

    def test_it_earns_nothing(self):
        tasks = manifest.load_all(ROOT)
        kit = mutants.Kit(build_folder(), tasks)
        for task in tasks:
            for kind in ("left out", "at once", "refuses"):
                with self.subTest(task=task.label(), kind=kind), \
                        tempfile.TemporaryDirectory() as folder, \
                        mock.patch.dict(os.environ, SEED=mutants.MUTANTS_SEED):
                    self.assertEqual(self.earned(kit, task, kind, folder), [])


if __name__ == "__main__":
    unittest.main()
