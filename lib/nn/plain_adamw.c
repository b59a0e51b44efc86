/* plain_adamw.c: AdamW as one GPU runs it without FSDP: every parameter whole, and both moments
 * with it.
 *
 * The sharded optimizer is compared with it: the kernel is the same, so the bits are. It keeps the
 * run that it is created with, which must outlive it.
 */
#include <stdlib.h>

#include "internal.h"
#include "kernels.h"

struct PlainAdamW {
    AdamWConfig config;
    NnRun *run;
    int t; // steps done
    int n;
    Param **param;  // (n), each once
    float **m, **v; // (n) device, as large as the parameter
};

static int count_places(const Module *module)
{
    int n = module->n_params;
    for (int i = 0; i < module->n_children; i++) n += count_places(module->children[i]);
    return n;
}

// Adds those of the module's parameters that train and are not in the list yet.
static void collect(PlainAdamW *opt, const Module *module)
{
    for (int i = 0; i < module->n_params; i++) {
        bool seen = false;
        for (int j = 0; j < opt->n && !seen; j++) seen = opt->param[j] == module->params[i];
        seen |= module->params[i]->frozen;
        if (!seen) opt->param[opt->n++] = module->params[i];
    }
    for (int i = 0; i < module->n_children; i++) collect(opt, module->children[i]);
}

// A moment of `param`: zeros.
static Status create_moment(NnRun *run, const Param *param, float **moment)
{
    size_t n = (size_t)param_numel(param);
    TRY(run_alloc(run, moment, n));
    CUDA_TRY(cudaMemsetAsync(*moment, 0, n * sizeof **moment, run->stream));
    return OK;
}

static Status fill(PlainAdamW *opt, const Module *model)
{
    size_t places = (size_t)count_places(model) + 1; // calloc(0) may be NULL
    opt->param = calloc(places, sizeof *opt->param);
    opt->m = calloc(places, sizeof *opt->m);
    opt->v = calloc(places, sizeof *opt->v);
    if (opt->param == NULL || opt->m == NULL || opt->v == NULL)
        return fail(ERR_MEMORY, "no host memory for the optimizer of %s", model->name);
    collect(opt, model);
    for (int i = 0; i < opt->n; i++) {
        TRY(create_moment(opt->run, opt->param[i], &opt->m[i]));
        TRY(create_moment(opt->run, opt->param[i], &opt->v[i]));
    }
    return OK;
}

Status plain_adamw_create(PlainAdamW **opt, Module *model, const AdamWConfig *config, NnRun *run)
{
    *opt = NULL;
    PlainAdamW *made = calloc(1, sizeof *made);
    if (made == NULL) return fail(ERR_MEMORY, "no host memory for an optimizer");
    made->config = *config;
    made->run = run;
    Status filled = fill(made, model);
    if (filled == OK)
        *opt = made;
    else
        plain_adamw_destroy(made);
    return filled;
}

Status plain_adamw_step(PlainAdamW *opt)
{
    const AdamWConfig *c = &opt->config;
    for (int i = 0; i < opt->n; i++) {
        TRY(param_has_data(opt->param[i], DTYPE_F32));
        TRY(param_has_grad(opt->param[i], DTYPE_F32));
    }
    opt->t++;
    for (int i = 0; i < opt->n; i++)
        CUDA_TRY(kernel_adamw(opt->param[i]->data.data, opt->param[i]->grad.data, opt->m[i],
                              opt->v[i], (size_t)param_numel(opt->param[i]), c->lr, c->beta1,
                              c->beta2, c->eps, c->weight_decay, opt->t, opt->run->stream));
    return OK;
}

void plain_adamw_set_lr(PlainAdamW *opt, float lr)
{
    opt->config.lr = lr;
}

Status plain_adamw_zero_grad(PlainAdamW *opt)
{
    for (int i = 0; i < opt->n; i++) {
        Param *param = opt->param[i];
        TRY(param_has_grad(param, DTYPE_F32));
        CUDA_TRY(cudaMemsetAsync(param->grad.data, 0, (size_t)param_numel(param) * sizeof(float),
                                 opt->run->stream));
    }
    return OK;
}

void plain_adamw_destroy(PlainAdamW *opt)
{
    if (opt == NULL) return;
    for (int i = 0; i < opt->n; i++) {
        IGNORE_STATUS(run_free(opt->run, &opt->m[i]));
        IGNORE_STATUS(run_free(opt->run, &opt->v[i]));
    }
    free(opt->param);
    free(opt->m);
    free(opt->v);
    free(opt);
}
