"""`make plan`: of several plans, the fastest that fits (FIT=yes), and sizes (SWEEP).
"""

import contextlib
import io
import re
import unittest
import xml.etree.ElementTree

from planner import SMALL, Plan
import check_model
import sweep
import try_advice


class Fit(Plan):
    """Strategies, slices, recomputation, micro-batches are tried."""
    def rows(self, out):
        """The columns of each plan that was tried."""
        return [line.split() for line in out.splitlines()
                if re.match(r"  (zero[123]|ddp|hsdp) ", line)]

    def test_the_fastest_that_fits(self):
        machine = self.write("small.machine", "base h100x8\nmemory 650 KB\n")
        out = self.said("FIT=yes", *SMALL, "GPUS=4", "BATCH=32", "MACHINE=" + machine)
        rows = self.rows(out)
        fits = {tuple(row[:8]): float(row[9]) for row in rows if "fit" not in row}
        self.assertTrue(0 < len(fits) < len(rows), out)
        best = min(fits, key=fits.get)
        self.assertIn("on 4 GPUs (1 node of small.machine), " + best[0], out)
        self.assertIn("A step takes " + self.time(1e9 * fits[best]), out)
        self.assertEqual({row[4] for row in rows if row[0] == "zero3"}, {"once", "each"})
        self.assertEqual({row[4] for row in rows if row[0] == "zero1"}, {"once"})
        self.assertEqual({row[5] for row in rows}, {"no", "blocks"})
        self.assertIn("It fits: ", out)

    def test_a_batch_is_looked_for(self):
        """Without BATCH it doubles while a token takes less time and the plan fits."""
        machine = self.write("small.machine", "base h100x8\nmemory 650 KB\n")
        out = self.said("FIT=yes", *SMALL, "GPUS=2", "MACHINE=" + machine)
        rows = self.rows(out)
        tried = {}
        for row in rows:
            tried.setdefault((row[0], row[5], row[6]), []).append(row)
        for name, found in tried.items():
            if name[2] == "1": # more units ahead are those of the fastest alone
                self.assertEqual([row[2] for row in found],
                                 [str(2 ** i) for i in range(len(found))])
                self.assertGreater(len(found), 1)
                self.assertFalse(any("fit" in row for row in found[:-1]))
                rates = [float(row[10]) for row in found if "fit" not in row]
                self.assertEqual(rates[:-1], sorted(rates[:-1]))
        best = max((row for row in rows if "fit" not in row), key=lambda row: float(row[10]))
        self.assertIn("\n%d sequences of 16 tokens per step: %s on each GPU" % (
            2 * int(best[2]), best[2]), out)
        self.assertIn("A step takes " + self.time(1e9 * float(best[9])), out)
        out = self.said("FIT=yes", *SMALL, "GPUS=4", "STAGES=2", "RECOMPUTE=no",
                        "MACHINE=" + machine)
        self.assertRegex(out, r"(?m)^  zero3 +1 +1 .*\n  zero3 +2 +1 ") # of more micro-batches
        rows = self.rows(self.said("FIT=yes", "LAYERS=2", "HEADS=4", "DIM=256", "VOCAB=61",
                                   "SEQ=1024", "GPUS=1", "DTYPE=float", "RECOMPUTE=no"))
        rates = [float(row[10]) for row in rows if row[0] == "zero3" and row[6] == "1"]
        gains = [0.99 * rate > before for before, rate in zip(rates, rates[1:])]
        self.assertEqual(gains, [True] * (len(gains) - 1) + [False]) # until one is below 1 %

    def test_slices_are_tried_on_several_nodes(self):
        _, out, _ = self.run_plan("FIT=yes", *SMALL, "GPUS=16", "BATCH=16", "DTYPE=bf16")
        rows = [line.split()[:7] for line in out.splitlines() if line.startswith("  zero3 ")]
        self.assertEqual(rows[:4], [["zero3", "1", "1", slices, "once", again, "1"]
                                    for slices in ("0", "8") for again in ("no", "blocks")])

    def test_what_was_asked_for_stays(self):
        zeros = {"zero3", "zero2", "zero1"}
        for settings, columns in (
                (["GPUS=16", "RECOMPUTE=blocks", "PREFETCH=2", "OFFLOAD=yes"],
                 {0: zeros | {"hsdp"}, 5: {"blocks"}, 6: {"2"}}),
                (["GPUS=16", "RECOMPUTE=no", "LAYOUT=per_parameter", "GATHER=fp8"],
                 {0: zeros | {"hsdp"}, 3: {"0"}, 5: {"no"}}),
                (["GPUS=8", "ATTENTION=plain"], {5: {"no", "blocks", "attention"}}),
                (["GPUS=16", "STAGES=2", "RECOMPUTE=no"], {0: zeros | {"ddp"}}),
                (["GPUS=32", "STAGES=2", "RECOMPUTE=no"], {0: zeros | {"ddp", "hsdp"}})):
            with self.subTest(settings=settings):
                rows = self.rows(self.said("FIT=yes", *SMALL, "BATCH=32", "ADVICE=no", *settings))
                for column, values in columns.items():
                    self.assertEqual({row[column] for row in rows}, values)

    def test_recomputation_where_nothing_else_fits(self):
        """Activations are most of this step's memory: without recomputation no plan fits."""
        machine = self.write("small.machine", "base h100x8\nmemory 600 KB\n")
        settings = [*SMALL, "LAYERS=6", "GPUS=2", "BATCH=2", "SEQ=64", "MACHINE=" + machine]
        out = self.said("FIT=yes", *settings)
        self.assertIn("; blocks recomputed", out)
        self.assertEqual({row[6] for row in self.rows(out)}, {"1", "2", "3"}) # of ZeRO-3, the best
        _, out, _ = self.run_plan(*settings)
        said = re.search(r"RECOMPUTE=blocks: ([\d.]+) GiB at the peak; a step takes "
                         r"([\d.]+ \w+)", " ".join(out.split()))
        again = self.plan(*settings, "RECOMPUTE=blocks")
        self.assertEqual(said.group(2), self.time(again["times"]["step"]))
        self.assertLessEqual(again["ranks"][0]["peak"], again["memory_of_gpu"])

    def test_what_makes_a_step_fit(self):
        """Up to three settings, the fastest first; each is a plan that fits, with the memory and
        the time that were said. What fits needs a hundredth more than lives, and of the GPU.
        Offload is the last, though its step is shorter: the host's optimizer is not in it."""
        small = "MACHINE=" + self.write("small.machine", "base h100x8\nmemory 5 GiB\n")
        for settings, strategy, offloads in (
                (["MODEL=gpt2-medium", "GPUS=16", "SEQ=512", "BATCH=64", small], "ddp", 0),
                (["MODEL=gpt2-xl", "GPUS=8", "BATCH=16", small], "zero3", 1)):
            out = " ".join(self.said(*settings, "STRATEGY=" + strategy).split())
            found = re.findall(r"((?:[A-Z]+=\w+ ?)+): ([\d.]+) GiB at the peak; a step takes "
                               r"([\d.]+ \w+)", out)
            steps = []
            for named, memory, step in found:
                plan = self.plan(*settings, *named.split())
                peak = max(rank["peak"] for rank in plan["ranks"])
                self.assertEqual(plan["reserved"], peak + peak // 100 + (5 << 30) // 100)
                self.assertEqual(plan["offered"], (5 << 30) // 1000 * 985)
                self.assertLessEqual(plan["reserved"], plan["offered"])
                self.assertEqual((memory, step), ("%.1f" % (peak / (1 << 30)),
                                                  self.time(plan["times"]["step"])))
                steps.append(("OFFLOAD=yes" in named, plan["times"]["step"]))
            self.assertEqual((len(steps), steps), (3, sorted(steps)))
            self.assertEqual(sum(offload for offload, _ in steps), offloads)

    def test_the_first_setting_is_as_fast_as_the_best(self):
        """Within 5 % of what a search of all settings found (try_advice.py): DDP's all-reduces, and
        kernels of more micro-batches, cost more than shards; and fewer replicas are named."""
        small = "MACHINE=" + self.write("small.machine", "base h100x8\nmemory 5 GiB\n")
        plan = check_model.runner_of(self.program)
        for settings, best in (
                (["MODEL=mpt-3b", "SEQ=2048", "GPUS=8", "BATCH=64", "STRATEGY=ddp",
                  "MACHINE=a100x8"], ["STRATEGY=zero3"]),
                (["MODEL=gpt2-medium", "SEQ=512", "GPUS=16", "BATCH=256", "STRATEGY=ddp", small],
                 ["STRATEGY=zero3", "RECOMPUTE=blocks"]),
                (["MODEL=gpt2-xl", "SEQ=512", "GPUS=32", "BATCH=64", "STRATEGY=hsdp", small],
                 ["REPLICAS=2"])):
            with self.subTest(settings=settings):
                asked = dict(setting.split("=") for setting in settings)
                step, named = try_advice.advised(self.program, plan, asked)
                self.assertLess(step, 1.05 * self.plan(
                    *(setting for setting in settings
                      if setting.partition("=")[0] + "=zero3" not in best), *best)["times"]["step"])
                self.assertEqual("REPLICAS" in named, best == ["REPLICAS=2"])

    def test_attentions_weights_again_make_a_step_fit(self):
        """Where they are most of the memory that alone is quicker than whole blocks again."""
        machine = self.write("small.machine", "base h100x8\nmemory 8 GiB\n")
        settings = ["LAYERS=12", "HEADS=16", "DIM=1024", "SEQ=4096", "GPUS=8", "BATCH=8",
                    "ATTENTION=plain", "MACHINE=" + machine]
        named = re.findall(r"(RECOMPUTE=\w+): ", self.said(*settings))
        self.assertEqual(named[:2], ["RECOMPUTE=attention", "RECOMPUTE=blocks"])
        self.assertNotIn("attention:", self.said(*settings, "RECOMPUTE=attention"))
        self.assertIn("RECOMPUTE_EVERY=1: ", self.said(*settings, *named[1:2], "RECOMPUTE_EVERY=6"))
        steps = [self.plan(*settings, again)["times"]["step"] for again in named[:2]]
        self.assertLess(*steps)

    def test_what_is_too_large_for_a_dry_run_does_not_fit(self):
        """A candidate that needs terabytes ends nothing, and says nothing but that."""
        status, out, err = self.run_plan("FIT=yes", "MODEL=llama3-405b", "GPUS=8", "BATCH=8",
                                         "DTYPE=bf16", "RECOMPUTE=no")
        self.assertEqual((status, err.count("\n")), (1, 1), err)
        self.assertIn("ddp", [row[0] for row in self.rows(out) if "fit" in row])

    def test_replicas_are_looked_for(self):
        """One on each node, two nodes, four …: until fewer of them take longer. Where one on each
        node does not fit, a larger one may."""
        machine = self.write("nodes.machine", "base h100x8\ngpus_per_node 2\nmemory 240 KB\n")
        rows = self.rows(self.said("FIT=yes", *SMALL, "GPUS=16", "BATCH=16", "RECOMPUTE=no",
                                   "ADVICE=no", "MACHINE=" + machine))
        tried = [(int(row[7]), "fit" not in row) for row in rows if row[0] == "hsdp"]
        self.assertEqual(tried[0], (8, False))
        self.assertIn((4, True), tried)
        machine = self.write("larger.machine", "base h100x8\ngpus_per_node 2\n")
        rows = self.rows(self.said("FIT=yes", *SMALL, "GPUS=16", "BATCH=16", "RECOMPUTE=no",
                                   "ADVICE=no", "SEQ=128", "DIM=256", "MACHINE=" + machine))
        steps = [float(row[9]) for row in rows if row[0] == "hsdp" and row[6] == "1"]
        self.assertEqual(steps[:-1], sorted(steps[:-1], reverse=True))
        self.assertTrue(steps[-1] > steps[-2] or len(steps) == 3, steps) # 8, 4 and 2 replicas

    def test_nothing_fits(self):
        machine = self.write("tiny.machine", "base h100x8\nmemory 1 KB\n")
        status, out, err = self.run_plan("FIT=yes", *SMALL, "GPUS=2", "MACHINE=" + machine)
        self.assertEqual(status, 1)
        self.assertEqual(out.count(" no fit\n"), 8)
        self.assertIn("plan: none of these fits into", err)


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
                (["SWEEP=4..8", "JSON=x"], "cannot be combined with JSON"),
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


if __name__ == "__main__":
    unittest.main()
