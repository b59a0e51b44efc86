/* program.c: names, who takes part in a step, and programs with fewer steps.
 *
 * Interface: kind_names, collective_names, member_of, calls, takes_part, process_takes_part,
 * is_query, has_work, is_valid, remove_steps (program.h).
 */
#include "program.h"

#include <string.h>

const char *const kind_names[KINDS] = {
    "kernel",
    "cudaMemsetAsync",
    "cudaMemset",
    "cudaMemcpyAsync within the device",
    "cudaMemcpyAsync from pinned memory",
    "cudaMemcpyAsync from pageable memory",
    "cudaMemcpy from pageable memory",
    "cudaMemcpyAsync to pinned memory",
    "cudaMemcpyAsync to pageable memory",
    "cudaMemcpy to pageable memory",
    "cudaMemcpyPeerAsync",
    "cudaMallocAsync",
    "cudaFreeAsync",
    "cudaMalloc",
    "cudaFree",
    "cudaMallocHost",
    "cudaFreeHost",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
    "cudaStreamQuery",
    "cudaEventQuery",
    "NCCL",
};

const char *const collective_names[COLLECTIVES] = {
    "ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
    "ncclBroadcast", "ncclReduce",        "ncclSend and ncclRecv",
};

int member_of(const Comm *comm, int rank)
{
    for (int i = 0; i < comm->n; i++)
        if (comm->rank[i] == rank) return i;
    return -1;
}

bool calls(const World *w, const Call *c, int rank)
{
    int member = member_of(&w->comm[c->comm], rank);
    return member >= 0 && (c->op != MESSAGE || member == c->root || member == c->to);
}

bool takes_part(const Program *p, const Step *s, int rank)
{
    if (s->kind != NCCL) return s->rank == rank;
    for (int i = 0; i < s->n_calls; i++)
        if (calls(&p->world, &s->call[i], rank)) return true;
    return false;
}

bool process_takes_part(const Program *p, const Step *s, int process)
{
    for (int r = 0; r < p->world.n_ranks; r++)
        if (p->world.process[r] == process && takes_part(p, s, r)) return true;
    return false;
}

bool is_query(Kind kind)
{
    return kind == STREAM_QUERY || kind == EVENT_QUERY;
}

bool has_work(Kind kind)
{
    return kind < ALLOC_ASYNC || kind == NCCL;
}

// What a program has made so far.
typedef struct Made {
    bool recorded[MAX_RANKS][EVENTS];
    bool memory[3][MAX_RANKS][BLOCKS]; // stream-ordered, cudaMalloc's, pinned
    bool second[MAX_PROCESSES];        // calls, by the process's second thread
    int new_in[MAX_PROCESSES];         // the last phase in which a new thread has called
} Made;

// What a thread is told that has only asked depends on what the others do later, if they live on.
static bool may_ask(Made *made, const Program *p, const Step *s)
{
    bool may = true;
    for (int i = 0; i < p->world.n_processes; i++) {
        Phase now = s->phase[i];
        if (now.mode == FIRST_THREAD || !process_takes_part(p, s, i)) continue;
        bool is_second = now.mode == SECOND_THREAD;
        bool has_called = is_second ? made->second[i] : made->new_in[i] == now.number;
        if (is_query(s->kind)) may = has_called || (!is_second && !made->second[i]);
        if (!is_query(s->kind) && is_second) made->second[i] = true;
        if (!is_query(s->kind) && !is_second) made->new_in[i] = now.number;
    }
    return may;
}

// Whether a step makes sense now; and what it makes, or takes away.
static bool fits(Made *made, const Program *p, const Step *s)
{
    bool *recorded = &made->recorded[s->kind == WAIT ? s->from : s->rank][s->slot % EVENTS];
    int kind = s->kind == MALLOC || s->kind == FREE ? 1
               : s->kind == PIN || s->kind == UNPIN ? 2
                                                    : 0;
    bool *memory = &made->memory[kind][s->rank][s->slot % BLOCKS], right = true;
    switch (s->kind) {
    case RECORD:
        right = !s->again || *recorded;
        *recorded = true;
        break;
    case WAIT:
    case EVENT_SYNC:
    case EVENT_QUERY: right = *recorded; break;
    case ALLOC_ASYNC:
    case MALLOC:
    case PIN:
        right = !*memory;
        *memory = true;
        break;
    case FREE_ASYNC:
    case FREE:
    case UNPIN:
        right = *memory;
        *memory = false;
        break;
    default: break;
    }
    return right && may_ask(made, p, s);
}

bool is_valid(const Program *p)
{
    Made made;
    memset(&made, 0, sizeof made);
    for (int i = 0; i < p->n; i++)
        if (!fits(&made, p, &p->step[i])) return false;
    return true;
}

void remove_steps(Program *p, int from, int n)
{
    int kept = 0;
    Made made;
    memset(&made, 0, sizeof made);
    for (int i = 0; i < p->n; i++) {
        Made before = made;
        if ((i >= from && i < from + n) || !fits(&made, p, &p->step[i])) {
            made = before;
            continue;
        }
        if (kept != i) p->step[kept] = p->step[i];
        kept++;
    }
    p->n = kept;
}
