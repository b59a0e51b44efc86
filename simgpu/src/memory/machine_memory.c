/* machine_memory.c: the memory of this machine, which simulated devices share. Memory is used when
 * it is touched, so an allocation that fits a device may not fit here; then the system silently
 * ends a process. So a process that touches much gets a report before the machine is full.
 *
 * What is left is MemAvailable of /proc/meminfo, or what the limit of a control group leaves if
 * that is less: of its usage, the pages of files can be given back (proc(5); the kernel's
 * Documentation/admin-guide/cgroup-v2.rst).
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/config.h"
#include "core/groups.h"
#include "log_writer.h"
#include "memory/device.h"
#include "report/report.h"

#define MEBIBYTE ((size_t)1 << 20)
#define RESERVE (256 * MEBIBYTE)   // what the machine keeps for everything else
#define FEWEST (32 * MEBIBYTE)     // bytes that are touched between two checks
enum { WHERE = 256, SHARES = 32 }; // SHARES: of what is left, between two checks of a rank

// What one control group leaves.
static size_t left_in_group(const char *root, const char *controller, const char *path)
{
    bool old = controller[0] != '\0';
    char line[SIM_GROUP_LINE];
    const char *limit = old ? "memory.limit_in_bytes" : "memory.max";
    const char *usage = old ? "memory.usage_in_bytes" : "memory.current";
    if (!sim_group_line(root, controller, path, limit, line)) return SIZE_MAX;
    char *end;
    size_t most = strtoull(line, &end, 10), files = 0;
    if (end == line) return SIZE_MAX; // "max"
    if (!sim_group_line(root, controller, path, usage, line)) return SIZE_MAX;
    size_t used = strtoull(line, NULL, 10);
    static const char *const cached[] = {"inactive_file ", "active_file "};
    for (int i = 0; i < 2; i++)
        if (sim_group_value(root, controller, path, "memory.stat", cached[i], line))
            files += strtoull(line, NULL, 10);
    used -= files < used ? files : used;
    return used < most ? most - used : 0;
}

static size_t left_on_machine(void)
{
    static const char key[] = "\nMemAvailable:";
    char text[2048];
    size_t left = SIZE_MAX;
    const char *at = sim_read_text("/proc/meminfo", text, sizeof text) ? strstr(text, key) : NULL;
    if (at != NULL) left = strtoull(at + sizeof key - 1, NULL, 10) << 10; // it is in KiB
    size_t group =
        sim_least_of_groups("/proc/self/cgroup", "/sys/fs/cgroup", "memory", left_in_group);
    return group < left ? group : left;
}

// The bytes of a range that have no memory yet, checked in steps of a mebibyte.
static size_t without_memory(const char *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), without = 0;
    uintptr_t begin = (uintptr_t)at & ~(page - 1);
    for (uintptr_t p = begin; p < (uintptr_t)at + bytes; p += MEBIBYTE) {
        unsigned char there = 0;
        if (mincore((void *)p, page, &there) == 0 && !(there & 1)) without += MEBIBYTE;
    }
    return without < bytes ? without : bytes;
}

_Noreturn static void end_before_it_is_full(size_t bytes, size_t left, const char *call,
                                            const void *site)
{
    char where[WHERE];
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_fatal(SIMGPU_SYSTEM, "this machine does not have enough memory for its simulated GPUs",
              "%s, called at %s,\ntouches %zu MiB of device memory for the first time, "
              "and the machine\n(or the control group) has %zu MiB left. Beyond that the system "
              "ends processes.\n"
              "All ranks together can have what the machine has. Are fewer ranks or a smaller "
              "model\nenough? SIMGPU_MEMORY=2G makes devices smaller, so that cudaMalloc says it; "
              "SIMGPU_DRY=1\ncomputes nothing and needs no memory.",
              call, where, bytes / MEBIBYTE, left / MEBIBYTE);
}

void sim_machine_memory_touched(const char *at, size_t bytes, const char *call, const void *site)
{
    static atomic_size_t since; // bytes touched since the last check
    static atomic_size_t until = FEWEST;
    if (sim_dry()) return;
    if (atomic_fetch_add_explicit(&since, bytes, memory_order_relaxed) + bytes <
        atomic_load_explicit(&until, memory_order_relaxed))
        return;
    size_t left = left_on_machine(), free = left > RESERVE ? left - RESERVE : 0;
    if (left != SIZE_MAX && bytes > free) {
        size_t needed = without_memory(at, bytes);
        if (needed > free) end_before_it_is_full(needed, left, call, site);
    }
    atomic_store(&since, 0);
    atomic_store(&until, free / SHARES > FEWEST ? free / SHARES : FEWEST);
}
