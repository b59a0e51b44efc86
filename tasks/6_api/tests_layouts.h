/* tests_layouts.h: what fully_shard asks of the layout and of flat_create, unit by unit, and what
 * fsdp_units counts meanwhile.
 */
#ifndef TESTS_API_LAYOUTS_H
#define TESTS_API_LAYOUTS_H

#include <string.h>

#include "fsdp.h"
#include "harness.h"
#include "training.h"

enum { MAX = 64 };

// What a layout was asked for: how many parameters, and how many in front are of no block.
static int laid_out, in_front;
static const Module *laid_module;
static const FsdpContext *laid_ctx;

static Status look_at_stream(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    check(stream == laid_ctx->compute_stream,
          "make_flat must give flat_create the compute stream, and gives %s another", flat->name);
    return flat_zero_padding_default(flat, sharded, stream);
}

static Status count_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                           int world, bool align)
{
    static FlatLayoutOps ops;
    Param *of_module[MAX];
    int most = meta_params(laid_module, of_module, MAX);
    check(n > 0 && n <= most,
          "make_flat gives lay_out %d of %d parameters of %s, and some have no owner: how many has "
          "collect_unowned_params taken, if it was called?",
          n, most, name);
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < most && of_module[at] != params[i]) at++;
        check(at < most, "collect_unowned_params takes params[%d], which is no parameter of %s", i,
              name);
    }
    laid_out = n;
    for (in_front = 0; in_front < n && strncmp(params[in_front]->name, "h.", 2) != 0;) in_front++;
    ops = FLAT_LAYOUT_OPS;
    ops.zero_padding = look_at_stream;
    TRY(flat_layout(layout, name, params, n, rank, world, align));
    layout->ops = &ops;
    return OK;
}

// Of what fsdp_units counts, fully_shard of the model makes an array.
static void count_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(3);
    FsdpContext ctx;
    Module *model = spec_create(&spec);
    make_context(&ctx, r);
    check(fsdp_units(model, NULL, 0) == 0, "fsdp_units of a model without units counts %d",
          fsdp_units(model, NULL, 0));
    FsdpOptions options = TEST_OPTIONS;
    options.layout = count_layout;
    laid_ctx = &ctx;
    for (int i = 1; i <= 3; i++) {
        laid_module = model->children[i];
        laid_out = 0;
        need(fully_shard(model->children[i], &ctx, &options));
        const FsdpUnit *unit = fsdp_unit(model->children[i]);
        check(unit != NULL && unit->module == model->children[i],
              "fully_shard gave OK, but module->unit is %s", unit ? "another's" : "NULL");
        check(laid_out > 0 || unit->flat.sharded_param.data != NULL,
              "fully_shard gave OK, but no layout was made: does it call make_flat, and does that "
              "call lay_out?");
        check(unit->flat.sharded_param.data != NULL,
              "make_flat gave OK, but unit->flat has no shard: does it call flat_create?");
        check(unit->root != NULL, "fully_shard gave OK, but the unit has no root, not even itself");
        FsdpUnit *units[MAX] = {0};
        check(fsdp_units(model, NULL, 0) == i, "fsdp_units counts %d units below a model, want %d",
              fsdp_units(model, NULL, 0), i);
        fsdp_units(model, units, i); // room for just these
        check(units[i - 1] == unit, "fsdp_units must write the unit of %s, of %d, to out[%d]",
              model->children[i]->name, i, i - 1);
    }
    Param *params[MAX];
    int wanted = 0;
    for (int i = meta_params(model, params, MAX); i > 0; i--)
        wanted += strncmp(params[i - 1]->name, "h.", 2) != 0;
    laid_module = model;
    check_set_silent(true);
    IGNORE_STATUS(fully_shard(model, &ctx, &options)); // the next body looks at that
    check_set_silent(false);
    check(in_front != wanted || laid_out == wanted,
          "%d parameters are in no unit, and make_flat lays out %d: how many has "
          "collect_unowned_params left in the list?",
          wanted, laid_out);
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

#endif
