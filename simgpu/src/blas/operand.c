/* operand.c: scalars, vectors and matrices as operands: which bytes of device memory a call reads
 * and writes, and the elements in them.
 *
 * The bytes that a matrix does not store (the other triangle, gaps between columns) are neither
 * read nor written, and the checker gets exactly the others. The log gets one range for each
 * operand, from the first byte to the last.
 */
#include "blas.h"

SimgpuOp simblas_begin(Call call, cublasHandle_t handle)
{
    SimgpuOp op = sim_begin(GPU_BLAS, call.name, handle->stream, call.site);
    if (op.captured) {
        sim_note_handle(handle, (int)sizeof *handle);
        sim_capture_noted(&op, cudaGraphNodeTypeKernel);
    }
    if (op.error != cudaSuccess || op.entry.device == handle->device) return op;
    simblas_refuse(call, CUBLAS_STATUS_EXECUTION_FAILED,
                   "the handle was created on device %d, but its stream belongs to device %d.\n"
                   "A handle serves the device that was current when it was created.",
                   handle->device, op.entry.device);
    op.error = cudaErrorInvalidResourceHandle;
    return op;
}

cublasStatus_t simblas_end(SimgpuOp *op)
{
    return simgpu_end(op) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t simblas_finish(Call call, SimgpuOp *op, cublasStatus_t computed)
{
    char where[256];
    CHECK(simblas_end(op));
    if (computed == CUBLAS_STATUS_INTERNAL_ERROR)
        return simblas_refuse(call, computed, "the CPU's BLAS library refused the product.");
    if (computed != CUBLAS_STATUS_ALLOC_FAILED) return computed;
    gpulog_where(call.site, where, sizeof where);
    sim_facts_call(call.name, call.site, SIM_NO_STREAM);
    sim_report(
        SIMGPU_SYSTEM, "cuBLAS: no memory",
        "%s, called at %s:\nthe host has no memory for copies of its operands, so it returns\n"
        "CUBLAS_STATUS_ALLOC_FAILED, and its result is not written. Are other processes using "
        "the memory, or is there a limit (ulimit -v)?",
        call.name, where);
    return computed;
}

// ---- Scalars ----

Number simblas_scalar(SimgpuOp *op, cublasHandle_t handle, const void *scalar, const Format *format)
{
    if (handle->pointers == CUBLAS_POINTER_MODE_HOST)
        return format->get(sim_noted_scalar(op, scalar, format->bytes), 0);
    const void *value = sim_touch(op, scalar, format->bytes, GPU_READ, false);
    // Not known in a dry run: most likely it is not 0, and the operands are read.
    return simgpu_ready(op) ? format->get(value, 0) : number(sim_dry() ? 1.0 : 0.0);
}

// A result on the host is there when the call returns, so the call waits.
void *simblas_result(SimgpuOp *op, cublasHandle_t handle, void *result, size_t bytes)
{
    if (handle->pointers == CUBLAS_POINTER_MODE_DEVICE)
        return sim_touch(op, result, bytes, GPU_WRITE, false);
    if (op->captured || sim_launching.node) {
        sim_capture_refuse(op, "brings its result to the host, which would wait for it",
                           "Can the result be on the device (CUBLAS_POINTER_MODE_DEVICE)?");
        return result;
    }
    op->entry.host_waits = true;
    if (sim_dry()) sim_dry_deliver(op, result, bytes, bytes, 1);
    return result;
}

const void *const *simblas_pointers(SimgpuOp *op, const void *array, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(void *);
    if (!sim_check_aligned(op, array, bytes, sizeof(void *))) return NULL;
    const void *const *there = sim_touch(op, array, bytes, GPU_READ, false);
    return there && sim_dry() ? sim_dry_addresses(array, bytes) : there;
}

// A number of elements; too many become more than any memory has, whose bytes fit in a size_t.
static size_t at_most(size_t elements)
{
    const size_t most = (size_t)1 << 56;
    return elements < most ? elements : most;
}

// ---- Vectors ----

void simblas_touch_vector(SimgpuOp *op, Vector *v, GpuAccess access, bool gaps_stay)
{
    size_t count = v->n > 0 ? (size_t)v->n : 0, one = v->format->bytes;
    size_t apart = (size_t)llabs(v->inc);
    size_t reach = count ? at_most((count - 1) * apart + 1) : 0;
    size_t bytes = reach * one;
    SimShape shape = sim_shape(one, count, apart * one, 1, 0);
    GpuAccess logged = gaps_stay && apart > 1 ? GPU_UPDATE : access;
    if (!sim_check_aligned(op, v->ptr, bytes, v->format->align)) return;
    v->at = sim_touch_shape(op, (GpuRange){v->ptr, bytes, logged}, &shape, access, false);
}

static size_t at(const Vector *v, int64_t i)
{
    return (size_t)(v->inc > 0 ? i : v->n - 1 - i) * (size_t)llabs(v->inc);
}

void *simblas_place(const Vector *v, int64_t i)
{
    return v->at + at(v, i) * v->format->bytes;
}

Number simblas_get(const Vector *v, int64_t i)
{
    return v->format->get(v->at, at(v, i));
}

void simblas_put(const Vector *v, int64_t i, Number x)
{
    v->format->put(v->at, at(v, i), x);
}

// ---- Matrices ----

// The rows of a column that are stored: from *first to before *last.
static void stored(const Matrix *m, int64_t col, int64_t *first, int64_t *last)
{
    *first = 0;
    *last = m->rows;
    if (m->part == PART_UPPER && *last > col + !m->unit) *last = col + !m->unit;
    if (m->part == PART_LOWER) *first = col + m->unit;
    if (*last < *first) *last = *first;
}

// Where an element is, in elements.
static size_t place(const Matrix *m, int64_t row, int64_t col)
{
    return (size_t)col * (size_t)m->ld + (size_t)row;
}

// The elements from the first stored one to behind the last; false: there is none.
static bool span(const Matrix *m, size_t *from, size_t *to)
{
    int64_t first = 0, last = 0, col = 0;
    while (first == last && col < m->cols) stored(m, col++, &first, &last);
    if (first == last) return false;
    *from = place(m, first, col - 1);
    col = m->cols;
    do stored(m, --col, &first, &last);
    while (first == last);
    *to = at_most(place(m, last - 1, col) + 1);
    return true;
}

// The columns of a triangle, one by one; the first is declared by the caller.
static void touch_columns(SimgpuOp *op, const Matrix *m, int64_t begin, GpuAccess access)
{
    if (!simgpu_ready(op) || sim_config()->check != CHECK_FULL) return;
    for (int64_t j = begin; j < m->cols; j++) {
        int64_t first, last;
        stored(m, j, &first, &last);
        if (first == last) continue;
        size_t bytes = (size_t)(last - first) * m->format->bytes;
        SimShape shape = sim_plain_shape(bytes);
        const char *ptr = (const char *)m->ptr + place(m, first, j) * m->format->bytes;
        sim_race_touch(op, ptr, &shape, access);
    }
}

void simblas_touch_matrix(SimgpuOp *op, Matrix *m, GpuAccess access)
{
    size_t one = m->format->bytes, from, to;
    int64_t col = 0, first, last;
    if (!span(m, &from, &to)) return;
    if (!sim_check_aligned(op, m->ptr, (to - from) * one, m->format->align)) return;
    bool even = m->part == PART_ALL;
    do stored(m, col++, &first, &last);
    while (first == last);
    SimShape shape =
        even ? sim_shape((size_t)m->rows * one, (size_t)m->cols, (size_t)m->ld * one, 1, 0)
             : sim_plain_shape((size_t)(last - first) * one);
    GpuRange range = {(const char *)m->ptr + from * one, (to - from) * one, access};
    char *usable = sim_touch_shape(op, range, &shape, access, false);
    if (!even) touch_columns(op, m, col, access);
    if (simgpu_ready(op)) m->at = usable - from * one;
}

Number simblas_load(const Matrix *m, int64_t row, int64_t col)
{
    return m->format->get(m->at, place(m, row, col));
}

void simblas_store(const Matrix *m, int64_t row, int64_t col, Number x)
{
    m->format->put(m->at, place(m, row, col), x);
}

static Number element(const Matrix *m, int64_t row, int64_t col)
{
    int64_t first, last;
    if (m->unit && row == col) return number(1.0);
    stored(m, col, &first, &last);
    return row >= first && row < last ? simblas_load(m, row, col) : number(0.0);
}

Number simblas_element(const Matrix *m, cublasOperation_t turn, int64_t row, int64_t col)
{
    if (turn == CUBLAS_OP_N) return element(m, row, col);
    Number x = element(m, col, row);
    return turn == CUBLAS_OP_C ? conjugate(x) : x;
}
