#!/usr/bin/env python3
"""Text into tokens, and tokens into text, for train_gpt2.

    tokenize.py data   TOKENIZER FILE… --out train.bin [--val val.bin]
    tokenize.py encode TOKENIZER TEXT        the numbers, for train_gpt2 --generate
    tokenize.py decode TOKENIZER [NUMBERS]   the text, of numbers from standard input otherwise

TOKENIZER is "bytes" (tokens 0 to 255), or a folder of Hugging Face's with a tokenizer.json, or that
file. Those need the package tokenizers: `make tokenizers` installs it below build/, in an
environment of its own; run this with build/tokenizers/bin/python.

The files of tokens are llm.c's: GPT-2's of uint16, or Llama 3's of uint32 where the vocabulary has
more than 65536. In front of each text is the token that ends one (<|endoftext|>, or Llama's
<|begin_of_text|>), where the tokenizer has it. --val takes the last of every --val-of texts, or,
of a single text, its last part.

Exit status 0; 2, with one line, for bad input. A file is complete under its name, or not there.
"""

import sys

# The standard library has a module of this file's name, which others import.
sys.path[:] = sys.path[1:]

import argparse
import array
import os

HEADERS = {"H": (20240520, 1), "I": (20240801, 7)} # magic, version
MOST = 2 ** 31 - 1 # tokens of a file: its header counts them in an int32
FIRST = ("<|endoftext|>", "<|begin_of_text|>")


class Trouble(Exception):
    """What is wrong with the input, in a line."""


class Bytes:
    size, first = 256, None

    def encode(self, text):
        return list(text.encode("utf-8", "surrogateescape"))

    def decode(self, numbers):
        return bytes(numbers).decode("utf-8", "replace")


class HuggingFace:
    def __init__(self, path):
        try:
            import tokenizers # pylint: disable=import-outside-toplevel
        except ImportError:
            raise Trouble("%s needs the package tokenizers: make tokenizers, then run this with "
                          "build/tokenizers/bin/python (TOKENIZER bytes needs none)"
                          % path) from None
        try:
            self.inner = tokenizers.Tokenizer.from_file(path)
        except Exception as error: # which class it is, the package does not say
            raise Trouble("%s is not a tokenizer: %s" % (path, error)) from None
        self.size = self.inner.get_vocab_size()
        self.first = next((number for number in map(self.inner.token_to_id, FIRST)
                           if number is not None), None)

    def encode(self, text):
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, numbers):
        return self.inner.decode(numbers, skip_special_tokens=False)


def tokenizer(name):
    if name == "bytes":
        return Bytes()
    path = os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name
    if not os.path.isfile(path):
        raise Trouble("%s is not there: TOKENIZER is bytes, or a folder with a tokenizer.json"
                      % path)
    return HuggingFace(path)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError as error:
        raise Trouble("%s: %s" % (path, error.strerror)) from None


def write(path, numbers, kind):
    """The tokens with llm.c's header, little-endian."""
    if len(numbers) > MOST:
        raise Trouble("%s would have %d tokens, and its header counts to %d: give fewer texts at a "
                      "time" % (path, len(numbers), MOST))
    header = array.array("i", [*HEADERS[kind], len(numbers)] + [0] * 253)
    if sys.byteorder == "big":
        header.byteswap()
        numbers.byteswap()
    try:
        with open(path + ".tmp", "wb") as file:
            header.tofile(file)
            numbers.tofile(file)
        os.replace(path + ".tmp", path)
    except OSError as error:
        if os.path.exists(path + ".tmp"):
            os.remove(path + ".tmp")
        raise Trouble("%s: %s" % (path, error.strerror)) from None


def data(options):
    codec = tokenizer(options.tokenizer)
    kind = "H" if codec.size <= 1 << 16 else "I"
    train, val = array.array(kind), array.array(kind)
    start = [] if codec.first is None else [codec.first]
    for i, path in enumerate(options.files):
        numbers = start + codec.encode(read(path))
        held = options.val is not None and (i + 1) % options.val_of == 0
        if options.val is not None and len(options.files) == 1:
            cut = len(numbers) - len(numbers) // options.val_of
            val.extend(start + numbers[cut:])
            numbers = numbers[:cut]
        (val if held and len(options.files) > 1 else train).extend(numbers)
    for path, numbers in ((options.out, train), (options.val, val)):
        if path is None:
            continue
        if not numbers:
            raise Trouble("%s would have no token%s" % (
                path, ": there are fewer than %d texts (--val-of)" % options.val_of
                if path == options.val else ""))
        write(path, numbers, kind)
        print("%s: %d tokens of %d" % (path, len(numbers), codec.size))


def encode(options):
    print(" ".join(map(str, tokenizer(options.tokenizer).encode(options.text))))


def decode(options):
    codec = tokenizer(options.tokenizer)
    words = (options.numbers or sys.stdin.read().split())
    for word in words:
        if not word.isdecimal() or int(word) >= codec.size:
            raise Trouble("%.40s is not a token: they are 0 to %d" % (word, codec.size - 1))
    print(codec.decode([int(word) for word in words]))


def main():
    parser = argparse.ArgumentParser(description="Text into tokens, and tokens into text.")
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("data", help="files of tokens for train_gpt2 --data and --val")
    one.add_argument("tokenizer")
    one.add_argument("files", nargs="+", metavar="FILE")
    one.add_argument("--out", required=True, metavar="FILE")
    one.add_argument("--val", metavar="FILE")
    one.add_argument("--val-of", type=int, default=10, metavar="N", help="one text of N (10)")
    two = actions.add_parser("encode", help="numbers for train_gpt2 --generate")
    two.add_argument("tokenizer")
    two.add_argument("text")
    three = actions.add_parser("decode", help="the text of numbers")
    three.add_argument("tokenizer")
    three.add_argument("numbers", nargs="*")
    options = parser.parse_args()
    try:
        if options.action == "data" and options.val_of < 2:
            raise Trouble("--val-of %d: want at least 2" % options.val_of)
        {"data": data, "encode": encode, "decode": decode}[options.action](options)
    except Trouble as trouble:
        print("tokenize: %s" % trouble, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
