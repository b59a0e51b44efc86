/* graph_print.c: cudaGraphDebugDotPrint: a graph in the language of Graphviz. */
#include <stdio.h>

#include "core/error.h"
#include "log_writer.h"
#include "streams/graph.h"

static const char *type_name(enum cudaGraphNodeType type)
{
    switch (type) {
    case cudaGraphNodeTypeKernel: return "KERNEL";
    case cudaGraphNodeTypeMemcpy: return "MEMCPY";
    case cudaGraphNodeTypeMemset: return "MEMSET";
    case cudaGraphNodeTypeHost: return "HOST";
    case cudaGraphNodeTypeGraph: return "GRAPH";
    case cudaGraphNodeTypeEmpty: return "EMPTY";
    case cudaGraphNodeTypeWaitEvent: return "EVENT_WAIT";
    case cudaGraphNodeTypeEventRecord: return "EVENT_RECORD";
    case cudaGraphNodeTypeMemAlloc: return "MEM_ALLOC";
    case cudaGraphNodeTypeMemFree: return "MEM_FREE";
    default: return "OTHER";
    }
}

// Prints each node with its kind and call; with the verbose flag also the call's line and device.
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags)
{
    SIM_ENTER();
    if (!sim_is_graph(graph)) return sim_report_graph("cudaGraphDebugDotPrint", graph, SIM_SITE);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return sim_leave(cudaErrorInvalidValue);
    fprintf(file, "digraph graph_1 {\n");
    for (int i = 0; i < graph->n; i++) {
        cudaGraphNode_t node = graph->node[i];
        char where[256];
        gpulog_where(node->site, where, sizeof where);
        fprintf(file, "  node_%d [label=\"%d: %s\\n%s", i, i, type_name(node->type),
                node->name ? node->name : "");
        if (flags & cudaGraphDebugDotFlagsVerbose)
            fprintf(file, "\\n%s\\ndevice %d", where, node->device);
        fprintf(file, "\" shape=box];\n");
    }
    for (int i = 0; i < graph->n; i++)
        for (int j = 0; j < graph->node[i]->n_from; j++)
            fprintf(file, "  node_%d -> node_%d;\n", graph->node[i]->from[j]->index, i);
    fprintf(file, "}\n");
    bool good = !ferror(file);
    return (fclose(file) == 0 && good) ? cudaSuccess : sim_leave(cudaErrorOperatingSystem);
}
