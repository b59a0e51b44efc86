/* level1.c: vectors: scaling, sums, copies, and where the largest element is.
 *
 * Each call has a form for every type, and most have one that names its types (…Ex). Sums go from
 * the first element to the last.
 *
 * Interface: cublas?scal, cublas?axpy, cublas?copy, cublas?swap, cublas?dot, cublas?nrm2,
 * cublas?asum, cublasI?amax, cublasI?amin, and Ex of each.
 */
#include <math.h>
#include <string.h>

#include "blas.h"

// ---- Types that are named by the program ----

// Vectors of halves and bfloat16 are computed in single precision, others in their own.
static cublasStatus_t check_types(Call call, cudaDataType x, cudaDataType execution)
{
    bool narrow = x == CUDA_R_16F || x == CUDA_R_16BF;
    bool known = narrow || x == CUDA_R_32F || x == CUDA_R_64F || x == CUDA_C_32F || x == CUDA_C_64F;
    if (known && execution == (narrow ? CUDA_R_32F : x)) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                          "vectors of type %d, computed as type %d: cuBLAS does not do that.\n"
                          "Types are computed as themselves, CUDA_R_16F and CUDA_R_16BF as "
                          "CUDA_R_32F.",
                          (int)x, (int)execution);
}

static cublasStatus_t check_same(Call call, cudaDataType x, cudaDataType other)
{
    if (x == other) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                          "types %d and %d: both must be the same here.", (int)x, (int)other);
}

// ---- Scaling, adding, copying ----

static cublasStatus_t scale(Call call, cublasHandle_t handle, const Format *factor,
                            const void *alpha, Vector x)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    if (x.n <= 0 || x.inc <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, factor);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    for (int64_t i = 0; i < x.n && simgpu_ready(&op); i++)
        simblas_put(&x, i, times(a, simblas_get(&x, i)));
    return simblas_end(&op);
}

#define SCAL(I, E, name, symbol, TA, A, T, F)                                                      \
    cublasStatus_t symbol##E(cublasHandle_t handle, I n, const TA *alpha, T *x, I incx)            \
    {                                                                                              \
        return scale((Call){name #E, SITE}, handle, &A, alpha, (Vector){x, &F, n, incx, NULL});    \
    }
FOR_SIZES(SCAL, "cublasSscal", cublasSscal_v2, float, simblas_S, float, simblas_S)
FOR_SIZES(SCAL, "cublasDscal", cublasDscal_v2, double, simblas_D, double, simblas_D)
FOR_SIZES(SCAL, "cublasCscal", cublasCscal_v2, cuComplex, simblas_C, cuComplex, simblas_C)
FOR_SIZES(SCAL, "cublasCsscal", cublasCsscal_v2, float, simblas_S, cuComplex, simblas_C)
FOR_SIZES(SCAL, "cublasZscal", cublasZscal_v2, cuDoubleComplex, simblas_Z, cuDoubleComplex,
          simblas_Z)
FOR_SIZES(SCAL, "cublasZdscal", cublasZdscal_v2, double, simblas_D, cuDoubleComplex, simblas_Z)

#define SCAL_EX(I, E)                                                                              \
    cublasStatus_t cublasScalEx##E(cublasHandle_t handle, I n, const void *alpha,                  \
                                   cudaDataType alphaType, void *x, cudaDataType xType, I incx,    \
                                   cudaDataType executionType)                                     \
    {                                                                                              \
        Call call = {"cublasScalEx" #E, SITE};                                                     \
        CHECK(check_types(call, xType, executionType));                                            \
        CHECK(check_same(call, executionType, alphaType));                                         \
        return scale(call, handle, simblas_format(alphaType), alpha,                               \
                     (Vector){x, simblas_format(xType), n, incx, NULL});                           \
    }
FOR_SIZES(SCAL_EX)

static cublasStatus_t add(Call call, cublasHandle_t handle, const Format *factor, const void *alpha,
                          Vector x, Vector y)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_increment(call, "incx", x.inc));
    CHECK(simblas_check_increment(call, "incy", y.inc));
    if (x.n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, factor);
    if (is_zero(a)) return simblas_end(&op); // as in the reference BLAS, neither x nor y is read
    simblas_touch_vector(&op, &x, GPU_READ, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    for (int64_t i = 0; i < x.n && simgpu_ready(&op); i++)
        simblas_put(&y, i, plus(times(a, simblas_get(&x, i)), simblas_get(&y, i)));
    return simblas_end(&op);
}

#define AXPY(I, E, L, T)                                                                           \
    cublasStatus_t cublas##L##axpy_v2##E(cublasHandle_t handle, I n, const T *alpha, const T *x,   \
                                         I incx, T *y, I incy)                                     \
    {                                                                                              \
        return add((Call){"cublas" #L "axpy" #E, SITE}, handle, &simblas_##L, alpha,               \
                   (Vector){x, &simblas_##L, n, incx, NULL},                                       \
                   (Vector){y, &simblas_##L, n, incy, NULL});                                      \
    }
FOR_EACH(AXPY)

#define AXPY_EX(I, E)                                                                              \
    cublasStatus_t cublasAxpyEx##E(cublasHandle_t handle, I n, const void *alpha,                  \
                                   cudaDataType alphaType, const void *x, cudaDataType xType,      \
                                   I incx, void *y, cudaDataType yType, I incy,                    \
                                   cudaDataType executiontype)                                     \
    {                                                                                              \
        Call call = {"cublasAxpyEx" #E, SITE};                                                     \
        CHECK(check_types(call, xType, executiontype));                                            \
        CHECK(check_same(call, executiontype, alphaType));                                         \
        CHECK(check_same(call, xType, yType));                                                     \
        return add(call, handle, simblas_format(alphaType), alpha,                                 \
                   (Vector){x, simblas_format(xType), n, incx, NULL},                              \
                   (Vector){y, simblas_format(yType), n, incy, NULL});                             \
    }
FOR_SIZES(AXPY_EX)

// Bits are moved as they are, NaNs among them.
static cublasStatus_t copy(Call call, cublasHandle_t handle, Vector x, Vector y)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_increment(call, "incx", x.inc));
    CHECK(simblas_check_increment(call, "incy", y.inc));
    if (x.n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    simblas_touch_vector(&op, &y, GPU_WRITE, true);
    for (int64_t i = 0; i < x.n && simgpu_ready(&op); i++)
        memmove(simblas_place(&y, i), simblas_place(&x, i), x.format->bytes);
    return simblas_end(&op);
}

static cublasStatus_t swap(Call call, cublasHandle_t handle, Vector x, Vector y)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_increment(call, "incx", x.inc));
    CHECK(simblas_check_increment(call, "incy", y.inc));
    if (x.n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    for (int64_t i = 0; i < x.n && simgpu_ready(&op); i++) {
        char was[16], *a = simblas_place(&x, i), *b = simblas_place(&y, i);
        memcpy(was, a, x.format->bytes);
        memmove(a, b, x.format->bytes);
        memcpy(b, was, x.format->bytes);
    }
    return simblas_end(&op);
}

#define COPY_AND_SWAP(I, E, L, T)                                                                  \
    cublasStatus_t cublas##L##copy_v2##E(cublasHandle_t handle, I n, const T *x, I incx, T *y,     \
                                         I incy)                                                   \
    {                                                                                              \
        return copy((Call){"cublas" #L "copy" #E, SITE}, handle,                                   \
                    (Vector){x, &simblas_##L, n, incx, NULL},                                      \
                    (Vector){y, &simblas_##L, n, incy, NULL});                                     \
    }                                                                                              \
    cublasStatus_t cublas##L##swap_v2##E(cublasHandle_t handle, I n, T *x, I incx, T *y, I incy)   \
    {                                                                                              \
        return swap((Call){"cublas" #L "swap" #E, SITE}, handle,                                   \
                    (Vector){x, &simblas_##L, n, incx, NULL},                                      \
                    (Vector){y, &simblas_##L, n, incy, NULL});                                     \
    }
FOR_EACH(COPY_AND_SWAP)

static cublasStatus_t check_known(Call call, cudaDataType type)
{
    if (simblas_format(type) != NULL) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED, "simgpu has no vectors of type %d.",
                          (int)type);
}

#define MOVE_EX(I, E, Name, T, move)                                                               \
    cublasStatus_t cublas##Name##Ex##E(cublasHandle_t handle, I n, T x, cudaDataType xType,        \
                                       I incx, void *y, cudaDataType yType, I incy)                \
    {                                                                                              \
        Call call = {"cublas" #Name "Ex" #E, SITE};                                                \
        CHECK(check_known(call, xType));                                                           \
        CHECK(check_same(call, xType, yType));                                                     \
        return move(call, handle, (Vector){x, simblas_format(xType), n, incx, NULL},               \
                    (Vector){y, simblas_format(yType), n, incy, NULL});                            \
    }
FOR_SIZES(MOVE_EX, Copy, const void *, copy)
FOR_SIZES(MOVE_EX, Swap, void *, swap)

// ---- Sums ----

// What is summed up over a vector (or two).
typedef enum Sum { SUM_PRODUCTS, SUM_CONJUGATED, SUM_SQUARES, SUM_MAGNITUDES } Sum;

static Number term(Sum kind, const Vector *x, const Vector *y, int64_t i)
{
    Number a = simblas_get(x, i);
    if (kind == SUM_PRODUCTS) return times(a, simblas_get(y, i));
    if (kind == SUM_CONJUGATED) return times(conjugate(a), simblas_get(y, i));
    return number(fabs(a.re) + fabs(a.im));
}

static Number add_up(Sum kind, const Vector *x, const Vector *y)
{
    Number sum = number(0.0);
    for (int64_t i = 0; i < x->n; i++) sum = plus(sum, term(kind, x, y, i));
    return sum;
}

// The root of the sum of squares. Doubles are scaled by the largest part, so that no square
// overflows or vanishes; the square of a float is a good double.
static Number norm(const Vector *x)
{
    double largest = 1.0, sum = 0.0;
    if (simblas_real(x->format) == &simblas_D) {
        largest = 0.0;
        for (int64_t i = 0; i < x->n; i++) {
            Number a = simblas_get(x, i);
            largest = fmax(largest, fmax(fabs(a.re), fabs(a.im)));
        }
        if (largest == 0.0 || isinf(largest)) largest = 1.0;
    }
    for (int64_t i = 0; i < x->n; i++) {
        Number a = simblas_get(x, i);
        double re = a.re / largest, im = a.im / largest;
        sum += re * re + im * im;
    }
    return number(largest * sqrt(sum));
}

static cublasStatus_t sum(Call call, cublasHandle_t handle, Sum kind, Vector x, Vector y,
                          void *result, const Format *format)
{
    bool pair = kind == SUM_PRODUCTS || kind == SUM_CONJUGATED;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "result", result));
    if (pair) {
        CHECK(simblas_check_increment(call, "incx", x.inc));
        CHECK(simblas_check_increment(call, "incy", y.inc));
    }
    x.n = y.n = gpulog_sum_length(pair, x.n, x.inc);
    SimgpuOp op = simblas_begin(call, handle);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    if (pair) simblas_touch_vector(&op, &y, GPU_READ, false);
    void *to = simblas_result(&op, handle, result, format->bytes, GPU_WRITE);
    if (simgpu_ready(&op))
        format->put(to, 0, kind == SUM_SQUARES ? norm(&x) : add_up(kind, &x, &y));
    return simblas_end(&op);
}

#define DOT(I, E, name, symbol, T, F, kind)                                                        \
    cublasStatus_t symbol##E(cublasHandle_t handle, I n, const T *x, I incx, const T *y, I incy,   \
                             T *result)                                                            \
    {                                                                                              \
        return sum((Call){name #E, SITE}, handle, kind, (Vector){x, &F, n, incx, NULL},            \
                   (Vector){y, &F, n, incy, NULL}, result, &F);                                    \
    }
FOR_SIZES(DOT, "cublasSdot", cublasSdot_v2, float, simblas_S, SUM_PRODUCTS)
FOR_SIZES(DOT, "cublasDdot", cublasDdot_v2, double, simblas_D, SUM_PRODUCTS)
FOR_SIZES(DOT, "cublasCdotu", cublasCdotu_v2, cuComplex, simblas_C, SUM_PRODUCTS)
FOR_SIZES(DOT, "cublasCdotc", cublasCdotc_v2, cuComplex, simblas_C, SUM_CONJUGATED)
FOR_SIZES(DOT, "cublasZdotu", cublasZdotu_v2, cuDoubleComplex, simblas_Z, SUM_PRODUCTS)
FOR_SIZES(DOT, "cublasZdotc", cublasZdotc_v2, cuDoubleComplex, simblas_Z, SUM_CONJUGATED)

#define SUM(I, E, name, symbol, T, R, F, FR, kind)                                                 \
    cublasStatus_t symbol##E(cublasHandle_t handle, I n, const T *x, I incx, R *result)            \
    {                                                                                              \
        Vector v = {x, &F, n, incx, NULL};                                                         \
        return sum((Call){name #E, SITE}, handle, kind, v, v, result, &FR);                        \
    }
#define NORMS(I, E, name, symbol, T, R, F, FR)                                                     \
    SUM(I, E, "cublas" name "nrm2", cublas##symbol##nrm2_v2, T, R, F, FR, SUM_SQUARES)             \
    SUM(I, E, "cublas" name "asum", cublas##symbol##asum_v2, T, R, F, FR, SUM_MAGNITUDES)
FOR_SIZES(NORMS, "S", S, float, float, simblas_S, simblas_S)
FOR_SIZES(NORMS, "D", D, double, double, simblas_D, simblas_D)
FOR_SIZES(NORMS, "Sc", Sc, cuComplex, float, simblas_C, simblas_S)
FOR_SIZES(NORMS, "Dz", Dz, cuDoubleComplex, double, simblas_Z, simblas_D)

#define DOT_EX(I, E, Name, kind)                                                                   \
    cublasStatus_t cublas##Name##Ex##E(cublasHandle_t handle, I n, const void *x,                  \
                                       cudaDataType xType, I incx, const void *y,                  \
                                       cudaDataType yType, I incy, void *result,                   \
                                       cudaDataType resultType, cudaDataType executionType)        \
    {                                                                                              \
        Call call = {"cublas" #Name "Ex" #E, SITE};                                                \
        CHECK(check_types(call, xType, executionType));                                            \
        CHECK(check_same(call, xType, yType));                                                     \
        CHECK(check_same(call, xType, resultType));                                                \
        const Format *f = simblas_format(xType);                                                   \
        return sum(call, handle, kind, (Vector){x, f, n, incx, NULL},                              \
                   (Vector){y, f, n, incy, NULL}, result, f);                                      \
    }
FOR_SIZES(DOT_EX, Dot, SUM_PRODUCTS)
FOR_SIZES(DOT_EX, Dotc, SUM_CONJUGATED)

// The result of a complex vector is real, and so is what is computed with.
static cublasStatus_t sum_of_type(Call call, cublasHandle_t handle, Sum kind, int64_t n,
                                  const void *x, cudaDataType x_type, int64_t incx, void *result,
                                  cudaDataType result_type, cudaDataType execution)
{
    const Format *f = simblas_format(x_type), *real = f ? simblas_real(f) : NULL;
    CHECK(check_types(call, real ? real->type : x_type, execution));
    CHECK(check_same(call, real->type, result_type));
    Vector v = {x, f, n, incx, NULL};
    return sum(call, handle, kind, v, v, result, real);
}

#define SUM_EX(I, E, Name, kind)                                                                   \
    cublasStatus_t cublas##Name##Ex##E(cublasHandle_t handle, I n, const void *x,                  \
                                       cudaDataType xType, I incx, void *result,                   \
                                       cudaDataType resultType, cudaDataType executionType)        \
    {                                                                                              \
        return sum_of_type((Call){"cublas" #Name "Ex" #E, SITE}, handle, kind, n, x, xType, incx,  \
                           result, resultType, executionType);                                     \
    }
FOR_SIZES(SUM_EX, Nrm2, SUM_SQUARES)
FOR_SIZES(SUM_EX, Asum, SUM_MAGNITUDES)

// ---- The place of the largest, or smallest, element, counted from 1 ----

static int64_t find(const Vector *x, bool largest)
{
    int64_t found = 0;
    double best = 0.0;
    for (int64_t i = 0; i < x->n; i++) {
        double size = term(SUM_MAGNITUDES, x, x, i).re;
        if (found != 0 && !(largest ? size > best : size < best)) continue;
        best = size;
        found = i + 1;
    }
    return found;
}

static cublasStatus_t seek(Call call, cublasHandle_t handle, Vector x, bool largest, void *result,
                           size_t bytes)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "result", result));
    x.n = gpulog_sum_length(false, x.n, x.inc);
    SimgpuOp op = simblas_begin(call, handle);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    void *to = simblas_result(&op, handle, result, bytes, GPU_WRITE);
    int64_t found = simgpu_ready(&op) ? find(&x, largest) : 0;
    int narrow = (int)found;
    if (simgpu_ready(&op)) memcpy(to, bytes == sizeof found ? (void *)&found : &narrow, bytes);
    return simblas_end(&op);
}

#define SEEK(I, E, l, L, T)                                                                        \
    cublasStatus_t cublasI##l##amax_v2##E(cublasHandle_t handle, I n, const T *x, I incx,          \
                                          I *result)                                               \
    {                                                                                              \
        return seek((Call){"cublasI" #l "amax" #E, SITE}, handle,                                  \
                    (Vector){x, &simblas_##L, n, incx, NULL}, true, result, sizeof *result);       \
    }                                                                                              \
    cublasStatus_t cublasI##l##amin_v2##E(cublasHandle_t handle, I n, const T *x, I incx,          \
                                          I *result)                                               \
    {                                                                                              \
        return seek((Call){"cublasI" #l "amin" #E, SITE}, handle,                                  \
                    (Vector){x, &simblas_##L, n, incx, NULL}, false, result, sizeof *result);      \
    }
FOR_SIZES(SEEK, s, S, float)
FOR_SIZES(SEEK, d, D, double)
FOR_SIZES(SEEK, c, C, cuComplex)
FOR_SIZES(SEEK, z, Z, cuDoubleComplex)

#define SEEK_EX(I, E, name, largest)                                                               \
    cublasStatus_t name##E(cublasHandle_t handle, I n, const void *x, cudaDataType xType, I incx,  \
                           I *result)                                                              \
    {                                                                                              \
        Call call = {#name #E, SITE};                                                              \
        CHECK(check_known(call, xType));                                                           \
        return seek(call, handle, (Vector){x, simblas_format(xType), n, incx, NULL}, largest,      \
                    result, sizeof *result);                                                       \
    }
FOR_SIZES(SEEK_EX, cublasIamaxEx, true)
FOR_SIZES(SEEK_EX, cublasIaminEx, false)
