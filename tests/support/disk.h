/* disk.h: what ranks do to the disk, written down in the order in which they do it, and an end at any
 * of these calls.
 *
 * One file of the program includes disk_calls.h: the C library's calls that change the disk are then
 * the program's own. After disk_join each is written down in memory that all ranks share, and can be
 * their last.
 */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

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

// A call is about to change this path; a rename, from this path to that.
void disk_note(DiskCall call, const char *path, const char *to);
// The same for an open file; a name in it, where it is a folder (NULL: the file itself). Takes the
// slow rank's time.
void disk_note_file(DiskCall call, int fd, const char *name);

#endif
