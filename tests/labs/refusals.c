/* What given code of labs 4 and 7 refuses, with the line that it says; and that a refusal leaves
 * everything as it was. tests/labs/pairs.c has the options that do not go with each other.
 */
#include <stdlib.h>

#include "backend.h"
#include "harness.h"
#include "strategies.h"

// ---- Offload ----

static void check_not_offloaded(const Wrapped *w)
{
    check(w->root->extensions->offload == NULL &&
              w->root->ops.adamw_step == fsdp_adamw_step_default,
          "what was refused has left something");
}

RANK_TEST(offload_is_between_strategy_and_precision, 2)
{
    const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    case_wrap(&w, &c, r);
    need(strategy_remove(w.model));
    need_refused(offload_apply(w.model), "call strategy_apply before offload_apply");
    check_not_offloaded(&w);
    need_refused(offload_remove(w.model), "is not offloaded");
    need(strategy_apply(w.model, &c.options));
    fsdp_adamw_destroy(&w.adamw);
    need(precision_apply(w.model, &bf16));
    need_refused(offload_apply(w.model), "call offload_apply before precision_apply");
    need(precision_remove(w.model));
    check_not_offloaded(&w);
    need(offload_apply(w.model));
    need_refused(offload_apply(w.model), "is offloaded already");
    need(precision_apply(w.model, &bf16));
    need_refused(offload_remove(w.model), "call precision_remove first");
    need(precision_remove(w.model));
    need(fsdp_adamw_create(&w.adamw, w.model, &w.ctx, &TEST_ADAMW));
    case_train(&w, &c, r, 0);
    need(fsdp_adamw_step(&w.adamw));
    case_unwrap(&w, r);
}

static void check_pinned(const void *memory, const char *what)
{
    struct cudaPointerAttributes attributes;
    need_cuda(cudaPointerGetAttributes(&attributes, memory));
    check(attributes.type == cudaMemoryTypeHost, "%s: memory of type %d, want pinned host memory",
          what, (int)attributes.type);
}

RANK_TEST(offloaded_shards_are_in_pinned_memory, 1, 3)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    c.offload = true;
    case_wrap(&w, &c, r);
    for (int u = 0; u < w.root->n_units; u++) {
        const FlatParam *flat = &w.root->units[u]->flat;
        check_pinned(flat->sharded_param.data, "a shard of parameters");
        check_pinned(flat->sharded_grad.data, "a shard of gradients");
        check_pinned(w.adamw.m[u], "a first moment");
        check_pinned(w.adamw.v[u], "a second moment");
    }
    case_unwrap(&w, r);
}

// ---- Recomputation ----

RANK_TEST(recomputation_is_put_on_between_passes, 2)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    float *logits, *din = NULL;
    Batch batch = case_batch(&c, 0, 0, 0);
    case_wrap(&w, &c, r);
    need_refused(recompute_apply(w.model, RECOMPUTE_NONE), "not a kind of recomputation");
    need_refused(recompute_apply(w.model, RECOMPUTE_ATTENTION),
                 "no attention that keeps its weights");
    need_refused(recompute_apply_every(w.model, RECOMPUTE_BLOCKS, 9), "one in 9 recomputes");
    need_refused(recompute_apply_every(w.model, RECOMPUTE_BLOCKS, 0), "one in 0 recomputes");
    need_refused(recompute_remove(w.model), "does not recompute");
    Module *blocks[9];
    int n = recompute_modules(w.model, RECOMPUTE_BLOCKS, blocks, 9);
    need(recompute_apply_every(w.model, RECOMPUTE_BLOCKS, 2));
    for (int i = 0; i < n; i++)
        check((blocks[i]->around != NULL) == (i % 2 == 1), "one in 2 recomputes: is block %d one?",
              i);
    need(recompute_remove(w.model));
    w.run.B = c.spec.B;
    w.run.T = c.spec.T;
    need(module_forward(w.model, &w.run, batch.in, &logits));
    need_refused(recompute_apply(w.model, RECOMPUTE_BLOCKS), "in the middle of a pass");
    need(module_backward(w.model, &w.run, logits, &din));
    need_cuda(cudaFreeAsync(din, w.run.stream));
    check(w.root->extensions->recompute == NULL, "what was refused has left something");
    need(recompute_apply(w.model, RECOMPUTE_BLOCKS));
    need_refused(recompute_apply(w.model, RECOMPUTE_BLOCKS), "recomputes already");
    need(module_forward(w.model, &w.run, batch.in, &logits));
    need_refused(recompute_remove(w.model), "in the middle of a pass");
    need(module_backward(w.model, &w.run, logits, &din));
    need_cuda(cudaFreeAsync(din, w.run.stream));
    need(fsdp_zero_grad(w.model, &w.ctx));
    case_train(&w, &c, r, 1);
    case_unwrap(&w, r);
    batch_destroy(&batch);
}

// ---- Stages ----

// One bias is that of the first layer of each of three blocks.
static Module *shared_by_three(void)
{
    Module *model = mlp_create(7, 13, 5, 4);
    check(model != NULL, "the test's model cannot be made");
    Module *first = model->children[0]->children[0];
    for (int i = 1; i < 3; i++) {
        Module *other = model->children[i]->children[0];
        free(other->params[1]);
        other->params[1] = first->params[1];
    }
    return model;
}

RANK_TEST(a_cut_wants_blocks_for_each_stage, 3)
{
    PipelineMesh mesh;
    PipelineTies ties;
    need_refused(pipeline_mesh(&mesh, r->comm, 2), "the stages must divide them");
    need(pipeline_mesh(&mesh, r->comm, 3));
    Module *few = mlp_create(7, 13, 5, 3), *none = linear_create("one", 3, 2, true, 0.1f);
    Module *tied = shared_by_three();
    need_refused(pipeline_cut(few, &mesh, &ties), "2 blocks cannot be 3 stages");
    check(few->n_children == 3, "a model that was refused has been cut");
    need_refused(pipeline_cut(none, &mesh, &ties), "0 blocks cannot be 3 stages");
    need_refused(pipeline_cut(tied, &mesh, &ties), "two can share it");
    check(tied->n_children == 4, "a model that was refused has been cut");
    module_destroy(few);
    module_destroy(none);
    module_destroy(tied);
    need(pipeline_mesh_destroy(&mesh));
}

SUITE_MAIN("refusals")
