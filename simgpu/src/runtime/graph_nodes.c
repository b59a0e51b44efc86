/* graph_nodes.c: the calls that add nodes to a graph.
 *
 * Interface: sim_add_node (graph_nodes.h); cudaGraphAddMemcpyNode1D, cudaGraphAddMemsetNode,
 * cudaGraphAddHostNode, cudaGraphAddEmptyNode.
 */
#include "runtime/graph_nodes.h"

#include "core/error.h"
#include "memory/device.h"

cudaError_t sim_add_node(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *from,
                         size_t n, SimNewNode what, const char *call, const void *site)
{
    if (!sim_is_graph(graph)) return sim_report_graph(call, graph, site);
    if (!node || (n && !from)) return sim_leave(cudaErrorInvalidValue);
    for (size_t i = 0; i < n; i++) {
        if (!sim_is_node(from[i]) || from[i]->graph != graph)
            return sim_leave(cudaErrorInvalidValue);
        for (size_t j = 0; j < i; j++) // "pDependencies may not have any duplicate entries"
            if (from[j] == from[i]) return sim_leave(cudaErrorInvalidValue);
    }
    what.name = call;
    what.site = site;
    what.device = sim_current_device();
    *node = sim_graph_add(graph, what, from, n);
    return *node ? cudaSuccess : sim_leave(cudaErrorMemoryAllocation);
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                     void *dst, const void *src, size_t count,
                                     enum cudaMemcpyKind kind)
{
    SIM_ENTER();
    return sim_add_copy(pGraphNode, graph, pDependencies, numDependencies, dst, src, count, kind,
                        SIM_SITE);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                   const struct cudaMemsetParams *pMemsetParams)
{
    SIM_ENTER();
    const struct cudaMemsetParams *p = pMemsetParams;
    if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !p->width ||
        !p->height)
        return sim_leave(cudaErrorInvalidValue);
    return sim_add_fill(pGraphNode, graph, pDependencies, numDependencies, p, SIM_SITE);
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                 const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                 const struct cudaHostNodeParams *pNodeParams)
{
    SIM_ENTER();
    if (!pNodeParams || !pNodeParams->fn) return sim_leave(cudaErrorInvalidValue);
    return sim_add_node(pGraphNode, graph, pDependencies, numDependencies,
                        sim_host_node(pNodeParams), "cudaGraphAddHostNode", SIM_SITE);
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t *pDependencies, size_t numDependencies)
{
    SIM_ENTER();
    return sim_add_node(pGraphNode, graph, pDependencies, numDependencies,
                        (SimNewNode){.type = cudaGraphNodeTypeEmpty}, "cudaGraphAddEmptyNode",
                        SIM_SITE);
}
