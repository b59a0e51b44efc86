"""The same training here and in PyTorch: the same weights, the same batches, 50 steps of AdamW.

Three times: this library on two ranks (ZeRO-3, simulated GPUs), PyTorch on one process with both
ranks' batch, and PyTorch's FSDP2 over gloo on two processes. All in float. The losses of each step
may differ by rounding: BOUND of the loss.

Interface: compare(folder, launch, client, failures) -> how many comparisons.
"""

import math
import os
import subprocess
import sys

import numpy
import torch
import torch.distributed
import torch.multiprocessing
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BOUND = 1e-4 # relative, of each step's loss
VOCAB, CONTEXT, LAYERS, HEADS, DIM, SEQUENCES, RANKS, STEPS = 257, 32, 3, 4, 48, 2, 2, 50
RATE, WARM_UP = 1e-3, 20


def token_of(step, sequence, i):
    return (i * i + 7 * i + 31 * sequence + 17 * step) % 23 % VOCAB


def batch(step, sequences):
    """The tokens of some of the step's sequences, and the tokens that follow them."""
    rows = [[token_of(step, s, i) for i in range(CONTEXT + 1)] for s in sequences]
    tokens = torch.tensor(rows)
    return tokens[:, :-1], tokens[:, 1:]


def rate_of(step):
    """The trainer's: up in a line, then down along half a cosine to a tenth."""
    if step < WARM_UP:
        return RATE * step / WARM_UP
    done = (step - WARM_UP) / (STEPS - WARM_UP)
    return RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def model_of(place):
    """The weights in a folder, without dropout, in float."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.GPT2LMHeadModel.from_pretrained(
        place, attn_implementation="eager", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return model.float().train()


def train(model, sequences):
    """The loss of each step, on these sequences."""
    adamw = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), eps=1e-8,
                              weight_decay=0.1)
    losses = []
    for step in range(1, STEPS + 1):
        for group in adamw.param_groups:
            group["lr"] = rate_of(step)
        tokens, targets = batch(step, sequences)
        logits = model(tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        loss.backward()
        adamw.step()
        adamw.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def fsdp2(rank, place, out):
    """One of the processes of FSDP2."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1")
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.path.join(place, "rendezvous"), rank=rank,
        world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    model = model_of(place)
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = train(model, range(rank * SEQUENCES, (rank + 1) * SEQUENCES))
    torch.distributed.all_reduce(losses)
    if rank == 0:
        (losses / RANKS).numpy().tofile(out)
    torch.distributed.destroy_process_group()


def ours(launch, client, place, out):
    sizes = (VOCAB, CONTEXT, LAYERS, HEADS, DIM, SEQUENCES, STEPS)
    subprocess.run([launch, "-n", str(RANKS), client, "train",
                    os.path.join(place, "model.safetensors"), out] + [str(n) for n in sizes],
                   check=True)
    return numpy.fromfile(out, dtype="<f4")


def compare(folder, launch, client, failures):
    print("%d steps of AdamW, GPT-2 of %d layers of %d, %d sequences of %d on each of %d ranks, "
          "float" % (STEPS, LAYERS, DIM, SEQUENCES, CONTEXT, RANKS))
    place = os.path.join(folder, "trained")
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=DIM,
                                     n_layer=LAYERS, n_head=HEADS)
    torch.manual_seed(15)
    transformers.GPT2LMHeadModel(config).save_pretrained(place)
    plain = train(model_of(place), range(RANKS * SEQUENCES)).numpy()
    out = os.path.join(folder, "losses.bin")
    runs = [("this library on %d ranks" % RANKS, ours(launch, client, place, out))]
    torch.multiprocessing.spawn(fsdp2, (place, out), nprocs=RANKS)
    runs.append(("PyTorch's FSDP2 over gloo, %d ranks" % RANKS, numpy.fromfile(out, "<f4")))
    print("  PyTorch on one process: loss %.6f at step 1, %.6f at step %d"
          % (plain[0], plain[-1], STEPS))
    for what, losses in runs:
        worst = float(numpy.max(numpy.abs(losses - plain) / plain))
        good = len(losses) == STEPS and worst <= BOUND and plain[-1] < 0.9 * plain[0]
        print("  %-62s %.2e of the loss at most, step %d %.6f%s"
              % (what, worst, STEPS, losses[-1], "" if good else "   ABOVE THE BOUND"), flush=True)
        if not good:
            failures.append(what)
    return len(runs)


if __name__ == "__main__":
    sys.exit("train.py is a part of compare.py")
