/* shared_memory.h: memory without a name that other processes map too, by its *handle*: of a file
 * in memory (memfd) its descriptor, or, where the process may not make files so large (ulimit -f),
 * of a System V segment, which no limit on files reaches, -2 minus its number. -1 is none. Either
 * is gone with its last user, however that one ends.
 */
#ifndef SIMGPU_SHARED_MEMORY_H
#define SIMGPU_SHARED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

static inline bool sim_shared_is_file(int handle)
{
    return handle >= 0;
}

// Makes `bytes` bytes, which takes memory only where they are written, and maps the first `mapped`
// of them at *at: the handle; -1 and errno where that fails. Where a limit of the account forbids
// it, the process ends with one line, in which `what` is what the memory is for.
int sim_shared_make(const char *name, size_t bytes, size_t mapped, void **at, const char *what);
// Maps bytes of it, readable and writable, from an offset on; `to` NULL: where there is room.
// MAP_FAILED and errno where that fails. Offsets and `to` are multiples of a page.
void *sim_shared_map(int handle, void *to, size_t offset, size_t bytes);
size_t sim_shared_bytes(int handle); // its size; 0: there is no such memory
void sim_shared_close(int handle);   // what is mapped stays

#endif
