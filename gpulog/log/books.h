/* books.h: how the books of gpulog.h are written: by simgpu on simulated GPUs, by the interposer
 * (gpulog/interpose) on real ones. Readers include gpulog.h alone.
 *
 * Interface: books_write, books_last, books_reserve: the log; books_allocated, books_freed: the
 * bytes a device holds; books_waiting: what a thread waits in; BOOKS_SITE, books_site,
 * books_site_above, books_stack, books_frames: call sites; books_line, books_is_own,
 * books_call_path: their lines; books_name, books_forget_name: allocations by name;
 * books_stream_name, books_forget_stream: streams by name; books_elements: bytes by element;
 * books_send_bytes, books_recv_bytes, books_count_traffic, books_element_size: collectives;
 * books_vector, books_copied_vector, books_sum_length, books_product, books_matrix_vector: operands
 * of cuBLAS calls.
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

// ---- stack.c ---- A call site is a short stack of return addresses, innermost first, kept once
// and handed around as one pointer. Any return address is a call site too, of one frame.

#define BOOKS_FRAMES 16
// The call site of the function that says it: where it was called, and what called that.
#define BOOKS_SITE() books_site(__builtin_return_address(0), __builtin_frame_address(0))
const void *books_site(const void *return_address, const void *frame);
// The call site whose innermost frame is a return address of a call that is still under way.
const void *books_site_above(const void *site);
// The call site of these frames; of what are their addresses.
const void *books_stack(const void *const *frames, int n);
int books_frames(const void *site, const void *frames[BOOKS_FRAMES]);

// ---- site.c ----

// What is known of a return address: the line of the call.
typedef struct BooksLine {
    const void *address;
    char text[160];    // "forward.c:88 (fsdp_unshard)", or what there is in place of it
    char path[512];    // of the source file, whole; "": not known
    char function[64]; // "": not known
    int line;
    uint64_t unit; // the same number for all code of one source file; 0: not known
} BooksLine;
// False: somebody holds the lock for good.
bool books_line(const void *address, BooksLine *line);

// ---- where.c ----

// Whether the call came from the program's own code (gpulog_own_code), however indirectly.
bool books_is_own(const void *site);
// How the call that gpulog_where names went on to the operation, and who called its function where
// that is the program's own too: "in flat_zero_padding (reference/flat_param.c:127)", "called by
// fsdp_reshard (forward.c:128)"; false, and "": there is nothing to say.
bool books_call_path(const void *site, char *text, size_t size);

// ---- names.c ----

// What to call the allocation at ptr, made at `site`: the name that it was given, else the variable
// it was stored in. False, and "": neither is known.
bool books_name(const void *ptr, const void *site, char *text, size_t size);
// Somebody else has the memory at ptr now.
void books_forget_name(const void *ptr);
// The name that a stream was given; NULL: none. It lives on when the stream is destroyed.
const char *books_stream_name(cudaStream_t stream);
// The stream is destroyed: another one may get its handle.
void books_forget_stream(cudaStream_t stream);
// What the program knows of bytes [begin, end) of the allocation of `bytes` bytes at ptr: "element
// 10 of h.0, padding"; false, and "": nothing.
bool books_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                    size_t size);

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
