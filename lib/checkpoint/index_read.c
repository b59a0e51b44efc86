/* index_read.c: reads and checks index.json and the files that it names. */
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint.h"
#include "internal.h"

enum { MOST_FILES = 1 << 20, MOST_BYTES = 64 << 20 };

// A whole number of an object in [least, most]; else a line that names the field.
static Status read_int(const char *path, const json_t *object, const char *field, json_int_t least,
                       json_int_t most, int64_t *value)
{
    const json_t *number = json_object_get(object, field);
    if (!json_is_integer(number) || json_integer_value(number) < least ||
        json_integer_value(number) > most)
        return fail(ERR_IO, "%s: %s must be a whole number from %lld to %lld", path, field,
                    (long long)least, (long long)most);
    *value = json_integer_value(number);
    return OK;
}

static Status read_shape(const char *path, CheckpointEntry *entry, const json_t *shape)
{
    size_t n = json_array_size(shape);
    entry->numel = 1;
    if (!json_is_array(shape) || n > PARAM_MAX_DIMS)
        return fail(ERR_IO, "%s: parameter %s: shape must be an array of at most %d numbers", path,
                    shown(entry->name), PARAM_MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        entry->shape[i] = json_integer_value(json_array_get(shape, i));
        if (entry->shape[i] < 1 ||
            __builtin_mul_overflow(entry->numel, entry->shape[i], &entry->numel))
            return fail(ERR_IO, "%s: parameter %s: shape[%zu] must be a whole number from 1 on",
                        path, shown(entry->name), i);
    }
    entry->ndim = (int)n;
    return OK;
}

// Reads the slices. They must cover the parameter: each begins where the one before ends.
static Status read_slices(const char *path, CheckpointIndex *index, CheckpointEntry *entry,
                          const json_t *slices)
{
    int64_t at = 0;
    for (size_t i = 0; i < json_array_size(slices); i++) {
        json_int_t file = -1, begin = -1, end = -1;
        int good = json_unpack(json_array_get(slices, i), "[I, I, I!]", &file, &begin, &end);
        if (good != 0 || file < 0 || file >= index->n_files)
            return fail(ERR_IO,
                        "%s: parameter %s: slices[%zu] must be [file, begin, end] with a file from "
                        "0 to %d",
                        path, shown(entry->name), i, index->n_files - 1);
        if (begin != at || end <= begin || end > entry->numel)
            return fail(ERR_IO,
                        "%s: parameter %s: slices[%zu] is [%lld, %lld); expected one from element "
                        "%lld to at most %lld",
                        path, shown(entry->name), i, (long long)begin, (long long)end,
                        (long long)at, (long long)entry->numel);
        Status status = index_add_slice(index, (int)file, begin, end);
        if (status != OK) return status;
        at = end;
    }
    if (at == entry->numel) return OK;
    return fail(ERR_IO, "%s: parameter %s: slices end at element %lld of %lld", path,
                shown(entry->name), (long long)at, (long long)entry->numel);
}

static Status read_params(const char *path, CheckpointIndex *index, json_t *params)
{
    const char *name;
    json_t *value;
    if (!json_is_object(params)) return fail(ERR_IO, "%s: parameters must be an object", path);
    index->entries = calloc(json_object_size(params) + 1, sizeof *index->entries);
    if (index->entries == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", path);
    json_object_foreach(params, name, value)
    {
        CheckpointEntry *entry = &index->entries[index->n++];
        if (strlen(name) >= sizeof entry->name)
            return fail(ERR_IO, "%s: parameter %s: a name has at most %zu bytes", path, shown(name),
                        sizeof entry->name - 1);
        strcpy(entry->name, name);
        entry->frozen = json_is_true(json_object_get(value, "frozen"));
        Status status = read_shape(path, entry, json_object_get(value, "shape"));
        if (status == OK)
            status = read_slices(path, index, entry, json_object_get(value, "slices"));
        if (status != OK) return status;
    }
    return OK;
}

// Reads the loss scale, if the file has one.
static Status read_scale(const char *path, CheckpointPosition *position, const json_t *scale)
{
    int64_t tracker = 0;
    if (scale == NULL) return OK;
    position->loss_scale = (float)json_real_value(json_object_get(scale, "scale"));
    if (!(position->loss_scale > 0.0f) || !isfinite(position->loss_scale))
        return fail(ERR_IO, "%s: loss_scale: scale must be a positive number, as 65536.0", path);
    Status status = read_int(path, scale, "growth_tracker", 0, INT32_MAX, &tracker);
    position->growth_tracker = (int)tracker;
    return status;
}

static Status read_position(const char *path, CheckpointIndex *index, const json_t *position)
{
    Status status = read_scale(path, &index->position, json_object_get(position, "loss_scale"));
    if (status != OK) return status;
    const char *seed = json_string_value(json_object_get(position, "data_seed"));
    char *end = NULL;
    errno = 0;
    if (seed != NULL) index->position.data_seed = strtoull(seed, &end, 10);
    if (seed == NULL || *seed < '0' || *seed > '9' || *end != '\0' || errno != 0)
        return fail(ERR_IO, "%s: data_seed must be a whole number, as a text", path);
    const json_t *best = json_object_get(position, "best_loss");
    if (best != NULL && !json_is_number(best))
        return fail(ERR_IO, "%s: best_loss must be a number", path);
    index->position.best_loss = json_number_value(best);
    int64_t sequences = 0, heads = 0;
    if (json_object_get(position, "sequences") != NULL)
        TRY(read_int(path, position, "sequences", 0, INT64_MAX, &sequences));
    if (json_object_get(position, "heads") != NULL)
        TRY(read_int(path, position, "heads", 1, INT32_MAX, &heads));
    index->position.sequences = (uint64_t)sequences;
    index->position.heads = (int)heads;
    return read_int(path, position, "step", 0, INT64_MAX, &index->position.step);
}

static Status read_all_fields(const char *path, CheckpointIndex *index, const json_t *all)
{
    const char *format = json_string_value(json_object_get(all, "format"));
    const json_t *adamw = json_object_get(all, "adamw");
    int64_t version, files = 0;
    if (format == NULL || strcmp(format, "shardlab checkpoint") != 0)
        return fail(ERR_IO, "%s: format must be \"shardlab checkpoint\"", path);
    Status status = read_int(path, all, "version", 1, 1, &version);
    if (status == OK) status = read_int(path, all, "files", 1, MOST_FILES, &files);
    index->n_files = (int)files;
    if (status == OK) status = read_position(path, index, json_object_get(all, "position"));
    if (status == OK && !json_is_null(adamw)) {
        index->has_moments = true;
        status = read_int(path, adamw, "t", 0, INT32_MAX, &index->t);
    }
    return status == OK ? read_params(path, index, json_object_get(all, "parameters")) : status;
}

static Status read_file(const char *path, CheckpointIndex *index)
{
    struct stat info;
    json_error_t error;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return fail(ERR_IO, "%s: is not there: this is not a checkpoint", path);
    if (info.st_size > MOST_BYTES)
        return fail(ERR_IO, "%s: has %lld bytes, at most %d are read", path,
                    (long long)info.st_size, MOST_BYTES);
    json_t *all = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (all == NULL)
        return fail(ERR_IO, "%s: is not JSON at its byte %d: %s", path, error.position,
                    shown(error.text));
    Status status = read_all_fields(path, index, all);
    json_decref(all);
    return status;
}

Status index_read(CheckpointIndex *index, const char *dir)
{
    char *path = NULL;
    memset(index, 0, sizeof *index);
    index->dir = strdup(dir);
    if (index->dir == NULL || asprintf(&path, "%s/index.json", dir) < 0) {
        index_free(index);
        return fail(ERR_MEMORY, "%s: no host memory for its index", dir);
    }
    Status status = read_file(path, index);
    free(path);
    if (status != OK) index_free(index);
    return status;
}

// The file must have this part of this slice: floats, one dimension, as long as the index says.
static Status check_tensor(const Safetensors *file, const CheckpointEntry *entry,
                           const CheckpointSlice *slice, CheckpointPart part)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", entry->name, checkpoint_part_name(part));
    const SafetensorsEntry *tensor = safetensors_find(file, name);
    int64_t want = slice->end - slice->begin;
    if (tensor == NULL)
        return fail(ERR_IO, "%s: has no tensor %s, of which the index expects %lld elements",
                    file->path, shown(name), (long long)want);
    if (tensor->type != SAFETENSORS_F32 || tensor->numel != want)
        return fail(ERR_IO, "%s: tensor %s has %lld elements of %s; expected %lld of F32",
                    file->path, shown(name), (long long)tensor->numel,
                    safetensors_type_name(tensor->type), (long long)want);
    return OK;
}

void checkpoint_label(CheckpointLabel *label, int i, int n, int64_t step)
{
    snprintf(label->part, sizeof label->part, "%d of %d", i, n);
    snprintf(label->step, sizeof label->step, "%lld", (long long)step);
    label->texts[0] = (SafetensorsText){(char *)"part", label->part};
    label->texts[1] = (SafetensorsText){(char *)"step", label->step};
}

static Status check_label(const Safetensors *file, const CheckpointIndex *index, int i)
{
    CheckpointLabel want;
    checkpoint_label(&want, i, index->n_files, index->position.step);
    for (int t = 0; t < 2; t++) {
        const char *got = safetensors_text(file, want.texts[t].key);
        if (got == NULL || strcmp(got, want.texts[t].value) != 0)
            return fail(ERR_IO, "%s: its %s is %s, expected %s: it is of another rank or save",
                        file->path, want.texts[t].key, got != NULL ? shown(got) : "missing",
                        want.texts[t].value);
    }
    return OK;
}

Status index_check_file(const CheckpointIndex *index, int i)
{
    Safetensors file;
    char *path = checkpoint_file(index->dir, i, index->n_files);
    if (path == NULL) return ERR_MEMORY;
    Status status = safetensors_open(&file, path);
    free(path);
    if (status != OK) return status;
    status = check_label(&file, index, i);
    for (int e = 0; e < index->n; e++) {
        const CheckpointEntry *entry = &index->entries[e];
        bool moments = index->has_moments && !entry->frozen;
        CheckpointPart last = moments ? CHECKPOINT_V : CHECKPOINT_PARAM;
        for (int s = 0; s < entry->n_slices && status == OK; s++)
            for (CheckpointPart part = CHECKPOINT_PARAM; part <= last && status == OK; part++)
                if (entry->slices[s].file == i)
                    status = check_tensor(&file, entry, &entry->slices[s], part);
    }
    safetensors_close(&file);
    return status;
}
