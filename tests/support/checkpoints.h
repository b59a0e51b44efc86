/* checkpoints.h: models whose elements say what they are, and what a save does to the disk.
 *
 * state_fill gives every element of the shards and moments a value that depends on (parameter,
 * element, part, step) alone; state_check says whether that is what a rank holds. Both count for
 * themselves who owns what.
 *
 * The calls of the C library that change the disk are this file's in a program that is linked with
 * it; after disk_join each is written down in memory that all ranks share, and can be their last.
 *
 * Interface: state_fill, state_check, state_step; disk_open, disk_join, disk_kill_all.
 */
#ifndef SHARDLAB_CHECKPOINTS_H
#define SHARDLAB_CHECKPOINTS_H

#include "checkpoint.h"
#include "training.h"

static const AdamWConfig STATE_ADAMW = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.01f};

// Fills the rank's shards and moments with the values of `step`, and t is step; padding is zero.
void state_fill(Sharded *s, int step);
// Fails the rank where an element, t or the padding is not that of `step`.
void state_check(const Sharded *s, int step, const char *when);
// The step whose value the first element of the first parameter that the rank has anything of has.
int state_step(const Sharded *s);

typedef enum DiskCall { DISK_WRITE, DISK_SYNC, DISK_RENAME, DISK_MKDIR, DISK_REMOVE } DiskCall;
typedef struct DiskEntry {
    int rank;
    DiskCall call;
    char path[256]; // of a rename: where from
    char to[256];
} DiskEntry;
enum { DISK_MAX = 4096, DISK_RANKS = 16 };
typedef struct Disk {
    int n;         // calls so far
    int kill_at;   // the call, 1 …, at which all ranks are killed, before it; 0: none
    int slow_rank; // whose writes take long; -1: nobody's
    int pids[DISK_RANKS];
    DiskEntry entry[DISK_MAX];
} Disk;
// The log, empty, shared with the ranks that start from here on; they call disk_join.
Disk *disk_open(void);
void disk_join(Disk *disk, int rank);
// Kills all that have joined.
void disk_kill_all(void);

#endif
