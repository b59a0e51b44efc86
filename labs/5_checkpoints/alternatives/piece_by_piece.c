/* piece_by_piece.c: Pieces are listed part by part, from the last unit to the first; a load goes
 * through the pieces, not through the files, and opens a file for each slice again.
 */
// ==== checkpoints.c
static int list_pieces(const FsdpRoot *root, const FsdpAdamW *opt, Piece *out)
{
    int n = 0;
    for (CheckpointPart part = CHECKPOINT_PARAM; part <= (opt != NULL ? CHECKPOINT_V : 0); part++) {
        for (int u = root->n_units - 1; u >= 0; u--) {
            const FlatLayout *layout = &root->units[u]->flat.layout;
            for (int i = 0; i < layout->n; i++) {
                int64_t from, to, at;
                flat_param_range_in_shard(layout, i, layout->rank, &from, &to, &at);
                if (from == to || (part > CHECKPOINT_PARAM && layout->params[i]->frozen)) continue;
                float *data = part_of_shard(root, opt, u, part) + at;
                if (out != NULL) out[n] = (Piece){layout->params[i], part, from, to, data};
                n++;
            }
        }
    }
    return n;
}

static Status read_slice(const CheckpointIndex *index, const CheckpointSlice *slice,
                         const Piece *piece, cudaStream_t stream)
{
    char name[CHECKPOINT_NAME];
    Safetensors file;
    int64_t from = piece->begin, to = slice->end < piece->end ? slice->end : piece->end;
    if (from < slice->begin) from = slice->begin;
    if (from >= to) return OK;
    char *path = checkpoint_file(index->dir, slice->file, index->n_files);
    if (path == NULL) return ERR_MEMORY;
    Status status = safetensors_open(&file, path);
    free(path);
    if (status != OK) return status;
    checkpoint_tensor_name(name, piece->param->name, piece->part);
    status = checkpoint_copy_in(&file, safetensors_find(&file, name), from - slice->begin,
                                to - from, piece->data + from - piece->begin, stream);
    safetensors_close(&file);
    return status;
}

static Status read_pieces(const CheckpointIndex *index, const FsdpRoot *root, const FsdpAdamW *opt)
{
    Piece *pieces = NULL;
    int n = 0;
    (void)read_piece; // the reference's, which nobody calls here
    Status status = make_pieces(root, opt, &pieces, &n);
    for (int p = 0; p < n && status == OK; p++) {
        const CheckpointEntry *entry = index_find(index, pieces[p].param->name);
        for (int s = entry->n_slices - 1; s >= 0 && status == OK; s--)
            status = read_slice(index, &entry->slices[s], &pieces[p], root->ctx->compute_stream);
    }
    free(pieces);
    return status;
}
