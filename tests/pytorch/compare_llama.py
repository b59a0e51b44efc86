"""What transformers' Llama makes of our files, and we of its: both logits, with random weights.

Runs as compare.py does, in the virtual environment of `make compare-pytorch`.

Interface: compare_llama.py FOLDER LAUNCH CLIENT_LLAMA (what make has built). Exit status 1 where a
difference is above the bound or a file cannot be read.
"""

import os
import subprocess
import sys

import numpy
import torch
import transformers

BOUND = 1e-4 # of the largest logit
# ranks; vocab, context, layers, heads, dim, sequences, heads of keys, hidden, tied, theta, factor
SIZES = {
    "3 layers of 48, 4 heads on 2 of keys": (3, (257, 32, 3, 4, 48, 2, 2, 100, 0, 10000.0, 0.0)),
    "the same, tied": (2, (257, 32, 3, 4, 48, 2, 2, 100, 1, 10000.0, 0.0)),
    "Llama 3.1's positions": (3, (131, 200, 2, 6, 96, 1, 1, 33, 0, 500000.0, 8.0)),
    "heads of 128, 4 on 2 of keys": (2, (1000, 100, 2, 4, 512, 1, 2, 1000, 0, 500000.0, 0.0)),
}

folder, launch, client = sys.argv[1:4]
failures = []


def compare(what, got, want):
    worst, largest = float(numpy.abs(got - want).max()), float(numpy.abs(want).max())
    good = worst <= BOUND * largest
    print("  %-62s %.2e of the largest logit (%.3g)%s"
          % (what, worst / largest, largest, "" if good else "   ABOVE THE BOUND"), flush=True)
    if not good:
        failures.append(what)


def ours(mode, path, ranks, size):
    """The client's logits for a file that it reads or writes."""
    out = os.path.join(folder, "logits.bin")
    subprocess.run([launch, "-n", str(ranks), client, mode, path, out] + [str(n) for n in size],
                   check=True)
    return numpy.fromfile(out, dtype="<f4").reshape(size[5], size[1], size[0])


def theirs(model, size):
    vocab, context, sequences = size[0], size[1], size[5]
    tokens = [[(7 * t + 31 * b + t * t) % vocab for t in range(context)] for b in range(sequences)]
    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.float().numpy()


def random_model(size):
    vocab, context, layers, heads, dim, _, kv_heads, hidden, tied, theta, factor = size
    rope = {"rope_type": "default", "rope_theta": theta}
    if factor > 0:
        rope = {"rope_type": "llama3", "rope_theta": theta, "factor": factor,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": context // 2}
    config = transformers.LlamaConfig(
        vocab_size=vocab, max_position_embeddings=context, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=dim,
        intermediate_size=hidden, tie_word_embeddings=bool(tied), rms_norm_eps=1e-5,
        rope_parameters=rope)
    torch.manual_seed(4711)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad(): # the normalisations too: they start as ones
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def load(place):
    return transformers.LlamaForCausalLM.from_pretrained(place, dtype=torch.float32).eval()


def both_ways(name, ranks, size):
    print(name)
    model = random_model(size)
    place = os.path.join(folder, "theirs_llama")
    model.save_pretrained(place)
    path = os.path.join(place, "model.safetensors")
    compare("made by transformers, loaded here on %d ranks" % ranks,
            ours("import", path, ranks, size), theirs(model, size))
    model.bfloat16().save_pretrained(place)
    half = load(place) # and not model.float(): its frequencies were rounded, too
    compare("the same in bfloat16", ours("import", path, ranks, size), theirs(half, size))

    place = os.path.join(folder, "ours_llama")
    os.makedirs(place, exist_ok=True)
    want = ours("export", os.path.join(place, "model.safetensors"), ranks, size)
    model.config.save_pretrained(place)
    compare("saved here on %d ranks, loaded by transformers" % ranks, theirs(load(place), size),
            want)


def main():
    print("torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    for name, (ranks, size) in SIZES.items():
        both_ways(name, ranks, size)
    print("%d comparisons, %d failed" % (3 * len(SIZES), len(failures)))
    for failure in failures:
        print("failed: " + failure)
    return 1 if failures else 0


sys.exit(main())
