/* rules_layout.c: the seams of a layout that is not flat (layout_rule.h): what is asked of its rule,
 * and when. A fake rule counts, and answers what no flat layout would.
 */
#include <string.h>

#include "harness.h"
#include "layout_rule.h"
#include "rules.h"
#include "training.h"

static struct {
    int out, in, zeroed, steps, reset;
    Status answer;
    FsdpUnit *unit;
} asked;

static int64_t fake_valid(const FlatLayout *layout, int rank)
{
    return 1000 + 10 * layout->world + rank;
}

static void fake_range(const FlatLayout *layout, int i, int rank, int64_t *begin, int64_t *end,
                       int64_t *at)
{
    *begin = 100 * layout->world + 10 * i + rank;
    *end = *begin + 1;
    *at = *begin + 2;
}

static Status fake_zero(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    asked.zeroed += sharded == &flat->sharded_grad && stream != NULL;
    return asked.answer;
}

static Status fake_out(FsdpUnit *unit)
{
    asked.out++;
    asked.unit = unit;
    return asked.answer;
}

static Status fake_in(FsdpUnit *unit)
{
    asked.in++;
    asked.unit = unit;
    return asked.answer;
}

// The memory is there still, and the unit is not sharded.
static void fake_reset(FsdpUnit *unit)
{
    asked.reset += unit->flat.state == FLAT_UNSHARDED && unit->flat.unsharded_param.data != NULL;
}

static const LayoutRule FAKE = {fake_valid, fake_range, fake_zero, fake_out, fake_in, fake_reset},
                        NO_RESET = {fake_valid, fake_range, fake_zero, fake_out, fake_in, NULL};

// ---- Task 2 ----

static void asks_body(const Rank *r, void *arg)
{
    Param a = {.name = "p.1", .ndim = 1, .shape = {4}},
          b = {.name = "p.2", .ndim = 1, .shape = {4}};
    Param *params[2] = {&a, &b};
    FlatLayout layout;
    check_set_silent(true);
    for (int i = 0; i < 2; i++) {
        params[i]->frozen = true;
        Status status = flat_layout(&layout, "unit", params, 2, 0, 2, false);
        check(status == ERR_ARGUMENT && strstr(check_last(), params[i]->name) != NULL,
              "a flat layout with the frozen parameter %s: status %d and the line %s",
              params[i]->name, status, check_last());
        params[i]->frozen = false;
    }
    check_set_silent(false);
    need(flat_layout(&layout, "unit", params, 2, 0, 2, false));
    layout.rule = &FAKE;
    for (int k = 0; k < 4; k++) {
        int64_t begin, end, at;
        int i = k / 2, rank = k % 2;
        flat_param_range_in_shard(&layout, i, rank, &begin, &end, &at);
        check(begin == 200 + 10 * i + rank && end == begin + 1 && at == begin + 2 &&
                  flat_valid_numel(&layout, rank) == 1020 + rank,
              "a layout with a rule of its own is asked for its ranges each time");
        FlatParam flat = {.layout = layout};
        asked.zeroed = 0;
        asked.answer = k % 2 == 0 ? OK : ERR_CUDA;
        check(flat_zero_padding(&flat, &flat.sharded_grad, r->stream) == asked.answer &&
                  asked.zeroed == 1,
              "a layout with a rule of its own zeroes its padding itself");
    }
    layout.rule = NULL;
    flat_layout_destroy(&layout);
}

void rule_layouts_ask_their_rule(void)
{
    run_ranks(1, asks_body, NULL);
}

// ---- Tasks 3 and 4 ----

// A model of one unit, whose layout asks FAKE from now on.
static void make_model(Sharded *s, const Spec *spec, const Rank *r)
{
    sharded_create(s, spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    memset(&asked, 0, sizeof asked);
}

static void copies_body(const Rank *r, void *arg)
{
    const bool *backward = arg;
    Spec spec = spec_mlp(3);
    Sharded s;
    make_model(&s, &spec, r);
    FsdpUnit *unit = s.root->units[1];
    const LayoutRule *none = unit->flat.layout.rule;
    for (int i = 0; i < 5 && !*backward; i++) {
        unit->flat.layout.rule = i % 2 == 0 ? &FAKE : none;
        asked.answer = i == 2 ? ERR_CUDA : OK;
        int before = asked.out;
        need(fsdp_unshard(unit));
        check(asked.out == before, "an all-gather is copied out before anybody waits for it");
        Status status = fsdp_wait_for_unshard(s.root->units[1]);
        check(asked.out == before + (i % 2 == 0) && status == asked.answer,
              "fsdp_wait_for_unshard copies out as the layout's rule has it, once, and says what "
              "that says");
        before = asked.reset;
        if (i == 2) unit->flat.layout.rule = &NO_RESET;
        need(fsdp_reshard(unit));
        need(fsdp_reshard(unit)); // it is sharded: nothing is asked
        check(asked.reset == before + (i % 4 == 0),
              "fsdp_reshard asks the layout's rule, if that has a reset, once, while the unit has "
              "its memory");
    }
    for (int i = 0; i < 4 && *backward; i++) {
        unit->flat.layout.rule = i % 2 == 0 ? &FAKE : none;
        asked.answer = i == 2 ? ERR_CUDA : OK;
        int before = asked.in;
        need(fsdp_begin_grad(unit));
        Status status = fsdp_reduce_grad(unit);
        check(asked.in == before + (i % 2 == 0) && status == asked.answer,
              "fsdp_reduce_grad copies in as the layout's rule has it, once, before the reduction");
        unit->flat.layout.rule = none;
        asked.answer = OK;
        if (status != OK) need(fsdp_reduce_grad(unit));
        need(fsdp_free_reduce_scatter(s.root));
    }
    int64_t numel = unit->flat.unsharded_grad.numel;
    unit->flat.unsharded_grad.numel = 0; // as if all of it were frozen
    for (int i = 0; i < 2 && *backward; i++) {
        need(fsdp_begin_grad(unit));
        check(unit->flat.unsharded_grad.data == NULL, "a unit without a gradient begins one");
        need(fsdp_reduce_grad(unit));
    }
    unit->flat.unsharded_grad.numel = numel;
    unit->flat.layout.rule = none;
    need_cuda(cudaDeviceSynchronize());
    sharded_destroy(&s);
}

void rule_copies_out_after_the_wait(void)
{
    bool backward = false;
    run_ranks(2, copies_body, &backward);
}

void rule_copies_in_before_the_reduction(void)
{
    bool backward = true;
    run_ranks(2, copies_body, &backward);
}

// What was copied out goes at the end of the outermost forward, and not before.
static void copied_out_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    make_model(&s, &spec, r);
    for (int i = 0; i < 2; i++) {
        Batch batch = batch_create(&spec, 1);
        void *buffer = NULL;
        need_cuda(cudaMallocAsync(&buffer, 64, s.ctx.all_gather_stream));
        s.root->copied_out.buffer = buffer;
        need_cuda(cudaEventRecord(s.root->copied_out.event, r->stream));
        need(fsdp_pre_forward(s.model, fsdp_unit(s.model)));
        FsdpUnit *inner = s.root->units[1];
        need(fsdp_pre_forward(inner->module, inner));
        need(fsdp_post_forward(inner->module, inner));
        check(s.root->copied_out.buffer == buffer,
              "an inner forward has freed what was copied out: the outermost one's end does");
        need(fsdp_post_forward(s.model, fsdp_unit(s.model)));
        check(s.root->copied_out.buffer == NULL,
              "what was copied out is still there after the outermost forward");
        need(fsdp_reshard_all(s.model));
        batch_destroy(&batch);
    }
    need_cuda(cudaDeviceSynchronize());
    sharded_destroy(&s);
}

void rule_copied_out_goes_with_the_forward(void)
{
    run_ranks(2, copied_out_body, NULL);
}

// ---- Task 5 ----

static Status fake_step(FsdpAdamW *opt)
{
    asked.steps++;
    return asked.answer;
}

static void step_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(2);
    Sharded s;
    make_model(&s, &spec, r);
    for (int i = 0; i < 4; i++) {
        s.adamw.step = i % 2 == 0 ? fake_step : NULL;
        asked.answer = i == 2 ? ERR_CUDA : OK;
        int t = s.adamw.t, before = asked.steps;
        int64_t updates = s.root->updates;
        Status status = fsdp_adamw_step(&s.adamw);
        check(s.root->updates == updates + 1,
              "fsdp_adamw_step writes the shards, and root->updates does not count it");
        bool own = i % 2 == 0;
        check(asked.steps == before + own && s.adamw.t == t + !own &&
                  status == (own ? asked.answer : OK),
              "step %d with opt->step %s: it was asked %d times, t went from %d to %d, status %d",
              i, own ? "set" : "NULL", asked.steps - before, t, s.adamw.t, status);
    }
    sharded_destroy(&s);
}

void rule_a_step_may_be_anothers(void)
{
    run_ranks(1, step_body, NULL);
}

// ---- Task 6 ----

static int laid_out;

static Status fake_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                          int world, bool align)
{
    laid_out += n;
    return flat_layout(layout, name, params, n, rank, world, align);
}

static void options_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(2);
    for (int i = 0; i < 4; i++) {
        FsdpOptions options = TEST_OPTIONS;
        FsdpContext ctx;
        Module *model = spec_create(&spec);
        options.layout = i % 2 == 0 ? fake_layout : NULL;
        laid_out = 0;
        make_context(&ctx, r);
        need(fully_shard(model, &ctx, &options));
        check(laid_out == (i % 2 == 0 ? 4 : 0),
              "fully_shard with%s a layout of its own had %d parameters laid out by it",
              i % 2 == 0 ? "" : "out", laid_out);
        fsdp_unwrap(model);
        module_destroy(model);
        need(fsdp_context_destroy(&ctx));
    }
}

void rule_layouts_are_the_options(void)
{
    run_ranks(1, options_body, NULL);
}
