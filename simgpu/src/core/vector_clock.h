/* core/vector_clock.h: how many operations of each stream are known to be done.
 *
 * Streams count their operations, each in a slot of its own. A vector clock t says "the first t[s]
 * operations of every stream s are done" (Fidge 1988, Mattern 1989). The virtual clock, which keeps
 * the time of the simulated machine, is something else: time/time.h.
 */
#ifndef SIMGPU_VECTOR_CLOCK_H
#define SIMGPU_VECTOR_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct SimVectorClock {
    int n; // slots; those beyond count as 0
    uint64_t *t;
} SimVectorClock;
void sim_vector_clock_grow(SimVectorClock *clock, int n); // to n slots, which is more than it has
void sim_vector_clock_join(SimVectorClock *into, const SimVectorClock *from);
void sim_vector_clock_assign(SimVectorClock *into, const SimVectorClock *from);
uint64_t sim_vector_clock_part(const SimVectorClock *clock, int slot);
// Whether it includes all that the other one says.
bool sim_vector_clock_covers(const SimVectorClock *clock, const SimVectorClock *other);

// A stream as reports name it, also when it is gone.
typedef struct SimStreamId {
    int slot, device;
    int number;       // 1, 2 … of the streams that the program made; 0: it did not make this one
    bool is_default;  // a device's NULL stream
    bool branch;      // it runs a branch of a graph's launches, and has a name
    bool blocking;    // else made with cudaStreamNonBlocking
    const void *made; // call site
    const char *name; // what the program calls it (gpulog_name_stream); NULL: nothing
} SimStreamId;
// The slot of an operation of the host itself, on no stream.
#define SIM_HOST_SLOT (-2)
// "stream B (made at api.c:40 (main))".
void sim_stream_name(const SimStreamId *stream, char *text, size_t size);

// An operation's place: its stream, and its number on it.
typedef struct SimOpPlace {
    SimStreamId stream;
    uint64_t time;
} SimOpPlace;

#endif
