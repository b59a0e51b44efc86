/* dry.c: dry runs (SIMGPU_DRY=1): operations are checked, logged and costed, but not executed.
 *
 * Four places that touch device memory check for a dry run: simgpu_ready (operation.c: kernels,
 * memsets, cuBLAS), the copy of bytes (runtime/copy.c), a send (nccl/sends.c), and the work of a
 * collective (nccl/collective.c). A copy to the host delivers zeros, by the function here.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/dry.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Site {
    const void *site;
    char *where;
} * sites; // that have been printed; several addresses may be one line
static size_t n_sites;

// True, with the place: it is the first time. Without memory to remember it, it is printed again.
// Called with the lock held.
static bool is_new(const void *site, char *where, size_t size)
{
    for (size_t i = 0; i < n_sites; i++)
        if (sites[i].site == site) return false;
    gpulog_where(site, where, size);
    bool found = false;
    for (size_t i = 0; i < n_sites && !found; i++) found = strcmp(sites[i].where, where) == 0;
    char *kept = strdup(where);
    struct Site *more = kept ? realloc(sites, (n_sites + 1) * sizeof *more) : NULL;
    if (!more) {
        free(kept);
        return !found;
    }
    sites = more;
    sites[n_sites++] = (struct Site){site, kept};
    return !found;
}

static void tell_of_zeros(const SimgpuOp *op, const char *where)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "simgpu: dry run: %s, called at %s, reads a device's result, and gets zeros. "
                     "Does the program do something else with another value?\n",
                     op->entry.name, where);
    if (write(STDERR_FILENO, text, (size_t)n) < 0) return; // in one write: ranks share a terminal
}

void sim_dry_deliver(const SimgpuOp *op, void *to, size_t pitch, size_t width, size_t height)
{
    for (size_t row = 0; row < height; row++) memset((char *)to + row * pitch, 0, width);
    char where[256];
    pthread_mutex_lock(&lock);
    if (is_new(op->entry.site, where, sizeof where)) tell_of_zeros(op, where);
    pthread_mutex_unlock(&lock);
}
