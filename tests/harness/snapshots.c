/* Snapshots see every kind of change that a refused call could make (snapshot.h), and what is said
 * of them; a call that covers a huge buffer in part alone is told so (huge.h).
 */
#include <stdlib.h>

#include "huge.h"
#include "kernels.h"
#include "snapshot.h"

static Status no_hook(Module *m, void *arg)
{
    return OK;
}

static void change_nothing(Sharded *s)
{
    need(fsdp_unshard(unit_of(s, 0))); // and back, which is nothing that can be seen
    need(fsdp_wait_for_unshard(unit_of(s, 0)));
    need(fsdp_reshard(unit_of(s, 0)));
    need(fsdp_free_all_gather(s->root));
}

static void change_phase(Sharded *s)
{
    unit_of(s, 1)->phase = FSDP_FORWARD;
}

static void change_order(Sharded *s)
{
    need(fsdp_record_post_forward(unit_of(s, 1)));
}

static void change_element(Sharded *s)
{
    const Buffer *shard = &s->root->units[0]->flat.sharded_param;
    need_cuda(kernel_fill((float *)shard->data + shard->numel - 1, 9.0f, 1, s->ctx.compute_stream));
}

static void change_moment(Sharded *s)
{
    need_cuda(kernel_fill(s->adamw.v[2], 9.0f, 1, s->ctx.compute_stream));
}

static void change_count(Sharded *s)
{
    s->adamw.t++;
}

static void change_hooks(Sharded *s)
{
    check(module_add_hook(s->model->children[0], HOOK_PRE_BACKWARD, no_hook, NULL), "no hook");
}

static void change_view(Sharded *s)
{
    unit_of(s, 0)->flat.layout.params[1]->grad.data = s->root;
}

static void change_state(Sharded *s)
{
    need(fsdp_unshard(unit_of(s, 1)));
}

static void change_memory(Sharded *s)
{
    void *more = NULL;
    need_cuda(cudaMalloc(&more, 40));
}

static const struct Change {
    void (*change)(Sharded *s);
    const char *said; // NULL: nothing
} CHANGES[] = {
    {change_nothing, NULL},
    {change_phase, "has changed unit->phase of l.1: it was 0, and is 1"},
    {change_order, "has changed root->n_post_forward of mlp: it was 0, and is 1"},
    {change_element, "has changed what is in flat->sharded_param of mlp"},
    {change_moment, "has changed what is in opt->v[i] of the optimizer"},
    {change_count, "has changed opt->t of the optimizer: it was 0, and is 1"},
    {change_hooks, "has changed the number of hooks of l.0: it was 4, and is 5"},
    {change_view, "has changed param->grad.data of l.0"},
    {change_state, "of l.1"},
    {change_memory, "has changed the number of allocated bytes of the device"},
};

static void change_body(const Rank *r, void *arg)
{
    const struct Change *change = arg;
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    need_unchanged(s.model, &s.adamw, change->change(&s));
    sharded_destroy(&s);
}

TEST(test_snapshots)
{
    needs_ranks(2);
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
        char *message = run_ranks_message(2, 20, change_body, (void *)&CHANGES[i]);
        if (CHANGES[i].said == NULL && message != NULL) fail_msg("nothing changed: %s", message);
        if (CHANGES[i].said != NULL) expect_words(message, CHANGES[i].said);
        free(message);
    }
}

static void covers_body(const Rank *r, void *arg)
{
    Buffer buffer = {NULL, DTYPE_F32, 100};
    need_cuda(cudaMalloc(&buffer.data, buffer_bytes(&buffer)));
    uint64_t log = gpulog_length();
    need_cuda(cudaMemsetAsync((float *)buffer.data + 40, 0, 240, r->stream));
    need_cuda(cudaMemsetAsync(buffer.data, 0, 160, r->stream));
    check_covers(log, &buffer, GPU_WRITE, "two parts");
    log = gpulog_length();
    need_cuda(cudaMemsetAsync(buffer.data, 0, 160, r->stream));
    need_cuda(cudaMemsetAsync((float *)buffer.data + 41, 0, 236, r->stream));
    check_covers(log, &buffer, GPU_WRITE, "a gap");
}

TEST(test_covers)
{
    char *message = run_ranks_message(1, 20, covers_body, NULL);
    expect_words(message, "a gap of 100 elements: the calls write its first 40 alone");
    free(message);
}

SUITE_MAIN("snapshots")
