/* blas.h: what the files of simgpu's cuBLAS share.
 *
 *   check.c     checks arguments and reports what is wrong; the names of the states
 *   handle.c    handles and their settings
 *   transfer.c  cublasSetVector … cublasGetMatrixAsync
 *   number.c    the formats of numbers, from 8 bits to double complex
 *   operand.c   vectors and matrices in device memory
 *   apart.c     checks that the matrices that a batch writes do not overlap
 *   multiply.c  the products themselves: the CPU's BLAS for floats, plain loops for the rest
 *   halves.c    half precision and bfloat16, to floats and back
 *   types.c     which formats cuBLAS multiplies with each other
 *   gemm.c      cublasSgemm … cublasGemmEx;  batched.c: those that take arrays of addresses
 *   vectors.c   vectors: axpy … rot, and sums
 *   matrices.c  a matrix and vectors; sums, scaled rows, and triangular systems of matrices
 *   factor.c    batches of matrices in factors: L·U, systems, inverses
 *
 * The calls are in tables (simgpu_cublas/calls.h). Each kind is one function, run_KIND, which takes
 * the arguments for all types, and SIMBLAS_DEFINE makes the calls of that kind.
 *
 * Every call checks its arguments as cuBLAS does and reports the wrong one, declares the bytes that
 * it reads and writes like any other operation on a stream, and then computes. Unless a comment
 * says otherwise, it computes in double, whatever the format, and rounds once.
 */
#ifndef SIMGPU_BLAS_H
#define SIMGPU_BLAS_H

#include <stdlib.h>

#include "cublas_api.h"
#include "report/report.h"
#include "runtime/runtime.h"

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
extern const Format simblas_S, simblas_D, simblas_C, simblas_Z, simblas_H, simblas_T;
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

// ---- check.c ----

// A call in progress: what it is called, where from, and the formats that the table has for it.
typedef struct Call {
    const char *name;
    const void *site;
    const Format *element, *factor, *result; // NULL: none, or arguments name it
} Call;
#define SIMBLAS_CALL(name_) ((Call){.name = (name_), .site = SIM_SITE})

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

struct cublasContext {
    bool alive;
    const void *site;      // cublasCreate's
    const void *destroyed; // cublasDestroy's
    int device;            // current when it was created; cuBLAS stays on it
    cudaStream_t stream;
    cublasPointerMode_t pointers;
    // Settings without an effect here.
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
    int multiprocessors;
    cublasEmulationStrategy_t emulation;
};
bool simblas_is_handle(const struct cublasContext *handle);
// Where it was destroyed; NULL: it was not, or is not a handle.
const void *simblas_destroyed_at(const struct cublasContext *handle);

// ---- operand.c ----

// Begins the operation on the handle's stream, and ends it.
SimgpuOp simblas_begin(Call call, cublasHandle_t handle);
cublasStatus_t simblas_end(SimgpuOp *op);
// The same, after a computation that may have failed: for want of memory
// (CUBLAS_STATUS_ALLOC_FAILED), or because the CPU's BLAS refused it.
cublasStatus_t simblas_finish(Call call, SimgpuOp *op, cublasStatus_t computed);
// A scalar argument, on the host or the device, as the pointer mode says.
Number simblas_scalar(SimgpuOp *op, cublasHandle_t handle, const void *scalar,
                      const Format *format);
// The place for a scalar result; NULL: there is none.
void *simblas_result(SimgpuOp *op, cublasHandle_t handle, void *result, size_t bytes);
// An array of pointers in device memory, to be read; NULL: it cannot be.
const void *const *simblas_pointers(SimgpuOp *op, const void *array, int64_t count);

// n elements, every inc-th in memory; with a negative inc from the last to the first.
typedef struct Vector {
    const void *ptr;
    const Format *format;
    int64_t n, inc;
    char *at; // usable address of the elements: simblas_touch_vector
} Vector;
static inline Vector simblas_vector(const Format *format, const void *x, int64_t n, int64_t inc)
{
    return (Vector){x, format, n, inc, NULL};
}
// Declares the use of the vector. If there are gaps between elements and `gaps_stay`, the log gets
// a plain write as an update of the whole range.
void simblas_touch_vector(SimgpuOp *op, Vector *v, GpuAccess access, bool gaps_stay);
Number simblas_get(const Vector *v, int64_t i);
void simblas_put(const Vector *v, int64_t i, Number x);
void *simblas_place(const Vector *v, int64_t i); // of the element, in memory

typedef enum Part { PART_ALL, PART_UPPER, PART_LOWER } Part;

// A column-major matrix, of which a part is stored; the other elements are 0.
typedef struct Matrix {
    const void *ptr;
    const Format *format;
    int64_t rows, cols, ld;
    Part part;
    bool unit; // the diagonal is ones, and not stored
    char *at;  // usable address of the elements: simblas_touch_matrix
} Matrix;
static inline Matrix simblas_matrix(const Format *format, const void *ptr, int64_t rows,
                                    int64_t cols, int64_t ld)
{
    return (Matrix){.ptr = ptr, .format = format, .rows = rows, .cols = cols, .ld = ld};
}
void simblas_touch_matrix(SimgpuOp *op, Matrix *m, GpuAccess access);
Number simblas_element(const Matrix *m, cublasOperation_t turn, int64_t row,
                       int64_t col);                                     // of op(m)
Number simblas_load(const Matrix *m, int64_t row, int64_t col);          // a stored element
void simblas_store(const Matrix *m, int64_t row, int64_t col, Number x); // the same

// ---- apart.c ---- Reports where two matrices that a batch writes share an element.

// Each is `stride` elements behind the one before, or at an address of a list; NULL: not known.
void simblas_check_stride(const SimgpuOp *op, const Matrix *first, int64_t count, long long stride);
void simblas_check_pointers(const SimgpuOp *op, const Matrix *form, const void *const *at,
                            int64_t count);

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

// ---- halves.c ----

// n numbers of half precision or bfloat16, without gaps, to floats, and rounded back; false: of
// another format, and nothing is done.
bool simblas_widen(const Format *format, float *to, const void *from, size_t n);
bool simblas_narrow(const Format *format, void *to, const float *from, size_t n);

// ---- gemm.c ----

// The arguments of one product, as cublasGemmEx names them; pointers are not among them.
typedef struct Gemm {
    cublasOperation_t turn_a, turn_b;
    int64_t m, n, k, lda, ldb, ldc;
    const Format *a, *b, *c, *scale; // scale: of alpha and beta
    bool single;                     // computed in single precision
    Number alpha, beta;
} Gemm;
// Of a call whose matrices are all of its own format.
Gemm simblas_gemm(Call call, cublasOperation_t turn_a, cublasOperation_t turn_b, int m, int n,
                  int k, int lda, int ldb, int ldc);
cublasStatus_t simblas_check_gemm(Call call, cublasHandle_t handle, const Gemm *p,
                                  const void *alpha, const void *beta);
// Notes the product, for the time that a GPU would take (time/).
void simblas_note_product(SimgpuOp *op, cublasHandle_t handle, const Gemm *p, int64_t count);
// The product of A, B and C at these addresses. A and B are NULL if there is no product to add.
cublasStatus_t simblas_compute_gemm(const Gemm *p, const void *A, const void *B, void *C);

// ---- types.c ----

// The formats of a product by the types that cublasGemmEx takes; refuses what cuBLAS does not do.
cublasStatus_t simblas_gemm_types(Call call, cudaDataType a, cudaDataType b, cudaDataType c,
                                  cublasComputeType_t compute, Gemm *p);

// ---- Calls, from their tables ----

// The headers declare it, and the calls that take it, for C++ alone.
typedef struct __half {
    unsigned short bits;
} __half;
SIMGPU_CUBLAS_HALF_PRODUCTS(SIMGPU_DECLARE)
SIMGPU_CUBLAS_HALF_BATCHES(SIMGPU_DECLARE)

#define SIMBLAS_FORMAT(T)                                                                          \
    _Generic((T *)NULL, float *                                                                    \
             : &simblas_S, double *                                                                \
             : &simblas_D, cuComplex *                                                             \
             : &simblas_C, cuDoubleComplex *                                                       \
             : &simblas_Z, __half *                                                                \
             : &simblas_H, default                                                                 \
             : (const Format *)NULL)
#define SIMBLAS_OPEN(...) __VA_ARGS__
#define SIMBLAS_NOTE(function, ...) SIMGPU_CALL_OF(function, __VA_ARGS__)
#define SIMBLAS_DEFINE(name_, end, KIND, T, TF, TR, parameters, arguments)                         \
    cublasStatus_t name_##end parameters                                                           \
    {                                                                                              \
        const Call call = {#name_, SIM_SITE, SIMBLAS_FORMAT(T), SIMBLAS_FORMAT(TF),                \
                           SIMBLAS_FORMAT(TR)};                                                    \
        if (simgpu_captures) SIMBLAS_NOTE(name_##end, SIMBLAS_OPEN arguments);                     \
        cublasStatus_t status_ = run_##KIND(call, SIMBLAS_OPEN arguments);                         \
        if (simgpu_captures) simgpu_note_call(NULL, 0, NULL);                                      \
        return status_;                                                                            \
    }

#endif
