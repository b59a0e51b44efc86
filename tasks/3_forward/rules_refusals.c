/* rules_refusals.c: sentences of fsdp.h on forward.c about what is refused, what fails, what comes
 * twice, and what is too large for 32 bits. See rules.h.
 */
#include "rules.h"

#include "backend.h"
#include "fsdp.h"
#include "harness.h"
#include "huge.h"
#include "kernels.h"
#include "snapshot.h"
#include "training.h"

#include <stdlib.h>

static void gather(FsdpUnit *unit)
{
    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit));
}

// ---- Refused ----

// In the middle of a forward, with a unit in each state and a buffer that is left to be freed.
static void refused_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unsharding = unit_of(s, 1), *sharded = unit_of(s, 2);
    need(fsdp_pre_forward(s->model, fsdp_unit(s->model)));
    gather(unit_of(s, 0));
    need(fsdp_reshard(unit_of(s, 0)));
    need(fsdp_unshard(unsharding));
    Module *plain = s->model->children[s->model->n_children - 1]; // no unit
    for (int round = 0; round < 2; round++) {
        need_refused_whole(s->model, NULL, fsdp_reshard(unsharding), unsharding->flat.name);
        need_refused_whole(s->model, NULL, fsdp_wait_for_unshard(sharded), sharded->flat.name);
        need_refused_whole(s->model, NULL, fsdp_reshard_all(sharded->module),
                           sharded->module->name);
        need_refused_whole(s->model, NULL, fsdp_reshard_all(plain), plain->name);
        uint64_t log = gpulog_length();
        need_refused(fsdp_reshard(unsharding), unsharding->flat.name);
        check(gpulog_length() == log,
              "fsdp_reshard of a unit that is still unsharding must be ERR_ARGUMENT, "
              "and nothing has changed: it queued work all the same");
        need_refused(fsdp_wait_for_unshard(sharded), sharded->flat.name);
        check(gpulog_length() == log,
              "fsdp_wait_for_unshard of a unit that is not unsharding must be ERR_ARGUMENT, and no "
              "stream waits: it queued work all the same");
        // Of a hook the unit's phase may be another by then.
        unsharding->reshard_after_forward = FSDP_RESHARD_ALWAYS;
        need_refused(fsdp_post_forward(unsharding->module, unsharding), unsharding->flat.name);
    }
    need(fsdp_reshard_all(s->model));
}

void rule_refuses_before_it_queues(void)
{
    run_sharded(spec_mlp(4), refused_body, 1, 2);
}

// ---- Failed ----

static void full_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = unit_of(&s, 0);
    for (int round = 0; round < 3; round++) {
        size_t live = gpulog_live_bytes(r->device);
        void *filler = fill_all_but(0);
        if (round < 2) need_failure(fsdp_unshard(unit), ERR_MEMORY, "");
        if (round == 2) need_failure(fsdp_pre_forward(unit->module, unit), ERR_MEMORY, "");
        need_cuda(cudaFree(filler));
        need(fsdp_reshard_all(s.model));
        need_cuda(cudaDeviceSynchronize());
        check(gpulog_live_bytes(r->device) == live,
              "fsdp_unshard found no memory, and leaves %zu bytes all the same",
              gpulog_live_bytes(r->device) - live);
        gather(unit);
        need(fsdp_reshard_all(s.model));
        check(unit->flat.state == FLAT_SHARDED,
              "after fsdp_reshard_all unit %s is not sharded, while the units before it were",
              unit->flat.name);
    }
    sharded_destroy(&s);
}

static void passed_on_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = unit_of(s, 1);
    const size_t whole = whole_bytes(unit);
    need_cuda(cudaDeviceSynchronize());
    for (failing_status = ERR_ARGUMENT; failing_status <= ERR_IO; failing_status++) {
        const size_t live = gpulog_live_bytes(r->device);
        unit->all_gather = failing_collective;
        need_failure(fsdp_unshard(unit), failing_status, "the test's collective");
        check(unit->flat.state == FLAT_SHARDED,
              "the all-gather of unit %s failed: after fsdp_unshard its state is %d, want "
              "FLAT_SHARDED",
              unit->flat.name, (int)unit->flat.state);
        need_failure(fsdp_pre_forward(unit->module, unit), failing_status, "the test's collective");
        if (failing_status % 2 == 0) { // and with a third call, which succeeds
            unit->all_gather = fsdp_all_gather;
            gather(unit);
            check_initial_values(unit, TEST_OPTIONS.seed);
        }
        check(gpulog_live_bytes(r->device) <= live + whole,
              "the all-gather of unit %s, of %zu bytes, failed, and fsdp_unshard was called again: "
              "the device holds %zu bytes more than before; a second call takes the buffer over "
              "that the first one left",
              unit->flat.name, whole, gpulog_live_bytes(r->device) - live);
        need(fsdp_reshard_all(s->model));
        check(unit->flat.state == FLAT_SHARDED, "fsdp_reshard_all leaves unit %s as it was",
              unit->flat.name);
    }
    unit->all_gather = fsdp_all_gather;
}

#ifndef BACKEND_CUDA
// Calls of CUDA and NCCL that fail, one after the other: whoever makes them says so.
static void dead_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = unit_of(s, 1);
    FsdpContext *ctx = &s->ctx;
    const FsdpContext whole = *ctx;
    AllGatherState *state = &s->root->all_gather_state;
    cudaStream_t dead = dead_stream();
    need_cuda(cudaDeviceSynchronize());
    backend_ignore_reports();

    ctx->all_gather_stream = dead;
    need_failure(fsdp_unshard(unit), ERR_CUDA, "");
    ctx->all_gather_stream = whole.all_gather_stream;
    need(fsdp_reshard_all(s->model));

    gather(unit);
    ctx->mesh.shard.comm = NULL;
    need_failure(fsdp_all_gather(unit), ERR_NCCL, "");
    ncclGroupEnd(); // of a gather by several calls, whose group it leaves open
    ctx->mesh.shard.comm = whole.mesh.shard.comm;
    need(fsdp_reshard(unit));
    check(state->buffer != NULL, "fsdp_reshard leaves no buffer in root->all_gather_state");
    ctx->all_gather_stream = dead;
    need_failure(fsdp_free_all_gather(s->root), ERR_CUDA, "");
    ctx->all_gather_stream = whole.all_gather_stream;
    need(fsdp_free_all_gather(s->root));

    need(fsdp_unshard(unit));
    ctx->compute_stream = dead;
    need_failure(fsdp_wait_for_unshard(unit), ERR_CUDA, "");
    ctx->compute_stream = whole.compute_stream;
    if (unit->flat.state == FLAT_UNSHARDING) need(fsdp_wait_for_unshard(unit));
    void *buffer = unit->flat.unsharded_param.data;
    ctx->compute_stream = dead;
    need_failure(fsdp_reshard(unit), ERR_CUDA, "");
    ctx->compute_stream = whole.compute_stream;
    need_cuda(cudaDeviceSynchronize());
    if (unit->flat.unsharded_param.data == NULL && state->buffer == NULL) state->buffer = buffer;
    need(fsdp_reshard_all(s->model));

    gather(unit); // the end of the outermost forward frees its buffer
    need(fsdp_reshard(unit));
    s->root->iter_forward_root = unit;
    ctx->all_gather_stream = dead;
    need_failure(fsdp_post_forward(unit->module, unit), ERR_CUDA, "");
    ctx->all_gather_stream = whole.all_gather_stream;
    need(fsdp_reshard_all(s->model));

    ctx->compute_stream = dead;
    need_failure(fsdp_pre_forward(unit->module, unit), ERR_CUDA, "");
    ctx->compute_stream = whole.compute_stream;
    need(fsdp_reshard_all(s->model));
    cudaGetLastError();
    backend_listen();
}
#endif

void rule_failed_unshard_keeps_its_status(void)
{
    run_ranks_small(2, full_body, NULL);
    run_sharded(spec_mlp(3), passed_on_body, 2);
}

void rule_failed_calls_are_told(void)
{
#ifndef BACKEND_CUDA
    run_sharded(spec_mlp(3), dead_body, 2);
#endif
}

// ---- Twice, and interleaved ----

// A kernel on the compute stream that reads the unsharded parameter, and its place in the log.
static uint64_t read_whole(const FsdpUnit *unit, float *out)
{
    const Buffer *param = &unit->flat.unsharded_param;
    uint64_t log = gpulog_length();
    need_cuda(kernel_add_out(out, param->data, param->data, (size_t)unit->flat.layout.numel,
                             unit->ctx->compute_stream));
    int64_t kernel = gpulog_find(GPU_KERNEL, "kernel_add_out", log);
    check(kernel >= 0, "the log has lost the test's kernel");
    return (uint64_t)kernel;
}

// One unit that is resharded twice, and another one in between, before anybody frees a buffer: each
// is freed once, after its own last use, and not after the next unit's.
static void twice_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = unit_of(s, 0), *other = unit_of(s, 1);
    float *out = NULL;
    need_cuda(cudaMalloc((void **)&out, whole_bytes(unit) + whole_bytes(other)));
    need_cuda(cudaDeviceSynchronize());
    size_t live = gpulog_live_bytes(r->device);
    FsdpUnit *const order[] = {unit, unit, other, unit};
    enum { N = sizeof order / sizeof *order };
    uint64_t log = gpulog_length(), kernel[N];
    gather(unit);
    need(fsdp_reshard(unit));
    need_cuda(kernel_fill(out, 1.0f, 1, s->ctx.compute_stream));
    const int64_t later = gpulog_find(GPU_KERNEL, "kernel_fill", log);
    need(fsdp_free_all_gather(s->root));
    const int64_t free_of_unit = gpulog_find(GPU_FREE, NULL, log);
    check(later >= 0 && free_of_unit >= 0 && !log_ordered((uint64_t)later, (uint64_t)free_of_unit),
          "fsdp_free_all_gather frees the buffer only after a kernel that was queued on the "
          "compute stream later than the last use: it waits for the state's event alone, and not "
          "for all that stream");
    log = gpulog_length();
    for (int i = 0; i < N; i++) {
        uint64_t before = gpulog_length();
        gather(order[i]);
        kernel[i] = read_whole(order[i], out);
        need(fsdp_reshard(order[i]));
        int64_t freed = gpulog_find(GPU_FREE, NULL, before);
        check((freed >= 0) == (i > 0),
              "fsdp_reshard, when root->all_gather_state holds %s buffer, frees %s",
              i > 0 ? "another" : "no", i > 0 ? "none" : "one");
        check(i == 0 || log_ordered(kernel[i - 1], (uint64_t)freed),
              "a buffer that fsdp_reshard frees may still be read by a kernel");
        check(i == 0 || !log_ordered(kernel[i], (uint64_t)freed),
              "fsdp_reshard frees the buffer that it finds in root->all_gather_state only after "
              "the kernels of the unit that is resharded now: the all-gather stream waits for all "
              "of them, and the next all-gather with it. When is the event recorded again?");
    }
    need(fsdp_free_all_gather(s->root));
    check(gpulog_count(GPU_FREE, log) == N && gpulog_live_bytes(r->device) == live,
          "%d buffers were resharded, %d were freed, and %zu bytes are left", N,
          (int)gpulog_count(GPU_FREE, log), gpulog_live_bytes(r->device) - live);
    check_no_race(log);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaFree(out));
}

void rule_each_buffer_is_freed_after_its_use(void)
{
    run_sharded(spec_mlp(3), twice_body, 2);
}

// Two forwards of which each unit keeps its parameters in one, and reshards in the other.
static void mixed_body(Sharded *s, const Rank *r, void *arg)
{
    Batch batch = batch_create(&s->spec, 1);
    need_cuda(cudaDeviceSynchronize());
    size_t live = gpulog_live_bytes(r->device);
    uint64_t log = gpulog_length();
    for (int pass = 0; pass < 4; pass++) {
        int kept = 0;
        size_t bytes = 0;
        for (int i = 0; i < s->root->n_units; i++) {
            FsdpUnit *unit = s->root->units[i];
            bool keeps = (i + pass) % 2 == 0;
            unit->reshard_after_forward = keeps ? FSDP_RESHARD_NEVER : FSDP_RESHARD_ALWAYS;
            kept += keeps;
            if (keeps) bytes += whole_bytes(unit);
        }
        forward_batch(&s->spec, &s->run, s->model, &batch);
        need_cuda(cudaDeviceSynchronize());
        for (int i = 0; i < s->root->n_units; i++) {
            const FsdpUnit *unit = s->root->units[i];
            bool keeps = (i + pass) % 2 == 0;
            check(unit->flat.state == (keeps ? FLAT_UNSHARDED : FLAT_SHARDED),
                  "forward %d: unit %s, whose option was another in the forward before, %s", pass,
                  unit->flat.name, keeps ? "is not kept" : "still is unsharded");
            if (keeps) check_initial_values(unit, TEST_OPTIONS.seed);
        }
        check(gpulog_live_bytes(r->device) == live + bytes,
              "after forward %d %d units are kept, which have %zu bytes; the device holds %zu more "
              "than before the first",
              pass, kept, bytes, gpulog_live_bytes(r->device) - live);
    }
    check_no_race(log);
    need(fsdp_reshard_all(s->model));
    batch_destroy(&batch);
}

void rule_options_change_between_forwards(void)
{
    run_sharded(spec_mlp(5), mixed_body, 2);
}

// Of two models on one context one fails in the middle of its forward; the other runs as if it were
// alone.
static void two_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    FsdpContext ctx;
    Module *model[2];
    make_context(&ctx, r);
    for (int i = 0; i < 2; i++) {
        model[i] = spec_create(&spec);
        need(fully_shard(model[i]->children[0], &ctx, &TEST_OPTIONS));
        need(fully_shard(model[i], &ctx, &TEST_OPTIONS));
    }
    need_cuda(cudaDeviceSynchronize());
    FsdpUnit *failing = fsdp_unit(model[0]->children[0]);
    failing->all_gather = failing_collective;
    failing_status = ERR_IO;
    check_set_silent(true);
    Status status = fsdp_pre_forward(model[0], fsdp_unit(model[0]));
    if (status == OK) status = fsdp_pre_forward(failing->module, failing);
    check_set_silent(false);
    check(status != OK, "a forward whose all-gather failed goes on as if nothing were");

    FsdpUnit *outer = fsdp_unit(model[1]), *inner = fsdp_unit(model[1]->children[0]);
    uint64_t log = gpulog_length();
    need(fsdp_sgd_step(model[1], &ctx, 0.5f, 0.0f));
    need(fsdp_pre_forward(model[1], outer));
    check(outer->root->iter_forward_root == outer,
          "another model's forward has failed, and the outermost forward of this one is not its "
          "root's: root->iter_forward_root");
    need(fsdp_pre_forward(inner->module, inner));
    need(fsdp_post_forward(inner->module, inner));
    need(fsdp_post_forward(model[1], outer));
    check(outer->root->iter_forward_root == NULL && outer->root->n_post_forward == 2 &&
              outer->root->all_gather_state.buffer == NULL,
          "another model's forward has failed: after its own, this one has %d forwards recorded, "
          "want 2, or a forward that counts as running, or a buffer to free",
          outer->root->n_post_forward);
    check_no_race(log);
    for (int i = 0; i < 2; i++) {
        need(fsdp_reshard_all(model[i]));
        fsdp_unwrap(model[i]);
        module_destroy(model[i]);
    }
    need(fsdp_context_destroy(&ctx));
}

void rule_a_failed_model_fails_alone(void)
{
    run_ranks(2, two_body, NULL);
}

// ---- Of any size, and in any group ----

static void large_body(OneUnit *u, const Rank *r)
{
    FsdpUnit *unit = u->unit;
    FlatParam *flat = &unit->flat;
    size_t live = gpulog_live_bytes(r->device), bytes = buffer_bytes(&flat->unsharded_param);
    uint64_t log = gpulog_length();
    need(fsdp_unshard(unit));
    check(gpulog_live_bytes(r->device) - live == bytes,
          "to unshard %lld elements takes %zu bytes, want %zu%s", (long long)flat->layout.padded,
          gpulog_live_bytes(r->device) - live, bytes,
          cut_cause(gpulog_live_bytes(r->device) - live, bytes));
    check_covers(log, &flat->sharded_param, GPU_READ, "fsdp_all_gather, which sends a shard");
    check_covers(log, &flat->unsharded_param, GPU_WRITE, "fsdp_all_gather, which receives");
    const Param *second = flat->layout.params[1];
    check((char *)second->data.data ==
              (char *)flat->unsharded_param.data + 4 * flat->layout.offset[1],
          "fsdp_unshard: a parameter that begins beyond element 2^32 is no view of its place");
    need(fsdp_wait_for_unshard(unit));
    FsdpRoot *root = unit->root;
    need(fsdp_reshard(unit));
    need(fsdp_free_all_gather(root));
}

// Shards of bf16, as lab 2 has them: the buffer has two bytes per element.
static void bf16_body(Sharded *s, const Rank *r, void *arg)
{
    FlatParam *flat = &unit_of(s, 0)->flat;
    const Buffer own = flat->sharded_param;
    flat->sharded_param.dtype = flat->unsharded_param.dtype = DTYPE_BF16;
    need_cuda(cudaDeviceSynchronize());
    size_t live = gpulog_live_bytes(r->device), want = 2 * (size_t)flat->layout.padded;
    gather(unit_of(s, 0));
    check(gpulog_live_bytes(r->device) - live == want,
          "fsdp_unshard of %lld elements of bfloat16 took %zu bytes, want %zu: the buffer is of "
          "unsharded_param's type (buffer_bytes)",
          (long long)flat->layout.padded, gpulog_live_bytes(r->device) - live, want);
    need(fsdp_reshard(unit_of(s, 0)));
    need(fsdp_free_all_gather(s->root));
    flat->sharded_param = own;
    flat->unsharded_param.dtype = own.dtype;
}

// Two ranks shard, and two such pairs hold replicas.
static void pairs_body(const Rank *r, void *arg)
{
    Mesh pairs = mesh_of_pairs(r);
    OneUnit one;
    one_unit_create(&one, &pairs, r);
    FlatParam *flat = &one.unit->flat;
    const int64_t shard = flat->layout.shard_numel;
    need_cuda(kernel_fill(flat->sharded_param.data, (float)r->rank, (size_t)shard, r->stream));
    need_cuda(cudaDeviceSynchronize());
    gather(one.unit);
    need_cuda(cudaDeviceSynchronize());
    float *got = fetch(flat->unsharded_param.data, (size_t)(2 * shard));
    for (int64_t i = 0; i < 2 * shard; i++)
        check(got[i] == (float)(r->rank / 2 * 2 + i / shard),
              "ranks %d and %d shard, and two such pairs replicate: fsdp_all_gather puts rank %g's "
              "shard at element %lld, want rank %d's: the ranks that shard are those of "
              "ctx->mesh.shard",
              r->rank / 2 * 2, r->rank / 2 * 2 + 1, (double)got[i], (long long)i,
              (int)(r->rank / 2 * 2 + i / shard));
    free(got);
    need(fsdp_reshard(one.unit));
    need(fsdp_free_all_gather(one.unit->root));
    one_unit_destroy(&one);
    mesh_of_pairs_destroy(&pairs);
}

void rule_gathers_any_size_and_type(void)
{
    run_huge(large_body, 2);
    run_sharded(spec_mlp(3), bf16_body, 3);
    run_ranks(4, pairs_body, NULL);
}
