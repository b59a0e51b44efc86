/* memory/pinned.h: pinned host memory; its rules are in pinned_internal.h. */
#ifndef SIMGPU_PINNED_H
#define SIMGPU_PINNED_H

#include "core/vector_clock.h"
#include "simgpu.h"

struct SimShadow; // shadow.h

// Whether [ptr, ptr+bytes) begins in pinned memory; *inside: whether it ends in the same piece.
bool sim_pinned(const void *ptr, size_t bytes, bool *inside);
// Where an operation must read and write a range inside one piece. Copies to it that are under way
// are delivered first, so that the operation sees them.
void *sim_pinned_use(const void *ptr, size_t bytes);
// A copy of rows for which the host has not waited. Into pinned memory: the bytes, at `src`, are
// delivered when it has waited. From pinned memory, or a fill of it: the bytes have moved, and the
// host is watched until it has waited.
void sim_pinned_defer(const SimgpuOp *op, SimOpPlace place, void *dst, size_t dpitch,
                      const void *src, size_t spitch, size_t width, size_t height);
void sim_pinned_watch(const SimgpuOp *op, SimOpPlace place, const void *ptr, size_t pitch,
                      size_t width, size_t height, GpuAccess access);
bool sim_pinned_watched(void); // SIMGPU_CHECK=full; else sim_pinned_watch has nothing to do
// Delivers the copies that the clock covers.
void sim_pinned_deliver(const SimVectorClock *clock);
// The host touches an address without access. A touch during a copy is reported, with the call site
// that find_site makes of the instruction, and may go on. A touch of pinned memory that was freed,
// or of the page in front of it, is reported and ends the process.
typedef enum SimPinnedTouch {
    PINNED_NO,        // no pinned memory
    PINNED_OPENED,    // it may be touched now
    PINNED_FOR_A_STEP // it may, and then the page must be closed (sim_pinned_stepped)
} SimPinnedTouch;
SimPinnedTouch sim_pinned_fault(const void *address, const char *verb,
                                const void *(*find_site)(const void *instruction),
                                const void *instruction);
void sim_pinned_stepped(const void *address);
// False, with a report: ptr is in pinned memory that was freed. `call`: the operation or system
// call; NULL: the host's own code.
bool sim_pinned_check_gone(const char *call, const void *ptr, size_t bytes, const char *verb,
                           const void *site);
// A system call is about to use [ptr, ptr+bytes), which it `writes` or reads. If that is pinned
// memory, the range stays open until the call is over: *slot is for sim_pinned_leave_call, which
// gets the number of bytes that the call has used. Bytes of a copy under way are reported, with the
// call site that sim_fault_site makes of `returns`: before a call that reads them, after one that
// writes them. False: it is no pinned memory.
bool sim_pinned_enter_call(const char *call, const void *ptr, size_t bytes, bool writes,
                           const void *returns, int *slot);
void sim_pinned_leave_call(const char *call, const void *ptr, size_t bytes, size_t used,
                           bool writes, const void *returns, int slot);
// The shadow (shadow.h) of the piece at ptr, or NULL, and ptr's offset in it. The piece does not
// change until it is freed.
struct SimShadow *sim_pinned_shadow_hold(const void *ptr, size_t *offset);
void sim_pinned_shadow_release(void);
// "the 4096 bytes of pinned memory allocated at flat_param.c:88 (flat_create)".
void sim_pinned_describe(const void *ptr, char *text, size_t size);

#endif
