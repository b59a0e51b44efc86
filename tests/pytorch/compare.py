"""What real clients of safetensors and of GPT-2 make of our files, and we of theirs.

Runs in the virtual environment of `make compare-pytorch` (grader/devtools/compare_pytorch.py), with
PyPI's torch, transformers and safetensors.

Interface: compare.py FOLDER LAUNCH CLIENT TRAIN_GPT2 (what make has built). Exit status 1 where a
difference is above the bound or a file cannot be read.
"""

import glob
import json
import os
import platform
import subprocess
import sys

import numpy
import safetensors
import safetensors.numpy
import torch
import transformers

BOUND = 1e-4 # of the largest logit
# vocab, context, layers, heads, dim, sequences, ranks
SIZES = {"3 layers of 48": (257, 32, 3, 4, 48, 2, 3),
         "GPT-2 small (124 M)": (50257, 48, 12, 12, 768, 1, 2)}

folder, launch, client, train = sys.argv[1:5]
failures = []


def say(what, worst, largest):
    good = worst <= BOUND * largest
    print("  %-62s %.2e of the largest logit (%.3g)%s"
          % (what, worst / largest, largest, "" if good else "   ABOVE THE BOUND"), flush=True)
    if not good:
        failures.append(what)


def ours(mode, path, size):
    """The client's logits for a file that it reads or writes."""
    out = os.path.join(folder, "logits.bin")
    vocab, context, _, _, _, sequences, ranks = size
    subprocess.run([launch, "-n", str(ranks), client, mode, path, out]
                   + [str(n) for n in size[:6]], check=True)
    return numpy.fromfile(out, dtype="<f4").reshape(sequences, context, vocab)


def theirs(model, size):
    vocab, context, sequences = size[0], size[1], size[5]
    tokens = [[(7 * t + 31 * b + t * t) % vocab for t in range(context)] for b in range(sequences)]
    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.float().numpy()


def compare(what, a, b):
    say(what, float(numpy.abs(a - b).max()), float(numpy.abs(b).max()))


def random_model(size):
    vocab, context, layers, heads, dim = size[:5]
    config = transformers.GPT2Config(vocab_size=vocab, n_positions=context, n_embd=dim,
                                     n_layer=layers, n_head=heads)
    torch.manual_seed(8812)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad(): # biases and layer norms too: they start as zeros and ones
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def read_all(paths):
    """Every tensor of every file, by safetensors' own reader."""
    tensors = 0
    for path in paths:
        with safetensors.safe_open(path, framework="numpy") as file:
            for name in file.keys():
                assert numpy.isfinite(file.get_tensor(name)).all(), (path, name)
                tensors += 1
    print("  safetensors' own reader: %d files, %d tensors" % (len(paths), tensors))


def both_ways(name, size):
    print(name)
    model = random_model(size)
    place = os.path.join(folder, "theirs")
    model.save_pretrained(place)
    path = os.path.join(place, "model.safetensors")
    compare("made by transformers, loaded here on %d ranks" % size[6], ours("import", path, size),
            theirs(model, size))
    half = model.half()
    half.save_pretrained(place)
    compare("the same in float16", ours("import", path, size), theirs(half.float(), size))

    place = os.path.join(folder, "ours")
    os.makedirs(place, exist_ok=True)
    path = os.path.join(place, "model.safetensors")
    want = ours("export", path, size)
    model.config.save_pretrained(place)
    back = transformers.GPT2LMHeadModel.from_pretrained(place, torch_dtype=torch.float32).eval()
    compare("saved here on %d ranks, loaded by transformers" % size[6], theirs(back, size), want)
    read_all([path])


def main():
    print("torch %s, transformers %s, safetensors %s, Python %s"
          % (torch.__version__, transformers.__version__, safetensors.__version__,
             platform.python_version()))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    for name, size in SIZES.items():
        both_ways(name, size)

    print("a sharded checkpoint of 4 ranks")
    text = os.path.join(folder, "text")
    with open(text, "w", encoding="utf-8") as file:
        file.write("to be read by nobody, again and again. " * 200)
    place = os.path.join(folder, "checkpoint")
    subprocess.run([launch, "-n", "4", train, "--brief", "--steps", "2", "--layers", "2", "--dim",
                    "32", "--heads", "2", "--save", place, text], check=True,
                   stdout=subprocess.DEVNULL)
    read_all(sorted(glob.glob(os.path.join(place, "*.safetensors"))))
    with open(os.path.join(place, "index.json"), encoding="utf-8") as file:
        assert json.load(file)["files"] == 4

    # Their writer's files here: any shapes and types, by our reader (through an import that fails
    # with a line about the model, not about the file).
    path = os.path.join(folder, "numpy.safetensors")
    safetensors.numpy.save_file({"a": numpy.zeros((3, 0, 2)), "b": numpy.arange(7, dtype="u1")},
                                path)
    said = subprocess.run([client, "import", path, os.devnull, "11", "4", "1", "1", "8", "1"],
                          stderr=subprocess.PIPE, text=True, check=False).stderr
    if "it is of another model" not in said:
        failures.append("a file of safetensors.numpy is not read: " + said)
    print("%d comparisons, %d failed" % (3 * len(SIZES), len(failures)))
    for failure in failures:
        print("failed: " + failure)
    return 1 if failures else 0


sys.exit(main())
