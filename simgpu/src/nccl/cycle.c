/* cycle.c: threads that wait for each other.
 *
 * Before it sleeps, a thread writes down what it waits for (wait.c). [Note: cycles] A communicator
 * belongs to a device: any thread of its process may make the next call on it. So a process is
 * stuck when all threads of its program sleep, and each waits for a rank of a stuck process. (A
 * thread waits for all ranks that it names: if one of them never comes, it waits forever.) To find
 * the largest set of stuck processes, start with all processes whose threads sleep. Remove those
 * with a thread that waits for none in the set, until none is left to remove. The thread that
 * closes a cycle finds the set, and reports a deadlock at once; it is always right. A thread in
 * pthread_join of one that sleeps counts as asleep. A process with a thread that is awake is never
 * in the set. If threads wait for long and no deadlock is certain, a notice is printed, which may
 * be wrong. It is of one of two kinds: it says who waits for whom in a cycle, or, if there is no
 * cycle, it names the ranks that others wait for and that are alive but do not wait in NCCL
 * themselves.
 *
 * Another process may have moved on since it wrote down what it waits for. So we look twice, and
 * count each program's threads between the two looks. The set is valid only if both looks find the
 * same threads and none woke in between: then all slept at the moment of the count.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/threads.h"
#include "memory/shared_memory.h"
#include "nccl/cycle.h"
#include "nccl/diagnose.h"
#include "nccl/kind.h"
#include "nccl/peers.h"

#define MAX_PROCESSES SIM_MAX_RANKS
#define MAX_WAITERS 512
#define MAX_FOUND 2048 // refs of all waiters
#define MAX_BORROWED 64

typedef struct Process {
    int pid;
    ProcessWaitTable *table;
    int asleep;      // threads
    bool helps_none; // it is in the set: as far as is known, it will wake no other process
    bool known;      // what all its sleepers wait for is known, and has not happened
} Process;

typedef struct Waiter {
    int process, thread;
    uint32_t stamp;
    int first, n;                          // refs
    uint64_t for_whom[MAX_PROCESSES / 64]; // a bit for each process
    bool stuck;
    int from; // the waiter from which the search for a cycle came here; -1: not reached
    int by_ref, by_rank;
} Waiter;

// Memory of processes with which this one shares no communicator, mapped for one search.
typedef struct Borrowed {
    int pid, fd;
    void *at;
    size_t bytes;
} Borrowed;

typedef struct Search {
    int n_processes, n_waiters, n_refs, n_borrowed;
    Process process[MAX_PROCESSES];
    Waiter waiter[MAX_WAITERS];
    WaitRef ref[MAX_FOUND];
    Borrowed borrowed[MAX_BORROWED];
} Search;

// Under the lock of comm.c.
static Search first_look, second_look;
static CycleStep step[MAX_WAITERS];
static bool told; // a deadlock was reported: the process is ending

int sim_missing(const CommShared *shared, const WaitRef *ref, int *ranks)
{
    int n = 0, size = atomic_load(&shared->world);
    if (ref->working) return -1; // this wait ends as soon as the other ranks are done
    if (sim_is_message(ref->kind)) {
        bool sends = ref->kind == GPU_SEND;
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

// ---- Looking ----

// Maps the first `bytes` bytes of another process's shared memory, which must have `size` bytes.
// NULL: it has another size, or is gone.
static void *borrow(Search *s, int pid, int fd, size_t size, size_t bytes)
{
    for (int i = 0; i < s->n_borrowed; i++)
        if (s->borrowed[i].pid == pid && s->borrowed[i].fd == fd) return s->borrowed[i].at;
    if (s->n_borrowed == MAX_BORROWED) return NULL;
    int own = sim_open_fd(pid, fd);
    if (own == -1) return NULL;
    void *at = sim_shared_bytes(own) == size ? sim_shared_map(own, NULL, 0, bytes) : MAP_FAILED;
    sim_shared_close(own);
    if (at == MAP_FAILED) return NULL;
    s->borrowed[s->n_borrowed++] = (Borrowed){pid, fd, at, bytes};
    return at;
}

static void give_back(Search *s)
{
    for (int i = 0; i < s->n_borrowed; i++) munmap(s->borrowed[i].at, s->borrowed[i].bytes);
    s->n_borrowed = 0;
}

static const CommShared *find_shared(Search *s, const WaitRef *ref)
{
    for (SharedMap *map = sim_shared_maps; map; map = map->next)
        if (map->shared->nonce == ref->nonce) return map->shared;
    const CommShared *shared =
        borrow(s, ref->pid, ref->shared_fd, SIM_SHARED_BYTES, sizeof *shared);
    return shared && shared->nonce == ref->nonce ? shared : NULL;
}

// The wait table of another process.
static ProcessWaitTable *find_table(Search *s, const RankSlot *slot)
{
    for (Peer *peer = sim_peers; peer; peer = peer->next)
        if (peer->pid == slot->pid) return peer->wait_table;
    return borrow(s, slot->pid, slot->wait_table_fd, sizeof(ProcessWaitTable),
                  sizeof(ProcessWaitTable));
}

// The number of the rank's process in the search; -1: there is no room, or it cannot be mapped.
static int process_of(Search *s, const RankSlot *slot)
{
    for (int p = 0; p < s->n_processes; p++)
        if (s->process[p].pid == slot->pid) return p;
    ProcessWaitTable *table = s->n_processes < MAX_PROCESSES ? find_table(s, slot) : NULL;
    if (!table) return -1;
    s->process[s->n_processes] = (Process){.pid = slot->pid, .table = table};
    return s->n_processes++;
}

// Lists what a sleeping thread waits for; -1: it does not sleep, has not written down all that it
// waits for, or woke meanwhile.
static int read_refs(const WaitSlot *wait_slot, uint32_t stamp, WaitRef *refs, int room)
{
    uint64_t words[SIM_REF_WORDS];
    uint32_t n = atomic_load(&wait_slot->n_refs);
    if (!atomic_load(&wait_slot->sleeping) || !atomic_load(&wait_slot->all_refs) ||
        n > SIM_MAX_REFS || (int)n > room)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t w = 0; w < SIM_REF_WORDS; w++) words[w] = atomic_load(&wait_slot->ref[i][w]);
        memcpy(&refs[i], words, sizeof words);
    }
    return atomic_load(&wait_slot->stamp) == stamp ? (int)n : -1;
}

// Adds a thread of process p and the ranks for which it waits; false: it is about to wake, or it is
// not known what it waits for.
static bool add_waiter(Search *s, int p, int thread)
{
    int ranks[SIM_MAX_RANKS];
    if (s->n_waiters == MAX_WAITERS) return false;
    Waiter *w = &s->waiter[s->n_waiters];
    const WaitSlot *wait_slot = &s->process[p].table->wait_slot[thread];
    *w = (Waiter){.process = p, .thread = thread, .first = s->n_refs};
    w->stamp = atomic_load(&wait_slot->stamp);
    w->n = read_refs(wait_slot, w->stamp, &s->ref[w->first], MAX_FOUND - s->n_refs);
    for (int i = 0; i < w->n; i++) {
        const WaitRef *ref = &s->ref[w->first + i];
        const CommShared *shared = find_shared(s, ref);
        int n = shared ? sim_missing(shared, ref, ranks) : -1;
        if (n < 0) return false;
        for (int k = 0; k < n; k++) {
            int other = process_of(s, &shared->slot[ranks[k]]);
            if (other >= 0) w->for_whom[other / 64] |= UINT64_C(1) << other % 64;
        }
    }
    if (w->n <= 0) return false;
    s->n_refs += w->n;
    s->n_waiters++;
    return true;
}

// Adds all threads that sleep: of this process, then of the processes for whose ranks they wait.
static void find_sleepers(Search *s, int pid, ProcessWaitTable *table)
{
    s->n_waiters = s->n_refs = 0;
    s->process[0] = (Process){.pid = pid, .table = table};
    s->n_processes = 1;
    for (int p = 0; p < s->n_processes; p++) {
        Process *process = &s->process[p];
        process->known = true;
        for (int i = 0; i < SIM_MAX_THREADS; i++) {
            uint64_t word = atomic_load(&process->table->asleep[i / 64]);
            if (!word) i |= 63;
            if (!word || !(word >> i % 64 & 1)) continue;
            process->asleep++;
            process->known &= add_waiter(s, p, i);
        }
    }
}

// ---- The set ----

// Whether a thread sleeps there.
static bool is_asleep(const ProcessWaitTable *table, int thread)
{
    return atomic_load(&table->asleep[thread / 64]) >> thread % 64 & 1;
}

// Publishes, for each sleeping thread of this process, how many threads are in pthread_join of it.
// The number is valid as long as that thread sleeps.
static void note_joiners(ProcessWaitTable *own)
{
    for (int i = 0; i < SIM_MAX_THREADS; i++)
        if (is_asleep(own, i))
            atomic_store(&own->wait_slot[i].joiners,
                         (uint32_t)sim_joiners(atomic_load(&own->wait_slot[i].tid)));
}

// Counts the threads of a process's program, without those in pthread_join of a sleeping thread;
// INT_MAX: not known, or the process has ended.
static int program_threads(const Process *process)
{
    int n = sim_program_threads(process->pid, process->table);
    for (int i = 0; i < SIM_MAX_THREADS && n > process->asleep; i++)
        if (is_asleep(process->table, i))
            n -= (int)atomic_load(&process->table->wait_slot[i].joiners);
    return n > 0 ? n : INT_MAX;
}

static bool is_stuck(const Search *s, const Waiter *w)
{
    for (int p = 0; p < s->n_processes; p++)
        if ((w->for_whom[p / 64] >> p % 64 & 1) && s->process[p].helps_none) return true;
    return false;
}

// Removes from the set the processes that can help, until none is left to remove. If `certain`, a
// process stays in the set only if every one of its threads waits for a process in the set;
// otherwise it stays if at least one thread does.
static void reduce_set(Search *s, bool certain)
{
    for (bool changed = true; changed;) {
        int stuck[MAX_PROCESSES] = {0};
        changed = false;
        for (int i = 0; i < s->n_waiters; i++) {
            s->waiter[i].stuck = is_stuck(s, &s->waiter[i]);
            stuck[s->waiter[i].process] += s->waiter[i].stuck;
        }
        for (int p = 0; p < s->n_processes; p++) {
            Process *process = &s->process[p];
            bool none = certain ? stuck[p] == process->asleep : stuck[p] > 0;
            if (!process->helps_none || (none && stuck[p] > 0)) continue;
            process->helps_none = false;
            changed = true;
        }
    }
}

// Whether this process is in the set.
static bool is_hopeless(Search *s)
{
    for (int p = 0; p < s->n_processes; p++) {
        Process *process = &s->process[p];
        process->helps_none = process->known && process->asleep > 0;
    }
    reduce_set(s, true);
    Process *own = &s->process[0];
    if (own->helps_none && own->asleep < program_threads(own)) note_joiners(own->table);
    for (int p = 0; p < s->n_processes && s->process[0].helps_none; p++) {
        Process *process = &s->process[p];
        if (process->helps_none) process->helps_none = process->asleep >= program_threads(process);
    }
    if (s->process[0].helps_none) reduce_set(s, true);
    return s->process[0].helps_none;
}

static const Waiter *find_waiter(const Search *s, int pid, int thread)
{
    for (int i = 0; i < s->n_waiters; i++)
        if (s->process[s->waiter[i].process].pid == pid && s->waiter[i].thread == thread)
            return &s->waiter[i];
    return NULL;
}

// Whether all threads of the set still sleep in the same waits as before.
static bool is_unchanged(const Search *before, const Search *now)
{
    for (int p = 0; p < before->n_processes; p++) {
        const Process *process = &before->process[p];
        int still = 0;
        if (!process->helps_none) continue;
        for (int i = 0; i < before->n_waiters; i++) {
            const Waiter *w = &before->waiter[i];
            if (w->process != p) continue;
            const Waiter *again = find_waiter(now, process->pid, w->thread);
            still += again && again->stamp == w->stamp;
        }
        if (still != process->asleep) return false;
    }
    return true;
}

// ---- The cycle in it ----

// The thread of process p that most likely makes the rank's calls: one that now waits in a call on
// that rank's device, or that made that rank's last call. -1: none.
static int likely_caller(Search *s, int p, const RankSlot *slot)
{
    int best = -1, most = -1;
    for (int i = 0; i < s->n_waiters; i++) {
        const Waiter *w = &s->waiter[i];
        if (w->process != p || !w->stuck) continue;
        const CommShared *shared = find_shared(s, &s->ref[w->first]);
        int weight = 0;
        if (shared && shared->slot[s->ref[w->first].rank].device == slot->device) weight += 2;
        if (atomic_load(&slot->thread_used) && atomic_load(&slot->thread) == w->thread) weight++;
        if (weight > most) {
            most = weight;
            best = i;
        }
    }
    return best;
}

// Continues from waiter i to the threads that can make the calls of the ranks it waits for. If
// `likely`, only to each rank's most likely caller; otherwise to every stuck thread of its process.
static int go_on(Search *s, int i, bool likely, int *queue, int n)
{
    int ranks[SIM_MAX_RANKS];
    const Waiter *w = &s->waiter[i];
    for (int k = 0; k < w->n; k++) {
        const WaitRef *ref = &s->ref[w->first + k];
        const CommShared *shared = find_shared(s, ref);
        int missing = shared ? sim_missing(shared, ref, ranks) : -1;
        for (int m = 0; m < missing; m++) {
            int p = process_of(s, &shared->slot[ranks[m]]);
            if (p < 0 || !s->process[p].helps_none) continue;
            int only = likely ? likely_caller(s, p, &shared->slot[ranks[m]]) : -1;
            for (int j = 0; j < s->n_waiters; j++) {
                Waiter *next = &s->waiter[j];
                if (next->process != p || !next->stuck || next->from >= 0) continue;
                if (likely && j != only) continue;
                next->from = i;
                next->by_ref = w->first + k;
                next->by_rank = ranks[m];
                queue[n++] = j;
            }
        }
    }
    return n;
}

// Waiter w as a step of the cycle: it waits for a rank by one of its refs.
static CycleStep make_step(Search *s, const Waiter *w, int ref, int rank)
{
    CycleStep made = {find_shared(s, &s->ref[ref]), s->ref[ref], rank, {.site.n = 0}};
    sim_read_host_call(&s->process[w->process].table->wait_slot[w->thread], &made.in);
    return made;
}

// The shortest cycle that leads from a thread of this process back to it, in `step`; 0: none.
static int find_cycle(Search *s, int thread, bool likely)
{
    int queue[MAX_WAITERS + 1], n = 0, length = 0;
    const Waiter *own = find_waiter(s, getpid(), thread);
    if (!own || !own->stuck) return 0;
    for (int i = 0; i < s->n_waiters; i++) s->waiter[i].from = -1;
    n = go_on(s, (int)(own - s->waiter), likely, queue, n);
    for (int i = 0; i < n && own->from < 0; i++) n = go_on(s, queue[i], likely, queue, n);
    if (own->from < 0) return 0;
    const Waiter *w = own;
    do {
        const Waiter *before = &s->waiter[w->from];
        step[length++] = make_step(s, before, w->by_ref, w->by_rank);
        w = before;
    } while (w != own);
    for (int i = 0; i < length / 2; i++) { // the loop above followed `from` backwards
        CycleStep swap = step[i];
        step[i] = step[length - 1 - i];
        step[length - 1 - i] = swap;
    }
    return length;
}

// Looks twice; returns the length of the cycle; 0: none is certain.
static int look_for_cycle(int thread)
{
    ProcessWaitTable *table = sim_wait_table(NULL);
    find_sleepers(&first_look, getpid(), table);
    if (!is_hopeless(&first_look)) return 0;
    find_sleepers(&second_look, getpid(), table);
    if (!is_unchanged(&first_look, &second_look)) return 0;
    int n = find_cycle(&first_look, thread, true);
    return n > 0 ? n : find_cycle(&first_look, thread, false);
}

void sim_cycle_check(int thread)
{
    sim_lock();
    int n = told ? 0 : look_for_cycle(thread);
    told = told || n > 0;
    if (n == 0 && !told) { // else the borrowed mappings are still needed
        give_back(&first_look);
        give_back(&second_look);
    }
    sim_unlock();
    if (n > 0) sim_diagnose_cycle(step, n);
}

// Writes to `step` those ranks that the refs wait for and whose processes do not wait in NCCL.
// Returns how many.
static int find_absent(Search *s, const WaitRef *refs, int n_refs, const HostCall *in)
{
    int n = 0, ranks[SIM_MAX_RANKS];
    for (int i = 0; i < n_refs; i++) {
        const CommShared *shared = find_shared(s, &refs[i]);
        int missing = shared ? sim_missing(shared, &refs[i], ranks) : -1;
        for (int k = 0; k < missing && n < MAX_WAITERS; k++) {
            int p = process_of(s, &shared->slot[ranks[k]]);
            if (p <= 0 || !s->process[p].asleep)
                step[n++] = (CycleStep){shared, refs[i], ranks[k], *in};
        }
    }
    return n;
}

void sim_say_waits(const WaitRef *refs, int n_refs, const Notice *notice)
{
    static const HostCall none;
    sim_lock();
    if (!told) {
        find_sleepers(&first_look, getpid(), sim_wait_table(NULL));
        sim_say_absent_ranks(step, find_absent(&first_look, refs, n_refs, &none), notice);
        give_back(&first_look);
    }
    sim_unlock();
}

void sim_cycle_notice(int thread, const Notice *notice)
{
    Search *s = &first_look;
    const Waiter *own;
    HostCall in;
    int n = 0;
    sim_lock();
    if (told) {
        sim_unlock();
        return;
    }
    find_sleepers(s, getpid(), sim_wait_table(NULL));
    for (int p = 0; p < s->n_processes; p++) s->process[p].helps_none = s->process[p].asleep > 0;
    reduce_set(s, false);
    if (find_cycle(s, thread, false)) {
        for (int i = 0; i < s->n_waiters; i++) {
            Waiter *w = &s->waiter[i];
            int ranks[SIM_MAX_RANKS];
            const WaitRef *ref = &s->ref[w->first];
            const CommShared *shared = w->stuck ? find_shared(s, ref) : NULL;
            if (!shared || sim_missing(shared, ref, ranks) <= 0) continue;
            step[n++] = make_step(s, w, w->first, ranks[0]);
        }
        sim_say_cycle(step, n, notice);
    } else if ((own = find_waiter(s, getpid(), thread))) {
        sim_read_host_call(&s->process[0].table->wait_slot[thread], &in);
        sim_say_absent_ranks(step, find_absent(s, &s->ref[own->first], own->n, &in), notice);
    }
    give_back(s);
    sim_unlock();
}
