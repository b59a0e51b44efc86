/* checkpoint.h: the state of a training on disk, for any number of ranks. The contract of lab 5
 * (checkpoints.c).
 *
 * A checkpoint is a folder: a safetensors file of each rank that shards, with its slices of all
 * parameters and of the optimizer's moments, and index.json, which says what the files hold:
 *
 *   DIR/index.json    parameters, their shapes, and which file has which elements; the optimizer's
 *                     step; where the data were
 *   DIR/rank-0-of-4.safetensors …
 *                     "h.0.mlp.fc.weight", "…adamw.m", "…adamw.v": each the elements [begin, end)
 *                     that the index names, as one dimension
 *
 * A checkpoint records who owns which elements (FlatLayout), never how they are stored, so it has
 * no padding. Another number of ranks, or another split into units, can load it: each rank reads
 * the elements that it owns now from the files of those that owned them then. A rank holds on the
 * host at most a buffer of CHECKPOINT_BUFFER bytes, or one slice if that is less.
 *
 * A save is atomic. It writes to DIR.tmp; when every file is on the disk, it replaces DIR by a
 * rename, and then removes DIR.old, the previous one. After a kill at any time DIR is complete, or
 * DIR is not there and DIR.old is complete.
 *
 * Bad input is ERR_IO with one line from all ranks together, and no element of the model has
 * changed.
 */
#ifndef SHARDLAB_CHECKPOINT_H
#define SHARDLAB_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "fsdp.h"
#include "safetensors.h"

#define Status CHECKED_STATUS // as check.h says

enum { CHECKPOINT_BUFFER = 1 << 20 };

// Where the training is, so that it resumes with the next data.
typedef struct CheckpointPosition {
    int64_t step;       // steps done
    uint64_t data_seed; // of the batches (text.h)
    float loss_scale;   // of the LossScaler (precision.h); 0: there is none
    int growth_tracker; // the scaler's
    uint64_t sequences; // drawn by all ranks together, if they are counted (tokens.h)
    double best_loss;   // of all validations so far; 0: there was none
    int heads;          // of the attention, which no shape tells; 0: not known
} CheckpointPosition;

// One file's part of a parameter.
typedef struct CheckpointSlice {
    int file;           // number: of the rank that wrote it
    int64_t begin, end; // elements of the parameter
} CheckpointSlice;

typedef struct CheckpointEntry {
    char name[80];
    int ndim;
    int64_t shape[PARAM_MAX_DIMS];
    int64_t numel;
    bool frozen; // it was, when it was saved: it has no moments
    int n_slices;
    CheckpointSlice *slices; // in order of `begin`, without a gap or an overlap
} CheckpointEntry;

typedef struct CheckpointIndex {
    char *dir;   // that it was read from
    int n_files; // ranks that shard
    int n;       // parameters
    CheckpointEntry *entries;
    bool has_moments;
    int64_t t; // the optimizer's steps
    CheckpointPosition position;
} CheckpointIndex;

// ---------------------------------------------------------------- Lab 5: labs/5_checkpoints

// Saves the parameters of the root's units, the moments and t of `opt` (NULL: no optimizer) and the
// position. Collective: all ranks call it, between steps. When it returns OK, on any rank, the
// checkpoint is complete and on the disk. Else DIR is as it was, and the new files are removed. If
// the last fsync fails, which brings the new name to the disk, DIR is renamed back. ERR_ARGUMENT
// for another model's optimizer. (If the disk fails again in that cleanup, DIR.tmp may be left, or
// DIR.old instead of DIR or next to a new DIR: a load takes a complete one.)
Status checkpoint_save(const char *dir, Module *root, const FsdpAdamW *opt,
                       const CheckpointPosition *position);

// Loads what checkpoint_save has saved, on any number of ranks and with any units; `opt` NULL: only
// the parameters. Collective. ERR_ARGUMENT if a unit is not sharded, or for another model's
// optimizer; ERR_IO for a checkpoint of another model, without moments if `opt` is given, or with a
// missing or damaged file; then nothing has changed. Padding stays zero.
Status checkpoint_load(const char *dir, Module *root, FsdpAdamW *opt, CheckpointPosition *position);

// The steps of a save that a save in the background takes, too (examples/common/background_save.c).
// Adds to the index who has which elements of which parameter, on all ranks. ERR_MEMORY.
Status checkpoint_describe(CheckpointIndex *index, const FsdpRoot *root);
// Prepares a save, on one rank: removes what an earlier save left, makes the last good checkpoint
// DIR, and makes an empty DIR.tmp. ERR_IO, also if DIR is not a checkpoint; then nothing has
// changed.
Status checkpoint_begin(const char *dir, const char *tmp, const char *old);
// Makes DIR.tmp, whose files are all on the disk, DIR, on one rank. ERR_IO: DIR is as it was.
Status checkpoint_commit(const char *dir, const char *tmp, const char *old);

// ---------------------------------------------------------------- Given code (lib/checkpoint)

// Leaves the model's parameters uninitialised, because a checkpoint will be loaded: call it before
// fully_shard (PyTorch: to_empty). simgpu reports a read of one that was not loaded.
void checkpoint_storage_only(Module *model);

// An index without parameters; then one after another. ERR_MEMORY.
void index_begin(CheckpointIndex *index, int n_files);
Status index_add_param(CheckpointIndex *index, const Param *param);
// A slice of the parameter that was added last; slices in order. An empty one is left out.
Status index_add_slice(CheckpointIndex *index, int file, int64_t begin, int64_t end);
void index_free(CheckpointIndex *index);
// DIR/index.json, on the disk when it returns.
Status index_write(const CheckpointIndex *index, const char *dir);
// Reads and checks it: every parameter's slices cover it. ERR_IO names the file and the field.
Status index_read(CheckpointIndex *index, const char *dir);
// The parameter of that name, or NULL.
const CheckpointEntry *index_find(const CheckpointIndex *index, const char *name);
// Opens file number i of the index and checks its label, and that it has every slice that the index
// names, as float and of the right length.
Status index_check_file(const CheckpointIndex *index, int i);

// A file's label in its __metadata__, "part": "I of N" and "step", so that nobody mistakes a file
// of another rank or of another save for it.
typedef struct CheckpointLabel {
    char part[24], step[24];
    SafetensorsText texts[2];
} CheckpointLabel;
void checkpoint_label(CheckpointLabel *label, int i, int n, int64_t step);

// The path of file number i of n: "DIR/rank-I-of-N.safetensors". Free it; NULL without memory.
char *checkpoint_file(const char *dir, int i, int n);
// DIR with ".tmp" or ".old" at its end. Free it; NULL without memory.
char *checkpoint_name(const char *dir, const char *ending);

// The name of a tensor in a file: the parameter's, with "", ".adamw.m" or ".adamw.v".
typedef enum CheckpointPart { CHECKPOINT_PARAM, CHECKPOINT_M, CHECKPOINT_V } CheckpointPart;
const char *checkpoint_part_name(CheckpointPart part); // "", ".adamw.m", ".adamw.v"
// A parameter's name and the part's, in a buffer of CHECKPOINT_NAME bytes.
enum { CHECKPOINT_NAME = 96 };
void checkpoint_tensor_name(char *out, const char *param, CheckpointPart part);

// Copies n floats from the device to element `first` of a tensor, or back, through the buffer, on
// `stream`; done when it returns.
Status checkpoint_copy_out(Safetensors *file, int tensor, int64_t first, int64_t n,
                           const float *device, cudaStream_t stream);
Status checkpoint_copy_in(const Safetensors *file, const SafetensorsEntry *entry, int64_t first,
                          int64_t n, float *device, cudaStream_t stream);

// Folders. Each of these prints a line if it fails.
bool folder_is_there(const char *dir);
// OK if nothing is there, or a folder with only a checkpoint's files.
Status folder_check(const char *dir);
Status folder_make(const char *dir);
// The names in the folder are on the disk (fsync of the folder).
Status folder_sync(const char *dir);
// The same of the folder that `dir` is in.
Status folder_sync_parent(const char *dir);
Status folder_rename(const char *from, const char *to);
// Removes a checkpoint, complete or not, if there is one. A folder with any other file stays, and
// is ERR_IO: it may be somebody's.
Status folder_remove(const char *dir);

// ---------------------------------------------------------------- Hugging Face's models

// Their config.json of a model: a GPT-2, or a model of Llama's shape.
typedef struct HuggingFaceConfig {
    const char *type; // its model_type
    bool is_llama;
    LlamaConfig sizes; // of a GPT-2 too, as far as it has them
    int window;        // Llama: tokens that attention sees, at most max_T
} HuggingFaceConfig;
// exact: our model must compute the same as theirs, so any other value of a key is refused: other
// activations, biases, positions. Else, as for a plan, only the sizes must be right (Qwen's biases
// and norms are small). ERR_IO with a line that names the key.
Status hugging_face_config_read(const char *path, bool exact, HuggingFaceConfig *config);
// A config.json of the model in float; `like`: the file that it was read from, whose other keys
// stay, or NULL.
Status hugging_face_config_write(const char *path, const HuggingFaceConfig *config,
                                 const char *like);
// Checks what no tensor's shape says: kind, heads, and a Llama's eps and positions must be the
// model's.
Status hugging_face_config_check(const char *path, const Module *model, bool is_llama);

// The unsharded model in one safetensors file with the names and the layout of Hugging Face's
// GPT2LMHeadModel: their linear layers are Conv1D, whose weight is (in, out) where ours is (out,
// in). Collective; rank 0 writes PATH.tmp and renames it. No rank holds more than one parameter on
// the host.
Status gpt2_export(const char *path, Module *root);
// The other way, from a file or from a folder of files with an index (safetensors_set_open): every
// rank reads the elements of its shards. float, float16 or bfloat16; names with or without
// "transformer." in front; buffers (attn.bias) and a tied lm_head are ignored. A config.json in the
// same folder must describe the model (hugging_face_config_check).
Status gpt2_import(const char *path, Module *root);

// The same of Llama, as Hugging Face's LlamaForCausalLM: names with or without "model." in front.
// Queries, keys and values are three tensors there, gate and up two; pairs of columns that
// positions turn are the same, so that no row changes places. A head that is tied is not written,
// and is ignored if it is there.
Status llama_export(const char *path, Module *root);
Status llama_import(const char *path, Module *root);

#undef Status

// ---------------------------------------------------------------- Together

// Every rank passes its status, and all learn whether one has failed: returns OK, or `mine`, or
// ERR_IO if another rank failed (which has printed its line). It is also a barrier.
CHECKED_STATUS checkpoint_agree(const FsdpContext *ctx, Status mine);

// For a failure that all ranks find alike, such as a missing file. Between begin and agree only
// rank 0 prints; a rank that found what rank 0 did not prints it in agree. Else as
// checkpoint_agree.
void checkpoint_alike_begin(const FsdpContext *ctx);
CHECKED_STATUS checkpoint_alike_agree(const FsdpContext *ctx, Status mine);

#endif
