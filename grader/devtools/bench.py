#!/usr/bin/env python3
"""`make bench`: what this machine needs for training steps, collectives, starting up and the kit's
own loops, as a page bench/results/DATE-bench.md that no earlier one has the name of.

BENCH=quick (the default) measures the GPT-2 that train_gpt2 makes; BENCH=full GPT-2 124M and the
kit's own loops too; BENCH=test is for the tests of this program, and writes into the build tree.
ROUNDS=N measures each figure N times, for bounds that five rounds leave uncertain. Nothing is
written before the end, so a run that is stopped leaves nothing.

How to read the page: bench/README.md. What is measured: bench_sections.py, by bench_run.py, judged
by bench_judge.py, shown by bench_page.py.

Interface: bench.py --build DIR [--level quick] [--rounds N] [--out DIR]; exit status 1: nothing
could be measured, 2: bad use, 130: stopped.
"""

import argparse
import dataclasses
import datetime
import os
import signal
import sys
import time

import bench_page
import bench_run
import bench_sections
from bench_run import ROOT, BenchError

RESULTS = os.path.join(ROOT, "bench", "results")
PROBE = 1.0 # seconds in which other programs are looked for at the start
MOST_ROUNDS = 1000


def refuse(text):
    print("bench: " + text, file=sys.stderr)
    return 2


def say(line):
    print("bench: " + line, flush=True)


def check(options):
    """What is wrong with what is asked for; "" where nothing is."""
    levels = list(bench_sections.LEVELS)
    if options.level not in levels:
        return "there is no BENCH=%s: it is %s or %s" % (options.level, ", ".join(levels[1:-1]),
                                                         levels[-1])
    digits = options.rounds.isascii() and options.rounds.isdigit()
    if options.rounds and not (digits and 1 <= int(options.rounds) <= MOST_ROUNDS):
        return "ROUNDS=%s: must be a number from 1 to %d" % (options.rounds, MOST_ROUNDS)
    need = bench_sections.LEVELS[options.level].memory
    have = bench_run.available_memory() / 2**30
    if 0 < have < need:
        return "BENCH=%s needs %g GiB of memory, and %.1f are free: end other programs%s" % (
            options.level, need, have, ", or BENCH=quick" if options.level == "full" else "")
    return ""


def look_around():
    """A line where the machine is too loaded for wall time, before minutes are spent."""
    load = bench_run.Load()
    time.sleep(PROBE)
    foreign = load.foreign()
    if bench_run.is_loaded(foreign, load.average, bench_run.cores()):
        used = "no /proc/stat" if foreign is None else \
            "other programs use %.1f of %d cores" % (foreign, bench_run.cores())
        say("this machine is loaded (%s, load %.1f): wall times will mean nothing, CPU times come "
            "out some percent too long" % (used, load.average))


def measure(bench):
    """{section: what it found}"""
    level = bench.level
    parts = {"steps": [bench_sections.steps(bench, model, count) for model, count in level.models]}
    if level.start is not None:
        parts["startup"] = bench_sections.startup(bench, level.start)
    parts["collectives"] = bench_sections.collectives(bench)
    parts["growth"] = bench_sections.growth(bench)
    parts["checks"] = bench_sections.checks(bench)
    if level.loops:
        parts["loops"] = bench_sections.loops(bench)
    return parts


def run(options):
    """Measures, and writes the page; its path."""
    level = bench_sections.LEVELS[options.level]
    if options.rounds:
        level = dataclasses.replace(level, rounds=int(options.rounds))
    asked = " ROUNDS=" + options.rounds if options.rounds else ""
    out = options.out or (os.path.join(options.build, "bench", "results")
                          if options.level == "test" else RESULTS)
    shop = bench_run.Shop(options.build)
    bench = bench_sections.Bench(shop, level, bench_run.cores(), say)
    facts = {"machine": bench_run.machine(options.build), "commit": bench_run.commit(),
             "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
             "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
             "level": "BENCH=" + options.level + asked,
             "command": "make bench BENCH=" + options.level + asked}
    look_around()
    load, began = bench_run.Load(), time.monotonic()
    parts = measure(bench)
    facts.update(bench.notes, seconds=time.monotonic() - began, foreign=load.foreign(),
                 load=(load.average, os.getloadavg()[0]))
    facts["loaded"] = bench_run.is_loaded(facts["foreign"], load.average, bench.cores)
    path = bench_page.write(out, facts["when"][:10], bench_page.page(facts, parts, bench.claims))
    print(bench_page.summary(bench.claims))
    return path


def stop(number, frame):
    raise KeyboardInterrupt


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Measure this machine, and record it.")
    parser.add_argument("--build", required=True, metavar="DIR")
    parser.add_argument("--level", default="quick", metavar="WORD", help="quick, full or test")
    parser.add_argument("--rounds", default="", metavar="N", help="how often all is measured (5)")
    parser.add_argument("--out", default="", metavar="DIR",
                        help="where the page goes (bench/results)")
    parser.add_argument("--check", action="store_true", help="only check the arguments")
    options = parser.parse_args(arguments)
    wrong = check(options)
    if wrong:
        return refuse(wrong)
    if options.check:
        return 0
    signal.signal(signal.SIGTERM, stop)
    try:
        print("bench: " + os.path.relpath(run(options), ROOT))
    except KeyboardInterrupt:
        print("bench: stopped; nothing is written", file=sys.stderr)
        return 130
    except (BenchError, OSError) as problem:
        print("bench: %s" % problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
