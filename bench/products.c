/* products.c: what the matrix products of one training step of a GPT-2 cost, by one thread of the
 * BLAS that simgpu uses: the floor of a step, which no step with these products can be below.
 *
 *   products LAYERS HEADS DIM VOCAB B T PASSES [blocks]
 *
 * With `blocks` each product is cut into blocks as simgpu cuts it (simgpu/src/blas/multiply.c), so
 * that bits do not depend on the number of threads; without, it is one call of the BLAS.
 *
 * A pass does the products of a step in the step's order, forward and then backward, on the
 * operands of a model of that size: weights and their gradients are as far apart as in the model,
 * so that a product finds in the caches what a step's finds there. No product adds to what is
 * there (beta 0). The first pass warms up.
 *
 * Prints `blas NAME VERSION`, a line per shape, `product FORM m n k count seconds`, with the CPU
 * time of one product (minimum over the passes of the pass's mean), and for each pass `pass
 * SECONDS` (CPU time of its products). A form is that of cublasSgemm: NN, TN or NT. Nothing else
 * runs in the process, so a product's CPU time is that of the process.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blas/blas.h"

#ifdef SIMGPU_DNNL
#include <dnnl.h>
#include <omp.h>
#else
#include <cblas.h>
void openblas_set_num_threads(int threads);
char *openblas_get_config(void);
#endif

typedef struct Sizes {
    int layers, heads, dim, vocab, B, T;
} Sizes;

// A column-major product C (m,n) = op(A)·op(B), as cublasSgemm's arguments have it.
typedef struct Product {
    int turn_a, turn_b; // 0 or 1: no padding, so that shapes are compared as bytes
    int m, n, k, lda, ldb, ldc;
} Product;

// The products of one shape in a pass.
typedef struct Shape {
    Product p;
    int count, per_pass;   // in the pass under way; in a pass
    double seconds, least; // of the pass under way; the least mean of one product
} Shape;

enum { MOST_SHAPES = 32 };
static Shape shapes[MOST_SHAPES];
static int n_shapes;
static bool in_blocks;

// A linear layer (I → O): weight and gradient (O,I), input (rows,I) as the forward saved it, and
// output.
typedef struct Linear {
    int I, O;
    float *weight, *grad, *in, *out;
} Linear;

// Attention's other arrays: softmax's output (B,heads,T,T) of each layer.
typedef struct Block {
    Linear qkv, proj, fc, mlp_proj;
    float *att;
} Block;

typedef struct Model {
    Sizes n;
    int rows; // B·T
    Block *blocks;
    Linear head;
    float *dout, *din, *datt; // gradients of activations: one buffer serves all layers
} Model;

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- One product ----

static void compute_in_blocks(const Product *p, const float *A, const float *B, float *C)
{
    Sgemm product = {p->turn_a == 1, p->turn_b == 1, p->m,   p->n,   p->k,
                     1.0f,           0.0f,           p->lda, p->ldb, p->ldc};
    if (simblas_sgemm(&product, A, B, C) == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "products: %d x %d x %d fails in blocks\n", p->m, p->n, p->k);
    exit(1);
}

static void compute(const Product *p, const float *A, const float *B, float *C)
{
#ifdef SIMGPU_DNNL
    // oneDNN is row-major: Cᵀ = op(B)ᵀ·op(A)ᵀ.
    if (dnnl_sgemm(p->turn_b ? 'T' : 'N', p->turn_a ? 'T' : 'N', p->n, p->m, p->k, 1.0f, B, p->ldb,
                   A, p->lda, 0.0f, C, p->ldc) == dnnl_success)
        return;
    fprintf(stderr, "products: dnnl_sgemm fails for %d x %d x %d\n", p->m, p->n, p->k);
    exit(1);
#else
    cblas_sgemm(CblasColMajor, p->turn_a ? CblasTrans : CblasNoTrans,
                p->turn_b ? CblasTrans : CblasNoTrans, p->m, p->n, p->k, 1.0f, A, p->lda, B, p->ldb,
                0.0f, C, p->ldc);
#endif
}

static Shape *shape_of(const Product *p)
{
    for (int i = 0; i < n_shapes; i++)
        if (memcmp(&shapes[i].p, p, sizeof *p) == 0) return &shapes[i];
    if (n_shapes == MOST_SHAPES) abort(); // a step has 17
    shapes[n_shapes] = (Shape){.p = *p};
    return &shapes[n_shapes++];
}

static void multiply(Product p, const float *A, const float *B, float *C)
{
    Shape *shape = shape_of(&p);
    double start = cpu_now();
    (in_blocks ? compute_in_blocks : compute)(&p, A, B, C);
    shape->seconds += cpu_now() - start;
    shape->count++;
}

// ---- The products of a model ----

static void linear_forward(const Model *m, const Linear *l)
{
    multiply((Product){true, false, l->O, m->rows, l->I, l->I, l->I, l->O}, l->weight, l->in,
             l->out);
}

static void linear_backward(const Model *m, const Linear *l)
{
    multiply((Product){false, false, l->I, m->rows, l->O, l->I, l->O, l->I}, l->weight, m->dout,
             m->din);
    multiply((Product){false, true, l->I, l->O, m->rows, l->I, l->O, l->I}, l->in, m->dout,
             l->grad);
}

// Heads of a sequence: queries, keys and values are columns of qkv (T,3C), y is (T,C).
typedef struct Head {
    const float *q, *k, *v;
    float *att, *datt, *y, *dq, *dk, *dv;
} Head;

static Head head_of(const Model *m, const Block *block, int b, int h)
{
    const Sizes *n = &m->n;
    size_t hs = (size_t)(n->dim / n->heads), T = (size_t)n->T, C = (size_t)n->dim;
    size_t row = (size_t)b * T, column = (size_t)h * hs;
    const float *qkv = block->qkv.out + row * 3 * C + column;
    float *dqkv = m->dout + row * 3 * C + column;
    return (Head){qkv,
                  qkv + C,
                  qkv + 2 * C,
                  block->att + ((size_t)b * (size_t)n->heads + (size_t)h) * T * T,
                  m->datt + (size_t)h * T * T,
                  block->proj.in + row * C + column,
                  dqkv,
                  dqkv + C,
                  dqkv + 2 * C};
}

static void attention_forward(const Model *m, const Block *block)
{
    int T = m->n.T, C = m->n.dim, hs = C / m->n.heads;
    for (int b = 0; b < m->n.B; b++)
        for (int h = 0; h < m->n.heads; h++) {
            Head at = head_of(m, block, b, h);
            multiply((Product){true, false, T, T, hs, 3 * C, 3 * C, T}, at.k, at.q, at.att);
            multiply((Product){false, false, hs, T, T, 3 * C, T, C}, at.v, at.att, at.y);
        }
}

static void attention_backward(const Model *m, const Block *block)
{
    int T = m->n.T, C = m->n.dim, hs = C / m->n.heads;
    for (int b = 0; b < m->n.B; b++)
        for (int h = 0; h < m->n.heads; h++) {
            Head at = head_of(m, block, b, h);
            const float *dy = m->din + (at.y - block->proj.in);
            multiply((Product){true, false, T, T, hs, 3 * C, C, T}, at.v, dy, at.datt);
            multiply((Product){false, true, hs, T, T, C, T, 3 * C}, dy, at.att, at.dv);
            multiply((Product){false, false, hs, T, T, 3 * C, T, 3 * C}, at.k, at.datt, at.dq);
            multiply((Product){false, true, hs, T, T, 3 * C, T, 3 * C}, at.q, at.datt, at.dk);
        }
}

static void pass(const Model *m)
{
    for (int i = 0; i < m->n.layers; i++) {
        const Block *block = &m->blocks[i];
        linear_forward(m, &block->qkv);
        attention_forward(m, block);
        linear_forward(m, &block->proj);
        linear_forward(m, &block->fc);
        linear_forward(m, &block->mlp_proj);
    }
    linear_forward(m, &m->head);
    linear_backward(m, &m->head);
    for (int i = m->n.layers - 1; i >= 0; i--) {
        const Block *block = &m->blocks[i];
        linear_backward(m, &block->mlp_proj);
        linear_backward(m, &block->fc);
        linear_backward(m, &block->proj);
        attention_backward(m, block);
        linear_backward(m, &block->qkv);
    }
}

// ---- Its memory ----

// Numbers between -1/2 and 1/2. Every page is touched: no product meets a fresh one.
static float *array(size_t n)
{
    float *x = malloc(n * sizeof *x);
    uint32_t state = 8812;
    if (x == NULL) {
        fprintf(stderr, "products: no memory for %zu numbers\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    return x;
}

static Linear linear_of(int rows, int I, int O)
{
    size_t i = (size_t)I, o = (size_t)O, r = (size_t)rows;
    return (Linear){I, O, array(i * o), array(i * o), array(i * r), array(o * r)};
}

static Model model_of(Sizes n)
{
    int C = n.dim, widest = n.vocab > 4 * C ? n.vocab : 4 * C;
    size_t square = (size_t)n.T * (size_t)n.T * (size_t)n.heads;
    Model m = {.n = n, .rows = n.B * n.T};
    m.blocks = malloc((size_t)n.layers * sizeof *m.blocks);
    if (m.blocks == NULL) abort();
    for (int i = 0; i < n.layers; i++)
        m.blocks[i] = (Block){linear_of(m.rows, C, 3 * C), linear_of(m.rows, C, C),
                              linear_of(m.rows, C, 4 * C), linear_of(m.rows, 4 * C, C),
                              array((size_t)n.B * square)};
    m.head = linear_of(m.rows, C, n.vocab);
    m.dout = array((size_t)m.rows * (size_t)widest);
    m.din = array((size_t)m.rows * 4 * (size_t)C);
    m.datt = array(square);
    return m;
}

// ---- The program ----

static void finish_pass(bool counts)
{
    double sum = 0.0;
    for (int i = 0; i < n_shapes; i++) {
        Shape *s = &shapes[i];
        double one = s->seconds / s->count;
        s->per_pass = s->count;
        s->count = 0;
        if (counts && (s->least == 0.0 || one < s->least)) s->least = one;
        sum += s->seconds;
        s->seconds = 0.0;
    }
    if (counts) printf("pass %.9f\n", sum);
}

static void print_blas(void)
{
#ifdef SIMGPU_DNNL
    const dnnl_version_t *v = dnnl_version();
    printf("blas oneDNN %d.%d.%d\n", v->major, v->minor, v->patch);
#else
    printf("blas %s\n", openblas_get_config());
#endif
}

static void print_shapes(void)
{
    for (int i = 0; i < n_shapes; i++) {
        const Shape *s = &shapes[i];
        printf("product %c%c %d %d %d %d %.9f\n", s->p.turn_a ? 'T' : 'N', s->p.turn_b ? 'T' : 'N',
               s->p.m, s->p.n, s->p.k, s->per_pass, s->least);
    }
}

int main(int argc, char **argv)
{
    int value[7];
    in_blocks = argc == 9 && strcmp(argv[8], "blocks") == 0;
    bool good = argc == 8 || in_blocks;
    for (int i = 0; i < 7 && good; i++) {
        char *end;
        long n = strtol(argv[i + 1], &end, 10);
        good = end != argv[i + 1] && *end == '\0' && n > 0 && n < INT_MAX;
        value[i] = (int)n;
    }
    if (!good || value[2] % value[1] != 0) {
        fprintf(stderr,
                "usage: products LAYERS HEADS DIM VOCAB B T PASSES [blocks] (heads divide dim)\n");
        return 2;
    }
#ifdef SIMGPU_DNNL
    omp_set_num_threads(1);
#else
    openblas_set_num_threads(1);
#endif
    Model m = model_of((Sizes){value[0], value[1], value[2], value[3], value[4], value[5]});
    for (int i = 0; i <= value[6]; i++) {
        pass(&m);
        finish_pass(i > 0);
    }
    print_blas();
    print_shapes();
    return 0;
}
