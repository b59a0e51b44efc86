/* graph.c: graphs, nodes and edges, and the queries of them. See graph.h.
 *
 * Interface: graph.h; cudaGraphCreate, cudaGraphDestroy, cudaGraphClone, cudaGraphGetNodes,
 * cudaGraphGetRootNodes, cudaGraphGetEdges, cudaGraphNodeGetDependencies,
 * cudaGraphNodeGetDependentNodes, cudaGraphNodeGetType, cudaGraphAddDependencies.
 */
#include "streams/graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/error.h"
#include "core/leak.h"
#include "report/hooks.h"
#include "report/report.h"

#define MAX_GRAPHS (1 << 16)
#define MAX_NODES (1 << 22)

// As for streams and events, handles are addresses in reserved tables: a wrong one is recognised
// without a read of the memory at its address.
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUgraph_st *graphs, *unused_graphs;
static struct CUgraphNode_st *nodes, *unused_nodes;
static int n_graphs, n_nodes;
_Thread_local SimReplay sim_launching;

static void visit_graphs(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&tables_lock)) return;
    for (int i = 0; i < n_graphs; i++)
        if (graphs[i].alive && graphs[i].site && !graphs[i].captured)
            sim_leak_note(leaks, THING_GRAPH, &graphs[i], 0, graphs[i].site);
    pthread_mutex_unlock(&tables_lock);
}

static SimHooks hooks = {.visit = visit_graphs};

static void *reserve(size_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

bool sim_is_graph(cudaGraph_t graph)
{
    size_t distance = (size_t)((uintptr_t)graph - (uintptr_t)graphs);
    return graphs && distance < (size_t)n_graphs * sizeof *graphs &&
           distance % sizeof *graphs == 0 && graph->alive;
}

bool sim_is_node(cudaGraphNode_t node)
{
    size_t distance = (size_t)((uintptr_t)node - (uintptr_t)nodes);
    return nodes && distance < (size_t)n_nodes * sizeof *nodes && distance % sizeof *nodes == 0 &&
           node->alive;
}

cudaError_t sim_report_no_graph(const SimNoGraph *no, const char *call, const void *site)
{
    char where[256], end[256];
    gpulog_where(site, where, sizeof where);
    gpulog_where(no->destroyed, end, sizeof end);
    sim_facts_call(call, site, SIM_NO_STREAM);
    if (no->destroyed) sim_facts_call(no->destroyer, no->destroyed, SIM_NO_STREAM);
    sim_report(SIMGPU_LIFETIME, no->title,
               "%s, called at %s,\nwas given %p, which %s%s%s.\n"
               "On a GPU this is an invalid argument, or a crash inside the driver.\n"
               "Did %s fail, or is it destroyed before its last use?",
               call, where, no->handle, no->destroyed ? no->destroyer : "is none",
               no->destroyed ? " destroyed at\n" : "", no->destroyed ? end : "", no->maker);
    return sim_leave(cudaErrorInvalidValue);
}

cudaError_t sim_report_graph(const char *call, cudaGraph_t graph, const void *site)
{
    size_t distance = (size_t)((uintptr_t)graph - (uintptr_t)graphs);
    bool was = graphs && distance < (size_t)n_graphs * sizeof *graphs &&
               distance % sizeof *graphs == 0 && graph->destroyed;
    return sim_report_no_graph(&(SimNoGraph){"there is no such graph", "its capture",
                                             "cudaGraphDestroy", graph,
                                             was ? graph->destroyed : NULL},
                               call, site);
}

// ---- Making and freeing ----

cudaGraph_t sim_graph_new(const void *site)
{
    sim_hooks_add(&hooks);
    pthread_mutex_lock(&tables_lock);
    if (!graphs) graphs = reserve(MAX_GRAPHS * sizeof *graphs);
    cudaGraph_t graph = unused_graphs;
    if (graph)
        unused_graphs = graph->next_unused;
    else if (graphs && n_graphs < MAX_GRAPHS)
        graph = &graphs[n_graphs++];
    if (graph) *graph = (struct CUgraph_st){.alive = true, .site = site};
    pthread_mutex_unlock(&tables_lock);
    return graph;
}

static cudaGraphNode_t new_node(void)
{
    pthread_mutex_lock(&tables_lock);
    if (!nodes) nodes = reserve(MAX_NODES * sizeof *nodes);
    cudaGraphNode_t node = unused_nodes;
    if (node)
        unused_nodes = node->next_unused;
    else if (nodes && n_nodes < MAX_NODES)
        node = &nodes[n_nodes++];
    if (node) *node = (struct CUgraphNode_st){.alive = true};
    pthread_mutex_unlock(&tables_lock);
    return node;
}

static void free_node(cudaGraphNode_t node)
{
    if (node->call.users && --*node->call.users == 0) {
        if (node->call.drop) node->call.drop(node->call.args);
        free(node->call.args);
        free(node->call.users);
    }
    free(node->from);
    pthread_mutex_lock(&tables_lock);
    node->alive = false;
    node->next_unused = unused_nodes;
    unused_nodes = node;
    pthread_mutex_unlock(&tables_lock);
}

void sim_graph_free(cudaGraph_t graph)
{
    for (int i = 0; i < graph->n; i++) free_node(graph->node[i]);
    free(graph->node);
    pthread_mutex_lock(&tables_lock);
    graph->alive = false;
    graph->node = NULL;
    graph->n = graph->room = 0;
    graph->next_unused = unused_graphs;
    unused_graphs = graph;
    pthread_mutex_unlock(&tables_lock);
}

// Makes room for one more of `size` bytes; false: no memory.
static bool make_room(void **items, size_t n, size_t *room, size_t size)
{
    if (n < *room) return true;
    size_t more = *room ? 2 * *room : 4;
    void *grown = realloc(*items, more * size);
    if (!grown) return false;
    *items = grown;
    *room = more;
    return true;
}

bool sim_nodes_add(SimNodes *set, cudaGraphNode_t node)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->node[i] == node) return true;
    if (!make_room((void **)&set->node, set->n, &set->room, sizeof *set->node)) return false;
    set->node[set->n++] = node;
    return true;
}

bool sim_nodes_set(SimNodes *set, const cudaGraphNode_t *from, size_t n)
{
    set->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!sim_nodes_add(set, from[i])) return false;
    return true;
}

bool sim_graph_edge(cudaGraphNode_t from, cudaGraphNode_t to)
{
    SimNodes set = {to->from, (size_t)to->n_from, (size_t)to->from_room};
    bool good = sim_nodes_add(&set, from);
    to->from = set.node;
    to->n_from = (int)set.n;
    to->from_room = (int)set.room;
    return good;
}

// Adds a node to its graph, without edges yet; takes `call` over.
static cudaGraphNode_t append(cudaGraph_t graph, SimNodeCall call)
{
    size_t room = (size_t)graph->room;
    if (!make_room((void **)&graph->node, (size_t)graph->n, &room, sizeof *graph->node))
        return NULL;
    graph->room = (int)room;
    cudaGraphNode_t node = new_node();
    if (!node) return NULL;
    node->graph = graph;
    node->index = graph->n;
    node->call = call;
    graph->node[graph->n++] = node;
    return node;
}

static bool is_memory(enum cudaGraphNodeType type)
{
    return type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree;
}

cudaGraphNode_t sim_graph_add(cudaGraph_t graph, SimNewNode what, const cudaGraphNode_t *from,
                              size_t n)
{
    SimNodeCall call = {
        .again = what.again, .drop = what.drop, .takes = what.takes, .bytes = what.bytes};
    call.args = malloc(what.bytes ? what.bytes : 1);
    call.users = malloc(sizeof *call.users);
    cudaGraphNode_t node = call.args && call.users ? append(graph, call) : NULL;
    if (!node) {
        free(call.args);
        free(call.users);
        return NULL;
    }
    if (what.bytes) memcpy(call.args, what.args, what.bytes);
    *call.users = 1;
    node->type = what.type;
    node->name = what.name;
    node->site = what.site;
    node->device = what.device;
    node->together = what.together;
    if (is_memory(what.type)) graph->n_memory++;
    for (size_t i = 0; i < n; i++)
        if (!sim_graph_edge(from[i], node)) return NULL;
    return node;
}

cudaGraph_t sim_graph_copy(cudaGraph_t graph, const void *site)
{
    cudaGraph_t copy = sim_graph_new(site);
    bool good = copy != NULL;
    for (int i = 0; i < graph->n && good; i++) {
        cudaGraphNode_t from = graph->node[i], to = append(copy, from->call);
        if (!(good = to != NULL)) break;
        ++*from->call.users;
        to->type = from->type;
        to->name = from->name;
        to->site = from->site;
        to->device = from->device;
        to->together = from->together;
        to->original = from;
    }
    for (int i = 0; i < graph->n && good; i++)
        for (int j = 0; j < graph->node[i]->n_from && good; j++)
            good = sim_graph_edge(copy->node[graph->node[i]->from[j]->index], copy->node[i]);
    if (good) copy->n_memory = graph->n_memory;
    if (good || !copy) return copy;
    sim_graph_free(copy);
    return NULL;
}

// ---- Order ----

static bool is_next(cudaGraphNode_t node, const bool *taken)
{
    for (int j = 0; j < node->n_from; j++)
        if (!taken[node->from[j]->index]) return false;
    return true;
}

// Takes the node and those that begin with it, if all of them are next.
static void take(cudaGraphNode_t node, bool *taken, cudaGraphNode_t *sorted, int *n)
{
    cudaGraph_t graph = node->graph;
    int end = node->together ? graph->n : node->index + 1;
    for (int i = node->index; i < end; i++)
        if (graph->node[i] == node || graph->node[i]->together == node->together)
            if (!is_next(graph->node[i], taken)) return;
    for (int i = node->index; i < end; i++) {
        if (graph->node[i] != node && graph->node[i]->together != node->together) continue;
        taken[i] = true;
        sorted[(*n)++] = graph->node[i];
    }
}

// Each pass takes, in their order, the nodes whose predecessors are all taken. A captured graph is
// in order already, and needs one pass.
cudaGraphNode_t *sim_graph_sorted(cudaGraph_t graph)
{
    cudaGraphNode_t *sorted = malloc(((size_t)graph->n + 1) * sizeof *sorted);
    bool *taken = calloc((size_t)graph->n + 1, 1);
    int n = 0, before = -1;
    while (sorted && taken && n < graph->n && n > before) {
        before = n;
        for (int i = 0; i < graph->n; i++)
            if (!taken[i]) take(graph->node[i], taken, sorted, &n);
    }
    free(taken);
    if (sorted && n == graph->n) return sorted;
    free(sorted);
    return NULL;
}

void sim_graph_mark_before(cudaGraphNode_t node, bool *seen)
{
    if (seen[node->index]) return;
    SimNodes stack = {NULL, 0, 0};
    seen[node->index] = sim_nodes_add(&stack, node);
    while (stack.n) {
        cudaGraphNode_t at = stack.node[--stack.n];
        for (int j = 0; j < at->n_from; j++) {
            if (seen[at->from[j]->index]) continue;
            seen[at->from[j]->index] = sim_nodes_add(&stack, at->from[j]);
        }
    }
    free(stack.node);
}

// ---- The program's calls ----

#define NEED_GRAPH(graph)                                                                          \
    if (!sim_is_graph(graph)) return sim_report_graph(__func__, graph, SIM_SITE)

cudaError_t cudaGraphCreate(cudaGraph_t *pGraph, unsigned int flags)
{
    SIM_ENTER();
    if (!pGraph || flags) return sim_leave(cudaErrorInvalidValue);
    *pGraph = sim_graph_new(SIM_SITE);
    return *pGraph ? cudaSuccess : sim_leave(cudaErrorMemoryAllocation);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    SIM_ENTER();
    NEED_GRAPH(graph);
    if (graph->captured) return sim_leave(cudaErrorIllegalState);
    graph->destroyed = SIM_SITE;
    sim_graph_free(graph);
    return cudaSuccess;
}

// "Graphs that contain memory nodes may not be cloned" (CUDA programming guide, graph memory
// nodes).
cudaError_t cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
    SIM_ENTER();
    if (!pGraphClone) return sim_leave(cudaErrorInvalidValue);
    NEED_GRAPH(originalGraph);
    if (originalGraph->n_memory) return sim_leave(cudaErrorNotSupported);
    *pGraphClone = sim_graph_copy(originalGraph, SIM_SITE);
    return *pGraphClone ? cudaSuccess : sim_leave(cudaErrorMemoryAllocation);
}

// Like all these queries: without an array it gives the number; else as many as fit, and NULL in
// the rest of the array.
typedef struct Answer {
    cudaGraphNode_t *a, *b;
    size_t *count;
    size_t room, n;
} Answer;

static void put(Answer *answer, cudaGraphNode_t a, cudaGraphNode_t b)
{
    if (answer->n < answer->room) {
        answer->a[answer->n] = a;
        if (answer->b) answer->b[answer->n] = b;
    }
    answer->n++;
}

static cudaError_t finish(Answer *answer, cudaGraphEdgeData *edges)
{
    if (!answer->a) {
        *answer->count = answer->n;
        return cudaSuccess;
    }
    for (size_t i = answer->n; i < answer->room; i++) {
        answer->a[i] = NULL;
        if (answer->b) answer->b[i] = NULL;
    }
    if (answer->n < answer->room) *answer->count = answer->n;
    if (edges) memset(edges, 0, *answer->count * sizeof *edges);
    return cudaSuccess;
}

static Answer begin_answer(cudaGraphNode_t *a, cudaGraphNode_t *b, size_t *count)
{
    return (Answer){a, b, count, a ? *count : 0, 0};
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes_, size_t *numNodes)
{
    SIM_ENTER();
    NEED_GRAPH(graph);
    if (!numNodes) return sim_leave(cudaErrorInvalidValue);
    Answer answer = begin_answer(nodes_, NULL, numNodes);
    for (int i = 0; i < graph->n; i++) put(&answer, graph->node[i], NULL);
    return finish(&answer, NULL);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *pRootNodes,
                                  size_t *pNumRootNodes)
{
    SIM_ENTER();
    NEED_GRAPH(graph);
    if (!pNumRootNodes) return sim_leave(cudaErrorInvalidValue);
    Answer answer = begin_answer(pRootNodes, NULL, pNumRootNodes);
    for (int i = 0; i < graph->n; i++)
        if (!graph->node[i]->n_from) put(&answer, graph->node[i], NULL);
    return finish(&answer, NULL);
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *edgeData, size_t *numEdges)
{
    SIM_ENTER();
    NEED_GRAPH(graph);
    if (!numEdges || !from != !to) return sim_leave(cudaErrorInvalidValue);
    Answer answer = begin_answer(from, to, numEdges);
    for (int i = 0; i < graph->n; i++)
        for (int j = 0; j < graph->node[i]->n_from; j++)
            put(&answer, graph->node[i]->from[j], graph->node[i]);
    return finish(&answer, edgeData);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *pDependencies,
                                         cudaGraphEdgeData *edgeData, size_t *pNumDependencies)
{
    SIM_ENTER();
    if (!sim_is_node(node) || !pNumDependencies) return sim_leave(cudaErrorInvalidValue);
    Answer answer = begin_answer(pDependencies, NULL, pNumDependencies);
    for (int j = 0; j < node->n_from; j++) put(&answer, node->from[j], NULL);
    return finish(&answer, edgeData);
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *pDependentNodes,
                                           cudaGraphEdgeData *edgeData, size_t *pNumDependentNodes)
{
    SIM_ENTER();
    if (!sim_is_node(node) || !pNumDependentNodes) return sim_leave(cudaErrorInvalidValue);
    Answer answer = begin_answer(pDependentNodes, NULL, pNumDependentNodes);
    for (int i = 0; i < node->graph->n; i++)
        for (int j = 0; j < node->graph->node[i]->n_from; j++)
            if (node->graph->node[i]->from[j] == node) put(&answer, node->graph->node[i], NULL);
    return finish(&answer, edgeData);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType)
{
    SIM_ENTER();
    if (!sim_is_node(node) || !pType) return sim_leave(cudaErrorInvalidValue);
    *pType = node->type;
    return cudaSuccess;
}

// "If numDependencies is 0, elements in from and to are ignored. Specifying an existing dependency
// returns an error" (CUDA Runtime API).
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData,
                                     size_t numDependencies)
{
    SIM_ENTER();
    NEED_GRAPH(graph);
    for (size_t i = 0; i < numDependencies; i++) {
        if (!from || !to || !sim_is_node(from[i]) || !sim_is_node(to[i]) ||
            from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i])
            return sim_leave(cudaErrorInvalidValue);
        for (int j = 0; j < to[i]->n_from; j++)
            if (to[i]->from[j] == from[i]) return sim_leave(cudaErrorInvalidValue);
        if (!sim_graph_edge(from[i], to[i])) return sim_leave(cudaErrorMemoryAllocation);
    }
    return cudaSuccess;
}
