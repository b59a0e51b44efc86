#!/usr/bin/env python3
"""A checkpoint of train_gpt2 as torch's distributed checkpoint (DCP), and back.

    dcp.py to   CHECKPOINT NEW
    dcp.py from DCP NEW [--sequences N] [--seed N]

A folder of DCP's has {"model": …, "optim": {"state": …}} as get_state_dict makes it of a model of
transformers' and its AdamW: their names and layouts; exp_avg, exp_avg_sq, step of each parameter.
What the optimizer is told (rate, betas, groups) is the program's, there as here. handouts/train.md
has the lines that load and save it under FSDP2. The way back makes a checkpoint that any number of
ranks resumes. --sequences and --seed are where it is in its data: how many sequences all ranks had
drawn (0), and the --seed of the run (42).

It needs torch and safetensors: build/pytorch/bin/python3 has them (`make compare-pytorch`).
Exit status 0; 2, with one line, for bad input. NEW is complete, or not there.
"""

import argparse
import json
import os
import re
import shutil
import sys
import warnings

# The standard library has a module of a neighbour's name, tokenize.py.
sys.path[:] = sys.path[1:]

BOTH = ("weight", "bias")
# Ours, and theirs whose rows it has; N: a block's number.
GPT2 = {"embed.wte": ["transformer.wte.weight"], "embed.wpe": ["transformer.wpe.weight"],
        **{"ln_f." + end: ["transformer.ln_f." + end] for end in BOTH},
        **{"h.N.%s.%s" % (ours, end): ["transformer.h.N.%s.%s" % (theirs, end)]
           for ours, theirs in (("ln_1", "ln_1"), ("ln_2", "ln_2"), ("attn.qkv", "attn.c_attn"),
                                ("attn.proj", "attn.c_proj"), ("mlp.fc", "mlp.c_fc"),
                                ("mlp.proj", "mlp.c_proj")) for end in BOTH}}
LLAMA = {"embed.wte": ["model.embed_tokens.weight"], "norm_f.weight": ["model.norm.weight"],
         "head.weight": ["lm_head.weight"],
         **{"h.N.%s.weight" % ours: ["model.layers.N.%s.weight" % name for name in theirs.split()]
            for ours, theirs in (("norm_1", "input_layernorm"),
                                 ("norm_2", "post_attention_layernorm"),
                                 ("attn.qkv", "self_attn.q_proj self_attn.k_proj self_attn.v_proj"),
                                 ("attn.proj", "self_attn.o_proj"),
                                 ("mlp.gate_up", "mlp.gate_proj mlp.up_proj"),
                                 ("mlp.down", "mlp.down_proj"))}}
HEAD = "lm_head.weight" # tied, a state dict has it in addition to the embedding, and we do not
MOMENTS = {".adamw.m": "exp_avg", ".adamw.v": "exp_avg_sq"}


class Trouble(Exception):
    """What is wrong with the input, in a line."""


def is_turned(ours, table):
    """Conv1D of transformers' GPT-2 has (in, out)."""
    return table is GPT2 and re.match(r"h\.\d+\.(attn|mlp).*weight$", ours) is not None


def key_of(theirs, moment):
    return "model." + theirs if moment is None else "optim.state.%s.%s" % (theirs, moment)


def convert_to(options):
    with open(os.path.join(options.folder, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    params, state, n = index["parameters"], {}, index["files"]
    table = GPT2 if "embed.wpe" in params else LLAMA
    blocks = {int(block) for name in params for block in re.findall(r"^h\.(\d+)\.", name)}
    want = {name.replace("N", str(i)) for name in table for i in range(max(blocks, default=0) + 1)}
    for name in sorted((set(params) ^ want) - {"head.weight"}): # of a Llama that is not tied
        raise Trouble("%s: %s is %s a GPT-2 or a Llama" % (
            options.folder, name, "missing: this is not all of" if name in want else "not of"))
    files = [safetensors.safe_open(
        os.path.join(options.folder, "rank-%d-of-%d.safetensors" % (i, n)), framework="pt")
             for i in range(n)]
    for ours, entry in params.items():
        block = "".join(re.findall(r"(?<=^h\.)\d+", ours))
        pattern = re.sub(r"^h\.\d+", "h.N", ours)
        names = [name.replace("N", block) for name in table[pattern]]
        trains = index["adamw"] is not None and not entry.get("frozen")
        for part, moment in {"": None, **(MOMENTS if trains else {})}.items():
            tensor = torch.cat([files[i].get_tensor(ours + part) for i, _, _ in entry["slices"]])
            tensor = tensor.reshape(entry["shape"])
            tensor = tensor.t() if is_turned(ours, table) else tensor
            rows, kv = len(tensor), (len(tensor) - tensor.shape[-1]) // 2
            sizes = ([rows], [rows // 2] * 2, [rows - 2 * kv, kv, kv])[len(names) - 1]
            for theirs, rows in zip(names, tensor.split(sizes)):
                state[key_of(theirs, moment)] = rows.contiguous()
                if moment is not None:
                    state[key_of(theirs, "step")] = torch.tensor(float(index["adamw"]["t"]))
    state.setdefault(key_of(HEAD, None), state[key_of(table["embed.wte"][0], None)])
    checkpoint.save(state, checkpoint_id=options.tmp, no_dist=True)


def convert_from(options):
    reader = checkpoint.FileSystemReader(options.folder)
    state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)
             for name, entry in reader.read_metadata().state_dict_metadata.items()
             if hasattr(entry, "size") and re.match(r"model\.|optim\.state\.", name)}
    checkpoint.load(state, storage_reader=reader, no_dist=True)
    steps = {float(state.pop(name)) for name in list(state) if name.endswith(".step")}
    if len(steps) > 1:
        raise Trouble("%s: its parameters have done %s steps" % (options.folder, sorted(steps)))
    table = GPT2 if "model.transformer.wpe.weight" in state else LLAMA
    tied = bool(steps) and key_of(HEAD, "exp_avg") not in state
    numbers = {int(n) for name in state for n in re.findall(r"(?<=\.)\d+(?=\.)", name)}
    tensors, params = {}, {}

    def take(ours, theirs, part, moment):
        found = [state.pop(key_of(name, moment), None) for name in theirs]
        if moment is not None and all(tensor is None for tensor in found):
            return False
        if any(tensor is None for tensor in found):
            raise Trouble("%s: it has no %s: is it a GPT-2 or a Llama of transformers'?"
                          % (options.folder, key_of(theirs[found.index(None)], moment)))
        tensor = torch.cat([tensor.float() for tensor in found])
        tensor = tensor.t().contiguous() if is_turned(ours, table) else tensor
        tensors[ours + part] = tensor.flatten()
        params.setdefault(ours, {"shape": list(tensor.shape), "slices": [[0, 0, tensor.numel()]]})
        return True

    if tied or table is GPT2:
        state.pop(key_of(HEAD, None), None)
    for pattern, names in table.items():
        if tied and names == [HEAD]:
            continue
        for n in sorted(numbers) if "N" in pattern else [""]:
            ours, theirs = pattern.replace("N", str(n)), [s.replace("N", str(n)) for s in names]
            take(ours, theirs, "", None)
            moments = [take(ours, theirs, part, name) for part, name in MOMENTS.items()]
            if steps and not any(moments):
                params[ours]["frozen"] = True
    if state:
        raise Trouble("%s: %s is not of a GPT-2 or Llama" % (options.folder, min(state)))
    step = int(max(steps, default=0))
    os.mkdir(options.tmp)
    safetensors.torch.save_file(tensors, os.path.join(options.tmp, "rank-0-of-1.safetensors"),
                                {"part": "0 of 1", "step": str(step)})
    position = {"step": step, "data_seed": str(options.seed), "sequences": options.sequences}
    with open(os.path.join(options.tmp, "index.json"), "w", encoding="utf-8") as file:
        json.dump({"format": "shardlab checkpoint", "version": 1, "files": 1, "parameters": params,
                   "adamw": {"t": step} if steps else None, "position": position}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=("to", "from"))
    parser.add_argument("folder")
    parser.add_argument("new")
    parser.add_argument("--sequences", type=int, default=0)
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    options.tmp = options.new.rstrip("/") + ".tmp"
    try:
        if os.path.exists(options.new):
            raise Trouble("%s: it is there already: name another folder" % options.new)
        shutil.rmtree(options.tmp, ignore_errors=True)
        (convert_to if options.direction == "to" else convert_from)(options)
        os.rename(options.tmp, options.new)
    except Trouble as trouble:
        problem = str(trouble)
    except (Exception, checkpoint.CheckpointException) as error: # which is no Exception
        causes = [failure[0] for failure in getattr(error, "failures", {}).values()] or [error]
        problem = "%s: cannot be converted: %s" % (
            options.folder, causes[0] if isinstance(causes[0], OSError) else repr(causes[0]))
    else:
        return 0
    shutil.rmtree(options.tmp, ignore_errors=True)
    print("dcp.py: " + " ".join(problem.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    warnings.simplefilter("ignore") # of torch's: there is one process
    try:
        import safetensors.torch
        import torch
        from torch.distributed import checkpoint
    except ImportError as missing:
        print("dcp.py: %s: run it with a Python that has torch and safetensors, such as "
              "build/pytorch/bin/python3 (make compare-pytorch)" % missing, file=sys.stderr)
        sys.exit(2)
    sys.exit(main())
