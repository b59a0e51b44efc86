/* drawn_claims.c: claims about drawn cases. See drawn_claims.h. */
#include "drawn_claims.h"

#include "draw_model.h"
#include "fsdp.h"
#include "oracle.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

static Param make_param(int ndim, const int64_t *shape, InitKind init, float std, uint32_t id)
{
    Param p = {.name = "drawn.weight", .id = id, .ndim = ndim, .init = init, .init_std = std};
    for (int i = 0; i < ndim; i++) p.shape[i] = shape[i];
    return p;
}

// ---- Task 1: counting and initial values ----

// Shapes and models that were drawn, with what they come to.
typedef struct Counted {
    Param param[6];
    int64_t want[6];
    Spec mlp, gpt2;
} Counted;

static void check_count(const Spec *spec, int64_t want)
{
    Module *model = spec_create(spec);
    check(meta_count(model) == want, "%s: meta_count gives %lld, want %lld",
          spec->gpt2 ? "the drawn GPT-2" : "the drawn MLP", (long long)meta_count(model),
          (long long)want);
    check(meta_bytes(model) == 4 * want, "%lld elements: meta_bytes gives %lld", (long long)want,
          (long long)meta_bytes(model));
    module_destroy(model);
}

static void drawn_count_body(const Rank *r, void *arg)
{
    const Counted *c = arg;
    for (int i = 0; i < 6; i++)
        check(meta_numel(&c->param[i]) == c->want[i],
              "meta_numel of %d dimensions (%lld, %lld, %lld, %lld) gives %lld, want %lld",
              c->param[i].ndim, (long long)c->param[i].shape[0], (long long)c->param[i].shape[1],
              (long long)c->param[i].shape[2], (long long)c->param[i].shape[3],
              (long long)meta_numel(&c->param[i]), (long long)c->want[i]);
    int64_t in = c->mlp.in_dim, h = c->mlp.dim, out = c->mlp.vocab;
    check_count(&c->mlp, in * h + h + (c->mlp.layers - 2) * (h * h + h) + h * out + out);
    // A block has 12·C² elements in matrices and 13·C in vectors.
    int64_t dim = c->gpt2.dim, rows = c->gpt2.vocab + c->gpt2.T;
    check_count(&c->gpt2, rows * dim + c->gpt2.layers * (12 * dim * dim + 13 * dim) + 2 * dim);
}

void claim_drawn_counts(void)
{
    Counted c = {.mlp = draw_mlp(6), .gpt2 = draw_gpt2(3)};
    for (int i = 0; i < 6; i++) {
        int64_t shape[4];
        int ndim = draw(0, 4);
        c.want[i] = 1;
        for (int d = 0; d < ndim; d++) c.want[i] *= shape[d] = draw(1, 3000);
        c.param[i] = make_param(ndim, shape, INIT_ZERO, 0.0f, 0);
    }
    drawn("6 shapes; an MLP of %d layers, %d > %d > %d; a GPT-2 of %d, C = %d", c.mlp.layers,
          c.mlp.in_dim, c.mlp.dim, c.mlp.vocab, c.gpt2.layers, c.gpt2.dim);
    run_ranks(1, drawn_count_body, &c);
}

// Trees that were drawn: the walk of each module, against the order in which they grew.
static void drawn_tree_body(const Rank *r, void *arg)
{
    const Tree *tree = arg;
    for (int m = 0; m < tree->n; m++) {
        const Param *want[TREE_PARAMS];
        Param *got[TREE_PARAMS + 1] = {NULL};
        int wanted = tree_walk(tree, m, want);
        int n = meta_params(&tree->module[m], got, TREE_PARAMS + 1);
        check(n == wanted,
              "module %s and what is below it: meta_params finds %d parameters, want %d",
              tree->module[m].name, n, wanted);
        for (int i = 0; i < n; i++)
            check(got[i] == want[i],
                  "meta_params of module %s: place %d holds parameter %s, want %s",
                  tree->module[m].name, i, got[i] == NULL ? "(none)" : got[i]->name, want[i]->name);
    }
}

void claim_drawn_walk(void)
{
    static Tree tree; // it points into itself
    draw_tree(&tree, true);
    drawn("a tree of %d modules with %d parameters", tree.n, tree.n_params);
    run_ranks(1, drawn_tree_body, &tree);
}

// Values from element `begin` on, against the formula.
static void check_oracle_init(const Param *p, uint64_t seed, int64_t begin, int64_t n,
                              const float *values)
{
    float *want = malloc((size_t)n * sizeof *want);
    check(want != NULL, "no memory");
    oracle_init(p, seed, begin, n, want);
    check_near("a normal parameter of meta_init_slice, against what normal_blocks' words give",
               values, want, (size_t)n, 4e-6 * (double)p->init_std);
    free(want);
}

enum { MOST_SLICES = 64 };

// A parameter that was drawn, cut in places that were.
typedef struct Cuts {
    Param param;
    uint64_t seed;
    int n;
    int64_t place[MOST_SLICES + 1]; // from 0 to the number of elements
    int64_t far;                    // within a parameter of 2⁴⁰ elements
} Cuts;

static void drawn_slices_body(const Rank *r, void *arg)
{
    const Cuts *c = arg;
    int64_t numel = c->place[c->n - 1];
    float *whole = malloc((size_t)numel * sizeof *whole);
    float *part = malloc((size_t)numel * sizeof *part), far[9];
    check(whole != NULL && part != NULL, "no memory");
    meta_init_slice(&c->param, c->seed, 0, numel, whole);
    check_oracle_init(&c->param, c->seed, 0, numel, whole);
    for (int i = 0; i + 1 < c->n; i++)
        meta_init_slice(&c->param, c->seed, c->place[i], c->place[i + 1], part + c->place[i]);
    check_equal("a parameter made in slices, against the same made at once", part, whole,
                (size_t)numel);
    int64_t large = (int64_t)1 << 40;
    Param huge = make_param(1, &large, INIT_NORMAL, 0.5f, c->param.id);
    meta_init_slice(&huge, c->seed, c->far, c->far + 9, far);
    check_oracle_init(&huge, c->seed, c->far, 9, far);
    free(whole);
    free(part);
}

static void draw_cuts(Cuts *c, int slices)
{
    int64_t shape[2] = {draw(1, 40), draw(1, 60)};
    float std = (float)draw(1, 64) / 32.0f;
    c->param = make_param(2, shape, INIT_NORMAL, std, (uint32_t)draw(0, 100000));
    c->seed = draw_word();
    c->far = (int64_t)(draw_word() % (((uint64_t)1 << 40) - 9));
    c->place[0] = 0;
    for (c->n = 1; c->n < slices && c->place[c->n - 1] < shape[0] * shape[1]; c->n++)
        c->place[c->n] = draw((int)c->place[c->n - 1], (int)(shape[0] * shape[1]));
    c->place[c->n++] = shape[0] * shape[1];
    drawn("%lld · %lld elements of parameter %u in %d slices, seed %llu, std %g",
          (long long)shape[0], (long long)shape[1], c->param.id, c->n - 1,
          (unsigned long long)c->seed, (double)std);
}

void claim_drawn_slices(int slices)
{
    Cuts cuts;
    draw_cuts(&cuts, slices < MOST_SLICES ? slices : MOST_SLICES);
    run_ranks(1, drawn_slices_body, &cuts);
}

typedef struct Piece {
    int64_t begin;
    int length; // at most 64
    uint64_t seed;
} Piece;

static void drawn_constants_body(const Rank *r, void *arg)
{
    const Piece *piece = arg;
    int64_t end = piece->begin + piece->length;
    for (int kind = 0; kind < 3; kind++) {
        Param p =
            make_param(1, &end, (InitKind[]){INIT_ZERO, INIT_ONE, INIT_NORMAL}[kind], 1.0f, 5);
        float out[66];
        for (int j = 0; j < 66; j++) out[j] = 77.0f;
        meta_init_slice(&p, piece->seed, piece->begin, end, out + 1);
        for (int j = 0; j < 66; j++) {
            bool inside = 1 <= j && j <= piece->length;
            check(inside ? p.init == INIT_NORMAL || out[j] == (float)kind : out[j] == 77.0f,
                  "meta_init_slice [%lld, %lld) of a parameter of kind %s: place %d holds %g",
                  (long long)piece->begin, (long long)end,
                  (const char *[]){"INIT_ZERO", "INIT_ONE", "INIT_NORMAL"}[kind], j - 1,
                  (double)out[j]);
        }
    }
}

void claim_drawn_constants(void)
{
    Piece piece = {draw(0, 1 << 20), draw(0, 64), draw_word()};
    drawn("%d elements from %lld on", piece.length, (long long)piece.begin);
    run_ranks(1, drawn_constants_body, &piece);
}

// ---- Task 6: trees of modules, some of them units ----

typedef struct Nest {
    Tree tree;
    FsdpOptions options;
} Nest;

// Draws a tree and how many ranks there are; in static memory, because it points into itself.
static Nest *draw_nest(int low, int high, int *world)
{
    static Nest nest;
    int units = 0;
    draw_tree(&nest.tree, false);
    for (int m = 0; m < nest.tree.n; m++) units += nest.tree.unit[m] == m;
    *world = draw(low, high);
    nest.options = (FsdpOptions){draw(FSDP_RESHARD_AUTO, FSDP_RESHARD_NEVER), draw_chance(50),
                                 draw_word(), NULL};
    drawn("a tree of %d modules with %d parameters, %d units, aligned: %s, %d rank%s", nest.tree.n,
          nest.tree.n_params, units, nest.options.align_shards ? "yes" : "no", *world,
          *world == 1 ? "" : "s");
    return &nest;
}

// Makes the units, the inner ones first, as a caller must.
static void shard_nest(Nest *nest, FsdpContext *ctx, const Rank *r)
{
    make_context(ctx, r);
    for (int m = nest->tree.n - 1; m >= 0; m--)
        if (nest->tree.unit[m] == m) need(fully_shard(&nest->tree.module[m], ctx, &nest->options));
}

static void unwrap_nest(Nest *nest, FsdpContext *ctx)
{
    fsdp_unwrap(&nest->tree.module[0]);
    need(fsdp_context_destroy(ctx));
}

static void drawn_nest_body(const Rank *r, void *arg)
{
    Nest *nest = arg;
    const Tree *tree = &nest->tree;
    FsdpContext ctx;
    shard_nest(nest, &ctx, r);
    for (int m = 0; m < tree->n; m++) {
        const FsdpUnit *unit = fsdp_unit(&tree->module[m]);
        const Param *want[TREE_PARAMS];
        if (tree->unit[m] != m) {
            check(unit == NULL, "%s was never made a unit, and fsdp_unit gives one",
                  tree->module[m].name);
            continue;
        }
        int n = tree_unit_walk(tree, m, want);
        check(unit != NULL && fsdp_is_root(unit) == (m == 0), "unit %s is %s", tree->module[m].name,
              m == 0 ? "the outermost and not the root"
                     : "its own root, and a unit above it was made later");
        check(unit->flat.layout.n == n, "unit %s holds %d parameters, want %d",
              tree->module[m].name, unit->flat.layout.n, n);
        int64_t at = 0;
        for (int i = 0; i < n; at += meta_numel(want[i++])) {
            check(unit->flat.layout.params[i] == want[i],
                  "unit %s: place %d holds parameter %s, want %s", tree->module[m].name, i,
                  unit->flat.layout.params[i]->name, want[i]->name);
            check(unit->flat.layout.offset[i] == at && want[i]->owner == &unit->flat,
                  "unit %s: parameter %s begins at %lld, want %lld, with the unit as its owner",
                  tree->module[m].name, want[i]->name, (long long)unit->flat.layout.offset[i],
                  (long long)at);
        }
        check(unit->flat.layout.numel == at, "unit %s holds %lld elements, want %lld",
              tree->module[m].name, (long long)unit->flat.layout.numel, (long long)at);
    }
    unwrap_nest(nest, &ctx);
}

void claim_drawn_units(int low, int high)
{
    int world;
    Nest *nest = draw_nest(low, high, &world);
    run_ranks(world, drawn_nest_body, nest);
}

// The list of a module: the units at and below it, in the order of the tree.
static void drawn_list_body(const Rank *r, void *arg)
{
    Nest *nest = arg;
    const Tree *tree = &nest->tree;
    FsdpContext ctx;
    shard_nest(nest, &ctx, r);
    for (int m = 0; m < tree->n; m++) {
        FsdpUnit *got[TREE_MODULES] = {NULL};
        int n = fsdp_units(&tree->module[m], got, TREE_MODULES), place = 0;
        for (int k = m; k < tree->end[m]; k++) {
            if (tree->unit[k] != k) continue;
            check(place < n && got[place] == fsdp_unit(&tree->module[k]),
                  "the units of module %s: place %d of %d must be unit %s", tree->module[m].name,
                  place, n, tree->module[k].name);
            place++;
        }
        check(n == place, "module %s: fsdp_units counts %d, want %d", tree->module[m].name, n,
              place);
    }
    unwrap_nest(nest, &ctx);
}

void claim_drawn_list(int low, int high)
{
    int world;
    Nest *nest = draw_nest(low, high, &world);
    run_ranks(world, drawn_list_body, nest);
}

typedef struct Seen {
    uint64_t seed; // of the initial values
    int n;
    const Param *param[TREE_PARAMS];
    int wrong; // parameters whose values are not the initial ones
} Seen;

static Status visitor(const Param *param, const float *values, void *arg)
{
    Seen *seen = arg;
    size_t numel = (size_t)meta_numel(param);
    float *want = malloc(numel * sizeof *want);
    if (want == NULL || seen->n == TREE_PARAMS) return ERR_MEMORY;
    meta_init_slice(param, seen->seed, 0, (int64_t)numel, want);
    seen->wrong += memcmp(values, want, numel * sizeof *want) != 0;
    seen->param[seen->n++] = param;
    free(want);
    return OK;
}

// Every parameter of a drawn tree comes once, unit by unit, with its values.
static void drawn_state_body(const Rank *r, void *arg)
{
    Nest *nest = arg;
    const Tree *tree = &nest->tree;
    Seen seen = {.seed = nest->options.seed};
    FsdpContext ctx;
    shard_nest(nest, &ctx, r);
    need(fsdp_full_state(&nest->tree.module[0], visitor, &seen));
    int want = r->rank == 0 ? tree->n_params : 0;
    check(seen.n == want, "the visitor was called %d times on rank %d, want %d", seen.n, r->rank,
          want);
    check(seen.wrong == 0, "%d parameters came with other values than the model has", seen.wrong);
    // In which order the units come the contract does not say.
    for (int m = 0; m < tree->n && r->rank == 0; m++) {
        const Param *own[TREE_PARAMS];
        int n = tree->unit[m] == m ? tree_unit_walk(tree, m, own) : 0, at = 0;
        while (n > 0 && at < seen.n && seen.param[at] != own[0]) at++;
        for (int i = 0; i < n; i++)
            check(at + i < seen.n && seen.param[at + i] == own[i],
                  "call %d of the visitor brought %s, want %s of unit %s", at + i,
                  at + i < seen.n ? seen.param[at + i]->name : "nothing", own[i]->name,
                  tree->module[m].name);
    }
    unwrap_nest(nest, &ctx);
}

void claim_drawn_state(int low, int high)
{
    int world;
    Nest *nest = draw_nest(low, high, &world);
    run_ranks(world, drawn_state_body, nest);
}

static void drawn_unwrap_body(const Rank *r, void *arg)
{
    Nest *nest = arg;
    FsdpContext ctx;
    size_t live = gpulog_live_bytes(r->device);
    shard_nest(nest, &ctx, r);
    need_cuda(
        cudaDeviceSynchronize()); // no hook orders the gathers behind the making of the shards
    for (int m = 0; m < nest->tree.n; m++) // every other unit is unsharded
        if (nest->tree.unit[m] == m && m % 2 == 0)
            need(fsdp_unshard(fsdp_unit(&nest->tree.module[m])));
    unwrap_nest(nest, &ctx);
    for (int i = 0; i < nest->tree.n_params; i++)
        check(nest->tree.param[i].owner == NULL && nest->tree.param[i].data.data == NULL,
              "after fsdp_unwrap %s is not on meta", nest->tree.param[i].name);
    for (int m = 0; m < nest->tree.n; m++)
        check(fsdp_unit(&nest->tree.module[m]) == NULL,
              "after fsdp_unwrap module %s still is a unit", nest->tree.module[m].name);
    check(gpulog_live_bytes(r->device) == live, "fsdp_unwrap left %zu bytes on the device",
          gpulog_live_bytes(r->device) - live);
}

void claim_drawn_unwrap(int low, int high)
{
    int world;
    Nest *nest = draw_nest(low, high, &world);
    run_ranks(world, drawn_unwrap_body, nest);
}
