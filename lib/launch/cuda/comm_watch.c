/* The watch of communicators. When a peer dies, a collective on the others does not return an
 * error: the call has returned long ago, and its kernel waits on the GPU forever. NCCL keeps such
 * an error with the communicator, for whoever asks. So a thread asks, five times a second, and when
 * there is one it says so in one line and ends the process.
 *
 * What NCCL notices, and what not. A connection over the network that was closed (the process at
 * its other end has ended) or timed out is noticed and becomes ncclRemoteError or ncclSystemError.
 * Between ranks of one host there is no connection to break: NVLink, PCIe and shared memory stay as
 * they are when the peer dies, and nothing is noticed (NVIDIA/nccl issue 279). There it is the
 * launcher that knows: build/bin/launch and torchrun end the other ranks, mpirun does so too, srun
 * with --kill-on-bad-exit=1. A rank that lives and never comes is nobody's error: a time limit is
 * all that helps. simgpu notices all of these by itself, ends the process with a report, and has no
 * errors to ask for.
 *
 * The process ends without ncclCommAbort. Its end closes all its connections, and its peers notice
 * that. An abort would do no more for them, and it can hang.
 */
#include "comm_watch.h"

#include <stdio.h>
#include <unistd.h>

#include "gpulog.h"
#include "ticker.h"

#define PERIOD 0.2      // seconds
#define MAX_WATCHED 128 // a communicator past these is not watched

ncclResult_t (*comm_watch_ask)(ncclComm_t comm, ncclResult_t *error) = ncclCommGetAsyncError;

static ncclComm_t watched[MAX_WATCHED]; // under the ticker's lock
static int n_watched;
static void (*lost_hook)(const char *text);

void world_on_lost(void (*hook)(const char *text))
{
    lost_hook = hook;
}

void comm_watch_leave(int status)
{
    if (lost_hook) lost_hook(check_last());
    // Print what the program has buffered, unless another thread is printing.
    if (ftrylockfile(stdout) == 0) fflush(stdout);
    _exit(status);
}

static void check_communicators(void)
{
    char doing[400], call[480];

    for (int i = 0; i < n_watched; i++) {
        ncclResult_t error = ncclSuccess, asked = comm_watch_ask(watched[i], &error);
        if (asked != ncclSuccess) error = asked;
        if (error == ncclSuccess || error == ncclInProgress) continue;
        gpulog_activity(doing, sizeof doing);
        snprintf(call, sizeof call, "ncclCommGetAsyncError (this rank %s)", doing);
        check_nccl(error, call, __FILE__, __LINE__);
        comm_watch_leave(WORLD_LOST_EXIT);
    }
}

// A forked child has none of its parent's communicators.
static void forget(void)
{
    n_watched = 0;
}

static Ticker ticker = TICKER(check_communicators, forget);

Status comm_watch(ncclComm_t comm)
{
    ticker_lock(&ticker);
    if (n_watched < MAX_WATCHED) watched[n_watched++] = comm;
    ticker_unlock(&ticker);
    return ticker_start(&ticker, PERIOD);
}

ncclComm_t world_unwatch(ncclComm_t comm)
{
    bool empty = false;

    ticker_lock(&ticker);
    for (int i = 0; i < n_watched; i++)
        if (watched[i] == comm) {
            watched[i] = watched[--n_watched];
            empty = n_watched == 0;
            break;
        }
    ticker_unlock(&ticker);
    if (empty) ticker_stop(&ticker);
    return comm;
}
