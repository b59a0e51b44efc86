/* extensions.h: what labs put on a root and take off again. Given code.
 *
 * An extension is put on with extension_push, which keeps what the root and its units do; then it
 * puts functions of its own into their tables (fsdp.h). extension_pop puts back what was there. So
 * extensions are taken off in the opposite order, and any other order is refused. A function that
 * has taken another's place calls that one by extension_ops_before or extension_before.
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

// What part two keeps of a root. Of each extension its state; NULL: it is not on.
typedef struct FsdpExtensions {
    struct StrategyState *strategy;
    struct OffloadState *offload;
    struct PrecisionState *precision;
    struct Fp8State *fp8;
    struct PrefetchState *prefetch;
    struct RecomputeState *recompute;
    bool recomputes; // a forward runs again within a backward: it is no pass of its own
    struct Pipeline *pipeline;
    struct RegroupState *regroup;
    struct StepTrace *trace;
    AllGatherState copied_out;  // per_parameter.h: the gather buffer that was copied out last
    struct ExtensionFrame *top; // the stack, the last that was put on first
} FsdpExtensions;

// What a unit does in another way under an extension.
typedef struct UnitFunctions {
    Status (*all_gather)(FsdpUnit *unit);
    Status (*gather_shards)(FsdpUnit *unit);
    Status (*reduce_scatter)(FsdpUnit *unit);
    HookFn hooks[HOOK_POINTS]; // of unit->hooks
    const FlatLayoutOps *layout_ops;
    bool gathers_alone;
    FsdpReshard reshard_after_forward;
} UnitFunctions;

// What labs and given code do with streams alike. Given code (lib/fsdp/root.c).

// `waiter` runs what is queued on it from now on after all that is queued on `worker` so far; the
// host does not wait. `event` is recorded for that, and may be recorded again at once.
Status stream_run_after(cudaStream_t waiter, cudaStream_t worker, cudaEvent_t event);
// Frees *buffer, if there is one, on `stream`, after the event; then it is NULL.
Status stream_free_after(void **buffer, cudaEvent_t event, cudaStream_t stream);

// Of root.c: a root's extensions, none of them on; and without them.
Status fsdp_extensions_create(FsdpRoot *root);
void fsdp_extensions_destroy(FsdpRoot *root);

// Keeps what root and units do now. ERR_MEMORY.
Status extension_push(FsdpRoot *root, ExtensionKind kind);
// OK if the extension is the last that was put on. Else ERR_ARGUMENT, with a line that says that
// it is not on, or what has to be taken off first.
Status extension_check_last(const FsdpRoot *root, ExtensionKind kind);
// Puts back what extension_push has kept; the extension is the last that was put on.
void extension_pop(FsdpRoot *root);

// What root and unit did before this extension, which is on, was put on.
const FsdpRootOps *extension_ops_before(const FsdpRoot *root, ExtensionKind kind);
const UnitFunctions *extension_before(const FsdpUnit *unit, ExtensionKind kind);

// ERR_ARGUMENT if a unit of the root is not sharded; a step then refuses, as task 5's do.
Status extension_check_sharded(const FsdpRoot *root);

#undef Status

#endif
