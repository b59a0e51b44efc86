/* vector_clock.c: which operations of each stream are known to be done. See vector_clock.h. */
#include "core/vector_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpulog.h"
#include "report/report.h"

#define WHERE 256

void sim_vector_clock_grow(SimVectorClock *clock, int n)
{
    uint64_t *t = realloc(clock->t, (size_t)n * sizeof *t);
    if (!t)
        sim_fatal(SIMGPU_SYSTEM, "the host ran out of memory", "A clock of %d streams did not fit.",
                  n);
    memset(t + clock->n, 0, (size_t)(n - clock->n) * sizeof *t);
    clock->t = t;
    clock->n = n;
}

void sim_vector_clock_join(SimVectorClock *into, const SimVectorClock *from)
{
    if (into->n < from->n) sim_vector_clock_grow(into, from->n);
    for (int i = 0; i < from->n; i++)
        if (into->t[i] < from->t[i]) into->t[i] = from->t[i];
}

void sim_vector_clock_assign(SimVectorClock *into, const SimVectorClock *from)
{
    if (into->n < from->n) sim_vector_clock_grow(into, from->n);
    if (from->n) memcpy(into->t, from->t, (size_t)from->n * sizeof *from->t);
    for (int i = from->n; i < into->n; i++) into->t[i] = 0;
}

uint64_t sim_vector_clock_part(const SimVectorClock *clock, int slot)
{
    return slot < clock->n ? clock->t[slot] : 0;
}

bool sim_vector_clock_covers(const SimVectorClock *clock, const SimVectorClock *other)
{
    for (int i = 0; i < other->n; i++)
        if (other->t[i] > sim_vector_clock_part(clock, i)) return false;
    return true;
}

void sim_stream_name(const SimStreamId *s, char *text, size_t size)
{
    char made[WHERE], name[WHERE / 2];
    if (s->slot == SIM_HOST_SLOT) {
        snprintf(text, size, "no stream");
        return;
    }
    if (s->is_default) {
        snprintf(text, size, "the default stream of device %d", s->device);
        return;
    }
    if (s->branch && s->name) {
        snprintf(text, size, "%s", s->name);
        return;
    }
    if (!s->number) {
        snprintf(text, size, "the thread's own stream of device %d", s->device);
        return;
    }
    if (s->name)
        snprintf(name, sizeof name, "%s", s->name);
    else if (s->number <= 26)
        snprintf(name, sizeof name, "stream %c", 'A' + s->number - 1);
    else
        snprintf(name, sizeof name, "stream %d", s->number);
    gpulog_where(s->made, made, sizeof made);
    snprintf(text, size, "%s%s (made at %s)", name, s->blocking ? "" : ", non-blocking,", made);
}
