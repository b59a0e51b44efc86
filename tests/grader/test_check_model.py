"""The arithmetic of grader/devtools/check_model.py, and that it can find what is wrong."""

import contextlib
import io
import unittest

from helpers import TempFolder # and puts the grader's folders in front
import check_model
import model_memory
import model_time


def silently(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*arguments)


class Arithmetic(unittest.TestCase):
    def test_zero_by_hand(self):
        row = {"parameters": 10 ** 9, "gpus": 4}
        self.assertEqual([check_model.table_1(dict(row, stage=stage)) for stage in (1, 2, 3)],
                         [7.0, 5.5, 4.0])

    def test_mfu_by_hand(self):
        run = {"gpu": "A100-80GB", "precision": "bf16", "parameters": 10 ** 9, "layers": 10,
               "dim": 1000, "seq": 1000}
        # 6e9 + 12e7 FLOP per token at 1000 tokens/s
        self.assertAlmostEqual(check_model.mfu(run, 1000.0), 100 * 6.12e12 / 312e12)


class Published(unittest.TestCase):
    def test_the_tables_hold(self):
        self.assertEqual(silently(check_model.check_table_1), 0)
        runs = check_model.read("fsdp_runs.csv")
        self.assertEqual(silently(check_model.check_mfu, runs), 0)

    def test_a_wrong_figure_is_found(self):
        runs = [dict(run) for run in check_model.read("fsdp_runs.csv")]
        runs[3]["mfu"] = "%.2f" % (float(runs[3]["mfu"]) * 1.01)
        self.assertEqual(silently(check_model.check_mfu, runs), 1)


class Prefetch(unittest.TestCase):
    def test_the_published_gain_is_between_those_of_two_batches(self):
        for one, two, wrong in ((1.2, 1.1, False), (1.17, 1.1, True), (1.3, 1.19, True)):
            def plan(settings, gains={"128": one, "256": two}):
                values = dict(setting.split("=") for setting in settings)
                with open(values["MACHINE"], encoding="utf-8") as file:
                    self.assertIn("nic 29.375 GB/s", file.read()) # 10/8 of 23.5
                return {"times": {"step": gains[values["BATCH"]] if values["PREFETCH"] == "0"
                                  else 1}}
            self.assertEqual(silently(check_model.check_prefetch, plan), wrong)


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


class Times(TempFolder):
    """Plans and runs that are made here: published steps are (20 + 3 / efficiency) times 1 +
    doubling for each doubling of the nodes, by the machines' files, times what a test says."""
    def plan(self, settings):
        values = dict(setting.split("=") for setting in settings)
        seconds = 20 + 3 / (int(values["EFFICIENCY"]) / 100)
        parts = int(values["ACCUMULATE"]) # each but the first takes a tenth of the step
        return {"formulas": {"parameters": 7}, "reserved": 5, "offered": 5, "times": {
            "step": 1e12 * (seconds * (1 + 0.1 * (parts - 1)) + 1), "overhead": 1e12}}

    def samples(self, times=lambda run, n: 1.0):
        runs = [dict(run, batch=run["micro_batches"], parameters=7) for run in
                check_model.read("fsdp_runs.csv") if model_time.expressible(run)]
        found = []
        for n, run in enumerate(runs):
            (efficiency, doubling), _ = model_time.in_file(model_time.GPUS[run["gpu"]][0])
            seconds = (20 + 3 / efficiency) * (1 + 0.1 * (run["micro_batches"] - 1))
            nodes = run["gpus"] // 8
            seconds *= (1 + doubling * (nodes - 1).bit_length()) * times(run, n)
            tokens = run["batch"] * run["seq"] / run["gpus"] / seconds
            found.append(dict(run, tokens_per_s=tokens))
        return [model_time.sample(self.plan, run, self.folder) for run in found]

    def test_a_fit_finds_what_made_the_times(self):
        samples = self.samples()
        self.assertEqual(len(samples), 150)
        for kind in ("a100x8", "h100x8"):
            own = [one for one in samples if one.kind == kind]
            for value, wanted in zip(model_time.fit(own), model_time.in_file(kind)[0]):
                self.assertAlmostEqual(value, wanted)
            self.assertLess(max(abs(model_time.error(one, model_time.fit(own))) for one in own),
                            1e-9)

    def test_what_is_left_out_has_no_part_in_its_own_estimate(self):
        """One size that takes twice as long: the errors are its own; it is outside its range."""
        samples = [one for one in self.samples(lambda run, n: 2 if run["model"] == "mpt-7b" else 1)
                   if one.kind == "h100x8"]
        errors = sum(model_time.without(samples, model_time.size_of), [])
        self.assertEqual(len(errors), len(samples))
        self.assertEqual(sorted({round(error, 6) for error in errors}), [-0.5, 0.0])
        within = model_time.inside(samples, model_time.size_of)
        self.assertEqual({good for good, error in zip(within, errors) if error < -0.4}, {False})

    def test_bounds(self):
        spread = lambda run, n: 1 + 0.002 * (n * 7 % 10 - 4.5)
        self.assertEqual(silently(model_time.check_fitted, self.samples(spread)), 0)
        slower = lambda run, n: spread(run, n) * (1.2 if run["gpu"] == "H100-80GB" else 1)
        self.assertGreaterEqual(silently(model_time.check_fitted, self.samples(slower)), 1)
        far = lambda run, n: 1.6 if n == 40 else spread(run, n)
        self.assertEqual(silently(model_time.check_fitted, self.samples(far)), 1)

    def test_percentiles(self):
        self.assertEqual(model_time.percentiles([[5, 1, 2, 3, 4, 6, 7, 8, 9, 10]]), (1, 9))
        # Two lists: 4 of 100 runs are half of what counts.
        self.assertEqual(model_time.percentiles([[1] * 96, [2, 3, 4, 5]]), (1, 5))
        self.assertEqual(model_time.percentiles([[1] * 96, [2, 3, 4, 5, 6]]), (1, 5))

    def test_a_run_as_settings(self):
        run = check_model.read("fsdp_runs.csv")[0]
        for gpu, dtype in (("A100-40GB", "bf16"), ("A100-80GB", "float"), ("H100-80GB", "float")):
            self.assertIn("REDUCE_DTYPE=" + dtype, model_time.settings_of(dict(run, gpu=gpu), "x"))
        for recomputes, setting in (("yes", "RECOMPUTE=blocks"), ("no", "RECOMPUTE=no")):
            self.assertIn(setting, model_time.settings_of(dict(run, recomputes=recomputes), "x"))

    def test_machines(self):
        row = check_model.read("torchtitan.csv")[0]
        self.assertEqual(self.read(model_time.machine_of(row, self.folder)),
                         "base a100x8\nring_inter 7.5 GB/s\nnic 11.75 GB/s\n")

    def test_others(self):
        """Each run takes as long as its plan, but one."""
        def plan(settings):
            values = dict(setting.split("=") for setting in settings)
            run = next(run for _, run in others if run["seq"] == int(values["SEQ"])
                       and run.get("model") == values.get("MODEL")
                       and str(run.get("dim")) == values.get("DIM", "None")
                       and run["attention"] == values["ATTENTION"]
                       and run["recompute"][-1] in settings)
            step = run["seq"] * run["micro_batch"] / run["rate"](7)
            if run.get("model") == "llama2-7b":
                step *= 1.5
            return {"formulas": {"parameters": 7}, "times": {"step": 1e12 * step},
                    "range": [0.9e12 * step, 1.1e12 * step]}
        others, out = check_model.other_runs(), io.StringIO()
        with contextlib.redirect_stdout(out):
            model_time.check_others(plan, others, self.folder)
        self.assertEqual((out.getvalue().count("1.00  within"),
                          out.getvalue().count("1.50  outside")), (13, 1))


if __name__ == "__main__":
    unittest.main()
