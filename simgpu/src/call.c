/* Calls: posted, waited for, worked off.
 *
 * The calls of a group fall into *lanes*: the collectives of one communicator, its sends to one
 * peer, its receives from one peer. In a lane they happen in order; lanes know nothing of each
 * other. Every lane posts its first call before the thread waits for anything, and it goes on as
 * soon as it can. So one thread can serve several ranks, and groups need not be alike on all ranks.
 *
 * A collective goes through two gates: nobody works before all have posted (entered), since what it
 * would read may not be there yet; nobody returns before all have worked (finished), since its
 * buffers are read and written by others until then. Both count over all ranks and calls, so they
 * need no reset.
 *
 * Interface: sim_run_calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

// ---- Posting ----

static bool is_message(const Call *call)
{
    return call->print.kind == CALL_SEND || call->print.kind == CALL_RECV;
}

static Channel *channel_of(const Call *call)
{
    int self = call->comm->rank, peer = call->print.root;
    return call->print.kind == CALL_SEND ? &call->comm->page->channel[self][peer]
                                         : &call->comm->page->channel[peer][self];
}

// Tells the stream, the log and the checker; finds where the buffers lie in the arena. All calls of
// a group do this in program order before the first is posted.
static ncclResult_t prepare(Call *call)
{
    ncclComm_t comm = call->comm;
    const CallFacts *facts = &sim_call_facts[call->print.kind];
    call->post.print = call->print;
    call->post.site.n = books_frames(call->site, call->post.site.frame);
    call->post.send = call->post.recv = -1;
    call->start = (SimClock){0, NULL};
    if (call->print.kind == CALL_SPLIT) return sim_meet_offer(&call->post.id);

    int device = sim_current_device();
    if (device != comm->device) cudaSetDevice(comm->device);
    SimgpuOp op = sim_begin(facts->op, facts->name, call->stream, call->site);
    cudaError_t before = op.error; // an error that stays, or no such stream: CUDA's, not NCCL's
    size_t sends = sim_send_bytes(call), recvs = sim_recv_bytes(call);
    const char *alias = sim_device(comm->device)->alias;
    const char *send = sends ? sim_touch(&op, call->send, sends, GPU_READ, false) : NULL;
    const char *recv = recvs ? sim_touch(&op, call->recv, recvs, GPU_WRITE, false) : NULL;
    if (call->handle >= ncclNumOps) {
        const RedOp *redop = &comm->redop[call->handle - ncclNumOps];
        size_t width = sim_type_size(redop->type);
        const void *scalar = &redop->scalar;
        if (redop->device_scalar)
            scalar = sim_touch(&op, redop->device_scalar, width, GPU_READ, true);
        if (scalar) memcpy(&call->post.scalar, scalar, width);
    }
    if (send) call->post.send = send - alias;
    if (recv) call->post.recv = recv - alias;
    sim_count_traffic(call, &op.entry);
    if (op.error == cudaSuccess && sim_config()->check == CHECK_FULL && comm->size > 1)
        sim_stream_start(&op, &call->start, &call->slot);
    cudaError_t error = simgpu_end(&op);
    if (device != comm->device) cudaSetDevice(device);
    if (before != cudaSuccess) return ncclUnhandledCudaError;
    return error == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

// Whoever comes later of two that disagree sees it; the others learn it from `broken`.
static void compare_with_others(const Call *call)
{
    Page *page = call->comm->page;
    bool broken = atomic_load(&page->broken) != 0;
    for (int r = 0; r < call->comm->size && !broken; r++) {
        const Member *member = &page->member[r];
        broken = atomic_load(&member->arrived) == call->post.seq &&
                 sim_prints_differ(&member->post.print, &call->print);
    }
    if (!broken) return;
    atomic_store(&page->broken, 1);
    sim_comm_ring(call->comm);
    sim_blame_disagreement(call->comm, call->post.seq);
}

static void post_collective(Call *call)
{
    ncclComm_t comm = call->comm;
    call->post.seq = ++comm->number;
    sim_arrive(call);
    comm->self->post = comm->self->last = call->post;
    sim_remember_call(call);
    atomic_store(&comm->self->arrived, call->post.seq);
    uint64_t all = call->post.seq * (uint64_t)comm->size;
    bool last = atomic_fetch_add(&comm->page->entered, 1) + 1 == all;
    compare_with_others(call);
    if (last) sim_comm_ring(comm);
}

static void post_message(Call *call)
{
    ncclComm_t comm = call->comm;
    Channel *channel = channel_of(call);
    bool sends = call->print.kind == CALL_SEND;
    int peer = call->print.root;
    call->post.seq = sends ? ++comm->sends[peer] : ++comm->recvs[peer];
    sim_arrive(call);
    comm->self->last = call->post;
    *(sends ? &channel->send : &channel->recv) = call->post;
    atomic_store(sends ? &channel->sends : &channel->recvs, call->post.seq);
    sim_ring_rank(comm, peer);
}

static void post(Call *call)
{
    atomic_store(&call->comm->self->thread, sim_thread());
    atomic_store(&call->comm->self->thread_used, 1);
    if (is_message(call))
        post_message(call);
    else
        post_collective(call);
}

// ---- Going on ----

// A split's work is to read the others' colors: my new rank is the number of those of my color that
// come before me by (key, rank). The new communicator meets on the page its first rank has offered.
static void read_colors(Call *call)
{
    ncclComm_t comm = call->comm;
    const Post *mine = &comm->self->post;
    const Post *first = NULL; // of my color, by (key, rank)
    call->new_size = call->new_rank = 0;
    if (mine->color < 0) return;
    for (int r = 0; r < comm->size; r++) {
        const Post *other = &comm->page->member[r].post;
        if (other->color != mine->color) continue;
        call->mates[call->new_size++] = r;
        if (other->key < mine->key || (other->key == mine->key && r < comm->rank)) call->new_rank++;
        if (!first || other->key < first->key) first = other;
    }
    call->new_id = first->id;
}

// Whether all ranks have posted or, with `working`, have worked. A rank that was killed between its
// own mark and the count is missing from the count forever: then the marks tell.
static bool gate_is_open(const Call *call, bool working)
{
    Page *page = call->comm->page;
    uint64_t seq = call->post.seq;
    uint64_t count = atomic_load(working ? &page->finished : &page->entered);
    if (count >= seq * (uint64_t)call->comm->size) return true;
    for (int r = 0; r < call->comm->size; r++) {
        const Member *member = &page->member[r];
        if (atomic_load(working ? &member->done : &member->arrived) < seq) return false;
    }
    return true;
}

static bool advance_collective(Call *call)
{
    ncclComm_t comm = call->comm;
    Page *page = comm->page;
    uint64_t all = call->post.seq * (uint64_t)comm->size;
    if (call->state == CALL_POSTED) {
        if (!gate_is_open(call, false)) return false;
        compare_with_others(call);
        if (call->print.kind == CALL_SPLIT) read_colors(call);
        sim_do_work(call);
        call->state = CALL_WORKED;
        atomic_store(&comm->self->done, call->post.seq);
        if (atomic_fetch_add(&page->finished, 1) + 1 == all) sim_comm_ring(comm);
        return true;
    }
    if (!gate_is_open(call, true)) return false;
    call->state = CALL_DONE;
    return true;
}

// The receiver compares and copies; the sender only waits. It may not look at the receive that
// matches its own: once the message is there, the receiver is free to post its next.
static bool advance_message(Call *call)
{
    ncclComm_t comm = call->comm;
    Channel *channel = channel_of(call);
    int peer = call->print.root;
    bool sends = call->print.kind == CALL_SEND;
    if (atomic_load(&channel->done) >= call->post.seq) {
        call->state = CALL_DONE;
        return true;
    }
    if (sends && atomic_load(&channel->differs)) sim_blame_message(comm, comm->rank, peer);
    if (sends || atomic_load(&channel->sends) < call->post.seq) return false;
    const Print *a = &channel->send.print, *b = &channel->recv.print;
    if (a->count != b->count || a->type != b->type) {
        atomic_store(&channel->differs, call->post.seq);
        sim_ring_rank(comm, peer);
        sim_blame_message(comm, peer, comm->rank);
    }
    sim_do_work(call);
    call->state = CALL_DONE;
    atomic_store(&channel->done, call->post.seq);
    sim_ring_rank(comm, peer);
    return true;
}

static bool advance(Call *call)
{
    if (call->state == CALL_NEW) {
        post(call);
        call->state = CALL_POSTED;
        return true;
    }
    return is_message(call) ? advance_message(call) : advance_collective(call);
}

// ---- Lanes ----

typedef struct Lane {
    Call **call;
    int n, at;
} Lane;

static bool same_lane(const Call *a, const Call *b)
{
    if (a->comm != b->comm || is_message(a) != is_message(b)) return false;
    return !is_message(a) || (a->print.kind == b->print.kind && a->print.root == b->print.root);
}

// Sorts the calls into lanes; order (n) holds the lanes' calls one lane behind the other.
static int make_lanes(Call *calls, int n, Lane *lane, Call **order)
{
    int n_lanes = 0, placed = 0;
    for (int i = 0; i < n; i++) {
        bool known = false;
        for (int k = 0; k < n_lanes && !known; k++) known = same_lane(&calls[i], lane[k].call[0]);
        if (known) continue;
        lane[n_lanes] = (Lane){&order[placed], 0, 0};
        for (int j = i; j < n; j++)
            if (same_lane(&calls[i], &calls[j])) lane[n_lanes].call[lane[n_lanes].n++] = &calls[j];
        placed += lane[n_lanes++].n;
    }
    return n_lanes;
}

static bool advance_all(Lane *lane, int n_lanes, bool *finished)
{
    bool moved = false;
    *finished = true;
    for (int k = 0; k < n_lanes; k++) {
        while (lane[k].at < lane[k].n && advance(lane[k].call[lane[k].at])) {
            moved = true;
            if (lane[k].call[lane[k].at]->state == CALL_DONE) lane[k].at++;
        }
        if (lane[k].at < lane[k].n) *finished = false;
    }
    return moved;
}

static WaitRef ref_of(const Call *call)
{
    ncclComm_t comm = call->comm;
    return (WaitRef){.nonce = comm->page->nonce,
                     .pid = comm->self->pid,
                     .page_fd = comm->map->fd,
                     .kind = call->print.kind,
                     .rank = comm->rank,
                     .peer = call->print.root,
                     .seq = call->post.seq,
                     .working = call->state == CALL_WORKED};
}

// Whether the call still waits for this rank to come, or to finish its part.
static bool waits_for(const Call *call, const WaitRef *ref, int rank)
{
    Page *page = call->comm->page;
    if (is_message(call))
        return rank == call->print.root && atomic_load(&channel_of(call)->done) < ref->seq;
    const Member *member = &page->member[rank];
    return atomic_load(ref->working ? &member->done : &member->arrived) < ref->seq;
}

// Ends the process if a rank that must come, or must finish its part, never will. A rank may
// finish, leave and end between two looks: so the call is looked at again after the rank was seen
// gone.
static void check_call(const Call *call, const WaitRef *ref)
{
    ncclComm_t comm = call->comm;
    if (!is_message(call) && atomic_load(&comm->page->broken))
        sim_blame_disagreement(comm, call->post.seq);
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && waits_for(call, ref, r) && sim_comm_gone(comm, r) &&
            waits_for(call, ref, r))
            sim_blame_missing(comm, r, ref, call->site);
}

static void wait_for_others(Lane *lane, int n_lanes, uint32_t ticket)
{
    WaitRef refs[SIM_MAX_REFS];
    int n = 0, waiting = 0;
    const Call *first = NULL;
    for (int k = 0; k < n_lanes; k++) {
        if (lane[k].at == lane[k].n) continue;
        const Call *call = lane[k].call[lane[k].at];
        WaitRef ref = ref_of(call);
        // Something may have moved since it was looked at: the next round sees to it.
        if (sim_ticket() != ticket) return;
        check_call(call, &ref);
        if (!first) first = call;
        if (n < SIM_MAX_REFS) refs[n++] = ref;
        waiting++;
    }
    if (!first) return;
    char what[256];
    sim_describe_waiting(first, what, sizeof what);
    books_waiting(what, first->site);
    sim_sleep(ticket, refs, n, n == waiting);
    books_waiting(NULL, NULL);
}

// A group is one operation: each of a communicator's streams in it waits for all of them before, and
// for the whole group behind (NCCL, "Mixing Multiple Streams within the same ncclGroupStart/End()
// group"). The first round gathers what the streams have to wait for, the second one spreads it.
static void merge_streams(const Call *calls, int n)
{
    for (int round = 0; round < 2; round++)
        for (int i = 1; i < n; i++) {
            int first = 0;
            while (calls[first].comm != calls[i].comm) first++;
            if (calls[first].stream != calls[i].stream)
                sim_stream_merge(calls[i].comm->device, calls[first].stream, calls[i].stream);
        }
}

ncclResult_t sim_run_calls(Call *calls, int n)
{
    merge_streams(calls, n);
    for (int i = 0; i < n; i++) {
        ncclResult_t result = prepare(&calls[i]);
        if (result != ncclSuccess) return result;
    }
    merge_streams(calls, n);
    Lane one_lane, *lane = &one_lane;
    Call *one_call, **order = &one_call;
    if (n > 1) {
        lane = malloc((size_t)n * sizeof *lane);
        order = malloc((size_t)n * sizeof *order);
    }
    if (!lane || !order) {
        free(lane);
        free(order);
        return ncclSystemError;
    }
    int n_lanes = make_lanes(calls, n, lane, order);
    for (bool finished = false; !finished;) {
        uint32_t ticket = sim_ticket();
        if (!advance_all(lane, n_lanes, &finished) && !finished)
            wait_for_others(lane, n_lanes, ticket);
    }
    for (int i = 0; i < n; i++) sim_learn_arrivals(&calls[i]);
    if (n > 1) {
        free(lane);
        free(order);
    }
    return ncclSuccess;
}
