/* Saved under one strategy, loaded under another: DDP, ZeRO-1, -2, -3 and HSDP, each with each.
 * Where there are replicas one of them writes, and all read.
 */
#include "checkpoints.h"
#include "files.h"
#include "strategy.h"

#include <stdio.h>

typedef struct Sharding {
    const char *name;
    Strategy strategy;
    int world, replicas;
    bool saves;
} Sharding;

static const Sharding SHAPES[] = {{"ddp on 3", STRATEGY_DDP, 3, 3, false},
                                  {"zero1 on 2", STRATEGY_ZERO1, 2, 1, false},
                                  {"zero2 on 4", STRATEGY_ZERO2, 4, 1, false},
                                  {"zero3 on 5", STRATEGY_ZERO3, 5, 1, false},
                                  {"2 replicas of 3 shards", STRATEGY_ZERO3, 6, 2, false},
                                  {"3 replicas of 2 shards", STRATEGY_ZERO2, 6, 3, false}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0], STEP = 12 };

static char dir[PATH_BYTES + 16];

static void make_units(Sharded *s, const Sharding *shape)
{
    for (int i = 0; i < s->model->n_children && shape->strategy != STRATEGY_DDP; i++)
        if (s->model->children[i]->name[0] == 'h' && s->model->children[i]->name[1] == '.')
            need(fully_shard(s->model->children[i], &s->ctx, &TEST_OPTIONS));
    need(fully_shard(s->model, &s->ctx, &TEST_OPTIONS));
    need(strategy_apply(s->model, &(StrategyOptions){.strategy = shape->strategy}));
    s->root = fsdp_unit(s->model)->root;
}

static void body(const Rank *r, void *arg)
{
    const Sharding *shape = arg;
    CheckpointPosition position = {.step = STEP, .data_seed = 3};
    Sharded s = {.spec = spec_gpt2(2)};
    Mesh mesh;
    s.model = spec_create(&s.spec);
    need(nn_run_create(&s.run, r->stream));
    need(mesh_2d(&mesh, r->comm, shape->replicas));
    need(fsdp_context_create(&s.ctx, &mesh, r->stream));
    s.rank = mesh.shard.rank; // of those that shard: whose elements these are
    s.world = mesh.shard.size;
    make_units(&s, shape);
    need(fsdp_adamw_create(&s.adamw, s.model, &s.ctx, &STATE_ADAMW));
    state_fill(&s, shape->saves ? STEP : 1);
    if (shape->saves) {
        need(checkpoint_save(dir, s.model, &s.adamw, &position));
    } else {
        need(checkpoint_load(dir, s.model, &s.adamw, &position));
        state_check(&s, STEP, shape->name);
    }
    fsdp_adamw_destroy(&s.adamw);
    need(strategy_remove(s.model));
    fsdp_unwrap(s.model);
    need(fsdp_context_destroy(&s.ctx));
    need(mesh_destroy(&mesh, r->comm));
    module_destroy(s.model);
    need(nn_run_destroy(&s.run));
}

TEST(loads_under_every_strategy)
{
    char folder[PATH_BYTES];
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/model", folder);
    for (int from = 0; from < N_SHAPES; from++) {
        Sharding saved = SHAPES[from];
        saved.saves = true;
        if (!ranks_fit(saved.world)) continue;
        run_ranks(saved.world, body, &saved);
        for (int to = 0; to < N_SHAPES; to++) {
            Sharding loaded = SHAPES[to];
            run_ranks(loaded.world, body, &loaded);
        }
    }
    remove_folder(folder);
}

SUITE_MAIN("strategies")
