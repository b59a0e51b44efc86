/* figures.c: the figures of units, counted by the tests. See figures.h. */
#include "figures.h"

#include "harness.h"
#include "layout.h"

enum { MOST_UNITS = 96, MOST_PARAMS = 64 };

typedef struct Figures {
    const FsdpUnit *unit;
    int n, rank, world;
    int64_t numel, padded, shard_numel;
    const Param *param[MOST_PARAMS];
    int64_t offset[MOST_PARAMS];
    const void *sharded_param, *sharded_grad;
} Figures;

static Figures table[MOST_UNITS];
static int used;

static bool has_figures(const Figures *f)
{
    const FlatLayout *has = &f->unit->flat.layout;
    bool same = has->n == f->n && has->numel == f->numel && has->padded == f->padded &&
                has->shard_numel == f->shard_numel && has->rank == f->rank &&
                has->world == f->world;
    for (int i = 0; i < f->n && same; i++)
        same = has->params[i] == f->param[i] && has->offset[i] == f->offset[i];
    return same;
}

static void take(const Module *m, int rank, int world, bool align)
{
    const FsdpUnit *unit = m->unit;
    for (int i = 0; i < m->n_children; i++) take(m->children[i], rank, world, align);
    if (unit == NULL || used == MOST_UNITS) return;

    Layout layout;
    layout_module(&layout, m, true, world, rank);
    if (layout.n < 1 || layout.n > MOST_PARAMS) return;
    Figures *f = &table[used++];
    int64_t multiple = world * (align ? 4 : 1);
    *f = (Figures){.unit = unit, .n = layout.n, .rank = rank, .world = world};
    f->numel = (int64_t)layout.begin[layout.n];
    f->padded = (f->numel + multiple - 1) / multiple * multiple;
    f->shard_numel = f->padded / world;
    for (int i = 0; i < f->n; i++) {
        f->param[i] = layout.param[i];
        f->offset[i] = (int64_t)layout.begin[i];
    }
    f->sharded_param = unit->flat.sharded_param.data;
    f->sharded_grad = unit->flat.sharded_grad.data;
    // Who made a unit of the wrong parameters is told so by the tests of that.
    if (!has_figures(f)) used--;
}

void figures_take(const Module *model, int rank, int world, bool align)
{
    take(model, rank, world, align);
}

void figures_forget(const Module *m)
{
    int n = 0;
    for (int i = 0; i < used; i++)
        if (table[i].unit != m->unit) table[n++] = table[i];
    used = n;
    for (int i = 0; i < m->n_children; i++) figures_forget(m->children[i]);
}

void check_figures(void)
{
    for (const Figures *f = table; f < table + used; f++) {
        const FlatParam *flat = &f->unit->flat;
        const FlatLayout *has = &flat->layout;
        check(has_figures(f),
              "unit %s: its layout says %lld elements, padded to %lld, shards of %lld, for rank %d "
              "of %d; when it was made that was %lld, %lld, %lld, %d and %d, each parameter "
              "at its place: a layout is written once, and nothing of it changes",
              flat->name, (long long)has->numel, (long long)has->padded,
              (long long)has->shard_numel, has->rank, has->world, (long long)f->numel,
              (long long)f->padded, (long long)f->shard_numel, f->rank, f->world);
        check(flat->sharded_param.data == f->sharded_param &&
                  flat->sharded_param.numel == f->shard_numel &&
                  flat->sharded_grad.data == f->sharded_grad &&
                  flat->sharded_grad.numel == f->shard_numel,
              "unit %s has other shards than when it was made: they stay where they are until the "
              "unit is unwrapped",
              flat->name);
    }
}
