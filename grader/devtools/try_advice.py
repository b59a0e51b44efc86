#!/usr/bin/env python3
"""The planner's advice against a search: draws plans that do not fit, and compares the fastest
setting that each plan names with the fastest of all that there are, stages and offload left out.

Interface: try_advice.py --plan PROGRAM [--seed N] [--plans N]; exit status 1 where a plan names
none though one fits, or one that is more than 5 % slower than the best.
"""

import argparse
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile

import check_model

MODELS = (("gpt2-xl", 1024), ("mpt-3b", 2048), ("mpt-7b", 2048), ("llama2-7b", 4096),
          ("llama3-8b", 4096), ("mpt-13b", 2048), ("llama2-13b", 4096))
MOST = 0.05
ADVICE = re.compile(r"^ +((?:[A-Z]+=\w+ ?)+): [\d.]+ GiB at the peak; a step takes", re.MULTILINE)


def draw(dice):
    model, seq = dice.choice(MODELS)
    gpus = dice.choice((8, 16))
    strategy = dice.choice(("fsdp", "zero3", "zero2", "zero1", "ddp"))
    return {"MODEL": model, "SEQ": seq, "GPUS": gpus, "STRATEGY": strategy,
            "BATCH": gpus * dice.choice((2, 4, 8, 16)),
            "MACHINE": dice.choice(("h100x8", "a100x8"))}


def fits(found):
    return found["reserved"] <= found["offered"]


def search(plan, asked):
    """(seconds, settings) of the fastest that fits; None: none does."""
    best, parts = None, asked["BATCH"] // asked["GPUS"]
    own = "zero3" if asked["STRATEGY"] == "fsdp" else asked["STRATEGY"]
    for strategy, again, n in itertools.product(
            sorted({own, "zero3"}), ("no", "blocks"),
            [1 << i for i in range(parts.bit_length()) if parts % (1 << i) == 0]):
        kinds = ("once", "each") if n > 1 and strategy != "zero1" else ("once",)
        for reduce in kinds:
            more = {"STRATEGY": strategy, "RECOMPUTE": again, "ACCUMULATE": n, "REDUCE": reduce}
            found = run(plan, dict(asked, **more))
            if found and fits(found):
                step = found["times"]["step"]
                best = min(best or (step, more), (step, more), key=lambda pair: pair[0])
    return best


def run(plan, settings):
    try:
        return plan(["%s=%s" % pair for pair in settings.items()])
    except subprocess.CalledProcessError:
        return None # it would need terabytes


def advised(program, plan, asked):
    """The same of what the plan says."""
    words = ["%s=%s" % pair for pair in asked.items()]
    with tempfile.TemporaryFile("w+") as out:
        subprocess.run([program] + words, stdin=subprocess.DEVNULL, stdout=out, check=True)
        out.seek(0)
        text = re.sub(r"\n {6,}(?=[A-Za-z\d(])", " ", out.read())
    named = ADVICE.search(text)
    if not named:
        return None
    more = dict(word.split("=") for word in named.group(1).split())
    return run(plan, dict(asked, **more))["times"]["step"], more


def main():
    parser = argparse.ArgumentParser(description="Compare the planner's advice with a search.")
    parser.add_argument("--plan", required=True, metavar="PROGRAM")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plans", type=int, default=30, metavar="N", help="that do not fit (30)")
    options = parser.parse_args()
    program, dice = os.path.abspath(options.plan), random.Random(options.seed)
    plan, tried, wrong = check_model.runner_of(program), 0, 0
    while tried < options.plans:
        asked = draw(dice)
        found = run(plan, asked)
        if found is None or fits(found):
            continue
        tried += 1
        best, said = search(plan, asked), advised(program, plan, asked)
        if best is None:
            verdict = "none fits" if said is None else "finds %s" % said[1]
        elif said is None:
            verdict, wrong = "SAYS NONE, but %s fits" % best[1], wrong + 1
        else:
            over = said[0] / best[0] - 1
            verdict = "%+.1f %% over the best: %s, best %s" % (100 * over, said[1], best[1])
            wrong += over > MOST
        print("%s: %s" % (" ".join("%s=%s" % pair for pair in asked.items()), verdict), flush=True)
    print("%d plans, %d wrong" % (tried, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
