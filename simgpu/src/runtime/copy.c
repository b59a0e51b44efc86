/* copy.c: cudaMemcpy and cudaMemset in all their forms.
 *
 * CUDA documents which calls wait ("API synchronization behavior"). A copy that is not Async waits,
 * unless it is between two places on devices. An Async copy into pageable memory waits; one into
 * pinned memory does not (pending.c delivers it); one from pageable memory has read the bytes when
 * it returns. A memset does not wait. cudaMemcpyPeer does not wait either, but is ordered after all
 * earlier work on its devices, and before all later work.
 *
 * A plain cudaMemcpy from pageable memory may return when the bytes are staged and not yet on the
 * device. Then the host has waited for what is before the copy on the stream, but not for the copy:
 * a stream that does not wait for the default stream may not use the bytes yet.
 *
 * Interface: the cudaMemcpy* and cudaMemset* calls of up to two sides; sim_copy_rows,
 * sim_fill_rows.
 */
#include <string.h>

#include "check/check.h"
#include "core/config.h"
#include "core/error.h"
#include "log_writer.h"
#include "memory/allocation.h"
#include "memory/contents.h"
#include "memory/dry.h"
#include "memory/pinned.h"
#include "memory/place.h"
#include "report/report.h"
#include "runtime/graph_nodes.h"
#include "runtime/operation.h"
#include "streams/capture.h"
#include "streams/streams.h"

// A copy of `height` rows of `width` bytes; a plain copy is one row.
typedef struct Copy {
    void *dst;
    const void *src;
    size_t dpitch, spitch, width, height;
    enum cudaMemcpyKind kind;
    bool async;
    bool serial; // ordered after all earlier work on its devices, and before all later work
} Copy;

static bool on_device(const void *ptr)
{
    size_t offset;
    return sim_device_of(ptr, &offset) != NULL;
}

static int device_of(const void *ptr)
{
    size_t offset;
    const SimDevice *device = sim_device_of(ptr, &offset);
    return device ? device->index : GPULOG_HOST;
}

static const char *kind_name(enum cudaMemcpyKind kind)
{
    static const char *const names[] = {"cudaMemcpyHostToHost", "cudaMemcpyHostToDevice",
                                        "cudaMemcpyDeviceToHost", "cudaMemcpyDeviceToDevice",
                                        "cudaMemcpyDefault"};
    return names[kind];
}

// Whether one end of the copy is in memory of the side that the kind says. Pinned and managed
// memory counts as device memory and as host memory.
static bool end_fits(const void *ptr, size_t bytes, bool device_due)
{
    bool inside;
    if (on_device(ptr) == device_due) return true;
    return device_due ? sim_pinned(ptr, bytes, &inside) : sim_managed(ptr);
}

// Whether the copy has two ends; with less "cudaErrorInvalidValue" on a GPU, too.
// What a report of the copy has besides its text; its place into `where`.
static void describe(const SimgpuOp *op, const Copy *c, size_t dbytes, size_t sbytes,
                     char where[256])
{
    gpulog_where(op->entry.site, where, 256);
    sim_facts_call(op->entry.name, op->entry.site, op->entry.stream);
    sim_facts_range(c->dst, dbytes);
    sim_facts_range(c->src, sbytes);
}

static bool has_ends(SimgpuOp *op, const Copy *c, size_t dbytes, size_t sbytes)
{
    if (c->dst && c->src) return true;
    char where[256];
    describe(op, c, dbytes, sbytes, where);
    sim_report(SIMGPU_POINTER, "a null pointer where a copy needs memory",
               "%s, called at %s,\n%s %zu bytes at NULL.\n"
               "On a GPU the call returns \"invalid argument\" and copies nothing.\n"
               "Was the buffer never allocated, or already freed (resharded, set to NULL)?",
               op->entry.name, where, c->dst ? "reads" : "writes", c->dst ? sbytes : dbytes);
    op->error = cudaErrorInvalidValue;
    return false;
}

static bool kind_fits(SimgpuOp *op, const Copy *c, size_t dbytes, size_t sbytes)
{
    if ((unsigned)c->kind > cudaMemcpyDefault) {
        op->error = cudaErrorInvalidMemcpyDirection;
        return false;
    }
    if (c->kind == cudaMemcpyDefault) return true;
    bool dst_device = c->kind == cudaMemcpyHostToDevice || c->kind == cudaMemcpyDeviceToDevice;
    bool src_device = c->kind == cudaMemcpyDeviceToHost || c->kind == cudaMemcpyDeviceToDevice;
    bool dst_fits = end_fits(c->dst, dbytes, dst_device),
         src_fits = end_fits(c->src, sbytes, src_device);
    if (dst_fits && src_fits) return true;
    char where[256];
    describe(op, c, dbytes, sbytes, where);
    const char *end = dst_fits ? "source" : "destination";
    bool device_due = dst_fits ? src_device : dst_device;
    sim_report(SIMGPU_POINTER, "a copy's direction does not fit its pointers",
               "%s, called at %s, says %s,\nbut its %s %p is %s memory.\n"
               "On a GPU the result of such a copy is undefined; most often it is refused.\n"
               "Are source and destination the wrong way round? (The destination comes first.)",
               op->entry.name, where, kind_name(c->kind), end, dst_fits ? c->src : c->dst,
               device_due ? "host" : "device");
    op->error = cudaErrorInvalidValue;
    return false;
}

static void move_rows(char *dst, const char *src, const Copy *c)
{
    if (c->dpitch == c->width && c->spitch == c->width) {
        memmove(dst, src, c->width * c->height);
        return;
    }
    for (size_t row = 0; row < c->height; row++)
        memmove(dst + row * c->dpitch, src + row * c->spitch, c->width);
}

// A dry run touches the host's memory alone.
static void execute(const SimgpuOp *op, const Copy *c, char *dst, const char *src)
{
    bool to_host = op->entry.to == GPULOG_HOST, from_host = op->entry.from == GPULOG_HOST;
    if (!sim_dry() || (to_host && from_host))
        move_rows(dst, src, c);
    else if (to_host)
        sim_dry_deliver(op, dst, c->dpitch, c->width, c->height);
    else if (from_host && c->height == 1)
        sim_dry_note(c->dst, src, c->width);
}

// Declares the rows at one end of the copy.
static void *touch_rows(SimgpuOp *op, const void *ptr, const Copy *c, size_t pitch,
                        GpuAccess access)
{
    SimShape shape = sim_shape(c->width, c->height, pitch, 1, 0);
    GpuRange range = {ptr, sim_shape_bytes(&shape), access};
    if (access == GPU_WRITE && !sim_shape_has_gaps(&shape))
        return sim_touch_overwrite(op, range, true);
    return sim_touch_shape(op, range, &shape, access, true);
}

// Calls `order` for the devices of a copy between two devices: those two, and the current one.
static void each_device(const SimgpuOp *op, const Copy *c,
                        void (*order)(const SimgpuOp *op, int device))
{
    size_t offset;
    order(op, sim_device_of(c->dst, &offset)->index);
    order(op, sim_device_of(c->src, &offset)->index);
    order(op, sim_current_device());
}

static bool is_pageable(const void *ptr)
{
    bool inside;
    return !on_device(ptr) && !sim_pinned(ptr, 1, &inside);
}

static cudaError_t copy(const char *name, const Copy *c, cudaStream_t stream, const void *site);

// Makes the copy in a launch of its graph: the host does not wait for it, whatever memory it uses.
static cudaError_t copy_again(cudaGraphNode_t node)
{
    return copy(node->name, node->call.args, NULL, node->site);
}

// "The CUDA device(s) to which the operand(s) was allocated/mapped cannot change", nor the memory's
// type (CUDA Runtime API, cudaGraphExecUpdate).
static bool takes_copy(const void *args, const void *others)
{
    const Copy *a = args, *b = others;
    return device_of(a->dst) == device_of(b->dst) && device_of(a->src) == device_of(b->src);
}

static SimNewNode copy_node(const Copy *c)
{
    return (SimNewNode){.type = cudaGraphNodeTypeMemcpy,
                        .again = copy_again,
                        .takes = takes_copy,
                        .args = c,
                        .bytes = sizeof *c};
}

static cudaError_t copy(const char *name, const Copy *c, cudaStream_t stream, const void *site)
{
    bool replayed = sim_launching.node != NULL;
    if (!c->async && sim_unsafe_hook && !replayed) SIM_ENTER_UNSAFE_AS(name, site);
    bool waits = !c->async || is_pageable(c->dst) || is_pageable(c->src);
    if (sim_hold_node && !waits && sim_hold_node(stream, name, site, copy_node(c)))
        return cudaSuccess;
    SimgpuOp op = sim_begin(GPU_COPY, name, stream, site);
    if (op.captured && op.error == cudaSuccess && c->width && c->height)
        return sim_capture_node(&op, copy_node(c));
    if (op.error == cudaSuccess && (c->dpitch < c->width || c->spitch < c->width))
        op.error = cudaErrorInvalidPitchValue;
    if (op.error != cudaSuccess || c->width == 0 || c->height == 0) return sim_leave(op.error);
    size_t dbytes = (c->height - 1) * c->dpitch + c->width;
    size_t sbytes = (c->height - 1) * c->spitch + c->width;
    if (!has_ends(&op, c, dbytes, sbytes) || !kind_fits(&op, c, dbytes, sbytes))
        return simgpu_end(&op);
    if (c->serial) each_device(&op, c, sim_stream_after_device);
    bool dst_device = on_device(c->dst), src_device = on_device(c->src), inside;
    bool pinned_dst = !dst_device && sim_pinned(c->dst, dbytes, &inside);
    bool pinned_src = !src_device && sim_pinned(c->src, sbytes, &inside);
    char *dst = touch_rows(&op, c->dst, c, c->dpitch, GPU_WRITE);
    const char *src = touch_rows(&op, c->src, c, c->spitch, GPU_READ);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    if (dst_device && src_device && dbytes == c->width * c->height && sbytes == dbytes)
        sim_race_carry(c->dst, c->src, dbytes);
    if (dst_device && dbytes == c->width * c->height) sim_overwritten(c->dst, dbytes);
    op.entry.bytes = c->width * c->height;
    op.entry.to = device_of(c->dst);
    op.entry.from = device_of(c->src);
    op.entry.host_waits = replayed   ? false
                          : c->async ? !dst_device && !pinned_dst
                                     : !(dst_device && src_device);
    if (c->async && pinned_dst && !sim_dry())
        sim_pinned_defer(&op, sim_op_place(&op), c->dst, c->dpitch, src, c->spitch, c->width,
                         c->height);
    else
        execute(&op, c, dst, src);
    if (c->async && pinned_src && !op.entry.host_waits)
        sim_pinned_watch(&op, sim_op_place(&op), c->src, c->spitch, c->width, c->height, GPU_READ);
    bool staged = !c->async && dst_device && !src_device && !pinned_src;
    cudaError_t error = staged ? sim_end_begun(&op) : simgpu_end(&op);
    if (c->serial) each_device(&op, c, sim_stream_before_device);
    return error;
}

cudaError_t sim_add_copy(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *from,
                         size_t n, void *dst, const void *src, size_t bytes,
                         enum cudaMemcpyKind kind, const void *site)
{
    Copy c = {dst, src, bytes, bytes, bytes, 1, kind, true, false};
    return sim_add_node(node, graph, from, n, copy_node(&c), "cudaGraphAddMemcpyNode1D", site);
}

static Copy plain(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, bool async)
{
    return (Copy){dst, src, count, count, count, 1, kind, async, false};
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    Copy c = plain(dst, src, count, kind, false);
    return copy("cudaMemcpy", &c, NULL, SIM_SITE);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    Copy c = plain(dst, src, count, kind, true);
    return copy("cudaMemcpyAsync", &c, stream, SIM_SITE);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    Copy c = {dst, src, dpitch, spitch, width, height, kind, false, false};
    return copy("cudaMemcpy2D", &c, NULL, SIM_SITE);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    Copy c = {dst, src, dpitch, spitch, width, height, kind, true, false};
    return copy("cudaMemcpy2DAsync", &c, stream, SIM_SITE);
}

cudaError_t sim_copy_rows(const char *name, const void *site, SimRows rows, bool async,
                          cudaStream_t stream)
{
    Copy c = {rows.dst,    rows.src,  rows.dpitch, rows.spitch, rows.width,
              rows.height, rows.kind, async,       false};
    return copy(name, &c, stream, site);
}

// ---- Between devices ----

static cudaError_t copy_peer(const char *name, const Copy *c, int dst_device, int src_device,
                             cudaStream_t stream, const void *site)
{
    SIM_ENTER_AS(name, site);
    int devices = sim_config()->devices;
    if (dst_device < 0 || dst_device >= devices || src_device < 0 || src_device >= devices)
        return sim_leave(cudaErrorInvalidDevice);
    if (c->width == 0) return cudaSuccess;
    if (device_of(c->dst) == dst_device && device_of(c->src) == src_device)
        return copy(name, c, stream, site);
    char where[256];
    gpulog_where(site, where, sizeof where);
    bool dst_wrong = device_of(c->dst) != dst_device;
    sim_facts_call(name, site, stream);
    sim_facts_range(c->dst, c->width);
    sim_facts_range(c->src, c->width);
    sim_report(SIMGPU_POINTER, "a copy between devices names the wrong device",
               "%s, called at %s:\nits %s %p is not on device %d.\n"
               "On a GPU this is an invalid argument, or data of another place.\n"
               "Are the two devices, or the two pointers, the wrong way round?",
               name, where, dst_wrong ? "destination" : "source", dst_wrong ? c->dst : c->src,
               dst_wrong ? dst_device : src_device);
    return sim_leave(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count)
{
    Copy c = plain(dst, src, count, cudaMemcpyDeviceToDevice, false);
    c.serial = true;
    return copy_peer("cudaMemcpyPeer", &c, dstDevice, srcDevice, NULL, SIM_SITE);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                size_t count, cudaStream_t stream)
{
    Copy c = plain(dst, src, count, cudaMemcpyDeviceToDevice, true);
    return copy_peer("cudaMemcpyPeerAsync", &c, dstDevice, srcDevice, stream, SIM_SITE);
}

// ---- Memset ----

// `height` rows of `width` elements; dst, value, pitch as in cudaMemset2D.
static cudaError_t fill(const char *name, const struct cudaMemsetParams *p, cudaStream_t stream,
                        const void *site);

static cudaError_t fill_again(cudaGraphNode_t node)
{
    return fill(node->name, node->call.args, NULL, node->site);
}

// "For 2d memsets, only address and assigned value may be updated."
static bool takes_fill(const void *args, const void *others)
{
    const struct cudaMemsetParams *a = args, *b = others;
    bool same = a->width == b->width && a->height == b->height && a->pitch == b->pitch &&
                a->elementSize == b->elementSize;
    return device_of(a->dst) == device_of(b->dst) && (same || (a->height == 1 && b->height == 1));
}

static SimNewNode fill_node(const struct cudaMemsetParams *p)
{
    return (SimNewNode){.type = cudaGraphNodeTypeMemset,
                        .again = fill_again,
                        .takes = takes_fill,
                        .args = p,
                        .bytes = sizeof *p};
}

cudaError_t sim_add_fill(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *from,
                         size_t n, const struct cudaMemsetParams *p, const void *site)
{
    struct cudaMemsetParams one = *p;
    if (p->height == 1) one.pitch = p->width * p->elementSize;
    return sim_add_node(node, graph, from, n, fill_node(&one), "cudaGraphAddMemsetNode", site);
}

static void fill_row(char *to, unsigned value, size_t size, size_t n)
{
    if (size == 1)
        memset(to, (int)value, n);
    else
        for (size_t i = 0; i < n; i++) memcpy(to + i * size, &value, size); // little-endian
}

cudaError_t sim_fill_rows(const char *name, void *ptr, size_t pitch, int value, size_t width,
                          size_t height, cudaStream_t stream, const void *site)
{
    struct cudaMemsetParams p = {ptr, pitch, (unsigned)value, 1, width, height};
    return fill(name, &p, stream, site);
}

static cudaError_t fill(const char *name, const struct cudaMemsetParams *p, cudaStream_t stream,
                        const void *site)
{
    if (sim_hold_node && sim_hold_node(stream, name, site, fill_node(p))) return cudaSuccess;
    void *ptr = p->dst;
    size_t pitch = p->pitch, width = p->width * p->elementSize, height = p->height;
    SimgpuOp op = sim_begin(GPU_MEMSET, name, stream, site);
    if (op.captured && op.error == cudaSuccess && width && height)
        return sim_capture_node(&op, fill_node(p));
    if (op.error == cudaSuccess && pitch < width) op.error = cudaErrorInvalidPitchValue;
    if (op.error != cudaSuccess || width == 0 || height == 0) return sim_leave(op.error);
    SimShape shape = sim_shape(width, height, pitch, 1, 0);
    GpuRange range = {ptr, sim_shape_bytes(&shape), GPU_WRITE};
    bool whole = !sim_shape_has_gaps(&shape);
    char *memory = whole ? sim_touch_overwrite(&op, range, false)
                         : sim_touch_shape(&op, range, &shape, GPU_WRITE, false);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    if (!on_device(ptr))
        sim_pinned_watch(&op, sim_op_place(&op), ptr, pitch, width, height, GPU_WRITE);
    op.entry.bytes = width * height;
    bool later = whole && p->elementSize == 1 && simgpu_ready(&op);
    if (!simgpu_ready(&op) || (later && sim_fill_later(ptr, range.bytes, (int)p->value)))
        return simgpu_end(&op);
    if (whole) sim_overwritten(ptr, range.bytes);
    for (size_t row = 0; row < height; row++)
        fill_row(memory + row * pitch, p->value, p->elementSize, p->width);
    return simgpu_end(&op);
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    return sim_fill_rows("cudaMemset", devPtr, count, value, count, 1, NULL, SIM_SITE);
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    return sim_fill_rows("cudaMemsetAsync", devPtr, count, value, count, 1, stream, SIM_SITE);
}

cudaError_t cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width, size_t height)
{
    return sim_fill_rows("cudaMemset2D", devPtr, pitch, value, width, height, NULL, SIM_SITE);
}

cudaError_t cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    return sim_fill_rows("cudaMemset2DAsync", devPtr, pitch, value, width, height, stream,
                         SIM_SITE);
}
