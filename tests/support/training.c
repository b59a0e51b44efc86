/* training.c: small models, data and the two training loops of the equivalence tests. See
 * training.h.
 */
#include "training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "host_memory.h"
#include "report.h"
#include "unit_names.h"

const AdamWConfig TEST_ADAMW = {
    .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
const FsdpOptions TEST_OPTIONS = {
    .reshard_after_forward = FSDP_RESHARD_ALWAYS, .align_shards = false, .seed = 42};

Spec spec_mlp(int layers)
{
    return (Spec){.layers = layers, .B = 6, .T = 1, .in_dim = 7, .dim = 13, .vocab = 5};
}

Spec spec_gpt2(int layers)
{
    return (Spec){
        .gpt2 = true, .layers = layers, .B = 2, .T = 9, .dim = 24, .heads = 3, .vocab = 11};
}

Module *spec_create(const Spec *spec)
{
    Module *model;
    check(spec->kv_heads == 0 || spec->create != NULL, "a Llama needs spec_llama's `create`");
    if (spec->create != NULL) {
        model = spec->create(spec);
    } else if (spec->gpt2) {
        Gpt2Config config = {.vocab = spec->vocab,
                             .max_T = spec->T,
                             .layers = spec->layers,
                             .heads = spec->heads,
                             .dim = spec->dim};
        model = gpt2_create(&config);
    } else {
        model = mlp_create(spec->in_dim, spec->dim, spec->vocab, spec->layers);
    }
    check(model != NULL, "the test's model cannot be made");
    Param *params[256];
    int n = meta_params(model, params, 256);
    for (int i = 0; i < n && spec->init_std > 0.0f; i++) params[i]->init_std = spec->init_std;
    return model;
}

// SplitMix64 (Steele et al. 2014): a state of 64 bits, good enough for test data.
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

Batch batch_create(const Spec *spec, uint64_t seed)
{
    size_t rows = (size_t)spec->B * (size_t)spec->T;
    size_t columns = spec->gpt2 ? 1 : (size_t)spec->in_dim;
    int32_t *host = malloc(rows * columns * 4);
    uint64_t state = seed * 2 + 1;
    Batch batch = {NULL, NULL};
    check(host != NULL, "no memory for a batch");

    for (size_t i = 0; i < rows * columns; i++) {
        float value = (float)(next(&state) % 17) / 8.0f - 1.0f; // -1 … 1 in eighths
        if (spec->gpt2)
            host[i] = (int32_t)(next(&state) % (uint64_t)spec->vocab);
        else
            memcpy(&host[i], &value, 4);
    }
    need_cuda(cudaMalloc(&batch.in, rows * columns * 4));
    need_cuda(cudaMemcpy(batch.in, host, rows * columns * 4, cudaMemcpyHostToDevice));

    for (size_t i = 0; i < rows; i++) host[i] = (int32_t)(next(&state) % (uint64_t)spec->vocab);
    need_cuda(cudaMalloc((void **)&batch.targets, rows * 4));
    need_cuda(cudaMemcpy(batch.targets, host, rows * 4, cudaMemcpyHostToDevice));
    // A rank's stream is in no order with the default stream, and a copy of pageable memory may
    // still be on its way to the device when the call returns.
    need_cuda(cudaDeviceSynchronize());
    free(host);
    return batch;
}

void batch_destroy(Batch *batch)
{
    need_cuda(cudaFree(batch->in));
    need_cuda(cudaFree(batch->targets));
}

float train_batch(const Spec *spec, NnRun *run, Module *model, const Batch *batch)
{
    float *logits = NULL, *dlogits = NULL, *din = NULL, loss = 0.0f;
    check_hooks(model, HOOK_POST_BACKWARD);
    run->B = spec->B;
    run->T = spec->T;
    need(module_forward(model, run, batch->in, &logits));
    need(cross_entropy(run, logits, batch->targets, spec->B * spec->T, spec->vocab, &loss,
                       &dlogits));
    need(module_backward(model, run, dlogits, &din));
    need_cuda(cudaFreeAsync(dlogits, run->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, run->stream));
    return loss;
}

// ---- One GPU ----

void plain_create(Plain *p, const Spec *spec, uint64_t seed, const AdamWConfig *adamw,
                  cudaStream_t stream)
{
    memset(p, 0, sizeof *p);
    p->spec = *spec;
    p->model = spec_create(spec);
    need(nn_run_create(&p->run, stream));
    need(meta_materialize(p->model, seed, stream));
    if (adamw != NULL) need(plain_adamw_create(&p->adamw, p->model, adamw, &p->run));
}

void plain_destroy(Plain *p)
{
    plain_adamw_destroy(p->adamw);
    meta_release(p->model);
    module_destroy(p->model);
    need(nn_run_destroy(&p->run));
}

int64_t model_numel(const Module *model)
{
    Layout layout;
    layout_module(&layout, model, false, 1, LAYOUT_WHOLE);
    return (int64_t)layout.begin[layout.n];
}

// All parameters (or gradients) of the model back to back, in host memory.
static float *gather_plain(const Plain *p, bool grads)
{
    Layout layout;
    layout_module(&layout, p->model, false, 1, LAYOUT_WHOLE);
    float *all = malloc((layout.begin[layout.n] + 1) * sizeof *all);
    check(all != NULL, "no memory for the model's values");
    need_cuda(cudaStreamSynchronize(p->run.stream));
    for (int i = 0; i < layout.n; i++) {
        const Param *param = layout.param[i];
        need_cuda(cudaMemcpy(all + layout.begin[i], grads ? param->grad.data : param->data.data,
                             (layout.begin[i + 1] - layout.begin[i]) * sizeof *all,
                             cudaMemcpyDeviceToHost));
    }
    return all;
}

float *plain_params(const Plain *p)
{
    return gather_plain(p, false);
}

float *plain_grads(const Plain *p)
{
    return gather_plain(p, true);
}

// ---- FSDP ----

void make_context(FsdpContext *ctx, const Rank *r)
{
    Mesh mesh;
    need(mesh_1d(&mesh, r->comm));
    need(fsdp_context_create(ctx, &mesh, r->stream));
    report_streams(ctx);
}

Mesh mesh_of_replicas(const Rank *r)
{
    return (Mesh){.shard = {NULL, 0, 1}, .replicate = {r->comm, r->rank, r->world}};
}

void one_unit_create(OneUnit *u, const Mesh *mesh, const Rank *r)
{
    Spec spec = spec_mlp(2);
    u->model = spec_create(&spec);
    need(fsdp_context_create(&u->ctx, mesh, r->stream));
    need(fully_shard(u->model, &u->ctx, &TEST_OPTIONS));
    u->unit = fsdp_unit(u->model);
}

void one_unit_destroy(OneUnit *u)
{
    fsdp_unwrap(u->model);
    need(fsdp_context_destroy(&u->ctx));
    module_destroy(u->model);
}

Mesh mesh_of_pairs(const Rank *r)
{
    Mesh mesh = {.shard = {NULL, r->rank % 2, 2}, .replicate = {NULL, r->rank / 2, 2}};
    need_nccl(ncclCommSplit(r->comm, r->rank / 2, r->rank, &mesh.shard.comm, NULL));
    need_nccl(ncclCommSplit(r->comm, r->rank % 2, r->rank, &mesh.replicate.comm, NULL));
    return mesh;
}

void mesh_of_pairs_destroy(Mesh *mesh)
{
    need_nccl(ncclCommDestroy(mesh->shard.comm));
    need_nccl(ncclCommDestroy(mesh->replicate.comm));
}

// Walks the modules; *n counts the flat parameters met so far.
static void collect_flat(const Module *m, FlatParam **out, int max, int *n)
{
    FsdpUnit *unit = m->unit;
    if (unit != NULL && *n < max) out[*n] = &unit->flat;
    *n += unit != NULL;
    for (int c = 0; c < m->n_children; c++) collect_flat(m->children[c], out, max, n);
}

int flat_params(const Module *root, FlatParam **out, int max)
{
    int n = 0;
    check_figures();
    collect_flat(root, out, max, &n);
    return n;
}

// Blocks become units first. GPT-2: the children "h.i"; the MLP: every child but the last.
bool is_block(const Spec *spec, const Module *model, int i)
{
    if (spec->gpt2) return strncmp(model->children[i]->name, "h.", 2) == 0;
    return i < model->n_children - 1;
}

FsdpUnit *unit_of(const Sharded *s, int child)
{
    return fsdp_unit(s->model->children[child]);
}

static void make_unit(Module *module, FsdpContext *ctx, const FsdpOptions *options)
{
    need(fully_shard(module, ctx, options));
    check(fsdp_unit(module) != NULL, "fully_shard gave OK for %s, but module->unit is NULL",
          module->name);
}

void sharded_create(Sharded *s, const Spec *spec, const FsdpOptions *options,
                    const AdamWConfig *adamw, const Rank *r)
{
    memset(s, 0, sizeof *s);
    s->spec = *spec;
    s->rank = r->rank;
    s->world = r->world;
    s->model = spec_create(spec);
    need(nn_run_create(&s->run, r->stream));
    make_context(&s->ctx, r);
    for (int i = 0; i < s->model->n_children; i++)
        if (is_block(spec, s->model, i)) make_unit(s->model->children[i], &s->ctx, options);
    make_unit(s->model, &s->ctx, options);
    unit_names_of(s);
    s->root = fsdp_unit(s->model)->root;
    figures_take(s->model, r->rank, r->world, options->align_shards);
    if (adamw != NULL) need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, adamw));
}

void sharded_destroy(Sharded *s)
{
    host_fill(true);
    if (s->adamw.ctx != NULL) fsdp_adamw_destroy(&s->adamw);
    check_figures();
    figures_forget(s->model);
    unit_names_end();
    fsdp_unwrap(s->model);
    need(fsdp_context_destroy(&s->ctx));
    module_destroy(s->model);
    need(nn_run_destroy(&s->run));
    host_fill(false);
}

typedef struct ShapeRun {
    Shape shape;
    ShardedBody body;
    void *arg;
} ShapeRun;

static void shape_body(const Rank *r, void *arg)
{
    const ShapeRun *run = arg;
    const Shape *shape = &run->shape;
    Sharded s;
    sharded_create(&s, &shape->spec, &shape->options, NULL, r);
    run->body(&s, r, run->arg);
    sharded_destroy(&s);
}

void run_shape_at(const char *file, int line, Shape shape, ShardedBody body, void *arg,
                  const int *worlds)
{
    ShapeRun run = {shape, body, arg};
    run_worlds_at(file, line, shape_body, &run, worlds);
}

void unit_layout(Layout *layout, const Sharded *s, const FlatParam *flat, bool whole)
{
    layout->n = 0;
    for (int i = -1; i < s->model->n_children; i++) {
        const Module *m = i < 0 ? s->model : s->model->children[i];
        const FsdpUnit *unit = fsdp_unit(m);
        if (unit == NULL || &unit->flat != flat) continue;
        layout_module(layout, m, true, s->world, whole ? LAYOUT_WHOLE : s->rank);
        return;
    }
}

const char *model_layout(Layout *layout, const Module *model)
{
    Param *params[LAYOUT_MAX] = {NULL};
    bool same;
    layout_module(layout, model, false, 1, LAYOUT_WHOLE);
    same = meta_params(model, params, LAYOUT_MAX) == layout->n;
    for (int i = 0; i < layout->n; i++) same &= params[i] == layout->param[i];
    if (same) return NULL;
    layout->n = 0;
    return "meta_params does not list the model's parameters as the walk meets them, each once, "
           "and "
           "the rest follows from that: do the tests of task 1 pass?";
}

// The model's values, its parameters back to back: by their shapes, whatever the code under test
// says.
typedef struct Places {
    Layout layout;
    float *values;
} Places;

static void make_places(Places *p, const Module *model)
{
    layout_module(&p->layout, model, false, 1, LAYOUT_WHOLE);
    size_t n = p->layout.begin[p->layout.n];
    p->values = malloc((n + 1) * sizeof *p->values);
    check(p->values != NULL, "no memory for the model");
    for (size_t i = 0; i < n; i++) p->values[i] = NAN; // what nobody brings equals nothing
}

// The place of a parameter's values, and how many there are.
static float *place(const Places *p, const Param *param, size_t *n)
{
    for (int i = 0; i < p->layout.n; i++) {
        if (p->layout.param[i] != param) continue;
        *n = p->layout.begin[i + 1] - p->layout.begin[i];
        return p->values + p->layout.begin[i];
    }
    check(false, "%s is no parameter of the model", param->name);
    return NULL;
}

static Status keep(const Param *param, const float *values, void *arg)
{
    size_t n;
    float *to = place(arg, param, &n);
    memcpy(to, values, n * sizeof *values);
    return OK;
}

float *sharded_params(Sharded *s)
{
    Places p;
    make_places(&p, s->model);
    need(fsdp_full_state(s->model, keep, &p));
    if (s->rank == 0) return p.values;
    free(p.values);
    return NULL;
}

// The flat parameters of the model, malloc'ed.
static FlatParam **flat_of(const Sharded *s, int *n)
{
    *n = flat_params(s->model, NULL, 0);
    FlatParam **flat = malloc((size_t)(*n + 1) * sizeof *flat);
    check(flat != NULL, "no memory for %d flat parameters", *n);
    flat_params(s->model, flat, *n);
    return flat;
}

float *sharded_grads(Sharded *s)
{
    Places p;
    int n;
    make_places(&p, s->model);
    FlatParam **flat = flat_of(s, &n);
    for (int i = 0; i < n; i++) {
        float *full = NULL;
        need_cuda(cudaMalloc((void **)&full, (size_t)flat[i]->layout.padded * sizeof *full));
        need_nccl(ncclAllGather(flat[i]->sharded_grad.data, full,
                                (size_t)flat[i]->layout.shard_numel, ncclFloat,
                                s->ctx.mesh.shard.comm, s->ctx.compute_stream));
        need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
        float *host = fetch(full, (size_t)flat[i]->layout.padded);
        for (int j = 0; j < flat[i]->layout.n; j++) {
            size_t numel;
            float *to = place(&p, flat[i]->layout.params[j], &numel);
            memcpy(to, host + flat[i]->layout.offset[j], numel * sizeof *host);
        }
        free(host);
        need_cuda(cudaFree(full));
    }
    free(flat);
    return p.values;
}

static int64_t sum_flat(const Sharded *s, bool padded)
{
    int n;
    FlatParam **flat = flat_of(s, &n);
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += padded ? flat[i]->layout.padded : flat[i]->layout.numel;
    free(flat);
    return sum;
}

int64_t sharded_padded(const Sharded *s)
{
    return sum_flat(s, true);
}

int64_t sharded_numel(const Sharded *s)
{
    return sum_flat(s, false);
}

// The end of one shard-sized buffer.
static void check_tail(const FlatParam *flat, const float *buffer, const char *what,
                       const char *when)
{
    // Counted here without the code under test: what lies at or behind numel is padding.
    float *host = fetch(buffer, (size_t)flat->layout.shard_numel);
    for (int64_t i = 0; i < flat->layout.shard_numel; i++) {
        bool padding = flat->layout.rank * flat->layout.shard_numel + i >= flat->layout.numel;
        check(!padding || host[i] == 0.0f,
              "%s: the padding of %s in unit %s is not zero: element %lld of the shard of %lld "
              "holds %g",
              when, what, flat->name, (long long)i, (long long)flat->layout.shard_numel,
              (double)host[i]);
    }
    free(host);
}

void check_padding(const Sharded *s, const char *when)
{
    int n;
    FlatParam **flat = flat_of(s, &n);
    need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
    for (int i = 0; i < n; i++) {
        check_tail(flat[i], flat[i]->sharded_param.data, "the parameters", when);
        check_tail(flat[i], flat[i]->sharded_grad.data, "the gradients", when);
        if (s->adamw.ctx == NULL) continue;
        check_tail(flat[i], s->adamw.m[i], "the first moments", when);
        check_tail(flat[i], s->adamw.v[i], "the second moments", when);
    }
    free(flat);
}

void check_initial_values(const FsdpUnit *unit, uint64_t seed)
{
    const FlatParam *flat = &unit->flat;
    check_figures();
    float *want = calloc((size_t)flat->layout.padded, sizeof *want);
    check(want != NULL && flat->unsharded_param.data != NULL, "unit %s has no unsharded parameter",
          flat->name);
    for (int i = 0; i < flat->layout.n; i++)
        meta_init_slice(flat->layout.params[i], seed, 0, meta_numel(flat->layout.params[i]),
                        want + flat->layout.offset[i]);
    need_cuda(cudaStreamSynchronize(unit->ctx->compute_stream));
    need_cuda(cudaStreamSynchronize(unit->ctx->all_gather_stream));
    float *got = fetch(flat->unsharded_param.data, (size_t)flat->layout.padded);
    Layout layout;
    layout_module(&layout, unit->module, true, flat->layout.world, LAYOUT_WHOLE);
    check_equal_in(&((Clues){.layout = &layout, .world = flat->layout.world}),
                   "the gathered flat parameter", got, want, (size_t)flat->layout.padded);
    free(got);
    free(want);
}

void check_no_race(uint64_t first)
{
    char text[1024];
    check(!gpulog_race(first, text, sizeof text), "%s", text);
}

void check_no_host_wait(uint64_t first, const char *when)
{
    GpuLogEntry entry;
    char place[256];
    bool reads_loss = false; // the loss's kernel was the last that was queued
    for (uint64_t i = first; i < gpulog_length(); i++) {
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_KERNEL) reads_loss = strcmp(entry.name, "kernel_mean") == 0;
        if (!entry.host_waits && entry.op != GPU_STREAM_SYNC && entry.op != GPU_EVENT_SYNC &&
            entry.op != GPU_DEVICE_SYNC)
            continue;
        gpulog_where(entry.site, place, sizeof place);
        check(reads_loss && strncmp(place, "nn/cross_entropy.c:", 19) == 0,
              "the host waited for the device %s: %s at %s. A stream must wait, not the host "
              "(cudaStreamWaitEvent), and memory must come and go in a stream's order "
              "(cudaMallocAsync, cudaFreeAsync)",
              when, entry.name, place);
    }
}

void check_on_stream(uint64_t first, cudaStream_t stream, const char *what, const char *name)
{
    GpuLogEntry entry;
    char place[256];
    for (uint64_t i = first; i < gpulog_length(); i++) {
        if (!gpulog_get(i, &entry) || entry.op < GPU_COPY || entry.op > GPU_RECV) continue;
        gpulog_where(entry.site, place, sizeof place);
        check(entry.stream == stream, "%s belongs on %s, but %s at %s is queued on another stream",
              what, name, entry.name, place);
    }
}

void forward_batch(const Spec *spec, NnRun *run, Module *model, const Batch *batch)
{
    float *logits = NULL;
    check_hooks(model, HOOK_POST_FORWARD);
    run->B = spec->B;
    run->T = spec->T;
    need(module_forward(model, run, batch->in, &logits));
    need(module_discard(model, run));
}

size_t activation_bytes(const Spec *spec, const Rank *r, bool backward)
{
    Plain plain;
    Batch batch = batch_create(spec, 1);
    plain_create(&plain, spec, 42, NULL, r->stream);
    size_t live = gpulog_live_bytes(r->device);
    gpulog_reset_peak(r->device);
    if (backward)
        train_batch(spec, &plain.run, plain.model, &batch);
    else
        forward_batch(spec, &plain.run, plain.model, &batch);
    size_t bytes = gpulog_peak_bytes(r->device) - live;
    plain_destroy(&plain);
    batch_destroy(&batch);
    return bytes;
}

#ifndef BACKEND_CUDA
cudaStream_t dead_stream(void)
{
    // One that was destroyed would be somebody's again.
    static long nobodys[512];
    return (cudaStream_t)nobodys;
}
#endif

void *fill_all_but(size_t room)
{
    size_t free_bytes = 0, total = 0;
    void *filler = NULL;
    cudaMemPool_t pool;
    int device;
    need_cuda(cudaGetDevice(&device));
    need_cuda(cudaDeviceGetDefaultMemPool(&pool, device));
    need_cuda(cudaMemPoolTrimTo(pool, 0)); // what it keeps would be room, too
    need_cuda(cudaMemGetInfo(&free_bytes, &total));
    check(free_bytes > room, "the test's device has %zu bytes left", free_bytes);
    need_cuda(cudaMalloc(&filler, free_bytes - room));
    device_is_filled = true;
    return filler;
}

Status failing_status;

Status failing_collective(FsdpUnit *unit)
{
    return fail(failing_status, "%s: the test's collective fails, as it is meant to",
                unit->flat.name);
}

size_t whole_bytes(const FsdpUnit *unit)
{
    return (size_t)unit->flat.layout.padded * sizeof(float);
}

// Element i of grads[0] … grads[n-1], added up in a tree that splits at the largest power of two
// below n.
static float tree_sum(float *const *grads, int n, size_t i)
{
    int half = 1;
    if (n == 1) return grads[0][i];
    while (2 * half < n) half *= 2;
    return tree_sum(grads, half, i) + tree_sum(grads + half, n - half, i);
}

void tree_average(float *out, float *const *grads, int n, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = tree_sum(grads, n, i) / (float)n;
}
