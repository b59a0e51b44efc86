/* call.c: calls that are wrong by themselves, whatever memory, streams and other ranks do. */
#include <cuda.h>

#include "program.h"

// ---- CUDA calls inside of a host function. They stand behind their program, as its lines. ----

// What a host function is given, and the last status that it saw.
typedef struct Note {
    float *x, *y;
    cudaStream_t stream;
    cudaError_t status;
} Note;

static void copies(void *note), allocates(void *note), launches(void *note);
static void waits(cudaStream_t stream, cudaError_t status, void *note);

WRONG(CALL, copies_in_a_host_function, 1, "0")
{
    Note note = {filled(N, 1), filled(N, 2), side_stream(), cudaSuccess};
    CUDA(cudaLaunchHostFunc(note.stream, copies, &note)); // HERE
    CHECK(note.status == cudaErrorNotPermitted);
    expect(note.y, N, 2);
}

HELPER void copies(void *arg)
{
    Note *n = arg;
    n->status = cudaMemcpyAsync(n->y, n->x, 4 * N, cudaMemcpyDefault, n->stream); // HERE
}

WRONG(CALL, allocates_in_a_host_function, 1, "0")
{
    Note note = {NULL, NULL, NULL, cudaSuccess};
    CUDA(cudaLaunchHostFunc(NULL, allocates, &note)); // HERE
    CHECK(note.status == cudaErrorNotPermitted && !note.y);
}

HELPER void allocates(void *arg)
{
    Note *n = arg;
    n->status = cudaMalloc((void **)&n->y, 4 * N); // HERE
}

// On a GPU the function would wait for the stream that waits for the function.
WRONG(CALL, waits_in_a_callback, 1, "0")
{
    Note note = {NULL, NULL, side_stream(), cudaSuccess};
    CUDA(cudaStreamAddCallback(note.stream, waits, &note, 0)); // HERE
    CHECK(note.status == cudaErrorNotPermitted);
}

HELPER void waits(cudaStream_t stream, cudaError_t status, void *arg)
{
    Note *n = arg;
    CHECK(status == cudaSuccess);
    n->status = cudaStreamSynchronize(stream); // HERE
}

WRONG(CALL, launches_in_a_host_function, 1, "0")
{
    Note note = {filled(N, 1), NULL, NULL, cudaSuccess};
    CUDA(cudaLaunchHostFunc(NULL, launches, &note)); // HERE
    CHECK(note.status == cudaErrorNotPermitted);
    expect(note.x, N, 1);
}

HELPER void launches(void *arg)
{
    Note *n = arg;
    n->status = kernel_scale(n->x, 2, N, NULL); // HERE
}

HELPER void counts(void *count)
{
    ++*(int *)count;
    (void)cudaGetErrorString(cudaSuccess); // asks no device
}

// The function only works on the host; the copy comes behind it.
RIGHT(CALL, copies_behind_a_host_function, 1)
{
    int count = 0;
    cudaStream_t stream = side_stream();
    float *x = filled(N, 1), *y = filled(N, 2);
    CUDA(cudaLaunchHostFunc(stream, counts, &count));
    CUDA(cudaMemcpyAsync(y, x, N * sizeof *x, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    CHECK(count == 1);
    expect(y, N, 1);
}

// Between two host functions every call is allowed.
RIGHT(CALL, waits_before_the_next_function, 1)
{
    int count = 0;
    for (int i = 0; i < 3; i++) {
        CUDA(cudaLaunchHostFunc(NULL, counts, &count));
        CUDA(cudaDeviceSynchronize());
    }
    CHECK(count == 3);
}

WRONG(CALL, array_for_a_texture, 1, "0")
{
    cudaArray_t array = NULL;
    struct cudaChannelFormatDesc desc = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    struct cudaExtent extent = {16, 16, 16};
    CHECK(cudaMalloc3DArray(&array, &desc, extent, 0) == cudaErrorNotSupported); // HERE
}

// The driver's interface is not here, and the runtime is.
WRONG(CALL, memory_by_the_driver, 1, "0")
{
    CUdeviceptr x = 0;
    CHECK(cuMemAlloc(&x, N) == CUDA_ERROR_NOT_SUPPORTED); // HERE
}
