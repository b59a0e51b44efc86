/* log_writer.h: how the log of gpulog.h is written: by simgpu on simulated GPUs, by the interposer
 * (gpulog/interpose) on real ones. Readers include gpulog.h alone.
 */
#ifndef GPULOG_LOG_WRITER_H
#define GPULOG_LOG_WRITER_H

#include "gpulog.h"

#define GPULOG_DEVICES 256

// Appends an operation, and counts its traffic where it is a collective. Its index and its thread
// are set here. Returns the index.
uint64_t gpulog_write(const GpuLogEntry *entry);
// The calling thread's number: 0 for the process's first, the others by their first call of this.
int gpulog_thread(void);

// The last entry, without waiting for a lock: for a process that may be dying.
bool gpulog_last(GpuLogEntry *entry);

// How many operations the log keeps. Has no effect once something has been written.
void gpulog_reserve(size_t entries);
size_t gpulog_room(void);
// The entry in the log's own memory, with n_ranges ranges. It is overwritten when gpulog_room()
// more entries have been written. NULL: the log has no memory.
const GpuLogEntry *gpulog_at(uint64_t index);

// `bytes` bytes more, or fewer, are allocated on a device.
void gpulog_allocated(int device, size_t bytes);
void gpulog_freed(int device, size_t bytes);

// ---- activity.c ----

// What gpulog_activity says while the thread waits; NULL: it waits no more. `what` lives until the
// wait ends.
void gpulog_waiting(const char *what, const void *site);

// ---- stack.c ---- A call site is a short stack of return addresses, innermost first, kept once
// and handed around as one pointer. Any return address is a call site too, of one frame.

#define GPULOG_FRAMES 16
// The call site of the function that says it: where it was called, and what called that.
#define GPULOG_SITE() gpulog_site(__builtin_return_address(0), __builtin_frame_address(0))
const void *gpulog_site(const void *return_address, const void *frame);
// The call site whose innermost frame is a return address of a call that is still under way.
const void *gpulog_site_above(const void *site);
// The call site of these frames; of what are their addresses.
const void *gpulog_stack(const void *const *frames, int n);
int gpulog_frames(const void *site, const void *frames[GPULOG_FRAMES]);

// ---- site.c ----

// What is known of a return address: the line of the call.
typedef struct GpuLogLine {
    const void *address;
    char text[160];    // "forward.c:88 (fsdp_unshard)", or what there is in place of it
    char path[512];    // of the source file, whole; "": not known
    size_t below;      // where in it the path below the folder of the compilation begins, or 0
    char function[64]; // "": not known
    int line;
    uint64_t unit; // the same number for all code of one source file; 0: not known
} GpuLogLine;
// False: somebody holds the lock for good.
bool gpulog_line(const void *address, GpuLogLine *line);

// ---- where.c ----

// Whether a line is in one of the program's own source files (gpulog_own_code).
bool gpulog_line_is_own(const GpuLogLine *line);
// Whether the call came from the program's own code, however indirectly.
bool gpulog_is_own(const void *site);
// How the call that gpulog_where names went on to the operation, and who called its function where
// that is the program's own too: "in flat_zero_padding (reference/flat_param.c:127)", "called by
// fsdp_reshard (forward.c:128)"; false, and "": there is nothing to say.
bool gpulog_call_path(const void *site, char *text, size_t size);

// ---- names.c ----

// What to call the allocation at ptr, made at `site`: the name that it was given, else the variable
// it was stored in. False, and "": neither is known.
bool gpulog_name_of(const void *ptr, const void *site, char *text, size_t size);
// Somebody else has the memory at ptr now.
void gpulog_forget_name(const void *ptr);
// The name that a stream was given; NULL: none. It lives on when the stream is destroyed.
const char *gpulog_name_of_stream(cudaStream_t stream);
// The stream is destroyed: another one may get its handle.
void gpulog_forget_stream(cudaStream_t stream);
// What the program knows of bytes [begin, end) of the allocation of `bytes` bytes at ptr: "element
// 10 of h.0, padding"; false, and "": nothing.
bool gpulog_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                     size_t size);

// The name that the stream of an entry had then, also where the stream is gone by now.
const char *gpulog_name_of_entrys_stream(const GpuLogEntry *entry);

// ---- category.c ----

// An allocation begins, and ends: what it was for.
void gpulog_category_begins(const void *ptr, size_t bytes);
GpuCategory gpulog_category_ends(const void *ptr);
// A collective is about to be logged.
void gpulog_look_at_operands(const GpuLogEntry *entry);

// ---- operands.c ----

// A vector of n floats, every inc-th in memory; the destination of a copy; how many elements a sum
// over a vector (or of the products of two) takes.
GpuRange gpulog_vector(const void *x, int64_t n, int64_t inc, size_t element, GpuAccess access);
GpuRange gpulog_copied_vector(const void *y, int64_t n, int64_t inc, size_t element);
int64_t gpulog_sum_length(bool of_products, int64_t n, int64_t incx);

// One matrix, or the first of a batch, each `stride` elements after the one before.
typedef struct GpuLogMatrix {
    const void *ptr;
    int64_t ld;
    long long stride;
    size_t element; // bytes
} GpuLogMatrix;

// C (m,n) = alpha·op(A)·op(B) + beta·C, where op(A) is (m,k), op(B) is (k,n), `count` times.
typedef struct GpuLogProduct {
    bool turn_a, turn_b;
    int64_t m, n, k, count;
    GpuLogMatrix A, B, C;
    bool keeps; // C is read, too: beta is not 0
} GpuLogProduct;

// The operands A, B and C.
void gpulog_product(const GpuLogProduct *p, GpuRange operand[3]);

// A matrix. All its elements are stored, or those of one triangle; with `unit` its diagonal is not.
typedef struct GpuLogStored {
    const void *ptr;
    int64_t rows, cols, ld;
    size_t element; // bytes
    bool upper, lower, unit;
} GpuLogStored;
// From the first stored element to the last.
GpuRange gpulog_stored(const GpuLogStored *m, GpuAccess access);

#endif
