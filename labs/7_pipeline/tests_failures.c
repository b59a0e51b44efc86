/* Lab 7, pipeline: what a failed step leaves, NaN norms, sizes beyond 2³¹, what is freed before
 * other memory is taken, and a tie of two stages of which none is the first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "tests.h"

// ---- Sizes ----

static void sizes_body(Wrapped *w, const Case *c, const Rank *r)
{
    enum { SEQUENCES = 1 << 13, T = 1 << 19 }; // 2³² rows
    const MicroBatch batch = {.B = SEQUENCES};
    int stage;
    w->pipeline->run = &w->run;
    w->pipeline->batches = &batch;
    w->run.T = T;
    for (int backward = 0; backward < 2; backward++) {
        const PipelineAction action = {backward == 1, 0};
        Buffer *buffer = pipeline_transfer(w->pipeline, action, true, &stage);
        if (buffer == NULL) continue;
        int64_t columns = backward ? w->model->out_dim : w->model->in_dim;
        check(buffer->numel == (int64_t)SEQUENCES * T * columns,
              "of %d sequences of %d rows of %lld columns pipeline_transfer receives %lld elements",
              SEQUENCES, T, (long long)columns, (long long)buffer->numel);
        *buffer = (Buffer){NULL, DTYPE_F32, 0};
    }
    w->run.T = c->spec.T;
}

void rule_sizes_beyond_32_bits(void)
{
    Case c = cut_of(spec_mlp(4), 3, 1, PIPELINE_1F1B);
    run_wrapped(3, sizes_body, &c);
}

// ---- What is freed before other memory is taken ----

// The most messages that are on the stream of the transfers at a time.
static size_t most_messages(const Pipeline *p, uint64_t first, size_t message)
{
    size_t now = 0, most = 0;
    const void *held[256];
    int n = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e)) continue;
        if (e.op == GPU_ALLOC && e.stream == p->stream && n < 256) {
            held[n++] = e.range[0].ptr;
            now += e.bytes;
        }
        for (int k = 0; k < n && e.op == GPU_FREE; k++) {
            if (held[k] != e.range[0].ptr) continue;
            now -= e.range[0].bytes;
            held[k] = held[--n];
            break;
        }
        if (now > most) most = now;
    }
    return most / message;
}

static void received_body(Wrapped *w, const Case *c, const Rank *r)
{
    int stage = w->ranks.stage, stages = c->stages;
    bool first_stage = stage == 0, last_stage = stage == stages - 1;
    StageBatches batches;
    stage_batches_create(&batches, w, c, 0);
    uint64_t first = gpulog_length();
    need(pipeline_step(w->pipeline, &w->run, batches.batch, 1.0f, NULL));
    need_cuda(cudaDeviceSynchronize());
    size_t message = sizeof(float) * (size_t)c->spec.B * (size_t)c->spec.dim;
    size_t flight = (size_t)pipeline_in_flight(c->kind, stage, stages, c->rounds);
    size_t got = most_messages(w->pipeline, first, message);
    size_t want = (first_stage ? 0 : flight) + (last_stage ? 0 : 1);
    check(got == want,
          "%s, stage %d of %d: at most %zu received buffers are there at a time, want %zu: "
          "pipeline_exchange frees those of the backward that is done before it allocates",
          kind_name(c->kind), stage, stages, got, want);
    // The last stage sends nothing between two forwards, and its compute is nobody's business.
    int64_t before = -1;
    int received = 0;
    for (uint64_t i = first; i < gpulog_length() && last_stage && c->kind == PIPELINE_GPIPE; i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e)) continue;
        if (e.op == GPU_BLAS) before = (int64_t)i;
        if (e.op != GPU_RECV || received++ == 0 || before < 0) continue;
        check(!log_ordered((uint64_t)before, i),
              "the last stage receives input %d after its forward before, which sends nothing: "
              "pipeline_exchange waits for compute where there is something to send or to free",
              received - 1);
    }
    stage_batches_destroy(&batches);
}

void rule_received_buffers_go_first(void)
{
    for (int i = 0; i < 2; i++) {
        Case c = cut_of(spec_mlp(5), 3, 4, KINDS[i]);
        run_wrapped(3, received_body, &c);
    }
}

// ---- A step that fails ----

#ifndef BACKEND_CUDA
#define LEFT_OPEN                                                                                  \
    "a message could not be queued, and its group is still open: what is called next on any "      \
    "communicator would wait in it. %s ends the group in any case"

// Two stages without a world: what sends and what sums says so.
static void no_world_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm;
    StageBatches batches;
    size_t live = gpulog_live_bytes(r->device);
    stage_batches_create(&batches, w, c, 0);
    backend_ignore_reports();
    w->ranks.world = NULL;
    check_set_silent(true);
    Status ties = pipeline_sum_ties(w->pipeline);
    check(ncclGroupEnd() == ncclInvalidUsage, LEFT_OPEN, "swap_pieces");
    Status sum = pipeline_grad_norm(w->pipeline, &norm);
    Status clip = pipeline_clip_grad_norm(w->pipeline, 1.0f, &norm);
    Status step = pipeline_step(w->pipeline, &w->run, batches.batch, 1.0f, NULL);
    check(ncclGroupEnd() == ncclInvalidUsage, LEFT_OPEN, "send_and_receive");
    check_set_silent(false);
    w->ranks.world = r->comm;
    check(sum == ERR_NCCL && clip == ERR_NCCL,
          "no all-reduce of the world can be queued: pipeline_grad_norm and _clip_grad_norm give "
          "status %d and %d, want ERR_NCCL: in sum_all",
          (int)sum, (int)clip);
    check(ties == ERR_NCCL && step == ERR_NCCL,
          "no message can be queued: pipeline_sum_ties and pipeline_step give status %d and %d, "
          "want ERR_NCCL",
          (int)ties, (int)step);
    stage_batches_destroy(&batches);
    need_cuda(cudaDeviceSynchronize());
    need(pipeline_destroy(w->pipeline));
    w->pipeline = NULL;
    need(fsdp_reshard_all(w->model));
    size_t losses = w->ranks.stage == 1 ? (size_t)c->rounds * sizeof(float) : 0;
    check(gpulog_live_bytes(r->device) == live - losses,
          "calls of NCCL failed, and after pipeline_destroy %zd bytes are left",
          (ssize_t)(gpulog_live_bytes(r->device) - live + losses));
    backend_listen();
}
#endif

void rule_a_failed_step_is_told(void)
{
    for (int world = 1; world <= 2; world++) { // of one stage
        Case c = cut_of(spec_mlp(2), 1, 2, PIPELINE_1F1B);
        run_failing_calls(world, &c);
    }
    Case two = cut_of(spec_mlp(3), 2, 1, PIPELINE_1F1B);
    run_failing_calls(2, &two);
}

void rule_without_a_world(void)
{
#ifndef BACKEND_CUDA
    Case tied = cut_of(spec_gpt2(2), 2, 2, PIPELINE_1F1B);
    run_wrapped(2, no_world_body, &tied);
#endif
}

// ---- Norms ----

static void nan_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm, none = NAN;
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    FlatParam *flat = &w->root->units[1]->flat; // a block: no copy of it is elsewhere
    size_t n = (size_t)flat->layout.shard_numel;
    if (r->rank == 0)
        need_cuda(cudaMemcpy(flat->sharded_grad.data, &none, sizeof none, cudaMemcpyHostToDevice));
    float *was = fetch(flat->sharded_grad.data, n);
    need(pipeline_clip_grad_norm(w->pipeline, 0.5f, &norm));
    check(isnan(norm), "a gradient has a NaN, and the norm is %g", (double)norm);
    float *got = fetch(flat->sharded_grad.data, n);
    check(memcmp(got, was, n * sizeof *got) == 0,
          "a norm that is NaN is not larger than the most: pipeline_clip_grad_norm scales nothing");
    free(was);
    free(got);
}

double sum_of_ranks(const Rank *r, double own)
{
    double *device = NULL;
    need_cuda(cudaMalloc((void **)&device, sizeof *device));
    need_cuda(cudaMemcpyAsync(device, &own, sizeof own, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclAllReduce(device, device, 1, ncclDouble, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(&own, device, sizeof own, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(device));
    return own;
}

// Σ of the squares of this rank's elements, but for one parameter.
static double squares_without(const Wrapped *w, const Param *left_out)
{
    double sum = 0.0;
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        float *grad = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
        for (int i = 0; i < flat->layout.n; i++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            for (int64_t k = at; k < at + end - begin && flat->layout.params[i] != left_out; k++)
                sum += (double)grad[k] * (double)grad[k];
        }
        free(grad);
    }
    return sum;
}

// Stages 1 and 2 of four share a bias; nothing of a step stays allocated.
static void middle_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm;
    const Pipeline *p = w->pipeline;
    size_t live = gpulog_live_bytes(r->device);
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    check(gpulog_live_bytes(r->device) == live, "a step with a tied parameter leaves %zd bytes",
          (ssize_t)(gpulog_live_bytes(r->device) - live));
    check(p->n_shared == (w->ranks.stage == 1 || w->ranks.stage == 2),
          "stage %d shares %d parameters", w->ranks.stage, p->n_shared);
    double squares =
        sum_of_ranks(r, squares_without(w, w->ranks.stage == 2 ? p->shared[0].param : NULL));
    need(pipeline_grad_norm(w->pipeline, &norm));
    check(fabs((double)norm - sqrt(squares)) <= 1e-6 * sqrt(squares),
          "stages 1 and 2 of 4 share a parameter: the norm is %.9g, want %.9g, it counts once: "
          "counts",
          (double)norm, sqrt(squares));
}

void rule_norms_of_ties_and_nans(void)
{
    Case c = cut_of(spec_gpt2(2), 2, 2, PIPELINE_1F1B);
    run_wrapped(4, nan_body, &c);
    Case middle = cut_of(spec_mlp(5), 4, 2, PIPELINE_1F1B);
    middle.tied = true;
    run_wrapped(8, middle_body, &middle);
}
