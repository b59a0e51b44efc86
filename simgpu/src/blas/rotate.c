/* rotate.c: plane rotations: of two vectors, and which one makes an element zero.
 *
 * The modified rotations (rotm, rotmg) take their matrix as five numbers: a flag, then h11, h21,
 * h12, h22. Flag -1: all four count; 0: h11 and h22 are 1; 1: h12 is 1 and h21 is -1; -2: nothing
 * is rotated. (BLAS, Lawson et al. 1979.)
 *
 * Interface: cublas?rot, cublas?rotg, cublas?rotm, cublas?rotmg, and Ex of each.
 */
#include <math.h>

#include "blas.h"

static cublasStatus_t check_vectors(Call call, cublasHandle_t handle, const Vector *x,
                                    const Vector *y)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_increment(call, "incx", x->inc));
    return simblas_check_increment(call, "incy", y->inc);
}

// ---- rot: x = c·x + s·y, y = c·y - conj(s)·x ----

static cublasStatus_t rotate(Call call, cublasHandle_t handle, Vector x, Vector y, const void *c,
                             const Format *c_format, const void *s, const Format *s_format)
{
    CHECK(check_vectors(call, handle, &x, &y));
    CHECK(simblas_check_pointer(call, "c", c));
    CHECK(simblas_check_pointer(call, "s", s));
    if (x.n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number cosine = simblas_scalar(&op, handle, c, c_format);
    Number sine = simblas_scalar(&op, handle, s, s_format);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    for (int64_t i = 0; i < x.n && simgpu_ready(&op); i++) {
        Number a = simblas_get(&x, i), b = simblas_get(&y, i);
        simblas_put(&x, i, plus(times(cosine, a), times(sine, b)));
        simblas_put(&y, i, minus(times(cosine, b), times(conjugate(sine), a)));
    }
    return simblas_end(&op);
}

#define ROT(I, E, L, T, TC, TS, F, FC, FS)                                                         \
    cublasStatus_t cublas##L##rot_v2##E(cublasHandle_t handle, I n, T *x, I incx, T *y, I incy,    \
                                        const TC *c, const TS *s)                                  \
    {                                                                                              \
        return rotate((Call){"cublas" #L "rot" #E, SITE}, handle, (Vector){x, &F, n, incx, NULL},  \
                      (Vector){y, &F, n, incy, NULL}, c, &FC, s, &FS);                             \
    }
FOR_SIZES(ROT, S, float, float, float, simblas_S, simblas_S, simblas_S)
FOR_SIZES(ROT, D, double, double, double, simblas_D, simblas_D, simblas_D)
FOR_SIZES(ROT, C, cuComplex, float, cuComplex, simblas_C, simblas_S, simblas_C)
FOR_SIZES(ROT, Cs, cuComplex, float, float, simblas_C, simblas_S, simblas_S)
FOR_SIZES(ROT, Z, cuDoubleComplex, double, cuDoubleComplex, simblas_Z, simblas_D, simblas_Z)
FOR_SIZES(ROT, Zd, cuDoubleComplex, double, double, simblas_Z, simblas_D, simblas_D)

// x and y, c and s, and what is computed with.
static cublasStatus_t check_types(Call call, cudaDataType x, cudaDataType y, cudaDataType cs,
                                  cudaDataType execution)
{
    bool narrow = x == CUDA_R_16F || x == CUDA_R_16BF;
    bool same = x == CUDA_R_32F || x == CUDA_R_64F || x == CUDA_C_32F || x == CUDA_C_64F;
    bool real = (x == CUDA_C_32F && cs == CUDA_R_32F) || (x == CUDA_C_64F && cs == CUDA_R_64F);
    if (x == y &&
        (narrow ? cs == x && execution == CUDA_R_32F : same && (cs == x || real) && execution == x))
        return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                          "types %d and %d, %d of the rotation, computed as %d: cuBLAS does not do "
                          "that.",
                          (int)x, (int)y, (int)cs, (int)execution);
}

static cublasStatus_t check_same(Call call, cudaDataType ab, cudaDataType cs)
{
    if (ab == cs) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                          "abType is %d and csType is %d: both must be the same here.", (int)ab,
                          (int)cs);
}

static cublasStatus_t check_real(Call call, cudaDataType type)
{
    if (!simblas_format(type)->complex) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                          "vectors of type %d: there is no modified rotation of complex numbers.",
                          (int)type);
}

#define ROT_EX(I, E)                                                                               \
    cublasStatus_t cublasRotEx##E(cublasHandle_t handle, I n, void *x, cudaDataType xType, I incx, \
                                  void *y, cudaDataType yType, I incy, const void *c,              \
                                  const void *s, cudaDataType csType, cudaDataType executiontype)  \
    {                                                                                              \
        Call call = {"cublasRotEx" #E, SITE};                                                      \
        CHECK(check_types(call, xType, yType, csType, executiontype));                             \
        const Format *f = simblas_format(xType), *fs = simblas_format(csType);                     \
        return rotate(call, handle, (Vector){x, f, n, incx, NULL}, (Vector){y, f, n, incy, NULL},  \
                      c, simblas_real(fs), s, fs);                                                 \
    }
FOR_SIZES(ROT_EX)

// ---- rotg: the rotation that makes (a, b) to (r, 0) ----

// For real numbers b becomes z, from which c and s can be had again.
static void make_real_rotation(double *a, double *b, double *c, double *s)
{
    double sign = fabs(*a) > fabs(*b) ? *a : *b, r = copysign(hypot(*a, *b), sign), z = 0.0;
    *c = 1.0;
    *s = 0.0;
    if (r != 0.0) {
        *c = *a / r;
        *s = *b / r;
        z = 1.0;
        if (fabs(*a) > fabs(*b))
            z = *s;
        else if (*c != 0.0)
            z = 1.0 / *c;
    }
    *a = r;
    *b = z;
}

static void make_complex_rotation(Number *a, Number b, double *c, Number *s)
{
    double size = hypot(a->re, a->im), norm = hypot(size, hypot(b.re, b.im));
    if (size == 0.0) {
        *c = 0.0;
        *s = number(1.0);
        *a = b;
        return;
    }
    Number direction = {a->re / size, a->im / size};
    *c = size / norm;
    *s = times(direction, conjugate((Number){b.re / norm, b.im / norm}));
    *a = times(direction, number(norm));
}

static cublasStatus_t make_rotation(Call call, cublasHandle_t handle, const Format *f, void *a,
                                    void *b, void *c, void *s)
{
    const Format *real = simblas_real(f);
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "a", a));
    CHECK(simblas_check_pointer(call, "b", b));
    CHECK(simblas_check_pointer(call, "c", c));
    CHECK(simblas_check_pointer(call, "s", s));
    SimgpuOp op = simblas_begin(call, handle);
    void *pa = simblas_result(&op, handle, a, f->bytes, GPU_UPDATE);
    void *pb = simblas_result(&op, handle, b, f->bytes, f->complex ? GPU_READ : GPU_UPDATE);
    void *pc = simblas_result(&op, handle, c, real->bytes, GPU_WRITE);
    void *ps = simblas_result(&op, handle, s, f->bytes, GPU_WRITE);
    if (simgpu_ready(&op)) {
        Number x = f->get(pa, 0), y = f->get(pb, 0), sine = number(0.0);
        double cosine;
        if (f->complex)
            make_complex_rotation(&x, y, &cosine, &sine);
        else
            make_real_rotation(&x.re, &y.re, &cosine, &sine.re);
        f->put(pa, 0, x);
        if (!f->complex) f->put(pb, 0, y);
        real->put(pc, 0, number(cosine));
        f->put(ps, 0, sine);
    }
    return simblas_end(&op);
}

#define ROTG(L, T, TC)                                                                             \
    cublasStatus_t cublas##L##rotg_v2(cublasHandle_t handle, T *a, T *b, TC *c, T *s)              \
    {                                                                                              \
        return make_rotation((Call){"cublas" #L "rotg", SITE}, handle, &simblas_##L, a, b, c, s);  \
    }
ROTG(S, float, float)
ROTG(D, double, double)
ROTG(C, cuComplex, float)
ROTG(Z, cuDoubleComplex, double)

cublasStatus_t cublasRotgEx(cublasHandle_t handle, void *a, void *b, cudaDataType abType, void *c,
                            void *s, cudaDataType csType, cudaDataType executiontype)
{
    Call call = {"cublasRotgEx", SITE};
    CHECK(check_types(call, abType, abType, csType, executiontype));
    CHECK(check_same(call, abType, csType));
    return make_rotation(call, handle, simblas_format(abType), a, b, c, s);
}

// ---- rotm and rotmg: rotations without roots ----

typedef struct Modified {
    double flag, h11, h21, h12, h22;
} Modified;

static Modified read_modified(const void *param, const Format *f)
{
    Modified h = {f->get(param, 0).re, f->get(param, 1).re, f->get(param, 2).re,
                  f->get(param, 3).re, f->get(param, 4).re};
    if (h.flag == 0.0) h.h11 = h.h22 = 1.0;
    if (h.flag == 1.0) {
        h.h12 = 1.0;
        h.h21 = -1.0;
    }
    return h;
}

static cublasStatus_t rotate_modified(Call call, cublasHandle_t handle, Vector x, Vector y,
                                      const void *param, const Format *f)
{
    CHECK(check_vectors(call, handle, &x, &y));
    CHECK(simblas_check_pointer(call, "param", param));
    if (x.n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    if (handle->pointers == CUBLAS_POINTER_MODE_DEVICE)
        param = sim_touch(&op, param, 5 * f->bytes, GPU_READ, false);
    simblas_touch_vector(&op, &x, GPU_UPDATE, false);
    simblas_touch_vector(&op, &y, GPU_UPDATE, false);
    Modified h = simgpu_ready(&op) ? read_modified(param, f) : (Modified){-2.0, 0, 0, 0, 0};
    for (int64_t i = 0; i < x.n && h.flag != -2.0; i++) {
        double a = simblas_get(&x, i).re, b = simblas_get(&y, i).re;
        simblas_put(&x, i, number(h.h11 * a + h.h12 * b));
        simblas_put(&y, i, number(h.h21 * a + h.h22 * b));
    }
    return simblas_end(&op);
}

// Keeps a factor between 1/4096² and 4096² by scaling a row of the matrix, which then counts in
// full.
static void rescale(Modified *h, double *d, double *row1, double *row2, double *x1)
{
    const double step = 4096.0, most = step * step;
    while (*d != 0.0 && (fabs(*d) <= 1.0 / most || fabs(*d) >= most)) {
        double factor = fabs(*d) >= most ? step : 1.0 / step;
        if (h->flag == 0.0) h->h11 = h->h22 = 1.0;
        if (h->flag == 1.0) {
            h->h21 = -1.0;
            h->h12 = 1.0;
        }
        h->flag = -1.0;
        *d /= factor * factor;
        *row1 *= factor;
        *row2 *= factor;
        if (x1 != NULL) *x1 *= factor;
    }
}

static Modified make_modified(double *d1, double *d2, double *x1, double y1)
{
    Modified h = {-1.0, 0, 0, 0, 0};
    double p2 = *d2 * y1, p1 = *d1 * *x1, q2 = p2 * y1, q1 = p1 * *x1;
    bool impossible = *d1 < 0.0;
    if (!impossible && p2 == 0.0) {
        h.flag = -2.0;
        return h;
    }
    if (!impossible && fabs(q1) > fabs(q2)) {
        h.h21 = -y1 / *x1;
        h.h12 = p2 / p1;
        double u = 1.0 - h.h12 * h.h21;
        h.flag = 0.0;
        *d1 /= u;
        *d2 /= u;
        *x1 *= u;
    } else if (!impossible && q2 >= 0.0) {
        h.flag = 1.0;
        h.h11 = p1 / p2;
        h.h22 = *x1 / y1;
        double u = 1.0 + h.h11 * h.h22, was = *d2 / u;
        *d2 = *d1 / u;
        *d1 = was;
        *x1 = y1 * u;
    } else {
        *d1 = *d2 = *x1 = 0.0;
        return h;
    }
    rescale(&h, d1, &h.h11, &h.h12, x1);
    rescale(&h, d2, &h.h21, &h.h22, NULL);
    return h;
}

static cublasStatus_t make_modified_rotation(Call call, cublasHandle_t handle, const Format *f,
                                             void *d1, void *d2, void *x1, const void *y1,
                                             void *param)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "d1", d1));
    CHECK(simblas_check_pointer(call, "d2", d2));
    CHECK(simblas_check_pointer(call, "x1", x1));
    CHECK(simblas_check_pointer(call, "y1", y1));
    CHECK(simblas_check_pointer(call, "param", param));
    SimgpuOp op = simblas_begin(call, handle);
    void *pd1 = simblas_result(&op, handle, d1, f->bytes, GPU_UPDATE);
    void *pd2 = simblas_result(&op, handle, d2, f->bytes, GPU_UPDATE);
    void *px1 = simblas_result(&op, handle, x1, f->bytes, GPU_UPDATE);
    Number y = simblas_scalar(&op, handle, y1, f);
    void *to = simblas_result(&op, handle, param, 5 * f->bytes, GPU_WRITE);
    if (simgpu_ready(&op)) {
        double a = f->get(pd1, 0).re, b = f->get(pd2, 0).re, x = f->get(px1, 0).re;
        Modified h = make_modified(&a, &b, &x, y.re);
        f->put(pd1, 0, number(a));
        f->put(pd2, 0, number(b));
        f->put(px1, 0, number(x));
        f->put(to, 0, number(h.flag));
        bool all = h.flag == -1.0;
        if (all || h.flag == 1.0) f->put(to, 1, number(h.h11));
        if (all || h.flag == 0.0) f->put(to, 2, number(h.h21));
        if (all || h.flag == 0.0) f->put(to, 3, number(h.h12));
        if (all || h.flag == 1.0) f->put(to, 4, number(h.h22));
    }
    return simblas_end(&op);
}

#define ROTM(I, E, L, T)                                                                           \
    cublasStatus_t cublas##L##rotm_v2##E(cublasHandle_t handle, I n, T *x, I incx, T *y, I incy,   \
                                         const T *param)                                           \
    {                                                                                              \
        return rotate_modified((Call){"cublas" #L "rotm" #E, SITE}, handle,                        \
                               (Vector){x, &simblas_##L, n, incx, NULL},                           \
                               (Vector){y, &simblas_##L, n, incy, NULL}, param, &simblas_##L);     \
    }
FOR_REAL(ROTM)

#define ROTMG(L, T)                                                                                \
    cublasStatus_t cublas##L##rotmg_v2(cublasHandle_t handle, T *d1, T *d2, T *x1, const T *y1,    \
                                       T *param)                                                   \
    {                                                                                              \
        return make_modified_rotation((Call){"cublas" #L "rotmg", SITE}, handle, &simblas_##L, d1, \
                                      d2, x1, y1, param);                                          \
    }
EACH_REAL(ROTMG)

#define ROTM_EX(I, E)                                                                              \
    cublasStatus_t cublasRotmEx##E(cublasHandle_t handle, I n, void *x, cudaDataType xType,        \
                                   I incx, void *y, cudaDataType yType, I incy, const void *param, \
                                   cudaDataType paramType, cudaDataType executiontype)             \
    {                                                                                              \
        Call call = {"cublasRotmEx" #E, SITE};                                                     \
        CHECK(check_types(call, xType, yType, paramType, executiontype));                          \
        CHECK(check_real(call, xType));                                                            \
        const Format *f = simblas_format(xType);                                                   \
        return rotate_modified(call, handle, (Vector){x, f, n, incx, NULL},                        \
                               (Vector){y, f, n, incy, NULL}, param, f);                           \
    }
FOR_SIZES(ROTM_EX)

cublasStatus_t cublasRotmgEx(cublasHandle_t handle, void *d1, cudaDataType d1Type, void *d2,
                             cudaDataType d2Type, void *x1, cudaDataType x1Type, const void *y1,
                             cudaDataType y1Type, void *param, cudaDataType paramType,
                             cudaDataType executiontype)
{
    Call call = {"cublasRotmgEx", SITE};
    CHECK(check_types(call, d1Type, d2Type, paramType, executiontype));
    CHECK(check_types(call, x1Type, y1Type, d1Type, executiontype));
    CHECK(check_real(call, x1Type));
    return make_modified_rotation(call, handle, simblas_format(d1Type), d1, d2, x1, y1, param);
}
