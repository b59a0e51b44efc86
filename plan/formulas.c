/* formulas.c: what a step computes, sends and keeps, without a run: from the model's sizes alone.
 *
 * With R = B·T rows of a micro-batch, C columns, V tokens and L layers, the products of a forward
 * are 2·R·C·12·C per layer and 2·R·C·V for the head; the backward has twice as many. Of W ranks
 * that shard, each keeps 4·⌈n/W⌉ bytes of a unit of n parameters, its gradient, and twice that of
 * Adam's state, in any type. An all-gather or a reduce-scatter of it sends (W - 1) such shards, in
 * the types of the policy. What is unsharded at most: the table of lab 2's handout. A Llama's layers
 * have K columns of keys and F of the feed-forward part: 2·(2·C + 2·K + 3·F)·C in place of 24·C·C.
 *
 * Of activations most live at the end of a forward: all that the layers keep for their backwards.
 *
 * Interface: plan_formulas, plan_block_flops, plan_peak, plan_hbm, plan_type_name, plan_dtype_name.
 */
#include <string.h>

#include "fsdp.h"
#include "plan.h"
#include "time/figures.h"

double plan_peak(const PlanOptions *o)
{
    if (o->dtype != DTYPE_F32) return o->machine->peak[SIM_BF16]; // of fp16, too
    return o->machine->peak[o->tf32 ? SIM_TF32 : SIM_F32];
}

const char *plan_type_name(DType dtype)
{
    static const char *const names[] = {"float", "bf16", "fp16"};
    return names[dtype];
}

const char *plan_dtype_name(const PlanOptions *o)
{
    return o->tf32 ? "tf32" : plan_type_name(o->dtype);
}

double plan_hbm(const SimMachine *machine)
{
    return machine->figures->hbm;
}

// Columns of keys (and of values), and of the feed-forward part.
static uint64_t key_columns(const PlanOptions *o)
{
    const Gpt2Config *m = &o->model;
    return (uint64_t)(o->llama.chosen ? m->dim / m->heads * o->llama.kv_heads : m->dim);
}

static uint64_t hidden_columns(const PlanOptions *o)
{
    return (uint64_t)(o->llama.chosen ? o->llama.hidden : 4 * o->model.dim);
}

uint64_t plan_block_flops(const PlanOptions *o)
{
    uint64_t C = (uint64_t)o->model.dim, products = o->llama.chosen ? 3 : 2;
    return 2 * C * (2 * C + 2 * key_columns(o) + products * hidden_columns(o));
}

// FLOP of a rank's step: in products, and in kernels of attention.
static void count_flops(const PlanOptions *o, PlanFormulas *f)
{
    const Gpt2Config *m = &o->model;
    uint64_t B = (uint64_t)o->micro, T = (uint64_t)o->seq, C = (uint64_t)m->dim, R = B * T,
             L = (uint64_t)m->layers, n = (uint64_t)o->accumulate, H = (uint64_t)m->heads;
    f->products = n * 3 * (L * R * plan_block_flops(o) + 2 * R * C * (uint64_t)m->vocab);
    if (m->attention == ATTENTION_PLAIN) // scores and values; four products in the backward
        f->products += n * L * 12 * R * T * C;
    else
        f->attention =
            n * L * (R * (T + 1) / 2 * (4 * C + 5 * H) + R * (T + 1) / 2 * (10 * C + 8 * H));
    double N = (double)f->parameters, s = (double)T;
    f->useful = (6 * N * s + 12 * (double)L * (double)C * s * s) * (double)o->batch;
}

static uint64_t padded(int64_t numel, int shards)
{
    return (uint64_t)((numel + shards - 1) / shards * shards);
}

// What a unit of n parameters adds; `gathers`: how often its parameters are gathered.
static void add_unit(const PlanOptions *o, PlanFormulas *f, int64_t numel, int shards, int gathers,
                     bool root)
{
    uint64_t reductions = o->reduce_every_time ? (uint64_t)o->accumulate : 1,
             slices = root ? 0 : (uint64_t)o->reshard_ranks; // the backwards gather these
    int64_t shard = (numel + shards - 1) / shards;
    uint64_t kept = 4 * (uint64_t)shard, others = (uint64_t)shards - 1,
             gathered = (uint64_t)(dtype_bytes(o->dtype) * shard),
             reduced = (uint64_t)(dtype_bytes(o->reduce_dtype) * shard);
    f->params += kept;
    f->grads += kept;
    f->state += 2 * kept;
    if (shards == 1) return;
    f->gather_calls += (uint64_t)gathers;
    if (slices > 0) {
        uint64_t slice = gathered * (uint64_t)shards / slices;
        f->gather_sent += (uint64_t)o->accumulate * (others * gathered + (slices - 1) * slice);
        f->slices += slice;
    } else {
        f->gather_sent += (uint64_t)gathers * others * gathered;
    }
    f->scatter_calls += reductions;
    f->scatter_sent += reductions * others * reduced;
    if (o->replicas < 2) return;
    uint64_t replicas = (uint64_t)o->replicas;
    f->reduce_calls += reductions;
    f->reduce_sent += reductions * (2 * (replicas - 1) * reduced / replicas);
}

// Gatherings of a unit in a step: a root that stays unsharded to its backward has one less.
static int gathers_of(const PlanOptions *o, bool root)
{
    switch (o->strategic ? o->strategy : STRATEGY_ZERO3) {
    case STRATEGY_ZERO1: return 1;
    case STRATEGY_ZERO2: return o->accumulate;
    default: return (root ? 1 : 2) * o->accumulate;
    }
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// What is unsharded at most: of P elements, padding and all, R of them the root's, u a block's; 0
// blocks where the model is one unit. One rank has its masters and gradients for it where they are
// floats, and reduces nothing; two blocks are there at a time: one is used, one on its way.
static void count_unsharded(const PlanOptions *o, PlanFormulas *f, int shards, uint64_t R,
                            uint64_t u, int blocks)
{
    bool several = o->accumulate > 1 && !o->reduce_every_time,
         keeps = gathers_of(o, false) < 2 * o->accumulate;
    uint64_t a = (uint64_t)dtype_bytes(o->dtype), two = R + u * (blocks < 2 ? (uint64_t)blocks : 2),
             b = o->gpus > 1 ? (uint64_t)dtype_bytes(o->reduce_dtype) : 4,
             P = R + u * (uint64_t)blocks;
    bool same = o->gpus > 1 ? o->dtype == o->reduce_dtype : a == 4;
    if (shards > 1 || a < 4) f->most_params = a * (keeps ? P : two);
    if (o->gpus == 1)
        f->most_grads = same ? 0 : a * (R + u);
    else if (same)
        f->most_grads = b * (several ? P : two);
    else if (several)
        f->most_grads = b * P + a * (R + u);
    else
        f->most_grads = a * R + larger((a + b) * u, b * R);
}

// What the layers of a micro-batch keep: outputs that are another layer's input, in the type of the
// modules; statistics of normalisations and of softmax, in floats; of GPT-2's feed-forward part the
// product before the GELU, too; of plain attention its weights. Logits are floats, and where the
// modules are not, there are those of the head as well.
static uint64_t count_activations(const PlanOptions *o)
{
    const Gpt2Config *m = &o->model;
    uint64_t T = (uint64_t)o->seq, R = (uint64_t)o->micro * T, C = (uint64_t)m->dim,
             H = (uint64_t)m->heads, F = hidden_columns(o), V = (uint64_t)m->vocab,
             a = (uint64_t)dtype_bytes(o->dtype), norm = o->llama.chosen ? 1 : 2,
             L = (uint64_t)m->layers;
    bool plain = m->attention == ATTENTION_PLAIN;
    uint64_t wide = o->llama.chosen ? 3 * F : 2 * F; // gate, up and their product; before and after
    uint64_t columns = 6 * C + 2 * key_columns(o) + wide + (plain ? H * T : 0);
    uint64_t floats = 2 * norm + (plain ? 0 : 2 * H);
    uint64_t blocks = L * R * (a * columns + 4 * floats);
    return blocks + R * (a * 2 * C + 4 * norm) + R * V * (a == 4 ? 4 : a + 4);
}

PlanFormulas plan_formulas(const PlanOptions *o, const Module *model)
{
    PlanFormulas f = {.parameters = (uint64_t)meta_count(model)};
    bool ddp = o->strategic && o->strategy == STRATEGY_DDP;
    int shards = ddp ? 1 : o->gpus / o->replicas;
    int64_t rest = (int64_t)f.parameters, block = 0;
    int blocks = 0;
    for (int i = 0; i < model->n_children && !ddp; i++) {
        if (strncmp(model->children[i]->name, "h.", 2) != 0) continue;
        int64_t numel = meta_count(model->children[i]);
        add_unit(o, &f, numel, shards, gathers_of(o, false), false);
        rest -= numel;
        block = numel;
        blocks++;
    }
    add_unit(o, &f, rest, shards, gathers_of(o, true), true);
    count_unsharded(o, &f, shards, padded(rest, shards), padded(block, shards), blocks);
    count_flops(o, &f);
    f.activations = count_activations(o);
    return f;
}
