/* safetensors_set.c: opens the files of a model: one file, or those of a folder whose index says
 * which file has which tensor. The index is checked first: every file is in the folder, and each
 * tensor is in the file that the index names and in no other.
 */
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "internal.h"

enum { MOST_FILES = 512, MOST_BYTES = 16 << 20 };

static char *path_of(const char *dir, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) >= 0) return path;
    fail(ERR_MEMORY, "no host memory for a path in %s", dir);
    return NULL;
}

// Opens one more file of the set.
static Status add_file(SafetensorsSet *set, const char *path)
{
    Safetensors *files = realloc(set->files, (size_t)(set->n + 1) * sizeof *files);
    if (files == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", path);
    set->files = files;
    Status status = safetensors_open(&files[set->n], path);
    set->n += status == OK;
    return status;
}

// ---- The index ----

typedef struct Index {
    const char *dir, *path; // the folder, and the index in it
    const json_t *map;      // its weight_map: tensor to file
    int n;
    const char *names[MOST_FILES]; // of the files
} Index;

static bool is_file_name(const char *name)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name), m = sizeof end - 1;
    if (n <= m || n > NAME_MAX || name[0] == '.' || strcmp(name + n - m, end) != 0) return false;
    for (; *name != '\0'; name++)
        if (*name == '/' || (unsigned char)*name < 0x20 || *name == 0x7f) return false;
    return true;
}

// Adds a file name that is new; most names are that of the tensor before.
static Status add_name(Index *index, const char *name)
{
    for (int i = index->n - 1; i >= 0; i--)
        if (strcmp(index->names[i], name) == 0) return OK;
    if (index->n == MOST_FILES)
        return fail(ERR_IO, "%s: weight_map: names more than %d files", index->path, MOST_FILES);
    index->names[index->n++] = name;
    return OK;
}

static Status read_names(Index *index)
{
    const char *tensor;
    json_t *value;
    if (!json_is_object(index->map) || json_object_size(index->map) == 0)
        return fail(ERR_IO, "%s: weight_map must be an object, from tensors to files", index->path);
    json_object_foreach((json_t *)index->map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (name == NULL || !is_file_name(name))
            return fail(ERR_IO,
                        "%s: weight_map: tensor %s: its file is %s; expected the name of a "
                        ".safetensors file in the folder",
                        index->path, shown(tensor), name != NULL ? shown(name) : "no text");
        Status status = add_name(index, name);
        if (status != OK) return status;
    }
    return OK;
}

// The index names this file for each of its tensors.
static Status check_file(const Index *index, const Safetensors *file, const char *name)
{
    for (int i = 0; i < file->n; i++) {
        const char *tensor = file->entries[i].name;
        const char *want = json_string_value(json_object_get(index->map, tensor));
        if (want == NULL)
            return fail(ERR_IO, "%s: tensor %s is not in the weight_map of %s", file->path,
                        shown(tensor), index->path);
        if (strcmp(want, name) != 0)
            return fail(ERR_IO, "%s: has tensor %s, which is in %s by the weight_map of %s",
                        file->path, shown(tensor), shown(want), index->path);
    }
    return OK;
}

// Each tensor of the index is in a file. No file has a tensor that the index lacks, so it is
// enough to compare the counts.
static Status check_complete(const Index *index, const SafetensorsSet *set)
{
    const char *tensor;
    json_t *value;
    size_t n = 0;
    for (int i = 0; i < set->n; i++) n += (size_t)set->files[i].n;
    if (n == json_object_size(index->map)) return OK;
    json_object_foreach((json_t *)index->map, tensor, value)
    {
        if (safetensors_set_find(set, tensor, NULL) == NULL)
            return fail(ERR_IO, "%s: weight_map: tensor %s is not in %s", index->path,
                        shown(tensor), shown(json_string_value(value)));
    }
    return OK;
}

static Status open_files(Index *index, SafetensorsSet *set)
{
    Status status = read_names(index);
    for (int i = 0; i < index->n && status == OK; i++) {
        char *path = path_of(index->dir, index->names[i]);
        status = path != NULL ? add_file(set, path) : ERR_MEMORY;
        free(path);
        if (status == OK) status = check_file(index, &set->files[i], index->names[i]);
    }
    return status == OK ? check_complete(index, set) : status;
}

static Status open_index(SafetensorsSet *set, const char *dir)
{
    struct stat info;
    json_error_t error;
    if (stat(set->path, &info) != 0)
        return fail(ERR_IO, "%s: cannot be examined: %s", set->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return fail(ERR_IO, "%s: is not a regular file", set->path);
    if (info.st_size > MOST_BYTES)
        return fail(ERR_IO, "%s: has %lld bytes, at most %d are read", set->path,
                    (long long)info.st_size, MOST_BYTES);
    json_t *all = json_load_file(set->path, JSON_REJECT_DUPLICATES, &error);
    if (all == NULL)
        return fail(ERR_IO, "%s: is not JSON at its byte %d: %s", set->path, error.position,
                    shown(error.text));
    Index index = {.dir = dir, .path = set->path, .map = json_object_get(all, "weight_map")};
    Status status = open_files(&index, set);
    json_decref(all);
    return status;
}

// ---- The set ----

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static Status open_path(SafetensorsSet *set, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        set->path = strdup(path);
        return set->path != NULL ? add_file(set, path) : fail(ERR_MEMORY, "%s: no memory", path);
    }
    set->path = path_of(path, "model.safetensors");
    if (set->path == NULL) return ERR_MEMORY;
    if (is_there(set->path)) return add_file(set, set->path);
    free(set->path);
    set->path = path_of(path, "model.safetensors.index.json");
    if (set->path == NULL) return ERR_MEMORY;
    if (is_there(set->path)) return open_index(set, path);
    return fail(ERR_IO, "%s: has neither model.safetensors nor model.safetensors.index.json", path);
}

Status safetensors_set_open(SafetensorsSet *set, const char *path)
{
    memset(set, 0, sizeof *set);
    Status status = open_path(set, path);
    if (status != OK) safetensors_set_close(set);
    return status;
}

const SafetensorsEntry *safetensors_set_find(const SafetensorsSet *set, const char *name,
                                             const Safetensors **file)
{
    for (int i = 0; i < set->n; i++) {
        const SafetensorsEntry *entry = safetensors_find(&set->files[i], name);
        if (entry != NULL && file != NULL) *file = &set->files[i];
        if (entry != NULL) return entry;
    }
    return NULL;
}

void safetensors_set_close(SafetensorsSet *set)
{
    for (int i = 0; i < set->n; i++) safetensors_close(&set->files[i]);
    free(set->files);
    free(set->path);
    memset(set, 0, sizeof *set);
}
