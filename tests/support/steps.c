/* steps.c: what an optimizer must make of the tests' gradients, and the mistakes that its values
 * betray. See steps.h.
 */
#include "steps.h"

#include "draw.h"

#include <math.h>
#include <stdlib.h>

// Eighths from -1 to 1.
static struct Given {
    int step, shift, modulus;
} given;

void known_given(void)
{
    given = (struct Given){1, 0, 11};
}

void draw_given(void)
{
    given.modulus = 11 + 2 * draw(0, 3);
    given.step = draw(1, 10);
    given.shift = draw(0, 10);
}

float given_gradient(int64_t i)
{
    return (float)((i * given.step + given.shift) % given.modulus - given.modulus / 2) / 8.0f;
}

float given_scale(int t)
{
    return (float)(t * t % 7 - 3) / 2.0f;
}

// ---- AdamW ----

// The ways to get it wrong of which the values alone tell.
static const char *const WHY[WRONGS] = {
    [NO_CORRECTION] =
        "these are the values of AdamW without bias correction: is opt->t, the number "
        "of this step, given to the kernel?",
    [NO_DECAY] = "these are the values without weight decay: is config.weight_decay given to the "
                 "kernel?",
    [COUPLED] = "these are the values of Adam, where decay goes through the gradient: in AdamW it "
                "is taken from the parameter itself. Is anything added to the gradient?",
    [SWAPPED] = "these are the values with beta1 and beta2 in each other's place: in which order "
                "does the kernel take them?",
    [COUNT_FROM_ZERO] = "these are the values of steps that are counted from 0: does opt->t go up "
                        "before the kernels are queued?",
    [COUNT_FASTER] = "these are the values of a step count that goes up with every unit: does "
                     "opt->t go up once a step, outside of the loop?",
    [NO_STEP] = "this unit's shard is what it was before the first step: does the loop reach every "
                "flat parameter, on every rank, and does the kernel get the shard as the "
                "array that it writes?",
    [EPS_AND_DECAY] = "these are the values with eps and weight_decay in each other's place: in "
                      "which order does the kernel take them?",
    [TOO_OFTEN] = "this unit's shard has moved as often in a step as there are units: which unit's "
                  "shard does the loop step?",
};

// Element by element in double (Loshchilov & Hutter 2019, algorithm 2): parameter and moments after
// so many steps, the gradient of step t given_scale(t) · g. k: the unit's place in the list of n.
void follow_formula(const AdamWConfig *c, Wrong wrong, int steps, int k, int n, double start,
                    double g, double out[3])
{
    double beta1 = wrong == SWAPPED ? (double)c->beta2 : (double)c->beta1;
    double beta2 = wrong == SWAPPED ? (double)c->beta1 : (double)c->beta2;
    double p = start, m = 0.0, v = 0.0, eps = (double)c->eps, decay = (double)c->weight_decay;
    if (wrong == EPS_AND_DECAY) {
        eps = decay;
        decay = (double)c->eps;
    }
    for (int step = 1; step <= steps && wrong != NO_STEP; step++) {
        int t = wrong == COUNT_FROM_ZERO ? step - 1 : step;
        if (wrong == COUNT_FASTER) t = (step - 1) * n + k + 1;
        double gradient = (double)given_scale(step) * g;
        if (wrong == COUPLED) gradient += decay * p;
        m = beta1 * m + (1.0 - beta1) * gradient;
        v = beta2 * v + (1.0 - beta2) * gradient * gradient;
        bool corrected = wrong != NO_CORRECTION;
        double m_hat = corrected ? m / (1.0 - pow(beta1, t)) : m;
        double v_hat = corrected ? v / (1.0 - pow(beta2, t)) : v;
        for (int i = 0; i < (wrong == TOO_OFTEN ? n : 1); i++) {
            if (wrong != NO_DECAY && wrong != COUPLED) p -= (double)c->lr * decay * p;
            p -= (double)c->lr * m_hat / (sqrt(v_hat) + eps);
        }
    }
    out[0] = p;
    out[1] = m;
    out[2] = v;
}

// The cause of a shard that is not what the formula gives.
const char *formula_cause(const Sharded *s, const AdamWConfig *c, int steps, int k, int n,
                          const FlatParam *flat, const float *start, const float *got)
{
    size_t numel = (size_t)flat->layout.shard_numel;
    float *values = malloc(WRONGS * numel * sizeof *values);
    Clues clues = {.trained = true, .slack = 4e-6 * (double)c->lr};
    if (values == NULL) return "";
    for (int wrong = RIGHT; wrong < WRONGS; wrong++) {
        float *of = values + (size_t)wrong * numel;
        for (size_t i = 0; i < numel; i++) {
            int64_t place = flat->layout.rank * flat->layout.shard_numel + (int64_t)i;
            double g = place < flat->layout.numel ? (double)given_gradient(place) : 0.0, out[3];
            follow_formula(c, (Wrong)wrong, steps, k, n, (double)start[i], g, out);
            of[i] = (float)out[0];
        }
        if (wrong != RIGHT) clues.clue[clues.n++] = (Clue){of, WHY[wrong]};
    }
    const char *cause = cause_of(&clues, got, values, numel);
    free(values);
    return cause;
}

// Padding that was zero, and moved as a parameter does whose gradient is the dirt of padding_body:
// AdamW's first step is lr, whatever the gradient; SGD's is lr times it.
const char *padding_cause(float value, bool sgd)
{
    float moved = sgd ? -0.5f * 3.0f : -TEST_ADAMW.lr;
    if (fabsf(value - moved) > 1e-5f * fabsf(moved)) return "";
    return LIKELY "the step moved the padding by the dirt in its gradient: is flat_zero_padding "
                  "called for the shard after the kernel?";
}

// ---- The norm, and clipping ----

// Σ of the squares of the unsharded gradient that set_gradients makes, exact in double.
double given_squares(const Sharded *s)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    double sum = 0.0;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < flat[k]->layout.numel; i++)
            sum += (double)given_gradient(i) * (double)given_gradient(i);
    return sum;
}

// Σ of the squares of `rank`'s shards, exact in double.
static double squares_of_rank(const Sharded *s, int rank)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    double sum = 0.0;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = rank * flat[k]->layout.shard_numel + i;
            if (place < flat[k]->layout.numel)
                sum += (double)given_gradient(place) * (double)given_gradient(place);
        }
    return sum;
}

// Why a norm is what it is.
const char *norm_cause(const Sharded *s, float norm)
{
    double squares = given_squares(s), own = squares_of_rank(s, s->rank), roots = 0.0,
           largest = own;
    for (int rank = 0; rank < s->world; rank++) {
        roots += sqrt(squares_of_rank(s, rank));
        if (squares_of_rank(s, rank) > largest) largest = squares_of_rank(s, rank);
    }
    NumberClue clues[] = {
        {sqrt(own), "this is the norm of this rank's own shards: are the squares summed over the "
                    "ranks, by an ncclAllReduce of one ncclDouble? (As ncclFloat only half of its "
                    "bytes are.)"},
        {squares, "this is the square of the norm: where is the root?"},
        {own, "this is the sum of the squares of this rank's own shards: are they summed over the "
              "ranks, and where is the root?"},
        {roots, "this is the sum of the ranks' own norms: is the root taken before the sum over "
                "the ranks, not after it?"},
        {sqrt(largest), "this is the largest of the ranks' own norms: is the reduction ncclSum?"},
        {sqrt(squares / s->world), "this is the root of the average over the ranks: a norm is "
                                   "summed, and divided by nothing. Is the reduction ncclSum?"},
        {sqrt(squares * s->world), "this is the root of W times the sum of the squares: is it "
                                   "summed over the ranks twice?"},
    };
    int n = sizeof clues / sizeof clues[0];
    if (s->world == 1) n = 2; // the others are the same
    if (largest == own) clues[4].value = -1.0;
    return number_cause((double)norm, sqrt(squares), clues, n);
}

// The first gradient that is not zero of a shard says what all were multiplied by.
static double factor_of(const FlatParam *flat, const float *got)
{
    for (int64_t i = 0; i < flat->layout.shard_numel; i++) {
        int64_t place = flat->layout.rank * flat->layout.shard_numel + i;
        if (place < flat->layout.numel && given_gradient(place) != 0.0f)
            return (double)got[i] / (double)given_gradient(place);
    }
    return 1.0;
}

// Why a gradient shard is not what clipping at `limit` makes of it: another factor for all.
const char *clip_cause(const Sharded *s, const FlatParam *flat, const float *got, double norm,
                       double limit)
{
    const struct {
        double factor;
        const char *cause;
    } wrong[] = {
        {limit < norm ? limit / norm : 1.0, NULL}, // right
        {1.0, "every gradient is what it was: is it compared the right way round, and is every "
              "flat parameter scaled?"},
        {limit / norm,
         "the gradients are scaled up to max_norm: what must happen to a norm that is "
         "smaller than max_norm?"},
        {norm / limit, "the factor is norm / max_norm: which way round must it be?"},
        {limit, "the factor is max_norm alone: where is the division by the norm?"},
        {1.0 / norm, "the factor is 1 / norm: where is max_norm?"},
        {limit / sqrt(squares_of_rank(s, s->rank)),
         "the factor is max_norm divided by the norm of this rank's own shards: is it not the same "
         "on every rank?"},
        {factor_of(flat, got),
         "all gradients are multiplied by one factor, and it is another than max_norm / norm: is "
         "it made of the norm over all ranks, the same everywhere?"},
    };
    enum { N = sizeof wrong / sizeof wrong[0] };
    size_t numel = (size_t)flat->layout.shard_numel;
    float *values = malloc(N * numel * sizeof *values);
    Clues clues = {.slack = 1e-6 * fabs(wrong[0].factor)};
    if (values == NULL) return "";
    for (size_t k = 0; k < N; k++) {
        for (size_t i = 0; i < numel; i++) {
            int64_t place = flat->layout.rank * flat->layout.shard_numel + (int64_t)i;
            double g = place < flat->layout.numel ? (double)given_gradient(place) : 0.0;
            values[k * numel + i] = (float)(g * wrong[k].factor);
        }
        if (k > 0) clues.clue[clues.n++] = (Clue){values + k * numel, wrong[k].cause};
    }
    const char *cause = cause_of(&clues, got, values, numel);
    free(values);
    return cause;
}

// ---- SGD, and who steps what ----

// Why a shard is not what SGD makes of parameters place % 7 and gradients given_gradient(place).
const char *sgd_cause(const FlatParam *flat, const float *got, float lr, float decay)
{
    static const char *const cause[] = {
        NULL,
        "these are the values without weight decay: is weight_decay given to the kernel, "
        "and in its place?",
        "the gradient is added: has the rate the right sign?",
        "every element is what it was: does any kernel run over this shard?",
        "the decay is not multiplied by the rate: p - lr·g - decay·p?",
    };
    enum { N = sizeof cause / sizeof cause[0] };
    size_t numel = (size_t)flat->layout.shard_numel;
    float *values = malloc(N * numel * sizeof *values);
    Clues clues = {.n = 0};
    if (values == NULL) return "";
    for (size_t i = 0; i < numel; i++) {
        int64_t place = flat->layout.rank * flat->layout.shard_numel + (int64_t)i;
        float p = place < flat->layout.numel ? (float)(place % 7) : 0.0f;
        float g = place < flat->layout.numel ? given_gradient(place) : 0.0f;
        values[i] = p - lr * (g + decay * p);
        values[numel + i] = p - lr * g;
        values[2 * numel + i] = p + lr * (g + decay * p);
        values[3 * numel + i] = p;
        values[4 * numel + i] = p - lr * g - decay * p;
    }
    for (size_t k = 1; k < N; k++) clues.clue[clues.n++] = (Clue){values + k * numel, cause[k]};
    const char *text = cause_of(&clues, got, values, numel);
    free(values);
    return text;
}

// Whether anything of the shard moved, where something should.
const char *still_cause(const float *before, const float *after, int64_t numel, int k, int n)
{
    for (int64_t i = 0; i < numel; i++)
        if (before[i] != after[i]) return "";
    if (numel < 4) return "";
    if (k == 0)
        return LIKELY
            "nothing of the first unit's shard moved: does every rank step, or one alone?";
    return k == n - 1 ? LIKELY
               "nothing of the last unit's shard moved, and the units before it did: "
               "does the loop over the flat parameters end one early?"
                      : LIKELY "nothing of this unit's shard moved, and the units before it did: "
                               "does the loop over the flat parameters reach it?";
}
