/* safetensors.c: finds, reads and closes what a safetensors file has. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

static const struct {
    const char *name;
    int64_t bytes;
} TYPES[SAFETENSORS_TYPES] = {
    [SAFETENSORS_F32] = {"F32", 4},         [SAFETENSORS_F64] = {"F64", 8},
    [SAFETENSORS_F16] = {"F16", 2},         [SAFETENSORS_BF16] = {"BF16", 2},
    [SAFETENSORS_F8_E4M3] = {"F8_E4M3", 1}, [SAFETENSORS_F8_E5M2] = {"F8_E5M2", 1},
    [SAFETENSORS_I64] = {"I64", 8},         [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_I16] = {"I16", 2},         [SAFETENSORS_I8] = {"I8", 1},
    [SAFETENSORS_U64] = {"U64", 8},         [SAFETENSORS_U32] = {"U32", 4},
    [SAFETENSORS_U16] = {"U16", 2},         [SAFETENSORS_U8] = {"U8", 1},
    [SAFETENSORS_BOOL] = {"BOOL", 1},
};

const char *safetensors_type_name(SafetensorsType type)
{
    return TYPES[type].name;
}

int64_t safetensors_type_bytes(SafetensorsType type)
{
    return TYPES[type].bytes;
}

bool safetensors_type_named(const char *name, SafetensorsType *type)
{
    for (int i = 0; i < SAFETENSORS_TYPES; i++) {
        if (strcmp(TYPES[i].name, name) != 0) continue;
        *type = (SafetensorsType)i;
        return true;
    }
    return false;
}

bool safetensors_measure(SafetensorsEntry *entry, int64_t *bytes)
{
    entry->numel = 1;
    for (int i = 0; i < entry->ndim; i++)
        if (__builtin_mul_overflow(entry->numel, entry->shape[i], &entry->numel)) return false;
    return !__builtin_mul_overflow(entry->numel, TYPES[entry->type].bytes, bytes);
}

const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name)
{
    for (int i = 0; i < file->n; i++)
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    return NULL;
}

const char *safetensors_text(const Safetensors *file, const char *key)
{
    for (int i = 0; i < file->n_texts; i++)
        if (strcmp(file->texts[i].key, key) == 0) return file->texts[i].value;
    return NULL;
}

Status safetensors_read(const Safetensors *file, const SafetensorsEntry *entry, int64_t first,
                        int64_t numel, void *out)
{
    int64_t bytes = TYPES[entry->type].bytes;
    if (first < 0 || numel < 0 || numel > entry->numel - first)
        return fail(ERR_ARGUMENT, "%s: elements [%lld, %lld) of tensor %s, which has %lld",
                    file->path, (long long)first, (long long)(first + numel), shown(entry->name),
                    (long long)entry->numel);
    return read_all(file->fd, file->path, out, (size_t)(numel * bytes),
                    (off_t)(file->data_at + entry->begin + first * bytes));
}

void safetensors_close(Safetensors *file)
{
    if (file->path == NULL) return;
    if (file->fd >= 0) close(file->fd);
    if (file->writing) unlink(file->path);
    for (int i = 0; i < file->n; i++) free(file->entries[i].name);
    for (int i = 0; i < file->n_texts; i++) {
        free(file->texts[i].key);
        free(file->texts[i].value);
    }
    free(file->entries);
    free(file->texts);
    free(file->path);
    memset(file, 0, sizeof *file);
}
