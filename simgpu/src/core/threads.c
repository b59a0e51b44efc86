/* threads.c: the threads of this process that the program has not started.
 *
 * A wait is hopeless if no other thread could make the missing call (nccl/cycle.c). Threads that
 * simgpu itself starts never make it: they are counted (simgpu_helper_threads). Nor do the workers
 * that share a kernel's work (parallel.c), each of which registers when it begins, nor the
 * bystanders, which a launcher's library has started for itself (bystanders.c).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/threads.h"
#include "simgpu.h"

static atomic_int helpers, pid; // pid: the process that has them; a forked one has none
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SimTids workers, bystanders;
static pthread_key_t worker_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// A forked process has one thread.
static void own(void)
{
    int self = (int)getpid();
    if (atomic_exchange(&pid, self) == self) return;
    atomic_store(&helpers, 0);
    pthread_mutex_init(&lock, NULL);
    workers.n = bystanders.n = 0;
}

void simgpu_helper_threads(int change)
{
    own();
    atomic_fetch_add(&helpers, change);
}

int sim_helpers(void)
{
    own();
    return atomic_load(&helpers);
}

static bool holds(const SimTids *tids, int tid)
{
    for (int i = 0; i < tids->n; i++)
        if (tids->tid[i] == tid) return true;
    return false;
}

static void take_out(SimTids *tids, int tid)
{
    for (int i = tids->n - 1; i >= 0; i--)
        if (tids->tid[i] == tid) tids->tid[i] = tids->tid[--tids->n];
}

void sim_tids(SimTids *tids)
{
    DIR *tasks = opendir("/proc/self/task");
    tids->n = 0;
    for (struct dirent *e; tasks && (e = readdir(tasks));)
        if (e->d_name[0] != '.' && tids->n < SIM_TIDS) tids->tid[tids->n++] = atoi(e->d_name);
    if (tasks) closedir(tasks);
}

// Threads that libraries start when they are loaded.
__attribute__((constructor)) static void note_early(void)
{
    own();
    sim_tids(&workers);
    sim_workers_drop();
}

static void drop(void *arg)
{
    sim_workers_drop();
}

static void make_key(void)
{
    pthread_key_create(&worker_key, drop);
}

void sim_worker_here(void)
{
    static _Thread_local bool noted;
    if (noted) return;
    noted = true;
    own();
    pthread_once(&once, make_key);
    pthread_setspecific(worker_key, &noted); // anything but NULL, so that `drop` runs at its end
    pthread_mutex_lock(&lock);
    if (workers.n < SIM_TIDS) workers.tid[workers.n++] = (int)syscall(SYS_gettid);
    pthread_mutex_unlock(&lock);
}

void sim_workers(SimTids *tids)
{
    own();
    pthread_mutex_lock(&lock);
    *tids = workers;
    for (int i = 0; i < bystanders.n && tids->n < SIM_TIDS; i++)
        if (!holds(tids, bystanders.tid[i])) tids->tid[tids->n++] = bystanders.tid[i];
    pthread_mutex_unlock(&lock);
}

void sim_look_for_bystanders(const SimTids *callers)
{
    SimTids all;
    own();
    pthread_mutex_lock(&lock);
    sim_tids(&all);
    for (int i = 0; i < callers->n; i++) take_out(&all, callers->tid[i]);
    sim_find_bystanders(&all, &bystanders);
    pthread_mutex_unlock(&lock);
}

void sim_program_tids(SimTids *tids)
{
    SimTids others;
    sim_workers(&others);
    sim_tids(tids);
    for (int i = 0; i < others.n; i++) take_out(tids, others.tid[i]);
    int drop = sim_helpers(); // it is not known which threads these are
    tids->n = tids->n > drop ? tids->n - drop : 0;
}

// The thread for whose end `tid` waits, if the system shows it: pthread_join sleeps, without a time
// limit, until a word that holds that thread's number changes. 0: `tid` does something else.
static int joined_by(int tid)
{
    char path[64], text[256] = "";
    unsigned long number, address, op, value, limit;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, sizeof text, file);
    if (file) fclose(file);
    if (!read || sscanf(text, "%lu %lx %lx %lx %lx", &number, &address, &op, &value, &limit) != 5)
        return 0;
    int command = (int)op & FUTEX_CMD_MASK;
    bool waits = number == SYS_futex && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET);
    return waits && limit == 0 ? (int)value : 0;
}

int sim_joiners(int tid)
{
    SimTids all, waiting = {1, {tid}};
    sim_tids(&all);
    for (int i = 0; i < waiting.n; i++)
        for (int k = 0; k < all.n; k++) {
            if (holds(&waiting, all.tid[k]) || joined_by(all.tid[k]) != waiting.tid[i]) continue;
            waiting.tid[waiting.n++] = all.tid[k];
        }
    return waiting.n - 1;
}

void sim_workers_drop(void)
{
    int tid = (int)syscall(SYS_gettid);
    own();
    pthread_mutex_lock(&lock);
    take_out(&workers, tid);
    take_out(&bystanders, tid);
    pthread_mutex_unlock(&lock);
}
