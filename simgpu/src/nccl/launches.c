/* launches.c: graphs of several devices that one thread launches in turn.
 *
 * cudaGraphLaunch does not wait, and it cannot be in an NCCL group: a thread launches the graph of
 * one device and then that of the next, and the collectives of the two match. simgpu runs an
 * operation at its call, and would wait in the first launch for the second one. So a launch with
 * calls that need other ranks of this process is held back. It proceeds as far as it can when the
 * next launch comes, and to its end before any call that may come after it. Kernels that say their
 * arguments, copies, memsets and event records on the same device are held back with it.
 *
 * NCCL calls are begun as on a non-blocking communicator (pending.c), one launch of each device at
 * a time. If none can proceed, the thread waits for all of them at once.
 */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/threads.h"
#include "memory/device.h"
#include "nccl/captured.h"
#include "nccl/launches.h"
#include "nccl/pending.h"
#include "streams/graph.h"
#include "streams/handles.h"

// A launch, or another operation that is held back, which is a node without an executable.
typedef struct Held {
    SimLaunch launch; // its stream and device: of a node, too
    ncclComm_t comm;  // whose calls it has begun; NULL: none
    bool local;       // all ranks of its communicators are of this process
    cudaGraphNode_t node;
    bool done;
} Held;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Held *held;
static cudaGraph_t nodes; // of those that are held
static int room;
static pthread_t owner;
static __thread bool making;

static bool is_ours(ncclComm_t comm, int rank)
{
    return comm->shared->slot[rank].pid == comm->self->pid;
}

static bool is_made_by(ncclComm_t comm, int rank, int thread)
{
    return atomic_load(&comm->shared->slot[rank].thread) == thread;
}

static bool has_rank(cudaGraph_t graph, ncclComm_t comm, int rank)
{
    for (int i = 0, n; i < graph->n; i++) {
        const Call *call = sim_captured_calls(graph->node[i], &n);
        for (int k = 0; k < n; k++)
            if (call[k].comm->shared == comm->shared && call[k].comm->rank == rank) return true;
    }
    return false;
}

// Whether the launch needs ranks of this process for which no other thread makes calls.
static bool needs_others(Held *h)
{
    cudaGraph_t graph = sim_launched_graph(&h->launch);
    bool others = false, own = true;
    h->local = true;
    for (int i = 0, n; i < graph->n; i++) {
        const Call *call = sim_captured_calls(graph->node[i], &n);
        for (int k = 0; k < n; k++) {
            ncclComm_t comm = call[k].comm;
            for (int r = 0; r < comm->size && !comm->phantoms; r++) {
                if (r != comm->rank && is_ours(comm, r)) others |= !has_rank(graph, comm, r);
                if (is_ours(comm, r)) own &= is_made_by(comm, r, sim_thread());
                h->local &= is_ours(comm, r);
            }
        }
    }
    if (!others || (own && h->local)) return others;
    SimTids threads;
    sim_program_tids(&threads);
    return threads.n == 1;
}

static cudaError_t make_node(const Held *h)
{
    int current = sim_current_device();
    SimReplay before = sim_launching;
    sim_set_current_device(h->launch.device);
    sim_launching = (SimReplay){.stream = h->launch.stream, .site = h->node->site, .node = h->node};
    cudaError_t error = h->node->call.again(h->node);
    sim_launching = before;
    sim_set_current_device(current);
    return error;
}

// Proceeds with it; false: it has to wait.
static bool go_on(Held *h)
{
    cudaGraphNode_t calls;
    if (h->comm && atomic_load(&h->comm->pending)) return false;
    h->comm = NULL;
    cudaError_t error = h->node ? make_node(h) : sim_launch_held(&h->launch, &calls);
    if (h->node) calls = NULL;
    if (error == cudaSuccess && calls) error = sim_captured_begin(calls, &h->launch, &h->comm);
    if (error == cudaSuccess && calls) return true;
    sim_leave(error);
    return h->done = true;
}

static bool comes_before(const Held *h, int device)
{
    return !h->done && h->launch.device == device;
}

// One round over the first of each device; false: all have to wait.
static bool go_round(void)
{
    bool moved = false;
    int n = atomic_load(&sim_held.n), left = 0;
    sim_pending_poll();
    for (int i = 0; i < n; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++) first = !comes_before(&held[k], held[i].launch.device);
        if (first && !held[i].done) moved |= go_on(&held[i]);
    }
    for (int i = 0; i < n; i++)
        if (!held[i].done) held[left++] = held[i];
    atomic_store(&sim_held.n, left);
    if (n && !left) {
        if (nodes) sim_graph_free(nodes);
        nodes = NULL;
        simgpu_captures--;
    }
    return moved;
}

static void make_all(const char *call, bool waits)
{
    Notice notice;
    pthread_mutex_lock(&lock);
    making = true;
    sim_notice_begin(&notice);
    while (atomic_load(&sim_held.n)) {
        uint32_t ticket = sim_ticket();
        if (go_round()) continue;
        if (!waits) break;
        ncclComm_t comms[SIM_MAX_DEVICES];
        int n = 0;
        for (int i = 0; i < atomic_load(&sim_held.n) && n < SIM_MAX_DEVICES; i++)
            if (held[i].comm) comms[n++] = held[i].comm;
        sim_pending_wait(comms, n, ticket, &notice);
    }
    making = false;
    pthread_mutex_unlock(&lock);
}

static bool may_come_before(const char *call, int device)
{
    static const char *const calls[] = {"cudaSetDevice", "cudaGetDevice", "cudaGraphLaunch"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (call && strcmp(call, calls[i]) == 0) return true;
    if (device < 0 || !call || strcmp(call, "cudaStreamWaitEvent") == 0) return false;
    bool before = false;
    for (int i = 0; i < atomic_load(&sim_held.n) && !before; i++)
        before = comes_before(&held[i], device);
    return !before;
}

// A thread other than the one that launched them proceeds with them as far as it can.
static void make_held(const char *call, int device)
{
    if (making) return;
    bool own = pthread_equal(owner, pthread_self());
    if (!own || !may_come_before(call, device)) make_all(call, own);
}

void sim_launches_made(void)
{
    if (atomic_load(&sim_held.n)) make_held(NULL, -1);
}

static bool hold(Held h)
{
    int n = atomic_load(&sim_held.n);
    if (n == room) {
        Held *more = realloc(held, (size_t)(n + 16) * sizeof *held);
        if (!more) return false;
        held = more;
        room = n + 16;
    }
    if (!n) simgpu_captures++; // then kernels say their arguments
    held[n] = h;
    owner = pthread_self();
    sim_held.make = make_held;
    atomic_store(&sim_held.n, n + 1);
    return true;
}

static bool hold_launch(const SimLaunch *launch)
{
    Held h = {.launch = *launch};
    int n = atomic_load(&sim_held.n);
    if (making || (n && !pthread_equal(owner, pthread_self()))) return false;
    bool needed = needs_others(&h), local = h.local;
    for (int i = 0; i < n; i++) needed |= comes_before(&held[i], launch->device);
    for (int i = 0; i < n; i++) local &= held[i].local;
    if (!needed || !hold(h)) return false;
    if (local) make_all("cudaGraphLaunch", false);
    return true;
}

static bool hold_node(cudaStream_t stream, const char *call, const void *site, SimNewNode node)
{
    int device = sim_current_device();
    bool needed = false;
    if (making || !atomic_load(&sim_held.n) || !pthread_equal(owner, pthread_self())) return false;
    pthread_mutex_lock(&sim_streams_lock);
    const struct CUstream_st *s = sim_stream_of_handle(stream);
    if (s) device = s->device;
    bool captured = !s || s->capture;
    pthread_mutex_unlock(&sim_streams_lock);
    for (int i = 0; i < atomic_load(&sim_held.n); i++) needed |= comes_before(&held[i], device);
    if (!needed || captured) return false;
    if (!nodes) nodes = sim_graph_new(site);
    node.name = call;
    node.site = site;
    Held h = {.launch = {.stream = stream, .device = device}, .local = true};
    h.node = nodes ? sim_graph_add(nodes, node, NULL, 0) : NULL;
    return h.node && hold(h);
}

void sim_launches_hold(void)
{
    sim_hold_launch = hold_launch;
    sim_hold_node = hold_node;
}
