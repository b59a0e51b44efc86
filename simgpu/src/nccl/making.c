/* making.c: makes all communicators of a group.
 *
 * Each exists from the beginning, but has not joined. The communicators join, rank 0 first, since
 * the others may find the memory through it, and then connect to their peers. A shrink has no id:
 * the first rank that stays makes one and puts it into its slot of the parent, together with the
 * ranks that it leaves out. The others read it there. So no rank needs those that are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/diagnose.h"
#include "nccl/group.h"
#include "nccl/making.h"
#include "nccl/pending.h"
#include "runtime/runtime.h"

static bool is_callers(const Init *init)
{
    return init->options.nonblocking && !init->parent;
}

ncclResult_t sim_making_begin(Making *making, Init *init, int n)
{
    sim_group_hooks();
    *making = (Making){.init = init, .n = n, .comm = calloc((size_t)n, sizeof(ncclComm_t))};
    ncclResult_t result = making->comm ? ncclSuccess : ncclSystemError;
    for (int i = 0; i < n && result == ncclSuccess; i++) {
        result = sim_comm_make(&init[i], &making->comm[i]);
        if (result == ncclSuccess && is_callers(&init[i])) *init[i].out = making->comm[i];
    }
    if (result == ncclSuccess) return result;
    for (int i = 0; i < n; i++) init[i].options.nonblocking = false;
    sim_making_drop(making);
    return result;
}

static void free_making(Making *making)
{
    for (int i = 0; i < making->n; i++) free(making->init[i].own_mates);
    free(making->comm);
    free(making->init);
    *making = (Making){.n = 0};
}

void sim_making_drop(Making *making)
{
    for (int i = 0; i < making->n; i++) {
        if (is_callers(&making->init[i])) continue;
        *making->init[i].out = NULL;
        if (making->comm && making->comm[i]) sim_comm_leave(making->comm[i], NULL);
    }
    free_making(making);
}

// ---- Shrinks ----

// Whether the other rank, which stays too, leaves out other ranks than this one does.
static bool differs(const RankSlot *a, const RankSlot *b)
{
    if (!atomic_load(&b->shrinking)) return false;
    for (int i = 0; i < SIM_MAX_RANKS / 64; i++)
        if (atomic_load(&a->left_out[i]) != atomic_load(&b->left_out[i])) return true;
    return false;
}

// The id of a shrink's communicator; ncclInProgress: its first rank has not come.
static ncclResult_t find_shrunk(Init *init, ncclComm_t comm)
{
    ncclComm_t parent = init->parent;
    RankSlot *self = parent->self, *first = &parent->shared->slot[init->mates[0]];
    if (!atomic_load(&self->shrinking)) {
        sim_listen(self, true);
        for (int i = 0; i < SIM_MAX_RANKS / 64; i++)
            atomic_store(&self->left_out[i], init->left_out[i]);
        if (first == self) {
            ncclResult_t result = sim_comm_id_offer(&init->id);
            if (result != ncclSuccess) return result;
            self->shrink_id = init->id;
        }
        atomic_store(&self->shrinking, first == self ? 2 : 1);
        sim_comm_wake(parent);
    }
    for (int i = 0; i < init->size; i++) {
        int mate = init->mates[i];
        if (differs(self, &parent->shared->slot[mate]))
            sim_diagnose_shrink(parent, mate, init->site);
        if (first != self && mate != parent->rank && sim_comm_gone(parent, mate)) {
            if (comm->options.nonblocking) return ncclRemoteError;
            sim_diagnose_missing(parent, mate, NULL, init->site, NULL);
        }
    }
    if (first != self) {
        if (atomic_load(&first->shrinking) != 2) return ncclInProgress;
        init->id = first->shrink_id;
    }
    init->shrinks = false;
    return ncclSuccess;
}

// ---- All of them ----

static ncclResult_t join_on_device(Init *init, ncclComm_t comm)
{
    if (init->shrinks) {
        ncclResult_t result = find_shrunk(init, comm);
        if (result != ncclSuccess) return result;
    }
    int device = sim_current_device();
    if (device != init->device) cudaSetDevice(init->device);
    ncclResult_t result = sim_comm_join(comm, init);
    if (device != init->device) cudaSetDevice(device);
    return result;
}

ncclResult_t sim_making_join(Making *making)
{
    ncclResult_t result = ncclSuccess;
    bool waits = false;
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < making->n && result == ncclSuccess; i++) {
            if (making->comm[i]->self || (making->init[i].rank == 0) != first) continue;
            result = join_on_device(&making->init[i], making->comm[i]);
            if (result != ncclInProgress) continue;
            waits = true;
            result = ncclSuccess;
        }
    return result == ncclSuccess && waits ? ncclInProgress : result;
}

ncclResult_t sim_making_try(Making *making)
{
    ncclResult_t joined = sim_making_join(making), result = joined;
    if (joined == ncclSuccess || joined == ncclInProgress)
        result = sim_comm_try_connect(making->comm, making->n);
    if (result == ncclSuccess) result = joined;
    if (result == ncclInProgress) return result;
    if (result == ncclSuccess) result = sim_comm_connected(making->comm, making->n);
    if (result != ncclSuccess) {
        sim_making_drop(making);
        return result;
    }
    for (int i = 0; i < making->n; i++) *making->init[i].out = making->comm[i];
    free_making(making);
    return ncclSuccess;
}

ncclResult_t sim_run_inits(Init *init, int n)
{
    Notice notice;
    Making making;
    ncclResult_t result = sim_making_begin(&making, init, n);
    if (result != ncclSuccess) return result;
    sim_notice_begin(&notice);
    for (;;) {
        uint32_t ticket = sim_ticket();
        sim_pending_poll();
        result = sim_making_try(&making);
        if (result != ncclInProgress) return result;
        sim_comm_await(making.comm, making.n, ticket, &notice);
    }
}
