/* extensions.c: the stack of the labs that have changed a root. See extensions.h. */
#include "extensions.h"

#include <stdlib.h>

typedef struct UnitKept {
    const FsdpUnit *unit;
    UnitFunctions did;
} UnitKept;

typedef struct ExtensionFrame {
    ExtensionKind kind;
    struct ExtensionFrame *below;
    FsdpRootOps ops;
    int n;
    UnitKept units[]; // (n)
} ExtensionFrame;

#define EXTENSIONS(ROW)                                                                            \
    ROW(STRATEGY, "has a strategy", "has no strategy", "strategy_remove")                          \
    ROW(OFFLOAD, "is offloaded", "is not offloaded", "offload_remove")                             \
    ROW(PRECISION, "has a precision", "has no precision", "precision_remove")                      \
    ROW(FP8, "gathers in FP8", "does not gather in FP8", "fp8_remove")                             \
    ROW(PREFETCH, "has a prefetch", "has no prefetch", "prefetch_remove")                          \
    ROW(RECOMPUTE, "recomputes", "does not recompute", "recompute_remove")                         \
    ROW(PIPELINE, "is in a pipeline", "is in no pipeline", "pipeline_destroy")                     \
    ROW(REGROUP, "is regrouped", "is not regrouped", "regroup_remove")                             \
    ROW(TRACE, "is traced", "is not traced", "step_trace_end")
#define TEXT(kind, ...) [EXTENSION_##kind] = {__VA_ARGS__},
#define COUNT(kind, ...) +1
static const struct {
    const char *is, *is_not, *remove;
} TEXTS[] = {EXTENSIONS(TEXT)};
_Static_assert(EXTENSIONS(COUNT) == EXTENSION_KINDS, "each extension has its texts");

Status fsdp_extensions_create(FsdpRoot *root)
{
    root->extensions = calloc(1, sizeof *root->extensions);
    if (root->extensions == NULL) return fail(ERR_MEMORY, "no host memory for a root");
    CUDA_TRY(cudaEventCreateWithFlags(&root->extensions->copied_out.event, cudaEventDisableTiming));
    return OK;
}

static void free_top(FsdpExtensions *extensions)
{
    ExtensionFrame *top = extensions->top;
    extensions->top = top->below;
    free(top);
}

void fsdp_extensions_destroy(FsdpRoot *root)
{
    FsdpExtensions *extensions = root->extensions;
    if (extensions == NULL) return;
    AllGatherState *copied_out = &extensions->copied_out;
    IGNORE_STATUS(
        stream_free_after(&copied_out->buffer, copied_out->event, root->ctx->all_gather_stream));
    if (copied_out->event != NULL) cudaEventDestroy(copied_out->event);
    while (extensions->top != NULL) free_top(extensions);
    free(extensions);
}

// ---- What a unit does ----

static UnitFunctions functions_of(const FsdpUnit *unit)
{
    UnitFunctions f = {.all_gather = unit->all_gather,
                       .gather_shards = unit->gather_shards,
                       .reduce_scatter = unit->reduce_scatter,
                       .layout_ops = unit->flat.layout.ops,
                       .gathers_alone = unit->flat.gathers_alone,
                       .reshard_after_forward = unit->reshard_after_forward};
    for (int i = 0; i < HOOK_POINTS; i++) f.hooks[i] = unit->hooks[i]->fn;
    return f;
}

static void set_functions(FsdpUnit *unit, const UnitFunctions *f)
{
    unit->all_gather = f->all_gather;
    unit->gather_shards = f->gather_shards;
    unit->reduce_scatter = f->reduce_scatter;
    unit->flat.layout.ops = f->layout_ops;
    unit->flat.gathers_alone = f->gathers_alone;
    unit->reshard_after_forward = f->reshard_after_forward;
    for (int i = 0; i < HOOK_POINTS; i++) unit->hooks[i]->fn = f->hooks[i];
}

// ---- The stack ----

static const ExtensionFrame *frame_of(const FsdpRoot *root, ExtensionKind kind)
{
    const ExtensionFrame *frame = root->extensions->top;
    while (frame != NULL && frame->kind != kind) frame = frame->below;
    return frame;
}

static const UnitFunctions *kept_of(const ExtensionFrame *frame, const FsdpUnit *unit)
{
    int i = 0;
    while (i < frame->n && frame->units[i].unit != unit) i++;
    return i < frame->n ? &frame->units[i].did : NULL;
}

Status extension_push(FsdpRoot *root, ExtensionKind kind)
{
    size_t n = (size_t)root->n_units;
    ExtensionFrame *frame = malloc(sizeof *frame + n * sizeof *frame->units);
    if (frame == NULL)
        return fail(ERR_MEMORY, "%s: no host memory for an extension", root->units[0]->flat.name);
    *frame = (ExtensionFrame){kind, root->extensions->top, root->ops, root->n_units};
    for (size_t i = 0; i < n; i++)
        frame->units[i] = (UnitKept){root->units[i], functions_of(root->units[i])};
    root->extensions->top = frame;
    return OK;
}

Status extension_check_last(const FsdpRoot *root, ExtensionKind kind)
{
    const char *name = root->units[0]->flat.name;
    const ExtensionFrame *top = root->extensions->top;
    if (frame_of(root, kind) == NULL) return fail(ERR_ARGUMENT, "%s %s", name, TEXTS[kind].is_not);
    if (top->kind == kind) return OK;
    return fail(ERR_ARGUMENT, "%s %s: call %s first", name, TEXTS[top->kind].is,
                TEXTS[top->kind].remove);
}

void extension_pop(FsdpRoot *root)
{
    const ExtensionFrame *top = root->extensions->top;
    root->ops = top->ops;
    for (int i = 0; i < root->n_units; i++)
        set_functions(root->units[i], kept_of(top, root->units[i]));
    free_top(root->extensions);
}

const FsdpRootOps *extension_ops_before(const FsdpRoot *root, ExtensionKind kind)
{
    return &frame_of(root, kind)->ops;
}

const UnitFunctions *extension_before(const FsdpUnit *unit, ExtensionKind kind)
{
    return kept_of(frame_of(unit->root, kind), unit);
}

Status extension_check_sharded(const FsdpRoot *root)
{
    for (int i = 0; i < root->n_units; i++)
        if (root->units[i]->flat.state != FLAT_SHARDED)
            return fail(ERR_ARGUMENT,
                        "%s is not sharded: after a step the next forward would read "
                        "its old parameters; call fsdp_reshard_all(root) before it",
                        root->units[i]->flat.name);
    return OK;
}
