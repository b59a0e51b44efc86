/* Task 3, forward, on deep models and in worlds of more ranks than eight. Drawn from SEED, which is
 * the course's, and not in the archive that students get; grader/course/hidden.py runs it.
 */
#include "claims.h"
#include "draw_model.h"

// Every unit, unsharded, against what it was made from; the one before it has gone by then.
static void gather_body(Sharded *s, const Rank *r, void *arg)
{
    const Shape *shape = arg;
    size_t live = gpulog_live_bytes(r->device);
    need_cuda(cudaDeviceSynchronize());
    for (int c = 0; c < s->model->n_children; c++) {
        FsdpUnit *unit = fsdp_unit(s->model->children[c]);
        if (unit == NULL) continue;
        need(fsdp_unshard(unit));
        need(fsdp_wait_for_unshard(unit));
        check_initial_values(unit, shape->options.seed);
        need(fsdp_reshard(unit));
        need(fsdp_free_all_gather(s->root));
        check(gpulog_live_bytes(r->device) == live, "unit %s left %zu bytes allocated",
              unit->flat.name, gpulog_live_bytes(r->device) - live);
    }
}

TEST(gathers_deep_models_in_odd_worlds)
{
    want_devices(13);
    for (int i = 0; i < 3; i++) {
        Shape shape = {i < 2 ? draw_mlp(20) : draw_gpt2(4), TEST_OPTIONS};
        shape.options.align_shards = draw_chance(50);
        shape.options.seed = draw_word();
        int world = 2 * draw(1, 6) + 1;
        drawn_model(&shape.spec, world);
        run_shape(shape, gather_body, &shape, world);
    }
    Spec spec = draw_mlp(20);
    claim_forward_peak(spec, drawn_world(&spec, 3, 11));
}

SUITE_MAIN("hidden_forward")
