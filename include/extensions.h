/* extensions.h: how labs change a root, and undo the change. Given code.
 *
 * A lab calls extension_push, which saves the functions of the root and its units; then it puts its
 * own functions into their tables (fsdp.h). extension_pop restores the saved ones. So extensions
 * are removed in the opposite order, and any other order is refused. A function that has replaced
 * another calls that one by extension_ops_before or extension_before.
 *
 *   six files → strategy → offload → precision → …
 *                          ^ extension_before of precision is what offload has left there
 *
 * A new extension has a kind and a state here, and its texts in extensions.c.
 */
#ifndef SHARDLAB_EXTENSIONS_H
#define SHARDLAB_EXTENSIONS_H

#include "fsdp.h"

#define Status CHECKED_STATUS // as check.h says

typedef enum ExtensionKind {
    EXTENSION_STRATEGY,  // strategy.h
    EXTENSION_OFFLOAD,   // offload.h
    EXTENSION_PRECISION, // precision.h
    EXTENSION_FP8,       // fp8_gather.h
    EXTENSION_PREFETCH,  // prefetch.h
    EXTENSION_RECOMPUTE, // recompute.h
    EXTENSION_PIPELINE,  // pipeline.h
    EXTENSION_REGROUP,   // step_graph.h: a plan of all-gathers
    EXTENSION_TRACE,     // and a trace of a step, while it is on
    EXTENSION_KINDS
} ExtensionKind;

// The labs' state of a root, one for each extension; NULL: it is not on.
typedef struct FsdpExtensions {
    struct StrategyState *strategy;
    struct OffloadState *offload;
    struct PrecisionState *precision;
    struct Fp8State *fp8;
    struct PrefetchState *prefetch;
    struct RecomputeState *recompute;
    bool recomputes; // a forward runs again within a backward: it is not a pass of its own
    struct Pipeline *pipeline;
    struct RegroupState *regroup;
    struct StepTrace *trace;
    AllGatherState copied_out;  // per_parameter.h: the gather buffer that was copied out last
    struct ExtensionFrame *top; // the stack: the last that was applied is first
} FsdpExtensions;

// The functions of a unit that an extension can replace.
typedef struct UnitFunctions {
    Status (*all_gather)(FsdpUnit *unit);
    Status (*gather_shards)(FsdpUnit *unit);
    Status (*reduce_scatter)(FsdpUnit *unit);
    HookFn hooks[HOOK_POINTS]; // of unit->hooks
    const FlatLayoutOps *layout_ops;
    bool gathers_alone;
    FsdpReshard reshard_after_forward;
} UnitFunctions;

// Labs and given code both use these for streams. Given code (lib/fsdp/root.c).

// `waiter` runs what is queued on it from now on after all that is queued on `worker` so far; the
// host does not wait. `event` is recorded for that, and may be recorded again at once.
Status stream_run_after(cudaStream_t waiter, cudaStream_t worker, cudaEvent_t event);
// Frees *buffer, if there is one, on `stream`, after the event; then it is NULL.
Status stream_free_after(void **buffer, cudaEvent_t event, cudaStream_t stream);

// For root.c: make a root's extensions, none of them on, and free them.
Status fsdp_extensions_create(FsdpRoot *root);
void fsdp_extensions_destroy(FsdpRoot *root);

// Saves the current functions of root and units. ERR_MEMORY.
Status extension_push(FsdpRoot *root, ExtensionKind kind);
// OK if the extension was added last. Else ERR_ARGUMENT, with a line that says that it is not on,
// or which to remove first.
Status extension_check_last(const FsdpRoot *root, ExtensionKind kind);
// Restores the functions that extension_push has saved; the extension must have been added last.
void extension_pop(FsdpRoot *root);

// The functions of root and unit from before this extension, which is on.
const FsdpRootOps *extension_ops_before(const FsdpRoot *root, ExtensionKind kind);
const UnitFunctions *extension_before(const FsdpUnit *unit, ExtensionKind kind);

// ERR_ARGUMENT if a unit of the root is not sharded: then a step refuses, as in task 5.
Status extension_check_sharded(const FsdpRoot *root);

#undef Status

#endif
