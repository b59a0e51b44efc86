/* more_barriers.c: Ranks write one after the other, each after an agreement; what was left by an
 * earlier save goes after the new folder's name is free; the folder is synced twice.
 */
// ==== checkpoints.c
Status checkpoint_begin(const char *dir, const char *tmp, const char *old)
{
    TRY(folder_remove(tmp));
    TRY(folder_check(dir));
    if (folder_is_there(old) && folder_is_there(dir))
        TRY(folder_remove(old));
    else if (folder_is_there(old))
        TRY(folder_rename(old, dir));
    TRY(folder_make(tmp));
    Status status = folder_sync_parent(tmp);
    if (status != OK) IGNORE_STATUS(folder_remove(tmp));
    return status;
}

static Status save_together(const char *dir, const char *tmp, const char *old, FsdpRoot *root,
                            const FsdpAdamW *opt, const CheckpointPosition *position)
{
    const FsdpContext *ctx = root->ctx;
    int rank = ctx->mesh.replicate.rank * ctx->mesh.shard.size + ctx->mesh.shard.rank;
    Status status = checkpoint_agree(ctx, rank == 0 ? checkpoint_begin(dir, tmp, old) : OK);
    if (status != OK) return status;
    for (int turn = mesh_size(&ctx->mesh) - 1; turn >= 0; turn--) {
        if (turn == rank && status == OK) status = write_part(tmp, root, opt, position);
        status = checkpoint_agree(ctx, status);
    }
    if (rank == 0 && status == OK) status = folder_sync(tmp);
    if (rank == 0 && status == OK) status = checkpoint_commit(dir, tmp, old);
    status = checkpoint_agree(ctx, status);
    if (rank == 0 && status != OK) IGNORE_STATUS(folder_remove(tmp));
    return checkpoint_agree(ctx, status);
}
