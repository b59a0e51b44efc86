/* background_save.c: a checkpoint that is written while the training goes on. See
 * background_save.h.
 */
#include "background_save.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// What this rank holds of a parameter, or of one of its moments; a tensor of its file.
typedef struct Tensor {
    char name[CHECKPOINT_NAME];
    int64_t numel, at; // elements, and where they are in `values`
} Tensor;

struct BackgroundSave {
    char *dir, *tmp, *old, *path; // path: of this rank's file
    int n;
    Tensor *tensors;
    float *values; // host: the copy
    CheckpointLabel label;
    CheckpointIndex index; // on the first rank
    bool first, writes;    // writes: no other replica's rank has the same
    pthread_t thread;
    bool started;
    atomic_bool done;
    Status status; // once it is done
};

static void free_save(BackgroundSave *s)
{
    index_free(&s->index);
    free(s->dir);
    free(s->tmp);
    free(s->old);
    free(s->path);
    free(s->tensors);
    free(s->values);
    free(s);
}

// ---- The copy ----

float *shard_part(const Trainer *t, int u, CheckpointPart part)
{
    if (part == CHECKPOINT_PARAM)
        return fsdp_unit(t->model)->root->units[u]->flat.sharded_param.data;
    return part == CHECKPOINT_M ? t->adamw.m[u] : t->adamw.v[u];
}

// Of parameter i of unit u.
static Status take_param(BackgroundSave *s, const Trainer *t, int u, int i, int64_t *elements)
{
    const FlatLayout *layout = &fsdp_unit(t->model)->root->units[u]->flat.layout;
    const Param *taken = layout->params[i];
    int64_t from, to, place;
    flat_param_range_in_shard(layout, i, layout->rank, &from, &to, &place);
    for (int part = 0; from < to && part < (taken->frozen ? 1 : 3); part++) {
        if (s->values != NULL) {
            Tensor *tensor = &s->tensors[s->n];
            checkpoint_tensor_name(tensor->name, taken->name, part);
            tensor->numel = to - from;
            tensor->at = *elements;
            CUDA_TRY(cudaMemcpyAsync(s->values + *elements, shard_part(t, u, part) + place,
                                     (size_t)tensor->numel * sizeof(float), cudaMemcpyDefault,
                                     t->stream));
        }
        s->n++;
        *elements += to - from;
    }
    return OK;
}

// Lists the tensors, and copies their elements where there is memory; how many elements.
static Status take(BackgroundSave *s, const Trainer *t, int64_t *elements)
{
    const FsdpRoot *root = fsdp_unit(t->model)->root;
    *elements = 0;
    s->n = 0;
    for (int u = 0; u < root->n_units; u++)
        for (int i = 0; i < root->units[u]->flat.layout.n; i++)
            TRY(take_param(s, t, u, i, elements));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    return OK;
}

static Status fill(BackgroundSave *s, const Trainer *t, const char *dir,
                   const CheckpointPosition *position)
{
    const Mesh *mesh = &t->ctx.mesh;
    int64_t elements = 0;
    s->writes = mesh->replicate.rank == 0;
    s->first = s->writes && mesh->shard.rank == 0;
    s->dir = checkpoint_name(dir, "");
    s->tmp = checkpoint_name(dir, ".tmp");
    s->old = checkpoint_name(dir, ".old");
    if (s->dir == NULL || s->tmp == NULL || s->old == NULL) return ERR_MEMORY;
    s->path = checkpoint_file(s->tmp, mesh->shard.rank, mesh->shard.size);
    if (s->path == NULL) return ERR_MEMORY;
    TRY(take(s, t, &elements));
    s->tensors = calloc((size_t)s->n + 1, sizeof *s->tensors);
    s->values = malloc((size_t)(elements + 1) * sizeof *s->values);
    if (s->tensors == NULL || s->values == NULL)
        return fail(ERR_MEMORY, "%s: no host memory for a copy of %lld numbers", dir,
                    (long long)elements);
    TRY(take(s, t, &elements));
    checkpoint_label(&s->label, mesh->shard.rank, mesh->shard.size, position->step);
    index_begin(&s->index, mesh->shard.size);
    s->index.position = *position;
    s->index.has_moments = true;
    s->index.t = t->adamw.t;
    return s->first ? checkpoint_describe(&s->index, fsdp_unit(t->model)->root) : OK;
}

// ---- The files ----

static Status write_file(const BackgroundSave *s)
{
    SafetensorsEntry *entries = calloc((size_t)s->n + 1, sizeof *entries);
    Safetensors file = {0};
    if (entries == NULL) return fail(ERR_MEMORY, "%s: no host memory", s->path);
    for (int i = 0; i < s->n; i++)
        entries[i] = (SafetensorsEntry){
            .name = s->tensors[i].name, .ndim = 1, .shape = {s->tensors[i].numel}};
    Status status = safetensors_create(&file, s->path, entries, s->n, s->label.texts, 2);
    for (int i = 0; i < s->n && status == OK; i++)
        status = safetensors_write(&file, i, 0, s->tensors[i].numel, s->values + s->tensors[i].at);
    free(entries);
    const Status ended = status == OK ? safetensors_finish(&file) : status;
    safetensors_close(&file);
    return ended;
}

// The thread.
static void *write_all(void *arg)
{
    BackgroundSave *s = arg;
    Status status = s->writes ? write_file(s) : OK;
    s->status = status;
    atomic_store(&s->done, true);
    return NULL;
}

// ---- The training's side ----

Status background_save_begin(BackgroundSave **save, Trainer *t, const char *dir,
                             const CheckpointPosition *position)
{
    if (*save != NULL) TRY(background_save_end(save, t, true));
    BackgroundSave *s = calloc(1, sizeof *s);
    Status status = s != NULL ? fill(s, t, dir, position)
                              : fail(ERR_MEMORY, "%s: no host memory for a save", dir);
    status = agree_over_ranks(t, status);
    if (status == OK)
        status = agree_over_ranks(t, s->first ? checkpoint_begin(s->dir, s->tmp, s->old) : OK);
    if (status == OK) {
        s->started = pthread_create(&s->thread, NULL, write_all, s) == 0;
        if (!s->started) write_all(s); // then the training waits
        *save = s;
    } else if (s != NULL) {
        free_save(s);
    }
    return status;
}

// Whether all ranks have written.
static Status all_done(const BackgroundSave *s, Trainer *t, bool *done)
{
    uint64_t mine = atomic_load(&s->done);
    uint64_t *all = malloc((size_t)t->world.size * sizeof *all);
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    Status status = gather_over_ranks(t, &mine, 1, all);
    *done = true;
    for (int i = 0; i < t->world.size; i++) *done = *done && all[i] != 0;
    free(all);
    return status;
}

Status background_save_end(BackgroundSave **save, Trainer *t, bool wait)
{
    BackgroundSave *s = *save;
    bool done = wait;
    if (s == NULL) return OK;
    if (!wait) TRY(all_done(s, t, &done));
    if (!done) return OK;
    if (s->started) pthread_join(s->thread, NULL);
    Status status = agree_over_ranks(t, s->status);
    if (status == OK && s->first) status = index_write(&s->index, s->tmp);
    status = agree_over_ranks(t, status);
    if (status != OK && s->first) IGNORE_STATUS(folder_remove(s->tmp));
    if (status == OK && s->first) status = checkpoint_commit(s->dir, s->tmp, s->old);
    status = agree_over_ranks(t, status);
    free_save(s);
    *save = NULL;
    return status;
}
