/* checkpoints.c: see checkpoints.h. */
#define _GNU_SOURCE
#include "checkpoints.h"
#include "files.h"

#include <stdlib.h>
#include <string.h>

// ---- Values ----

// Exact in float: no two (id, part, step) of small models share a value at one element. The period
// divides no buffer, so that a piece in the place of another one shows.
static float value_of(const Param *param, int64_t i, int part, int step)
{
    return (float)((i % 4093) + 4096 * (part + 3 * (int)(param->id % 32))) + 0.0625f * (float)step;
}

float state_value(int id, int64_t i)
{
    return value_of(&(Param){.id = (uint32_t)id}, i, 0, 1);
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
    if (s->adamw.ctx != NULL) s->adamw.t = step + STATE_MORE_STEPS;
}

// What a wrong value is one of: the parameter, the element, the part and the step that made it.
static bool value_is(float value, const Param *param, int *part, int *step)
{
    int64_t n = numel_of(param);
    for (*step = 0; *step < 128; (*step)++)
        for (*part = 0; *part < 3; (*part)++)
            for (int64_t i = 0; i < n && i < 4093; i++)
                if (value_of(param, i, *part, *step) == value) return true;
    return false;
}

// Whether a parameter has elements in this rank's shard, of which none was read.
static bool nothing_read(const Sharded *s, int u, int part, const float *shard)
{
    const FlatLayout *layout = &s->root->units[u]->flat.layout;
    int64_t at = -(int64_t)s->rank * layout->shard_numel;
    for (int k = 0; k < layout->n; k++) {
        int64_t n = numel_of(layout->params[k]), read = 0, here = 0;
        for (int64_t i = 0; i < n; i++, at++) {
            if (at < 0 || at >= layout->shard_numel) continue;
            here++;
            read += shard[at] != value_of(layout->params[k], i, part, STATE_BEFORE);
        }
        if (here > 0 && read == 0) return true;
    }
    return false;
}

// Why it may be there: LIKELY and the cause, or "".
static const char *cause_of_value(const Sharded *s, float got, const Param *param, int part,
                                  int step, const char *when)
{
    int got_part, got_step;
    if (value_is(got, param, &got_part, &got_step)) {
        if (got_step == STATE_BEFORE)
            return LIKELY "nothing was read to there: which elements of a piece has a file, and "
                          "where do they go (read_piece)?";
        if (got_step != step)
            return strstr(when, "refused") == NULL ? ""
                                                   : LIKELY
                       "it is of the checkpoint that was refused: load_together reads "
                       "when all ranks know that all of it is good";
        return got_part != part
                   ? LIKELY "it is of another part: read_piece finds the tensor by the name of the "
                            "parameter and the piece's part (checkpoint_tensor_name)"
                   : LIKELY "it is another element of the same parameter: read_piece counts in the "
                            "tensor from where the slice begins, in the piece from where that does";
    }
    for (int u = 0; u < s->root->n_units; u++)
        for (int p = 0; p < s->root->units[u]->flat.layout.n; p++)
            if (value_is(got, s->root->units[u]->flat.layout.params[p], &got_part, &got_step))
                return LIKELY "it is of another parameter: where does a piece of it begin on this "
                              "rank (list_pieces)?";
    return "";
}

// The parameter that element i of a rank's shard of unit u belongs to; NULL: padding.
static const Param *param_at(const Sharded *s, int u, int64_t i)
{
    const FlatLayout *layout = &s->root->units[u]->flat.layout;
    int64_t at = (int64_t)s->rank * layout->shard_numel + i;
    for (int k = 0; k < layout->n; k++) {
        if (at < numel_of(layout->params[k])) return layout->params[k];
        at -= numel_of(layout->params[k]);
    }
    return NULL;
}

// Fails the rank at the first element that differs.
static void check_part(const Sharded *s, int u, int part, int step, const char *when)
{
    static const char *const PARTS[] = {"parameters", "first moments", "second moments"};
    const FlatParam *flat = &s->root->units[u]->flat;
    int64_t n = flat->layout.shard_numel, i = 0;
    float *want = expected(s, u, part, step), *got = fetch(part_of(s, u, part), (size_t)n);
    while (i < n && memcmp(&got[i], &want[i], sizeof *got) == 0) i++;
    const Param *param = i < n ? param_at(s, u, i) : NULL;
    const char *cause = "";
    if (param != NULL && nothing_read(s, u, part, got))
        cause = LIKELY "of a parameter nothing was read: where on this rank are the elements of a "
                       "piece (list_pieces)?";
    else if (param != NULL)
        cause = cause_of_value(s, got[i], param, part, step, when);
    check(i == n, "%s: the %s of unit %s: element %lld of rank %d's shard is %g, want %g%s", when,
          PARTS[part], flat->name, (long long)i, s->rank, (double)got[i], (double)want[i], cause);
    free(want);
    free(got);
}

void state_check(const Sharded *s, int step, const char *when)
{
    for (int u = 0; u < s->root->n_units; u++)
        for (int part = 0; part < (s->adamw.ctx != NULL ? 3 : 1); part++)
            check_part(s, u, part, step, when);
    if (s->adamw.ctx != NULL)
        check(s->adamw.t == step + STATE_MORE_STEPS,
              "%s: the optimizer has done %d steps, want %d: that is no position in the data", when,
              s->adamw.t, step + STATE_MORE_STEPS);
}

// ---- Files of other kinds ----

typedef struct FileCall {
    Spec spec;
    StateFile call;
    const char *path, *says;
    int fill, check; // steps: the values before, and those that are to be there after the call
    int *lines, *found;
} FileCall;

static void call_body(const Rank *r, void *arg)
{
    const FileCall *c = arg;
    Sharded s;
    int lines;
    sharded_create(&s, &c->spec, &TEST_OPTIONS, NULL, r);
    state_fill(&s, c->fill);
    if (c->says == NULL) {
        Status status = c->call(c->path, s.model);
        check(status == OK, "%s failed (%s)", c->path, last_error());
    } else {
        said_begin();
        Status status = c->call(c->path, s.model);
        char *said = said_end(&lines);
        __atomic_add_fetch(c->lines, lines, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(c->found, strstr(said, c->says) != NULL, __ATOMIC_SEQ_CST);
        check(status == ERR_IO, "it must be refused, with a line that has '%s'", c->says);
        free(said);
    }
    state_check(&s, c->check, c->says != NULL ? "after what was refused" : "after the import");
    sharded_destroy(&s);
}

void state_export(int world, Spec spec, StateFile save, const char *path)
{
    FileCall c = {.spec = spec, .call = save, .path = path, .fill = 1, .check = 1};
    run_ranks(world, call_body, &c);
}

void state_import(int world, Spec spec, StateFile load, const char *path)
{
    FileCall c = {.spec = spec, .call = load, .path = path, .fill = 2, .check = 1};
    run_ranks(world, call_body, &c);
}

void state_refused(int world, Spec spec, StateFile call, const char *path, const char *says)
{
    FileCall c = {
        spec, call, path, says, 2, 2, shared_alloc(sizeof(int)), shared_alloc(sizeof(int))};
    run_ranks(world, call_body, &c);
    if (*c.lines != 1 || *c.found != 1)
        fail_msg("%d lines, of which %d have '%s': want one", *c.lines, *c.found, says);
}
