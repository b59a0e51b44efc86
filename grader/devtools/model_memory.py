"""Memory of torchtitan's runs of Llamas against dry runs, by term: a part of check_model.py.

The kit cannot run these as they were: torchtitan's policy keeps some products' results within a
block that runs again, and its loss frees what the kit holds. So a dry run without recomputation is
taken at its peak, the backward of the head, and each difference there is a term, computed from the
policy and the shapes. One of the terms, that the head's logits are deleted, was looked for in
torchtitan's code after these rows had been seen: with it they agree, but that predicts none of
them. So each row is printed without it, too. Published are live bytes of two runs, and reserved
ones of all: what the allocator holds. Of a run whose live bytes are not known the latter are
estimated by
the run with the same policy. Nothing is fitted to the run that is estimated. What a compiled block
keeps was derived with the compiled row of 8 GPUs in view; those of 128 were read afterwards.

Interface: check(plan, rows) -> how many are off by more than MOST; terms(row).
"""

MOST = 0.05
GIB = 1 << 30
LLAMAS = {"llama2-7b": (32, 32, 4096, 4096, 11008, 32000), # layers, heads, columns, of keys, of
          "llama3-8b": (32, 32, 4096, 1024, 14336, 128256)} # the feed-forward part, tokens


def terms(row):
    """Bytes in which torchtitan's run differs from the plan without recomputation, both in the
    head's backward, by name."""
    layers, heads, C, K, F, V = LLAMAS[row["model"]]
    tokens = row["micro_batch"] * row["seq"]
    # What the kit's block keeps in addition to its output (plan/formulas.c).
    block = tokens * (2 * (5 * C + 2 * K + 3 * F) + 4 * (2 + 2 * heads))
    # Of a block torchtitan's policy "op" keeps what every second product makes (of queries, of
    # values, the gate's, the last one's) and attention's result; "full" keeps nothing.
    kept = 2 * tokens * (3 * C + K + F) if row["policy"] == "selective-op" else 0
    # The head's logits, not yet floats: torchtitan deletes them before the backward.
    # In a compiled block what a backward does not use is not kept, whatever the policy says:
    # PyTorch takes it off the list of saved values (_extract_fwd_bwd_modules). Of the above that is
    # what the last product makes, which is only added to the block's input. The cache of a policy
    # that is not compiled keeps it.
    unused = 2 * tokens * C if kept > 0 and row["compiled"] == "yes" else 0
    return {"blocks run again": -layers * block, "kept by the policy": layers * kept,
            "and not used": -layers * unused,
            "logits deleted": -2 * tokens * V,
            # The kit's loss writes the gradient over its floats; PyTorch's has an array for each.
            "a gradient apart": 4 * tokens * V}


def settings_of(row):
    return ["MODEL=" + row["model"], "GPUS=%d" % row["gpus"], "SEQ=%d" % row["seq"],
            "BATCH=%d" % (row["micro_batch"] * row["gpus"]), "DTYPE=bf16", "STRATEGY=zero3",
            "LAYOUT=per_parameter"]


def peak(plan, row, kind):
    ranks = plan(settings_of(row) + ["RECOMPUTE=" + kind])["ranks"]
    return max(rank["peak"] for rank in ranks) / GIB


def check(plan, rows):
    wrong, reserve = 0, {}
    print("Memory of Llamas (torchtitan, FSDP2), in GiB: dry runs without recomputation\n"
          "and with all blocks again; and the first, with the terms in which torchtitan differs. "
          "That\n"
          "logits are deleted was looked for with these rows in view: they are no test of it")
    for row in rows:
        own, parts = peak(plan, row, "no"), terms(row)
        live, reserved = own + sum(parts.values()) / GIB, float(row["reserved_gib"])
        with_logits = live - parts["logits deleted"] / GIB
        print("  %s on %s GPUs, %d sequences of %d, %s%s: %.1f and %.1f" % (
            row["model"], row["gpus"], row["micro_batch"], row["seq"], row["policy"],
            ", compiled" if row["compiled"] == "yes" else "", own, peak(plan, row, "blocks")))
        print("    %s: %.1f live" % (", ".join("%s %+.1f" % (name, value / GIB)
                                               for name, value in parts.items()), live))
        if row["live_gib"]:
            published = float(row["live_gib"])
            reserve[row["policy"]] = reserved / published
            off, without = live / published - 1, with_logits / published - 1
            print("    published: %.2f live (%+.1f %%; with the logits %+.1f %%), %.2f reserved "
                  "(%.2f times as much)" % (published, 100 * off, 100 * without, reserved,
                                            reserve[row["policy"]]))
        else:
            times = reserve[row["policy"]]
            off, without = times * live / reserved - 1, times * with_logits / reserved - 1
            print("    times %.2f: %.1f reserved; published: %.1f (%+.1f %%; with the logits "
                  "%+.1f %%; without the factor %+.1f %%)" % (
                      times, times * live, reserved, 100 * off, 100 * without,
                      100 * (live / reserved - 1)))
        wrong += abs(off) > MOST
    return wrong
