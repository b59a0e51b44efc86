/* kinds.c: which ranks differ.
 *
 * All ranks queue the same, except for the padding: of a flat parameter the first ranks' shards are
 * full, one may be partly padding, and those after it have nothing else. So the ranks fall into a
 * few intervals, cut where a unit's padding begins, and the first rank of each stands for it. The
 * last rank runs in any case, and so does one that is slow.
 *
 * Interface: plan_kinds.
 */
#include <stdlib.h>
#include <string.h>

#include "fsdp.h"
#include "plan.h"

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

// Adds the ranks at which the padding of a unit of so many elements begins, and at which nothing
// else is left.
static int add_cuts(int64_t numel, int shards, int *cut, int n)
{
    int64_t shard = (numel + shards - 1) / shards, full = shard ? numel / shard : 0;
    for (int64_t rank = full; rank <= full + 1 && rank < shards; rank++)
        if (n < PLAN_KINDS - 2) cut[n++] = (int)rank;
    return n;
}

int plan_kinds(const PlanOptions *o, const Module *model, int ranks[PLAN_KINDS])
{
    int n = 0, kept = 0;
    bool ddp = o->strategic && o->strategy == STRATEGY_DDP;
    int shards = ddp ? 1 : o->gpus / o->replicas;
    if (o->all) {
        for (int r = 0; r < o->gpus; r++) ranks[r] = r;
        return o->gpus;
    }
    ranks[n++] = 0;
    ranks[n++] = o->gpus - 1;
    if (o->slow > 0) ranks[n++] = o->slow_rank;
    int64_t rest = meta_count(model);
    for (int i = 0, seen = 0; i < model->n_children && !ddp; i++) {
        if (strncmp(model->children[i]->name, "h.", 2) != 0) continue;
        int64_t numel = meta_count(model->children[i]);
        rest -= numel;
        if (!seen++) n = add_cuts(numel, shards, ranks, n); // the blocks are alike
    }
    if (!ddp) n = add_cuts(rest, shards, ranks, n);
    qsort(ranks, (size_t)n, sizeof *ranks, by_number);
    for (int i = 0; i < n; i++)
        if (i == 0 || ranks[i] != ranks[kept - 1]) ranks[kept++] = ranks[i];
    return kept;
}
