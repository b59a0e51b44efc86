"""grader/compare.py (make compare): one table that a terminal of 80 columns shows, with a row for
each strategy, in float and in bf16; and what it says of options that make no sense."""

import glob
import os
import re
import shutil
import tempfile
import unittest

from helpers import ROOT, build_folder, program, run

# The columns of a row.
HELD, PEAK, GATHER, SCATTER, REDUCE, SENDS, HOST, CALLS, TIME = range(9)
ROWS = ("DDP", "ZeRO-1", "ZeRO-2", "… every time", "ZeRO-3", "HSDP, 2 replicas")


class Compare(unittest.TestCase):
    def run_tool(self, *arguments, impl=os.path.join(ROOT, "reference")):
        done = run(program("compare.py", "--impl", impl, "--build",
                           build_folder(), *arguments), timeout=900, merged=True)
        return done.returncode, done.stdout

    def rows(self, *arguments, refused=()):
        """{strategy: its numbers}; of those that are refused none"""
        status, out = self.run_tool(*arguments)
        self.assertEqual(status, 0, out)
        for line in out.splitlines():
            self.assertLessEqual(len(line), 80, line)
        found = {}
        for name in refused:
            self.assertRegex(out, r"(?m)^%s +– [A-Za-z]" % re.escape(name))
        for name in (name for name in ROWS if name not in refused):
            row = re.search(r"(?m)^%s((?: +[0-9.]+){9})$" % re.escape(name), out)
            self.assertIsNotNone(row, "%s in:\n%s" % (name, out))
            found[name] = [float(word) for word in row.group(1).split()]
        return found

    def test_float(self):
        rows = self.rows("--ranks", "4")
        held = {name: numbers[HELD] for name, numbers in rows.items()}
        for name in ROWS[1:5]:
            self.assertAlmostEqual(held["DDP"] / held[name], 4.0, delta=0.05)
        self.assertAlmostEqual(held["DDP"] / held["HSDP, 2 replicas"], 2.0, delta=0.05)
        self.assertEqual(rows["DDP"][GATHER:REDUCE], [0.0, 0.0])
        self.assertGreater(rows["ZeRO-3"][GATHER], rows["ZeRO-2"][GATHER]) # gathered again
        for numbers in rows.values():
            self.assertEqual(numbers[SENDS:CALLS], [0.0, 0.0])

    def test_names_the_labs_whose_files_are_taken(self):
        with tempfile.TemporaryDirectory() as impl:
            for source in glob.glob(os.path.join(ROOT, "reference", "*.c")):
                shutil.copy(source, impl)
            for name in ("reference", "reference_ddp", "reference_slices"):
                shutil.copy(os.path.join(ROOT, "labs/1_strategies", name + ".c"), os.path.join(
                    impl, name.replace("reference_", "").replace("reference", "strategies") + ".c"))
            status, out = self.run_tool("--ranks", "4", impl=impl)
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"with\s+your\s+files\s+of\s+lab\s+1\.")

    def test_bf16(self):
        narrow, wide = self.rows("--ranks", "4", "--dtype", "bf16"), self.rows("--ranks", "4")
        for name in ROWS[1:]:
            self.assertEqual(narrow[name][HELD], wide[name][HELD]) # masters, gradients and moments
            self.assertAlmostEqual(narrow[name][GATHER] / wide[name][GATHER], 0.5, delta=0.01)
            self.assertEqual(narrow[name][SCATTER], wide[name][SCATTER]) # reduced in float

    def test_options_of_the_other_labs(self):
        plain = self.rows("--ranks", "4")
        host = self.rows("--ranks", "4", "--offload=yes", "--layout=per_parameter",
                         "--recompute=blocks", "--prefetch=2", refused=("DDP",))
        stages = self.rows("--ranks", "4", "--stages=2", "--schedule=1f1b",
                           refused=("HSDP, 2 replicas",))
        for name in ROWS[1:]:
            self.assertEqual(host[name][HELD], 0.0) # all of it is in host memory
            self.assertLess(host[name][PEAK], plain[name][PEAK])
            self.assertGreater(host[name][TIME], plain[name][TIME])
        # Of what was held a quarter is parameters, and a quarter gradients, which the first of four
        # steps copies to the device, too: nobody had zeroed them.
        self.assertAlmostEqual(host["ZeRO-1"][HOST], 2.25 * plain["ZeRO-1"][HELD] / 4, delta=0.01)
        # Two messages of (2, 32, 128) floats; and the tied gradient of (256, 128), of which a rank
        # has half of the unit with the 32 positions.
        messages, tied, unit = 2 * 2 * 32 * 128 * 4, 256 * 128 * 4, (256 + 32) * 128 * 4
        self.assertEqual(stages["DDP"][SENDS], round(1e-6 * (messages + tied), 2))
        for name in ROWS[1:5]:
            self.assertEqual(stages[name][SENDS], round(1e-6 * (messages + unit / 2), 2))
        for name in ROWS[1:5]: # between two ranks, of half a model
            self.assertLess(stages[name][GATHER], plain[name][GATHER] / 2)

    def test_a_gather_in_fp8(self):
        rows = self.rows("--ranks", "4", "--layout=per_parameter")
        narrow = self.rows("--ranks", "4", "--layout=per_parameter", "--gather=fp8",
                           refused=("DDP",))
        for name in ROWS[1:]:
            # A quarter, but for the biases and norms; and an all-reduce of the scales.
            self.assertAlmostEqual(narrow[name][GATHER] / rows[name][GATHER], 0.25, delta=0.02)
            self.assertEqual(narrow[name][SCATTER], rows[name][SCATTER])
            self.assertEqual(narrow[name][CALLS], rows[name][CALLS] + 1)

    def test_a_graph_and_a_plan(self):
        rows = self.rows("--ranks", "4")
        graph = self.rows("--ranks", "4", "--graph=yes", "--regroup=0")
        for name in ROWS:
            self.assertEqual(graph[name][GATHER:SENDS], rows[name][GATHER:SENDS])
            self.assertLess(graph[name][TIME], rows[name][TIME])

    def test_what_is_not_asked_for_changes_nothing(self):
        said = [self.run_tool("--ranks", "4", *more)[1].partition("\n\n")[2] for more in (
            (), ("--offload=no", "--layout=flat", "--recompute=none", "--stages=1",
                 "--gather=usual", "--prefetch="))]
        self.assertEqual(said[0], said[1])

    def test_what_makes_no_sense(self):
        for arguments, words in ((("--ranks", "3"), "RANKS=3: two replicas"),
                                 (("--dtype", "fp8"), "DTYPE=fp8: must be float or bf16 or fp16"),
                                 (("--reduce-dtype", "x"), "REDUCE_DTYPE=x: must be"),
                                 (("--offload=1",), "OFFLOAD=1: must be no or yes"),
                                 (("--layout=rows",), "LAYOUT=rows: must be flat or per_parameter"),
                                 (("--recompute=all",), "RECOMPUTE=all: must be none or"),
                                 (("--gather=fp8",), "GATHER=fp8 has a scale for each parameter"),
                                 (("--gather=fp8", "--layout=per_parameter", "--offload=yes"),
                                  "GATHER=fp8 finds its scales in shards on the device"),
                                 (("--gather=e4m3",), "GATHER=e4m3: must be usual or fp8"),
                                 (("--prefetch=-1",), "PREFETCH=-1: must be a whole number"),
                                 (("--stages=3",), "STAGES=3: must divide the 4 GPUs, and be"),
                                 (("--ranks", "8", "--stages=8"), "STAGES=8: must divide the 8"),
                                 (("--stages=0",), "STAGES=0: must divide"),
                                 (("--schedule=1f1b",), "SCHEDULE=1f1b needs a pipeline"),
                                 (("--graph=yes", "--dtype=bf16", "--stages=2"),
                                  "GRAPH=yes: leave DTYPE and STAGES out"),
                                 (("--regroup=0", "--prefetch=2", "--offload=yes"),
                                  "REGROUP=0: leave OFFLOAD and PREFETCH out"),
                                 (("--stages=2", "--dtype", "fp16"), "DTYPE=fp16: a loss scale")):
            status, out = self.run_tool(*arguments)
            self.assertEqual(status, 2, out)
            self.assertIn(words, out)
            self.assertEqual(out.count("\n"), 1, out)


if __name__ == "__main__":
    unittest.main()
