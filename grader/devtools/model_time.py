"""Step times of published FSDP runs against the planner's: a part of check_model.py.

A machine's file has two numbers that are fitted to such runs, those of MosaicML alone: what part of
the memory's bandwidth kernels without products reach (eager_efficiency), and by how much each
doubling of the nodes makes a step longer (step_doubling). Both are fitted per type of GPU, never
per model, by least absolute relative errors: one run that the rest does not explain has no weight.
A step is a + b / efficiency, so two plans of a run say what it takes with any.

Printed is the mean error (and the most) of all runs by the machine's file; of each size of model by
what the other sizes say; of each type of GPU by what the other type says; and how many of those
left out lie between the 10th and the 90th percentile of what the others left over, of which each
size counts alike. torchtitan's runs, FlashAttention-2's and those in FP8 have part in no fit.

Interface: check(plan, runs, others, folder) -> how many bounds do not hold; sample, fit, error.
"""

import math
import os
import re
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Type; and memory, its bandwidth and the network where they are not the machine's file's. The runs
# do not say what their network was. A100 of 40 GB: four NICs of 100 Gb/s, as in AWS's p4d; assumed
# when their scaling had been seen (with eight of 200 mpt-70b on 64 is 30 % too short).
GPUS = {"A100-40GB": ("a100x8", "memory 40 GiB\nhbm 1.555 TB/s\n"
                                "ring_inter 3.9 GB/s\nnic 5.9 GB/s\n"),
        "A100-80GB": ("a100x8", ""),
        "H100-80GB": ("h100x8", ""),
        "H100-96GB": ("h100x8", "memory 96 GiB\nhbm 2.4 TB/s\n")} # torchtitan's, of 500 W
PERCENTS = (25, 40)          # efficiencies of the two plans
MOST_MICRO_BATCHES = 4       # of a run with more, those of 2 and of 3 say what each one adds
SIZES, ALL, TYPES = 0.08, 0.25, 0.15 # bounds: mean and most without a size, mean without a type
INSIDE = (0.7, 0.9)          # of the runs left out, within their range
DOUBLINGS = [0.002 * d for d in range(26)]


@dataclass(frozen=True)
class Sample:
    """A run's step in seconds: published, and planned: at efficiency e on one node a + b / e."""
    run: dict
    published: float
    a: float
    b: float
    fits: bool
    parameters: int

    @property
    def kind(self):
        return GPUS[self.run["gpu"]][0]

    def doublings(self):
        return max(0, math.ceil(math.log2(self.run["gpus"] / 8)))

    def asked(self, doubling):
        """The 1 / efficiency with which there is no error, and how much the error weighs it."""
        times = 1 + doubling * self.doublings()
        return (self.published / times - self.a) / self.b, self.b * times / self.published


def expressible(run):
    return run["precision"] == "bf16"


def machine_of(run, folder):
    """A file of the GPU's machine, with as many NICs of a100x8's as the run says."""
    base, own = GPUS[run["gpu"]]
    if run.get("nics", 8) != 8: # torchtitan's: fewer than GPUs
        part = run["nics"] / 8
        own += "ring_inter %g GB/s\nnic %g GB/s\n" % (15 * part, 23.5 * part)
    path = os.path.join(folder, "%s-%d.machine" % (run["gpu"], run.get("nics", 8)))
    with open(path, "w", encoding="utf-8") as file:
        file.write("base %s\n%s" % (base, own))
    return path


def settings_of(run, machine):
    """The run as a plan's settings. Gradients are reduced in float, but in bf16 on A100-40GB: there
    the policy was PURE, elsewhere DEFAULT (MosaicML's Composer), of each micro-batch. Attention was
    the first FlashAttention's, in Triton (attn_impl: triton), and the loss FlashAttention's fused
    cross entropy (loss_fn: fused_crossentropy, the default in llm-foundry's modeling_mpt.py)."""
    reduced = "bf16" if run["gpu"] == "A100-40GB" else "float"
    return ["MODEL=" + run["model"], "GPUS=%d" % run["gpus"], "MACHINE=" + machine,
            "BATCH=%d" % run["batch"], "SEQ=%d" % run["seq"], "REDUCE=each",
            "ACCUMULATE=%d" % run["micro_batches"], "DTYPE=bf16", "REDUCE_DTYPE=" + reduced,
            "STRATEGY=" + ("zero3" if run["sharding"] == "FULL_SHARD" else "zero2"),
            "RECOMPUTE=" + ("blocks" if run["recomputes"] == "yes" else "no"), "ATTENTION=flash1",
            "LOSS=fused", "PRODUCTS=" + ("fp8" if run["precision"] == "fp8" else "usual")]


def seconds(run):
    return run["batch"] * run["seq"] / run["gpus"] / float(run["tokens_per_s"])


def planned(plan, run, folder, percent):
    """(seconds on one node's terms, the plan); of many micro-batches by those of two and three."""
    def of(n):
        part = dict(run, micro_batches=n, batch=run["batch"] // run["micro_batches"] * n)
        found = plan(settings_of(part, machine_of(run, folder)) + ["EFFICIENCY=%d" % percent])
        return 1e-12 * (found["times"]["step"] - found["times"]["overhead"]), found
    n = run["micro_batches"]
    if n <= MOST_MICRO_BATCHES:
        return of(n)
    two, (three, found) = of(2)[0], of(3)
    return three + (n - 3) * (three - two), found


def sample(plan, run, folder):
    (slow, found), (fast, _) = (planned(plan, run, folder, percent) for percent in PERCENTS)
    b = (slow - fast) / (100 / PERCENTS[0] - 100 / PERCENTS[1])
    return Sample(run, seconds(run), fast - b * 100 / PERCENTS[1], b,
                  found["reserved"] <= found["offered"], found["formulas"]["parameters"])


def time(one, fitted):
    efficiency, doubling = fitted
    return (one.a + one.b / efficiency) * (1 + doubling * one.doublings())


def error(one, fitted):
    return time(one, fitted) / one.published - 1


def fit(samples):
    """(efficiency, doubling): the least mean absolute error, of a grid of doublings. With one of
    them it is least at a weighted median of what 1 / efficiency each run asks for."""
    def best_of(doubling):
        asked = sorted((one.asked(doubling) for one in samples))
        half, so_far = sum(weight for _, weight in asked) / 2, 0.0
        for inverse, weight in asked:
            so_far += weight
            if so_far >= half:
                break
        return 1 / min(max(inverse, 1.0), 10.0), doubling
    return min(map(best_of, DOUBLINGS),
               key=lambda fitted: sum(abs(error(one, fitted)) for one in samples))


def in_file(kind):
    """(efficiency, doubling) of a machine's file, and its range."""
    path = os.path.join(ROOT, "simgpu", "machines", kind + ".machine")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    def number(name):
        return re.search(r"(?m)^%s +([\d./]+)" % name, text).group(1)
    most, per = number("step_most").split("/")
    return ((float(number("eager_efficiency")), float(number("step_doubling"))),
            (float(number("step_least")), int(most) / int(per)))


def percentiles(groups):
    """The 10th and the 90th of published over planned times, of lists that count alike: a plan's
    model is of another size than those that were seen, and a size has many runs or few."""
    ratios = sorted((ratio, 1 / len(group)) for group in groups for ratio in group)
    found, so_far = [], 0.0
    for ratio, weight in ratios:
        so_far += weight
        for part in (0.1, 0.9)[len(found):]:
            if so_far >= part * len(groups) - 1e-9:
                found.append(ratio)
    return tuple(found)


def without(samples, key):
    """The error of each sample by what the samples of other keys say, a list
    for each key."""
    found = []
    for name in sorted({key(one) for one in samples}):
        fitted = fit([one for one in samples if key(one) != name])
        found.append([error(one, fitted) for one in samples if key(one) == name])
    return found


def ratios(groups):
    return [[1 / (1 + one) for one in group] for group in groups]


def inside(samples, key):
    """Of each sample whether it is within the range of what those of other keys leave over, each of
    their keys left out in turn."""
    found = []
    for name, group in zip(sorted({key(one) for one in samples}), without(samples, key)):
        rest = [one for one in samples if key(one) != name]
        least, most = percentiles(ratios(without(rest, key)))
        found += [least <= ratio <= most for ratio in ratios([group])[0]]
    return found


def mean(errors):
    return sum(map(abs, errors)) / len(errors)


def said(errors):
    return "%5.1f (%4.1f) %%" % (100 * mean(errors), 100 * max(map(abs, errors)))


def size_of(one):
    return one.run["model"]


def check_fitted(samples):
    wrong, sizes, types, within = 0, [], [], []
    print("  %-8s %4s %22s %14s %15s %15s" % ("", "runs", "efficiency, doubling", "by the file",
                                             "without a size", "without a type"))
    for kind in sorted({one.kind for one in samples}):
        own = [one for one in samples if one.kind == kind]
        fitted, best, groups = in_file(kind)[0], fit(own), without(own, size_of)
        by_others = fit([one for one in samples if one.kind != kind])
        other = [error(one, by_others) for one in own]
        left = sum(groups, [])
        print("  %-8s %4d %22s %s %s %s" % (
            kind, len(own), "%.3f, %.3f" % best, said([error(one, fitted) for one in own]),
            said(left), said(other)))
        print("           published over planned, 10th and 90th percentile without a size: "
              "%.2f %.2f" % percentiles(ratios(groups)))
        wrong += max(abs(a - b) for a, b in zip(fitted, best)) > 0.0101
        sizes += left
        within += inside(own, size_of)
        types.append(mean(other))
    share = sum(within) / len(within)
    print("  all, without a size: %s; %.0f %% of them within their range" % (said(sizes),
                                                                            100 * share))
    wrong += mean(sizes) > SIZES
    wrong += max(map(abs, sizes)) > ALL
    wrong += not INSIDE[0] <= share <= INSIDE[1]
    return wrong + sum(value > TYPES for value in types)


def check_others(plan, others, folder):
    """Runs that have part in no fit: (name, settings, published tokens/s, what counts as MFU)."""
    print("  Of others, planned over published, and whether that is within the plan's range:")
    for name, run in others:
        settings = ["MODEL=" + run["model"]] if "model" in run else [
            "%s=%d" % (key.upper(), run[key]) for key in ("layers", "heads", "dim", "vocab")]
        found = plan(settings + [
            "GPUS=%d" % run["gpus"], "SEQ=%d" % run["seq"], "MACHINE=" + machine_of(run, folder),
            "BATCH=%d" % (run["micro_batch"] * run["gpus"]), "DTYPE=bf16",
            "STRATEGY=" + run["strategy"], "ATTENTION=" + run["attention"], *run["recompute"]])
        rate = run["rate"](found["formulas"]["parameters"])
        taken = run["seq"] * run["micro_batch"] / rate
        step = 1e-12 * found["times"]["step"]
        least, most = (1e-12 * end for end in found["range"])
        print("    %-52s %5.2f  %s" % (name, step / taken,
                                      "within" if least <= taken <= most else "outside"))


def check(plan, runs, others, folder):
    """How many bounds do not hold."""
    fp8 = [run for run in runs if not expressible(run)]
    runs = [run for run in runs if expressible(run)]
    print("Step times of %d runs of MosaicML (FSDP): mean error of plans (at most)" % len(runs))
    samples = [sample(plan, run, folder) for run in runs]
    wrong = check_fitted(samples)
    off = sum(one.parameters != one.run["parameters"] for one in samples)
    full = sum(not one.fits for one in samples)
    print("  %d are said not to fit; %d have other parameters than published" % (full, off))
    check_others(plan, others, folder)
    for run in fp8:
        step = 1e-12 * plan(settings_of(run, machine_of(run, folder)))["times"]["step"]
        print("    MosaicML, products in FP8, %s, %5d tokens %15s %5.2f" % (
            run["model"], run["seq"], "", step / seconds(run)))
    return wrong + full + off
