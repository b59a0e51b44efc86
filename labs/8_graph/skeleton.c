/* Lab 8, first half: a step as a graph. Queued once, launched as one thing.
 *
 * A step of GPT-2 is some hundreds of calls, and each costs the host a few microseconds. Where the
 * kernels are short, the GPU waits for the host. A graph keeps the calls: the host makes one.
 *
 *     host     queue, queue, queue …  | launch | launch | launch
 *     streams  (captured: nothing)    | step 1          | step 2
 *
 * A graph is what was queued, with the numbers that it was queued with. So a step that is launched
 * again and again is the same each time: its numbers are data on the device, which the graph's
 * first node copies from pinned memory when it runs; a decision of the host becomes a factor; and
 * each stream that takes part is waited for at the end.
 *
 * Interface:
 *   step_numbers, step_clip, step_update      the parts of a step that the host took part in
 *   step_queue                                a whole step
 *   step_graph_capture, step_graph_launch     once, and each time
 *   step_calls                                what the graph says of the collectives' order
 */
// Lab 8. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/8_graph/handout.md; `make grade LAB=8` says how far you are.
#include "step_graph.h"

#include <math.h>
#include <stdlib.h>

#include "kernels.h"

// ---- The parts of a step ----

void step_numbers(const AdamWConfig *config, int t, StepNumbers *out)
{
    // TODO L8.1: The three numbers, each bitwise what task 5's kernel works out
    // (lib/host/optimizer.c).
    // Hint: The power in double, the difference in double: where does it become a float?
    NOT_YET("L8.1");
}

Status step_clip(StepGraph *graph)
{
    FsdpRoot *root = graph->opt->root;
    FsdpContext *ctx = graph->opt->ctx;
    // TODO L8.2: On the compute stream: graph->squares has the sum of all gradients' squares, over
    // units and ranks; graph->clip has the norm and the factor; and each gradient shard is
    // multiplied by that factor.
    // Hint: In which three places did task 5's version need the host? What of that is left here?
    // Hint: A kernel adds to squares. What is in it when the graph is launched for the second time?
    NOT_YET("L8.2");
}

Status step_update(StepGraph *graph)
{
    const FsdpAdamW *opt = graph->opt;
    const AdamWConfig *c = &opt->config;
    cudaStream_t stream = opt->ctx->compute_stream;
    TRY(extension_check_sharded(opt->root));
    // TODO L8.3: Every shard has made one step with the numbers in graph->numbers, and its padding
    // is zero.
    // Hint: Which numbers of *c may be a kernel's arguments here, and which one must not?
    NOT_YET("L8.3");
}

// What comes after the pass.
static Status queue_update(StepGraph *graph)
{
    cudaStream_t stream = graph->opt->ctx->compute_stream;
    if (graph->options.max_norm > 0.0f) {
        TRY(step_clip(graph));
        CUDA_TRY(cudaMemcpyAsync(graph->norm, graph->clip, sizeof *graph->norm,
                                 cudaMemcpyDeviceToHost, stream));
    }
    return step_update(graph);
}

Status step_queue(StepGraph *graph)
{
    FsdpContext *ctx = graph->opt->ctx;
    const StepGraphOptions *options = &graph->options;
    // TODO L8.4: These are queued, as step_graph.h says: the numbers' copy; the other streams'
    // waits for the compute stream; the pass; the update (queue_update); the compute stream's
    // waits for them.
    // Hint: Which stream's work after the last backward has nobody waited for? (Task 3 frees late.)
    NOT_YET("L8.4");
}

// ---- Captured once, launched each time ----

// Drops a capture that is under way, or the graph of it.
static void drop_graph(StepGraph *graph)
{
    if (graph->exec != NULL) cudaGraphExecDestroy(graph->exec);
    if (graph->graph != NULL) cudaGraphDestroy(graph->graph);
    graph->exec = NULL;
    graph->graph = NULL;
}

Status step_graph_capture(StepGraph *graph)
{
    cudaStream_t stream = graph->opt->ctx->compute_stream;
    if (graph->exec != NULL) return fail(ERR_ARGUMENT, "a step is captured already");
    // TODO L8.5: graph->graph is what step_queue queues, and graph->exec its executable. If
    // anything fails, the capture has ended, and both are NULL.
    // Hint: step_queue fails in the middle. Is the stream still capturing?
    NOT_YET("L8.5");
}

Status step_graph_launch(StepGraph *graph)
{
    FsdpAdamW *opt = graph->opt;
    if (graph->exec == NULL) return fail(ERR_ARGUMENT, "no step is captured: step_graph_capture");
    // TODO L8.6: The step runs with the present rate and the next t. opt->t has counted it, the
    // root knows that its shards are written (fsdp_shards_written), and graph->launched says when
    // it is done. With `accumulates` there are no numbers, and nothing is counted.
    // Hint: graph->host is read when the graph runs. When may the next launch write there?
    NOT_YET("L8.6");
}

// ---- What the graph says ----

// reached[i]: a path leads from `node` to node i, or the other way round where `back`.
static void reach(const StepTrace *trace, int node, bool back, bool *reached)
{
    for (int i = 0; i < trace->n_nodes; i++) reached[i] = i == node;
    for (bool more = true; more;) {
        more = false;
        for (int j = 0; j < trace->n_edges; j++) {
            int i = back ? trace->n_edges - 1 - j : j; // most edges are in the graph's order
            int from = trace->edges[i][back], to = trace->edges[i][!back];
            if (!reached[from] || reached[to]) continue;
            reached[to] = more = true;
        }
    }
}

Status step_calls(const StepTrace *trace, StepCall *out, int max, int *n)
{
    bool *reached = calloc((size_t)trace->n_nodes + 1, sizeof *reached);
    *n = 0;
    if (reached == NULL) return fail(ERR_MEMORY, "no host memory for a record");
    // TODO L8.7: out has the first `max` collectives of the trace; *n counts all of them.
    // Hint: Two streams, and no event between them: does an edge lead from one to the other?
    NOT_YET("L8.7");
    free(reached);
    return OK;
}
