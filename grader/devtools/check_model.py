#!/usr/bin/env python3
"""What is modelled against what was published: `make check-model`, after the sweeps of all-reduce.

    size      what plans of 175 billion parameters on 1,024 GPUs take of this computer
    ZeRO      the paper's table 1 by its formula
    MFU       MosaicML's FSDP runs: their MFU from their tokens/s
    runs      the step times of those that the kit's models can express, and of others
              (model_time.py)
    prefetch  the FSDP paper's gain of backward prefetch
    memory    torchtitan's runs, from dry runs and what these do otherwise (model_memory.py)

Exit status: 0; 1 where a bound does not hold.

Interface: check_model.py --plan PROGRAM; mfu(run), table_1(row), other_runs().
Files: bench/published/*.csv, which name their sources.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile

import model_memory
import model_time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PUBLISHED = os.path.join(ROOT, "bench", "published")
PEAKS = {"A100-40GB": 312e12, "A100-80GB": 312e12, "H100-80GB": 989.5e12} # dense bf16, FLOP/s
NUMBERS = ("parameters", "layers", "heads", "dim", "seq", "micro_batch", "micro_batches", "batch",
           "gpus", "stage", "tflops", "nics")


def read(name):
    with open(os.path.join(PUBLISHED, name), encoding="utf-8") as file:
        return [{key: int(value) if key in NUMBERS else value for key, value in row.items()}
                for row in csv.DictReader(file)]


def decimals(text):
    return len(text.partition(".")[2])


# ---- ZeRO's table ----

def table_1(row):
    """GB by the paper's formula: 2 + 2 + 12 bytes per parameter, of which a stage shards some."""
    n, whole = row["gpus"], {1: 4, 2: 2, 3: 0}[row["stage"]]
    return row["parameters"] * (whole + (16 - whole) / n) / 1e9


def check_table_1():
    """How many cells differ from the formula by a unit of their last digit or more."""
    rows, wrong, cut = read("zero_table1.csv"), 0, 0
    for row in rows:
        unit = 10.0 ** -decimals(row["gigabytes"])
        off = abs(table_1(row) - float(row["gigabytes"]))
        wrong += off >= unit
        cut += unit / 2 + 1e-9 < off < unit
    print("ZeRO, table 1: %d cells, %d of them cut off in place of rounded; %d differ from the "
          "formula\nby a unit of the last digit" % (len(rows), cut, wrong))
    return wrong


# ---- Published runs ----

def mfu(run, tokens_per_s):
    """In percent, as MosaicML counts: 6 FLOP per parameter and token, and attention's products."""
    N, L, d, s = run["parameters"], run["layers"], run["dim"], run["seq"]
    peak = PEAKS[run["gpu"]] * (2 if run["precision"] == "fp8" else 1)
    return 100 * (6 * N + 12 * L * d * s) * tokens_per_s / peak


def check_mfu(runs):
    """How many MFUs are not those of the printed tokens/s, which are cut off."""
    wrong = 0
    for run in runs:
        least, most = mfu(run, float(run["tokens_per_s"])), mfu(run, float(run["tokens_per_s"]) + 1)
        wrong += not least - 0.005 - 1e-9 <= float(run["mfu"]) <= most + 0.005 + 1e-9
    print("MFU of %d published runs: %d are not what their tokens/s (cut off) make" % (
        len(runs), wrong))
    return wrong


# ---- Runs that have part in no fit ----

MICRO_TOKENS = 16384 # of a GPU, of FlashAttention-2's runs; the paper does not say it


RECOMPUTES = {"no": ["RECOMPUTE=no"], "yes": ["RECOMPUTE=blocks"],
              "2": ["RECOMPUTE=blocks", "RECOMPUTE_EVERY=2"]}


def other_runs():
    """(name, run) of torchtitan's and FlashAttention-2's, as model_time.check_others takes them."""
    found = []
    for row in read("torchtitan.csv"):
        found.append(("torchtitan, %s, %d %s" % (row["model"], row["gpus"], row["gpu"]), dict(
            row, strategy="zero3", attention="fused",
            recompute=RECOMPUTES[row["recomputes"]],
            rate=lambda parameters, row=row: float(row["tokens_per_s"]))))
    for row in read("flash_attention_2.csv"): # whose FLOP are counted as MosaicML's
        attention = "flash1" if row["kernel"] == "FlashAttention" else "fused"
        run = {key: row[key] for key in ("layers", "heads", "dim", "seq", "gpus", "gpu")}
        found.append(("%s, %s, %d tokens" % (row["kernel"], row["model"], row["seq"]), dict(
            run, vocab=50304, micro_batch=MICRO_TOKENS // row["seq"], strategy="zero1",
            attention=attention, recompute=RECOMPUTES["no"],
            rate=lambda parameters, row=row: 1e12 * row["tflops"] / (
                6 * parameters + 12 * row["layers"] * row["dim"] * row["seq"]))))
    return found


def check_times(plan, runs):
    with tempfile.TemporaryDirectory() as folder:
        return model_time.check(plan, runs, other_runs(), folder)


PREFETCH = 0.18 # arXiv 2304.11277, section 5.2 and figure 6 (b)


def check_prefetch(plan):
    """The gain of backward prefetch for minGPT of 175 billion, with one and two sequences on a GPU:
    the paper does not say how many in this figure, and has both in others. It does not name the
    attention either: minGPT's is plain. Its nodes have 2 Tb/s, as ten NICs of 200 Gb/s."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["MODEL=gpt3-175b", "VOCAB=50000", "GPUS=128", "RECOMPUTE=blocks",
                    "ATTENTION=plain", "REDUCE_DTYPE=bf16", "MACHINE=" + model_time.machine_of(
                        {"gpu": "A100-80GB", "nics": 10}, folder)]
        two, one = (step[0] / step[1] - 1 for step in (
            [plan(settings + ["BATCH=%d" % batch, "PREFETCH=%d" % ahead])["times"]["step"]
             for ahead in (0, 1)] for batch in (256, 128)))
    print("Backward prefetch, 175 billion parameters on 128 A100: %.0f %% faster with one sequence "
          "on\neach GPU, %.0f %% with two; published: about %.0f %%" % (
              100 * one, 100 * two, 100 * PREFETCH))
    return not two <= PREFETCH <= one


# ---- What a plan takes ----

SIZES = (([], 100), (["RECOMPUTE=blocks"], 150), (["STAGES=8", "ACCUMULATE=12", "BATCH=1536"], 300))


def check_size(plan):
    """Each plan in turn takes more than those before it, whose most memory counts, too."""
    wrong = 0
    for settings, most in SIZES:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        plan(["MODEL=gpt3-175b", "GPUS=1024", *settings])
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        memory = used.ru_maxrss * 1024 / 1e6
        print("175 billion parameters on 1,024 GPUs %s: %.1f s of processor time, %.0f MB of this "
              "computer's memory" % (" ".join(settings), seconds, memory))
        wrong += memory > most
    return wrong


def runner_of(program):
    """A function that runs the planner with settings and returns what it wrote."""
    def plan(settings):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run([program, "JSON=" + file.name, "ADVICE=no"] + settings, check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            return json.load(file)
    return plan


def main():
    parser = argparse.ArgumentParser(
        description="Compare what is modelled with what was published.")
    parser.add_argument("--plan", required=True, metavar="PROGRAM", help="the planner")
    options = parser.parse_args()
    plan, runs = runner_of(os.path.abspath(options.plan)), read("fsdp_runs.csv")
    # The size first: the most memory of all plans so far counts.
    checks = [check_table_1, lambda: check_size(plan),
              lambda: check_mfu(runs),
              lambda: check_times(plan, runs),
              lambda: check_prefetch(plan),
              lambda: model_memory.check(plan, read("memory.csv"))]
    wrong = 0
    for check in checks:
        wrong += check()
        print(flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
