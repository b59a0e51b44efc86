/* Ranks that save one step after another and are killed at a moment that is drawn: what is loaded
 * afterwards is one of the steps, complete, and not older than the last save that returned.
 * CHECKPOINT_KILLS=200 for so many.
 */
#define _GNU_SOURCE // pwrite64
#include "checkpoints.h"
#include "disk_calls.h"
#include "draw.h"
#include "files.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static char dir[PATH_BYTES + 16];

typedef struct Kill {
    Disk *disk;
    int *saved;       // the last step of which a save has returned on all ranks
    int microseconds; // from the second save on
} Kill;

static void on_alarm(int signal)
{
    disk_kill_all();
}

static void saving_body(const Rank *r, void *arg)
{
    Kill *kill = arg;
    Spec spec = spec_mlp(2);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, &STATE_ADAMW, r);
    disk_join(kill->disk, r->rank);
    for (int step = 1;; step++) {
        CheckpointPosition position = {.step = step, .data_seed = 0};
        state_fill(&s, step);
        if (r->rank == 0 && step == 2) {
            struct itimerval moment = {{0, 0}, {0, kill->microseconds}};
            signal(SIGALRM, on_alarm);
            setitimer(ITIMER_REAL, &moment, NULL);
        }
        need(checkpoint_save(dir, s.model, &s.adamw, &position));
        if (r->rank == 0) *kill->saved = step;
    }
}

static void loading_body(const Rank *r, void *arg)
{
    const Kill *kill = arg;
    Spec spec = spec_mlp(2);
    Sharded s;
    CheckpointPosition position = {.step = 0, .data_seed = 0};
    sharded_create(&s, &spec, &TEST_OPTIONS, &STATE_ADAMW, r);
    need(checkpoint_load(dir, s.model, &s.adamw, &position));
    state_check(&s, (int)position.step, "after the kill");
    check(position.step == *kill->saved || position.step == *kill->saved + 1,
          "step %d was saved, and step %lld is loaded", *kill->saved, (long long)position.step);
    sharded_destroy(&s);
}

TEST(random_kills)
{
    needs_ranks(3);
    char folder[PATH_BYTES];
    Kill kill = {.saved = shared_alloc(sizeof(int))};
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/model", folder);
    for (int i = 0, n = (int)setting("CHECKPOINT_KILLS", 20); i < n; i++) {
        kill.disk = disk_open();
        kill.microseconds = draw(1, 20000);
        *kill.saved = 0;
        drawn("kill number %d, %d microseconds after the second save began", i, kill.microseconds);
        free(run_ranks_message(2, RANKS_LIMIT, saving_body, &kill));
        if (*kill.saved < 1) fail_msg("the ranks did not come to their second save");
        run_ranks(draw(1, 3), loading_body, &kill);
    }
    remove_folder(folder);
}

SUITE_MAIN("kills")
