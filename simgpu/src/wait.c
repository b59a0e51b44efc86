/* Waiting: a thread's bell, sleeping on it, and circles of threads that wait for each other.
 *
 * A thread that has to wait reads its bell (sim_ticket), looks whether what it waits for has
 * happened, and sleeps only if the bell has not rung since (sim_sleep). Who makes something happen
 * rings. So nobody spins, nobody polls, and no ring is lost.
 *
 * [Note: circles] Before it sleeps, a thread writes on its desk what it waits for. If the ranks
 * that have to come belong to threads that sleep too, which wait for ranks of threads that sleep …,
 * and the chain comes back to the first thread, then nobody in it will ever wake: a deadlock, found
 * exactly and at once by whoever closes the circle. Every thread waits for *all* that it names,
 * so one circle suffices. What others wrote may be old by the time it is read; therefore what
 * they wait for is looked up anew in the page, and a circle counts only if a second walk finds the
 * same one with no thread having woken in between.
 *
 * Interface: sim_ticket, sim_sleep, sim_ring, sim_ring_own, sim_thread, sim_desk, sim_missing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t desk_lock = PTHREAD_MUTEX_INITIALIZER;
static Desk *own_desk;
static int own_desk_fd = -1;
static int generation; // grows in a forked child, whose threads need bells of their own
static pthread_key_t bell_key;
static __thread int own_bell = -1, own_generation;

static void put_bell_back(void *arg)
{
    if (own_generation == generation && own_bell >= 0)
        atomic_store(&own_desk->bell[own_bell].taken, 0);
}

static void make_key(void)
{
    pthread_key_create(&bell_key, put_bell_back);
}

void sim_wait_forked(void)
{
    pthread_mutex_init(&desk_lock, NULL);
    if (own_desk) munmap(own_desk, sizeof *own_desk);
    if (own_desk_fd >= 0) close(own_desk_fd);
    own_desk = NULL;
    own_desk_fd = -1;
    generation++;
}

void simgpu_helper_threads(int change)
{
    atomic_fetch_add(&sim_desk(NULL)->helpers, (uint32_t)change);
}

Desk *sim_desk(int *fd)
{
    pthread_mutex_lock(&desk_lock);
    bool made = own_desk != NULL;
    if (!made) {
        own_desk_fd = memfd_create("simgpu-desk", MFD_CLOEXEC);
        void *desk = MAP_FAILED;
        if (own_desk_fd >= 0 && ftruncate(own_desk_fd, sizeof *own_desk) == 0)
            desk = mmap(NULL, sizeof *own_desk, PROT_READ | PROT_WRITE, MAP_SHARED, own_desk_fd, 0);
        if (desk != MAP_FAILED) own_desk = desk;
    }
    pthread_mutex_unlock(&desk_lock);
    if (!own_desk)
        sim_fatal(SIMGPU_SYSTEM, "NCCL: no shared memory",
                  "memfd_create or mmap of %zu bytes failed: %s.\n"
                  "Is there memory and are there file descriptors left (ulimit -n)?",
                  sizeof *own_desk, strerror(errno));
    if (fd) *fd = own_desk_fd;
    return own_desk;
}

int sim_thread(void)
{
    if (own_bell >= 0 && own_generation == generation) return own_bell;
    pthread_once(&once, make_key);
    Desk *desk = sim_desk(NULL);
    for (int i = 0; i < SIM_MAX_THREADS; i++) {
        uint32_t free = 0;
        if (!atomic_compare_exchange_strong(&desk->bell[i].taken, &free, 1)) continue;
        own_bell = i;
        own_generation = generation;
        pthread_setspecific(bell_key, desk); // anything but NULL, so that put_bell_back runs
        return i;
    }
    sim_fatal(SIMGPU_SYSTEM, "NCCL: too many threads",
              "%d threads of this process use NCCL at the same time; simgpu has no room for more.",
              SIM_MAX_THREADS);
}

uint32_t sim_ticket(void)
{
    int thread = sim_thread();
    return atomic_load(&own_desk->bell[thread].value);
}

void sim_ring(Desk *desk, int thread)
{
    if (!desk || thread < 0 || thread >= SIM_MAX_THREADS) return;
    Bell *bell = &desk->bell[thread];
    atomic_fetch_add(&bell->value, 1);
    if (atomic_load(&bell->sleeping))
        syscall(SYS_futex, &bell->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void sim_ring_own(void)
{
    for (int i = 0; own_desk && i < SIM_MAX_THREADS; i++)
        if (atomic_load(&own_desk->bell[i].taken)) sim_ring(own_desk, i);
}

int sim_missing(const Page *page, const WaitRef *ref, int *ranks)
{
    int n = 0, size = atomic_load(&page->world);
    if (ref->working) return -1; // it ends as soon as the others have done what they are doing
    if (ref->kind == CALL_SEND || ref->kind == CALL_RECV) {
        bool sends = ref->kind == CALL_SEND;
        const Channel *channel =
            sends ? &page->channel[ref->rank][ref->peer] : &page->channel[ref->peer][ref->rank];
        if (atomic_load(sends ? &channel->recvs : &channel->sends) >= ref->seq) return -1;
        ranks[n++] = ref->peer;
        return n;
    }
    if (atomic_load(&page->entered) >= ref->seq * (uint64_t)size) return -1;
    for (int r = 0; r < size; r++)
        if (atomic_load(&page->member[r].arrived) < ref->seq) ranks[n++] = r;
    return n;
}

// ---- Circles ----

#define MAX_STEPS 24

// Pages and desks of processes with which this one shares no communicator, mapped for one search.
typedef struct Borrowed {
    int pid, fd;
    void *at;
    size_t bytes;
} Borrowed;

typedef struct Search {
    int goal_pid, goal_thread;
    int n; // steps so far; step[i] is thread (pid[i], thread[i])
    CircleStep step[MAX_STEPS];
    int pid[MAX_STEPS], thread[MAX_STEPS];
    uint32_t stamp[MAX_STEPS];
    int n_seen;
    struct {
        int pid, thread;
    } seen[SIM_MAX_RANKS];
    int n_borrowed;
    Borrowed borrowed[2 * MAX_STEPS];
} Search;

static void *borrow(Search *s, int pid, int fd, size_t bytes)
{
    for (int i = 0; i < s->n_borrowed; i++)
        if (s->borrowed[i].pid == pid && s->borrowed[i].fd == fd) return s->borrowed[i].at;
    if (s->n_borrowed == 2 * MAX_STEPS) return NULL;
    int own = sim_open_fd(pid, fd);
    if (own < 0) return NULL;
    struct stat st;
    void *at = MAP_FAILED;
    if (fstat(own, &st) == 0 && (size_t)st.st_size == bytes)
        at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, own, 0);
    close(own);
    if (at == MAP_FAILED) return NULL;
    s->borrowed[s->n_borrowed++] = (Borrowed){pid, fd, at, bytes};
    return at;
}

static const Page *find_page(Search *s, const WaitRef *ref)
{
    for (PageMap *map = sim_pages; map; map = map->next)
        if (map->page->nonce == ref->nonce) return map->page;
    const Page *page = borrow(s, ref->pid, ref->page_fd, sizeof *page);
    return page && page->nonce == ref->nonce ? page : NULL;
}

static Desk *find_desk(Search *s, const Member *member)
{
    if (member->pid == getpid()) return own_desk;
    for (Peer *peer = sim_peers; peer; peer = peer->next)
        if (peer->pid == member->pid) return peer->desk;
    return borrow(s, member->pid, member->desk_fd, sizeof(Desk));
}

// A rank's next call comes from the thread that made its last one. A rank that has made none may
// get a thread of its own yet, unless its process has but one.
static bool knows_thread(const Member *member, const Desk *desk)
{
    if (atomic_load(&member->thread_used)) return true;
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/task", member->pid);
    if (stat(path, &st) != 0) return false;
    return st.st_nlink - 2 - atomic_load(&desk->helpers) == 1;
}

static bool seen_before(Search *s, int pid, int thread)
{
    for (int i = 0; i < s->n_seen; i++)
        if (s->seen[i].pid == pid && s->seen[i].thread == thread) return true;
    if (s->n_seen == SIM_MAX_RANKS) return true;
    s->seen[s->n_seen].pid = pid;
    s->seen[s->n_seen++].thread = thread;
    return false;
}

static void write_refs(Bell *bell, const WaitRef *refs, int n)
{
    uint64_t words[SIM_REF_WORDS];
    for (int i = 0; i < n; i++) {
        memcpy(words, &refs[i], sizeof words);
        for (size_t w = 0; w < SIM_REF_WORDS; w++) atomic_store(&bell->ref[i][w], words[w]);
    }
    atomic_store(&bell->n_refs, (uint32_t)n);
}

// What a sleeping thread waits for, refs (SIM_MAX_REFS); -1: it is not asleep, or not with all that
// it waits for written down, or it woke in between.
static int read_refs(Bell *bell, uint32_t stamp, WaitRef *refs)
{
    uint64_t words[SIM_REF_WORDS];
    uint32_t n = atomic_load(&bell->n_refs);
    if (!atomic_load(&bell->sleeping) || !atomic_load(&bell->all_refs) || n > SIM_MAX_REFS)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t w = 0; w < SIM_REF_WORDS; w++) words[w] = atomic_load(&bell->ref[i][w]);
        memcpy(&refs[i], words, sizeof words);
    }
    return atomic_load(&bell->stamp) == stamp ? (int)n : -1;
}

// Whether a chain of sleeping threads leads from thread `thread` of process `pid` to the goal.
static bool search_from(Search *s, Desk *desk, int pid, int thread)
{
    Bell *bell = &desk->bell[thread];
    uint32_t stamp = atomic_load(&bell->stamp);
    int ranks[SIM_MAX_RANKS];
    WaitRef refs[SIM_MAX_REFS];
    int n_refs = s->n < MAX_STEPS ? read_refs(bell, stamp, refs) : -1;

    // Can it go on with anything? Then it is about to wake.
    for (int i = 0; i < n_refs; i++) {
        const Page *page = find_page(s, &refs[i]);
        if (!page || sim_missing(page, &refs[i], ranks) < 0) return false;
    }
    for (int i = 0; i < n_refs; i++) {
        WaitRef ref = refs[i];
        const Page *page = find_page(s, &ref);
        int n = sim_missing(page, &ref, ranks);
        for (int k = 0; k < n; k++) {
            const Member *member = &page->member[ranks[k]];
            int next = atomic_load(&member->thread);
            Desk *next_desk = find_desk(s, member);
            if (!next_desk || next < 0 || !knows_thread(member, next_desk)) continue;
            s->step[s->n] = (CircleStep){page, ref, ranks[k]};
            s->pid[s->n] = pid;
            s->thread[s->n] = thread;
            s->stamp[s->n++] = stamp;
            if (member->pid == s->goal_pid && next == s->goal_thread) return true;
            if (!seen_before(s, member->pid, next) && search_from(s, next_desk, member->pid, next))
                return true;
            s->n--;
        }
    }
    return false;
}

static bool find_circle(Search *s)
{
    s->goal_pid = getpid();
    s->goal_thread = own_bell;
    s->n = s->n_seen = 0;
    return search_from(s, own_desk, s->goal_pid, s->goal_thread);
}

static void check_circle(void)
{
    static __thread Search first, second;
    first.n_borrowed = second.n_borrowed = 0;
    sim_lock();
    bool found = find_circle(&first) && find_circle(&second) && first.n == second.n;
    for (int i = 0; found && i < first.n; i++)
        found = first.pid[i] == second.pid[i] && first.thread[i] == second.thread[i] &&
                first.stamp[i] == second.stamp[i];
    sim_unlock();
    if (found) sim_blame_circle(second.step, second.n);
    for (int i = 0; i < first.n_borrowed; i++)
        munmap(first.borrowed[i].at, first.borrowed[i].bytes);
    for (int i = 0; i < second.n_borrowed; i++)
        munmap(second.borrowed[i].at, second.borrowed[i].bytes);
}

void sim_nap(uint32_t ticket, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    Bell *bell = &own_desk->bell[sim_thread()];
    atomic_store(&bell->all_refs, 0); // no part of any circle
    atomic_store(&bell->sleeping, 1);
    syscall(SYS_futex, &bell->value, FUTEX_WAIT, ticket, &limit, NULL, 0);
    atomic_store(&bell->sleeping, 0);
}

void sim_sleep(uint32_t ticket, const WaitRef *refs, int n_refs, bool all_refs)
{
    Bell *bell = &own_desk->bell[sim_thread()];
    write_refs(bell, refs, n_refs);
    atomic_store(&bell->all_refs, all_refs);
    atomic_fetch_add(&bell->stamp, 1);
    atomic_store(&bell->sleeping, 1);
    if (n_refs && atomic_load(&bell->value) == ticket) check_circle();
    while (atomic_load(&bell->value) == ticket)
        syscall(SYS_futex, &bell->value, FUTEX_WAIT, ticket, NULL, NULL, 0);
    atomic_store(&bell->sleeping, 0);
    atomic_fetch_add(&bell->stamp, 1);
}
