"""`make plan`: what it finds by one rank alone among phantoms is what all ranks do, dry or with
their arithmetic; its formulas are what its log says. PLAN_ALL=1: all worlds, seven other right
solutions, each two options together; else a part of each.
"""

import itertools
import os
import shutil
import unittest

from helpers import ROOT, ReferenceCopy, build_folder, read
import check_model
import manifest
import mutant_files
from planner import ALL, LLAMA, SMALL, WIDE, Plan, make
import trace

WORLDS = range(1, 9) if ALL else (1, 5, 8)
# Solutions whose schedule or messages are unlike the reference's. The ranks of gather_by_sends do
# not queue the same: each begins with another peer.
UNLIKE = "gather_by_sends"
ALTERNATIVES = [UNLIKE] + ([
    "prefetch_forward", "one_stream", "stream_for_each_unit", "gather_in_place",
    "reduce_by_reduces", "norm_by_reduce_and_broadcast"] if ALL else [])
TYPES = [["DTYPE=bf16"], ["DTYPE=fp16"], ["DTYPE=bf16", "REDUCE_DTYPE=bf16"],
         ["REDUCE_DTYPE=bf16"]] # the others are float
FP8 = ["LAYOUT=per_parameter", "GATHER=fp8"]
# What labs 3, 4, 6 and 7 add, each alone and some together.
OPTIONS = [["RECOMPUTE=blocks", "RECOMPUTE_EVERY=2", "ATTENTION=plain"],
           ["RECOMPUTE=attention", "RECOMPUTE_EVERY=3", "ATTENTION=plain"],
           ["RECOMPUTE=attention", "ATTENTION=plain"], ["PREFETCH=2"], ["OFFLOAD=yes"],
           ["LAYOUT=per_parameter"], FP8,
           ["OFFLOAD=yes", "LAYOUT=per_parameter", "DTYPE=fp16"], ["OFFLOAD=yes", "LAYERS=1"],
           ["RECOMPUTE=blocks", "LAYOUT=per_parameter", "PREFETCH=5", "DTYPE=bf16"],
           FP8 + ["RECOMPUTE=blocks", "PREFETCH=2", "DTYPE=bf16", "REDUCE_DTYPE=bf16"],
           ["RECOMPUTE=blocks", "RECOMPUTE_EVERY=2", "OFFLOAD=yes", "DTYPE=bf16",
            "REDUCE_DTYPE=bf16"]]
# Ranks, stages and what goes with them. A Llama's stages share no parameter.
STAGES = [(8, 4, []), (4, 2, ["LAYOUT=per_parameter"]), (8, 2, ["REPLICAS=2"])] + ([
              (2, 2, []), (8, 2, ["DTYPE=bf16"]), (4, 4, []), (6, 3, ["RECOMPUTE=blocks"]),
              (6, 2, ["PREFETCH=2", "DTYPE=bf16"]), (4, 2, ["OFFLOAD=yes"]),
              (8, 4, ["REDUCE=each", "RECOMPUTE=blocks"]),
              (8, 2, FP8 + ["REPLICAS=2"])] if ALL else [])
STRATEGIES = [("fsdp", 1), ("zero3", 1), ("zero2", 1), ("zero1", 1), ("ddp", 1), ("zero3", 2)]
# Values of which each two are planned together, but for those of one row.
AXES = [["STRATEGY=zero3", "STRATEGY=zero2", "STRATEGY=zero1", "STRATEGY=ddp"], ["REDUCE=each"],
        ["RESHARD_RANKS=2"], ["REPLICAS=2"], ["DTYPE=bf16", "DTYPE=fp16"], ["REDUCE_DTYPE=bf16"],
        ["RECOMPUTE=blocks"], ["PREFETCH=2"], ["OFFLOAD=yes"],
        ["LAYOUT=per_parameter", "LAYOUT=per_parameter GATHER=fp8"],
        ["STAGES=2", "STAGES=2 SCHEDULE=1f1b"]]
# Of those what the library refuses (case_refusal of tests/support/strategies.c), and train_gpt2:
# fp16 with stages. (A set is two values.)
REFUSED = [
    ("REDUCE=each", "STRATEGY=zero1", "ZeRO-1 keeps its gradients"),
    ("RESHARD_RANKS=2", "STRATEGY=zero2", "only ZeRO-3 reshards"),
    ("RESHARD_RANKS=2", "STRATEGY=zero1", "only ZeRO-3 reshards"),
    ("RESHARD_RANKS=2", "STRATEGY=ddp", "only ZeRO-3 reshards"),
    ("REPLICAS=2", "STRATEGY=ddp", "a replica on every GPU"),
    ("OFFLOAD=yes", "STRATEGY=ddp", "wants shards"),
    ("LAYOUT=per_parameter GATHER=fp8", "STRATEGY=ddp", "gathers nothing"),
    ("OFFLOAD=yes", "RESHARD_RANKS=2", "whose slices stay on the GPU"),
    ("LAYOUT=per_parameter", "RESHARD_RANKS=2", "a slice of a flat unit"),
    ("LAYOUT=per_parameter GATHER=fp8", "RESHARD_RANKS=2", "a slice of a flat unit"),
    ("RESHARD_RANKS=2", "STAGES=2", "a unit has one slice"),
    ("RESHARD_RANKS=2", "STAGES=2 SCHEDULE=1f1b", "a unit has one slice"),
    ("DTYPE=fp16", "STAGES=2", "the loss scale would look at one"),
    ("DTYPE=fp16", "STAGES=2 SCHEDULE=1f1b", "the loss scale would look at one"),
    ("LAYOUT=per_parameter GATHER=fp8", "OFFLOAD=yes", "scales in shards on the GPU")]


class Reference(Plan):
    """The reference's."""
    def test_worlds_to_eight(self):
        for gpus in WORLDS:
            with self.subTest(gpus=gpus):
                self.check_formulas(self.compare(gpus, every=True))
        # Of 9 elements of the root rank 5 has padding alone, of a block's 25 a full shard.
        self.compare(8, model=["LAYERS=2", "HEADS=1", "DIM=1", "VOCAB=5", "SEQ=2"] + SMALL[5:])

    def test_strategies(self):
        for strategy, replicas in STRATEGIES:
            with self.subTest(strategy=strategy, replicas=replicas):
                self.compare(4, strategy, replicas)

    def test_formulas_of_strategies(self):
        for strategy in ("zero3", "zero2", "zero1", "ddp"):
            for attention in ("fused", "plain"):
                with self.subTest(strategy=strategy, attention=attention):
                    self.check_formulas(self.plan(
                        "MODEL=gpt2", "GPUS=32", "BATCH=128", "SEQ=128", "ACCUMULATE=2",
                        "STRATEGY=" + strategy, "ATTENTION=" + attention))

    def test_types_in_worlds(self):
        """Half precision: a cast in front of each all-gather, a gradient of two types."""
        for gpus, types in itertools.product(WORLDS, TYPES) if ALL else zip((1, 2, 5, 8), TYPES):
            with self.subTest(gpus=gpus, types=types):
                plan = self.compare(gpus, types=types)
                self.check_formulas(plan)
                asked = dict(setting.split("=") for setting in types)
                self.assertEqual((plan["dtype"], plan["reduce_dtype"]), (
                    asked.get("DTYPE", "float"), asked.get("REDUCE_DTYPE", "float")))

    def test_types_under_strategies(self):
        for strategy, replicas in STRATEGIES[1:]:
            for types in TYPES if ALL else TYPES[:1]:
                with self.subTest(strategy=strategy, replicas=replicas, types=types):
                    self.check_formulas(self.compare(4, strategy, replicas, types=types))

    def test_formulas_of_types(self):
        """Without their arithmetic: all pairs of types, one micro-batch and two, one block too."""
        names = ("float", "bf16", "fp16")
        cases = itertools.product(itertools.product(names, names), (1, 8), (1, 2), (1, 3),
                                  ("zero3", "zero2", "zero1", "ddp"))
        for (dtype, reduce), gpus, parts, layers, strategy in itertools.islice(
                cases, 0, None, 1 if ALL else 19): # no divisor of how many there are of each
            with self.subTest(gpus=gpus, strategy=strategy, parts=parts, layers=layers,
                              dtype=dtype, reduce=reduce):
                self.check_formulas(self.plan(
                    *SMALL, "GPUS=%d" % gpus, "BATCH=16", "STRATEGY=" + strategy,
                    "ACCUMULATE=%d" % parts, "LAYERS=%d" % layers, "DTYPE=" + dtype,
                    "REDUCE_DTYPE=" + reduce))

    def test_llama(self):
        """Fewer heads of keys, a feed-forward part of three matrices, a head of its own."""
        for gpus, strategy, types in ((1, "fsdp", []), (3, "zero3", []), (4, "zero2", TYPES[0])):
            with self.subTest(gpus=gpus, strategy=strategy, types=types):
                plan = self.compare(gpus, strategy, types=types, model=LLAMA)
                self.check_formulas(plan)
                self.assertEqual(plan["formulas"]["parameters"],
                                 2 * 61 * 24 + 24 + 2 * (24 * 24 * 3 + 3 * 24 * 40 + 2 * 24))

    def test_llamas_by_name(self):
        for name, parameters in (("llama2-7b", 6738415616), ("llama2-13b", 13015864320),
                                 ("llama2-70b", 68976648192), ("llama3-8b", 8030261248),
                                 ("llama3-70b", 70553706496), ("llama3-405b", 405853388800)):
            with self.subTest(name=name):
                plan = self.plan("MODEL=" + name, "GPUS=512", "SEQ=512", "DTYPE=bf16")
                self.check_formulas(plan)
                self.assertEqual(plan["formulas"]["parameters"], parameters)

    def test_gpt_2s_by_name(self):
        """OpenAI's checkpoints; MPT's with the tokens of its runs; and two that have no run, each
        block of 12·C² + 13·C."""
        counts = [("gpt2", 124439808, 1024), ("gpt2-medium", 354823168, 1024),
                  ("gpt2-large", 774030080, 1024), ("gpt2-xl", 1557611200, 1024)]
        counts += {run["model"]: (run["model"], run["parameters"], run["seq"])
                   for run in check_model.read("fsdp_runs.csv")}.values()
        counts += [(name, L * (12 * C * C + 13 * C) + (50368 + 2048 + 2) * C, 2048)
                   for name, L, C in (("mpt-1b", 24, 2048), ("mpt-13b", 40, 5120))]
        for name, count, seq in counts:
            with self.subTest(name=name):
                plan = self.plan("MODEL=" + name, "GPUS=512", "SEQ=%d" % seq)
                self.assertEqual(plan["formulas"]["parameters"], count)

    def test_slices(self):
        """RESHARD_RANKS: the backward gathers from neighbours alone."""
        for types in (["RESHARD_RANKS=4"], ["RESHARD_RANKS=4", "DTYPE=bf16"],
                      ["RESHARD_RANKS=2", "REPLICAS=2"]):
            with self.subTest(types=types):
                self.check_formulas(self.compare(8, "zero3", types=types))
        small = ["MODEL=gpt2", "GPUS=64", "SEQ=128", "ACCUMULATE=2"]
        plans = [self.plan(*small, *more) for more in ([], ["RESHARD_RANKS=8"])]
        for plan in plans:
            self.check_formulas(plan)
        self.assertEqual(list(plans[0]["ranks"][0]["messages"]), trace.COLLECTIVES)
        calls, _, sent = zip(*(plan["ranks"][0]["messages"]["all-gather"] for plan in plans))
        self.assertEqual(calls[0], calls[1])
        self.assertGreater(sent[0], sent[1])
        self.assertEqual((plans[0]["reshard_ranks"], plans[1]["reshard_ranks"]), (0, 8))

    def test_each_micro_batch_reduces(self):
        for strategy, replicas in (("zero3", 1), ("zero2", 1), ("ddp", 1), ("zero3", 2)):
            with self.subTest(strategy=strategy, replicas=replicas):
                each = self.compare(4, strategy, replicas, types=["REDUCE=each"])
                self.check_formulas(each)
                once = self.plan(*SMALL, "GPUS=4", "BATCH=16", "ACCUMULATE=2",
                                 "STRATEGY=" + strategy,
                                 *(["REPLICAS=2"] if replicas > 1 else []))
                ops = ("reduce-scatter", "all-reduce")
                self.assertGreater(*(sum(plan["ranks"][0]["messages"][op][2] for op in ops)
                                     for plan in (each, once)))
                self.assertEqual((each["reduce"], once["reduce"]), ("each", "once"))

    def test_options_of_labs(self):
        for gpus, options in itertools.product(WORLDS, OPTIONS) if ALL else (
                [(5, options) for options in OPTIONS] +
                [(1, options) for options in OPTIONS[3:7]]): # what one rank has of its own
            with self.subTest(gpus=gpus, options=options):
                self.check_formulas(self.compare(gpus, "zero3", types=options))

    def test_graphs(self):
        """A step by a graph's launches and all-gathers by a plan: the same messages; the host makes
        one call; without a limit more units are unsharded at a time."""
        for gpus, more in ((5, ["GRAPH=yes"]), (4, ["REGROUP=0"]),
                           (8, ["GRAPH=yes", "REGROUP=0"])):
            with self.subTest(gpus=gpus, more=more):
                strategy, model = ("zero3", SMALL) if "GRAPH=yes" in more else ("fsdp", WIDE)
                plan, eager = (self.compare(gpus, strategy, types=types, model=model)
                               for types in (more, []))
                found, usual = plan["ranks"][0], eager["ranks"][0]
                self.assertEqual(found["messages"]["all-gather"], usual["messages"]["all-gather"])
                if more == ["REGROUP=0"]:
                    self.assertGreater(*(rank["memory"]["unsharded parameters"][2]
                                         for rank in (found, usual)))
                if "GRAPH=yes" in more:
                    self.assertLess(plan["times"]["host"], eager["times"]["host"] / 2)
                    self.assertLess(plan["times"]["step"], eager["times"]["step"])
                self.assertEqual([plan["graph"], plan["regroup"]], [
                    "yes" if "GRAPH=yes" in more else "no",
                    "yes" if more[-1].startswith("REGROUP") else "no"])

    def test_options_under_strategies(self):
        for strategy, options in itertools.product(("zero2", "zero1", "ddp"), OPTIONS):
            if strategy == "ddp" and {"OFFLOAD=yes", "GATHER=fp8"} & set(options):
                continue
            if ALL or options in OPTIONS[-3:]:
                with self.subTest(strategy=strategy, options=options):
                    model = SMALL if "ATTENTION=plain" in options else LLAMA
                    self.check_formulas(self.compare(4, strategy, types=options, model=model))

    def test_formulas_of_options(self):
        """Without their arithmetic, each with each strategy, in float and bf16."""
        cases = itertools.product(("zero3", "zero2", "zero1", "ddp"), OPTIONS, (1, 4), (1, 2),
                                  ("float", "bf16"))
        for strategy, options, gpus, parts, dtype in itertools.islice(
                cases, 0, None, 1 if ALL else 7):
            if strategy == "ddp" and {"OFFLOAD=yes", "GATHER=fp8"} & set(options):
                continue
            with self.subTest(strategy=strategy, options=options, gpus=gpus, parts=parts):
                self.check_formulas(self.plan(
                    *SMALL, "GPUS=%d" % gpus, "BATCH=8", "ACCUMULATE=%d" % parts,
                    "STRATEGY=" + strategy, "DTYPE=" + dtype, *options))

    def test_what_the_library_refuses(self):
        """Of each two options: one line, and the planner has no refusals of its own."""
        for one, other, words in REFUSED:
            self.refused([*SMALL, "GPUS=8", "BATCH=32", "ACCUMULATE=2", *one.split(),
                          *other.split()], words)

    @unittest.skipUnless(ALL, "112 pairs of options, four plans each: PLAN_ALL=1")
    def test_each_two_options(self):
        refused = {frozenset(pair[:2]) for pair in REFUSED}
        for one, other in [pair for row, rest in itertools.combinations(AXES, 2)
                           for pair in itertools.product(row, rest)]:
            if frozenset((one, other)) in refused:
                continue
            options = one.split() + other.split()
            with self.subTest(options=options):
                strategy = [option for option in options if option.startswith("STRATEGY=")]
                self.check_formulas(self.compare(
                    8, (strategy or ["=zero3"])[0].partition("=")[2],
                    alike=not any(option.startswith("STAGES=") for option in options),
                    types=[option for option in options if option not in strategy]))

    def test_stages(self):
        """Each stage is a kind; activations go between them, and a Llama's share nothing."""
        for (gpus, stages, more), schedule in itertools.product(STAGES, ("gpipe", "1f1b")):
            with self.subTest(gpus=gpus, stages=stages, more=more, schedule=schedule):
                # The norm of a pipeline has a kernel for each parameter that a shard touches.
                alike = gpus // stages <= (4 if "REPLICAS=2" in more else 2)
                plan = self.compare(
                    gpus, "zero3", alike=alike, model=LLAMA + ["LAYERS=4"], types=more + [
                        "STAGES=%d" % stages, "SCHEDULE=" + schedule, "ACCUMULATE=4"])
                self.check_formulas(plan)
                self.assertEqual(len(plan["stages"]), stages)
                self.assertEqual(plan["schedule"], schedule)
                # Four micro-batches, one sequence each: to the next stage, to the one before.
                ends = {0: 4, stages - 1: 4}
                for rank in plan["ranks"]:
                    self.assertEqual(rank["messages"]["send"][0], ends.get(rank["stage"], 8))

    def test_stages_with_a_tied_embedding(self):
        """Which pieces of it two stages share a dry run cannot ask; with one rank of each kind
        others may have more of them, and the time differs by that."""
        for gpus, strategy, more in ((2, "zero3", []), (4, "zero1", ["LAYOUT=per_parameter"]),
                                     (6, "ddp", ["DTYPE=bf16"]), (8, "zero2", ["SCHEDULE=1f1b"]),
                                     (8, "zero3", ["REPLICAS=2", "RECOMPUTE=attention",
                                                   "ATTENTION=plain"])):
            with self.subTest(gpus=gpus, strategy=strategy):
                plan = self.compare(gpus, strategy, alike=gpus == 2, types=more + ["STAGES=2"])
                self.check_formulas(plan)
                shared = [rank["messages"]["send"][0] - 2 for rank in plan["ranks"]]
                self.assertTrue(all(pieces > 0 for pieces in shared), shared)


class Alternatives(ReferenceCopy):
    """Other right solutions."""
    same, plan, run_plan, compare = Plan.same, Plan.plan, Plan.run_plan, Plan.compare

    def test_other_right_solutions(self):
        solutions = {solution.name: solution for solution in mutant_files.load_alternatives(
            manifest.load(ROOT))}
        reference = os.path.join(ROOT, "reference")
        for name in ALTERNATIVES:
            with self.subTest(name=name):
                shutil.copytree(reference, self.copy, dirs_exist_ok=True)
                for file, part in solutions[name].parts.items():
                    self.write(os.path.join(self.copy, file),
                               mutant_files.put_in(read(reference, file), part))
                self.assertIn("All %s files are yours" % manifest.how_many(), make(self.copy))
                found = [os.path.join(build_folder(), "impl", key, "bin", "plan")
                         for key in os.listdir(os.path.join(build_folder(), "impl"))
                         if key.startswith(os.path.basename(self.copy) + "-")]
                self.assertEqual(len(found), 1)
                self.program = found[0] # at the place of the solution before
                Plan.made.clear()
                self.compare(3, alike=name != UNLIKE)
                if ALL:
                    self.compare(3, alike=name != UNLIKE, types=["DTYPE=bf16"])


if __name__ == "__main__":
    unittest.main()
