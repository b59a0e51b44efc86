/* stages.c: what given code does for a stage of a pipeline: the policy under which it hands on what
 * it has computed, and the host's wait for the losses. labs/7_pipeline/tests.c has the rest.
 */
#include "harness.h"
#include "strategies.h"

// ---- What one stage hands the next ----

// Of the entry, in bytes, what a message to another stage has; 0: it is none.
static size_t handed_on(const GpuLogEntry *entry)
{
    return entry->op == GPU_SEND ? entry->bytes : 0;
}

static void handed_body(Wrapped *w, const Case *c, const Rank *r)
{
    size_t want =
        (size_t)(c->spec.B * c->spec.T * c->spec.dim * dtype_bytes(c->policy->param_dtype));
    int sends = 0;
    uint64_t first = gpulog_length();
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || handed_on(&entry) == 0) continue;
        sends++;
        check(handed_on(&entry) == want,
              "stage %d hands on %zu bytes, want %zu: numbers of param_dtype", w->ranks.stage,
              handed_on(&entry), want);
    }
    check(sends > 0, "stage %d hands nothing on", w->ranks.stage);
}

TEST(stages_send_narrow_activations)
{
    static const MixedPrecisionPolicy NARROW[] = {{DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                                  {DTYPE_F16, DTYPE_F32, DTYPE_F32, true}};
    for (int stages = 2; stages <= 3; stages++)
        for (int i = 0; i < 2; i++) {
            Case c = case_of(spec_mlp(stages + 2), STRATEGY_ZERO2, stages * 2, 1, 2);
            c.stages = stages;
            c.policy = &NARROW[i];
            run_wrapped(stages * 2, handed_body, &c);
            run_case(stages * 2, &c);
        }
}

// ---- Losses ----

static void unwanted_body(Wrapped *w, const Case *c, const Rank *r)
{
    StageBatches batches;
    stage_batches_create(&batches, w, c, 0);
    for (int wanted = 0; wanted < 2; wanted++) {
        int waits = 0, want = wanted && w->ranks.stage == c->stages - 1;
        uint64_t first = gpulog_length();
        need(pipeline_step(w->pipeline, &w->run, batches.batch, 0.125f, wanted ? w->losses : NULL));
        for (uint64_t i = first; i < gpulog_length(); i++) {
            GpuLogEntry entry;
            bool found = gpulog_get(i, &entry);
            waits += found && (entry.op == GPU_STREAM_SYNC || entry.op == GPU_EVENT_SYNC ||
                               entry.op == GPU_DEVICE_SYNC);
        }
        check(waits == want, "in a step whose losses are %s stage %d waits %d times, want %d",
              wanted ? "wanted" : "not wanted", w->ranks.stage, waits, want);
    }
    need_cuda(cudaDeviceSynchronize());
    stage_batches_destroy(&batches);
}

TEST(only_wanted_losses_make_the_host_wait)
{
    for (int stages = 2; stages <= 3; stages++) {
        Case c = case_of(spec_mlp(stages + 2), STRATEGY_ZERO3, stages, 1, 3);
        c.stages = stages;
        run_wrapped(stages, unwanted_body, &c);
    }
}

SUITE_MAIN("stages")
