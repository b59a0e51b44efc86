"""The arithmetic of grader/devtools/check_model.py, and that it can find what is wrong."""

import contextlib
import io
import os
import unittest

from helpers import TempFolder # and puts the grader's folders in front
import check_model
import model_memory


def silently(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*arguments)


class Arithmetic(unittest.TestCase):
    def test_zero_by_hand(self):
        row = {"parameters": 10 ** 9, "gpus": 4}
        self.assertEqual([check_model.table_1(dict(row, stage=stage)) for stage in (1, 2, 3)],
                         [7.0, 5.5, 4.0])

    def test_solve(self):
        self.assertEqual(check_model.solve([[0.0, 2.0], [4.0, 2.0]], [6.0, 14.0]), [2.0, 3.0])

    def test_fit_finds_what_made_the_times(self):
        rows = [[1.0, 5.0], [2.0, 1.0], [4.0, 3.0]]
        times = [3 * a + 0.5 * b for a, b in rows]
        for found, wanted in zip(check_model.fit(rows, times), (3, 0.5)):
            self.assertAlmostEqual(found, wanted)

    def test_no_coefficient_is_negative(self):
        self.assertEqual(check_model.fit([[1.0, 1.0], [1.0, 2.0]], [3.0, 2.0])[1], 0.0)

    def test_mfu_by_hand(self):
        run = {"gpu": "A100-80GB", "precision": "bf16", "parameters": 10 ** 9, "layers": 10,
               "dim": 1000, "seq": 1000}
        # 6e9 + 12e7 FLOP per token at 1000 tokens/s
        self.assertAlmostEqual(check_model.mfu(run, 1000.0), 100 * 6.12e12 / 312e12)

    def test_terms_by_hand(self):
        run = {"gpu": "A100-80GB", "precision": "bf16", "parameters": 10 ** 9, "layers": 1,
               "dim": 1, "seq": 1, "batch": 16, "micro_batches": 2, "gpus": 16,
               "recomputes": "no", "sharding": "FULL_SHARD"}
        found = check_model.terms(run)
        self.assertAlmostEqual(found[0] * 312e12, 6 * (12 + check_model.VOCAB))
        self.assertAlmostEqual(found[1] * 312e12, 12)
        self.assertAlmostEqual(found[3], 2 * 6e9 * 15 / 16 / 200e9)
        again = check_model.terms(dict(run, recomputes="yes", sharding="SHARD_GRAD_OP", gpus=8,
                                       batch=8))
        self.assertAlmostEqual(again[1] * 312e12, 12 * 9 / 7)
        self.assertAlmostEqual(again[3], 2 * 4e9 * 7 / 8 / 300e9)


class Published(unittest.TestCase):
    def test_the_tables_hold(self):
        self.assertEqual(silently(check_model.check_table_1), 0)
        runs = check_model.read("fsdp_runs.csv")
        self.assertEqual(silently(check_model.check_mfu, runs), 0)
        self.assertFalse(silently(check_model.check_runs, runs))

    def test_a_wrong_figure_is_found(self):
        runs = [dict(run) for run in check_model.read("fsdp_runs.csv")]
        runs[3]["mfu"] = "%.2f" % (float(runs[3]["mfu"]) * 1.01)
        self.assertEqual(silently(check_model.check_mfu, runs), 1)
        for run in runs:
            if run["gpu"] == "H100-80GB" and run["model"] == "mpt-3b":
                run["tokens_per_s"] = "%.0f" % (2 * float(run["tokens_per_s"]))
        self.assertTrue(silently(check_model.check_runs, runs))

    def test_a_plan_unlike_its_formulas_is_found(self):
        names = ("sharded parameters", "sharded gradients", "optimizer state",
                 "unsharded parameters", "unsharded gradients", "activations")
        plan = {"gpus": 4, "stages": [
                    dict({name: 4 for name in names}, products=1, attention=2, gather_calls=1,
                         gather_sent=8, scatter_calls=1, scatter_sent=8, sent_messages=0, copies=3,
                         copied=30)],
                "ranks": [{"rank": 0, "stage": 0, "products": 1, "attention": 2,
                           "copies_within": [3, 30],
                           "memory": {name: [9, 4, 4] for name in names},
                           "messages": {"all-gather": [1, 9, 8], "reduce-scatter": [1, 9, 8],
                                        "send": [0, 0, 0]}}]}
        self.assertEqual(check_model.differences(plan), [])
        plan["ranks"][0]["memory"]["optimizer state"][1] = 5
        plan["ranks"][0]["memory"]["unsharded gradients"][2] = 6
        self.assertEqual(check_model.differences(plan),
                         [("optimizer state", 5, 4), ("unsharded gradients", 6, 4)])
        plan["ranks"][0]["memory"]["activations"][2] = 3
        self.assertIn(("activations", 3, 4), check_model.differences(plan))
        plan["ranks"][0]["copies_within"] = [2, 30]
        self.assertIn(("copies", [2, 30], [3, 30]), check_model.differences(plan))

    def test_each_stage_has_formulas_of_its_own(self):
        names = ("sharded parameters", "sharded gradients", "optimizer state",
                 "unsharded parameters", "unsharded gradients", "activations")
        formulas = dict({name: 4 for name in names}, products=1, attention=2, gather_calls=1,
                        gather_sent=8, scatter_calls=1, scatter_sent=8, sent_messages=5,
                        copies=0, copied=0)
        rank = {"products": 1, "attention": 2, "copies_within": [0, 0],
                "memory": {name: [9, 4, 4] for name in names},
                "messages": {"all-gather": [1, 9, 8], "reduce-scatter": [1, 9, 8],
                             "send": [1, 5, 5]}}
        plan = {"gpus": 4, "stages": [formulas, dict(formulas, products=7)],
                "ranks": [dict(rank, rank=0, stage=0), dict(rank, rank=2, stage=1, products=7),
                          dict(rank, rank=3, stage=1, products=7, attention=0)]}
        self.assertEqual(check_model.differences(plan), []) # of a stage its first rank
        plan["ranks"][1]["products"] = 1
        self.assertEqual(check_model.differences(plan), [("products", 1, 7)])


class Memory(unittest.TestCase):
    ROW = {"model": "llama2-7b", "seq": 1, "micro_batch": 1, "gpus": 8, "policy": "full",
           "compiled": "no", "live_gib": "90", "reserved_gib": "99"}

    def test_terms_by_hand(self):
        found = model_memory.terms(self.ROW)
        # 5 and 2 times 4,096 columns, 3 times 11,008; statistics of 2 rows and 2 of 32 heads.
        self.assertEqual(found, {"blocks run again": -32 * (2 * 61696 + 4 * 66),
                                 "kept by the policy": 0, "and not used": 0,
                                 "logits deleted": -64000, "a gradient apart": 128000})
        found = model_memory.terms(dict(self.ROW, policy="selective-op", seq=10))
        self.assertEqual(found["kept by the policy"], 32 * 20 * (3 * 4096 + 4096 + 11008))
        self.assertEqual(found["and not used"], 0)

    def test_a_compiled_block_keeps_what_its_backward_uses(self):
        row = dict(self.ROW, model="llama3-8b", policy="selective-op", seq=10, compiled="yes")
        found = model_memory.terms(row)
        # Queries, values, the gate and attention's result; the last product's is used by nobody.
        self.assertEqual(found["kept by the policy"] + found["and not used"],
                         32 * 20 * (4096 + 1024 + 14336 + 4096))
        self.assertEqual(model_memory.terms(dict(row, policy="full"))["and not used"], 0)

    def check(self, live, *rows):
        """How many are off, where terms make live GiB."""
        def plan(settings):
            values = dict(setting.split("=") for setting in settings)
            self.assertEqual((values["LAYOUT"], values["BATCH"]), ("per_parameter", "8"))
            return {"ranks": [{"peak": 1}, {"peak": (live << 30) - sum(
                model_memory.terms(self.ROW).values())}]}
        return silently(model_memory.check, plan, rows)

    def test_what_is_off_is_found(self):
        self.assertEqual([self.check(live, self.ROW) for live in (85, 86, 94, 95)], [1, 0, 0, 1])

    def test_reserved_bytes_by_the_run_of_the_same_policy(self):
        for reserved, off in (("104", 1), ("105", 0), ("115", 0), ("116", 1)):
            row = dict(self.ROW, live_gib="", reserved_gib=reserved) # 100 · 1.1 = 110
            known = dict(self.ROW, live_gib="100", reserved_gib="110")
            self.assertEqual(self.check(100, known, row), off)
            self.assertEqual(self.check(100, known, dict(row, compiled="yes")), off)

    def test_published_rows_are_of_both_kinds_and_sizes(self):
        rows = [(row["gpus"], row["compiled"]) for row in check_model.read("memory.csv")
                if row["model"] == "llama3-8b"]
        self.assertEqual(sorted(map(str, rows)), sorted(map(str, [
            (gpus, compiled) for gpus in (8, 128) for compiled in ("no", "yes")])))


class DryRuns(TempFolder):
    def plan_as(self, by, memory=80):
        """In the planner's place: each step takes what (a) says, or as much with another term."""
        def plan(settings):
            values = dict(setting.split("=") for setting in settings)
            if values.get("MODEL") == "llama2-13b": # torchtitan's, planned as fast as it was
                with open(values["MACHINE"], encoding="utf-8") as machine:
                    self.assertIn("ring_inter 7.5 GB/s\nnic 11.75 GB/s\n", machine.read())
                return {"tokens_per_second_per_gpu": 2162.0}
            if "MODEL" not in values: # FlashAttention-2's: a step takes 1.25 times its plan
                machine = os.path.basename(values["MACHINE"])
                row = next(row for row in check_model.read("flash_attention_2.csv")
                           if [str(row["dim"]), str(row["seq"])] == [values["DIM"], values["SEQ"]]
                           and machine == "A100-80GB-%s.machine" % row["kernel"])
                flops = 6 * 10 ** 9 + 12 * row["layers"] * row["dim"] * row["seq"]
                return {"formulas": {"parameters": 10 ** 9},
                        "tokens_per_second_per_gpu": 1.25 * row["tflops"] * 1e12 / flops}
            run = next(run for run in check_model.read("fsdp_runs.csv")
                       if check_model.expressible(run) and run["model"] == values["MODEL"]
                       and run["seq"] == int(values["SEQ"]) and run["gpus"] == int(values["GPUS"])
                       and run["batch"] == int(values["BATCH"]))
            kinds = {"products": 4, "attention": 3, "other kernels": 2, "optimizer": 1}
            return {"formulas": {"parameters": run["parameters"] + by}, "memory_of_gpu": memory,
                    "ranks": [{"peak": 81}],
                    "times": {"step": 12 * 10 ** 12, "kinds": {
                        name: [0, value * 10 ** 12] for name, value in kinds.items()}}}
        return plan

    def test_parts_by_hand(self):
        plan = self.plan_as(0)(["MODEL=mpt-7b", "SEQ=2048", "GPUS=8", "BATCH=48"])
        for found, wanted in zip(check_model.parts(plan), (4, 3, 3, 2)):
            self.assertAlmostEqual(found, wanted)

    def test_what_other_runs_took_in_addition(self):
        self.assertAlmostEqual(
            silently(check_model.left_out_of_plans, self.plan_as(0), self.folder), 1.25)

    def test_torchtitan(self):
        row, = check_model.read("torchtitan.csv")
        self.assertAlmostEqual(check_model.torchtitan(self.plan_as(0), row, self.folder), 1.0)
        self.assertAlmostEqual(check_model.torchtitan(
            self.plan_as(0), dict(row, tokens_per_s="1081"), self.folder), 2.0)

    def test_machines_have_the_kernel_of_the_runs(self):
        for gpu, base, rate in (("A100-40GB", "a100x8", "0.325"), ("H100-80GB", "h100x8", "0.175")):
            own = check_model.machine_of(gpu, "FlashAttention", self.folder)
            later = check_model.machine_of(gpu, "FlashAttention-2", self.folder)
            self.assertIn("fused_efficiency %s\n" % rate, self.read(own))
            self.assertNotIn("fused_efficiency", self.read(later))
            self.assertTrue(self.read(later).startswith("base %s\n" % base))

    def test_gradients_are_reduced_in_the_type_of_the_policy(self):
        run = check_model.read("fsdp_runs.csv")[0]
        for gpu, dtype in (("A100-40GB", "bf16"), ("A100-80GB", "float"), ("H100-80GB", "float")):
            self.assertIn("REDUCE_DTYPE=" + dtype, check_model.settings_of(dict(run, gpu=gpu), "x"))

    def test_what_is_expressible(self):
        runs = check_model.read("fsdp_runs.csv")
        self.assertEqual(sum(map(check_model.expressible, runs)), 150)
        self.assertFalse(any(run["precision"] == "fp8"
                             for run in filter(check_model.expressible, runs)))

    def test_blocks_run_again_where_they_did(self):
        run = check_model.read("fsdp_runs.csv")[0]
        for recomputes, setting in (("yes", "RECOMPUTE=blocks"), ("no", "RECOMPUTE=no")):
            self.assertIn(setting, check_model.settings_of(dict(run, recomputes=recomputes), "x"))

    def test_other_parameters_are_found(self):
        runs = check_model.read("fsdp_runs.csv")
        self.assertEqual(silently(check_model.check_dry_runs, self.plan_as(0), runs), 0)
        self.assertEqual(silently(check_model.check_dry_runs, self.plan_as(1), runs), 150)

    def test_a_row_by_hand(self):
        run = {"gpu": "H100-80GB"}
        row = check_model.Dry(run, 10.0, [4.0, 2.0, 2.0, 1.0], [3.0, 6.0, 1.0, 2.0], True)
        self.assertAlmostEqual(row.error(row.a), -0.1)
        self.assertAlmostEqual(row.error(row.b), 0.2)
        self.assertAlmostEqual(row.error(row.b, 0.5), -0.4)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            check_model.print_dry("H100-80GB", "2,048", [row, row], 0.5)
            check_model.print_dry("H100-80GB", "none", [], 0.5)
        self.assertEqual(out.getvalue().split(), ["H100-80GB", "2,048", "2", "10.0", "20.0", "40.0",
                                                  "-10.0", "+40.0", "-10.0", "+10.0"])


if __name__ == "__main__":
    unittest.main()
