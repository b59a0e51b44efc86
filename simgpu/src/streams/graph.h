/* streams/graph.h: graphs: nodes, each a call that a launch makes again, and their dependencies.
 *
 *   graph.c         graphs, nodes and edges, and the queries of them
 *   graph_print.c   cudaGraphDebugDotPrint
 *   capture.c       which streams are captured, and how streams join (capture.h)
 *   capture_calls.c cudaStreamBeginCapture and its kin
 *
 * A graph belongs to one thread at a time ("graph objects are not threadsafe", CUDA Runtime API,
 * Graph Management); the tables of handles have a lock.
 */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config.h"

// The call of a node. Copies of a node share the memory of `args`.
typedef struct SimNodeCall {
    cudaError_t (*again)(cudaGraphNode_t node); // makes the call, on the stream of sim_launching
    void (*drop)(void *args);                   // frees what args points to; NULL: nothing
    // Whether cudaGraphExecUpdate may put such args in the place of these; NULL: any.
    bool (*takes)(const void *args, const void *others);
    void *args; // (bytes), the node's own copy
    size_t bytes;
    int *users; // how many nodes have it
} SimNodeCall;

struct CUgraphNode_st {
    bool alive;
    enum cudaGraphNodeType type;
    cudaGraph_t graph;
    int index; // in its graph
    const char *name;
    const void *site; // of the call
    int device;
    SimNodeCall call;
    cudaGraphNode_t *from; // its dependencies
    int n_from, from_room;
    cudaGraphNode_t original; // of a clone
    const void *together;     // equal for nodes that begin together; NULL: it begins by itself
    struct CUgraphNode_st *next_unused;
};

struct CUgraph_st {
    bool alive;
    const void *site, *destroyed;
    cudaGraphNode_t *node; // in the order in which they were made
    int n, room;
    int n_memory;  // nodes that allocate or free
    bool has_exec; // an executable of it lives
    bool captured; // a capture adds to it
    struct CUgraph_st *next_unused;
};

// NULL: no memory.
cudaGraph_t sim_graph_new(const void *site);
void sim_graph_free(cudaGraph_t graph);
bool sim_is_graph(cudaGraph_t graph);
bool sim_is_node(cudaGraphNode_t node);
// A node after `from` (n), each at most once; args (bytes) are copied. NULL: no memory.
typedef struct SimNewNode {
    enum cudaGraphNodeType type;
    const char *name;
    const void *site;
    int device;
    cudaError_t (*again)(cudaGraphNode_t node);
    void (*drop)(void *args);
    bool (*takes)(const void *args, const void *others);
    const void *together;
    const void *args;
    size_t bytes;
} SimNewNode;
cudaGraphNode_t sim_graph_add(cudaGraph_t graph, SimNewNode what, const cudaGraphNode_t *from,
                              size_t n);
// Adds an edge, if it is not there. False: no memory.
bool sim_graph_edge(cudaGraphNode_t from, cudaGraphNode_t to);
// A copy with the same nodes in the same order; NULL: no memory.
cudaGraph_t sim_graph_copy(cudaGraph_t graph, const void *site);
// Sorts the nodes so that each comes after those for which it waits, and those that begin together
// are neighbours (graph->n, to be freed by the caller). NULL: there is a cycle, or no memory.
cudaGraphNode_t *sim_graph_sorted(cudaGraph_t graph);
// Marks `node` and all nodes that it depends on in seen (graph->n).
void sim_graph_mark_before(cudaGraphNode_t node, bool *seen);
// Reports an invalid handle: cudaErrorInvalidValue.
typedef struct SimNoGraph {
    const char *title, *maker, *destroyer;
    const void *handle, *destroyed;
} SimNoGraph;
cudaError_t sim_report_no_graph(const SimNoGraph *no, const char *call, const void *site);
cudaError_t sim_report_graph(const char *call, cudaGraph_t graph, const void *site);

// A set of nodes that grows.
typedef struct SimNodes {
    cudaGraphNode_t *node;
    size_t n, room;
} SimNodes;
bool sim_nodes_add(SimNodes *nodes, cudaGraphNode_t node); // once; false: no memory
bool sim_nodes_set(SimNodes *nodes, const cudaGraphNode_t *from, size_t n);

// The launch whose calls the thread is making now; launch 0: none.
typedef struct SimReplay {
    uint64_t launch;     // 1, 2 … of the process
    cudaStream_t stream; // for the call, in place of its own; NULL: its own
    const void *site;    // of the call that was captured
    cudaGraphNode_t node;
    const cudaStream_t *together; // of nodes that begin together, in their order
} SimReplay;
extern _Thread_local SimReplay sim_launching;

// A launch, and how far it has run.
typedef struct SimLaunch {
    cudaGraphExec_t exec;
    cudaStream_t stream;
    int device;
    const void *site;
    uint64_t number; // 0: not begun
    bool begun;      // its first step
    int at, n;       // the next step, and how many begin with it
    cudaStream_t together[SIM_MAX_DEVICES];
} SimLaunch;
// Whether the launch is held back: then sim_launch_held makes it later (nccl/launches.c).
extern bool (*sim_hold_launch)(const SimLaunch *l);
// Whether an operation after it is held back, too: then it is this node. NULL: nothing is held.
extern bool (*sim_hold_node)(cudaStream_t stream, const char *call, const void *site,
                             SimNewNode node);
// Runs the launch to its end, or up to NCCL calls, whose node is *stops. When this is called again,
// those calls have been made.
cudaError_t sim_launch_held(SimLaunch *l, cudaGraphNode_t *stops);
cudaGraph_t sim_launched_graph(const SimLaunch *l);

#endif
