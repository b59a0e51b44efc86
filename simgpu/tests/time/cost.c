/* cost.c: what a call and its operation cost by simgpu/pages/time.md, §§ 1 and 6, `model plain`.
 *
 * Interface: kernel_work, copy_work, peer_work, collective_work, slowed_work, link_of, call_cost,
 * write_machine (program.h).
 */
#include <math.h>

#include "program.h"

// Up to whole picoseconds, at least one.
static Ps whole(double ps)
{
    Ps up = (Ps)ceil(ps);
    return up > 0 ? up : 1;
}

// Picoseconds in which so many bytes pass, or FLOP are done.
static double pass(double number, double per_second)
{
    return number * 1e12 / per_second;
}

Ps kernel_work(const Machine *m, uint64_t bytes, uint64_t flops)
{
    double by_bytes = pass((double)bytes, m->hbm), by_flops = pass((double)flops, m->peak);
    if (forgotten == FLOPS) by_flops = 0;
    return whole((double)m->kernel + (by_bytes > by_flops ? by_bytes : by_flops));
}

Ps copy_work(const Machine *m, uint64_t bytes)
{
    return whole((double)m->copy + pass((double)bytes, m->bandwidth[PCIE]));
}

Ps peer_work(const Machine *m, uint64_t bytes)
{
    double bandwidth = m->bandwidth[m->bandwidth[NVLINK] > 0 ? NVLINK : PCIE];
    return whole((double)m->copy + pass((double)bytes, bandwidth));
}

Link link_of(const World *w, const Call *c)
{
    const Comm *comm = &w->comm[c->comm];
    int per_node = w->machine.gpus_per_node;
    for (int i = 0; i < comm->n && forgotten != NODES; i++)
        for (int j = 0; j < i; j++)
            if (calls(w, c, comm->rank[i]) && calls(w, c, comm->rank[j]) &&
                comm->rank[i] / per_node != comm->rank[j] / per_node)
                return NIC;
    return w->machine.bandwidth[NVLINK] > 0 ? NVLINK : PCIE;
}

Ps collective_work(const World *w, const Call *c)
{
    double bandwidth = w->machine.bandwidth[link_of(w, c)];
    int ranks = w->comm[c->comm].n, steps = ranks;
    if (c->op == MESSAGE) return whole(pass(c->bytes, bandwidth));
    if (c->op == ALL_GATHER || c->op == REDUCE_SCATTER) steps = ranks - 1;
    if (c->op == ALL_REDUCE) steps = 2 * (ranks - 1);
    return whole((double)c->bytes * steps * 1e12 / (ranks * bandwidth));
}

Ps slowed_work(const World *w, Ps work, int rank, uint64_t n, bool on_compute)
{
    if (on_compute && forgotten != SLOW_RANK && rank == w->slow_rank)
        work += (work * (uint64_t)w->slow_percent + 99) / 100;
    if (forgotten == JITTER) return work;
    uint64_t u = draw_number(w->jitter_seed, (uint64_t)rank, n) >> 32;
    return work + (Ps)((unsigned __int128)work * (uint64_t)w->jitter_percent * u / 100 >> 32);
}

Ps call_cost(const Machine *m, Kind kind)
{
    switch (kind) {
    case ALLOC_ASYNC:
    case FREE_ASYNC:
    case RECORD:
    case WAIT: return m->enqueue;
    case MALLOC: return m->allocate;
    case FREE: return m->free;
    case PIN:
    case UNPIN: return m->pin;
    case STREAM_SYNC:
    case EVENT_SYNC:
    case DEVICE_SYNC: return m->sync;
    case STREAM_QUERY:
    case EVENT_QUERY: return m->query;
    case NCCL: return m->collective;
    default: return m->launch;
    }
}

static void write_time(FILE *out, const char *key, Ps ps)
{
    fprintf(out, "%s %llu.%06llu us\n", key, (unsigned long long)ps / 1000000,
            (unsigned long long)ps % 1000000);
}

static void write_bandwidth(FILE *out, const char *key, double bandwidth)
{
    if (bandwidth > 0)
        fprintf(out, "%s %.10g GB/s\n", key, bandwidth / 1e9);
    else
        fprintf(out, "%s none\n", key);
}

void write_machine(FILE *out, const Machine *m)
{
    fprintf(out, "base h100x8\nmodel plain\ngpus_per_node %d\n", m->gpus_per_node);
    write_time(out, "launch", m->launch);
    write_time(out, "collective", m->collective);
    write_time(out, "enqueue", m->enqueue);
    write_time(out, "allocate", m->allocate);
    write_time(out, "free", m->free);
    write_time(out, "pin", m->pin);
    write_time(out, "sync", m->sync);
    write_time(out, "query", m->query);
    write_time(out, "wake", m->wake);
    write_time(out, "kernel", m->kernel);
    write_time(out, "copy", m->copy);
    write_time(out, "latency", m->latency);
    fprintf(out, "peak_f32 %.10g TFLOP/s\n", m->peak / 1e12);
    write_bandwidth(out, "hbm", m->hbm);
    write_bandwidth(out, "nvlink", m->bandwidth[NVLINK]);
    write_bandwidth(out, "pcie", m->bandwidth[PCIE]);
    write_bandwidth(out, "nic", m->bandwidth[NIC]);
    fprintf(out, "slow_compute %llu/%llu\n", (unsigned long long)m->slow_compute[0],
            (unsigned long long)m->slow_compute[1]);
    fprintf(out, "slow_compute_nic %llu/%llu\n", (unsigned long long)m->slow_compute_nic[0],
            (unsigned long long)m->slow_compute_nic[1]);
    fprintf(out, "slow_transfer %llu/%llu\n", (unsigned long long)m->slow_transfer[0],
            (unsigned long long)m->slow_transfer[1]);
}
