/* Lab 5, checkpoints: calls of the disk that fail, each in its turn; which elements a rank reads;
 * trainings that resume; index and commit by themselves.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failing.h"
#include "per_parameter.h"
#include "tests.h"

// ---- A call that fails ----

// Files of the test's folder that this process has open.
static int open_files(void)
{
    DIR *list = opendir("/proc/self/fd");
    char path[PATH_BYTES + 128];
    int n = 0;
    check(list != NULL, "the test cannot list its open files");
    for (const struct dirent *file; (file = readdir(list)) != NULL;) {
        ssize_t length = readlinkat(dirfd(list), file->d_name, path, sizeof path - 1);
        path[length > 0 ? length : 0] = '\0';
        n += strncmp(path, own_folder, strlen(own_folder)) == 0;
    }
    closedir(list);
    return n;
}

// Where call number `at` of one rank fails, of a save or of a load; `gone`: and all after it.
typedef struct Failing {
    Disk *disk;
    int rank, at;
    bool gone;
} Failing;

static Status call_of(Sharded *s, bool saves, CheckpointPosition *position)
{
    return saves ? checkpoint_save(dir, s->model, &s->adamw, position)
                 : checkpoint_load(dir, s->model, &s->adamw, position);
}

// The status of the save, or the load, and whether a call of the disk has failed in it.
static Status run_disk_failing(const Failing *f, Sharded *s, const Rank *r, bool saves,
                               CheckpointPosition *position)
{
    int files = open_files();
    size_t live = gpulog_live_bytes(r->device);
    if (r->rank == f->rank) disk_fail(f->at, f->gone);
    check_set_silent(true);
    Status status = call_of(s, saves, position);
    check_set_silent(false);
    disk_fail(0, false);
    need_cuda(cudaDeviceSynchronize());
    check(open_files() == files && gpulog_live_bytes(r->device) == live,
          "call %d of the disk failed on rank %d, and the %s has left %d open files and %zd bytes "
          "of the device%s",
          f->at, f->rank, saves ? "save" : "load", open_files() - files,
          (ssize_t)(gpulog_live_bytes(r->device) - live),
          !saves ? "" : LIKELY "write_pieces closes its file, failed or not");
    return status;
}

// What a load takes: all of step 4, or all of step 5.
static int load_any(Sharded *s)
{
    CheckpointPosition position = {.step = 0};
    state_fill(s, STATE_BEFORE);
    Status status = checkpoint_load(dir, s->model, &s->adamw, &position);
    check(checkpoint_agree(&s->ctx, OK) == OK, // no rank saves while another one reads
          "ranks are not at the same checkpoint_agree: one of them has returned from save_together "
          "before the others, or agrees more often");
    check(status == OK, "after a save that failed there is nothing to load (%s): in the commit",
          last_error());
    state_check(s, (int)position.step, "after a save that failed");
    return (int)position.step;
}

static void save_four(Sharded *s)
{
    CheckpointPosition position = {.step = 4};
    state_fill(s, 4);
    need(checkpoint_save(dir, s->model, &s->adamw, &position));
}

// The name of the folder with this ending is there.
static bool is_there(const char *ending)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s%s", dir, ending);
    return access(path, F_OK) == 0;
}

static const char *call_name(const DiskEntry *call)
{
    static char text[400];
    static const char *const NAME[] = {"a write to",    "the fsync of",   "the rename of",
                                       "the making of", "the removal of", "a read of"};
    snprintf(text, sizeof text, "%s %s", NAME[call->call], call->path);
    return text;
}

// One save of step 5; false where no call failed any more.
static bool save_fails(const Failing *f, Sharded *s, const Rank *r)
{
    CheckpointPosition position = {.step = 5};
    char old[PATH_BYTES + 32];
    state_fill(s, 5);
    Status status = run_disk_failing(f, s, r, true, &position);
    state_check(s, 5, "after a save that failed");
    int failed = f->disk->failed;
    const DiskEntry *call = &f->disk->entry[failed > 0 ? failed - 1 : 0];
    snprintf(old, sizeof old, "%s.old", dir);
    bool removes = failed > 0 && call->call == DISK_REMOVE;
    bool harmless = removes && strncmp(call->path, old, strlen(old)) == 0;
    if (failed > 0 && !f->gone && !removes)
        check(is_there("") && !is_there(".tmp") && !is_there(".old"),
              "%s failed on rank %d, and it left %s%s%s: want DIR as it was, and nothing else%s",
              call_name(call), f->rank, is_there("") ? "" : "no DIR ",
              is_there(".tmp") ? "DIR.tmp " : "", is_there(".old") ? "DIR.old" : "",
              is_there(".tmp") ? LIKELY "save_together removes it after a failure"
                               : LIKELY "checkpoint_commit renames back what it has renamed");
    int step = load_any(s);
    if (failed == 0 || harmless) // of what is not needed any more
        check(status == OK && step == 5, "a save of step 5 gives status %d, and step %d is loaded",
              (int)status, step);
    else
        check(status != OK && (step == 4 || (f->gone && call->call == DISK_SYNC)),
              "%s failed on rank %d: the save gives status %d, and step %d is loaded, want a "
              "failure and step 4%s",
              call_name(call), f->rank, (int)status, step,
              strstr(call->path, ".safetensors") != NULL
                  ? LIKELY "write_pieces passes on what its calls return"
                  : LIKELY "the commit passes on what its calls return");
    if (step == 5 && failed > 0) save_four(s);
    if (r->rank == 0) f->disk->n = f->disk->failed = 0; // all have read it: load_any is collective
    return failed > 0;
}

// One load: it fails on all ranks, or no call fails any more.
static bool load_fails(const Failing *f, Sharded *s, const Rank *r)
{
    CheckpointPosition position = {.step = 8};
    state_fill(s, 5);
    Status status = run_disk_failing(f, s, r, false, &position);
    int failed = f->disk->failed;
    check((status != OK) == (failed > 0),
          "read %d of rank %d %s, and the load gives status %d: in load_together all ranks learn "
          "whether one has failed",
          f->at, f->rank, failed > 0 ? "failed" : "did not fail", (int)status);
    check(failed == 0 || (position.step == 8 && s->adamw.t == 5 + STATE_MORE_STEPS),
          "a load that failed has changed the position or t");
    load_any(s);
    if (r->rank == 0) f->disk->n = f->disk->failed = 0;
    return failed > 0;
}

static Module *one_parameter(const Spec *spec)
{
    return linear_create("one", 1, spec->dim, false, 0.1f);
}

// A call of CUDA's fails.
static void cuda_fails(Sharded *s, const Rank *r, bool saves)
{
    Status status;
    const size_t live = gpulog_live_bytes(r->device);
    for (int n = 1;; n++) {
        CheckpointPosition position = {.step = 5};
        const int files = open_files();
        save_four(s);
        state_fill(s, 5);
        FAILS_AT(n, status = call_of(s, saves, &position));
        if (failing_call() == NULL) break;
        need_cuda(cudaDeviceSynchronize());
        check(status != OK && open_files() == files && gpulog_live_bytes(r->device) == live,
              "call %d of a %s fails, %s: its status is %d, and it leaves %d open files and %zd "
              "bytes of the device%s",
              n, saves ? "save" : "load", failing_call(), (int)status, open_files() - files,
              (ssize_t)(gpulog_live_bytes(r->device) - live),
              saves && open_files() > files ? LIKELY "write_pieces closes its file after a failure"
                                            : "");
        check(position.step == 5 && s->adamw.t == 5 + STATE_MORE_STEPS,
              "a %s in which %s failed has changed the position or t", saves ? "save" : "load",
              failing_call());
        if (saves) state_check(s, 5, "after a save that failed");
        load_any(s);
    }
}

static void failing_body(const Rank *r, void *arg)
{
    Job job = {.spec = spec_mlp(2)};
    Failing f = {.disk = arg};
    Sharded s;
    make_model(&s, &job, r);
    disk_join(f.disk, r->rank);
    for (int gone = 0; gone < 2; gone++)
        for (f.rank = 0; f.rank < r->world; f.rank++) {
            f.gone = gone == 1;
            save_four(&s);
            if (r->rank == 0) f.disk->n = f.disk->failed = 0;
            load_any(&s);
            for (f.at = 1; save_fails(&f, &s, r);) f.at++;
            check(f.at > 5, "a save of rank %d makes %d calls of the disk", f.rank, f.at - 1);
        }
    if (r->rank == 0) f.disk->reads = true;
    f.gone = false;
    for (f.rank = 0; f.rank < r->world; f.rank++) {
        load_any(&s);
        for (f.at = 1; load_fails(&f, &s, r);) f.at++;
    }
    sharded_destroy(&s);
}

// One rank: of several each makes calls of its own, and the others would wait for it.
static void failing_cuda_body(const Rank *r, void *arg)
{
    Job job = {.spec = {.create = one_parameter, .dim = 8}, .one_unit = true};
    Sharded s;
    make_model(&s, &job, r);
    for (int saves = 0; saves < 2; saves++) cuda_fails(&s, r, saves == 1);
    sharded_destroy(&s);
}

void rule_a_failing_call_changes_nothing(void)
{
    run_ranks(1, failing_cuda_body, NULL);
    run_ranks(2, failing_body, disk_open());
}

// ---- The handout's own examples ----

// What a rank reads of a file: n elements of its tensor, from element `first` on.
typedef struct Part {
    int rank, file, first, n;
} Part;
typedef struct Example {
    int numel, from, to;
    Part part[8];
} Example;
static const Example EXAMPLES[] = {
    {10, 2, 3, {{0, 0, 0, 4}, {1, 0, 4, 1}, {1, 1, 0, 3}, {2, 1, 3, 2}}},
    {24,
     6,
     4,
     {{0, 0, 0, 4},
      {0, 1, 0, 2},
      {1, 1, 2, 2},
      {1, 2, 0, 4},
      {2, 3, 0, 4},
      {2, 4, 0, 2},
      {3, 4, 2, 2},
      {3, 5, 0, 4}}},
};

// The bytes in front of a file's data.
static long data_begin(const char *path)
{
    unsigned char bytes[8] = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(bytes, 1, 8, file) != 8) fail_msg("%s cannot be read", path);
    fclose(file);
    return 8 + bytes[0] + 256 * bytes[1];
}

// The reads of one rank in one file, against the example's table.
static void check_reads(const Disk *disk, const Example *e, int rank, int file)
{
    char path[PATH_BYTES + 64];
    Part want = {rank, file, 0, 0}, got = want;
    int opened = 0;
    for (int i = 0; i < 8; i++)
        if (e->part[i].rank == rank && e->part[i].file == file && e->part[i].n > 0)
            want = e->part[i];
    snprintf(path, sizeof path, "%s/rank-%d-of-%d.safetensors", dir, file, e->from);
    long begin = data_begin(path);
    for (int i = 0; i < disk->n && i < DISK_MAX; i++) {
        const DiskEntry *entry = &disk->entry[i];
        if (entry->rank != rank || strcmp(entry->path, path) != 0) continue;
        opened += entry->at == 0;
        if (entry->at < begin) continue;
        if (got.n == 0) got.first = (int)((entry->at - begin) / 4);
        got.n += (int)(entry->bytes / 4);
    }
    if (got.first != want.first || got.n != want.n)
        fail_msg("%d elements, saved on %d ranks and loaded on %d: of file %d rank %d reads %d "
                 "elements from element %d on, want %d from %d on: in read_piece",
                 e->numel, e->from, e->to, file, rank, got.n, got.first, want.n, want.first);
    // Each file is looked at by one rank beforehand.
    if (want.n == 0 && opened > (file % e->to == rank))
        fail_msg("rank %d opens file %d, which has nothing of it: in read_piece", rank, file);
}

void rule_each_reads_what_it_owns(void)
{
    for (int i = 0; i < 2 && ranks_fit(EXAMPLES[i].from); i++) {
        const Example *e = &EXAMPLES[i];
        Job job = {.spec = {.create = one_parameter, .dim = e->numel},
                   .step = 3,
                   .one_unit = true,
                   .without_optimizer = true,
                   .saves = true};
        run_ranks(e->from, save_or_load, &job);
        job.saves = false;
        job.loads = true;
        job.disk = disk_open();
        job.disk->reads = true;
        run_ranks(e->to, save_or_load, &job);
        for (int rank = 0; rank < e->to; rank++)
            for (int file = 0; file < e->from; file++) check_reads(job.disk, e, rank, file);
    }
}

// ---- Resume ----

void rule_trainings_resume(void)
{
    Case gpt2 = case_of(spec_gpt2(2), STRATEGY_ZERO3, 3, 1, 1);
    Case replicas = case_of(spec_mlp(3), STRATEGY_ZERO3, 4, 2, 1);
    Case frozen = case_of(spec_mlp(3), STRATEGY_ZERO3, 3, 1, 1);
    frozen.layout = per_parameter_layout;
    frozen.frozen = every_third;
    Case *cases[] = {&gpt2, &replicas, &frozen};
    snprintf(case_folder, sizeof case_folder, "%s", own_folder);
    for (int i = 0; i < 3; i++) {
        cases[i]->name = "saved, and loaded into a new model, before each step but the first";
        cases[i]->between = case_resume;
        cases[i]->steps = 3;
        run_case(i == 1 ? 4 : 3, cases[i]);
    }
}

// ---- Each part by itself ----

// The index as it is read again, which refuses slices that do not cover a parameter; and whether
// each slice is in the shard of its rank.
static void described_body(const Rank *r, void *arg)
{
    Sharded s;
    CheckpointIndex index;
    int n = 0;
    make_model(&s, arg, r);
    index_begin(&index, r->world);
    need(checkpoint_describe(&index, s.root));
    if (r->rank == 0) need(index_write(&index, own_folder));
    index_free(&index);
    need(checkpoint_agree(&s.ctx, OK));
    need(index_read(&index, own_folder));
    for (int u = 0; u < s.root->n_units; u++) {
        const FlatLayout *layout = &s.root->units[u]->flat.layout;
        int64_t at = 0, shard = layout->shard_numel;
        for (int i = 0; i < layout->n; at += meta_numel(layout->params[i++]), n++) {
            const CheckpointEntry *entry = index_find(&index, layout->params[i]->name);
            check(entry != NULL, "the index has no %s", layout->params[i]->name);
            for (const CheckpointSlice *has = entry->slices; has < entry->slices + entry->n_slices;
                 has++)
                check(
                    (at + has->begin) / shard == has->file &&
                        (at + has->end - 1) / shard == has->file,
                    "elements %lld to %lld of %s, which begins at %lld of its unit, are a slice of "
                    "rank %d: each rank has %lld elements of the unit",
                    (long long)has->begin, (long long)has->end - 1, entry->name, (long long)at,
                    has->file, (long long)shard);
        }
    }
    check(index.n == n, "the index has %d parameters, want %d", index.n, n);
    index_free(&index);
    sharded_destroy(&s);
}

TEST_BETWEEN(the_index_has_every_slice, dir_begin, own_folder_end)
{
    for (int world = 1; world <= 3; world++) {
        Job job = {.spec = world == 2 ? spec_gpt2(1) : spec_mlp(3), .align = world == 3};
        run_ranks(world, described_body, &job);
        unlink(in_folder(own_folder, "index.json"));
    }
}

// What is in a folder: '-': nothing; 0: it is not there.
static char mark_of(const char *folder)
{
    char mark = '-';
    FILE *file = fopen(in_folder(folder, "index.json"), "rb");
    if (file == NULL) return access(folder, F_OK) == 0 ? '-' : 0;
    if (fread(&mark, 1, 1, file) != 1) mark = '-';
    fclose(file);
    return mark;
}

// From each state that an earlier save can have left.
static void commit_body(const Rank *r, void *arg)
{
    char path[3][PATH_BYTES + 32]; // DIR, DIR.tmp, DIR.old
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s%s", dir, i == 0 ? "" : i == 1 ? ".tmp" : ".old");
    for (int there = 0; there < 8; there++) {
        for (int i = 0; i < 3; i++) {
            if (!(there >> i & 1)) continue;
            need(folder_make(path[i]));
            write_bytes(in_folder(path[i], "index.json"), &"dto"[i], 1);
        }
        char good = there & 1 ? 'd' : there & 4 ? 'o' : 0;
        for (int after = 0; after < 2; after++) {
            Status status = after == 0 ? checkpoint_begin(path[0], path[1], path[2])
                                       : checkpoint_commit(path[0], path[1], path[2]);
            check(status == OK, "%s fails, where there was %sDIR, %sDIR.tmp and %sDIR.old: %s",
                  after == 0 ? "checkpoint_begin" : "checkpoint_commit", there & 1 ? "" : "no ",
                  there & 2 ? "" : "no ", there & 4 ? "" : "no ", check_last());
            check(mark_of(path[0]) == (after == 0 ? good : 'n') &&
                      mark_of(path[1]) == (after == 0 ? '-' : 0) && mark_of(path[2]) == 0,
                  "before the save there was %sDIR, %sDIR.tmp and %sDIR.old, and after %s DIR is "
                  "%s, DIR.tmp is %s, and %s DIR.old",
                  there & 1 ? "" : "no ", there & 2 ? "" : "no ", there & 4 ? "" : "no ",
                  after == 0 ? "checkpoint_begin" : "checkpoint_commit",
                  mark_of(path[0]) == 'n'    ? "the new one"
                  : mark_of(path[0]) == good ? "the last good one"
                                             : "another one",
                  mark_of(path[1]) == '-' ? "empty"
                  : mark_of(path[1]) == 0 ? "gone"
                                          : "not empty",
                  mark_of(path[2]) == 0 ? "there is no" : "there is a");
            if (after == 0) write_bytes(in_folder(path[1], "index.json"), "n", 1);
        }
        need(folder_remove(path[0]));
    }
}

TEST_BETWEEN(a_commit_takes_the_place_of_the_last, dir_begin, own_folder_end)
{
    run_ranks(1, commit_body, NULL);
}
