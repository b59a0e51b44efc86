/* phantom.c: dry runs among phantoms (SIMGPU_PHANTOMS=1): one process is one rank of a world of any
 * size, and nobody runs the others.
 *
 * A phantom makes the calls that this rank makes, at the same times. So a call is done when it is
 * made: there is nobody to wait for, and no data to move. The log has what it would have among real
 * ranks, the communicators' numbers included: they follow from the order of the calls alone, so
 * that the logs of several such processes fit together (time/replay.h).
 *
 * What phantoms pass to ncclCommSplit is asked of the program (simgpu_phantom_splits): it makes its
 * splits once as each of the ranks, on communicators that only remember.
 *
 * Interface: sim_phantoms, sim_phantom_join, sim_phantom_free, sim_phantom_run, sim_phantom_nodes;
 * simgpu_phantom_splits.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nccl/comm.h"
#include "report/report.h"
#include "simgpu_nccl.h"

typedef struct Split { // what a rank passes to a split
    int color, key;
} Split;

// The splits of a communicator, as each of its ranks makes them.
typedef struct Roster {
    int n, room;
    Split **split; // (n) of (size)
} Roster;

struct Phantoms {
    int *world_rank;   // (size) what the ranks are in the world of the launcher
    int splits;        // made so far
    bool is_part;      // it was split off another one
    Roster roster;     // empty until the first split
    Roster *remembers; // asked what it would do as its rank: where that goes; else NULL
};

static SimgpuSplits ask;
static void *ask_arg;

bool sim_phantoms(void)
{
    return sim_config()->phantoms;
}

void simgpu_phantom_splits(SimgpuSplits splits, void *arg)
{
    ask = splits;
    ask_arg = arg;
}

// ---- Communicators ----

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void sim_phantom_free(ncclComm_t comm)
{
    struct Phantoms *p = comm->phantoms;
    if (comm->shared) munmap(comm->shared, sizeof *comm->shared);
    for (int i = 0; p && i < p->roster.n; i++) free(p->roster.split[i]);
    if (p) free(p->roster.split);
    if (p) free(p->world_rank);
    free(p);
    free(comm->redop);
    free(comm->logged.sends);
    free(comm);
}

// Without a number; NULL: no memory.
static ncclComm_t make(int rank, int size, int device)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return NULL;
    *comm = (struct ncclComm){.rank = rank, .size = size, .device = device, .connected = true};
    comm->phantoms = calloc(1, sizeof *comm->phantoms);
    if (comm->phantoms)
        comm->phantoms->world_rank = malloc((size_t)size * sizeof *comm->phantoms->world_rank);
    void *shared = mmap(NULL, sizeof(CommShared), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared != MAP_FAILED) comm->shared = shared;
    if (sim_comm_count_calls(comm) && comm->phantoms && comm->phantoms->world_rank &&
        comm->shared) {
        comm->self = &comm->shared->slot[0];
        return comm;
    }
    sim_phantom_free(comm);
    return NULL;
}

ncclResult_t sim_phantom_join(const Init *init, ncclComm_t *out)
{
    static _Atomic uint64_t made;
    *out = NULL;
    SimDevice *device = sim_device(sim_current_device());
    if (!device) return ncclUnhandledCudaError;
    ncclComm_t comm = make(init->rank, init->size, device->index);
    if (!comm) return ncclSystemError;
    comm->site = init->site;
    const ncclComm_t parent = init->parent;
    comm->phantoms->is_part = parent != NULL;
    for (int r = 0; r < init->size; r++)
        comm->phantoms->world_rank[r] =
            parent ? parent->phantoms->world_rank[init->mates[r]] : r;
    // The same on all its ranks, and of no other part: which split it was, and its first rank.
    if (parent)
        comm->shared->nonce = mix(parent->shared->nonce + mix((uint64_t)init->mates[init->size]) +
                                  (uint64_t)init->mates[0]);
    else
        comm->shared->nonce = mix(atomic_fetch_add(&made, 1) + 1);
    sim_comm_enlist(comm);
    if (!parent || !parent->phantoms->remembers) sim_clock_set_rank(comm->device, comm->rank);
    *out = comm;
    return ncclSuccess;
}

int sim_phantom_nodes(ncclComm_t comm, int peer, int per_node)
{
    const int *world = comm->phantoms->world_rank;
    int n = 0, most = 0;
    if (peer >= 0) return world[peer] / per_node == world[comm->rank] / per_node ? 1 : 2;
    for (int r = 0; r < comm->size; r++)
        if (world[r] > most) most = world[r];
    bool *seen = calloc((size_t)(most / per_node) + 1, sizeof *seen);
    for (int r = 0; seen && r < comm->size; r++) {
        n += !seen[world[r] / per_node];
        seen[world[r] / per_node] = true;
    }
    free(seen);
    return n;
}

// ---- Splits ----

// One of the ranks says what it passes to its split number `nth`.
static bool remember(Roster *roster, int nth, ncclComm_t comm, Split split)
{
    if (nth == roster->room) {
        int room = roster->room ? 2 * roster->room : 4;
        Split **more = realloc(roster->split, (size_t)room * sizeof *more);
        if (!more) return false;
        roster->split = more;
        roster->room = room;
    }
    if (nth == roster->n) {
        Split *all = malloc((size_t)comm->size * sizeof *all);
        if (!all) return false;
        for (int r = 0; r < comm->size; r++) all[r].color = NCCL_SPLIT_NOCOLOR;
        roster->split[roster->n++] = all;
    }
    roster->split[nth][comm->rank] = split;
    return true;
}

// Has the program make its splits as each rank of the communicator.
static bool ask_all(ncclComm_t comm)
{
    for (int r = 0; r < comm->size; r++) {
        ncclComm_t as = make(r, comm->size, comm->device);
        if (!as) return false;
        memcpy(as->phantoms->world_rank, comm->phantoms->world_rank,
               (size_t)comm->size * sizeof *as->phantoms->world_rank);
        as->shared->nonce = mix(comm->shared->nonce + 1 + (uint64_t)r);
        as->phantoms->remembers = &comm->phantoms->roster;
        sim_comm_enlist(as);
        ask(as, ask_arg);
        sim_comm_unlist(as);
        sim_phantom_free(as);
    }
    return true;
}

static ncclResult_t refuse(const Call *call, const char *text)
{
    char where[256];
    gpulog_where(call->site, where, sizeof where);
    sim_nccl_error("ncclCommSplit among phantom peers");
    sim_facts_call("ncclCommSplit", call->site, SIM_NO_STREAM);
    sim_report(SIMGPU_CALL, "a split among phantom peers",
               "ncclCommSplit, called at %s,\nreturns \"%s\".\n%s", where,
               ncclGetErrorString(ncclInvalidUsage), text);
    return ncclInvalidUsage;
}

static int by_key(const Split *all, int a, int b)
{
    if (all[a].key != all[b].key) return all[a].key < all[b].key ? -1 : 1;
    return a < b ? -1 : a > b;
}

// The ranks of this rank's color, by (key, rank), and its place among them.
static ncclResult_t find_mates(Call *call, const Split *all, int nth)
{
    ncclComm_t comm = call->comm;
    int n = 0, *mates = malloc(((size_t)comm->size + 1) * sizeof *mates);
    if (!mates) return ncclSystemError;
    for (int r = 0; r < comm->size; r++) {
        if (all[r].color != call->desc.color) continue;
        int at = n++;
        for (; at > 0 && by_key(all, r, mates[at - 1]) < 0; at--) mates[at] = mates[at - 1];
        mates[at] = r;
    }
    mates[n] = nth;
    call->phantom_mates = mates;
    call->new_size = n;
    for (int i = 0; i < n; i++)
        if (mates[i] == comm->rank) call->new_rank = i;
    return ncclSuccess;
}

// While it is asked what it does, a rank gets a communicator of its own.
static ncclResult_t split_as_asked(Call *call)
{
    struct Phantoms *p = call->comm->phantoms;
    Split mine = {call->desc.color, call->desc.key};
    call->phantom_mates = malloc(2 * sizeof *call->phantom_mates);
    if (!call->phantom_mates || !remember(p->remembers, p->splits, call->comm, mine))
        return ncclSystemError;
    call->phantom_mates[0] = call->comm->rank;
    call->phantom_mates[1] = p->splits;
    call->new_size = mine.color >= 0;
    return ncclSuccess;
}

static ncclResult_t split(Call *call)
{
    struct Phantoms *p = call->comm->phantoms;
    call->new_size = call->new_rank = 0;
    if (p->remembers) {
        ncclResult_t result = split_as_asked(call);
        p->splits++;
        return result;
    }
    if (!ask || p->is_part)
        return refuse(call, ask ? "The communicator was split off another one: that is not supported."
                                : "Nobody runs the other ranks, so what they pass is not known.\n"
                                  "Does the program say so by simgpu_phantom_splits "
                                  "(simgpu_nccl.h)?");
    if (!p->roster.n && !ask_all(call->comm)) return ncclSystemError;
    int nth = p->splits++;
    const Split *all = nth < p->roster.n ? p->roster.split[nth] : NULL;
    if (!all || all[call->comm->rank].color != call->desc.color ||
        all[call->comm->rank].key != call->desc.key)
        return refuse(call, "What simgpu_phantom_splits was given passes another color or key as "
                            "this rank.\n"
                            "Does it make all of the program's splits, in the same order?");
    return call->desc.color < 0 ? ncclSuccess : find_mates(call, all, nth);
}

// ---- Calls ----

ncclResult_t sim_phantom_run(Call *calls, int n)
{
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < n && result == ncclSuccess; i++) {
        if (calls[i].signature.kind == CALL_SPLIT) result = split(&calls[i]);
        calls[i].state = CALL_DONE;
    }
    return result;
}
