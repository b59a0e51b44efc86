/* snapshot.h: what can be seen of a model, its units, its root and its optimizer: the fields of
 * their structs, their lists, the hooks, and the device memory that they point to. A call that is
 * refused leaves all of it as it was.
 *
 *   need_refused_whole(s->model, &s->adamw, fsdp_adamw_step(&s->adamw), "fsdp_reshard_all");
 */
#ifndef SHARDLAB_SNAPSHOT_H
#define SHARDLAB_SNAPSHOT_H

#include "fsdp.h"
#include "harness.h"

typedef struct Snapshot Snapshot;

// Of the module and all below it; opt may be NULL. Waits for the device.
Snapshot *snapshot_take(const Module *model, const FsdpAdamW *opt);
// Fails the rank where the call has changed anything since; frees the snapshot.
void snapshot_check_at(const char *file, int line, Snapshot *before, const Module *model,
                       const FsdpAdamW *opt, const char *call);

// A call that must not change anything, whatever its status.
#define need_unchanged(model, opt, call)                                                           \
    do {                                                                                           \
        Snapshot *snapshot_ = snapshot_take(model, opt);                                           \
        call;                                                                                      \
        snapshot_check_at(__FILE__, __LINE__, snapshot_, model, opt, #call);                       \
    } while (0)
// need_refused, and nothing has changed.
#define need_refused_whole(model, opt, call, words)                                                \
    do {                                                                                           \
        Snapshot *snapshot_ = snapshot_take(model, opt);                                           \
        need_refused(call, words);                                                                 \
        snapshot_check_at(__FILE__, __LINE__, snapshot_, model, opt, #call);                       \
    } while (0)

#endif
