/* simulate.c: the loop over the instants at which something happens.
 *
 * Interface: simulate, span_of, forgotten, rule_names (program.h).
 */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

Rule forgotten;
const char *const rule_names[RULES] = {
    "no rule",       "stream order",     "default stream", "event waits",    "comm order",
    "group streams", "group is at once", "first ready",    "ties",           "copy engines",
    "peer engine",   "latest arrival",   "nodes",          "own links",      "sharing",
    "slow transfer", "slow compute",     "slow by link",   "copies count",   "copies slowed",
    "rounded up",    "rounded down",     "hosts meet",     "receivers meet", "host waits",
    "waking",        "free waits",       "new threads",    "last call",      "joining",
    "flops",         "slow rank",        "jitter",         "last caller",    "receivers first",
};

// § 3: streams are numbered as the process made them, the default one when the device was made: for
// its first stream; but that of the process's own number was there before (play.c).
static void number_streams(Sim *s)
{
    const World *w = &s->program->world;
    for (int i = w->n_ranks * STREAMS - 1; i >= 0; i--) {
        int rank = w->made[i] / STREAMS, stream = w->made[i] % STREAMS;
        if (stream == LEGACY) continue;
        s->stream_number[rank][stream] = 2 * i + 1;
        s->stream_number[rank][LEGACY] = rank == w->process[rank] ? -1 : 2 * i;
    }
}

static void clear_devices(Sim *s)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        Device *d = &s->device[r];
        for (int i = 0; i < STREAMS; i++) d->last[i] = -1;
        for (int i = 0; i < EVENTS; i++) d->record[i] = -1;
        for (int i = 0; i < MAX_COMMS; i++) d->comm[i] = -1;
    }
}

static void count_meetings(Sim *s)
{
    const Program *p = s->program;
    for (int i = 0; i < p->n; i++)
        for (int c = 0; c < p->step[i].n_calls && p->step[i].kind == NCCL; c++) {
            const Call *call = &p->step[i].call[c];
            int ranks = p->world.comm[call->comm].n;
            s->meeting[i * MAX_CALLS + c] = (Meeting){.missing = call->op == MESSAGE ? 2 : ranks,
                                                      .silent = call->op == MESSAGE ? 1 : ranks,
                                                      .start = NEVER};
        }
}

static void run(Sim *s)
{
    begin_processes(s);
    for (;;) {
        Ps t = next_instant(s), request = next_request(s);
        if (request < t) t = request;
        if (t == NEVER) break;
        // § 5: "At one instant, in this order".
        for (bool changed = true; changed;) {
            changed = settle_threads(s, t);
            changed |= settle_operations(s, t);
        }
        start_operations(s, t);
        set_rates(s, t);
    }
    if (!all_ended(s) && forgotten == NO_RULE) {
        fprintf(stderr, "the simulator is stuck: the program deadlocks\n");
        abort();
    }
}

Span *span_of(Sim *s, int step, int call, int rank)
{
    bool nccl = s->program->step[step].kind == NCCL;
    return &s->times->span[step][nccl ? call * MAX_RANKS + rank : 0];
}

static void tell_times(Sim *s)
{
    const Program *p = s->program;
    for (int i = 0; i < s->n_ops; i++) {
        const Operation *op = &s->op[i];
        if (op->step < 0 || op->resource == NOTHING) continue;
        Span *span = span_of(s, op->step, op->call, op->rank);
        span->ready = op->ready;
        span->start = op->start;
        span->end = op->end;
    }
    for (int i = 0; i < p->n; i++) {
        const Step *step = &p->step[i];
        if (step->kind == RECORD) {
            s->times->at[i] = s->op[s->record[i]].end;
            s->times->seen[i] = true;
        }
        if (is_query(step->kind)) s->times->ready[i] = latest_end(s, &s->asked[i]) <= s->when[i];
        // With the same handle, the record before it is forgotten.
        for (int k = i - 1; k >= 0 && step->kind == RECORD && step->again; k--)
            if (p->step[k].kind == RECORD && p->step[k].rank == step->rank &&
                p->step[k].slot == step->slot) {
                s->times->seen[k] = false;
                break;
            }
    }
}

void simulate(const Program *p, Times *times, FILE *details)
{
    Sim *s = calloc(1, sizeof *s);
    if (!s || !(s->meeting = calloc((size_t)p->n * MAX_CALLS + 1, sizeof *s->meeting))) abort();
    s->program = p;
    s->times = times;
    memset(times, 0, sizeof *times);
    s->details = details;
    number_streams(s);
    clear_devices(s);
    count_meetings(s);
    run(s);
    tell_times(s);
    free_processes(s);
    free(s->meeting);
    free(s->op);
    free(s->live);
    free(s->sent);
    free(s);
}
