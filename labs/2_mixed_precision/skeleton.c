/* Lab 2, first half: three types. Parameters travel and compute in one, gradients are reduced in
 * another, and the optimizer uses float.
 *
 * A parameter in bf16 cannot be trained: a step of 1/1000 of it is less than half its last bit, and
 * is rounded away. But a forward may read rounded parameters. So the shards stay floats, and a cast
 * comes before the all-gather: half the bytes travel, and unsharded parameters take half the
 * memory.
 *
 *                 shard (float) → cast → all-gather      → forward, backward (param_dtype)
 *     shard's gradient (float) += ÷ W ← reduce-scatter ← cast ← gradient (param_dtype)
 *
 * [Note: where the bits go] Each arrow to a narrower type rounds. Casting a parameter loses
 * nothing, because the shard keeps its bits. Casting a gradient loses bits that the sum could have
 * used; so reduce_dtype is often float while param_dtype is bf16.
 *
 * [Note: two gradients] If the two types differ, there are two buffers. The backward adds to
 * unsharded_grad, in param_dtype. The gradient accumulated in reduce_dtype is put aside, and
 * becomes unsharded_grad after the backward: strategies reduce, keep and free it without knowing
 * its type.
 *
 * Interface:
 *   precision_apply, precision_remove             the switch
 *   precision_all_gather                          cast, then gather
 *   precision_divide_before                       about the root of the factor, for fp16
 *   precision_reduce_input                        cast or add, and divide
 *   precision_pre_backward, precision_post_backward   the hooks
 *   precision_full_state                          the masters
 */
// Lab 2. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/2_mixed_precision/handout.md; `make grade LAB=2` says how far you are.
#include "precision.h"

#include <math.h>
#include <stdlib.h>

#include "kernels.h"
#include "not_yet.h"

Status precision_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    cudaStream_t stream = unit->ctx->all_gather_stream;
    size_t n = (size_t)flat->layout.shard_numel;
    // TODO L2.1: When the all-gather stream has run what is queued, unsharded_param holds the
    // shards of all ranks, in rank order, each rounded to the buffer's type by the rank that owns
    // it. Nothing was allocated. A group of one rank has made no collective.
    // Hint: Where in unsharded_param does this rank's shard belong, and where does an all-gather in
    // place expect it?
    NOT_YET("L2.1");
}

// ---- The switch ----

// Whether the root can have the policy now.
static Status check_root(const FsdpRoot *root, const MixedPrecisionPolicy *policy)
{
    const char *name = root->units[0]->flat.name;
    if (root->extensions->strategy == NULL)
        return fail(ERR_ARGUMENT, "%s has no strategy: call strategy_apply before precision_apply",
                    name);
    if (root->extensions->precision != NULL)
        return fail(ERR_ARGUMENT, "%s has a precision already", name);
    const DType types[] = {policy->param_dtype, policy->reduce_dtype, policy->output_dtype};
    for (int i = 0; i < 3; i++)
        if (types[i] != DTYPE_F32 && types[i] != DTYPE_BF16 && types[i] != DTYPE_F16)
            return fail(ERR_ARGUMENT, "%d is not a DType: float, bf16 or fp16", (int)types[i]);
    for (int i = 0; i < root->n_units; i++) {
        const FlatParam *flat = &root->units[i]->flat;
        if (flat->state != FLAT_SHARDED || flat->unsharded_grad.data != NULL)
            return fail(ERR_ARGUMENT,
                        "%s is in the middle of a step: a policy is put on and taken "
                        "off between steps",
                        flat->name);
    }
    return OK;
}

// Makes the unit hold and gather its unsharded parameter in the policy's types.
static void set_types(FsdpUnit *unit)
{
    const PrecisionState *state = unit->root->extensions->precision;
    FlatParam *flat = &unit->flat;
    // TODO L2.2: The unsharded parameter has the type in which the modules compute. If the shard
    // has another, gather_shards is precision_all_gather, and so is all_gather if that was
    // fsdp_all_gather. The unsharded gradient has the type of the reduction (state->reduce_dtype).
    // The shards have not changed.
    // Hint: Which of the unit's four buffers have memory now, and may a buffer with memory change
    // its type?
    NOT_YET("L2.2");
}

Status precision_apply(Module *module, const MixedPrecisionPolicy *policy)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_root(root, policy));
    if (root->extensions->fp8 != NULL)
        return fail(ERR_ARGUMENT, "%s gathers in FP8: call precision_apply before fp8_apply",
                    module->name);
    PrecisionState *state = calloc(1, sizeof *state);
    PrecisionUnit *units = calloc((size_t)root->n_units, sizeof *units);
    DType before = module->n_children > 0 ? module->children[0]->out_type : module->out_type;
    DType in_type = policy->cast_forward_inputs ? DTYPE_F32 : policy->param_dtype;
    Status status = OK;
    if (state == NULL || units == NULL) status = fail(ERR_MEMORY, "no host memory for a policy");
    if (status == OK) status = extension_push(root, EXTENSION_PRECISION);
    if (status == OK) {
        module_set_type(module, policy->param_dtype);
        status = sequence_add_casts(module, in_type, policy->output_dtype);
        if (status != OK) {
            module_set_type(module, before);
            extension_pop(root);
        }
    }
    if (status != OK) {
        free(units);
        free(state);
        return status;
    }
    *state = (PrecisionState){*policy, root, policy->reduce_dtype, before, units};
    if (mesh_size(&root->ctx->mesh) == 1) state->reduce_dtype = DTYPE_F32;
    root->extensions->precision = state;
    root->ops.full_state = precision_full_state;
    root->extensions->strategy->reduce_input = precision_reduce_input;
    for (int i = 0; i < root->n_units; i++) {
        root->units[i]->hooks[HOOK_PRE_BACKWARD]->fn = precision_pre_backward;
        root->units[i]->hooks[HOOK_POST_BACKWARD]->fn = precision_post_backward;
        set_types(root->units[i]);
    }
    return OK;
}

// Frees what a failed backward has put aside; fsdp_reshard_all has waited for the device. With one
// rank that is the shard, which stays.
static Status free_put_aside(const FsdpUnit *unit)
{
    void *data = precision_of(unit)->reduce.data;
    precision_of(unit)->reduce.data = NULL;
    if (data != NULL && mesh_size(&unit->ctx->mesh) > 1)
        CUDA_TRY(cudaFreeAsync(data, unit->ctx->compute_stream));
    return OK;
}

Status precision_remove(Module *module)
{
    PrecisionState *state = NULL;
    TRY(precision_find(module, &state));
    FsdpRoot *root = state->root;
    TRY(extension_check_last(root, EXTENSION_PRECISION));
    for (int i = 0; i < root->n_units; i++) {
        FsdpUnit *unit = root->units[i];
        TRY(free_put_aside(unit));
        if (unit->flat.unsharded_grad.data != NULL && mesh_size(&root->ctx->mesh) > 1)
            CUDA_TRY(cudaFreeAsync(unit->flat.unsharded_grad.data, // accumulated, never reduced
                                   root->ctx->compute_stream));
        unit->flat.unsharded_grad.data = NULL;
        unit->flat.unsharded_param.dtype = unit->flat.unsharded_grad.dtype = DTYPE_F32;
        flat_set_grad_views(&unit->flat);
    }
    root->extensions->strategy->reduce_input = strategy_reduce_input;
    root->extensions->strategy->divided_before = 1.0f;
    root->extensions->precision = NULL;
    extension_pop(root);
    sequence_remove_casts(module);
    module_set_type(module, state->module_dtype);
    free(state->units);
    free(state);
    return OK;
}

// ---- Gradients ----

float precision_divide_before(DType reduce_dtype, float factor)
{
    float before = 1.0f;
    // TODO L2.3: As precision.h says.
    // Hint: Eight gradients of 20000 in fp16: what is their sum, and what if each is divided by 8
    // first?
    NOT_YET("L2.3");
    return before;
}

Status precision_reduce_input(FsdpUnit *unit, int64_t begin, Buffer *input)
{
    const PrecisionState *state = unit->root->extensions->precision;
    const StrategyState *strategy = unit->root->extensions->strategy;
    PrecisionUnit *own = precision_of(unit);
    cudaStream_t stream = unit->ctx->compute_stream;
    int64_t n = own->left - begin;
    bool casts = state->policy.param_dtype != state->reduce_dtype;
    // TODO L2.4: The n elements from `begin` on that the backward wrote are ready now, if n > 0.
    // If `casts`, own->reduce has them in its type: added if own->adds, else cast. Otherwise they
    // stay in unsharded_grad. If the backward reduces (requires_gradient_sync), they are divided
    // by strategy->divided_before. `left` is the first element that is ready.
    // Hint: May each micro-batch divide what has accumulated? And how do you divide without a
    // kernel that divides?
    NOT_YET("L2.4");
    *input = own->reduce.data != NULL ? own->reduce : unit->flat.unsharded_grad;
    return OK;
}

Status precision_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    const PrecisionState *state = unit->root->extensions->precision;
    StrategyState *strategy = unit->root->extensions->strategy;
    PrecisionUnit *own = precision_of(unit);
    FlatParam *flat = &unit->flat;
    bool one = mesh_size(&unit->ctx->mesh) == 1;
    strategy->divided_before =
        precision_divide_before(state->reduce_dtype, strategy->options.divide_factor);
    own->left = flat->unsharded_grad.numel;
    TRY(free_put_aside(unit));
    if (flat->unsharded_grad.data == NULL) flat->unsharded_grad.dtype = state->reduce_dtype;
    if (flat->unsharded_grad.numel == 0)
        return precision_hook_before(unit, HOOK_PRE_BACKWARD); // all frozen
    if (state->policy.param_dtype == state->reduce_dtype)
        return precision_hook_before(unit, HOOK_PRE_BACKWARD);

    // TODO L2.5: own->reduce is the gradient that an earlier backward has left; if there is one
    // rank in all, it is sharded_grad. own->adds says whether it has memory. unsharded_grad is a
    // new buffer of param_dtype (precision_alloc_grad), zeroed with its padding, and the
    // parameters' gradients are views of it.
    // Hint: Task 4 begins a gradient, too. Why would it have the wrong type, and the wrong size?
    NOT_YET("L2.5");
    return precision_hook_before(unit, HOOK_PRE_BACKWARD);
}

Status precision_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    const PrecisionState *state = unit->root->extensions->precision;
    PrecisionUnit *own = precision_of(unit);
    FlatParam *flat = &unit->flat;
    void *written = flat->unsharded_grad.data;
    if (flat->unsharded_grad.numel == 0)
        return precision_hook_before(unit, HOOK_POST_BACKWARD); // all frozen
    // TODO L2.6: The whole gradient is ready to be reduced (precision_reduce_input), unsharded_grad
    // is the buffer that has it, with the parameters' gradients as its views, and own->reduce has
    // no memory. If the types differ, the gradient that was being reduced is freed before another
    // buffer is allocated, and the buffer that the backward wrote is freed after its last use.
    // Hint: How many gradients exist while the cast runs? Which one is not needed?
    NOT_YET("L2.6");
    return precision_hook_before(unit, HOOK_POST_BACKWARD);
}

// ---- The masters ----

// Makes every unit gather floats, as without a policy, or what the policy says.
static void gather_as(FsdpRoot *root, bool floats)
{
    for (int i = 0; i < root->n_units; i++) {
        FsdpUnit *unit = root->units[i];
        const UnitFunctions *before = extension_before(unit, EXTENSION_PRECISION);
        unit->flat.unsharded_param.dtype = DTYPE_F32;
        unit->all_gather = before->all_gather;
        unit->gather_shards = before->gather_shards;
        if (!floats) set_types(unit);
    }
}

Status precision_full_state(Module *module, StateVisitor visit, void *arg)
{
    FsdpRoot *root = fsdp_unit(module)->root;
    const FsdpRootOps *before = extension_ops_before(root, EXTENSION_PRECISION);
    for (int i = 0; i < root->n_units; i++) {
        const FsdpUnit *unit = root->units[i];
        bool slice = root->extensions->strategy->slices[i].data != NULL && unit->n_indices > 0;
        if (unit->flat.state != FLAT_SHARDED || slice)
            return fail(ERR_ARGUMENT,
                        "%s is unsharded in another type than its shards: call "
                        "fsdp_reshard_all(root) first",
                        unit->flat.name);
    }
    // TODO L2.7: The visitor has received the masters, from before->full_state; afterwards every
    // unit gathers as before (gather_as).
    // Hint: fsdp_full_state calls this function. What happens if this one calls it back?
    NOT_YET("L2.7");
}
