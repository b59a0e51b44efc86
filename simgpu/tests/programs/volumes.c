/* Blocks with three sides: filled, and copied whole and in parts, between memory with a pitch and
 * the host's, whose rows have none.
 */
#include <cuda_runtime.h>
#include <string.h>

#include "ok.h"

enum { WIDTH = 37, HEIGHT = 5, DEPTH = 4, MORE = 2 };

static unsigned char host[DEPTH][HEIGHT][WIDTH], back[DEPTH][HEIGHT + MORE][WIDTH + MORE];

static int parts(cudaStream_t stream)
{
    int wrong = 0;
    struct cudaPitchedPtr whole, part;
    struct cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    OK(cudaMalloc3D(&whole, extent));
    OK(cudaMalloc3D(&part, make_cudaExtent(WIDTH + MORE, HEIGHT + MORE, DEPTH)));
    MUST(whole.pitch >= WIDTH && whole.xsize == WIDTH && whole.ysize == HEIGHT);
    OK(cudaMemset3D(part, 7, make_cudaExtent(WIDTH + MORE, HEIGHT + MORE, DEPTH)));
    struct cudaMemcpy3DParms up = {.srcPtr = make_cudaPitchedPtr(host, WIDTH, WIDTH, HEIGHT),
                                   .dstPtr = whole,
                                   .extent = extent,
                                   .kind = cudaMemcpyHostToDevice};
    OK(cudaMemcpy3D(&up));
    // Into the middle of the larger one, slice by slice.
    struct cudaMemcpy3DParms inside = {.srcPtr = whole,
                                       .dstPtr = part,
                                       .dstPos = make_cudaPos(1, 1, 0),
                                       .extent = extent,
                                       .kind = cudaMemcpyDeviceToDevice};
    OK(cudaMemcpy3DAsync(&inside, stream));
    struct cudaMemcpy3DParms down = {
        .srcPtr = part,
        .dstPtr = make_cudaPitchedPtr(back, WIDTH + MORE, WIDTH + MORE, HEIGHT + MORE),
        .extent = make_cudaExtent(WIDTH + MORE, HEIGHT + MORE, DEPTH),
        .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3DAsync(&down, stream));
    OK(cudaStreamSynchronize(stream));
    for (int z = 0; z < DEPTH; z++)
        for (int y = 0; y < HEIGHT + MORE; y++)
            for (int x = 0; x < WIDTH + MORE; x++) {
                int in = x >= 1 && x <= WIDTH && y >= 1 && y <= HEIGHT;
                wrong += back[z][y][x] != (in ? host[z][y - 1][x - 1] : 7);
            }
    OK(cudaFree(whole.ptr));
    OK(cudaFree(part.ptr));
    return wrong;
}

int main(void)
{
    int devices, wrong = 0;
    unsigned long long id, other_id;
    cudaStream_t stream, other;
    for (size_t i = 0; i < sizeof host; i++) ((unsigned char *)host)[i] = (unsigned char)(i * 11);
    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamCreate(&stream));
        OK(cudaStreamCreate(&other));
        OK(cudaStreamGetId(stream, &id));
        OK(cudaStreamGetId(other, &other_id));
        MUST(id != other_id);
        wrong += parts(stream);
        OK(cudaStreamDestroy(stream));
        OK(cudaStreamDestroy(other));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
