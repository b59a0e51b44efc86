"""`make plan`: what it finds by one rank alone among phantoms is what all ranks do, dry or with
their arithmetic; its formulas are what its log says; what it refuses.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from helpers import GRADER, ROOT, ReferenceCopy, TempFolder, build_folder
import manifest
import mutants
import runner
import sweep
import timeline

SMALL = ["LAYERS=3", "HEADS=2", "DIM=20", "VOCAB=61", "SEQ=16", "INIT=values"]
LLAMA = ["LAYERS=2", "HEADS=4", "KV_HEADS=2", "DIM=24", "HIDDEN=40", "VOCAB=61", "SEQ=16",
         "INIT=values"]
LIMIT = 120
ALL = os.environ.get("PLAN_ALL") == "1" # else a part of the worlds and solutions
WORLDS = range(1, 9) if ALL else (1, 2, 5, 8)
# Solutions whose schedule or messages are unlike the reference's. The ranks of gather_by_sends do
# not queue the same: each begins with another peer.
UNLIKE = "gather_by_sends"
ALTERNATIVES = [UNLIKE, "prefetch_forward"] + ([
    "one_stream", "stream_for_each_unit", "gather_in_place", "reduce_by_reduces",
    "norm_by_reduce_and_broadcast"] if ALL else [])
TYPES = [["DTYPE=bf16"], ["DTYPE=fp16"], ["DTYPE=bf16", "REDUCE_DTYPE=bf16"],
         ["REDUCE_DTYPE=bf16"]] # the others are float
# What labs 3, 4, 6 and 7 add, each alone and some together.
OPTIONS = [["RECOMPUTE=blocks"], ["RECOMPUTE=attention", "ATTENTION=plain"], ["PREFETCH=2"],
           ["OFFLOAD=yes"], ["LAYOUT=per_parameter"],
           ["RECOMPUTE=blocks", "LAYOUT=per_parameter", "PREFETCH=3", "DTYPE=bf16"],
           ["RECOMPUTE=blocks", "OFFLOAD=yes", "DTYPE=bf16", "REDUCE_DTYPE=bf16"]]
# Ranks, stages and what goes with them. A Llama's stages share no parameter.
STAGES = [(2, 2, []), (8, 4, []), (4, 2, ["LAYOUT=per_parameter"]), (8, 2, ["DTYPE=bf16"])] + ([
    (4, 4, []), (6, 3, ["RECOMPUTE=blocks"]), (6, 2, ["PREFETCH=2", "DTYPE=bf16"]),
    (8, 4, ["REDUCE=each", "RECOMPUTE=blocks"])] if ALL else [])
STRATEGIES = [("fsdp", 1), ("zero3", 1), ("zero2", 1), ("zero1", 1), ("ddp", 1), ("zero3", 2)]


def make(impl):
    """The planner with the folder's six files."""
    build = os.path.relpath(build_folder(), ROOT)
    key = subprocess.run(
        [sys.executable, os.path.join(GRADER, "plan.py"), "--impl", impl, "--build", build,
         "GPUS=0"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=LIMIT * runner.time_factor(), check=False)
    if "plan: GPUS=0: must be" not in key.stderr:
        raise AssertionError(key.stdout + key.stderr)
    return key.stdout


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Plan(TempFolder):
    """The reference's."""
    program = os.path.join(build_folder(), "impl", "reference", "bin", "plan")

    @classmethod
    def setUpClass(cls):
        make("reference")

    def run_plan(self, *settings):
        """(exit status, standard output, standard error)"""
        done = subprocess.run([self.program] + list(settings), cwd=ROOT,
                              env=dict(os.environ, SIMGPU_THREADS="1"), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False,
                              timeout=LIMIT * runner.time_factor())
        return done.returncode, done.stdout, done.stderr

    def plan(self, *settings):
        path = self.path("plan.json")
        status, out, err = self.run_plan("JSON=" + path, "ADVICE=no", *settings)
        self.assertEqual(status, 0, out + err)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def same(self, plan, other):
        """Memory by category, bytes, messages, order; the rank's own notes of where."""
        self.assertEqual(len(plan["ranks"]), len(other["ranks"]))
        for rank, wanted in zip(plan["ranks"], other["ranks"]):
            self.assertEqual(rank, wanted)
        self.assertEqual(plan["times"], other["times"])

    def compare(self, gpus, strategy="fsdp", replicas=1, alike=True, types=(), model=SMALL):
        settings = model + ["GPUS=%d" % gpus, "BATCH=%d" % (4 * gpus), "STRATEGY=" + strategy]
        settings += ["REPLICAS=%d" % replicas] if replicas > 1 else []
        settings += ["ACCUMULATE=2"] if strategy != "fsdp" else []
        settings += types
        dry = self.plan(*settings, "RUN=dry")
        self.assertEqual(len(dry["ranks"]), gpus)
        self.same(self.plan(*settings, "RANKS=all"), dry)
        kinds = self.plan(*settings)
        self.assertLessEqual(len(kinds["ranks"]), gpus)
        for rank in kinds["ranks"]:
            self.assertEqual(rank, dry["ranks"][rank["rank"]])
        if alike:
            self.assertEqual(kinds["times"], dry["times"])
        self.same(dry, self.plan(*settings, "RUN=executed"))
        return dry

    def check_formulas(self, plan):
        places = plan["gpus"] // len(plan["stages"])
        for rank in plan["ranks"]:
            formulas = plan["stages"][rank["stage"]]
            for name in ("products", "attention"):
                self.assertEqual(rank[name], formulas[name], name)
            for name in ("sharded parameters", "sharded gradients"):
                self.assertEqual(rank["memory"][name][1], formulas[name], name)
            self.assertEqual(rank["memory"]["optimizer state"][1], formulas["optimizer state"])
            for name in ("unsharded parameters", "unsharded gradients", "activations"):
                self.assertEqual(rank["memory"][name][2], formulas[name], name)
            self.assertEqual(rank["memory"]["sharded parameters"][2],
                             formulas["sharded parameters"] + formulas["slices"])
            calls, _, sent = rank["messages"]["all-gather"]
            self.assertEqual((calls, sent), (formulas["gather_calls"], formulas["gather_sent"]))
            calls, _, sent = rank["messages"]["reduce-scatter"]
            self.assertEqual((calls, sent), (formulas["scatter_calls"], formulas["scatter_sent"]))
            if rank["rank"] % places == 0:
                self.assertEqual(rank["messages"]["send"][2], formulas["sent_messages"])
            self.assertEqual(rank["copies_within"], [formulas["copies"], formulas["copied"]])


class Reference(Plan):
    def test_worlds_to_eight(self):
        for gpus in WORLDS:
            with self.subTest(gpus=gpus):
                self.check_formulas(self.compare(gpus))

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
        for gpus in WORLDS:
            for types in TYPES if ALL else TYPES[:2]:
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
        for gpus, strategy, parts, layers in itertools.product(
                (1, 8), ("zero3", "zero2", "zero1", "ddp"), (1, 2), (1, 3)):
            for dtype, reduce in itertools.product(names, names) if ALL else [
                    ("float", "float"), ("bf16", "float"), ("bf16", "bf16"), ("fp16", "bf16")]:
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

    def test_slices(self):
        """RESHARD_RANKS: the backward gathers from neighbours alone."""
        for types in ([], ["DTYPE=bf16"]):
            with self.subTest(types=types):
                self.check_formulas(self.compare(
                    8, "zero3", types=types + ["RESHARD_RANKS=4"]))
        small = ["MODEL=gpt2", "GPUS=64", "SEQ=128", "ACCUMULATE=2"]
        plans = [self.plan(*small, *more) for more in ([], ["RESHARD_RANKS=8"])]
        for plan in plans:
            self.check_formulas(plan)
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
        for gpus in WORLDS:
            for options in OPTIONS if ALL or gpus in (1, 5) else OPTIONS[:1]:
                with self.subTest(gpus=gpus, options=options):
                    self.check_formulas(self.compare(gpus, "zero3", types=options))

    def test_options_under_strategies(self):
        for strategy, options in itertools.product(("zero2", "zero1", "ddp"), OPTIONS):
            if strategy == "ddp" and "OFFLOAD=yes" in options:
                continue
            if ALL or options in OPTIONS[-2:]:
                with self.subTest(strategy=strategy, options=options):
                    model = SMALL if "ATTENTION=plain" in options else LLAMA
                    self.check_formulas(self.compare(4, strategy, types=options, model=model))

    def test_formulas_of_options(self):
        """Without their arithmetic, each with each strategy, in float and bf16."""
        for strategy, options, gpus, parts in itertools.product(
                ("zero3", "zero2", "zero1", "ddp"), OPTIONS, (1, 4), (1, 2)):
            if strategy == "ddp" and "OFFLOAD=yes" in options:
                continue
            if not ALL and (gpus, parts) != (4, 2):
                continue
            for dtype in ("float", "bf16"):
                with self.subTest(strategy=strategy, options=options, gpus=gpus, parts=parts):
                    self.check_formulas(self.plan(
                        *SMALL, "GPUS=%d" % gpus, "BATCH=8", "ACCUMULATE=%d" % parts,
                        "STRATEGY=" + strategy, "DTYPE=" + dtype, *options))

    def test_stages(self):
        """Each stage is a kind; activations go between them, and a Llama's share nothing."""
        for (gpus, stages, more), schedule in itertools.product(STAGES, ("gpipe", "1f1b")):
            with self.subTest(gpus=gpus, stages=stages, more=more, schedule=schedule):
                # The norm of a pipeline has a kernel for each parameter that a shard touches.
                alike = gpus // stages <= 2
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
                                     (6, "ddp", ["DTYPE=bf16"]), (8, "zero2", ["SCHEDULE=1f1b"])):
            with self.subTest(gpus=gpus, strategy=strategy):
                plan = self.compare(gpus, strategy, alike=gpus == 2, types=more + ["STAGES=2"])
                self.check_formulas(plan)
                shared = [rank["messages"]["send"][0] - 2 for rank in plan["ranks"]]
                self.assertTrue(all(pieces > 0 for pieces in shared), shared)

    @unittest.skipUnless(ALL, "three plans of 175 billion parameters: PLAN_ALL=1")
    def test_a_large_model_in_stages(self):
        """GPT-3 on 256 GPUs: 1F1B holds less than GPipe, and more micro-batches hide the bubble."""
        settings = ["MODEL=gpt3-175b", "GPUS=256", "STAGES=8", "DTYPE=bf16", "STRATEGY=zero1"]
        plans = [self.plan(*settings, "BATCH=%d" % (32 * n), "ACCUMULATE=%d" % n,
                           "SCHEDULE=" + schedule)
                 for n, schedule in ((8, "gpipe"), (8, "1f1b"), (16, "1f1b"))]
        for plan in plans:
            self.check_formulas(plan)
        peaks = [max(rank["peak"] for rank in plan["ranks"]) for plan in plans]
        self.assertGreater(peaks[0], peaks[1])
        self.assertGreater(plans[2]["mfu"], plans[1]["mfu"])

    def test_what_offload_leaves_on_the_gpu(self):
        plans = [self.plan("MODEL=llama3-8b", "GPUS=8", "SEQ=512", "DTYPE=bf16", "STRATEGY=zero3",
                           *more) for more in ([], ["OFFLOAD=yes"])]
        for plan in plans:
            self.check_formulas(plan)
        kept = [sum(memory[1] for memory in plan["ranks"][0]["memory"].values())
                for plan in plans]
        self.assertGreater(kept[0], 14 << 30)
        self.assertLess(kept[1], 1 << 20)
        _, out, _ = self.run_plan("MODEL=gpt2", "GPUS=8", "OFFLOAD=yes")
        self.assertRegex(out, r"The optimizer's step is the host's, and not in this time: 28 bytes")

    def test_more_units_ahead(self):
        """A table says it, and what is unsharded has as many units more."""
        plans = [self.plan("MODEL=gpt2", "GPUS=8", "STRATEGY=zero3", *more)
                 for more in ([], ["PREFETCH=0"], ["PREFETCH=2"], ["PREFETCH=3"])]
        most = [plan["ranks"][0]["memory"]["unsharded parameters"][2] for plan in plans]
        self.assertEqual(most[0], most[1])
        self.assertEqual(most[2] - most[0], most[3] - most[2])
        self.assertGreater(most[2], most[0])
        self.assertEqual([plan["prefetch"] for plan in plans], [1, 0, 2, 3])

    def test_a_table_says_the_options(self):
        for settings, words in [
                (["STAGES=2", "SCHEDULE=1f1b"], "; 2 stages of 4 GPUs, 1F1B"),
                (["RECOMPUTE=blocks"], "; blocks again"), (["PREFETCH=3"], "; 3 ahead"),
                (["LAYOUT=per_parameter"], "; cut by parameter"),
                (["OFFLOAD=yes"], "; shards in host memory")]:
            with self.subTest(settings=settings):
                _, out, err = self.run_plan(*SMALL, "GPUS=8", *settings)
                self.assertIn(words, out.split("attention\n")[0], err)

    def test_a_straggler(self):
        """The others wait for it: a step of a slow rank is a step of all."""
        settings = ["MODEL=gpt2", "GPUS=16", "SEQ=1024", "BATCH=64", "DTYPE=bf16"]
        plain, slow, slower = (self.plan(*settings, *more)
                               for more in ([], ["SLOW=5:20%"], ["SLOW=5:40%"]))
        self.assertNotIn(5, [rank["rank"] for rank in plain["ranks"]])
        self.assertIn(5, [rank["rank"] for rank in slow["ranks"]])
        step, others = plain["times"]["step"], plain["times"]["compute"]
        self.assertGreater(slow["times"]["step"], step + others // 6)
        self.assertGreater(slower["times"]["step"], slow["times"]["step"] + others // 6)
        for rank in slow["ranks"]:
            if rank["rank"] == 0:
                self.assertEqual(rank, plain["ranks"][0])

    def test_a_straggler_among_all_ranks(self):
        settings = SMALL + ["GPUS=4", "BATCH=16", "SLOW=2:30%"]
        self.assertEqual(self.plan(*settings)["times"]["step"],
                         self.plan(*settings, "RUN=dry")["times"]["step"])

    def test_fused_attention_in_half_precision(self):
        """On tensor cores, at the rate of the machine's file; in float without them."""
        rates = {}
        for dtype in ("float", "tf32", "bf16", "fp16"):
            kind = self.plan("MODEL=mpt-1b", "SEQ=8192", "GPUS=8", "DTYPE=" + dtype)["times"][
                "kinds"]["attention"]
            rates[dtype] = kind[3] / kind[2] # FLOP per picosecond, where nothing slows it
        for dtype, peak in (("float", 67), ("tf32", 67), ("bf16", 0.35 * 989),
                            ("fp16", 0.35 * 989)):
            self.assertLess(rates[dtype], peak)
            self.assertGreater(rates[dtype], 0.95 * peak)

    def test_half_of_the_messages_and_the_peak_of_the_type(self):
        plans = {dtype: self.plan("MODEL=gpt2", "GPUS=8", "DTYPE=" + dtype)
                 for dtype in ("float", "tf32", "bf16", "fp16")}
        sent = {dtype: [plan["ranks"][0]["messages"][op][2] for op in ("all-gather",
                                                                       "reduce-scatter")]
                for dtype, plan in plans.items()}
        self.assertEqual(sent["bf16"], [sent["float"][0] // 2, sent["float"][1]])
        self.assertEqual(sent["fp16"], sent["bf16"])
        for dtype, peak in (("float", 67e12), ("tf32", 494.5e12), ("bf16", 989e12),
                            ("fp16", 989e12)): # simgpu/machines/h100x8.machine
            plan = plans[dtype]
            seconds = 1e-12 * plan["times"]["step"]
            self.assertAlmostEqual(plan["mfu"], plan["formulas"]["useful"] / seconds / peak / 8,
                                   places=5)
        self.assertLess(plans["bf16"]["times"]["kinds"]["products"][1],
                        plans["tf32"]["times"]["kinds"]["products"][1])

    def test_a_table_says_the_types(self):
        _, out, _ = self.run_plan(*SMALL, "GPUS=2", "DTYPE=bf16")
        self.assertIn("; bf16, reductions in float; fused attention\n", out)
        self.assertRegex(out, r"MFU \d+\.\d % of 989 TFLOP/s")

    def test_a_table_says_why(self):
        """Each item of it, and what would help most, where something else would each time."""
        def why(*settings):
            status, out, err = self.run_plan(*settings)
            self.assertEqual((status, err), (0, ""))
            return out.partition("\nWhy\n")[2]
        text = why("MODEL=gpt2-xl", "GPUS=16", "BATCH=64", "DTYPE=bf16")
        for line in (r"reads 3\.35 TB/s: kernels of fewer than 295 FLOP per byte wait for memory",
                     r"- products: [\d.]+ FLOP per byte, bound by arithmetic; \d+ TFLOP/s",
                     r"- attention: [\d.]+ FLOP per byte, bound by arithmetic",
                     r"- optimizer: 0\.\d FLOP per byte, bound by memory",
                     r"all-gather takes [\d.]+ ms where nothing slows it",
                     r"24·C² = 6\.14e\+07 FLOP per token, at \d+ TFLOP/s: from \d+ tokens per GPU on",
                     r"hides behind that; there are 4096\.",
                     r"- all-gather: \d+ % of its time is latency \(ring \w+, 16 ranks on 2 nodes\)",
                     r"- reduce-scatter: \d+ % of its time is latency",
                     r"not host-bound\."):
            self.assertRegex(text, line)
        small = ["MODEL=gpt2", "DTYPE=bf16"]
        for settings, help_ in [
                (["MODEL=gpt3-175b", "GPUS=8"], "recomputation, or more GPUs: it does not fit"),
                (["MODEL=gpt3-175b", "GPUS=8", "BATCH=16"],
                 "recomputation, or a smaller micro-batch (ACCUMULATE): it does not fit"),
                (["MODEL=gpt3-175b", "GPUS=8", "RECOMPUTE=blocks"],
                 "more GPUs, or shorter sequences: it does not fit"),
                (["MODEL=gpt2", "GPUS=8", "STAGES=4", "BATCH=8", "ACCUMULATE=2"],
                 "more micro-batches (ACCUMULATE): "),
                (["MODEL=mpt-1b", "GPUS=8", "BATCH=32"], "faster kernels or a faster type"),
                (small + ["GPUS=1", "SEQ=64"], "larger kernels, by a larger batch or units of more"),
                (small + ["GPUS=1024"], "HSDP (STRATEGY=hsdp): latency grows"),
                (["MODEL=gpt2-xl", "GPUS=16", "SEQ=512", "DTYPE=bf16"],
                 "more tokens per GPU (BATCH): the same bytes hide behind more compute; or slices"),
                (small + ["GPUS=16", "SLOW=5:10%"], "a rank 5 as fast as the others")]:
            with self.subTest(settings=settings):
                self.assertIn("What would help most: " + help_, why(*settings))
        llama = why("MODEL=llama3-8b", "GPUS=16", "SEQ=2048", "DTYPE=bf16")
        # 2 · 4096 · (2 · 4096 + 2 · 1024 + 3 · 14336)
        self.assertIn("2·C·(2·C + 2·K + 3·F) = 4.36e+08 FLOP per token", llama)

    def test_175_billion_on_1024_gpus(self):
        plan = self.plan("MODEL=gpt3-175b", "GPUS=1024")
        self.check_formulas(plan)
        self.assertEqual(plan["formulas"]["parameters"], 174604259328)
        rank = plan["ranks"][0]
        self.assertGreater(rank["peak"], plan["memory_of_gpu"])
        self.assertGreater(rank["over"], 0)
        self.assertRegex(rank["over_where"], r"\.c:\d+ \(\w+\)")

    def test_a_rank_without_parameters(self):
        """More ranks than some units can fill: those with padding alone are kinds of their own."""
        plan = self.plan(*SMALL, "GPUS=4096", "STRATEGY=zero3")
        self.assertGreater(len(plan["ranks"]), 3)
        self.check_formulas(plan)

    def test_hsdp_over_nodes(self):
        plan = self.plan(*SMALL, "GPUS=64", "STRATEGY=hsdp", "ACCUMULATE=2")
        self.check_formulas(plan)
        self.assertEqual(plan["replicas"], 8)
        self.assertGreater(plan["ranks"][0]["messages"]["all-reduce"][0], 1)

    def test_clipping(self):
        calls = [self.plan(*SMALL, "GPUS=8", "CLIP=" + clip)["ranks"][0]["operations"]
                 for clip in ("no", "yes")]
        self.assertLess(*calls)

    def test_what_is_read_on_the_host_is_named(self):
        _, out, _ = self.run_plan(*SMALL, "GPUS=8")
        self.assertRegex(out, r"called at \S*optimizer\.c:\d+ \(\w+\), reads a device's result")

    def test_the_fastest_that_fits(self):
        machine = self.write("small.machine", "base h100x8\nmemory 650 KB\n")
        status, out, err = self.run_plan("FIT=yes", *SMALL, "GPUS=4", "BATCH=32",
                                         "MACHINE=" + machine)
        self.assertEqual((status, err), (0, ""))
        rows = [line.split() for line in out.splitlines()
                if re.match(r"  (zero[123]|ddp) ", line)]
        fits = {tuple(row[:7]): float(row[8]) for row in rows if "fit" not in row}
        self.assertTrue(0 < len(fits) < len(rows), out)
        best = min(fits, key=fits.get)
        self.assertIn("on 4 GPUs (1 node of small.machine), " + best[0], out)
        self.assertIn("A step takes %.3f ms" % fits[best], out)
        self.assertEqual({row[4] for row in rows if row[0] == "zero3"}, {"once", "each"})
        self.assertEqual({row[4] for row in rows if row[0] == "zero1"}, {"once"})
        self.assertEqual({row[5] for row in rows}, {"no", "blocks"})
        self.assertIn("It fits: ", out)

    def test_slices_are_tried_on_several_nodes(self):
        _, out, _ = self.run_plan("FIT=yes", *SMALL, "GPUS=16", "DTYPE=bf16")
        rows = [line.split()[:7] for line in out.splitlines() if line.startswith("  zero3 ")]
        self.assertEqual(rows[:4], [["zero3", "1", "1", slices, "once", again, "1"]
                                    for slices in ("0", "8") for again in ("no", "blocks")])

    def test_what_was_asked_for_stays(self):
        for settings, column, values in ((["RECOMPUTE=blocks"], 5, {"blocks"}),
                                         (["RECOMPUTE=no"], 5, {"no"}),
                                         (["PREFETCH=2"], 6, {"2"}),
                                         (["ATTENTION=plain"], 5, {"no", "blocks", "attention"}),
                                         (["OFFLOAD=yes"], 0, {"zero3", "zero2", "zero1", "hsdp"}),
                                         (["LAYOUT=per_parameter"], 3, {"0"}),
                                         (["STAGES=2"], 0, {"zero3", "zero2", "zero1", "ddp"})):
            with self.subTest(settings=settings):
                status, out, err = self.run_plan("FIT=yes", *SMALL, "GPUS=16", "ADVICE=no",
                                                 *settings)
                self.assertEqual((status, err), (0, ""))
                rows = [line.split() for line in out.splitlines()
                        if re.match(r"  (zero[123]|ddp|hsdp) ", line)]
                self.assertEqual({row[column] for row in rows}, values)

    def test_recomputation_where_nothing_else_fits(self):
        """Activations are most of this step's memory: without recomputation no plan fits."""
        machine = self.write("small.machine", "base h100x8\nmemory 600 KB\n")
        status, out, err = self.run_plan("FIT=yes", *SMALL, "LAYERS=6", "GPUS=2", "BATCH=2",
                                         "SEQ=64", "MACHINE=" + machine)
        self.assertEqual((status, err), (0, ""), out)
        self.assertIn("; blocks again", out)
        settings = [*SMALL, "LAYERS=6", "GPUS=2", "BATCH=2", "SEQ=64", "MACHINE=" + machine]
        _, out, _ = self.run_plan(*settings)
        said = re.search(r"RECOMPUTE=blocks: ([\d.]+) GiB at the peak, fits; a step takes ([\d.]+) "
                         r"ms", out)
        again = self.plan(*settings, "RECOMPUTE=blocks")
        self.assertEqual(said.group(2), "%.3f" % (again["times"]["step"] / 1e9))
        self.assertLessEqual(again["ranks"][0]["peak"], again["memory_of_gpu"])

    def test_nothing_fits(self):
        machine = self.write("tiny.machine", "base h100x8\nmemory 1 KB\n")
        status, out, err = self.run_plan("FIT=yes", *SMALL, "GPUS=2", "MACHINE=" + machine)
        self.assertEqual(status, 1)
        self.assertEqual(out.count("does not fit"), 8)
        self.assertIn("plan: none of these fits into", err)

    def test_what_is_refused(self):
        for settings, words in [
                (["MODEL=gpt5"], "MODEL=gpt5 is not known; there are gpt2, gpt2-medium"),
                (["GPUS=12"], "GPUS=12 is no multiple of the 8 of a node of h100x8"),
                (["GPUS=0"], "GPUS=0: must be a whole number from 1"),
                (["GPUS=many"], "GPUS=many: must be a whole number"),
                (["GPUS=100000"], "at most 65536"),
                (["MACHINE=h900"], "MACHINE: "),
                (["GPUS=16", "BATCH=17"], "BATCH=17 sequences do not divide into 16 GPUs"),
                (["SEQ=1025"], "SEQ=1025: gpt2 has positions for 1024 tokens"),
                (["STRATEGY=zero4"], "STRATEGY=zero4: must be fsdp, zero3, zero2, zero1, ddp or"),
                (["STRATEGY=hsdp"], "STRATEGY=hsdp wants more GPUs than a node has (8)"),
                (["STRATEGY=ddp", "REPLICAS=2"], "leave REPLICAS out"),
                (["REPLICAS=3"], "REPLICAS=3 does not divide GPUS=8"),
                (["REPLICAS=8"], "leave nobody to shard with"),
                (["DTYPE=fp8"], "DTYPE=fp8: must be float, bf16, fp16 or tf32"),
                (["REDUCE_DTYPE=tf32"], "REDUCE_DTYPE=tf32: must be float, bf16 or fp16"),
                (["LAYERS=2", "HEADS=3", "DIM=32"], "HEADS=3 does not divide DIM=32"),
                (["LAYERS=2"], "needs LAYERS, HEADS and DIM"),
                (["MODEL=mpt-1b", "SEQ=2000000000", "BATCH=16"], "the sizes overflow"),
                (["MODEL=gpt2", "DIM=2147483640", "HEADS=2147483640"], "the sizes overflow"),
                (["LAYERS=2", "HEADS=1", "DIM=256"], "heads of at most 128 columns"),
                (["KV_HEADS=2"], "KV_HEADS and HIDDEN are for a Llama"),
                (["LAYERS=2", "HEADS=2", "DIM=8", "HIDDEN=8"], "are for a Llama"),
                (["MODEL=llama3-8b", "KV_HEADS=3"], "KV_HEADS=3 does not divide HEADS=32"),
                (["MODEL=llama3-8b", "HEADS=4096", "KV_HEADS=8"], "pairs of columns, not 1"),
                (["MODEL=llama3-8b", "ATTENTION=plain"], "a Llama's is always fused"),
                (["MODEL=llama3-8b", "HIDDEN=2000000000"], "the sizes overflow"),
                (["REDUCE=never"], "REDUCE=never: must be once or each"),
                (["REDUCE=each", "STRATEGY=zero1"], "ZeRO-1 keeps its gradients"),
                (["RESHARD_RANKS=3"], "RESHARD_RANKS=3 must divide GPUS=8"),
                (["RESHARD_RANKS=8"], "neither 1 nor all of them"),
                (["RESHARD_RANKS=1"], "neither 1 nor all of them"),
                (["RESHARD_RANKS=2", "STRATEGY=zero2"], "only ZeRO-3 reshards"),
                (["RESHARD_RANKS=2", "REPLICAS=2"], "goes without replicas"),
                (["SLOW=3"], "SLOW=3: must be a rank and how much slower it is"),
                (["SLOW=3:10"], "must be a rank and how much slower"),
                (["SLOW=3:10%%"], "must be a rank and how much slower"),
                (["SLOW=3:0%"], "must be a rank and how much slower"),
                (["SLOW=8:10%"], "the ranks are 0 to 7"),
                (["SLOW=-1:10%"], "the ranks are 0 to 7"),
                (["RECOMPUTE=some"], "RECOMPUTE=some: must be no, blocks or attention"),
                (["RECOMPUTE=attention"], "fused attention never has in memory"),
                (["PREFETCH=-1"], "PREFETCH=-1: must be a whole number from 0"),
                (["OFFLOAD=maybe"], "OFFLOAD=maybe: must be no or yes"),
                (["OFFLOAD=yes", "STRATEGY=ddp"], "OFFLOAD=yes wants shards"),
                (["OFFLOAD=yes", "RESHARD_RANKS=2"], "whose slices stay on the GPU"),
                (["OFFLOAD=yes", "LAYOUT=per_parameter"], "keeps flat shards on the host"),
                (["OFFLOAD=yes", "DTYPE=fp16"], "OFFLOAD=yes does not go with DTYPE=fp16"),
                (["LAYOUT=rows"], "LAYOUT=rows: must be flat or per_parameter"),
                (["LAYOUT=per_parameter", "RESHARD_RANKS=2"], "keeps a slice of a flat unit"),
                (["SCHEDULE=1f1b"], "SCHEDULE=1f1b is that of a pipeline: STAGES"),
                (["STAGES=2", "SCHEDULE=zero"], "SCHEDULE=zero: must be gpipe or 1f1b"),
                (["STAGES=3"], "STAGES=3 does not divide GPUS=8"),
                (["STAGES=4", "LAYERS=3", "HEADS=2", "DIM=20"], "the model has 3 blocks"),
                (["STAGES=0"], "STAGES=0: must be a whole number from 1"),
                (["STAGES=128", "GPUS=128", "MODEL=llama3-405b"], "has 126 blocks"),
                (["STAGES=2", "DTYPE=fp16"], "STAGES does not go with DTYPE=fp16"),
                (["STAGES=2", "RESHARD_RANKS=2"], "STAGES does not go with RESHARD_RANKS"),
                (["STAGES=2", "OFFLOAD=yes"], "STAGES does not go with OFFLOAD=yes"),
                (["STAGES=2", "REPLICAS=2"], "phantoms cannot split what was split off"),
                (["STAGES=2", "BATCH=6"], "BATCH=6 sequences do not divide into 4 GPUs of a stage"),
                (["FIT=yes", "REDUCE=each"], "FIT=yes looks for STRATEGY"),
                (["RANKS=all", "GPUS=16"], "at most 8"),
                (["FIT=yes", "STRATEGY=ddp"], "FIT=yes looks for STRATEGY"),
                (["gpus=8"], "is no setting of a plan")]:
            with self.subTest(settings=settings):
                status, out, err = self.run_plan(*settings)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(words, err)
                self.assertEqual(err.count("\n"), 1, err)

    def test_a_file_that_cannot_be_written(self):
        for name in ("JSON", "TIMELINE"):
            status, _, err = self.run_plan(*SMALL, "GPUS=2",
                                           "%s=%s" % (name, self.path("no", "plan.json")))
            self.assertEqual(status, 1)
            self.assertRegex(err, r"^plan: %s=\S+ cannot be written: No such file" % name)

    def test_the_timeline_is_the_step(self):
        """Operation by operation it is what the table has added up, of the slowest rank; and not that
        of another plan, which advice has tried."""
        path = self.path("timeline.json")
        plan = self.plan(*SMALL, "GPUS=4", "SLOW=2:50%", "RANKS=all", "TIMELINE=" + path)
        self.check_timeline(plan, path)
        self.check_timeline(self.plan("MODEL=gpt2", "GPUS=8", "BATCH=512", "TIMELINE=" + path), path)

    def check_timeline(self, plan, path):
        with open(path, encoding="utf-8") as file:
            line = json.load(file)
        spans = [(row[0], row[4], row[5]) for row in line["operations"] if row[5] > row[4]]
        moved = [span[1:] for span in spans if span[0] in plan["ranks"][0]["messages"]]
        computed = [span[1:] for span in spans if span[0] not in plan["ranks"][0]["messages"]]
        times = plan["times"]
        self.assertEqual((line["rank"], line["step"]), (times["rank"], times["step"]))
        self.assertEqual(max(end for _, _, end in spans), times["step"])
        for found, name in ((computed, "compute"), (moved, "communication")):
            self.assertEqual(timeline.length(timeline.union(found)), times[name], name)
        self.assertEqual(timeline.length(timeline.union(computed + moved)),
                         times["compute"] + times["exposed"])
        events = [row[3] for row in line["operations"] if row[0] == "event record"]
        waited = [row[3] for row in line["operations"] if row[0] == "stream wait"]
        self.assertEqual(sum(row[6] for row in line["operations"]), sum(
            sent for rank in plan["ranks"] if rank["rank"] == times["rank"]
            for _, _, sent in rank["messages"].values()))
        self.assertTrue(waited and set(waited) <= set(events) and 0 not in events)


class Sweep(Plan):
    """Of several sizes."""

    def sweep(self, *settings):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = sweep.main(self.program, list(settings), self.folder)
        return status, out.getvalue(), err.getvalue()

    def test_a_sweep_is_drawn(self):
        status, out, err = self.sweep(*SMALL, "SWEEP=2..8", "BATCH=4")
        self.assertEqual((status, err), (0, ""))
        rows = [line.split() for line in out.splitlines() if re.match("weak |strong ", line)]
        self.assertEqual([row[:3] for row in rows], [
            ["weak", "2", "4"], ["weak", "4", "8"], ["weak", "8", "16"],
            ["strong", "2", "16"], ["strong", "4", "16"], ["strong", "8", "16"]])
        self.assertEqual(rows[2][3:], rows[5][3:]) # they meet
        picture = xml.etree.ElementTree.fromstring(self.read("sweep.svg"))
        self.assertEqual(len(picture.findall(".//{*}circle")), 6)
        self.assertEqual(len(picture.findall(".//{*}polyline")), 2)

    def test_what_is_refused(self):
        for settings, words in [
                (["SWEEP=8"], "must be two numbers"), (["SWEEP=8..4"], "must be two numbers"),
                (["SWEEP=8..24"], "8 does not become 24 by doubling"),
                (["SWEEP=4..8", "BATCH=6"], "BATCH=6 sequences do not divide"),
                (["SWEEP=4..8", "JSON=x"], "goes without JSON"),
                (["SWEEP=4..8", "MODEL=gpt5"], "MODEL=gpt5 is not known")]:
            with self.subTest(settings=settings):
                status, _, err = self.sweep(*settings)
                self.assertEqual(status, 2)
                self.assertIn(words, err)

    def test_what_cannot_be_planned_is_left_out(self):
        """A step of so many tokens that a GPU would need terabytes."""
        status, out, err = self.sweep("MODEL=gpt3-175b", "SWEEP=8..16", "BATCH=4096", "DTYPE=bf16")
        self.assertEqual((status, out.count("left out")), (2, 4))
        self.assertIn("fewer than two of these sizes", err)
        status, out, err = self.sweep("MODEL=gpt3-175b", "SWEEP=64..256", "BATCH=4096",
                                      "DTYPE=bf16")
        self.assertEqual((status, err, out.count("left out")), (0, "", 2))
        self.assertEqual(self.read("sweep.svg").count("<circle"), 4)

    def test_hollow_is_what_does_not_fit(self):
        points = [sweep.Point(kind, gpus, 8, 0.1, 10.0, 0.4, 0.0, gpus > 2)
                  for kind in sweep.KINDS for gpus in (2, 4)]
        self.assertEqual(sweep.draw(points, "a < b").count('fill="white"><title>2 GPUs'), 2)


class Alternatives(ReferenceCopy):
    """Other right solutions."""
    same, plan, run_plan, compare = Plan.same, Plan.plan, Plan.run_plan, Plan.compare

    def test_other_right_solutions(self):
        solutions = {solution.name: solution for solution in mutants.load_alternatives(
            os.path.join(ROOT, "tests", "alternatives"), manifest.load(ROOT))}
        reference = os.path.join(ROOT, "reference")
        for name in ALTERNATIVES:
            with self.subTest(name=name):
                shutil.copytree(reference, self.copy, dirs_exist_ok=True)
                for file, part in solutions[name].parts.items():
                    with open(os.path.join(reference, file), encoding="utf-8") as source:
                        self.write(os.path.join(self.copy, file),
                                   mutants.put_in(source.read(), part))
                self.assertIn("All six files are yours", make(self.copy))
                found = [os.path.join(build_folder(), "impl", key, "bin", "plan")
                         for key in os.listdir(os.path.join(build_folder(), "impl"))
                         if key.startswith(os.path.basename(self.copy) + "-")]
                self.assertEqual(len(found), 1)
                self.program = found[0]
                self.compare(3, alike=name != UNLIKE)
                if ALL:
                    self.compare(3, alike=name != UNLIKE, types=["DTYPE=bf16"])


if __name__ == "__main__":
    unittest.main()
