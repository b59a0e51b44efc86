/* program.h: what the small programs of this folder share.
 *
 * A program is a function behind WRONG, HANGS or RIGHT; every rank runs it in a process of its own.
 * It knows CUDA, NCCL and the kit's kernels, and nothing of simgpu: it would run on real GPUs too.
 * The README says how to add one.
 *
 * Interface: WRONG, HANGS, RIGHT; CUDA, NCCL, BLAS, CHECK; share_id, hand_id, join, meet, filled,
 * pinned, new_pair, expect, side_stream, new_event, BEGIN, end_capture.
 */
#ifndef MISUSE_PROGRAM_H
#define MISUSE_PROGRAM_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "kernels.h"

typedef struct Program {
    const char *row;  // of the table of diagnoses: RACE
    const char *name; // of the function
    const char *by; // the ranks of which one has to report first, such as "0 2"; NULL: a right one
    bool waits;     // it waits for a call that could still come: a notice says so, and no report
    int ranks;
    void (*run)(int rank, int ranks);
    const char *file;
    int line; // where it begins; it ends where the next one of the file begins
    struct Program *next;
} Program;
void enlist(Program *program);

// WRONG(RACE, reads_early, 2, "0 1") { … }: a program of 2 ranks with a race, which one of the two
// reports first. The lines that the report has to name end in "// HERE".
#define WRONG(row, name, ranks, by) PROGRAM(#row, name, ranks, by, false)
// HANGS(DEADLOCK, waits_in_vain, 2) { … }: nobody can be sure that it hangs, since some thread or
// process could still make the call that is missing. A notice names the lines, and nothing ends.
#define HANGS(row, name, ranks) PROGRAM(#row, name, ranks, "", true)
// RIGHT(RACE, waits, 2) { … }: looks much the same, and nothing may be reported.
#define RIGHT(row, name, ranks) PROGRAM(#row, name, ranks, NULL, false)
#define PROGRAM(row, name, size, by, waits)                                                        \
    static void name(int rank, int ranks);                                                         \
    static Program name##_program = {row, #name, by, waits, size, name, __FILE__, __LINE__, NULL}; \
    __attribute__((constructor)) static void enlist_##name(void)                                   \
    {                                                                                              \
        enlist(&name##_program);                                                                   \
    }                                                                                              \
    static void name(int rank, int ranks)

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #ok);                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess)
#define NCCL(call) CHECK((call) == ncclSuccess)
#define BLAS(call) CHECK((call) == CUBLAS_STATUS_SUCCESS)

#define HELPER __attribute__((unused)) static

enum { N = 1000 };

// Rank 0's id, handed to all ranks of the program.
ncclUniqueId share_id(int rank, int ranks);
void hand_id(ncclUniqueId *id, int rank, int ranks); // … an id that it has already

// Every rank takes the device of its own number; the communicator of all of them.
HELPER ncclComm_t join(int rank, int ranks)
{
    ncclComm_t comm;
    CUDA(cudaSetDevice(rank));
    NCCL(ncclCommInitRank(&comm, ranks, share_id(rank, ranks), rank));
    return comm;
}

// The same, once a program; finish destroys it.
static ncclComm_t met;
HELPER ncclComm_t meet(int rank, int ranks)
{
    return met = join(rank, ranks);
}

// n floats of device memory, each of them `value`. A copy from pageable memory may still be on
// its way when cudaMemcpy returns, hence the wait.
HELPER float *filled(size_t n, float value)
{
    float *x, *host = malloc(n * sizeof *host);
    CHECK(host);
    for (size_t i = 0; i < n; i++) host[i] = value;
    CUDA(cudaMalloc((void **)&x, n * sizeof *x));
    CUDA(cudaMemcpy(x, host, n * sizeof *x, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    free(host);
    return x;
}

// n floats of pinned host memory, each of them `value`, once a program; finish frees them.
static float *pinned_floats;
HELPER float *pinned(size_t n, float value)
{
    CUDA(cudaMallocHost((void **)&pinned_floats, n * sizeof *pinned_floats));
    for (size_t i = 0; i < n; i++) pinned_floats[i] = value;
    return pinned_floats;
}

// Two sockets that hand to each other.
HELPER void new_pair(int pair[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

// All n floats at x are `value`, once everything that was queued is done.
HELPER void expect(const float *x, size_t n, float value)
{
    float *host = malloc(n * sizeof *host);
    CHECK(host);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, x, n * sizeof *x, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++)
        if (host[i] != value) {
            fprintf(stderr, "element %zu is %g, want %g\n", i, (double)host[i], (double)value);
            exit(1);
        }
    free(host);
}

// A stream that the default stream does not wait for, nor it for the default stream.
HELPER cudaStream_t side_stream(void)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

HELPER cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

#define BEGIN(stream) CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal))

HELPER cudaGraphExec_t end_capture(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

// Every program ends in this once its function returns, but for those of the row LEAK: what the
// current device has is waited for, and freed, as are what meet and pinned gave.
HELPER void finish(void)
{
    CUDA(cudaDeviceSynchronize());
    if (met) NCCL(ncclCommDestroy(met));
    CUDA(cudaFreeHost(pinned_floats));
    CUDA(cudaDeviceReset());
}

#endif
