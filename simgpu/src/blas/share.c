/* share.c: threads that share the blocks of a product.
 *
 * A block is one piece of work, whoever does it, so results depend neither on how many threads
 * there are nor on who is free. The threads are libgomp's, as the BLAS's own are: kept between
 * calls, and waiting for the next one actively for a moment. Its entry is called directly, so that
 * no compiler need know OpenMP.
 *
 * Interface: simblas_share.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "blas.h"

typedef struct Share {
    int64_t pieces;
    void (*work)(void *arg, int64_t piece);
    void *arg;
    atomic_llong next;
    pthread_t caller;
} Share;

static void work_off(void *arg)
{
    Share *share = arg;
    int64_t piece;
    if (!pthread_equal(pthread_self(), share->caller)) sim_worker_here();
    while ((piece = atomic_fetch_add(&share->next, 1)) < share->pieces)
        share->work(share->arg, piece);
}

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer does not see how libgomp's threads wait for each other.
static void run(Share *share, unsigned threads)
{
    work_off(share);
}
#else
void GOMP_parallel(void (*work)(void *), void *arg, unsigned threads, unsigned flags);
static void run(Share *share, unsigned threads)
{
    if (threads > 1)
        GOMP_parallel(work_off, share, threads, 0);
    else
        work_off(share);
}
#endif

void simblas_share(int threads, int64_t pieces, void (*work)(void *arg, int64_t piece), void *arg)
{
    Share share = {pieces, work, arg, 0, pthread_self()};
    run(&share, (unsigned)(threads < pieces ? threads : pieces));
}
