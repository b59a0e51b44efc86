#!/usr/bin/env python3
"""Grades the same solutions again and again while all cores are busy, and says whether the scores
stay.

Two solutions: the reference, which must have all points every time, and one that is half done: the
reference's first three files, a fault in the fourth (the gradient is summed and not divided by the
number of ranks), and the skeleton's others. What must stay is the score and the status of every
test, not the time; and not what the tests draw, which is something else in each grading (seeds.py):
a score must not hang on it. SEED in the environment gives all gradings the same.

Interface: flakiness.py [--times N] [--build DIR] [--load N] [--out DIR]; exit status 1 where a
grading came out differently, and the results are kept.
"""

import argparse
import collections
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest

BEGUN = ("meta_init", "flat_param", "forward", "backward") # of the half-done solution


def make_half(folder):
    """The half-done solution, in a folder."""
    os.makedirs(folder)
    for task in manifest.load(ROOT):
        whose = "reference" if task.name in BEGUN else "skeleton"
        shutil.copy(os.path.join(ROOT, task.in_kit(whose)), folder)
    path = os.path.join(folder, "backward.c")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    faulty = text.replace("(float)flat->layout.world", "1.0f")
    if faulty == text:
        sys.exit("flakiness: reference/backward.c does not divide by (float)flat->layout.world: "
                 "look at make_half")
    with open(path, "w", encoding="utf-8") as file:
        file.write(faulty)


def busy(count):
    """Processes that keep a core busy each, at the usual priority, as long as this one lives."""
    program = "import os\nwhile os.getppid() == %d:\n    sum(range(1000000))" % os.getpid()
    return [subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL) for _ in range(count)]


def grade(impl, build, out):
    """One grading: its score and every test's status (None: there is none), seconds, and what went
    wrong with the grader itself."""
    began = time.monotonic()
    command = [sys.executable, os.path.join(ROOT, "grader", "grade.py"), "--impl", impl,
               "--out", out]
    done = subprocess.run(command + (["--build", build] if build else []), cwd=ROOT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        return None, seconds, done.stderr.strip()[-500:]
    with open(out, encoding="utf-8") as file:
        document = json.load(file)
    statuses = sorted((test["name"], test["status"]) for test in document["tests"])
    return (document["score"], tuple(statuses)), seconds, ""


def repeat(name, impl, options):
    """Grades one solution many times; True where every grading came out the same."""
    outcomes, times, kept = collections.Counter(), [], {}
    for _ in range(options.times):
        out = os.path.join(options.out, name + ".json")
        outcome, seconds, trouble = grade(impl, options.build, out)
        outcomes[outcome] += 1
        times.append(seconds)
        if trouble:
            print("%s: the grader gave up: %s" % (name, trouble))
        if outcome not in kept:
            kept[outcome] = os.path.join(options.out, "%s-%d.json" % (name, len(kept) + 1))
            shutil.copy(out, kept[outcome])
    times.sort()
    scores = ", ".join("%g (%d times)" % (outcome[0], count) if outcome else "none (%d times)"
                       % count for outcome, count in outcomes.most_common())
    print("%-9s  %d gradings with %d busy processes; score %s; %.1f to %.1f s, median %.1f s"
          % (name, options.times, options.load, scores, times[0], times[-1],
             times[len(times) // 2]), flush=True)
    usual = outcomes.most_common(1)[0][0]
    for outcome in outcomes:
        for (test, status), (_, other) in zip(outcome[1] if outcome else (),
                                              usual[1] if usual else ()):
            if status != other:
                print("  %s: %s, else %s; see %s" % (test, status, other, kept[outcome]))
    return len(outcomes) == 1 and usual is not None and (name != "reference" or usual[0] == 100)


def main():
    parser = argparse.ArgumentParser(description="Grade the same solutions many times under load.")
    parser.add_argument("--times", type=int, default=50, metavar="N", help="gradings of each (50)")
    parser.add_argument("--load", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="busy processes at the same time (as many as there are cores)")
    parser.add_argument("--build", default="", metavar="DIR", help="build tree")
    parser.add_argument("--out", default="", metavar="DIR", help="where results are kept")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="shardlab-flakiness-")
    options.out = os.path.abspath(options.out or os.path.join(folder, "results"))
    os.makedirs(options.out, exist_ok=True)
    half = os.path.join(folder, "half-done-%d" % os.getpid())
    load, same = [], False
    try:
        make_half(half)
        load = busy(options.load)
        same = all([repeat("reference", os.path.join(ROOT, "reference"), options),
                    repeat("half-done", half, options)])
    finally:
        for process in load:
            process.kill()
            process.wait()
        if same:
            shutil.rmtree(folder, ignore_errors=True)
        tree = os.path.join(ROOT, options.build or "build", "impl")
        for path in glob.glob(os.path.join(tree, os.path.basename(half) + "-*")):
            shutil.rmtree(path, ignore_errors=True)
    print("The scores do not vary." if same else "The scores vary; the results are in %s."
          % options.out)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
