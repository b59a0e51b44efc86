"""The challenge: settings that are refused, figures that no plan has, and what counts."""

import json
import os
import shutil
import tempfile
import unittest

from helpers import ROOT, TempFolder, build_folder, program, run
import challenge
import manifest
import runner

LIMIT = 300
GIB = 1 << 30
OFFERED = 84610854825 # bytes: 98.5 % of 80 GiB


class Settings(unittest.TestCase):
    def test_what_is_taken(self):
        fixed = ["MODEL=mpt-7b", "GPUS=64", "MACHINE=h100x8", "BATCH=512", "SEQ=2048"]
        self.assertEqual(challenge.settings_of("# x\n\nSTRATEGY = zero2 # mine\nACCUMULATE=4"),
                         fixed + ["STRATEGY=zero2", "ACCUMULATE=4"])
        again = ["RECOMPUTE=blocks", "PREFETCH=2", "LAYOUT=per_parameter", "GATHER=fp8", "STAGES=2",
                 "SCHEDULE=1f1b"]
        self.assertEqual(challenge.settings_of("\n".join(again)), fixed + again)
        self.assertEqual(challenge.settings_of(challenge.TEMPLATE)[:5], fixed)
        self.assertEqual(challenge.settings_of(""), fixed)

    def test_what_is_refused(self):
        for text, what in (
                ("GPUS = 8", "plan.txt:1: GPUS is fixed, at 64"),
                ("\nBATCH=64", "plan.txt:2: BATCH is fixed"),
                ("JSON=/tmp/x", "must be a setting"), ("JSON=x", "there is no setting JSON"),
                ("RUN=executed", "there is no setting RUN"),
                ("OFFLOAD=yes", "there is no setting OFFLOAD"), ("zero2", "must be a setting"),
                ("DTYPE=bf16\nDTYPE=float", "plan.txt:2: DTYPE is set twice: delete")):
            with self.subTest(text), self.assertRaises(challenge.BadSettings) as caught:
                challenge.settings_of(text)
            self.assertIn(what, str(caught.exception))


class Figures(unittest.TestCase):
    GOOD = {"tokens_per_second_per_gpu": 9000.5, "mfu": 0.4, "offered": OFFERED,
            "reserved": 52 * GIB, "ranks": [{"peak": 20 * GIB}, {"peak": 50 * GIB}]}

    def figures(self, **more):
        return challenge.figures_of(json.dumps(dict(self.GOOD, **more)).encode())

    def test_the_fullest_rank_decides(self):
        """With what the allocator, CUDA and NCCL need, of what the GPU offers."""
        self.assertEqual((self.figures()["peak"], self.figures()["fits"]), (52 * GIB, True))
        self.assertFalse(self.figures(reserved=OFFERED + 1)["fits"])
        self.assertTrue(self.figures(reserved=OFFERED)["fits"])

    def test_what_no_plan_says(self):
        for more in ({"mfu": 1.01}, {"mfu": 0}, {"mfu": True}, {"mfu": float("nan")},
                     {"tokens_per_second_per_gpu": "9"}, {"tokens_per_second_per_gpu": -1},
                     {"offered": 800 * GIB}, {"reserved": 49 * GIB}, {"reserved": "1"},
                     {"ranks": []}, {"ranks": [{"peak": 0}]}, {"ranks": [{"peak": None}]},
                     {"ranks": 3}):
            self.assertIsNone(self.figures(**more), more)
        for data in (b"", b"[", b"[]", b"[" * 100000, b"\xff"):
            self.assertIsNone(challenge.figures_of(data))

    def test_what_limits_a_plan(self):
        self.assertEqual(challenge.limit_of("x\n  What would help most: a: 3 %\n    more.\nb"),
                         "a: 3 % more.")
        self.assertEqual(challenge.limit_of("nothing of it"), "")

    def test_a_best_plan_that_is_none(self):
        good = dict(self.figures(), impl="/mine", settings=["STRATEGY=fsdp"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "challenge.json")
            for more, wanted in (({}, good), ({"impl": "/other"}, None), ({"tokens": "9"}, None),
                                 ({"settings": ["\x1b[2J"]}, None), ({"settings": 3}, None),
                                 ({"peak": 81 * GIB}, None)):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump({"best": dict(good, **more)}, file)
                self.assertEqual(challenge.best_of(path, "/mine"), wanted, more)
            for text in ("", "[", "[]", "{}", '{"best": null}'):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertIsNone(challenge.best_of(path, "/mine"))
        self.assertIsNone(challenge.best_of(path, "/mine"))

    def test_what_a_leaderboard_gets(self):
        document = {"status": "graded", "own": True, "figures": self.figures()}
        self.assertEqual(challenge.entry(document), 9000.5)
        for more in ({"own": False}, {"status": "error"}, {"figures": None},
                     {"figures": dict(self.figures(), fits=False)}):
            self.assertIsNone(challenge.entry(dict(document, **more)))


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Command(TempFolder):
    def challenge(self):
        """(exit status, what was printed, the results)"""
        out = os.path.join(self.folder, "challenge.json")
        done = run(program("challenge.py", "--impl", self.path("mine"), "--build",
                           build_folder(), "--out", out),
                   timeout=LIMIT * runner.time_factor())
        return done.returncode, done.stderr + done.stdout, json.loads(self.read(out))

    def plan(self, *lines):
        self.write("mine/plan.txt", "\n".join(lines) + "\n")
        return self.challenge()

    def test_a_plan(self):
        shutil.copytree(os.path.join(ROOT, "reference"), self.path("mine"))
        status, said, results = self.challenge()
        self.assertEqual((status, results["own"]), (0, True), said)
        self.assertTrue(os.path.exists(self.path("mine", "plan.txt")))
        self.assertRegex(said.splitlines()[-1], r"^Challenge: \d+ tokens/s per GPU, MFU ")
        slow = challenge.entry(results)
        # Products in bf16 have fifteen times the rate of those in float.
        _, said, results = self.plan("STRATEGY=zero3", "DTYPE=bf16", "ACCUMULATE=8")
        self.assertGreater(challenge.entry(results), 4 * slow, said)
        # With as many micro-batches, blocks that run again take longer.
        _, said, again = self.plan("STRATEGY=zero3", "DTYPE=bf16", "ACCUMULATE=8",
                                   "RECOMPUTE=blocks")
        self.assertLess(challenge.entry(again), challenge.entry(results), said)
        best = "Best so far: %.0f tokens/s per GPU" % challenge.entry(results)
        self.assertRegex(said, r"\n  What would help most: \w")
        self.assertRegex(said, r"\n  %s, .* by STRATEGY=zero3 DTYPE=bf16 ACCUMULATE=8\n" % best)
        status, said, results = self.plan("STRATEGY=ddp")
        self.assertEqual((status, challenge.entry(results)), (0, None))
        self.assertRegex(said.splitlines()[-1], r"^Challenge: does not fit: \d")
        self.assertIn(best, said)
        status, said, results = self.plan("STRATEGY=zero9")
        self.assertEqual((status, results["status"]), (2, "error"), said)
        self.assertIn("STRATEGY=zero9", results["message"])
        self.assertIn("challenge: " + results["message"], said)
        self.assertEqual(results["best"]["settings"],
                         ["STRATEGY=zero3", "DTYPE=bf16", "ACCUMULATE=8"])

    def test_the_skeleton_has_no_entry(self):
        shutil.copytree(os.path.join(ROOT, "skeleton"), self.path("mine"))
        status, said, results = self.challenge()
        self.assertEqual((status, results["own"], challenge.entry(results)), (0, False, None))
        self.assertIn("some of the %s files are not yours" % manifest.how_many(), said)


if __name__ == "__main__":
    unittest.main()
