/* wait.c: sleeping in a wait slot.
 *
 * A thread that has to wait reads its slot's counter (sim_ticket), checks whether what it waits for
 * has happened, and sleeps only if the counter has not grown since (sim_sleep). A thread that makes
 * something happen increments it (sim_wake). So no thread spins or polls, and no wake is lost. A
 * thread that works or waits for a communicator is in its rank's list of listeners (sim_listen),
 * because a thread that wakes a rank cannot know which of the rank's threads waits.
 *
 * Before it sleeps, a thread writes into its slot what it waits for: cycle.c checks whether that
 * can still come. Threads begin and end unnoticed, so it checks again a little later.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "memory/shared_memory.h"
#include "nccl/cycle.h"
#include "nccl/wait.h"
#include "report/report.h"
#include "runtime/runtime.h"

// Milliseconds until a sleeping thread checks again whether its wait is hopeless; then ten times …
#define FIRST_LOOK 100

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static ProcessWaitTable *own_table;
static int own_table_fd = -1;
static int generation; // grows in a forked child, whose threads need slots of their own
static pthread_key_t slot_key;
static __thread int own_slot = -1, own_generation;
static atomic_int slots_used; // slots used so far: the pages of the others are not touched

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
    sim_shared_close(own_table_fd);
    own_table = NULL;
    own_table_fd = -1;
    atomic_store(&slots_used, 0);
    generation++;
}

ProcessWaitTable *sim_wait_table(int *fd)
{
    pthread_mutex_lock(&table_lock);
    bool made = own_table != NULL;
    if (!made) {
        void *table;
        own_table_fd = sim_shared_make("simgpu-waits", sizeof *own_table, sizeof *own_table, &table,
                                       "who waits for whom");
        if (own_table_fd != -1) own_table = table;
    }
    pthread_mutex_unlock(&table_lock);
    if (!own_table)
        sim_fatal(SIMGPU_SYSTEM, "NCCL: no shared memory",
                  "memfd_create or mmap of %zu bytes failed: %s.\nIs there memory left?",
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
        atomic_store(&table->wait_slot[i].tid, (int32_t)syscall(SYS_gettid));
        int seen = atomic_load(&slots_used);
        while (seen <= i && !atomic_compare_exchange_weak(&slots_used, &seen, i + 1)) continue;
        own_generation = generation;
        pthread_setspecific(slot_key, table); // anything but NULL, so that put_slot_back runs
        sim_workers_drop();
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

void sim_wake_listeners(ProcessWaitTable *table, const RankSlot *slot)
{
    for (int i = 0; i < SIM_MAX_THREADS / 64; i++)
        for (uint64_t rest = atomic_load(&slot->listeners[i]); rest; rest &= rest - 1)
            sim_wake(table, 64 * i + __builtin_ctzll(rest));
}

void sim_listen(RankSlot *slot, bool listens)
{
    int thread = sim_thread();
    uint64_t bit = UINT64_C(1) << thread % 64;
    if (listens)
        atomic_fetch_or(&slot->listeners[thread / 64], bit);
    else
        atomic_fetch_and(&slot->listeners[thread / 64], ~bit);
}

void sim_wake_own(void)
{
    pthread_mutex_lock(&table_lock); // the watcher may make the table first
    ProcessWaitTable *table = own_table;
    pthread_mutex_unlock(&table_lock);
    int used = atomic_load(&slots_used);
    for (int i = 0; table && i < used; i++)
        if (atomic_load(&table->wait_slot[i].taken)) sim_wake(table, i);
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

static void write_host_call(WaitSlot *wait_slot, const HostCall *in)
{
    static const HostCall none;
    uint64_t words[SIM_HOST_CALL_WORDS];
    memcpy(words, in ? in : &none, sizeof words);
    for (size_t w = 0; w < SIM_HOST_CALL_WORDS; w++)
        atomic_store(&wait_slot->host_call[w], words[w]);
}

void sim_read_host_call(const WaitSlot *wait_slot, HostCall *in)
{
    uint64_t words[SIM_HOST_CALL_WORDS];
    for (size_t w = 0; w < SIM_HOST_CALL_WORDS; w++)
        words[w] = atomic_load(&wait_slot->host_call[w]);
    memcpy(in, words, sizeof *in);
    in->name[sizeof in->name - 1] = '\0';
    if (in->site.n < 0 || in->site.n > GPULOG_FRAMES) in->site.n = 0;
}

// Publishes how many threads of this process never call NCCL.
static void tell_threads(void)
{
    SimTids workers;
    atomic_store(&own_table->helpers, (uint32_t)sim_helpers());
    sim_workers(&workers);
    int n = workers.n < SIM_MAX_WORKERS ? workers.n : SIM_MAX_WORKERS;
    if ((int)atomic_load(&own_table->n_workers) == n) return;
    for (int i = 0; i < n; i++) atomic_store(&own_table->worker[i], workers.tid[i]);
    atomic_store(&own_table->n_workers, (uint32_t)n);
}

int sim_program_threads(int pid, const ProcessWaitTable *table)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    if (stat(path, &st) != 0) return 0;
    int n = (int)st.st_nlink - 2 - (int)atomic_load(&table->helpers);
    uint32_t workers = atomic_load(&table->n_workers);
    for (uint32_t i = 0; i < workers && i < SIM_MAX_WORKERS; i++) {
        snprintf(path, sizeof path, "/proc/%d/task/%d", pid, atomic_load(&table->worker[i]));
        n -= stat(path, &st) == 0;
    }
    return n;
}

void sim_look_at_threads(void)
{
    SimTids callers = {0};
    int used = atomic_load(&slots_used);
    for (int i = 0; i < used && callers.n < SIM_TIDS; i++)
        if (atomic_load(&own_table->wait_slot[i].taken))
            callers.tid[callers.n++] = atomic_load(&own_table->wait_slot[i].tid);
    sim_look_for_bystanders(&callers);
    tell_threads();
}

static void note_asleep(int thread, bool asleep)
{
    uint64_t bit = UINT64_C(1) << thread % 64;
    atomic_store(&own_table->wait_slot[thread].sleeping, asleep);
    if (asleep)
        atomic_fetch_or(&own_table->asleep[thread / 64], bit);
    else
        atomic_fetch_and(&own_table->asleep[thread / 64], ~bit);
}

// Sleeps for a while at most.
static void sleep_for(WaitSlot *wait_slot, uint32_t ticket, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    syscall(SYS_futex, &wait_slot->value, FUTEX_WAIT, ticket, &limit, NULL, 0);
}

void sim_wait(uint32_t ticket, const WaitRef *refs, int n_refs, bool all_refs, const HostCall *in,
              Notice *notice)
{
    int thread = sim_thread(), again = FIRST_LOOK;
    WaitSlot *wait_slot = &own_table->wait_slot[thread];
    write_refs(wait_slot, refs, n_refs);
    write_host_call(wait_slot, in);
    tell_threads();
    atomic_store(&wait_slot->all_refs, all_refs);
    atomic_store(&wait_slot->joiners, 0);
    atomic_fetch_add(&wait_slot->stamp, 1);
    note_asleep(thread, true);
    if (atomic_load(&wait_slot->value) == ticket) sim_cycle_check(thread);
    while (atomic_load(&wait_slot->value) == ticket) {
        int left = sim_notice_left(notice);
        sleep_for(wait_slot, ticket, left < again ? left : again);
        if (atomic_load(&wait_slot->value) != ticket) break;
        sim_look_at_threads();
        sim_cycle_check(thread);
        if (sim_notice_due(notice)) sim_cycle_notice(thread, notice);
        again = again < INT_MAX / 10 ? 10 * again : again;
    }
    note_asleep(thread, false);
    atomic_fetch_add(&wait_slot->stamp, 1);
}

void sim_nap(uint32_t ticket, int milliseconds)
{
    WaitSlot *wait_slot = &own_table->wait_slot[sim_thread()];
    tell_threads();
    atomic_store(&wait_slot->sleeping, 1);
    sleep_for(wait_slot, ticket, milliseconds);
    atomic_store(&wait_slot->sleeping, 0);
}

void sim_sleep(uint32_t ticket)
{
    WaitSlot *wait_slot = &own_table->wait_slot[sim_thread()];
    atomic_store(&wait_slot->sleeping, 1);
    while (atomic_load(&wait_slot->value) == ticket)
        syscall(SYS_futex, &wait_slot->value, FUTEX_WAIT, ticket, NULL, NULL, 0);
    atomic_store(&wait_slot->sleeping, 0);
}
