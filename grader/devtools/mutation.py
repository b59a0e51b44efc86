#!/usr/bin/env python3
"""Mutation by machine: is there a line of the reference that may be wrong and no test sees it?

Every statement and expression of reference/*.c is changed in every way of mutation_operators.py,
one at a time, and the tests that grade are run on the result: its own task's suite, then
`together`. The hand-written mutants (mutants.py) are mistakes that students make, with the reason
for which they must be caught; these here only have to be caught. What becomes of a mutant:

  not valid    it does not compile as a task file must (the Makefile's flags)
  same code    its object code is the original's: equivalent, nothing is run
  fixed        killed by a fixed case: a test fails, errors or takes too long before it has drawn
               anything. A mutant's run ends with its first kill.
  seeds        killed only by cases that draw shapes, and by them with all of SEEDS seeds
  some seeds   killed by these with some seeds, alive with another: needs a fixed case
  unclear      a test timed out, and the reference did not pass it either: a busy machine
  alive        every test passes. It is equivalent, and tests/mutants/machine/equivalent.json has
               the reason, or the tests have a hole. What simgpu reports in a test that passes costs
               a student no point, so it kills nothing.

Results go to build/mutation/results.jsonl as they come. RESUME=1 takes those over that were found
with the same programs and seed, RESUME=kills every kill, also of other tests: they only grow
stricter.

A sample is drawn by SEED from the mutants that have no reason, and it ends without a mistake where
time is up (--within) or a mutant is unclear: a draw must say nothing of the machine.

Interface: mutation.py [--task N] [--only ID] [--sample N] [--within S] [--resume 1|kills]
[--list] [--build DIR]; exit status 0: none alive without a reason; 1: some are; 2: a question or a
list that makes no sense; 3: the kit or the machine is at fault.
Files: mutation_source.py, mutation_operators.py, mutation_trial.py (builds and runs one),
mutation_results.py (the list of reasons).
"""

import argparse
import collections
import os
import queue
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest
import mutants
import runner
import seeds
from mutation_operators import mutants_of
from mutation_results import (JUDGED, KILLED, Record, load_judged, load_kills,
                              load_results)
from mutation_source import BadSource
from mutation_trial import REFERENCE, Bench, Workshop

JOBS = 2
LOOK = 1.0                   # seconds between two looks at a mutant's processes


# ---- All of them ----

def run_all(benches, chosen, done, options, folder, record):
    """Tries every mutant that has no result yet; the results by id."""
    results, free = dict(done), queue.Queue()
    until = time.monotonic() + (options.within or float("inf"))
    for number in range(JOBS):
        own = os.path.join(folder, "worker-%d" % number)
        os.makedirs(own, exist_ok=True)
        free.put(own)

    def one(mutant):
        own = free.get()
        try:
            if runner.stopping.is_set() or time.monotonic() > until:
                return None
            result = benches[mutant.file].try_one(mutant, own)
            if runner.stopping.is_set():
                return None # what ended it was not a test
            record.add(result)
            return mutant, result
        finally:
            free.put(own)
    with ThreadPoolExecutor(JOBS) as pool:
        waiting = [pool.submit(one, mutant) for mutant in chosen if mutant.id not in done]
        try:
            for number, future in enumerate(waiting, 1):
                got = future.result()
                if got is None:
                    continue
                results[got[0].id] = got[1]
                if got[1].outcome in ("alive", "some seeds"):
                    show(got[0], got[1])
                if number % 100 == 0:
                    print("… %d of %d" % (number, len(waiting)), flush=True)
        except BaseException:
            for future in waiting:
                future.cancel()
            runner.stop()
            raise
    return results


def show(mutant, result):
    what = "alive" if result.outcome == "alive" else "needs a fixed case (alive with SEED=%s)" % (
        ", ".join(map(str, result.lives)))
    print("%s  reference/%s:%d  %s\n%s" % (what, mutant.file, mutant.line, mutant.id,
                                           "\n".join("    " + line
                                                     for line in mutant.diff().splitlines())),
          flush=True)


def summary(chosen, results, judged, seconds):
    """Prints what came out; the exit status."""
    counts = collections.Counter()
    left, wrong = [], []
    for mutant in chosen:
        result = results.get(mutant.id)
        if result is None:
            counts["late"] += 1
            continue
        outcome = result.outcome
        if mutant.id in judged:
            if outcome in KILLED + ("not valid", "some seeds"):
                wrong.append((mutant, result))
            outcome = "judged" if outcome == "alive" else outcome
        elif outcome in ("alive", "some seeds"):
            left.append((mutant, result))
        counts[outcome] += 1
    tried = len(chosen) - sum(counts[what] for what in ("not valid", "same code", "judged",
                                                        "unclear", "late"))
    killed = counts["fixed"] + counts["seeds"]
    if left:
        print("\nWithout a reason:")
    for mutant, result in left:
        show(mutant, result)
    for mutant, result in wrong:
        print("judged equivalent, but %s (%s, %s): %s" % (result.outcome, result.by, result.how,
                                                          mutant.id))
    print("\n%d mutants in %.0f s" % (len(chosen), seconds))
    for what, number in (
            ("not valid (do not compile)", counts["not valid"]),
            ("equivalent by object code", counts["same code"]),
            ("equivalent, with a reason", counts["judged"]),
            ("killed by a fixed case", counts["fixed"]),
            ("killed by drawn cases, with every seed", counts["seeds"]),
            ("killed with some seeds: need a fixed case", counts["some seeds"]),
            ("alive without a reason", counts["alive"])):
        print("  %5d  %s" % (number, what))
    for what, number in (("unclear: the reference timed out, too", counts["unclear"]),
                         ("not tried: time was up", counts["late"])):
        if number:
            print("  %5d  %s" % (number, what))
    print("Score: %d of %d killed, %.1f %%" % (killed, tried, 100.0 * killed / max(1, tried)))
    return 1 if left or wrong else 0


def choose(options, tasks, everything, judged, seed):
    """The mutants that were asked for. judged: those that have a reason."""
    chosen = everything
    if options.task:
        files = [task.file for task in tasks if options.task in (str(task.number), task.name)]
        if not files:
            raise mutants.BadUsage("there is no task %s" % options.task)
        chosen = [mutant for mutant in chosen if mutant.file == files[0]]
    if options.only:
        unknown = set(options.only) - {mutant.id for mutant in chosen}
        if unknown:
            raise mutants.BadUsage("there is no mutant %s" % sorted(unknown)[0])
        chosen = [mutant for mutant in chosen if mutant.id in options.only]
    if options.sample:
        chosen = [mutant for mutant in chosen if mutant.id not in judged]
        drawn = random.Random(seed).sample(range(len(chosen)), min(options.sample, len(chosen)))
        chosen = [chosen[i] for i in sorted(drawn)]
        print("%d drawn by SEED=%d" % (len(chosen), seed))
    if not chosen:
        raise mutants.BadUsage("there is nothing to try")
    return chosen


def make_all(tasks):
    """Every mutant of every task's file."""
    found = []
    for task in tasks:
        with open(os.path.join(REFERENCE, task.file), encoding="utf-8") as file:
            try:
                found += mutants_of(task.file, file.read())
            except BadSource as problem:
                raise mutants.BadUsage("reference/%s, %s" % (task.file, problem))
    return found


def parse():
    parser = argparse.ArgumentParser(description="Change every line of the reference, and see "
                                     "whether the tests notice.")
    parser.add_argument("--task", default="", metavar="N|name", help="those of one task")
    parser.add_argument("--only", action="append", metavar="ID", help="this one (may be repeated)")
    parser.add_argument("--sample", type=int, default=0, metavar="N",
                        help="so many, drawn by SEED from those that have no reason")
    parser.add_argument("--within", type=float, default=0.0, metavar="S",
                        help="begin with no more of them after so long")
    parser.add_argument("--resume", default="", choices=["", "1", "kills"],
                        help="1: what the same programs gave; kills: every earlier kill as well")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--build", default="", metavar="DIR", help="build tree")
    return parser.parse_args()


def run(options):
    began = time.monotonic()
    runner.Family.LOOK = LOOK
    if not options.sample:
        os.environ.setdefault("SEED", mutants.MUTANTS_SEED)
        os.environ["SEED"] = os.environ["SEED"] or mutants.MUTANTS_SEED
    seed = seeds.choose()
    tasks = manifest.load(ROOT)
    everything = make_all(tasks)
    judged = load_judged(JUDGED, {mutant.id: mutant for mutant in everything})
    chosen = choose(options, tasks, everything, judged, seed)
    if options.list:
        for mutant in chosen:
            print("%s  %d  %s" % (mutant.id, mutant.line, mutant.change()))
        return 0
    shop = Workshop(options.build, tasks)
    with tempfile.TemporaryDirectory(prefix="shardlab-mutation-") as folder:
        os.environ["TMPDIR"] = folder # what a compiler leaves that was stopped goes with the rest
        benches = {task.file: Bench(shop, task, folder, seed) for task in tasks
                   if any(mutant.file == task.file for mutant in chosen)}
        path = os.path.join(shop.folder, "results.jsonl")
        for result in load_kills(path):
            file, function = result.id.split(":")[:2]
            if file in benches:
                benches[file].learn(function, result.by)
        keys = {file: bench.key for file, bench in benches.items()}
        known = load_results(path, keys, options.resume == "kills") if options.resume else {}
        done = {mutant.id: known[mutant.id] for mutant in chosen if mutant.id in known}
        if done:
            print("%d have a result already" % len(done))
        record = Record(path)
        results = run_all(benches, chosen, done, options, folder, record)
    return summary(chosen, results, judged, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(mutants.exit_status("mutation", run, parse(), "; RESUME=1 goes on"))
