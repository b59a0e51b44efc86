/* tables.c: blocks whose sizes are powers of two. The next table of its size reuses a freed block.
 * Large blocks have pages of their own, which go back to the system.
 */
#include "time/tables.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "report/report.h"

#define HEAD 64    // bytes in front of a block's first element: its header, and the alignment
#define SMALLEST 7 // log2 of the bytes of the smallest block
#define LARGE 16   // blocks of 2^LARGE bytes and more have pages of their own
#define CHUNK (1UL << 18) // bytes from which small blocks are cut

typedef struct Block {
    int log2_bytes; // with the header
    struct Block *next;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block *unused[LARGE]; // by log2_bytes
static char *chunk;          // the rest of the newest one
static size_t chunk_left;

static void *pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        sim_fatal(SIMGPU_SYSTEM, "the host ran out of memory", "The clock needs %zu bytes more.",
                  bytes);
    return at;
}

static Block *small_block(int log2_bytes)
{
    size_t bytes = (size_t)1 << log2_bytes;
    Block *block = unused[log2_bytes];
    if (block) {
        unused[log2_bytes] = block->next;
        return block;
    }
    if (chunk_left < bytes) {
        chunk = pages(CHUNK);
        chunk_left = CHUNK;
    }
    block = (Block *)chunk;
    chunk += bytes;
    chunk_left -= bytes;
    return block;
}

void *sim_table_grow(void *table, size_t count, size_t size)
{
    Block *old = table ? (Block *)((char *)table - HEAD) : NULL;
    int log2_bytes = SMALLEST;
    while (((size_t)1 << log2_bytes) - HEAD < count * size) log2_bytes++;
    if (old && old->log2_bytes >= log2_bytes) return table;

    Block *block;
    if (log2_bytes >= LARGE) {
        block = pages((size_t)1 << log2_bytes);
    } else {
        pthread_mutex_lock(&lock);
        block = small_block(log2_bytes);
        pthread_mutex_unlock(&lock);
    }
    *block = (Block){.log2_bytes = log2_bytes};
    char *grown = (char *)block + HEAD;
    if (old) memcpy(grown, table, ((size_t)1 << old->log2_bytes) - HEAD);
    sim_table_free(table);
    return grown;
}

void sim_table_free(void *table)
{
    if (!table) return;
    Block *block = (Block *)((char *)table - HEAD);
    if (block->log2_bytes >= LARGE) {
        munmap(block, (size_t)1 << block->log2_bytes);
        return;
    }
    pthread_mutex_lock(&lock);
    block->next = unused[block->log2_bytes];
    unused[block->log2_bytes] = block;
    pthread_mutex_unlock(&lock);
}
