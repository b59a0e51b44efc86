/* formulas.c: what a step computes, sends and keeps, without a run: from the model's sizes alone.
 *
 * With R = B·T rows of a micro-batch, C columns, V tokens and L layers, the products of a forward
 * are 2·R·C·12·C per layer and 2·R·C·V for the head; the backward has twice as many. Of W ranks
 * that shard, each keeps 4·⌈n/W⌉ bytes of a unit of n parameters, its gradient, and twice that of
 * Adam's state. An all-gather or a reduce-scatter of it sends (W - 1) such shards.
 *
 * Interface: plan_formulas, plan_peak, plan_hbm.
 */
#include <string.h>

#include "fsdp.h"
#include "plan.h"
#include "time/figures.h"

double plan_peak(const PlanOptions *o)
{
    return o->machine->peak[o->tf32 ? SIM_TF32 : SIM_F32];
}

double plan_hbm(const SimMachine *machine)
{
    return machine->figures->hbm;
}

// FLOP of a rank's step: in products, and in kernels of attention.
static void count_flops(const PlanOptions *o, PlanFormulas *f)
{
    const Gpt2Config *m = &o->model;
    uint64_t B = (uint64_t)o->micro, T = (uint64_t)o->seq, C = (uint64_t)m->dim, R = B * T,
             L = (uint64_t)m->layers, n = (uint64_t)o->accumulate, H = (uint64_t)m->heads;
    f->products = n * 3 * (L * 24 * R * C * C + 2 * R * C * (uint64_t)m->vocab);
    if (m->attention == ATTENTION_PLAIN) // scores and values; four products in the backward
        f->products += n * L * 12 * R * T * C;
    else
        f->attention =
            n * L * (R * (T + 1) / 2 * (4 * C + 5 * H) + R * (T + 1) / 2 * (10 * C + 8 * H));
    double N = (double)f->parameters, s = (double)T;
    f->useful = (6 * N * s + 12 * (double)L * (double)C * s * s) * (double)o->batch;
}

// What a unit of n parameters adds; `forwards`: how often its parameters are gathered.
static void add_unit(const PlanOptions *o, PlanFormulas *f, int64_t numel, int shards, int gathers)
{
    int64_t shard = (numel + shards - 1) / shards;
    uint64_t kept = 4 * (uint64_t)shard, others = (uint64_t)shards - 1;
    f->params += kept;
    f->grads += kept;
    f->state += 2 * kept;
    if (shards == 1) return;
    f->gather_calls += (uint64_t)gathers;
    f->gather_sent += (uint64_t)gathers * others * kept;
    f->scatter_calls++;
    f->scatter_sent += others * kept;
    if (o->replicas < 2) return;
    uint64_t replicas = (uint64_t)o->replicas;
    f->reduce_calls++;
    f->reduce_sent += 2 * (replicas - 1) * kept / replicas;
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

PlanFormulas plan_formulas(const PlanOptions *o, const Module *model)
{
    PlanFormulas f = {.parameters = (uint64_t)meta_count(model)};
    bool ddp = o->strategic && o->strategy == STRATEGY_DDP;
    int shards = ddp ? 1 : o->gpus / o->replicas;
    int64_t rest = (int64_t)f.parameters;
    for (int i = 0; i < model->n_children && !ddp; i++) {
        if (strncmp(model->children[i]->name, "h.", 2) != 0) continue;
        int64_t numel = meta_count(model->children[i]);
        add_unit(o, &f, numel, shards, gathers_of(o, false));
        rest -= numel;
    }
    add_unit(o, &f, rest, shards, gathers_of(o, true));
    count_flops(o, &f);
    return f;
}
