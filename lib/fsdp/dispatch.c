/* dispatch.c: functions that labs can replace: each calls its entry in a table. The defaults are in
 * the six files and root.c.
 *
 * Interface: in fsdp.h, which has an X_default for each X here.
 */
#include "fsdp.h"

// ---- Of a layout ----

const FlatLayoutOps FLAT_LAYOUT_OPS = {
    .valid_numel = flat_valid_numel_default,
    .param_range_in_shard = flat_param_range_in_shard_default,
    .zero_padding = flat_zero_padding_default,
    .wait_for_unshard = fsdp_wait_for_unshard_default,
    .reshard = fsdp_reshard_default,
    .reduce_grad = fsdp_reduce_grad_default,
    .post_forward = fsdp_post_forward_default,
};

LayoutFn fsdp_layout_fn(const FsdpOptions *options)
{
    return options->layout != NULL ? options->layout : flat_layout;
}

Status flat_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank, int world,
                   bool align)
{
    TRY(flat_layout_default(layout, name, params, n, rank, world, align));
    layout->grad_numel = layout->shard_numel;
    layout->ops = &FLAT_LAYOUT_OPS;
    return OK;
}

int64_t flat_valid_numel(const FlatLayout *layout, int rank)
{
    return layout->ops->valid_numel(layout, rank);
}

void flat_param_range_in_shard(const FlatLayout *layout, int i, int rank, int64_t *begin,
                               int64_t *end, int64_t *at)
{
    layout->ops->param_range_in_shard(layout, i, rank, begin, end, at);
}

Status flat_zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    return flat->layout.ops->zero_padding(flat, sharded, stream);
}

Status fsdp_wait_for_unshard(FsdpUnit *unit)
{
    return unit->flat.layout.ops->wait_for_unshard(unit);
}

Status fsdp_reshard(FsdpUnit *unit)
{
    return unit->flat.layout.ops->reshard(unit);
}

Status fsdp_reduce_grad(FsdpUnit *unit)
{
    return unit->flat.layout.ops->reduce_grad(unit);
}

Status fsdp_post_forward(Module *module, void *unit)
{
    return ((FsdpUnit *)unit)->flat.layout.ops->post_forward(module, unit);
}

// ---- Of a root ----

// From now on every parameter has values (offload copies only parameters that have some).
static void shards_written_default(FsdpRoot *root)
{
    for (int i = 0; i < root->n_units; i++) {
        const FlatLayout *layout = &root->units[i]->flat.layout;
        for (int p = 0; p < layout->n; p++)
            if (layout->params[p]->init == INIT_NONE) layout->params[p]->init = INIT_ZERO;
    }
}

const FsdpRootOps FSDP_ROOT_OPS = {
    .adamw_create = fsdp_adamw_create_default,
    .adamw_step = fsdp_adamw_step_default,
    .adamw_destroy = fsdp_adamw_destroy_default,
    .sgd_step = fsdp_sgd_step_default,
    .zero_grad = fsdp_zero_grad_default,
    .grad_norm = fsdp_grad_norm_default,
    .clip_grad_norm = fsdp_clip_grad_norm_default,
    .full_state = fsdp_full_state_default,
    .record_post_forward = fsdp_record_post_forward_default,
    .pop_post_forward = fsdp_pop_post_forward_default,
    .shards_written = shards_written_default,
};

// If the module is not a unit, calls the default, which refuses it or handles the units below it.
static const FsdpRootOps *ops_of(const Module *module)
{
    const FsdpUnit *unit = fsdp_unit(module);
    return unit != NULL ? &unit->root->ops : &FSDP_ROOT_OPS;
}

Status fsdp_adamw_step_by_root(FsdpAdamW *opt)
{
    return opt->root->ops.adamw_step(opt);
}

Status fsdp_adamw_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx, const AdamWConfig *config)
{
    TRY(ops_of(root)->adamw_create(opt, root, ctx, config));
    opt->step = fsdp_adamw_step_by_root;
    return OK;
}

Status fsdp_adamw_step(FsdpAdamW *opt)
{
    TRY(opt->step(opt));
    fsdp_shards_written(opt->root);
    return OK;
}

void fsdp_adamw_destroy(FsdpAdamW *opt)
{
    (opt->root != NULL ? &opt->root->ops : &FSDP_ROOT_OPS)->adamw_destroy(opt);
}

Status fsdp_sgd_step(Module *root, FsdpContext *ctx, float lr, float weight_decay)
{
    TRY(ops_of(root)->sgd_step(root, ctx, lr, weight_decay));
    fsdp_shards_written(fsdp_unit(root)->root);
    return OK;
}

Status fsdp_zero_grad(Module *root, FsdpContext *ctx)
{
    return ops_of(root)->zero_grad(root, ctx);
}

Status fsdp_grad_norm(Module *root, FsdpContext *ctx, float *norm)
{
    return ops_of(root)->grad_norm(root, ctx, norm);
}

Status fsdp_clip_grad_norm(Module *root, FsdpContext *ctx, float max_norm, float *norm)
{
    return ops_of(root)->clip_grad_norm(root, ctx, max_norm, norm);
}

Status fsdp_full_state(Module *root, StateVisitor visit, void *arg)
{
    return ops_of(root)->full_state(root, visit, arg);
}

Status fsdp_record_post_forward(FsdpUnit *unit)
{
    return unit->root->ops.record_post_forward(unit);
}

FsdpUnit *fsdp_pop_post_forward(FsdpUnit *unit)
{
    return unit->root->ops.pop_post_forward(unit);
}

void fsdp_shards_written(FsdpRoot *root)
{
    root->ops.shards_written(root);
}
