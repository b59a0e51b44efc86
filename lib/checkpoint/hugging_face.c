/* hugging_face.c: a GPT-2 in Hugging Face's names and layout, out of and into shards.
 *
 * Their linear layers are Conv1D: y = x·W + b with W (in, out), where ours is y = x·Wᵀ + b with W
 * (out, in). Queries, keys and values are thirds of the columns in both. The head is tied to the
 * embedding and is not in the file.
 *
 * Interface: gpt2_export, gpt2_import.
 */
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "internal.h"

enum { ELEMENTS = CHECKPOINT_BUFFER / 4, NAME = 128 };

static const struct {
    const char *ours, *theirs;
} NAMES[] = {{"embed.wte", "wte.weight"},  {"embed.wpe", "wpe.weight"}, {"attn.qkv", "attn.c_attn"},
             {"attn.proj", "attn.c_proj"}, {"mlp.fc", "mlp.c_fc"},      {"mlp.proj", "mlp.c_proj"}};

// Their name for a parameter, in NAME bytes.
static void their_name(const Param *param, const char *prefix, char *out)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        const char *found = strstr(param->name, NAMES[i].ours);
        if (found == NULL) continue;
        snprintf(out, NAME, "%s%.*s%s%s", prefix, (int)(found - param->name), param->name,
                 NAMES[i].theirs, found + strlen(NAMES[i].ours));
        return;
    }
    snprintf(out, NAME, "%s%s", prefix, param->name);
}

// Whether their layout of it is (in, out): weights of linear layers, which are all in blocks.
static bool is_turned(const Param *param)
{
    return param->ndim == 2 && strncmp(param->name, "h.", 2) == 0;
}

static void their_shape(const Param *param, SafetensorsEntry *entry)
{
    entry->ndim = param->ndim;
    for (int d = 0; d < param->ndim; d++)
        entry->shape[d] = param->shape[is_turned(param) ? 1 - d : d];
}

static bool is_first(const FsdpContext *ctx)
{
    return ctx->mesh.shard.rank == 0 && ctx->mesh.replicate.rank == 0;
}

// ---- Out ----

// values (out, in) to tensor number i (in, out), some rows at a time.
static Status write_turned(Safetensors *file, int i, const Param *param, const float *values)
{
    int64_t outs = param->shape[0], ins = param->shape[1];
    int64_t rows = outs < ELEMENTS / 16 ? ELEMENTS / 16 / outs : 1;
    float *buffer = malloc((size_t)(rows * outs) * sizeof *buffer);
    Status status = OK;
    if (buffer == NULL) return fail(ERR_MEMORY, "%s: no host memory to turn it", param->name);
    for (int64_t in = 0; in < ins && status == OK; in += rows) {
        int64_t now = ins - in < rows ? ins - in : rows;
        for (int64_t out = 0; out < outs; out++)
            for (int64_t r = 0; r < now; r++) buffer[r * outs + out] = values[out * ins + in + r];
        status = safetensors_write(file, i, in * outs, now * outs, buffer);
    }
    free(buffer);
    return status;
}

// A StateVisitor: arg is the Safetensors.
static Status write_param(const Param *param, const float *values, void *arg)
{
    Safetensors *file = arg;
    char name[NAME];
    their_name(param, "transformer.", name);
    int i = (int)(safetensors_find(file, name) - file->entries);
    if (is_turned(param)) return write_turned(file, i, param, values);
    return safetensors_write(file, i, 0, file->entries[i].numel, values);
}

static Status create_file(Safetensors *file, const char *path, const FsdpRoot *root)
{
    const SafetensorsText format = {(char *)"format", (char *)"pt"}; // which transformers asks for
    int n = 0, all = 0;
    for (int u = 0; u < root->n_units; u++) all += root->units[u]->flat.layout.n;
    SafetensorsEntry *entries = calloc((size_t)all + 1, sizeof *entries);
    char(*names)[NAME] = calloc((size_t)all + 1, sizeof *names);
    Status status = OK;
    if (entries == NULL || names == NULL) status = fail(ERR_MEMORY, "%s: no host memory", path);
    for (int u = 0; u < root->n_units && status == OK; u++) {
        const FlatLayout *layout = &root->units[u]->flat.layout;
        for (int i = 0; i < layout->n; i++, n++) {
            their_name(layout->params[i], "transformer.", names[n]);
            entries[n].name = names[n];
            their_shape(layout->params[i], &entries[n]);
        }
    }
    if (status == OK) unlink(path); // what a save that was killed has left
    if (status == OK) status = safetensors_create(file, path, entries, n, &format, 1);
    free(names);
    free(entries);
    return status;
}

static Status export_to(const char *tmp, const char *path, Module *module, FsdpRoot *root)
{
    const FsdpContext *ctx = root->ctx;
    Safetensors file = {0};
    Status status = checkpoint_agree(ctx, is_first(ctx) ? create_file(&file, tmp, root) : OK);
    if (status == OK) status = fsdp_full_state(module, write_param, &file);
    if (status == OK && is_first(ctx)) {
        status = safetensors_finish(&file);
        if (status == OK) status = folder_rename(tmp, path);
        if (status == OK) status = folder_sync_parent(path);
        if (status != OK) unlink(tmp);
    }
    safetensors_close(&file);
    return checkpoint_agree(ctx, status);
}

Status gpt2_export(const char *path, Module *module)
{
    FsdpRoot *root = NULL;
    char *tmp = NULL;
    TRY(fsdp_find_root(module, &root));
    if (asprintf(&tmp, "%s.tmp", path) < 0) return fail(ERR_MEMORY, "%s: no host memory", path);
    Status status = export_to(tmp, path, module, root);
    free(tmp);
    return status;
}

// ---- In ----

static float of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31,
             fraction = half & 1023;
    uint32_t bits;
    if (exponent == 0) { // zero, or a number below the smallest normal one: exact in float
        float value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Element i of n values as they are in a file.
static float as_float(const void *raw, int64_t i, SafetensorsType type)
{
    uint16_t half;
    float value;
    if (type == SAFETENSORS_F32) {
        memcpy(&value, (const char *)raw + 4 * i, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)raw + 2 * i, sizeof half);
    if (type == SAFETENSORS_F16) return of_half(half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const SafetensorsEntry *their_tensor(const Safetensors *file, const Param *param)
{
    char name[NAME];
    their_name(param, "transformer.", name);
    const SafetensorsEntry *entry = safetensors_find(file, name);
    if (entry != NULL) return entry;
    their_name(param, "", name);
    return safetensors_find(file, name);
}

static Status check_param(const Safetensors *file, const Param *param)
{
    SafetensorsEntry want = {0};
    char name[NAME];
    const SafetensorsEntry *entry = their_tensor(file, param);
    their_name(param, "", name);
    if (entry == NULL)
        return fail(ERR_IO, "%s: has no tensor %s: it is of another model", file->path, name);
    if (entry->type != SAFETENSORS_F32 && entry->type != SAFETENSORS_F16 &&
        entry->type != SAFETENSORS_BF16)
        return fail(ERR_IO, "%s: tensor %s is %s, expected F32, F16 or BF16", file->path, name,
                    safetensors_type_name(entry->type));
    their_shape(param, &want);
    if (entry->ndim != want.ndim ||
        memcmp(entry->shape, want.shape, (size_t)want.ndim * sizeof *want.shape) != 0)
        return fail(ERR_IO, "%s: tensor %s has another shape than the model: expected (%lld, %lld)",
                    file->path, name, (long long)want.shape[0], (long long)want.shape[1]);
    return OK;
}

// Tensors that are no parameter of ours: masks, and the head, which is tied.
static bool is_left_aside(const char *name)
{
    size_t n = strlen(name);
    return strcmp(name, "lm_head.weight") == 0 ||
           (n > 10 && strcmp(name + n - 10, ".attn.bias") == 0) ||
           (n > 17 && strcmp(name + n - 17, ".attn.masked_bias") == 0);
}

// Every parameter is there as it must be, and nothing else.
static Status check_all(const Safetensors *file, const FsdpRoot *root)
{
    int params = 0, tensors = 0;
    for (int u = 0; u < root->n_units; u++) {
        const FlatLayout *layout = &root->units[u]->flat.layout;
        params += layout->n;
        for (int i = 0; i < layout->n; i++) TRY(check_param(file, layout->params[i]));
    }
    for (int i = 0; i < file->n; i++) tensors += !is_left_aside(file->entries[i].name);
    if (tensors == params) return OK;
    return fail(ERR_IO,
                "%s: has %d tensors of parameters, and the model has %d: it is of another "
                "model",
                file->path, tensors, params);
}

// Elements [begin, end) of the parameter to `values`. raw has room for as many.
static Status read_part(const Safetensors *file, const Param *param, int64_t begin, int64_t end,
                        void *raw, float *values)
{
    const SafetensorsEntry *entry = their_tensor(file, param);
    if (!is_turned(param)) {
        TRY(safetensors_read(file, entry, begin, end - begin, raw));
        for (int64_t i = 0; i < end - begin; i++) values[i] = as_float(raw, i, entry->type);
        return OK;
    }
    int64_t outs = param->shape[0], ins = param->shape[1];
    int64_t first = begin / ins, last = (end - 1) / ins; // rows of ours, columns of theirs
    for (int64_t in = 0; in < ins; in++) {
        TRY(safetensors_read(file, entry, in * outs + first, last - first + 1, raw));
        for (int64_t out = first; out <= last; out++) {
            int64_t i = out * ins + in;
            if (i >= begin && i < end) values[i - begin] = as_float(raw, out - first, entry->type);
        }
    }
    return OK;
}

// This rank's elements of one parameter, a part of at most `room` at a time, to the device. buffer
// has twice as many, and two: as they are in the file, and as float.
static Status read_param(const Safetensors *file, const FsdpUnit *unit, int p, float *buffer,
                         int64_t room)
{
    const FlatLayout *layout = &unit->flat.layout;
    cudaStream_t stream = unit->ctx->compute_stream;
    int64_t begin, end, at;
    flat_param_range_in_shard(layout, p, layout->rank, &begin, &end, &at);
    for (int64_t i = begin; i < end; i += room) {
        int64_t stop = end - i < room ? end : i + room;
        Buffer part = buffer_range(&unit->flat.sharded_param, at + i - begin, stop - i);
        TRY(read_part(file, layout->params[p], i, stop, buffer + room, buffer));
        CUDA_TRY(cudaMemcpyAsync(part.data, buffer, buffer_bytes(&part), cudaMemcpyHostToDevice,
                                 stream));
        CUDA_TRY(cudaStreamSynchronize(stream));
    }
    return OK;
}

// Both halves of the buffer together are no larger than the largest parameter, nor than
// CHECKPOINT_BUFFER.
static int64_t buffer_room(const FsdpRoot *root)
{
    int64_t most = 2;
    for (int u = 0; u < root->n_units; u++)
        for (int p = 0; p < root->units[u]->flat.layout.n; p++) {
            int64_t numel = meta_numel(root->units[u]->flat.layout.params[p]);
            if (numel > most) most = numel;
        }
    return most < ELEMENTS ? most / 2 : ELEMENTS / 2;
}

static Status read_shards(const Safetensors *file, const FsdpRoot *root)
{
    int64_t room = buffer_room(root);
    // Of a part that is no whole rows the file has two more.
    float *buffer = malloc((size_t)(2 * room + 2) * sizeof *buffer);
    Status status = OK;
    if (buffer == NULL) return fail(ERR_MEMORY, "%s: no host memory", file->path);
    for (int u = 0; u < root->n_units; u++)
        for (int p = 0; p < root->units[u]->flat.layout.n && status == OK; p++)
            status = read_param(file, root->units[u], p, buffer, room);
    free(buffer);
    return status;
}

Status gpt2_import(const char *path, Module *module)
{
    FsdpRoot *root = NULL;
    Safetensors file = {0};
    TRY(fsdp_find_root(module, &root));
    for (int u = 0; u < root->n_units; u++)
        if (root->units[u]->flat.state != FLAT_SHARDED)
            return fail(ERR_ARGUMENT, "%s is not sharded: call fsdp_reshard_all(root) before it",
                        root->units[u]->flat.name);
    checkpoint_alike_begin(root->ctx);
    Status status = safetensors_open(&file, path);
    if (status == OK) status = check_all(&file, root);
    status = checkpoint_alike_agree(root->ctx, status);
    if (status == OK) status = checkpoint_agree(root->ctx, read_shards(&file, root));
    safetensors_close(&file);
    return status;
}
