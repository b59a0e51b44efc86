/* memory/contents.h: what an operation does with the contents of device memory.
 *
 * Bytes that nobody needs yet are not written yet (owed.h): the poison of fresh memory, what a
 * cudaMemset set, what an all-gather gave. So whoever is to use bytes says here what for.
 */
#ifndef SIMGPU_CONTENTS_H
#define SIMGPU_CONTENTS_H

#include "gpulog.h"
#include "memory/device.h"

typedef enum SimUse {
    USE_ANY,       // reads the bytes, or writes some of them
    USE_READ,      // only reads, all of it before it returns: where they are borrowed, the address
                   // is that of the lender's
    USE_OVERWRITE, // overwrites all of them: before it does, the caller says sim_overwritten or
                   // another of those below
} SimUse;
// The usable address of `bytes` bytes of device memory at ptr, which lies in some device's program
// range; NULL, and a report, where they are not inside one live allocation. `name` and `site` are
// the operation's.
void *sim_use_bytes(const void *ptr, size_t bytes, GpuAccess access, SimUse use, const char *name,
                    const void *site);
// A range of live device memory is about to be overwritten, all of it; elsewhere nothing happens.
void sim_overwritten(const void *ptr, size_t bytes);
// The same on the word of a kernel: what it leaves out is found as what was never written is, but
// for gaps of less than a page inside.
void sim_promised(const void *ptr, size_t bytes);
// The range holds zeros that nobody has written yet, all of it, and is about to be overwritten:
// nobody will. False: it holds what it is to hold from here on.
bool sim_zeros_overwritten(const void *ptr, size_t bytes);
// A range of live device memory holds `value` from here on, although nobody writes it now; false:
// it must be written.
bool sim_fill_later(const void *ptr, size_t bytes, int value);
// A range of live device memory holds what is at `lender`, of whose `users` it is one, from here
// on; false: it must be written.
bool sim_borrow(const void *ptr, size_t bytes, const char *lender, _Atomic uint32_t *users);
// The device's memory borrows nothing any more.
void sim_borrow_no_more(SimDevice *device);

#endif
