/* properties.c: what a device says of itself is what the modelled machine's GPU says: a program
 * that derives bandwidth and peak from clocks, bus and cores gets the figures of its data sheet.
 */
#include <math.h>

#include "heard.h"

// As NVIDIA's data sheets have them; cores: of one multiprocessor.
typedef struct Sheet {
    const char *machine, *name;
    int major, minor, sms, cores, ratio;
    double gigabytes, bandwidth, peak; // bytes/s, FLOP/s in float
} Sheet;

static const Sheet sheets[] = {
    {"a100x8", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 64, 2, 85.9, 2.0e12, 19.5e12},
    {"h100x8", "NVIDIA H100 80GB HBM3", 9, 0, 132, 128, 2, 85.9, 3.35e12, 67e12},
    {"h200x8", "NVIDIA H200", 9, 0, 132, 128, 2, 141, 4.8e12, 67e12},
    {"b200x8", "NVIDIA B200", 10, 0, 148, 128, 2, 180, 8e12, 80e12},
    {"one-nic", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 64, 2, 85.9, 2.0e12, 19.5e12},
    {"laptop", "laptop GPU", 8, 9, 36, 128, 64, 8.59, 256e9, 16e12},
};

static double attribute(enum cudaDeviceAttr attr)
{
    int value = -1;
    need_cuda(cudaDeviceGetAttribute(&value, attr, 0));
    return value;
}

static bool is_near(double value, double want)
{
    return fabs(value - want) <= want / 1000;
}

// Bytes/s that a copy of 1 GB within the device moves, read and written, by events.
static double copy_bandwidth(void)
{
    enum { BYTES = 1000000000 };
    cudaEvent_t before, after;
    float ms = 0;
    char *x;
    need_cuda(cudaMalloc((void **)&x, 2ul * BYTES));
    need_cuda(cudaEventCreate(&before));
    need_cuda(cudaEventCreate(&after));
    need_cuda(cudaEventRecord(before, NULL));
    need_cuda(cudaMemcpyAsync(x + BYTES, x, BYTES, cudaMemcpyDeviceToDevice, NULL));
    need_cuda(cudaEventRecord(after, NULL));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaEventElapsedTime(&ms, before, after));
    need_cuda(cudaEventDestroy(before));
    need_cuda(cudaEventDestroy(after));
    need_cuda(cudaFree(x));
    return 2.0 * BYTES / (ms / 1000);
}

static void has_the_sheet(const Rank *r, void *arg)
{
    const Sheet *s = arg;
    struct cudaDeviceProp p;
    size_t left, total;
    need_cuda(cudaGetDeviceProperties(&p, 0));
    need_cuda(cudaMemGetInfo(&left, &total));
    check(strcmp(p.name, s->name) == 0, "%s is called %s", s->machine, p.name);
    check(p.major == s->major && p.minor == s->minor, "%s has %d.%d", s->name, p.major, p.minor);
    check(p.multiProcessorCount == s->sms, "%s has %d", s->name, p.multiProcessorCount);
    check(is_near((double)p.totalGlobalMem, s->gigabytes * 1e9), "%s has %zu bytes", s->name,
          p.totalGlobalMem);
    check(total == p.totalGlobalMem && left <= total, "cudaMemGetInfo says %zu", total);
    double clock = attribute(cudaDevAttrClockRate) * 1000;
    double memory = attribute(cudaDevAttrMemoryClockRate) * 1000;
    double peak = 2 * clock * s->sms * s->cores, bandwidth = 2 * memory * p.memoryBusWidth / 8;
    check(is_near(peak, s->peak), "%s: its clock gives %g FLOP/s", s->name, peak);
    check(is_near(bandwidth, s->bandwidth), "%s: its bus gives %g bytes/s", s->name, bandwidth);
    check(attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio) == s->ratio, "%s: ratio %g",
          s->name, attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio));
    double copied = copy_bandwidth();
    check(copied > bandwidth / 2 && copied <= bandwidth, "%s copies %g bytes/s, its peak is %g",
          s->name, copied, bandwidth);
}

TEST(test_the_modelled_machine)
{
    setenv("SIMGPU_DRY", "1", 1); // the copy is costed, and not made
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++) {
        setenv("SIMGPU_MACHINE", sheets[i].machine, 1);
        run_ranks(1, has_the_sheet, (void *)&sheets[i]);
    }
    unsetenv("SIMGPU_DRY");
    unsetenv("SIMGPU_MACHINE");
}

// Without a machine a device is a plain one, and says that it is none of a kind.
static void is_plain(const Rank *r, void *arg)
{
    struct cudaDeviceProp p;
    need_cuda(cudaGetDeviceProperties(&p, 0));
    check(strstr(p.name, "simgpu") != NULL, "it is called %s", p.name);
    check(p.totalGlobalMem == 80ul << 30, "it has %zu bytes", p.totalGlobalMem);
    check(p.multiProcessorCount > 0 && p.memoryBusWidth > 0 && p.l2CacheSize > 0,
          "a property is 0");
    check(attribute(cudaDevAttrClockRate) > 0 && attribute(cudaDevAttrMemoryClockRate) > 0,
          "a clock stands");
}

TEST(test_no_machine)
{
    setenv("SIMGPU_MACHINE", "none", 1);
    run_ranks(1, is_plain, NULL);
    unsetenv("SIMGPU_MACHINE");
}

SUITE_MAIN("simgpu/properties")
