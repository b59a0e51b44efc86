"""The program train_gpt2 against PyTorch: a model that transformers has written, fine-tuned on a
file of tokens by four ranks and by PyTorch in one process; then exported, opened by transformers,
and asked by both to go on from the same tokens.

Runs as compare.py does, in the virtual environment of `make compare-pytorch`. Float has 24 bits of
fraction, 6e-8; the two add in other orders. Of the loss, whose relative error is that of a mean,
LOSS is some thirty times that; the norm is a sum over gradients that each have that error, NORM.

Interface: compare_program.py FOLDER LAUNCH TRAIN_GPT2. Exit status 1 where a difference is above
the bound.
"""

import json
import math
import os
import subprocess
import sys

import numpy
import torch
import transformers

LOSS, NORM = 2e-6, 1e-5 # relative
VOCAB, T, RANKS, STEPS, RATE, WARM_UP = 300, 24, 4, 20, 1e-3, 4
CONFIGS = {
    "GPT-2": transformers.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=48, n_layer=2,
                                     n_head=4, bos_token_id=None, eos_token_id=None),
    "Llama": transformers.LlamaConfig(vocab_size=VOCAB, max_position_embeddings=64,
                                      num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, hidden_size=48, intermediate_size=100,
                                      bos_token_id=None, eos_token_id=None),
}
# train_gpt2's options, each time with the split into ranks and micro-batches
SPLITS = {"ZeRO-3": ["--batch", "1"],
          "ZeRO-1, 2 micro-batches": ["--batch", "1", "--accumulate", "2", "--strategy", "zero1"],
          "HSDP 2 × 2, replicas reduce once": ["--batch", "1", "--accumulate", "2", "--replicas",
                                               "2", "--reduce-replicas-once"],
          "DDP": ["--batch", "1", "--strategy", "ddp"]}

folder, launch, program = sys.argv[1:4]
failures = []


def say(what, worst, bound):
    good = worst <= bound
    print("  %-66s %.2e%s" % (what, worst, "" if good else "   ABOVE THE BOUND"), flush=True)
    if not good:
        failures.append(what)


def ours(*options):
    done = subprocess.run([launch, "-n", str(RANKS), program, *options], check=True,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout


def theirs(place, tokens, each):
    """[(loss, norm)] of each step with so many sequences."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        place, attn_implementation="eager", dtype=torch.float32).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    adamw = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                               {"params": others, "weight_decay": 0.0}], betas=(0.9, 0.99))
    steps = []
    for step in range(1, STEPS + 1):
        done = (step - WARM_UP) / (STEPS - WARM_UP)
        for group in adamw.param_groups:
            group["lr"] = RATE * (step / WARM_UP if step < WARM_UP else
                                  0.1 + 0.45 * (1 + math.cos(math.pi * done)))
        rows = [tokens[i * T:i * T + T + 1] for i in range((step - 1) * each, step * each)]
        batch = torch.tensor(numpy.stack(rows).astype("int64"))
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB),
                                                 batch[:, 1:].reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        steps.append((loss.item(), norm.item()))
    return steps


def generates_alike(place):
    """Greedy tokens, as long as the two best logits are 1e-4 apart."""
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
    tokens = [5, 17, 200, 33]
    said = ours("--from", place, "--generate", " ".join(map(str, tokens)), "--tokens", "40",
                "--temperature", "0")
    for i, token in enumerate(map(int, said.split())):
        if i < 4:
            continue
        with torch.no_grad():
            best = model(torch.tensor([tokens])).logits[0, -1].topk(2)
        if token != best.indices[0] and best.values[0] - best.values[1] >= 1e-4:
            return float(i)
        tokens.append(token)
    return 0.0 if len(tokens) == 44 else float(len(tokens))


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    tokens = numpy.random.default_rng(1).zipf(1.3, 400 * T + 1) % VOCAB
    path = os.path.join(folder, "train.bin")
    tokens.astype("<u2").tofile(path)
    for name, config in CONFIGS.items():
        print("%s, %d steps of AdamW on tokens of a file, clipped, by train_gpt2 on %d ranks"
              % (name, STEPS, RANKS))
        place = os.path.join(folder, name)
        torch.manual_seed(15)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(place)
        want = {each: theirs(place, tokens, each) for each in (RANKS, 2 * RANKS)}
        for split, options in SPLITS.items():
            log, out = os.path.join(folder, "log"), os.path.join(folder, name + split[:6])
            ours("--from", place, "--data", path, "--in-order", "--sequence", str(T), "--steps",
                 str(STEPS), "--lr", str(RATE), "--warmup", str(WARM_UP), "--betas", "0.9,0.99",
                 "--decay-groups", "--log", log, "--brief", "--export", out, *options)
            with open(log, encoding="utf-8") as file:
                steps = [json.loads(line) for line in file]
            pairs = list(zip(steps, want[RANKS * (2 if "--accumulate" in options else 1)]))
            assert len(pairs) == STEPS
            say("%s: losses" % split, max(abs(s["loss"] / w[0] - 1) for s, w in pairs), LOSS)
            say("%s: norms" % split, max(abs(s["norm"] / w[1] - 1) for s, w in pairs), NORM)
        say("exported and opened by transformers: greedy tokens", generates_alike(out), 0.0)
    for failure in failures:
        print("failed: " + failure)
    return 1 if failures else 0


sys.exit(main())
