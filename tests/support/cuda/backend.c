/* backend.c: the harness on real GPUs (and on emulated CUDA, where simgpu plays their part).
 *
 * A world larger than the number of GPUs is left out, unless SHARE_GPU=1 lets ranks share one; then
 * worlds go up to 4. SHARDLAB_MAX_WORLD sets another limit. What a device does after a mistake is
 * no report but an error code, so there is nothing to listen to.
 */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#ifdef EMULATED_CUDA
#include "emulated_cuda/logs_agree.h"
#endif

#define SHARED_WORLD 4 // ranks on shared GPUs: each has a context and NCCL's buffers

static char limit_text[200];

// Fresh memory holds NaNs, as on simgpu (where simgpu itself sees to it). NCCL chooses an algorithm
// by its own measure of the machine; one order of additions everywhere is worth more here.
void backend_prepare(void)
{
#ifdef EMULATED_CUDA
    setenv("SIMGPU_THREADS", "1", 0);
    setenv("SIMGPU_LOG", "262144", 0); // operations, as many as the interposer's, which is compared
#else
    setenv("GPULOG_POISON", "1", 0);
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_PROTO", "Simple", 0);
#endif
}

#ifndef EMULATED_CUDA
void backend_listen(void)
{
}

void backend_ignore_reports(void)
{
}

void backend_count_leaks(void)
{
}

const char *backend_memory_report(void)
{
    return "";
}

bool backend_pinned_bytes(size_t *bytes)
{
    return false;
}
#endif

// Asked of a child: the CUDA runtime cannot be used in a process and in what it forks afterwards.
static int count_devices(void)
{
    int ends[2], devices = 0;

    if (pipe(ends) != 0) return 0;
    pid_t child = fork();
    if (child == 0) {
        if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
        _exit(write(ends[1], &devices, sizeof devices) != (ssize_t)sizeof devices);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &devices, sizeof devices) != (ssize_t)sizeof devices)
        devices = 0;
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return devices;
}

static int find_max_world(void)
{
    const char *share = getenv("SHARE_GPU"), *given = getenv("SHARDLAB_MAX_WORLD");
    bool shared = share && strcmp(share, "1") == 0;
    int devices = count_devices(), most = given ? atoi(given) : 0;

    if (most < 1) most = shared && devices < SHARED_WORLD ? SHARED_WORLD : devices;
    if (!shared && most > devices) most = devices;
    if (most < 1) most = 1; // a machine without a GPU says so itself, on one rank
    snprintf(limit_text, sizeof limit_text,
             shared ? "%d GPU%s shared by at most %d ranks (SHARDLAB_MAX_WORLD sets how many)"
                    : "%d GPU%s here; SHARE_GPU=1 lets ranks share one",
             devices, devices == 1 ? "" : "s", most);
    return most;
}

int backend_max_world(void)
{
    static int most;

    if (most == 0) most = find_max_world();
    return most;
}

const char *backend_world_limit(void)
{
    return limit_text;
}

double backend_time_factor(int world)
{
#ifdef EMULATED_CUDA
    return 3.0; // every thread of a kernel runs on the CPU
#else
    return 6.0 + 3.0 * world;
#endif
}

// The interposer's limit is full by the byte, as simgpu's devices are. A GPU itself is not, and
// what is free on it may be gone a moment later: other processes use it too.
const char *backend_memory_variable(void)
{
    return "GPULOG_MEMORY";
}

bool backend_counts_host_memory(int64_t *library)
{
    *library = 0;
    return false;
}

bool backend_sums_in_tree_order(int world)
{
#ifdef EMULATED_CUDA
    return true; // simgpu adds
#else
    return world <= 2;
#endif
}

bool backend_names_missing_calls(void)
{
    return false;
}

bool backend_agrees(char *text, unsigned long size)
{
#ifdef EMULATED_CUDA
    return logs_agree(text, size);
#else
    return true;
#endif
}
