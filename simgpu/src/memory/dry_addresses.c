/* dry_addresses.c: arrays of addresses in device memory, which a dry run remembers.
 *
 * A dry run touches no device memory, so what a program copies there is lost. But cuBLAS's batches
 * read the addresses of their matrices there. So a copy from the host is remembered if all its
 * words of eight bytes are addresses on a device, until something else is written there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "memory/device.h"
#include "memory/dry.h"

#define MOST ((size_t)1 << 20) // bytes of an array

typedef struct Array {
    const char *ptr; // NULL: forgotten. Its memory stays: a call may be reading it
    size_t bytes, room;
    const void **address;
} Array;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Array *arrays;
static size_t n_arrays;
static atomic_size_t n_known;

static bool are_addresses(const void *words, size_t bytes)
{
    size_t offset;
    if (bytes == 0 || bytes % sizeof(void *) || bytes > MOST) return false;
    for (size_t at = 0; at < bytes; at += sizeof(void *)) {
        const void *word;
        memcpy(&word, (const char *)words + at, sizeof word);
        if (!sim_device_of(word, &offset)) return false;
    }
    return true;
}

static Array *place_for(size_t bytes)
{
    for (size_t i = 0; i < n_arrays; i++)
        if (!arrays[i].ptr && arrays[i].room >= bytes) return &arrays[i];
    Array *more = realloc(arrays, (n_arrays + 1) * sizeof *more);
    if (!more) return NULL;
    arrays = more;
    arrays[n_arrays] = (Array){.room = bytes, .address = malloc(bytes)};
    return arrays[n_arrays].address ? &arrays[n_arrays++] : NULL;
}

void sim_dry_note(const void *ptr, const void *words, size_t bytes)
{
    if (!are_addresses(words, bytes)) return;
    pthread_mutex_lock(&lock);
    Array *a = place_for(bytes);
    if (a) {
        memcpy(a->address, words, bytes);
        a->bytes = bytes;
        a->ptr = ptr;
        atomic_fetch_add(&n_known, 1);
    }
    pthread_mutex_unlock(&lock);
}

void sim_dry_forget(const void *ptr, size_t bytes)
{
    const char *from = ptr;
    if (atomic_load(&n_known) == 0) return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_arrays; i++) {
        Array *a = &arrays[i];
        if (!a->ptr || from >= a->ptr + a->bytes || from + bytes <= a->ptr) continue;
        a->ptr = NULL;
        atomic_fetch_sub(&n_known, 1);
    }
    pthread_mutex_unlock(&lock);
}

const void *const *sim_dry_addresses(const void *ptr, size_t bytes)
{
    const char *from = ptr;
    const void *const *found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_arrays && !found; i++) {
        const Array *a = &arrays[i];
        if (!a->ptr || from < a->ptr || from + bytes > a->ptr + a->bytes) continue;
        if ((size_t)(from - a->ptr) % sizeof(void *)) continue;
        found = a->address + (size_t)(from - a->ptr) / sizeof(void *);
    }
    pthread_mutex_unlock(&lock);
    return found;
}
