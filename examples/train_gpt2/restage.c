/* restage.c: goes on from a checkpoint of pipeline stages, as many as there are now or others. Each
 * has saved one of its own; a rank reads what it owns now from whichever have it. A kill while they
 * commit leaves them at different steps; then DIR.tmp of those that are behind is complete, because
 * the stages commit once each has an index in its DIR.tmp. See program.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "program.h"

Status stage_dir(const char *dir, int stage, int stages, char *path)
{
    int n = stages <= 1 ? snprintf(path, PATH_BYTES, "%s", dir)
                        : snprintf(path, PATH_BYTES, "%s-stage-%d-of-%d", dir, stage, stages);
    return n + 4 < PATH_BYTES ? OK : fail(ERR_ARGUMENT, "%s: the path is too long", dir);
}

// The checkpoint, or the one before where a save was killed between two names; false: none.
static bool find_there(char *path)
{
    if (folder_is_there(path)) return true;
    strcat(path, ".old");
    return folder_is_there(path);
}

Status find_stages(const Trainer *t, const char *dir, int *stages)
{
    char path[PATH_BYTES];
    int found = 0;
    *stages = t->opt.stages;
    TRY(stage_dir(dir, 0, *stages, path));
    if (find_there(path)) return OK;
    for (int n = 1; n <= t->opt.model.layers; n++) {
        TRY(stage_dir(dir, 0, n, path));
        if (!find_there(path)) continue;
        if (found > 0)
            return fail(ERR_ARGUMENT,
                        "%s: there are checkpoints of %d stages and of %d: take --stages of one",
                        dir, found, n);
        *stages = found = n;
    }
    return OK; // or of none: to be refused by who reads it
}

// The step of the checkpoint in DIR.tmp or DIR; -1: none has its index there, which is no error.
// Afterwards rank 0 alone prints what fails.
static int64_t step_in(const Trainer *t, char *path, const char *ending)
{
    CheckpointIndex index = {0};
    size_t end = strlen(path);
    strcat(path, ending);
    check_set_silent(true);
    int64_t step = index_read(&index, path) == OK ? index.position.step : -1;
    check_set_silent(t->world.rank != 0);
    index_free(&index);
    path[end] = '\0';
    return step;
}

// The step of a save that was killed while the stages committed; -1: none was. (Without stages the
// index does not say that all ranks have written.)
static Status find_uncommitted(const Trainer *t, const char *dir, int stages, int64_t *step)
{
    char path[PATH_BYTES];
    bool all = true;
    *step = -1;
    for (int i = 0; i < 2 * stages && stages > 1; i++) {
        TRY(stage_dir(dir, i % stages, stages, path));
        int64_t found = step_in(t, path, ".tmp");
        if (i < stages)
            *step = found > *step ? found : *step;
        else
            all = all && (found == *step || step_in(t, path, "") == *step);
    }
    if (!all) *step = -1;
    return OK;
}

static Status commit_each(const Trainer *t, const char *dir)
{
    char path[PATH_BYTES], tmp[PATH_BYTES + 4], old[PATH_BYTES + 4];
    int64_t step;
    TRY(find_uncommitted(t, dir, t->opt.stages, &step));
    for (int n = 0; n < t->opt.stages && step >= 0; n++) {
        TRY(stage_dir(dir, n, t->opt.stages, path));
        snprintf(tmp, sizeof tmp, "%s.tmp", path);
        snprintf(old, sizeof old, "%s.old", path);
        if (step_in(t, path, "") != step) TRY(checkpoint_commit(path, tmp, old));
    }
    return OK;
}

Status commit_stages(Trainer *t, const char *dir)
{
    if (t->opt.stages == 1) return OK;
    return agree_over_ranks(t, t->world.rank == 0 ? commit_each(t, dir) : OK);
}

typedef struct Stages {
    const char *dir;
    int n;
    CheckpointIndex *indexes;
} Stages;

// Elements [from, to) of one part of a parameter.
static Status read_range(const CheckpointIndex *index, const CheckpointEntry *entry,
                         CheckpointPart part, int64_t from, int64_t to, float *data,
                         cudaStream_t stream)
{
    char name[CHECKPOINT_NAME];
    checkpoint_tensor_name(name, entry->name, part);
    for (int i = 0; i < entry->n_slices; i++) {
        const CheckpointSlice *slice = &entry->slices[i];
        int64_t begin = slice->begin > from ? slice->begin : from;
        int64_t end = slice->end < to ? slice->end : to;
        if (begin >= end) continue;
        Safetensors file = {0};
        char *path = checkpoint_file(index->dir, slice->file, index->n_files);
        Status status = path != NULL ? safetensors_open(&file, path) : ERR_MEMORY;
        if (status == OK)
            status = checkpoint_copy_in(&file, safetensors_find(&file, name), begin - slice->begin,
                                        end - begin, data + (begin - from), stream);
        safetensors_close(&file);
        free(path);
        TRY(status);
    }
    return OK;
}

// This rank's part of parameter i of unit u; or, where it is only looked at, whether it fits.
static Status load_param(const Stages *s, const Trainer *t, int u, int i, bool reads)
{
    const FlatLayout *now = &fsdp_unit(t->model)->root->units[u]->flat.layout;
    const Param *param = now->params[i];
    const CheckpointEntry *entry = NULL;
    int of = 0;
    for (int n = 0; n < s->n && entry == NULL; n++)
        entry = index_find(&s->indexes[of = n], param->name);
    size_t bytes = entry == NULL ? 0 : (size_t)entry->ndim * sizeof *entry->shape;
    if (bytes == 0 || entry->ndim != param->ndim || memcmp(entry->shape, param->shape, bytes) != 0)
        return fail(ERR_IO, "%s: parameter %s is %s: it is of another model", s->dir, param->name,
                    entry == NULL ? "missing" : "of another shape");
    if (entry->frozen && !param->frozen)
        return fail(ERR_IO, "%s: parameter %s was frozen and has no moments: freeze it", s->dir,
                    param->name);
    int64_t from, to, place;
    flat_param_range_in_shard(now, i, now->rank, &from, &to, &place);
    for (int part = 0; reads && from < to && part < (param->frozen ? 1 : 3); part++)
        TRY(read_range(&s->indexes[of], entry, part, from, to, shard_part(t, u, part) + place,
                       t->stream));
    return OK;
}

// What can be wrong with the checkpoints, which all stages find alike but for their own parameters.
static Status read_indexes(Stages *s, const Trainer *t)
{
    int64_t step;
    TRY(find_uncommitted(t, s->dir, s->n, &step));
    for (int n = 0; n < s->n; n++) {
        char path[PATH_BYTES];
        CheckpointIndex *index = &s->indexes[n];
        TRY(stage_dir(s->dir, n, s->n, path));
        if (step >= 0 && step_in(t, path, "") != step)
            strcat(path, ".tmp");
        else
            find_there(path);
        TRY(index_read(index, path));
        if (!index->has_moments)
            return fail(ERR_IO, "%s: adamw is null: it was saved without an optimizer", path);
        if (index->position.step != s->indexes[0].position.step)
            return fail(ERR_IO, "%s is of step %lld, another stage of step %lld: take others", path,
                        (long long)index->position.step, (long long)s->indexes[0].position.step);
        for (int i = 0; i < index->n_files; i++) TRY(index_check_file(index, i));
    }
    const FsdpRoot *root = fsdp_unit(t->model)->root;
    for (int u = 0; u < root->n_units; u++)
        for (int i = 0; i < root->units[u]->flat.layout.n; i++) TRY(load_param(s, t, u, i, false));
    return OK;
}

Status load_stages(Trainer *t, const char *dir, int stages, CheckpointPosition *position)
{
    FsdpRoot *root = fsdp_unit(t->model)->root;
    Stages s = {dir, stages, calloc((size_t)stages, sizeof *s.indexes)};
    check_set_silent(t->world.rank != 0);
    Status status =
        s.indexes != NULL ? read_indexes(&s, t) : fail(ERR_MEMORY, "%s: no host memory", dir);
    check_set_silent(false);
    status = agree_over_ranks(t, status);
    for (int u = 0; u < root->n_units; u++)
        for (int i = 0; i < root->units[u]->flat.layout.n && status == OK; i++)
            status = load_param(&s, t, u, i, true);
    status = agree_over_ranks(t, status);
    fsdp_shards_written(root);
    if (status == OK) {
        *position = s.indexes[0].position;
        t->adamw.t = (int)s.indexes[0].t;
    }
    for (int n = 0; n < stages && s.indexes != NULL; n++) index_free(&s.indexes[n]);
    free(s.indexes);
    return status;
}
