/* index.c: makes and writes index.json. index_read.c reads it.
 *
 *   {"format": "shardlab checkpoint", "version": 1, "files": 4,
 *    "parameters": {"embed.wte.weight": {"shape": [256, 64], "slices": [[0, 0, 8192], …]}, …},
 *    "adamw": {"t": 120}, "position": {"step": 120, "data_seed": "42"}}
 *
 * A slice is [file, begin, end]. "adamw" is null if no optimizer was saved. data_seed is a text,
 * because not all JSON readers have 64-bit numbers. With a scaled loss the position also has
 * "loss_scale": {"scale": 65536.0, "growth_tracker": 7}; it has "sequences", "best_loss" and
 * "heads" if they are not 0.
 */
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "internal.h"

void index_begin(CheckpointIndex *index, int n_files)
{
    *index = (CheckpointIndex){.n_files = n_files};
}

Status index_add_param(CheckpointIndex *index, const Param *param)
{
    CheckpointEntry *more = realloc(index->entries, (size_t)(index->n + 1) * sizeof *more);
    if (more == NULL) return fail(ERR_MEMORY, "no host memory for the index of %s", param->name);
    index->entries = more;
    CheckpointEntry *entry = &more[index->n++];
    *entry = (CheckpointEntry){.ndim = param->ndim, .numel = 1, .frozen = param->frozen};
    snprintf(entry->name, sizeof entry->name, "%s", param->name);
    for (int i = 0; i < param->ndim; i++) {
        entry->shape[i] = param->shape[i];
        entry->numel *= param->shape[i];
    }
    return OK;
}

Status index_add_slice(CheckpointIndex *index, int file, int64_t begin, int64_t end)
{
    CheckpointEntry *entry = &index->entries[index->n - 1];
    if (begin == end) return OK;
    CheckpointSlice *more = realloc(entry->slices, (size_t)(entry->n_slices + 1) * sizeof *more);
    if (more == NULL) return fail(ERR_MEMORY, "no host memory for the index of %s", entry->name);
    entry->slices = more;
    entry->slices[entry->n_slices++] = (CheckpointSlice){file, begin, end};
    return OK;
}

void index_free(CheckpointIndex *index)
{
    for (int i = 0; i < index->n; i++) free(index->entries[i].slices);
    free(index->entries);
    free(index->dir);
    memset(index, 0, sizeof *index);
}

const CheckpointEntry *index_find(const CheckpointIndex *index, const char *name)
{
    for (int i = 0; i < index->n; i++)
        if (strcmp(index->entries[i].name, name) == 0) return &index->entries[i];
    return NULL;
}

static json_t *describe(const CheckpointEntry *entry)
{
    json_t *shape = json_array(), *slices = json_array();
    for (int i = 0; i < entry->ndim; i++)
        json_array_append_new(shape, json_integer(entry->shape[i]));
    for (int i = 0; i < entry->n_slices; i++) {
        const CheckpointSlice *slice = &entry->slices[i];
        json_array_append_new(slices, json_pack("[i, I, I]", slice->file, (json_int_t)slice->begin,
                                                (json_int_t)slice->end));
    }
    json_t *frozen = entry->frozen ? json_true() : NULL; // else left out
    return json_pack("{s:o, s:o, s:o*}", "shape", shape, "slices", slices, "frozen", frozen);
}

static char *index_text(const CheckpointIndex *index)
{
    char seed[24];
    json_t *params = json_object();
    for (int i = 0; i < index->n; i++)
        json_object_set_new(params, index->entries[i].name, describe(&index->entries[i]));
    json_t *adamw =
        index->has_moments ? json_pack("{s:I}", "t", (json_int_t)index->t) : json_null();
    const CheckpointPosition *at = &index->position;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)at->data_seed);
    json_t *scale = at->loss_scale > 0.0f
                        ? json_pack("{s:f, s:i}", "scale", (double)at->loss_scale, "growth_tracker",
                                    at->growth_tracker)
                        : NULL; // left out
    json_t *sequences = at->sequences > 0 ? json_integer((json_int_t)at->sequences) : NULL;
    json_t *best = at->best_loss != 0.0 ? json_real(at->best_loss) : NULL;
    json_t *heads = at->heads > 0 ? json_integer(at->heads) : NULL;
    json_t *all = json_pack("{s:s, s:i, s:i, s:o, s:o, s:{s:I, s:s, s:o*, s:o*, s:o*, s:o*}}",
                            "format", "shardlab checkpoint", "version", 1, "files", index->n_files,
                            "parameters", params, "adamw", adamw, "position", "step",
                            (json_int_t)at->step, "data_seed", seed, "loss_scale", scale,
                            "sequences", sequences, "best_loss", best, "heads", heads);
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

Status index_write(const CheckpointIndex *index, const char *dir)
{
    char *path = NULL, *text = index_text(index);
    if (text == NULL || asprintf(&path, "%s/index.json", dir) < 0) {
        free(text);
        return fail(ERR_MEMORY, "%s: no host memory for its index", dir);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    Status status = OK;
    if (fd < 0) status = fail(ERR_IO, "%s: cannot be created: %s", path, strerror(errno));
    if (status == OK) status = write_all(fd, path, text, strlen(text), 0);
    if (status == OK && fsync(fd) != 0)
        status = fail(ERR_IO, "%s: cannot be brought to the disk: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(path);
    free(text);
    return status;
}
