/* runtime/graph_memory.h: memory that a graph allocates and frees.
 *
 * A captured cudaMallocAsync keeps an address, which the graph's memory has at each launch, from
 * the node that allocates it to its end: a node that frees it, or a free after the launch (CUDA
 * programming guide, graph memory nodes).
 */
#ifndef SIMGPU_GRAPH_MEMORY_H
#define SIMGPU_GRAPH_MEMORY_H

#include "memory/device.h"
#include "simgpu.h"
#include "streams/graph.h"

// A captured cudaMallocAsync and cudaFreeAsync become nodes.
cudaError_t sim_capture_allocation(SimgpuOp *op, SimDevice *device, void **ptr, size_t bytes,
                                   cudaMemPool_t pool);
cudaError_t sim_capture_free(SimgpuOp *op, void *ptr);
// The address that the allocation under way is to have: a launch's; NULL: any.
const void *sim_kept_for_node(void);
// A graph with memory nodes has one executable at a time: reports another one.
cudaError_t sim_graph_memory_instantiate(cudaGraph_t graph, const char *call, const void *site);
void sim_graph_memory_end(cudaGraph_t graph); // its executable is destroyed
// Before a launch: what an earlier one allocated and nobody freed is freed on the stream, if the
// flags say so, or reported.
cudaError_t sim_graph_memory_launch(cudaGraph_t graph, unsigned long long flags,
                                    cudaStream_t stream, const void *site);

#endif
