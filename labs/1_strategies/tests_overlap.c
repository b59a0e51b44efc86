/* Lab 1, what runs at the same time: the replicas' sum and the next unit's, DDP's buckets and the
 * backward; how buckets are cut, and a parameter that never fills one.
 */
#include <string.h>

#include "draw_model.h"
#include "fsdp.h"
#include "tests.h"

enum { MOST_BUCKETS = 64 };

// ---- Streams and order ----

// The entry of the log that is the n-th of this operation since `first`; -1.
static int64_t nth(uint64_t first, GpuOp op, int n, GpuLogEntry *entry)
{
    for (uint64_t i = first; i < gpulog_length(); i++)
        if (gpulog_get(i, entry) && entry->op == op && n-- == 0) return (int64_t)i;
    return -1;
}

static void overlap_body(Wrapped *w, const Case *c, const Rank *r)
{
    GpuLogEntry all_reduce, next;
    uint64_t first = gpulog_length();
    case_train(w, c, r, 0);
    int64_t a = nth(first, GPU_ALL_REDUCE, 0, &all_reduce);
    int64_t b = nth(first, GPU_REDUCE_SCATTER, 1, &next);
    check(a >= 0 && b >= 0, "the step has no all-reduce, or no second reduce-scatter");
    check(
        all_reduce.stream != next.stream && !log_ordered((uint64_t)a, (uint64_t)b),
        "the second unit's reduce-scatter waits for the first unit's all-reduce: the sum over the "
        "replicas needs a stream and memory of its own, and nothing may wait for it at once: in "
        "reduce_between");
    check_no_race(first);
}

TEST(replicas_overlap_shards)
{
    Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, 4, 2, 1);
    run_wrapped(4, overlap_body, &c);
}

// ---- Buckets ----

// From the end, bucket after bucket, each as the sentence in strategy.h has it.
static void check_buckets(const FlatLayout *layout, int64_t first_bytes, int64_t bytes)
{
    Bucket got[MOST_BUCKETS];
    int n = ddp_buckets(layout, first_bytes, bytes, got, MOST_BUCKETS), last = layout->n;
    check(ddp_buckets(layout, first_bytes, bytes, NULL, 0) == n,
          "ddp_buckets says %d with room for none, and %d with room for all: it counts all of them",
          ddp_buckets(layout, first_bytes, bytes, NULL, 0), n);
    Bucket few[2] = {{.missing = -7}, {.missing = -7}};
    check(ddp_buckets(layout, first_bytes, bytes, few, 1) == n && few[1].missing == -7,
          "ddp_buckets writes more than there is room for");
    for (int b = 0; b < n; b++) {
        int64_t size = b == 0 ? first_bytes : bytes, taken = 0;
        int first = last;
        while (first > 0 && (first == last || taken < size))
            taken += 4 * meta_numel(layout->params[--first]);
        check(got[b].first == first && got[b].last == last && got[b].missing == last - first,
              "bucket %d holds parameters %d to %d and misses %d, want %d to %d, all missing: it "
              "takes "
              "the next from the end while it has fewer than %lld bytes",
              b, got[b].first, got[b].last - 1, got[b].missing, first, last - 1, (long long)size);
        int64_t end = last < layout->n ? layout->offset[last] : layout->numel;
        check(got[b].begin == layout->offset[first] && got[b].end == end,
              "bucket %d is elements %lld to %lld of the flat gradient, want %lld to %lld", b,
              (long long)got[b].begin, (long long)got[b].end, (long long)layout->offset[first],
              (long long)end);
        last = first;
    }
    check(last == 0, "%d buckets leave %d parameters over", n, last);
}

static void buckets_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Module *model = spec_create(&c->spec);
    Param *params[64];
    FlatLayout layout;
    int n = meta_params(model, params, 64);
    need(flat_layout(&layout, "model", params, n, 0, 1, false));
    check_buckets(&layout, c->options.first_bucket_bytes, c->options.bucket_bytes);
    check_buckets(&layout, 1, 1);
    check_buckets(&layout, 1, 1 << 30);
    flat_layout_destroy(&layout);
    module_destroy(model);
}

TEST(buckets_are_filled_from_the_end)
{
    Case c = case_of(spec_mlp(4), STRATEGY_DDP, 1, 1, 1);
    run_ranks(1, buckets_body, &c);
    RULE(buckets_by_hand);
    for (int i = 0; i < 3; i++) {
        c.spec = draw_mlp(5);
        c.options.first_bucket_bytes = draw(1, 400);
        c.options.bucket_bytes = draw(1, 3000);
        drawn_model(&c.spec, 1);
        run_ranks(1, buckets_body, &c);
    }
}

static void buckets_overlap_body(Wrapped *w, const Case *c, const Rank *r)
{
    GpuLogEntry entry, last;
    int n = w->root->extensions->strategy->ddp.n_buckets, sent = 0;
    for (int step = 0; step < 2; step++) {
        uint64_t first = gpulog_length();
        case_train(w, c, r, step);
        int64_t product = -1;
        sent = 0;
        for (uint64_t i = first; i < gpulog_length(); i++)
            if (gpulog_get(i, &last) && last.op == GPU_BLAS) product = (int64_t)i;
        while (nth(first, GPU_ALL_REDUCE, sent, &entry) >= 0) sent++;
        check(sent == n, "a backward made %d all-reduces of %d buckets", sent, n);
        int64_t early = nth(first, GPU_ALL_REDUCE, 0, &entry);
        bool overlaps = early < product;
        check(overlaps, "in step %d the first bucket is sent after the backward's last product: %s",
              step,
              step == 0 ? "ddp_post_backward sends a bucket when it is complete"
                        : "ddp_begin_backward forgets what the backward before has completed");
        check(
            !log_ordered((uint64_t)early, (uint64_t)product),
            "the backward's last product waits for the first bucket: send_bucket is on a stream of "
            "its own, and nothing waits for it at once");
        check_no_race(first);
    }
}

TEST(buckets_overlap_the_backward)
{
    Case c = case_of(spec_mlp(4), STRATEGY_DDP, 2, 2, 1);
    run_wrapped(2, buckets_overlap_body, &c);
    RULE(complete_buckets_are_sent);
}

// A backward that leaves out what is below it.
static Status skip_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    size_t bytes = (size_t)(run->B * run->T) * (size_t)self->in_dim * sizeof(float);
    if (din != NULL) CUDA_TRY(cudaMemsetAsync(din, 0, bytes, run->stream));
    return OK;
}

static void missing_body(Wrapped *w, const Case *c, const Rank *r)
{
    Param *params[8];
    float *logits = NULL, *dlogits = NULL, *din = NULL, loss;
    Module *left_out = w->model->children[c->spec.gpt2 ? w->model->n_children - 1 : 1];
    Hook **hooks = &left_out->hooks[HOOK_POST_BACKWARD], *kept = *hooks;
    meta_params(left_out, params, 8);
    Batch batch = case_batch(c, 0, r->rank, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need(module_forward(w->model, &w->run, batch.in, &logits));
    need(cross_entropy(&w->run, logits, batch.targets, c->spec.B * c->spec.T, c->spec.vocab, &loss,
                       &dlogits));
    if (r->rank == 1) left_out->backward = skip_backward;
    if (r->rank == 1 && c->spec.gpt2) *hooks = NULL; // it has no module below it to leave out
    Status status = module_backward(w->model, &w->run, dlogits, &din);
    *hooks = kept;
    // With shards it is a gradient of zeros: a unit's reduction is always queued.
    bool named = r->rank == 1 && c->options.strategy == STRATEGY_DDP;
    if (named)
        check(status == ERR_ARGUMENT,
              "the backward of %s was left out, and it was not refused: status %d; the gradient of "
              "%s is complete after the backward of every module that holds it",
              left_out->name, status, params[0]->name);
    check(named || status == OK, "rank %d failed because rank 1 left out a module: %s", r->rank,
          check_last());
    check(!named || strstr(check_last(), params[0]->name) != NULL,
          "the line of ddp_reduce must name %s, the first parameter whose gradient is not complete "
          "(done, uses), and says: %s",
          params[0]->name, check_last());
    need_cuda(cudaStreamSynchronize(r->stream));
    need(module_discard(w->model, &w->run));
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, r->stream));
    batch_destroy(&batch);
}

TEST(a_missing_gradient_is_named)
{
    for (int s = STRATEGY_DDP; s <= STRATEGY_ZERO3; s++) {
        Case c = case_of(spec_mlp(4), (Strategy)s, 2, 1, 1);
        run_wrapped(2, missing_body, &c);
    }
    Case whole = case_of(spec_mlp(4), STRATEGY_DDP, 2, 1, 1); // all parameters are in one bucket
    whole.options.first_bucket_bytes = 1 << 20;
    run_wrapped(2, missing_body, &whole);
    Case tied = case_of(spec_gpt2(1), STRATEGY_DDP, 2, 1, 1); // the head, tied to the embedding
    run_wrapped(2, missing_body, &tied);
}
