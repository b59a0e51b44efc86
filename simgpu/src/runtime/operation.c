/* operation.c: one operation on a stream, from its begin to its end.
 *
 * Kernels, copies, BLAS calls and collectives all use it: begin finds the stream and what is
 * ordered before the operation, touch checks one range of bytes and gives the address to use, end
 * advances the clocks and writes the log. sim_touch also checks for races (check/race.c): there the
 * clock of the operation's stream covers all that is ordered before it, and the range is known.
 *
 * Interface: operation.h; simgpu.h: simgpu_begin, simgpu_read … simgpu_update and the same with
 * _as, simgpu_cost, simgpu_ready, simgpu_end.
 */
#include <string.h>

#include "check/check.h"
#include "core/config.h"
#include "core/error.h"
#include "memory/allocation.h"
#include "memory/contents.h"
#include "memory/dry.h"
#include "memory/pinned.h"
#include "memory/place.h"
#include "report/report.h"
#include "runtime/noted.h"
#include "runtime/operation.h"
#include "streams/graph.h"
#include "streams/streams.h"
#include "time/time.h"

SimgpuOp sim_begin(GpuOp kind, const char *name, cudaStream_t stream, const void *site)
{
    SimgpuOp op;
    if (sim_launching.stream) stream = sim_launching.stream;
    if (sim_launching.site) site = sim_launching.site;
    memset(&op.entry, 0, offsetof(GpuLogEntry, range));
    op.entry.op = kind;
    op.entry.name = name;
    op.entry.device = sim_current_device();
    op.entry.stream = stream;
    op.entry.blocking_stream = true;
    op.entry.site = site;
    op.entry.to = op.entry.from = GPULOG_HOST;
    op.entry.launch = sim_launching.launch;
    op.overwritten = 0;
    op.captured = false;
    op.error = sim_enter(name, op.entry.device);
    if (op.error == cudaErrorNotPermitted) sim_tell_not_permitted(name, site);
    if (op.error == cudaSuccess) op.error = sim_stream_begin(&op);
    return op;
}

// A kernel must run on its stream's device; copies and collectives take any stream.
static void check_device(SimgpuOp *op)
{
    int current = sim_current_device();
    if (op->error != cudaSuccess || op->entry.device == current) return;
    char where[256];
    gpulog_where(op->entry.site, where, sizeof where);
    sim_facts_call(op->entry.name, op->entry.site, op->entry.stream);
    sim_report(SIMGPU_POINTER, "a kernel on another device's stream",
               "%s, called at %s,\n"
               "runs on a stream of device %d while device %d is current.\n"
               "On a GPU the launch fails with \"invalid resource handle\".\n"
               "Is a cudaSetDevice(%d) missing before it, or was a stream of device %d meant?",
               op->entry.name, where, op->entry.device, current, op->entry.device, current);
    op->error = cudaErrorInvalidResourceHandle;
}

SimgpuOp simgpu_begin(const char *name, cudaStream_t stream, const void *site)
{
    if (sim_hold_node && sim_hold_kernel(name, stream, gpulog_site_above(site)))
        return (SimgpuOp){.captured = true};
    SimgpuOp op = sim_begin(GPU_KERNEL, name, stream, gpulog_site_above(site));
    check_device(&op);
    if (op.captured)
        sim_capture_noted(&op, cudaGraphNodeTypeKernel);
    else if (simgpu_captures)
        simgpu_note_call(NULL, 0, NULL); // it is not the call of a later operation
    return op;
}

// Describes a host pointer that a kernel was given.
static void report_host_pointer(const SimgpuOp *op, const void *ptr, size_t bytes, bool pinned)
{
    char where[256];
    gpulog_where(op->entry.site, where, sizeof where);
    sim_facts_call(op->entry.name, op->entry.site, op->entry.stream);
    sim_facts_range(ptr, bytes);
    if (pinned)
        sim_report(SIMGPU_POINTER, "a range runs past the end of pinned host memory",
                   "%s, called at %s,\n"
                   "uses %zu bytes at %p, more than the pinned memory there holds.\n"
                   "On a GPU this is an illegal memory access, or wrong data without an error.\n"
                   "Is the count in bytes, and the offset right?",
                   op->entry.name, where, bytes, ptr);
    else if (!ptr)
        sim_report(SIMGPU_POINTER, "a null pointer where device memory is needed",
                   "%s, called at %s,\nuses %zu bytes at NULL.\n"
                   "On a GPU this is an illegal memory access, and every call after it fails.\n"
                   "Was the buffer never allocated, or already freed (resharded, set to NULL)?",
                   op->entry.name, where, bytes);
    else
        sim_report(SIMGPU_POINTER, "a host pointer where device memory is needed",
                   "%s, called at %s,\nuses %zu bytes at %p, which no device allocation holds.\n"
                   "On a GPU this is an illegal memory access, and every call after it fails.\n"
                   "Is it from malloc, the stack, or a pointer whose cudaMalloc was never made?",
                   op->entry.name, where, bytes, ptr);
}

static void add_range(GpuLogEntry *entry, const void *ptr, size_t bytes, GpuAccess access)
{
    // All ranges of an operation are checked; the log has room for the first ones.
    if (entry->n_ranges < GPULOG_RANGES)
        entry->range[entry->n_ranges++] = (GpuRange){ptr, bytes, access};
}

// A copy or a memset is refused by its call, which knows all allocations. A kernel faults when it
// runs; then the program has lost the device, and the error is sticky.
static void refuse(SimgpuOp *op)
{
    bool by_call = op->entry.op == GPU_COPY || op->entry.op == GPU_MEMSET;
    op->error = by_call ? cudaErrorInvalidValue : cudaErrorIllegalAddress;
    if (!by_call) sim_stick(op->error);
}

// Copies and collectives reach every device; a kernel reaches another one only if access is
// enabled.
static bool reaches(SimgpuOp *op, const SimDevice *device, const void *ptr)
{
    bool kernel = op->entry.op == GPU_KERNEL || op->entry.op == GPU_BLAS;
    if (!kernel || sim_peer_allowed(op->entry.device, device->index)) return true;
    if (sim_managed(ptr)) return true; // it migrates to where it is used
    char where[256];
    gpulog_where(op->entry.site, where, sizeof where);
    sim_facts_call(op->entry.name, op->entry.site, op->entry.stream);
    sim_facts_range(ptr, 0);
    sim_report(SIMGPU_POINTER, "a kernel uses another device's memory",
               "%s, called at %s,\nruns on device %d and was given memory of device %d.\n"
               "On a GPU this is an illegal memory access, and every call after it fails.\n"
               "Was cudaSetDevice forgotten before cudaMalloc? Where it is meant,\n"
               "cudaDeviceEnablePeerAccess allows it.",
               op->entry.name, where, op->entry.device, device->index);
    refuse(op);
    return false;
}

static void *touch_device(SimgpuOp *op, const SimDevice *device, const void *ptr, size_t bytes,
                          GpuAccess access, SimUse use)
{
    if (!reaches(op, device, ptr)) return NULL;
    void *usable = sim_use_bytes(ptr, bytes, access, use, op->entry.name, op->entry.site);
    if (!usable) refuse(op);
    return usable;
}

static void *touch_host(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok)
{
    const char *verb = access == GPU_READ ? "reads" : "writes";
    bool inside = false;
    bool pinned = sim_pinned(ptr, bytes, &inside);
    if (pinned && inside) return sim_pinned_use(ptr, bytes);
    if (!pinned && !sim_pinned_check_gone(op->entry.name, ptr, bytes, verb, op->entry.site)) {
        refuse(op);
        return NULL;
    }
    if (ptr && host_ok && !pinned) return (void *)ptr;
    report_host_pointer(op, ptr, bytes, pinned);
    refuse(op);
    return NULL;
}

static void *touch(SimgpuOp *op, GpuRange logged, const SimShape *shape, GpuAccess access,
                   bool host_ok, SimUse use)
{
    if (op->error != cudaSuccess || op->captured) return NULL;
    const void *ptr = logged.ptr;
    size_t offset, bytes = logged.bytes;
    void *usable = (void *)ptr;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (device) {
        if (bytes > 0)
            usable = touch_device(op, device, ptr, bytes, access, use);
        else
            usable = device->alias + offset;
    } else if (bytes > 0) {
        usable = touch_host(op, ptr, bytes, access, host_ok);
    }
    if (op->error != cudaSuccess) return usable;
    if (bytes > 0 && sim_config()->check == CHECK_FULL) sim_race_touch(op, ptr, shape, access);
    if (access != GPU_READ && sim_dry()) sim_dry_forget(ptr, bytes);
    add_range(&op->entry, ptr, bytes, logged.access);
    return usable;
}

void *sim_touch_shape(SimgpuOp *op, GpuRange logged, const SimShape *shape, GpuAccess access,
                      bool host_ok)
{
    return touch(op, logged, shape, access, host_ok, USE_ANY);
}

const void *sim_touch_read_only(SimgpuOp *op, GpuRange range, const SimShape *shape)
{
    return touch(op, range, shape, GPU_READ, false, USE_READ);
}

void *sim_touch_overwrite(SimgpuOp *op, GpuRange range, bool host_ok)
{
    SimShape shape = sim_plain_shape(range.bytes);
    return touch(op, range, &shape, range.access, host_ok, USE_OVERWRITE);
}

void *sim_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok)
{
    SimShape shape = sim_plain_shape(bytes);
    return sim_touch_shape(op, (GpuRange){ptr, bytes, access}, &shape, access, host_ok);
}

const void *(simgpu_read)(SimgpuOp *op, const void *ptr, size_t bytes)
{
    return sim_touch(op, ptr, bytes, GPU_READ, false);
}

void *(simgpu_write)(SimgpuOp *op, void *ptr, size_t bytes)
{
    return sim_touch(op, ptr, bytes, GPU_WRITE, false);
}

// What the range owes is not cancelled before simgpu_ready: later ranges of the operation may read
// it.
void *(simgpu_overwrite)(SimgpuOp *op, void *ptr, size_t bytes)
{
    int i = op->entry.n_ranges;
    if (i == GPULOG_RANGES) return (simgpu_write)(op, ptr, bytes);
    void *usable = sim_touch_overwrite(op, (GpuRange){ptr, bytes, GPU_WRITE}, false);
    if (op->error == cudaSuccess) op->overwritten |= 1u << i;
    return usable;
}

void *(simgpu_update)(SimgpuOp *op, void *ptr, size_t bytes)
{
    return sim_touch(op, ptr, bytes, GPU_UPDATE, false);
}

const void *simgpu_read_as(SimgpuOp *op, const void *ptr, size_t bytes, size_t align)
{
    return sim_check_aligned(op, ptr, bytes, align) ? (simgpu_read)(op, ptr, bytes) : NULL;
}

void *simgpu_write_as(SimgpuOp *op, void *ptr, size_t bytes, size_t align)
{
    return sim_check_aligned(op, ptr, bytes, align) ? (simgpu_write)(op, ptr, bytes) : NULL;
}

void *simgpu_overwrite_as(SimgpuOp *op, void *ptr, size_t bytes, size_t align)
{
    return sim_check_aligned(op, ptr, bytes, align) ? (simgpu_overwrite)(op, ptr, bytes) : NULL;
}

void *simgpu_update_as(SimgpuOp *op, void *ptr, size_t bytes, size_t align)
{
    return sim_check_aligned(op, ptr, bytes, align) ? (simgpu_update)(op, ptr, bytes) : NULL;
}

void simgpu_cost(SimgpuOp *op, uint64_t flops, SimgpuType type)
{
    op->entry.flops = flops;
    op->entry.type = type;
}

// Whether the operation is to be executed.
bool simgpu_ready(const SimgpuOp *op)
{
    if (op->error != cudaSuccess || op->captured || sim_dry()) return false;
    for (int i = 0; op->overwritten >> i; i++)
        if (op->overwritten >> i & 1)
            sim_promised(op->entry.range[i].ptr, op->entry.range[i].bytes);
    return true;
}

// An operation that failed after a touch still has its place on the stream.
static cudaError_t give_up(SimgpuOp *op)
{
    op->entry.host_waits = false;
    if (op->entry.n_ranges > 0) sim_stream_ran(op);
    return sim_leave(op->error);
}

// For the host, a kernel that uses pinned memory is under way, like a copy.
static void watch_host(const SimgpuOp *op)
{
    bool kernel = op->entry.op == GPU_KERNEL || op->entry.op == GPU_BLAS;
    if (!kernel || op->entry.host_waits || sim_config()->check != CHECK_FULL) return;
    for (int i = 0; i < op->entry.n_ranges; i++) {
        const GpuRange *r = &op->entry.range[i];
        size_t offset;
        if (r->bytes > 0 && !sim_device_of(r->ptr, &offset))
            sim_pinned_watch(op, sim_op_place(op), r->ptr, r->bytes, r->bytes, 1, r->access);
    }
}

cudaError_t simgpu_end(SimgpuOp *op)
{
    if (op->error != cudaSuccess) return give_up(op);
    if (op->captured) return cudaSuccess;
    watch_host(op);
    sim_check_overlap(op);
    sim_stream_ran(op);
    sim_clock_log(&op->entry);
    return cudaSuccess;
}

cudaError_t sim_end_begun(SimgpuOp *op)
{
    if (op->error != cudaSuccess) return give_up(op);
    sim_check_overlap(op);
    bool waits = op->entry.host_waits;
    sim_stream_begun(op);
    op->entry.host_waits = false;
    sim_stream_ran(op);
    op->entry.host_waits = waits;
    sim_clock_log(&op->entry);
    return cudaSuccess;
}
