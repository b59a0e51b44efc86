/* rank_kinds.c: which ranks differ.
 *
 * The ranks of a stage queue the same work, except for the padding. The first ranks' shards of a
 * flat parameter are full, one may be partly padding, the rest are only padding; cut by parameter,
 * each parameter has such ranks of its own. So the ranks fall into a few intervals, cut where a
 * padding begins, and the first rank of each interval represents it. The last rank always runs, and
 * so does a slow one. In a pipeline, the ranks of the same place run in each stage: they send
 * each other messages.
 */
#include <stdlib.h>

#include "fsdp.h"
#include "plan.h"

typedef struct Places {
    int n, place[PLAN_KINDS];
    int shards; // ranks that shard: places repeat after these
} Places;

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void add(Places *p, int place)
{
    for (int i = 0; i < p->n; i++)
        if (p->place[i] == place) return;
    if (p->n < PLAN_KINDS) p->place[p->n++] = place;
}

// The places where the padding of that many rows begins, and where only padding is left.
static void add_cuts(Places *p, int64_t rows)
{
    int64_t shard = (rows + p->shards - 1) / p->shards, full = shard ? rows / shard : 0;
    for (int64_t place = full; place <= full + 1 && place < p->shards; place++) add(p, (int)place);
}

static void add_params(Places *p, const Module *m)
{
    for (int i = 0; i < m->n_params; i++) add_cuts(p, m->params[i]->shape[0]);
    for (int i = 0; i < m->n_children; i++) add_params(p, m->children[i]);
}

static void add_units(Places *p, const PlanOptions *o, const Module *stage)
{
    if (o->per_parameter) {
        add_params(p, stage);
        return;
    }
    PlanParts parts = plan_parts(o, stage);
    add_cuts(p, parts.root.numel);
    if (parts.blocks > 0) add_cuts(p, parts.block.numel); // the blocks are alike
}

int plan_kinds(const PlanOptions *o, int ranks[PLAN_KINDS])
{
    bool ddp = o->strategic && o->strategy == STRATEGY_DDP;
    int places = plan_places(o), n = 0;
    Places p = {.shards = ddp ? 1 : places / o->replicas};
    for (int r = 0; r < o->gpus && o->all; r++) ranks[r] = r;
    if (o->all) return o->gpus;
    add(&p, 0);
    add(&p, places - 1);
    if (o->slow > 0) add(&p, o->slow_rank % places);
    for (int s = 0; s < o->stages; s++) {
        Module *stage = plan_stage(o, s);
        if (!stage) return 0;
        if (!ddp) add_units(&p, o, stage);
        module_destroy(stage);
    }
    qsort(p.place, (size_t)p.n, sizeof p.place[0], by_number);
    for (int s = 0; s < o->stages; s++)
        for (int i = 0; i < p.n && n < PLAN_KINDS; i++) ranks[n++] = s * places + p.place[i];
    return n;
}
