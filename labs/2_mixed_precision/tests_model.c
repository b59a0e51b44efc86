/* Lab 2, a policy and its model: the masters, the ends of the model, and what does not go together.
 */
#include <stdlib.h>
#include <string.h>

#include "snapshot.h"
#include "tests.h"

static Status count_visit(const Param *param, const float *values, void *arg)
{
    ++*(int *)arg;
    return OK;
}

static void masters_body(Wrapped *w, const Case *c, const Rank *r)
{
    int visits = 0, want = r->rank == 0 ? meta_params(w->model, NULL, 0) : 0;
    for (int round = 0; round < 2; round++) { // the second after a forward in the policy's type
        size_t live = gpulog_live_bytes(r->device);
        need(fsdp_full_state(w->model, count_visit, &visits));
        check(gpulog_live_bytes(r->device) == live, "fsdp_full_state has left %zu bytes",
              gpulog_live_bytes(r->device) - live);
        check(visits == (round + 1) * want, "the visitor has had %d parameters of %d", visits,
              (round + 1) * want);
        check(w->root->units[0]->flat.unsharded_param.dtype == c->policy->param_dtype,
              "precision_full_state leaves units that gather in another type than the policy's");
        case_train(w, c, r, round);
    }
    need(fsdp_unshard(w->root->units[1]));
    need(fsdp_wait_for_unshard(w->root->units[1]));
    need_refused(fsdp_full_state(w->model, count_visit, &visits), "fsdp_reshard_all(root) first");
    need(fsdp_reshard_all(w->model));
    need(fsdp_full_state(w->model, count_visit, &visits));
}

TEST(the_full_state_is_the_masters)
{
    Case c = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO3, 3);
    run_wrapped(3, masters_body, &c);
    for (int i = 0; i < 4; i += 2) {
        c = typed(spec_mlp(3), PAIRS[i][0], PAIRS[i][1], ALL[i], 2);
        c.bare_state = false;
        run_case(2, &c);
    }
    RULE(masters_after_a_failure);
    RULE(failed_policies_are_told);
}

static void refusals_body(Wrapped *w, const Case *c, const Rank *r)
{
    const MixedPrecisionPolicy bf16 = {BF16, F32, F32, true};
    const MixedPrecisionPolicy bad[] = {
        {(DType)-1, F32, F32, true}, {F32, (DType)3, F32, true}, {F32, F32, (DType)99, true}};
    Module *m = w->model, *block = w->root->units[1]->module;
    FsdpAdamW *opt = &w->adamw;
    need(strategy_remove(m));
    need_refused_whole(m, opt, precision_apply(m, &bf16),
                       "call strategy_apply before precision_apply");
    need(strategy_apply(m, &c->options));
    for (int i = 0; i < 3; i++)
        need_refused_whole(m, opt, precision_apply(m, &bad[i]), "is not a DType");
    need_refused_whole(m, opt, precision_apply(block, &bf16), "is below the root");
    need(fsdp_unshard(w->root->units[1]));
    need_refused(precision_apply(m, &bf16), "in the middle of a step");
    need(fsdp_reshard_all(m));
    Module *cast = cast_create("narrow", m->out_dim, F16, F32), *last;
    int at = m->n_children - 1;
    last = m->children[at];
    m->children[at] = cast;
    need_refused_whole(m, opt, precision_apply(m, &bf16), "takes another type than");
    check(m->out_type == F32 && m->children[0]->out_type == F32,
          "a policy that was refused has left a type");
    m->children[at] = last;
    module_destroy(cast);
    need(precision_apply(m, &bf16));
    need_refused_whole(m, opt, precision_apply(m, &bf16), "has a precision already");
    need_refused_whole(m, opt, strategy_remove(m), "call precision_remove first");
    need(precision_remove(m));
    need_refused_whole(m, opt, precision_remove(m), "has no precision");
    case_train(w, c, r, 0);
}

static void types_body(Wrapped *w, const Case *c, const Rank *r)
{
    Buffer out;
    Batch batch = case_batch(c, 0, r->rank, 0);
    DType in = c->policy->cast_forward_inputs ? F32 : c->policy->param_dtype;
    check(w->model->in_type == in && w->model->out_type == c->policy->output_dtype,
          "the model takes %s and gives %s, want %s and %s", type_name(w->model->in_type),
          type_name(w->model->out_type), type_name(in), type_name(c->policy->output_dtype));
    size_t n = (size_t)c->spec.B * (size_t)c->spec.in_dim;
    float *x = fetch(batch.in, n);
    void *input = alloc_typed(in, n);
    send_typed(in, input, x, n);
    w->run.B = c->spec.B;
    w->run.T = 1;
    need(module_forward_typed(w->model, &w->run, input, &out));
    check(out.dtype == c->policy->output_dtype, "the output is %s", type_name(out.dtype));
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    need_cuda(cudaFree(input));
    free(x);
    batch_destroy(&batch);
}

TEST(a_policy_suits_the_model)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, refusals_body, &c);
    for (int i = 0; i < 8; i++) {
        const MixedPrecisionPolicy policy = {i & 1 ? F16 : BF16, F32, i & 2 ? F32 : BF16,
                                             (i & 4) != 0};
        c.policy = &policy;
        run_wrapped(2, types_body, &c);
    }
    RULE(precision_is_removed);
}
