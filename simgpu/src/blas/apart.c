/* apart.c: checks that the matrices that a batch writes do not overlap. If two share an element,
 * the timing of a GPU decides which product it gets ("the pointers in Carray must not overlap",
 * cuBLAS's guide, cublasgemmBatched); simgpu computes the products in turn.
 */
#include <string.h>

#include "blas.h"
#include "check/check.h"

// Bytes from the first of a matrix to behind its last.
static size_t bytes_spanned(const Matrix *m)
{
    return (size_t)((m->cols - 1) * m->ld + m->rows) * m->format->bytes;
}

// Whether a matrix and one of the same shape that begins `apart` bytes after it share an element.
// Only columns that are `whole` columns apart, or one more, can.
static bool share_an_element(const Matrix *m, size_t apart)
{
    size_t column = (size_t)m->rows * m->format->bytes, ld = (size_t)m->ld * m->format->bytes;
    size_t whole = apart / ld, rest = apart % ld, cols = (size_t)m->cols;
    return (whole < cols && rest < column) || (whole + 1 < cols && ld - rest < column);
}

static void report(const SimgpuOp *op, const Matrix *m, const void *one, const void *other)
{
    GpuRange first = {one, bytes_spanned(m), GPU_WRITE}, second = {other, first.bytes, GPU_WRITE};
    sim_report_overlap(op, &first, &second,
                       "cuBLAS: the matrices that a batch writes may not overlap.");
}

void simblas_check_stride(const SimgpuOp *op, const Matrix *first, int64_t count, long long stride)
{
    size_t apart = (size_t)llabs(stride) * first->format->bytes, span = bytes_spanned(first);
    if (sim_config()->check == CHECK_OFF || op->error != cudaSuccess) return;
    for (size_t i = 1; i < (size_t)count && i * apart < span; i++) {
        if (!share_an_element(first, i * apart)) continue;
        long long between = (long long)i * stride * (long long)first->format->bytes;
        report(op, first, first->ptr, (const char *)first->ptr + between);
        return;
    }
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const void *const *)a, y = (uintptr_t) * (const void *const *)b;
    return x < y ? -1 : x > y;
}

void simblas_check_pointers(const SimgpuOp *op, const Matrix *form, const void *const *at,
                            int64_t count)
{
    if (!at || count < 2 || sim_config()->check == CHECK_OFF || op->error != cudaSuccess) return;
    const char **sorted = malloc((size_t)count * sizeof *sorted);
    size_t n = (size_t)count, span = bytes_spanned(form);
    if (!sorted) return;
    memcpy(sorted, at, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_address);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n && (size_t)(sorted[j] - sorted[i]) < span; j++)
            if (share_an_element(form, (size_t)(sorted[j] - sorted[i]))) {
                report(op, form, sorted[i], sorted[j]);
                i = j = n;
            }
    free(sorted);
}
