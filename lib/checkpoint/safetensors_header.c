/* safetensors_header.c: opens a safetensors file and checks its header: types, shapes, and that the
 * tensors cover the data exactly once.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

// Fails with a line about one tensor: file, name, what is wrong.
#define refuse(file, name, format, ...)                                                            \
    fail(ERR_IO, "%s: tensor %s: " format, (file)->path, shown(name), __VA_ARGS__)

static char *copy(const char *text)
{
    char *other = strdup(text);
    if (other == NULL) fail(ERR_MEMORY, "no host memory for the name %s", shown(text));
    return other;
}

// "shape": an array of whole numbers that are not negative.
static Status read_shape(const Safetensors *file, SafetensorsEntry *entry, const json_t *shape)
{
    if (!json_is_array(shape))
        return refuse(file, entry->name, "%s", "shape must be an array of whole numbers");
    size_t n = json_array_size(shape);
    if (n > SAFETENSORS_MAX_DIMS)
        return refuse(file, entry->name, "shape has %zu dimensions, at most %d are read", n,
                      SAFETENSORS_MAX_DIMS);
    entry->ndim = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return refuse(file, entry->name, "shape[%zu] must be a whole number, 0 or more", i);
        entry->shape[i] = json_integer_value(size);
    }
    return OK;
}

// "data_offsets": [begin, end], in bytes, as long as type and shape say.
static Status read_offsets(const Safetensors *file, SafetensorsEntry *entry, const json_t *offsets)
{
    int64_t bytes;
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return refuse(file, entry->name, "%s", "data_offsets must be two whole numbers");
    entry->begin = json_integer_value(begin);
    entry->end = json_integer_value(end);
    if (entry->begin < 0 || entry->end < entry->begin)
        return refuse(file, entry->name, "data_offsets [%lld, %lld] are not a range of bytes",
                      (long long)entry->begin, (long long)entry->end);
    if (!safetensors_measure(entry, &bytes))
        return refuse(file, entry->name, "%s", "shape has more elements than 64 bits can count");
    if (entry->end - entry->begin != bytes)
        return refuse(file, entry->name,
                      "data_offsets hold %lld bytes; its shape has %lld elements of %s, which are "
                      "%lld bytes",
                      (long long)(entry->end - entry->begin), (long long)entry->numel,
                      safetensors_type_name(entry->type), (long long)bytes);
    return OK;
}

static Status read_entry(const Safetensors *file, SafetensorsEntry *entry, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "dtype"));
    if (!json_is_object(value))
        return refuse(file, entry->name, "%s", "must be an object of dtype, shape, data_offsets");
    const char *key;
    json_t *field;
    json_object_foreach((json_t *)value, key, field) if (
        strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
        strcmp(key, "data_offsets") !=
            0) return refuse(file, entry->name,
                             "has a field %s; expected only dtype, shape and data_offsets",
                             shown(key));
    if (type == NULL) return refuse(file, entry->name, "%s", "dtype must be a text, as \"F32\"");
    if (!safetensors_type_named(type, &entry->type))
        return refuse(file, entry->name, "dtype %s is unknown (known are F32, BF16, I64 …)",
                      shown(type));
    Status status = read_shape(file, entry, json_object_get(value, "shape"));
    return status == OK ? read_offsets(file, entry, json_object_get(value, "data_offsets"))
                        : status;
}

// "__metadata__": an object of texts.
static Status read_texts(Safetensors *file, json_t *texts)
{
    const char *key;
    json_t *value;
    if (!json_is_object(texts))
        return fail(ERR_IO, "%s: __metadata__ must be an object of texts", file->path);
    file->texts = calloc(json_object_size(texts) + 1, sizeof *file->texts);
    if (file->texts == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", file->path);
    json_object_foreach(texts, key, value)
    {
        if (!json_is_string(value))
            return fail(ERR_IO, "%s: __metadata__: %s must be a text", file->path, shown(key));
        SafetensorsText *text = &file->texts[file->n_texts++];
        text->key = copy(key);
        text->value = copy(json_string_value(value));
        if (text->key == NULL || text->value == NULL) return ERR_MEMORY;
    }
    return OK;
}

static int by_data(const void *a, const void *b)
{
    const SafetensorsEntry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

// The tensors, sorted, must cover the data without a gap and without an overlap.
static Status check_cover(const Safetensors *file, int64_t data_bytes)
{
    int64_t at = 0;
    for (int i = 0; i < file->n; i++) {
        const SafetensorsEntry *entry = &file->entries[i];
        if (entry->begin < at)
            return refuse(file, entry->name,
                          "begins at byte %lld of the data, inside of tensor %s, which ends at "
                          "%lld",
                          (long long)entry->begin, shown(file->entries[i - 1].name), (long long)at);
        if (entry->begin > at)
            return refuse(file, entry->name,
                          "begins at byte %lld of the data; the bytes from %lld on belong to none",
                          (long long)entry->begin, (long long)at);
        at = entry->end;
    }
    if (at != data_bytes)
        return fail(ERR_IO, "%s: the header describes %lld bytes of data, and the file has %lld%s",
                    file->path, (long long)at, (long long)data_bytes,
                    at > data_bytes ? ": it is truncated" : "");
    return OK;
}

static Status read_entries(Safetensors *file, json_t *header)
{
    const char *key;
    json_t *value;
    file->entries = calloc(json_object_size(header) + 1, sizeof *file->entries);
    if (file->entries == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", file->path);
    json_object_foreach(header, key, value)
    {
        Status status;
        if (strcmp(key, "__metadata__") == 0) {
            status = read_texts(file, value);
        } else {
            SafetensorsEntry *entry = &file->entries[file->n++];
            entry->name = copy(key);
            status = entry->name != NULL ? read_entry(file, entry, value) : ERR_MEMORY;
        }
        if (status != OK) return status;
    }
    qsort(file->entries, (size_t)file->n, sizeof *file->entries, by_data);
    return OK;
}

// Reads the header's length from the first eight bytes.
static Status read_length(Safetensors *file, int64_t size, size_t *length)
{
    unsigned char bytes[8];
    uint64_t n = 0;
    if (size < 8)
        return fail(ERR_IO,
                    "%s: has %lld bytes; a safetensors file begins with 8 bytes that are "
                    "its header's length",
                    file->path, (long long)size);
    Status status = read_all(file->fd, file->path, bytes, sizeof bytes, 0);
    if (status != OK) return status;
    if (bytes[0] == '{' && bytes[7] != 0) // no length: that would be 2⁵⁶ bytes and more
        return fail(ERR_IO,
                    "%s: is JSON, not weights: of an index (model.safetensors.index.json) or a "
                    "config.json name the folder",
                    file->path);
    for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
    if (n > SAFETENSORS_MAX_HEADER)
        return fail(ERR_IO,
                    "%s: header length %llu; at most %d is read: this may not be a "
                    "safetensors file",
                    file->path, (unsigned long long)n, SAFETENSORS_MAX_HEADER);
    if ((int64_t)n > size - 8)
        return fail(ERR_IO, "%s: header length %llu, and only %lld bytes follow: it is truncated",
                    file->path, (unsigned long long)n, (long long)(size - 8));
    *length = (size_t)n;
    return OK;
}

static Status parse(Safetensors *file, const char *text, size_t length, int64_t data_bytes)
{
    json_error_t error;
    if (length == 0 || text[0] != '{')
        return fail(ERR_IO, "%s: the header must begin with '{'", file->path);
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (header == NULL)
        return fail(ERR_IO, "%s: the header is not JSON at its byte %d: %s", file->path,
                    error.position, shown(error.text));
    Status status = read_entries(file, header);
    json_decref(header);
    return status == OK ? check_cover(file, data_bytes) : status;
}

static Status read_header(Safetensors *file)
{
    struct stat info;
    size_t length = 0;
    if (fstat(file->fd, &info) != 0)
        return fail(ERR_IO, "%s: cannot be examined: %s", file->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return fail(ERR_IO, "%s: is not a regular file", file->path);
    Status status = read_length(file, info.st_size, &length);
    if (status != OK) return status;
    char *text = malloc(length + 1);
    if (text == NULL)
        return fail(ERR_MEMORY, "%s: no host memory for a header of %zu bytes", file->path, length);
    status = read_all(file->fd, file->path, text, length, 8);
    file->data_at = 8 + (int64_t)length;
    if (status == OK) status = parse(file, text, length, info.st_size - file->data_at);
    free(text);
    return status;
}

Status safetensors_open(Safetensors *file, const char *path)
{
    memset(file, 0, sizeof *file);
    // O_NONBLOCK: a pipe of that name must not hold the program up.
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) return fail(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    file->path = copy(path);
    if (file->path == NULL) {
        close(file->fd);
        return ERR_MEMORY;
    }
    Status status = read_header(file);
    if (status != OK) safetensors_close(file);
    return status;
}
