/* lent.c: what large all-gathers give, of which all ranks have one copy until somebody writes to
 * theirs (nccl/lent.c). What programs read is what they would have read of a copy of their own.
 */
#include "lent.h"

// ---- Single cases ----

static void read_and_sent_anew(const Rank *r, void *arg)
{
    static const size_t apart[] = {0, 1, 1023, 4097};
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
        Gathered g = make(r, lent_each(r) + apart[i]);
        gather(&g, r, 1);
        need_cuda(cudaMemsetAsync(g.send, 3, g.each * sizeof(float), r->stream));
        meet(r);
        holds(&g, r, g.each / 2, g.each / 2 + 1, "one element");
        holds(&g, r, 0, g.all, "after the senders wrote again");
        drop(&g, r);
    }
}

static void written_in_part(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    gather(&g, r, 2);
    size_t from = g.all / 3 + (size_t)r->rank, to = from + 5000;
    need_cuda(cudaMemsetAsync(g.recv + from, 0, (to - from) * sizeof(float), r->stream));
    for (size_t i = from; i < to; i++) g.want[i] = 0.0f;
    meet(r);
    holds(&g, r, to - 10, to + 10, "behind what was set");
    holds(&g, r, 0, g.all, "set in the middle");
    need_cuda(kernel_touch(g.recv, 40, 0, r->stream));
    for (size_t i = 0; i < 10; i++) g.want[i] = 0.0f;
    holds(&g, r, 0, g.all, "a kernel wrote the first bytes");
    drop(&g, r);
}

// What a kernel promises to write and leaves out is as it was gathered, to the last element.
static void promised(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    for (int whole = 0; whole < 2; whole++) {
        gather(&g, r, 3 + whole);
        size_t n = whole ? g.all : g.all / 2, from = n / 2 + 3, to = from + 700;
        need_cuda(kernel_promise(g.recv, n, from, to, r->stream));
        for (size_t i = 0; i < n; i++)
            if (i < from || i >= to) g.want[i] = 5.0f;
        holds(&g, r, 0, g.all, "promised");
    }
    drop(&g, r);
}

// The same buffer again, of which a part is borrowed still, and by some ranks all.
static void gathered_again(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    for (int round = 0; round < 75; round++) {
        gather(&g, r, round);
        if ((round + r->rank) % 3 == 0) holds(&g, r, 100, 2000, "a part of it");
        if ((round + r->rank) % 5 == 0) holds(&g, r, 0, g.all, "gathered again");
    }
    holds(&g, r, 0, g.all, "gathered 75 times");
    drop(&g, r);
}

// Whoever sends what it borrows, or has it reduced, sends what was gathered.
static void sent_on(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r)), h = make(r, lent_each(r));
    int before = (r->rank + r->world - 1) % r->world, next = (r->rank + 1) % r->world;
    gather(&g, r, 6);
    need_nccl(ncclAllGather(g.recv + (size_t)next * g.each, h.recv, h.each, ncclFloat, r->comm,
                            r->stream));
    for (int rank = 0; rank < r->world; rank++)
        for (size_t i = 0; i < h.each; i++)
            h.want[(size_t)rank * h.each + i] = number_of((rank + 1) % r->world, 6, i);
    holds(&h, r, 0, h.all, "gathered of what was gathered");
    need_nccl(ncclAllReduce(g.recv, g.recv, g.all, ncclFloat, ncclSum, r->comm, r->stream));
    for (size_t i = 0; i < g.all; i++) g.want[i] *= (float)r->world;
    holds(&g, r, 0, g.all, "reduced");
    gather(&g, r, 7);
    need_nccl(ncclGroupStart());
    need_nccl(ncclSend(g.recv, g.all, ncclFloat, next, r->comm, r->stream));
    need_nccl(ncclRecv(h.recv, h.all, ncclFloat, before, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    memcpy(h.want, g.want, g.all * sizeof(float));
    holds(&h, r, 0, h.all, "sent on");
    drop(&g, r);
    drop(&h, r);
}

static void in_place(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    for (int round = 0; round < 3; round++) {
        float *own = g.recv + (size_t)r->rank * g.each;
        fill_send(&g, r, round);
        need_cuda(cudaMemcpyAsync(own, g.send, g.each * sizeof(float), cudaMemcpyDeviceToDevice,
                                  r->stream));
        need_nccl(ncclAllGather(own, g.recv, g.each, ncclFloat, r->comm, r->stream));
        expect(&g, r, round);
        holds(&g, r, 0, g.all, "in place");
    }
    drop(&g, r);
}

// A buffer from no multiple of 64 bytes on, a part of an allocation, several calls in one group.
static void other_places(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r) + 64), h = make(r, lent_each(r));
    float *recv = g.recv;
    g.each = lent_each(r);
    g.all = g.each * (size_t)r->world;
    for (int shift = 1; shift <= 32; shift *= 2) {
        g.recv = recv + shift;
        gather(&g, r, shift);
        holds(&g, r, 0, g.all, "shifted");
    }
    fill_send(&g, r, 8);
    fill_send(&h, r, 9);
    need_nccl(ncclGroupStart());
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, r->comm, r->stream));
    need_nccl(ncclAllGather(h.send, h.recv, h.each, ncclFloat, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    expect(&g, r, 8);
    expect(&h, r, 9);
    holds(&g, r, 0, g.all, "the first of a group");
    holds(&h, r, 0, h.all, "the second of a group");
    g.recv = recv;
    drop(&g, r);
    drop(&h, r);
}

// More at once than there are places; given back in another order by each rank.
static void many_at_once(const Rank *r, void *arg)
{
    enum { MANY = 70 };
    Gathered g[MANY];
    for (int i = 0; i < MANY; i++) {
        g[i] = make(r, lent_each(r));
        gather(&g[i], r, i);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            int which = (i * 11 + r->rank * 17 + round) % MANY;
            holds(&g[which], r, 0, g[which].all, "one of many");
            if (which % 2 == 0 && round == 0)
                need_cuda(cudaMemsetAsync(g[which].recv, 0, 64, r->stream));
            if (which % 2 == 0 && round == 0) memset(g[which].want, 0, 64);
        }
    for (int i = 0; i < MANY; i++) gather(&g[i], r, i + MANY);
    for (int i = MANY - 1; i >= 0; i--) holds(&g[i], r, 0, g[i].all, "gathered again");
    for (int i = 0; i < MANY; i++) drop(&g[i], r);
}

static void multiplied(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    cublasHandle_t handle = handle_of(r);
    for (int round = 0; round < 4; round++) {
        gather(&g, r, round);
        multiply(&g, r, handle, 0);
        multiply(&g, r, handle, g.all - ROWS * INNER);
        need_cuda(cudaMemsetAsync(g.recv + 2000, 0, 2000 * sizeof(float), r->stream));
        for (size_t i = 2000; i < 4000; i++) g.want[i] = 0.0f;
        multiply(&g, r, handle, 1000); // of both
        multiply(&g, r, handle, 2100);
        multiply(&g, r, handle, 4000);
        holds(&g, r, 0, g.all, "after products");
    }
    cublasDestroy(handle);
    drop(&g, r);
}

// A product that is added to what was gathered.
static void added_to(const Rank *r, void *arg)
{
    static const float one = 1.0f;
    Gathered g = make(r, lent_each(r));
    cublasHandle_t handle = handle_of(r);
    float ones[INNER], *B;
    for (int i = 0; i < INNER; i++) ones[i] = 1.0f;
    need_cuda(cudaMallocAsync((void **)&B, sizeof ones, r->stream));
    need_cuda(cudaMemcpyAsync(B, ones, sizeof ones, cudaMemcpyHostToDevice, r->stream));
    gather(&g, r, 9);
    check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, B, 8, B, 8, &one,
                      g.recv + 100, 8) == CUBLAS_STATUS_SUCCESS,
          "a product failed");
    for (size_t i = 100; i < 164; i++) g.want[i] += 8.0f;
    holds(&g, r, 0, g.all, "added to");
    need_cuda(cudaFreeAsync(B, r->stream));
    cublasDestroy(handle);
    drop(&g, r);
}

// More holes than what is owed has room for (owed.c).
static void in_many_pieces(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    gather(&g, r, 10);
    for (size_t i = 7; i < g.all; i += g.all / 150) {
        need_cuda(cudaMemsetAsync(g.recv + i, 0, sizeof(float), r->stream));
        g.want[i] = 0.0f;
    }
    need_cuda(cudaMemsetAsync(g.send, 3, g.each * sizeof(float), r->stream));
    holds(&g, r, 0, g.all, "in many pieces");
    drop(&g, r);
}

// A part of an allocation that owes other things in front of it and behind it.
static void among_other_pieces(const Rank *r, void *arg)
{
    enum { EDGE = 4096, FRONT = 3 * EDGE };
    Gathered g = make(r, lent_each(r));
    float *recv = g.recv;
    unsigned char *all, host[FRONT];
    size_t bytes = g.all * sizeof(float);
    need_cuda(cudaMallocAsync((void **)&all, bytes + 2 * FRONT, r->stream));
    need_cuda(cudaMemsetAsync(all, 3, EDGE, r->stream)); // owed, as is the poison behind it
    need_cuda(cudaMemsetAsync(all + 2 * EDGE, 4, EDGE, r->stream));
    g.recv = (float *)(void *)(all + FRONT);
    gather(&g, r, 13);
    need_cuda(cudaMemsetAsync(all + FRONT + bytes, 5, FRONT, r->stream));
    need_cuda(cudaMemcpyAsync(host, all, FRONT, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < FRONT; i++)
        check(host[i] == (i < EDGE ? 3 : i < 2 * EDGE ? 0xff : 4), "byte %d is %d", i, host[i]);
    need_cuda(cudaMemsetAsync(all, 0, FRONT + g.all / 2 * sizeof(float), r->stream));
    memset(g.want, 0, g.all / 2 * sizeof(float));
    holds(&g, r, 0, g.all, "among other pieces");
    need_cuda(cudaFreeAsync(all, r->stream));
    g.recv = recv;
    drop(&g, r);
}

// The host reads managed memory itself.
static void managed(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    float *recv = g.recv;
    need_cuda(cudaMallocManaged((void **)&g.recv, g.all * sizeof(float), cudaMemAttachGlobal));
    gather(&g, r, 11);
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < g.all; i++)
        check(g.recv[i] == g.want[i], "element %zu is %g, not %g", i, g.recv[i], g.want[i]);
    need_cuda(cudaFree(g.recv));
    g.recv = recv;
    drop(&g, r);
}

// A group's calls happen in their order here, also where one uses what another gives (with all
// checks that is reported), and where rank 0 makes them one by one.
static void used_in_its_group(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    if (r->rank > 0) need_nccl(ncclGroupStart());
    gather(&g, r, 12);
    need_nccl(ncclAllReduce(g.recv, g.recv, g.all, ncclFloat, ncclSum, r->comm, r->stream));
    if (r->rank > 0) need_nccl(ncclGroupEnd());
    for (size_t i = 0; i < g.all; i++) g.want[i] *= (float)r->world;
    holds(&g, r, 0, g.all, "used in its group");
    drop(&g, r);
}

// A communicator may go before what was gathered by it is read; the others of it stay.
static void outlives_its_communicator(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r)), h = make(r, lent_each(r));
    ncclComm_t comm;
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    gather(&h, r, 4);
    fill_send(&g, r, 5);
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, comm, r->stream));
    expect(&g, r, 5);
    cublasHandle_t handle = handle_of(r);
    need_cuda(cudaStreamSynchronize(r->stream));
    need_nccl(r->rank % 2 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
    meet(r);
    multiply(&g, r, handle, 64);
    holds(&g, r, 0, g.all, "its communicator is gone");
    holds(&h, r, 0, h.all, "another's is not");
    cublasDestroy(handle);
    drop(&g, r);
    drop(&h, r);
}

// Freed, and allocated again: there is the poison that is due.
static void freed(const Rank *r, void *arg)
{
    bool again = false;
    float *first = NULL;
    for (int round = 0; round < 100; round++) {
        Gathered g = make(r, lent_each(r));
        unsigned char *p, byte = 0;
        gather(&g, r, round);
        need_cuda(cudaFreeAsync(g.recv, r->stream));
        need_cuda(cudaMallocAsync((void **)&p, g.all * sizeof(float), r->stream));
        again |= (float *)(void *)p == first || (first && g.recv == first);
        if (!first) first = g.recv;
        need_cuda(cudaMemcpyAsync(&byte, p + g.all, 1, cudaMemcpyDeviceToHost, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        check(byte == 0xff, "fresh memory holds %d", byte);
        g.recv = (float *)(void *)p;
        drop(&g, r);
    }
    check(again, "no address was used again");
}

static const RankBody cases[] = {
    read_and_sent_anew,
    written_in_part,
    promised,
    gathered_again,
    sent_on,
    in_place,
    other_places,
    many_at_once,
    multiplied,
    added_to,
    in_many_pieces,
    among_other_pieces,
    managed,
    used_in_its_group,
    outlives_its_communicator,
    freed,
};

TEST(test_cases)
{
    static const int worlds[] = {2, 3, 8, 1, 5};
    enum { WORLDS = sizeof worlds / sizeof worlds[0] };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t w = i % 2; w < WORLDS; w += 2) runs_unheard(worlds[w], cases[i]);
}

// ---- One copy ----

// A rank that copies keeps no place from the next ones: because its call is of a group, which those
// of other ranks need not be, or because its buffer is managed memory.
static void copies_keep_no_place(const Rank *r)
{
    Gathered g = make(r, lent_each(r));
    float *recv = g.recv;
    if (r->rank % 2)
        need_cuda(cudaMallocManaged((void **)&g.recv, g.all * sizeof(float), cudaMemAttachGlobal));
    for (int round = 0; round < 70; round++) {
        if (r->rank > 0) need_nccl(ncclGroupStart());
        gather(&g, r, round);
        need_nccl(ncclAllReduce(g.send, g.send, 1, ncclFloat, ncclSum, r->comm, r->stream));
        if (r->rank > 0) need_nccl(ncclGroupEnd());
    }
    if (r->rank % 2) need_cuda(cudaFree(g.recv));
    g.recv = recv;
    drop(&g, r);
}

// Neither the gather nor a product touches the memory of the buffer that borrows: of what a rank
// touches of shared memory the largest part is its own shard, and what it multiplies by.
static void touches_a_part(const Rank *r, void *arg)
{
    Gathered g = make(r, ((size_t)16 << 20) / sizeof(float) / (size_t)r->world);
    cublasHandle_t handle = handle_of(r);
    copies_keep_no_place(r);
    fill_send(&g, r, 1);
    meet(r);
    long before = shared_kilobytes();
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, r->comm, r->stream));
    expect(&g, r, 1);
    multiply(&g, r, handle, g.all / 2);
    long touched = shared_kilobytes() - before;
    check(touched < 4 << 10, "%ld KiB are touched, of 2 MiB that each rank sends", touched);
    holds(&g, r, 0, g.all, "after that");
    check(shared_kilobytes() - before > 15 << 10, "nothing was read");
    cublasDestroy(handle);
    drop(&g, r);
}

// The places of what nobody borrows any more are used again: memory does not grow.
static void places_come_again(const Rank *r, void *arg)
{
    long before = 0;
    for (int round = 0; round < 40; round++) {
        Gathered g = make(r, ((size_t)4 << 20) / sizeof(float) / (size_t)r->world);
        cublasHandle_t handle = handle_of(r);
        gather(&g, r, round);
        for (size_t at = 0; at + ROWS * INNER < g.all; at += g.all / 50)
            multiply(&g, r, handle, at);
        if (round % 3 == 0) holds(&g, r, 0, g.all / 2, "half of it");
        drop(&g, r);
        meet(r);
        if (round == 5) before = shared_kilobytes();
        cublasDestroy(handle);
    }
    check(shared_kilobytes() - before < 6 << 10, "%ld KiB more after 34 rounds",
          shared_kilobytes() - before);
}

TEST(test_one_copy)
{
    runs_unheard(8, touches_a_part);
    runs_unheard(4, places_come_again);
}

// ---- Reports ----

// With all checks nothing is said of what was gathered, and what nobody sent is found as ever.
RANK_TEST(test_reported, 2)
{
    Heard *heard = hear(shared_alloc(sizeof(Heard)));
    cublasHandle_t handle = handle_of(r);
    Gathered g = make(r, lent_each(r));
    gather(&g, r, 1);
    multiply(&g, r, handle, 640);
    holds(&g, r, 0, g.all, "with all checks");
    check(heard->count == 0, "it is reported: %s", heard->title);
    need_cuda(cudaFreeAsync(g.send, r->stream));
    need_cuda(cudaMallocAsync((void **)&g.send, g.each * sizeof(float), r->stream));
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, r->comm, r->stream));
    heard_is(heard, "an uninitialised read of device memory", "ncclAllGather");
    need_cuda(
        cudaMemcpyAsync(g.host, g.recv, g.all * sizeof(float), cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < g.all; i++) check(g.host[i] != g.host[i], "element %zu is no NaN", i);
    drop(&g, r);
    cublasDestroy(handle);
}

SUITE_MAIN("lent")
