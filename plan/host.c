/* host.c: shards in host memory (OFFLOAD=yes), of which a dry run needs no byte.
 *
 * A program's own code runs in a dry run, and pinned memory is there: the optimizer of a model of
 * 175 billion parameters would read and write terabytes. What it computes from zeros nobody looks
 * at. So the planner is linked with functions of its own in front of these (--wrap): large pinned
 * allocations share a few pages, and the host's arithmetic is left out. A run that is executed gets
 * the functions themselves.
 *
 * Interface: plan_host_dry; __wrap_ of cudaMallocHost, host_adamw, host_sgd, host_scale,
 * host_sum_squares, host_all_finite.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_kernels.h"
#include "plan.h"

#define SHARED_BYTES ((size_t)64 << 20) // that larger allocations have instead of their own

static int shared = -1; // a memfd: the run is dry

void plan_host_dry(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20); // what is remapped is a mapping, which free gives back
    shared = memfd_create("plan-host", MFD_CLOEXEC);
    if (shared >= 0 && ftruncate(shared, SHARED_BYTES) != 0) {
        close(shared);
        shared = -1;
    }
}

// Whole pages within the allocation become the shared ones, again and again.
static void share_pages(char *begin, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = -(uintptr_t)begin & (page - 1);
    if (bytes < skip + SHARED_BYTES) return;
    for (size_t at = skip; at + page <= bytes; at += SHARED_BYTES) {
        size_t left = (bytes - at) / page * page, n = left < SHARED_BYTES ? left : SHARED_BYTES;
        if (mmap(begin + at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared, 0) ==
            MAP_FAILED)
            return; // it keeps pages of its own
    }
}

cudaError_t __real_cudaMallocHost(void **ptr, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void **ptr, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void **ptr, size_t bytes)
{
    cudaError_t error = __real_cudaMallocHost(ptr, bytes);
    if (error == cudaSuccess && shared >= 0) share_pages(*ptr, bytes);
    return error;
}

void __real_host_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                       float beta1, float beta2, float eps, float weight_decay, int t);
void __wrap_host_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                       float beta1, float beta2, float eps, float weight_decay, int t);
void __wrap_host_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                       float beta1, float beta2, float eps, float weight_decay, int t)
{
    if (shared < 0) __real_host_adamw(p, g, m, v, n, lr, beta1, beta2, eps, weight_decay, t);
}

void __real_host_sgd(float *p, const float *g, size_t n, float lr, float weight_decay);
void __wrap_host_sgd(float *p, const float *g, size_t n, float lr, float weight_decay);
void __wrap_host_sgd(float *p, const float *g, size_t n, float lr, float weight_decay)
{
    if (shared < 0) __real_host_sgd(p, g, n, lr, weight_decay);
}

void __real_host_scale(float *x, float factor, size_t n);
void __wrap_host_scale(float *x, float factor, size_t n);
void __wrap_host_scale(float *x, float factor, size_t n)
{
    if (shared < 0) __real_host_scale(x, factor, n);
}

double __real_host_sum_squares(const float *x, size_t n);
double __wrap_host_sum_squares(const float *x, size_t n);
double __wrap_host_sum_squares(const float *x, size_t n)
{
    return shared < 0 ? __real_host_sum_squares(x, n) : 0.0;
}

bool __real_host_all_finite(const float *x, size_t n);
bool __wrap_host_all_finite(const float *x, size_t n);
bool __wrap_host_all_finite(const float *x, size_t n)
{
    return shared >= 0 || __real_host_all_finite(x, n);
}
