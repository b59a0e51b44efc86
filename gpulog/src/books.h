/* books.h: how the books of gpulog.h are written: by simgpu on simulated GPUs, by the interposer
 * (gpulog/wrap) on real ones. Readers include gpulog.h alone.
 *
 * Interface: books_write, books_last, books_reserve: the log; books_allocated, books_freed: the
 * bytes a device holds; books_waiting: what a thread waits in; books_name,
 * books_forget_name: allocations by name; books_send_bytes, books_recv_bytes,
 * books_count_traffic, books_element_size: collectives; books_vector, books_copied_vector,
 * books_sum_length, books_product, books_matrix_vector: operands of cuBLAS calls.
 */
#ifndef GPULOG_BOOKS_H
#define GPULOG_BOOKS_H

#include "gpulog.h"

#define BOOKS_DEVICES 64

// Appends an operation, and counts its traffic where it is a collective. The entry's index is set
// here.
void books_write(const GpuLogEntry *entry);

// The last entry, without waiting for a lock: for a process that may be dying.
bool books_last(GpuLogEntry *entry);

// How many operations the log keeps. Has no effect once something has been written.
void books_reserve(size_t entries);

// `bytes` bytes more, or fewer, are allocated on a device.
void books_allocated(int device, size_t bytes);
void books_freed(int device, size_t bytes);

// ---- activity.c ----

// What gpulog_activity says while the thread waits; NULL: it waits no more. `what` lives until the
// wait ends.
void books_waiting(const char *what, const void *site);

// ---- names.c ----

// What to call the allocation at ptr, made at `site`: the name that it was given, else the variable
// it was stored in. False, and "": neither is known.
bool books_name(const void *ptr, const void *site, char *text, size_t size);
// Somebody else has the memory at ptr now.
void books_forget_name(const void *ptr);

// ---- traffic.c ----

typedef struct BooksCollective {
    GpuOp op;     // GPU_ALL_GATHER … GPU_RECV
    size_t bytes; // the call's count times the size of an element
    int world, rank;
    int root; // of a broadcast and a reduce
} BooksCollective;

// Bytes that this rank reads from its send buffer and writes to its receive buffer.
size_t books_send_bytes(const BooksCollective *c);
size_t books_recv_bytes(const BooksCollective *c);
// Fills in the entry's `bytes` and `sent`.
void books_count_traffic(const BooksCollective *c, GpuLogEntry *entry);
// Of an ncclDataType_t; 0: there is no such type.
size_t books_element_size(int type);

// ---- operands.c ----

// A vector of n floats, every inc-th in memory; the destination of a copy; how many elements a sum
// over a vector (or of the products of two) takes.
GpuRange books_vector(const void *x, int n, int inc, GpuAccess access);
GpuRange books_copied_vector(const void *y, int n, int inc);
int books_sum_length(bool of_products, int n, int incx);

// One matrix, or the first of a batch, each `stride` elements behind the one before.
typedef struct BooksMatrix {
    const void *ptr;
    int ld;
    long long stride;
    size_t element; // bytes
} BooksMatrix;

// C (m,n) = alpha·op(A)·op(B) + beta·C, where op(A) is (m,k), op(B) is (k,n), `count` times.
typedef struct BooksProduct {
    bool turn_a, turn_b;
    int m, n, k, count;
    BooksMatrix A, B, C;
    bool keeps; // C is read, too: beta is not 0
} BooksProduct;

// The operands A, B and C, or A, x and y.
void books_product(const BooksProduct *p, GpuRange operand[3]);
void books_matrix_vector(bool turn, int m, int n, const float *A, int lda, const float *x, int incx,
                         const float *y, int incy, bool keeps, GpuRange operand[3]);

#endif
