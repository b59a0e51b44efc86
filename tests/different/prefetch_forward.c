/* prefetch_forward.c: In the forward, a unit's hook also queues the all-gather of the unit that
 * comes next, before the unit's own layers run.
 */
// ==== forward.c
// The units below the root in the order of a walk, which is the order in which they run.
enum { MAX_AHEAD = 256 };
static FsdpUnit *ahead[MAX_AHEAD];
static int n_ahead;

static void list_units(const Module *module)
{
    FsdpUnit *unit = fsdp_unit(module);
    if (unit != NULL && n_ahead < MAX_AHEAD) ahead[n_ahead++] = unit;
    for (int i = 0; i < module->n_children; i++) list_units(module->children[i]);
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpContext *ctx = unit->ctx;
    if (unit->is_root) {
        ctx->n_order = n_ahead = 0;
        list_units(module);
        TRY(stream_wait_stream(ctx, ctx->all_gather_stream, ctx->compute_stream));
    }
    TRY(record_post_forward(unit));
    TRY(fsdp_unshard(unit)); // it is under way already, but for the root
    TRY(fsdp_free_all_gather(ctx));
    TRY(fsdp_wait_for_unshard(unit));
    for (int i = 0; i + 1 < n_ahead; i++)
        if (ahead[i] == unit) TRY(fsdp_unshard(ahead[i + 1]));
    return OK;
}
