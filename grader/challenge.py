#!/usr/bin/env python3
"""The challenge: the fastest training step of a model of 7 billion parameters on 64 GPUs of 80 GiB.

There is no right answer and no points. The student's files run dry in the planner (plan.py) with
the settings of plan.txt in their folder, which this makes where it is not there. What counts is
tokens per second and GPU, where the step fits into memory; a course may show it on a leaderboard.
The planner says what limits the step, and the file of results keeps the folder's best plan so far.

Interface: challenge.py --impl DIR [--build DIR] [--run-as NAME] [--out FILE]; `make challenge`;
entry(document) -> the leaderboard's number, or None. Exit status: 0 where a plan was made, fit or
not; 2 where the settings make no sense; 3 where the kit is at fault.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types

import account
import demo
import layout
import manifest
import plan
import runner
from builder import ROOT, Infrastructure
from files import read_regular_file, write_atomically

NAME = "plan.txt"
FIXED = {"MODEL": "mpt-7b", "GPUS": "64", "MACHINE": "h100x8", "BATCH": "512", "SEQ": "2048"}
FREE = ("STRATEGY", "REPLICAS", "RESHARD_RANKS", "ACCUMULATE", "REDUCE", "DTYPE", "REDUCE_DTYPE",
        "ATTENTION", "RECOMPUTE", "PREFETCH", "LAYOUT", "GATHER", "STAGES", "SCHEDULE")
OFFERED = (80 << 30) // 1000 * 985 # bytes that a GPU of h100x8 has for a plan (plan/make.c)
# Not OFFLOAD: its optimizer is the host's work, which a plan's time does not have.
LIMIT = 60.0 # seconds of a plan, times SHARDLAB_TIME_FACTOR
ADVICE = re.compile(r"^ *What would help most: (.+(?:\n {4}.+)*)", re.MULTILINE)
LINE = re.compile(r"([A-Z_]+)\s*=\s*([\w.-]{1,40})")
TEMPLATE = """\
# The challenge: the fastest step of a model of 7 billion parameters on 64 GPUs of 80 GiB.
#
# Fixed are %s.
# Yours are your files, and these settings (handouts/plan.md says what they do):
# %s.
# `make challenge` runs your files dry with them. What counts is tokens/s per GPU, if it fits.
STRATEGY = fsdp
ACCUMULATE = 8
DTYPE = float
""" % (" ".join("%s=%s" % pair for pair in FIXED.items()), ", ".join(FREE))


class BadSettings(Exception):
    """plan.txt makes no sense; the text says what."""


def settings_of(text):
    """The settings of plan.txt, as the planner is given them."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        where, match = "%s:%d: " % (NAME, number), LINE.fullmatch(line)
        if not match:
            raise BadSettings(where + "must be a setting, such as STRATEGY = zero3")
        name, value = match.groups()
        if name in FIXED:
            raise BadSettings("%s%s is fixed, at %s" % (where, name, FIXED[name]))
        if name not in FREE:
            raise BadSettings("%sthere is no setting %s here; there are %s"
                              % (where, name, ", ".join(FREE)))
        if name in found:
            raise BadSettings("%s%s is set twice: delete one of the lines" % (where, name))
        found[name] = value
    return ["%s=%s" % pair for pair in list(FIXED.items()) + list(found.items())]


# ---- The plan ----

def planned(program, settings, who, confinement):
    """The planner's figures; BadSettings: why it refuses. The program is partly the student's: it
    runs as `who` (account.Account or None), confined, and its figures are numbers within bounds or
    nothing."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="shardlab-challenge-"))
    try:
        if who:
            who.give(folder)
        out = os.path.join(folder, "plan.json")
        try:
            done = subprocess.run(
                confinement.words(folder, program)
                + [program, "JSON=" + out, "ADVICE=no"] + settings,
                env=runner.clean_environment(), cwd=folder, stdin=subprocess.DEVNULL,
                capture_output=True, check=False,
                timeout=LIMIT * runner.time_factor(), **(who.start() if who else {}))
        except subprocess.TimeoutExpired:
            raise BadSettings("the plan took more than %g s" % (LIMIT * runner.time_factor()))
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise BadSettings(said[-1] if said else "the plan ended with status %d"
                              % done.returncode)
        figures = figures_of(read_regular_file(out))
        if figures is None:
            raise BadSettings("the plan left no figures")
        figures["limit"] = limit_of(done.stdout.decode("utf-8", "replace"))
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def figures_of(data):
    """Tokens/s per GPU, MFU, bytes at the peak and in a GPU; None where they cannot be a plan's."""
    try:
        document = json.loads(data)
        tokens, mfu = document["tokens_per_second_per_gpu"], document["mfu"]
        memory, peak = document["offered"], document["reserved"]
        live = max(rank["peak"] for rank in document["ranks"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    numbers = (tokens, mfu, memory, peak, live)
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        return None
    # No GPU computes more than its peak, and memory is the modelled machine's.
    if not 0 < mfu <= 1 or tokens <= 0 or memory != OFFERED or not 0 < live <= peak:
        return None
    return {"tokens": tokens, "mfu": mfu, "peak": peak, "memory": memory, "fits": peak <= memory}


def limit_of(text):
    """What the planner says would help most, on one line; "" where it says nothing."""
    found = ADVICE.search(text)
    return layout.safe(" ".join(found.group(1).split()))[:300] if found else ""


def best_of(path, impl):
    """The best plan of this folder that an earlier file of results has; or None."""
    try:
        best = json.loads(read_regular_file(path))["best"]
        numbers = [best[name] for name in ("tokens", "mfu", "peak", "memory")]
        good = (best["impl"] == impl and all(type(number) in (int, float) and number > 0
                                             for number in numbers)
                and all(LINE.fullmatch(word) for word in best["settings"]))
        return best if good and best["peak"] <= best["memory"] else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def entry(document):
    """What a leaderboard shows: tokens/s per GPU of a plan that fits, all of the student's
    files."""
    figures = document.get("figures")
    if document.get("status") != "graded" or not figures or not document.get("own"):
        return None
    return round(figures["tokens"], 1) if figures["fits"] else None


# ---- All together ----

def words(figures):
    if not figures["fits"]:
        return "does not fit: %.1f of %.1f GiB at the peak" % (
            figures["peak"] / 2 ** 30, figures["memory"] / 2 ** 30)
    return "%.0f tokens/s per GPU, MFU %.1f %%, %.1f of %.1f GiB" % (
        figures["tokens"], 100 * figures["mfu"], figures["peak"] / 2 ** 30,
        figures["memory"] / 2 ** 30)


def run(options):
    if not os.path.isdir(options.impl):
        raise demo.BadUsage(manifest.no_folder(options.impl))
    path = os.path.join(options.impl, NAME)
    reference = os.path.realpath(options.impl) == os.path.join(os.path.realpath(ROOT), "reference")
    if not os.path.lexists(path) and not reference:
        write_atomically(path, TEMPLATE)
        print("Made %s: change its settings, and run this again." % os.path.relpath(path))
    text = TEMPLATE if reference else read_regular_file(path).decode("utf-8", "replace")
    settings = settings_of(text)
    who = account.find(options.run_as)
    program, files, confinement = plan.build_program(types.SimpleNamespace(
        impl=options.impl, build=options.build))
    if files:
        files.say(sys.stdout)
    figures = planned(program, settings, who, confinement)
    own = files is not None and len(files.own) == len(files.tasks)
    print("  %s" % " ".join(settings))
    if not own:
        print("  This is not a leaderboard entry: some of the %s files are not yours."
              % manifest.how_many())
    if figures["limit"]:
        print("  What would help most: %s" % figures["limit"])
    impl = os.path.realpath(options.impl)
    best = best_of(options.out, impl) if options.out else None
    if best and (not figures["fits"] or best["tokens"] > figures["tokens"]):
        print("  Best so far: %s, by %s" % (words(dict(best, fits=True)),
                                            " ".join(best["settings"])))
    elif figures["fits"]:
        free = [word for word in settings if word.partition("=")[0] in FREE]
        best = dict(figures, impl=impl, settings=free)
    print("Challenge: %s" % words(figures))
    return {"status": "graded", "message": "", "settings": settings, "own": own,
            "figures": figures, "best": best}


def parse(arguments):
    parser = argparse.ArgumentParser(description="Plan the challenge's step.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="folder of the task files")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("--run-as", default="", metavar="NAME",
                        help="the account that the plan runs as; only root can have another")
    parser.add_argument("--out", default="", metavar="FILE", help="where the results go")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    try:
        document, status = run(options), 0
    except (BadSettings, demo.BadUsage, account.NoAccount) as problem:
        document, status = {"status": "error", "message": str(problem)}, 2
    except (Infrastructure, manifest.BadManifest, OSError) as problem:
        document, status = {"status": "infrastructure", "message": str(problem)}, 3
    if status:
        layout.tell("challenge: %s" % document["message"])
    if options.out:
        if status: # a mistake loses no plan
            document["best"] = best_of(options.out, os.path.realpath(options.impl))
        write_atomically(options.out, json.dumps(document, indent=1) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
