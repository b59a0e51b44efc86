/* shadow.h: who touched which bytes of an allocation last, and who may not have waited for whom.
 *
 * It is the map of one allocation and knows nothing of the rest: check/race.c asks it at every
 * access of an operation and says what is wrong, with SIMGPU_CHECK=full only.
 */
#ifndef SIMGPU_SHADOW_H
#define SIMGPU_SHADOW_H

#include <stdbool.h>
#include <stddef.h>

#include "core/vector_clock.h"
#include "gpulog.h"

// ---- Shapes ----

// `blocks` blocks, `stride` bytes apart, of `rows` rows, `pitch` bytes apart, of `width` bytes.
// What lies between is not touched. Made by sim_shape alone: rows that touch each other are one,
// the larger step is the stride, and where one step is enough there is one block.
typedef struct SimShape {
    size_t width, rows, pitch, blocks, stride;
} SimShape;
SimShape sim_shape(size_t width, size_t rows, size_t pitch, size_t blocks, size_t stride);
SimShape sim_plain_shape(size_t bytes);
// From the first byte to the last, with the gaps.
size_t sim_shape_bytes(const SimShape *shape);
bool sim_shape_has_gaps(const SimShape *shape);

// ---- The map of one allocation ---- The caller locks.

// One operation's touch of one range.
typedef struct SimAccess {
    int refs;                // shadow.c's
    struct SimAccess *spare; // the next that is not needed: shadow.c's
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

// What a touch found.
typedef struct SimFinding {
    bool conflict;
    SimAccess first;       // the earlier of the two
    size_t begin, end;     // bytes that both touch; with gaps: the first of them
    size_t unwritten;      // bytes that were read and that nobody wrote; with gaps: at least one
    size_t unwritten_from; // the first of them
    bool some_written;     // others that were read, somebody wrote
} SimFinding;

typedef struct SimShadow SimShadow;
typedef struct SimSpare SimSpare; // what maps are made of, of all that one lock guards
// Of an allocation of `bytes` bytes that holds nothing yet (or, with `written`, something); NULL:
// no memory for it. *spare is NULL before the first of the lock's maps.
SimShadow *sim_shadow_create(size_t bytes, bool written, SimSpare **spare);
void sim_shadow_destroy(SimShadow *shadow);
// Compares the access with those before it that `clock` does not cover, and notes it.
void sim_shadow_touch(SimShadow *shadow, const SimAccess *access, const SimVectorClock *clock,
                      SimFinding *finding);
// From here on the bytes count as written, or as not written.
void sim_shadow_set_written(SimShadow *shadow, size_t begin, size_t bytes, bool written);
// The first stretch at or after `begin`, and before `end`, that nobody wrote; false: none.
bool sim_shadow_unwritten(SimShadow *shadow, size_t begin, size_t end, size_t *from, size_t *to);

#endif
