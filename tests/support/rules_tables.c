/* rules_tables.c: what has a table entry is asked by it (FlatLayoutOps, FsdpRootOps): whoever calls
 * its own X_default is right for a flat layout alone. See rules.h.
 */
#include "backend.h"
#include "harness.h"
#include "rules.h"
#include "training.h"

#include <stdlib.h>

// ---- Task 2: a layout of the test's ----

// A parameter for each rank, behind two elements of padding; some more follow. The first four
// elements have a gradient.
enum { RANKS = 2, FRONT = 2, SHARD = 8, GRAD = 4 };
static const int64_t NUMEL[RANKS] = {3, 5};

static int64_t own_valid_numel(const FlatLayout *layout, int rank)
{
    return FRONT + NUMEL[rank];
}

static void own_range(const FlatLayout *layout, int i, int rank, int64_t *begin, int64_t *end,
                      int64_t *at)
{
    *begin = 0;
    *end = i == rank ? NUMEL[i] : 0;
    *at = FRONT;
}

static Status own_zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    const int64_t valid = FRONT + NUMEL[flat->layout.rank];
    const Buffer pieces[] = {buffer_range(sharded, 0, FRONT),
                             buffer_range(sharded, valid, SHARD - valid)};
    for (int i = 0; i < 2; i++)
        CUDA_TRY(cudaMemsetAsync(pieces[i].data, 0, buffer_bytes(&pieces[i]), stream));
    return OK;
}

static const FlatLayoutOps OWN = {.valid_numel = own_valid_numel,
                                  .param_range_in_shard = own_range,
                                  .zero_padding = own_zero_padding};

RANK_RULE(create_asks_its_layout, 1)
{
    for (int rank = RANKS - 1; rank >= 0; rank--) {
        Param p[RANKS], *list[RANKS];
        FlatLayout made;
        FlatParam flat;
        float sevens[SHARD], *got;
        for (int i = 0; i < RANKS; i++) {
            p[i] = (Param){.name = "one", .ndim = 1, .shape = {NUMEL[i]}, .init = INIT_ONE};
            list[i] = &p[i];
        }
        for (int i = 0; i < SHARD; i++) sevens[i] = 7.0f;
        need(flat_layout(&made, "unit", list, RANKS, rank, RANKS, false));
        made.shard_numel = SHARD;
        made.padded = RANKS * SHARD;
        made.grad_numel = GRAD;
        made.ops = &OWN;
        const size_t live = gpulog_live_bytes(r->device);
        need(flat_create(&flat, "unit", &made, 42, r->stream));
        check(gpulog_live_bytes(r->device) - live == (SHARD + GRAD) * sizeof(float) &&
                  flat.sharded_grad.numel == GRAD,
              "flat_create of a shard of %d elements, of which %d have a gradient "
              "(layout.grad_numel), takes %zu bytes for both, want %zu",
              SHARD, GRAD, gpulog_live_bytes(r->device) - live, (SHARD + GRAD) * sizeof(float));
        need_cuda(cudaStreamSynchronize(r->stream));
        backend_ignore_reports(); // an uninitialised read would be a consequence of it
        got = fetch(flat.sharded_param.data, SHARD);
        backend_listen();
        for (int i = 0; i < SHARD; i++) {
            const bool valid = i >= FRONT && i < FRONT + NUMEL[rank];
            check(got[i] == (valid ? 1.0f : 0.0f),
                  "flat_create of a layout with functions of its own, which put the ones of rank "
                  "%d at elements %d to %d of its shard and zero the rest: element %d is %g" LIKELY
                  "an X_default is called where X is meant, which asks layout->ops",
                  rank, FRONT, (int)(FRONT + NUMEL[rank] - 1), i, (double)got[i]);
        }
        free(got);
        send_to(flat.sharded_param.data, sevens, SHARD);
        need(flat_zero_padding_default(&flat, &flat.sharded_param, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        got = fetch(flat.sharded_param.data, SHARD);
        for (int i = 0; i < SHARD; i++)
            check(got[i] == (i < FRONT + NUMEL[rank] ? 7.0f : 0.0f),
                  "flat_zero_padding_default of rank %d's shard of sevens, whose layout's "
                  "valid_numel says %d of %d: element %d is %g%s",
                  rank, (int)(FRONT + NUMEL[rank]), SHARD, i, (double)got[i],
                  got[0] == 0.0f // flat_valid_numel_default says that all of it is padding
                      ? LIKELY "an X_default is called where X is meant, which asks layout->ops"
                      : "");
        free(got);
        flat_destroy(&flat);
    }
}

// ---- Tasks 3 and 4: tables that count and pass on ----

static int asked[ASKED_ENTRIES];

static Status count_wait(FsdpUnit *unit)
{
    asked[ASKED_WAIT] += unit->flat.state != FLAT_UNSHARDED; // else there is nothing to do
    return fsdp_wait_for_unshard_default(unit);
}

static Status count_reshard(FsdpUnit *unit)
{
    asked[ASKED_RESHARD] += unit->flat.state != FLAT_SHARDED;
    return fsdp_reshard_default(unit);
}

static Status count_reduce(FsdpUnit *unit)
{
    asked[ASKED_REDUCE]++;
    return fsdp_reduce_grad_default(unit);
}

static Status count_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    asked[ASKED_PADDING]++;
    return flat_zero_padding_default(flat, sharded, stream);
}

static Status count_record(FsdpUnit *unit)
{
    asked[ASKED_RECORD]++;
    return fsdp_record_post_forward_default(unit);
}

void count_entries(Sharded *s)
{
    static FlatLayoutOps counting;
    counting = FLAT_LAYOUT_OPS;
    counting.wait_for_unshard = count_wait;
    counting.reshard = count_reshard;
    counting.reduce_grad = count_reduce;
    counting.zero_padding = count_padding;
    for (int i = 0; i < s->root->n_units; i++) s->root->units[i]->flat.layout.ops = &counting;
    s->root->ops.record_post_forward = count_record;
    for (int i = 0; i < ASKED_ENTRIES; i++) asked[i] = 0;
}

void check_entry_asked(Entry entry, int times, const char *caller)
{
    static const char *const NAME[] = {"wait_for_unshard", "reshard", "reduce_grad", "zero_padding",
                                       "record_post_forward"};
    check(asked[entry] >= times,
          "%s: the table of a unit's layout, or of its root, has another %s, which was asked %d "
          "times, want %d" LIKELY "%s calls an X_default where X is meant, which asks the table, "
          "or does itself what that does",
          caller, NAME[entry], asked[entry], times, caller);
    asked[entry] = 0;
}
