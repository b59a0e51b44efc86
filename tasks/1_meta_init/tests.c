/* Task 1, meta init: counting without storage, and initial values that any rank can make in part.
 */
#include "draw_model.h"
#include "drawn_claims.h"
#include "fsdp.h"
#include "harness.h"
#include "oracle.h"
#include "rules.h"
#include "training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static Param make_param(int ndim, const int64_t *shape, InitKind init, float std, uint32_t id)
{
    Param p = {.name = "test.weight", .id = id, .ndim = ndim, .init = init, .init_std = std};
    for (int i = 0; i < ndim; i++) p.shape[i] = shape[i];
    return p;
}

static Param normal_param(int64_t numel, uint32_t id)
{
    return make_param(1, &numel, INIT_NORMAL, 0.5f, id);
}

// ---- Counting ----

// What is counted with max = 0 is the size of the list: the two agree, before anything is summed.
static void check_lists_what_it_counts(const Module *model)
{
    enum { MOST = 512 };
    Param *params[MOST] = {NULL};
    int counted = meta_params(model, NULL, 0), listed = 0;
    int again = meta_params(model, params, MOST);
    while (listed < MOST && params[listed] != NULL) listed++;
    check(counted == listed && again == listed,
          "meta_params finds %d parameters of GPT-2 where max is 0, and lists %d, of which it says "
          "that they are %d, where max is 512: %s",
          counted, listed, again,
          counted < listed ? "what out has no room for must be counted, too"
          : counted == again
              ? "out has room for all of them: with which out, max and n does walk() "
                "go on to a child?"
              : "whether a parameter was met before must not depend on what was "
                "written to out");
}

static void count_body(const Rank *r, void *arg)
{
    const struct {
        int ndim;
        int64_t shape[4];
        int64_t want;
    } table[] = {
        {0, {0}, 1}, // a single number: the product of nothing
        {1, {7}, 7},
        {2, {3, 5}, 15},
        {4, {2, 3, 5, 7}, 210},
        {2, {50257, 1024}, 51463168},
        {3, {4096, 4096, 1000}, 16777216000}, // does not fit in 32 bits
        {3, {4, 0, 7}, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        Param p = make_param(table[i].ndim, table[i].shape, INIT_ZERO, 0.0f, 0);
        check(meta_numel(&p) == table[i].want,
              "meta_numel of a shape with %d dimensions gives %lld, want %lld", p.ndim,
              (long long)meta_numel(&p), (long long)table[i].want);
    }
    part_holds("1.1");

    // The models of the GPT-2 paper, as released: the weights tied, position embeddings of 1024.
    const struct {
        Gpt2Config config;
        int64_t want;
    } models[] = {
        {{.vocab = 50257, .max_T = 1024, .layers = 12, .heads = 12, .dim = 768}, 124439808},
        {{.vocab = 50257, .max_T = 1024, .layers = 24, .heads = 16, .dim = 1024}, 354823168},
    };
    size_t before = gpulog_live_bytes(r->device);
    for (size_t i = 0; i < 2; i++) {
        Module *model = gpt2_create(&models[i].config);
        check(model != NULL, "gpt2_create failed");
        check_lists_what_it_counts(model);
        check(meta_count(model) == models[i].want,
              "GPT-2 of %d layers: meta_count gives %lld, want %lld", models[i].config.layers,
              (long long)meta_count(model), (long long)models[i].want);
        check(meta_bytes(model) == 4 * models[i].want, "GPT-2 of %d layers: meta_bytes gives %lld",
              models[i].config.layers, (long long)meta_bytes(model));
        module_destroy(model);
    }
    check(gpulog_live_bytes(r->device) == before,
          "meta_count: counting a model on meta took device memory");
}

TEST(counts_elements)
{
    run_ranks(1, count_body, NULL);
    RULE(counts_large_and_small_types);
    claim_drawn_counts();
}

static void walk_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(2);
    Module *model = spec_create(&spec);
    Param *params[64];
    int n = meta_params(model, NULL, 0);
    // wte, wpe; a block: ln_1 2, attn 4, ln_2 2, mlp 4; ln_f 2; the head is tied to wte.
    check(n == 2 + 2 * 12 + 2, "GPT-2 of 2 layers: meta_params finds %d parameters, want 28", n);
    memset(params, 0, sizeof params);
    check(meta_params(model, params, 64) == n,
          "meta_params gives another number with a place for them");
    for (int i = 0; i < n; i++) {
        check(params[i] != NULL, "meta_params left place %d empty", i);
        check(params[i]->id == (uint32_t)i,
              "meta_params: place %d holds %s, which the walk meets at place %u", i,
              params[i]->name, params[i]->id);
    }
    memset(params, 0, sizeof params);
    check(meta_params(model, params, 3) == n, "meta_params must count beyond max");
    check(params[2] != NULL && params[3] == NULL, "meta_params wrote to a place at or beyond max");
    check(meta_params(model->children[1], NULL, 0) == 12,
          "block h.0 alone has 12 parameters, not %d", meta_params(model->children[1], NULL, 0));
    module_destroy(model);
}

// A model in which modules have parameters and children: root {a, b} with the children
// left {c, a} and right {d}, where left has a child {b, e}. a and b are tied.
static void tree_body(const Rank *r, void *arg)
{
    Param p[5] = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}, {.name = "e"}};
    Param *of_root[] = {&p[0], &p[1]}, *of_left[] = {&p[2], &p[0]}, *of_right[] = {&p[3]};
    Param *of_inner[] = {&p[1], &p[4]};
    Module inner = {.name = "inner", .n_params = 2, .params = of_inner}, *below_left[] = {&inner};
    Module left = {.name = "left", .n_params = 2, .params = of_left};
    Module right = {.name = "right", .n_params = 1, .params = of_right};
    Module *below_root[] = {&left, &right};
    Module root = {.name = "root", .n_params = 2, .params = of_root};
    left.n_children = 1;
    left.children = below_left;
    root.n_children = 2;
    root.children = below_root;

    const Param *want[] = {&p[0], &p[1], &p[2], &p[4], &p[3]};
    Param *got[8] = {NULL};
    int n = meta_params(&root, got, 8);
    check(n == 5, "a model of five parameters, two of them tied: meta_params finds %d", n);
    for (int i = 0; i < 5; i++)
        check(got[i] == want[i],
              "meta_params: place %d holds parameter %s, want %s: a module's own parameters come "
              "first, then its children's in order",
              i, got[i] == NULL ? "(none)" : got[i]->name, want[i]->name);
    n = meta_params(&left, got, 8);
    check(n == 4 && got[0] == &p[2] && got[1] == &p[0] && got[2] == &p[1] && got[3] == &p[4],
          "a part of the model has its own first uses: of module left the walk must give c a b e");
}

TEST(walks_each_parameter_once)
{
    run_ranks(1, walk_body, NULL);
    run_ranks(1, tree_body, NULL);
    RULE(walks_every_tie_once);
    for (int i = 0; i < 3; i++) claim_drawn_walk();
}

// ---- The generator ----

// Known answers published with the generator (Random123, tests/kat_vectors, philox4x32 10 rounds).
static void philox_body(const Rank *r, void *arg)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } table[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        oracle_philox(table[i].counter, table[i].key, out);
        check(memcmp(out, table[i].want, sizeof out) == 0,
              "the tests' own generator does not give known answer %zu: that is the kit's mistake",
              i);
        philox4x32_10(table[i].counter, table[i].key, out);
        for (int j = 0; j < 4; j++)
            check(out[j] == table[i].want[j],
                  "philox4x32_10, known answer %zu, word %d: got %08x, want %08x%s", i, j, out[j],
                  table[i].want[j], philox_cause(table[i].counter, table[i].key, out));
    }
}

TEST(philox_known_answers)
{
    run_ranks(1, philox_body, NULL);
    RULE(philox_of_any_words);
}

// The values that a normal parameter would have by mistakes in what its words come from; values has
// room for WRONG_INITS arrays of n + 1.
enum { KEY_REVERSED, NO_STD, NO_ID, NO_SEED, ID_IN_KEY, WRONG_INITS };
static void suspect(Clues *clues, const Param *p, uint64_t seed, float *values, int64_t n)
{
    static const char *const cause[WRONG_INITS] = {
        [KEY_REVERSED] = ("the two words of the key are in each other's place: which half of the "
                          "seed comes first?"),
        [NO_STD] = "these are normals of deviation 1: where is init_std?",
        [NO_ID] = "these are the values of the parameter with id 0: is param->id in the counter?",
        [NO_SEED] = "these are the values of seed 0: is the seed the key?",
        [ID_IN_KEY] = ("param->id is in the key, in place of the seed's high word, and not in the "
                       "counter: which of the two does normal_blocks give it to?"),
    };
    for (int k = 0; k < WRONG_INITS; k++, values += n + 1) {
        Param wrong = *p;
        if (k == NO_STD) wrong.init_std = 1.0f;
        if (k == NO_ID || k == ID_IN_KEY) wrong.id = 0;
        uint64_t from = k == NO_SEED        ? 0
                        : k == KEY_REVERSED ? seed << 32 | seed >> 32
                        : k == ID_IN_KEY    ? (uint32_t)seed | (uint64_t)p->id << 32
                                            : seed;
        oracle_init(&wrong, from, 0, n + 1, values);
        clues->clue[clues->n++] = (Clue){values, cause[k]};
    }
}

// philox4x32_10 gives the right words for the n elements of a parameter, of a seed of 32 bits.
static bool words_are_right(const Param *p, uint32_t seed, uint32_t n)
{
    for (uint32_t block = 0; block <= n / 4; block++) {
        uint32_t words[4], want[4], counter[] = {block, 0, p->id, 0}, low_word_first[] = {seed, 0};
        philox4x32_10(counter, low_word_first, words);
        oracle_philox(counter, low_word_first, want);
        if (memcmp(words, want, sizeof words) != 0) return false;
    }
    return true;
}

// A block's values are the same alone and in front of another: each has its four of the words.
static void check_blocks_apart(const Param *p)
{
    float one[4], two[8], again[4], want[4];
    bool right = true;
    oracle_init(p, 42, 0, 4, want);
    meta_init_slice(p, 42, 0, 4, one);
    meta_init_slice(p, 42, 0, 8, two);
    meta_init_slice(p, 42, 0, 4, again); // as before: the generator has no state
    for (int i = 0; i < 4; i++)
        right &= fabsf(one[i] - want[i]) <= 1e-5f && fabsf(again[i] - want[i]) <= 1e-5f;
    for (int i = 0; i < 4; i++)
        check(!right || fabsf(two[i] - want[i]) <= 1e-5f,
              "element %d of a slice of one block is right, and in front of a second block it is "
              "%g, must be %g: where in `words` does normal_blocks put the words of block 1?",
              i, (double)two[i], (double)want[i]);
    meta_init_slice(p, 42, 4, 8, again);
    check(!right || memcmp(again, one, sizeof again) != 0,
          "element 4 of a slice that begins there is element 0: does meta_init_slice give "
          "normal_blocks the number of the first block, and does that one count from it?");
}

static void slices_body(const Rank *r, void *arg)
{
    enum { N = 1003 };
    enum { BEHIND = 8 }; // places behind the last element, which no slice may touch
    static float whole[N], part[N + BEHIND], untouched[BEHIND];
    Param p = normal_param(N, 3);
    memset(part, 0xFF, sizeof part);
    memset(untouched, 0xFF, sizeof untouched);
    check_blocks_apart(&p);
    meta_init_slice(&p, 42, 0, N, whole);

    // Every cut into equal slices, and slices that begin and end at every place of a block.
    for (int64_t length = 1; length <= N; length = length < 12 ? length + 1 : length * 2 - 5) {
        for (int64_t begin = 0; begin < N; begin += length) {
            int64_t end = begin + length < N ? begin + length : N;
            meta_init_slice(&p, 42, begin, end, part + begin);
        }
        check(memcmp(part + N, untouched, sizeof untouched) == 0,
              "meta_init_slice in slices of %lld wrote past the end of the last one",
              (long long)length);
        check_equal(
            "a parameter that meta_init_slice made in slices, against the same made at once", part,
            whole, N);
        memset(part, 0xFF, sizeof part);
    }

    static float want[N], wrong[WRONG_INITS * (N + 1)];
    Clues clues = {.slack = 2e-6,
                   .otherwise = words_are_right(&p, 42, N)
                                    ? "the slices agree with each other, so all elements are wrong "
                                      "in one way: which words does normal_blocks put into counter "
                                      "and key?"
                                    : "philox4x32_10 gives wrong words here"};
    suspect(&clues, &p, 42, wrong, N);
    oracle_init(&p, 42, 0, N, want);
    check_near_in(&clues,
                  "a normal parameter of meta_init_slice, against what normal_blocks' words give",
                  whole, want, N, 2e-6);

    // Another seed, its high word alone, or another parameter: other values.
    const struct {
        uint64_t seed;
        uint32_t id;
    } others[] = {{43, 3}, {42 + (1ull << 32), 3}, {42, 4}};
    for (size_t i = 0; i < 3; i++) {
        int same = 0;
        Param q = normal_param(N, others[i].id);
        meta_init_slice(&q, others[i].seed, 0, N, part);
        for (int j = 0; j < N; j++) same += part[j] == whole[j];
        check(same < N / 100,
              "seed %llu, parameter %u: %d of %d values are those of seed 42, parameter 3: which "
              "bits of the seed and of the id does normal_blocks leave out?",
              (unsigned long long)others[i].seed, others[i].id, same, N);
    }

    // Far beyond 2³²: the block number needs both words of the counter.
    float near[4], far[4];
    Param huge = normal_param((int64_t)1 << 40, 3);
    meta_init_slice(&huge, 42, 0, 4, near);
    meta_init_slice(&huge, 42, (int64_t)1 << 36, ((int64_t)1 << 36) + 4, far);
    check(memcmp(near, far, sizeof near) != 0,
          "element 2^36 repeats element 0: the block number lost its high word. Is it 64 bits "
          "in meta_init_slice, and are both halves in normal_blocks' counter?");
}

TEST(slices_agree_with_whole)
{
    run_ranks(1, slices_body, NULL);
    RULE(elements_depend_on_nothing_else);
    for (int i = 0; i < 3; i++) claim_drawn_slices(15);
}

static void constants_body(const Rank *r, void *arg)
{
    float out[9];
    int64_t shape = 100;
    Param zero = make_param(1, &shape, INIT_ZERO, 0.0f, 0),
          one = make_param(1, &shape, INIT_ONE, 0, 1);
    Param normal = normal_param(100, 2);
    const Param *all[] = {&zero, &one, &normal};

    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 9; j++) out[j] = 77.0f;
        meta_init_slice(all[i], 1, 13, 13, out);
        check(out[0] == 77.0f, "an empty slice wrote an element");
        for (int64_t begin = 88; begin < 92; begin++) {
            out[0] = out[8] = 77.0f;
            meta_init_slice(all[i], 1, begin, begin + 7, out + 1);
            check(out[0] == 77.0f && out[8] == 77.0f,
                  "the slice [%lld, %lld) wrote outside of its 7 places", (long long)begin,
                  (long long)begin + 7);
        }
    }
    // Whatever multiple of something a slice falls short of by one element.
    static float longer[301];
    normal.shape[0] = 300;
    for (int n = 1; n <= 300; n++) {
        longer[n] = 77.0f;
        meta_init_slice(&normal, 1, 0, n, longer);
        check(longer[n] == 77.0f, "the slice [0, %d) wrote outside of its %d places", n, n);
    }
    meta_init_slice(&zero, 1, 90, 99, out);
    for (int j = 0; j < 9; j++)
        check(out[j] == 0.0f, "meta_init_slice must give zeros for INIT_ZERO, and gives %g",
              (double)out[j]);
    meta_init_slice(&one, 1, 90, 99, out);
    for (int j = 0; j < 9; j++)
        check(out[j] == 1.0f, "meta_init_slice must give ones for INIT_ONE, and gives %g",
              (double)out[j]);

    // Elements whose numbers need more than 31 bits, or 32.
    one.shape[0] = (int64_t)1 << 40;
    for (int bits = 31; bits <= 32; bits++) {
        for (int j = 0; j < 9; j++) out[j] = 77.0f;
        meta_init_slice(&one, 1, ((int64_t)1 << bits) - 3, ((int64_t)1 << bits) + 4, out + 1);
        for (int j = 0; j < 9; j++)
            check(out[j] == (j > 0 && j < 8 ? 1.0f : 77.0f),
                  "meta_init_slice of [2^%d - 3, 2^%d + 4) of a parameter of ones: place %d holds "
                  "%g: is every number of an element an int64_t?",
                  bits, bits, j - 1, (double)out[j]);
    }
}

TEST(slice_of_nothing_and_constants)
{
    run_ranks(1, constants_body, NULL);
    for (int i = 0; i < 3; i++) claim_drawn_constants();
}

typedef struct Sample {
    int n;
    float std;
    uint32_t id;
    uint64_t seed;
    double errors; // standard errors that a figure may be off by
} Sample;

static void moments_body(const Rank *r, void *arg)
{
    const Sample *sample = arg;
    int n = sample->n;
    float *x = malloc((size_t)n * sizeof *x);
    int64_t numel = n;
    Param p = make_param(1, &numel, INIT_NORMAL, sample->std, sample->id);
    double sum = 0.0, squares = 0.0, next = 0.0, std = sample->std, variance = std * std;
    int within = 0;
    check(x != NULL, "no memory");
    meta_init_slice(&p, sample->seed, 0, n, x);
    for (int i = 0; i < n; i++) {
        check(isfinite(x[i]), "element %d is %g", i, (double)x[i]);
        sum += x[i];
        squares += (double)x[i] * x[i];
        if (i > 0) next += (double)x[i] * x[i - 1];
        within += fabsf(x[i]) < sample->std;
    }
    double error = sample->errors / sqrt(n);
    check(fabs(sum / n) < std * error, "the mean is %g, want 0", sum / n);
    check(fabs(squares / n / variance - 1.0) < error * sqrt(2.0), "the variance is %g, want %g",
          squares / n, variance);
    check(fabs(next / n / variance) < error, "neighbours correlate: %g", next / n / variance);
    check(fabs((double)within / n - 0.682689) < error,
          "%g of the values lie within one standard "
          "deviation, want 0.6827",
          (double)within / n);
    free(x);
}

TEST(normal_has_right_moments)
{
    // Bounds of five standard errors: chance alone passes them once in a million seeds, and the
    // seed is fixed.
    Sample sample = {.n = 400000, .std = 0.5f, .id = 7, .seed = 5, .errors = 5.0};
    run_ranks(1, moments_body, &sample);
    // Where the seed is drawn, of seven: once in 10¹¹.
    sample = (Sample){.n = draw(50000, 100000),
                      .std = (float)draw(1, 64) / 32.0f,
                      .id = (uint32_t)draw(0, 100000),
                      .seed = draw_word(),
                      .errors = 7.0};
    drawn("%d values of parameter %u, seed %llu, std %g", sample.n, sample.id,
          (unsigned long long)sample.seed, (double)sample.std);
    run_ranks(1, moments_body, &sample);
}

// ---- The whole model on one GPU ----

// Every parameter of the model holds what meta_init_slice gives, and a zero gradient. Whether that
// is right is asked by the tests of slices: a mistake there must cost its own test alone.
static void check_materialized(Module *model, uint64_t seed)
{
    Layout layout;
    layout_module(&layout, model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < layout.n; i++) {
        const Param *p = layout.param[i];
        size_t numel = (size_t)oracle_numel(p);
        float *want = malloc(numel * sizeof *want);
        check(want != NULL, "no memory");
        check(p->data.data != NULL && p->grad.data != NULL, "%s has no storage", p->name);
        float *data = fetch(p->data.data, numel), *grad = fetch(p->grad.data, numel);
        meta_init_slice(p, seed, 0, (int64_t)numel, want);
        check_equal(p->name, data, want, numel);
        memset(want, 0, numel * sizeof *want);
        check_equal("a gradient that materialize_param makes", grad, want, numel);
        free(want);
        free(data);
        free(grad);
    }
}

typedef struct Made {
    Spec spec;
    uint64_t seed;
} Made;

static void materialize_body(const Rank *r, void *arg)
{
    const Made *made = arg;
    Module *model = spec_create(&made->spec);
    size_t before = gpulog_live_bytes(r->device);
    uint64_t log = gpulog_length();
    need(meta_materialize(model, made->seed, r->stream));
    check_on_stream(log, r->stream, "materialising", "the stream that was given");
    need_cuda(cudaStreamSynchronize(r->stream));
    size_t took = gpulog_live_bytes(r->device) - before;
    size_t numel = (size_t)model_numel(model);
    check(took == 8 * numel, "data and gradients of %zu elements take %zu bytes, want %zu", numel,
          took, 8 * numel);
    check_materialized(model, made->seed);
    check(meta_materialize(model, made->seed, r->stream) == ERR_ARGUMENT,
          "materialising a model twice must be refused: the first storage would be lost");
    for (int i = 0; i < model->children[0]->n_params; i++)
        check(model->children[0]->params[i]->data.data != NULL,
              "meta_materialize refused a model that has storage already, and took away that of "
              "%s: a refusal has made nothing that it could take back",
              model->children[0]->params[i]->name);
    check_materialized(model, made->seed);
    meta_release(model);
    check(gpulog_live_bytes(r->device) == before, "meta_release left %zu bytes on the device",
          gpulog_live_bytes(r->device) - before);

    // What cannot be materialised is refused before anything is allocated.
    Param *params[64];
    int n = meta_params(model, params, 64);
    log = gpulog_length();
    params[n - 1]->owner = model;
    check(meta_materialize(model, made->seed, r->stream) == ERR_ARGUMENT &&
              params[n - 1]->data.data == NULL,
          "meta_materialize of a parameter that a flat parameter owns must be ERR_ARGUMENT");
    params[n - 1]->owner = NULL;
    params[n - 1]->dtype = DTYPE_BF16;
    check(meta_materialize(model, made->seed, r->stream) == ERR_ARGUMENT,
          "meta_materialize of a parameter that is not DTYPE_F32 must be ERR_ARGUMENT");
    params[n - 1]->dtype = DTYPE_F32;
    check(gpulog_count(GPU_ALLOC, log) == 0,
          "meta_materialize allocated a part of a model that it refused: look at all parameters, "
          "then allocate");
    module_destroy(model);
}

TEST(materialize_allocates_and_fills)
{
    Made made = {spec_gpt2(1), 42};
    run_ranks(1, materialize_body, &made);
    RULE(host_buffer_has_fixed_size);
    RULE(release_frees_what_is_its_own);
    RULE(failed_copy_keeps_its_status);
    RULE(refused_model_is_as_it_was);
    RULE(frozen_and_empty_parameters);
    RULE(materializes_any_number);
    RULE(materializes_beyond_32_bits);
    RULE(device_slice_of_any_length);
    made = (Made){draw_mlp(6), draw_word()};
    drawn_model(&made.spec, 1);
    run_ranks(1, materialize_body, &made);
}

static void failure_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(3);
    Module *model = spec_create(&spec);
    size_t free_bytes = 0, total = 0;
    void *ballast = NULL;
    // Leave room for half of the model.
    need_cuda(cudaMemGetInfo(&free_bytes, &total));
    need_cuda(cudaMalloc(&ballast, free_bytes - 4 * (size_t)model_numel(model)));
    size_t before = gpulog_live_bytes(r->device);

    Status status = meta_materialize(model, 42, r->stream);
    check(status != OK, "a model larger than the device was materialised without an error");
    check(
        status == ERR_MEMORY,
        "running out of memory is ERR_MEMORY, as CUDA_TRY returns it; this came back as Status %d",
        (int)status);
    check(gpulog_live_bytes(r->device) == before,
          "meta_materialize ran out of memory and left %zu bytes allocated: the device is lost for "
          "another try%s",
          gpulog_live_bytes(r->device) - before,
          LIKELY
          "this test fills the device, so running out of memory is right: is what was allocated "
          "before that freed on the way out?");
    Layout layout;
    layout_module(&layout, model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < layout.n; i++)
        check(layout.param[i]->data.data == NULL && layout.param[i]->grad.data == NULL,
              "%s keeps a pointer to memory that is gone", layout.param[i]->name);

    need_cuda(cudaFree(ballast));
    need(meta_materialize(model, 42, r->stream));
    check_materialized(model, 42);
    meta_release(model);
    module_destroy(model);
}

TEST(materialize_frees_on_failure)
{
    run_ranks_small(1, failure_body, NULL);
    RULE(failed_materialize_keeps_nothing);
    RULE(failed_model_keeps_its_status);
}

SUITE_MAIN("meta_init")
