/* play_threads.c: which thread of a process makes which of a program's calls.
 *
 * Interface: run_steps (play.h).
 */
#include <pthread.h>

#include "play.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int not_begun; // threads of the phase that have not made their first call

typedef struct Part {
    pthread_t thread;
    int from, to; // steps
    int rank;     // only this one's calls; -1: all of the process
    bool began;
} Part;

static void has_begun(Part *part)
{
    if (part->began) return;
    part->began = true;
    pthread_mutex_lock(&lock);
    not_begun--;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
}

static bool does(const Part *part, const Step *s)
{
    return part->rank < 0 ? process_takes_part(player.program, s, player.process)
                          : takes_part(player.program, s, part->rank);
}

static void *run_part(void *arg)
{
    Part *part = arg;
    for (int i = part->from; i < part->to; i++) {
        const Step *s = &player.program->step[i];
        if (!does(part, s)) continue;
        if (s->kind == NCCL)
            call_all(s, part->rank);
        else
            call_cuda(s, i);
        if (!is_query(s->kind)) has_begun(part);
    }
    has_begun(part);
    // A first call begins no earlier than the end of a thread that has ended, and one that has only
    // asked holds nobody up (pages/time.md, § 8): so nobody ends before all have called.
    pthread_mutex_lock(&lock);
    while (not_begun > 0) pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

// The second thread, and what it has to do; NULL: nothing.
static struct {
    pthread_t thread;
    bool there, stop;
    Part *part;
} second;

static void *be_second(void *arg)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!second.part && !second.stop) pthread_cond_wait(&news, &lock);
        if (!second.part) break;
        pthread_mutex_unlock(&lock);
        run_part(second.part);
        pthread_mutex_lock(&lock);
        second.part = NULL;
        pthread_cond_broadcast(&news);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void run_second(Part *part)
{
    if (!second.there) {
        check(pthread_create(&second.thread, NULL, be_second, NULL) == 0, "no thread");
        second.there = true;
    }
    pthread_mutex_lock(&lock);
    second.part = part;
    pthread_cond_broadcast(&news);
    while (second.part) pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
}

static void stop_second(void)
{
    if (!second.there) return;
    pthread_mutex_lock(&lock);
    second.stop = true;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    pthread_join(second.thread, NULL);
}

// A phase of steps [from, to).
static void run_phase(Mode mode, int from, int to)
{
    Part parts[MAX_RANKS];
    int n = 0;
    for (int r = 0; r < player.program->world.n_ranks && mode == THREAD_A_DEVICE; r++)
        if (is_mine(r)) parts[n++] = (Part){.from = from, .to = to, .rank = r};
    if (mode != THREAD_A_DEVICE) parts[n++] = (Part){.from = from, .to = to, .rank = -1};
    not_begun = n;
    if (mode == FIRST_THREAD) {
        run_part(&parts[0]);
        return;
    }
    if (mode == SECOND_THREAD) {
        run_second(&parts[0]);
        return;
    }
    for (int i = 0; i < n; i++)
        check(pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0, "no thread");
    for (int i = 0; i < n; i++) pthread_join(parts[i].thread, NULL);
}

void run_steps(void)
{
    for (int from = 0; from < player.program->n;) {
        int to = from;
        const Phase *phase = NULL;
        for (; to < player.program->n; to++) {
            const Step *s = &player.program->step[to];
            if (!process_takes_part(player.program, s, player.process)) continue;
            if (phase && phase->number != s->phase[player.process].number) break;
            phase = &s->phase[player.process];
        }
        if (phase) run_phase(phase->mode, from, to);
        from = to;
    }
    stop_second();
}
