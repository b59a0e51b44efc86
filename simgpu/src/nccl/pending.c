/* pending.c: non-blocking calls: those on communicators with config.blocking = 0.
 *
 * NCCL has a thread that does the work of such a communicator. Here the call begins it. Each query
 * of the communicator's state continues it, and so do the threads of the process that wait in other
 * calls. So the program's own threads do the work, and the result does not depend on the timing of
 * another thread. A call is in progress until the next query, even if it could be done at once: a
 * program that does not query is wrong, and is found to be wrong every time.
 *
 * A rank that will never arrive does not end the process: the program may abort the communicator.
 */
#include <stdio.h>
#include <stdlib.h>

#include "nccl/comm_id.h"
#include "nccl/cycle.h"
#include "nccl/describe.h"
#include "nccl/group.h"
#include "nccl/kind.h"
#include "nccl/making.h"
#include "nccl/pending.h"
#include "nccl/refuse.h"
#include "nccl/sends.h"
#include "report/report.h"
#include "time/time.h"

typedef struct Pending {
    struct Pending *next;
    _Atomic enum { AT_SENDS, AT_CALLS, AT_MAKING, AT_END } at;
    Call *call;
    int n_calls;
    Run run;
    Making making;
    ncclComm_t *comm; // the communicators whose state it is
    int n_comms;
    ncclResult_t failed; // a communicator could not join
    bool told;           // that a stream was used too early
    bool busy, again;    // a thread is working on it; it must check once more
    uint64_t pass;       // number of the last round that reached it
    Notice notice;       // for threads that query
} Pending;

static Pending *pending;
static atomic_int n_pending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Pending *new_pending(int n_comms)
{
    Pending *p = calloc(1, sizeof *p);
    if (p) p->comm = calloc((size_t)n_comms, sizeof *p->comm);
    if (p) sim_notice_begin(&p->notice);
    if (p && p->comm) return p;
    free(p);
    return NULL;
}

static void add_comm(Pending *p, ncclComm_t comm)
{
    if (atomic_exchange(&comm->pending, p) != p) p->comm[p->n_comms++] = comm;
}

static void enlist(Pending *p)
{
    pthread_mutex_lock(&lock);
    p->next = pending;
    pending = p;
    atomic_fetch_add(&n_pending, 1);
    pthread_mutex_unlock(&lock);
}

// Removes it, with that result. Called with the lock held.
static void end_pending(Pending *p, ncclResult_t result)
{
    Pending **link = &pending;
    while (*link != p) link = &(*link)->next;
    *link = p->next;
    atomic_fetch_sub(&n_pending, 1);
    if (p->at == AT_CALLS) sim_sends_note_undone(-1);
    for (int i = 0; i < p->n_comms; i++) {
        atomic_store(&p->comm[i]->async_error, (int)result);
        atomic_store(&p->comm[i]->pending, NULL);
    }
    free(p->call);
    free(p->comm);
    free(p);
}

static ncclResult_t begin_calls(Pending *p)
{
    ncclResult_t result = p->n_calls ? sim_run_begin(&p->run, p->call, p->n_calls) : ncclSuccess;
    if (result == ncclInProgress) {
        sim_sends_note_undone(1);
        p->at = AT_CALLS;
    }
    return result;
}

static bool has_sends(const Pending *p)
{
    for (int i = 0; i < p->n_comms; i++)
        if (sim_sends_open(p->comm[i])) return true;
    return false;
}

// The children of splits, once the colors of all ranks are known.
static ncclResult_t begin_children(Pending *p)
{
    Init *init;
    int n;
    ncclResult_t result = sim_finish_setups(p->call, p->n_calls, &init, &n);
    p->at = AT_END;
    if (result != ncclSuccess || n == 0) return result;
    result = sim_making_begin(&p->making, init, n);
    if (result == ncclSuccess) p->at = AT_MAKING;
    return result;
}

// Proceeds as far as it can.
static ncclResult_t advance_pending(Pending *p)
{
    ncclResult_t result = ncclSuccess;
    if (p->at == AT_SENDS) {
        if (has_sends(p)) return ncclInProgress;
        p->at = AT_END;
        result = begin_calls(p);
        if (result != ncclInProgress) return result;
    }
    if (p->at == AT_CALLS) {
        result = sim_run_try(&p->run);
        if (result != ncclSuccess) return result;
        sim_sends_note_undone(-1);
        result = begin_children(p);
    }
    if (result == ncclSuccess && p->at == AT_MAKING) {
        result = p->failed;
        if (result == ncclSuccess)
            result = sim_making_try(&p->making);
        else
            sim_making_drop(&p->making);
        if (result != ncclInProgress) p->at = AT_END;
    }
    return result;
}

static void listen_to(const Pending *p)
{
    for (int i = 0; i < p->n_comms; i++)
        if (p->comm[i]->self && !p->comm[i]->phantoms) sim_listen(p->comm[i]->self, true);
    for (int i = 0; i < p->making.n; i++)
        if (p->making.comm[i]->self && !p->making.comm[i]->phantoms)
            sim_listen(p->making.comm[i]->self, true);
}

static Pending *next_of_pass(uint64_t pass)
{
    for (Pending *p = pending; p; p = p->next) {
        if (p->busy) p->again = true;
        if (!p->busy && p->pass != pass) return p;
    }
    return NULL;
}

void sim_pending_poll(void)
{
    static uint64_t passes;
    if (atomic_load(&n_pending) == 0) return;
    pthread_mutex_lock(&lock);
    uint64_t pass = ++passes;
    for (Pending *p; (p = next_of_pass(pass));) {
        ncclResult_t result;
        p->pass = pass;
        p->busy = true;
        do {
            p->again = false;
            pthread_mutex_unlock(&lock);
            listen_to(p); // first: else a bell that rings meanwhile would be lost
            result = advance_pending(p);
            pthread_mutex_lock(&lock);
        } while (result == ncclInProgress && p->again);
        p->busy = false;
        if (result != ncclInProgress) end_pending(p, result);
    }
    pthread_mutex_unlock(&lock);
}

// A thread that queries for long gets a notice of the ranks for which it waits.
static void say_waits(const Pending *p)
{
    WaitRef refs[SIM_MAX_REFS];
    if (p->at == AT_CALLS) sim_say_waits(refs, sim_run_refs(&p->run, refs), &p->notice);
    for (int i = 0; i < p->making.n && p->at == AT_MAKING; i++) {
        ncclComm_t comm = p->making.comm[i];
        if (!comm->parent) sim_say_absent(comm, comm->self ? comm->shared : NULL, &p->notice);
    }
}

static void look_at_notice(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    Pending *p = atomic_load(&comm->pending);
    if (p && !p->busy && sim_notice_due(&p->notice)) {
        p->busy = true; // so that it stays
        pthread_mutex_unlock(&lock);
        say_waits(p);
        pthread_mutex_lock(&lock);
        p->busy = false;
    }
    pthread_mutex_unlock(&lock);
}

void sim_pending_ask(ncclComm_t comm)
{
    if (!atomic_load(&comm->pending)) return;
    uint32_t ticket = sim_ticket();
    sim_pending_poll();
    if (!atomic_load(&comm->pending)) return;
    sim_clock_inside(true);
    sim_nap(ticket, 1);
    sim_clock_inside(false);
    look_at_notice(comm);
}

void sim_pending_wait(const ncclComm_t *comms, int n, uint32_t ticket, Notice *notice)
{
    WaitRef refs[SIM_MAX_REFS], of_one[SIM_MAX_REFS];
    const Call *call = NULL;
    bool all = true;
    int n_refs = 0;
    char what[256] = "";
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        Pending *p = atomic_load(&comms[i]->pending);
        int more = p && p->at == AT_CALLS ? sim_run_refs(&p->run, of_one) : 0;
        all &= more > 0 && n_refs + more <= SIM_MAX_REFS;
        for (int k = 0; k < more && n_refs < SIM_MAX_REFS; k++) refs[n_refs++] = of_one[k];
        if (more && !call) sim_describe_waiting(call = p->call, what, sizeof what);
    }
    const void *site = call ? call->site : NULL;
    pthread_mutex_unlock(&lock);
    if (!n_refs) return;
    gpulog_waiting(what, site);
    sim_clock_inside(true);
    sim_wait(ticket, refs, n_refs, all, NULL, notice);
    sim_clock_inside(false);
    gpulog_waiting(NULL, NULL);
}

void sim_pending_cancel(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    Pending *p;
    while ((p = atomic_load(&comm->pending)) && p->busy) {
        pthread_mutex_unlock(&lock);
        sim_nap(sim_ticket(), 1);
        pthread_mutex_lock(&lock);
    }
    if (p && p->at == AT_CALLS) sim_run_drop(&p->run);
    if (p && p->at == AT_MAKING) sim_making_drop(&p->making);
    if (p) end_pending(p, ncclInternalError);
    pthread_mutex_unlock(&lock);
}

// ---- Beginning ----

static ncclResult_t begin_pending(Pending *p, ncclResult_t (*first)(Pending *))
{
    p->busy = true; // this thread works on it until it has begun
    enlist(p);
    ncclResult_t result = first(p);
    pthread_mutex_lock(&lock);
    p->busy = false;
    if (result != ncclInProgress)
        end_pending(p, ncclSuccess); // it was refused: the state does not change
    pthread_mutex_unlock(&lock);
    return result;
}

static ncclResult_t first_of_calls(Pending *p)
{
    return has_sends(p) ? ncclInProgress : begin_calls(p);
}

ncclResult_t sim_pending_calls(Call *calls, int n)
{
    Pending *p = new_pending(n);
    if (!p) {
        free(calls);
        return ncclSystemError;
    }
    p->call = calls;
    p->n_calls = n;
    for (int i = 0; i < n; i++) add_comm(p, calls[i].comm);
    return begin_pending(p, first_of_calls);
}

// Joins, if it can. Queries do the rest.
static ncclResult_t first_of_making(Pending *p)
{
    ncclResult_t result = sim_making_join(&p->making);
    if (result != ncclInProgress) p->failed = result;
    return ncclInProgress;
}

ncclResult_t sim_pending_inits(Init *init, int n)
{
    Pending *p = new_pending(n);
    if (!p) {
        free(init);
        return ncclSystemError;
    }
    ncclResult_t result = sim_making_begin(&p->making, init, n);
    if (result != ncclSuccess) {
        free(p->comm);
        free(p);
        return result;
    }
    p->at = AT_MAKING;
    for (int i = 0; i < n; i++) add_comm(p, init[i].parent ? init[i].parent : p->making.comm[i]);
    return begin_pending(p, first_of_making);
}

ncclResult_t sim_pending_finalize(ncclComm_t comm)
{
    Pending *p = new_pending(1);
    if (!p) return ncclSystemError;
    add_comm(p, comm);
    enlist(p);
    return ncclInProgress;
}

// ---- Streams ----

void sim_pending_check(const SimVectorClock *clock, const char *name, const void *site)
{
    const Call *early = NULL;
    if (atomic_load(&n_pending) == 0 || !clock) return;
    char where[256], early_where[256];
    int device = sim_current_device();
    pthread_mutex_lock(&lock);
    for (Pending *p = pending; p && !early; p = p->next)
        for (int i = 0; i < p->n_calls && p->at == AT_CALLS && !p->told && !early; i++) {
            const Call *call = &p->call[i];
            // A stream of another device may be ordered after it by its own part of the call.
            if (sim_is_setup(call->signature.kind) || call->comm->device != device ||
                call->place_slot >= clock->n || clock->t[call->place_slot] < call->place_time)
                continue;
            early = call;
            p->told = true;
            gpulog_where(site, where, sizeof where);
            gpulog_where(call->site, early_where, sizeof early_where);
            sim_facts_call(name, site, SIM_NO_STREAM);
            sim_facts_call(sim_kind(call->signature.kind)->call, call->site, call->stream);
        }
    const char *early_name = early ? sim_kind(early->signature.kind)->call : "";
    pthread_mutex_unlock(&lock);
    if (!early) return;
    sim_report(
        SIMGPU_GROUP, "a stream is used before a call in progress is queued on it",
        "%s, called at %s,\ncomes after\n%s, called at %s,\n"
        "which returned ncclInProgress; no query has said yet that it is on its stream.\n"
        "On real GPUs it may be queued there after this: what follows reads the old\n"
        "data.\n"
        "Do you call ncclCommGetAsyncError until it gives ncclSuccess, before the stream is\n"
        "used?",
        name, where, early_name, early_where);
}

void sim_pending_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    pending = NULL;
    atomic_store(&n_pending, 0);
}
