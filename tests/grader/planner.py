"""What the tests of the planner share: it is built once, and so is a plan that several tests look
at.

Interface: make(impl), Plan; SMALL, LLAMA: small models; ALL: PLAN_ALL=1.
"""

import json
import os
import unittest

from helpers import ROOT, TempFolder, build_folder, program, read, run
import runner

SMALL = ["LAYERS=3", "HEADS=2", "DIM=20", "VOCAB=61", "SEQ=16", "INIT=values", "DTYPE=float"]
LLAMA = ["LAYERS=2", "HEADS=4", "KV_HEADS=2", "DIM=24", "HIDDEN=40", "VOCAB=61", "SEQ=16",
         "INIT=values", "DTYPE=float"]
# Its all-gathers take longer than its kernels: a plan of lab 8 merges some.
WIDE = ["LAYERS=3", "HEADS=4", "DIM=512"] + SMALL[3:]
LIMIT = 120
ALL = os.environ.get("PLAN_ALL") == "1" # else a part of the worlds, solutions and combinations


def make(impl):
    """The planner with the folder's six files."""
    key = run(program("plan.py", "--impl", impl, "--build", build_folder(), "GPUS=0"),
              timeout=LIMIT * runner.time_factor())
    if "plan: GPUS=0: must be" not in key.stderr:
        raise AssertionError(key.stdout + key.stderr)
    return key.stdout


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Plan(TempFolder):
    """By the reference's files, unless `program` is another one."""
    made = {} # of (program, settings): what was written
    program = os.path.join(build_folder(), "impl", "reference", "bin", "plan")

    @classmethod
    def setUpClass(cls):
        make("reference")

    def run_plan(self, *settings):
        """(exit status, standard output, standard error)"""
        done = run([self.program, *settings], timeout=LIMIT * runner.time_factor(),
                   SIMGPU_THREADS="1")
        return done.returncode, done.stdout, done.stderr

    def said(self, *settings):
        """What it prints where nothing is wrong."""
        status, out, err = self.run_plan(*settings)
        self.assertEqual((status, err), (0, ""), out)
        return out

    @staticmethod
    def time(ps):
        """As a plan prints it."""
        ms = ps / 1e9
        return ("%.1f ms" % ms if ms < 100 else "%.0f ms" % ms if ms < 1e4 else
                "%.1f s" % (ms / 1e3))

    def refused(self, settings, words):
        """It refuses the settings in one line."""
        with self.subTest(settings=settings):
            status, out, err = self.run_plan(*settings)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(words, err)
            self.assertEqual(err.count("\n"), 1, err)

    def plan(self, *settings):
        """The plan's figures, as the file has them: not to be changed."""
        path, key = self.path("plan.json"), (self.program,) + settings
        if key not in Plan.made or any(setting.startswith("TIMELINE=") for setting in settings):
            status, out, err = self.run_plan("JSON=" + path, "ADVICE=no", *settings)
            self.assertEqual(status, 0, out + err)
            Plan.made[key] = json.loads(read(path))
        return Plan.made[key]

    def same(self, plan, other):
        """Memory by category, bytes, messages, order; the rank's own notes of where."""
        self.assertEqual(len(plan["ranks"]), len(other["ranks"]))
        for rank, wanted in zip(plan["ranks"], other["ranks"]):
            self.assertEqual(rank, wanted)
        self.assertEqual(plan["times"], other["times"])

    def compare(self, gpus, strategy="fsdp", replicas=1, alike=True, types=(), model=SMALL,
                every=ALL):
        """Dry and executed, and dry with one rank of each kind; `every`: each rank alone, too."""
        settings = model + ["GPUS=%d" % gpus, "BATCH=%d" % (4 * gpus), "STRATEGY=" + strategy]
        settings += ["REPLICAS=%d" % replicas] if replicas > 1 else []
        settings += ["ACCUMULATE=2"] if strategy != "fsdp" else []
        settings += list(types)
        dry = self.plan(*settings, "RUN=dry")
        self.assertEqual(len(dry["ranks"]), gpus)
        if every:
            self.same(self.plan(*settings, "RANKS=all"), dry)
        kinds = self.plan(*settings)
        self.assertLessEqual(len(kinds["ranks"]), gpus)
        for rank in kinds["ranks"]:
            self.assertEqual(rank, dry["ranks"][rank["rank"]])
        if alike:
            self.assertEqual(kinds["times"], dry["times"])
            own = lambda rank: [unit["valid"] for unit in rank["units"]]
            stands = [own(rank) for rank in kinds["ranks"]]
            for rank in dry["ranks"]: # one of them has as much padding
                self.assertIn(own(rank), stands)
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
            # Of gradients; norms and the scales of FP8 are a few bytes more.
            calls, _, sent = rank["messages"]["all-reduce"]
            self.assertTrue(0 <= sent - formulas["reduce_sent"] <= 100 * calls)
            if rank["rank"] % places == 0:
                self.assertEqual(rank["messages"]["send"][2], formulas["sent_messages"])
            self.assertEqual(rank["copies_within"], [formulas["copies"], formulas["copied"]])
