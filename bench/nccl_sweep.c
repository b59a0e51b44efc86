/* nccl_sweep.c: the modelled time of an all-reduce of 8 GPUs against a published sweep.
 *
 *   nccl_sweep MACHINE FILE.csv …    FILE: lines `bytes,microseconds`
 *
 * The constants of a100x8 and h200x8 were fitted to the sweeps of bench/published, so this says how
 * well the form of the model fits, and predicts nothing. Exit status 1: a mean above 10 %.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/machine.h"

static const int gpus = 8;

// The mean of the errors, as a fraction; negative: the file cannot be read.
static double sweep(const SimMachine *m, const char *path)
{
    char line[256];
    unsigned long long bytes;
    double measured, sum = 0, most = 0;
    int n = 0;
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    printf("%s, %s\n%14s %12s %12s %8s  %s\n", m->name, path, "bytes", "measured us", "modelled us",
           "error", "algorithm");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%llu,%lf", &bytes, &measured) != 2) continue;
        SimCollectiveCost c = sim_cost_collective(m, GPU_ALL_REDUCE, gpus, 1, bytes);
        double modelled = (double)(c.latency + c.work) / 1e6, error = modelled / measured - 1;
        printf("%14llu %12.1f %12.1f %7.1f%%  %s %s\n", bytes, measured, modelled, 100 * error,
               c.algorithm, c.protocol);
        sum += fabs(error);
        most = fmax(most, fabs(error));
        n++;
    }
    fclose(file);
    if (n == 0) return -1;
    printf("%d sizes: mean error %.1f %%, at most %.1f %%\n\n", n, 100 * sum / n, 100 * most);
    return sum / n;
}

int main(int argc, char **argv)
{
    char error[300];
    int status = 0;
    if (argc < 3 || argc % 2 == 0) {
        fprintf(stderr, "usage: nccl_sweep MACHINE FILE.csv ...\n");
        return 2;
    }
    for (int i = 1; i < argc; i += 2) {
        const SimMachine *m = sim_machine(argv[i], error, sizeof error);
        double mean = m ? sweep(m, argv[i + 1]) : -1;
        if (!m) fprintf(stderr, "nccl_sweep: %s\n", error);
        if (m && mean < 0) fprintf(stderr, "nccl_sweep: %s: no sweep\n", argv[i + 1]);
        if (mean < 0) return 2;
        if (mean > 0.10) status = 1;
    }
    return status;
}
