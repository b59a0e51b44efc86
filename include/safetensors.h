/* safetensors.h: reading and writing safetensors files. Given code.
 *
 * A safetensors file (Hugging Face's format for weights) is eight bytes with the length N of its
 * header, little-endian; N bytes of JSON, which may end in blanks; and the data:
 *
 *   {"__metadata__": {"format": "pt"},
 *    "wte.weight": {"dtype": "F32", "shape": [256, 64], "data_offsets": [0, 65536]}, …}
 *
 * data_offsets count from the first byte after the header. Tensors are row-major, little-endian,
 * and cover the data without a gap or an overlap. A file is untrusted: safetensors_open checks all
 * of that, and refuses a bad file with one line that names the file, the field and what was
 * expected. The JSON itself is read by libjansson, which refuses a name twice, numbers that do not
 * fit in 64 bits, and bytes that are not UTF-8.
 *
 * No call holds more than the caller's slice of a tensor in host memory.
 */
#ifndef SHARDLAB_SAFETENSORS_H
#define SHARDLAB_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"

#define Status CHECKED_STATUS // as check.h says

#define SAFETENSORS_MAX_HEADER (8 << 20) // bytes: some 60,000 tensors
#define SAFETENSORS_MAX_DIMS 8

typedef enum SafetensorsType {
    SAFETENSORS_F32, // the first: what zeroed memory means
    SAFETENSORS_F64,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_I64,
    SAFETENSORS_I32,
    SAFETENSORS_I16,
    SAFETENSORS_I8,
    SAFETENSORS_U64,
    SAFETENSORS_U32,
    SAFETENSORS_U16,
    SAFETENSORS_U8,
    SAFETENSORS_BOOL,
    SAFETENSORS_TYPES
} SafetensorsType;

const char *safetensors_type_name(SafetensorsType type); // "F32"
int64_t safetensors_type_bytes(SafetensorsType type);

// One tensor of a file.
typedef struct SafetensorsEntry {
    char *name;
    SafetensorsType type;
    int ndim;
    int64_t shape[SAFETENSORS_MAX_DIMS];
    int64_t numel;      // product of the shape; 1 for no dimensions
    int64_t begin, end; // bytes, from the beginning of the data
} SafetensorsEntry;

// A pair of the header's __metadata__.
typedef struct SafetensorsText {
    char *key, *value;
} SafetensorsText;

// A file that is open. A zeroed one is closed.
typedef struct Safetensors {
    char *path;
    int fd;
    bool writing;
    int64_t data_at; // where the data begin in the file
    int64_t written; // writing: bytes of data so far
    int n;           // tensors, in the order of their data
    SafetensorsEntry *entries;
    int n_texts;
    SafetensorsText *texts;
} Safetensors;

// Opens a file and reads its header; all of the header is checked, and that the file has all of its
// data. ERR_IO, and nothing stays open, if a check fails.
Status safetensors_open(Safetensors *file, const char *path);
// The tensor of that name, or NULL.
const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name);
// The value of a key of __metadata__, or NULL.
const char *safetensors_text(const Safetensors *file, const char *key);
// Elements [first, first + numel) of a tensor, row-major, as they are in the file.
Status safetensors_read(const Safetensors *file, const SafetensorsEntry *entry, int64_t first,
                        int64_t numel, void *out);

// Creates the file again (a file of that name is an error) and writes its header. Of each entry
// name, type, ndim and shape are given; the data will be in their order. The lists are copied.
Status safetensors_create(Safetensors *file, const char *path, const SafetensorsEntry *entries,
                          int n, const SafetensorsText *texts, int n_texts);
// Elements [first, first + numel) of tensor number i of the list; each element once, in any order.
Status safetensors_write(Safetensors *file, int i, int64_t first, int64_t numel,
                         const void *values);
// The end of writing: ERR_ARGUMENT if data are missing; else the bytes are on the disk (fsync)
// when it returns, and the file is closed.
Status safetensors_finish(Safetensors *file);

// Closes the file. One that is being written is removed: it is not complete.
void safetensors_close(Safetensors *file);

// Files that are open and read together. A zeroed one is closed.
typedef struct SafetensorsSet {
    char *path; // of the file, or of the index
    int n;
    Safetensors *files;
} SafetensorsSet;

// Opens a file, or the files of a folder as Hugging Face's save_pretrained writes it: its
// model.safetensors, or, if there is none, those that model.safetensors.index.json names, as
// model-00001-of-00003.safetensors:
//
//   {"metadata": {"total_size": 1234}, "weight_map": {"wte.weight": "model-00001-of-…", …}}
//
// The index must have each tensor of the files, in the file that it says; its metadata are not
// read. Anything else is ERR_IO with one line, and nothing stays open.
Status safetensors_set_open(SafetensorsSet *set, const char *path);
// The tensor of that name, and *file (may be NULL) that it is in; or NULL.
const SafetensorsEntry *safetensors_set_find(const SafetensorsSet *set, const char *name,
                                             const Safetensors **file);
void safetensors_set_close(SafetensorsSet *set);

#undef Status

#endif
