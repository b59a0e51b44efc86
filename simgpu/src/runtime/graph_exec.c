/* graph_exec.c: executable graphs, and their launch.
 *
 * A launch makes each node's call again, through the same functions as the program's own calls. The
 * calls are on internal streams, the graph's *branches*, which wait for each other by internal
 * events where an edge leads from one to another. So all checks of operations, streams and events
 * (races, lifetimes, clock, log, ranks that wait) see through a launch.
 *
 * Nodes on a path of edges share a branch: a node is on the branch of a predecessor, unless another
 * node follows that one there. So a branch orders only what the edges order.
 *
 * "A graph launch is ordered after all prior work of its stream and before all later work", and
 * launches of one executable are ordered one after the other, whatever their streams (CUDA
 * programming guide, CUDA graphs).
 *
 * Interface: cudaGraphInstantiate, cudaGraphInstantiateWithFlags, cudaGraphUpload, cudaGraphLaunch,
 * cudaGraphExecUpdate, cudaGraphExecDestroy.
 */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/leak.h"
#include "memory/device.h"
#include "report/hooks.h"
#include "report/report.h"
#include "runtime/graph_memory.h"
#include "runtime/operation.h"
#include "streams/handles.h"

// A node of an executable.
typedef struct Step {
    cudaGraphNode_t node;
    int branch;
    cudaEvent_t done; // for another branch, or the launch's end, to wait for; or NULL
    uint64_t number;  // of that event
    bool last;        // it has no successor
} Step;

struct CUgraphExec_st {
    bool alive;
    const void *site, *destroyed;
    cudaGraph_t graph; // its own copy
    Step *step;        // (graph->n), in an order that the edges allow
    int *step_of;      // (graph->n), by the node's index
    struct {
        cudaStream_t stream;
        uint32_t order; // its own: cudaDeviceReset may have ended it
    } * branch;
    int n_branches;
    Step begin, end; // of the last launch: their events
    unsigned long long flags;
    struct CUgraphExec_st *next; // of all that were ever made: a handle is never reused
};

static pthread_mutex_t execs_lock = PTHREAD_MUTEX_INITIALIZER;
static cudaGraphExec_t execs;
static uint64_t launches;

static void visit_execs(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&execs_lock)) return;
    for (cudaGraphExec_t e = execs; e; e = e->next)
        if (e->alive) sim_leak_note(leaks, THING_GRAPH_EXEC, e, 0, e->site);
    pthread_mutex_unlock(&execs_lock);
}

static SimHooks hooks = {.visit = visit_execs};

static cudaGraphExec_t find_exec(cudaGraphExec_t handle)
{
    pthread_mutex_lock(&execs_lock);
    cudaGraphExec_t e = execs;
    while (e && e != handle) e = e->next;
    pthread_mutex_unlock(&execs_lock);
    return e;
}

static cudaError_t report_exec(const char *call, cudaGraphExec_t handle, const void *site)
{
    cudaGraphExec_t e = find_exec(handle);
    return sim_report_no_graph(&(SimNoGraph){"there is no such executable graph",
                                             "cudaGraphInstantiate", "cudaGraphExecDestroy", handle,
                                             e ? e->destroyed : NULL},
                               call, site);
}

static bool is_exec(cudaGraphExec_t handle)
{
    cudaGraphExec_t e = find_exec(handle);
    return e && e->alive;
}

// ---- Instantiation ----

static bool make_event(Step *step, int device)
{
    int current = sim_current_device();
    sim_set_current_device(device);
    pthread_mutex_lock(&sim_streams_lock);
    step->done = sim_event_make(cudaEventDisableTiming, NULL);
    if (step->done) step->number = step->done->number;
    pthread_mutex_unlock(&sim_streams_lock);
    sim_set_current_device(current);
    return step->done != NULL;
}

// cudaDeviceReset may have ended it already, and its handle may belong to another one.
static void end_event(const Step *step)
{
    if (step->done && step->done->alive && step->done->number == step->number)
        sim_event_end(step->done);
}

static cudaStream_t new_branch(int device, int number, const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    pthread_mutex_lock(&sim_streams_lock);
    cudaStream_t stream = sim_stream_make(device, cudaStreamNonBlocking, 0);
    if (stream) {
        sim_stream_link(stream);
        stream->branch = true;
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (stream)
        gpulog_name_stream(stream, "branch %d of the graph instantiated at %s", number, where);
    return stream;
}

// Puts each step on a branch. tail: (n), of each branch the last step on it.
static bool lay_out(cudaGraphExec_t e, int *tail)
{
    for (int i = 0; i < e->graph->n; i++) {
        Step *step = &e->step[i];
        cudaGraphNode_t node = step->node;
        step->branch = -1;
        for (int j = 0; j < node->n_from && step->branch < 0; j++) {
            int before = e->step_of[node->from[j]->index];
            const Step *from = &e->step[before];
            if (tail[from->branch] == before && from->node->device == node->device)
                step->branch = from->branch;
        }
        if (step->branch < 0) {
            cudaStream_t stream = new_branch(node->device, e->n_branches + 1, e->site);
            if (!stream) return false;
            e->branch[e->n_branches].stream = stream;
            e->branch[e->n_branches].order = stream->order;
            step->branch = e->n_branches++;
        }
        tail[step->branch] = i;
        step->last = true;
    }
    return true;
}

// Makes events where an edge leads from one branch to another, and for nodes without a successor.
static bool make_events(cudaGraphExec_t e)
{
    bool *awaited = calloc((size_t)e->graph->n + 1, 1), good = awaited;
    for (int i = 0; i < e->graph->n && good; i++)
        for (int j = 0; j < e->step[i].node->n_from; j++) {
            int from = e->step_of[e->step[i].node->from[j]->index];
            e->step[from].last = false;
            awaited[from] |= e->step[from].branch != e->step[i].branch;
        }
    for (int i = 0; i < e->graph->n && good; i++) {
        if (!awaited[i] && !e->step[i].last) continue;
        good = make_event(&e->step[i], e->step[i].node->device);
    }
    free(awaited);
    return good;
}

static void free_parts(cudaGraphExec_t e)
{
    pthread_mutex_lock(&sim_streams_lock);
    for (int i = 0; i < e->n_branches; i++) {
        cudaStream_t s = e->branch[i].stream;
        if (s->alive && s->order == e->branch[i].order) sim_stream_end(s);
    }
    for (int i = 0; e->step && e->graph && i < e->graph->n; i++) end_event(&e->step[i]);
    end_event(&e->begin);
    end_event(&e->end);
    pthread_mutex_unlock(&sim_streams_lock);
    if (e->graph) sim_graph_memory_end(e->graph);
    if (e->graph) sim_graph_free(e->graph);
    free(e->step);
    free(e->step_of);
    free(e->branch);
    *e = (struct CUgraphExec_st){.site = e->site, .destroyed = e->destroyed, .next = e->next};
}

static cudaError_t report_cycle(const char *call, const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_report(SIMGPU_CAPTURE, "a graph with a cycle",
               "%s, called at %s,\nwas given nodes that come after themselves, by their edges.\n"
               "On a GPU it returns \"invalid argument\", as here.\n"
               "Are the two lists of cudaGraphAddDependencies the wrong way round?",
               call, where);
    return cudaErrorInvalidValue;
}

static cudaError_t fill(cudaGraphExec_t e, cudaGraph_t graph, const char *call)
{
    size_t n = (size_t)graph->n + 1;
    e->graph = sim_graph_copy(graph, NULL);
    e->step = calloc(n, sizeof *e->step);
    e->step_of = calloc(n, sizeof *e->step_of);
    e->branch = calloc(n, sizeof *e->branch);
    int *tail = calloc(n, sizeof *tail), device = sim_current_device();
    cudaGraphNode_t *sorted = e->graph ? sim_graph_sorted(e->graph) : NULL;
    bool memory = e->graph && e->step && e->step_of && e->branch && tail, good = memory && sorted;
    for (int i = 0; good && i < graph->n; i++) {
        e->step[i].node = sorted[i];
        e->step_of[sorted[i]->index] = i;
    }
    good = good && lay_out(e, tail) && make_events(e);
    good = good && make_event(&e->begin, device) && make_event(&e->end, device);
    free(tail);
    free(sorted);
    if (memory && !sorted) return report_cycle(call, e->site);
    return good ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t instantiate(const char *call, cudaGraphExec_t *out, cudaGraph_t graph,
                               unsigned long long flags, const void *site)
{
    SIM_ENTER_AS(call, site);
    unsigned long long known = cudaGraphInstantiateFlagAutoFreeOnLaunch |
                               cudaGraphInstantiateFlagUpload |
                               cudaGraphInstantiateFlagUseNodePriority;
    if (!out) return sim_leave(cudaErrorInvalidValue);
    *out = NULL;
    if (!sim_is_graph(graph)) return sim_report_graph(call, graph, site);
    if (flags & ~known) return sim_leave(cudaErrorInvalidValue);
    cudaGraphExec_t e = calloc(1, sizeof *e);
    if (!e) return sim_leave(cudaErrorMemoryAllocation);
    e->site = site;
    e->flags = flags;
    cudaError_t error = sim_graph_memory_instantiate(graph, call, site);
    if (error == cudaSuccess) error = fill(e, graph, call);
    if (error != cudaSuccess) {
        free_parts(e);
        free(e);
        return sim_leave(error);
    }
    e->alive = true;
    sim_hooks_add(&hooks);
    pthread_mutex_lock(&execs_lock);
    e->next = execs;
    execs = e;
    pthread_mutex_unlock(&execs_lock);
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    return instantiate("cudaGraphInstantiate", pGraphExec, graph, flags, SIM_SITE);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return instantiate("cudaGraphInstantiateWithFlags", pGraphExec, graph, flags, SIM_SITE);
}

// As documented, a launch under way is still completed: its operations have been made already.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    SIM_ENTER();
    if (!is_exec(graphExec)) return report_exec("cudaGraphExecDestroy", graphExec, SIM_SITE);
    graphExec->destroyed = SIM_SITE;
    free_parts(graphExec);
    return cudaSuccess;
}

// ---- Launch ----

static cudaError_t record_on(cudaEvent_t event, cudaStream_t stream)
{
    SimgpuOp op = sim_begin(GPU_EVENT_RECORD, "cudaGraphLaunch", stream, sim_launching.site);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    cudaError_t error = sim_event_record(&op, event);
    return error != cudaSuccess ? error : simgpu_end(&op);
}

static cudaError_t wait_on(cudaStream_t stream, cudaEvent_t event)
{
    SimgpuOp op = sim_begin(GPU_STREAM_WAIT, "cudaGraphLaunch", stream, sim_launching.site);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    cudaError_t error = sim_event_wait(&op, event);
    return error != cudaSuccess ? error : simgpu_end(&op);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) return error_;                                                  \
    } while (0)

// The branch of a node waits for the node's predecessors.
static cudaError_t await_before(cudaGraphExec_t e, const Step *step)
{
    cudaGraphNode_t node = step->node;
    cudaStream_t stream = e->branch[step->branch].stream;
    if (!node->n_from) TRY(wait_on(stream, e->begin.done));
    for (int j = 0; j < node->n_from; j++) {
        const Step *from = &e->step[e->step_of[node->from[j]->index]];
        if (from->branch != step->branch) TRY(wait_on(stream, from->done));
    }
    return cudaSuccess;
}

static cudaError_t make_call(cudaGraphExec_t e, const Step *step, const cudaStream_t *together)
{
    SimReplay before = sim_launching;
    cudaGraphNode_t node = step->node;
    sim_set_current_device(node->device);
    sim_launching.stream = e->branch[step->branch].stream;
    sim_launching.site = node->site;
    sim_launching.node = node;
    sim_launching.together = together;
    cudaError_t error = node->call.again ? node->call.again(node) : cudaSuccess;
    sim_launching = before;
    return error;
}

// Has the next step, and those that begin with it (*n, on `stream`), wait for their predecessors.
static cudaError_t begin_next(cudaGraphExec_t e, int i, int *n, cudaStream_t *stream)
{
    const void *together = e->step[i].node->together;
    for (*n = 0; i + *n < e->graph->n && *n < SIM_MAX_DEVICES; ++*n) {
        const Step *step = &e->step[i + *n];
        if (*n > 0 && (!together || step->node->together != together)) break;
        TRY(await_before(e, step));
        stream[*n] = e->branch[step->branch].stream;
    }
    return cudaSuccess;
}

static cudaError_t end_steps(cudaGraphExec_t e, int i, int n)
{
    for (const Step *step = &e->step[i]; step < &e->step[i + n]; step++)
        if (step->done) TRY(record_on(step->done, e->branch[step->branch].stream));
    return cudaSuccess;
}

// Runs it to its end or, with `stops`, up to NCCL calls, whose node is *stops.
static cudaError_t run_steps(SimLaunch *l, cudaGraphNode_t *stops)
{
    cudaGraphExec_t e = l->exec;
    if (!l->begun) {
        TRY(wait_on(l->stream, e->end.done));
        TRY(record_on(e->begin.done, l->stream));
    }
    l->begun = true;
    for (; l->at < e->graph->n; l->at += l->n, l->n = 0) {
        const Step *step = &e->step[l->at];
        if (!l->n) {
            TRY(begin_next(e, l->at, &l->n, l->together));
            if (stops && step->node->together) {
                *stops = step->node;
                return cudaSuccess;
            }
            TRY(make_call(e, step, l->together));
        }
        TRY(end_steps(e, l->at, l->n));
    }
    for (int i = 0; i < e->graph->n; i++)
        if (e->step[i].last) TRY(wait_on(l->stream, e->step[i].done));
    return record_on(e->end.done, l->stream);
}

static uint64_t next_launch(void)
{
    pthread_mutex_lock(&execs_lock);
    uint64_t number = ++launches;
    pthread_mutex_unlock(&execs_lock);
    return number;
}

// In a capture, the graph's nodes become nodes of the capture. On a GPU they are one node, of a
// child graph.
static cudaError_t launch_child(cudaGraphNode_t node)
{
    cudaGraphExec_t e = *(cudaGraphExec_t *)node->call.args;
    if (!is_exec(e)) return report_exec("cudaGraphLaunch", e, node->site);
    SimLaunch launch = {.exec = e, .stream = sim_launching.stream};
    SimReplay before = sim_launching;
    sim_launching.stream = NULL;
    sim_launching.node = NULL;
    cudaError_t error = run_steps(&launch, NULL);
    sim_launching = before;
    return error;
}

static cudaError_t begin_launch(SimLaunch *l, SimgpuOp *op)
{
    if (op->error == cudaSuccess)
        op->error = sim_graph_memory_launch(l->exec->graph, l->exec->flags, l->stream, l->site);
    l->number = op->entry.launch = next_launch();
    l->stream = op->entry.stream;
    l->device = op->entry.device;
    return simgpu_end(op);
}

static cudaError_t go_on(SimLaunch *l, cudaGraphNode_t *stops)
{
    int current = sim_current_device();
    sim_set_current_device(l->device);
    sim_launching = (SimReplay){.launch = l->number, .site = l->site};
    cudaError_t error = run_steps(l, stops);
    sim_launching = (SimReplay){.launch = 0};
    sim_set_current_device(current);
    return error;
}

cudaError_t sim_launch_held(SimLaunch *l, cudaGraphNode_t *stops)
{
    *stops = NULL;
    if (!l->number) {
        int current = sim_current_device();
        sim_set_current_device(l->device);
        SimgpuOp op = sim_begin(GPU_GRAPH_LAUNCH, "cudaGraphLaunch", l->stream, l->site);
        sim_set_current_device(current);
        TRY(begin_launch(l, &op));
    }
    return go_on(l, stops);
}

cudaGraph_t sim_launched_graph(const SimLaunch *l)
{
    return l->exec->graph;
}

bool (*sim_hold_launch)(const SimLaunch *l);
bool (*sim_hold_node)(cudaStream_t stream, const char *call, const void *site, SimNewNode node);

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    SIM_ENTER();
    if (!is_exec(graphExec)) return report_exec("cudaGraphLaunch", graphExec, SIM_SITE);
    SimgpuOp op = sim_begin(GPU_GRAPH_LAUNCH, "cudaGraphLaunch", stream, SIM_SITE);
    if (op.captured)
        return sim_capture_node(&op, (SimNewNode){.type = cudaGraphNodeTypeGraph,
                                                  .again = launch_child,
                                                  .args = &graphExec,
                                                  .bytes = sizeof graphExec});
    SimLaunch launch = {
        .exec = graphExec, .stream = stream, .device = op.entry.device, .site = SIM_SITE};
    if (op.error == cudaSuccess && sim_hold_launch && sim_hold_launch(&launch)) return cudaSuccess;
    cudaError_t error = begin_launch(&launch, &op);
    return error != cudaSuccess ? error : sim_leave(go_on(&launch, NULL));
}

// There is nothing to do: simgpu has nothing on a device before a launch.
cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    SIM_ENTER();
    if (!is_exec(graphExec)) return report_exec("cudaGraphUpload", graphExec, SIM_SITE);
    pthread_mutex_lock(&sim_streams_lock);
    bool there = sim_stream_of_handle(stream) != NULL;
    pthread_mutex_unlock(&sim_streams_lock);
    return there ? cudaSuccess : sim_report_stream("cudaGraphUpload", stream, SIM_SITE);
}

// ---- Update ----

// Whether the two graphs have the same nodes and edges, in the same order; else the difference.
static cudaGraphExecUpdateResultInfo compare(cudaGraph_t old, cudaGraph_t new)
{
    cudaGraphExecUpdateResultInfo info = {cudaGraphExecUpdateErrorTopologyChanged, NULL, NULL};
    if (old->n != new->n) return info;
    for (int i = 0; i < new->n; i++) {
        cudaGraphNode_t a = old->node[i], b = new->node[i];
        info.errorNode = b;
        if (a->n_from != b->n_from) return info;
        for (int j = 0; j < b->n_from; j++) {
            if (a->from[j]->index == b->from[j]->index) continue;
            info.errorFromNode = b->from[j];
            return info;
        }
        info.result = cudaGraphExecUpdateErrorNodeTypeChanged;
        if (a->type != b->type) return info;
        info.result = cudaGraphExecUpdateErrorParametersChanged;
        if (a->device != b->device) return info;
        if (a->call.takes && !a->call.takes(a->call.args, b->call.args)) return info;
        info.result = cudaGraphExecUpdateErrorTopologyChanged;
    }
    return (cudaGraphExecUpdateResultInfo){cudaGraphExecUpdateSuccess, NULL, NULL};
}

// "Graphs with memory nodes cannot be updated" is one of its limits (CUDA Runtime API).
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo *resultInfo)
{
    SIM_ENTER();
    if (!is_exec(hGraphExec)) return report_exec("cudaGraphExecUpdate", hGraphExec, SIM_SITE);
    if (!sim_is_graph(hGraph)) return sim_report_graph("cudaGraphExecUpdate", hGraph, SIM_SITE);
    if (!resultInfo) return sim_leave(cudaErrorInvalidValue);
    *resultInfo = compare(hGraphExec->graph, hGraph);
    if (hGraph->n_memory) resultInfo->result = cudaGraphExecUpdateErrorNotSupported;
    if (resultInfo->result != cudaGraphExecUpdateSuccess)
        return sim_leave(cudaErrorGraphExecUpdateFailure);
    cudaGraph_t graph = sim_graph_copy(hGraph, NULL);
    if (!graph) return sim_leave(cudaErrorMemoryAllocation);
    for (int i = 0; i < graph->n; i++)
        hGraphExec->step[hGraphExec->step_of[i]].node = graph->node[i];
    sim_graph_free(hGraphExec->graph);
    hGraphExec->graph = graph;
    return cudaSuccess;
}
