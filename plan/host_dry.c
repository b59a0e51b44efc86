/* host_dry.c: shards in host memory (OFFLOAD=yes), of which a dry run needs no byte.
 *
 * A dry run executes the program's host code, and pinned memory is real: the optimizer of a model
 * of 175 billion parameters would read and write terabytes. But all values are zeros, and no one
 * uses the results. So the planner puts functions of its own in front of these (--wrap): a large
 * pinned allocation repeats the same few pages. Writing its first pages writes all; writing zeros,
 * which the pages hold, is skipped; and so is the host's arithmetic. A run that is executed gets
 * the functions themselves.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_kernels.h"
#include "plan.h"

// An allocation repeats its pages about TIMES times. A process has room for 65,530 mappings
// (vm.max_map_count): allocations above that keep their own pages, terabytes if cut by parameter.
enum { TIMES = 8, MOST_SHARED = 8192 }; // allocations
#define LEAST_BYTES ((size_t)1 << 20)   // smaller ones keep pages of their own

static bool dry;
static char *pages; // shared by all allocations; in no file, whose size ulimit -f would limit
static size_t pages_bytes;
static bool written; // with anything but zeros

static struct Shared { // memory whose pages repeat after so many bytes
    const char *begin;
    size_t bytes, period;
} shared[MOST_SHARED];
static int n_shared;

void plan_host_dry(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20); // what is remapped is a mapping, which free gives back
    dry = true;
}

// Makes that many bytes of pages to share. Allocations with older pages keep those.
static bool make_pages(size_t bytes)
{
    if (bytes <= pages_bytes) return true;
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return false;
    if (pages) munmap(pages, pages_bytes);
    pages = made;
    pages_bytes = bytes;
    return true;
}

// Repeats these pages in place of the allocation's own.
static void share_pages(char *begin, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = -(uintptr_t)begin & (page - 1),
           period = (bytes / TIMES + page) / page * page, done = skip;
    if (bytes < LEAST_BYTES || n_shared == MOST_SHARED || !make_pages(period)) return;
    while (bytes - done >= page) {
        size_t left = (bytes - done) / page * page, n = left < period ? left : period;
        // From an old size of 0 a second mapping of shared pages is made (mremap(2)).
        if (mremap(pages, 0, n, MREMAP_MAYMOVE | MREMAP_FIXED, begin + done) == MAP_FAILED)
            break; // the rest keeps pages of its own
        done += n;
    }
    shared[n_shared++] = (struct Shared){begin + skip, done - skip, period};
}

cudaError_t __real_cudaMallocHost(void **ptr, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void **ptr, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void **ptr, size_t bytes)
{
    cudaError_t error = __real_cudaMallocHost(ptr, bytes);
    if (error == cudaSuccess && dry) share_pages(*ptr, bytes);
    return error;
}

cudaError_t __real_cudaFreeHost(void *ptr);
cudaError_t __wrap_cudaFreeHost(void *ptr);
cudaError_t __wrap_cudaFreeHost(void *ptr)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < n_shared; i++)
        if ((uintptr_t)shared[i].begin - (uintptr_t)ptr < page) shared[i] = shared[--n_shared];
    return __real_cudaFreeHost(ptr);
}

// Of bytes with repeated pages, writes those in front of them, one period, and those after them.
void *__real_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes)
{
    char *begin = to, *end = begin + bytes;
    for (int i = 0; i < n_shared && bytes >= LEAST_BYTES; i++) {
        const struct Shared *s = &shared[i];
        char *first = (char *)s->begin, *last = first + s->bytes;
        if (begin > first || end < last) continue;
        written = written || value != 0;
        __real_memset(begin, value, (size_t)(first - begin) + (written ? s->period : 0));
        __real_memset(last, value, (size_t)(end - last));
        return to;
    }
    return __real_memset(to, value, bytes);
}

// The host's arithmetic, which a dry run skips.
#define WRAP(type, name, parameters, arguments, nothing)                                           \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return dry ? nothing : __real_##name arguments;                                            \
    }
WRAP(void, host_adamw,
     (float *p, const float *g, float *m, float *v, size_t n, float lr, float beta1, float beta2,
      float eps, float weight_decay, int t),
     (p, g, m, v, n, lr, beta1, beta2, eps, weight_decay, t), (void)0)
WRAP(void, host_sgd, (float *p, const float *g, size_t n, float lr, float weight_decay),
     (p, g, n, lr, weight_decay), (void)0)
WRAP(void, host_scale, (float *x, float factor, size_t n), (x, factor, n), (void)0)
WRAP(double, host_sum_squares, (const float *x, size_t n), (x, n), 0.0)
WRAP(bool, host_all_finite, (const float *x, size_t n), (x, n), true)
