/* simgpu.h: what simgpu offers in addition to CUDA, NCCL and cuBLAS.
 *
 * `<<<>>>` is not C, so a kernel for the simulated GPU is a C function that says, before it touches
 * anything, which bytes it reads and writes. These calls also return the pointer that it may
 * dereference: the host has no access through the program's device pointer.
 *
 *   cudaError_t kernel_scale(float *x, float factor, size_t n, cudaStream_t stream)
 *   {
 *       SimgpuOp op = SIMGPU_BEGIN("kernel_scale", stream);
 *       float *data = simgpu_update(&op, x, n * sizeof *x);
 *       if (simgpu_ready(&op))
 *           for (size_t i = 0; i < n; i++) data[i] *= factor;
 *       return simgpu_end(&op);
 *   }
 *
 * simgpu/README.md, "Environment", lists the variables of the environment (SIMGPU_…).
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include "cuda_runtime_api.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpulog.h"
#include "simgpu_capture.h"

#ifdef __cplusplus
extern "C" {
#endif

// One operation on a stream, from its begin to its end. Lives on the caller's stack.
typedef struct SimgpuOp {
    GpuLogEntry entry;    // what the log will hold
    cudaError_t error;    // the first thing that was wrong with it
    unsigned overwritten; // bit i: the range i of `entry` is simgpu_overwrite's
    bool captured;        // it is a node of a graph now: nothing is done, and nothing checked
} SimgpuOp;

// Begins a kernel called `name` on `stream`. The call site in reports and in the log is the place
// that called the function that uses the macro: the kernel's caller.
//
// So that a graph can launch the kernel again (cudaStreamBeginCapture), it says which function it
// is, and its other arguments, in their order; the stream is its last parameter:
//   SimgpuOp op = SIMGPU_BEGIN("kernel_scale", stream, kernel_scale, x, factor, n);
// They are copied, but not the host memory that a pointer points to. At most 32 are allowed; pass a
// structure s of more than 16 bytes as SIMGPU_STRUCT(s). In C++ a kernel cannot be captured.
#define SIMGPU_BEGIN(name, stream, ...)                                                            \
    (SIMGPU_NOTE(stream, __VA_ARGS__) simgpu_begin((name), (stream), __builtin_return_address(0)))
SimgpuOp simgpu_begin(const char *name, cudaStream_t stream, const void *site);

// Declares that the operation reads, writes, or reads and writes `bytes` bytes at the device
// pointer `ptr`; returns the pointer to use for it. A bad pointer is reported, makes simgpu_ready()
// false and simgpu_end() return cudaErrorIllegalAddress. Zero bytes are always right. In C they are
// macros too, which look at the type of `ptr`: elements must lie at multiples of their alignment,
// or simgpu_end() returns cudaErrorMisalignedAddress.
//
// simgpu_write leaves the bytes as they were: fresh memory holds NaNs, which show what the kernel
// does not write. simgpu_overwrite promises to write all of them, which saves the time to fill in
// NaNs: simgpu puts only some there, at both ends and every 4 KiB.
const void *simgpu_read(SimgpuOp *op, const void *ptr, size_t bytes);
void *simgpu_write(SimgpuOp *op, void *ptr, size_t bytes);
void *simgpu_overwrite(SimgpuOp *op, void *ptr, size_t bytes);
void *simgpu_update(SimgpuOp *op, void *ptr, size_t bytes);

const void *simgpu_read_as(SimgpuOp *op, const void *ptr, size_t bytes, size_t align);
void *simgpu_write_as(SimgpuOp *op, void *ptr, size_t bytes, size_t align);
void *simgpu_overwrite_as(SimgpuOp *op, void *ptr, size_t bytes, size_t align);
void *simgpu_update_as(SimgpuOp *op, void *ptr, size_t bytes, size_t align);
#ifndef __cplusplus
// The alignment of what ptr points to; of void, 1.
#define SIMGPU_ALIGN(ptr)                                                                          \
    __alignof__(_Generic((ptr), void * : (char *)0, const void * : (char *)0, default : (ptr))[0])
#define simgpu_read(op, ptr, bytes) simgpu_read_as((op), (ptr), (bytes), SIMGPU_ALIGN(ptr))
#define simgpu_write(op, ptr, bytes) simgpu_write_as((op), (ptr), (bytes), SIMGPU_ALIGN(ptr))
#define simgpu_overwrite(op, ptr, bytes)                                                           \
    simgpu_overwrite_as((op), (ptr), (bytes), SIMGPU_ALIGN(ptr))
#define simgpu_update(op, ptr, bytes) simgpu_update_as((op), (ptr), (bytes), SIMGPU_ALIGN(ptr))
#endif

// Says what the kernel computes: so many floating-point operations in this arithmetic. On the
// virtual clock (simgpu/pages/time.md) it takes as long as these do, or as its bytes do, if that is
// longer. A kernel without this call is costed only by its bytes.
typedef GpuType SimgpuType;
void simgpu_cost(SimgpuOp *op, uint64_t flops, SimgpuType type);

// Whether the kernel must do its work: all ranges are good, and this is not a dry run.
bool simgpu_ready(const SimgpuOp *op);
cudaError_t simgpu_end(SimgpuOp *op);

// A kernel's work on all threads of this process (SIMGPU_THREADS): the numbers 0 … n - 1 in pieces
// of `grain`, the last of which may be smaller. Calls body(arg, begin, end) for each piece once, on
// any thread, and returns when all are done. One call of body gets all pieces if there is one
// thread or one piece, if another thread's work is in progress, or if a body calls simgpu_parallel.
// Results must not depend on threads, so body computes a piece only from the input, and sums
// nothing across pieces. It may not call CUDA, NCCL, cuBLAS or simgpu's other functions. A piece
// should take some 10 us: a shorter one is done before another thread has started. Each thread
// begins with neighbouring pieces, the same part of the numbers in every call: if kernels divide
// their arrays alike, it finds in its cache what it wrote.
void simgpu_parallel(size_t n, size_t grain, void (*body)(void *arg, size_t begin, size_t end),
                     void *arg);

// What kind of mistake a report is about.
typedef enum SimgpuClass {
    SIMGPU_MISMATCH,         // ranks disagree about a collective: operation, count, type, root …
    SIMGPU_COMM_ORDER,       // two communicators used in different orders on two ranks
    SIMGPU_DEADLOCK,         // a rank that never arrives, or ranks that wait for each other
    SIMGPU_GROUP,            // several devices of one thread without a group; unmatched start, end
    SIMGPU_POINTER,          // null, host instead of device, wrong device, misaligned, outside
    SIMGPU_LIFETIME,         // use after free, double free, use before a stream-ordered allocation
    SIMGPU_UNINITIALISED,    // uninitialised bytes read
    SIMGPU_RACE,             // two operations on the same bytes that no order of streams separates
    SIMGPU_HOST_RACE,        // host memory touched, or a result read, while a copy is under way
    SIMGPU_OVERLAP,          // buffers that overlap beyond what an in-place call allows
    SIMGPU_LEAK,             // memory, streams, events, communicators alive at the end
    SIMGPU_HOST_DEREFERENCE, // host code that reads or writes a device pointer
    SIMGPU_CALL,             // a call that its own arguments make wrong
    SIMGPU_CAPTURE,          // what a capture of a stream, or a launch of its graph, does not allow
    SIMGPU_NO_MEMORY,        // no mistake: a device is full
    SIMGPU_SYSTEM,           // no mistake of the program's: the machine or the settings
    SIMGPU_CLASSES
} SimgpuClass;
// "race between streams": a class in words.
const char *simgpu_class_name(SimgpuClass kind);

typedef struct SimgpuReport {
    SimgpuClass kind;
    const char *title; // one line
    const char *text;  // the whole block, as it is printed
    int rank, device;  // rank: -1 where there is no communicator yet
    bool follows;      // not the process's first: counted, and not printed
    const char *json;  // the report as an object of one line, as in SIMGPU_REPORT's file
} SimgpuReport;

// Called with every report, printed or counted, before a fatal one ends the process. One hook per
// process; NULL removes it.
typedef void (*SimgpuReportHook)(const SimgpuReport *report, void *arg);
void simgpu_on_report(SimgpuReportHook hook, void *arg);

// Tells simgpu of threads of this process that will never join or call a collective: +1 when one
// has begun, -1 when it has ended. Any other thread that lives may still make the call for which
// others wait, so simgpu cannot be certain of a deadlock.
void simgpu_helper_threads(int change);

// For a launcher, in a process that it has just forked: exit runs what this process registers from
// now on and simgpu's own end, flushes stdio, and leaves out the handlers and the destructors that
// were there before, which belong to the parent. Without effect under a sanitizer.
void simgpu_quick_end(void);

// Sums inputs[0] … inputs[n-1] (count floats each, host memory), bitwise as a collective over n
// ranks does: out[i] = tree(x0 … xn-1), where a tree of more than one splits at the largest power
// of two below n. out may be one of the inputs.
void simgpu_tree_sum(float *out, const float *const *inputs, int n, size_t count);

// Bytes of pinned host memory that this process has now, as requested: cudaMallocHost's,
// cudaHostAlloc's, and what cudaHostRegister pinned.
size_t simgpu_pinned_bytes(void);

// Bytes of the main thread's heap that simgpu now uses for its own records, with malloc's overhead;
// the rest of a program's host memory is the program's own. 0 if they are not counted.
int64_t simgpu_host_bytes(void);

// Exit status of a process that a fatal report ended.
#define SIMGPU_FATAL_EXIT 86

#ifdef __cplusplus
}
#endif
#endif
