/* activity.c: one line on what this process does now, or did last, for a time limit's message.
 *
 * Before a thread waits, it takes a slot and writes the call there. gpulog_activity reads the slots
 * without a lock, because it runs in a signal handler of a process that may be dying at any point.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "log_writer.h"

#define WAITERS 64

static struct Waiter {
    _Atomic(const char *) what; // NULL: the slot is free
    const void *_Atomic site;
} waiters[WAITERS];
static _Thread_local int my_waiter = -1;

static int take_waiter(void)
{
    for (int i = 0; i < WAITERS; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&waiters[i].what, &none, "")) return i;
    }
    return -1;
}

void gpulog_waiting(const char *what, const void *site)
{
    if (what && my_waiter < 0) my_waiter = take_waiter();
    if (my_waiter < 0) return;
    atomic_store(&waiters[my_waiter].site, site);
    atomic_store(&waiters[my_waiter].what, what);
    if (!what) my_waiter = -1;
}

void gpulog_activity(char *text, size_t size)
{
    char where[256];
    for (int i = 0; i < WAITERS; i++) {
        const char *what = atomic_load(&waiters[i].what);
        if (!what || !*what) continue;
        gpulog_where(atomic_load(&waiters[i].site), where, sizeof where);
        snprintf(text, size, "waiting in %s at %s", what, where);
        return;
    }
    GpuLogEntry last;
    if (!gpulog_last(&last)) {
        snprintf(text, size, "has done nothing on a device yet");
        return;
    }
    gpulog_where(last.site, where, sizeof where);
    snprintf(text, size, "last did %s at %s", last.name, where);
}
