"""What a training step of the same GPT-2 costs in PyTorch, and starting up: what `make bench
PEER=pytorch` compares with.

As bench/train_step.c: float32, drawn tokens, AdamW, the gradient's norm clipped at 1, a line of
JSON with the same names. PyTorch has its faster choices: scaled_dot_product_attention, the fused
AdamW, gradients as views of DDP's buckets. Several ranks are processes over gloo, forked after
torch has been imported, so what they take to start is not compared.

Runs in the virtual environment of grader/devtools/pytorch_environment.py.

Interface: pytorch_step.py MODE RANKS THREADS --layers N --heads N --dim N --context N --vocab N
--batch N --sequence N --warm-up N --steps N; MODE is eager, ddp or fsdp2, --batch of each rank.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn
from torch.nn import functional

STARTED = time.monotonic()


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc, self.mlp_proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attention(self, x):
        rows, tokens, dim = x.shape
        parts = (part.view(rows, tokens, self.heads, -1).transpose(1, 2)
                 for part in self.qkv(x).split(dim, dim=2))
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(rows, tokens, dim))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self, options):
        super().__init__()
        self.wte = nn.Embedding(options.vocab, options.dim)
        self.wpe = nn.Embedding(options.context, options.dim)
        self.h = nn.ModuleList(Block(options.dim, options.heads) for _ in range(options.layers))
        self.ln_f = nn.LayerNorm(options.dim)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def peak():
    """VmHWM in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def sharded(options, model):
    if options.mode == "ddp":
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.mode == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (options.ranks,))
        for block in model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def train(options, rank):
    """What this rank found."""
    torch.manual_seed(42 + rank)
    model = sharded(options, Gpt2(options))
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8,
                              weight_decay=0.1, fused=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"start_user": used.ru_utime, "start_sys": used.ru_stime,
             "start_wall": time.monotonic() - STARTED, "cpu": [], "wall": []}
    for _ in range(options.warm_up + options.steps):
        wall, cpu = time.monotonic(), time.process_time()
        tokens = torch.randint(options.vocab, (2, options.batch, options.sequence))
        logits = model(tokens[0])
        loss = functional.cross_entropy(logits.view(-1, options.vocab), tokens[1].view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        found["cpu"].append(time.process_time() - cpu)
        found["wall"].append(time.monotonic() - wall)
    found["peak"] = peak()
    found["loss"] = loss.item()
    return found


def run_rank(rank, options, folder):
    """A process of several ranks: leaves what it found as a file."""
    torch.set_num_threads(options.threads)
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.path.join(folder, "rendezvous"), rank=rank,
        world_size=options.ranks)
    found = train(options, rank)
    with open(os.path.join(folder, "%d.json" % rank), "w", encoding="ascii") as file:
        json.dump(found, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_ranks(options):
    with tempfile.TemporaryDirectory(prefix="shardlab-bench-") as folder:
        torch.multiprocessing.start_processes(run_rank, (options, folder), nprocs=options.ranks,
                                              start_method="fork")
        found = []
        for rank in range(options.ranks):
            with open(os.path.join(folder, "%d.json" % rank), encoding="ascii") as file:
                found.append(json.load(file))
    return found


def parameters(options):
    d = options.dim
    return (options.vocab + options.context) * d + options.layers * (12 * d * d + 13 * d) + 2 * d


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("eager", "ddp", "fsdp2"))
    parser.add_argument("ranks", type=int)
    parser.add_argument("threads", type=int)
    for name in ("layers", "heads", "dim", "context", "vocab", "batch", "sequence", "warm-up",
                 "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    options = parser.parse_args()
    if options.mode == "eager":
        torch.set_num_threads(options.threads)
        found = [train(options, 0)]
    else:
        found = run_ranks(options)
    steps = [sum(times) for times in zip(*(rank["cpu"] for rank in found))]
    line = {name: [rank[name] for rank in found]
            for name in ("start_user", "start_sys", "start_wall", "peak")}
    line.update(ranks=options.ranks, parameters=parameters(options),
                tokens=options.ranks * options.batch * options.sequence,
                first=sum(steps[:options.warm_up]), cpu=steps[options.warm_up:],
                wall=found[0]["wall"][options.warm_up:], loss=found[0]["loss"],
                torch=torch.__version__)
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
