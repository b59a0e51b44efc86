/* All options of the labs with each other: strategy, what micro-batches do, shape of the mesh,
 * reshard_ranks, tokens, resume, the types of lab 2, prefetching, recomputation, offload, layout,
 * FP8 gathers, frozen parameters and stages, and lab 8's graph and plan. Each combination either
 * trains, bitwise as the serial oracle (tests/support/strategies.h), or the library refuses it with
 * the line that is named there (case_refusal).
 *
 * All combinations are too many, and each option of a lab multiplies them. So combinations are
 * trained until each *pair* of values which can be together has been; with PAIRS_STRENGTH=3, each
 * three values. The library is asked for each reason with each pair of values that meets it. The
 * table that is printed has the pairs: how many combinations with both values have trained, or the
 * letters of the reasons for which there is none. COLUMNS says how wide it may be.
 *
 * An option of another lab is one more entry of AXES, with the function that gives its values to a
 * Case; the option itself is applied and removed in tests/support/strategies.c, and case_refusal
 * there says what it does not go with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "files.h"
#include "harness.h"
#include "per_parameter.h"
#include "strategies.h"

// ---- The axes ----

enum { MOST_VALUES = 20, MOST_IDS = 96, MOST_REASONS = 26, NAME_BYTES = 600 };

typedef struct Training {
    Case c;
    int world;
} Training;

typedef struct Axis {
    const char *name;
    void (*put)(Training *t, const char *value, int v); // the v-th value
    const char *values[MOST_VALUES];
    bool refuses; // whether a value of it may be refused because of another axis'
} Axis;

static void put_strategy(Training *t, const char *value, int v)
{
    t->c.options.strategy = (Strategy)v;
}

static void put_micro_batches(Training *t, const char *value, int v)
{
    t->c.rounds = v == 0 ? 1 : 2;
    t->c.options.reduce_every_time = v == 2;
    t->c.partial = v == 3;
}

static void put_reshard_ranks(Training *t, const char *value, int v)
{
    t->c.options.reshard_ranks = atoi(value);
}

static void put_tokens(Training *t, const char *value, int v)
{
    t->c.uneven = v == 1;
}

static void put_resume(Training *t, const char *value, int v)
{
    t->c.between = v == 1 ? case_resume : NULL;
}

static void put_types(Training *t, const char *value, int v)
{
    static const MixedPrecisionPolicy policies[] = {
        {DTYPE_F32, DTYPE_F32, DTYPE_F32, true},   {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, true}, {DTYPE_F16, DTYPE_F32, DTYPE_F32, true},
        {DTYPE_F16, DTYPE_F16, DTYPE_F32, true},   {DTYPE_F32, DTYPE_BF16, DTYPE_F32, true}};
    t->c.policy = v > 0 ? &policies[v] : NULL;
}

static void put_prefetch(Training *t, const char *value, int v)
{
    static const PrefetchOptions options[] = {{0, 1, 0}, {0, 0, 0}, {2, 2, 0}, {3, 3, 900}};
    t->c.prefetch = v > 0 ? &options[v] : NULL;
}

static void put_recompute(Training *t, const char *value, int v)
{
    t->c.recompute = (RecomputeKind)v;
}

static void put_offload(Training *t, const char *value, int v)
{
    t->c.offload = v == 1;
}

static void put_layout(Training *t, const char *value, int v)
{
    t->c.layout = v == 1 ? per_parameter_layout : NULL;
}

static void put_gather(Training *t, const char *value, int v)
{
    static const Fp8Options matrices = {NULL};
    t->c.fp8 = v == 1 ? &matrices : NULL;
}

static void put_frozen(Training *t, const char *value, int v)
{
    t->c.frozen = v == 1 ? every_third : v == 2 ? a_unit_and_more : NULL;
}

static void put_stages(Training *t, const char *value, int v)
{
    t->c.stages = v > 0 ? 2 : 0;
    t->c.kind = v == 2 ? PIPELINE_1F1B : PIPELINE_GPIPE;
}

// Of all ranks; stages have fewer replicas, or else fewer shards.
static void put_shape(Training *t, const char *value, int v)
{
    int shards;
    sscanf(value, "%dx%d", &shards, &t->c.replicas);
    t->world = shards * t->c.replicas;
    if (t->c.stages > 0 && t->c.replicas % t->c.stages == 0) t->c.replicas /= t->c.stages;
}

// The last one has the most values: it is no column of the table.
static const Axis AXES[] = {
    {"strategy", put_strategy, {"ddp", "zero1", "zero2", "zero3"}, true},
    {"micro-batches", put_micro_batches, {"one", "accum", "every", "part"}, true},
    {"reshard_ranks", put_reshard_ranks, {"0", "2", "3", "4"}, true},
    {"tokens", put_tokens, {"equal", "other"}, false},
    {"resume", put_resume, {"no", "yes"}, false},
    {"param/reduce", // float, bf16, half (fp16)
     put_types,
     {"f/f", "b/f", "b/b", "h/f", "h/h", "f/b"},
     false},
    {"prefetch", put_prefetch, {"no", "0", "2", "limit"}, false},
    {"recompute", put_recompute, {"no", "blocks"}, false},
    {"offload", put_offload, {"no", "yes"}, true},
    {"layout", put_layout, {"flat", "param"}, true},
    {"gather", put_gather, {"as is", "FP8"}, true},
    {"frozen", put_frozen, {"none", "some", "unit"}, true},
    {"stages", put_stages, {"1", "2 GPipe", "2 1F1B"}, true},
    {"shards x replicas",
     put_shape,
     {"1x1", "2x1", "1x2", "3x1", "1x3", "4x1", "2x2", "1x4", "5x1", "1x5",
      "6x1", "3x2", "2x3", "1x6", "7x1", "1x7", "8x1", "4x2", "2x4", "1x8"},
     true},
};
enum { N_AXES = sizeof AXES / sizeof *AXES, SHAPE = N_AXES - 1 };

static int n_values(int a)
{
    int n = 0;
    while (n < MOST_VALUES && AXES[a].values[n] != NULL) n++;
    return n;
}

// ---- Combinations ----

// One value of each axis.
typedef struct Combination {
    unsigned char value[N_AXES];
} Combination;

// A combination of the axes that may be refused; the values of the others are 0.
typedef struct Core {
    Combination k;
    signed char reason; // in `reasons`; -1: it trains
    bool asked;         // whether the library is asked for its reason
    unsigned repairs;   // axes of which another value alone would have it train
} Core;

static Core *cores;
static int n_cores, n_trained;
static Combination *trained;
static const char *reasons[MOST_REASONS];
static int ids[N_AXES + 1]; // a value's id: ids[axis] + its number

static Training training_of(const Combination *k)
{
    Training t = {case_of(spec_mlp(3), STRATEGY_ZERO3, 1, 1, 1), 1};
    for (int a = 0; a < N_AXES; a++) AXES[a].put(&t, AXES[a].values[k->value[a]], k->value[a]);
    return t;
}

// The number of a reason; makes it one.
static int reason_of(const Combination *k)
{
    Training t = training_of(k);
    const char *text = case_refusal(&t.c, t.world);
    int i = 0;
    if (text[0] == '\0') return -1;
    while (i < MOST_REASONS && reasons[i] != NULL && strcmp(reasons[i], text) != 0) i++;
    if (i == MOST_REASONS) fail_msg("more than %d reasons", MOST_REASONS);
    reasons[i] = text;
    return i;
}

// Marks the axes of which another value alone would have the combination train. Where axis a has
// its next value is `stride` further on.
static unsigned repairs_of(int i)
{
    unsigned repairs = 0;
    int stride = 1;
    for (int a = 0; a < N_AXES; a++) {
        if (!AXES[a].refuses) continue;
        int n = n_values(a), first = i - cores[i].k.value[a] * stride;
        for (int v = 0; v < n; v++)
            if (cores[first + v * stride].reason < 0) repairs |= 1U << a;
        stride *= n;
    }
    return repairs;
}

static int id_of(const Combination *k, int a)
{
    return ids[a] + k->value[a];
}

// Whether the reason was not met before with one of the pairs of values.
static bool is_new_reason(const Core *core)
{
    static bool met[MOST_REASONS][MOST_IDS][MOST_IDS];
    bool is_new = false;
    for (int a = 0; a < N_AXES; a++)
        for (int b = a + 1; b < N_AXES; b++) {
            bool *pair = &met[core->reason][id_of(&core->k, a)][id_of(&core->k, b)];
            is_new |= !*pair;
            *pair = true;
        }
    return is_new;
}

static void list_cores(void)
{
    if (n_cores > 0) return;
    int total = 1;
    for (int a = 0; a < N_AXES; a++) {
        ids[a + 1] = ids[a] + n_values(a);
        if (AXES[a].refuses) total *= n_values(a);
    }
    cores = calloc((size_t)total, sizeof *cores);
    trained = calloc(MOST_IDS * MOST_IDS, sizeof *trained);
    if (cores == NULL || trained == NULL || ids[N_AXES] > MOST_IDS)
        fail_msg("%d combinations and %d values are too many", total, ids[N_AXES]);
    Combination k = {{0}};
    for (n_cores = 0; n_cores < total; n_cores++) {
        cores[n_cores] = (Core){.k = k, .reason = (signed char)reason_of(&k)};
        for (int a = 0; a < N_AXES; a++) {
            if (!AXES[a].refuses) continue;
            k.value[a] = (unsigned char)((k.value[a] + 1) % n_values(a));
            if (k.value[a] != 0) break;
        }
    }
    for (int i = 0; i < n_cores; i++) {
        if (cores[i].reason < 0) continue;
        cores[i].repairs = repairs_of(i);
        cores[i].asked = is_new_reason(&cores[i]);
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
    const int *shape = arg;
    Wrapped w;
    char text[NAME_BYTES];
    int stages = 0; // of w's mesh
    memset(&w, 0, sizeof w);
    check_set_silent(true);
    for (int i = 0; i < n_cores; i++) {
        const Core *core = &cores[i];
        if (core->k.value[SHAPE] != *shape || !core->asked) continue;
        Training t = training_of(&core->k);
        if (w.ctx.compute_stream != NULL && stages != t.c.stages) {
            case_unmesh(&w);
            memset(&w, 0, sizeof w);
        }
        stages = t.c.stages;
        Status status = OK;
        if (w.ctx.compute_stream == NULL) status = case_mesh(&w, &t.c, r);
        if (status == OK) status = case_build(&w, &t.c);
        check(status == ERR_ARGUMENT, "taken, and not refused: %s",
              name_of(&core->k, text, sizeof text));
        check(strstr(check_last(), reasons[core->reason]) != NULL, "%s: the line is: %s",
              name_of(&core->k, text, sizeof text), check_last());
        case_take_down(&w);
    }
    check_set_silent(false);
    if (w.ctx.compute_stream != NULL) case_unmesh(&w);
}

TEST(what_is_refused_has_a_line)
{
    list_cores();
    for (int shape = 0; shape < n_values(SHAPE); shape++) {
        Combination k = {{0}};
        k.value[SHAPE] = (unsigned char)shape;
        run_ranks(training_of(&k).world, refused_body, &shape);
    }
}

// ---- What trains ----

// Two values, or three: ids in ascending order, the last one again where there are fewer.
typedef bool Sets[MOST_IDS][MOST_IDS][MOST_IDS];

static Sets possible, covered;

static int strength(void)
{
    const char *text = getenv("PAIRS_STRENGTH");
    return text != NULL && atoi(text) == 3 ? 3 : 2;
}

static int axis_of(int id)
{
    int a = 0;
    while (id >= ids[a + 1]) a++;
    return a;
}

static void list_possible(void)
{
    for (int i = 0; i < n_cores; i++) {
        const Combination *k = &cores[i].k;
        for (int a = 0; a < N_AXES && cores[i].reason < 0; a++)
            for (int b = a; b < N_AXES; b++)
                for (int c = b; c < N_AXES; c++)
                    possible[id_of(k, a)][id_of(k, b)][id_of(k, c)] = true;
    }
}

// Whether a combination with these values trains: the core decides, what refuses nothing goes with
// all of them.
static bool is_possible(const int id[3])
{
    int in[3], n = 0;
    for (int i = 0; i < 3; i++)
        if (AXES[axis_of(id[i])].refuses) in[n++] = id[i];
    if (n == 0) return true;
    for (; n < 3; n++) in[n] = in[n - 1];
    return possible[in[0]][in[1]][in[2]];
}

// How many sets of the combination are not covered, of the axes in `of`; covers them if `mark`.
static int new_sets(const Combination *k, unsigned of, bool mark)
{
    int n = 0, at[N_AXES], n_at = 0, two = strength() == 2;
    for (int a = 0; a < N_AXES; a++)
        if (of >> a & 1) at[n_at++] = id_of(k, a);
    for (int a = 0; a < n_at; a++)
        for (int b = a + 1; b < n_at; b++)
            for (int c = two ? b : b + 1; c < (two ? b + 1 : n_at); c++) {
                n += !covered[at[a]][at[b]][at[c]];
                covered[at[a]][at[b]][at[c]] |= mark;
            }
    return n;
}

// A number of [0, n), the same ones in each run.
static int draw(int n)
{
    static unsigned state = 8812;
    state = state * 1664525 + 1013904223;
    return (int)((state >> 8) % (unsigned)n);
}

// Gives the axes that are not in `fixed` the values that bring most, one axis after the other.
static void fill(Combination *k, unsigned fixed)
{
    for (int a = 0; a < N_AXES; a++) {
        if (fixed >> a & 1) continue;
        int best = -1, values = n_values(a), first = draw(values);
        fixed |= 1U << a;
        for (int i = 0; i < values; i++) {
            Combination other = *k;
            other.value[a] = (unsigned char)((first + i) % values);
            int brings = new_sets(&other, fixed, false);
            if (brings <= best) continue;
            best = brings;
            k->value[a] = other.value[a];
        }
    }
}

// Gives the combination the values of a set. False: an axis that may be refused has another one.
static bool put_set(Combination *k, const int id[3])
{
    for (int j = 0; j < 3; j++) {
        int a = axis_of(id[j]);
        if (AXES[a].refuses && id_of(k, a) != id[j]) return false;
        k->value[a] = (unsigned char)(id[j] - ids[a]);
    }
    return true;
}

// A combination that trains and has the set: of some that do, drawn, the one that brings most.
static Combination best_with(const int id[3])
{
    enum { DRAWN = 64 };
    int *fit = malloc((size_t)n_cores * sizeof *fit), n = 0, most = -1;
    unsigned fixed = 0;
    Combination best = {{0}};
    if (fit == NULL) fail_msg("no memory for %d combinations", n_cores);
    for (int i = 0; i < n_cores; i++) {
        Combination k = cores[i].k;
        if (cores[i].reason < 0 && put_set(&k, id)) fit[n++] = i;
    }
    for (int a = 0; a < N_AXES; a++) fixed |= (unsigned)AXES[a].refuses << a;
    for (int j = 0; j < 3; j++) fixed |= 1U << axis_of(id[j]);
    for (int i = 0; i < n && i < DRAWN; i++) {
        Combination k = cores[fit[n <= DRAWN ? i : draw(n)]].k;
        put_set(&k, id);
        fill(&k, fixed);
        int brings = new_sets(&k, (1U << N_AXES) - 1, false);
        if (brings > most) most = brings, best = k;
    }
    free(fit);
    return best;
}

static void train(const Combination *k)
{
    char text[NAME_BYTES];
    Training t = training_of(k);
    t.c.name = name_of(k, text, sizeof text);
    if (t.c.between != NULL) make_folder(case_folder);
    run_case(t.world, &t.c);
    if (t.c.between != NULL) remove_folder(case_folder);
    new_sets(k, (1U << N_AXES) - 1, true);
    if (n_trained == MOST_IDS * MOST_IDS) fail_msg("more than %d combinations", n_trained);
    trained[n_trained++] = *k;
}

// A combination that has trained, as a graph or regrouped (lab 8), for calls that cost a µs or a
// thousand: it is refused with its line, and trains without the options that do not go with that.
static void train_otherwise(const Combination *k, int way)
{
    static const double cost[] = {0.0, 1.0, 1e3, 1e3};
    char text[NAME_BYTES], *said = NULL;
    Training t = training_of(k);
    t.c.name = name_of(k, text, sizeof text);
    t.c.graph = way % 3 == 0;
    t.c.regroup = cost[way];
    const char *refusal = case_refusal(&t.c, t.world);
    if (refusal[0] != '\0') {
        said = run_refused_message(t.world, &t.c, refusal);
        t.c.offload = false;
        t.c.policy = NULL;
        t.c.fp8 = NULL;
        if (t.c.regroup > 0.0) t.c.prefetch = NULL, t.c.options.reshard_ranks = 0;
        t.c.stages = 0;
    }
    if (said == NULL && case_refusal(&t.c, t.world)[0] == '\0') {
        make_folder(case_folder);
        said = run_case_message(t.world, &t.c);
        remove_folder(case_folder);
    }
    if (said != NULL) fail_msg("%s, way %d of lab 8: %s", text, way, said);
}

static void print_table(void);

TEST(all_others_train)
{
    if (!backend_sums_in_tree_order(8)) skip(); // NCCL promises no order
    list_cores();
    list_possible();
    int n = ids[N_AXES], two = strength() == 2, sets = 0;
    int id[3];
    for (id[0] = n - 1; id[0] >= 0; id[0]--)
        for (id[1] = n - 1; id[1] > id[0]; id[1]--)
            for (id[2] = two ? id[1] : n - 1; id[2] > id[1] || (two && id[2] == id[1]); id[2]--) {
                bool apart = axis_of(id[0]) != axis_of(id[1]);
                if (!apart || (!two && axis_of(id[1]) == axis_of(id[2])) || !is_possible(id))
                    continue;
                sets++;
                if (covered[id[0]][id[1]][id[2]]) continue;
                Combination k = best_with(id);
                train(&k);
            }
    for (int i = 0; i < n_trained; i++)
        for (int way = 0; way < 4; way++)
            if (!two || way == i % 4) train_otherwise(&trained[i], way);
    print_table();
    printf("%d combinations trained, bitwise as the oracle: all %d sets of %s values\n", n_trained,
           sets, two ? "two" : "three");
}

// ---- The table ----

// The letters of the reasons for which no combination has both values: of those that would train
// with another value in either place; else in one of them.
static void say_reasons(char *text, size_t size, const int axis[2], const int value[2])
{
    bool given[2][MOST_REASONS] = {{false}};
    size_t used = 0;
    unsigned both = 1U << axis[0] | 1U << axis[1];
    int from = 1;
    for (int i = 0; i < n_cores; i++) {
        const Core *core = &cores[i];
        if (core->k.value[axis[0]] != value[0] || core->k.value[axis[1]] != value[1]) continue;
        if ((core->repairs & both) == 0) continue;
        int which = (core->repairs & both) == both ? 0 : 1;
        if (which < from) from = which;
        given[which][core->reason] = true;
    }
    for (int i = 0; i < MOST_REASONS && used + 1 < size; i++)
        if (given[from][i]) text[used++] = (char)('a' + i);
    text[used] = '\0';
    if (used == 0)
        fail_msg("no reason for %s %s with %s %s", AXES[axis[0]].name,
                 AXES[axis[0]].values[value[0]], AXES[axis[1]].name,
                 AXES[axis[1]].values[value[1]]);
}

// What the table says of a pair: how many have trained, or why none can.
static void say_pair(char *text, size_t size, const int axis[2], const int value[2])
{
    int x = ids[axis[0]] + value[0], y = ids[axis[1]] + value[1], n = 0;
    int id[3] = {x < y ? x : y, x < y ? y : x, x < y ? y : x};
    for (int i = 0; i < n_trained; i++)
        n += trained[i].value[axis[0]] == value[0] && trained[i].value[axis[1]] == value[1];
    if (!is_possible(id)) {
        say_reasons(text, size, axis, value);
        return;
    }
    snprintf(text, size, "%d", n);
    if (n == 0)
        fail_msg("%s %s was never tried with %s %s", AXES[axis[0]].name,
                 AXES[axis[0]].values[value[0]], AXES[axis[1]].name,
                 AXES[axis[1]].values[value[1]]);
}

enum { CELL = 6, LEFT = 25 };

// The axes [first, end) as columns, those after `first` as rows: each pair once.
static void print_part(int first, int end)
{
    for (int line = 0; line < 2; line++) {
        printf("\n%-*s", LEFT, "");
        for (int b = first; b < end; b++)
            for (int v = 0; v < n_values(b); v++)
                if (line == 1)
                    printf("%*s", CELL, AXES[b].values[v]);
                else if (v == 0)
                    printf(" %-*s", n_values(b) * CELL - 1, AXES[b].name);
    }
    for (int a = first + 1; a < N_AXES; a++)
        for (int va = 0; va < n_values(a); va++) {
            printf("\n%-17s %*s", va == 0 ? AXES[a].name : "", LEFT - 18, AXES[a].values[va]);
            for (int b = first; b < end && b < a; b++)
                for (int vb = 0; vb < n_values(b); vb++) {
                    char text[16];
                    say_pair(text, sizeof text, (int[]){a, b}, (int[]){va, vb});
                    printf("%*s", CELL, text);
                }
        }
    printf("\n");
}

static void print_table(void)
{
    const char *columns = getenv("COLUMNS");
    int width = columns != NULL ? atoi(columns) : 100;
    printf("combinations that trained, for each pair; a letter: the library refuses it\n");
    for (int first = 0, end; first < SHAPE; first = end) {
        int used = LEFT;
        for (end = first; end < SHAPE && (end == first || used + n_values(end) * CELL <= width);)
            used += n_values(end++) * CELL;
        print_part(first, end);
    }
    for (int i = 0; i < MOST_REASONS && reasons[i] != NULL; i++)
        printf("  %c  %s\n", 'a' + i, reasons[i]);
}

SUITE_MAIN("pairs")
