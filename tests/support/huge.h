/* huge.h: a unit whose shards have more than 2³² elements, in a dry run (SIMGPU_DRY): counts,
 * bytes and places that are kept in 32 bits are cut to some other, small number. No memory of that
 * size is needed: a dry run touches none.
 */
#ifndef SHARDLAB_HUGE_H
#define SHARDLAB_HUGE_H

#include "harness.h"
#include "training.h"

enum { HUGE_PADDING = 3 }; // elements, all of the last rank

// Runs the body on `world` ranks, where there are dry runs. u->unit is the root, sharded; it has
// two parameters or more, of which the first takes nearly all. Its memory is the body's to ask for
// and the unit's to free: nobody has written it.
typedef void (*HugeBody)(OneUnit *u, const Rank *r);
void run_huge_at(const char *file, int line, HugeBody body, int world);
#define run_huge(body, world) run_huge_at(__FILE__, __LINE__, body, world)
void run_huge_pairs(HugeBody body); // on four ranks: mesh_of_pairs

// Fails the rank unless what was queued since log entry `first` reads (or writes) all of the
// buffer, by one call or by several.
void check_covers(uint64_t first, const Buffer *buffer, GpuAccess access, const char *what);

// For the end of a message: the likely cause where `got` is as little as 32 bits leave of `want`,
// else "".
const char *cut_cause(uint64_t got, uint64_t want);

#endif
