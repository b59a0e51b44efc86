/* Copies of every shape: host to device to device to host, in rows with a pitch and in one piece,
 * pageable, pinned and registered.
 */
#include <cuda_runtime.h>
#include <string.h>

#include "ok.h"

enum { WIDTH = 333, HEIGHT = 21 };

static unsigned char host[HEIGHT][WIDTH], back[HEIGHT][WIDTH];

static int compare(const void *got)
{
    int wrong = memcmp(got, host, sizeof host) != 0;
    memset(back, 0, sizeof back);
    return wrong;
}

static int shapes(cudaStream_t stream)
{
    int wrong = 0;
    size_t pitch, other_pitch;
    char *rows, *other, *plain;
    OK(cudaMallocPitch((void **)&rows, &pitch, WIDTH, HEIGHT));
    OK(cudaMallocPitch((void **)&other, &other_pitch, 2 * WIDTH, HEIGHT));
    OK(cudaMalloc((void **)&plain, sizeof host));
    MUST(pitch >= WIDTH && other_pitch >= 2 * WIDTH);
    OK(cudaMemset2D(rows, pitch, 0, WIDTH, HEIGHT));
    OK(cudaMemcpy2D(rows, pitch, host, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize()); // the stream does not wait for the default stream
    // Into the right half of the other, and on into one piece.
    OK(cudaMemcpy2DAsync(other + WIDTH, other_pitch, rows, pitch, WIDTH, HEIGHT,
                         cudaMemcpyDeviceToDevice, stream));
    OK(cudaMemcpy2DAsync(plain, WIDTH, other + WIDTH, other_pitch, WIDTH, HEIGHT, cudaMemcpyDefault,
                         stream));
    OK(cudaMemcpyAsync(back, plain, sizeof back, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    wrong += compare(back);
    OK(cudaMemcpy2D(back, WIDTH, rows, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    wrong += compare(back);

    void *pinned, *view;
    OK(cudaHostAlloc(&pinned, sizeof host, cudaHostAllocMapped | cudaHostAllocPortable));
    OK(cudaHostGetDevicePointer(&view, pinned, 0));
    OK(cudaMemcpyAsync(view, plain, sizeof host, cudaMemcpyDefault, stream));
    OK(cudaStreamSynchronize(stream));
    wrong += compare(pinned);
    OK(cudaFreeHost(pinned));
    OK(cudaHostRegister(back, sizeof back, cudaHostRegisterDefault));
    OK(cudaMemcpyAsync(back, plain, sizeof host, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    wrong += compare(back);
    OK(cudaHostUnregister(back));
    OK(cudaFree(rows));
    OK(cudaFree(other));
    OK(cudaFree(plain));
    return wrong;
}

int main(void)
{
    int devices, wrong = 0;
    OK(cudaGetDeviceCount(&devices));
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        host[i / WIDTH][i % WIDTH] = (unsigned char)(i * 7 + i / 256);
    for (int d = 0; d < devices; d++) {
        cudaStream_t stream;
        OK(cudaSetDevice(d));
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaDeviceSynchronize());
        wrong += shapes(stream);
        OK(cudaStreamDestroy(stream));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
