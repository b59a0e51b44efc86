/* runtime/graph_memory.h: memory that a graph allocates and frees.
 *
 * A captured cudaMallocAsync reserves an address. At each launch the graph's memory has this
 * address from the node that allocates it until a node frees it, or until a free after the launch
 * (CUDA programming guide, graph memory nodes).
 */
#ifndef SIMGPU_GRAPH_MEMORY_H
#define SIMGPU_GRAPH_MEMORY_H

#include "memory/device.h"
#include "simgpu.h"
#include "streams/graph.h"

// Make nodes of a captured cudaMallocAsync and cudaFreeAsync.
cudaError_t sim_capture_allocation(SimgpuOp *op, SimDevice *device, void **ptr, size_t bytes,
                                   cudaMemPool_t pool);
cudaError_t sim_capture_free(SimgpuOp *op, void *ptr);
// The address that the present allocation of a launch must have; NULL: any.
const void *sim_kept_for_node(void);
// A graph with memory nodes may have one executable at a time: reports a second one.
cudaError_t sim_graph_memory_instantiate(cudaGraph_t graph, const char *call, const void *site);
void sim_graph_memory_end(cudaGraph_t graph); // its executable is destroyed
// Before a launch: memory that an earlier launch allocated and that was not freed is freed on the
// stream, if the flags say so; else it is reported.
cudaError_t sim_graph_memory_launch(cudaGraph_t graph, unsigned long long flags,
                                    cudaStream_t stream, const void *site);

#endif
