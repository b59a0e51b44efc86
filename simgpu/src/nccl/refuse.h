/* refuse.h: reports a call that is wrong, with its site, and returns an ncclResult_t. */
#ifndef SIMGPU_NCCL_REFUSE_H
#define SIMGPU_NCCL_REFUSE_H

#include <nccl.h>

#include "report/report.h"

void sim_nccl_error(const char *text); // for ncclGetLastError on this thread

// Reports that `name`, called at `site`, returns `result`, and returns it. `other`: a second call
// that the report is about, at `there`; NULL: there is none.
ncclResult_t sim_refuse_of(SimgpuClass kind, ncclResult_t result, const char *name,
                           const void *site, const char *other, const void *there,
                           const char *title, const char *format, ...)
    __attribute__((format(printf, 8, 9)));
#define sim_refuse(kind, result, name, site, ...)                                                  \
    sim_refuse_of(kind, result, name, site, NULL, NULL, __VA_ARGS__)

// Refuses a communicator that is not alive.
ncclResult_t sim_check_comm(ncclComm_t comm, const char *name, const void *site);
// The same, and one that is in progress or has failed.
ncclResult_t sim_check_ready(ncclComm_t comm, const char *name, const void *site);
// The same, and one that is finalized or revoked.
ncclResult_t sim_check_usable(ncclComm_t comm, const char *name, const void *site);
// Refuses a null pointer, which is `what`.
ncclResult_t sim_check_not_null(const void *ptr, const char *what, const char *name,
                                const void *site);
// Refuses a root, or a peer, that is not a rank of the communicator.
ncclResult_t sim_check_root(ncclComm_t comm, int root, bool is_peer, const char *name,
                            const void *site);
void sim_note_gone(ncclComm_t comm, const void *site); // it was destroyed there

#endif
