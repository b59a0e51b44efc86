/* internal.h: what the files of lib/checkpoint share. */
#ifndef CHECKPOINT_INTERNAL_H
#define CHECKPOINT_INTERNAL_H

#include <stddef.h>
#include <sys/types.h>

#include "safetensors.h"

#define Status CHECKED_STATUS // as check.h says

// Makes a name from a file fit for a message: short, without control characters. The result is in
// one of a few buffers, which are used in turn.
const char *shown(const char *name);

// Returns whether there is a type of that name; then it is *type.
bool safetensors_type_named(const char *name, SafetensorsType *type);
// Sets entry->numel and *bytes from its shape and type; false where they do not fit in 63 bits.
bool safetensors_measure(SafetensorsEntry *entry, int64_t *bytes);

// Reads all of the bytes at a place of the file; else ERR_IO, with a line that names the file.
Status write_all(int fd, const char *path, const void *bytes, size_t n, off_t at);
Status read_all(int fd, const char *path, void *bytes, size_t n, off_t at);

#undef Status

#endif
