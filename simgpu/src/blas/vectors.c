/* vectors.c: vectors: scaling, sums, copies, rotations, and where the largest element is. Sums go
 * from the first element to the last.
 */
#include <math.h>
#include <string.h>

#include "blas.h"

static cublasStatus_t check_increments(Call call, int incx, int incy)
{
    CHECK(simblas_check_increment(call, "incx", incx));
    return simblas_check_increment(call, "incy", incy);
}

// ---- Scaling, adding, copying, turning ----

static cublasStatus_t run_scal(Call call, cublasHandle_t handle, int n, const void *alpha, void *X,
                               int incx)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, n, incx);
    Number a = simblas_scalar(&op, handle, alpha, call.factor);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    for (int64_t i = 0; i < n && simgpu_ready(&op); i++)
        simblas_put(&x, i, times(a, simblas_get(&x, i)));
    return simblas_end(&op);
}

static cublasStatus_t run_axpy(Call call, cublasHandle_t handle, int n, const void *alpha,
                               const void *X, int incx, void *Y, int incy)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(check_increments(call, incx, incy));
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, n, incx);
    Vector y = simblas_vector(call.element, Y, n, incy);
    Number a = simblas_scalar(&op, handle, alpha, call.factor);
    if (is_zero(a)) return simblas_end(&op); // as in the reference BLAS, neither x nor y is read
    simblas_touch_vector(&op, &x, GPU_READ, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    for (int64_t i = 0; i < n && simgpu_ready(&op); i++)
        simblas_put(&y, i, plus(times(a, simblas_get(&x, i)), simblas_get(&y, i)));
    return simblas_end(&op);
}

// Bits are moved as they are, NaNs among them.
static cublasStatus_t run_copy(Call call, cublasHandle_t handle, int n, const void *X, int incx,
                               void *Y, int incy)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(check_increments(call, incx, incy));
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, n, incx);
    Vector y = simblas_vector(call.element, Y, n, incy);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    simblas_touch_vector(&op, &y, GPU_WRITE, true);
    for (int64_t i = 0; i < n && simgpu_ready(&op); i++)
        memmove(simblas_place(&y, i), simblas_place(&x, i), x.format->bytes);
    return simblas_end(&op);
}

static cublasStatus_t run_swap(Call call, cublasHandle_t handle, int n, void *X, int incx, void *Y,
                               int incy)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(check_increments(call, incx, incy));
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, n, incx);
    Vector y = simblas_vector(call.element, Y, n, incy);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    for (int64_t i = 0; i < n && simgpu_ready(&op); i++) {
        char was[16], *a = simblas_place(&x, i), *b = simblas_place(&y, i);
        memcpy(was, a, x.format->bytes);
        memmove(a, b, x.format->bytes);
        memcpy(b, was, x.format->bytes);
    }
    return simblas_end(&op);
}

// x = c·x + s·y, y = c·y - conj(s)·x
static cublasStatus_t run_rot(Call call, cublasHandle_t handle, int n, void *X, int incx, void *Y,
                              int incy, const void *c, const void *s)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(check_increments(call, incx, incy));
    CHECK(simblas_check_pointer(call, "c", c));
    CHECK(simblas_check_pointer(call, "s", s));
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, n, incx);
    Vector y = simblas_vector(call.element, Y, n, incy);
    Number cosine = simblas_scalar(&op, handle, c, call.factor);
    Number sine = simblas_scalar(&op, handle, s, call.result);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    for (int64_t i = 0; i < n && simgpu_ready(&op); i++) {
        Number a = simblas_get(&x, i), b = simblas_get(&y, i);
        simblas_put(&x, i, plus(times(cosine, a), times(sine, b)));
        simblas_put(&y, i, minus(times(cosine, b), times(conjugate(sine), a)));
    }
    return simblas_end(&op);
}

SIMGPU_CUBLAS_VECTORS(SIMBLAS_DEFINE)

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

// Of one vector, y is it too.
static cublasStatus_t sum(Call call, cublasHandle_t handle, Sum kind, int n, const void *X,
                          int incx, const void *Y, int incy, void *result)
{
    bool pair = kind == SUM_PRODUCTS || kind == SUM_CONJUGATED;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "result", result));
    if (pair) CHECK(check_increments(call, incx, incy));
    int64_t length = gpulog_sum_length(pair, n, incx);
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, length, incx);
    Vector y = simblas_vector(call.element, Y, length, incy);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    if (pair) simblas_touch_vector(&op, &y, GPU_READ, false);
    void *to = simblas_result(&op, handle, result, call.result->bytes);
    if (simgpu_ready(&op))
        call.result->put(to, 0, kind == SUM_SQUARES ? norm(&x) : add_up(kind, &x, &y));
    return simblas_end(&op);
}

static cublasStatus_t run_dot(Call call, cublasHandle_t handle, int n, const void *x, int incx,
                              const void *y, int incy, void *result)
{
    return sum(call, handle, SUM_PRODUCTS, n, x, incx, y, incy, result);
}

static cublasStatus_t run_dotc(Call call, cublasHandle_t handle, int n, const void *x, int incx,
                               const void *y, int incy, void *result)
{
    return sum(call, handle, SUM_CONJUGATED, n, x, incx, y, incy, result);
}

static cublasStatus_t run_nrm2(Call call, cublasHandle_t handle, int n, const void *x, int incx,
                               void *result)
{
    return sum(call, handle, SUM_SQUARES, n, x, incx, x, incx, result);
}

static cublasStatus_t run_asum(Call call, cublasHandle_t handle, int n, const void *x, int incx,
                               void *result)
{
    return sum(call, handle, SUM_MAGNITUDES, n, x, incx, x, incx, result);
}

// ---- The place of the largest, or smallest, element, counted from 1 ----

static int find(const Vector *x, bool largest)
{
    int found = 0;
    double best = 0.0;
    for (int64_t i = 0; i < x->n; i++) {
        double size = term(SUM_MAGNITUDES, x, x, i).re;
        if (found != 0 && !(largest ? size > best : size < best)) continue;
        best = size;
        found = (int)i + 1;
    }
    return found;
}

static cublasStatus_t seek(Call call, cublasHandle_t handle, int n, const void *X, int incx,
                           bool largest, int *result)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "result", result));
    SimgpuOp op = simblas_begin(call, handle);
    Vector x = simblas_vector(call.element, X, gpulog_sum_length(false, n, incx), incx);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    void *to = simblas_result(&op, handle, result, sizeof *result);
    int found = simgpu_ready(&op) ? find(&x, largest) : 0;
    if (simgpu_ready(&op)) memcpy(to, &found, sizeof found);
    return simblas_end(&op);
}

static cublasStatus_t run_amax(Call call, cublasHandle_t handle, int n, const void *x, int incx,
                               int *result)
{
    return seek(call, handle, n, x, incx, true, result);
}

static cublasStatus_t run_amin(Call call, cublasHandle_t handle, int n, const void *x, int incx,
                               int *result)
{
    return seek(call, handle, n, x, incx, false, result);
}

SIMGPU_CUBLAS_SUMS(SIMBLAS_DEFINE)
