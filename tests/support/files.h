/* files.h: files and folders that a test makes, checkpoints above all, and what was said about
 * them. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { PATH_BYTES = 512 };

// A folder of the test's own; remove_folder removes it with what is in it.
void make_folder(char folder[PATH_BYTES]);
void remove_folder(const char *folder);
// One for each test: TEST_BETWEEN(name, own_folder_begin, own_folder_end).
extern char own_folder[PATH_BYTES];
int own_folder_begin(void **state);
int own_folder_end(void **state);
// folder/name, in one of a few buffers that are used in turn.
const char *in_folder(const char *folder, const char *name);

// A file of these bytes.
void write_bytes(const char *path, const void *bytes, size_t n);
// The file's first bytes alone.
void cut_file(const char *path, size_t bytes);
// Renames it, also to another folder.
void move_file(const char *from, const char *to);
// A safetensors file of this header, as it is, and so many bytes of data: 0, 1, 2 …
void write_header(const char *path, const char *header, size_t data_bytes);

// From here to said_end what the process writes to standard error is kept. said_end returns it
// (free it), and how many lines it was.
void said_begin(void);
char *said_end(int *lines);

#endif
