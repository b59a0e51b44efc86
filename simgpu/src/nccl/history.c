/* history.c: the call sites of the last collectives of each rank.
 *
 * If a rank skips a call, its later calls may match for a while, since other layers have the same
 * count. The mistake then shows many calls later, far from its place. So every rank keeps the call
 * sites of its last collectives. The report shows the first collective that ranks made from
 * different places: there they diverged.
 */
#include "nccl/history.h"

extern char __executable_start[] __attribute__((weak)), etext[] __attribute__((weak));

void sim_remember_call(const Call *call)
{
    PastCall *past = &call->comm->self->past[call->desc.seq % SIM_HISTORY];
    *past = (PastCall){call->desc.seq, call->signature.kind, call->desc.site};
}

// Whether an address is in the program itself: libraries are elsewhere in every process.
static bool in_program(const RankSlot *slot, const void *frame, uint64_t own_base)
{
    uintptr_t here = (uintptr_t)frame - slot->program_base + own_base;
    return here >= (uintptr_t)__executable_start && here < (uintptr_t)etext;
}

static bool same_place(const RankSlot *a, const SharedSite *x, const RankSlot *b,
                       const SharedSite *y, uint64_t own_base)
{
    for (int i = 0; i < x->n && i < y->n; i++) {
        bool inside = in_program(a, x->frame[i], own_base);
        if (inside != in_program(b, y->frame[i], own_base)) return false;
        if (inside &&
            (uintptr_t)x->frame[i] - a->program_base != (uintptr_t)y->frame[i] - b->program_base)
            return false;
    }
    return x->n == y->n;
}

// The first rank whose call number `seq` came from another place than rank 0's; 0: none; -1: not
// known of all ranks.
static int first_stray(const CommShared *shared, int size, uint64_t seq, uint64_t own_base)
{
    const PastCall *first = &shared->slot[0].past[seq % SIM_HISTORY];
    int found = 0;
    for (int r = 0; r < size; r++) {
        const RankSlot *slot = &shared->slot[r];
        const PastCall *past = &slot->past[seq % SIM_HISTORY];
        if (atomic_load(&slot->arrived) < seq || past->seq != seq) return -1;
        if (slot->program_inode != shared->slot[0].program_inode) return -1;
        if (!found && !same_place(&shared->slot[0], &first->site, slot, &past->site, own_base))
            found = r;
    }
    return found;
}

bool sim_find_parting(const CommShared *shared, int size, uint64_t before, uint64_t *seq, int *rank)
{
    RankSlot own = {.pid = 0};
    bool agreed = before <= SIM_HISTORY; // the first calls are still known
    sim_note_program(&own);
    if (!__executable_start || own.program_inode != shared->slot[0].program_inode) return false;
    for (*seq = before > SIM_HISTORY ? before - SIM_HISTORY : 1; *seq < before; ++*seq) {
        *rank = first_stray(shared, size, *seq, own.program_base);
        if (*rank > 0) return agreed;
        if (*rank < 0) return false;
        agreed = true;
    }
    return false;
}
