/* checkpoints.c: see checkpoints.h.
 */
#define _GNU_SOURCE
#include "checkpoints.h"

#include <stdlib.h>
#include <string.h>

// ---- Values ----

// Exact in float: no two (id, part, step) of small models share a value at one element.
static float value_of(const Param *param, int64_t i, int part, int step)
{
    return (float)((i % 4096) + 4096 * (part + 3 * (int)(param->id % 32))) + 0.0625f * (float)step;
}

static float *part_of(const Sharded *s, int u, int part)
{
    return part == 0   ? s->root->units[u]->flat.sharded_param.data
           : part == 1 ? s->adamw.m[u]
                       : s->adamw.v[u];
}

static int64_t numel_of(const Param *param)
{
    int64_t n = 1;
    for (int d = 0; d < param->ndim; d++) n *= param->shape[d];
    return n;
}

// What unit u's shard of `part` must hold on this rank, shard_numel elements; free it.
static float *expected(const Sharded *s, int u, int part, int step)
{
    const FlatLayout *layout = &s->root->units[u]->flat.layout;
    int64_t n = layout->shard_numel, at = -(int64_t)s->rank * n;
    float *values = calloc((size_t)n, sizeof *values);
    for (Param **param = layout->params; param < layout->params + layout->n; param++) {
        int64_t numel = numel_of(*param);
        for (int64_t i = 0; i < numel; i++, at++)
            if (at >= 0 && at < n) values[at] = value_of(*param, i, part, step);
    }
    return values;
}

void state_fill(Sharded *s, int step)
{
    need_cuda(cudaDeviceSynchronize()); // the copies below are on another stream
    for (int u = 0; u < s->root->n_units; u++) {
        for (int part = 0; part < (s->adamw.ctx != NULL ? 3 : 1); part++) {
            float *values = expected(s, u, part, step);
            send_to(part_of(s, u, part), values,
                    (size_t)s->root->units[u]->flat.layout.shard_numel);
            free(values);
        }
    }
    if (s->adamw.ctx != NULL) s->adamw.t = step;
}

void state_check(const Sharded *s, int step, const char *when)
{
    static const char *const PARTS[] = {"parameters", "first moments", "second moments"};
    for (int u = 0; u < s->root->n_units; u++) {
        const FlatParam *flat = &s->root->units[u]->flat;
        int64_t n = flat->layout.shard_numel;
        for (int part = 0; part < (s->adamw.ctx != NULL ? 3 : 1); part++) {
            float *want = expected(s, u, part, step), *got = fetch(part_of(s, u, part), (size_t)n);
            for (int64_t i = 0; i < n; i++)
                check(memcmp(&got[i], &want[i], sizeof *got) == 0,
                      "%s: the %s of unit %s: element %lld of rank %d's shard is %g, want %g", when,
                      PARTS[part], flat->name, (long long)i, s->rank, (double)got[i],
                      (double)want[i]);
            free(want);
            free(got);
        }
    }
    if (s->adamw.ctx != NULL)
        check(s->adamw.t == step, "%s: the optimizer has done %d steps, want %d", when, s->adamw.t,
              step);
}

int state_step(const Sharded *s)
{
    return s->adamw.t;
}
