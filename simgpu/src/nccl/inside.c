/* inside.c: one thread at a time is inside a communicator.
 *
 * NCCL's communicators are not for concurrent calls: threads may use one in turn, and the calls of
 * a group come from one thread. Also, a rank's slot has room for one call. So a thread that finds
 * another one inside ends the process: chance would decide, on each rank again, which call comes
 * first. A thread is inside during its call, and from its first call in a group to the group's
 * end.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl/inside.h"
#include "report/report.h"

struct Inside {
    _Atomic int thread; // 0: none
    _Atomic(const char *) name;
    _Atomic(const void *) site;
    atomic_bool expelled;
    atomic_int users; // communicators
};

static int own_thread(void)
{
    static __thread int thread;
    if (!thread) thread = (int)syscall(SYS_gettid);
    return thread;
}

struct Inside *sim_inside_make(ncclComm_t parent)
{
    struct Inside *inside = parent ? parent->inside : calloc(1, sizeof *inside);
    if (inside) atomic_fetch_add(&inside->users, 1);
    return inside;
}

void sim_inside_drop(struct Inside *inside)
{
    if (inside && atomic_fetch_sub(&inside->users, 1) == 1) free(inside);
}

static _Noreturn void end_process(const struct Inside *inside, int other, const char *name,
                                  const void *site)
{
    char where[256], other_where[256];
    const char *other_name = atomic_load(&inside->name);
    const void *other_site = atomic_load(&inside->site);
    gpulog_where(site, where, sizeof where);
    gpulog_where(other_site, other_where, sizeof other_where);
    sim_facts_call(name, site, SIM_NO_STREAM);
    sim_facts_call(other_name, other_site, SIM_NO_STREAM);
    sim_fatal(SIMGPU_COMM_ORDER, "two threads inside one communicator",
              "%s, called at %s\nby thread %d, begins while thread %d is inside\n"
              "%s, called at %s%s.\n"
              "NCCL's communicators are not for calls of several threads at the same time.\n"
              "On real GPUs this hangs, crashes or mixes up data, or it works today.\n"
              "Is there a mutex around the calls, or a communicator for each thread?",
              name, where, own_thread(), other, other_name, other_where,
              atomic_load(&inside->users) > 1 ? ",\non a communicator that shares its resources"
                                              : "");
}

bool sim_comm_enter(ncclComm_t comm, const char *name, const void *site)
{
    struct Inside *inside = comm->inside;
    int other = 0;
    if (!atomic_compare_exchange_strong(&inside->thread, &other, own_thread())) {
        if (other == own_thread()) return false;
        end_process(inside, other, name, site);
    }
    atomic_store_explicit(&inside->name, name, memory_order_relaxed);
    atomic_store_explicit(&inside->site, site, memory_order_relaxed);
    return true;
}

void sim_comm_exit(ncclComm_t comm)
{
    int own = own_thread();
    atomic_compare_exchange_strong(&comm->inside->thread, &own, 0);
}

bool sim_comm_expelled(ncclComm_t comm)
{
    return atomic_load(&comm->inside->expelled);
}

void sim_comm_expel(ncclComm_t comm, bool for_good)
{
    int thread;
    atomic_store(&comm->inside->expelled, true);
    while ((thread = atomic_load(&comm->inside->thread)) && thread != own_thread()) {
        sim_wake_own();
        sim_nap(sim_ticket(), 1);
    }
    if (!for_good) atomic_store(&comm->inside->expelled, false);
}
