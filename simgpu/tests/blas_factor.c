/* blas_factor.c: batches of matrices in factors: L·U, systems and inverses with it. Whether a
 * result is right is computed in long double from its definition: P·A = L·U, op(A)·X = B,
 * A·A⁻¹ = 1. Gaps between columns are NaN, and must be afterwards.
 */
#include <float.h>

#include "blas_exact.h"
#include "heard.h"

enum { COUNT = 3, LARGEST = 40 };

// ---- Batches of matrices ----

typedef struct Box {
    int rows, cols, ld;
    Operand o[COUNT];
    Exact *was[COUNT]; // (rows, cols), as it was sent
    void *list;        // the addresses, in device memory
} Box;

static size_t box_at(const Box *b, int i, int j)
{
    return (size_t)j * (size_t)b->ld + (size_t)i;
}

// Small whole numbers; `strong`: with a diagonal that outweighs the rest.
static Box box_make(char t, int rows, int cols, int gap, bool strong)
{
    Box b = {.rows = rows, .cols = cols, .ld = (rows > 1 ? rows : 1) + gap};
    void *list[COUNT];
    for (int k = 0; k < COUNT; k++) {
        b.o[k] = operand(t, (size_t)(cols - 1) * (size_t)b.ld + (size_t)rows);
        b.was[k] = calloc((size_t)(rows * cols), sizeof(Exact));
        for (int j = 0; j < cols; j++)
            for (int i = 0; i < rows; i++) {
                Exact x = small(t) + (strong && i == j ? 4.0L * rows : 0.0L);
                blas_put(t, b.o[k].host, box_at(&b, i, j), x);
                b.was[k][j * rows + i] = x;
            }
        operand_send(&b.o[k]);
        list[k] = b.o[k].device;
    }
    need_cuda(cudaMalloc(&b.list, sizeof list));
    need_cuda(cudaMemcpy(b.list, list, sizeof list, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return b;
}

// Sends matrix k once more.
static void box_send(Box *b, int k)
{
    Operand *o = &b->o[k];
    for (int j = 0; j < b->cols; j++)
        for (int i = 0; i < b->rows; i++)
            blas_put(o->type, o->host, box_at(b, i, j), b->was[k][j * b->rows + i]);
    need_cuda(cudaMemcpy(o->device, o->host, o->n * bytes_of(o->type), cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
}

// Brings the results to the host. Gaps must be what they were.
static void box_fetch(Box *b, const char *what)
{
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < COUNT; k++) {
        Operand *o = &b->o[k];
        need_cuda(cudaMemcpy(o->host, o->device, o->n * bytes_of(o->type), cudaMemcpyDeviceToHost));
        for (size_t at = 0; at < o->n; at++)
            if (at % (size_t)b->ld >= (size_t)b->rows)
                check(isnan(creall(blas_get(o->type, o->host, at))), "%s: a gap was written", what);
    }
}
static Exact box_get(const Box *b, int k, int i, int j)
{
    return blas_get(b->o[k].type, b->o[k].host, box_at(b, i, j));
}
static Exact box_was(const Box *b, int k, int i, int j)
{
    return b->was[k][j * b->rows + i];
}
static void box_free(Box *b)
{
    for (int k = 0; k < COUNT; k++) {
        need_cuda(cudaFree(b->o[k].device));
        free(b->o[k].host);
        free(b->was[k]);
    }
    need_cuda(cudaFree(b->list));
}

// What rounding may do to a number that n numbers of up to `size` were summed up to.
static long double bound(char t, int n, long double size)
{
    long double epsilon = real_of(t) == 'D' ? DBL_EPSILON : FLT_EPSILON;
    return 30.0L * (n + 1) * epsilon * (size > 1.0L ? size : 1.0L);
}
#define near_zero(x, within, ...)                                                                  \
    do {                                                                                           \
        Exact rest_ = (x);                                                                         \
        check(cabsl(rest_) <= (within), __VA_ARGS__);                                              \
    } while (0)

static int *ints_make(size_t n)
{
    int *ints = NULL;
    need_cuda(cudaMalloc((void **)&ints, n * sizeof *ints));
    return ints;
}
static void ints_fetch(int *host, int *device, size_t n)
{
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(host, device, n * sizeof *host, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(device));
}

// ---- L·U ----

// The sizes of a case: n, the gaps, the type, and with or without pivots.
typedef struct Case {
    char t, name[80];
    int n, gap;
    bool pivots;
} Case;
static Case choose(unsigned number)
{
    static const int sizes[] = {1, 2, 3, 8, 13, 32};
    unsigned rest = number;
    Case c = {.t = "SDCZ"[digit(&rest, 4)]};
    c.n = sizes[digit(&rest, 6)];
    c.gap = 2 * digit(&rest, 2);
    c.pivots = digit(&rest, 2);
    snprintf(c.name, sizeof c.name, "%c, n %d, gap %d, %s pivots", c.t, c.n, c.gap,
             c.pivots ? "with" : "without");
    return c;
}
enum { CASES = 4 * 6 * 2 * 2 };

// P·A = L·U, by the rows' places after all exchanges; L's numbers are at most 1 where rows were
// chosen. Growth is what U's numbers may be larger than A's.
static void check_lu(const Case *c, const Box *A, int k, const int *pivots)
{
    int row[LARGEST];
    for (int i = 0; i < c->n; i++) row[i] = i;
    for (int i = 0; i < c->n && c->pivots; i++) {
        int other = pivots[i] - 1, was = row[i];
        check(other >= i && other < c->n, "%s: pivot %d is %d", c->name, i + 1, pivots[i]);
        row[i] = row[other];
        row[other] = was;
    }
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->n; j++) {
            Exact sum = 0.0L;
            long double size = 0.0L;
            for (int l = 0; l <= i && l <= j; l++) {
                Exact left = l == i ? 1.0L : box_get(A, k, i, l), right = box_get(A, k, l, j);
                sum += left * right;
                size += cabsl(left) * cabsl(right);
            }
            near_zero(sum - box_was(A, k, row[i], j), bound(c->t, c->n, size),
                      "%s, matrix %d: P·A - L·U is not 0 at (%d, %d)", c->name, k, i, j);
            Exact x = box_get(A, k, i, j);
            if (i > j && c->pivots)
                check(fabsl(creall(x)) + fabsl(cimagl(x)) <= 1.5L, "%s: L(%d, %d) is too large",
                      c->name, i, j);
        }
}

static void getrf(Session *s, const Case *c, Box *A, int *P, int *info)
{
    int host[COUNT];
    need_blas(EACH(c->t, getrfBatched, s->h, c->n, A->list, A->ld, P, info, COUNT));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(host, info, sizeof host, cudaMemcpyDeviceToHost));
    for (int k = 0; k < COUNT; k++) check(host[k] == 0, "%s: info %d is %d", c->name, k, host[k]);
}

// op(A)·X = B
static void check_system(const Case *c, const Box *A, const Box *X, int k, cublasOperation_t op)
{
    for (int j = 0; j < X->cols; j++)
        for (int i = 0; i < c->n; i++) {
            Exact sum = -box_was(X, k, i, j);
            long double size = 0.0L;
            for (int l = 0; l < c->n; l++) {
                Exact a = op == CUBLAS_OP_N ? box_was(A, k, i, l) : box_was(A, k, l, i);
                Exact x = box_get(X, k, l, j);
                sum += (op == CUBLAS_OP_C ? conjl(a) : a) * x;
                size += cabsl(a) * cabsl(x);
            }
            near_zero(sum, 20.0L * bound(c->t, c->n, size),
                      "%s, op %d, matrix %d: op(A)·X - B at "
                      "(%d, %d) is %Lg",
                      c->name, (int)op, k, i, j, cabsl(sum));
        }
}

// A·C = 1
static void check_inverse(const Case *c, const Box *A, const Box *C, int k)
{
    for (int j = 0; j < c->n; j++)
        for (int i = 0; i < c->n; i++) {
            Exact sum = i == j ? -1.0L : 0.0L;
            long double size = 0.0L;
            for (int l = 0; l < c->n; l++) {
                sum += box_was(A, k, i, l) * box_get(C, k, l, j);
                size += cabsl(box_was(A, k, i, l)) * cabsl(box_get(C, k, l, j));
            }
            near_zero(sum, 20.0L * bound(c->t, c->n, size),
                      "%s, matrix %d: A·A⁻¹ at (%d, %d) is "
                      "off by %Lg",
                      c->name, k, i, j, cabsl(sum));
        }
}

SESSION_TEST(test_factors)
{
    for (unsigned number = s->on_device; number < CASES; number += 2) {
        Case c = choose(number);
        size_t n = (size_t)c.n * COUNT;
        int *P = c.pivots ? ints_make(n) : NULL, *info = ints_make(COUNT), pivots[COUNT * LARGEST];
        Box A = box_make(c.t, c.n, c.n, c.gap, true), C = box_make(c.t, c.n, c.n, 1, false);
        // The first row becomes the last: exchanges that must be made, and undone, in order.
        for (int k = 0; k < COUNT && c.pivots; k++) {
            for (int j = 0; j < c.n; j++) {
                Exact *column = &A.was[k][j * c.n], first = column[0];
                for (int i = 0; i + 1 < c.n; i++) column[i] = column[i + 1];
                column[c.n - 1] = first;
            }
            box_send(&A, k);
        }
        getrf(s, &c, &A, P, info);
        need_blas(EACH(c.t, getriBatched, s->h, c.n, A.list, A.ld, P, C.list, C.ld, info, COUNT));
        for (int op = 0; op < 3; op++) {
            Box X = box_make(c.t, c.n, 2, 1, false);
            int host_info = 77;
            need_blas(EACH(c.t, getrsBatched, s->h, OPS[op], c.n, 2, A.list, A.ld, P, X.list, X.ld,
                           &host_info, COUNT));
            check(host_info == 0, "%s: info of getrs is %d", c.name, host_info);
            box_fetch(&X, c.name);
            for (int k = 0; k < COUNT; k++) check_system(&c, &A, &X, k, OPS[op]);
            box_free(&X);
        }
        box_fetch(&A, c.name);
        box_fetch(&C, c.name);
        if (P != NULL) ints_fetch(pivots, P, n);
        for (int k = 0; k < COUNT; k++) check_lu(&c, &A, k, pivots + k * c.n);
        for (int k = 0; k < COUNT; k++) check_inverse(&c, &A, &C, k);
        need_cuda(cudaFree(info));
        box_free(&A);
        box_free(&C);
    }
}

SESSION_TEST(test_inverses)
{
    for (unsigned number = s->on_device; number < CASES / 2; number++) {
        Case c = choose(number);
        int *info = ints_make(COUNT), host[COUNT];
        Box A = box_make(c.t, c.n, c.n, c.gap, true), C = box_make(c.t, c.n, c.n, 1, false);
        need_blas(EACH(c.t, matinvBatched, s->h, c.n, A.list, A.ld, C.list, C.ld, info, COUNT));
        box_fetch(&A, c.name);
        box_fetch(&C, c.name);
        ints_fetch(host, info, COUNT);
        for (int k = 0; k < COUNT; k++) {
            check(host[k] == 0, "%s: info %d is %d", c.name, k, host[k]);
            check_inverse(&c, &A, &C, k);
            for (int j = 0; j < c.n; j++)
                for (int i = 0; i < c.n; i++)
                    check(box_get(&A, k, i, j) == box_was(&A, k, i, j), "%s: A changed", c.name);
        }
        box_free(&A);
        box_free(&C);
    }
}

// Of three matrices the last column of the second is 0, and all of the third.
SESSION_TEST(test_singular)
{
    for (int t = 0; t < 4; t++) {
        Case c = {.t = "SDCZ"[t], .n = 4, .gap = 1};
        int *P = ints_make((size_t)c.n * COUNT), *info = ints_make(COUNT), host[COUNT];
        Box A = box_make(c.t, c.n, c.n, c.gap, true), C = box_make(c.t, c.n, c.n, 0, false);
        for (int i = 0; i < c.n; i++) A.was[1][3 * c.n + i] = 0.0L;
        for (int i = 0; i < c.n * c.n; i++) A.was[2][i] = 0.0L;
        for (int k = 1; k < COUNT; k++) box_send(&A, k);
        need_blas(EACH(c.t, matinvBatched, s->h, c.n, A.list, A.ld, C.list, C.ld, info, COUNT));
        for (int call = 0; call < 3; call++) {
            if (call == 1)
                need_blas(EACH(c.t, getrfBatched, s->h, c.n, A.list, A.ld, P, info, COUNT));
            if (call == 2)
                need_blas(
                    EACH(c.t, getriBatched, s->h, c.n, A.list, A.ld, P, C.list, C.ld, info, COUNT));
            need_cuda(cudaDeviceSynchronize());
            need_cuda(cudaMemcpy(host, info, sizeof host, cudaMemcpyDeviceToHost));
            check(host[0] == 0 && host[1] == 4 && host[2] == 1, "%c, call %d: info %d, %d, %d", c.t,
                  call, host[0], host[1], host[2]);
        }
        need_cuda(cudaFree(P));
        need_cuda(cudaFree(info));
        box_free(&A);
        box_free(&C);
    }
}

// ---- Refused ----

RANK_TEST(test_refused, 1)
{
    static Heard heard;
    cublasHandle_t h = NULL;
    int info = 77, *d = ints_make(64);
    double *p = NULL;
    need_blas(cublasCreate(&h));
    need_cuda(cudaMalloc((void **)&p, 8192));
    double **list = (double **)(void *)p;
    const double *const *in = (const double *const *)list;
    need_cuda(cudaMemset(d, 0, 64 * sizeof *d));
    double *both[2] = {p + 64, p + 128};
    need_cuda(cudaMemcpy(list, both, sizeof both, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    hear(&heard);
#define REFUSED(status, place, words, ...)                                                         \
    do {                                                                                           \
        heard.count = 0;                                                                           \
        info = 77;                                                                                 \
        cublasStatus_t got = __VA_ARGS__;                                                          \
        check(got == CUBLAS_STATUS_##status, "%s: %s", #__VA_ARGS__, cublasGetStatusName(got));    \
        heard_is(&heard, "a cuBLAS call with a wrong argument", words);                            \
        check(strstr(heard.text, "blas_factor.c:") != NULL, "no line of mine: %s", heard.text);    \
        check(info == (place), "%s: info is %d", #__VA_ARGS__, info);                              \
    } while (0)
    const cublasOperation_t N = CUBLAS_OP_N;
    REFUSED(INVALID_VALUE, 77, "n is -1", cublasDgetrfBatched(h, -1, list, 1, d, d, 1));
    REFUSED(INVALID_VALUE, 77, "lda is 2", cublasDgetrfBatched(h, 3, list, 2, d, d, 1));
    REFUSED(INVALID_VALUE, 77, "info is NULL", cublasDgetrfBatched(h, 3, list, 3, d, NULL, 1));
    REFUSED(INVALID_VALUE, 77, "batchSize is -2", cublasDgetrfBatched(h, 3, list, 3, d, d, -2));
    REFUSED(INVALID_VALUE, 77, "ldc is 2", cublasDgetriBatched(h, 3, in, 3, d, list, 2, d, 1));
    REFUSED(INVALID_VALUE, 77, "lda_inv is 2", cublasDmatinvBatched(h, 3, in, 3, list, 2, d, 1));
    REFUSED(INVALID_VALUE, 77, "n is 33", cublasDmatinvBatched(h, 33, in, 33, list, 33, d, 1));
    REFUSED(INVALID_VALUE, -1, "trans is 9",
            cublasDgetrsBatched(h, (cublasOperation_t)9, 2, 1, in, 2, d, list, 2, &info, 1));
    REFUSED(INVALID_VALUE, -2, "n is -1",
            cublasDgetrsBatched(h, N, -1, 1, in, 2, d, list, 2, &info, 1));
    REFUSED(INVALID_VALUE, -3, "nrhs is -1",
            cublasDgetrsBatched(h, N, 2, -1, in, 2, d, list, 2, &info, 1));
    REFUSED(INVALID_VALUE, -5, "lda is 1",
            cublasDgetrsBatched(h, N, 2, 1, in, 1, d, list, 2, &info, 1));
    REFUSED(INVALID_VALUE, -8, "ldb is 1",
            cublasDgetrsBatched(h, N, 2, 1, in, 2, d, list, 1, &info, 1));
    REFUSED(EXECUTION_FAILED, 0, "pivot 1 of matrix 0 is 0",
            cublasDgetrsBatched(h, N, 2, 1, in, 2, d, list, 2, &info, 1));
    simgpu_on_report(NULL, NULL);
    need_blas(cublasDestroy(h));
    need_cuda(cudaFree(d));
    need_cuda(cudaFree(p));
}
SUITE_MAIN("cuBLAS, matrices in factors")
