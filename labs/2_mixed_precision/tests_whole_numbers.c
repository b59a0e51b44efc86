/* Lab 2, integers from scratch: no kernel and no GEMM has a part in what is expected.
 */
#include <stdlib.h>
#include <string.h>

#include "tests.h"

enum { ROWS = 3, INS = 6, MID = 5, OUTS = 4 };

// Small whole numbers that a place decides: -1, 0 or 1.
static int whole_at(int what, int rank, int i)
{
    return (i * 7 + i / 3 + what * 5 + rank * 11) % 3 - 1;
}

typedef struct Whole {
    int w1[MID][INS], b1[MID], w2[OUTS][MID], b2[OUTS];
} Whole;

// The gradient of Σ dout·y on one rank: y = W2·(W1·x + b1) + b2.
static void whole_gradient(Whole *g, const Whole *m, int rank)
{
    for (int row = 0; row < ROWS; row++) {
        int x[INS], h[MID], dy[OUTS], dh[MID] = {0};
        for (int i = 0; i < INS; i++) x[i] = whole_at(1, rank, row * INS + i);
        for (int o = 0; o < OUTS; o++) dy[o] = whole_at(2, rank, row * OUTS + o);
        for (int k = 0; k < MID; k++) {
            h[k] = m->b1[k];
            for (int i = 0; i < INS; i++) h[k] += m->w1[k][i] * x[i];
        }
        for (int o = 0; o < OUTS; o++)
            for (int k = 0; k < MID; k++) {
                g->w2[o][k] += dy[o] * h[k];
                dh[k] += dy[o] * m->w2[o][k];
            }
        for (int o = 0; o < OUTS; o++) g->b2[o] += dy[o];
        for (int k = 0; k < MID; k++) {
            g->b1[k] += dh[k];
            for (int i = 0; i < INS; i++) g->w1[k][i] += dh[k] * x[i];
        }
    }
}

static Module *whole_model(const Spec *spec)
{
    Module *children[] = {linear_create("a", INS, MID, true, 0.1f),
                          linear_create("b", MID, OUTS, true, 0.1f)};
    return sequence_create("whole", 2, children);
}

// Which numbers of m are a parameter's: the four are back to back in it, in the model's order.
static int *whole_of(Whole *m, const Param *param)
{
    if (strcmp(param->name, "a.weight") == 0) return &m->w1[0][0];
    if (strcmp(param->name, "a.bias") == 0) return m->b1;
    return strcmp(param->name, "b.weight") == 0 ? &m->w2[0][0] : m->b2;
}

// Has this rank's shards hold the numbers, or compares its gradients with numbers / world.
static void whole_shards(FsdpRoot *root, Whole *m, int world, bool compare)
{
    for (int u = 0; u < root->n_units; u++) {
        const FlatParam *flat = &root->units[u]->flat;
        const Buffer *buffer = compare ? &flat->sharded_grad : &flat->sharded_param;
        float *shard = fetch(buffer->data, (size_t)buffer->numel);
        for (int j = 0; j < flat->layout.n; j++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(&flat->layout, j, flat->layout.rank, &begin, &end, &at);
            for (int64_t e = begin; e < end; e++) {
                float want = (float)whole_of(m, flat->layout.params[j])[e];
                float *here = &shard[at + e - begin];
                check(!compare || *here == want / (float)world,
                      "of whole numbers, the gradient of %s[%lld] is %.9g, want %g / %d: every sum "
                      "is exact in every type",
                      flat->layout.params[j]->name, (long long)e, (double)*here, (double)want,
                      world);
                *here = want;
            }
        }
        if (!compare) send_to(buffer->data, shard, (size_t)buffer->numel);
        free(shard);
    }
}

static void whole_body(Wrapped *w, const Case *c, const Rank *r)
{
    Whole m, sum = {0};
    float x[ROWS * INS], dout[ROWS * OUTS], *out = NULL, *din = NULL;
    for (int i = 0; i < (int)(sizeof m / sizeof(int)); i++) ((int *)&m)[i] = whole_at(0, 0, i);
    whole_shards(w->root, &m, r->world, false);
    for (int i = 0; i < ROWS * INS; i++) x[i] = (float)whole_at(1, r->rank, i);
    for (int i = 0; i < ROWS * OUTS; i++) dout[i] = (float)whole_at(2, r->rank, i);
    float *in = alloc_typed(F32, ROWS * INS), *grad = alloc_typed(F32, ROWS * OUTS);
    send_to(in, x, ROWS * INS);
    send_to(grad, dout, ROWS * OUTS);
    w->run.B = ROWS;
    w->run.T = 1;
    for (int k = 0; k < c->rounds; k++) {
        need(strategy_micro_batch(w->model, k, c->rounds));
        need(module_forward(w->model, &w->run, in, &out));
        need(module_backward(w->model, &w->run, grad, &din));
        need_cuda(cudaFreeAsync(din, r->stream));
        for (int rank = 0; rank < r->world; rank++) whole_gradient(&sum, &m, rank);
    }
    need_cuda(cudaDeviceSynchronize());
    whole_shards(w->root, &sum, r->world, true);
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(grad));
}

TEST(whole_numbers_are_exact)
{
    for (int world = 1; world <= 8; world++)
        for (int i = 0; i < 2; i++) {
            const DType *pair = PAIRS[(world + 3 * i) % N_PAIRS];
            Case c = typed(spec_mlp(3), pair[0], pair[1], ALL[(world + i) % 4], world);
            c.rounds = 1 + world % 2;
            c.spec.create = whole_model;
            run_wrapped(world, whole_body, &c);
        }
}
