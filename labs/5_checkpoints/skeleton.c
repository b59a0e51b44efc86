/* Lab 5: checkpoints. Each rank writes what it owns, and reads what it owns now.
 *
 * If one rank gathered the checkpoint, it would need the model's bytes on one host, and the other
 * ranks would wait. So every rank writes its own file, and the index says which elements of which
 * parameter are in which file. Who owns what is arithmetic (FlatLayout): on another number of ranks
 * each rank computes which files have the elements that it owns now.
 *
 *     embed.wpe.weight, 10 elements    on 2 ranks  |0 1 2 3 4|5 6 7 8 9|
 *                                      on 3 ranks  |0 1 2 3|4 5 6 7|8 9|
 *     rank 1 of 3 reads [4, 5) from file 0 and [5, 8) from file 1
 *
 * [Note: the commit point] A save can be killed at any byte. It writes to DIR.tmp, which is never
 * loaded; a rename changes DIR, and happens completely or not at all. Between the two is a barrier:
 * rank 0 must not rename a file that another rank has not brought to the disk.
 *
 * [Note: all or nothing] A rank that fails must not leave the others in a collective, nor let them
 * load half a model. So ranks agree (checkpoint_agree) before any step that cannot be undone.
 *
 * Interface:
 *   checkpoint_save, checkpoint_load
 */
// Lab 5. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/5_checkpoints/handout.md; `make grade LAB=5` says how far you are.
#include "checkpoint.h"
#include "not_yet.h"

#include <stdlib.h>
#include <string.h>

// This rank's elements of one parameter, or of one of its moments.
typedef struct Piece {
    const Param *param;
    CheckpointPart part;
    int64_t begin, end; // elements of the parameter
    float *data;        // device: the first of them
} Piece;

// ---- The pieces and the index ----

// The device memory of a part (parameters or moments) of unit number u's shard.
static float *part_of_shard(const FsdpRoot *root, const FsdpAdamW *opt, int u, CheckpointPart part)
{
    if (part == CHECKPOINT_PARAM) return root->units[u]->flat.sharded_param.data;
    return part == CHECKPOINT_M ? opt->m[u] : opt->v[u];
}

// Lists this rank's pieces, without padding. Returns their number; writes them to out unless it is
// NULL. Without `opt` there are no moments.
static int list_pieces(const FsdpRoot *root, const FsdpAdamW *opt, Piece *out)
{
    CheckpointPart last = opt != NULL ? CHECKPOINT_V : CHECKPOINT_PARAM;
    int n = 0;
    // TODO L5.1: If this rank owns an element of a unit's parameter, the parameter has a piece
    // for each part up to `last` (a frozen one has no moments), and `data` is where the piece's
    // first element is on this rank.
    // Hint: Three arrays have the same layout on this rank. Which one does part_of_shard give you?
    NOT_YET("L5.1");
    return n;
}

// The list in memory that the caller frees.
static Status make_pieces(const FsdpRoot *root, const FsdpAdamW *opt, Piece **pieces, int *n)
{
    *n = list_pieces(root, opt, NULL);
    *pieces = malloc((size_t)(*n + 1) * sizeof **pieces);
    if (*pieces == NULL) return fail(ERR_MEMORY, "no host memory for a list of %d pieces", *n);
    list_pieces(root, opt, *pieces);
    return OK;
}

Status checkpoint_describe(CheckpointIndex *index, const FsdpRoot *root)
{
    // TODO L5.2: Every parameter of every unit is in the index, with the slices of all ranks in
    // order.
    // Hint: No rank tells you what it owns. How do you know?
    NOT_YET("L5.2");
}

// ---- Saving ----

// Writes the pieces to a new file, one tensor each; it is on the disk when this returns.
static Status write_pieces(const char *path, const Piece *pieces, int n,
                           const CheckpointLabel *label, cudaStream_t stream)
{
    SafetensorsEntry *entries = calloc((size_t)n + 1, sizeof *entries);
    char(*names)[CHECKPOINT_NAME] = calloc((size_t)n + 1, sizeof *names);
    Safetensors file = {0};
    Status status = OK;
    if (entries == NULL || names == NULL) status = fail(ERR_MEMORY, "%s: no host memory", path);
    for (int i = 0; status == OK && i < n; i++) {
        checkpoint_tensor_name(names[i], pieces[i].param->name, pieces[i].part);
        entries[i] = (SafetensorsEntry){
            .name = names[i], .ndim = 1, .shape = {pieces[i].end - pieces[i].begin}};
    }
    // TODO L5.3: If `status` is OK, the file has the elements of every piece and is finished; else
    // `status` is the first failure and there is no file.
    // Hint: What does safetensors_close do with a file that is not finished?
    NOT_YET("L5.3");
    free(names);
    free(entries);
    return status;
}

// Writes this rank's file; the first of all ranks also writes the index.
static Status write_part(const char *tmp, const FsdpRoot *root, const FsdpAdamW *opt,
                         const CheckpointPosition *position)
{
    const Mesh *mesh = &root->ctx->mesh;
    Piece *pieces = NULL;
    CheckpointIndex index;
    CheckpointLabel label;
    int n = 0;
    if (mesh->replicate.rank != 0) return OK; // another rank holds the same
    char *path = checkpoint_file(tmp, mesh->shard.rank, mesh->shard.size);
    Status status = path != NULL ? make_pieces(root, opt, &pieces, &n) : ERR_MEMORY;
    checkpoint_label(&label, mesh->shard.rank, mesh->shard.size, position->step);
    if (status == OK) status = write_pieces(path, pieces, n, &label, root->ctx->compute_stream);
    free(pieces);
    free(path);
    if (mesh->shard.rank != 0 || status != OK) return status;

    index_begin(&index, mesh->shard.size);
    index.position = *position;
    index.has_moments = opt != NULL;
    index.t = opt != NULL ? opt->t : 0;
    status = checkpoint_describe(&index, root);
    if (status == OK) status = index_write(&index, tmp);
    index_free(&index);
    return status;
}

Status checkpoint_begin(const char *dir, const char *tmp, const char *old)
{
    // TODO L5.4: As checkpoint.h says. If DIR is not a checkpoint, ERR_IO, and nothing has changed.
    // Hint: When is DIR.old the last good one, and when is it rubbish?
    NOT_YET("L5.4");
}

Status checkpoint_commit(const char *dir, const char *tmp, const char *old)
{
    Status status = OK;
    // TODO L5.5: DIR is the new checkpoint, even after a power failure, and the previous one is
    // gone; or `status` is the failure and DIR is as it was, whichever call failed. After a kill at
    // any point, DIR or DIR.old is complete.
    // Hint: A file is on the disk. Is its name? When may you remove the previous checkpoint, at the
    // earliest? And if the last fsync fails, what must you undo?
    NOT_YET("L5.5");
    return status;
}

// The part of a save that all ranks make together, step by step.
static Status save_together(const char *dir, const char *tmp, const char *old, FsdpRoot *root,
                            const FsdpAdamW *opt, const CheckpointPosition *position)
{
    const FsdpContext *ctx = root->ctx;
    bool first = ctx->mesh.shard.rank == 0 && ctx->mesh.replicate.rank == 0;
    Status status = OK;
    // TODO L5.6: checkpoint_begin, write_part and checkpoint_commit have run, and ranks have agreed
    // between them; OK on every rank or on none. If one of the last two failed, DIR.tmp is gone
    // when a rank returns.
    // Hint: One rank has finished its file, another has not. What may rank 0 do by now?
    NOT_YET("L5.6");
}

// Finds the root of the model; `opt` must be its optimizer.
static Status find_root(const char *dir, Module *module, const FsdpAdamW *opt, FsdpRoot **root)
{
    TRY(fsdp_find_root(module, root));
    if (opt != NULL && opt->root != *root)
        return fail(ERR_ARGUMENT, "%s: the optimizer is of another model than %s", dir,
                    module->name);
    return OK;
}

Status checkpoint_save(const char *dir, Module *module, const FsdpAdamW *opt,
                       const CheckpointPosition *position)
{
    FsdpRoot *root = NULL;
    TRY(find_root(dir, module, opt, &root));
    char *to = checkpoint_name(dir, ""), *tmp = checkpoint_name(dir, ".tmp");
    char *old = checkpoint_name(dir, ".old");
    bool named = to != NULL && tmp != NULL && old != NULL; // else the others are told
    Status status = named ? save_together(to, tmp, old, root, opt, position)
                          : checkpoint_agree(root->ctx, ERR_MEMORY);
    free(old);
    free(tmp);
    free(to);
    return status;
}

// ---- Loading ----

// Whether each parameter that trains now has moments.
static Status check_moments(const CheckpointIndex *index, const FsdpRoot *root)
{
    for (int u = 0; u < root->n_units; u++) {
        const FlatLayout *layout = &root->units[u]->flat.layout;
        for (int i = 0; i < layout->n; i++) {
            const CheckpointEntry *entry = index_find(index, layout->params[i]->name);
            if (entry != NULL && entry->frozen && !layout->params[i]->frozen)
                return fail(ERR_IO, "%s: parameter %s was frozen and has no moments: freeze it",
                            index->dir, entry->name);
        }
    }
    return OK;
}

// Whether the checkpoint is one of this model, with moments if they are wanted.
static Status check_model(const CheckpointIndex *index, const FsdpRoot *root, const FsdpAdamW *opt)
{
    int n = 0;
    if (opt != NULL && !index->has_moments)
        return fail(ERR_IO, "%s: adamw is null: it was saved without an optimizer", index->dir);
    if (opt != NULL) TRY(check_moments(index, root));
    // TODO L5.7: OK if the index has every parameter of every unit, each with its shape, and no
    // other; else ERR_IO, with a line that names the checkpoint and the parameter.
    // Hint: Two models have the same number of elements: what differs?
    NOT_YET("L5.7");
}

// Reads what file number i has of one piece; opens the file when it is first needed.
static Status read_piece(const CheckpointIndex *index, int i, Safetensors *file, const Piece *piece,
                         cudaStream_t stream)
{
    const CheckpointEntry *entry = index_find(index, piece->param->name);
    char name[CHECKPOINT_NAME];
    checkpoint_tensor_name(name, piece->param->name, piece->part);
    // TODO L5.8: Every element that is both in the piece and in a slice of file i is in its place
    // in the piece; nothing else was read, and without such an element the file is not opened (path
    // is NULL while a file is not open).
    // Hint: Element e of the parameter: which element of the tensor is it, and which of the piece?
    NOT_YET("L5.8");
}

// Reads all of this rank's pieces, file by file.
static Status read_pieces(const CheckpointIndex *index, const FsdpRoot *root, const FsdpAdamW *opt)
{
    Piece *pieces = NULL;
    int n = 0;
    Status status = make_pieces(root, opt, &pieces, &n);
    for (int i = 0; i < index->n_files && status == OK; i++) {
        Safetensors file = {0};
        for (int p = 0; p < n && status == OK; p++)
            status = read_piece(index, i, &file, &pieces[p], root->ctx->compute_stream);
        safetensors_close(&file);
    }
    free(pieces);
    return status;
}

// Checks this rank's share of the files against the index: one rank looks at each file.
static Status check_files(const CheckpointIndex *index, const Mesh *mesh)
{
    int place = mesh->replicate.rank * mesh->shard.size + mesh->shard.rank;
    for (int i = place; i < index->n_files; i += mesh_size(mesh)) TRY(index_check_file(index, i));
    return OK;
}

// The part of a load that all ranks make together. `status` is the result of reading the index.
static Status load_together(Status status, const CheckpointIndex *index, FsdpRoot *root,
                            const FsdpAdamW *opt)
{
    const FsdpContext *ctx = root->ctx;
    // TODO L5.9: All ranks know that index, model and files (check_model, check_files) are good
    // before one reads its pieces; OK on every rank or on none. A failure that all ranks find alike
    // prints one line (checkpoint_alike_begin was called).
    // Hint: File 3 is truncated, and rank 0 needs only file 0. What must it not do yet?
    NOT_YET("L5.9");
}

Status checkpoint_load(const char *dir, Module *module, FsdpAdamW *opt,
                       CheckpointPosition *position)
{
    FsdpRoot *root = NULL;
    CheckpointIndex index = {0};
    TRY(find_root(dir, module, opt, &root));
    for (int u = 0; u < root->n_units; u++)
        if (root->units[u]->flat.state != FLAT_SHARDED)
            return fail(ERR_ARGUMENT,
                        "%s is not sharded: call fsdp_reshard_all(root) before a load",
                        root->units[u]->flat.name);
    char *from = checkpoint_name(dir, ""), *old = checkpoint_name(dir, ".old");
    Status status = from != NULL && old != NULL ? OK : ERR_MEMORY;
    fsdp_shards_written(root);
    checkpoint_alike_begin(root->ctx);
    if (status == OK) { // [Note: the commit point]
        bool moved = !folder_is_there(from) && folder_is_there(old);
        status = index_read(&index, moved ? old : from);
    }
    status = load_together(status, &index, root, opt);
    if (status == OK && opt != NULL) opt->t = (int)index.t;
    if (status == OK) *position = index.position;
    index_free(&index);
    free(old);
    free(from);
    return status;
}
