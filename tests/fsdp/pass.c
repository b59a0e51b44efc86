/* Several forwards in flight: a module's passes put aside and back (module_pass_*), and a sequence
 * cut down to some of its children (sequence_keep).
 */
#include <stdlib.h>
#include <string.h>

#include "fsdp.h"
#include "training.h"

enum { FLIGHT = 3 };

// The input's gradient and the parameters' after two passes, one after the other or both in flight.
static float *train_both(const Rank *r, const Spec *spec, bool in_flight)
{
    Plain p;
    ModulePass *pass[FLIGHT];
    float *logits[FLIGHT], *dlogits[FLIGHT];
    Batch batch[FLIGHT];
    plain_create(&p, spec, 42, &TEST_ADAMW, r->stream);
    p.run.T = spec->T;
    for (int i = 0; i < FLIGHT; i++) {
        batch[i] = batch_create(spec, (uint64_t)i);
        need(module_pass_create(&pass[i], p.model));
    }
    for (int i = 0; i < FLIGHT; i++) {
        p.run.B = spec->B;
        need(module_forward(p.model, &p.run, batch[i].in, &logits[i]));
        need(cross_entropy(&p.run, logits[i], batch[i].targets, spec->B * spec->T, spec->vocab,
                           NULL, &dlogits[i]));
        if (in_flight)
            need(module_pass_swap(pass[i], p.model));
        else
            need(module_backward(p.model, &p.run, dlogits[i], NULL));
    }
    for (int i = 0; i < FLIGHT && in_flight; i++) {
        need(module_pass_swap(pass[i], p.model));
        need(module_backward(p.model, &p.run, dlogits[i], NULL));
    }
    for (int i = 0; i < FLIGHT; i++) {
        need_cuda(cudaFreeAsync(dlogits[i], r->stream));
        module_pass_destroy(pass[i]);
        need_cuda(cudaDeviceSynchronize());
        batch_destroy(&batch[i]);
    }
    float *grads = plain_grads(&p);
    plain_destroy(&p);
    return grads;
}

static void flight_body(const Rank *r, void *arg)
{
    const Spec *spec = arg;
    Module *model = spec_create(spec);
    size_t n = (size_t)model_numel(model);
    check_leaks();
    float *want = train_both(r, spec, false), *got = train_both(r, spec, true);
    check_equal("the gradient of three passes in flight", got, want, n);
    free(want);
    free(got);
    module_destroy(model);
}

TEST(passes_in_flight)
{
    Spec specs[] = {spec_mlp(3), spec_gpt2(2), spec_llama(2, true)};
    for (int i = 0; i < 3; i++) run_ranks(1, flight_body, &specs[i]);
}

RANK_TEST(what_does_not_fit_is_refused, 1)
{
    Spec spec = spec_mlp(3);
    Plain p;
    ModulePass *pass;
    float *logits;
    plain_create(&p, &spec, 42, &TEST_ADAMW, r->stream);
    Batch batch = batch_create(&spec, 1);
    need(module_pass_create(&pass, p.model));
    check_set_silent(true);
    check(module_pass_swap(pass, p.model->children[0]) == ERR_ARGUMENT,
          "a pass was swapped with a child");
    p.run.B = spec.B;
    p.run.T = spec.T;
    need(module_forward(p.model, &p.run, batch.in, &logits));
    ModulePass *late;
    check(module_pass_create(&late, p.model) == ERR_ARGUMENT && late == NULL,
          "a new pass was made of a module that waits for its backward");
    check(sequence_keep(p.model, 0, 1) == ERR_ARGUMENT,
          "a model was cut that waits for a backward");
    check_set_silent(false);
    need(module_discard(p.model, &p.run));
    module_pass_destroy(pass);
    module_pass_destroy(NULL);
    batch_destroy(&batch);
    plain_destroy(&p);
}

RANK_TEST(a_stage_keeps_its_children, 1)
{
    Spec spec = spec_gpt2(3);
    for (int first = 0; first < 6; first++) {
        for (int last = first; last <= 6; last++) {
            Module *model = spec_create(&spec), *want = spec_create(&spec);
            check_set_silent(true);
            Status status = sequence_keep(model, first, last);
            check_set_silent(false);
            bool right = first < last && last <= want->n_children;
            check((status == OK) == right, "children [%d, %d) of %d were %s", first, last,
                  want->n_children, right ? "refused" : "kept");
            if (right) {
                check(model->n_children == last - first &&
                          model->in_dim == want->children[first]->in_dim &&
                          model->out_dim == want->children[last - 1]->out_dim,
                      "children [%d, %d): %d of them, from %d to %d columns", first, last,
                      model->n_children, model->in_dim, model->out_dim);
                Param *kept[64], *of[64];
                int n = meta_params(model, kept, 64), m = 0;
                for (int i = first; i < last; i++)
                    m += meta_params(want->children[i], of + m, 64 - m);
                if (first == 0 && last == want->n_children) m--; // the tied one, which is in both
                check(n == m, "children [%d, %d) have %d parameters, want %d", first, last, n, m);
                for (int i = 0; i < n; i++)
                    check(kept[i]->id == of[i]->id && strcmp(kept[i]->name, of[i]->name) == 0,
                          "parameter %d of [%d, %d) is %s, want %s", i, first, last, kept[i]->name,
                          of[i]->name);
            }
            module_destroy(model);
            module_destroy(want);
        }
    }
    Module *layer = linear_create("l", 3, 4, true, 0.1f);
    check_set_silent(true);
    check(sequence_keep(layer, 0, 1) == ERR_ARGUMENT, "a layer was cut");
    check_set_silent(false);
    module_destroy(layer);
}

SUITE_MAIN("pass")
