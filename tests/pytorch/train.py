"""The same training here and in PyTorch: the same weights, the same batches, 50 steps of AdamW.

Three times: this library on two ranks (ZeRO-3, simulated GPUs), PyTorch on one process with both
ranks' batch, and PyTorch's FSDP2 over gloo on two processes. In float the losses of each step may
differ by rounding: BOUND of the loss. Then the two that shard with a policy of bf16, reduced in
float and in bf16, against the float losses and each other: BOUND_BF16.

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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BOUND = 1e-4 # relative, of each step's loss
BOUND_BF16 = 2e-3 # the same where parameters and gradients have 8 bits of fraction
TYPES = {"float": torch.float32, "bf16": torch.bfloat16}
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


def fsdp2(rank, place, out, types):
    """One of the processes of FSDP2, with types (of the parameters, of the reduction)."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1")
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.path.join(place, "rendezvous"), rank=rank,
        world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    model = model_of(place)
    policy = MixedPrecisionPolicy(param_dtype=TYPES[types[0]], reduce_dtype=TYPES[types[1]])
    outer = MixedPrecisionPolicy(param_dtype=TYPES[types[0]], reduce_dtype=TYPES[types[1]],
                                 output_dtype=torch.float32)
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=outer)
    losses = train(model, range(rank * SEQUENCES, (rank + 1) * SEQUENCES))
    torch.distributed.all_reduce(losses)
    if rank == 0:
        (losses / RANKS).numpy().tofile(out)
    torch.distributed.destroy_process_group()


def ours(launch, client, place, out, types):
    sizes = (VOCAB, CONTEXT, LAYERS, HEADS, DIM, SEQUENCES, STEPS)
    subprocess.run([launch, "-n", str(RANKS), client, "train",
                    os.path.join(place, "model.safetensors"), out]
                   + [str(n) for n in sizes] + list(types), check=True)
    return numpy.fromfile(out, dtype="<f4")


def theirs(place, out, types):
    rendezvous = os.path.join(place, "rendezvous")
    if os.path.exists(rendezvous):
        os.remove(rendezvous)
    torch.multiprocessing.spawn(fsdp2, (place, out, types), nprocs=RANKS)
    return numpy.fromfile(out, dtype="<f4")


def compare(folder, launch, client, failures):
    print("%d steps of AdamW, GPT-2 of %d layers of %d, %d sequences of %d on each of %d ranks"
          % (STEPS, LAYERS, DIM, SEQUENCES, CONTEXT, RANKS))
    place = os.path.join(folder, "trained")
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=DIM,
                                     n_layer=LAYERS, n_head=HEADS)
    torch.manual_seed(15)
    transformers.GPT2LMHeadModel(config).save_pretrained(place)
    plain = train(model_of(place), range(RANKS * SEQUENCES)).numpy()
    out = os.path.join(folder, "losses.bin")
    learned = plain[-1] < 0.9 * plain[0]
    done = []

    def say(what, losses, want, bound):
        worst = float(numpy.max(numpy.abs(losses - want) / want))
        good = len(losses) == STEPS and worst <= bound and learned
        print("  %-54s %.2e of the loss at most, step %d %.6f%s"
              % (what, worst, STEPS, losses[-1], "" if good else "   ABOVE THE BOUND"), flush=True)
        done.append(what)
        if not good:
            failures.append(what)

    print("  float, PyTorch on one process: loss %.6f at step 1, %.6f at step %d"
          % (plain[0], plain[-1], STEPS))
    for types in ("float", "float"), ("bf16", "float"), ("bf16", "bf16"):
        here, there = ours(launch, client, place, out, types), theirs(place, out, types)
        name = "float" if types[0] == "float" else "%s reduced in %s" % types
        bound = BOUND if types[0] == "float" else BOUND_BF16
        say("%s, this library on %d ranks" % (name, RANKS), here, plain, bound)
        say("%s, PyTorch's FSDP2 over gloo" % name, there, plain, bound)
        if types[0] != "float":
            say("%s, this library against FSDP2" % name, here, there, bound)
    return len(done)


if __name__ == "__main__":
    sys.exit("train.py is a part of compare.py")
