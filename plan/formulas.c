/* formulas.c: what a step computes, sends and keeps, from the model's sizes alone, without a run.
 *
 * With R = B·T rows of a micro-batch, C columns, V tokens and L layers, the products of a forward
 * are 2·R·C·12·C per layer and 2·R·C·V for the head; the backward has twice as many. With W ranks
 * that shard, each keeps 4·⌈n/W⌉ bytes of a unit of n parameters, as much of its gradient, and
 * twice that of Adam's state, in any type. An all-gather or a reduce-scatter of the unit sends
 * (W - 1) such shards, in the types of the policy. The table of lab 2's handout has the most that
 * is unsharded. A Llama's layers have K columns of keys and F of the feed-forward part:
 * 2·(2·C + 2·K + 3·F)·C in place of 24·C·C.
 *
 * Most activations live at the end of a forward: all that the layers keep for their backwards.
 *
 * Each of p stages has some of the blocks, the first the embedding, the last the head, and f
 * micro-batches in flight. A recomputed block has one more forward and keeps only its input. Cut by
 * parameter, each parameter is padded by rows, and gathered or reduced elements are copied;
 * gathered in FP8, a matrix has one byte per element on its way.
 */
#include "fsdp.h"
#include "machine/figures.h"
#include "plan.h"

double plan_peak(const PlanOptions *o)
{
    if (o->dtype != DTYPE_F32) return o->machine->peak[SIM_BF16]; // fp16's, too
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

// The size of a stage: blocks, micro-batches in flight; elements of its root and of a block's unit,
// with padding.
typedef struct Stage {
    const PlanOptions *o;
    PlanParts parts;
    int shards;
    uint64_t layers, flying, R, u;
    uint64_t R_sent, u_sent; // bytes of those, gathered
    bool first, last;
} Stage;

static uint64_t several(const Stage *s)
{
    return s->o->accumulate > 1 && !s->o->reduce_every_time;
}

// The blocks, or attentions, that recompute.
static uint64_t again(const Stage *s, RecomputeKind kind)
{
    if (kind == RECOMPUTE_NONE || s->o->recompute != kind) return 0;
    return s->layers / (uint64_t)s->o->recompute_every;
}

// FLOP of a rank's step, in products and in attention kernels. Recomputation repeats a forward of
// blocks, or the scores of plain attention.
static void count_flops(const Stage *s, PlanFormulas *f)
{
    const PlanOptions *o = s->o;
    const Gpt2Config *m = &o->model;
    uint64_t T = (uint64_t)o->seq, C = (uint64_t)m->dim, R = (uint64_t)o->micro * T, L = s->layers,
             n = (uint64_t)o->accumulate, H = (uint64_t)m->heads,
             forwards = L + again(s, RECOMPUTE_BLOCKS);
    f->products = n * ((2 * L + forwards) * R * plan_block_flops(o) +
                       (s->last ? 3 * 2 * R * C * (uint64_t)m->vocab : 0));
    if (m->attention == ATTENTION_PLAIN) // scores and values; four products in the backward
        f->products += n * (8 * L + 4 * forwards + 2 * again(s, RECOMPUTE_ATTENTION)) * R * T * C;
    else
        f->attention = n * R * (T + 1) / 2 * (forwards * (4 * C + 5 * H) + L * (10 * C + 8 * H));
}

// All-gathers of a unit per step: a root that stays unsharded until its backward has one less. In a
// pipeline a strategy keeps unsharded parameters to the end of the step.
static int gathers_of(const PlanOptions *o, bool root)
{
    switch (o->strategic ? o->strategy : STRATEGY_ZERO3) {
    case STRATEGY_ZERO1: return 1;
    case STRATEGY_ZERO2: return o->stages > 1 ? 1 : o->accumulate;
    default: return (root ? 1 : 2) * o->accumulate;
    }
}

// Bytes of a rank's shard of a unit that the rank sends. In FP8 an element of a matrix has one
// byte; these come after the other elements, padded to a multiple of those elements' bytes.
static uint64_t part_of(const PlanOptions *o, const PlanUnitSize *unit)
{
    uint64_t a = (uint64_t)dtype_bytes(o->dtype), n = (uint64_t)unit->shard,
             codes = o->fp8 ? (uint64_t)unit->codes : 0, others = n - codes;
    return others > 0 ? a * others + (codes + a - 1) / a * a : codes;
}

// Copies on the GPU: into place after a gather, except where FP8 has kernels, and together before a
// reduction. One rank also gathers in FP8, and from the host.
static void add_copies(const Stage *s, PlanFormulas *f, const PlanUnitSize *unit, uint64_t gathers,
                       uint64_t reductions)
{
    const PlanOptions *o = s->o;
    uint64_t shards = (uint64_t)s->shards, n = (uint64_t)unit->params, own = (uint64_t)unit->shard,
             out = n - (o->fp8 ? (uint64_t)unit->matrices : 0),
             copied = own - (o->fp8 ? (uint64_t)unit->codes : 0),
             a = (uint64_t)dtype_bytes(o->dtype), b = (uint64_t)dtype_bytes(o->reduce_dtype);
    if (shards == 1 && o->offload && o->dtype == DTYPE_F32) {
        f->copies += gathers;
        f->copied += 4 * gathers * own;
    }
    if (o->per_parameter && (shards > 1 || o->fp8)) {
        f->copies += gathers * out;
        f->copied += gathers * shards * a * copied;
    }
    if (o->per_parameter && shards > 1) {
        f->copies += reductions * n;
        f->copied += reductions * shards * b * own;
    }
}

// Adds a unit.
static void add_unit(const Stage *s, PlanFormulas *f, const PlanUnitSize *unit, bool root)
{
    const PlanOptions *o = s->o;
    uint64_t reductions = o->reduce_every_time ? (uint64_t)o->accumulate : 1,
             slices = root ? 0 : (uint64_t)o->reshard_ranks, // the backwards gather these
        gathers = (uint64_t)gathers_of(o, root), shards = (uint64_t)s->shards,
             shard = (uint64_t)unit->shard, others = shards - 1, gathered = part_of(o, unit),
             reduced = (uint64_t)dtype_bytes(o->reduce_dtype) * shard;
    f->params += 4 * shard;
    f->grads += 4 * shard;
    f->state += 8 * shard;
    add_copies(s, f, unit, gathers, reductions);
    uint64_t replicas = (uint64_t)(plan_places(o) / s->shards);
    f->reduce_sent += reductions * (2 * (replicas - 1) * reduced / replicas);
    if (shards == 1) return;
    f->gather_calls += gathers;
    if (slices > 0) {
        uint64_t slice = gathered * shards / slices;
        f->gather_sent += (uint64_t)o->accumulate * (others * gathered + (slices - 1) * slice);
        f->slices += slice;
        f->copies += (uint64_t)o->accumulate; // a rank's own slice
        f->copied += (uint64_t)o->accumulate * slice;
    } else {
        f->gather_sent += gathers * others * gathered;
    }
    f->scatter_calls += reductions;
    f->scatter_sent += reductions * others * reduced;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// The most bytes of unsharded parameters, gather buffers included. One unit is in use; as many as
// are prefetched, at least one, are on their way. A unit that is copied out has two buffers until
// the next one is copied.
static uint64_t most_params(const Stage *s)
{
    const PlanOptions *o = s->o;
    uint64_t blocks = (uint64_t)s->parts.blocks, a = (uint64_t)dtype_bytes(o->dtype),
             ahead = o->prefetches && o->prefetch > 1 ? (uint64_t)o->prefetch : 1, R = a * s->R,
             u = a * s->u;
    bool keeps = o->strategic && o->strategy != STRATEGY_ZERO3;
    if (!o->per_parameter || (s->shards == 1 && !o->fp8))
        return R + u * (keeps || ahead + 1 > blocks ? blocks : ahead + 1);
    if (blocks == 0) return R + s->R_sent;
    if (ahead > blocks) ahead = blocks;
    uint64_t begin = s->R_sent + ahead * s->u_sent; // the root is copied out
    if (keeps) return R + larger(begin, blocks * u + s->u_sent);
    // The block in use, copied, and those on their way; at most all blocks are there.
    uint64_t there = ahead + 1 > blocks ? blocks : ahead + 1;
    return R + larger(begin, u + there * s->u_sent);
}

// The most bytes of unsharded gradients. One rank has masters, with gradients for them if they are
// floats, and reduces nothing. Gradients that are copied in for a reduction have two buffers then.
static uint64_t most_grads(const Stage *s)
{
    const PlanOptions *o = s->o;
    int places = plan_places(o);
    uint64_t a = (uint64_t)dtype_bytes(o->dtype), blocks = (uint64_t)s->parts.blocks,
             b = places > 1 ? (uint64_t)dtype_bytes(o->reduce_dtype) : 4, R = s->R, u = s->u,
             P = R + u * blocks, two = R + u * (blocks < 2 ? blocks : 2);
    bool same = places > 1 ? o->dtype == o->reduce_dtype : a == 4,
         copies = o->per_parameter && s->shards > 1;
    if (places == 1) return same ? 0 : a * (R + u);
    if (same && copies) return b * larger(several(s) ? P + (blocks > 0 ? u : R) : R + 2 * u, 2 * R);
    if (same) return b * (several(s) ? P : two);
    if (copies && several(s))
        return larger(b * P + a * R + larger(a, b) * u, (blocks > 0 ? 0 : b * P) + 2 * b * R);
    if (copies) return larger(a * R + larger(a + b, 2 * b) * u, larger(a + b, 2 * b) * R);
    if (several(s)) return b * P + a * (R + u);
    return a * R + larger((a + b) * u, b * R);
}

// What the layers of a micro-batch keep: outputs that are another layer's input, in the modules'
// type; statistics of normalisations and of softmax, in floats; in GPT-2's feed-forward part also
// the product before the GELU; in plain attention its weights. Logits are floats; if the modules
// are not, the head's own logits are kept as well. Recomputed values live for one block at a time,
// when the last normalisation and the head's logits are gone.
static uint64_t count_activations(const Stage *s)
{
    const PlanOptions *o = s->o;
    const Gpt2Config *m = &o->model;
    uint64_t T = (uint64_t)o->seq, R = (uint64_t)o->micro * T, C = (uint64_t)m->dim,
             H = (uint64_t)m->heads, F = hidden_columns(o), V = (uint64_t)m->vocab, L = s->layers,
             a = (uint64_t)dtype_bytes(o->dtype), norm = o->llama.chosen ? 1 : 2;
    bool plain = m->attention == ATTENTION_PLAIN;
    uint64_t wide = o->llama.chosen ? 3 * F : 2 * F; // gate, up and their product; before and after
    uint64_t out = R * a * C, weights = plain ? R * a * H * T : 0,
             floats = 2 * norm + (plain ? 0 : 2 * H);
    uint64_t block = R * (a * (5 * C + 2 * key_columns(o) + wide) + 4 * floats) + weights;
    // Freed when the backward of the last block begins.
    uint64_t ends = s->last ? R * (a * C + 4 * norm) + (a < 4 ? R * V * a : 0) : 0;
    uint64_t outs = (L + 1) * out, logits = s->last && !o->fused_loss ? R * V * 4 : 0;
    uint64_t kept = outs + ends + logits, k = again(s, o->recompute);
    bool last = k > 0 && L % (uint64_t)o->recompute_every == 0; // the last block recomputes
    if (o->recompute == RECOMPUTE_ATTENTION) {
        // The last block's backward has its weights again; its feed-forward part is done.
        uint64_t all = kept + L * block - k * weights,
                 back = all - ends - (block - weights) + R * (6 * a * C + 8) + weights;
        return (s->flying - 1) * all + (last ? larger(all, back) : all);
    }
    kept += (L - k) * block;
    return s->flying * kept + (last && block > ends ? block - ends : 0);
}

// For a pipeline's first place: n messages in each direction, and what two stages share.
static void count_messages(const Stage *s, PlanFormulas *f)
{
    const PlanOptions *o = s->o;
    uint64_t M = (uint64_t)o->micro * (uint64_t)o->seq * (uint64_t)o->model.dim *
                 (uint64_t)dtype_bytes(o->dtype),
             n = (uint64_t)o->accumulate * ((uint64_t)!s->first + (uint64_t)!s->last);
    f->sent_messages = n * M;
    if (o->llama.chosen || o->stages == 1 || !(s->first || s->last)) return;
    uint64_t C = (uint64_t)o->model.dim, V = (uint64_t)o->model.vocab, shards = (uint64_t)s->shards;
    uint64_t at = s->first || o->per_parameter ? 0 : 2 * C; // where wte begins
    uint64_t own = o->per_parameter ? (V + shards - 1) / shards * C : s->R / shards;
    own = own < at ? 0 : own - at;
    f->sent_messages += 4 * (own < V * C ? own : V * C);
}

// Shards in host memory: the device has copies of two at a time, of parameters and of gradients.
// One rank's unsharded floats are no collective's buffer: the log counts them as temporary.
static void move_to_host(const Stage *s, PlanFormulas *f)
{
    uint64_t shards = (uint64_t)s->shards;
    f->params = f->grads = f->state = 0;
    // Of two different units; sharded, too.
    f->slices = 4 * (s->u + larger(s->R, s->parts.blocks > 1 ? s->u : 0)) / shards;
}

PlanFormulas plan_formulas(const PlanOptions *o, const Module *stage, int number)
{
    PlanFormulas f = {.parameters = (uint64_t)meta_count(stage)};
    bool ddp = o->strategic && o->strategy == STRATEGY_DDP;
    int first = 0, last = o->model.layers;
    if (o->stages > 1)
        IGNORE_STATUS(pipeline_blocks(o->model.layers, o->stages, number, &first, &last));
    Stage s = {.o = o,
               .parts = plan_parts(o, stage),
               .shards = ddp ? 1 : plan_places(o) / o->replicas,
               .layers = (uint64_t)(last - first),
               .flying = 1,
               .first = number == 0,
               .last = number == o->stages - 1};
    if (o->stages > 1)
        s.flying = (uint64_t)pipeline_in_flight(o->schedule, number, o->stages, o->accumulate);
    s.R = (uint64_t)(s.parts.root.shard * s.shards);
    s.u = (uint64_t)(s.parts.block.shard * s.shards);
    s.R_sent = (uint64_t)s.shards * part_of(o, &s.parts.root);
    s.u_sent = (uint64_t)s.shards * part_of(o, &s.parts.block);
    for (int i = 0; i < s.parts.blocks; i++) add_unit(&s, &f, &s.parts.block, false);
    add_unit(&s, &f, &s.parts.root, true);
    if (s.shards > 1 || o->dtype != DTYPE_F32 || o->fp8) f.most_params = most_params(&s);
    f.most_grads = most_grads(&s);
    count_flops(&s, &f);
    f.activations = count_activations(&s);
    count_messages(&s, &f);
    if (o->offload) move_to_host(&s, &f);
    return f;
}

double plan_useful(const PlanOptions *o, uint64_t parameters, bool full_attention)
{
    const Gpt2Config *m = &o->model;
    double s = (double)o->seq;
    double seen = full_attention ? s : (s + 1) / 2; // tokens that each token sees
    return (6 * (double)parameters + 12 * (double)m->layers * (double)m->dim * seen) * s *
           (double)o->batch;
}
