/* stages.c: the trainer's model cut into stages. See stages.h. */
#include "stages.h"

#include <stdlib.h>

Status stages_cut(Trainer *t)
{
    TRY(pipeline_mesh(&t->stages, t->comm, t->opt.stages));
    return pipeline_cut(t->model, &t->stages, &t->ties);
}

Status stages_shard(Trainer *t, const FsdpOptions *options)
{
    if (t->opt.strategy == STRATEGY_DDP) return fully_shard(t->model, &t->ctx, options);
    return pipeline_fully_shard(t->model, &t->ctx, options);
}

Status stages_create(Trainer *t)
{
    return pipeline_create(&t->pipeline, t->model, &t->stages, &t->ties, t->opt.schedule,
                           t->opt.accumulate);
}

Status stages_destroy(Trainer *t)
{
    TRY(pipeline_destroy(t->pipeline));
    t->pipeline = NULL;
    return OK;
}

static bool is_last(const Trainer *t)
{
    return t->stages.stage == t->stages.stages - 1;
}

Status stages_step(Trainer *t, int step, float scale, int (*sequences)(const Trainer *, int, int),
                   float *loss)
{
    int n = t->opt.accumulate;
    size_t rows = (size_t)t->opt.B * (size_t)t->opt.T;
    MicroBatch *batches = calloc((size_t)n, sizeof *batches);
    float *losses = calloc((size_t)n, sizeof *losses);
    Status status = ERR_MEMORY;
    for (int i = 0; i < n && batches != NULL; i++)
        batches[i] = (MicroBatch){t->tokens + (size_t)i * rows, t->targets + (size_t)i * rows,
                                  sequences(t, step, i)};
    t->run.T = t->opt.T;
    if (batches == NULL || losses == NULL)
        fail(ERR_MEMORY, "no host memory for %d micro-batches", n);
    else
        status = pipeline_step(t->pipeline, &t->run, batches, scale, losses);
    for (int i = 0; i < n && status == OK && is_last(t); i++)
        *loss += losses[i] * scale * (float)(batches[i].B * t->opt.T) * (float)t->opt.stages;
    free(batches);
    free(losses);
    return status;
}

Status stages_evaluate(Trainer *t, int B, float *loss)
{
    const MicroBatch batch = {t->tokens, t->targets, B};
    *loss = 0.0f;
    TRY(pipeline_evaluate(t->pipeline, &t->run, &batch, 1, loss));
    *loss *= is_last(t) ? (float)t->opt.stages : 0.0f;
    return OK;
}
