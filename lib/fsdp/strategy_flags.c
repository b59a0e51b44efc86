/* strategy_flags.c: a strategy's flags, which a training loop can set as in FSDP2; the default
 * input of a reduction; and the cleanup after a failed one.
 */
#include "strategy.h"

#include <math.h>

Status strategy_find(const Module *module, StrategyState **state)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    *state = root->extensions->strategy;
    return *state != NULL ? OK : fail(ERR_ARGUMENT, "%s has no strategy", module->name);
}

Status strategy_reduce_input(FsdpUnit *unit, int64_t begin, Buffer *input)
{
    *input = unit->flat.unsharded_grad;
    return OK;
}

float strategy_divisor(const StrategyState *state)
{
    return state->options.divide_factor / state->divided_before;
}

Status strategy_free_sums(StrategyState *state)
{
    if (state == NULL) return OK;
    Buffer *const kept[] = {state->partial, state->slices};
    CUDA_TRY(cudaDeviceSynchronize()); // any stream may still use them
    CUDA_TRY(cudaFree(state->sum.data));
    CUDA_TRY(cudaFree(state->all_reduce_state.buffer));
    state->sum.data = state->all_reduce_state.buffer = NULL;
    for (int i = 0; i < 2 * state->root->n_units; i++) {
        if (kept[i % 2] == NULL) continue;
        CUDA_TRY(cudaFree(kept[i % 2][i / 2].data));
        kept[i % 2][i / 2].data = NULL;
    }
    return OK;
}

Status fsdp_set_requires_gradient_sync(Module *root, bool on)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    state->requires_gradient_sync = on;
    return OK;
}

Status fsdp_set_requires_all_reduce(Module *root, bool on)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    if (state->options.strategy == STRATEGY_DDP)
        return fail(ERR_ARGUMENT, "DDP's reduction is the all-reduce itself: switch "
                                  "fsdp_set_requires_gradient_sync");
    if (state->root->ctx->mesh.replicate.size == 1)
        return fail(ERR_ARGUMENT, "there is one replica, and nothing to all-reduce");
    state->requires_all_reduce = on;
    return OK;
}

Status fsdp_set_is_last_backward(Module *root, bool on)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    state->is_last_backward = on;
    return OK;
}

Status fsdp_set_reshard_after_backward(Module *root, bool on)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    state->reshard_after_backward = on;
    return OK;
}

Status fsdp_set_gradient_divide_factor(Module *root, float factor)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    if (!(factor > 0.0f) || isinf(factor))
        return fail(ERR_ARGUMENT, "a divide factor of %g: it must be positive and finite",
                    (double)factor);
    if (factor != 1.0f && mesh_size(&state->root->ctx->mesh) == 1)
        return fail(ERR_ARGUMENT,
                    "one rank reduces nothing, so nothing is divided: the factor is 1");
    state->options.divide_factor = factor;
    return OK;
}
