/* Comparing numbers, and moving them between the host and a device. What differs is named by the
 * first index (and, where the test knows the array's layout, by the parameter and the index in it),
 * what was got and wanted there, and how many elements differ in all. Where a pattern explains all
 * of it (pattern.h), the likely cause follows on a line of its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

// What stands behind a message: LIKELY and a sentence, or nothing.
const char *cause_of(const Clues *clues, const float *got, const float *want, size_t n)
{
    static char text[900];
    size_t used = strlen(LIKELY);

    memcpy(text, LIKELY, used);
    if (!likely_cause(text + used, sizeof text - used, got, want, n, clues)) text[0] = '\0';
    return text;
}

void check_in_at(const char *file, int line, const Clues *clues, const char *what, const float *got,
                 const float *want, size_t n, double bound)
{
    size_t bad = 0, first = 0;
    char where[300], wanted[64];
    Clues all = clues ? *clues : (Clues){0};

    for (size_t i = 0; i < n; i++) {
        bool right =
            bound > 0.0 ? fabs((double)got[i] - (double)want[i]) <= bound : got[i] == want[i];
        if (!right && bad++ == 0) first = i;
    }
    if (bad == 0) return;
    all.slack = bound;
    layout_say(all.layout, n, first, where, sizeof where);
    if (bound > 0.0)
        snprintf(wanted, sizeof wanted, "within %g of %.9g", bound, (double)want[first]);
    else
        snprintf(wanted, sizeof wanted, "%.9g", (double)want[first]);
    if (isnan(got[first]) && isnan(want[first])) snprintf(wanted, sizeof wanted, "a number");
    rank_fails(file, line, "%s: %s is %.9g, must be %s; %zu of %zu %s%s", what, where,
               (double)got[first], wanted, bad, n, bound > 0.0 ? "are not" : "differ",
               cause_of(&all, got, want, n));
}

float *fetch_at(const char *file, int line, const float *device, size_t n)
{
    float *host = malloc(n ? n * sizeof *host : 1);

    if (!host) rank_fails(file, line, "fetch: no host memory for %zu floats", n);
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        error = cudaMemcpy(host, device, n * sizeof *host, cudaMemcpyDefault); // offloaded: host
    if (error != cudaSuccess)
        rank_fails(file, line, "fetch of %zu floats from %p: %s", n, (const void *)device,
                   cudaGetErrorString(error));
    return host;
}

void send_to_at(const char *file, int line, float *device, const float *host, size_t n)
{
    cudaError_t error = cudaMemcpy(device, host, n * sizeof *host, cudaMemcpyDefault);

    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
        rank_fails(file, line, "send_to: %zu floats to %p: %s", n, (void *)device,
                   cudaGetErrorString(error));
}

bool log_ordered(uint64_t a, uint64_t b)
{
    uint64_t asked[] = {a, b};

    for (int i = 0; i < 2; i++)
        if (!gpulog_has_order(asked[i]))
            rank_fails(__FILE__, __LINE__, "operation %llu is not in the log, which has %llu",
                       (unsigned long long)asked[i], (unsigned long long)gpulog_length());
    return gpulog_ordered(a, b);
}

void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("\"%s\" is not in:\n%s", words, text);
}

void expect_no_words(const char *text, const char *words)
{
    if (strstr(text, words)) fail_msg("\"%s\" is in:\n%s", words, text);
}
