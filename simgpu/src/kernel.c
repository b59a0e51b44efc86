/* kernel.c: one operation on a stream, from its begin to its end.
 *
 * Kernels, copies, BLAS calls and collectives all go through here: begin finds the stream and what
 * is ordered before the operation, touch checks one range of bytes and gives the address to use,
 * end moves the clocks on and writes the log. A checker of races belongs in sim_touch: there the
 * operation's stream holds the clock of all that is ordered before it, and the range is known.
 *
 * Interface: simgpu_begin, sim_begin, simgpu_read, simgpu_write, simgpu_update, sim_touch,
 * simgpu_ready, simgpu_end.
 */
#include "internal.h"

SimgpuOp sim_begin(GpuOp kind, const char *name, cudaStream_t stream, const void *site)
{
    SimgpuOp op;
    op.entry.index = 0;
    op.entry.op = kind;
    op.entry.name = name;
    op.entry.device = sim_current_device();
    op.entry.stream = stream;
    op.entry.event = NULL;
    op.entry.blocking_stream = true;
    op.entry.host_waits = false;
    op.entry.bytes = op.entry.sent = 0;
    op.entry.site = site;
    op.entry.n_ranges = 0;
    op.error = sim_enter();
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
    sim_report(SIMGPU_POINTER, "a kernel on another device's stream",
               "%s was launched at %s\n"
               "on a stream of device %d while device %d is current. A GPU refuses this.\n"
               "Call cudaSetDevice(%d) before it, or use a stream made on device %d.",
               op->entry.name, where, op->entry.device, current, op->entry.device, current);
    op->error = cudaErrorInvalidResourceHandle;
}

SimgpuOp simgpu_begin(const char *name, cudaStream_t stream, const void *site)
{
    SimgpuOp op = sim_begin(GPU_KERNEL, name, stream, site);
    check_device(&op);
    return op;
}

// Which words describe a host pointer that a kernel was given.
static void report_host_pointer(const SimgpuOp *op, const void *ptr, size_t bytes, bool pinned)
{
    char where[256];
    gpulog_where(op->entry.site, where, sizeof where);
    if (pinned)
        sim_report(
            SIMGPU_POINTER, "a range runs past the end of pinned host memory",
            "%s, called at %s,\nuses %zu bytes at %p, more than the pinned memory there holds.",
            op->entry.name, where, bytes, ptr);
    else if (!ptr)
        sim_report(SIMGPU_POINTER, "a null pointer where device memory is due",
                   "%s, called at %s,\nuses %zu bytes at NULL.\n"
                   "Was the buffer never allocated, or already let go (resharded, set to NULL)?",
                   op->entry.name, where, bytes);
    else
        sim_report(
            SIMGPU_POINTER, "a host pointer where device memory is due",
            "%s, called at %s,\nuses %zu bytes at %p, which no device allocation holds.\n"
            "On a GPU this is an illegal memory access. Is it from malloc, the stack, or a "
            "pointer\n"
            "whose cudaMalloc was never made? Allocate it with cudaMalloc and copy the data there.",
            op->entry.name, where, bytes, ptr);
}

static void add_range(GpuLogEntry *entry, const void *ptr, size_t bytes, GpuAccess access)
{
    // An operation with more ranges is checked all the same; the log holds the first ones.
    if (entry->n_ranges < GPULOG_RANGES)
        entry->range[entry->n_ranges++] = (GpuRange){ptr, bytes, access};
}

// A copy or a memset is refused by its call, which knows all allocations. A kernel faults when it
// runs; then the device is lost to the program, and the error stays.
static void refuse(SimgpuOp *op)
{
    bool by_call = op->entry.op == GPU_COPY || op->entry.op == GPU_MEMSET;
    op->error = by_call ? cudaErrorInvalidValue : cudaErrorIllegalAddress;
    if (!by_call) sim_stick(op->error);
}

// Copies and collectives reach every device; a kernel reaches another one only when told so.
static bool reaches(SimgpuOp *op, const SimDevice *device)
{
    bool kernel = op->entry.op == GPU_KERNEL || op->entry.op == GPU_BLAS;
    if (!kernel || sim_peer_allowed(op->entry.device, device->index)) return true;
    char where[256];
    gpulog_where(op->entry.site, where, sizeof where);
    sim_report(SIMGPU_POINTER, "a kernel uses another device's memory",
               "%s, called at %s,\nruns on device %d and was given memory of device %d.\n"
               "On a GPU this is an illegal memory access. Was cudaSetDevice forgotten before "
               "cudaMalloc?\n"
               "cudaDeviceEnablePeerAccess allows it where it is meant.",
               op->entry.name, where, op->entry.device, device->index);
    refuse(op);
    return false;
}

static void *touch_device(SimgpuOp *op, const SimDevice *device, const void *ptr, size_t bytes,
                          GpuAccess access)
{
    if (!reaches(op, device)) return NULL;
    void *usable = sim_check_range(ptr, bytes, access, op->entry.name, op->entry.site);
    if (!usable) refuse(op);
    return usable;
}

static void *touch_host(SimgpuOp *op, const void *ptr, size_t bytes, bool host_ok)
{
    bool inside = false;
    bool pinned = sim_pinned(ptr, bytes, &inside);
    if (pinned && inside) {
        sim_pinned_deliver_range(ptr, bytes);
        return (void *)ptr;
    }
    if (ptr && host_ok && !pinned) return (void *)ptr;
    report_host_pointer(op, ptr, bytes, pinned);
    refuse(op);
    return NULL;
}

void *sim_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok)
{
    if (op->error != cudaSuccess) return NULL;
    size_t offset;
    void *usable = (void *)ptr;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (device) {
        if (bytes > 0)
            usable = touch_device(op, device, ptr, bytes, access);
        else
            usable = device->alias + offset;
    } else if (bytes > 0) {
        usable = touch_host(op, ptr, bytes, host_ok);
    }
    if (op->error == cudaSuccess) add_range(&op->entry, ptr, bytes, access);
    return usable;
}

const void *simgpu_read(SimgpuOp *op, const void *ptr, size_t bytes)
{
    return sim_touch(op, ptr, bytes, GPU_READ, false);
}

void *simgpu_write(SimgpuOp *op, void *ptr, size_t bytes)
{
    return sim_touch(op, ptr, bytes, GPU_WRITE, false);
}

void *simgpu_update(SimgpuOp *op, void *ptr, size_t bytes)
{
    return sim_touch(op, ptr, bytes, GPU_UPDATE, false);
}

bool simgpu_ready(const SimgpuOp *op)
{
    return op->error == cudaSuccess;
}

cudaError_t simgpu_end(SimgpuOp *op)
{
    if (op->error != cudaSuccess) return sim_leave(op->error);
    sim_stream_ran(op);
    books_write(&op->entry);
    return cudaSuccess;
}
