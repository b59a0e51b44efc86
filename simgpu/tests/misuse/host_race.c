/* host_race.c: pinned host memory that the program touches while a copy or a kernel still works
 * with it. From pageable memory CUDA has taken the bytes when cudaMemcpy returns; from pinned
 * memory an Async copy takes them later.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "program.h"

// The loader fills the next batch into the buffer that the last one is still being copied from.
WRONG(HOST_RACE, next_batch_too_early, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *batch = pinned(N, 1), *x = filled(N, 0);
    CUDA(cudaMemcpyAsync(x, batch, N * sizeof *x, cudaMemcpyHostToDevice, stream)); // HERE
    for (int i = 0; i < N; i++) batch[i] = 2;                                       // HERE
}

WRONG(HOST_RACE, loss_read_too_early, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *loss = pinned(1, 0), *x = filled(1, 3);
    CUDA(cudaMemcpyAsync(loss, x, sizeof *loss, cudaMemcpyDeviceToHost, stream)); // HERE
    printf("loss %g\n", (double)*loss);                                           // HERE
}

// What a loop knows of its progress, in pinned memory so that the device may write into it.
typedef struct Progress {
    int step;
    char name[100];
    float loss;
    float history[100];
} Progress;

// The loss shares its page with what the host has written itself, and may look at.
WRONG(HOST_RACE, loss_among_other_data_read_too_early, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *x = filled(1, 3);
    Progress *now = (Progress *)pinned(sizeof *now / sizeof(float), 0);
    now->step = 7;
    strcpy(now->name, "warm-up");
    CUDA(cudaMemcpyAsync(&now->loss, x, sizeof *x, cudaMemcpyDeviceToHost, stream)); // HERE
    printf("step %d (%s):\n", now->step, now->name);
    printf("loss %g\n", (double)now->loss); // HERE
}

// One column of a table is on its way.
WRONG(HOST_RACE, column_read_too_early, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaMemcpy2DAsync(host, 400, x, 400, 40, 10, cudaMemcpyDeviceToHost, stream)); // HERE
    for (int row = 0; row < 10; row++) host[100 * row + 10] = 1;
    printf("the second row begins with %g\n", (double)host[100]); // HERE
}

WRONG(HOST_RACE, waits_for_another_stream, 1, "0")
{
    cudaStream_t copies = side_stream(), compute = side_stream();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, copies)); // HERE
    CUDA(cudaStreamSynchronize(compute));
    printf("first weight %g\n", (double)host[0]); // HERE
}

// The event stands for what was queued before it: not for the copy.
WRONG(HOST_RACE, event_before_the_copy, 1, "0")
{
    cudaStream_t stream = side_stream();
    cudaEvent_t done = new_event();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaEventRecord(done, stream));
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream)); // HERE
    CUDA(cudaEventSynchronize(done));
    printf("first weight %g\n", (double)host[0]); // HERE
}

// A query does not wait: its answer says whether there is still something to wait for.
WRONG(HOST_RACE, answer_of_a_query_ignored, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream)); // HERE
    cudaStreamQuery(stream);
    printf("first weight %g\n", (double)host[0]); // HERE
}

WRONG(HOST_RACE, answer_of_an_event_query_ignored, 1, "0")
{
    cudaStream_t stream = side_stream();
    cudaEvent_t done = new_event();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream)); // HERE
    CUDA(cudaEventRecord(done, stream));
    cudaEventQuery(done);
    printf("first weight %g\n", (double)host[0]); // HERE
}

// The optimizer's step is on the host: the gradient's shard goes there by a copy, which nobody
// waits for.
WRONG(HOST_RACE, offloaded_step_too_early, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t reduce = side_stream();
    float *grad = filled(2 * N, 1), *shard = filled(N, 0), *host = pinned(N, 0), weights[N] = {0};
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, comm, reduce));
    CUDA(cudaMemcpyAsync(host, shard, sizeof weights, cudaMemcpyDeviceToHost, reduce)); // HERE
    for (int i = 0; i < N; i++) weights[i] -= 0.5f * host[i];                           // HERE
    CUDA(cudaStreamSynchronize(reduce));
    CHECK(weights[0] < 1e30f); // the step is not for nothing
}

// Zero copy: a kernel writes into pinned memory, and the host looks before it is done.
WRONG(HOST_RACE, kernel_still_writes, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *mean = pinned(1, 0), *x = filled(N, 3);
    CUDA(kernel_mean(mean, x, N, stream)); // HERE
    printf("mean %g\n", (double)*mean);    // HERE
}

// The program's own memory, pinned by registration.
WRONG(HOST_RACE, registered_and_overwritten, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *batch = aligned_alloc(4096, 4096), *x = filled(1024, 0);
    memset(batch, 0, 4096);
    CUDA(cudaHostRegister(batch, 4096, cudaHostRegisterDefault));
    CUDA(cudaMemcpyAsync(x, batch, 4096, cudaMemcpyHostToDevice, stream)); // HERE
    batch[N / 2] = 1;                                                      // HERE
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaHostUnregister(batch));
    free(batch);
}

// ---- Right ----

RIGHT(HOST_RACE, read_behind_the_wait, 1)
{
    cudaStream_t stream = side_stream();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < N; i++) CHECK(host[i] == 3);
}

// Two halves in turn. Before a half is filled again, the copy from it is waited for; meanwhile
// the other half, which may lie in the same page, is being copied.
RIGHT(HOST_RACE, batches_by_turns, 1)
{
    cudaStream_t stream = side_stream();
    cudaEvent_t copied[2] = {new_event(), new_event()};
    float *batch = pinned(200, 0), *x = filled(200, 0), *sum = filled(100, 0);
    for (int step = 0; step < 6; step++) {
        float *half = batch + step % 2 * 100, *to = x + step % 2 * 100;
        CUDA(cudaEventSynchronize(copied[step % 2]));
        for (int i = 0; i < 100; i++) half[i] = (float)step;
        CUDA(cudaMemcpyAsync(to, half, 100 * sizeof *x, cudaMemcpyHostToDevice, stream));
        CUDA(cudaEventRecord(copied[step % 2], stream));
        CUDA(kernel_add(sum, to, 100, stream));
    }
    expect(sum, 100, 15);
}

// To read what a copy reads does no harm.
RIGHT(HOST_RACE, both_read_the_source, 1)
{
    cudaStream_t stream = side_stream();
    float *host = pinned(N, 2), *x = filled(N, 0), sum = 0;
    CUDA(cudaMemcpyAsync(x, host, N * sizeof *x, cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < N; i++) sum += host[i];
    CHECK(sum == 2 * N);
    expect(x, N, 2);
}

// cudaMemcpy has staged pageable memory when it returns.
RIGHT(HOST_RACE, pageable_source_overwritten, 1)
{
    float host[N], *x = filled(N, 0), *out = filled(N, 0);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < N; i++) host[i] = (float)step;
        CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
        CUDA(kernel_add(out, x, N, NULL));
    }
    expect(out, N, 6);
}

// A plain cudaMemcpy waits, with pinned memory too.
RIGHT(HOST_RACE, plain_copy_of_pinned_memory, 1)
{
    float *host = pinned(N, 2), *x = filled(N, 0);
    CUDA(cudaMemcpy(x, host, N * sizeof *x, cudaMemcpyHostToDevice));
    memset(host, 0, N * sizeof *host);
    CUDA(kernel_scale(x, 3, N, NULL));
    CUDA(cudaMemcpy(host, x, N * sizeof *x, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) CHECK(host[i] == 6);
}

HELPER void add_up(void *arg)
{
    float *host = arg;
    for (int i = 1; i < N; i++) host[0] += host[i];
}

// A host function has its place in the stream, behind the copy.
RIGHT(HOST_RACE, host_function_on_the_stream, 1)
{
    cudaStream_t stream = side_stream();
    float *host = pinned(N, 0), *x = filled(N, 3);
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaLaunchHostFunc(stream, add_up, host));
    CUDA(cudaStreamSynchronize(stream));
    CHECK(host[0] == 3 * N);
}

// A result arrives in one half of a page while the host works in the other half.
RIGHT(HOST_RACE, halves_of_a_page, 1)
{
    cudaStream_t stream = side_stream();
    float *host = pinned(200, 1), *x = filled(100, 3);
    CUDA(cudaMemcpyAsync(host, x, 100 * sizeof *x, cudaMemcpyDeviceToHost, stream));
    for (int i = 100; i < 200; i++) host[i] += 1;
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < 200; i++) CHECK(host[i] == (i < 100 ? 3 : 2));
}

// The host goes on with everything in the page but the loss.
RIGHT(HOST_RACE, loss_among_other_data, 1)
{
    cudaStream_t stream = side_stream();
    float *x = filled(1, 3), copy[100];
    Progress *now = (Progress *)pinned(sizeof *now / sizeof(float), 0);
    int pair[2];
    new_pair(pair);
    for (int step = 0; step < 20; step++) {
        CUDA(cudaMemcpyAsync(&now->loss, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
        now->step = step;
        snprintf(now->name, sizeof now->name, "step %d of %d", step, 20);
        memset(now->history + step, 0, sizeof *now->history);
        memcpy(copy, now->history, sizeof copy);
        CHECK(send(pair[0], now->name, sizeof now->name, 0) == sizeof now->name);
        CHECK(recv(pair[1], now->name, sizeof now->name, 0) == sizeof now->name);
        struct iovec to = {now->name, sizeof now->name};
        CHECK(writev(pair[0], &to, 1) == sizeof now->name);
        CHECK(readv(pair[1], &to, 1) == sizeof now->name);
        CHECK(write(pair[0], now->name, sizeof now->name) == sizeof now->name);
        CHECK(recvfrom(pair[1], now->name, sizeof now->name, 0, NULL, NULL) == 100);
        struct msghdr message = {.msg_iov = &to, .msg_iovlen = 1};
        CHECK(sendmsg(pair[0], &message, 0) == 100 && recvmsg(pair[1], &message, 0) == 100);
        CHECK(step == 0 || copy[step - 1] == 3);
        CUDA(cudaStreamSynchronize(stream));
        now->history[step] = now->loss;
        CHECK(now->step == step && strlen(now->name) == (step < 10 ? 12 : 13));
    }
}

HELPER void on_crash(int number)
{
    static const char text[] = "it crashed\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(2);
    _exit(1);
}

// The program wants to hear of crashes itself, and there are none; later it hears no signals.
RIGHT(HOST_RACE, other_data_and_own_signals, 1)
{
    cudaStream_t stream = side_stream();
    float *x = filled(1, 3), *host = pinned(100, 1);
    sigset_t all;
    signal(SIGSEGV, on_crash);
    signal(SIGTRAP, on_crash);
    for (int round = 0; round < 2; round++) {
        CUDA(cudaMemcpyAsync(host + 50, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
        for (int i = 0; i < 50; i++) host[i] += 1;
        CUDA(cudaStreamSynchronize(stream));
        CHECK(host[49] == (float)(2 + round) && host[50] == 3 && host[51] == 1);
        sigfillset(&all);
        CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    }
}

RIGHT(HOST_RACE, other_data_with_signals_blocked, 1)
{
    cudaStream_t stream = side_stream();
    float *x = filled(1, 3), *host = pinned(100, 1);
    sigset_t all;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    CUDA(cudaMemcpyAsync(host + 50, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < 50; i++) host[i] += 1;
    CUDA(cudaStreamSynchronize(stream));
    CHECK(host[49] == 2 && host[50] == 3 && host[51] == 1);
}

// More touches than anybody counts.
RIGHT(HOST_RACE, busy_page, 1)
{
    cudaStream_t stream = side_stream();
    float *x = filled(10, 3), *host = pinned(3 * N, 0), sum = 0;
    CUDA(cudaMemcpyAsync(host + 1020, x, 40, cudaMemcpyDeviceToHost, stream)); // on two pages
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < 1020; i++) host[i] += 1;
    for (int i = 0; i < 1020; i++) sum += host[i];
    CUDA(cudaStreamSynchronize(stream));
    CHECK(sum == 51000 && host[1019] == 50 && host[1020] == 3 && host[1030] == 0);
}

// The system reads a file into one half, and writes from the other, which a copy also reads.
RIGHT(HOST_RACE, file_beside_a_copy, 1)
{
    cudaStream_t stream = side_stream();
    float *batch = pinned(200, 1), *x = filled(100, 0);
    ssize_t half = 100 * sizeof *x;
    int file[2];
    CHECK(pipe(file) == 0);
    CUDA(cudaMemcpyAsync(x, batch, (size_t)half, cudaMemcpyHostToDevice, stream));
    CHECK(write(file[1], batch, (size_t)half) == half);
    CHECK(read(file[0], batch + 100, (size_t)half) == half);
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < 200; i++) CHECK(batch[i] == 1);
    expect(x, 100, 1);
    close(file[0]);
    close(file[1]);
}

// A query that says "done" is a wait; and with pageable memory a wait is right as well.
RIGHT(HOST_RACE, query_then_read, 1)
{
    cudaStream_t stream = side_stream();
    float *host = pinned(N, 0), pageable[N], *x = filled(N, 3);
    CUDA(cudaMemcpyAsync(host, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaMemcpyAsync(pageable, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream));
    while (cudaStreamQuery(stream) == cudaErrorNotReady) continue;
    for (int i = 0; i < N; i++) CHECK(host[i] == 3 && pageable[i] == 3);
}

// There and back: the gradient to the host, the weights to the device, each behind its wait.
RIGHT(HOST_RACE, offloaded_step, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t reduce = side_stream();
    cudaEvent_t arrived = new_event();
    float *grad = filled(2 * N, 1), *shard = filled(N, 0), *host = pinned(2 * N, 0);
    float *weights = host + N;
    size_t bytes = N * sizeof *host;
    for (int step = 0; step < 3; step++) {
        NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, comm, reduce));
        CUDA(cudaMemcpyAsync(host, shard, bytes, cudaMemcpyDeviceToHost, reduce));
        CUDA(cudaEventRecord(arrived, reduce));
        CUDA(cudaEventSynchronize(arrived)); // and so the copy of the step before is done
        for (int i = 0; i < N; i++) weights[i] -= 0.5f * host[i];
        CUDA(cudaMemcpyAsync(shard, weights, bytes, cudaMemcpyHostToDevice, reduce));
    }
    expect(shard, N, -3);
}
