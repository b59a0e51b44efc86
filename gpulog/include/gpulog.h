/* gpulog.h: what a process did on its GPUs: memory held, traffic, and a log of every operation.
 *
 * simgpu writes the log on simulated GPUs, an interposer on real ones, so that one test suite
 * asserts the same figures on both. All figures are the calling process's own.
 * gpulog/interpose/config.c lists the interposer's settings (GPULOG_MEMORY and others).
 */
#ifndef GPULOG_H
#define GPULOG_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpulog_collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPULOG_OP(op, ...) op,
typedef enum GpuOp {
    GPU_ALLOC,  // cudaMalloc, cudaMallocAsync: range 0 is the new allocation, written
    GPU_FREE,   // cudaFree, cudaFreeAsync: range 0 is the allocation, written
    GPU_COPY,   // cudaMemcpy*: range 0 written, range 1 read
    GPU_MEMSET, // cudaMemset*: range 0 written
    GPU_KERNEL, // a kernel
    GPU_BLAS,   // a cuBLAS call
    // GPU_ALL_GATHER … GPU_RECV, calls of NCCL (gpulog_is_collective): range 0 read (send), range 1
    // written (receive)
    GPULOG_COLLECTIVES(GPULOG_OP) GPU_EVENT_RECORD, // cudaEventRecord(event, stream)
    GPU_STREAM_WAIT,                                // cudaStreamWaitEvent(stream, event)
    GPU_STREAM_SYNC,                                // the host waited for a stream
    GPU_EVENT_SYNC,                                 // the host waited for an event
    GPU_DEVICE_SYNC,                                // the host waited for a device
    GPU_GRAPH_LAUNCH,                               // cudaGraphLaunch
    GPU_OP_KINDS
} GpuOp;

typedef enum GpuAccess { GPU_READ = 1, GPU_WRITE = 2, GPU_UPDATE = 3 } GpuAccess;

typedef struct GpuRange {
    const void *ptr; // as the program sees it
    size_t bytes;
    GpuAccess access;
} GpuRange;

// Number formats, as far as they change the speed of arithmetic.
typedef enum GpuType {
    GPU_F64,
    GPU_F32,
    GPU_TF32, // floats, rounded by tensor cores
    GPU_BF16, // fp16 too
    GPU_FP8,
} GpuType;

// The place of an NCCL call among those of all ranks. `comm` 0: the entry is not such a call.
typedef struct GpuCollective {
    uint64_t comm;    // the same number on all ranks of the communicator, and on no other
    uint64_t call;    // 1, 2 … among the communicator's collectives, or among the messages to
                      // or from the peer
    uint64_t group;   // the same number for all calls of one ncclGroup; 0: not in a group
    int group_left;   // calls of the group that come after this one
    int ranks, rank;  // of the communicator
    int peer;         // the other rank of a message; else -1
    int nodes;        // how many nodes its ranks are on; 0: not known
    bool in_progress; // the call returned before the other ranks came (non-blocking communicator)
} GpuCollective;

// A cuBLAS product: `batch` times (rows, inner) by (inner, cols). batch 0: not a product.
typedef struct GpuProduct {
    uint64_t rows, cols, inner, batch;
} GpuProduct;

// The purpose of device memory, in a trace. Memory without a category is temporary.
typedef enum GpuCategory {
    GPU_TEMPORARY,
    GPU_SHARDED_PARAM,
    GPU_UNSHARDED_PARAM,
    GPU_SHARDED_GRAD,
    GPU_UNSHARDED_GRAD,
    GPU_ACTIVATION,
    GPU_OPTIMIZER_STATE,
    GPU_COMMUNICATION, // other buffers of collectives
    GPU_CATEGORIES
} GpuCategory;

#define GPULOG_HOST (-1) // in place of a device number: host memory
#define GPULOG_RANGES 12
typedef struct GpuLogEntry {
    uint64_t index; // 0, 1, 2 … since the process began
    GpuOp op;
    const char *name; // "cudaMallocAsync", "kernel_gelu_forward" …: a string that lives forever
    int device;
    cudaStream_t stream;
    cudaEvent_t event;    // GPU_EVENT_*, GPU_STREAM_WAIT
    bool blocking_stream; // false for a stream made with cudaStreamNonBlocking, and for cudaMalloc,
                          // which uses no stream
    bool host_waits;  // the call returns only when the operation is done (cudaMemcpy, cudaMalloc;
                      // cudaFree, which waits for the whole device first …)
    size_t bytes;     // collectives: as nccl-tests' "size"; copies, allocations: bytes
    size_t sent;      // collectives: bytes this rank must send over the wire (see gpulog_traffic)
    const void *site; // call site, for gpulog_where
    bool pool;        // allocations and frees: the memory is cudaMallocAsync's
    int thread;       // the caller: 0 is the process's first thread, others count by first call
    uint32_t stream_number;          // 1, 2 … in the order in which the process made its streams
    int to, from;                    // copies: the memory's device, or GPULOG_HOST
    GpuCollective collective;        // calls of NCCL
    GpuProduct product;              // cuBLAS
    uint64_t flops;                  // kernels, cuBLAS: if the call declares them
    GpuType type;                    // … in this arithmetic
    GpuCategory category;            // GPU_FREE: what the memory was for
    const struct GpuLogScope *scope; // simgpu's: the NVTX range of the call; NULL: none
    uint64_t launch; // the graph launch that did it: 1, 2 … of the process; 0: none
    int n_ranges;
    GpuRange range[GPULOG_RANGES];
} GpuLogEntry;

// Device memory as requested, before any rounding.
size_t gpulog_live_bytes(int device);
size_t gpulog_peak_bytes(int device);
void gpulog_reset_peak(int device); // sets the peak to the bytes that are live now

// Traffic of one kind of collective since the last reset. `sent` is what the bandwidth-optimal ring
// makes every rank send, in bytes, with S = bytes of one rank's shard and M = bytes of a whole
// message: all-gather and reduce-scatter (W-1)·S, all-reduce 2·(W-1)/W·M, broadcast and reduce M on
// every rank but the last of the chain, send M, receive 0. For W = 1 it is 0.
// Source: nccl-tests, doc/PERFORMANCE.md (bus bandwidth).
typedef struct GpuTraffic {
    uint64_t calls;
    uint64_t bytes;
    uint64_t sent;
} GpuTraffic;
GpuTraffic gpulog_traffic(GpuOp op);
void gpulog_reset_traffic(void);

// The number of operations logged so far, and one of them. False: the index is not in the log (not
// yet, or overwritten).
uint64_t gpulog_length(void);
bool gpulog_get(uint64_t index, GpuLogEntry *entry);

// Resolves a call site (an entry's, or a return address): "forward.c:88 (fsdp_unshard)", or the
// address if nothing is known of it. An entry's site knows the outer callers, too: the text names
// the nearest line of the program's own code (gpulog_own_code), else the nearest line with debug
// information.
void gpulog_where(const void *site, char *text, size_t size);
// The text of that line without blanks at its ends: "cudaMalloc((void **)&x, bytes);". False, and
// "": the source file cannot be read, or was edited after the program was built.
bool gpulog_source(const void *site, char *text, size_t size);

// Declares the source file of `function` as the program's own, not a library's: (const void *)main.
// If a call from that file leads to an operation, however indirectly, reports name the call's line.
// Up to 32 files; NULL is ignored.
void gpulog_own_code(const void *function);

// Names the allocation that begins at ptr for reports: "gradient of h.3.attn". The name ends when
// the memory is allocated again. Without a name, reports use the variable that stores the result in
// the source line of the allocating call.
void gpulog_name(const void *ptr, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Names a stream for reports, as the program's source does: "ctx->all_gather_stream". The name ends
// when the stream is destroyed. The default stream keeps its own.
void gpulog_name_stream(cudaStream_t stream, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Describes bytes [begin, end) of the allocation of `bytes` bytes at ptr for a report: "element 10
// of h.0, padding"; false: nothing is known. Reports call it, perhaps in a signal handler: it may
// compare and print, but must not allocate, wait or call the device. One per process; NULL removes
// it.
typedef bool (*GpuElements)(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                            size_t size, void *arg);
void gpulog_name_elements(GpuElements elements, void *arg);

// Sets the category of the allocation that holds ptr, for its whole life; the last call counts. It
// is ignored if no live allocation holds ptr. The second function returns the category.
void gpulog_category(const void *ptr, GpuCategory category);
GpuCategory gpulog_category_of(const void *ptr);
const char *gpulog_category_name(GpuCategory category); // "sharded parameters"

// Alternatively, a program that keeps its buffers in tables can give a function, which is called
// with each operand of a collective before that is logged. GPU_TEMPORARY: no answer. It may
// compare, but must not call the device. One per process; NULL removes it.
typedef GpuCategory (*GpuCategoryOf)(const void *ptr, void *arg);
void gpulog_categories(GpuCategoryOf of, void *arg);

// One line on what this process does on its devices now, or did last: "waiting in
// cudaStreamSynchronize at forward.c:88 (fsdp_unshard)". For the message of a time limit: it waits
// for no lock, so that a signal handler may call it.
void gpulog_activity(char *text, size_t size);

// Logs a kernel on a real GPU; its launcher calls this after a successful launch. `site` is the
// launcher's return address, `name` lives forever. (A kernel for the simulated GPU logs through
// simgpu.h.)
void gpulog_kernel(const char *name, cudaStream_t stream, const void *site, int n_ranges,
                   const GpuRange *ranges);

// The name of a kind of operation: "all-gather".
const char *gpulog_op_name(GpuOp op);
// Whether it is an NCCL call that moves data: a collective or a message.
bool gpulog_is_collective(GpuOp op);

#ifdef __cplusplus
}
#endif
#endif
