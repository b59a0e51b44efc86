/* streams/graph.h: graphs: nodes, each a call that a launch makes again, and what each comes after.
 *
 *   graph.c         graphs, nodes and edges, and what a program may ask about them
 *   graph_print.c   cudaGraphDebugDotPrint
 *   capture.c       which streams are captured, and what joins them (capture.h)
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

// A call as a node keeps it. Copies of a node share what `args` points to.
typedef struct SimNodeCall {
    cudaError_t (*again)(cudaGraphNode_t node); // makes the call, on the stream of sim_launching
    void (*drop)(void *args);                   // frees what args points to; NULL: nothing
    // Whether cudaGraphExecUpdate may put such args in the place of these; NULL: any.
    bool (*takes)(const void *args, const void *others);
    void *args; // (bytes), the node's own copy
    size_t bytes;
    int *users; // nodes that have it
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
    cudaGraphNode_t *from; // what it comes after
    int n_from, from_room;
    cudaGraphNode_t original; // of a clone
    const void *together;     // nodes that begin together have the same; NULL: it begins alone
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
// The nodes so that each comes after those it waits for, those that begin together next to each
// other (graph->n, to be freed by the caller). NULL: there is a cycle, or no memory.
cudaGraphNode_t *sim_graph_sorted(cudaGraph_t graph);
// Marks what `node` comes after, itself included, in seen (graph->n).
void sim_graph_mark_before(cudaGraphNode_t node, bool *seen);
// A handle that is none: cudaErrorInvalidValue, reported.
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

// What the thread makes again now; launch 0: nothing.
typedef struct SimReplay {
    uint64_t launch;     // 1, 2 … of the process
    cudaStream_t stream; // on which the call is made, whatever it says; NULL: what it says
    const void *site;    // of the call that was captured
    cudaGraphNode_t node;
    const cudaStream_t *together; // of nodes that begin together, in their order
} SimReplay;
extern _Thread_local SimReplay sim_launching;

// A launch, and how far it is.
typedef struct SimLaunch {
    cudaGraphExec_t exec;
    cudaStream_t stream;
    int device;
    const void *site;
    uint64_t number; // 0: not begun
    bool begun;      // its first step
    int at, n;       // the next step; those that begin with it, which do so now
    cudaStream_t together[SIM_MAX_DEVICES];
} SimLaunch;
// Whether the launch is held back, and made by sim_launch_held later (nccl/launches.c).
extern bool (*sim_hold_launch)(const SimLaunch *l);
// Whether an operation after one is held back, too: it is such a node then. NULL: none is.
extern bool (*sim_hold_node)(cudaStream_t stream, const char *call, const void *site,
                             SimNewNode node);
// Goes on up to the end, or to calls of NCCL: *stops is their node. They have been made when it is
// called again.
cudaError_t sim_launch_held(SimLaunch *l, cudaGraphNode_t *stops);
cudaGraph_t sim_launched_graph(const SimLaunch *l);

#endif
