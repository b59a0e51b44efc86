#!/usr/bin/env python3
"""One small GPT-2 under each strategy of lab 1: memory, traffic and time of a step, side by side;
with the other labs' options, which are train_gpt2's, for all of them.

The program is examples/train_gpt2, with the student's files of those labs that are written (no gap,
and compiled), and the reference's others. It runs on simulated GPUs of a modelled machine, whose
clock gives the times (simgpu/pages/time.md); elsewhere they are the GPUs' own. Two micro-batches
make a step, so that ZeRO-1 and ZeRO-2 differ.

Interface: compare.py --impl DIR [--build DIR] [--backend B] [--ranks N] [--dtype T]
[--reduce-dtype T] [--prefetch N] [--recompute X] [--offload yes] [--layout X] [--gather X]
[--stages N] [--schedule X] [--graph yes] [--regroup MIB]; `make compare`. Exit status 0; 1 where a
run failed; 2 for a question that makes no sense; 3 where the kit is at fault.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import textwrap

import layout
import manifest
import runner
from builder import ROOT, Builder, Infrastructure
from gaps import first_gap

MACHINE = "h100x8"
LAYERS = 4
FLAGS = ["--figures", "--steps", "4", "--layers", str(LAYERS), "--dim", "128", "--heads", "4",
         "--context", "32", "--accumulate", "2"]
ROWS = [("DDP", ["--strategy", "ddp"]), ("ZeRO-1", ["--strategy", "zero1"]),
        ("ZeRO-2", ["--strategy", "zero2"]),
        ("… every time", ["--strategy", "zero2", "--reduce-every-time"]),
        ("ZeRO-3", ["--strategy", "zero3"]),
        ("HSDP, 2 replicas", ["--strategy", "zero3", "--replicas", "2"])]
DTYPES = ("float", "bf16", "fp16")
# Options of labs 3, 4, 6, 7 and 8, with their values; None: a whole number.
OPTIONS = (("prefetch", None), ("recompute", ("none", "blocks", "attention")),
           ("offload", ("no", "yes")), ("layout", ("flat", "per_parameter")),
           ("gather", ("usual", "fp8")), ("stages", None), ("schedule", ("gpipe", "1f1b")),
           ("graph", ("no", "yes")), ("regroup", None))
LIMIT = 300.0 # seconds of a run
WIDTH = 80 # columns of a terminal


def written(builder, impl):
    """The labs that are complete."""
    return [lab for lab in manifest.load(ROOT, manifest.LAB)
            if not any(first_gap(piece.source(impl)) or builder.compile(piece)[0]
                       for piece in lab.pieces())]


def build(options):
    """(Builder, the labs whose files are the student's)"""
    builder = Builder(options.impl, options.build, options.backend)
    builder.find_key()
    with builder.locked_folder():
        builder.common([piece.name for task in manifest.load_all(ROOT)
                        for piece in task.pieces()], [])
        with builder.compiling():
            own = [] if builder.key == "reference" else written(builder, options.impl)
        for labs in (own, []):
            names = [piece.name for lab in labs for piece in lab.pieces()]
            with builder.locked_build(True):
                status, output = builder.make([program_of(builder), launcher(builder)], jobs=2,
                                              extra=["OWN=" + " ".join(names)])
            if status == 0:
                return builder, labs
    raise Infrastructure("the program does not build:\n%s" % output.strip()[-4000:])


def program_of(builder):
    return "%s/impl/%s/bin/train_gpt2" % (builder.build, builder.key)


def launcher(builder):
    return "%s/bin/launch" % builder.build


def figures(builder, ranks, flags):
    """The numbers of one run, or what it said."""
    text = sorted(glob.glob(os.path.join(ROOT, "handouts", "*.md")))
    environment = dict(runner.clean_environment())
    environment.setdefault("SIMGPU_MACHINE", MACHINE)
    command = [os.path.join(ROOT, launcher(builder)), "-n", str(ranks),
               os.path.join(ROOT, program_of(builder))] + FLAGS + flags + text
    done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=LIMIT * runner.time_factor())
    for line in done.stdout.splitlines():
        if line.startswith("figures: ") and done.returncode == 0:
            return [int(word) for word in line.split()[1:]], ""
    return None, done.stdout.strip()


def given(options):
    """{option: value} of those of OPTIONS that are asked for."""
    values = {name: getattr(options, name) for name, _ in OPTIONS}
    return {name: value for name, value in values.items() if value}


def trouble(options):
    """What makes no sense in the question, in a line, or ""."""
    asked = given(options)
    for option, wanted in (("DTYPE", options.dtype), ("REDUCE_DTYPE", options.reduce_dtype)):
        if wanted not in DTYPES:
            return "%s=%s: must be %s" % (option, wanted, " or ".join(DTYPES))
    if not re.fullmatch(r"[0-9]{1,4}", options.ranks) or int(options.ranks) < 4 \
            or int(options.ranks) % 2:
        return "RANKS=%s: two replicas of at least two shards need an even number of GPUs, 4 or " \
               "more" % options.ranks
    for name, choices in OPTIONS:
        value = asked.get(name)
        if value is not None and choices and value not in choices:
            return "%s=%s: must be %s" % (name.upper(), value, " or ".join(choices))
        if value is not None and not choices and not re.fullmatch(r"[0-9]{1,4}", value):
            return "%s=%s: must be a whole number" % (name.upper(), value)
    if asked.get("gather") == "fp8" and asked.get("layout") != "per_parameter":
        return "GATHER=fp8 has a scale for each parameter: set LAYOUT=per_parameter"
    if asked.get("gather") == "fp8" and asked.get("offload") == "yes":
        return "GATHER=fp8 finds its scales in shards on the device: leave OFFLOAD out"
    if asked.get("graph") == "yes" or "regroup" in asked:
        apart = ["DTYPE"] * (options.dtype != "float")
        apart += ["REDUCE_DTYPE"] * (options.reduce_dtype != "float")
        apart += [name.upper() for name, usual in (("offload", "no"), ("gather", "usual"),
                                                   ("stages", "1"))
                  if asked.get(name, usual) != usual]
        if "regroup" in asked:
            apart += [name.upper() for name, usual in (("prefetch", "1"), ("layout", "flat"))
                      if asked.get(name, usual) != usual]
        if apart:
            return "%s: leave %s out" % ("REGROUP=" + asked["regroup"] if "regroup" in asked
                                         else "GRAPH=yes", " and ".join(apart))
    stages = int(asked.get("stages", 1))
    if not 1 <= stages <= LAYERS or int(options.ranks) % stages:
        return "STAGES=%d: must divide the %s GPUs, and be at most the model's %d blocks" % (
            stages, options.ranks, LAYERS)
    if "schedule" in asked and stages == 1:
        return "SCHEDULE=%s needs a pipeline: set STAGES=2" % asked["schedule"]
    if options.dtype == "fp16" and stages > 1:
        return ("DTYPE=fp16: a loss scale would look at one stage's gradients; take bf16, or no "
                "STAGES")
    return ""


def flags_of(asked):
    """train_gpt2's options."""
    flags = []
    for name, value in asked.items():
        if name in ("offload", "graph"):
            flags += ["--" + name] * (value == "yes")
        elif (name, value) not in (("stages", "1"), ("recompute", "none"), ("layout", "flat"),
                                   ("gather", "usual")):
            flags += ["--pipeline" if name == "schedule" else "--" + name, value]
    return flags


def refusal(flags, asked, ranks):
    """Why the library refuses a row with the options that are asked for, or ""."""
    ddp, replicas = "ddp" in flags, 2 if "--replicas" in flags else 1
    if ddp and asked.get("offload") == "yes":
        return "DDP keeps everything on the device"
    if ddp and asked.get("gather") == "fp8":
        return "DDP gathers nothing"
    if not ddp and ranks // int(asked.get("stages", 1)) == replicas > 1:
        return "no rank to shard with"
    if ranks // int(asked.get("stages", 1)) % replicas:
        return "the replicas must divide a stage's GPUs"
    return ""


def main():
    parser = argparse.ArgumentParser(description="Compare the strategies of lab 1.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="folder of the task files")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("--backend", default="simgpu", help="what it is built against (simgpu)")
    parser.add_argument("--ranks", default="4", metavar="N", help="GPUs (4)")
    parser.add_argument("--dtype", default="float", metavar="T",
                        help="in which layers compute: float, bf16 or fp16 (float)")
    parser.add_argument("--reduce-dtype", default="float", metavar="T",
                        help="in which gradients are reduced (float)")
    for name, choices in OPTIONS:
        parser.add_argument("--" + name, default="", metavar="X",
                            help="train_gpt2's: %s" % (" or ".join(choices or ("a number",))))
    options = parser.parse_args()
    problem = trouble(options)
    if problem:
        layout.tell("compare: " + problem)
        return 2
    asked = given(options)
    types = flags_of(asked)
    for name in ("dtype", "reduce_dtype"):
        if getattr(options, name) != "float":
            types += ["--" + name.replace("_", "-"), getattr(options, name)]
    try:
        builder, own = build(options)
        heading = "A step of a small GPT-2 on %s GPUs, two micro-batches, in %s (gradients are " \
                  "reduced in %s)%s, with %s. Memory in MB on a GPU; MB that a rank sends " \
                  "in a step, and copies from and to host memory; collectives and messages; time " \
                  "in ms%s. Of ranks that differ, the most." % (
                      options.ranks, options.dtype, options.reduce_dtype,
                      "".join(", %s=%s" % (name.upper(), value) for name, value in asked.items()),
                      "your files of " + ", ".join(lab.heading().lower() for lab in own) if own
                      else "the reference's files",
                      " on a modelled " + MACHINE if options.backend == "simgpu" else "")
        print(textwrap.fill(heading, WIDTH) + "\n")
        for words in (("", "", "", "all-", "reduce-", "all-", "", "", "", ""),
                      ("", "held", "peak", "gather", "scatter", "reduce", "sends", "host", "calls",
                       "time")):
            print(("%-16s %6s %6s %6s %7s %6s %6s %6s %5s %7s" % words).rstrip())
        for name, flags in ROWS:
            reason = refusal(flags, asked, int(options.ranks))
            if reason:
                print("%-16s       – %s" % (name, reason), flush=True)
                continue
            numbers, said = figures(builder, options.ranks, flags + types)
            if numbers is None:
                layout.tell("%s failed:\n%s" % (name, said[-4000:]))
                return 1
            *held_and_sent, calls, time = numbers
            print("%-16s %6.2f %6.2f %6.2f %7.2f %6.2f %6.2f %6.2f %5d %7.3f" % (
                name, *(number / 1e6 for number in held_and_sent), calls, time / 1e6), flush=True)
        return 0
    except subprocess.TimeoutExpired as problem:
        layout.tell("compare: %s did not end in time" % problem.cmd[0])
        return 1
    except (Infrastructure, manifest.BadManifest) as problem:
        layout.tell("compare: %s" % problem)
        return 3


if __name__ == "__main__":
    sys.exit(main())
