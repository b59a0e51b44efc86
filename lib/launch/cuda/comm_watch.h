/* comm_watch.h: the watch of the communicators of world_connect, and how it ends a process. */
#ifndef SHARDLAB_COMM_WATCH_H
#define SHARDLAB_COMM_WATCH_H

#include "launch.h"

// From here on the communicator is asked for its errors, until world_unwatch.
Status comm_watch(ncclComm_t comm);

// Whom the watch asks: ncclCommGetAsyncError, or a test's own answer.
extern ncclResult_t (*comm_watch_ask)(ncclComm_t comm, ncclResult_t *error);

// Ends the process after it has printed its last line (check_last). It runs no exit handlers, which
// would wait for the collective that hangs.
_Noreturn void comm_watch_leave(int status);

#endif
