/* overlap.c: operands that are not aligned, or that overlap and must not.
 *
 * CUDA requires every access at a multiple of its size. A kernel or a copy whose output overlaps
 * its input reads bytes before or after they are written, by chance. Identical ranges are an update
 * in place, which is fine for kernels. Only ranges are compared: an operand in the gaps between
 * rows is not reported.
 */
#include <stdio.h>

#include "check/check.h"
#include "core/config.h"
#include "core/error.h"
#include "memory/place.h"
#include "report/report.h"

// ---- Alignment ----

static void report_misaligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align)
{
    char where[256], what[1024];
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    snprintf(what, sizeof what, "%p", ptr);
    if (device) sim_describe(device, offset, what, sizeof what);
    gpulog_where(op->entry.site, where, sizeof where);
    sim_facts_call(op->entry.name, op->entry.site, op->entry.stream);
    sim_facts_range(ptr, bytes);
    sim_report(
        SIMGPU_POINTER, "a misaligned pointer",
        "%s, called at %s,\nwas given %s:\n"
        "an address that is not a multiple of %zu, the size of its elements' alignment.\n"
        "On a GPU the kernel faults (\"misaligned address\"), and every call after it fails.\n"
        "Was an offset counted in bytes instead of elements? Or a buffer cut at an odd byte?",
        op->entry.name, where, what, align);
}

bool sim_check_aligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align)
{
    if (op->error != cudaSuccess || bytes == 0 || align <= 1 || (uintptr_t)ptr % align == 0)
        return true;
    if (sim_config()->check == CHECK_OFF) return true;
    report_misaligned(op, ptr, bytes, align);
    op->error = cudaErrorMisalignedAddress;
    sim_stick(op->error);
    return false;
}

// ---- Overlap ----

static void describe_range(const GpuRange *range, char *text, size_t size)
{
    size_t offset;
    SimDevice *device = sim_device_of(range->ptr, &offset);
    snprintf(text, size, "host memory at %p", range->ptr);
    if (device) sim_describe(device, offset, text, size);
}

void sim_report_overlap(const SimgpuOp *op, const GpuRange *written, const GpuRange *other,
                        const char *rule)
{
    char where[256], to[1024], from[1024];
    const GpuLogEntry *entry = &op->entry;
    gpulog_where(entry->site, where, sizeof where);
    describe_range(written, to, sizeof to);
    describe_range(other, from, sizeof from);
    sim_facts_call(entry->name, entry->site, entry->stream);
    sim_facts_range(written->ptr, written->bytes);
    sim_facts_range(other->ptr, other->bytes);
    bool twice = other->access == GPU_WRITE;
    sim_report(SIMGPU_OVERLAP,
               twice                   ? "an operation writes the same bytes twice"
               : entry->op == GPU_COPY ? "source and destination of a copy overlap"
                                       : "what an operation writes overlaps its other operand",
               "%s, called at %s,\nwrites %zu bytes from %s\nand %s %zu bytes from %s.\n%s\n"
               "On a GPU the order of the bytes is undefined: %s.\n"
               "Is the offset of one of them too small?",
               entry->name, where, written->bytes, to, twice ? "writes" : "reads", other->bytes,
               from, rule,
               twice ? "its timing decides which of the two is written last"
                     : "some are read before they are written\nover, others after");
}

// Whether b overlaps a part of what is written to a. An operation that reads and writes all of a
// may also declare that it reads a part of it.
static bool cross(const GpuRange *a, const GpuRange *b)
{
    const char *x = a->ptr, *y = b->ptr;
    bool same = x == y && a->bytes == b->bytes;
    bool part =
        a->access == GPU_UPDATE && b->access == GPU_READ && y >= x && y + b->bytes <= x + a->bytes;
    return !same && !part && a->bytes && b->bytes && x < y + b->bytes && y < x + a->bytes;
}

void sim_check_overlap(const SimgpuOp *op)
{
    const GpuLogEntry *entry = &op->entry;
    bool copy = entry->op == GPU_COPY;
    if (entry->n_ranges < 2 || (entry->op != GPU_KERNEL && !copy)) return;
    if (sim_config()->check == CHECK_OFF) return;
    // Rows may be in each other's gaps.
    if (copy && (entry->range[0].bytes != entry->bytes || entry->range[1].bytes != entry->bytes))
        return;
    for (int i = 0; i < entry->n_ranges; i++)
        for (int j = 0; j < entry->n_ranges; j++) {
            const GpuRange *a = &entry->range[i], *b = &entry->range[j];
            if (i == j || !(a->access & GPU_WRITE) || (b->access & GPU_WRITE && j < i)) continue;
            if (!cross(a, b)) continue;
            sim_report_overlap(op, a, b,
                               copy ? "The two must not overlap (CUDA: \"the memory areas may not "
                                      "overlap\")."
                                    : "They must be the same bytes (in place), or not overlap.");
            return;
        }
}
