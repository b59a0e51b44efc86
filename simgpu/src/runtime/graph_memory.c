/* graph_memory.c: memory nodes. See graph_memory.h. */
#include "runtime/graph_memory.h"

#include "core/error.h"
#include "memory/allocation.h"
#include "memory/place.h"
#include "report/report.h"
#include "runtime/operation.h"
#include "streams/capture.h"

// The memory of a node that allocates; all copies of the node share it.
typedef struct Allocation {
    void *ptr;
    size_t bytes;
    cudaMemPool_t pool;
    bool instantiated;
    const void *launched; // where it was allocated last
} Allocation;

static cudaError_t allocate_again(cudaGraphNode_t node)
{
    Allocation *a = node->call.args;
    void *ptr;
    cudaError_t error =
        sim_allocate_on_stream(node->name, &ptr, a->bytes, NULL, a->pool, node->site);
    return error;
}

const void *sim_kept_for_node(void)
{
    bool allocates = sim_launching.node && sim_launching.node->call.again == allocate_again;
    return allocates ? ((const Allocation *)sim_launching.node->call.args)->ptr : NULL;
}

static void keep_no_more(void *args)
{
    sim_keep_place_no_more(((const Allocation *)args)->ptr);
}

cudaError_t sim_capture_allocation(SimgpuOp *op, SimDevice *device, void **ptr, size_t bytes,
                                   cudaMemPool_t pool)
{
    void *place = device ? sim_keep_place(device, bytes, op->entry.site) : NULL;
    if (!place) return sim_leave(cudaErrorMemoryAllocation);
    Allocation a = {.ptr = place, .bytes = bytes, .pool = pool};
    cudaError_t error = sim_capture_node(op, (SimNewNode){.type = cudaGraphNodeTypeMemAlloc,
                                                          .again = allocate_again,
                                                          .drop = keep_no_more,
                                                          .args = &a,
                                                          .bytes = sizeof a});
    if (error == cudaSuccess)
        *ptr = place;
    else
        sim_keep_place_no_more(place);
    return error;
}

static cudaError_t free_again(cudaGraphNode_t node)
{
    return sim_free_on_stream(*(void **)node->call.args, NULL, node->site);
}

cudaError_t sim_capture_free(SimgpuOp *op, void *ptr)
{
    return sim_capture_node(op, (SimNewNode){.type = cudaGraphNodeTypeMemFree,
                                             .again = free_again,
                                             .args = &ptr,
                                             .bytes = sizeof ptr});
}

// ---- One executable, and memory that a launch left ----

static Allocation *allocation_of(cudaGraphNode_t node)
{
    return node->type == cudaGraphNodeTypeMemAlloc ? node->call.args : NULL;
}

cudaError_t sim_graph_memory_instantiate(cudaGraph_t graph, const char *call, const void *site)
{
    for (int i = 0; i < graph->n && graph->n_memory; i++) {
        Allocation *a = allocation_of(graph->node[i]);
        if (a && a->instantiated) {
            char where[256];
            gpulog_where(site, where, sizeof where);
            sim_facts_call(call, site, SIM_NO_STREAM);
            sim_report(SIMGPU_CAPTURE, "a second executable of a graph that allocates memory",
                       "%s, called at %s,\nwould make a second executable of a graph that "
                       "allocates memory, whose address\nis the graph's.\n"
                       "On a GPU it returns \"operation not supported\", as here.\n"
                       "Is the first one to be destroyed before (cudaGraphExecDestroy)?",
                       call, where);
            return cudaErrorNotSupported;
        }
    }
    for (int i = 0; i < graph->n && graph->n_memory; i++) {
        Allocation *a = allocation_of(graph->node[i]);
        if (a) a->instantiated = true;
    }
    return cudaSuccess;
}

void sim_graph_memory_end(cudaGraph_t graph)
{
    for (int i = 0; i < graph->n && graph->n_memory; i++) {
        Allocation *a = allocation_of(graph->node[i]);
        if (a) a->instantiated = false;
    }
}

cudaError_t sim_graph_memory_launch(cudaGraph_t graph, unsigned long long flags,
                                    cudaStream_t stream, const void *site)
{
    for (int i = 0; i < graph->n && graph->n_memory; i++) {
        Allocation *a = allocation_of(graph->node[i]);
        if (!a) continue;
        const void *before = a->launched;
        a->launched = site;
        if (!sim_allocated_at(a->ptr)) continue;
        if (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) {
            cudaError_t error = sim_free_on_stream(a->ptr, stream, site);
            if (error != cudaSuccess) return error;
            continue;
        }
        char where[256], made[256], first[256];
        gpulog_where(site, where, sizeof where);
        gpulog_where(graph->node[i]->site, made, sizeof made);
        gpulog_where(before, first, sizeof first);
        sim_facts_call("cudaGraphLaunch", site, SIM_NO_STREAM);
        sim_facts_call(graph->node[i]->name, graph->node[i]->site, SIM_NO_STREAM);
        sim_facts_range(a->ptr, a->bytes);
        sim_report(SIMGPU_CAPTURE, "a graph is launched again before its memory is freed",
                   "cudaGraphLaunch, called at %s,\nlaunches a graph again whose %zu bytes of\n"
                   "%s, captured at %s,\nare still allocated since the launch at %s.\n"
                   "On a GPU it returns \"invalid argument\", as here.\n"
                   "Is a cudaFreeAsync missing, in the graph or after its launch? With\n"
                   "cudaGraphInstantiateFlagAutoFreeOnLaunch a launch frees it.",
                   where, a->bytes, graph->node[i]->name, made, first);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
