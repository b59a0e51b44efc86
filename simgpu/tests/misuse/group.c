/* group.c: several devices of one thread need a group, and a group a start and an end. */
#include <pthread.h>

#include "program.h"

enum { DEVICES = 2 };

// One thread, all devices: a communicator, a stream and N ones for each.
typedef struct Cluster {
    ncclComm_t comm[DEVICES];
    cudaStream_t stream[DEVICES];
    float *x[DEVICES];
} Cluster;

HELPER Cluster all_devices(void)
{
    Cluster c;
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        c.stream[d] = side_stream();
        c.x[d] = filled(N, 1);
    }
    NCCL(ncclCommInitAll(c.comm, DEVICES, NULL));
    return c;
}

HELPER void finish_all(Cluster *c)
{
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaDeviceSynchronize());
        NCCL(ncclCommDestroy(c->comm[d]));
        CUDA(cudaDeviceReset());
    }
}

// The same, once all that the devices have in x is `value`.
HELPER void finish_with(Cluster *c, float value)
{
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        expect(c->x[d], N, value);
    }
    finish_all(c);
}

// The first call waits for the second, which comes after it.
WRONG(GROUP, loop_without_a_group, 1, "0")
{
    Cluster c = all_devices();
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d])); // HERE
    finish_all(&c);
}

WRONG(GROUP, end_without_a_start, 1, "0")
{
    Cluster c = all_devices();
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupEnd()); // HERE
    finish_all(&c);
}

// What stands in a group begins at its end. This one has none.
WRONG(GROUP, start_without_an_end, 1, "0")
{
    Cluster c = all_devices();
    NCCL(ncclGroupStart()); // HERE
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
    exit(0);
}

// The calls of a group may not be on their streams before its end, so this waits for nothing.
WRONG(GROUP, waits_inside_the_group, 1, "0")
{
    Cluster c = all_devices();
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
    CUDA(cudaStreamSynchronize(c.stream[0])); // HERE
    NCCL(ncclGroupEnd());
    finish_all(&c);
}

WRONG(GROUP, destroyed_inside_the_group, 1, "0")
{
    Cluster c = all_devices();
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++) {
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
        NCCL(ncclCommDestroy(c.comm[d])); // HERE
    }
    NCCL(ncclGroupEnd());
}

// A message to oneself needs both sides in one group.
WRONG(GROUP, message_to_oneself, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1);
    CHECK(ncclSend(out, N, ncclFloat, 0, comm, NULL) == ncclInvalidUsage); // HERE
}

WRONG(GROUP, message_from_oneself, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *in = filled(N, 0);
    if (rank == 1) CHECK(ncclRecv(in, N, ncclFloat, 1, comm, NULL) == ncclInvalidUsage); // HERE
    NCCL(ncclAllReduce(in, in, N, ncclFloat, ncclSum, comm, NULL));
    expect(in, N, 0);
}

// The loop over peers leaves oneself out of the receives only.
WRONG(GROUP, message_to_oneself_among_others, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1), *in = filled(N, 0);
    NCCL(ncclGroupStart());
    for (int peer = 0; peer < ranks; peer++) {
        NCCL(ncclSend(out, N, ncclFloat, peer, comm, NULL)); // HERE
        if (peer != rank) NCCL(ncclRecv(in, N, ncclFloat, peer, comm, NULL));
    }
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

// Two sends and one receive.
WRONG(GROUP, two_messages_to_oneself_one_received, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1), *in = filled(N, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out, N, ncclFloat, 0, comm, NULL));
    NCCL(ncclRecv(in, N, ncclFloat, 0, comm, NULL));
    NCCL(ncclSend(out, N, ncclFloat, 0, comm, NULL)); // HERE
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

RIGHT(GROUP, message_to_oneself_in_a_group, 1)
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1), *in = filled(N, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclRecv(in, N, ncclFloat, 0, comm, NULL));
    NCCL(ncclSend(out, N, ncclFloat, 0, comm, NULL));
    NCCL(ncclGroupEnd());
    expect(in, N, 1);
}

// The communicators are there when the group ends, and not in it.
WRONG(GROUP, made_and_used_in_one_group, 1, "0")
{
    ncclUniqueId id;
    ncclComm_t comm[DEVICES];
    float *x[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        x[d] = filled(N, 1);
    }
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommInitRank(&comm[d], DEVICES, id, d));                      // HERE
        NCCL(ncclAllReduce(x[d], x[d], N, ncclFloat, ncclSum, comm[d], NULL)); // HERE
    }
    NCCL(ncclGroupEnd());
}

// A second communicator is made beside a sum on the first.
WRONG(GROUP, made_beside_a_sum, 1, "0")
{
    ncclUniqueId id;
    ncclComm_t comm = meet(rank, ranks), other;
    float *x = filled(N, 1);
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL)); // HERE
    NCCL(ncclCommInitRank(&other, 1, id, 0));                     // HERE
    NCCL(ncclGroupEnd());
}

HELPER Cluster made_in_a_group(void)
{
    ncclUniqueId id;
    Cluster c;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommInitRank(&c.comm[d], DEVICES, id, d));
    }
    NCCL(ncclGroupEnd());
    return c;
}

RIGHT(GROUP, made_in_one_group_and_used_in_the_next, 1)
{
    Cluster c = made_in_a_group();
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        c.x[d] = filled(N, 1);
    }
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], NULL));
    NCCL(ncclGroupEnd());
    finish_with(&c, DEVICES);
}

// The first of one thread's two ranks waits for the second, which this thread makes after it.
HANGS(GROUP, devices_initialised_one_by_one, 1)
{
    ncclUniqueId id;
    ncclComm_t comm[DEVICES];
    NCCL(ncclGetUniqueId(&id));
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommInitRank(&comm[d], DEVICES, id, d)); // HERE
    }
}

RIGHT(GROUP, loop_in_a_group, 1)
{
    Cluster c = all_devices();
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
    NCCL(ncclGroupEnd());
    finish_with(&c, DEVICES);
}

// Groups inside of groups: all begins at the outermost end.
RIGHT(GROUP, groups_in_a_group, 1)
{
    Cluster c = all_devices();
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++) {
        NCCL(ncclGroupStart());
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
        NCCL(ncclGroupEnd());
    }
    NCCL(ncclGroupEnd());
    finish_with(&c, DEVICES * DEVICES);
}

RIGHT(GROUP, ranks_made_in_a_group, 1)
{
    Cluster c = made_in_a_group();
    NCCL(ncclGroupStart()); // an empty one does nothing
    NCCL(ncclGroupEnd());
    finish_all(&c);
}

typedef struct Worker {
    Cluster *c;
    int device;
} Worker;

HELPER void *work_alone(void *arg)
{
    Worker *w = arg;
    Cluster *c = w->c;
    int d = w->device;
    CUDA(cudaSetDevice(d));
    NCCL(ncclAllReduce(c->x[d], c->x[d], N, ncclFloat, ncclSum, c->comm[d], c->stream[d]));
    CUDA(cudaStreamSynchronize(c->stream[d]));
    return NULL;
}

// A thread for each device needs no group.
RIGHT(GROUP, thread_for_each_device, 1)
{
    Cluster c = all_devices();
    pthread_t thread[DEVICES];
    Worker worker[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        worker[d] = (Worker){&c, d};
        CHECK(pthread_create(&thread[d], NULL, work_alone, &worker[d]) == 0);
    }
    for (int d = 0; d < DEVICES; d++) pthread_join(thread[d], NULL);
    finish_with(&c, DEVICES);
}

// To wait for a stream that the group does not use is fine inside of it.
RIGHT(GROUP, waits_for_a_copy_inside_the_group, 1)
{
    Cluster c = all_devices();
    CUDA(cudaSetDevice(0));
    cudaStream_t copies = side_stream();
    float *host, *y = filled(N, 7);
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host));
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d]));
    CUDA(cudaMemcpyAsync(host, y, N * sizeof *host, cudaMemcpyDeviceToHost, copies));
    CUDA(cudaStreamSynchronize(copies));
    for (int i = 0; i < N; i++) CHECK(host[i] == 7);
    NCCL(ncclGroupEnd());
    CUDA(cudaFreeHost(host));
    finish_with(&c, DEVICES);
}

// ---- Graphs ----

// A sum of all devices by each of `first`, then of `second`, twice: what the graph of a device has.
HELPER cudaGraphExec_t two_sums(const Cluster *c, int d, ncclComm_t first, ncclComm_t second)
{
    CUDA(cudaSetDevice(d));
    BEGIN(c->stream[d]);
    CUDA(kernel_scale(c->x[d], 2, N, c->stream[d]));
    NCCL(ncclAllReduce(c->x[d], c->x[d], N, ncclFloat, ncclSum, first, c->stream[d])); // of graphs
    CUDA(kernel_scale(c->x[d], 0.5f, N, c->stream[d]));
    NCCL(ncclAllReduce(c->x[d], c->x[d], N, ncclFloat, ncclSum, second, c->stream[d]));
    return end_capture(c->stream[d]);
}

// A launch waits for nobody, and no group takes one: the thread launches the first device's graph,
// queues more there, and only then launches what the graph's sums wait for.
RIGHT(GROUP, graphs_launched_in_turn, 1)
{
    Cluster c = all_devices(), other = all_devices();
    cudaGraphExec_t exec[DEVICES];
    cudaEvent_t done[DEVICES];
    float *result = pinned(DEVICES * N, 0), *x[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        exec[d] = two_sums(&c, d, c.comm[d], other.comm[d]);
        done[d] = new_event();
        x[d] = filled(N, 1);
    }
    for (int step = 0; step < 2; step++)
        for (int d = 0; d < DEVICES; d++) {
            CUDA(cudaSetDevice(d));
            CUDA(cudaGraphLaunch(exec[d], c.stream[d]));
            CUDA(cudaMemsetAsync(x[d], 0, N * sizeof *x[d], c.stream[d]));
            CUDA(kernel_add(x[d], c.x[d], N, c.stream[d]));
            CUDA(cudaMemcpyAsync(result + d * N, x[d], N * sizeof *x[d], cudaMemcpyDefault,
                                 c.stream[d]));
            CUDA(cudaEventRecord(done[d], c.stream[d]));
        }
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaEventSynchronize(done[d]));
        for (int i = 0; i < N; i++) CHECK(result[d * N + i] == 16);
        CUDA(cudaGraphExecDestroy(exec[d]));
        NCCL(ncclCommDestroy(other.comm[d]));
    }
    finish_with(&c, 16);
}

// The devices' sums are in different orders: each waits for the other's second one.
WRONG(GROUP, graphs_with_sums_in_other_orders, 1, "0")
{
    Cluster c = all_devices(), other = all_devices();
    cudaGraphExec_t exec[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        ncclComm_t first = d ? other.comm[d] : c.comm[d], second = d ? c.comm[d] : other.comm[d];
        CUDA(cudaSetDevice(d));
        BEGIN(c.stream[d]);
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, first, c.stream[d])); // HERE
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, second, c.stream[d]));
        exec[d] = end_capture(c.stream[d]);
    }
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaGraphLaunch(exec[d], c.stream[d]));
    }
    finish_all(&c);
}

// The second device's graph is launched after a wait for the first one's.
WRONG(GROUP, graph_waited_for_before_the_next, 1, "0")
{
    Cluster c = all_devices();
    cudaGraphExec_t exec[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        BEGIN(c.stream[d]);
        NCCL(ncclAllReduce(c.x[d], c.x[d], N, ncclFloat, ncclSum, c.comm[d], c.stream[d])); // HERE
        exec[d] = end_capture(c.stream[d]);
    }
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaGraphLaunch(exec[d], c.stream[d]));
        CUDA(cudaStreamSynchronize(c.stream[d]));
    }
    finish_all(&c);
}
