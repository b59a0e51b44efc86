/* Random combinations of options and models: each trains, bitwise as the serial oracle
 * (tests/support/strategies.h), or the library refuses it with the line that case_refusal has. What
 * fails is made as small as it goes (shrink.h), and told as one command.
 *
 *   RANDOM_OPTIONS=500 build/tests/labs/random_options          so many that train (40); SEED=n
 *   RANDOM_CASE="world=3 layout=1" build/tests/labs/random_options        this case alone
 *
 * A case is a number for each of GENES; the least one is what a small case has. tests/labs/pairs.c
 * has each pair of options on one model; here models differ as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "draw.h"
#include "files.h"
#include "harness.h"
#include "per_parameter.h"
#include "shrink.h"
#include "strategies.h"

// ---- A case ----

enum { CHAIN, GPT2, LLAMA, LLAMA_TIED };
enum { FROZEN_NONE, FROZEN_THIRD, FROZEN_UNIT, FROZEN_BASE };

// Options in the order in which they are dropped; then the model's sizes; then the ranks.
#define ALL_GENES(G)                                                                               \
    G(resume, 0, 1)                                                                                \
    G(tokens, 0, 1)                                                                                \
    G(steps, 1, 3)                                                                                 \
    G(stages, 0, 4)                                                                                \
    G(schedule, 0, 1)                                                                              \
    G(offload, 0, 1)                                                                               \
    G(recompute, 0, 2)                                                                             \
    G(prefetch, 0, 1)                                                                              \
    G(forward_depth, 0, 3)                                                                         \
    G(backward_depth, 0, 3)                                                                        \
    G(limit, 0, 900)                                                                               \
    G(frozen, 0, 3)                                                                                \
    G(layout, 0, 1)                                                                                \
    G(gather, 0, 1)                                                                                \
    G(align, 0, 1)                                                                                 \
    G(types, 0, 6)                                                                                 \
    G(reshard_ranks, 0, 4)                                                                         \
    G(divide, 0, 5)                                                                                \
    G(every, 0, 2)                                                                                 \
    G(rounds, 1, 4)                                                                                \
    G(strategy, 0, 3)                                                                              \
    G(bucket, 0, 900)                                                                              \
    G(model, 0, 3)                                                                                 \
    G(tied, 0, 1)                                                                                  \
    G(adapter, 0, 3)                                                                               \
    G(units, 0, 3)                                                                                 \
    G(nest, 0, 2)                                                                                  \
    G(norm, 0, 2)                                                                                  \
    G(gelu, 0, 1)                                                                                  \
    G(shape, 0, 9999)                                                                              \
    G(blocks, 1, 4)                                                                                \
    G(layers, 1, 3)                                                                                \
    G(width, 1, 13)                                                                                \
    G(in, 1, 9)                                                                                    \
    G(classes, 2, 7)                                                                               \
    G(rows, 1, 6)                                                                                  \
    G(replicas, 1, CASE_RANKS)                                                                     \
    G(world, 1, CASE_RANKS)

enum {
#define GENE_NUMBER(name, least, most) gene_##name,
    ALL_GENES(GENE_NUMBER) N_GENES
};
#define GENE(name, least, most) {#name, least, most},
static const Gene GENES[] = {ALL_GENES(GENE)};

enum { TEXT_BYTES = 800 };

// What a row of numbers says. The case points into the training.
typedef struct Training {
    Case c;
    int world;
    RandomModel random;
    MixedPrecisionPolicy policy;
    PrefetchOptions prefetch;
} Training;

static void put_model(Training *t, const int *v)
{
    int head = 2 * (1 + v[gene_width] % 4), heads = 1 + v[gene_shape] % 3;
    Spec *spec = &t->c.spec;
    *spec = (Spec){.layers = v[gene_blocks],
                   .B = v[gene_rows],
                   .T = 1,
                   .in_dim = v[gene_in],
                   .dim = v[gene_width],
                   .vocab = v[gene_classes]};
    t->random = (RandomModel){.in_dim = v[gene_in],
                              .out_dim = v[gene_classes],
                              .blocks = v[gene_blocks],
                              .layers = v[gene_layers],
                              .nest = v[gene_nest],
                              .width = v[gene_width],
                              .shape = v[gene_shape],
                              .gelu = v[gene_gelu],
                              .norm = v[gene_norm],
                              .tied = v[gene_tied],
                              .adapter = v[gene_adapter],
                              .units = (RandomUnits)v[gene_units]};
    if (v[gene_model] == CHAIN) {
        t->c.random = &t->random;
        return;
    }
    spec->gpt2 = true;
    spec->T = v[gene_in];
    spec->B = 1 + v[gene_rows] / 3;
    spec->heads = heads;
    spec->dim = head * heads;
    if (v[gene_model] == GPT2) return;
    spec->create = spec_llama(v[gene_blocks], false).create;
    spec->kv_heads = heads % 2 == 0 ? heads / 2 : heads;
    spec->hidden = v[gene_width];
    spec->tied = v[gene_model] == LLAMA_TIED;
}

static const Strategy STRATEGIES[] = {STRATEGY_ZERO3, STRATEGY_ZERO2, STRATEGY_ZERO1, STRATEGY_DDP};

static void put_options(Training *t, const int *v)
{
    static const DType TYPES[][2] = {{DTYPE_F32, DTYPE_F32},  {DTYPE_F32, DTYPE_F32},
                                     {DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16},
                                     {DTYPE_F16, DTYPE_F32},  {DTYPE_F16, DTYPE_F16},
                                     {DTYPE_F32, DTYPE_BF16}};
    static const Fp8Options MATRICES = {NULL};
    Case *c = &t->c;
    c->options = (StrategyOptions){.strategy = STRATEGIES[v[gene_strategy]],
                                   .reduce_every_time = v[gene_every] == 1,
                                   .divide_factor = (float)v[gene_divide],
                                   .reshard_ranks = v[gene_reshard_ranks],
                                   .first_bucket_bytes = v[gene_bucket] / 8,
                                   .bucket_bytes = v[gene_bucket]};
    c->partial = v[gene_every] == 2;
    t->policy =
        (MixedPrecisionPolicy){TYPES[v[gene_types]][0], TYPES[v[gene_types]][1], DTYPE_F32, true};
    if (v[gene_types] > 0) c->policy = &t->policy;
    t->prefetch = (PrefetchOptions){v[gene_forward_depth], v[gene_backward_depth], v[gene_limit]};
    if (v[gene_prefetch] == 1) c->prefetch = &t->prefetch;
    c->recompute = (RecomputeKind)v[gene_recompute];
    c->offload = v[gene_offload] == 1;
    c->align = v[gene_align] == 1;
    c->layout = v[gene_layout] == 1 ? per_parameter_layout : NULL;
    c->fp8 = v[gene_gather] == 1 ? &MATRICES : NULL;
    c->uneven = v[gene_tokens] == 1;
    c->between = v[gene_resume] == 1 ? case_resume : NULL;
}

static void training_of(Training *t, const int *v)
{
    int frozen = v[gene_frozen];
    *t = (Training){.world = v[gene_world]};
    t->c = (Case){.rounds = v[gene_rounds], .steps = v[gene_steps]};
    put_model(t, v);
    put_options(t, v);
    t->c.stages = v[gene_stages] > 1 ? v[gene_stages] : 0;
    t->c.kind = v[gene_schedule] == 1 ? PIPELINE_1F1B : PIPELINE_GPIPE;
    t->c.replicas = v[gene_replicas];
    if (t->c.options.strategy == STRATEGY_DDP && t->world % (t->c.stages + !t->c.stages) == 0)
        t->c.replicas = t->world / (t->c.stages + !t->c.stages);
    // Of two stages one alone may have frozen parameters, and so refuse what the other takes.
    bool takes = t->c.layout != NULL && t->c.options.strategy != STRATEGY_DDP;
    if (t->c.stages > 0 && !takes) frozen = FROZEN_NONE;
    t->c.frozen_base = frozen == FROZEN_BASE && t->c.random != NULL;
    t->c.frozen = frozen == FROZEN_THIRD                         ? every_third
                  : frozen == FROZEN_UNIT                        ? a_unit_and_more
                  : frozen == FROZEN_BASE && t->c.random == NULL ? a_unit_and_more
                                                                 : NULL;
}

// NULL where it trains as the oracle, or is refused as it should be; else why not (free it).
static char *trouble_of(const int *v)
{
    Training t;
    training_of(&t, v);
    const char *reason = case_refusal(&t.c, t.world);
    if (reason[0] != '\0') return run_refused_message(t.world, &t.c, reason);
    if (t.c.between != NULL) make_folder(case_folder);
    char *text = run_case_message(t.world, &t.c);
    if (t.c.between != NULL) remove_folder(case_folder);
    return text;
}

static bool trains(const int *v)
{
    Training t;
    training_of(&t, v);
    return case_refusal(&t.c, t.world)[0] == '\0';
}

// ---- Drawing ----

// A value that is not the least one in so many of a hundred cases.
static void draw_gene(int *v, int gene, int percent)
{
    v[gene] = GENES[gene].least;
    if (draw_chance(percent)) v[gene] = draw(GENES[gene].least, GENES[gene].most);
}

static void draw_case(int *v)
{
    for (int i = 0; i < N_GENES; i++) draw_gene(v, i, i < gene_strategy ? 35 : 100);
    draw_gene(v, gene_stages, 25);
    draw_gene(v, gene_strategy, 60);
    draw_gene(v, gene_model, 50);
    draw_gene(v, gene_tied, 60);
    draw_gene(v, gene_adapter, 50);
    v[gene_steps] = draw(1, 2);
    if (v[gene_frozen] > 0 && draw_chance(90)) v[gene_layout] = 1;
    if (v[gene_gather] == 1 && draw_chance(90)) { // what FP8 goes with
        v[gene_layout] = 1;
        v[gene_offload] = 0;
        if (STRATEGIES[v[gene_strategy]] == STRATEGY_DDP) v[gene_strategy] = 0;
    }
    if (v[gene_layout] == 1 && draw_chance(90)) v[gene_align] = 0;
    int ranks = v[gene_stages] > 1 && v[gene_world] % v[gene_stages] == 0
                    ? v[gene_world] / v[gene_stages]
                    : v[gene_world];
    while (ranks % v[gene_replicas] != 0) v[gene_replicas]--;
    if (draw_chance(50)) v[gene_replicas] = 1;
}

// ---- Telling ----

static bool still_fails(const int *v, void *arg)
{
    char *text = trouble_of(v);
    free(text);
    return text != NULL;
}

static const char *case_command(const int *v)
{
    static char command[TEXT_BYTES + 80];
    char text[TEXT_BYTES];
    snprintf(command, sizeof command, "RANDOM_CASE=\"%s\" build/tests/labs/random_options",
             case_text(GENES, N_GENES, v, text, sizeof text));
    return command;
}

// Fails the test: with the case as it was drawn, and as small as it goes.
static void fail_with_smallest(const int *v, char *trouble)
{
    int small[N_GENES];
    char text[TEXT_BYTES];
    memcpy(small, v, sizeof small);
    print_error("%s\nfails: %s\nit is made smaller …\n",
                case_text(GENES, N_GENES, v, text, sizeof text), trouble);
    free(trouble);
    int tried = shrink(GENES, N_GENES, small, still_fails, NULL);
    char *last = trouble_of(small);
    drawn("the smallest case of %d that were tried is: %s", tried, case_command(small));
    print_error("%d cases later: %.700s\n", tried, last != NULL ? last : "it does not fail again");
    free(last);
    fail_msg("%s", case_command(small));
}

// ---- The tests ----

TEST(random_options_train_as_the_oracle)
{
    const char *one = getenv("RANDOM_CASE");
    int v[N_GENES], refused = 0, overflowed = 0;
    if (!backend_sums_in_tree_order(8)) skip(); // NCCL promises no order
    needs_ranks(8);
    if (one != NULL) {
        if (!case_read(GENES, N_GENES, v, one)) fail_msg("RANDOM_CASE is no case");
        char *trouble = trouble_of(v);
        if (trouble != NULL) fail_msg("%s", trouble);
        printf("it %s\n", trains(v) ? "trains as the oracle" : "is refused as it should be");
        return;
    }
    const int wanted = (int)setting("RANDOM_OPTIONS", 40);
    for (int done = 0; done < wanted;) {
        char text[TEXT_BYTES];
        draw_case(v);
        bool refuses = !trains(v);
        if (refuses && refused > done / 4) continue;
        drawn("%s", case_text(GENES, N_GENES, v, text, sizeof text));
        char *trouble = trouble_of(v);
        if (trouble != NULL) fail_with_smallest(v, trouble);
        refused += refuses;
        overflowed += !refuses && case_overflowed();
        done += !refuses && !case_overflowed();
        if (overflowed > 10 + done / 10)
            fail_msg("%d of %d models overflow, and there is nothing to compare", overflowed, done);
    }
    printf("%d combinations trained, bitwise as the oracle, %d were refused, %d overflowed "
           "(SEED=%llu)\n",
           wanted, refused, overflowed, (unsigned long long)draw_seed());
}

SUITE_MAIN("random_options")
