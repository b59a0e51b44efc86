"""The program train_gpt2 against PyTorch: a model that transformers has written, fine-tuned on a
file of tokens by four ranks and by PyTorch's FSDP2 on four processes (over gloo); then exported,
opened by transformers, and asked by both to go on from the same tokens. And a training that goes on
in FSDP2 and comes back, by examples/dcp.py.

Runs in the virtual environment of `make compare-pytorch` (compare_pytorch.py). Float
has 24 bits of fraction, 6e-8; the two add in other orders. Of the loss, whose error is that
of a mean, LOSS is some thirty times that; the norm is a sum over gradients that each have that
error, NORM. It is compared with the norm of PyTorch's gradients that is added in double, and that
clips them: clip_grad_norm_ adds floats, and of 124 million it is 6e-5 away. In bf16 the losses may
be twice as far from float's as PyTorch's are: both round at the same places, in other orders.

Interface: compare.py FOLDER LAUNCH TRAIN_GPT2 [MODEL] (what make has built). Exit status 1 where a
difference is above the bound.
"""

import glob
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import safetensors.numpy
import torch
import torch.distributed
import torch.multiprocessing
import transformers
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

LOSS, NORM, RESUMED, BF16 = 2e-6, 1e-5, 1e-5, 2.0 # relative; BF16: times PyTorch's distance
RANKS, STEPS, WARM_UP = 4, 20, 4
DCP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "dcp.py")
TYPES = {"float": torch.float32, "bf16": torch.bfloat16}
NO_END = {"bos_token_id": None, "eos_token_id": None}


def gpt2(dim=48, layers=2, vocab=300, context=64, heads=4):
    return transformers.GPT2Config(vocab_size=vocab, n_positions=context, n_embd=dim,
                                   n_layer=layers, n_head=heads, **NO_END)


def llama(dim=48, heads=4, kv=2, hidden=100, context=64, **more):
    return transformers.LlamaConfig(
        vocab_size=300, max_position_embeddings=context, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=kv, hidden_size=dim,
        intermediate_size=hidden, **NO_END, **more)


# config, tokens of a sequence, largest rate
MODELS = {
    "GPT-2": (gpt2(), 24, 1e-3),
    "Llama": (llama(), 24, 1e-3),
    "GPT-2 124M": (gpt2(768, 12, 50257, 1024, 12), 64, 3e-5),
}
LLAMA_31 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 100}
# Of these one step, which moves nothing: config, tokens of a sequence, type in the file
FILES = {
    "GPT-2 of 3 layers, float": (gpt2(layers=3), 32, torch.float32),
    "the same, float16": (gpt2(layers=3), 32, torch.float16),
    "Llama, tied, float16": (llama(tie_word_embeddings=True), 32, torch.float16),
    "Llama 3.1's positions, bfloat16": (llama(96, 6, 1, context=200, rope_parameters=LLAMA_31),
                                        200, torch.bfloat16),
    "heads of 128": (llama(512, 4, 2, 1000), 64, torch.float32),
}
TWO = ["--batch", "1", "--accumulate", "2"]
# train_gpt2's options, with the split into ranks and micro-batches
SPLITS = {"ZeRO-3": ["--batch", "1"],
          "ZeRO-1, 2 micro-batches": TWO + ["--strategy", "zero1"],
          "ZeRO-2": ["--batch", "2", "--strategy", "zero2"],
          "HSDP 2 × 2, replicas reduce once": TWO + ["--replicas", "2", "--reduce-replicas-once"],
          "DDP": ["--batch", "1", "--strategy", "ddp"]}

folder, launch, program = sys.argv[1:4] if len(sys.argv) > 3 else [""] * 3
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


def dcp(*words):
    subprocess.run([sys.executable, "-B", DCP, *words], check=True, stdout=subprocess.DEVNULL)


# ---- PyTorch's side: one of four processes ----

def shard(place, types):
    """The model of a folder, without dropout, under FSDP2."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        place, attn_implementation="eager", dtype=torch.float32).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = {"param_dtype": TYPES[types[0]], "reduce_dtype": TYPES[types[1]]}
    for block in model.transformer.h if hasattr(model, "transformer") else model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(model, mesh=mesh,
                mp_policy=MixedPrecisionPolicy(output_dtype=torch.float32, **policy))
    return model


def exact_norm(model):
    square = sum(float((p.grad.to_local().double() ** 2).sum()) for p in model.parameters())
    total = torch.tensor(square, dtype=torch.float64)
    torch.distributed.all_reduce(total)
    return math.sqrt(total.item())


def train(rank, job, tokens):
    """[(loss, norm)] of the steps that a job names, (first, last)."""
    each, T = job["each"] // RANKS, job["T"]
    model = shard(job["place"], job["types"])
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    adamw = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                               {"params": others, "weight_decay": 0.0}], betas=(0.9, 0.99))
    if "load" in job:
        move_state(model, adamw, load=job["load"])
    steps = []
    for step in range(job["first"], job["last"] + 1):
        done = (step - WARM_UP) / (STEPS - WARM_UP)
        for group in adamw.param_groups:
            group["lr"] = job["rate"] * (
                step / WARM_UP if step < WARM_UP else
                1.0 if "constant" in job else 0.1 + 0.45 * (1 + math.cos(math.pi * done)))
        begin = (step - 1) * job["each"] + rank * each
        rows = [tokens[i * T:i * T + T + 1] for i in range(begin, begin + each)]
        batch = torch.tensor(numpy.stack(rows).astype("int64"))
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norm = exact_norm(model)
        for p in model.parameters(): # as clip_grad_norm_ does by its own norm
            p.grad.mul_(min(1.0, 1.0 / (norm + 1e-6)))
        adamw.step()
        adamw.zero_grad()
        mean = loss.detach()
        torch.distributed.all_reduce(mean)
        steps.append((mean.item() / RANKS, norm))
    if "save" in job:
        move_state(model, adamw, save=job["save"])
    return steps


def move_state(model, adamw, load=None, save=None):
    """Parameters and moments from a folder of DCP's or to one, as handouts/train.md says it."""
    params, optim = states.get_state_dict(model, adamw)
    state = {"model": params, "optim": {"state": optim["state"]}}
    if save is not None:
        torch.distributed.checkpoint.save(state, checkpoint_id=save)
    else:
        torch.distributed.checkpoint.load(state, checkpoint_id=load)
        states.set_state_dict(model, adamw, model_state_dict=params, optim_state_dict=optim)


def process(rank, jobs, meeting, out):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank,
                                         world_size=RANKS)
    done = [train(rank, job, numpy.fromfile(job["tokens"], dtype="<u2")) for job in jobs]
    torch.distributed.destroy_process_group()
    if rank == 0:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(done, file)


def theirs(jobs, tries=5):
    """[[(loss, norm)] of each job's steps], by FSDP2 on four processes. On a machine that is busy
    gloo's may not find each other: then once more."""
    out = os.path.join(folder, "theirs")
    meeting = os.path.abspath(tempfile.mktemp(dir=folder)) # new: an older one's end removes its own
    try:
        torch.multiprocessing.spawn(process, (jobs, meeting, out), nprocs=RANKS)
    except torch.multiprocessing.ProcessRaisedException as error:
        if "connectFullMesh" not in str(error) or tries == 1:
            raise
        return theirs(jobs, tries - 1)
    with open(out, encoding="utf-8") as file:
        return json.load(file)


# ---- The comparisons ----

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


class Training:
    """A model and its tokens, and the same training of it here and there."""

    def __init__(self, name, config, T, rate, dtype=torch.float32):
        self.T, self.rate = T, rate
        self.vocab = config.vocab_size
        self.place = os.path.join(folder, name)
        self.tokens = os.path.join(folder, "train.bin")
        torch.manual_seed(15)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad(): # biases and normalisations too: they start as zeros and ones
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        model.to(dtype).save_pretrained(self.place)
        tokens = numpy.random.default_rng(1).zipf(1.3, 400 * self.T + 1) % self.vocab
        tokens.astype("<u2").tofile(self.tokens)

    def here(self, *options, steps=STEPS):
        """[(loss, norm)] by train_gpt2."""
        log = os.path.join(folder, "log")
        ours("--from", self.place, "--data", self.tokens, "--in-order", "--sequence", str(self.T),
             "--lr", str(self.rate), "--warmup", str(WARM_UP), "--betas", "0.9,0.99",
             "--decay-groups", "--brief", "--log", log, "--steps", str(steps), *options)
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        os.remove(log)
        return [(line["loss"], line["norm"]) for line in lines]

    def job(self, each=RANKS, types=("float", "float"), first=1, last=STEPS, **more):
        return dict(more, each=each, types=types, first=first, last=last, place=self.place,
                    tokens=self.tokens, T=self.T, rate=self.rate)


def apart(one, other, what=0):
    assert len(one) == len(other) > 0, (len(one), len(other))
    return max(abs(a[what] / b[what] - 1) for a, b in zip(one, other))


def compare_splits(training, splits):
    """Losses and norms of each split; what it leaves is a model of transformers'."""
    each = {split: RANKS * (1 if options == ["--batch", "1"] or "ddp" in options else 2)
            for split, options in splits.items()}
    numbers = sorted(set(each.values()))
    want = dict(zip(numbers, theirs([training.job(n) for n in numbers])))
    for split, options in splits.items():
        out = training.place + " " + split[:6]
        got = training.here("--export", out, *options)
        say("%s: losses" % split, apart(got, want[each[split]]), LOSS)
        say("%s: norms" % split, apart(got, want[each[split]], 1), NORM)
    say("exported and opened by transformers: greedy tokens", generates_alike(out), 0.0)
    return want[RANKS]


def compare_bf16(training, exact):
    kinds = [("bf16", "float"), ("bf16", "bf16")]
    for kind, want in zip(kinds, theirs([training.job(types=kind) for kind in kinds])):
        got = training.here("--batch", "1", "--dtype", kind[0], "--reduce-dtype", kind[1])
        say("%s reduced in %s: losses' distance from float's, PyTorch's %.1e"
            % (*kind, apart(want, exact)), apart(got, exact), BF16 * apart(want, exact))


def compare_dcp(training):
    """Ten steps here, five in FSDP2, five here; all at one rate, which does not ask how many."""
    checkpoint, there, back = (os.path.join(training.place, name) for name in ("ck", "dcp", "back"))
    middle, end = STEPS // 2, 3 * STEPS // 4
    options = ["--batch", "1", "--schedule", "constant"]
    training.here(*options, "--save", checkpoint, steps=middle)
    dcp("to", checkpoint, there)
    all_there, further = theirs([
        training.job(constant=True),
        training.job(constant=True, first=middle + 1, last=end, load=there, save=there + " 2")])
    say("a checkpoint goes on in FSDP2: losses", apart(further, all_there[middle:end]), RESUMED)
    dcp("from", there + " 2", back, "--sequences", str(RANKS * end))
    got = training.here(*options, "--resume", back)
    say("and comes back: losses", apart(got, all_there[end:]), RESUMED)


def dcp_refuses(training):
    """What is no checkpoint of all of a model, here or there: one line, and nothing is left."""
    source, new = (os.path.join(training.place, name) for name in ("ck", "new"))
    with open(os.path.join(source, "index.json"), encoding="utf-8") as file:
        index = json.load(file)

    def part(folder, first): # a stage's parameters
        shutil.copytree(source, folder)
        params = {name: entry for name, entry in index["parameters"].items()
                  if first == (name.startswith("embed") or name.startswith("h.0."))}
        with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as file:
            json.dump(dict(index, parameters=params), file)

    def cut(folder, source, name):
        shutil.copytree(os.path.join(training.place, source), folder)
        os.truncate(os.path.join(folder, name), 100)

    def other(folder):
        torch.distributed.checkpoint.save({"model": {"bert.weight": torch.zeros(3)}},
                                          checkpoint_id=folder, no_dist=True)

    bad = {"none": ("to", lambda folder: None, "none/index.json"),
           "stage 0": ("to", lambda folder: part(folder, True), "ln_f.bias is missing"),
           "stage 1": ("to", lambda folder: part(folder, False), "embed.wte is missing"),
           "short": ("to", lambda folder: cut(folder, "ck", "rank-1-of-4.safetensors"), "header"),
           "no dcp": ("from", lambda folder: None, "no dcp/.metadata"),
           "short dcp": ("from", lambda folder: cut(folder, "dcp", "__0_0.distcp"), "EOFError"),
           "other": ("from", other, "is it a GPT-2 or a Llama")}
    for name, (direction, make, said) in bad.items():
        folder = os.path.join(training.place, name)
        make(folder)
        done = subprocess.run([sys.executable, "-B", DCP, direction, folder, new],
                              stderr=subprocess.PIPE, text=True, check=False)
        good = done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
        left = glob.glob(glob.escape(new) + "*")
        say("dcp.py refuses: " + said, 0 if good and not left else 1, 0)


def compare_files():
    """Models as their files have them: the loss and the gradients' norm of one step, and what is
    exported after it, bitwise. Then files that no model has."""
    trainings = [Training(name, config, T, 1e-30, dtype)
                 for name, (config, T, dtype) in FILES.items()]
    for training, want in zip(trainings, theirs([t.job(last=1) for t in trainings])):
        out = training.place + " out"
        got = training.here("--batch", "1", "--export", out, steps=1)
        what = os.path.basename(training.place)
        say("%s: loss" % what, apart(got, want), LOSS)
        say("%s: norm" % what, apart(got, want, 1), NORM)
        there, back = (transformers.AutoModelForCausalLM.from_pretrained(
            place, dtype=torch.float32).state_dict() for place in (training.place, out))
        say("%s: exported" % what, sum(not torch.equal(there[k], back[k]) for k in there), 0)
    safetensors.numpy.save_file({"a": numpy.zeros((3, 0, 2)), "b": numpy.arange(7, dtype="u1")},
                                os.path.join(training.place, "model.safetensors"))
    said = subprocess.run([launch, "-n", "1", program, "--from", training.place, "--generate", "1"],
                          stderr=subprocess.PIPE, text=True, check=False).stderr
    say("arrays of other shapes and types are read", "it is of another model" not in said, 0)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    print("torch %s, transformers %s, safetensors %s"
          % (torch.__version__, transformers.__version__, safetensors.__version__))
    if not sys.argv[4:]:
        compare_files()
    for name in sys.argv[4:] or MODELS:
        print("%s, %d steps of AdamW on tokens of a file, clipped, on %d ranks"
              % (name, STEPS, RANKS))
        training = Training(name, *MODELS[name])
        small = training.vocab < 1000
        exact = compare_splits(training, SPLITS if small else {"ZeRO-3": SPLITS["ZeRO-3"]})
        if small:
            compare_bf16(training, exact)
            compare_dcp(training)
        if name == "GPT-2":
            dcp_refuses(training)
    for failure in failures:
        print("failed: " + failure)
    return 1 if failures else 0


if __name__ == "__main__": # not in the processes that the training starts
    sys.exit(main())
