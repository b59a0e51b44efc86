/* categories.c: tells the log what the units' memory is for, which a trace shows. See categories.h.
 *
 * Shards live as long as the unit. The tasks' code allocates and frees unsharded buffers; but every
 * collective reads or writes one, and then the flat parameter's public fields say which. If a
 * collective's buffer belongs to no unit, it is for communication.
 */
#include "categories.h"

#include <pthread.h>
#include <stdlib.h>

#include "extensions.h"
#include "gpulog.h"
#include "strategy.h"

#define ROOTS 64

// One per thread of ranks, because another thread may be changing its units' fields.
static struct {
    const FsdpRoot *root; // NULL: free
    pthread_t thread;
} roots[ROOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool holds(const Buffer *buffer, const void *ptr)
{
    const char *begin = buffer->data;
    return begin != NULL && (const char *)ptr >= begin &&
           (const char *)ptr < begin + buffer_bytes(buffer);
}

static GpuCategory category_in(const FlatParam *flat, const void *ptr)
{
    if (holds(&flat->sharded_param, ptr)) return GPU_SHARDED_PARAM; // world 1: unsharded, too
    if (holds(&flat->sharded_grad, ptr)) return GPU_SHARDED_GRAD;
    if (holds(&flat->unsharded_param, ptr)) return GPU_UNSHARDED_PARAM;
    if (holds(&flat->unsharded_grad, ptr)) return GPU_UNSHARDED_GRAD;
    return GPU_TEMPORARY;
}

static GpuCategory category_of(const void *ptr, void *arg)
{
    GpuCategory found = GPU_TEMPORARY;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ROOTS; i++) {
        const FsdpRoot *root = roots[i].root;
        if (root == NULL || !pthread_equal(roots[i].thread, pthread_self())) continue;
        for (int u = 0; u < root->n_units && found == GPU_TEMPORARY; u++) {
            found = category_in(&root->units[u]->flat, ptr);
            const StrategyState *strategy = root->extensions->strategy;
            if (strategy != NULL && holds(&strategy->slices[u], ptr))
                found = GPU_SHARDED_PARAM; // kept between forward and backward
        }
    }
    pthread_mutex_unlock(&lock);
    if (found == GPU_TEMPORARY && gpulog_category_of(ptr) == GPU_TEMPORARY)
        found = GPU_COMMUNICATION;
    return found;
}

void categories_add(const FsdpRoot *root)
{
    bool kept = false;
    for (int u = 0; u < root->n_units; u++) {
        gpulog_category(root->units[u]->flat.sharded_param.data, GPU_SHARDED_PARAM);
        gpulog_category(root->units[u]->flat.sharded_grad.data, GPU_SHARDED_GRAD);
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ROOTS && !kept; i++) {
        kept = roots[i].root == NULL;
        if (!kept) continue;
        roots[i].root = root;
        roots[i].thread = pthread_self();
    }
    pthread_mutex_unlock(&lock);
    gpulog_categories(category_of, NULL);
}

void categories_remove(const FsdpRoot *root)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ROOTS; i++)
        if (roots[i].root == root) roots[i].root = NULL;
    pthread_mutex_unlock(&lock);
}
