/* diagnose.c: reports the ranks that do not make the calls for which others wait.
 *
 * Disagreement: ranks make different calls at the same place of a communicator. Missing: a rank
 * will never arrive, since it has ended or destroyed the communicator. Cycle: threads wait for each
 * other. Each of these ends the process; on real GPUs it is a silent hang. Every rank concerned
 * reports what it sees; a rank whose peer ended by such a report says only that.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nccl/describe.h"
#include "nccl/diagnose.h"
#include "nccl/history.h"
#include "nccl/kind.h"
#include "nccl/launched.h"
#include "report/report.h"

#define REPORT 4096
#define LINE 512
#define MOST_STEPS 12 // of a cycle, in a notice
#define PROMISES_NOTHING "NCCL promises nothing for communicators used in different\norders.\n"

// ---- Disagreement ----

bool sim_signatures_differ(const CallSignature *a, const CallSignature *b)
{
    return memcmp(a, b, sizeof *a) != 0;
}

// The first difference between two calls, and its most likely cause.
static void explain_difference(int rank_a, const CallSignature *a, int rank_b,
                               const CallSignature *b, char *text, size_t size)
{
    if (a->kind != b->kind)
        sim_append(
            text, size,
            "They differ in the operation: rank %d calls %s, rank %d calls %s.\n"
            "Does every rank make the same calls in the same order? Is one inside an if (rank "
            "== …),\n"
            "or was one skipped by an early return?",
            rank_a, sim_kind(a->kind)->call, rank_b, sim_kind(b->kind)->call);
    else if (a->count != b->count)
        sim_append(
            text, size,
            "They differ in the count: rank %d has %llu, rank %d has %llu.\n"
            "Was a count computed from something that differs between ranks, such as a shard\n"
            "without its padding? Or did a rank skip a call, so that it is one ahead?",
            rank_a, (unsigned long long)a->count, rank_b, (unsigned long long)b->count);
    else if (a->type != b->type)
        sim_append(text, size,
                   "They differ in the data type: rank %d has %s, rank %d has %s.\n"
                   "Was one of them meant for another buffer?",
                   rank_a, sim_type_name(a->type), rank_b, sim_type_name(b->type));
    else if (a->op != b->op)
        sim_append(text, size,
                   "They differ in the reduction: rank %d has %s, rank %d has %s.\n"
                   "Does the choice of sum or average depend on the rank?",
                   rank_a, sim_op_name(a->op), rank_b, sim_op_name(b->op));
    else if (a->in_graph != b->in_graph)
        sim_append(text, size,
                   "They differ in how they are made: rank %d's is a node of a graph that it "
                   "launched,\n"
                   "rank %d's a call by itself. NCCL requires all ranks to make a call alike.\n"
                   "Does every rank launch its graph in this step?",
                   a->in_graph ? rank_a : rank_b, a->in_graph ? rank_b : rank_a);
    else
        sim_append(text, size,
                   "They differ in the root: rank %d has %d, rank %d has %d.\n"
                   "Did each rank pass its own number instead of one rank's?",
                   rank_a, a->root, rank_b, b->root);
}

// Waits a moment for the other ranks, so that the report can name every rank's call.
static void await_arrivals(ncclComm_t comm, uint64_t seq)
{
    for (int naps = 0; naps < 2 * comm->size; naps++) {
        uint32_t ticket = sim_ticket();
        int arrived = 0;
        for (int r = 0; r < comm->size; r++)
            arrived += atomic_load(&comm->shared->slot[r].arrived) >= seq ||
                       atomic_load(&comm->shared->slot[r].gone) != GONE_NOT;
        if (arrived == comm->size) return;
        sim_nap(ticket, 20);
    }
}

// Where the ranks diverged before call `seq`, which may be long before they disagree; false: as far
// as known they did not.
static bool append_parting(const CommShared *shared, int size, uint64_t seq, char *text,
                           size_t room)
{
    uint64_t parted;
    int other;
    char where[LINE / 2];
    if (!sim_find_parting(shared, size, seq, &parted, &other)) return false;
    sim_append(text, room,
               "The ranks diverge at call %llu, which they made from different places:\n",
               (unsigned long long)parted);
    for (int i = 0; i < 2; i++) {
        int rank = i ? other : 0;
        const RankSlot *slot = &shared->slot[rank];
        const PastCall *past = &slot->past[parted % SIM_HISTORY];
        const char *name = sim_kind(past->kind)->call;
        sim_describe_site(slot, &past->site, where, sizeof where);
        sim_facts_rank_call(rank, name, sim_site_here(slot, &past->site), SIM_NO_STREAM);
        sim_append(text, room, "rank %d: %s at %s\n", rank, name, where);
    }
    sim_append(
        text, room,
        "Did rank 0 or rank %d skip a call there, by an if (rank == …) or an early return?\n",
        other);
    return true;
}

// If all ranks but one make the same call, that one has not made it.
static void append_absent(const CommShared *shared, int size, uint64_t seq, char *text, size_t room)
{
    char where[LINE / 2];
    for (int odd = 0; odd < size && size > 2; odd++) {
        const RankSlot *one = &shared->slot[odd], *first = &shared->slot[odd ? 0 : 1];
        const CallSignature *all = &first->desc.signature;
        bool alone = atomic_load(&one->arrived) == seq && one->desc.signature.kind != all->kind;
        for (int r = 0; r < size && alone; r++) {
            const RankSlot *slot = &shared->slot[r];
            alone = r == odd || (atomic_load(&slot->arrived) == seq &&
                                 !sim_signatures_differ(&slot->desc.signature, all));
        }
        if (!alone) continue;
        sim_describe_site(first, &first->desc.site, where, sizeof where);
        sim_append(text, room, "Rank %d did not come to the %s that all others make at %s.\n", odd,
                   sim_kind(first->desc.signature.kind)->call, where);
        return;
    }
}

void sim_diagnose_disagreement(ncclComm_t comm, uint64_t seq)
{
    await_arrivals(comm, seq);
    char text[REPORT] = "", line[LINE], title[LINE];
    const CommShared *shared = comm->shared;
    const RankSlot *reference = NULL, *other = NULL;
    bool parted = append_parting(shared, comm->size, seq, text, sizeof text);
    if (parted)
        sim_append(text, sizeof text, "Call %llu no longer matches:\n", (unsigned long long)seq);
    for (int r = 0; r < comm->size; r++) {
        const RankSlot *slot = &shared->slot[r];
        if (atomic_load(&slot->arrived) != seq) {
            sim_append(text, sizeof text, "rank %d: has not come to this call\n", r);
            continue;
        }
        sim_describe_desc(slot, &slot->desc, line, sizeof line);
        sim_note_desc(r, slot, &slot->desc);
        sim_append(text, sizeof text, "rank %d: %s%s\n", r, line,
                   r == comm->rank ? " (this rank)" : "");
        if (!reference)
            reference = slot;
        else if (!other && sim_signatures_differ(&reference->desc.signature, &slot->desc.signature))
            other = slot;
    }
    if (!parted) append_absent(shared, comm->size, seq, text, sizeof text);
    if (other)
        explain_difference((int)(reference - shared->slot), &reference->desc.signature,
                           (int)(other - shared->slot), &other->desc.signature, text, sizeof text);
    snprintf(title, sizeof title, "the ranks disagree about call %llu on the communicator",
             (unsigned long long)seq);
    sim_fatal(SIMGPU_MISMATCH, title, "%s\nOn real GPUs this silently hangs, or mixes up data.",
              text);
}

void sim_diagnose_message(ncclComm_t comm, int from, int to)
{
    const Channel *channel = &comm->shared->channel[from][to];
    char send[LINE], recv[LINE];
    sim_describe_desc(&comm->shared->slot[from], &channel->send, send, sizeof send);
    sim_describe_desc(&comm->shared->slot[to], &channel->recv, recv, sizeof recv);
    sim_note_desc(from, &comm->shared->slot[from], &channel->send);
    sim_note_desc(to, &comm->shared->slot[to], &channel->recv);
    sim_fatal(SIMGPU_MISMATCH, "a send and its receive disagree",
              "Message %llu from rank %d to rank %d:\nrank %d: %s\nrank %d: %s\n"
              "On real GPUs this silently hangs, or data are lost.\n"
              "Messages of a pair match in order. Is one side's another message, or does it "
              "compute the count in another way?",
              (unsigned long long)channel->send.seq, from, to, from, send, to, recv);
}

void sim_diagnose_size(CommShared *shared, int rank, int size, const void *site)
{
    char where[LINE];
    int other = atomic_load(&shared->other_rank);
    gpulog_where(site, where, sizeof where);
    sim_facts_rank_call(rank, "ncclCommInitRank", site, SIM_NO_STREAM);
    sim_fatal(SIMGPU_MISMATCH, "ncclCommInitRank: the ranks disagree about nranks",
              "The first ranks of this id came with nranks = %d, rank %d came with nranks = %d.\n"
              "This is rank %d with nranks = %d, at %s.\n"
              "On real GPUs this hangs silently.\nDoes every rank read the same world size?",
              atomic_load(&shared->world), other, atomic_load(&shared->other_world), rank, size,
              where);
}

static void list_left_out(const RankSlot *slot, int size, char *text, size_t room)
{
    text[0] = '\0';
    for (int r = 0; r < size; r++)
        if (atomic_load(&slot->left_out[r / 64]) >> r % 64 & 1)
            sim_append(text, room, "%s%d", text[0] ? ", " : "", r);
}

void sim_diagnose_shrink(ncclComm_t comm, int other, const void *site)
{
    char where[LINE], mine[LINE / 2], others[LINE / 2];
    gpulog_where(site, where, sizeof where);
    list_left_out(comm->self, comm->size, mine, sizeof mine);
    list_left_out(&comm->shared->slot[other], comm->size, others, sizeof others);
    sim_facts_rank_call(comm->rank, "ncclCommShrink", site, SIM_NO_STREAM);
    sim_fatal(SIMGPU_MISMATCH, "ncclCommShrink: the ranks disagree about which ranks to exclude",
              "Rank %d, at %s, leaves out %s.\nRank %d leaves out %s.\n"
              "On real GPUs this hangs.\nDo all ranks that stay pass the same list?",
              comm->rank, where, mine, other, others);
}

// ---- Missing ----

static void describe_end(const RankSlot *slot, char *text, size_t size)
{
    sim_describe_status((int)atomic_load(&slot->exit_told) - 1, text, size);
}

// "without calling ncclAllGather number 7", or in which part of it.
static void describe_missed(const WaitRef *waiter, const RankSlot *slot, char *text, size_t size)
{
    const char *name = waiter ? sim_kind(waiter->kind)->call : "";
    if (!waiter)
        snprintf(text, size, "before the communicator was made");
    else if (sim_is_message(waiter->kind))
        snprintf(text, size, "without calling %s number %llu for rank %d",
                 waiter->kind == GPU_SEND ? "ncclRecv" : "ncclSend",
                 (unsigned long long)waiter->seq, waiter->rank);
    else if (atomic_load(&slot->arrived) >= waiter->seq)
        snprintf(text, size, "in the middle of %s, call %llu on the communicator", name,
                 (unsigned long long)waiter->seq);
    else
        snprintf(text, size, "without calling %s, call %llu on the communicator", name,
                 (unsigned long long)waiter->seq);
}

// Where a rank waits for one that never comes.
static void describe_waiter(ncclComm_t comm, const void *site, const HostCall *in, char *text,
                            size_t size)
{
    char where[LINE], call[LINE];
    gpulog_where(site, where, sizeof where);
    snprintf(text, size, "Rank %d waits for it at %s.", comm->rank, where);
    if (!in) return;
    sim_describe_host_call(comm->self, in, call, sizeof call);
    snprintf(text, size, "Rank %d has sent at %s,\nand its host waits for that %s.", comm->rank,
             where, call);
}

// A rank has aborted its communicator: the others must do so, too, and another thread of this
// process may be about to.
static bool may_be_aborted(ncclComm_t comm, int missing, const WaitRef *waiter, const void *site)
{
    const RankSlot *slot = &comm->shared->slot[missing];
    char text[3 * LINE], where[LINE], there[LINE];
    SimTids threads;
    sim_program_tids(&threads);
    if (!atomic_load(&slot->aborted) || threads.n < 2) return false;
    if (atomic_exchange(&comm->abort_told, true)) return true;
    gpulog_where(site, where, sizeof where);
    sim_describe_site(slot, &slot->left_site, there, sizeof there);
    snprintf(text, sizeof text,
             "[simgpu] rank %d has aborted the communicator at %s,\n"
             "  and rank %d waits for it in %s at %s:\n"
             "  until another thread of this process aborts it, too.\n",
             missing, there, comm->rank, waiter ? sim_kind(waiter->kind)->call : "ncclCommInitRank",
             where);
    sim_say(text);
    return true;
}

void sim_diagnose_missing(ncclComm_t comm, int missing, const WaitRef *waiter, const void *site,
                          const HostCall *in)
{
    const RankSlot *slot = &comm->shared->slot[missing];
    uint32_t gone = atomic_load(&slot->gone);
    bool left = atomic_load(&slot->state) == RANK_LEFT;
    if (gone == GONE_NOT && !left) return;
    if (left && may_be_aborted(comm, missing, waiter, site)) return;
    char title[LINE], end[LINE / 2], missed[LINE / 2], last[LINE] = "no call at all",
                                                       waits[3 * LINE];
    char parting[REPORT / 2] = "";
    if (sim_comm_ending()) return; // another thread is making a report
    if (gone == GONE_FATAL) {
        int files = atomic_load(&slot->files_limit);
        snprintf(title, sizeof title, "rank %d ended: see its report", missing);
        if (files)
            sim_append(title, sizeof title, " (no file descriptor was left, ulimit -n is %d)",
                       files);
        sim_fatal(SIMGPU_DEADLOCK, title, "%s", "");
    }
    if (left) {
        char left_at[LINE / 4];
        sim_describe_site(slot, &slot->left_site, left_at, sizeof left_at);
        snprintf(end, sizeof end, "destroyed the communicator at %s,", left_at);
    } else {
        describe_end(slot, end, sizeof end);
    }
    describe_missed(waiter, slot, missed, sizeof missed);
    describe_waiter(comm, site, in, waits, sizeof waits);
    sim_facts_rank_call(comm->rank, waiter ? sim_kind(waiter->kind)->call : "ncclCommInitRank",
                        site, SIM_NO_STREAM);
    sim_note_host_call(comm->rank, comm->self, in);
    if (atomic_load(&slot->thread_used)) {
        sim_describe_desc(slot, &slot->last, last, sizeof last);
        sim_note_desc(missing, slot, &slot->last);
    }
    if (waiter && !sim_is_message(waiter->kind))
        append_parting(comm->shared, comm->size, atomic_load(&slot->arrived) + 1, parting,
                       sizeof parting);
    snprintf(title, sizeof title, "rank %d will never arrive", missing);
    sim_fatal(SIMGPU_DEADLOCK, title,
              "%srank %d (process %d) %s\n%s.\nIts last call on this communicator: %s.\n"
              "%s\n"
              "On real GPUs the others hang.\n%s",
              parting, missing, slot->pid, end, missed, last, waits,
              gone == GONE_DIED
                  ? "What did that rank print last, and did the machine run out of memory?"
                  : "Does that rank make fewer calls than the others, or return early?");
}

// "rank 2", "ranks 2, 3".
static void list_absent(const CommShared *shared, int size, char *text, size_t room)
{
    text[0] = '\0';
    for (int r = 0, n = 0; r < size; r++) {
        if (shared && atomic_load(&shared->slot[r].state) >= RANK_JOINED) continue;
        sim_append(text, room, "%s%d", n++ ? ", " : "", r);
    }
}

bool sim_diagnose_never_joined(ncclComm_t comm, CommShared *shared)
{
    int rank = 0, pid = 0, status = -1;
    SimLaunchedLoss loss = sim_launched_lost(comm, shared, &rank);
    if (loss != LOSS_CERTAIN) return loss == LOSS_POSSIBLE;
    char end[LINE / 2], where[LINE], absent[LINE] = "0";
    sim_launched_end_of(rank, &pid, &status);
    if (status == SIMGPU_FATAL_EXIT << 8) {
        snprintf(where, sizeof where, "rank %d ended: see its report", rank);
        sim_fatal(SIMGPU_DEADLOCK, where, "%s", "");
    }
    if (shared) list_absent(shared, comm->size, absent, sizeof absent);
    sim_describe_status(status, end, sizeof end);
    gpulog_where(comm->site, where, sizeof where);
    sim_facts_rank_call(comm->rank, "ncclCommInitRank", comm->site, SIM_NO_STREAM);
    sim_fatal(SIMGPU_DEADLOCK, "a rank ended before it joined the communicator",
              "Rank %d of the launcher's world (process %d) %s\nbefore it joined.\n"
              "Rank %d of %d waits at %s.\nStill missing: rank%s %s.\n"
              "On real GPUs the others wait forever. Look at what that process printed.",
              rank, pid, end, comm->rank, comm->size, where, strchr(absent, ',') ? "s" : "",
              absent);
}

void sim_diagnose_alone(ncclComm_t comm)
{
    char where[LINE], absent[LINE];
    list_absent(comm->shared, comm->size, absent, sizeof absent);
    gpulog_where(comm->site, where, sizeof where);
    sim_facts_rank_call(comm->rank, "ncclCommInitRank", comm->site, SIM_NO_STREAM);
    sim_fatal(SIMGPU_GROUP, "one thread waits for itself",
              "Rank %d of %d waits in ncclCommInitRank at %s.\nStill missing: rank%s %s.\n"
              "This process has made the id and given it to no other process, and it has no other\n"
              "thread that could make a rank. On real GPUs this hangs.\n"
              "Does one thread make several ranks? That takes ncclCommInitAll, or ncclGroupStart\n"
              "and ncclGroupEnd around all its ncclCommInitRank. Else each rank needs the id.",
              comm->rank, comm->size, where, strchr(absent, ',') ? "s" : "", absent);
}

// ---- Cycles ----

// The call in which a step of a cycle waits.
static const CallDesc *waiting_call(const CycleStep *step)
{
    const CommShared *shared = step->shared;
    if (step->ref.kind == GPU_SEND) return &shared->channel[step->ref.rank][step->ref.peer].send;
    if (step->ref.kind == GPU_RECV) return &shared->channel[step->ref.peer][step->ref.rank].recv;
    return &shared->slot[step->ref.rank].desc;
}

static void describe_step(const CycleStep *step, char *text, size_t size)
{
    const RankSlot *slot = &step->shared->slot[step->ref.rank];
    char call[LINE], host_call[LINE];
    sim_describe_desc(slot, waiting_call(step), call, sizeof call);
    sim_append(text, size, "rank %d of communicator %04x waits ", step->ref.rank,
               (unsigned)(step->shared->nonce & 0xffff));
    if (!step->in.name[0]) {
        sim_append(text, size, "in %s\n    for rank %d\n", call, step->waits_for);
        return;
    }
    sim_describe_host_call(slot, &step->in, host_call, sizeof host_call);
    sim_append(text, size, "%s\n    for rank %d to receive %s\n", host_call, step->waits_for, call);
}

// Whether the cycle goes through several communicators: then the use of each may be right,
// and the mistake is their order.
static bool crosses_communicators(const CycleStep *step, int n)
{
    for (int i = 0; i < n; i++)
        if (step[i].shared->nonce != step[0].shared->nonce) return true;
    return false;
}

static bool has_messages(const CycleStep *step, int n)
{
    for (int i = 0; i < n; i++)
        if (sim_is_message(step[i].ref.kind)) return true;
    return false;
}

void sim_diagnose_cycle(const CycleStep *step, int n)
{
    char text[REPORT] = "";
    for (int i = 0; i < n; i++) {
        const RankSlot *slot = &step[i].shared->slot[step[i].ref.rank];
        describe_step(&step[i], text, sizeof text);
        sim_note_desc(step[i].ref.rank, slot, waiting_call(&step[i]));
        sim_note_host_call(step[i].ref.rank, slot, &step[i].in);
    }
    SimTids threads;
    sim_program_tids(&threads);
    if (n == 1 && threads.n > 1)
        sim_fatal(SIMGPU_DEADLOCK, "no thread is left that could make the missing call",
                  "%sThe rank it waits for belongs to this same process, whose other threads wait\n"
                  "too, in NCCL or for the end of this one (pthread_join).\n"
                  "On real GPUs this hangs.\n"
                  "Did a thread return before its call? Or did you forget the group? Calls of one\n"
                  "thread for several devices belong between ncclGroupStart and ncclGroupEnd.",
                  text);
    if (n == 1 && step->shared->slot[step->ref.rank].desc.signature.in_graph)
        sim_fatal(
            SIMGPU_GROUP, "a graph waits for another that its thread has not launched",
            "%sThe rank it waits for belongs to this same thread. The graph with that rank's\n"
            "call has not been launched yet, or waits for another call that comes first.\n"
            "On real GPUs this hangs.\n"
            "Are the graphs of all devices launched before the first wait, and are their\n"
            "calls in one order on all devices?",
            text);
    if (n == 1)
        sim_fatal(
            SIMGPU_GROUP, "one thread waits for itself",
            "%sThe rank it waits for belongs to this same thread, which cannot call twice at "
            "once.\n"
            "On real GPUs this hangs.\n"
            "Did you forget the group? Calls of one thread for several devices belong between\n"
            "ncclGroupStart and ncclGroupEnd.",
            text);
    bool crosses = crosses_communicators(step, n);
    if (crosses && !has_messages(step, n))
        sim_fatal(
            SIMGPU_COMM_ORDER, "ranks use two communicators in different orders",
            "%sEach waits in one communicator for a rank that waits in the other.\n"
            "On real GPUs this may hang: " PROMISES_NOTHING
            "Do all ranks make their calls on both communicators in one order? Calls that belong\n"
            "together go into one group.",
            text);
    sim_fatal(
        SIMGPU_DEADLOCK, "deadlock: ranks wait for each other in a cycle",
        "%sOn real GPUs this %s"
        "Do the orders of sends and receives on the ranks match? Calls that must run at the same\n"
        "time belong in one group.",
        text, crosses ? "may hang: " PROMISES_NOTHING : "hangs.\n");
}

static void append_steps(const CycleStep *step, int n, char *text, size_t room)
{
    for (int i = 0; i < n && i < MOST_STEPS; i++) {
        sim_append(text, room, "  ");
        describe_step(&step[i], text, room);
    }
    if (n > MOST_STEPS) sim_append(text, room, "  and %d more\n", n - MOST_STEPS);
}

void sim_say_cycle(const CycleStep *step, int n, const Notice *notice)
{
    char text[REPORT];
    snprintf(text, sizeof text, "[simgpu] this may be a deadlock, after %d s:\n", notice->waited);
    append_steps(step, n, text, sizeof text);
    sim_append(
        text, sizeof text,
        "  It goes on waiting, since another thread of the program could still make the missing "
        "call.\n"
        "  Does one? Calls of one thread for several devices belong between ncclGroupStart and\n"
        "  ncclGroupEnd; calls on several communicators, in one order on all ranks.\n");
    sim_say(text);
}

void sim_say_absent_ranks(const CycleStep *step, int n, const Notice *notice)
{
    char text[REPORT], last[LINE] = "none";
    if (n == 0) return;
    const RankSlot *slot = &step->shared->slot[step->waits_for];
    if (atomic_load(&slot->thread_used)) sim_describe_desc(slot, &slot->last, last, sizeof last);
    snprintf(text, sizeof text, "[simgpu] a call has been in progress for %d s:\n", notice->waited);
    append_steps(step, n, text, sizeof text);
    sim_append(text, sizeof text,
               "  Rank %d is process %d, which does not wait in NCCL. Its last call on this\n"
               "  communicator: %s.\n"
               "  It goes on waiting. Is rank %d still at work, or does it wait for this rank\n"
               "  in something else, such as a lock, a pipe or MPI?\n",
               step->waits_for, slot->pid, last, step->waits_for);
    sim_say(text);
}
