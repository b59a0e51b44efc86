/* safetensors_write.c: writes a safetensors file, one slice at a time. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { ALIGN = 8 }; // the data begin at a multiple of so many bytes

// Copies the list and sets where the data of each tensor begin.
static Status take_entries(Safetensors *file, const SafetensorsEntry *entries, int n)
{
    int64_t at = 0, bytes;
    file->entries = calloc((size_t)n + 1, sizeof *file->entries);
    if (file->entries == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", file->path);
    for (int i = 0; i < n; i++) {
        SafetensorsEntry *entry = &file->entries[file->n++];
        *entry = entries[i];
        entry->name = strdup(entries[i].name);
        if (entry->name == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", file->path);
        if (entry->ndim < 0 || entry->ndim > SAFETENSORS_MAX_DIMS ||
            !safetensors_measure(entry, &bytes) || __builtin_add_overflow(at, bytes, &entry->end))
            return fail(ERR_ARGUMENT, "%s: tensor %s has a shape that cannot be written",
                        file->path, shown(entry->name));
        entry->begin = at;
        at = entry->end;
    }
    return OK;
}

static json_t *describe(const SafetensorsEntry *entry)
{
    json_t *shape = json_array();
    for (int i = 0; i < entry->ndim; i++)
        json_array_append_new(shape, json_integer(entry->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_type_name(entry->type), "shape",
                     shape, "data_offsets", (json_int_t)entry->begin, (json_int_t)entry->end);
}

// Returns the header as text, padded. NULL: no memory, or a name that is twice in the list or is
// not UTF-8.
static char *header_text(const Safetensors *file, const SafetensorsText *texts, int n_texts)
{
    json_t *header = json_object(), *metadata = json_object();
    bool good = header != NULL && metadata != NULL;
    for (int i = 0; i < n_texts && good; i++)
        good = json_object_set_new(metadata, texts[i].key, json_string(texts[i].value)) == 0;
    if (n_texts > 0 && good) good = json_object_set(header, "__metadata__", metadata) == 0;
    for (int i = 0; i < file->n && good; i++)
        good = json_object_set_new(header, file->entries[i].name, describe(&file->entries[i])) == 0;
    // A name twice has replaced the first.
    good = good && json_object_size(header) == (size_t)file->n + (n_texts > 0);
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(metadata);
    json_decref(header);
    return text;
}

// Writes the length of the header, and the header, padded with blanks to a multiple of ALIGN.
static Status write_header(Safetensors *file, const char *text)
{
    size_t length = strlen(text), padded = (length + ALIGN - 1) / ALIGN * ALIGN;
    unsigned char *bytes = malloc(8 + padded);
    if (bytes == NULL) return fail(ERR_MEMORY, "%s: no host memory for its header", file->path);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    memset(bytes + 8, ' ', padded);
    memcpy(bytes + 8, text, length);
    file->data_at = 8 + (int64_t)padded;
    Status status = write_all(file->fd, file->path, bytes, 8 + padded, 0);
    free(bytes);
    return status;
}

static Status begin_file(Safetensors *file, const SafetensorsText *texts, int n_texts)
{
    char *text = header_text(file, texts, n_texts);
    if (text == NULL)
        return fail(ERR_ARGUMENT,
                    "%s: no header can be made: a name is in the list twice, or is not UTF-8",
                    file->path);
    Status status = OK;
    if (strlen(text) > SAFETENSORS_MAX_HEADER - ALIGN)
        status = fail(ERR_ARGUMENT, "%s: %d tensors want a header longer than %d bytes", file->path,
                      file->n, SAFETENSORS_MAX_HEADER);
    if (status == OK) {
        file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd < 0)
            status = fail(ERR_IO, "%s: cannot be created: %s", file->path, strerror(errno));
    }
    file->writing = status == OK;
    if (status == OK) status = write_header(file, text);
    free(text);
    return status;
}

Status safetensors_create(Safetensors *file, const char *path, const SafetensorsEntry *entries,
                          int n, const SafetensorsText *texts, int n_texts)
{
    memset(file, 0, sizeof *file);
    file->fd = -1;
    file->path = strdup(path);
    if (file->path == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", path);
    Status status = take_entries(file, entries, n);
    if (status == OK) status = begin_file(file, texts, n_texts);
    if (status != OK) safetensors_close(file);
    return status;
}

Status safetensors_write(Safetensors *file, int i, int64_t first, int64_t numel, const void *values)
{
    if (i < 0 || i >= file->n)
        return fail(ERR_ARGUMENT, "%s: there is no tensor number %d", file->path, i);
    const SafetensorsEntry *entry = &file->entries[i];
    int64_t bytes = safetensors_type_bytes(entry->type);
    if (first < 0 || numel < 0 || numel > entry->numel - first)
        return fail(ERR_ARGUMENT, "%s: elements [%lld, %lld) of tensor %s, which has %lld",
                    file->path, (long long)first, (long long)(first + numel), shown(entry->name),
                    (long long)entry->numel);
    file->written += numel * bytes;
    return write_all(file->fd, file->path, values, (size_t)(numel * bytes),
                     (off_t)(file->data_at + entry->begin + first * bytes));
}

Status safetensors_finish(Safetensors *file)
{
    int64_t want = file->n > 0 ? file->entries[file->n - 1].end : 0;
    Status status = OK;
    if (file->written != want)
        status = fail(ERR_ARGUMENT, "%s: %lld bytes of data were written, its header says %lld",
                      file->path, (long long)file->written, (long long)want);
    else if (fsync(file->fd) != 0)
        status = fail(ERR_IO, "%s: cannot be brought to the disk: %s", file->path, strerror(errno));
    if (status == OK) {
        int fd = file->fd;
        file->fd = -1;
        if (close(fd) != 0)
            status = fail(ERR_IO, "%s: cannot be closed: %s", file->path, strerror(errno));
    }
    file->writing = status != OK;
    safetensors_close(file);
    return status;
}
