/* options.c: reads the settings and reports invalid ones. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

int plan_places(const PlanOptions *o)
{
    return o->gpus / o->stages;
}

// A Llama has fewer heads of keys, and its own size of the feed-forward part.
static Status read_llama(const PlanValues value, PlanOptions *o)
{
    LlamaOptions *llama = &o->llama;
    if (!llama->chosen && !value[KV_HEADS] && !value[HIDDEN]) return OK;
    if (!llama->chosen && (value[MODEL] || !value[KV_HEADS] || !value[HIDDEN]))
        return plan_refuse(
            "KV_HEADS and HIDDEN are for a Llama: llama3-8b and others, or both with "
            "LAYERS, HEADS and DIM");
    TRY(plan_number(value, KV_HEADS, llama->kv_heads, &llama->kv_heads));
    TRY(plan_number(value, HIDDEN, llama->hidden, &llama->hidden));
    llama->chosen = true;
    if (o->model.heads % llama->kv_heads != 0)
        return plan_refuse("KV_HEADS=%d does not divide HEADS=%d", llama->kv_heads, o->model.heads);
    if (o->model.dim / o->model.heads % 2 != 0)
        return plan_refuse("a Llama's heads have pairs of columns, not %d",
                           o->model.dim / o->model.heads);
    if (value[ATTENTION] && strcmp(value[ATTENTION], "plain") == 0)
        return plan_refuse("ATTENTION=%.40s: a Llama's is always fused", value[ATTENTION]);
    return OK;
}

static Status read_model(const PlanValues value, PlanOptions *o)
{
    const char *name = value[MODEL];
    char known[400];
    bool own = value[LAYERS] || value[HEADS] || value[DIM];
    o->model = (Gpt2Config){.vocab = 50257};
    if (value[CONFIG] && name)
        return plan_refuse("MODEL=%.40s and CONFIG=%.200s: one of them", name, value[CONFIG]);
    TRY(plan_number(value, SEQ, 0, &o->seq));
    if (value[CONFIG])
        TRY(plan_read_config(value[CONFIG], o));
    else if (!name && !own)
        name = "gpt2";
    if (name && !plan_model(name, &o->model, &o->llama)) {
        plan_model_names(known, sizeof known);
        return plan_refuse("MODEL=%.40s is not known; there are %s, or give LAYERS, "
                           "HEADS, DIM and VOCAB",
                           name, known);
    }
    if (!name && !value[CONFIG] && (!value[LAYERS] || !value[HEADS] || !value[DIM]))
        return plan_refuse("a model of your own needs LAYERS, HEADS and DIM");
    if (!value[CONFIG]) snprintf(o->model_name, sizeof o->model_name, "%s", name ? name : "own");
    TRY(plan_number(value, LAYERS, o->model.layers, &o->model.layers));
    TRY(plan_number(value, HEADS, o->model.heads, &o->model.heads));
    TRY(plan_number(value, DIM, o->model.dim, &o->model.dim));
    TRY(plan_number(value, VOCAB, o->model.vocab, &o->model.vocab));
    TRY(plan_number(value, SEQ, o->model.max_T ? o->model.max_T : 2048, &o->seq));
    if (o->model.max_T == 0) o->model.max_T = o->seq;
    if (o->seq > o->model.max_T)
        return plan_refuse("SEQ=%d: %s has positions for %d tokens", o->seq, o->model_name,
                           o->model.max_T);
    if (o->model.dim % o->model.heads != 0)
        return plan_refuse("HEADS=%d does not divide DIM=%d", o->model.heads, o->model.dim);
    return read_llama(value, o);
}

// Between a forward and its backward, and between micro-batches.
static Status read_reshard(const PlanValues value, PlanOptions *o)
{
    int n, shards = plan_places(o) / o->replicas;
    TRY(plan_choice(value, REDUCE, "once", "each", &o->reduce_every_time));
    TRY(plan_number(value, RESHARD_RANKS, 0, &n));
    o->reduce_given = value[REDUCE] != NULL;
    o->reshard_ranks = n;
    o->strategic = o->reduce_every_time || n > 0;
    if (o->reduce_every_time && o->strategy == STRATEGY_ZERO1)
        return plan_refuse("REDUCE=each: ZeRO-1 keeps its gradients until the last micro-batch");
    if (n == 0) return OK;
    if (o->strategy != STRATEGY_ZERO3)
        return plan_refuse("RESHARD_RANKS=%d: only ZeRO-3 reshards between forward and backward",
                           n);
    if (n < 2 || n >= shards || shards % n != 0)
        return plan_refuse("RESHARD_RANKS=%d must divide the %d GPUs that shard, and be neither 1 "
                           "nor all of them",
                           n, shards);
    return OK;
}

static Status read_strategy(const PlanValues value, PlanOptions *o)
{
    static const char *const words[] = {"fsdp", "zero3", "zero2", "zero1", "ddp", "hsdp"};
    static const Strategy strategies[] = {STRATEGY_ZERO3, STRATEGY_ZERO3, STRATEGY_ZERO2,
                                          STRATEGY_ZERO1, STRATEGY_DDP,   STRATEGY_ZERO3};
    int word, per_node = o->machine->gpus_per_node, places = plan_places(o);
    TRY(plan_word(value, STRATEGY, words, 6, &word));
    snprintf(o->strategy_name, sizeof o->strategy_name, "%s", words[word]);
    o->strategy = strategies[word];
    bool ddp = o->strategy == STRATEGY_DDP, hsdp = word == 5;
    TRY(plan_number(value, REPLICAS, hsdp && places > per_node ? places / per_node : 1,
                    &o->replicas));
    if (value[REPLICAS] && ddp)
        return plan_refuse("STRATEGY=ddp has a replica on every GPU: leave REPLICAS out");
    if (places % o->replicas != 0)
        return plan_refuse("REPLICAS=%d does not divide %s=%d", o->replicas,
                           o->stages > 1 ? "GPUS/STAGES" : "GPUS", places);
    if (o->replicas == places && places > 1)
        return plan_refuse("%d replicas of %d GPUs leave no rank to shard with: STRATEGY=ddp",
                           o->replicas, places);
    if (hsdp && o->replicas == 1)
        return plan_refuse("STRATEGY=hsdp wants more GPUs than a node has (%d), or "
                           "REPLICAS",
                           per_node);
    TRY(read_reshard(value, o));
    o->strategic = o->strategic || word != 0 || o->replicas > 1 || o->accumulate > 1 || o->mixed;
    return OK;
}

// The types; a policy needs a strategy, so this comes before read_strategy.
static Status read_types(const PlanValues value, PlanOptions *o)
{
    static const char *const types[] = {"float", "bf16", "fp16", "tf32"}; // as DType has them
    int type, reduce;
    TRY(plan_word(value, DTYPE, types, 4, &type));
    if (!value[DTYPE]) type = DTYPE_BF16;
    TRY(plan_word(value, REDUCE_DTYPE, types, 3, &reduce));
    o->tf32 = type == 3;
    o->dtype = o->tf32 ? DTYPE_F32 : (DType)type;
    o->reduce_dtype = (DType)reduce;
    o->mixed = o->dtype != DTYPE_F32 || o->reduce_dtype != DTYPE_F32;
    return OK;
}

// The sequences of a step, divided among GPUs and micro-batches.
static Status read_batch(const PlanValues value, PlanOptions *o)
{
    TRY(plan_number(value, ACCUMULATE, 1, &o->accumulate));
    int64_t parts = (int64_t)plan_places(o) * o->accumulate;
    if (parts > INT_MAX)
        return plan_refuse("GPUS=%d times ACCUMULATE=%d overflows", o->gpus, o->accumulate);
    TRY(plan_number(value, BATCH, (int)parts, &o->batch));
    o->batch_given = value[BATCH] != NULL;
    if (o->batch % parts != 0)
        return plan_refuse("BATCH=%d sequences do not divide into %d %s · %d micro-batches",
                           o->batch, plan_places(o), o->stages > 1 ? "GPUs of a stage" : "GPUs",
                           o->accumulate);
    o->micro = o->batch / (int)parts;
    return OK;
}

// The kernels count rows, and elements of a row, in int; a log of 2^62 bytes is not possible.
static Status check_sizes(const PlanOptions *o)
{
    const Gpt2Config *m = &o->model;
    double rows = (double)o->micro * o->seq, most = INT_MAX;
    double widths = 12.0 * m->dim + 3.0 * o->llama.hidden;
    double parameters = m->layers * widths * m->dim + 2.0 * m->vocab * m->dim;
    if (m->layers > 10000) return plan_refuse("LAYERS=%d: at most 10000", m->layers);
    if (rows > most || 4.0 * m->dim > most || 2.0 * o->llama.hidden > most || parameters > 1e15 ||
        rows * m->vocab > 1e15 || rows * m->dim > 1e15)
        return plan_refuse("%d · %d tokens on a GPU, or a model of %.3g parameters: "
                           "the sizes overflow",
                           o->micro, o->seq, parameters);
    return OK;
}

static Status read_gpus(const PlanValues value, PlanOptions *o)
{
    static char error[300];
    o->machine_name = value[MACHINE] ? value[MACHINE] : "h100x8";
    o->machine = sim_machine(o->machine_name, error, sizeof error);
    if (!o->machine) return plan_refuse("MACHINE: %s", error);
    int per_node = o->machine->gpus_per_node;
    TRY(plan_number(value, GPUS, per_node, &o->gpus));
    bool nodes = o->machine->has_link[SIM_NIC];
    if (nodes && o->gpus > per_node && o->gpus % per_node != 0)
        return plan_refuse("GPUS=%d is not a multiple of the %d of a node of %s", o->gpus, per_node,
                           o->machine->name);
    if (o->gpus > 65536) return plan_refuse("GPUS=%d: at most 65536", o->gpus);
    return OK;
}

// "3:10%": a rank, and how much longer its kernels take.
static Status read_slow(const PlanValues value, PlanOptions *o)
{
    int end = 0;
    if (!value[SLOW]) return OK;
    if (sscanf(value[SLOW], "%d:%d%%%n", &o->slow_rank, &o->slow, &end) != 2 || end == 0 ||
        value[SLOW][end] || o->slow < 1 || o->slow > 1000000)
        return plan_refuse("SLOW=%.40s: must be a rank and how much slower it is, as in 3:10%%",
                           value[SLOW]);
    if (o->slow_rank < 0 || o->slow_rank >= o->gpus)
        return plan_refuse("SLOW=%.40s: the ranks are 0 to %d", value[SLOW], o->gpus - 1);
    return OK;
}

static Status read_attention(const PlanValues value, PlanOptions *o)
{
    static const char *const kinds[] = {"fused", "plain", "flash1"};
    int kind;
    TRY(plan_word(value, ATTENTION, kinds, 3, &kind));
    o->flash1 = kind == 2;
    o->model.attention = kind == 1 ? ATTENTION_PLAIN : ATTENTION_FUSED;
    if (kind != 1 && o->model.dim / o->model.heads > 128)
        return plan_refuse("fused attention takes heads of at most 128 columns, not %d: "
                           "ATTENTION=plain",
                           o->model.dim / o->model.heads);
    return OK;
}

static Status read_rest(const PlanValues value, PlanOptions *o)
{
    static const char *const runs[] = {"alone", "dry", "executed"};
    int run;
    bool no_advice;
    TRY(plan_word(value, RUN, runs, 3, &run));
    TRY(plan_choice(value, CLIP, "no", "yes", &o->clip));
    TRY(plan_choice(value, RANKS, "kinds", "all", &o->all));
    TRY(plan_choice(value, INIT, "none", "values", &o->values));
    TRY(plan_choice(value, FIT, "no", "yes", &o->fit));
    TRY(plan_choice(value, ADVICE, "yes", "no", &no_advice));
    TRY(plan_choice(value, COMPILE, "no", "yes", &o->compiled));
    TRY(plan_choice(value, PRODUCTS, "usual", "fp8", &o->fp8_products));
    TRY(plan_choice(value, LOSS, "float", "fused", &o->fused_loss));
    o->run = (PlanRun)run;
    o->all = o->all || o->run != PLAN_ALONE;
    o->values = o->values || o->run == PLAN_EXECUTED;
    o->advice = !no_advice && o->run == PLAN_ALONE;
    if ((o->fp8_products || o->fused_loss) && o->dtype == DTYPE_F32)
        return plan_refuse("%s goes with DTYPE=bf16 or fp16",
                           o->fused_loss ? "LOSS=fused" : "PRODUCTS=fp8");
    TRY(plan_number(value, EFFICIENCY, 0, &o->efficiency));
    if (o->efficiency > 100)
        return plan_refuse("EFFICIENCY=%d: percent of the memory's bandwidth", o->efficiency);
    o->json = value[JSON];
    o->verbose = value[V] != NULL;
    o->timeline = value[TIMELINE];
    TRY(read_slow(value, o));
    if (o->fit && (o->graph || o->regroups))
        return plan_refuse("FIT=yes looks at eager steps: leave GRAPH and REGROUP out");
    if (o->fit && (value[STRATEGY] || value[REPLICAS] || value[ACCUMULATE] ||
                   value[RESHARD_RANKS] || value[REDUCE]))
        return plan_refuse(
            "FIT=yes looks for STRATEGY, REPLICAS, ACCUMULATE, RESHARD_RANKS and REDUCE: "
            "leave them out");
    if (o->all && o->gpus > 8)
        return plan_refuse("all ranks of %d run only where there are at most 8", o->gpus);
    return OK;
}

Status plan_options(int argc, char **argv, PlanOptions *o)
{
    PlanValues value = {NULL};
    memset(o, 0, sizeof *o);
    TRY(plan_read(argc, argv, value));
    TRY(read_gpus(value, o));
    TRY(read_model(value, o));
    TRY(plan_read_stages(value, o));
    TRY(read_batch(value, o));
    TRY(read_types(value, o));
    TRY(read_strategy(value, o));
    TRY(read_attention(value, o));
    TRY(plan_read_labs(value, o));
    TRY(read_rest(value, o));
    return check_sizes(o);
}
