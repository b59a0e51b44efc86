/* phantoms.c: dry runs of one rank whose peers nobody runs (SIMGPU_PHANTOMS=1): worlds of any size,
 * their communicators, what phantoms pass to a split. That the log is that of a run with all ranks
 * is fsdp/dry.c's to say.
 */
#include <nccl.h>

#include "heard.h"
#include "simgpu_nccl.h"

enum { WORLD = 1000, SHARDS = 8, RANK = 987 };

static int among_phantoms(void **state)
{
    setenv("SIMGPU_DRY", "1", 1);
    setenv("SIMGPU_PHANTOMS", "1", 1);
    return setenv("SIMGPU_MACHINE", "h100x8", 1);
}

static int alone(void **state)
{
    unsetenv("SIMGPU_DRY");
    unsetenv("SIMGPU_PHANTOMS");
    return unsetenv("SIMGPU_MACHINE");
}

static ncclComm_t join(int rank, int size)
{
    ncclUniqueId id;
    ncclComm_t comm;
    need_nccl(ncclGetUniqueId(&id));
    need_nccl(ncclCommInitRank(&comm, size, id, rank));
    return comm;
}

static void has(ncclComm_t comm, int rank, int size)
{
    int is_rank, is_size;
    need_nccl(ncclCommUserRank(comm, &is_rank));
    need_nccl(ncclCommCount(comm, &is_size));
    check(is_rank == rank && is_size == size, "rank %d of %d, not %d of %d", is_rank, is_size, rank,
          size);
}

static GpuLogEntry last(void)
{
    GpuLogEntry entry;
    check(gpulog_get(gpulog_length() - 1, &entry), "no log");
    return entry;
}

static GpuCollective gather(ncclComm_t comm, float *x, cudaStream_t stream)
{
    need_nccl(ncclAllGather(x, x + 64, 64, ncclFloat, comm, stream));
    return last().collective;
}

// ---- Calls ----

RANK_TEST_BETWEEN(test_calls_end_without_peers, among_phantoms, alone, 1)
{
    float *x, ms;
    cudaEvent_t begin, end;
    ncclComm_t comm = join(RANK, WORLD);
    has(comm, RANK, WORLD);
    need_cuda(cudaMalloc((void **)&x, 1 << 20));
    need_cuda(cudaEventCreate(&begin));
    need_cuda(cudaEventCreate(&end));
    need_cuda(cudaEventRecord(begin, r->stream));
    GpuCollective c = gather(comm, x, r->stream);
    check(c.ranks == WORLD && c.rank == RANK && c.call == 1 && c.nodes == WORLD / 8,
          "call %d of rank %d of %d on %d nodes", (int)c.call, c.rank, c.ranks, c.nodes);
    check(last().sent == (WORLD - 1) * 64 * sizeof *x, "it sends %zu bytes", last().sent);
    for (int peer = 0; peer < WORLD; peer += WORLD - 1) {
        need_nccl(ncclSend(x, 64, ncclFloat, peer, comm, r->stream));
        need_nccl(ncclRecv(x, 64, ncclFloat, peer, comm, r->stream));
        c = last().collective;
        check(c.peer == peer && c.call == 1 && c.nodes == 2, "message %d to %d over %d nodes",
              (int)c.call, c.peer, c.nodes);
    }
    need_cuda(cudaEventRecord(end, r->stream));
    need_cuda(cudaEventSynchronize(end));
    need_cuda(cudaEventElapsedTime(&ms, begin, end));
    // A ring of 1000 ranks takes its time; the model's latency alone is 2 ms at 1,024.
    check(ms > 1.0f && ms < 100.0f, "they take %g ms", (double)ms);
    need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaEventDestroy(begin));
    need_cuda(cudaEventDestroy(end));
    need_cuda(cudaFree(x));
}

// Arguments are checked all the same.
RANK_TEST_BETWEEN(test_arguments_are_checked, among_phantoms, alone, 1)
{
    float *x;
    Heard *heard = hear(shared_alloc(sizeof(Heard)));
    ncclComm_t comm = join(RANK, WORLD);
    need_cuda(cudaMalloc((void **)&x, 64 * WORLD));
    check(ncclAllGather(x, x, 64, ncclFloat, comm, r->stream) != ncclSuccess, "past the end");
    check(heard->count == 1, "%d reports", heard->count);
    check(ncclSend(x, 1, ncclFloat, WORLD, comm, r->stream) == ncclInvalidArgument, "to nobody");
    heard_is(heard, "a peer outside the communicator", "0 to 999");
    need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaFree(x));
}

// ---- Splits ----

// What a mesh of two dimensions does: SHARDS neighbours, then the ranks of the same place.
static void split_both(ncclComm_t comm, ncclComm_t part[2])
{
    int rank;
    need_nccl(ncclCommUserRank(comm, &rank));
    need_nccl(ncclCommSplit(comm, rank / SHARDS, rank, &part[0], NULL));
    need_nccl(ncclCommSplit(comm, rank % SHARDS, -rank, &part[1], NULL));
}

static void as_any_rank(ncclComm_t comm, void *arg)
{
    ncclComm_t part[2];
    int *asked = arg;
    ++*asked;
    split_both(comm, part);
    need_nccl(ncclCommDestroy(part[0]));
    need_nccl(ncclCommDestroy(part[1]));
}

RANK_TEST_BETWEEN(test_splits_are_asked_of_the_program, among_phantoms, alone, 1)
{
    ncclComm_t comm = join(RANK, WORLD), part[2];
    float *x;
    int asked = 0;
    need_cuda(cudaMalloc((void **)&x, 1 << 20));
    simgpu_phantom_splits(as_any_rank, &asked);
    split_both(comm, part);
    check(asked == WORLD, "%d ranks were asked", asked);
    has(part[0], RANK % SHARDS, SHARDS);
    has(part[1], WORLD / SHARDS - 1 - RANK / SHARDS, WORLD / SHARDS); // by key, from the last
    GpuCollective world = gather(comm, x, r->stream), near = gather(part[0], x, r->stream),
                  far = gather(part[1], x, r->stream);
    check(world.nodes == WORLD / 8 && near.nodes == 1 && far.nodes == WORLD / SHARDS,
          "they are on %d, %d and %d nodes", world.nodes, near.nodes, far.nodes);
    check(world.comm != near.comm && near.comm != far.comm && far.comm != world.comm,
          "two communicators have one number");
    for (int i = 0; i < 2; i++) need_nccl(ncclCommDestroy(part[i]));
    need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaFree(x));
}

// The same number on all ranks of a part, and another on each other part.
typedef struct Numbers {
    uint64_t world, near, far;
} Numbers;

static void number_body(const Rank *r, void *arg)
{
    Numbers *numbers = (Numbers *)arg + r->rank;
    const int ranks[] = {0, 1, 8, 9};
    ncclComm_t comm = join(ranks[r->rank], WORLD), part[2];
    float *x;
    int asked = 0;
    need_cuda(cudaMalloc((void **)&x, 1 << 20));
    simgpu_phantom_splits(as_any_rank, &asked);
    split_both(comm, part);
    numbers->world = gather(comm, x, r->stream).comm;
    numbers->near = gather(part[0], x, r->stream).comm;
    numbers->far = gather(part[1], x, r->stream).comm;
    for (int i = 0; i < 2; i++) need_nccl(ncclCommDestroy(part[i]));
    need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaFree(x));
}

TEST_BETWEEN(test_numbers_fit_together, among_phantoms, alone)
{
    Numbers *n = shared_alloc(4 * sizeof *n);
    run_ranks(4, number_body, n);
    for (int i = 1; i < 4; i++) assert_true(n[i].world == n[0].world);
    assert_true(n[0].near == n[1].near && n[2].near == n[3].near && n[0].near != n[2].near);
    assert_true(n[0].far == n[2].far && n[1].far == n[3].far && n[0].far != n[1].far);
}

// What was split off is split again, twice: a node's ranks by their parity, those in halves.
typedef struct Parts {
    ncclComm_t world[2], node, half;
} Parts;

static void split_again(ncclComm_t comm, Parts *p)
{
    int rank, size;
    split_both(comm, p->world);
    need_nccl(ncclCommUserRank(p->world[0], &rank));
    need_nccl(ncclCommSplit(p->world[0], rank % 2, -rank, &p->node, NULL));
    need_nccl(ncclCommUserRank(p->node, &rank));
    need_nccl(ncclCommCount(p->node, &size));
    need_nccl(ncclCommSplit(p->node, size > 1 ? rank / (size / 2) : 0, rank, &p->half, NULL));
}

static void destroy_parts(Parts *p)
{
    need_nccl(ncclCommDestroy(p->half));
    need_nccl(ncclCommDestroy(p->node));
    for (int i = 0; i < 2; i++) need_nccl(ncclCommDestroy(p->world[i]));
}

static void as_any_rank_again(ncclComm_t comm, void *arg)
{
    Parts p;
    int size;
    need_nccl(ncclCommCount(comm, &size));
    check(size == WORLD, "asked as one of %d ranks", size);
    ++*(int *)arg;
    split_again(comm, &p);
    destroy_parts(&p);
}

static void again_body(const Rank *r, void *arg)
{
    Numbers *numbers = (Numbers *)arg + r->rank;
    const int ranks[] = {0, 2, 1, 6, 8}; // 0 and 2 are in one half of the even ones of a node
    ncclComm_t comm = join(ranks[r->rank], WORLD);
    int place = ranks[r->rank] % SHARDS, even = SHARDS / 2 - 1 - place / 2, asked = 0;
    Parts p;
    float *x;
    need_cuda(cudaMalloc((void **)&x, 1 << 20));
    simgpu_phantom_splits(as_any_rank_again, &asked);
    split_again(comm, &p);
    check(asked == WORLD + SHARDS + SHARDS / 2, "%d ranks were asked", asked);
    has(p.world[0], place, SHARDS);
    has(p.node, even, SHARDS / 2); // by key, from the last
    has(p.half, even % (SHARDS / 4), SHARDS / 4);
    GpuCollective node = gather(p.node, x, r->stream), half = gather(p.half, x, r->stream);
    check(node.nodes == 1 && half.nodes == 1 && node.ranks == SHARDS / 2, "another node");
    numbers->near = node.comm;
    numbers->far = half.comm;
    need_nccl(ncclCommDestroy(comm)); // what was split off it stays
    has(p.half, even % (SHARDS / 4), SHARDS / 4);
    destroy_parts(&p);
    need_cuda(cudaFree(x));
}

TEST_BETWEEN(test_what_was_split_off_is_split_again, among_phantoms, alone)
{
    Numbers *n = shared_alloc(5 * sizeof *n);
    run_ranks(5, again_body, n);
    assert_true(n[0].near == n[1].near && n[0].near == n[3].near && n[0].far == n[1].far);
    assert_true(n[0].far != n[3].far && n[0].near != n[2].near && n[0].near != n[4].near);
    assert_true(n[0].near != n[0].far);
}

RANK_TEST_BETWEEN(test_an_unknown_split_is_refused, among_phantoms, alone, 1)
{
    Heard *heard = hear(shared_alloc(sizeof(Heard)));
    ncclComm_t comm = join(RANK, WORLD), part;
    int asked = 0;
    check(ncclCommSplit(comm, 0, 0, &part, NULL) == ncclInvalidUsage, "it was split");
    heard_is(heard, "a split among phantom peers", "No process runs the other ranks");
    simgpu_phantom_splits(as_any_rank, &asked);
    check(ncclCommSplit(comm, 5, 0, &part, NULL) == ncclInvalidUsage, "another color");
    heard_is(heard, "a split among phantom peers", "another color or key");
    need_nccl(ncclCommDestroy(comm));
}

// ---- Settings ----

static void begin(void)
{
    cudaFree(NULL);
}

TEST(test_only_in_a_dry_run)
{
    int status;
    setenv("SIMGPU_PHANTOMS", "1", 1);
    char *text = stderr_of(begin, &status);
    unsetenv("SIMGPU_PHANTOMS");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == SIMGPU_FATAL_EXIT);
    assert_non_null(strstr(text, "SIMGPU_PHANTOMS=1 without SIMGPU_DRY=1"));
}

static void memory_body(const Rank *r, void *arg)
{
    void *x;
    need_cuda(cudaMalloc(&x, (size_t)1500 << 30));
    need_cuda(cudaFree(x));
}

TEST_BETWEEN(test_memory_is_ample, among_phantoms, alone)
{
#ifdef __SANITIZE_THREAD__ // which leaves a program too few addresses
    skip();
#endif
    run_ranks(1, memory_body, NULL);
}

SUITE_MAIN("phantoms")
