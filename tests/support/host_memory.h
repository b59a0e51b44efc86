/* host_memory.h: how much memory of the host the code under test takes. */
#ifndef SHARDLAB_HOST_MEMORY_H
#define SHARDLAB_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

// Bytes that the main thread has from malloc now, and large blocks of all threads, without what
// simgpu has for its own records. A few that were freed may still count (the libc keeps them at
// hand): allow for that. Where nobody counts them (an old libc, a build with a sanitizer, real
// GPUs) 0, always.
size_t host_bytes(void);

// From here on this process gets no more than so many bytes of memory of its own, where the system
// can hold it to that: malloc of more returns NULL. host_limit(0) takes the limit away.
void host_limit(size_t more);
// Gives back what the heap keeps free, which such a limit would not see.
void host_trim(void);

// From here on malloc has no `block` bytes for anybody, and little of less; where the system can
// hold this process to it. host_exhaust(0) gives everything back.
void host_exhaust(size_t block);

// From here on free fills blocks with this byte, and malloc with another one: neither makes a
// pointer. Where the libc can. Call it before what only frees: each malloc makes room for a block
// that stays as it is. host_fill(false) ends it: filling what malloc gives costs time.
void host_fill(bool fill);
#define HOST_FREED 0x5a
#define HOST_FREED_SHOWN "0x5a5a5a5a" // as a message shows it

// Whether host_limit or host_exhaust holds now: for the handler of a crash.
bool host_is_short(void);

#endif
