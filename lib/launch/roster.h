/* roster.h: which process is which rank, for simgpu. See roster.c. */
#ifndef SHARDLAB_ROSTER_H
#define SHARDLAB_ROSTER_H

#include <stdbool.h>
#include <sys/types.h>

// Returns a descriptor, or -1 if none could be made: then the ranks start without one, and all
// functions below do nothing.
int roster_open(int size);
void roster_close(int roster);
// Has simgpu print a report that several ranks make once; roster_tell_folded says at the end, on
// standard error, which ranks made it.
void roster_fold_reports(int roster);
void roster_tell_folded(int roster);
// In the child, before it runs anything else; stays_open: also through exec.
void roster_join(int roster, int rank, bool stays_open);
// In the parent.
void roster_started(int roster, int rank, pid_t pid);
// Before the parent waits for the process; code: the exit status, or the signal that killed it.
void roster_ended(int roster, int rank, bool killed, int code);

#endif
