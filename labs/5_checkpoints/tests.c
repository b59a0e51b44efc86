/* Lab 5, checkpoints: every element comes back on any number of ranks; what a kill, a full disk or
 * a damaged file leaves; the order in which a save reaches the disk.
 */
#define _GNU_SOURCE // pwrite64
#include "tests.h"
#include "disk_calls.h"
#include "draw.h"
#include "host_memory.h"
#include "snapshot.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

char dir[PATH_BYTES + 16];

int dir_begin(void **state)
{
    int status = own_folder_begin(state);
    snprintf(dir, sizeof dir, "%s/model", own_folder);
    return status;
}

void make_model(Sharded *s, const Job *job, const Rank *r)
{
    FsdpOptions options = TEST_OPTIONS;
    options.align_shards = job->align;
    if (!job->one_unit) {
        sharded_create(s, &job->spec, &options, job->without_optimizer ? NULL : &STATE_ADAMW, r);
        return;
    }
    *s = (Sharded){.spec = job->spec, .rank = r->rank, .world = r->world};
    s->model = spec_create(&job->spec);
    Param *first = NULL;
    meta_params(s->model, &first, 1);
    const int64_t rows = first->shape[0], columns = first->shape[1];
    if (job->turned == 1) first->shape[0] = columns, first->shape[1] = rows;
    if (job->turned == 2) first->ndim = 1, first->shape[0] = rows * columns;
    if (job->turned == 3) first->ndim = 3, first->shape[2] = 1;
    if (job->turned == 4) first->shape[1]++;
    need(nn_run_create(&s->run, r->stream));
    make_context(&s->ctx, r);
    need(fully_shard(s->model, &s->ctx, &options));
    s->root = fsdp_unit(s->model)->root;
    if (!job->without_optimizer)
        need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &STATE_ADAMW));
}

const FsdpAdamW *optimizer(const Sharded *s)
{
    return s->adamw.ctx != NULL ? &s->adamw : NULL;
}

// What a save or a load must not do, with the likely cause.
static void must_work(Status status, const char *call, const char *unsaid)
{
    bool said = strchr(last_error(), ':') != NULL; // a file and a line
    if (strstr(last_error(), "slices") != NULL)
        unsaid = "the index has the slices of all ranks in order: checkpoint_describe lists them";
    else if (strstr(last_error(), "cannot be created: No such file") != NULL)
        unsaid =
            "the folder is not there yet: in save_together, who makes it, and how do the others "
            "know that it is there?";
    else if (strstr(last_error(), "cannot be created: File exists") != NULL)
        unsaid = "a folder with files of before: in save_together, which folder is written to "
                 "until all ranks agree?";
    else if (strstr(last_error(), "cannot be renamed") != NULL)
        unsaid = "another rank has renamed it: in save_together only the first rank commits";
    else if (said)
        unsaid = NULL;
    check(status == OK, "%s failed (%s)%s%s", call, last_error(), unsaid != NULL ? LIKELY : "",
          unsaid != NULL ? unsaid : "");
}

static int times_written;

static void count_written(FsdpRoot *root)
{
    times_written++;
}

void save_or_load(const Rank *r, void *arg)
{
    const Job *job = arg;
    Sharded s;
    const int step = job->step;
    const CheckpointPosition saved = {step, 1UL << 63, 3, 40 + step, (uint64_t)step << 40, 0.1, 8};
    CheckpointPosition position = saved;
    make_model(&s, job, r);
    if (job->disk != NULL) disk_join(job->disk, r->rank);
    if (job->saves) {
        state_fill(&s, job->step);
        must_work(checkpoint_save(dir, s.model, optimizer(&s), &position), "checkpoint_save",
                  "another rank failed: in save_together, what is done before all ranks agree?");
        state_check(&s, job->step, "after the save");
    }
    if (job->loads) {
        state_fill(&s, STATE_BEFORE);
        position = (CheckpointPosition){.step = 0, .data_seed = 0};
        times_written = 0;
        s.root->ops.shards_written = count_written;
        must_work(checkpoint_load(dir, s.model, s.adamw.ctx != NULL ? &s.adamw : NULL, &position),
                  "checkpoint_load",
                  job->failed
                      ? "the save before has failed on a rank, and the others went on: they are "
                        "told in save_together"
                      : NULL);
        check(times_written == 1,
              "a load writes the shards, and calls fsdp_shards_written %d times", times_written);
        state_check(&s, job->step, "after the load");
        check(position.step == saved.step && position.data_seed == saved.data_seed &&
                  position.loss_scale == saved.loss_scale &&
                  position.growth_tracker == saved.growth_tracker &&
                  position.sequences == saved.sequences && position.best_loss == saved.best_loss &&
                  position.heads == saved.heads,
              "the position is step %lld of data %llx (%llu sequences, a best loss of %g), a loss "
              "scale of %g and %d steps without overflow; saved was step %d, with other figures",
              (long long)position.step, (unsigned long long)position.data_seed,
              (unsigned long long)position.sequences, position.best_loss,
              (double)position.loss_scale, position.growth_tracker, step);
    }
    sharded_destroy(&s);
}

TEST_BETWEEN(saves_and_loads_again, dir_begin, own_folder_end)
{
    for (int world = 1; world <= 3; world++) {
        Job job = {.spec = spec_mlp(3), .step = 5 + world, .saves = true, .loads = true};
        run_ranks(world, save_or_load, &job);
        job = (Job){.spec = spec_gpt2(1), .step = 9, .saves = true, .loads = true};
        snprintf(dir, sizeof dir, "%s/gpt2/", own_folder); // a slash at the end is no other folder
        run_ranks(world, save_or_load, &job);
        snprintf(dir, sizeof dir, "%s/model", own_folder);
    }
}

TEST_BETWEEN(loads_on_any_world, dir_begin, own_folder_end)
{
    for (int round = 0; round < 5; round++) {
        int from = round == 0 ? 1 : draw(1, 8), to = round == 1 ? 1 : draw(1, 8);
        Job job = {.spec = draw_chance(50) ? spec_mlp(draw(2, 4)) : spec_gpt2(1), .step = round};
        drawn("saved on %d ranks, loaded on %d, %s", from, to, job.spec.gpt2 ? "GPT-2" : "MLP");
        job.saves = true;
        job.align = draw_chance(50);
        if (!ranks_fit(from)) continue;
        run_ranks(from, save_or_load, &job);
        job.saves = false;
        job.loads = true;
        job.align = draw_chance(50);
        run_ranks(to, save_or_load, &job);
    }
}

// Saved in units of blocks, loaded in one; and a parameter's own file has nothing of the padding.
TEST_BETWEEN(loads_in_other_units, dir_begin, own_folder_end)
{
    needs_ranks(3);
    Job job = {.spec = spec_mlp(3), .step = 3, .saves = true};
    run_ranks(3, save_or_load, &job);
    job = (Job){.spec = spec_mlp(3), .step = 3, .loads = true, .one_unit = true};
    run_ranks(2, save_or_load, &job);
    job = (Job){.spec = spec_mlp(3), .step = 3, .loads = true, .without_optimizer = true};
    run_ranks(4, save_or_load, &job);
    RULE(each_reads_what_it_owns);
}

TEST_BETWEEN(resumes_as_if_never_stopped, dir_begin, own_folder_end)
{
    RULE(trainings_resume);
}

// ---- The commit point ----

// The first (or last) call of that kind on that path from `from` on; -1: none.
static int find_call(const Disk *disk, DiskCall call, const char *path, int from, bool last)
{
    int found = -1;
    for (int i = from; i < disk->n && i < DISK_MAX && (last || found < 0); i++)
        if (disk->entry[i].call == call && strcmp(disk->entry[i].path, path) == 0) found = i;
    return found;
}

TEST_BETWEEN(reaches_the_disk_in_order, dir_begin, own_folder_end)
{
    enum { WORLD = 3 };
    Job job = {.spec = spec_mlp(2), .step = 1, .saves = true};
    char tmp[PATH_BYTES + 32], old[PATH_BYTES + 32], path[PATH_BYTES + 128];
    needs_ranks(WORLD);
    run_ranks(WORLD, save_or_load, &job);
    job.disk = disk_open();
    job.disk->slow_rank = 2;
    job.step = 2;
    run_ranks(WORLD, save_or_load, &job);
    const Disk *disk = job.disk;
    CheckpointIndex index;
    bool good = index_read(&index, dir) == OK;
    for (int i = 0; i < WORLD && good; i++) good = index_check_file(&index, i) == OK;
    index_free(&index);
    if (!good) fail_msg("what the save has left cannot be read: %s", last_error());
    snprintf(tmp, sizeof tmp, "%s.tmp", dir);
    snprintf(old, sizeof old, "%s.old", dir);

    int renamed = find_call(disk, DISK_RENAME, tmp, 0, false);
    if (renamed < 0 || strcmp(disk->entry[renamed].to, dir) != 0)
        fail_msg("%s was not renamed to %s", tmp, dir);
    if (disk->entry[renamed].rank != 0)
        fail_msg("rank %d renamed, expected rank 0", disk->entry[renamed].rank);
    for (int i = 0; i <= WORLD; i++) {
        if (i < WORLD)
            snprintf(path, sizeof path, "%s/rank-%d-of-%d.safetensors", tmp, i, WORLD);
        else
            snprintf(path, sizeof path, "%s/index.json", tmp);
        int written = find_call(disk, DISK_WRITE, path, 0, true);
        int synced = find_call(disk, DISK_SYNC, path, 0, true);
        // What rank 0 has not written itself it must have waited for.
        const char *why =
            i > 0 && i < WORLD ? LIKELY "rank 0 does not wait for it: save_together" : "";
        if (written < 0) fail_msg("%s was not written before the rename%s", path, why);
        if (written > renamed || synced > renamed)
            fail_msg("%s was written after the rename: no barrier keeps rank 0 from it%s", path,
                     why);
        if (synced < written) fail_msg("%s was not synced after the last write to it%s", path, why);
    }
    int folder_synced = find_call(disk, DISK_SYNC, tmp, 0, true);
    if (folder_synced < 0 || folder_synced > renamed)
        fail_msg("the folder %s was not synced before the rename (checkpoint_commit)", tmp);
    int parent_synced = find_call(disk, DISK_SYNC, own_folder, renamed, false);
    if (parent_synced < 0)
        fail_msg("the folder above %s was not synced after the rename (checkpoint_commit)", dir);
    for (int i = 0; i < disk->n && i < DISK_MAX; i++)
        if (disk->entry[i].call == DISK_REMOVE && i < parent_synced &&
            strncmp(disk->entry[i].path, tmp, strlen(tmp)) != 0)
            fail_msg(
                "%s, of the old checkpoint, was removed before the new one was on the disk: in "
                "checkpoint_commit",
                disk->entry[i].path);
    if (access(tmp, F_OK) == 0 || access(old, F_OK) == 0)
        fail_msg("%s or %s was left by a save that went well", tmp, old);
}

// A checkpoint of step 4 is there; a save of step 5 is killed; what is loaded is all 4 or all 5.
typedef struct Kill {
    Disk *disk;
    int *returned; // 1: the save returned OK on some rank
    int *step;     // that was loaded
    bool again;    // step 6 is saved, too, before the next kill's step 4
    bool second;   // the save before was killed, too
} Kill;

static void killed_body(const Rank *r, void *arg)
{
    Kill *kill = arg;
    Job job = {.spec = spec_mlp(2)};
    Sharded s;
    CheckpointPosition position = {.step = 5, .data_seed = 0};
    make_model(&s, &job, r);
    state_fill(&s, 5);
    disk_join(kill->disk, r->rank);
    need(checkpoint_save(dir, s.model, &s.adamw, &position));
    *kill->returned = 1;
    sharded_destroy(&s);
}

static void survivor_body(const Rank *r, void *arg)
{
    Kill *kill = arg;
    Job job = {.spec = spec_mlp(2)};
    Sharded s;
    CheckpointPosition position = {.step = 0, .data_seed = 0};
    make_model(&s, &job, r);
    Status status = checkpoint_load(dir, s.model, &s.adamw, &position);
    need(checkpoint_agree(&s.ctx, OK)); // no rank saves while another one reads
    check(status == OK,
          "after a kill checkpoint_load fails (%s)" LIKELY "no folder is complete: %s",
          last_error(),
          kill->second ? "checkpoint_begin, what is DIR.old where there is no DIR?"
                       : "in the commit, when may the previous one go?");
    state_check(&s, (int)position.step, "after the kill");
    if (r->rank == 0) *kill->step = (int)position.step;
    for (int step = kill->again ? 6 : 4; step >= 4; step -= 2) {
        state_fill(&s, step);
        position.step = step;
        need(checkpoint_save(dir, s.model, &s.adamw, &position));
    }
    sharded_destroy(&s);
}

// One kill, before the disk's call number `at`. `again`: of a save that is the first after one that
// was killed between its two renames.
static void kill_at(int at, bool again)
{
    char old[PATH_BYTES + 32];
    Kill kill = {disk_open(), shared_alloc(sizeof(int)), shared_alloc(sizeof(int)), at % 3 == 0,
                 again};
    snprintf(old, sizeof old, "%s.old", dir);
    if (again && rename(dir, old) != 0) fail_msg("the test cannot rename %s", dir);
    kill.disk->kill_at = at;
    *kill.returned = *kill.step = 0;
    char *said = run_ranks_message(2, RANKS_LIMIT, killed_body, &kill);
    bool killed = kill.disk->n >= at;
    if (!killed && said != NULL) fail_msg("a save without a kill fails: %s", said);
    free(said);
    run_ranks(2, survivor_body, &kill);
    if (*kill.step != 4 && *kill.step != 5)
        fail_msg("killed before call %d of the disk: step %d was loaded", at, *kill.step);
    if (*kill.returned == 1 && *kill.step != 5)
        fail_msg("killed before call %d of the disk: the save had returned, and step 4 was loaded",
                 at);
}

// The calls that a save makes, so that the last ones, which commit, can all be tried.
TEST_BETWEEN(a_kill_leaves_the_last_good_one, dir_begin, own_folder_end)
{
    needs_ranks(2);
    Job job = {.spec = spec_mlp(2), .step = 4, .saves = true};
    run_ranks(2, save_or_load, &job);
    job.disk = disk_open();
    run_ranks(2, save_or_load, &job);
    int calls = job.disk->n;
    if (calls < 10 || calls > 1000) fail_msg("a save makes %d calls that change the disk", calls);
    for (int i = 0; i < 4; i++) {
        int at = draw(1, calls - 10);
        drawn("killed before call %d of %d", at, calls);
        kill_at(at, false);
    }
    for (int at = calls - 9; at <= calls; at++) {
        drawn("killed before call %d of %d", at, calls);
        kill_at(at, false);
    }
    for (int at = 1; at <= 10; at++) {
        drawn("the second kill, before call %d", at);
        kill_at(at, true);
    }
}

// ---- Bad input ----

typedef struct Refusal {
    Spec spec;
    int turned; // as a Job's
    bool saves, full;
    int full_rank;
    int *lines, *refused; // of all ranks
    char *said;           // by the rank that said it, 1024 bytes
    const char *what;
} Refusal;

static void refusal_body(const Rank *r, void *arg)
{
    Refusal *refusal = arg;
    Job job = {.spec = refusal->spec, .turned = refusal->turned, .one_unit = refusal->turned > 0};
    Sharded s;
    int lines;
    CheckpointPosition position = {.step = 8, .data_seed = 0};
    struct rlimit before, small;
    make_model(&s, &job, r);
    state_fill(&s, 8);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){700, before.rlim_max};
    if (refusal->full) signal(SIGXFSZ, SIG_IGN);
    said_begin();
    if (refusal->full && r->rank == refusal->full_rank) setrlimit(RLIMIT_FSIZE, &small);
    Status status = refusal->saves ? checkpoint_save(dir, s.model, &s.adamw, &position)
                                   : checkpoint_load(dir, s.model, &s.adamw, &position);
    setrlimit(RLIMIT_FSIZE, &before);
    char *said = said_end(&lines);
    __atomic_add_fetch(refusal->lines, lines, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(refusal->refused, status != OK, __ATOMIC_SEQ_CST);
    if (lines > 0) snprintf(refusal->said, 1024, "%s", said);
    free(said);
    said_begin();
    (void)fail(ERR_IO, "a failure after the load");
    free(said_end(&lines));
    check(lines == 1,
          "%s: rank %d prints no failure any more: load_together calls checkpoint_alike_agree on "
          "every rank, whatever the rank has found",
          refusal->what, r->rank);
    check(status != OK, "%s must be refused, and rank %d takes it: %s", refusal->what, r->rank,
          strstr(refusal->what, "model") != NULL
              ? "check_model, which compares names and shapes"
              : "checkpoint_begin asks folder_check, a load the index");
    state_check(&s, 8, "after what was refused");
    check(position.step == 8, "what was refused has changed the position");
    sharded_destroy(&s);
}

// All ranks must refuse, with one line in all, which has these words; nothing is left.
static void must_refuse(Refusal refusal, int world, const char *what, const char *says)
{
    char tmp[PATH_BYTES + 32];
    if (!ranks_fit(world)) return;
    refusal.lines = shared_alloc(sizeof(int));
    refusal.refused = shared_alloc(sizeof(int));
    refusal.said = shared_alloc(1024);
    *refusal.lines = *refusal.refused = 0;
    refusal.said[0] = '\0';
    refusal.what = what;
    run_ranks(world, refusal_body, &refusal);
    if (*refusal.refused != world)
        fail_msg("%s: %d of %d ranks refuse it", what, *refusal.refused, world);
    if (*refusal.lines != 1 || strstr(refusal.said, says) == NULL)
        fail_msg("%s: %d lines, want one that has '%s': %s", what, *refusal.lines, says,
                 refusal.said);
    snprintf(tmp, sizeof tmp, "%s.tmp", dir);
    if (access(tmp, F_OK) == 0)
        fail_msg("%s: %s was left: save_together removes it after a failure", what, tmp);
}

static const char *file_of(int rank)
{
    static char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/rank-%d-of-3.safetensors", dir, rank);
    return path;
}

static void save_good(void)
{
    Job job = {.spec = spec_mlp(2), .step = 4, .saves = true};
    run_ranks(3, save_or_load, &job);
}

// What is unsharded would go on with what was there before.
static void unsharded_body(const Rank *r, void *arg)
{
    Job job = {.spec = spec_mlp(2)};
    Sharded s;
    CheckpointPosition position = {.step = 8, .data_seed = 0};
    make_model(&s, &job, r);
    state_fill(&s, 8);
    need(fsdp_unshard(s.root->units[0]));
    need(fsdp_wait_for_unshard(s.root->units[0]));
    need_refused_whole(s.model, &s.adamw, checkpoint_load(dir, s.model, &s.adamw, &position),
                       "call fsdp_reshard_all(root)");
    need(fsdp_reshard_all(s.model));
    FsdpAdamW others = s.adamw;
    others.root = NULL;
    need_refused_whole(s.model, &s.adamw, checkpoint_load(dir, s.model, &others, &position),
                       "is of another model");
    need_refused_whole(s.model, &s.adamw, checkpoint_save(dir, s.model, &others, &position),
                       "is of another model");
    state_check(&s, 8, "after what was refused");
    sharded_destroy(&s);
}

TEST_BETWEEN(refuses_damaged_checkpoints, dir_begin, own_folder_end)
{
    needs_ranks(3);
    Refusal load = {.spec = spec_mlp(2)};
    must_refuse(load, 3, "not a checkpoint", "index.json: is not there");
    save_good();
    run_ranks(2, unsharded_body, NULL);
    unlink(file_of(1));
    must_refuse(load, 2, "a missing file", "rank-1-of-3.safetensors: cannot be opened");
    save_good();
    cut_file(file_of(2), 900);
    must_refuse(load, 1, "a truncated file", "rank-2-of-3.safetensors: ");
    save_good();
    write_bytes(file_of(0), "\377\377\377\377\377\377\377\377", 8);
    must_refuse(load, 4, "a hostile file", "rank-0-of-3.safetensors: header length");
    save_good();
    move_file(file_of(0), in_folder(own_folder, "kept"));
    move_file(file_of(1), in_folder(dir, "rank-0-of-3.safetensors"));
    move_file(in_folder(own_folder, "kept"), file_of(1));
    must_refuse(load, 1, "files that were swapped", "its part is 1 of 3");
    save_good();
    move_file(file_of(1), in_folder(own_folder, "kept"));
    Job later = {.spec = spec_mlp(2), .step = 5, .saves = true};
    run_ranks(3, save_or_load, &later);
    move_file(in_folder(own_folder, "kept"), file_of(1));
    must_refuse(load, 2, "a file of another save", "its step is 4, expected 5");
    save_good();
    must_refuse((Refusal){.spec = spec_mlp(3)}, 2, "a model with more layers", "l.1.fc.weight");
    must_refuse((Refusal){.spec = spec_gpt2(1)}, 2, "another model", "embed.wte");
    Spec wide = spec_mlp(2);
    wide.dim++;
    must_refuse((Refusal){.spec = wide}, 2, "a wider model", " parameter");
    for (int turned = 1; turned <= 3; turned++) // as many elements
        must_refuse((Refusal){.spec = spec_mlp(2), .turned = turned}, 2,
                    "a model with a shape turned", " parameter");
    must_refuse((Refusal){.spec = spec_mlp(2), .turned = 4}, 2,
                "a model with a column more in one parameter", " parameter");
    Job job = {.spec = spec_mlp(2), .step = 4, .saves = true, .one_unit = true, .turned = 3};
    run_ranks(2, save_or_load, &job);
    must_refuse(load, 2, "a model with a dimension less", " parameter");
    job = (Job){.spec = spec_mlp(3), .step = 4, .saves = true};
    run_ranks(2, save_or_load, &job);
    must_refuse(load, 2, "a model with fewer layers", " parameter");
    job = (Job){.spec = spec_mlp(2), .step = 4, .saves = true, .without_optimizer = true};
    run_ranks(2, save_or_load, &job);
    must_refuse(load, 2, "a checkpoint without an optimizer", "adamw");
}

TEST_BETWEEN(a_failed_save_changes_nothing, dir_begin, own_folder_end)
{
    needs_ranks(3);
    Refusal save = {.spec = spec_mlp(2), .saves = true, .full = true};
    Job good = {.spec = spec_mlp(2), .step = 4, .loads = true, .failed = true};
    save_good();
    for (int rank = 0; rank < 3; rank++) {
        save.full_rank = rank;
        must_refuse(save, 3, "a full disk", "cannot write");
        run_ranks(2, save_or_load, &good); // the previous one
    }
    RULE(a_failing_call_changes_nothing);
    save_good();
    save.full = false;
    write_bytes(in_folder(dir, "thesis.tex"), "mine", 4);
    must_refuse(save, 2, "a folder with another file", "thesis.tex");
    run_ranks(2, save_or_load, &good);
    if (access(in_folder(dir, "thesis.tex"), F_OK) != 0) fail_msg("a save removed thesis.tex");
    assert_int_equal(symlink(dir, in_folder(own_folder, "link")), 0);
    snprintf(dir, sizeof dir, "%s/link", own_folder);
    must_refuse(save, 2, "a symbolic link", "is a symbolic link");
    snprintf(dir, sizeof dir, "%s/nowhere/model", own_folder);
    must_refuse(save, 2, "a folder that is not there", "cannot be made");
}

// ---- Memory of the host ----

// Four layers of 1000 × 1000 on two ranks: slices of 2 MB, more than the buffer; a model of 16 MB.
static void memory_body(const Rank *r, void *arg)
{
    Job job = {.spec = spec_mlp(5)};
    job.spec.dim = 1000;
    Sharded s;
    CheckpointPosition position = {.step = 3, .data_seed = 0};
    mallopt(M_MMAP_THRESHOLD, 1 << 16); // what this test frees is not there for the next
    make_model(&s, &job, r);
    state_fill(&s, 3);
    // Less than a slice: the buffer, and what simgpu's own tables may grow by meanwhile.
    host_limit(CHECKPOINT_BUFFER + (768 << 10));
    need(checkpoint_save(dir, s.model, &s.adamw, &position));
    need(checkpoint_load(dir, s.model, &s.adamw, &position));
    host_limit(0);
    state_check(&s, 3, "with little memory");
    sharded_destroy(&s);
}

TEST_BETWEEN(holds_two_shards_at_most, dir_begin, own_folder_end)
{
    run_ranks(2, memory_body, NULL);
}

SUITE_MAIN("checkpoints")
