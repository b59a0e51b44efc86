/* comm.c: communicators. Making and destroying one is not logged, but it waits for other ranks, and
 * gpulog_activity then says so.
 *
 * An entry names its communicator by a number that is the same on all ranks. It is made from the
 * unique id, or from the parent's number, the split's number and the color. An id may be used again
 * (NCCL_COMM_ID makes all ids equal), so the number also counts this rank's uses of it. The
 * interposer does not know on how many nodes the ranks are.
 */
#include <nccl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "interpose.h"

// ---- What is known of each ----

typedef struct Comm {
    struct Comm *next;
    ncclComm_t comm;
    uint64_t number; // 0: not known
    uint64_t collectives, splits;
    uint64_t *sends, *recvs; // (ranks) to and from each rank
    CommPlace place;         // ranks is 0 until NCCL has been asked
} Comm;

// An id that this process has used for a rank, and how often.
typedef struct Use {
    struct Use *next;
    uint64_t id;
    int rank;
    uint64_t times;
} Use;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Comm *comms; // few
static Use *uses;

// A communicator that was asked for and does not exist yet. It does when the group has ended or,
// with a non-blocking parent, when the parent says so.
typedef struct Asked {
    struct Asked *next;
    ncclComm_t parent, *comm;
    uint64_t number;
    CommPlace place;
} Asked;
static _Thread_local Asked asked[64];
static Asked *awaited; // of non-blocking parents
static _Thread_local int n_asked;

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    a = (a ^ a >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    a ^= a >> 29;
    return a ? a : 1; // 0 is no communicator
}

// Called with the lock held, like the functions that follow.
static Comm **find(ncclComm_t comm)
{
    Comm **link = &comms;
    while (*link && (*link)->comm != comm) link = &(*link)->next;
    return link;
}

static void forget(ncclComm_t comm)
{
    Comm **link = find(comm), *gone = *link;
    if (!gone) return;
    *link = gone->next;
    free(gone->sends);
    free(gone->recvs);
    free(gone);
}

static void add(ncclComm_t comm, uint64_t number, CommPlace place)
{
    Comm *made = calloc(1, sizeof *made);
    if (!made) give_up("no host memory for a communicator");
    forget(comm); // a destroyed one that had this address
    *made = (Comm){.next = comms, .comm = comm, .number = number, .place = place};
    comms = made;
}

// The number of a communicator that is made from `hash`; it counts this rank's uses of `hash`.
static uint64_t number_of_use(uint64_t hash, int rank)
{
    pthread_mutex_lock(&lock);
    Use *use = uses;
    while (use && (use->id != hash || use->rank != rank)) use = use->next;
    if (!use) {
        use = calloc(1, sizeof *use);
        if (!use) give_up("no host memory for a communicator");
        *use = (Use){.next = uses, .id = hash, .rank = rank};
        uses = use;
    }
    hash = mix(hash, ++use->times);
    pthread_mutex_unlock(&lock);
    return hash;
}

static uint64_t number_of(const ncclUniqueId *id, int rank)
{
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof id->internal; i++)
        hash = mix(hash, (unsigned char)id->internal[i]);
    return number_of_use(hash, rank);
}

static void add_or_await(const Asked *it)
{
    if (*it->comm) {
        add(*it->comm, it->number, it->place);
    } else if (it->parent) {
        Asked *kept = malloc(sizeof *kept);
        if (!kept) give_up("no host memory for a communicator");
        *kept = *it;
        kept->next = awaited;
        awaited = kept;
    }
}

// `parent`: NULL if the communicator exists when the call returns, or never will.
static ncclResult_t made_of(ncclResult_t result, ncclComm_t parent, ncclComm_t *comm,
                            uint64_t number, CommPlace place)
{
    const Asked it = {NULL, parent, comm, number, place};
    if (result != ncclSuccess && result != ncclInProgress) return result;
    if (in_group()) {
        if (n_asked < (int)(sizeof asked / sizeof asked[0])) asked[n_asked++] = it;
        return result;
    }
    pthread_mutex_lock(&lock);
    add_or_await(&it);
    pthread_mutex_unlock(&lock);
    return result;
}

static ncclResult_t made(ncclResult_t result, ncclComm_t *comm, uint64_t number, CommPlace place)
{
    return made_of(result, NULL, comm, number, place);
}

// The parent's calls are over: its children exist or, if not `there`, never will.
static void take_awaited(ncclComm_t parent, bool there)
{
    pthread_mutex_lock(&lock);
    for (Asked **link = &awaited, *it; (it = *link);) {
        if (it->parent != parent) {
            link = &it->next;
            continue;
        }
        *link = it->next;
        if (there && *it->comm) add(*it->comm, it->number, it->place);
        free(it);
    }
    pthread_mutex_unlock(&lock);
}

void comm_group_ended(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_asked; i++) add_or_await(&asked[i]);
    pthread_mutex_unlock(&lock);
    n_asked = 0;
}

CommPlace comm_place(ncclComm_t comm, bool worked)
{
    CommPlace place = {0, 0, 0};
    pthread_mutex_lock(&lock);
    Comm *known = *find(comm);
    bool asks = known ? known->place.ranks == 0 : comm && worked;
    if (known) place = known->place;
    pthread_mutex_unlock(&lock);
    if (!asks || ncclCommCount(comm, &place.ranks) != ncclSuccess) return place;
    ncclCommUserRank(comm, &place.rank);
    ncclCommCuDevice(comm, &place.device);
    pthread_mutex_lock(&lock);
    known = *find(comm);
    if (known)
        known->place = place;
    else
        add(comm, 0, place);
    pthread_mutex_unlock(&lock);
    return place;
}

GpuCollective comm_call(ncclComm_t comm, GpuOp op, int peer)
{
    CommPlace place = comm_place(comm, true);
    GpuCollective call = {.ranks = place.ranks, .rank = place.rank, .peer = peer};
    pthread_mutex_lock(&lock);
    Comm *known = *find(comm);
    if (known && peer >= 0 && !known->sends) {
        known->sends = calloc((size_t)call.ranks, sizeof *known->sends);
        known->recvs = calloc((size_t)call.ranks, sizeof *known->recvs);
        if (!known->sends || !known->recvs) give_up("no host memory for a communicator");
    }
    if (known && known->number) {
        call.comm = known->number;
        call.call = peer < 0         ? ++known->collectives
                    : op == GPU_SEND ? ++known->sends[peer]
                                     : ++known->recvs[peer];
    }
    pthread_mutex_unlock(&lock);
    return call;
}

// This process's place in a communicator that it asks for on its current device.
static CommPlace place_here(int ranks, int rank)
{
    CommPlace place = {ranks, rank, 0};
    cudaGetDevice(&place.device);
    return place;
}

static const CommPlace to_be_asked;

// ---- The calls ----

WRAPPED(ncclCommInitRank);
WRAPPED(ncclCommInitRankConfig);
WRAPPED(ncclCommInitAll);
WRAPPED(ncclCommSplit);
WRAPPED(ncclCommFinalize);
WRAPPED(ncclCommDestroy);
WRAPPED(ncclCommAbort);
WRAPPED(ncclCommGetAsyncError);

ncclResult_t __wrap_ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return made(
        WAITING("ncclCommInitRank", SITE, __real_ncclCommInitRank(comm, nranks, commId, rank)),
        comm, number_of(&commId, rank), place_here(nranks, rank));
}

ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                           int rank, ncclConfig_t *config)
{
    return made(WAITING("ncclCommInitRankConfig", SITE,
                        __real_ncclCommInitRankConfig(comm, nranks, commId, rank, config)),
                comm, number_of(&commId, rank), place_here(nranks, rank));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
WRAPPED(ncclCommInitRankScalable);
ncclResult_t __wrap_ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                             ncclUniqueId *commIds, ncclConfig_t *config)
{
    ncclResult_t result =
        WAITING("ncclCommInitRankScalable", SITE,
                __real_ncclCommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config));
    return commIds ? made(result, newcomm, number_of(commIds, myrank), place_here(nranks, myrank))
                   : result;
}
#endif

ncclResult_t __wrap_ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclResult_t result =
        WAITING("ncclCommInitAll", SITE, __real_ncclCommInitAll(comm, ndev, devlist));
    // No other process has a part in it.
    uint64_t number = mix((uint64_t)getpid(), (uint64_t)time(NULL));
    static _Atomic uint64_t all;
    number = mix(number, ++all);
    for (int i = 0; i < ndev && result == ncclSuccess; i++)
        made(result, &comm[i], number, to_be_asked);
    return result;
}

ncclResult_t __wrap_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                  ncclConfig_t *config)
{
    pthread_mutex_lock(&lock);
    Comm *parent = *find(comm);
    uint64_t number =
        parent ? mix(mix(parent->number, ++parent->splits), (uint64_t)(uint32_t)color) : 0;
    pthread_mutex_unlock(&lock);
    ncclResult_t result =
        WAITING("ncclCommSplit", SITE, __real_ncclCommSplit(comm, color, key, newcomm, config));
    return number && color != NCCL_SPLIT_NOCOLOR
               ? made_of(result, comm, newcomm, number, to_be_asked)
               : result;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
WRAPPED(ncclCommShrink);
// The number is the same on all ranks that stay: the ranks that leave make no call.
ncclResult_t __wrap_ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                   ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    CommPlace place = comm_place(comm, false); // while it may be asked
    pthread_mutex_lock(&lock);
    Comm *parent = *find(comm);
    uint64_t number = parent ? mix(parent->number, 0) : 0;
    pthread_mutex_unlock(&lock);
    ncclResult_t result = WAITING("ncclCommShrink", SITE,
                                  __real_ncclCommShrink(comm, excludeRanksList, excludeRanksCount,
                                                        newcomm, config, shrinkFlags));
    if (!number || (result != ncclSuccess && result != ncclInProgress)) return result;
    for (int i = 0; i < excludeRanksCount; i++) // NCCL has sorted them
        number = mix(number, (uint64_t)excludeRanksList[i] + 1);
    return made_of(result, comm, newcomm, number_of_use(number, place.rank), to_be_asked);
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
WRAPPED(ncclCommRevoke);
ncclResult_t __wrap_ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    return WAITING("ncclCommRevoke", SITE, __real_ncclCommRevoke(comm, revokeFlags));
}
#endif

ncclResult_t __wrap_ncclCommFinalize(ncclComm_t comm)
{
    return WAITING("ncclCommFinalize", SITE, __real_ncclCommFinalize(comm));
}

ncclResult_t __wrap_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result = __real_ncclCommGetAsyncError(comm, asyncError);
    if (result == ncclSuccess && *asyncError == ncclSuccess) take_awaited(comm, true);
    return result;
}

static void leave(ncclComm_t comm)
{
    take_awaited(comm, false);
    pthread_mutex_lock(&lock);
    forget(comm);
    pthread_mutex_unlock(&lock);
}

ncclResult_t __wrap_ncclCommDestroy(ncclComm_t comm)
{
    leave(comm);
    return WAITING("ncclCommDestroy", SITE, __real_ncclCommDestroy(comm));
}

ncclResult_t __wrap_ncclCommAbort(ncclComm_t comm)
{
    leave(comm);
    return WAITING("ncclCommAbort", SITE, __real_ncclCommAbort(comm));
}
