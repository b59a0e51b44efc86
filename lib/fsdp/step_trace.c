/* step_trace.c: what units do in a step, as marks, and where in a captured graph. See step_graph.h.
 *
 * While a stream is captured it says which nodes the next thing queued on it would wait for
 * (cudaStreamGetCaptureInfo). Right after a collective that is the collective's node, and right
 * after a unit's last kernel that kernel's.
 */
#include "step_graph.h"

#include <stdlib.h>
#include <string.h>

// The node that was queued on the stream last; NULL where nothing is captured.
static Status last_node(cudaStream_t stream, void **node)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    size_t n = 0;
    CUDA_TRY(cudaStreamIsCapturing(stream, &status));
    *node = NULL;
    if (status != cudaStreamCaptureStatusActive) return OK;
    CUDA_TRY(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &n));
    if (n > 0) *node = nodes[n - 1];
    return OK;
}

// The phase that began last; -1: none has.
static int phase_now(const StepTrace *trace)
{
    int phase = -1;
    for (int i = 0; i < trace->n; i++)
        if (trace->marks[i].kind <= STEP_BACKWARD) phase = trace->marks[i].phase;
    return phase;
}

static Status add_mark(const FsdpUnit *unit, StepKind kind, cudaStream_t stream)
{
    StepTrace *trace = unit->root->extensions->trace;
    if (trace->n == trace->room) {
        int room = trace->room > 0 ? 2 * trace->room : 64;
        StepMark *marks = realloc(trace->marks, (size_t)room * sizeof *marks);
        if (marks != NULL) trace->marks = marks;
        void **at = realloc(trace->at, (size_t)room * sizeof *at);
        if (at != NULL) trace->at = at;
        if (marks == NULL || at == NULL)
            return fail(ERR_MEMORY, "no host memory for a step of %d marks", room);
        trace->room = room;
    }
    const Buffer *buffer =
        kind == STEP_REDUCE ? &unit->flat.unsharded_grad : &unit->flat.unsharded_param;
    bool call = kind >= STEP_GATHER;
    int phase = phase_now(trace) + !call;
    trace->marks[trace->n] = (StepMark){.kind = kind,
                                        .unit = fsdp_unit_index(unit),
                                        .bytes = call ? (int64_t)buffer_bytes(buffer) : 0,
                                        .phase = phase,
                                        .last = phase,
                                        .node = -1};
    return last_node(stream, &trace->at[trace->n++]);
}

static Status gather(FsdpUnit *unit)
{
    TRY(extension_before(unit, EXTENSION_TRACE)->all_gather(unit));
    return add_mark(unit, STEP_GATHER, unit->ctx->all_gather_stream);
}

static Status reduce(FsdpUnit *unit)
{
    TRY(extension_before(unit, EXTENSION_TRACE)->reduce_scatter(unit));
    return add_mark(unit, STEP_REDUCE, unit->ctx->reduce_scatter_stream);
}

static Status begin_forward(Module *module, void *unit)
{
    return add_mark(unit, STEP_FORWARD, ((FsdpUnit *)unit)->ctx->compute_stream);
}

static Status begin_backward(Module *module, void *unit)
{
    return add_mark(unit, STEP_BACKWARD, ((FsdpUnit *)unit)->ctx->compute_stream);
}

// The unit's latest phase ends: what is queued last is its last kernel.
static Status end_phase(Module *module, void *arg)
{
    const FsdpUnit *unit = arg;
    StepTrace *trace = unit->root->extensions->trace;
    int i = trace->n - 1;
    while (i >= 0 &&
           (trace->marks[i].kind > STEP_BACKWARD || trace->marks[i].unit != fsdp_unit_index(unit)))
        i--;
    if (i < 0) return OK;
    trace->marks[i].last = phase_now(trace);
    return last_node(unit->ctx->compute_stream, &trace->at[i]);
}

// The hooks of all units: a phase is marked before its unit's own hooks, at both ends.
static Status add_hooks(StepTrace *trace)
{
    static const HookFn AT[HOOK_POINTS] = {begin_forward, end_phase, begin_backward, end_phase};
    int n = trace->root->n_units * HOOK_POINTS;
    trace->hooks = calloc((size_t)n, sizeof *trace->hooks);
    if (trace->hooks == NULL) return fail(ERR_MEMORY, "no host memory for a trace");
    for (int i = 0; i < n; i++) {
        FsdpUnit *unit = trace->root->units[i / HOOK_POINTS];
        HookPoint point = (HookPoint)(i % HOOK_POINTS);
        trace->hooks[i] = module_add_first_hook(unit->module, point, AT[point], unit);
        if (trace->hooks[i] == NULL) return ERR_MEMORY;
    }
    return OK;
}

static void remove_hooks(StepTrace *trace)
{
    for (int i = 0; trace->hooks != NULL && i < trace->root->n_units * HOOK_POINTS; i++)
        module_remove_hook(trace->root->units[i / HOOK_POINTS]->module, trace->hooks[i]);
    free(trace->hooks);
    trace->hooks = NULL;
}

Status step_trace_begin(StepTrace *trace, FsdpRoot *root)
{
    *trace = (StepTrace){.root = root};
    if (root->extensions->trace != NULL)
        return fail(ERR_ARGUMENT, "%s is traced already", root->units[0]->flat.name);
    Status status = add_hooks(trace);
    if (status == OK) status = extension_push(root, EXTENSION_TRACE);
    if (status != OK) {
        remove_hooks(trace);
        return status;
    }
    root->extensions->trace = trace;
    for (int i = 0; i < root->n_units; i++) {
        root->units[i]->all_gather = gather;
        root->units[i]->reduce_scatter = reduce;
    }
    return OK;
}

static int number_of(void *const *nodes, int n, const void *node)
{
    int i = 0;
    while (i < n && nodes[i] != node) i++;
    return i < n ? i : -1;
}

// The graph's edges as numbers of nodes, and the marks' nodes.
static Status read_edges(StepTrace *trace, cudaGraph_t graph, cudaGraphNode_t *nodes,
                         cudaGraphNode_t *ends)
{
    size_t n = (size_t)trace->n_nodes, m = (size_t)trace->n_edges;
    CUDA_TRY(cudaGraphGetNodes(graph, nodes, &n));
    CUDA_TRY(cudaGraphGetEdges(graph, ends, ends + m, NULL, &m));
    for (int i = 0; i < trace->n_edges; i++)
        for (int k = 0; k < 2; k++)
            trace->edges[i][k] = number_of((void *const *)nodes, trace->n_nodes,
                                           ends[(size_t)k * (size_t)trace->n_edges + (size_t)i]);
    for (int i = 0; i < trace->n; i++)
        trace->marks[i].node = number_of((void *const *)nodes, trace->n_nodes, trace->at[i]);
    return OK;
}

static Status read_graph(StepTrace *trace, cudaGraph_t graph)
{
    size_t n = 0, m = 0;
    CUDA_TRY(cudaGraphGetNodes(graph, NULL, &n));
    CUDA_TRY(cudaGraphGetEdges(graph, NULL, NULL, NULL, &m));
    trace->n_nodes = (int)n;
    trace->n_edges = (int)m;
    trace->edges = calloc(m + 1, sizeof *trace->edges);
    cudaGraphNode_t *nodes = calloc(n + 2 * m + 1, sizeof *nodes);
    Status status = trace->edges == NULL || nodes == NULL
                        ? fail(ERR_MEMORY, "no host memory for a graph of %zu nodes", n)
                        : read_edges(trace, graph, nodes, nodes + n);
    free(nodes);
    return status;
}

Status step_trace_end(StepTrace *trace, cudaGraph_t graph)
{
    TRY(extension_check_last(trace->root, EXTENSION_TRACE));
    remove_hooks(trace);
    trace->root->extensions->trace = NULL;
    extension_pop(trace->root);
    return graph != NULL ? read_graph(trace, graph) : OK;
}

void step_trace_free(StepTrace *trace)
{
    free(trace->marks);
    free(trace->at);
    free(trace->edges);
    *trace = (StepTrace){0};
}
