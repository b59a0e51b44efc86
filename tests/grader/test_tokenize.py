"""examples/tokenize.py: files of tokens as llm.c writes them, numbers from text and back, and what
it refuses. With Hugging Face's package where an environment below build/ has it."""

import glob
import os
import struct
import subprocess
import sys
import unittest

from helpers import ROOT, TempFolder, build_folder

PROGRAM = os.path.join(ROOT, "examples", "tokenize.py")


def python_with_tokenizers():
    for name in ("tokenizers", "pytorch"):
        python = os.path.join(ROOT, build_folder(), name, "bin", "python")
        if glob.glob(os.path.join(ROOT, build_folder(), name, "lib*", "python*", "site-packages",
                                  "tokenizers")):
            return python
    return ""


class Tokenize(TempFolder):
    def call(self, *words, python=sys.executable, stdin="", status=0):
        done = subprocess.run([python, "-B", PROGRAM, *words], input=stdin, capture_output=True,
                              text=True, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def tokens(self, name, code, magic, version):
        """Those of a file, whose header must be this."""
        with open(self.path(name), "rb") as file:
            content = file.read()
        header = struct.unpack("<256i", content[:1024])
        size = struct.calcsize("<" + code)
        self.assertEqual(header[:3], (magic, version, (len(content) - 1024) // size))
        self.assertEqual(set(header[3:]), {0})
        return list(struct.unpack("<%d%s" % (header[2], code), content[1024:]))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8", newline="") as file:
            file.write(text)


class WithBytes(Tokenize):
    def test_files_are_llm_cs(self):
        self.write("a", "Grüße\r\n")
        self.write("b", "0123456789" * 2)
        said = self.call("data", "bytes", "a", "b", "--out", "train.bin")
        self.assertEqual(said, "train.bin: 29 tokens of 256\n")
        self.assertEqual(self.tokens("train.bin", "H", 20240520, 1),
                         list("Grüße\r\n".encode() + b"0123456789" * 2))
        self.assertEqual(sorted(os.listdir(self.folder)), ["a", "b", "train.bin"])

    def test_some_are_held_out(self):
        for name in "abcd":
            self.write(name, name * 3)
        self.call("data", "bytes", *"abcd", "--out", "t", "--val", "v", "--val-of", "2")
        self.assertEqual(bytes(self.tokens("t", "H", 20240520, 1)), b"aaaccc")
        self.assertEqual(bytes(self.tokens("v", "H", 20240520, 1)), b"bbbddd")
        self.write("one", "0123456789")
        self.call("data", "bytes", "one", "--out", "t", "--val", "v", "--val-of", "5")
        self.assertEqual(bytes(self.tokens("t", "H", 20240520, 1)), b"01234567")
        self.assertEqual(bytes(self.tokens("v", "H", 20240520, 1)), b"89")

    def test_there_and_back(self):
        numbers = self.call("encode", "bytes", "Grüße 1")
        self.assertEqual(numbers.split(), [str(b) for b in "Grüße 1".encode()])
        self.assertEqual(self.call("decode", "bytes", stdin=numbers), "Grüße 1\n")
        self.assertEqual(self.call("decode", "bytes", "72", "105"), "Hi\n")

    def test_refuses_in_one_line(self):
        self.write("a", "text")
        self.write("empty", "")
        for words, said in ((("data", "bytes", "none", "--out", "t"), "none: No such file"),
                            (("data", "bytes", "empty", "--out", "t"), "t would have no token"),
                            (("data", "bytes", "a", "a", "--out", "t", "--val", "v"),
                             "fewer than 10 texts"),
                            (("data", "bytes", "a", "--out", "none/t"), "none/t: No such file"),
                            (("data", "bytes", "a", "--out", "t", "--val-of", "1"), "at least 2"),
                            (("encode", "gpt2", "a"), "gpt2 is not there"),
                            (("decode", "bytes", "256"), "256 is not a token: they are 0 to 255"),
                            (("decode", "bytes", "-1"), "-1 is not a token"),
                            (("decode", "bytes", "x"), "x is not a token")):
            with self.subTest(words=words):
                err = self.call(*words, status=2)
                self.assertIn(said, err)
                self.assertEqual(err.count("\n"), 1)
                self.assertFalse(os.path.exists(self.path("t.tmp")))


@unittest.skipUnless(python_with_tokenizers(), "no environment has tokenizers: make tokenizers")
class WithTheirs(Tokenize):
    """A small tokenizer of their own making."""
    TRAIN = """
import sys, tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
one = tokenizers.Tokenizer(models.BPE())
one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
one.decoder = decoders.ByteLevel()
one.train_from_iterator(["she sells sea shells " * 9], trainers.BpeTrainer(
    vocab_size=280, special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
one.add_tokens(["<%d>" % i for i in range(int(sys.argv[2]))])
one.save(sys.argv[1])
"""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("model"))

    def theirs(self, more):
        subprocess.run([python_with_tokenizers(), "-c", self.TRAIN,
                        self.path("model/tokenizer.json"), str(more)], check=True)

    def test_texts_are_apart(self):
        python = python_with_tokenizers()
        for more, code, magic, version in ((0, "H", 20240520, 1), (66000, "I", 20240801, 7)):
            self.theirs(more)
            self.write("a", "she sells")
            self.write("b", "größer")
            self.call("data", "model", "a", "b", "--out", "t", python=python)
            got = self.tokens("t", code, magic, version)
            ids = self.call("encode", "model", "she sells", python=python).split()
            self.assertLess(len(ids), len("she sells"))
            self.assertEqual(got[:len(ids) + 2], [0] + [int(i) for i in ids] + [0])
            self.assertEqual(self.call("decode", "model", *map(str, got), python=python),
                             "<|endoftext|>she sells<|endoftext|>größer\n")

    def test_what_is_no_tokenizer(self):
        self.write("model/tokenizer.json", "{}")
        err = self.call("encode", "model", "a", python=python_with_tokenizers(), status=2)
        self.assertIn("is not a tokenizer: ", err)
        self.assertEqual(err.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
