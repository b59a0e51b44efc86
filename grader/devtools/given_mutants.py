#!/usr/bin/env python3
"""Wrong changes of given code (lib/), which the kit's own suites must notice.

Students write none of it, so no test that grades has to find its mistakes; but what the six files
and the labs rely on must not break without a failing test either. A file of tests/mutants/given
names the file that it changes, and its mutants with the tests that must fail, as those of a task do
(mutants.py); a test is named SUITE/NAME, a suite of tests/fsdp, labs, nn or checkpoint, or a task's
or lab's (mixed_precision/NAME):

    {"file": "lib/fsdp/root.c", "mutants": [{"name": …, "wrong": …, "edits": [[old, new]],
                                             "caught_by": {"states/NAME": "what it says"}}]}

or is a list of such objects. A header says which file is compiled with the wrong one: {"file":
"include/e4m3.h", "in": "tests/nn/fp8_kernels.c", …}; of a suite's own file it takes the place. What
a skeleton has is given code, too: of a task's or a lab's file the reference is named, whose place
the wrong one takes.

Interface: given_mutants.py [--only NAME] [--build DIR]; exit status 0 when each is caught for its
reason; 1: one is not; 2: a file that makes no sense; 3: the kit or the machine is at fault.
load(folder) -> [(file, what is compiled, mutant)].
"""

import argparse
import glob
import json
import os
import re
import shutil
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest
import mutant_files
import mutants
import runner
from builder import Builder, Infrastructure

FOLDER = os.path.join(ROOT, "tests", "mutants", "given")
FIELDS = {"name": str, "wrong": str, "edits": list, "caught_by": dict}


def load(folder):
    """[(file, what is compiled, mutant as a dict)] of every file of the folder."""
    found, names = [], set()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            parts = data if isinstance(data, list) else [data]
            entries = [(part["file"], part.get("in", part["file"]), entry)
                       for part in parts for entry in part["mutants"]]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise mutant_files.BadFile("%s: must hold {\"file\": …, \"mutants\": […]}: %r"
                                  % (path, problem))
        for source, compiled, entry in entries:
            wrong = not isinstance(entry, dict) or set(entry) != set(FIELDS) or not all(
                isinstance(entry[field], kind) and entry[field] for field, kind in FIELDS.items())
            if wrong or entry["name"] in names or not all(
                    test.count("/") == 1 for test in entry["caught_by"]) \
                    or not compiled.endswith(".c"):
                raise mutant_files.BadFile("%s: %s" % (path, str(entry)[:200]))
            names.add(entry["name"])
            found.append((source, compiled, entry))
    return found


def objects_of(suite):
    """The suite's objects, below build/obj."""
    for task in manifest.load_all(ROOT):
        if task.name == suite:
            return [source + ".o" for source in task.test_sources()]
    folder = next((name for name in ("labs", "nn", "checkpoint")
                   if os.path.exists(os.path.join(ROOT, "tests", name, suite + ".c"))), "fsdp")
    return ["tests/%s/%s.o" % (folder, suite)]


def lab_objects(kit, source):
    """The labs' files of the reference, as kit.reference has the tasks'; not that of `source`."""
    return ["%s/impl/reference/%s.o" % (kit.build, piece.name)
            for lab in manifest.load(ROOT, manifest.LAB) for piece in lab.pieces()
            if piece.in_kit("reference") != source]


def build_suites(kit, options, names):
    """{suite: its objects}"""
    objects = {name: ["%s/obj/%s" % (kit.build, path) for path in objects_of(name)]
               for name in names}
    with kit.lock():
        status, output = Builder(mutants.REFERENCE, options.build, "simgpu").make(
            sum(objects.values(), []) + lab_objects(kit, ""), jobs=2)
    if status != 0:
        raise Infrastructure("the suites do not build:\n%s" % output.strip()[-4000:])
    return objects


def why_not(kit, part, mutant, suites, folder):
    """Why the mutant is not caught as it should be, or ""; part: its file, and what is compiled."""
    source, compiled = part
    changed = os.path.join(folder, "changed.c")
    try:
        text = mutant_files.read(os.path.join(ROOT, source))
        text = mutant_files.edit_text(text, mutant["edits"])
    except mutant_files.DoesNotApply as problem:
        return "does not apply: %s" % problem
    for header in glob.glob(os.path.join(folder, "*.h")):
        os.remove(header) # another mutant's
    for near in {os.path.dirname(compiled), os.path.dirname(source)}:
        for header in glob.glob(os.path.join(ROOT, near, "*.h")):
            shutil.copy(header, folder) # which the file, and each other, finds beside itself
    shutil.copy(os.path.join(ROOT, compiled), changed)
    target = changed if source == compiled else os.path.join(folder, os.path.basename(source))
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)
    is_test = compiled.startswith(("tests/", "tasks/", "labs/"))
    flags = ["-iquote", folder] + ["-Itests/support"] * is_test
    flags += ["-Isimgpu/src", "-Igpulog/log"] * compiled.startswith("simgpu/")
    problem = kit.command(kit.compiler + flags + ["-c", changed, "-o", changed[:-2] + ".o"])
    if problem:
        return "does not compile: %s" % problem
    for test, reason in mutant["caught_by"].items():
        suite, name = test.split("/")
        program = os.path.join(folder, "suite-" + suite)
        own = [name for name in suites[suite] if not name.endswith("/obj/%s.o" % compiled[:-2])]
        objects = own + [changed[:-2] + ".o"] + [
            kit.reference(task) for task in kit.tasks if task.in_kit("reference") != compiled]
        if not objects_of(suite)[0].startswith(("tests/fsdp", "tasks/")):
            objects += lab_objects(kit, compiled)
        failing = objects_of(suite)[0].startswith(("tests/fsdp/failing", "labs/"))
        wraps = kit.failing if failing else []
        problem = kit.command(kit.linker + wraps + objects + kit.libraries + kit.late
                              + ["-o", program])
        if problem:
            return "cannot be linked: %s" % problem
        verdict = runner.run_tests([program], [name],
                                   mutants.TEST_LIMIT * runner.time_factor())[0][name]
        if verdict.status == "passed":
            return "%s passes" % test
        if not re.search(reason, " ".join(verdict.message.split())):
            return "another reason: %s says: %s" % (test, " ".join(verdict.message.split())[:300])
    return ""


def run(options):
    os.environ["SEED"] = os.environ.get("SEED") or mutants.MUTANTS_SEED
    every = load(FOLDER)
    chosen = [(part, mutant) for *part, mutant in every
              if not options.only or mutant["name"] in options.only]
    if not chosen:
        raise mutants.BadUsage("there is no such mutant")
    bad = []
    with tempfile.TemporaryDirectory(prefix="shardlab-given-") as folder:
        os.environ["TMPDIR"] = folder # what a compiler leaves that was stopped goes with the rest
        kit = mutants.Kit(options.build, manifest.load(ROOT))
        suites = build_suites(kit, options, sorted({test.split("/")[0] for _, mutant in chosen
                                                    for test in mutant["caught_by"]}))
        for part, mutant in chosen:
            trouble = why_not(kit, part, mutant, suites, folder)
            print("%-4s %-36s %s" % ("no" if trouble else "yes", mutant["name"],
                                     trouble or ", ".join(mutant["caught_by"])), flush=True)
            if trouble:
                bad.append(mutant["name"])
    print("%d mutants of given code, %d caught for the stated reason"
          % (len(chosen), len(chosen) - len(bad)))
    return 1 if bad else 0


def parse():
    parser = argparse.ArgumentParser(description="Test the tests of given code.")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--build", default="", metavar="DIR", help="build tree")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(mutants.exit_status("given_mutants", run, parse()))
