/* All options of the labs with each other: strategy, what micro-batches do, shape of the mesh,
 * reshard_ranks, tokens, resume and the types of lab 2. Each combination either trains, bitwise as
 * the serial oracle (tests/support/strategies.h), or the library refuses it with the line that is
 * named here.
 *
 * `make test` trains so many combinations that each *pair* of values which can be together is in
 * one of them; with PAIRS_ALL set, all combinations. Both ask the library for all refusals. The
 * table that is printed has the pairs: how many combinations with both values have trained, or the
 * letters of the reasons for which there is none.
 *
 * An option of another lab is one more axis: its values in AXES, and what each does in case_with.
 * Mixed precision is one, and with it `resume` has a second value: under another precision.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "checkpoint.h"
#include "files.h"
#include "harness.h"
#include "strategies.h"

enum { STRATEGY, MODE, SLICE, TOKENS, RESUME, PRECISION, SHAPE, N_AXES };
enum { MOST_VALUES = 20, MOST_COMBINATIONS = 40000, MOST_REASONS = 8, MOST_COLUMNS = 20 };

typedef struct Axis {
    const char *name;
    int n;
    const char *values[MOST_VALUES];
} Axis;

static const Axis AXES[N_AXES] = {
    {"strategy", 4, {"ddp", "zero1", "zero2", "zero3"}},
    {"micro-batches", 4, {"one", "accum", "every", "part"}},
    {"reshard_ranks", 4, {"0", "2", "3", "4"}},
    {"tokens", 2, {"equal", "other"}},
    {"resume", 2, {"no", "yes"}},
    {"param/reduce", 6, {"f/f", "b/f", "b/b", "h/f", "h/h", "f/b"}}, // float, bf16, half (fp16)
    {"shards x replicas", 20, {"1x1", "2x1", "1x2", "3x1", "1x3", "4x1", "2x2",
                               "1x4", "5x1", "1x5", "6x1", "3x2", "2x3", "1x6",
                               "7x1", "1x7", "8x1", "4x2", "2x4", "1x8"}},
};

// One value of each axis.
typedef struct Combination {
    int value[N_AXES];
    const char *reason; // why the library refuses it; "": it trains
    bool trained;
} Combination;

static Combination all[MOST_COMBINATIONS];
static int n_all;

static int world_of(const Combination *k)
{
    int shards, replicas;
    sscanf(AXES[SHAPE].values[k->value[SHAPE]], "%dx%d", &shards, &replicas);
    return shards * replicas;
}

static char dir[PATH_BYTES + 16];

// Everything is saved, torn down, made anew and loaded.
static void resume(Wrapped *w, const Case *c, const Rank *r, int step)
{
    CheckpointPosition position = {.step = step, .data_seed = 7};
    need(checkpoint_save(dir, w->model, &w->adamw, &position));
    case_unwrap(w, r);
    case_wrap(w, c, r);
    position = (CheckpointPosition){.step = 0, .data_seed = 0};
    need(checkpoint_load(dir, w->model, &w->adamw, &position));
    check(position.step == step && position.data_seed == 7, "the position was not saved");
}

// As the axis has them.
static const MixedPrecisionPolicy POLICIES[] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, true},   {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, true}, {DTYPE_F16, DTYPE_F32, DTYPE_F32, true},
    {DTYPE_F16, DTYPE_F16, DTYPE_F32, true},   {DTYPE_F32, DTYPE_BF16, DTYPE_F32, true}};

static Case case_with(const Combination *k)
{
    const int *v = k->value;
    int shards, replicas;
    sscanf(AXES[SHAPE].values[v[SHAPE]], "%dx%d", &shards, &replicas);
    Case c = case_of(spec_mlp(3), (Strategy)v[STRATEGY], shards * replicas, replicas,
                     v[MODE] == 0 ? 1 : 2);
    c.replicas = replicas;
    c.options.reduce_every_time = v[MODE] == 2;
    c.partial = v[MODE] == 3;
    c.options.reshard_ranks = atoi(AXES[SLICE].values[v[SLICE]]);
    c.uneven = v[TOKENS] == 1;
    c.between = v[RESUME] == 1 ? resume : NULL;
    c.policy = v[PRECISION] > 0 ? &POLICIES[v[PRECISION]] : NULL;
    return c;
}

static void list_combinations(void)
{
    if (n_all > 0) return;
    Combination k = {{0}, "", false};
    for (int more = 1; more;) {
        Case c = case_with(&k);
        k.reason = case_refusal(&c, world_of(&k));
        if (n_all == MOST_COMBINATIONS) fail_msg("more than %d combinations", n_all);
        all[n_all++] = k;
        more = 0;
        for (int a = 0; a < N_AXES && !more; a++) {
            k.value[a] = (k.value[a] + 1) % AXES[a].n;
            more = k.value[a] != 0;
        }
    }
}

static const char *name_of(const Combination *k, char *text, size_t size)
{
    size_t used = 0;
    for (int a = 0; a < N_AXES; a++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", a > 0 ? ", " : "",
                                 AXES[a].name, AXES[a].values[k->value[a]]);
    return text;
}

// ---- What is refused ----

static void refused_body(const Rank *r, void *arg)
{
    const Combination *shape = arg;
    FsdpOptions fsdp = {.seed = 42};
    Mesh mesh;
    FsdpContext ctx;
    Case c = case_with(shape);
    char text[256];
    need(mesh_2d(&mesh, r->comm, c.replicas));
    need(fsdp_context_create(&ctx, &mesh, r->stream));
    check_set_silent(true);
    for (int i = 0; i < n_all; i++) {
        const Combination *k = &all[i];
        if (k->value[SHAPE] != shape->value[SHAPE] || k->reason[0] == '\0') continue;
        if (k->value[TOKENS] > 0 || k->value[RESUME] > 0 || k->value[PRECISION] > 0)
            continue; // they refuse nothing
        c = case_with(k);
        Module *model = spec_create(&c.spec);
        need(fully_shard(model, &ctx, &fsdp));
        Status status = strategy_apply(model, &c.options);
        if (status == OK) {
            status = fsdp_set_requires_all_reduce(model, false);
            check(strstr(check_last(), k->reason) != NULL, "%s: the line is: %s",
                  name_of(k, text, sizeof text), check_last());
            need(strategy_remove(model));
        }
        check(status == ERR_ARGUMENT, "taken, and not refused: %s", name_of(k, text, sizeof text));
        check(strstr(check_last(), k->reason) != NULL, "%s: the line is: %s",
              name_of(k, text, sizeof text), check_last());
        fsdp_unwrap(model);
        module_destroy(model);
    }
    check_set_silent(false);
    need(fsdp_context_destroy(&ctx));
    need(mesh_destroy(&mesh, r->comm));
}

static void what_is_refused_has_a_line(void **state)
{
    list_combinations();
    for (int shape = 0; shape < AXES[SHAPE].n; shape++) {
        Combination k = {{0}, "", false};
        k.value[SHAPE] = shape;
        run_ranks(world_of(&k), refused_body, &k);
    }
}

// ---- What trains ----

static bool covered[N_AXES][MOST_VALUES][N_AXES][MOST_VALUES];

// The pairs of a combination that no other has had; marks them where `mark`.
static int new_pairs(const Combination *k, bool mark)
{
    int n = 0;
    for (int a = 0; a < N_AXES; a++)
        for (int b = a + 1; b < N_AXES; b++) {
            bool *pair = &covered[a][k->value[a]][b][k->value[b]];
            n += !*pair;
            *pair |= mark;
        }
    return n;
}

static void train(Combination *k)
{
    char text[256], folder[PATH_BYTES];
    Case c = case_with(k);
    c.name = name_of(k, text, sizeof text);
    if (c.between != NULL) make_folder(folder);
    if (c.between != NULL) snprintf(dir, sizeof dir, "%s/state", folder);
    run_case(world_of(k), &c);
    if (c.between != NULL) remove_folder(folder);
    k->trained = true;
}

static void print_table(void);

static void all_others_train(void **state)
{
    if (!backend_sums_in_tree_order(8)) skip(); // NCCL promises no order
    list_combinations();
    bool each = getenv("PAIRS_ALL") != NULL;
    for (int n = 0; !each;) { // always the one that brings most
        Combination *best = NULL;
        for (int i = 0; i < n_all; i++) {
            if (all[i].reason[0] != '\0') continue;
            int pairs = new_pairs(&all[i], false);
            if (best == NULL || pairs > n) best = &all[i], n = pairs;
        }
        if (n == 0) break;
        new_pairs(best, true);
        train(best);
        n = 0;
    }
    for (int i = 0; i < n_all && each; i++)
        if (all[i].reason[0] == '\0') train(&all[i]);
    print_table();
}

// ---- The table ----

// The number of a reason among those that are there; makes it one.
static int letter_of(const char *reason)
{
    static const char *reasons[MOST_REASONS];
    static int n;
    int i = 0;
    while (i < n && strcmp(reasons[i], reason) != 0) i++;
    if (i == n && n < MOST_REASONS) reasons[n++] = reason;
    return i;
}

// What the table says of a pair: how many have trained, or why none can.
static void say_pair(char *text, size_t size, int a, int va, int b, int vb)
{
    int trained = 0, possible = 0;
    bool reasons[MOST_REASONS + 1] = {false};
    for (int i = 0; i < n_all; i++) {
        const Combination *k = &all[i];
        if (k->value[a] != va || k->value[b] != vb) continue;
        trained += k->trained;
        possible += k->reason[0] == '\0';
        if (k->reason[0] != '\0') reasons[letter_of(k->reason)] = true;
    }
    if (possible > 0) {
        snprintf(text, size, "%d", trained);
        if (trained == 0)
            fail_msg("%s %s was never tried with %s %s", AXES[a].name, AXES[a].values[va],
                     AXES[b].name, AXES[b].values[vb]);
        return;
    }
    size_t used = 0;
    for (int i = 0; i < MOST_REASONS && used + 1 < size; i++)
        if (reasons[i]) text[used++] = (char)('a' + i);
    text[used] = '\0';
}

static void print_table(void)
{
    const char *letters[MOST_REASONS] = {NULL};
    int trained = 0;
    for (int i = 0; i < n_all; i++) {
        trained += all[i].trained;
        if (all[i].reason[0] != '\0') letters[letter_of(all[i].reason)] = all[i].reason;
    }
    printf("combinations that trained, for each pair; a letter: the library refuses it\n%-24s", "");
    for (int b = 0; b < SHAPE; b++)
        for (int v = 0; v < AXES[b].n; v++) printf(" %5s", AXES[b].values[v]);
    for (int a = 0; a < N_AXES; a++)
        for (int va = 0; va < AXES[a].n; va++) {
            printf("\n%-17s %6s", va == 0 ? AXES[a].name : "", AXES[a].values[va]);
            for (int b = 0; b < SHAPE; b++)
                for (int vb = 0; vb < AXES[b].n; vb++) {
                    char text[MOST_REASONS + 8] = ".";
                    if (a != b) say_pair(text, sizeof text, a, va, b, vb);
                    printf(" %5s", text);
                }
        }
    printf("\n");
    for (int i = 0; i < MOST_REASONS && letters[i] != NULL; i++)
        printf("  %c  %s\n", 'a' + i, letters[i]);
    printf("%d of %d combinations trained, bitwise as the oracle\n", trained, n_all);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_refused_has_a_line),
    cmocka_unit_test(all_others_train),
};
SUITE_MAIN("pairs", tests)
