/* listing.c: a program as text.
 *
 * Interface: print_step, print_program (program.h).
 */
#include "program.h"

static const char *const stream_names[STREAMS] = {
    "the default stream", "blocking A", "blocking B", "non-blocking A", "non-blocking B", "clock"};
// Which thread makes the calls, where it is not the first one.
static void print_phase(FILE *out, Phase phase)
{
    static const char *const names[MODES] = {"first thread", "new thread", "thread of the device",
                                             "second thread"};
    if (phase.mode != FIRST_THREAD)
        fprintf(out, " (%s, phase %d)", names[phase.mode], phase.number);
}

static void print_call(FILE *out, const World *w, const Call *c)
{
    const Comm *comm = &w->comm[c->comm];
    fprintf(out, "  %s of %d bytes, communicator %d", collective_names[c->op], c->bytes, c->comm);
    if (c->op == MESSAGE)
        fprintf(out, ", rank %d to rank %d", comm->rank[c->root], comm->rank[c->to]);
    for (int i = 0; i < comm->n; i++)
        if (calls(w, c, comm->rank[i]))
            fprintf(out, "%s rank %d on %s", i ? "," : ":", comm->rank[i],
                    stream_names[c->stream[i]]);
    fprintf(out, "\n");
}

static bool has_stream(Kind kind)
{
    return kind != NCCL && kind != MALLOC && kind != FREE && kind != PIN && kind != UNPIN &&
           kind != EVENT_SYNC && kind != EVENT_QUERY && kind != DEVICE_SYNC;
}

void print_step(FILE *out, const Program *p, int at)
{
    const Step *s = &p->step[at];
    const World *w = &p->world;
    if (s->kind == NCCL) {
        fprintf(out, "%4d: NCCL%s", at, s->n_calls > 1 ? ", a group" : "");
        for (int i = 0; i < w->n_processes; i++)
            if (process_takes_part(p, s, i) && s->phase[i].mode != FIRST_THREAD) {
                fprintf(out, ", process %d", i);
                print_phase(out, s->phase[i]);
            }
        fprintf(out, "\n");
        for (int i = 0; i < s->n_calls; i++) print_call(out, w, &s->call[i]);
        return;
    }
    fprintf(out, "%4d: rank %d: %s", at, s->rank, kind_names[s->kind]);
    if (has_stream(s->kind)) fprintf(out, " on %s", stream_names[s->stream]);
    if (s->kind == KERNEL)
        fprintf(out, ", reads %d, writes %d, updates %d bytes, %d FLOP", s->read, s->write,
                s->update, s->flops);
    else if (s->kind < ALLOC_ASYNC)
        fprintf(out, ", %d bytes", s->read);
    if (s->kind == PEER_ASYNC) fprintf(out, " of rank %d's", s->from);
    if (s->kind == WAIT) fprintf(out, ", event %d of rank %d", s->slot, s->from);
    if (s->kind == RECORD) fprintf(out, ", event %d%s", s->slot, s->again ? " again" : "");
    if (s->kind == EVENT_SYNC || s->kind == EVENT_QUERY) fprintf(out, ", event %d", s->slot);
    if (s->kind == ALLOC_ASYNC || s->kind == FREE_ASYNC) fprintf(out, ", block %d", s->slot);
    print_phase(out, s->phase[w->process[s->rank]]);
    fprintf(out, "\n");
}

static void print_world(FILE *out, const World *w)
{
    for (int i = 0; i < w->n_processes; i++) {
        fprintf(out, "process %d: ranks", i);
        for (int r = 0; r < w->n_ranks; r++)
            if (w->process[r] == i) fprintf(out, " %d", r);
        fprintf(out, "; streams made:");
        for (int k = 0; k < w->n_ranks * STREAMS; k++)
            if (w->process[w->made[k] / STREAMS] == i && w->made[k] % STREAMS != LEGACY)
                fprintf(out, " %d's %s;", w->made[k] / STREAMS, stream_names[w->made[k] % STREAMS]);
        fprintf(out, "\n");
    }
    for (int i = 0; i < w->n_comms; i++) {
        fprintf(out, "communicator %d%s: ranks", i, w->comm[i].split ? " (split)" : "");
        for (int k = 0; k < w->comm[i].n; k++) fprintf(out, " %d", w->comm[i].rank[k]);
        fprintf(out, "\n");
    }
    if (w->slow_percent) fprintf(out, "SIMGPU_SLOW=%d:%d%%\n", w->slow_rank, w->slow_percent);
    if (w->jitter_percent)
        fprintf(out, "SIMGPU_JITTER=%d%%:%llu\n", w->jitter_percent,
                (unsigned long long)w->jitter_seed);
    fprintf(out, "the machine:\n");
    write_machine(out, &w->machine);
}

void print_program(FILE *out, const Program *p)
{
    print_world(out, &p->world);
    for (int i = 0; i < p->n; i++) print_step(out, p, i);
}
