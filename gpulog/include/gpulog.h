/* gpulog.h: what a process did on its GPUs: memory held, traffic, and a log of every operation.
 *
 * simgpu keeps it for itself; on real GPUs an interposer keeps the same log, so that one test
 * suite asserts the same figures on both. Everything here is about the calling process alone. The
 * interposer's settings (GPULOG_MEMORY and others) are listed in gpulog/interpose/config.c.
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

// The formats of numbers, as far as they make arithmetic faster or slower.
typedef enum GpuType {
    GPU_F64,
    GPU_F32,
    GPU_TF32, // floats, rounded by tensor cores
    GPU_BF16, // fp16 too
    GPU_FP8,
} GpuType;

// What a call of NCCL is, among the calls of all ranks. `comm` 0: the entry is none.
typedef struct GpuCollective {
    uint64_t comm;    // the communicator: the same number on all its ranks, and on no other's
    uint64_t call;    // 1, 2 …: of the communicator's collectives, or of the messages to or from
                      // the peer
    uint64_t group;   // calls of one ncclGroup have the same number; 0: it was called by itself
    int group_left;   // so many calls of the group come after it
    int ranks, rank;  // of the communicator
    int peer;         // of a message; else -1
    int nodes;        // on which its ranks are, as far as that is known; 0: it is not
    bool in_progress; // the call returned before the other ranks came: a communicator that does not
                      // block
} GpuCollective;

// What cuBLAS multiplies: `batch` times (rows, inner) by (inner, cols). batch 0: it is no product.
typedef struct GpuProduct {
    uint64_t rows, cols, inner, batch;
} GpuProduct;

// What memory of a device is for, in a trace. What nobody has said of is temporary.
typedef enum GpuCategory {
    GPU_TEMPORARY,
    GPU_SHARDED_PARAM,
    GPU_UNSHARDED_PARAM,
    GPU_SHARDED_GRAD,
    GPU_UNSHARDED_GRAD,
    GPU_ACTIVATION,
    GPU_OPTIMIZER_STATE,
    GPU_COMMUNICATION, // buffers of collectives that are none of the above
    GPU_CATEGORIES
} GpuCategory;

#define GPULOG_HOST (-1) // in place of a device: memory of the host
#define GPULOG_RANGES 12
typedef struct GpuLogEntry {
    uint64_t index; // 0, 1, 2 … since the process began
    GpuOp op;
    const char *name; // "cudaMallocAsync", "kernel_gelu_forward" …: a string that lives forever
    int device;
    cudaStream_t stream;
    cudaEvent_t event;    // GPU_EVENT_*, GPU_STREAM_WAIT
    bool blocking_stream; // false for a stream made with cudaStreamNonBlocking, and for cudaMalloc,
                          // which no stream takes part in
    bool host_waits;  // the call returns only when the operation is done (cudaMemcpy, cudaMalloc;
                      // cudaFree, which waits for the whole device first …)
    size_t bytes;     // collectives: as nccl-tests' "size"; copies, allocations: bytes
    size_t sent;      // collectives: bytes this rank must send over the wire (see gpulog_traffic)
    const void *site; // call site, for gpulog_where
    bool pool;        // allocations and frees: the memory is cudaMallocAsync's
    int thread;       // that called: 0 is the process's first, the others by their first call
    uint32_t stream_number;          // by the order in which the process made its streams: 1, 2 …
    int to, from;                    // copies: whose memory, a device's or GPULOG_HOST
    GpuCollective collective;        // calls of NCCL
    GpuProduct product;              // cuBLAS
    uint64_t flops;                  // kernels, cuBLAS: as far as they say so
    GpuType type;                    // … in this arithmetic
    GpuCategory category;            // GPU_FREE: what the memory was for
    const struct GpuLogScope *scope; // simgpu's: the NVTX range of the call; NULL: none
    uint64_t launch; // the launch of a graph, 1, 2 … of the process, that did it; 0: none did
    int n_ranges;
    GpuRange range[GPULOG_RANGES];
} GpuLogEntry;

// Device memory as requested, before any rounding.
size_t gpulog_live_bytes(int device);
size_t gpulog_peak_bytes(int device);
void gpulog_reset_peak(int device); // the peak is the live bytes from here on

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

// Operations logged so far, and one of them; false where the index is not there (not yet, or so
// long ago that the log has let it go).
uint64_t gpulog_length(void);
bool gpulog_get(uint64_t index, GpuLogEntry *entry);

// Resolves a call site, which is an entry's or a return address: "forward.c:88 (fsdp_unshard)", or
// the address where nothing is known of it. An entry's knows what called the caller, too: named is
// the nearest line of the program's own code (gpulog_own_code), else the nearest line that the
// debug information has.
void gpulog_where(const void *site, char *text, size_t size);
// The text of that line, without the blanks at its ends: "cudaMalloc((void **)&x, bytes);". False,
// and "", where the source file cannot be read or was edited since the program was built.
bool gpulog_source(const void *site, char *text, size_t size);

// Says that the source file which holds `function` is the program's own, as opposed to a library
// that it calls: (const void *)main. Where an operation was asked for by a call from that file,
// however indirectly, reports name its line. Up to 32 files; NULL is ignored.
void gpulog_own_code(const void *function);

// Names the allocation that begins at ptr for reports: "gradient of h.3.attn". The name goes when
// the memory is given to somebody else. Without one, reports use the variable that the line of the
// allocating call stores it in.
void gpulog_name(const void *ptr, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Names a stream for reports, as the program's source does: "ctx->all_gather_stream". The name goes
// when the stream is destroyed. The default stream keeps its own.
void gpulog_name_stream(cudaStream_t stream, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// What the program knows of bytes [begin, end) of the allocation of `bytes` bytes at ptr, for a
// report: "element 10 of h.0, padding"; false: nothing. It is called while a report is written,
// perhaps in a signal handler: it may compare and print, and must not allocate, wait or make calls
// of a device. One per process; NULL takes it away.
typedef bool (*GpuElements)(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                            size_t size, void *arg);
void gpulog_name_elements(GpuElements elements, void *arg);

// Says what the allocation that holds ptr is for; the last word counts, for all of its life. Of
// what is no live allocation it is ignored. And what has been said of it.
void gpulog_category(const void *ptr, GpuCategory category);
GpuCategory gpulog_category_of(const void *ptr);
const char *gpulog_category_name(GpuCategory category); // "sharded parameters"

// Where a program keeps its buffers in tables, it may be asked instead: with each operand of every
// collective, before that is logged. GPU_TEMPORARY: nothing to say. It may compare, and must not
// make calls of a device. One per process; NULL takes it away.
typedef GpuCategory (*GpuCategoryOf)(const void *ptr, void *arg);
void gpulog_categories(GpuCategoryOf of, void *arg);

// What this process does on its devices now, or did last, in one line: "waiting in
// cudaStreamSynchronize at forward.c:88 (fsdp_unshard)". For a time limit's message: it waits for
// no lock, so that a signal handler may call it.
void gpulog_activity(char *text, size_t size);

// For the launcher of a kernel on a real GPU, after a launch that worked: notes it in the log.
// `site` is the launcher's return address, `name` lives forever. (A kernel for the simulated GPU
// says the same through simgpu.h.)
void gpulog_kernel(const char *name, cudaStream_t stream, const void *site, int n_ranges,
                   const GpuRange *ranges);

// The words for an operation kind: "all-gather".
const char *gpulog_op_name(GpuOp op);
// Whether it is a collective or a message: a call of NCCL that moves data.
bool gpulog_is_collective(GpuOp op);

#ifdef __cplusplus
}
#endif
#endif
