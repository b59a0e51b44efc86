/* entry.c: makes an entry from a call and writes it to the log; kernels.
 *
 * Interface: entry_on, entry_on_device, add_range, write_entry, current_device; gpulog_kernel.
 */
#include <string.h>

#include "interpose.h"

int current_device(void)
{
    int device = 0;
    return cudaGetDevice(&device) == cudaSuccess ? device : 0;
}

GpuLogEntry entry_on_device(GpuOp op, const char *name, int device, cudaStream_t stream,
                            const void *site)
{
    GpuLogEntry entry;
    memset(&entry, 0, offsetof(GpuLogEntry, range));
    entry.op = op;
    entry.name = name;
    entry.site = site;
    entry.to = entry.from = GPULOG_HOST;
    stream_facts(&entry, stream, device);
    return entry;
}

GpuLogEntry entry_on(GpuOp op, const char *name, cudaStream_t stream, const void *site)
{
    return entry_on_device(op, name, current_device(), stream, site);
}

void add_range(GpuLogEntry *entry, const void *ptr, size_t bytes, GpuAccess access)
{
    if (entry->n_ranges < GPULOG_RANGES)
        entry->range[entry->n_ranges++] = (GpuRange){ptr, bytes, access};
}

void write_entry(const GpuLogEntry *entry)
{
    settings(); // set the log's size before the first entry
    if (graph_takes(entry)) return;
    gpulog_write(entry);
}

void gpulog_kernel(const char *name, cudaStream_t stream, const void *site, int n_ranges,
                   const GpuRange *ranges)
{
    GpuLogEntry entry = entry_on(GPU_KERNEL, name, stream, gpulog_site_above(site));
    for (int i = 0; i < n_ranges; i++)
        add_range(&entry, ranges[i].ptr, ranges[i].bytes, ranges[i].access);
    write_entry(&entry);
}
