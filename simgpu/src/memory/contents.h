/* memory/contents.h: how an operation uses the contents of device memory.
 *
 * Some bytes are written only when they are needed (owed.h): the poison of fresh memory, the value
 * of a cudaMemset, the result of an all-gather. So every user of bytes states its use here first.
 */
#ifndef SIMGPU_CONTENTS_H
#define SIMGPU_CONTENTS_H

#include "gpulog.h"
#include "memory/device.h"

typedef enum SimUse {
    USE_ANY,       // reads the bytes, or writes some of them
    USE_READ,      // only reads, and only before it returns: if the bytes are borrowed, it gets
                   // the lender's address
    USE_OVERWRITE, // overwrites all of them; before it does, the caller calls sim_overwritten or
                   // another of the functions below
} SimUse;
// The usable address of `bytes` bytes of device memory at ptr, which is in some device's program
// range; NULL, with a report, if they are not inside one live allocation. `name` and `site` are the
// operation's.
void *sim_use_bytes(const void *ptr, size_t bytes, GpuAccess access, SimUse use, const char *name,
                    const void *site);
// All of a range of live device memory is about to be overwritten; other memory is ignored.
void sim_overwritten(const void *ptr, size_t bytes);
// The same for a range that a kernel promises to overwrite. Bytes that it then does not write are
// found like bytes that were never written, except gaps of less than a page inside the range.
void sim_promised(const void *ptr, size_t bytes);
// The range is about to be overwritten: if all of it owes zeros, these are dropped. False: the
// bytes that it owed are in place.
bool sim_zeros_overwritten(const void *ptr, size_t bytes);
// From now on a range of live device memory counts as filled with `value`, without a write; false:
// the caller must write it.
bool sim_fill_later(const void *ptr, size_t bytes, int value);
// From now on a range of live device memory borrows the bytes at `lender`, and is one of its
// `users`; false: the caller must write it.
bool sim_borrow(const void *ptr, size_t bytes, const char *lender, _Atomic uint32_t *users);
// Ends all borrowing of the device's memory.
void sim_borrow_no_more(SimDevice *device);

#endif
