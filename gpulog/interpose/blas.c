/* blas.c: cuBLAS. blas_calls.h has the calls; what each kind of them touches is said here, in the
 * order in which simgpu says it, and how many bytes that is by gpulog/log/operands.c.
 *
 * Where alpha is 0 the factors are not read, and where beta is 0 the result is only written.
 * Scalars in device memory cannot be looked at without waiting for the device; they count as not 0.
 * Nor can arrays of addresses: of a batch that is handed over by them, the arrays are logged and
 * the matrices are not. Calls for C++ alone, of halves, and those of cublas.h are not logged.
 *
 * Interface: the wrapped cublasCreate, cublasDestroy, and calls of blas_calls.h.
 */
// Not cublas_v2.h: its macros would change the names in the table.
#include <cublas_api.h>
#include <stdarg.h>
#include <string.h>

#include "interpose.h"

WRAPPED(cublasCreate_v2);
WRAPPED(cublasDestroy_v2);

// ---- What a call is, and was given ----

// clang-format off
typedef enum Kind {
    SCAL, AXPY, COPY, SWAP, SUM, DOT, ROT, ROTM, ROTG, ROTMG,
    MV, BAND_MV, SYMMETRIC_MV, SYMMETRIC_BAND_MV, PACKED_MV, LIST_MV,
    SOLVE, BAND_SOLVE, PACKED_SOLVE, // a triangle and a vector, which is solved for or multiplied
    UPDATE, SYMMETRIC_UPDATE, PACKED_UPDATE,
    GEMM, LIST_GEMM, SYMM, TRMM, TRSM, LIST_TRSM, RANK_K, RANK_2K, GEAM, DGMM, PACK, UNPACK,
    GROUPS, FACTOR, LIST_SOLVE, LIST_INVERT,
} Kind;
// clang-format on

// A type of numbers: its bytes, in one part or two.
typedef struct Number {
    size_t bytes;
    int parts;
} Number;
#define NUMBER(T)                                                                                  \
    {                                                                                              \
        sizeof(T), _Generic((T){0}, cuComplex : 2, cuDoubleComplex : 2, default : 1)               \
    }

typedef struct Family {
    Kind kind;
    bool wide; // sizes are of 64 bits
    const char *arguments;
    Number element, alpha, beta;
    size_t result;
} Family;

// The matrices A, B and C, and the vectors x and y, with their numbers' bytes.
typedef struct Args {
    cublasHandle_t handle;
    bool turn_a, turn_b, upper, unit, right;
    int64_t m, n, k, kl, ku, count, ld[3], inc[2];
    long long stride[3];
    const void *matrix[3], *vector[2], *alpha, *beta, *extra[2], *result;
    size_t element[3], vector_element[2], result_bytes;
    const void *groups;                  // the sizes of groups of products, on the host
    Number first, alpha_type, beta_type; // of A and x, of alpha, of beta
} Args;

static Number type_of(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F: return (Number){8, 1};
    case CUDA_C_64F: return (Number){16, 2};
    case CUDA_C_32F: return (Number){8, 2};
    case CUDA_C_8I: return (Number){2, 2};
    case CUDA_R_16F:
    case CUDA_R_16BF: return (Number){2, 1};
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return (Number){1, 1};
    default: return (Number){4, 1};
    }
}

// The type of alpha and beta in a product of such numbers.
static Number scalar_type(cublasComputeType_t compute, Number element)
{
    size_t parts = (size_t)element.parts, part = element.bytes / parts == 8 ? 8 : 4;
    bool half = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC;
    return (Number){parts * (half ? 2 : part), element.parts};
}

static Args args_of(const Family *f)
{
    size_t one = f->element.bytes;
    return (Args){.count = 1,
                  .inc = {1, 1},
                  .element = {one, one, one},
                  .vector_element = {one, one},
                  .result_bytes = f->result,
                  .first = f->element,
                  .alpha_type = f->alpha,
                  .beta_type = f->beta};
}

// The type that an argument names: of A and x (P), B (Q), C and y (G), a result (R), of alpha or
// what rotates (U).
static void set_type(Args *a, char letter, Number type)
{
    if (letter == 'P') a->first = type;
    if (letter == 'P') a->element[0] = a->vector_element[0] = type.bytes;
    if (letter == 'Q') a->element[1] = type.bytes;
    if (letter == 'G') a->element[2] = a->vector_element[1] = type.bytes;
    if (letter == 'R') a->result_bytes = type.bytes;
    if (letter == 'U') {
        a->beta_type = a->alpha_type = type;
        if (type.parts == 2) a->alpha_type = (Number){type.bytes / 2, 1}; // c is real
    }
}

// One argument by its letter: T and W are transpositions, S a side, F a triangle, D its diagonal;
// 1 to 3 leading dimensions, 4 to 6 strides, i and j increments; p and q are c and s, a rotation or
// pivots; r is a result or info, g the sizes of groups; a dot is of no interest.
static void read_argument(Args *a, const Family *f, char letter, va_list *list)
{
    static const char sizes[] = "mnkKLc123ij", pointers[] = "ABCxyabpqrg", types[] = "PQGRU";
    int64_t *const size[] = {&a->m,     &a->n,     &a->k,     &a->kl,     &a->ku,    &a->count,
                             &a->ld[0], &a->ld[1], &a->ld[2], &a->inc[0], &a->inc[1]};
    const void **const pointer[] = {&a->matrix[0], &a->matrix[1], &a->matrix[2], &a->vector[0],
                                    &a->vector[1], &a->alpha,     &a->beta,      &a->extra[0],
                                    &a->extra[1],  &a->result,    &a->groups};
    const char *found;
    if ((found = strchr(sizes, letter))) {
        *size[found - sizes] = f->wide ? va_arg(*list, int64_t) : va_arg(*list, int);
    } else if ((found = strchr(pointers, letter))) {
        *pointer[found - pointers] = va_arg(*list, const void *);
    } else if (letter >= '4' && letter <= '6') {
        a->stride[letter - '4'] = va_arg(*list, long long);
    } else if (letter == 'h') {
        a->handle = va_arg(*list, cublasHandle_t);
    } else {
        int value = va_arg(*list, int);
        if (letter == 'T') a->turn_a = value != CUBLAS_OP_N;
        if (letter == 'W') a->turn_b = value != CUBLAS_OP_N;
        if (letter == 'S') a->right = value == CUBLAS_SIDE_RIGHT;
        if (letter == 'F') a->upper = value == CUBLAS_FILL_MODE_UPPER;
        if (letter == 'D') a->unit = value == CUBLAS_DIAG_UNIT;
        if (strchr(types, letter)) set_type(a, letter, type_of((cudaDataType)value));
        if (letter == 'e')
            a->alpha_type = a->beta_type = scalar_type((cublasComputeType_t)value, a->first);
    }
}

// ---- An operation on the stream of a handle ----

typedef struct Op {
    GpuLogEntry entry;
    bool on_device; // scalars and results are
} Op;

static Op begin(const char *name, cublasHandle_t handle, const void *site)
{
    cudaStream_t stream = NULL;
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
    cublasGetStream_v2(handle, &stream);
    cublasGetPointerMode_v2(handle, &mode);
    return (Op){entry_on(GPU_BLAS, name, stream, site), mode == CUBLAS_POINTER_MODE_DEVICE};
}

// All bits but the sign of each part are 0. For a 32-bit integer the "sign" is its most negative
// value, which nobody scales by.
static bool is_zero(const void *scalar, Number type)
{
    unsigned char byte[16] = {0};
    size_t part = type.bytes / (size_t)type.parts;
    memcpy(byte, scalar, type.bytes);
    for (size_t i = 0; i < type.bytes; i++)
        if (byte[i] & (i % part == part - 1 ? 0x7f : 0xff)) return false;
    return true;
}

// Notes a scalar that is read from device memory; true: it may be other than 0.
static bool add_scalar(Op *op, const void *scalar, Number type)
{
    if (!op->on_device) return !is_zero(scalar, type);
    add_range(&op->entry, scalar, type.bytes, GPU_READ);
    return true;
}

// A place for a result. On the host it is there when the call returns, so the call waits.
static void add_result(Op *op, const void *result, size_t bytes, GpuAccess access)
{
    if (op->on_device)
        add_range(&op->entry, result, bytes, access);
    else
        op->entry.host_waits = true;
}

static void add(Op *op, GpuRange operand)
{
    add_range(&op->entry, operand.ptr, operand.bytes, operand.access);
}

static void add_vector(Op *op, const Args *a, int which, int64_t n, GpuAccess access)
{
    add(op, gpulog_vector(a->vector[which], n, a->inc[which], a->vector_element[which], access));
}

static void add_list(Op *op, const void *addresses, int64_t count)
{
    add_range(&op->entry, addresses, (size_t)count * sizeof(void *), GPU_READ);
}

// Nothing, where nothing of it is stored.
static void add_stored(Op *op, const GpuLogStored *m, GpuAccess access)
{
    GpuRange stored = gpulog_stored(m, access);
    if (stored.bytes > 0) add(op, stored);
}

static GpuLogStored matrix(const Args *a, int which, int64_t rows, int64_t cols)
{
    return (GpuLogStored){.ptr = a->matrix[which],
                          .rows = rows,
                          .cols = cols,
                          .ld = a->ld[which],
                          .element = a->element[which]};
}

static void add_matrix(Op *op, const Args *a, int which, int64_t rows, int64_t cols,
                       GpuAccess access)
{
    GpuLogStored m = matrix(a, which, rows, cols);
    add_stored(op, &m, access);
}

// A triangle of order n; k diagonals of it, where it is a band.
static void add_triangle(Op *op, const Args *a, int which, int64_t n, bool band, bool packed,
                         GpuAccess access)
{
    GpuLogStored m = matrix(a, which, n, n);
    m.upper = a->upper;
    m.lower = !a->upper;
    m.unit = a->unit;
    m.band = band;
    m.packed = packed;
    if (band && a->upper)
        m.above = a->k;
    else if (band)
        m.below = a->k;
    add_stored(op, &m, access);
}

// ---- Vectors ----
//
// Each of these says what a call touches; false: it does nothing, and has no entry.

static bool touch_vectors(Op *op, const Family *f, const Args *a)
{
    bool empty = a->n <= 0;
    switch (f->kind) {
    case SCAL:
        if (empty || a->inc[0] <= 0) return false;
        add_scalar(op, a->alpha, a->alpha_type);
        add_vector(op, a, 0, a->n, GPU_UPDATE);
        return true;
    case AXPY:
        if (empty) return false;
        if (!add_scalar(op, a->alpha, a->alpha_type)) return true;
        add_vector(op, a, 0, a->n, GPU_READ);
        add_vector(op, a, 1, a->n, GPU_UPDATE);
        return true;
    case COPY:
        if (empty) return false;
        add_vector(op, a, 0, a->n, GPU_READ);
        add(op, gpulog_copied_vector(a->vector[1], a->n, a->inc[1], a->vector_element[1]));
        return true;
    case ROT:
    case ROTM:
        if (empty) return false;
        if (op->on_device)
            add_range(&op->entry, a->extra[0],
                      f->kind == ROT ? a->alpha_type.bytes : 5 * a->vector_element[0], GPU_READ);
        if (f->kind == ROT) add_scalar(op, a->extra[1], a->beta_type);
        add_vector(op, a, 0, a->n, GPU_UPDATE);
        add_vector(op, a, 1, a->n, GPU_UPDATE);
        return true;
    default: // SWAP
        if (empty) return false;
        add_vector(op, a, 0, a->n, GPU_UPDATE);
        add_vector(op, a, 1, a->n, GPU_UPDATE);
        return true;
    }
}

// A sum over a vector, or over the products of two; or where an element is.
static bool touch_sum(Op *op, const Family *f, const Args *a)
{
    bool pair = f->kind == DOT;
    int64_t n = gpulog_sum_length(pair, a->n, a->inc[0]);
    add_vector(op, a, 0, n, GPU_READ);
    if (pair) add_vector(op, a, 1, n, GPU_READ);
    add_result(op, a->result, a->result_bytes, GPU_WRITE);
    return true;
}

static bool touch_rotation(Op *op, const Family *f, const Args *a)
{
    size_t one = a->first.bytes;
    add_result(op, a->matrix[0], one, GPU_UPDATE);
    add_result(op, a->matrix[1], one, a->first.parts == 2 ? GPU_READ : GPU_UPDATE);
    if (f->kind == ROTG) {
        add_result(op, a->extra[0], a->alpha_type.bytes, GPU_WRITE);
        add_result(op, a->extra[1], one, GPU_WRITE);
        return true;
    }
    add_result(op, a->matrix[2], one, GPU_UPDATE);
    if (op->on_device) add_range(&op->entry, a->vector[0], one, GPU_READ);
    add_result(op, a->extra[0], 5 * one, GPU_WRITE);
    return true;
}

// ---- A matrix and vectors ----

static void add_factor(Op *op, const Family *f, const Args *a, int64_t m, int64_t n)
{
    if (f->kind == BAND_MV) {
        GpuLogStored band = matrix(a, 0, m, n);
        band.band = true;
        band.below = a->kl;
        band.above = a->ku;
        add_stored(op, &band, GPU_READ);
    } else if (f->kind == MV) {
        add_matrix(op, a, 0, m, n, GPU_READ);
    } else {
        add_triangle(op, a, 0, n, f->kind == SYMMETRIC_BAND_MV, f->kind == PACKED_MV, GPU_READ);
    }
}

// y = alpha·op(A)·x + beta·y, `count` times; of lists, their addresses.
static bool touch_product(Op *op, const Family *f, Args *a)
{
    bool general = f->kind == MV || f->kind == BAND_MV || f->kind == LIST_MV;
    int64_t m = general ? a->m : a->n, n = a->n;
    if (m == 0 || n == 0 || a->count == 0) return false;
    bool adds = add_scalar(op, a->alpha, a->alpha_type);
    bool keeps = add_scalar(op, a->beta, a->beta_type);
    if (f->kind == LIST_MV) {
        add_list(op, a->matrix[0], a->count);
        add_list(op, a->vector[0], a->count);
        add_list(op, a->vector[1], a->count);
        return true;
    }
    for (int64_t i = 0; i < a->count; i++) {
        if (adds) {
            add_factor(op, f, a, m, n);
            add_vector(op, a, 0, a->turn_a ? m : n, GPU_READ);
        }
        add_vector(op, a, 1, a->turn_a ? n : m, keeps ? GPU_UPDATE : GPU_WRITE);
        a->matrix[0] = (const char *)a->matrix[0] + a->stride[0] * (long long)a->element[0];
        a->vector[0] = (const char *)a->vector[0] + a->stride[1] * (long long)a->vector_element[0];
        a->vector[1] = (const char *)a->vector[1] + a->stride[2] * (long long)a->vector_element[1];
    }
    return true;
}

static bool touch_solve(Op *op, const Family *f, const Args *a)
{
    if (a->n == 0) return false;
    add_triangle(op, a, 0, a->n, f->kind == BAND_SOLVE, f->kind == PACKED_SOLVE, GPU_READ);
    add_vector(op, a, 0, a->n, GPU_UPDATE);
    return true;
}

// A = alpha·x·yᵀ + A, or of one vector.
static bool touch_update(Op *op, const Family *f, const Args *a)
{
    bool general = f->kind == UPDATE, pair = strchr(f->arguments, 'y') != NULL;
    int64_t m = general ? a->m : a->n;
    if (m == 0 || a->n == 0) return false;
    if (!add_scalar(op, a->alpha, a->alpha_type)) return true;
    bool same = a->vector[0] == a->vector[1] && a->inc[0] == a->inc[1] && m == a->n;
    add_vector(op, a, 0, m, GPU_READ);
    if (pair && !same) add_vector(op, a, 1, a->n, GPU_READ);
    if (general)
        add_matrix(op, a, 0, m, a->n, GPU_UPDATE);
    else
        add_triangle(op, a, 0, m, false, f->kind == PACKED_UPDATE, GPU_UPDATE);
    return true;
}

// ---- Matrices ----

// Its shape, and in which arithmetic: as far as the type of A and the handle's mode say so.
static void note_product(Op *op, const Args *a)
{
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    size_t part = a->first.bytes / (size_t)a->first.parts;
    uint64_t batch = (uint64_t)a->count * (a->first.parts == 2 ? 4 : 1); // of real products
    op->entry.product = (GpuProduct){(uint64_t)a->m, (uint64_t)a->n, (uint64_t)a->k, batch};
    cublasGetMathMode(a->handle, &math);
    op->entry.type = part == 8                            ? GPU_F64
                     : part == 2                          ? GPU_BF16
                     : part == 1                          ? GPU_FP8
                     : math == CUBLAS_TF32_TENSOR_OP_MATH ? GPU_TF32
                                                          : GPU_F32;
}

static bool touch_gemm(Op *op, const Family *f, const Args *a)
{
    if (a->m == 0 || a->n == 0 || a->count == 0) return false;
    note_product(op, a);
    GpuRange operand[3];
    bool adds = add_scalar(op, a->alpha, a->alpha_type) && a->k > 0;
    GpuLogProduct p = {.turn_a = a->turn_a,
                       .turn_b = a->turn_b,
                       .m = a->m,
                       .n = a->n,
                       .k = a->k,
                       .count = a->count,
                       .A = {a->matrix[0], a->ld[0], a->stride[0], a->element[0]},
                       .B = {a->matrix[1], a->ld[1], a->stride[1], a->element[1]},
                       .C = {a->matrix[2], a->ld[2], a->stride[2], a->element[2]},
                       .keeps = add_scalar(op, a->beta, a->beta_type)};
    gpulog_product(&p, operand);
    for (int i = adds ? 0 : 2; i < 3; i++) {
        if (f->kind == LIST_GEMM)
            add_list(op, a->matrix[i], a->count);
        else
            add(op, operand[i]);
    }
    return true;
}

// C from alpha·A·B, of which A is symmetric or a triangle of order m or n.
static bool touch_square(Op *op, const Family *f, const Args *a)
{
    int64_t order = a->right ? a->n : a->m;
    if (a->m == 0 || a->n == 0 || a->count == 0) return false;
    bool adds = add_scalar(op, a->alpha, a->alpha_type), solves = f->kind == TRSM;
    bool keeps = f->kind == SYMM && add_scalar(op, a->beta, a->beta_type);
    if (f->kind == LIST_TRSM) {
        add_list(op, a->matrix[0], a->count);
        add_list(op, a->matrix[1], a->count);
        return true;
    }
    if (adds) add_triangle(op, a, 0, order, false, false, GPU_READ);
    if (adds && !solves) add_matrix(op, a, 1, a->m, a->n, GPU_READ);
    add_matrix(op, a, solves ? 1 : 2, a->m, a->n,
               keeps || (solves && adds) ? GPU_UPDATE : GPU_WRITE);
    return true;
}

static bool touch_rank_k(Op *op, const Family *f, const Args *a)
{
    if (a->n == 0) return false;
    bool adds = add_scalar(op, a->alpha, a->alpha_type) && a->k > 0;
    bool keeps = add_scalar(op, a->beta, a->beta_type);
    bool same = a->matrix[0] == a->matrix[1] && a->ld[0] == a->ld[1];
    int64_t rows = a->turn_a ? a->k : a->n, cols = a->turn_a ? a->n : a->k;
    if (adds) add_matrix(op, a, 0, rows, cols, GPU_READ);
    if (adds && f->kind == RANK_2K && !same) add_matrix(op, a, 1, rows, cols, GPU_READ);
    add_triangle(op, a, 2, a->n, false, false, keeps ? GPU_UPDATE : GPU_WRITE);
    return true;
}

static bool touch_extra(Op *op, const Family *f, const Args *a)
{
    int64_t m = a->m, n = a->n;
    if (f->kind == PACK || f->kind == UNPACK) {
        bool pack = f->kind == PACK;
        if (n == 0) return false;
        add_triangle(op, a, pack ? 0 : 1, n, false, !pack, GPU_READ);
        add_triangle(op, a, pack ? 1 : 0, n, false, pack, GPU_WRITE);
        return true;
    }
    if (m == 0 || n == 0) return false;
    if (f->kind == DGMM) {
        Args one = *a;
        int64_t length = a->inc[0] == 0 ? 1 : a->right ? n : m;
        if (a->inc[0] == 0) one.inc[0] = 1;
        add_matrix(op, a, 0, m, n, GPU_READ);
        add_vector(op, &one, 0, length, GPU_READ);
    } else { // GEAM
        bool first = add_scalar(op, a->alpha, a->alpha_type);
        bool second = add_scalar(op, a->beta, a->beta_type);
        if (first) add_matrix(op, a, 0, a->turn_a ? n : m, a->turn_a ? m : n, GPU_READ);
        if (second) add_matrix(op, a, 1, a->turn_b ? n : m, a->turn_b ? m : n, GPU_READ);
    }
    add_matrix(op, a, 2, m, n, GPU_WRITE);
    return true;
}

// ---- Batches of which the addresses are logged ----

static void add_ints(Op *op, const void *ints, int64_t n, GpuAccess access)
{
    if (ints != NULL) add_range(&op->entry, ints, (size_t)n * sizeof(int), access);
}

// Groups of products; alpha and beta are arrays, too.
static bool touch_groups(Op *op, const Family *f, const Args *a)
{
    int64_t products = 0;
    for (int64_t i = 0; i < a->count; i++)
        products += f->wide ? ((const int64_t *)a->groups)[i] : ((const int *)a->groups)[i];
    if (products == 0) return false;
    for (int i = 0; i < 3; i++) add_list(op, a->matrix[i], products);
    for (int64_t i = 0; i < a->count && op->on_device; i++) {
        size_t at = (size_t)i * a->alpha_type.bytes;
        add_scalar(op, (const char *)a->alpha + at, a->alpha_type);
        add_scalar(op, (const char *)a->beta + at, a->beta_type);
    }
    return true;
}

// Matrices in factors: A, what belongs to it (B), pivots, and info.
static bool touch_factors(Op *op, const Family *f, const Args *a)
{
    bool least = strchr(f->arguments, 'm') != NULL && a->m == 0;
    if (a->n == 0 || a->count == 0 || (f->kind == LIST_SOLVE && a->k == 0) || least) return false;
    add_list(op, a->matrix[0], a->count);
    if (a->matrix[1] != NULL) add_list(op, a->matrix[1], a->count);
    add_ints(op, a->extra[0], a->n * a->count, f->kind == FACTOR ? GPU_WRITE : GPU_READ);
    add_ints(op, a->result, a->count, GPU_WRITE);
    return true;
}

// ---- From a call to the log ----

static bool touch(Op *op, const Family *f, Args *a)
{
    if (f->kind == SUM || f->kind == DOT) return touch_sum(op, f, a);
    if (f->kind == ROTG || f->kind == ROTMG) return touch_rotation(op, f, a);
    if (f->kind < MV) return touch_vectors(op, f, a);
    if (f->kind < SOLVE) return touch_product(op, f, a);
    if (f->kind < UPDATE) return touch_solve(op, f, a);
    if (f->kind < GEMM) return touch_update(op, f, a);
    if (f->kind < SYMM) return touch_gemm(op, f, a);
    if (f->kind == GROUPS) return touch_groups(op, f, a);
    if (f->kind > UNPACK) return touch_factors(op, f, a);
    if (f->kind < RANK_K) return touch_square(op, f, a);
    return f->kind < GEAM ? touch_rank_k(op, f, a) : touch_extra(op, f, a);
}

// The name that programs use: without _v2.
static const char *name_of(char name[48], const char *symbol)
{
    const char *end = strstr(symbol, "_v2");
    size_t n = end ? (size_t)(end - symbol) : strlen(symbol);
    if (name[0] == '\0') {
        memcpy(name, symbol, n);
        strcpy(name + n, end ? end + 3 : "");
    }
    return name;
}

static cublasStatus_t logged(cublasStatus_t status, const Family *f, const char *name,
                             const void *site, ...)
{
    Args a = args_of(f);
    va_list list;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    va_start(list, site);
    for (const char *letter = f->arguments; *letter; letter++) read_argument(&a, f, *letter, &list);
    va_end(list);
    Op op = begin(name, a.handle, site);
    if (touch(&op, f, &a)) write_entry(&op.entry);
    return status;
}

cublasStatus_t __wrap_cublasCreate_v2(cublasHandle_t *handle)
{
    return WAITING("cublasCreate", SITE, __real_cublasCreate_v2(handle));
}

// Ending one waits for the device, too.
cublasStatus_t __wrap_cublasDestroy_v2(cublasHandle_t handle)
{
    return WAITING("cublasDestroy", SITE, __real_cublasDestroy_v2(handle));
}

// A call that has a result may wait for the device.
#define OPEN(...) __VA_ARGS__
#define CALL(base, end, E, ...) CALL_OF(base##end##E, sizeof(#E) > 1, __VA_ARGS__)
#define CALL_OF(symbol, wide, KIND, T, TA, TB, TR, letters, parameters, names)                     \
    WRAPPED(symbol);                                                                               \
    cublasStatus_t __wrap_##symbol parameters                                                      \
    {                                                                                              \
        static const Family family = {KIND,       wide,       letters,   NUMBER(T),                \
                                      NUMBER(TA), NUMBER(TB), sizeof(TR)};                         \
        static char text[48];                                                                      \
        const char *name = name_of(text, #symbol);                                                 \
        const void *site = SITE;                                                                   \
        bool waits = KIND == SUM || KIND == DOT || KIND == ROTG || KIND == ROTMG;                  \
        if (waits) gpulog_waiting(name, site);                                                     \
        cublasStatus_t status = __real_##symbol names;                                             \
        if (waits) gpulog_waiting(NULL, NULL);                                                     \
        return logged(status, &family, name, site, OPEN names);                                    \
    }

// ---- Copies between host and device: `height` columns of `width` elements ----

static cublasStatus_t copied(cublasStatus_t status, const char *name, int64_t width, int64_t height,
                             int64_t size, const void *from, int64_t ldfrom, void *to, int64_t ldto,
                             bool async, cudaStream_t stream, const void *site)
{
    size_t bytes = (size_t)size;
    Copy copy = {to,
                 from,
                 (size_t)ldto * bytes,
                 (size_t)ldfrom * bytes,
                 (size_t)width * bytes,
                 (size_t)height,
                 async};
    if (status == CUBLAS_STATUS_SUCCESS) log_copy(name, &copy, stream, site);
    return status;
}

#define TRANSFER(symbol, ...) TRANSFER_OF(symbol, __VA_ARGS__)
#define TRANSFER_OF(symbol, async, width, height, ldfrom, ldto, stream, parameters, names)         \
    WRAPPED(symbol);                                                                               \
    cublasStatus_t __wrap_##symbol parameters                                                      \
    {                                                                                              \
        const void *site = SITE;                                                                   \
        cublasStatus_t status = WAITING(#symbol, site, __real_##symbol names);                     \
        return copied(status, #symbol, width, height, elemSize, x, ldfrom, y, ldto, async, stream, \
                      site);                                                                       \
    }

#include "blas_calls.h"
