/* memory/: who has which memory, and what is in it.
 *
 *   memory.c   cudaMalloc and friends, and the check of a range of device memory
 *   heap.c     which bytes of an arena are whose (heap.h)
 *   owed.c     poison, zeros and gathered bytes that nobody has written yet (owed.h)
 *   tree.c     a balanced tree (tree.h)
 *   managed.c  memory that the host may touch too, and memory in rows: cudaMallocManaged, -Pitch
 *   pinned.c   pinned host memory: making, registering and freeing it (pinned.h)
 *   pending.c  copies from and into it that the host has not waited for
 *   pages.c    which of its pages the host may touch
 *   touch.c    what the host and its system calls touch of it
 *   freed.c    pinned memory that was given back
 *   copy.c     cudaMemcpy and cudaMemset
 *
 * The other folders ask here whether a range is one that an operation may use, at which address it
 * is, and how to name it in a report.
 */
#ifndef SIMGPU_MEMORY_H
#define SIMGPU_MEMORY_H

#include "streams/streams.h"

struct SimLeaks;  // check/check.h
struct SimShadow; // check/shadow.h

// ---- memory.c ---- The usable address of `bytes` bytes of device memory at ptr, which lies in
// some device's program range; NULL, and a report, where they are not inside one live allocation.
// `name` and `site` are the operation's. `use`: what becomes of what the range owes (owed.h).
typedef enum SimUse {
    USE_ANY,  // it is paid: the operation may read the range, or write it in part
    USE_OVERWRITE, // the caller says before it writes: sim_overwritten, sim_promised …
    USE_READ, // the operation only reads, all of it before it returns: where the range is
               // borrowed, the address is that of the lent bytes; else it is paid
} SimUse;
void *sim_use_bytes(const void *ptr, size_t bytes, GpuAccess access, SimUse use,
                      const char *name, const void *site);
// A range of live device memory is about to be overwritten, all of it; elsewhere nothing happens.
void sim_overwritten(const void *ptr, size_t bytes);
// The same on the word of a kernel: what it leaves out is found as what was never written is, but
// for gaps of less than a page inside.
void sim_promised(const void *ptr, size_t bytes);
// The range holds zeros that nobody has written yet, all of it, and is about to be overwritten:
// nobody will. False: what it owes is paid.
bool sim_zeros_overwritten(const void *ptr, size_t bytes);
// A range of live device memory holds `value` from here on, although nobody writes it now; false:
// it must be written.
bool sim_fill_later(const void *ptr, size_t bytes, int value);
// A range of live device memory holds what is at `lent`, of whose place it is one of the users,
// from here on; false: it must be written.
bool sim_borrow(const void *ptr, size_t bytes, const char *lent, _Atomic uint32_t *users);
// The device's memory borrows nothing any more.
void sim_borrow_no_more(SimDevice *device);
// "byte 16 of the 4096 bytes allocated at flat_param.c:88 (flat_create)"; of `bytes` bytes, which
// end in the same allocation, "bytes 16 to 31 of …".
void sim_describe(SimDevice *device, size_t offset, char *text, size_t size);
void sim_describe_bytes(SimDevice *device, size_t offset, size_t bytes, char *text, size_t size);
// The allocation that holds the offset or held it last; false: none is known, or the device is
// locked.
typedef struct SimAllocation {
    size_t offset, bytes; // in the arena; as asked for
    const void *site;
} SimAllocation;
bool sim_allocation(SimDevice *device, size_t offset, SimAllocation *found);
// cudaMalloc under the name of the call that wants it. `managed`: whole pages, open to the host.
cudaError_t sim_malloc(const char *name, void **ptr, size_t size, bool managed, const void *site);
cudaError_t sim_free(void *ptr, const void *site); // cudaFree
// Frees everything on a device: cudaDeviceReset.
void sim_memory_reset(SimDevice *device, const void *site);
void sim_memory_visit(struct SimLeaks *leaks);

// ---- managed.c ----
// Opens whole pages of a device's program range to the host, and closes them again.
void sim_managed_show(SimDevice *device, size_t offset, size_t bytes);
void sim_managed_hide(SimDevice *device, size_t offset, size_t bytes);
// Whether ptr is an address of live managed memory.
bool sim_managed(const void *ptr);

// ---- copy.c ----
// cudaMemcpy2D, or cudaMemcpy2DAsync, under the name of the call that wants it.
typedef struct SimRows {
    void *dst;
    const void *src;
    size_t dpitch, spitch, width, height;
    enum cudaMemcpyKind kind;
} SimRows;
cudaError_t sim_copy_rows(const char *name, const void *site, SimRows rows, bool async,
                          cudaStream_t stream);

// ---- pinned.c, pending.c, touch.c, freed.c ----
// Whether [ptr, ptr+bytes) begins in pinned memory; *inside: and ends in the same piece of it.
bool sim_pinned(const void *ptr, size_t bytes, bool *inside);
// Where an operation is to read and write a range that lies inside of one piece; what is under way
// to it is delivered first, so that the operation sees it.
void *sim_pinned_use(const void *ptr, size_t bytes);
// A copy of rows that nobody has waited for. Into pinned memory: its bytes are put off until
// somebody has (`src` is where they are to be had). From pinned memory, or a fill of it: the bytes
// have moved, and the host is watched until it has waited.
void sim_pinned_defer(const SimgpuOp *op, void *dst, size_t dpitch, const void *src, size_t spitch,
                      size_t width, size_t height);
void sim_pinned_watch(const SimgpuOp *op, const void *ptr, size_t pitch, size_t width,
                      size_t height, GpuAccess access);
// Delivers what the clock covers.
void sim_pinned_deliver(const SimVectorClock *clock);
// The host touches an address without access. A touch in the middle of a copy is reported, with the
// call site that find_site makes of the instruction, and may go on; one of pinned memory that was
// given back, or of what lies in front of it, is reported and ends the process.
typedef enum SimPinnedTouch {
    PINNED_NO,        // nothing that is known here
    PINNED_OPENED,    // it may be touched now
    PINNED_FOR_A_STEP // it may; the page is to be closed again after that (sim_pinned_stepped)
} SimPinnedTouch;
SimPinnedTouch sim_pinned_fault(const void *address, const char *verb,
                                const void *(*find_site)(const void *instruction),
                                const void *instruction);
void sim_pinned_stepped(const void *address);
// False, reported: ptr lies in pinned memory that was given back. `call`: the operation or system
// call; NULL: the host's code itself.
bool sim_pinned_check_gone(const char *call, const void *ptr, size_t bytes, const char *verb,
                           const void *site);
// A system call is about to use [ptr, ptr+bytes), which it `writes` or reads. Where that is pinned
// memory, the range stays open until the call is over: *slot says so to sim_pinned_returned, which
// is told how many bytes the call has used. Bytes of a copy under way are reported, with the call
// site that sim_fault_site makes of `returns`: those to be read before the call, those written
// after it. False: it is no pinned memory, and there is nothing to say.
bool sim_pinned_lend(const char *call, const void *ptr, size_t bytes, bool writes,
                     const void *returns, int *slot);
void sim_pinned_returned(const char *call, const void *ptr, size_t bytes, size_t used, bool writes,
                         const void *returns, int slot);
// The shadow (shadow.h) of the piece at ptr, NULL where there is none, and ptr's offset in it. The
// piece stays as it is until it is freed.
struct SimShadow *sim_pinned_shadow_hold(const void *ptr, size_t *offset);
void sim_pinned_shadow_let_go(void);
// "the 4096 bytes of pinned memory allocated at flat_param.c:88 (flat_create)".
void sim_pinned_describe(const void *ptr, char *text, size_t size);
void sim_pinned_visit(struct SimLeaks *leaks);

#endif
