/* Three stages on three streams of each device: up, work, down. Events hold the stages together,
 * pinned buffers are used in turns, and a callback counts what came back.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "ok.h"

enum { CHUNKS = 12, SLOTS = 2, COUNT = 2003 };

typedef struct Slot {
    float *in, *out; // pinned
    float *x;        // device
    cudaEvent_t up, worked, down;
} Slot;

static int arrived;

static void CUDART_CB count_one(cudaStream_t stream, cudaError_t status, void *arg)
{
    if (stream && status == cudaSuccess) ++*(int *)arg;
}

static void count_host(void *arg)
{
    ++*(int *)arg;
}

static int check_slot(const Slot *slot, int chunk)
{
    int wrong = 0;
    OK(cudaEventSynchronize(slot->down));
    for (int i = 0; i < COUNT; i++) wrong += slot->out[i] != 3.0f * (float)(chunk + i % 17);
    return wrong;
}

static int run(int device)
{
    int wrong = 0;
    const float three = 3;
    Slot slot[SLOTS];
    cudaStream_t up, work, down;
    cublasHandle_t blas;
    OK(cudaSetDevice(device));
    OK(cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&work, cudaStreamNonBlocking, 0));
    OK(cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking));
    OK(cublasCreate(&blas));
    OK(cublasSetStream(blas, work));
    for (int s = 0; s < SLOTS; s++) {
        OK(cudaMallocHost((void **)&slot[s].in, COUNT * sizeof(float)));
        OK(cudaHostAlloc((void **)&slot[s].out, COUNT * sizeof(float), cudaHostAllocDefault));
        OK(cudaMalloc((void **)&slot[s].x, COUNT * sizeof(float)));
        OK(cudaEventCreateWithFlags(&slot[s].up, cudaEventDisableTiming));
        OK(cudaEventCreateWithFlags(&slot[s].worked, cudaEventDisableTiming));
        OK(cudaEventCreate(&slot[s].down));
    }
    for (int chunk = 0; chunk < CHUNKS + SLOTS; chunk++) {
        Slot *s = &slot[chunk % SLOTS];
        if (chunk >= SLOTS) wrong += check_slot(s, chunk - SLOTS);
        if (chunk >= CHUNKS) continue;
        for (int i = 0; i < COUNT; i++) s->in[i] = (float)(chunk + i % 17);
        OK(cudaMemcpyAsync(s->x, s->in, COUNT * sizeof(float), cudaMemcpyHostToDevice, up));
        OK(cudaEventRecord(s->up, up));
        OK(cudaStreamWaitEvent(work, s->up, 0));
        OK(cublasSscal(blas, COUNT, &three, s->x, 1));
        OK(cudaEventRecord(s->worked, work));
        OK(cudaStreamWaitEvent(down, s->worked, 0));
        OK(cudaMemcpyAsync(s->out, s->x, COUNT * sizeof(float), cudaMemcpyDeviceToHost, down));
        if (chunk % 2)
            OK(cudaStreamAddCallback(down, count_one, &arrived, 0));
        else
            OK(cudaLaunchHostFunc(down, count_host, &arrived));
        OK(cudaEventRecord(s->down, down));
    }
    OK(cudaDeviceSynchronize());
    for (int s = 0; s < SLOTS; s++) {
        OK(cudaFreeHost(slot[s].in));
        OK(cudaFreeHost(slot[s].out));
        OK(cudaFree(slot[s].x));
        OK(cudaEventDestroy(slot[s].up));
        OK(cudaEventDestroy(slot[s].worked));
        OK(cudaEventDestroy(slot[s].down));
    }
    OK(cublasDestroy(blas));
    OK(cudaStreamDestroy(up));
    OK(cudaStreamDestroy(work));
    OK(cudaStreamDestroy(down));
    return wrong;
}

int main(void)
{
    int devices, wrong = 0;
    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) wrong += run(d);
    wrong += arrived != devices * CHUNKS;
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
