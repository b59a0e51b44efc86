/* Comparing numbers, and moving them between the host and a device. What differs is named by the
 * first index, what was got and wanted there, and how many elements differ in all.
 *
 * Interface: check_equal, check_near, fetch, send_to (harness.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

static void say_first_bad(const char *file, int line, const char *what, const float *got,
                          const float *want, size_t n, size_t first, size_t bad)
{
    rank_fails(file, line, "%s: element %zu is %.9g, must be %.9g; %zu of %zu differ", what, first,
               (double)got[first], (double)want[first], bad, n);
}

void check_equal_at(const char *file, int line, const char *what, const float *got,
                    const float *want, size_t n)
{
    size_t bad = 0, first = 0;

    for (size_t i = 0; i < n; i++)
        if (!(got[i] == want[i]) && bad++ == 0) first = i;
    if (bad) say_first_bad(file, line, what, got, want, n, first, bad);
}

void check_near_at(const char *file, int line, const char *what, const float *got,
                   const float *want, size_t n, double bound)
{
    size_t bad = 0, first = 0;

    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= bound) && bad++ == 0) first = i;
    if (bad)
        rank_fails(file, line,
                   "%s: element %zu is %.9g, must be within %g of %.9g; %zu of %zu are not", what,
                   first, (double)got[first], bound, (double)want[first], bad, n);
}

float *fetch_at(const char *file, int line, const float *device, size_t n)
{
    float *host = malloc(n ? n * sizeof *host : 1);

    if (!host) rank_fails(file, line, "fetch: no host memory for %zu floats", n);
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        error = cudaMemcpy(host, device, n * sizeof *host, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess)
        rank_fails(file, line, "fetch of %zu floats from %p: %s", n, (const void *)device,
                   cudaGetErrorString(error));
    return host;
}

void send_to_at(const char *file, int line, float *device, const float *host, size_t n)
{
    cudaError_t error = cudaMemcpy(device, host, n * sizeof *host, cudaMemcpyHostToDevice);

    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
        rank_fails(file, line, "send_to: %zu floats to %p: %s", n, (void *)device,
                   cudaGetErrorString(error));
}
