/* phantom.c: dry runs among phantoms (SIMGPU_PHANTOMS=1): one process is one rank of a world of any
 * size, and no process runs the other ranks, the phantoms.
 *
 * A phantom makes the calls that this rank makes, at the same times. So a call is done when it is
 * made: there is no rank to wait for, and no data to move. The log has what it would have among
 * real ranks, even the numbers of communicators: only the order of the calls determines these, so
 * that the logs of several such processes fit together (time/replay.h).
 *
 * What phantoms pass to ncclCommSplit, the program must say (simgpu_phantom_splits): it makes its
 * splits once as each of the ranks, on communicators that only record. If a part is split again,
 * the program does so once more as each rank of that part. By then the splits before are known, so
 * that it gets parts with their ranks and sizes.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nccl/kind.h"
#include "nccl/phantom.h"
#include "nccl/refuse.h"
#include "report/report.h"
#include "simgpu_nccl.h"
#include "time/time.h"

typedef struct Split { // the arguments of one rank
    int color, key;
} Split;

// The ranks of a communicator, and its splits as each of them makes them. It lives as long as the
// communicator or one that was split off it.
typedef struct Roster {
    int refs, size;
    struct Roster *of; // from which it was split; NULL: the program's own
    int nth, *mates;   // by its split number `nth`; (size) the ranks there
    int n, room;       // splits that are known
    Split **split;     // (n) of (size)
} Roster;

struct Phantoms {
    int *world_rank; // (size) the ranks' numbers in the launcher's world
    int splits;      // made so far
    Roster *roster;  // NULL: of a rank that is asked, and not one that leads to the question
    Roster *asks;    // whose splits it is asked for, as one of its ranks; NULL: it is not asked
};

static SimgpuSplits program_splits;
static void *program_arg;

bool sim_phantoms(void)
{
    return sim_config()->phantoms;
}

void simgpu_phantom_splits(SimgpuSplits splits, void *arg)
{
    program_splits = splits;
    program_arg = arg;
}

// ---- Communicators ----

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static Roster *keep_roster(Roster *roster)
{
    if (roster) roster->refs++;
    return roster;
}

static void drop_roster(Roster *roster)
{
    while (roster && --roster->refs == 0) {
        Roster *of = roster->of;
        for (int i = 0; i < roster->n; i++) free(roster->split[i]);
        free(roster->split);
        free(roster->mates);
        free(roster);
        roster = of;
    }
}

// NULL: no memory.
static Roster *new_roster(const Init *init)
{
    Roster *roster = calloc(1, sizeof *roster);
    size_t bytes = (size_t)init->size * sizeof *roster->mates;
    if (!roster) return NULL;
    *roster = (Roster){.refs = 1, .size = init->size};
    if (!init->parent) return roster;
    roster->of = keep_roster(init->parent->phantoms->roster);
    roster->nth = init->mates[init->size];
    roster->mates = malloc(bytes);
    if (roster->mates) {
        memcpy(roster->mates, init->mates, bytes);
        return roster;
    }
    drop_roster(roster);
    return NULL;
}

// Of a rank that is asked: the communicator that its split number `nth` makes and that leads to the
// question; NULL: none.
static Roster *on_the_way(const struct Phantoms *p, int nth)
{
    Roster *next = p->asks;
    if (!p->roster || next == p->roster) return NULL;
    while (next->of != p->roster) next = next->of;
    return next->nth == nth ? next : NULL;
}

void sim_phantom_free(ncclComm_t comm)
{
    struct Phantoms *p = comm->phantoms;
    if (comm->shared) munmap(comm->shared, sizeof *comm->shared);
    if (p) drop_roster(p->roster);
    if (p) free(p->world_rank);
    free(p);
    sim_comm_free(comm);
}

// It has no number yet; NULL: no memory.
static ncclComm_t make_comm(int rank, int size, int device)
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
    if (sim_comm_fill(comm, NULL) && comm->phantoms && comm->phantoms->world_rank && comm->shared) {
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
    ncclComm_t comm = make_comm(init->rank, init->size, device->index);
    if (!comm) return ncclSystemError;
    comm->site = init->site;
    comm->options = init->options;
    const ncclComm_t parent = init->parent;
    struct Phantoms *p = comm->phantoms;
    p->asks = parent ? parent->phantoms->asks : NULL;
    p->roster = p->asks ? keep_roster(on_the_way(parent->phantoms, init->mates[init->size]))
                        : new_roster(init);
    if (!p->asks && !p->roster) {
        sim_phantom_free(comm);
        return ncclSystemError;
    }
    for (int r = 0; r < init->size; r++)
        p->world_rank[r] = parent ? parent->phantoms->world_rank[init->mates[r]] : r;
    // A number that all its ranks have, and no other part: the split's number and its first rank.
    if (parent)
        comm->shared->nonce = mix(parent->shared->nonce + mix((uint64_t)init->mates[init->size]) +
                                  (uint64_t)init->mates[0]);
    else
        comm->shared->nonce = mix(atomic_fetch_add(&made, 1) + 1);
    sim_comm_enlist(comm);
    if (!p->asks) sim_clock_set_rank(comm->device, comm->rank);
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

// Records what one of the ranks passes to its split number `nth`.
static bool remember_split(Roster *roster, int nth, int rank, Split split)
{
    if (nth == roster->room) {
        int room = roster->room ? 2 * roster->room : 4;
        Split **more = realloc(roster->split, (size_t)room * sizeof *more);
        if (!more) return false;
        roster->split = more;
        roster->room = room;
    }
    if (nth == roster->n) {
        Split *all = malloc((size_t)roster->size * sizeof *all);
        if (!all) return false;
        for (int r = 0; r < roster->size; r++) all[r].color = NCCL_SPLIT_NOCOLOR;
        roster->split[roster->n++] = all;
    }
    roster->split[nth][rank] = split;
    return true;
}

// Has the program make its splits as each rank of the communicator, from the program's own one on.
static bool ask_all(ncclComm_t comm)
{
    Roster *roster = comm->phantoms->roster, *own = roster;
    while (own->of) own = own->of;
    for (int i = 0; i < roster->size; i++) {
        int rank = i;
        for (const Roster *r = roster; r->of; r = r->of) rank = r->mates[rank];
        ncclComm_t as = make_comm(rank, own->size, comm->device);
        if (!as) return false;
        for (int r = 0; r < own->size; r++) as->phantoms->world_rank[r] = r;
        as->shared->nonce = mix(comm->shared->nonce + 1 + (uint64_t)rank);
        as->phantoms->roster = keep_roster(own);
        as->phantoms->asks = roster;
        sim_comm_enlist(as);
        program_splits(as, program_arg);
        sim_comm_unlist(as);
        sim_phantom_free(as);
    }
    return true;
}

static ncclResult_t refuse_split(const Call *call, const char *text)
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

// While it is asked, a rank gets a communicator of its own, or the part that it would get if that
// is known and leads to the question.
static ncclResult_t split_as_asked(Call *call)
{
    struct Phantoms *p = call->comm->phantoms;
    Split mine = {call->desc.color, call->desc.key};
    int nth = p->splits++, rank = call->comm->rank;
    const Roster *next = on_the_way(p, nth);
    int n = next ? next->size : 1, *mates = malloc(((size_t)n + 1) * sizeof *mates);
    call->phantom_mates = mates;
    if (!mates || (p->roster == p->asks && !remember_split(p->asks, nth, rank, mine)))
        return ncclSystemError;
    for (int i = 0; i < n; i++) {
        mates[i] = next ? next->mates[i] : rank;
        if (mates[i] == rank) call->new_rank = i;
    }
    mates[n] = nth;
    call->new_size = mine.color >= 0 ? n : 0;
    return ncclSuccess;
}

static ncclResult_t split_comm(Call *call)
{
    struct Phantoms *p = call->comm->phantoms;
    call->new_size = call->new_rank = 0;
    if (p->asks) return split_as_asked(call);
    if (!program_splits)
        return refuse_split(call,
                            "No process runs the other ranks, so what they pass is not known.\n"
                            "Does the program say so by simgpu_phantom_splits (simgpu_nccl.h)?");
    Roster *roster = p->roster;
    if (!roster->n && !ask_all(call->comm)) return ncclSystemError;
    int nth = p->splits++;
    const Split *all = nth < roster->n ? roster->split[nth] : NULL;
    if (!all || all[call->comm->rank].color != call->desc.color ||
        all[call->comm->rank].key != call->desc.key)
        return refuse_split(
            call, "The function given to simgpu_phantom_splits passes another color or key as "
                  "this rank.\n"
                  "Does it make all of the program's splits, in the same order?");
    return call->desc.color < 0 ? ncclSuccess : find_mates(call, all, nth);
}

// ---- Calls ----

ncclResult_t sim_phantom_run(Call *calls, int n)
{
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < n && result == ncclSuccess; i++) {
        if (calls[i].signature.kind == CALL_SPLIT) result = split_comm(&calls[i]);
        calls[i].state = CALL_DONE;
    }
    return result;
}
