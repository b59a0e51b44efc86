/* shadow.h: the last accesses to each byte of an allocation, and which of them are unordered.
 *
 * It is the map of one allocation alone. With SIMGPU_CHECK=full, check/race.c adds every access of
 * an operation to it and reports what is wrong.
 */
#ifndef SIMGPU_SHADOW_H
#define SIMGPU_SHADOW_H

#include <stdbool.h>
#include <stddef.h>

#include "core/vector_clock.h"
#include "gpulog.h"

// ---- Shapes ----

// `blocks` blocks, `stride` bytes apart, of `rows` rows, `pitch` bytes apart, of `width` bytes. The
// gaps are not touched. Only sim_shape makes shapes, always in the same form: rows without gaps
// between them become one row, the larger step is the stride, and if one step is enough there is
// one block.
typedef struct SimShape {
    size_t width, rows, pitch, blocks, stride;
} SimShape;
SimShape sim_shape(size_t width, size_t rows, size_t pitch, size_t blocks, size_t stride);
SimShape sim_plain_shape(size_t bytes);
// From the first byte to the last, with the gaps.
size_t sim_shape_bytes(const SimShape *shape);
bool sim_shape_has_gaps(const SimShape *shape);

// ---- The map of one allocation ---- The caller locks.

// The access of one operation to one range.
typedef struct SimAccess {
    int refs;                // for shadow.c: how many marks have it
    struct SimAccess *spare; // for shadow.c: the next unused one
    GpuOp op;
    GpuAccess access;
    const char *name;
    const void *site;
    uint64_t comm; // its communicator (GpuCollective), 0: none
    SimStreamId stream;
    uint64_t time;  // the operation's number on its stream
    uint64_t order; // among all operations
    size_t begin;   // in the allocation
    SimShape shape;
} SimAccess;

// The result of an access.
typedef struct SimFinding {
    bool conflict;         // an earlier access is not ordered before this one
    SimAccess first;       // the earlier one; of several, the one at the lowest address
    size_t begin, end;     // the first bytes in a row that both touch; with gaps: one byte
    size_t unwritten;      // bytes that were read and never written; with gaps: at least one
    size_t unwritten_from; // the first of them
    bool some_written;     // other bytes that were read had been written
} SimFinding;

typedef struct SimShadow SimShadow;
typedef struct SimSpare SimSpare; // unused parts, shared by the maps under one lock
// Makes the map of an allocation of `bytes` bytes, which are unwritten or, with `written`, written;
// NULL: no memory. All maps under one lock get the same *spare, NULL at first.
SimShadow *sim_shadow_create(size_t bytes, bool written, SimSpare **spare);
void sim_shadow_destroy(SimShadow *shadow);
// Compares the access with the earlier ones, and adds it to the map. What `clock` covers is ordered
// before the access, and no conflict.
void sim_shadow_touch(SimShadow *shadow, const SimAccess *access, const SimVectorClock *clock,
                      SimFinding *finding);
// Marks the bytes as written, or as not written.
void sim_shadow_set_written(SimShadow *shadow, size_t begin, size_t bytes, bool written);
// The first unwritten range at or after `begin`, and before `end`; false: none.
bool sim_shadow_unwritten(SimShadow *shadow, size_t begin, size_t end, size_t *from, size_t *to);

#endif
