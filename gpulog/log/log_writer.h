/* log_writer.h: how simgpu (on simulated GPUs) and the interposer (gpulog/interpose, on real ones)
 * write the log of gpulog.h. Readers include only gpulog.h.
 */
#ifndef GPULOG_LOG_WRITER_H
#define GPULOG_LOG_WRITER_H

#include "gpulog.h"

#define GPULOG_DEVICES 256

// Appends an operation, sets its index and its thread, and counts the traffic of a collective.
// Returns the index.
uint64_t gpulog_write(const GpuLogEntry *entry);
// The calling thread's number: 0 is the process's first, others count by their first call of this.
int gpulog_thread(void);

// The last entry, without waiting for a lock: for a process that may be dying.
bool gpulog_last(GpuLogEntry *entry);

// Sets how many operations the log keeps; no effect after the first write.
void gpulog_reserve(size_t entries);
size_t gpulog_room(void);
// The entry in the log's own memory, with n_ranges ranges. It is overwritten when gpulog_room()
// more entries have been written. NULL: the log has no memory.
const GpuLogEntry *gpulog_at(uint64_t index);

// Counts `bytes` bytes of a device as allocated, or as freed.
void gpulog_allocated(int device, size_t bytes);
void gpulog_freed(int device, size_t bytes);

// ---- activity.c ----

// Sets what gpulog_activity reports while the thread waits; NULL: the wait is over. `what` lives
// until then.
void gpulog_waiting(const char *what, const void *site);

// ---- stack.c ---- A call site is a short stack of return addresses, innermost first, stored once
// and passed around as one pointer. Any return address is a call site, too, of one frame.

#define GPULOG_FRAMES 16
// The call site of the current function: its caller, and the callers of that.
#define GPULOG_SITE() gpulog_site(__builtin_return_address(0), __builtin_frame_address(0))
const void *gpulog_site(const void *return_address, const void *frame);
// The call site whose innermost frame is the return address of a call that has not returned yet.
const void *gpulog_site_above(const void *site);
// The call site of these frames, and the frames of a call site.
const void *gpulog_stack(const void *const *frames, int n);
int gpulog_frames(const void *site, const void *frames[GPULOG_FRAMES]);

// ---- site.c ----

// The source line of the call that a return address belongs to.
typedef struct GpuLogLine {
    const void *address;
    char text[160];    // "forward.c:88 (fsdp_unshard)", or the closest that is known
    char path[512];    // full path of the source file; "": not known
    size_t below;      // where the path below the compilation's folder begins in it, or 0
    char function[64]; // "": not known
    int line;
    uint64_t unit; // the same number for all code of one source file; 0: not known
} GpuLogLine;
// False: the lock was not free in time.
bool gpulog_line(const void *address, GpuLogLine *line);

// ---- where.c ----

// Whether a line is in one of the program's own source files (gpulog_own_code).
bool gpulog_line_is_own(const GpuLogLine *line);
// Whether the call came from the program's own code, however indirectly.
bool gpulog_is_own(const void *site);
// The calls from the line that gpulog_where names to the operation, and the caller of its function
// if that is the program's own too: "in flat_zero_padding (reference/flat_param.c:127)", "called by
// fsdp_reshard (forward.c:128)"; false, and "": there are none.
bool gpulog_call_path(const void *site, char *text, size_t size);

// ---- names.c ----

// The allocation's name for a report, where `site` made it: its given name, else the variable that
// stores it. False, and "": neither is known.
bool gpulog_name_of(const void *ptr, const void *site, char *text, size_t size);
// Forgets the name: the memory at ptr belongs to another allocation now.
void gpulog_forget_name(const void *ptr);
// The given name of a stream; NULL: none. The text outlives the stream.
const char *gpulog_name_of_stream(cudaStream_t stream);
// Forgets the handle of a destroyed stream: another stream may get it.
void gpulog_forget_stream(cudaStream_t stream);
// Calls the function of gpulog_name_elements: the text of GpuElements; false, and "": nothing.
bool gpulog_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                     size_t size);

// The name of an entry's stream at that time, even if the stream has been destroyed since.
const char *gpulog_name_of_entrys_stream(const GpuLogEntry *entry);

// ---- category.c ----

// An allocation begins; an allocation ends, and its category is returned.
void gpulog_category_begins(const void *ptr, size_t bytes);
GpuCategory gpulog_category_ends(const void *ptr);
// Asks for the categories of a collective's operands before it is logged.
void gpulog_look_at_operands(const GpuLogEntry *entry);

// ---- operands.c ----

// A vector of n elements, every inc-th in memory; the destination of a copy; the number of elements
// in a sum over a vector (or over the products of two).
GpuRange gpulog_vector(const void *x, int64_t n, int64_t inc, size_t element, GpuAccess access);
GpuRange gpulog_copied_vector(const void *y, int64_t n, int64_t inc, size_t element);
int64_t gpulog_sum_length(bool of_products, int64_t n, int64_t incx);

// A matrix, or the first of a batch; each is `stride` elements after the one before.
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

// A matrix that stores all its elements, or one triangle; with `unit`, without the diagonal.
typedef struct GpuLogStored {
    const void *ptr;
    int64_t rows, cols, ld;
    size_t element; // bytes
    bool upper, lower, unit;
} GpuLogStored;
// From the first stored element to the last.
GpuRange gpulog_stored(const GpuLogStored *m, GpuAccess access);

#endif
