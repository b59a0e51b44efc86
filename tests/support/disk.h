/* disk.h: what ranks do to the disk, written down in the order in which they do it; any of these
 * calls can be the last of all ranks, or fail.
 *
 * One file of the program includes disk_calls.h: the C library's calls that change the disk are
 * then the program's own. After disk_join each is written down in memory that all ranks share, and
 * can be their last.
 */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include <stdbool.h>
#include <sys/types.h>

typedef enum DiskCall {
    DISK_WRITE,
    DISK_SYNC,
    DISK_RENAME,
    DISK_MKDIR,
    DISK_REMOVE,
    DISK_READ,
} DiskCall;
typedef struct DiskEntry {
    int rank;
    DiskCall call;
    char path[256]; // of a rename: where from
    char to[256];
    long at, bytes; // of a read
} DiskEntry;
enum { DISK_MAX = 4096, DISK_RANKS = 16 };
typedef struct Disk {
    int n;         // calls so far
    int kill_at;   // the call, 1 …, at which all ranks are killed, before it; 0: none
    int slow_rank; // whose writes take long; -1: nobody's
    bool reads;    // they are calls, too
    int failed;    // the call, 1 …, that was the first to fail; 0: none has
    int pids[DISK_RANKS];
    DiskEntry entry[DISK_MAX];
} Disk;
// The log, empty, shared with the ranks that start from here on; they call disk_join.
Disk *disk_open(void);
void disk_join(Disk *disk, int rank);
// Kills all that have joined.
void disk_kill_all(void);
// This rank's n-th call from here on fails; `gone`: and all after it. 0: none does.
void disk_fail(int n, bool gone);

// A call is about to change this path; a rename, from this path to that. Whether it is to fail.
bool disk_note(DiskCall call, const char *path, const char *to);
// The same for an open file; a name in it, where it is a folder (NULL: the file itself). Takes the
// slow rank's time.
bool disk_note_file(DiskCall call, int fd, const char *name);
bool disk_note_read(int fd, size_t bytes, off_t at);

#endif
