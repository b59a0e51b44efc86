/* call.c: posts calls, waits for them, and does their work.
 *
 * The calls of a group are in *lanes*: the collectives of one communicator, its sends to one peer,
 * its receives from one peer. The calls of a lane run in order; lanes are independent. Every lane
 * posts its first call before the thread waits for anything, and it proceeds as soon as it can. So
 * one thread can serve several ranks, and groups may differ between ranks.
 *
 * A collective passes two gates. No rank works before all have posted (entered), since the data may
 * not be there yet. No rank returns before all have worked (finished), since others read and write
 * its buffers until then. Both gates count over all ranks and calls, so they are never reset. A
 * receive waits for its send; a send leaves a copy of its bytes (sends.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/arrive.h"
#include "nccl/board.h"
#include "nccl/call.h"
#include "nccl/collective.h"
#include "nccl/comm_id.h"
#include "nccl/describe.h"
#include "nccl/diagnose.h"
#include "nccl/history.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/lent.h"
#include "nccl/pending.h"
#include "nccl/phantom.h"
#include "nccl/sends.h"
#include "runtime/runtime.h"
#include "time/time.h"

// ---- Posting ----

static bool is_message(const Call *call)
{
    return sim_is_message(call->signature.kind);
}

static Channel *channel_of(const Call *call)
{
    int self = call->comm->rank, peer = call->signature.root;
    return call->signature.kind == GPU_SEND ? &call->comm->shared->channel[self][peer]
                                            : &call->comm->shared->channel[peer][self];
}

// The identity of the call in the log: the same on all ranks.
static GpuCollective facts_of(const Call *call, uint64_t group, int left)
{
    ncclComm_t comm = call->comm;
    int peer = call->signature.root;
    uint64_t *number = !is_message(call)                  ? &comm->logged.collectives
                       : call->signature.kind == GPU_SEND ? &comm->logged.sends[peer]
                                                          : &comm->logged.recvs[peer];
    return (GpuCollective){.comm = comm->shared->nonce,
                           .call = ++*number,
                           .group = group,
                           .group_left = left,
                           .ranks = comm->size,
                           .rank = comm->rank,
                           .peer = is_message(call) ? peer : -1,
                           .nodes = sim_board_nodes(comm, is_message(call) ? peer : -1),
                           .in_progress = comm->options.nonblocking || call->polled};
}

// Notes the call with the stream, the log and the checker, and finds its buffers in the arena. All
// calls of a group do this in program order before the first is posted.
static ncclResult_t prepare(Call *call, uint64_t group, int left)
{
    ncclComm_t comm = call->comm;
    call->desc.signature = call->signature;
    call->desc.site.n = gpulog_frames(call->site, call->desc.site.frame);
    call->desc.send = call->desc.recv = -1;
    call->start = (SimVectorClock){0, NULL};
    if (call->signature.kind == CALL_WINDOW) return ncclSuccess;
    if (call->signature.kind == CALL_SPLIT)
        return comm->phantoms ? ncclSuccess : sim_comm_id_offer(&call->desc.id);

    int device = sim_current_device();
    if (device != comm->device) cudaSetDevice(comm->device);
    SimgpuOp op = sim_begin((GpuOp)call->signature.kind, sim_kind(call->signature.kind)->call,
                            call->stream, call->site);
    op.entry.collective.comm = comm->shared->nonce; // for the checker of races
    cudaError_t before = op.error; // a sticky error, or no such stream: CUDA's, not NCCL's
    size_t sends = sim_send_bytes(call), recvs = sim_recv_bytes(call);
    const char *alias = sim_device(comm->device)->alias;
    const char *send = sends ? sim_touch(&op, call->send, sends, GPU_READ, false) : NULL;
    GpuRange result = {call->recv, recvs, GPU_WRITE};
    const char *recv = recvs ? sim_touch_overwrite(&op, result, false) : NULL;
    if (call->handle >= ncclNumOps) {
        const RedOp *redop = &comm->redop[call->handle - ncclNumOps];
        size_t width = gpulog_element_size(redop->type);
        const void *scalar = &redop->scalar;
        if (redop->device_scalar)
            scalar = sim_touch(&op, redop->device_scalar, width, GPU_READ, true);
        if (scalar && !sim_dry()) memcpy(&call->desc.scalar, scalar, width);
    }
    if (send) call->desc.send = send - alias;
    if (recv) call->desc.recv = recv - alias;
    sim_count_traffic(call, &op.entry);
    op.entry.collective = (GpuCollective){0};
    if (op.error == cudaSuccess) op.entry.collective = facts_of(call, group, left);
    if (op.error == cudaSuccess && (comm->options.nonblocking || call->polled))
        sim_stream_place(&op, &call->place_slot, &call->place_time);
    if (op.error == cudaSuccess && call->may_stay && !comm->phantoms)
        call->kept = sim_send_keep(call, &op, send, sends, &call->desc.send);
    if (op.error == cudaSuccess && sim_config()->check == CHECK_FULL && comm->size > 1)
        sim_stream_start(&op, &call->start, &call->stream_slot);
    // What is received has been read: a wait for the receive is a wait for the send.
    if (call->signature.kind == GPU_SEND && call->start.n) call->start.t[call->stream_slot]++;
    cudaError_t error = simgpu_end(&op);
    if (device != comm->device) cudaSetDevice(device);
    if (before != cudaSuccess) return ncclUnhandledCudaError;
    return error == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

// The later of two ranks that disagree sees it; the others learn it from `broken`.
static void compare_with_others(const Call *call)
{
    CommShared *shared = call->comm->shared;
    bool broken = atomic_load(&shared->broken) != 0;
    for (int r = 0; r < call->comm->size && !broken; r++) {
        const RankSlot *slot = &shared->slot[r];
        broken = atomic_load(&slot->arrived) == call->desc.seq &&
                 sim_signatures_differ(&slot->desc.signature, &call->signature);
    }
    if (!broken) return;
    atomic_store(&shared->broken, 1);
    sim_comm_wake(call->comm);
    sim_diagnose_disagreement(call->comm, call->desc.seq);
}

static void post_collective(Call *call)
{
    ncclComm_t comm = call->comm;
    call->desc.seq = ++comm->number;
    sim_lent_take(call);
    sim_arrive(call);
    comm->self->desc = comm->self->last = call->desc;
    sim_remember_call(call);
    atomic_store(&comm->self->arrived, call->desc.seq);
    uint64_t all = call->desc.seq * (uint64_t)comm->size;
    bool last = atomic_fetch_add(&comm->shared->entered, 1) + 1 == all;
    compare_with_others(call);
    if (last) sim_comm_wake(comm);
}

static void post_message(Call *call)
{
    ncclComm_t comm = call->comm;
    Channel *channel = channel_of(call);
    bool sends = call->signature.kind == GPU_SEND;
    int peer = call->signature.root;
    call->desc.seq = sends ? ++comm->sends[peer] : ++comm->recvs[peer];
    sim_arrive(call);
    comm->self->last = call->desc;
    *(sends ? &channel->send : &channel->recv) = call->desc;
    atomic_store(sends ? &channel->sends : &channel->recvs, call->desc.seq);
    if (call->kept) sim_send_posted(call->kept, call->desc.seq);
    sim_wake_rank(comm, peer);
}

static void post(Call *call)
{
    RankSlot *self = call->comm->self;
    atomic_store(&self->thread, sim_thread());
    atomic_store(&self->thread_used, 1);
    sim_listen(self, true);
    // From here on other ranks may write there.
    if (call->desc.recv >= 0) sim_overwritten(call->recv, sim_recv_bytes(call));
    if (is_message(call))
        post_message(call);
    else
        post_collective(call);
}

// ---- Going on ----

// The work of a split is to read the colors of the others: my new rank is the number of ranks of my
// color before me by (key, rank). The new ranks meet in the memory that the first of them offers.
static void read_colors(Call *call)
{
    ncclComm_t comm = call->comm;
    const CallDesc *mine = &comm->self->desc;
    const CallDesc *first = NULL; // of my color, by (key, rank)
    call->new_size = call->new_rank = 0;
    if (mine->color < 0) return;
    for (int r = 0; r < comm->size; r++) {
        const CallDesc *other = &comm->shared->slot[r].desc;
        if (other->color != mine->color) continue;
        call->mates[call->new_size++] = r;
        if (other->key < mine->key || (other->key == mine->key && r < comm->rank)) call->new_rank++;
        if (!first || other->key < first->key) first = other;
    }
    call->new_id = first->id;
}

// Whether all ranks have posted or, with `working`, have worked. A rank that was killed between its
// own mark and the count is never counted: then the marks decide.
static bool gate_is_open(const Call *call, bool working)
{
    CommShared *shared = call->comm->shared;
    uint64_t seq = call->desc.seq;
    uint64_t count = atomic_load(working ? &shared->finished : &shared->entered);
    if (count >= seq * (uint64_t)call->comm->size) return true;
    for (int r = 0; r < call->comm->size; r++) {
        const RankSlot *slot = &shared->slot[r];
        if (atomic_load(working ? &slot->done : &slot->arrived) < seq) return false;
    }
    return true;
}

static bool advance_collective(Call *call)
{
    ncclComm_t comm = call->comm;
    CommShared *shared = comm->shared;
    uint64_t all = call->desc.seq * (uint64_t)comm->size;
    if (call->state == CALL_POSTED) {
        if (!gate_is_open(call, false)) return false;
        compare_with_others(call);
        if (call->signature.kind == CALL_SPLIT) read_colors(call);
        sim_do_work(call);
        call->state = CALL_WORKED;
        atomic_store(&comm->self->done, call->desc.seq);
        if (atomic_fetch_add(&shared->finished, 1) + 1 == all) sim_comm_wake(comm);
        return true;
    }
    if (!gate_is_open(call, true)) return false;
    sim_lent_end(call);
    call->state = CALL_DONE;
    return true;
}

// The receiver compares and copies; the sender waits, or not even that. The sender must not read
// the matching receive: once the message is there, the receiver may post its next one.
static bool advance_message(Call *call)
{
    ncclComm_t comm = call->comm;
    Channel *channel = channel_of(call);
    int peer = call->signature.root;
    bool sends = call->signature.kind == GPU_SEND;
    if (call->kept || atomic_load(&channel->done) >= call->desc.seq) {
        call->state = CALL_DONE;
        return true;
    }
    if (sends && atomic_load(&channel->differs)) sim_diagnose_message(comm, comm->rank, peer);
    if (sends || atomic_load(&channel->sends) < call->desc.seq) return false;
    const CallSignature *a = &channel->send.signature, *b = &channel->recv.signature;
    if (a->count != b->count || a->type != b->type) {
        atomic_store(&channel->differs, call->desc.seq);
        sim_wake_rank(comm, peer);
        sim_diagnose_message(comm, peer, comm->rank);
    }
    sim_do_work(call);
    call->state = CALL_DONE;
    atomic_store(&channel->done, call->desc.seq);
    sim_wake_rank(comm, peer);
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

static bool same_lane(const Call *a, const Call *b)
{
    if (a->comm != b->comm || is_message(a) != is_message(b)) return false;
    return !is_message(a) ||
           (a->signature.kind == b->signature.kind && a->signature.root == b->signature.root);
}

// Sorts the calls into lanes; order (n) holds the lanes' calls lane by lane.
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
    return (WaitRef){.nonce = comm->shared->nonce,
                     .pid = comm->self->pid,
                     .shared_fd = comm->map->fd,
                     .kind = call->signature.kind,
                     .rank = comm->rank,
                     .peer = call->signature.root,
                     .seq = call->desc.seq,
                     .working = call->state == CALL_WORKED};
}

// Whether the call still waits for this rank to come, or to finish its part.
static bool waits_for(const Call *call, const WaitRef *ref, int rank)
{
    CommShared *shared = call->comm->shared;
    if (call->signature.kind == GPU_RECV && atomic_load(&channel_of(call)->sends) >= ref->seq)
        return false; // the bytes are there, even if the sender has ended
    if (is_message(call))
        return rank == call->signature.root && atomic_load(&channel_of(call)->done) < ref->seq;
    const RankSlot *slot = &shared->slot[rank];
    return atomic_load(ref->working ? &slot->done : &slot->arrived) < ref->seq;
}

// Whether a rank that must come, or must finish its part, never will. Then it ends the process,
// unless the communicator is non-blocking. A rank may finish, leave and end between two checks: so
// the call is checked again after the rank was seen gone.
static bool is_lost(const Call *call, const WaitRef *ref)
{
    ncclComm_t comm = call->comm;
    if (!is_message(call) && atomic_load(&comm->shared->broken))
        sim_diagnose_disagreement(comm, call->desc.seq);
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank || !waits_for(call, ref, r) || !sim_comm_gone(comm, r) ||
            !waits_for(call, ref, r))
            continue;
        if (comm->options.nonblocking) return true;
        sim_diagnose_missing(comm, r, ref, call->site, NULL);
    }
    return false;
}

static void wait_for_others(Lane *lane, int n_lanes, uint32_t ticket, Notice *notice)
{
    WaitRef refs[SIM_MAX_REFS];
    int n = 0, waiting = 0;
    const Call *first = NULL;
    for (int k = 0; k < n_lanes; k++) {
        if (lane[k].at == lane[k].n) continue;
        const Call *call = lane[k].call[lane[k].at];
        WaitRef ref = ref_of(call);
        // Something may have changed since the check: the next round handles it.
        if (sim_ticket() != ticket) return;
        is_lost(call, &ref);
        if (!first) first = call;
        if (n < SIM_MAX_REFS) refs[n++] = ref;
        waiting++;
    }
    if (!first) return;
    char what[256];
    sim_describe_waiting(first, what, sizeof what);
    gpulog_waiting(what, first->site);
    sim_clock_inside(true);
    sim_wait(ticket, refs, n, n == waiting, NULL, notice);
    sim_clock_inside(false);
    gpulog_waiting(NULL, NULL);
}

// A group is one operation: before it, each of a communicator's streams waits for all of them, and
// after it, for the whole group (NCCL, "Mixing Multiple Streams within the same
// ncclGroupStart/End() group"). The first round collects what the streams have to wait for, and the
// second one has each of them wait for it.
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

// A send may stay unreceived if it is the last of its lane: a later one needs its place.
static void look_for_stayers(Call *calls, int n)
{
    for (int i = 0; i < n; i++) {
        calls[i].may_stay = calls[i].signature.kind == GPU_SEND;
        for (int j = i + 1; j < n && calls[i].may_stay; j++)
            calls[i].may_stay = !same_lane(&calls[i], &calls[j]);
    }
}

static ncclResult_t prepare_all(Call *calls, int n)
{
    static _Atomic uint64_t groups;
    ncclResult_t result = ncclSuccess;
    look_for_stayers(calls, n);
    merge_streams(calls, n);
    uint64_t group = n > 1 ? atomic_fetch_add(&groups, 1) + 1 : 0;
    int left = 0;
    for (int i = 0; i < n; i++) left += !sim_is_setup(calls[i].signature.kind);
    for (int i = 0; i < n && left > 1; i++)
        if (!sim_is_setup(calls[i].signature.kind))
            sim_stream_will_wait(calls[i].comm->device, calls[i].stream,
                                 sim_kind(calls[i].signature.kind)->call);
    for (int i = 0; i < n && result == ncclSuccess; i++) {
        left -= !sim_is_setup(calls[i].signature.kind);
        result = prepare(&calls[i], group, left);
    }
    for (int i = 0; i < n && result != ncclSuccess; i++)
        if (calls[i].kept) sim_send_drop(calls[i].kept);
    if (result == ncclSuccess) merge_streams(calls, n);
    return result;
}

void sim_run_drop(Run *run)
{
    if (run->n > 1) {
        free(run->lane);
        free(run->order);
    }
    run->n = 0;
}

static ncclResult_t start_run(Run *run, Call *calls, int n)
{
    *run = (Run){.calls = calls, .n = n, .lane = &run->one_lane, .order = &run->one_call};
    ncclResult_t result = prepare_all(calls, n);
    if (n == 1) calls[0].alone = true;
    if (result == ncclSuccess && sim_phantoms()) result = sim_phantom_run(calls, n);
    if (n > 1) {
        run->lane = malloc((size_t)n * sizeof *run->lane);
        run->order = malloc((size_t)n * sizeof *run->order);
    }
    if (result == ncclSuccess && (!run->lane || !run->order)) result = ncclSystemError;
    if (result == ncclSuccess && !sim_phantoms())
        run->n_lanes = make_lanes(calls, n, run->lane, run->order);
    if (result != ncclSuccess) sim_run_drop(run);
    return result;
}

static void finish_run(Run *run)
{
    for (int i = 0; i < run->n && !sim_phantoms(); i++) {
        sim_listen(run->calls[i].comm->self, false);
        sim_learn_arrivals(&run->calls[i]);
    }
    sim_run_drop(run);
}

ncclResult_t sim_run_try(Run *run)
{
    bool finished;
    while (advance_all(run->lane, run->n_lanes, &finished) && !finished) continue;
    if (finished) {
        finish_run(run);
        return ncclSuccess;
    }
    bool lost = false;
    for (int k = 0; k < run->n_lanes && !lost; k++) {
        if (run->lane[k].at == run->lane[k].n) continue;
        const Call *call = run->lane[k].call[run->lane[k].at];
        WaitRef ref = ref_of(call);
        lost = is_lost(call, &ref);
    }
    if (!lost) return ncclInProgress;
    sim_run_drop(run);
    return ncclRemoteError;
}

int sim_run_refs(const Run *run, WaitRef refs[SIM_MAX_REFS])
{
    int n = 0;
    for (int k = 0; k < run->n_lanes && n < SIM_MAX_REFS; k++)
        if (run->lane[k].at < run->lane[k].n)
            refs[n++] = ref_of(run->lane[k].call[run->lane[k].at]);
    return n;
}

ncclResult_t sim_run_begin(Run *run, Call *calls, int n)
{
    ncclResult_t result = start_run(run, calls, n);
    bool finished;
    if (result != ncclSuccess) return result;
    advance_all(run->lane, run->n_lanes, &finished);
    return ncclInProgress;
}

static bool is_expelled(const Call *calls, int n)
{
    for (int i = 0; i < n; i++)
        if (sim_comm_expelled(calls[i].comm)) return true;
    return false;
}

static ncclResult_t run_calls(Call *calls, int n)
{
    Run run;
    Notice notice;
    for (int i = 0; i < n; i++)
        sim_sends_wait_comm(calls[i].comm, sim_kind(calls[i].signature.kind)->call, calls[i].site);
    if (is_expelled(calls, n)) return ncclInternalError;
    ncclResult_t result = start_run(&run, calls, n);
    if (result != ncclSuccess) return result;
    sim_notice_begin(&notice);
    for (bool finished = false; !finished;) {
        uint32_t ticket = sim_ticket();
        sim_pending_poll();
        if (advance_all(run.lane, run.n_lanes, &finished) || finished) continue;
        if (is_expelled(calls, n)) {
            sim_run_drop(&run);
            return ncclInternalError;
        }
        wait_for_others(run.lane, run.n_lanes, ticket, &notice);
    }
    finish_run(&run);
    return ncclSuccess;
}

ncclResult_t sim_run_calls(Call *calls, int n)
{
    sim_clock_in_call(true);
    ncclResult_t result = run_calls(calls, n);
    sim_clock_in_call(false);
    return result;
}
