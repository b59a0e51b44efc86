/* log_writer.h: how the log of gpulog.h is written: by simgpu on simulated GPUs, by the interposer
 * (gpulog/interpose) on real ones. Readers include gpulog.h alone.
 */
#ifndef GPULOG_LOG_WRITER_H
#define GPULOG_LOG_WRITER_H

#include "gpulog.h"

#define SIM_LOG_DEVICES 256

// Appends an operation, and counts its traffic where it is a collective. Its index and its thread
// are set here. Returns the index.
uint64_t sim_log_write(const GpuLogEntry *entry);
// The calling thread's number: 0 for the process's first, the others by their first call of this.
int sim_log_thread(void);

// The last entry, without waiting for a lock: for a process that may be dying.
bool sim_log_last(GpuLogEntry *entry);

// How many operations the log keeps. Has no effect once something has been written.
void sim_log_reserve(size_t entries);
size_t sim_log_room(void);
// An entry in its place: no more than its n_ranges ranges. It stays there until as many entries as
// there is room for have come after it. NULL: the log has no memory.
const GpuLogEntry *sim_log_at(uint64_t index);

// `bytes` bytes more, or fewer, are allocated on a device.
void sim_log_allocated(int device, size_t bytes);
void sim_log_freed(int device, size_t bytes);

// ---- activity.c ----

// What gpulog_activity says while the thread waits; NULL: it waits no more. `what` lives until the
// wait ends.
void sim_log_waiting(const char *what, const void *site);

// ---- stack.c ---- A call site is a short stack of return addresses, innermost first, kept once
// and handed around as one pointer. Any return address is a call site too, of one frame.

#define SIM_LOG_FRAMES 16
// The call site of the function that says it: where it was called, and what called that.
#define SIM_LOG_SITE() sim_log_site(__builtin_return_address(0), __builtin_frame_address(0))
const void *sim_log_site(const void *return_address, const void *frame);
// The call site whose innermost frame is a return address of a call that is still under way.
const void *sim_log_site_above(const void *site);
// The call site of these frames; of what are their addresses.
const void *sim_log_stack(const void *const *frames, int n);
int sim_log_frames(const void *site, const void *frames[SIM_LOG_FRAMES]);

// ---- site.c ----

// What is known of a return address: the line of the call.
typedef struct SimLogLine {
    const void *address;
    char text[160];    // "forward.c:88 (fsdp_unshard)", or what there is in place of it
    char path[512];    // of the source file, whole; "": not known
    char function[64]; // "": not known
    int line;
    uint64_t unit; // the same number for all code of one source file; 0: not known
} SimLogLine;
// False: somebody holds the lock for good.
bool sim_log_line(const void *address, SimLogLine *line);

// ---- where.c ----

// Whether the call came from the program's own code (gpulog_own_code), however indirectly.
bool sim_log_is_own(const void *site);
// How the call that gpulog_where names went on to the operation, and who called its function where
// that is the program's own too: "in flat_zero_padding (reference/flat_param.c:127)", "called by
// fsdp_reshard (forward.c:128)"; false, and "": there is nothing to say.
bool sim_log_call_path(const void *site, char *text, size_t size);

// ---- names.c ----

// What to call the allocation at ptr, made at `site`: the name that it was given, else the variable
// it was stored in. False, and "": neither is known.
bool sim_log_name(const void *ptr, const void *site, char *text, size_t size);
// Somebody else has the memory at ptr now.
void sim_log_forget_name(const void *ptr);
// The name that a stream was given; NULL: none. It lives on when the stream is destroyed.
const char *sim_log_stream_name(cudaStream_t stream);
// The stream is destroyed: another one may get its handle.
void sim_log_forget_stream(cudaStream_t stream);
// What the program knows of bytes [begin, end) of the allocation of `bytes` bytes at ptr: "element
// 10 of h.0, padding"; false, and "": nothing.
bool sim_log_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                      size_t size);

// The name that the stream of an entry had then, also where the stream is gone by now.
const char *sim_log_stream_name_of(const GpuLogEntry *entry);

// ---- category.c ----

// An allocation begins, and ends: what it was for.
void sim_log_category_begins(const void *ptr, size_t bytes);
GpuCategory sim_log_category_ends(const void *ptr);
// A collective is about to be logged.
void sim_log_look_at_operands(const GpuLogEntry *entry);

// ---- operands.c ----

// A vector of n floats, every inc-th in memory; the destination of a copy; how many elements a sum
// over a vector (or of the products of two) takes.
GpuRange sim_log_vector(const void *x, int64_t n, int64_t inc, size_t element, GpuAccess access);
GpuRange sim_log_copied_vector(const void *y, int64_t n, int64_t inc, size_t element);
int64_t sim_log_sum_length(bool of_products, int64_t n, int64_t incx);

// One matrix, or the first of a batch, each `stride` elements after the one before.
typedef struct SimLogMatrix {
    const void *ptr;
    int64_t ld;
    long long stride;
    size_t element; // bytes
} SimLogMatrix;

// C (m,n) = alpha·op(A)·op(B) + beta·C, where op(A) is (m,k), op(B) is (k,n), `count` times.
typedef struct SimLogProduct {
    bool turn_a, turn_b;
    int64_t m, n, k, count;
    SimLogMatrix A, B, C;
    bool keeps; // C is read, too: beta is not 0
} SimLogProduct;

// The operands A, B and C.
void sim_log_product(const SimLogProduct *p, GpuRange operand[3]);

// A matrix of which not all elements are stored: those of one triangle, without its diagonal where
// that is `unit`; of a band, with as many diagonals above and below the main one; packed, column
// after column.
typedef struct SimLogStored {
    const void *ptr;
    int64_t rows, cols, ld, above, below;
    size_t element; // bytes
    bool upper, lower, unit, band, packed;
} SimLogStored;
// From the first stored element to the last.
GpuRange sim_log_stored(const SimLogStored *m, GpuAccess access);

#endif
