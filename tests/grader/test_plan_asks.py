"""`make plan`: what it is asked with: a model's config.json (CONFIG), tables (COMPARE), and names
of settings, which every target has."""

import contextlib
import io
import json
import re
import subprocess
import unittest
import zlib

from helpers import ROOT
from planner import SMALL, Plan
import plan_table

GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024,
        "n_inner": None, "vocab_size": 50257, "n_ctx": 1024}
LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
         "hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8,
         "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
         "rope_scaling": {"factor": 8.0}}
SMALL_LLAMA = dict(LLAMA, num_hidden_layers=2, num_attention_heads=4, hidden_size=32,
                   intermediate_size=48, num_key_value_heads=2, vocab_size=61,
                   max_position_embeddings=64)


class Config(Plan):
    """A model as Hugging Face writes it."""
    def config(self, keys):
        text = json.dumps(keys) # a file of its own for each: plans are kept by their settings
        return "CONFIG=" + self.write("config-%08x.json" % zlib.crc32(text.encode()), text)

    def test_a_published_model(self):
        """Of the published number of parameters; and all else as where its name is given."""
        for keys, name, parameters in ((GPT2, "gpt2", 124439808),
                                       (LLAMA, "llama3-8b", 8030261248)):
            settings = ["GPUS=8", "SEQ=512", "DTYPE=bf16", "STRATEGY=zero3"]
            plan, named = self.plan(self.config(keys), *settings), self.plan("MODEL=" + name,
                                                                             *settings)
            self.assertEqual(plan["formulas"]["parameters"], parameters)
            self.assertEqual(dict(plan, model=name), dict(named, model=name))

    def test_shapes_of_a_llama(self):
        """Parameters counted here: a block has 2 (C² + C·K) of attention, 3·C·F and two norms."""
        C, F, V, L = 32, 48, 61, 2
        for more, K, tied in (({}, 16, False), ({"tie_word_embeddings": True}, 16, True),
                              ({"model_type": "mistral", "sliding_window": 64}, 16, False),
                              ({"model_type": "mistral", "sliding_window": None}, 16, False),
                              ({"model_type": "mistral", "sliding_window": 16}, 16, False),
                              ({"model_type": "qwen2", "sliding_window": 8,
                                "use_sliding_window": False}, 16, False),
                              ({"num_key_value_heads": None}, 32, False), ({"head_dim": 8}, 16,
                                                                           False)):
            with self.subTest(more=more):
                plan = self.plan(self.config(dict(SMALL_LLAMA, **more)), "GPUS=2",
                                 "SEQ=16")
                self.assertEqual(plan["formulas"]["parameters"],
                                 L * (2 * C * C + 2 * C * K + 3 * C * F + 2 * C) + C
                                 + (1 if tied else 2) * V * C)
                self.check_formulas(plan)

    def test_a_window_ends_the_context(self):
        plan = self.plan(self.config(dict(SMALL_LLAMA, sliding_window=24)), "GPUS=2")
        self.assertEqual(plan["seq"], 24)

    def test_the_key_that_does_not_fit_is_named(self):
        for keys, words in [ # more of them: tests/checkpoint/config.c
                ({}, "model_type is missing"),
                (dict(GPT2, n_layer=0), "n_layer is 0: must be a whole number from 1"),
                (dict(GPT2, n_embd="768"), 'n_embd is "768": must be a whole number'),
                ({k: v for k, v in GPT2.items() if k != "vocab_size"}, "vocab_size is missing"),
                (dict(LLAMA, num_key_value_heads=3), "KV_HEADS=3 does not divide HEADS=32")]:
            self.refused([self.config(keys)], words)
        self.refused([self.config(dict(SMALL_LLAMA, sliding_window=8)), "SEQ=16"],
                     "sliding_window is 8: SEQ has more tokens")
        self.refused([self.config(dict(SMALL_LLAMA, tie_word_embeddings=True)), "STAGES=2"],
                     "tie_word_embeddings is true")
        self.refused([self.config(GPT2), "MODEL=gpt2"], "one of them")
        self.refused(["CONFIG=" + self.path("none.json")], "cannot be read: ")
        self.refused(["CONFIG=" + self.write("half.json", "{")], "cannot be read: ")


class Compare(Plan):
    """COMPARE: several plans as a table."""
    def table(self, *settings):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = plan_table.main(self.program, list(settings))
        return status, out.getvalue().splitlines(), err.getvalue()

    def test_each_combination_has_a_row(self):
        status, lines, err = self.table(
            "COMPARE=strategy=zero2,zero3 recompute=none,blocks", *SMALL, "GPUS=4")
        self.assertEqual((status, err, len(lines)), (0, "", 5))
        self.assertTrue(all(len(line) <= 80 for line in lines))
        fastest = 0
        for line, (strategy, again) in zip(lines[1:], [
                ("zero2", "none"), ("zero2", "blocks"), ("zero3", "none"), ("zero3", "blocks")]):
            plan = self.plan(*SMALL, "GPUS=4", "STRATEGY=" + strategy, "RECOMPUTE=" + again)
            self.assertEqual(line.split()[:2], [strategy, again])
            self.assertEqual(line.split()[3], "%.1f" % (plan["times"]["step"] / 1e9))
            fastest += line.endswith("fastest")
        self.assertGreaterEqual(fastest, 1)

    def test_what_does_not_fit_and_what_is_refused(self):
        machine = self.write("tiny.machine", "base h100x8\nmemory 1 KB\n")
        status, lines, _ = self.table("COMPARE=reshard_ranks=2,3", "STRATEGY=zero3", *SMALL,
                                      "GPUS=4", "MACHINE=" + machine)
        self.assertEqual(status, 0)
        self.assertIn("does not fit", lines[1])
        self.assertRegex(lines[2], r"^3 .*\(1\)$")
        self.assertIn("(1) RESHARD_RANKS=3 must divide", lines[3])
        for settings, words in (
                (["COMPARE=strategy"], '"strategy" is not name=value'), (["COMPARE="], "has 0"),
                (["COMPARE=gpus=8"], "has 1 plans"), (["COMPARE=json=a,b"], "nothing to compare"),
                (["COMPARE=gpus=1,2 gpus=3,4"], "given twice"),
                (["COMPARE=gpus=1,2", "GPUS=4"], "cannot be combined with GPUS"),
                (["COMPARE=colour=red,blue"], '"COLOUR=red" is not a setting')):
            with self.subTest(settings=settings):
                status, lines, err = self.table(*settings)
                self.assertEqual(status, 2)
                self.assertIn(words, err + "\n".join(lines))


class Misspelt(unittest.TestCase):
    """A name on make's command line that nothing reads."""
    def make(self, *words):
        done = subprocess.run(["make", "-n", *words], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stderr

    def test_the_nearest_is_named(self):
        for target in ("plan", "grade", "demo", "compare", "hint", "clean"):
            for setting, near in (("GPUZ=3", "GPUS"), ("gpus=3", "GPUS"), ("TSAK=2", "TASK"),
                                  ("IMPLE=reference", "IMPL"), ("RECOMPUT=no", "RECOMPUTE")):
                with self.subTest(target=target, setting=setting):
                    status, err = self.make(target, setting)
                    self.assertEqual(status, 2)
                    self.assertRegex(err, r"there is no setting %s: is it %s\?" % (
                        re.escape(setting.partition("=")[0]), near))

    def test_what_is_read_is_none(self):
        for setting in ("GPUS=3", "SEED=1", "NO_INSTALL=1", "CFLAGS=-O1", "SIMGPU_THREADS=1",
                        "NCCL_DEBUG=INFO", "COMPARE=gpus=1,2", "V=1"):
            self.assertNotIn("there is no setting", self.make("help", setting)[1])


if __name__ == "__main__":
    unittest.main()
