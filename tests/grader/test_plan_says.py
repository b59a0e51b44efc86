"""`make plan`: what it prints, what would help most, how models behave, what it refuses.
"""

import json
import re
import sys
import unittest

from helpers import run
from planner import LIMIT, SMALL, Plan
import timeline


class Says(Plan):
    """The table, and the figures behind it."""
    def test_what_offload_leaves_on_the_gpu(self):
        plans = [self.plan("MODEL=llama3-8b", "GPUS=8", "SEQ=512", "DTYPE=bf16", "STRATEGY=zero3",
                           *more) for more in ([], ["OFFLOAD=yes"])]
        for plan in plans:
            self.check_formulas(plan)
        kept = [sum(memory[1] for memory in plan["ranks"][0]["memory"].values())
                for plan in plans]
        self.assertGreater(kept[0], 14 << 30)
        self.assertLess(kept[1], 1 << 20)
        out = " ".join(self.said("MODEL=gpt2", "GPUS=8", "OFFLOAD=yes").split())
        self.assertIn("The optimizer's step is the host's, and not in this time: 28 bytes per "
                      "element, 0.44 GB", out) # 28 · 124,439,808 / 8

    def test_copies_of_the_hosts_shards_are_no_compute(self):
        times = self.plan("MODEL=gpt2", "GPUS=1", "SEQ=128", "OFFLOAD=yes")["times"]
        kernels = sum(kind[1] for name, kind in times["kinds"].items() if name != "copies")
        self.assertLessEqual(times["compute"], kernels)
        # Of 124,439,808 floats, to the GPU, and their gradients back, at 55.4 GB/s.
        self.assertGreater(times["communication"], 2 * 4 * 124439808 / 55.4e9 * 1e12)
        self.assertGreater(times["exposed"], times["step"] // 2)

    def test_what_a_gpu_waits_for(self):
        """DDP's all-reduces and the copies to the host follow one another: communication is all of
        their time. A small step is idle for its host; a bubble is not."""
        times = self.plan("MODEL=gpt2", "GPUS=8", "STRATEGY=ddp")["times"]
        self.assertEqual(times["communication"], sum(
            times["kinds"][name][1] for name in ("all-reduce", "copies")))
        times = self.plan(*SMALL, "GPUS=8")["times"]
        self.assertEqual(times["host"], times["idle"])
        times = self.plan("MODEL=gpt2", "GPUS=8", "STAGES=2")["times"]
        self.assertGreater(times["idle"], times["step"] // 3)
        self.assertLess(times["host"], times["idle"] // 4)

    def test_no_limit_of_files_reaches_the_hosts_shards(self):
        """Where files may have 1 MiB, as under Autolab's ulimit -f: units of 100 and 300 MiB, whose
        pages in a dry run are more than that, and in no file."""
        settings = ["LAYERS=2", "HEADS=16", "DIM=1536", "SEQ=64", "GPUS=1", "BATCH=1",
                    "OFFLOAD=yes"]
        limited = run(["sh", "-c", 'ulimit -f 2048 && exec "$0" "$@"', self.program, *settings,
                       "JSON=" + self.path("limited"), "ADVICE=no"], timeout=LIMIT, merged=True)
        self.assertEqual(limited.returncode, 0, limited.stdout)
        self.assertEqual(json.loads(self.read("limited")), self.plan(*settings))

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
                (["DTYPE=bf16"], "; bf16, reductions in float; fused attention"),
                (["STAGES=2", "SCHEDULE=1f1b"], "; 2 stages of 4 GPUs, 1F1B"),
                (["RECOMPUTE=blocks", "RECOMPUTE_EVERY=2"], "; blocks recomputed (1 of 2)"),
                (["PREFETCH=3"], "; prefetch depth 3"),
                (["LAYOUT=per_parameter"], "; sharded per parameter"),
                (["LAYOUT=per_parameter", "GATHER=fp8"], "; matrices gathered in FP8"),
                (["OFFLOAD=yes"], "; shards in host memory"),
                (["GRAPH=yes", "REGROUP=9"], "; a graph; all-gathers regrouped within 9 MiB")]:
            with self.subTest(settings=settings):
                _, out, err = self.run_plan(*SMALL, "GPUS=8", *settings)
                self.assertIn(words, " ".join(out.split("Ran dry")[0].split()), err)

    def test_a_straggler(self):
        """The others wait for it: a step of a slow rank is a step of all."""
        for strategy in ("fsdp", "hsdp"): # a replica of other nodes may be faster
            settings = ["MODEL=gpt2", "GPUS=16", "SEQ=1024", "BATCH=64", "DTYPE=bf16",
                        "STRATEGY=" + strategy]
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

    def test_a_table_says_why(self):
        """Each item of it, and what would help most, where something else would each time."""
        def why(*settings):
            return " ".join(self.said(*settings).partition("\nWhy\n")[2].split())
        text = why("MODEL=gpt2-xl", "GPUS=16", "BATCH=64", "DTYPE=bf16")
        for line in (r"reads 3\.35 TB/s: kernels of fewer than 295 FLOP per byte wait for memory",
                     r"- products: [\d.]+ FLOP per byte, bound by arithmetic; \d+ TFLOP/s",
                     r"- attention: [\d.]+ FLOP per byte, bound by arithmetic",
                     r"- optimizer: 0\.\d FLOP per byte, bound by memory",
                     r"all-gather takes [\d.]+ ms if nothing slows it",
                     r"24·C² = 6\.14e\+07 FLOP per token, at \d+ TFLOP/s\. "
                     r"It hides the all-gather from \d+ tokens per GPU on",
                     r"this plan has 4096\.",
                     r"- all-gather: \d+ % of its time is latency "
                     r"\(ring \w+, 16 ranks on 2 nodes\)",
                     r"- reduce-scatter: \d+ % of its time is latency",
                     r"not host-bound\."):
            self.assertRegex(text, line)
        kinds = self.plan("MODEL=gpt2-xl", "GPUS=16", "BATCH=64", "DTYPE=bf16")["times"]["kinds"]
        gather, product = kinds["all-gather"], kinds["products"]
        tokens = gather[2] / gather[0] * product[3] / product[1] / (24 * 1600 ** 2)
        self.assertIn("from %.0f tokens per GPU on" % tokens, text)
        self.assertIn("all-gather: %.0f %% of its time is latency" % (
            100 * gather[5] / gather[2]), text)
        # Kernels in TF32 wait for memory below 494.5 / 3.35 FLOP per byte, others below 67 / 3.35,
        # attention's in bf16 below 989 / 3.35.
        for dtype, kind, bound in (("tf32", "products", "memory"), ("bf16", "attention", "memory"),
                                   ("float", "products", "arithmetic")):
            self.assertRegex(why("MODEL=gpt2", "GPUS=8", "SEQ=256", "DTYPE=" + dtype),
                             r"- %s: [\d.]+ FLOP per byte, bound by %s" % (kind, bound))
        small = ["MODEL=gpt2", "DTYPE=bf16", "EFFICIENCY=100"]
        for settings, help_ in [
                (["MODEL=gpt3-175b", "GPUS=8"],
                 "more GPUs, or shorter sequences: it does not fit"),
                (["MODEL=llama3-8b", "SEQ=8192", "GPUS=8", "DTYPE=bf16", "BATCH=16"],
                 "it does not fit; these settings do, the fastest first: "),
                (["MODEL=llama3-70b", "SEQ=512", "GPUS=8"], # 1.1 TB of shards: no host has room
                 "more GPUs, or shorter sequences: it does not fit"),
                (["MODEL=llama3-8b", "SEQ=4096", "GPUS=1"], # a host of 8 GPUs has room for one's
                 "it does not fit; these settings do, the fastest first: OFFLOAD=yes: "),
                (["MODEL=gpt2", "GPUS=1", "BATCH=512"],
                 "it does not fit; these settings do, the fastest first: ACCUMULATE=8: "),
                (["MODEL=gpt2", "GPUS=8", "STAGES=4", "BATCH=8", "ACCUMULATE=2"],
                 "more micro-batches (ACCUMULATE): "),
                (["MODEL=mpt-1b", "GPUS=8", "STAGES=4", "ACCUMULATE=4"], # idle, nothing exposed
                 "more micro-batches (ACCUMULATE): "),
                (["MODEL=mpt-1b", "GPUS=8", "BATCH=32", "DTYPE=float"],
                 "faster kernels or a faster type"),
                (small + ["GPUS=1", "SEQ=64"],
                 "larger kernels (a larger batch, or units of more"),
                (small + ["GPUS=1024"], "HSDP (STRATEGY=hsdp): latency grows"),
                (["MODEL=gpt2-xl", "GPUS=16", "SEQ=512", "EFFICIENCY=100"],
                 "more tokens per GPU (BATCH): more compute hides the same bytes; or slices"),
                (small + ["GPUS=16", "SLOW=5:10%"], "a rank 5 as fast as the others")]:
            with self.subTest(settings=settings):
                text = why(*settings)
                self.assertIn("What would help most: " + help_, text)
                saved = re.search(r"this could save up to ([\d.]+ m?s)", text)
                if saved:
                    times = self.plan(*settings)["times"]
                    self.assertEqual(saved.group(1), self.time(
                        times["host" if help_.startswith("larger") else "exposed"]))
                for *found, ratio in re.findall(
                        r"([A-Z_]+=\w+): ([\d.]+) GiB at the peak, (fits|does not fit); a step "
                        r"takes ([\d.]+ m?s)[^,;]*, ([\d.]+) times this one", text):
                    plan = self.plan(*settings, found[0])
                    self.assertEqual(ratio, "%.2f" % (
                        plan["times"]["step"] / self.plan(*settings)["times"]["step"]))
                    self.assertEqual(found[1:], [
                        "%.1f" % (max(rank["peak"] for rank in plan["ranks"]) / (1 << 30)),
                        "fits" if plan["reserved"] <= plan["offered"] else "does not fit",
                        self.time(plan["times"]["step"])])
                if "ACCUMULATE=2" in settings: # three of five places in time
                    self.assertIn("with 4 stages and 2 micro-batches the bubble is 60 %", text)
        times = self.plan("MODEL=mpt-1b", "GPUS=8", "STAGES=4", "ACCUMULATE=4")["times"]
        self.assertGreater(times["idle"], times["step"] // 4) # of which the host has little part
        self.assertLess(times["host"], times["step"] // 50)
        llama = why("MODEL=llama3-8b", "GPUS=16", "SEQ=2048", "DTYPE=bf16")
        # 2 · 4096 · (2 · 4096 + 2 · 1024 + 3 · 14336)
        self.assertIn("2·C·(2·C + 2·K + 3·F) = 4.36e+08 FLOP per token", llama)

    def test_a_table_says_the_fullest_rank(self):
        """Of two stages the last, with its logits, or the first, with more micro-batches in flight;
        of a GPU that is too small, by how much its memory is exceeded, in bytes of the log."""
        settings = ["MODEL=gpt2-medium", "GPUS=8", "STAGES=2", "ACCUMULATE=2", "SEQ=128"]
        for more, first in (
                ([], 4), (["ACCUMULATE=8", "SCHEDULE=1f1b"], 0),
                (["MACHINE=" + self.write("s.machine", "base h100x8\nmemory 1 GiB\n")], 4)):
            plan, out = self.plan(*settings, *more), " ".join(
                self.said(*settings, *more, "ADVICE=no").split())
            fullest = max(plan["ranks"], key=lambda rank: rank["peak"])
            peak, memory = fullest["peak"], plan["memory_of_gpu"]
            self.assertEqual(fullest["rank"], first)
            self.assertEqual(plan["reserved"], peak + peak // 100 + memory // 100)
            gib = tuple(n / (1 << 30) for n in (
                peak, peak + peak // 100 + memory // 100, memory // 1000 * 985, memory))
            self.assertIn("in GiB (rank %d) " % fullest["rank"], out)
            self.assertIn("%.1f GiB live, at least %.1f with what the" % gib[:2], out)
            self.assertIn("of %.1f that a GPU of %.0f GiB offers" % gib[2:], out)
            exceeded = "first at %s, by %.3f GiB, and at the peak by %.3f GiB" % (
                fullest["over_where"], fullest["over"] / (1 << 30), (peak - memory) / (1 << 30))
            self.assertEqual(exceeded in out, peak > memory, exceeded)

    def test_a_table_says_what_each_kind_takes(self):
        """In ms, GFLOP and MB; slowed: how much longer than if nothing else ran."""
        settings = ["MODEL=mpt-1b", "GPUS=16", "BATCH=64"]
        out, plan = self.said(*settings, "ADVICE=no"), self.plan(*settings)
        kinds = plan["times"]["kinds"]
        for name, (calls, time, work, flops, moved, _) in kinds.items():
            self.assertGreaterEqual(time, work)
            row = re.search(r"(?m)^  %s +(\d+) +([\d.]+) +([\d.]+) %% +([\d.]+) +([\d.]+)$" % name,
                            out)
            self.assertEqual(row.groups() if row else (), (
                str(calls), "%.1f" % (time / 1e9), "%.1f" % (100 * (time - work) / work),
                "%.1f" % (flops / 1e9), "%.1f" % (moved / 1e6)) if calls else ())
        self.assertGreater(kinds["all-gather"][1], 1.1 * kinds["all-gather"][2])
        self.assertEqual(*kinds["all-reduce"][1:3]) # the norm's, when nothing else runs
        collectives = ("all-gather", "reduce-scatter", "all-reduce")
        self.assertIn("  network: %d collectives, %.1f MB sent" % (
            sum(kinds[name][0] for name in collectives),
            sum(kinds[name][4] for name in collectives) / 1e6), out)

    def test_175_billion_on_1024_gpus(self):
        plan = self.plan("MODEL=gpt3-175b", "GPUS=1024", "DTYPE=float")
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
        line = r"called at \S*optimizer\.c:\d+ \(\w+\), reads a device's result"
        self.assertRegex(" ".join(self.said(*SMALL, "GPUS=8", "V=1").split()), line)
        self.assertNotIn("reads a device", self.said(*SMALL, "GPUS=8"))

    def test_slower_kernels(self):
        """Half of the bandwidth is twice the time of what waits for memory, but for the start of a
        kernel; products wait for arithmetic."""
        settings = ["MODEL=mpt-1b", "GPUS=8", "BATCH=64", "DTYPE=bf16"]
        fast, slow = (self.plan(*settings, *more)["times"]["kinds"]
                      for more in (["EFFICIENCY=100"], ["EFFICIENCY=50"]))
        calls, _, work = fast["other kernels"][:3]
        self.assertAlmostEqual(slow["other kernels"][2] / (2 * work - calls * 2e6), 1, places=3)
        self.assertLess(slow["products"][2], 1.05 * fast["products"][2])
        self.refused(["EFFICIENCY=101"], "percent of the memory's bandwidth")

    FITTED = ("base %s\neager_efficiency 0.5\ncompiled_efficiency 1\nflash1_efficiency 0.1\n"
              "step_doubling 0.25\nstep_least 0.5\nstep_most 3/2\n")

    def test_what_is_fitted_is_the_machines(self):
        """Kernels each alone or compiled, an earlier attention, products in FP8; and on 4 nodes two
        doublings. Of a machine whose file says nothing there is neither that nor a range."""
        machine = self.write("fitted.machine", self.FITTED % "h100x8")
        settings = ["MODEL=mpt-1b", "GPUS=8", "BATCH=64", "MACHINE=" + machine]
        def kind(name, *more):
            return self.plan(*settings, *more)["times"]["kinds"][name]
        calls, _, alone = kind("other kernels")[:3]
        compiled = kind("other kernels", "COMPILE=yes")[2]
        self.assertAlmostEqual(alone / (2 * compiled - calls * 2e6), 1, places=3)
        self.assertEqual(kind("other kernels", "EFFICIENCY=50")[2], alone)
        self.assertGreater(kind("attention", "ATTENTION=flash1")[2], 3 * kind("attention")[2])
        usual, fp8 = kind("products"), kind("products", "PRODUCTS=fp8")
        self.assertTrue(0.5 <= fp8[2] / usual[2] < 0.75)
        self.assertEqual((fp8[3], kind("attention", "PRODUCTS=fp8")[2]),
                         (usual[3], kind("attention")[2]))
        times = self.plan(*settings, "GPUS=32")["times"]
        self.assertAlmostEqual(times["overhead"] / (times["step"] - times["overhead"]), 0.5, 6)
        self.assertEqual(self.plan(*settings)["times"]["overhead"], 0)
        self.refused(["PRODUCTS=fp8", "DTYPE=float"], "PRODUCTS=fp8 goes with DTYPE=bf16")

    def test_a_fused_loss_has_no_logits_in_floats(self):
        """Of V logits in each of R rows: 4 bytes less at the peak; the casts from and to floats
        move 12 bytes less, and the loss itself reads and writes 4 in place of 8. In a pipeline its
        gradient is apart, another 4 that are not there."""
        for more, apart in (([], 0), (["ACCUMULATE=2", "DTYPE=fp16"], 0),
                            (["STAGES=2", "GPUS=16", "ACCUMULATE=4"], 1),
                            (["RECOMPUTE=blocks"], 0)):
            with self.subTest(more=more):
                settings = ["MODEL=gpt2", "BATCH=64", "DTYPE=bf16", *more]
                usual, fused = (self.plan(*settings, "LOSS=" + loss) for loss in ("float", "fused"))
                self.check_formulas(fused)
                rows = 1024 * usual["micro"]
                last = [plan["ranks"][-1] for plan in (usual, fused)]
                floats = [rank["memory"]["activations"][2] for rank in last]
                flying = 4 if apart else 1
                self.assertEqual(floats[0] - floats[1], flying * 4 * rows * 50257)
                if more == []:
                    moved = [plan["times"]["kinds"]["other kernels"][4] for plan in (usual, fused)]
                    self.assertEqual(moved[0] - moved[1], 16 * rows * 50257)
                    self.assertEqual(last[0]["peak"] - last[1]["peak"], 4 * rows * 50257)
        self.refused(["LOSS=fused", "DTYPE=float"], "LOSS=fused goes with DTYPE=bf16")

    def test_what_a_plan_takes_of_this_computer(self):
        """16 micro-batches in 4 stages: logs of 8 ranks, 12,000 operations in each."""
        measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                   "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = run([sys.executable, "-c", measure, self.program, "MODEL=gpt2-large", "GPUS=32",
                    "STAGES=4", "ACCUMULATE=16", "BATCH=128", "ADVICE=no"], timeout=LIMIT)
        self.assertLess(int(done.stdout.split()[-1]), 200 << 10) # KiB

    def test_a_step_has_a_range(self):
        settings = ["MODEL=mpt-1b", "GPUS=8", "BATCH=64",
                    "MACHINE=" + self.write("fitted.machine", self.FITTED % "h100x8")]
        plan = self.plan(*settings)
        step = plan["times"]["step"]
        self.assertEqual(plan["range"], [step // 2, step * 3 // 2])
        out = " ".join(self.said(*settings, "ADVICE=no").split())
        found = re.search(r"A step takes ([\d.]+) ms \(([\d.]+) to ([\d.]+)\): (\d+) \((\d+) to "
                          r"(\d+)\) tokens/s per GPU", out).groups()
        for value, wanted in zip(map(float, found[1:3]), (0.5, 1.5)):
            self.assertAlmostEqual(value / float(found[0]), wanted, 1)
        self.assertAlmostEqual(int(found[5]) / int(found[3]), 2, 2)
        for batch, unit, form in ((192, 1e9, "%.0f ms (%.0f to %.0f): "),
                                  (384, 1e12, "%.1f s (%.1f to %.1f): ")):
            longer = [*settings, "GPUS=1", "BATCH=%d" % batch]
            step = self.plan(*longer)["times"]["step"]
            self.assertEqual(5e12 < step < 1e13, unit == 1e9) # an end on the other side of 10 s
            self.assertTrue(5e12 < step < 2e13)
            self.assertIn("A step takes " + form % tuple(
                part * step / unit for part in (1, 0.5, 1.5)), self.said(*longer, "ADVICE=no"))
        self.assertEqual(self.plan(*settings, "EFFICIENCY=50")["range"], [0, 0])
        self.assertNotRegex(self.said(*settings, "EFFICIENCY=50"), r"\d to \d")

    def test_gradients_that_would_not_fit_are_reduced_each(self):
        """By ZeRO-3, where REDUCE is not set: the plan is that of REDUCE=each."""
        settings = ["MODEL=gpt2-xl", "GPUS=8", "BATCH=16", "ACCUMULATE=2"]
        small = ["MACHINE=" + self.write("s.machine", "base h100x8\nmemory 10 GiB\n")]
        self.assertEqual(self.plan(*settings)["reduce"], "once")
        once, each, found = (self.plan(*settings, *small, *more)
                             for more in (["REDUCE=once"], ["REDUCE=each"], []))
        self.assertGreater(once["reserved"], once["offered"])
        self.assertLess(each["reserved"], each["offered"])
        self.assertEqual(found, dict(each, strategy="fsdp"))
        self.assertEqual(self.plan(*settings, *small, "STRATEGY=zero2")["reduce"], "once")

    def test_lines_of_80_columns(self):
        for settings in (["MODEL=gpt2-xl", "GPUS=16", "BATCH=32", "STRATEGY=hsdp", "PREFETCH=3",
                          "RECOMPUTE=blocks", "DTYPE=bf16"],
                         ["MODEL=gpt3-175b", "GPUS=64", "STAGES=8", "ACCUMULATE=4", "BATCH=32"],
                         [*SMALL, "GPUS=16", "BATCH=16", "FIT=yes", "ADVICE=no"]):
            for line in self.said(*settings).splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_mfu_counts_what_is_computed(self):
        """Of attention its causal half, as the kernel: at a million tokens, too, a GPU computes
        less than it can."""
        plan = self.plan("MODEL=gpt2", "GPUS=8", "SEQ=1024", "BATCH=16")
        pairs = 1024 * 1025 // 2
        self.assertEqual(plan["formulas"]["useful"],
                         16 * (6 * 124439808 * 1024 + 12 * 12 * 768 * pairs))
        plan = self.plan("MODEL=mpt-1b", "GPUS=8", "SEQ=1000000", "DTYPE=bf16")
        self.assertLess(plan["mfu"], 0.36) # what the machine's file gives fused attention
        self.assertGreater(plan["mfu"], 0.25)
        out = " ".join(self.said("MODEL=gpt2", "GPUS=8", "DTYPE=float").split())
        self.assertRegex(out, r"MFU [\d.]+ % of 67 TFLOP/s: 6 FLOP per parameter and token, and "
                              r"the causal half of attention; [\d.]+ % where all of attention "
                              r"counts")
        seconds = self.plan("MODEL=gpt2", "GPUS=8", "DTYPE=float")["times"]["step"] / 1e12
        for pairs, words in ((pairs, "causal half of attention; "), (1024 ** 2, "")):
            useful = 6 * 124439808 * 1024 + 12 * 12 * 768 * pairs # of a GPU's one sequence
            self.assertRegex(out, (r"MFU %.1f %% of" if words else r"; %.1f %% where all") % (
                100 * useful / seconds / 67e12))

    def test_a_file_that_cannot_be_written(self):
        for name in ("JSON", "TIMELINE"):
            status, _, err = self.run_plan(*SMALL, "GPUS=2",
                                           "%s=%s" % (name, self.path("no", "plan.json")))
            self.assertEqual(status, 1)
            self.assertRegex(err, r"^plan: %s=\S+ cannot be written: No such file" % name)

    def test_the_timeline_is_the_step(self):
        """Operation by operation it is what the table has added up, of the slowest rank; and not
        that of another plan, which advice has tried."""
        path = self.path("timeline.json")
        plan = self.plan(*SMALL, "GPUS=4", "SLOW=2:50%", "RANKS=all", "TIMELINE=" + path)
        self.check_timeline(plan, path)
        plan = self.plan("MODEL=gpt2", "GPUS=8", "BATCH=512", "TIMELINE=" + path)
        self.check_timeline(plan, path)

    def check_timeline(self, plan, path):
        line = json.loads(self.read(path))
        spans = [(row[0], row[4], row[5]) for row in line["operations"] if row[5] > row[4]]
        self.assertEqual(plan["ranks"][0]["copies_within"], [0, 0]) # all are the host's
        moves = [*plan["ranks"][0]["messages"], "copy"]
        moved = [span[1:] for span in spans if span[0] in moves]
        computed = [span[1:] for span in spans if span[0] not in moves]
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

    def test_what_is_refused(self):
        for settings, words in [
                (["MODEL=gpt5"], "MODEL=gpt5 is not known; there are gpt2, gpt2-medium"),
                (["GPUS=12"], "GPUS=12 is no multiple of the 8 of a node of h100x8"),
                (["GPUS=0"], "GPUS=0: must be a whole number from 1"),
                (["GPUS=many"], "GPUS=many: must be a whole number"),
                (["GPUS=100000"], "at most 65536"),
                (["GPUS=65536", "ACCUMULATE=65536"], "GPUS=65536 times ACCUMULATE=65536 overflows"),
                (["BATCH=4294967304"], "BATCH=4294967304: must be a whole number from 1"),
                (["BATCH=0"], "BATCH=0: must be a whole number from 1"),
                (["BATCH=16", "ACCUMULATE=3"], "do not divide into 8 GPUs · 3 micro-batches"),
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
                (["RESHARD_RANKS=3"], "RESHARD_RANKS=3 must divide the 8 GPUs that shard"),
                (["RESHARD_RANKS=8"], "neither 1 nor all of them"),
                (["RESHARD_RANKS=1"], "neither 1 nor all of them"),
                (["RESHARD_RANKS=4", "REPLICAS=2"], "must divide the 4 GPUs that shard"),
                (["SLOW=3"], "SLOW=3: must be a rank and how much slower it is"),
                (["SLOW=3:10"], "must be a rank and how much slower"),
                (["SLOW=3:10%%"], "must be a rank and how much slower"),
                (["SLOW=3:0%"], "must be a rank and how much slower"),
                (["SLOW=8:10%"], "the ranks are 0 to 7"),
                (["SLOW=-1:10%"], "the ranks are 0 to 7"),
                (["RECOMPUTE=some"], "RECOMPUTE=some: must be no, blocks or attention"),
                (["RECOMPUTE=attention"], "fused attention never has in memory"),
                (["RECOMPUTE_EVERY=2"], "RECOMPUTE_EVERY=2: of what?"),
                (["RECOMPUTE=blocks", "RECOMPUTE_EVERY=13"], "a stage has 12 blocks"),
                (["PREFETCH=-1"], "PREFETCH=-1: must be a whole number from 0"),
                (["OFFLOAD=maybe"], "OFFLOAD=maybe: must be no or yes"),
                (["LAYOUT=rows"], "LAYOUT=rows: must be flat or per_parameter"),
                (["GATHER=fp16"], "GATHER=fp16: must be usual or fp8"),
                (["GATHER=fp8"], "a scale for each parameter: take LAYOUT=per_parameter"),
                (["SCHEDULE=1f1b"], "SCHEDULE=1f1b needs a pipeline: set STAGES"),
                (["STAGES=2", "SCHEDULE=zero"], "SCHEDULE=zero: must be gpipe or 1f1b"),
                (["STAGES=3"], "STAGES=3 does not divide GPUS=8"),
                (["STAGES=4", "LAYERS=3", "HEADS=2", "DIM=20"], "the model has 3 blocks"),
                (["STAGES=0"], "STAGES=0: must be a whole number from 1"),
                (["STAGES=128", "GPUS=128", "MODEL=llama3-405b"], "has 126 blocks"),
                (["STAGES=2", "REPLICAS=3"], "REPLICAS=3 does not divide GPUS/STAGES=4"),
                (["STAGES=2", "BATCH=6"], "BATCH=6 sequences do not divide into 4 GPUs of a stage"),
                (["FIT=yes", "REDUCE=each"], "FIT=yes looks for STRATEGY"),
                (["RANKS=all", "GPUS=16"], "at most 8"),
                (["FIT=yes", "STRATEGY=ddp"], "FIT=yes looks for STRATEGY"),
                (["FIT=yes", "GRAPH=yes", "DTYPE=tf32"], "FIT=yes looks at eager steps"),
                (["GRAPH=yes"], "are of a step in one type: DTYPE=tf32 or float"),
                (["REGROUP=-1", "DTYPE=tf32"], "REGROUP=-1: must be a whole number from 0"),
                (["REGROUP=0", "DTYPE=tf32", "OFFLOAD=yes"], "are of FSDP's step: leave out"),
                (["REGROUP=0", "DTYPE=tf32", "PREFETCH=2"], "all-gathers of flat units"),
                (["gpus=8"], "is no setting of a plan")]:
            self.refused(settings, words)


if __name__ == "__main__":
    unittest.main()
