/* internal.h: what the files of lib/checkpoint share. */
#ifndef CHECKPOINT_INTERNAL_H
#define CHECKPOINT_INTERNAL_H

#include <stddef.h>
#include <sys/types.h>

#include "safetensors.h"

#define Status CHECKED_STATUS // as check.h says

// A name from a file, for one line of a message: cut, and without control characters. There are a
// few buffers, used in turn.
const char *shown(const char *name);

// Whether there is a type of that name; then *type.
bool safetensors_type_named(const char *name, SafetensorsType *type);
// Sets entry->numel and *bytes from its shape and type; false where they do not fit in 63 bits.
bool safetensors_measure(SafetensorsEntry *entry, int64_t *bytes);

// All of the bytes at a place of the file, or ERR_IO with a line that names it.
Status write_all(int fd, const char *path, const void *bytes, size_t n, off_t at);
Status read_all(int fd, const char *path, void *bytes, size_t n, off_t at);

#undef Status

#endif
