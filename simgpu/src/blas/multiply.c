/* multiply.c: products of matrices: the CPU's BLAS for floats, plain loops in double for the rest.
 *
 * [Note: blocks] The output of a product is cut into blocks, by its shape and the machine's
 * processors (SIMGPU_CORES), and the BLAS computes each block with one thread. Threads share the
 * blocks (simgpu_parallel), so a result does not depend on the number of threads or ranks. The bits
 * of a block differ from those of the same elements in a larger product: a BLAS has other loops for
 * other shapes. A BLAS with its own threads may also split the sum over k, and then the order of
 * additions depends on the number of threads.
 *
 * The loops in double add an element's products in the order of k, one by one.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef SIMGPU_DNNL
#include <dnnl.h>
#if __has_include(<omp.h>)
#include <omp.h>
#else // clang finds gcc's library of these, and not its header
int omp_get_max_threads(void);
void omp_set_num_threads(int n);
#endif
#else
#include <cblas.h>
#endif

#include "blas.h"

// ---- Blocks ----

// Multiplications that are worth a block of their own, the most blocks, and their smallest sides:
// for smaller ones the BLAS spends too long on packing its factors. Half of a small product is
// worth a thread, too.
enum { BLOCK_WORK = 1 << 23, MOST_BLOCKS = 16, LEAST_SIDE = 64, LEAST_HALF = 32 };
// The cost of packing a number of a transposed factor, relative to one in the BLAS's own layout.
// And how much may be packed again because of the blocks, times the processors that can share them:
// for each column (A) or row (B) of the sum one number for so many of the output. For 750 that
// costs about a fiftieth of the product's time, for 75 a fifth: the more processors would be idle,
// the more it is worth. Halves are always worth it.
enum { TRANSPOSED = 2, PACKED_AGAIN = 600 };

typedef struct Blocks {
    int64_t rows, cols;     // of a block
    int64_t across, blocks; // how many stand side by side, and how many there are
} Blocks;

static int64_t pieces(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

// Sets *size to that of one of `count` parts of a side; false: they would be too small.
static bool part(int64_t side, int64_t count, int64_t least, int64_t *size)
{
    *size = count == 1 ? side : pieces(pieces(side, count), LEAST_HALF) * LEAST_HALF;
    return count == 1 || (side / count >= least && pieces(side, *size) == count);
}

// Every block packs its rows of A and its columns of B. Of all ways to cut the product into so many
// blocks, finds the one that packs the least again. False: there is none, or that is too much.
static bool cut_in(const Sgemm *p, int64_t blocks, int64_t least, Blocks *best)
{
    int sharing = sim_config()->cores < MOST_BLOCKS ? sim_config()->cores : MOST_BLOCKS;
    double cheapest = -1.0, most = (double)p->m * (double)p->n * sharing / PACKED_AGAIN;
    for (int64_t across = 1; across <= blocks; across *= 2) {
        int64_t down = blocks / across, rows, cols;
        double cost = (double)((across - 1) * p->m) * (p->turn_a ? TRANSPOSED : 1) +
                      (double)((down - 1) * p->n) * (p->turn_b ? TRANSPOSED : 1);
        if (!part(p->m, down, least, &rows) || !part(p->n, across, least, &cols)) continue;
        if (cost > most && blocks > 2) continue;
        if (cheapest >= 0.0 && cost >= cheapest) continue;
        cheapest = cost;
        *best = (Blocks){rows, cols, across, blocks};
    }
    return cheapest >= 0.0;
}

static Blocks cut(const Sgemm *p)
{
    double work = (double)p->m * p->n * p->k;
    Blocks b = {p->m, p->n, 1, 1};
    for (int64_t blocks = MOST_BLOCKS; blocks > 1; blocks /= 2) {
        bool halves = blocks == 2;
        if (blocks > sim_config()->cores) continue;
        if (work < (double)BLOCK_WORK * (halves ? 1 : blocks)) continue;
        if (cut_in(p, blocks, halves ? LEAST_HALF : LEAST_SIDE, &b)) break;
    }
    return b;
}

// ---- Single precision ----

#ifdef SIMGPU_DNNL
// [Note: few columns] oneDNN packs a transposed A, and for few columns of B that takes as long as
// to multiply: by one core of an AMD EPYC 231 µs, where m = 256, n = 16 and k = 1024. The same as
// Cᵀ = Bᵀ·A, with B and C transposed here, which are small, packs nothing and takes 113. So it does
// where the sum is longer than C is high, and at full 16 columns; with fewer columns oneDNN has a
// way without packing, with more it is as quick (bench/results/2026-11-26.md).
enum { COLUMNS = 16, MOST_COLUMNS = 3 * COLUMNS, LONG_SUM = 256 };

static bool has_few_columns(const Sgemm *p)
{
    bool full = p->n == COLUMNS || p->n == 2 * COLUMNS;
    if (!p->turn_a || p->turn_b || p->k < LONG_SUM) return false;
    return full || (p->k > p->m && p->n > COLUMNS && p->n <= MOST_COLUMNS);
}

// to (cols,rows) = the transpose of from (rows,cols) + beta·to, column-major; `to` is not read
// where beta is 0.
static void transpose(float *to, int64_t ldto, float beta, const float *from, int64_t ldfrom,
                      int64_t rows, int64_t cols)
{
    for (int64_t first = 0; first < cols; first += COLUMNS) {
        int64_t end = first + COLUMNS < cols ? first + COLUMNS : cols;
        for (int64_t i = 0; i < rows; i++) {
            float *column = to + i * ldto;
            const float *row = from + i;
            if (beta == 0.0f)
                for (int64_t j = first; j < end; j++) column[j] = row[j * ldfrom];
            else
                for (int64_t j = first; j < end; j++)
                    column[j] = row[j * ldfrom] + beta * column[j];
        }
    }
}

static dnnl_status_t multiply_turned(const Sgemm *p, const float *A, const float *B, float *C)
{
    float *turned_b = malloc((size_t)(p->k + p->m) * (size_t)p->n * sizeof *turned_b);
    if (turned_b == NULL) return dnnl_out_of_memory;
    float *turned_c = turned_b + p->k * p->n;
    transpose(turned_b, p->n, 0.0f, B, p->ldb, p->k, p->n);
    dnnl_status_t done = dnnl_sgemm('N', 'N', p->m, p->n, p->k, p->alpha, A, p->lda, turned_b, p->n,
                                    0.0f, turned_c, p->n);
    if (done == dnnl_success) transpose(C, p->ldc, p->beta, turned_c, p->n, p->n, p->m);
    free(turned_b);
    return done;
}

// oneDNN is row-major, and a column-major matrix read by rows is its transpose:
// Cᵀ = op(B)ᵀ·op(A)ᵀ, so the two factors change places.
static dnnl_status_t multiply_as_is(const Sgemm *p, const float *A, const float *B, float *C)
{
    return dnnl_sgemm(p->turn_b ? 'T' : 'N', p->turn_a ? 'T' : 'N', p->n, p->m, p->k, p->alpha, B,
                      p->ldb, A, p->lda, p->beta, C, p->ldc);
}

static cublasStatus_t multiply_block(const Sgemm *p, const float *A, const float *B, float *C)
{
    int before = omp_get_max_threads();
    if (before != 1) omp_set_num_threads(1);
    dnnl_status_t done =
        has_few_columns(p) ? multiply_turned(p, A, B, C) : multiply_as_is(p, A, B, C);
    if (before != 1) omp_set_num_threads(before);
    if (done == dnnl_out_of_memory) return CUBLAS_STATUS_ALLOC_FAILED;
    return done == dnnl_success ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR;
}
static void use_one_thread(void)
{
}

// [Note: forks] oneDNN writes its kernels as machine code at a process's first product, which takes
// some 30 ms of processor time, and more at the first one with a factor transposed. Ranks are
// forked, many from one process: it has the kernels written before its first fork, and its children
// inherit them. A dry run multiplies nothing; its variable is read here, as the settings
// (sim_config) are the children's, and may still change.
static void write_kernels_now(void)
{
    static const float factor[4];
    float product[4];
    for (int turns = 0; turns < 4; turns++)
        multiply_block(&(Sgemm){turns & 1, turns & 2, 2, 2, 2, 1.0f, 0.0f, 2, 2, 2}, factor, factor,
                       product);
}

static void write_kernels(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *dry = getenv("SIMGPU_DRY");
    if (dry == NULL || strcmp(dry, "1") != 0) pthread_once(&once, write_kernels_now);
}

__attribute__((constructor)) static void before_forks(void)
{
    pthread_atfork(write_kernels, NULL, NULL);
}
#else
// An OpenBLAS with OpenMP obeys this, too; it applies to all threads that call it.
static void use_one_thread(void)
{
    openblas_set_num_threads(1);
}

// Its sizes have 32 bits.
static bool fits(int64_t size)
{
    return size <= INT_MAX;
}

static cublasStatus_t multiply_block(const Sgemm *p, const float *A, const float *B, float *C)
{
    if (!fits(p->m) || !fits(p->n) || !fits(p->k) || !fits(p->lda) || !fits(p->ldb) ||
        !fits(p->ldc))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    // Not every CBLAS leaves C unread where beta is 0.
    for (int64_t j = 0; j < p->n && p->beta == 0.0f; j++)
        memset(C + (size_t)j * (size_t)p->ldc, 0, (size_t)p->m * sizeof *C);
    cblas_sgemm(CblasColMajor, p->turn_a ? CblasTrans : CblasNoTrans,
                p->turn_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k, p->alpha, A,
                (int)p->lda, B, (int)p->ldb, p->beta, C, (int)p->ldc);
    return CUBLAS_STATUS_SUCCESS;
}
#endif

typedef struct SgemmJob {
    const Sgemm *p;
    Blocks b;
    const float *A, *B;
    float *C;
    atomic_int failed; // a cublasStatus_t
} SgemmJob;

static void sgemm_piece(SgemmJob *job, int64_t piece)
{
    Sgemm p = *job->p;
    int64_t row = piece / job->b.across * job->b.rows, col = piece % job->b.across * job->b.cols;
    size_t i = (size_t)row, j = (size_t)col;
    if (p.m - row < job->b.rows)
        p.m -= row;
    else
        p.m = job->b.rows;
    if (p.n - col < job->b.cols)
        p.n -= col;
    else
        p.n = job->b.cols;
    const float *A = job->A + (p.turn_a ? i * (size_t)p.lda : i);
    const float *B = job->B + (p.turn_b ? j : j * (size_t)p.ldb);
    cublasStatus_t status = multiply_block(&p, A, B, job->C + j * (size_t)p.ldc + i);
    if (status != CUBLAS_STATUS_SUCCESS) atomic_store(&job->failed, (int)status);
}

static void sgemm_pieces(void *arg, size_t begin, size_t end)
{
    for (size_t piece = begin; piece < end; piece++) sgemm_piece(arg, (int64_t)piece);
}

cublasStatus_t simblas_sgemm(const Sgemm *p, const float *A, const float *B, float *C)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_one_thread);
    SgemmJob job = {p, cut(p), A, B, C, CUBLAS_STATUS_SUCCESS};
    simgpu_parallel((size_t)job.b.blocks, 1, sgemm_pieces, &job);
    return (cublasStatus_t)atomic_load(&job.failed);
}

// ---- Double precision ----

static double *zeros(int64_t rows, int64_t cols)
{
    return calloc((size_t)rows * (size_t)cols + 1, sizeof(double));
}

static Planes make_planes(int64_t rows, int64_t cols, bool complex)
{
    Planes p = {rows, cols, zeros(rows, cols), complex ? zeros(rows, cols) : NULL, false};
    p.failed = p.re == NULL || (complex && p.im == NULL);
    if (p.failed) simblas_free_planes(&p);
    return p;
}

Planes simblas_planes(const Matrix *m, cublasOperation_t turn, int64_t rows, int64_t cols)
{
    Planes p = make_planes(rows, cols, m->format->complex);
    for (int64_t j = 0; j < cols && !p.failed; j++)
        for (int64_t i = 0; i < rows; i++) {
            size_t at = (size_t)j * (size_t)rows + (size_t)i;
            Number x = simblas_element(m, turn, i, j);
            p.re[at] = x.re;
            if (p.im != NULL) p.im[at] = x.im;
        }
    return p;
}

void simblas_free_planes(Planes *p)
{
    free(p->re);
    free(p->im);
    p->re = p->im = NULL;
}

// A tile of the output: its rows and columns are summed in registers.
enum { TILE_ROWS = 16, TILE_COLS = 4 };

typedef struct DoubleJob {
    int64_t m, n, k;
    const double *A, *B; // (m,k), (k,n)
    double *C;
    double sign;
    atomic_bool failed;
} DoubleJob;

// The sums of one tile; `panel` holds TILE_ROWS rows of A, one column behind the other.
static void sum_tile(const DoubleJob *job, const double *panel, int64_t col, int64_t cols,
                     double sum[TILE_COLS][TILE_ROWS])
{
    const double *B[TILE_COLS];
    size_t k = (size_t)job->k;
    memset(sum, 0, sizeof(double[TILE_COLS][TILE_ROWS]));
    for (int c = 0; c < TILE_COLS; c++) B[c] = job->B + (size_t)(col + (c < cols ? c : 0)) * k;
    for (size_t l = 0; l < k; l++)
        for (int c = 0; c < TILE_COLS; c++) {
            double b = B[c][l];
            for (int r = 0; r < TILE_ROWS; r++) sum[c][r] += panel[l * TILE_ROWS + (size_t)r] * b;
        }
}

static void double_piece(DoubleJob *job, int64_t piece)
{
    size_t k = (size_t)job->k, m = (size_t)job->m, row = (size_t)piece * TILE_ROWS;
    size_t rows = m - row < TILE_ROWS ? m - row : TILE_ROWS;
    double *panel = zeros(TILE_ROWS, job->k), sum[TILE_COLS][TILE_ROWS];
    if (panel == NULL) atomic_store(&job->failed, true);
    for (size_t l = 0; l < k && panel != NULL; l++)
        memcpy(panel + l * TILE_ROWS, job->A + l * m + row, rows * sizeof *panel);
    for (int64_t col = 0; col < job->n && panel != NULL; col += TILE_COLS) {
        int64_t cols = job->n - col < TILE_COLS ? job->n - col : TILE_COLS;
        sum_tile(job, panel, col, cols, sum);
        for (int64_t c = 0; c < cols; c++) {
            double *to = job->C + (size_t)(col + c) * m + row;
            for (size_t r = 0; r < rows; r++) to[r] += job->sign * sum[c][r];
        }
    }
    free(panel);
}

static void double_pieces(void *arg, size_t begin, size_t end)
{
    for (size_t piece = begin; piece < end; piece++) double_piece(arg, (int64_t)piece);
}

// C += sign·A·B; false: there is no memory.
static bool add_product(const Planes *c, int64_t k, double sign, const double *A, const double *B,
                        double *C)
{
    if (A == NULL || B == NULL) return true;
    int64_t m = c->rows, n = c->cols;
    DoubleJob job = {m, n, k, A, B, C, sign, false};
    bool small = (double)m * (double)n * (double)k < BLOCK_WORK;
    size_t panels = (size_t)pieces(m, TILE_ROWS);
    simgpu_parallel(panels, small ? panels : 1, double_pieces, &job);
    return !atomic_load(&job.failed);
}

static Planes multiply(const Planes *a, const Planes *b)
{
    int64_t k = a->cols;
    bool complex = a->im != NULL || b->im != NULL;
    if (a->failed || b->failed) return (Planes){.failed = true};
    Planes c = make_planes(a->rows, b->cols, complex);
    if (c.failed) return c;
    bool done = add_product(&c, k, 1.0, a->re, b->re, c.re) &&
                add_product(&c, k, -1.0, a->im, b->im, c.re) &&
                add_product(&c, k, 1.0, a->re, b->im, c.im) &&
                add_product(&c, k, 1.0, a->im, b->re, c.im);
    if (!done) simblas_free_planes(&c);
    c.failed = !done;
    return c;
}

Planes simblas_product(const Matrix *a, cublasOperation_t turn_a, const Matrix *b,
                       cublasOperation_t turn_b, int64_t k)
{
    int64_t m = turn_a == CUBLAS_OP_N ? a->rows : a->cols,
            n = turn_b == CUBLAS_OP_N ? b->cols : b->rows;
    Planes left = simblas_planes(a, turn_a, m, k), right = simblas_planes(b, turn_b, k, n);
    Planes product = multiply(&left, &right);
    simblas_free_planes(&left);
    simblas_free_planes(&right);
    return product;
}
