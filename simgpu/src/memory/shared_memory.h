/* shared_memory.h: memory without a name that other processes can map by its *handle*. It is a file
 * in memory (memfd), and the handle its descriptor. If the process may not make files so large
 * (ulimit -f) it is a System V segment, to which that limit does not apply, and the handle is -2
 * minus its number. -1 is none. Either is gone with its last user, however that one ends.
 */
#ifndef SIMGPU_SHARED_MEMORY_H
#define SIMGPU_SHARED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

static inline bool sim_shared_is_file(int handle)
{
    return handle >= 0;
}

// Makes `bytes` bytes, which take memory when they are written, and maps the first `mapped` of them
// at *at. Returns the handle; -1 and errno: it failed. If a limit of the account forbids it, the
// process ends with one line, in which `what` is the purpose of the memory.
int sim_shared_make(const char *name, size_t bytes, size_t mapped, void **at, const char *what);
// Maps bytes of it, readable and writable, from an offset on; `to` NULL: at any address. MAP_FAILED
// and errno: it failed. Offsets and `to` are multiples of a page.
void *sim_shared_map(int handle, void *to, size_t offset, size_t bytes);
size_t sim_shared_bytes(int handle); // its size; 0: there is no such memory
void sim_shared_close(int handle);   // its mappings stay

#endif
