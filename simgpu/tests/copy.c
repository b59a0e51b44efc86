/* copy.c: copies and fills in every direction, at odd sizes, and directions that are wrong. */
#include <stdlib.h>

#include "heard.h"

static Heard *heard;

static void pattern(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(seed + i * 7 + i / 251);
}

static void compare(const char *what, const unsigned char *got, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        check(got[i] == (unsigned char)(seed + i * 7 + i / 251), "%s: byte %zu of %zu is %d", what,
              i, n, got[i]);
}

RANK_TEST(test_moves_bytes, 3)
{
    static const size_t sizes[] = {1, 3, 255, 257, 4097, 100003};
    enum { MOST = 100003 };
    static unsigned char in[MOST], out[MOST];
    unsigned char *a, *b, *pinned;
    need_cuda(cudaMallocHost((void **)&pinned, MOST));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i];
        need_cuda(cudaMalloc((void **)&a, n));
        need_cuda(cudaMalloc((void **)&b, n));
        pattern(in, n, (unsigned)i);
        need_cuda(cudaMemcpy(a, in, n, cudaMemcpyHostToDevice));
        need_cuda(cudaMemcpy(b, a, n, cudaMemcpyDeviceToDevice));
        memset(out, 0, n);
        need_cuda(cudaMemcpy(out, b, n, cudaMemcpyDeviceToHost));
        compare("cudaMemcpy", out, n, (unsigned)i);

        // The bytes of pageable memory are taken when the call returns.
        pattern(in, n, 50 + (unsigned)i);
        need_cuda(cudaMemcpyAsync(a, in, n, cudaMemcpyDefault, r->stream));
        memset(in, 0, n);
        need_cuda(cudaMemcpyAsync(b, a, n, cudaMemcpyDefault, r->stream));
        need_cuda(cudaMemcpyAsync(out, b, n, cudaMemcpyDefault, r->stream));
        compare("cudaMemcpyAsync", out, n, 50 + (unsigned)i);

        pattern(pinned, n, 90 + (unsigned)i);
        need_cuda(cudaMemcpyAsync(a, pinned, n, cudaMemcpyHostToDevice, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        need_cuda(cudaMemcpyAsync(pinned, a, n, cudaMemcpyDeviceToHost, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        compare("pinned memory", pinned, n, 90 + (unsigned)i);
        need_cuda(cudaMemcpy(out, pinned, n, cudaMemcpyHostToHost));
        compare("host to host", out, n, 90 + (unsigned)i);
        need_cuda(cudaFree(a));
        need_cuda(cudaFree(b));
    }
    need_cuda(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDeviceToHost));
}

RANK_TEST(test_moves_rows, 1)
{
    enum { W = 13, H = 7, P = 29, Q = 17 };
    unsigned char in[H * P], out[H * Q], *device, *pinned;
    hear(heard);
    need_cuda(cudaMalloc((void **)&device, H * P));
    need_cuda(cudaMallocHost((void **)&pinned, H * Q));
    pattern(in, sizeof in, 3);
    need_cuda(cudaMemset(device, 0, H * P));
    need_cuda(cudaMemcpy2D(device, P, in, P, W, H, cudaMemcpyHostToDevice));
    need_cuda(cudaMemset2D(device + 5, P, 0xee, 2, H)); // columns 5 and 6
    memset(out, 1, sizeof out);
    memset(pinned, 1, sizeof out);
    need_cuda(cudaMemcpy2D(out, Q, device, P, W, H, cudaMemcpyDeviceToHost));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy2DAsync(pinned, Q, device, P, W, H, cudaMemcpyDeviceToHost, r->stream));
    check(pinned[W] == 1 && heard->count == 0, "what lies between the rows is under way");
    need_cuda(cudaMemcpy2DAsync(pinned, Q, device, P, W, H, cudaMemcpyDeviceToHost, r->stream));
    check(pinned[0] == 0xff, "the rows are not under way");
    check(heard->count == 1 && heard->kind == SIMGPU_HOST_RACE, "%d reports", heard->count);
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int row = 0; row < H; row++) {
        for (int col = 0; col < Q; col++) {
            int want = col >= W ? 1 : col == 5 || col == 6 ? 0xee : in[row * P + col];
            check(out[row * Q + col] == want, "row %d, column %d: %d", row, col,
                  out[row * Q + col]);
            check(pinned[row * Q + col] == want, "pinned row %d, column %d", row, col);
        }
    }
    check(cudaMemcpy2D(out, W - 1, device, P, W, H, cudaMemcpyDeviceToHost) ==
              cudaErrorInvalidPitchValue,
          "rows that overlap were copied");
    check(heard->count == 1, "%d reports", heard->count);
}

// One process, all devices.
RANK_TEST(test_moves_between_devices, 1)
{
    enum { N = 1001 };
    unsigned char in[N], out[N], *p[8];
    pattern(in, N, 1);
    for (int d = 0; d < 8; d++) {
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaMalloc((void **)&p[d], N));
    }
    need_cuda(cudaMemcpy(p[0], in, N, cudaMemcpyHostToDevice));
    for (int d = 1; d < 8; d++)
        need_cuda(d % 2 ? cudaMemcpyPeer(p[d], d, p[d - 1], d - 1, N)
                        : cudaMemcpyPeerAsync(p[d], d, p[d - 1], d - 1, N, NULL));
    need_cuda(cudaMemcpy(out, p[7], N, cudaMemcpyDefault));
    compare("through eight devices", out, N, 1);
    hear(heard);
    check(cudaMemcpyPeer(p[1], 2, p[0], 0, N) == cudaErrorInvalidValue,
          "the wrong device was taken");
    heard_is(heard, "a copy between devices names the wrong device", "is not on device 2");
    check(cudaMemcpyPeer(p[1], 1, p[0], 8, N) == cudaErrorInvalidDevice, "device 8 was taken");
}

RANK_TEST(test_refuses_null_ends, 1)
{
    static const enum cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice,
                                                cudaMemcpyDeviceToDevice, cudaMemcpyDefault};
    char *device;
    hear(heard);
    need_cuda(cudaMalloc((void **)&device, 16));
    need_cuda(cudaMemset(device, 0, 16));
    for (int i = 0; i < 4; i++) {
        check(cudaMemcpyAsync(device, NULL, 16, kinds[i], r->stream) == cudaErrorInvalidValue,
              "taken");
        heard_is(heard, "a null pointer where a copy needs memory", "reads 16 bytes at NULL");
        check(cudaMemcpyAsync(NULL, device, 16, kinds[i], r->stream) == cudaErrorInvalidValue,
              "taken");
        heard_is(heard, "a null pointer where a copy needs memory", "writes 16 bytes at NULL");
    }
    check(heard->count == 8, "%d reports", heard->count);
    need_cuda(cudaFree(device));
}

RANK_TEST(test_refuses_wrong_directions, 1)
{
    char *device, host[16] = {0};
    hear(heard);
    need_cuda(cudaMalloc((void **)&device, 16));
    need_cuda(cudaMemset(device, 0, 16));
    check(cudaMemcpy(device, host, 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue, "taken");
    heard_is(heard, "a copy's direction does not fit its pointers", "says cudaMemcpyDeviceToHost");
    check(cudaMemcpy(host, device, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "taken");
    check(cudaMemcpy(host, device, 16, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue, "taken");
    check(cudaMemcpy(host, device, 16, cudaMemcpyHostToHost) == cudaErrorInvalidValue, "taken");
    check(heard->count == 4, "%d reports", heard->count);
    check(cudaMemcpy(host, device, 16, (enum cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection,
          "a direction 9 was taken");
    cudaGetLastError();
    need_cuda(cudaMemcpy(host, device, 16, cudaMemcpyDeviceToHost)); // none of this is sticky
}

// A copy or a memset outside of what was allocated is refused by its call: nothing is moved, and
// the error does not stay.
RANK_TEST(test_refuses_wrong_ranges, 1)
{
    char *device, host[32] = {0};
    hear(heard);
    need_cuda(cudaMalloc((void **)&device, 16));
    need_cuda(cudaMemset(device, 7, 16));
    check(cudaMemcpy(host, device, 17, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue, "read");
    heard_is(heard, "an operation runs past the end of an allocation", "1 bytes too many");
    check(cudaMemcpy(device + 8, host, 9, cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
          "written");
    check(cudaMemset(device, 1, 17) == cudaErrorInvalidValue, "filled");
    check(cudaMemsetAsync(NULL, 0, 4, r->stream) == cudaErrorInvalidValue, "NULL was filled");
    heard_is(heard, "a null pointer where device memory is needed", "cudaMemsetAsync, called at");
    check(heard->count == 4, "%d reports", heard->count);
    check(cudaGetLastError() == cudaErrorInvalidValue, "the last error is another");
    need_cuda(cudaMemcpy(host, device, 16, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        check(host[i] == (i < 16 ? 7 : 0), "byte %d became %d", i, host[i]);
    need_cuda(cudaFree(device));
}

// The device sees what is under way to pinned memory; the host does not until it waits.
RANK_TEST(test_devices_see_copies_under_way, 1)
{
    enum { N = 100 };
    unsigned char *a, *b, *pinned, out[N];
    hear(heard);
    need_cuda(cudaMalloc((void **)&a, N));
    need_cuda(cudaMalloc((void **)&b, N));
    need_cuda(cudaMallocHost((void **)&pinned, N));
    need_cuda(cudaMemsetAsync(a, 5, N, r->stream));
    need_cuda(cudaMemcpyAsync(pinned, a, N, cudaMemcpyDeviceToHost, r->stream));
    check(pinned[0] == 0xff && heard->count == 1, "the copy arrived at once");
    need_cuda(cudaMemcpyAsync(b, pinned, N, cudaMemcpyHostToDevice, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(out, b, N, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) check(out[i] == 5, "byte %d is %d", i, out[i]);

    // Two copies to one place: the later one stays, however they are delivered.
    need_cuda(cudaMemsetAsync(a, 6, N, r->stream));
    need_cuda(cudaMemcpyAsync(pinned, a, N, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaMemsetAsync(a, 7, N, r->stream));
    need_cuda(cudaMemcpyAsync(pinned + 50, a, N - 50, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < N; i++) check(pinned[i] == (i < 50 ? 6 : 7), "byte %d is %d", i, pinned[i]);

    // Also where an operation sees only a part of the later one.
    need_cuda(cudaMemcpyAsync(pinned, b, N, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaMemcpyAsync(pinned + 50, a, N - 50, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaMemcpyAsync(b + 90, pinned + 90, N - 90, cudaMemcpyHostToDevice, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < N; i++) check(pinned[i] == (i < 50 ? 5 : 7), "byte %d is %d", i, pinned[i]);
    need_cuda(cudaMemcpy(out, b, N, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) check(out[i] == (i < 90 ? 5 : 7), "byte %d is %d", i, out[i]);
    check(heard->count == 1, "%d reports", heard->count);
}

RANK_TEST(test_registers_host_memory, 2)
{
    enum { N = 5000 };
    unsigned char *memory = malloc(N), *device;
    struct cudaPointerAttributes about;
    void *mapped;
    unsigned flags;
    check(memory != NULL, "no memory");
    memset(memory, 0, N);
    need_cuda(cudaMalloc((void **)&device, N));
    need_cuda(cudaMemsetAsync(device, 8, N, r->stream));
    need_cuda(cudaPointerGetAttributes(&about, memory));
    check(about.type == cudaMemoryTypeUnregistered, "type %d", about.type);
    need_cuda(cudaHostRegister(memory, N, cudaHostRegisterPortable));
    check(cudaHostRegister(memory + 100, 10, 0) == cudaErrorHostMemoryAlreadyRegistered, "twice");
    need_cuda(cudaPointerGetAttributes(&about, memory + 100));
    check(about.type == cudaMemoryTypeHost && about.devicePointer == memory + 100, "%d",
          about.type);
    need_cuda(cudaHostGetFlags(&flags, memory));
    check(flags == cudaHostRegisterPortable, "flags %u", flags);
    need_cuda(cudaHostGetDevicePointer(&mapped, memory, 0));
    need_cuda(kernel_touch(mapped, 1, 3, r->stream)); // pinned memory is as good as the device's
    need_cuda(cudaStreamSynchronize(r->stream));
    check(memory[0] == 3, "the kernel wrote %d", memory[0]);
    hear(&heard[r->rank]);
    need_cuda(cudaMemcpyAsync(memory, device, N, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaHostUnregister(memory));
    check(memory[0] == 8 && memory[N - 1] == 8, "the copy was lost");
    heard_is(&heard[r->rank], "pinned memory is freed while a copy is in flight",
             "cudaHostUnregister, called at tests/copy.c:");
    check(cudaHostUnregister(memory) == cudaErrorHostMemoryNotRegistered, "twice");
    need_cuda(cudaMemcpyAsync(memory, device, N, cudaMemcpyDeviceToHost, r->stream));
    check(memory[0] == 8, "a copy into pageable memory waits");
    need_cuda(cudaPointerGetAttributes(&about, device + 1));
    check(about.type == cudaMemoryTypeDevice && about.device == r->device, "%d", about.type);
    check(cudaFreeHost(memory) == cudaErrorInvalidValue, "malloc's memory was taken");
    heard_is(&heard[r->rank], "this is not pinned host memory",
             "cudaFreeHost, called at tests/copy.c:");
    free(memory);
}

int main(int argc, char **argv)
{
    heard = shared_alloc(2 * sizeof *heard);
    return suite_main(argc, argv, "simgpu/copy");
}
