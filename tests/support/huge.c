/* huge.c: see huge.h. The unit is made small, by fully_shard, and then given other figures: to fill
 * in the initial values of so many elements would take minutes.
 */
#include "huge.h"

static void enlarge(FlatParam *flat)
{
    FlatLayout *layout = &flat->layout;
    Param *first = layout->params[0];
    int64_t small = layout->numel - layout->offset[1];
    const int64_t shard_numel = (INT64_C(1) << 32) + small + 8; // the first parameter is over, too
    layout->shard_numel = layout->grad_numel = shard_numel;
    layout->padded = shard_numel * layout->world;
    layout->numel = layout->padded - HUGE_PADDING;
    first->ndim = 1;
    first->shape[0] = layout->numel - small;
    for (int i = layout->n - 1; i > 0; i--)
        layout->offset[i] += first->shape[0] - layout->offset[1];
    flat->unsharded_param.numel = flat->unsharded_grad.numel = layout->padded;
    Buffer *shards[] = {&flat->sharded_param, &flat->sharded_grad};
    for (int i = 0; i < 2; i++) {
        shards[i]->numel = shard_numel;
        need_cuda(cudaFree(shards[i]->data));
        need_cuda(cudaMalloc(&shards[i]->data, buffer_bytes(shards[i])));
    }
}

typedef struct Huge {
    HugeBody body;
    bool pairs;
} Huge;

static void huge_body(const Rank *r, void *arg)
{
    const Huge *huge = arg;
    Mesh mesh;
    OneUnit one;
    if (huge->pairs)
        mesh = mesh_of_pairs(r);
    else
        need(mesh_1d(&mesh, r->comm));
    one_unit_create(&one, &mesh, r);
    need_cuda(cudaDeviceSynchronize());
    enlarge(&one.unit->flat);
    huge->body(&one, r);
    one_unit_destroy(&one);
    if (huge->pairs) mesh_of_pairs_destroy(&mesh);
}

void run_huge_at(const char *file, int line, HugeBody body, int world)
{
    Huge huge = {body, false};
    run_ranks_dry_at(file, line, world, huge_body, &huge);
}

void run_huge_pairs(HugeBody body)
{
    Huge huge = {body, true};
    run_ranks_dry_at(__FILE__, __LINE__, 4, huge_body, &huge);
}

// Where the first gap at or after `at` begins: the end of the range that holds `at`, as long as
// there is one.
static const char *covered_from(uint64_t first, const char *at, GpuAccess access)
{
    GpuLogEntry entry;
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint64_t i = first; gpulog_get(i, &entry); i++)
            for (int k = 0; k < entry.n_ranges && entry.op != GPU_ALLOC && entry.op != GPU_FREE;
                 k++) {
                const char *begin = entry.range[k].ptr;
                if (!(entry.range[k].access & access) || at < begin ||
                    at >= begin + entry.range[k].bytes)
                    continue;
                at = begin + entry.range[k].bytes;
                moved = true;
            }
    }
    return at;
}

const char *cut_cause(uint64_t got, uint64_t want)
{
    return got >= want / 1000 ? ""
                              : LIKELY "a count, a number of bytes or a place is kept in 32 bits: "
                                       "elements are counted in int64_t, bytes in size_t";
}

void check_covers(uint64_t first, const Buffer *buffer, GpuAccess access, const char *what)
{
    const char *begin = buffer->data, *end = covered_from(first, begin, access);
    if (begin != NULL && end >= begin + buffer_bytes(buffer)) return;
    if (begin == NULL || end == begin)
        rank_fails(__FILE__, __LINE__, "%s of %lld elements: no call %s it", what,
                   (long long)buffer->numel, access == GPU_READ ? "reads" : "writes");
    int64_t covered = (end - begin) / (int64_t)dtype_bytes(buffer->dtype);
    bool divided = false;
    for (int ranks = 2; ranks <= 8 && covered > 1000; ranks++) // of few it may be chance
        divided |= covered == buffer->numel / ranks;
    rank_fails(__FILE__, __LINE__, "%s of %lld elements: the calls %s its first %lld alone%s", what,
               (long long)buffer->numel, access == GPU_READ ? "read" : "write", (long long)covered,
               divided ? LIKELY "it is divided by a number of ranks: is that the number of those "
                                "that shard, or of all (mesh_size)?"
                       : cut_cause((uint64_t)covered, (uint64_t)buffer->numel));
}
