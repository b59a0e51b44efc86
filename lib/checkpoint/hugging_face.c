/* hugging_face.c: writes shards as a GPT-2 or a Llama in Hugging Face's names and layout, and reads
 * them back. hugging_face_names.c says which of their tensors are which rows of our parameters.
 */
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "hugging_face.h"
#include "internal.h"

enum { ELEMENTS = CHECKPOINT_BUFFER / 4, PIECES = HUGGING_FACE_PIECES };
typedef HuggingFacePiece Piece;

static void their_shape(const Piece *piece, SafetensorsEntry *entry)
{
    entry->ndim = piece->ndim;
    entry->shape[0] = piece->turned ? piece->columns : piece->rows;
    if (piece->ndim == 2) entry->shape[1] = piece->turned ? piece->rows : piece->columns;
}

static bool is_first(const FsdpContext *ctx)
{
    return ctx->mesh.shard.rank == 0 && ctx->mesh.replicate.rank == 0;
}

// ---- Out ----

// Writes values (out, in) to tensor number i (in, out), a few rows at a time.
static Status write_turned(Safetensors *file, int i, const Piece *piece, const float *values)
{
    int64_t outs = piece->rows, ins = piece->columns;
    int64_t rows = outs < ELEMENTS / 16 ? ELEMENTS / 16 / outs : 1;
    float *buffer = malloc((size_t)(rows * outs) * sizeof *buffer);
    Status status = OK;
    if (buffer == NULL) return fail(ERR_MEMORY, "%s: no host memory to turn it", piece->name);
    for (int64_t in = 0; in < ins && status == OK; in += rows) {
        int64_t now = ins - in < rows ? ins - in : rows;
        for (int64_t out = 0; out < outs; out++)
            for (int64_t r = 0; r < now; r++) buffer[r * outs + out] = values[out * ins + in + r];
        status = safetensors_write(file, i, in * outs, now * outs, buffer);
    }
    free(buffer);
    return status;
}

typedef struct Export {
    const HuggingFaceModel *model;
    Safetensors file;
} Export;

// A StateVisitor whose arg is the Export.
static Status write_param(const Param *param, const float *values, void *arg)
{
    Export *e = arg;
    Piece pieces[PIECES];
    int n = e->model->pieces(param, pieces);
    for (int p = 0; p < n; p++) {
        const Piece *piece = &pieces[p];
        const float *rows = values + piece->first * piece->columns;
        int i = (int)(safetensors_find(&e->file, piece->name) - e->file.entries);
        TRY(piece->turned ? write_turned(&e->file, i, piece, rows)
                          : safetensors_write(&e->file, i, 0, e->file.entries[i].numel, rows));
    }
    return OK;
}

static Status create_file(Export *e, const char *path, const FsdpRoot *root)
{
    const SafetensorsText format = {(char *)"format", (char *)"pt"}; // transformers requires it
    int n = 0, all = 0;
    for (int u = 0; u < root->n_units; u++) all += root->units[u]->flat.layout.n;
    SafetensorsEntry *entries = calloc((size_t)all * PIECES + 1, sizeof *entries);
    Piece *pieces = calloc((size_t)all * PIECES + PIECES, sizeof *pieces);
    Status status = OK;
    if (entries == NULL || pieces == NULL) status = fail(ERR_MEMORY, "%s: no host memory", path);
    for (int u = 0; u < root->n_units && status == OK; u++) {
        const FlatLayout *layout = &root->units[u]->flat.layout;
        for (int i = 0; i < layout->n; i++) {
            int more = e->model->pieces(layout->params[i], &pieces[n]);
            for (; more > 0; more--, n++) {
                entries[n].name = pieces[n].name;
                their_shape(&pieces[n], &entries[n]);
            }
        }
    }
    if (status == OK) unlink(path); // left by a save that was killed
    if (status == OK) status = safetensors_create(&e->file, path, entries, n, &format, 1);
    free(pieces);
    free(entries);
    return status;
}

static Status export_to(const HuggingFaceModel *model, const char *tmp, const char *path,
                        Module *module, FsdpRoot *root)
{
    const FsdpContext *ctx = root->ctx;
    Export e = {.model = model};
    Status status = checkpoint_agree(ctx, is_first(ctx) ? create_file(&e, tmp, root) : OK);
    if (status == OK) status = fsdp_full_state(module, write_param, &e);
    if (status == OK && is_first(ctx)) {
        status = safetensors_finish(&e.file);
        if (status == OK) status = folder_rename(tmp, path);
        if (status == OK) status = folder_sync_parent(path);
        if (status != OK) unlink(tmp);
    }
    safetensors_close(&e.file);
    return checkpoint_agree(ctx, status);
}

static Status export_model(const HuggingFaceModel *model, const char *path, Module *module)
{
    FsdpRoot *root = NULL;
    char *tmp = NULL;
    TRY(fsdp_find_root(module, &root));
    if (asprintf(&tmp, "%s.tmp", path) < 0) return fail(ERR_MEMORY, "%s: no host memory", path);
    Status status = export_to(model, tmp, path, module, root);
    free(tmp);
    return status;
}

Status gpt2_export(const char *path, Module *module)
{
    return export_model(&hugging_face_gpt2, path, module);
}

Status llama_export(const char *path, Module *module)
{
    return export_model(&hugging_face_llama, path, module);
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

// Finds a tensor by its name with or without the prefix.
static const SafetensorsEntry *their_tensor(const SafetensorsSet *set, const Piece *piece,
                                            const Safetensors **file)
{
    const SafetensorsEntry *entry = safetensors_set_find(set, piece->name, file);
    return entry != NULL ? entry : safetensors_set_find(set, piece->bare, file);
}

static Status check_piece(const SafetensorsSet *set, const Piece *piece)
{
    SafetensorsEntry want = {0};
    const Safetensors *file;
    const SafetensorsEntry *entry = their_tensor(set, piece, &file);
    const char *name = piece->bare;
    if (entry == NULL)
        return fail(ERR_IO, "%s: has no tensor %s: it is of another model", set->path, name);
    if (entry->type != SAFETENSORS_F32 && entry->type != SAFETENSORS_F16 &&
        entry->type != SAFETENSORS_BF16)
        return fail(ERR_IO, "%s: tensor %s is %s, expected F32, F16 or BF16", file->path, name,
                    safetensors_type_name(entry->type));
    their_shape(piece, &want);
    if (entry->ndim != want.ndim ||
        memcmp(entry->shape, want.shape, (size_t)want.ndim * sizeof *want.shape) != 0)
        return fail(ERR_IO, "%s: tensor %s has another shape than the model: expected (%lld, %lld)",
                    file->path, name, (long long)want.shape[0], (long long)want.shape[1]);
    return OK;
}

// The files have every parameter in its shape, and nothing else but perhaps a tied head.
static Status check_all(const HuggingFaceModel *model, const SafetensorsSet *set,
                        const FsdpRoot *root)
{
    int expected = 0, tensors = 0;
    bool has_head = false;
    for (int u = 0; u < root->n_units; u++) {
        const FlatLayout *layout = &root->units[u]->flat.layout;
        for (int i = 0; i < layout->n; i++) {
            Piece pieces[PIECES];
            int n = model->pieces(layout->params[i], pieces);
            for (int p = 0; p < n; p++) {
                TRY(check_piece(set, &pieces[p]));
                has_head |= strcmp(pieces[p].bare, "lm_head.weight") == 0;
            }
            expected += n;
        }
    }
    for (int f = 0; f < set->n; f++)
        for (int i = 0; i < set->files[f].n; i++) {
            const char *name = set->files[f].entries[i].name;
            bool is_head = strcmp(name, "lm_head.weight") == 0;
            tensors += is_head ? has_head : !model->is_left_aside(name);
        }
    if (tensors == expected) return OK;
    return fail(ERR_IO,
                "%s: has %d tensors of parameters, and the model has %d: it is of another model",
                set->path, tensors, expected);
}

// Reads elements [begin, end) of the piece into `values`. raw has room for two more than that.
static Status read_piece(const SafetensorsSet *set, const Piece *piece, int64_t begin, int64_t end,
                         void *raw, float *values)
{
    const Safetensors *file;
    const SafetensorsEntry *entry = their_tensor(set, piece, &file);
    if (!piece->turned) {
        TRY(safetensors_read(file, entry, begin, end - begin, raw));
        for (int64_t i = 0; i < end - begin; i++) values[i] = as_float(raw, i, entry->type);
        return OK;
    }
    int64_t outs = piece->rows, ins = piece->columns;
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

// Reads elements [begin, end) of the parameter from all tensors that have some of them.
static Status read_part(const HuggingFaceModel *model, const SafetensorsSet *set,
                        const Param *param, int64_t begin, int64_t end, void *raw, float *values)
{
    Piece pieces[PIECES];
    int n = model->pieces(param, pieces);
    for (int p = 0; p < n; p++) {
        int64_t first = pieces[p].first * pieces[p].columns;
        int64_t past = first + pieces[p].rows * pieces[p].columns;
        int64_t from = begin > first ? begin : first, to = end < past ? end : past;
        if (from < to)
            TRY(read_piece(set, &pieces[p], from - first, to - first, raw, values + from - begin));
    }
    return OK;
}

// Copies this rank's elements of one parameter to the device, at most `room` at a time. buffer has
// room for them twice, as in the file and as float, and for two more.
static Status read_param(const HuggingFaceModel *model, const SafetensorsSet *set,
                         const FsdpUnit *unit, int p, float *buffer, int64_t room)
{
    const FlatLayout *layout = &unit->flat.layout;
    cudaStream_t stream = unit->ctx->compute_stream;
    int64_t begin, end, at;
    flat_param_range_in_shard(layout, p, layout->rank, &begin, &end, &at);
    for (int64_t i = begin; i < end; i += room) {
        int64_t stop = end - i < room ? end : i + room;
        Buffer part = buffer_range(&unit->flat.sharded_param, at + i - begin, stop - i);
        TRY(read_part(model, set, layout->params[p], i, stop, buffer + room, buffer));
        CUDA_TRY(cudaMemcpyAsync(part.data, buffer, buffer_bytes(&part), cudaMemcpyHostToDevice,
                                 stream));
        CUDA_TRY(cudaStreamSynchronize(stream));
    }
    return OK;
}

// Both halves of the buffer together are at most as large as the largest parameter, and as
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

static Status read_shards(const HuggingFaceModel *model, const SafetensorsSet *set,
                          const FsdpRoot *root)
{
    int64_t room = buffer_room(root);
    // A part that does not consist of whole rows takes two more elements of the file.
    float *buffer = malloc((size_t)(2 * room + 2) * sizeof *buffer);
    Status status = OK;
    if (buffer == NULL) return fail(ERR_MEMORY, "%s: no host memory", set->path);
    for (int u = 0; u < root->n_units; u++)
        for (int p = 0; p < root->units[u]->flat.layout.n && status == OK; p++)
            status = read_param(model, set, root->units[u], p, buffer, room);
    free(buffer);
    return status;
}

// Checks that the config.json beside the weights, if there is one, describes this model.
static Status check_config(const HuggingFaceModel *model, const SafetensorsSet *set,
                           const Module *module)
{
    char *path = NULL;
    const char *slash = strrchr(set->path, '/');
    int n = slash != NULL ? (int)(slash + 1 - set->path) : 0;
    if (asprintf(&path, "%.*sconfig.json", n, set->path) < 0)
        return fail(ERR_MEMORY, "%s: no host memory", set->path);
    Status status =
        access(path, F_OK) != 0 ? OK : hugging_face_config_check(path, module, model->is_llama);
    free(path);
    return status;
}

static Status import_model(const HuggingFaceModel *model, const char *path, Module *module)
{
    FsdpRoot *root = NULL;
    SafetensorsSet set = {0};
    TRY(fsdp_find_root(module, &root));
    for (int u = 0; u < root->n_units; u++)
        if (root->units[u]->flat.state != FLAT_SHARDED)
            return fail(ERR_ARGUMENT, "%s is not sharded: call fsdp_reshard_all(root) before it",
                        root->units[u]->flat.name);
    checkpoint_alike_begin(root->ctx);
    Status status = safetensors_set_open(&set, path);
    if (status == OK) status = check_config(model, &set, module);
    if (status == OK) status = check_all(model, &set, root);
    status = checkpoint_alike_agree(root->ctx, status);
    if (status == OK) status = checkpoint_agree(root->ctx, read_shards(model, &set, root));
    safetensors_set_close(&set);
    fsdp_shards_written(root);
    return status;
}

Status gpt2_import(const char *path, Module *module)
{
    return import_model(&hugging_face_gpt2, path, module);
}

Status llama_import(const char *path, Module *module)
{
    return import_model(&hugging_face_llama, path, module);
}
