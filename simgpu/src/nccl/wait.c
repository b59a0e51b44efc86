/* wait.c: sleeping in a wait slot, and circles of threads that wait for each other.
 *
 * A thread that has to wait reads its slot's counter (sim_ticket), looks whether what it waits for
 * has happened, and sleeps only if nobody has counted up since (sim_sleep). Who makes something
 * happen does that (sim_wake). So nobody spins, nobody polls, and no wake is lost.
 *
 * [Note: circles] Before it sleeps, a thread writes into its slot what it waits for. If the ranks
 * that have to come belong to threads that sleep too, which wait for ranks of threads that sleep …,
 * and the chain comes back to the first thread, then nobody in it will ever wake: a deadlock, found
 * exactly and at once by whoever closes the circle. Every thread waits for *all* that it names,
 * so one circle suffices. What others wrote may be old by the time it is read; therefore what
 * they wait for is looked up anew, and a circle counts only if a second walk finds the same one with no thread having woken in between.
 *
 * Interface: sim_ticket, sim_sleep, sim_wake, sim_wake_own, sim_thread, sim_wait_table,
 * sim_missing.
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

#include "nccl/comm.h"
#include "report/report.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static ProcessWaitTable *own_table;
static int own_table_fd = -1;
static int generation; // grows in a forked child, whose threads need slots of their own
static pthread_key_t slot_key;
static __thread int own_slot = -1, own_generation;

static void put_slot_back(void *arg)
{
    if (own_generation == generation && own_slot >= 0)
        atomic_store(&own_table->wait_slot[own_slot].taken, 0);
}

static void make_key(void)
{
    pthread_key_create(&slot_key, put_slot_back);
}

void sim_wait_forked(void)
{
    pthread_mutex_init(&table_lock, NULL);
    if (own_table) munmap(own_table, sizeof *own_table);
    if (own_table_fd >= 0) close(own_table_fd);
    own_table = NULL;
    own_table_fd = -1;
    generation++;
}

void simgpu_helper_threads(int change)
{
    atomic_fetch_add(&sim_wait_table(NULL)->helpers, (uint32_t)change);
}

ProcessWaitTable *sim_wait_table(int *fd)
{
    pthread_mutex_lock(&table_lock);
    bool made = own_table != NULL;
    if (!made) {
        own_table_fd = memfd_create("simgpu-waits", MFD_CLOEXEC);
        void *table = MAP_FAILED;
        if (own_table_fd >= 0 && ftruncate(own_table_fd, sizeof *own_table) == 0)
            table =
                mmap(NULL, sizeof *own_table, PROT_READ | PROT_WRITE, MAP_SHARED, own_table_fd, 0);
        if (table != MAP_FAILED) own_table = table;
    }
    pthread_mutex_unlock(&table_lock);
    if (!own_table)
        sim_fatal(SIMGPU_SYSTEM, "NCCL: no shared memory",
                  "memfd_create or mmap of %zu bytes failed: %s.\n"
                  "Is there memory and are there file descriptors left (ulimit -n)?",
                  sizeof *own_table, strerror(errno));
    if (fd) *fd = own_table_fd;
    return own_table;
}

int sim_thread(void)
{
    if (own_slot >= 0 && own_generation == generation) return own_slot;
    pthread_once(&once, make_key);
    ProcessWaitTable *table = sim_wait_table(NULL);
    for (int i = 0; i < SIM_MAX_THREADS; i++) {
        uint32_t free = 0;
        if (!atomic_compare_exchange_strong(&table->wait_slot[i].taken, &free, 1)) continue;
        own_slot = i;
        own_generation = generation;
        pthread_setspecific(slot_key, table); // anything but NULL, so that put_slot_back runs
        return i;
    }
    sim_fatal(SIMGPU_SYSTEM, "NCCL: too many threads",
              "%d threads of this process use NCCL at the same time; simgpu has no room for more.",
              SIM_MAX_THREADS);
}

uint32_t sim_ticket(void)
{
    int thread = sim_thread();
    return atomic_load(&own_table->wait_slot[thread].value);
}

void sim_wake(ProcessWaitTable *table, int thread)
{
    if (!table || thread < 0 || thread >= SIM_MAX_THREADS) return;
    WaitSlot *wait_slot = &table->wait_slot[thread];
    atomic_fetch_add(&wait_slot->value, 1);
    if (atomic_load(&wait_slot->sleeping))
        syscall(SYS_futex, &wait_slot->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void sim_wake_own(void)
{
    for (int i = 0; own_table && i < SIM_MAX_THREADS; i++)
        if (atomic_load(&own_table->wait_slot[i].taken)) sim_wake(own_table, i);
}

int sim_missing(const CommShared *shared, const WaitRef *ref, int *ranks)
{
    int n = 0, size = atomic_load(&shared->world);
    if (ref->working) return -1; // it ends as soon as the others have done what they are doing
    if (ref->kind == CALL_SEND || ref->kind == CALL_RECV) {
        bool sends = ref->kind == CALL_SEND;
        const Channel *channel =
            sends ? &shared->channel[ref->rank][ref->peer] : &shared->channel[ref->peer][ref->rank];
        if (atomic_load(sends ? &channel->recvs : &channel->sends) >= ref->seq) return -1;
        ranks[n++] = ref->peer;
        return n;
    }
    if (atomic_load(&shared->entered) >= ref->seq * (uint64_t)size) return -1;
    for (int r = 0; r < size; r++)
        if (atomic_load(&shared->slot[r].arrived) < ref->seq) ranks[n++] = r;
    return n;
}

// ---- Circles ----

#define MAX_STEPS 24

// Memory of processes with which this one shares no communicator, mapped for one search.
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

static const CommShared *find_shared(Search *s, const WaitRef *ref)
{
    for (SharedMap *map = sim_shared_maps; map; map = map->next)
        if (map->shared->nonce == ref->nonce) return map->shared;
    const CommShared *shared = borrow(s, ref->pid, ref->shared_fd, sizeof *shared);
    return shared && shared->nonce == ref->nonce ? shared : NULL;
}

static ProcessWaitTable *find_table(Search *s, const RankSlot *slot)
{
    if (slot->pid == getpid()) return own_table;
    for (Peer *peer = sim_peers; peer; peer = peer->next)
        if (peer->pid == slot->pid) return peer->wait_table;
    return borrow(s, slot->pid, slot->wait_table_fd, sizeof(ProcessWaitTable));
}

// A rank's next call comes from the thread that made its last one. A rank that has made none may
// get a thread of its own yet, unless its process has but one.
static bool knows_thread(const RankSlot *slot, const ProcessWaitTable *table)
{
    if (atomic_load(&slot->thread_used)) return true;
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/task", slot->pid);
    if (stat(path, &st) != 0) return false;
    return st.st_nlink - 2 - atomic_load(&table->helpers) == 1;
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

static void write_refs(WaitSlot *wait_slot, const WaitRef *refs, int n)
{
    uint64_t words[SIM_REF_WORDS];
    for (int i = 0; i < n; i++) {
        memcpy(words, &refs[i], sizeof words);
        for (size_t w = 0; w < SIM_REF_WORDS; w++) atomic_store(&wait_slot->ref[i][w], words[w]);
    }
    atomic_store(&wait_slot->n_refs, (uint32_t)n);
}

// What a sleeping thread waits for, refs (SIM_MAX_REFS); -1: it is not asleep, or not with all that
// it waits for written down, or it woke in between.
static int read_refs(WaitSlot *wait_slot, uint32_t stamp, WaitRef *refs)
{
    uint64_t words[SIM_REF_WORDS];
    uint32_t n = atomic_load(&wait_slot->n_refs);
    if (!atomic_load(&wait_slot->sleeping) || !atomic_load(&wait_slot->all_refs) ||
        n > SIM_MAX_REFS)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t w = 0; w < SIM_REF_WORDS; w++) words[w] = atomic_load(&wait_slot->ref[i][w]);
        memcpy(&refs[i], words, sizeof words);
    }
    return atomic_load(&wait_slot->stamp) == stamp ? (int)n : -1;
}

// Whether a chain of sleeping threads leads from thread `thread` of process `pid` to the goal.
static bool search_from(Search *s, ProcessWaitTable *table, int pid, int thread)
{
    WaitSlot *wait_slot = &table->wait_slot[thread];
    uint32_t stamp = atomic_load(&wait_slot->stamp);
    int ranks[SIM_MAX_RANKS];
    WaitRef refs[SIM_MAX_REFS];
    int n_refs = s->n < MAX_STEPS ? read_refs(wait_slot, stamp, refs) : -1;

    // Can it go on with anything? Then it is about to wake.
    for (int i = 0; i < n_refs; i++) {
        const CommShared *shared = find_shared(s, &refs[i]);
        if (!shared || sim_missing(shared, &refs[i], ranks) < 0) return false;
    }
    for (int i = 0; i < n_refs; i++) {
        WaitRef ref = refs[i];
        const CommShared *shared = find_shared(s, &ref);
        int n = sim_missing(shared, &ref, ranks);
        for (int k = 0; k < n; k++) {
            const RankSlot *slot = &shared->slot[ranks[k]];
            int next = atomic_load(&slot->thread);
            ProcessWaitTable *next_table = find_table(s, slot);
            if (!next_table || next < 0 || !knows_thread(slot, next_table)) continue;
            s->step[s->n] = (CircleStep){shared, ref, ranks[k]};
            s->pid[s->n] = pid;
            s->thread[s->n] = thread;
            s->stamp[s->n++] = stamp;
            if (slot->pid == s->goal_pid && next == s->goal_thread) return true;
            if (!seen_before(s, slot->pid, next) && search_from(s, next_table, slot->pid, next))
                return true;
            s->n--;
        }
    }
    return false;
}

static bool find_circle(Search *s)
{
    s->goal_pid = getpid();
    s->goal_thread = own_slot;
    s->n = s->n_seen = 0;
    return search_from(s, own_table, s->goal_pid, s->goal_thread);
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
    if (found) sim_diagnose_circle(second.step, second.n);
    for (int i = 0; i < first.n_borrowed; i++)
        munmap(first.borrowed[i].at, first.borrowed[i].bytes);
    for (int i = 0; i < second.n_borrowed; i++)
        munmap(second.borrowed[i].at, second.borrowed[i].bytes);
}

void sim_nap(uint32_t ticket, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    WaitSlot *wait_slot = &own_table->wait_slot[sim_thread()];
    atomic_store(&wait_slot->all_refs, 0); // no part of any circle
    atomic_store(&wait_slot->sleeping, 1);
    syscall(SYS_futex, &wait_slot->value, FUTEX_WAIT, ticket, &limit, NULL, 0);
    atomic_store(&wait_slot->sleeping, 0);
}

void sim_sleep(uint32_t ticket, const WaitRef *refs, int n_refs, bool all_refs)
{
    WaitSlot *wait_slot = &own_table->wait_slot[sim_thread()];
    write_refs(wait_slot, refs, n_refs);
    atomic_store(&wait_slot->all_refs, all_refs);
    atomic_fetch_add(&wait_slot->stamp, 1);
    atomic_store(&wait_slot->sleeping, 1);
    if (n_refs && atomic_load(&wait_slot->value) == ticket) check_circle();
    while (atomic_load(&wait_slot->value) == ticket)
        syscall(SYS_futex, &wait_slot->value, FUTEX_WAIT, ticket, NULL, NULL, 0);
    atomic_store(&wait_slot->sleeping, 0);
    atomic_fetch_add(&wait_slot->stamp, 1);
}
