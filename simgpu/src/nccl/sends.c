/* sends.c: messages that are sent and not received yet.
 *
 * ncclSend does not wait for its receiver: the call copies the bytes, which the receiver fetches
 * later, and returns. So ranks may queue sends and receives on several communicators and streams,
 * in any order that a GPU could run. The call fixes the bytes that the receiver gets, whenever it
 * comes.
 *
 * A send still delays what it would delay on a GPU. The host waits for the receiver in an operation
 * that is ordered after the send, in the next call on the same communicator, in a wait for the
 * stream or the device, when the communicator is destroyed, and at the program's end. Event
 * records, waits for events and allocations on the stream only pass the order on.
 *
 * The copies of a device's sends are after its arena, in its *outbox*, which the other ranks have
 * mapped, too. A send that does not fit into it waits in its call.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nccl/diagnose.h"
#include "nccl/launches.h"
#include "nccl/pending.h"
#include "nccl/sends.h"
#include "time/time.h"

#define ALIGNMENT 64
#define STAYS ((size_t)8 << 20) // an empty outbox keeps so much memory for the next sends

struct KeptSend {
    struct KeptSend *next; // by device and offset
    ncclComm_t comm;
    int peer;
    uint64_t seq;
    const void *site;
    int slot; // the slot of its stream, and its number there
    uint64_t time;
    SimDevice *device;
    size_t offset, bytes; // in the outbox
    bool posted;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t no_waiters = PTHREAD_COND_INITIALIZER; // of a communicator
static KeptSend *sends;
static size_t used_up_to[SIM_MAX_DEVICES]; // end of what an outbox has used since its last trim

static Channel *channel_of(const KeptSend *send)
{
    return &send->comm->shared->channel[send->comm->rank][send->peer];
}

// ---- The outbox ----

// Trims an outbox that is empty: its memory goes back to the system. The lock is held.
static void tidy(SimDevice *device)
{
    for (const KeptSend *s = sends; s; s = s->next)
        if (s->device == device) return;
    if (used_up_to[device->index] <= STAYS) return;
    madvise(device->alias + device->arena, SIM_OUTBOX, MADV_REMOVE);
    used_up_to[device->index] = 0;
}

// Called with the lock held.
static void take_out(KeptSend **link)
{
    KeptSend *send = *link;
    *link = send->next;
    if (send->posted) atomic_fetch_sub(&sim_undone.n, 1);
    tidy(send->device);
    free(send);
}

// Gives it a place in the outbox; false: there is no room. Called with the lock held.
static bool put_in(KeptSend *send)
{
    size_t at = 0;
    KeptSend **link = &sends;
    while (*link && (*link)->device->index < send->device->index) link = &(*link)->next;
    for (; *link && (*link)->device == send->device; link = &(*link)->next) {
        if (at + send->bytes <= (*link)->offset) break;
        at = ((*link)->offset + (*link)->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (at + send->bytes > SIM_OUTBOX) return false;
    send->offset = at;
    send->next = *link;
    *link = send;
    if (used_up_to[send->device->index] < at + send->bytes)
        used_up_to[send->device->index] = at + send->bytes;
    return true;
}

KeptSend *sim_send_keep(const Call *call, const SimgpuOp *op, const void *bytes, size_t n,
                        int64_t *offset)
{
    KeptSend *send = n <= SIM_OUTBOX ? malloc(sizeof *send) : NULL;
    if (!send) return NULL;
    SimDevice *device = sim_device(call->comm->device);
    *send = (KeptSend){.comm = call->comm,
                       .peer = call->signature.root,
                       .site = call->site,
                       .device = device,
                       .bytes = n};
    sim_stream_place(op, &send->slot, &send->time);
    pthread_mutex_lock(&lock);
    bool fits = put_in(send);
    pthread_mutex_unlock(&lock);
    if (!fits) {
        free(send);
        return NULL;
    }
    *offset = (int64_t)(device->arena + send->offset);
    if (n && !sim_dry()) memcpy(device->alias + *offset, bytes, n);
    return send;
}

void sim_send_drop(KeptSend *send)
{
    pthread_mutex_lock(&lock);
    for (KeptSend **link = &sends; *link; link = &(*link)->next)
        if (*link == send) {
            take_out(link);
            break;
        }
    pthread_mutex_unlock(&lock);
}

static void wait_for_clock(const SimVectorClock *clock, const char *call, const void *site);
static void check_receivers(const SimVectorClock *clock, const char *call, const void *site);

void sim_send_posted(KeptSend *send, uint64_t seq)
{
    pthread_mutex_lock(&lock);
    send->seq = seq;
    send->posted = true;
    sim_sends_note_undone(1);
    pthread_mutex_unlock(&lock);
}

void sim_sends_note_undone(int n)
{
    atomic_store(&sim_undone.wait, wait_for_clock);
    atomic_store(&sim_undone.check, check_receivers);
    atomic_fetch_add(&sim_undone.n, n);
}

// ---- Waiting ----

// Which sends: those that the clock covers, of the communicator, or all; and which call waits.
typedef struct Which {
    const SimVectorClock *clock;
    ncclComm_t comm;
    const char *call;
    const void *site; // NULL: the program ends
} Which;

static bool is_one(const KeptSend *send, const Which *which)
{
    if (!send->posted) return false;
    if (which->comm) return send->comm == which->comm;
    const SimVectorClock *clock = which->clock;
    return !clock || (send->slot < clock->n && clock->t[send->slot] >= send->time);
}

// Removes the sends that have been received, and copies up to SIM_MAX_REFS of the others into
// `open`. Their communicators stay until end_waits. Returns the number.
static int find_open(const Which *which, KeptSend *open)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (KeptSend **link = &sends; *link;) {
        KeptSend *send = *link;
        if (!is_one(send, which)) {
            link = &send->next;
        } else if (atomic_load(&channel_of(send)->done) >= send->seq) {
            take_out(link);
        } else {
            if (n < SIM_MAX_REFS) {
                open[n] = *send;
                send->comm->waited_for++;
            }
            n++;
            link = &send->next;
        }
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static void end_waits(const KeptSend *open, int n)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n && i < SIM_MAX_REFS; i++) open[i].comm->waited_for--;
    pthread_cond_broadcast(&no_waiters);
    pthread_mutex_unlock(&lock);
}

static WaitRef ref_of(const KeptSend *send)
{
    return (WaitRef){.nonce = send->comm->shared->nonce,
                     .pid = send->comm->self->pid,
                     .shared_fd = send->comm->map->fd,
                     .kind = GPU_SEND,
                     .rank = send->comm->rank,
                     .peer = send->peer,
                     .seq = send->seq};
}

// Ends the process if no rank will receive it. The receiver may have fetched it and left meanwhile.
static void check_receiver(const KeptSend *send, const WaitRef *ref, const HostCall *in)
{
    const Channel *channel = channel_of(send);
    if (atomic_load(&channel->differs)) sim_diagnose_message(send->comm, ref->rank, ref->peer);
    if (sim_comm_gone(send->comm, send->peer) && atomic_load(&channel->done) < send->seq)
        sim_diagnose_missing(send->comm, send->peer, ref, send->site, in);
}

static HostCall host_call_of(const Which *which)
{
    HostCall in = {.site.n = 0};
    snprintf(in.name, sizeof in.name, "%s", which->call);
    if (which->site) in.site.n = gpulog_frames(which->site, in.site.frame);
    return in;
}

static void sleep_for_receivers(uint32_t ticket, const KeptSend *open, int n, const Which *which,
                                Notice *notice)
{
    WaitRef refs[SIM_MAX_REFS];
    HostCall in = host_call_of(which);
    char what[96];
    int some = n < SIM_MAX_REFS ? n : SIM_MAX_REFS;
    for (int i = 0; i < some; i++) {
        refs[i] = ref_of(&open[i]);
        check_receiver(&open[i], &refs[i], &in);
    }
    snprintf(what, sizeof what, "ncclSend (number %llu to rank %d, as rank %d), not received yet",
             (unsigned long long)open[0].seq, open[0].peer, open[0].comm->rank);
    gpulog_waiting(what, open[0].site);
    sim_clock_inside(true);
    sim_wait(ticket, refs, some, n == some, &in, notice);
    sim_clock_inside(false);
    gpulog_waiting(NULL, NULL);
}

static void listen_to(const KeptSend *open, int n, bool listens)
{
    for (int i = 0; i < n && i < SIM_MAX_REFS; i++) sim_listen(open[i].comm->self, listens);
}

static void wait_for(const Which *which)
{
    KeptSend open[SIM_MAX_REFS];
    Notice notice;
    if (atomic_load(&sim_undone.n) == 0) return;
    int n = find_open(which, open);
    if (n == 0) return;
    sim_notice_begin(&notice);
    while (n > 0) {
        KeptSend now[SIM_MAX_REFS];
        listen_to(open, n, true); // first, and then check again: else a wake would be lost
        uint32_t ticket = sim_ticket();
        sim_pending_poll();
        int still = find_open(which, now);
        if (still > 0) sleep_for_receivers(ticket, now, still, which, &notice);
        listen_to(open, n, false);
        end_waits(open, n);
        end_waits(now, still);
        n = still > 0 ? find_open(which, open) : 0;
    }
}

static void wait_for_clock(const SimVectorClock *clock, const char *call, const void *site)
{
    sim_pending_check(clock, call, site);
    wait_for(&(Which){.clock = clock, .call = call, .site = site});
}

// For a query, which does not wait: without a receiver the program would query forever.
static void check_receivers(const SimVectorClock *clock, const char *call, const void *site)
{
    Which which = {.clock = clock, .call = call, .site = site};
    KeptSend open[SIM_MAX_REFS];
    sim_pending_check(clock, call, site);
    HostCall in = host_call_of(&which);
    int n = find_open(&which, open);
    for (int i = 0; i < n && i < SIM_MAX_REFS; i++) {
        WaitRef ref = ref_of(&open[i]);
        check_receiver(&open[i], &ref, &in);
    }
    end_waits(open, n);
}

void sim_sends_wait_comm(ncclComm_t comm, const char *call, const void *site)
{
    sim_launches_made();
    if (atomic_load(&sim_undone.n)) sim_clock_before_comm(comm->shared->nonce, comm->rank);
    wait_for(&(Which){.comm = comm, .call = call, .site = site});
}

bool sim_sends_open(ncclComm_t comm)
{
    KeptSend open[SIM_MAX_REFS];
    if (atomic_load(&sim_undone.n) == 0) return false;
    int n = find_open(&(Which){.comm = comm}, open);
    end_waits(open, n);
    return n > 0;
}

void sim_sends_wait_all(void)
{
    sim_launches_made();
    wait_for(&(Which){.call = "the end of the program"});
}

void sim_sends_forget(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    for (KeptSend **link = &sends; *link;)
        if ((*link)->comm == comm)
            take_out(link);
        else
            link = &(*link)->next;
    if (comm->waited_for) { // by other threads, which check again when they wake
        pthread_mutex_unlock(&lock);
        sim_wake_own();
        pthread_mutex_lock(&lock);
    }
    while (comm->waited_for) pthread_cond_wait(&no_waiters, &lock);
    pthread_mutex_unlock(&lock);
}

void sim_sends_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&no_waiters, NULL);
    while (sends) {
        KeptSend *next = sends->next;
        free(sends);
        sends = next;
    }
    atomic_store(&sim_undone.n, 0);
}
