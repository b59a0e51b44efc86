/* runtime/graph_nodes.h: nodes other than kernels, which captures and programs add. */
#ifndef SIMGPU_GRAPH_NODES_H
#define SIMGPU_GRAPH_NODES_H

#include "simgpu.h"
#include "streams/graph.h"

// A node of a host function; runs the function, by its call or at a launch.
SimNewNode sim_host_node(const struct cudaHostNodeParams *params);
cudaError_t sim_host_function(const char *name, cudaStream_t stream,
                              const struct cudaHostNodeParams *params, const void *site);
// A node of cudaMemcpyAsync, of one row.
cudaError_t sim_add_copy(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *from,
                         size_t n, void *dst, const void *src, size_t bytes,
                         enum cudaMemcpyKind kind, const void *site);
// A node of a memset.
cudaError_t sim_add_fill(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *from,
                         size_t n, const struct cudaMemsetParams *params, const void *site);
// Adds a node that a program describes; its dependencies must be in the graph, each once.
cudaError_t sim_add_node(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *from,
                         size_t n, SimNewNode what, const char *call, const void *site);

#endif
