/* operands.c: the bytes that a cuBLAS call reads and writes, from its arguments alone.
 *
 * A matrix with gaps between its columns (leading dimension above its rows) counts from its first
 * to its last element, gaps included: the log has room for one range per operand.
 */
#include <stdlib.h>

#include "log_writer.h"

// More elements than any memory holds: sizes and strides could ask for more than a size_t counts.
#define MOST ((int64_t)1 << 56)

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    bool fits = !__builtin_mul_overflow(a, b, &product) && product < MOST && product > -MOST;
    return fits ? product : (a < 0) == (b < 0) ? MOST : -MOST;
}

static size_t matrix_bytes(int64_t rows, int64_t cols, int64_t ld, size_t element)
{
    if (rows == 0 || cols == 0) return 0;
    return ((size_t)times(ld, cols - 1) + (size_t)rows) * element;
}

GpuRange gpulog_vector(const void *x, int64_t n, int64_t inc, size_t element, GpuAccess access)
{
    size_t elements = n > 0 ? 1 + (size_t)times(n - 1, llabs(inc)) : 0;
    return (GpuRange){x, elements * element, access};
}

// The gaps between the written elements keep their values: an update, not a plain write.
GpuRange gpulog_copied_vector(const void *y, int64_t n, int64_t inc, size_t element)
{
    return gpulog_vector(y, n, inc, element, inc == 1 || inc == -1 ? GPU_WRITE : GPU_UPDATE);
}

int64_t gpulog_sum_length(bool of_products, int64_t n, int64_t incx)
{
    if (!of_products && incx <= 0) return 0; // as in the reference BLAS
    return n > 0 ? n : 0;
}

// From the first element of the first matrix to the last of the last; a stride may be negative.
static GpuRange batch(const GpuLogMatrix *matrix, int64_t rows, int64_t cols, int64_t count,
                      GpuAccess access)
{
    int64_t reach = times(matrix->stride, count - 1), element = (long long)matrix->element;
    const char *first = matrix->ptr;
    if (reach < 0) first += reach * element;
    size_t bytes = matrix_bytes(rows, cols, matrix->ld, matrix->element);
    return (GpuRange){first, bytes + (size_t)(llabs(reach) * element), access};
}

void gpulog_product(const GpuLogProduct *p, GpuRange operand[3])
{
    int64_t a_rows = p->turn_a ? p->k : p->m, a_cols = p->turn_a ? p->m : p->k;
    int64_t b_rows = p->turn_b ? p->n : p->k, b_cols = p->turn_b ? p->k : p->n;
    operand[0] = batch(&p->A, a_rows, a_cols, p->count, GPU_READ);
    operand[1] = batch(&p->B, b_rows, b_cols, p->count, GPU_READ);
    operand[2] = batch(&p->C, p->m, p->n, p->count, p->keeps ? GPU_UPDATE : GPU_WRITE);
}

// The stored rows of a column: from *first to before *last.
static void stored(const GpuLogStored *m, int64_t col, int64_t *first, int64_t *last)
{
    *first = m->lower ? col + m->unit : 0;
    *last = m->upper && m->rows > col + !m->unit ? col + !m->unit : m->rows;
    if (*last < *first) *last = *first;
}

// The offset of an element, in elements.
static int64_t place(const GpuLogStored *m, int64_t row, int64_t col)
{
    return times(col, m->ld) + row;
}

GpuRange gpulog_stored(const GpuLogStored *m, GpuAccess access)
{
    int64_t first = 0, last = 0, col = 0, from;
    while (first == last && col < m->cols) stored(m, col++, &first, &last);
    if (first == last) return (GpuRange){m->ptr, 0, access};
    from = place(m, first, col - 1);
    col = m->cols;
    do stored(m, --col, &first, &last);
    while (first == last);
    size_t begin = (size_t)from * m->element;
    size_t bytes = (size_t)(place(m, last - 1, col) + 1) * m->element - begin;
    return (GpuRange){(const char *)m->ptr + begin, bytes, access};
}
