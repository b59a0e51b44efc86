/* timeline_json.c: the measured step of the slowest rank, operation by operation, as a JSON object.
 *
 *   rank, step      its number; picoseconds that the step takes
 *   operations      in the order in which they were queued, each as
 *                   [operation, name, stream, event, start, end, bytes sent]
 *
 * Times are picoseconds since the step began. `event` numbers the events of records and waits from
 * 1 on, by their first use; other operations have 0. Waits and records take no time.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

#define EVENTS 4096

static bool is_shown(const GpuLogEntry *e)
{
    return e->op >= GPU_COPY && e->op <= GPU_STREAM_WAIT;
}

// The event's number; 0: there is none, or there are too many.
static int number_of(cudaEvent_t event, cudaEvent_t *seen, int *n)
{
    int i = 0;
    if (!event) return 0;
    while (i < *n && seen[i] != event) i++;
    if (i == *n && *n < EVENTS) seen[(*n)++] = event;
    return i < *n ? i + 1 : 0;
}

static void write_operations(FILE *file, const PlanRecord *r, const PlanSpan *span, uint64_t from)
{
    static cudaEvent_t seen[EVENTS];
    int events = 0;
    const char *before = "";
    for (int i = r->first; i < r->n; i++, span++) {
        const GpuLogEntry *e = plan_entry(r, i);
        if (!is_shown(e)) continue;
        bool timed = e->op <= GPU_RECV, within = timed && span->start >= from;
        fprintf(file, "%s\n  [\"%s\", \"%s\", %u, %d, %llu, %llu, %llu]", before,
                gpulog_op_name(e->op), e->name, e->stream_number,
                number_of(timed ? NULL : r->entry[i].event, seen, &events),
                (unsigned long long)(within ? span->start - from : 0),
                (unsigned long long)(within ? span->end - from : 0), (unsigned long long)e->sent);
        before = ",";
    }
}

Status plan_write_timeline(const PlanOptions *o, const PlanRecord *r, const PlanSpan *span,
                           uint64_t from, uint64_t step)
{
    FILE *file = fopen(o->timeline, "w");
    if (file) {
        fprintf(file, "{\"rank\": %d, \"step\": %llu, \"operations\": [", r->rank,
                (unsigned long long)step);
        write_operations(file, r, span, from);
        fprintf(file, "]}\n");
    }
    if (file && fclose(file) == 0) return OK;
    fprintf(stderr, "plan: TIMELINE=%s cannot be written: %s\n", o->timeline, strerror(errno));
    return ERR_IO;
}
