/* blas.h: what the files of simgpu's cuBLAS share.
 *
 *   check.c     what is wrong with a call, in words; the names of the states
 *   handle.c    handles, and what they remember;  legacy.c: the calls of cublas.h, by a hidden one
 *   transfer.c  cublasSetVector … cublasGetMatrixAsync
 *   number.c    the formats of numbers, from 8 bits to double complex
 *   operand.c   vectors and matrices as they lie in device memory: full, banded, packed, triangular
 *   multiply.c  the products themselves: the CPU's BLAS for floats, plain loops for the rest
 *   halves.c    half precision and bfloat16, to floats and back
 *   gemm.c      cublasSgemm … cublasGemmEx;  batched.c: many of them in one call
 *   level1.c    vectors;  rotate.c: rotations of vectors
 *   level2.c    a matrix and vectors;  level3.c: matrices with a structure
 *   extra.c     what cuBLAS has beyond BLAS: geam, dgmm, packed to full
 *   factor.c    batches of matrices in factors: L·U, systems, inverses;  least_squares.c: Q·R
 *
 * Every call checks its arguments as cuBLAS does and says which one is wrong, declares the bytes
 * that it reads and writes like any other operation on a stream, and then computes. Where nothing
 * else is said, it computes in double, whatever the format, and rounds once.
 */
#ifndef SIMGPU_BLAS_H
#define SIMGPU_BLAS_H

#include <stdlib.h>

#include "cublas_api.h"
#include "report/report.h"
#include "runtime/runtime.h"

// The headers have these types, and the calls that take them, for C++ alone.
typedef struct __half {
    unsigned short bits;
} __half;
typedef struct __nv_bfloat16 {
    unsigned short bits;
} __nv_bfloat16;
#include "simgpu_cublas/half.h"

#define SITE (simblas_caller ? simblas_caller : SIM_SITE)

// ---- check.c ----

// A call in progress: what it is called and where from.
typedef struct Call {
    const char *name;
    const void *site;
} Call;

// Reports what is wrong with the call; returns the status.
cublasStatus_t simblas_refuse(Call call, cublasStatus_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
cublasStatus_t simblas_check_handle(Call call, cublasHandle_t handle);
cublasStatus_t simblas_check_pointer(Call call, const char *argument, const void *ptr);
cublasStatus_t simblas_check_size(Call call, const char *argument, long long n);
cublasStatus_t simblas_check_increment(Call call, const char *argument, int64_t inc);
cublasStatus_t simblas_check_turn(Call call, const char *argument, cublasOperation_t turn);
cublasStatus_t simblas_check_fill(Call call, cublasFillMode_t uplo);
cublasStatus_t simblas_check_diagonal(Call call, cublasDiagType_t diag);
cublasStatus_t simblas_check_side(Call call, cublasSideMode_t side);
// `rows` is what the matrix has as it lies in memory; `rows_are` says which argument that is.
cublasStatus_t simblas_check_leading(Call call, const char *argument, int64_t ld, int64_t rows,
                                     const char *rows_are);

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cublasStatus_t check_status_ = (call);                                                     \
        if (check_status_ != CUBLAS_STATUS_SUCCESS) return check_status_;                          \
    } while (0)

// ---- handle.c ----

// The call site of a call without a handle, while it runs; NULL: this thread is in none.
extern _Thread_local const void *simblas_caller;

struct cublasContext {
    bool alive;
    const void *site;      // cublasCreate's
    const void *destroyed; // cublasDestroy's
    int device;            // current when it was created; cuBLAS keeps to it
    cudaStream_t stream;
    cublasPointerMode_t pointers;
    // Remembered, and otherwise without effect.
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
    int multiprocessors;
    cublasEmulationStrategy_t emulation;
    cudaEmulationSpecialValuesSupport special_values;
    cudaEmulationMantissaControl mantissa_control;
    int mantissa_bits, mantissa_offset;
    int *mantissa_used;
};
bool simblas_is_handle(const struct cublasContext *handle);
// Where it was destroyed; NULL: it was not, or is no handle.
const void *simblas_destroyed_at(const struct cublasContext *handle);

// ---- number.c ----

// The imaginary part of a real number is 0, and no operation below makes it NaN.
typedef struct Number {
    double re, im;
} Number;

typedef struct Format {
    cudaDataType type;
    const char *name;
    size_t bytes, align;
    bool complex;
    Number (*get)(const void *from, size_t i);
    void (*put)(void *to, size_t i, Number x);
} Format;
extern const Format simblas_S, simblas_D, simblas_C, simblas_Z, simblas_H, simblas_T, simblas_I;
// NULL: simgpu has no such format.
const Format *simblas_format(cudaDataType type);
// The real format of a complex one's parts; another format itself.
const Format *simblas_real(const Format *format);

static inline Number number(double re)
{
    return (Number){re, 0.0};
}
static inline bool is_zero(Number x)
{
    return x.re == 0.0 && x.im == 0.0;
}
static inline Number conjugate(Number x)
{
    return (Number){x.re, -x.im};
}
static inline Number plus(Number a, Number b)
{
    return (Number){a.re + b.re, a.im + b.im};
}
static inline Number minus(Number a, Number b)
{
    return (Number){a.re - b.re, a.im - b.im};
}
// A real factor multiplies the parts one by one: an infinite one does not make the other NaN.
static inline Number times(Number a, Number b)
{
    if (a.im == 0.0) return (Number){a.re * b.re, b.im == 0.0 ? 0.0 : a.re * b.im};
    if (b.im == 0.0) return (Number){a.re * b.re, a.im * b.re};
    return (Number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
Number simblas_divide(Number a, Number b);

// ---- operand.c ----

// Begins the operation on the handle's stream, and ends it.
SimgpuOp simblas_begin(Call call, cublasHandle_t handle);
cublasStatus_t simblas_end(SimgpuOp *op);
// The same, after a computation that may have failed: for want of memory
// (CUBLAS_STATUS_ALLOC_FAILED), or because the CPU's BLAS refused it.
cublasStatus_t simblas_finish(Call call, SimgpuOp *op, cublasStatus_t computed);
// A scalar argument, wherever the pointer mode says that it is.
Number simblas_scalar(SimgpuOp *op, cublasHandle_t handle, const void *scalar,
                      const Format *format);
// The place for a scalar result, or one that is changed; NULL: there is none.
void *simblas_result(SimgpuOp *op, cublasHandle_t handle, void *result, size_t bytes,
                     GpuAccess access);
// An array of pointers in device memory, to be read; NULL: it cannot be.
const void *const *simblas_pointers(SimgpuOp *op, const void *array, int64_t count);

// n elements, every inc-th in memory; with a negative inc from the last to the first.
typedef struct Vector {
    const void *ptr;
    const Format *format;
    int64_t n, inc;
    char *at; // where the elements are to be had: simblas_touch_vector
} Vector;
// Declares what is done to the vector. Where elements lie apart, a plain write is an update of the
// whole for the log, if `gaps_stay`.
void simblas_touch_vector(SimgpuOp *op, Vector *v, GpuAccess access, bool gaps_stay);
Number simblas_get(const Vector *v, int64_t i);
void simblas_put(const Vector *v, int64_t i, Number x);
void *simblas_place(const Vector *v, int64_t i); // of the element, in memory

typedef enum Layout { LAYOUT_FULL, LAYOUT_BAND, LAYOUT_PACKED } Layout;
typedef enum Part { PART_ALL, PART_UPPER, PART_LOWER } Part;
// What the elements are that are not stored.
typedef enum Others { OTHERS_ZERO, OTHERS_MIRRORED, OTHERS_CONJUGATED } Others;

// A column-major matrix: which elements are stored, and where. A banded one has `below` diagonals
// below the main one, and `above` above.
typedef struct Matrix {
    const void *ptr;
    const Format *format;
    int64_t rows, cols, ld;
    Layout layout;
    Part part;
    Others others;
    int64_t below, above;
    bool unit; // the diagonal is ones, and not stored
    char *at;  // where the elements are to be had: simblas_touch_matrix
} Matrix;
Part simblas_part(cublasFillMode_t uplo);
void simblas_touch_matrix(SimgpuOp *op, Matrix *m, GpuAccess access);
// The rows of a column that are stored: from *first to before *last.
void simblas_stored(const Matrix *m, int64_t col, int64_t *first, int64_t *last);
Number simblas_element(const Matrix *m, cublasOperation_t turn, int64_t row,
                       int64_t col);                                     // of op(m)
Number simblas_load(const Matrix *m, int64_t row, int64_t col);          // a stored element
void simblas_store(const Matrix *m, int64_t row, int64_t col, Number x); // the same

// ---- multiply.c ----

// A dense matrix, real and imaginary parts apart; im is NULL where all are 0. Without memory for it
// both are NULL, and it has failed.
typedef struct Planes {
    int64_t rows, cols;
    double *re, *im;
    bool failed;
} Planes;
Planes simblas_planes(const Matrix *m, cublasOperation_t turn, int64_t rows,
                      int64_t cols); // of op(m)
void simblas_free_planes(Planes *p);
Planes simblas_multiply(const Planes *a, const Planes *b); // a·b
// op(A)·op(B), with k columns of op(A)
Planes simblas_product(const Matrix *a, cublasOperation_t turn_a, const Matrix *b,
                       cublasOperation_t turn_b, int64_t k);
static inline Number in_planes(const Planes *p, int64_t row, int64_t col)
{
    size_t i = (size_t)col * (size_t)p->rows + (size_t)row;
    return (Number){p->re[i], p->im ? p->im[i] : 0.0};
}

// C = alpha·op(A)·op(B) + beta·C in single precision, by the CPU's BLAS.
typedef struct Sgemm {
    bool turn_a, turn_b;
    int64_t m, n, k;
    float alpha, beta;
    int64_t lda, ldb, ldc;
} Sgemm;
cublasStatus_t simblas_sgemm(const Sgemm *p, const float *A, const float *B, float *C);

// ---- gemm.c ----

// n numbers of half precision or bfloat16, without gaps, to floats, and rounded back; false: of
// another format, and nothing is done.
bool simblas_widen(const Format *format, float *to, const void *from, size_t n);
bool simblas_narrow(const Format *format, void *to, const float *from, size_t n);

// The arguments of one product, as cublasGemmEx names them; pointers are not among them.
typedef struct Gemm {
    cublasOperation_t turn_a, turn_b;
    int64_t m, n, k, lda, ldb, ldc;
    const Format *a, *b, *c, *scale; // scale: of alpha and beta
    bool single;                     // computed in single precision
    Number alpha, beta;
} Gemm;
cublasStatus_t simblas_check_gemm(Call call, cublasHandle_t handle, const Gemm *p,
                                  const void *alpha, const void *beta);
// The formats of a product by the types that cublasGemmEx takes; refuses what cuBLAS does not do.
cublasStatus_t simblas_gemm_types(Call call, cudaDataType a, cudaDataType b, cudaDataType c,
                                  cublasComputeType_t compute, Gemm *p);
// The matrices of a batch: each `stride` elements after the one before.
typedef struct Batch {
    const void *A, *B;
    void *C;
    long long stride_a, stride_b, stride_c;
    int64_t count;
} Batch;
cublasStatus_t simblas_run_gemm(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
                                const void *beta, const Batch *batch);
// Notes what is multiplied, for whoever wants to know how long a GPU takes for it (time/).
void simblas_note_product(SimgpuOp *op, cublasHandle_t handle, const Gemm *p, int64_t count);
// The product, where A, B and C are. A and B are NULL where there is no product to add.
cublasStatus_t simblas_compute_gemm(const Gemm *p, const void *A, const void *B, void *C);

// ---- factor.c ----

// A matrix in double, to be worked on: (rows, cols), column by column.
typedef struct Work {
    int64_t rows, cols;
    Number *x;
} Work;
// False: there is no memory.
bool simblas_take(Work *w, const Matrix *m);
void simblas_give(const Work *w, const Matrix *m);
static inline Number *in_work(const Work *w, int64_t row, int64_t col)
{
    return &w->x[col * w->rows + row];
}
// Solves T·x = b into b, of a triangle of w's first n rows and columns; its diagonal counts as ones
// where `unit`.
void simblas_solve_triangle(const Work *w, int64_t n, bool upper, bool unit, Number *b);

// ---- level2.c ----

// y = alpha·op(A)·x + beta·y
void simblas_matrix_vector(const Matrix *A, cublasOperation_t turn, Number alpha, const Vector *x,
                           Number beta, const Vector *y);

// ---- level3.c ----

// Solves op(A)·X = alpha·B, or X·op(A) = alpha·B, into B. False: there is no memory.
bool simblas_solve(const Matrix *A, cublasOperation_t turn, cublasSideMode_t side, Number alpha,
                   const Matrix *B);

// ---- Families of calls: a macro of a family takes a format's letter and type ----

#define EACH_REAL(MACRO) MACRO(S, float) MACRO(D, double)
#define EACH_FORMAT(MACRO) EACH_REAL(MACRO) MACRO(C, cuComplex) MACRO(Z, cuDoubleComplex)

// A call with sizes comes twice: of 32 bits, and of 64 bits by a name that ends in _64. The macro
// of such a family takes the type of its sizes and the end of the name first.
#define FOR_SIZES(MACRO, ...) MACRO(int, , ##__VA_ARGS__) MACRO(int64_t, _64, ##__VA_ARGS__)
#define FOR_REAL(MACRO) FOR_SIZES(MACRO, S, float) FOR_SIZES(MACRO, D, double)
#define FOR_COMPLEX(MACRO) FOR_SIZES(MACRO, C, cuComplex) FOR_SIZES(MACRO, Z, cuDoubleComplex)
#define FOR_EACH(MACRO) FOR_REAL(MACRO) FOR_COMPLEX(MACRO)

#endif
