/* Task 5, optimizer, in worlds of more ranks than eight, where small units leave ranks with nothing
 * but padding. Drawn from SEED, which is the course's, and not in the archive that students get;
 * grader/course/hidden.py runs it.
 */
#include "draw_model.h"
#include "figures.h"
#include "fsdp.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_UNITS = 24 };

typedef struct Case {
    Spec spec;
    FsdpOptions options;
    AdamWConfig adamw;
    int steps, modulus;
    float limit; // a part of the norm, in sixteenths
} Case;

// Eighths: squares of them add up exactly in double, in any order.
static double gradient_at(const Case *c, int64_t place)
{
    return (double)(place % c->modulus - c->modulus / 2) / 8.0;
}

// The gradient of every element, and of padding what must not get into anything.
static double set_gradients(const Case *c, FlatParam **flat, int n, float dirt)
{
    double squares = 0.0;
    for (int k = 0; k < n; k++) {
        float *host = malloc((size_t)flat[k]->layout.shard_numel * sizeof *host);
        check(host != NULL, "no memory");
        for (int64_t i = 0; i < flat[k]->layout.numel; i++)
            squares += gradient_at(c, i) * gradient_at(c, i);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            host[i] = place < flat[k]->layout.numel ? (float)gradient_at(c, place) : dirt;
        }
        need_cuda(cudaDeviceSynchronize());
        send_to(flat[k]->sharded_grad.data, host, (size_t)flat[k]->layout.shard_numel);
        free(host);
    }
    return sqrt(squares);
}

// With the same gradient in every step both moments, corrected, are that gradient and its square,
// whatever the betas: element by element p = p - lr·decay·p - lr·g / (|g| + eps).
static void check_steps(const Case *c, const FlatParam *flat, const float *start)
{
    float *got = fetch(flat->sharded_param.data, (size_t)flat->layout.shard_numel);
    double lr = c->adamw.lr, decay = c->adamw.weight_decay, eps = c->adamw.eps;
    for (int64_t i = 0; i < flat->layout.shard_numel; i++) {
        int64_t place = flat->layout.rank * flat->layout.shard_numel + i;
        bool real = place < flat->layout.numel;
        double g = real ? gradient_at(c, place) : 0.0, want = real ? start[i] : 0.0;
        for (int t = 0; t < c->steps; t++)
            want = want - lr * decay * want - lr * g / (fabs(g) + eps);
        check(fabs(got[i] - want) <= (real ? 2e-6 * (fabs(want) + lr) : 0.0),
              "unit %s, element %lld of the shard%s: after %d steps %.9g, want %.9g", flat->name,
              (long long)i, real ? "" : " (padding)", c->steps, (double)got[i], want);
    }
    free(got);
}

static void steps_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Sharded s;
    FlatParam *flat[MOST_UNITS];
    float *start[MOST_UNITS], norm = -1.0f;
    sharded_create(&s, &c->spec, &c->options, &c->adamw, r);
    int n = flat_params(s.model, flat, MOST_UNITS);
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < n; k++)
        start[k] = fetch(flat[k]->sharded_param.data, (size_t)flat[k]->layout.shard_numel);
    set_gradients(c, flat, n, 5.0f);
    for (int t = 0; t < c->steps; t++) need(fsdp_adamw_step(&s.adamw));
    check_figures();
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < n; k++) {
        check_steps(c, flat[k], start[k]);
        free(start[k]);
    }

    float want = (float)set_gradients(c, flat, n, 0.0f), limit = c->limit * want;
    need(fsdp_clip_grad_norm(s.model, &s.ctx, limit, &norm));
    check_figures();
    check(norm == want, "the norm on this rank is %.9g, want %.9g", (double)norm, (double)want);
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < n; k++) {
        float *got = fetch(flat[k]->sharded_grad.data, (size_t)flat[k]->layout.shard_numel);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            double g = place < flat[k]->layout.numel ? gradient_at(c, place) : 0.0;
            if (limit < want) g *= (double)limit / (double)want;
            check(fabs(got[i] - g) <= (limit < want ? 1e-6 * fabs(g) : 0.0),
                  "norm %g, limit %g: unit %s element %lld is %.9g, want %.9g", (double)want,
                  (double)limit, flat[k]->name, (long long)i, (double)got[i], g);
        }
        free(got);
    }
    need(fsdp_zero_grad(s.model, &s.ctx));
    need(fsdp_grad_norm(s.model, &s.ctx, &norm));
    check(norm == 0.0f, "after fsdp_zero_grad the norm is %g", (double)norm);
    sharded_destroy(&s);
}

TEST(steps_and_norms_in_odd_worlds)
{
    want_devices(13);
    for (int i = 0; i < 3; i++) {
        Case c = {draw_mlp(8), TEST_OPTIONS,       TEST_ADAMW,
                  draw(1, 4),  2 * draw(2, 9) + 1, (float)draw(1, 24) / 16.0f};
        if (i == 0) c.spec.dim = 2; // units of a few elements
        c.options.align_shards = draw_chance(50);
        c.options.seed = draw_word();
        c.adamw.lr = (float)draw(1, 20) * 0.001f;
        c.adamw.weight_decay = (float)draw(0, 10) * 0.05f;
        int world = 2 * draw(1, 6) + 1;
        drawn_model(&c.spec, world);
        run_ranks(world, steps_body, &c);
    }
}

SUITE_MAIN("hidden_optimizer")
