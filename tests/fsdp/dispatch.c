/* What may be done in another way (fsdp.h): each function asks its table, and nobody else, with
 * what it was given, and says what that says. Fakes count, and answer what no default would.
 */
#include <string.h>

#include "harness.h"
#include "training.h"

enum { WAIT, RESHARD, REDUCE, POST, CREATE, ADAMW, DESTROY, SGD, ZERO, NORM, CLIP, STATE, OPS };
static struct {
    int calls[OPS];
    const void *what[OPS], *more;
    float a, b;
    int written, zeroed, laid_out;
    Status answer; // of a layout's functions and of a step
} asked;

static Status note_call(int which, const void *what)
{
    asked.calls[which]++;
    asked.what[which] = what;
    return ERR_IO;
}

static void check_asked(int which, const char *name, Status status, const void *what, int calls)
{
    check(status == ERR_IO && asked.calls[which] == calls && asked.what[which] == what,
          "a table has another %s, which fails: it gives status %d, and has asked it %d times of "
          "%d, with what it was given itself",
          name, (int)status, asked.calls[which], calls);
}

// ---- A layout ----

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

static Status fake_wait(FsdpUnit *unit)
{
    return note_call(WAIT, unit);
}

static Status fake_reshard(FsdpUnit *unit)
{
    return note_call(RESHARD, unit);
}

static Status fake_reduce(FsdpUnit *unit)
{
    return note_call(REDUCE, unit);
}

static Status fake_post(Module *module, void *unit)
{
    asked.more = module;
    return note_call(POST, unit);
}

static const FlatLayoutOps FAKE = {fake_valid,   fake_range,  fake_zero, fake_wait,
                                   fake_reshard, fake_reduce, fake_post};

RANK_TEST(layouts_are_asked, 1)
{
    Param a = {.name = "p.1", .ndim = 1, .shape = {4}},
          b = {.name = "p.2", .ndim = 1, .shape = {4}};
    Param *params[2] = {&a, &b};
    FlatLayout layout;
    need(flat_layout(&layout, "unit", params, 2, 0, 2, false));
    check(layout.ops == &FLAT_LAYOUT_OPS && layout.grad_numel == layout.shard_numel,
          "a flat layout has the default functions, and all of it has a gradient");
    layout.ops = &FAKE;
    for (int k = 0; k < 4; k++) {
        int64_t begin, end, at;
        int i = k / 2, rank = k % 2;
        flat_param_range_in_shard(&layout, i, rank, &begin, &end, &at);
        check(begin == 200 + 10 * i + rank && end == begin + 1 && at == begin + 2 &&
                  flat_valid_numel(&layout, rank) == 1020 + rank,
              "a layout with functions of its own is asked for its ranges each time");
        FlatParam flat = {.layout = layout};
        asked.zeroed = 0;
        asked.answer = k % 2 == 0 ? OK : ERR_CUDA;
        check(flat_zero_padding(&flat, &flat.sharded_grad, r->stream) == asked.answer &&
                  asked.zeroed == 1,
              "a layout with functions of its own zeroes its padding itself");
    }
    flat_layout_destroy(&layout);
}

RANK_TEST(units_ask_their_layout, 2)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = s.root->units[1];
    memset(&asked, 0, sizeof asked);
    for (int i = 1; i <= 2; i++) {
        unit->flat.layout.ops = &FAKE;
        check_asked(WAIT, "wait_for_unshard", fsdp_wait_for_unshard(unit), unit, i);
        check_asked(RESHARD, "reshard", fsdp_reshard(unit), unit, i);
        check_asked(REDUCE, "reduce_grad", fsdp_reduce_grad(unit), unit, i);
        check_asked(POST, "post_forward", fsdp_post_forward(unit->module, unit), unit, i);
        check(asked.more == unit->module, "post_forward was asked with another module");
        unit->flat.layout.ops = &FLAT_LAYOUT_OPS;
        need(fsdp_unshard(unit));
        need(fsdp_wait_for_unshard(unit));
        need(fsdp_reshard(unit));
        check(unit->flat.state == FLAT_SHARDED && asked.calls[RESHARD] == i,
              "another layout's functions were asked, not the unit's");
    }
    sharded_destroy(&s);
}

static Status fake_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                          int world, bool align)
{
    asked.laid_out += n;
    return flat_layout(layout, name, params, n, rank, world, align);
}

RANK_TEST(layouts_are_the_options, 1)
{
    Spec spec = spec_mlp(2);
    for (int i = 0; i < 4; i++) {
        FsdpOptions options = TEST_OPTIONS;
        FsdpContext ctx;
        Module *model = spec_create(&spec);
        options.layout = i % 2 == 0 ? fake_layout : NULL;
        asked.laid_out = 0;
        make_context(&ctx, r);
        need(fully_shard(model, &ctx, &options));
        check(asked.laid_out == (i % 2 == 0 ? 4 : 0),
              "fully_shard with%s a layout of its own had %d parameters laid out by it",
              i % 2 == 0 ? "" : "out", asked.laid_out);
        fsdp_unwrap(model);
        module_destroy(model);
        need(fsdp_context_destroy(&ctx));
    }
}

// ---- What nobody has replaced ----

static void check_set(const char *table, const void *entries, size_t bytes)
{
    void *entry;
    for (size_t at = 0; at < bytes; at += sizeof entry) {
        memcpy(&entry, (const char *)entries + at, sizeof entry);
        check(entry != NULL, "entry %zu of %s is NULL: what is its default?", at / sizeof entry,
              table);
    }
}

// The pointers of a unit and of an optimizer stand between other fields.
#define SET(of, first, last)                                                                       \
    check_set(#first " … " #last, &(of)->first,                                                    \
              (size_t)((const char *)(&(of)->last + 1) - (const char *)&(of)->first))

RANK_TEST(no_entry_is_null, 1, 2)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    check_set("FsdpRootOps", &s.root->ops, sizeof s.root->ops);
    SET(&s.adamw, step, step);
    for (int i = 0; i < s.root->n_units; i++) {
        const FsdpUnit *unit = s.root->units[i];
        check_set("FlatLayoutOps", unit->flat.layout.ops, sizeof *unit->flat.layout.ops);
        SET(unit, all_gather, hooks);
        for (int k = 0; k < HOOK_POINTS; k++)
            check(unit->hooks[k]->fn != NULL, "unit %d has a hook %d without a function", i, k);
    }
    sharded_destroy(&s);
}

// ---- A root ----

static Status fake_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx, const AdamWConfig *config)
{
    memset(opt, 0, sizeof *opt);
    asked.more = root;
    return note_call(CREATE, opt);
}

static void fake_destroy(FsdpAdamW *opt)
{
    note_call(DESTROY, opt);
}

static Status fake_adamw(FsdpAdamW *opt)
{
    return note_call(ADAMW, opt);
}

static Status fake_sgd(Module *root, FsdpContext *ctx, float lr, float weight_decay)
{
    asked.a = lr;
    asked.b = weight_decay;
    return note_call(SGD, root);
}

static Status fake_zero_grad(Module *root, FsdpContext *ctx)
{
    return note_call(ZERO, root);
}

static Status fake_norm(Module *root, FsdpContext *ctx, float *norm)
{
    *norm = 3.0f;
    return note_call(NORM, root);
}

static Status fake_clip(Module *root, FsdpContext *ctx, float max_norm, float *norm)
{
    asked.a = max_norm;
    *norm = 4.0f;
    return note_call(CLIP, root);
}

static Status fake_state(Module *root, StateVisitor visit, void *arg)
{
    asked.more = arg;
    return note_call(STATE, root);
}

static Status visit_nothing(const Param *param, const float *values, void *arg)
{
    return OK;
}

static void count_written(FsdpRoot *root)
{
    asked.written++;
}

static void root_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    FsdpAdamW other, nothing = {0};
    float norm;
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    fsdp_adamw_destroy(&nothing);
    memset(&asked, 0, sizeof asked);
    FsdpRootOps *ops = &s.root->ops, before = *ops;
    *ops = (FsdpRootOps){fake_create,
                         fake_adamw,
                         fake_destroy,
                         fake_sgd,
                         fake_zero_grad,
                         fake_norm,
                         fake_clip,
                         fake_state,
                         before.record_post_forward,
                         before.pop_post_forward,
                         count_written};
    for (int i = 1; i <= 2; i++) {
        check_asked(CREATE, "adamw_create", fsdp_adamw_create(&other, s.model, &s.ctx, &TEST_ADAMW),
                    &other, i);
        check(asked.more == s.model, "adamw_create was asked with another module");
        fsdp_adamw_destroy(&s.adamw);
        check_asked(DESTROY, "adamw_destroy", ERR_IO, &s.adamw, i);
        check_asked(ADAMW, "adamw_step", fsdp_adamw_step(&s.adamw), &s.adamw, i);
        check_asked(SGD, "sgd_step", fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.25f), s.model, i);
        check(asked.a == 0.5f && asked.b == 0.25f, "sgd_step was asked with %g and %g",
              (double)asked.a, (double)asked.b);
        check_asked(ZERO, "zero_grad", fsdp_zero_grad(s.model, &s.ctx), s.model, i);
        check_asked(NORM, "grad_norm", fsdp_grad_norm(s.model, &s.ctx, &norm), s.model, i);
        check(norm == 3.0f, "grad_norm says 3, and fsdp_grad_norm %g", (double)norm);
        check_asked(CLIP, "clip_grad_norm", fsdp_clip_grad_norm(s.model, &s.ctx, 1.5f, &norm),
                    s.model, i);
        check(norm == 4.0f && asked.a == 1.5f, "clipping to %g of 1.5 gives %g", (double)asked.a,
              (double)norm);
        check_asked(STATE, "full_state", fsdp_full_state(s.model, visit_nothing, &s), s.model, i);
        check(asked.more == &s, "full_state was asked with another argument");
    }
    check(asked.written == 0, "steps that failed count as %d that wrote the shards", asked.written);
    *ops = before;
    sharded_destroy(&s);
}

TEST(roots_are_asked)
{
    run_worlds(root_body, NULL, 1, 2);
}

static Status fake_step(FsdpAdamW *opt)
{
    note_call(ADAMW, opt);
    return asked.answer;
}

RANK_TEST(a_step_may_be_anothers, 1)
{
    Spec spec = spec_mlp(2);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    memset(&asked, 0, sizeof asked);
    s.root->ops.shards_written = count_written;
    for (int i = 0; i < 4; i++) {
        bool own = i % 2 == 0;
        s.adamw.step = own ? fake_step : fsdp_adamw_step_by_root;
        asked.answer = i == 2 ? ERR_CUDA : OK;
        int t = s.adamw.t, before = asked.calls[ADAMW], written = asked.written;
        Status status = fsdp_adamw_step(&s.adamw);
        check(
            asked.calls[ADAMW] == before + own && s.adamw.t == t + !own &&
                status == (own ? asked.answer : OK),
            "step %d with an opt->step of %s: it was asked %d times, t went from %d to %d, status "
            "%d",
            i, own ? "another" : "the root's", asked.calls[ADAMW] - before, t, s.adamw.t, status);
        check(asked.written == written + (status == OK),
              "a step writes the shards, and calls shards_written %d times",
              asked.written - written);
    }
    asked.written = 0;
    need(fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.0f));
    check(asked.written == 1, "a step of SGD writes the shards, and calls shards_written %d times",
          asked.written);
    sharded_destroy(&s);
}

SUITE_MAIN("dispatch")
