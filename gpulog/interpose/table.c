/* table.c: pointers and handles, and what is known of each: a hash table with a lock.
 *
 * A key is in the first free slot at or after the one that its hash gives. When one is removed,
 * those after it move up, so that no gap hides a key from a search.
 */
#include <stdlib.h>

#include "interpose.h"

#define FIRST_ROOM 64 // slots; always a power of two

static size_t home_of(const Table *table, const void *key)
{
    return (size_t)(((uintptr_t)key * 0x9e3779b97f4a7c15u) >> 32) & (table->room - 1);
}

// The slot of the key, or the free one where it would go.
static size_t place_of(const Table *table, const void *key)
{
    size_t at = home_of(table, key);
    while (table->slot[at].key && table->slot[at].key != key) at = (at + 1) & (table->room - 1);
    return at;
}

static void grow(Table *table)
{
    Table larger = {.room = table->room ? 2 * table->room : FIRST_ROOM};
    larger.slot = calloc(larger.room, sizeof *larger.slot);
    if (!larger.slot) give_up("no host memory for a table of %zu pointers", larger.room);
    for (size_t i = 0; i < table->room; i++)
        if (table->slot[i].key) larger.slot[place_of(&larger, table->slot[i].key)] = table->slot[i];
    free(table->slot);
    table->slot = larger.slot;
    table->room = larger.room;
}

void table_put(Table *table, Known known)
{
    pthread_mutex_lock(&table->lock);
    if (2 * (table->n + 1) > table->room) grow(table);
    Known *slot = &table->slot[place_of(table, known.key)];
    if (!slot->key) table->n++;
    *slot = known;
    pthread_mutex_unlock(&table->lock);
}

// Called with the lock held. A key whose hash gives a slot at or before the gap moves into the gap.
static void take_out(Table *table, size_t gap)
{
    size_t mask = table->room - 1;
    for (size_t at = (gap + 1) & mask; table->slot[at].key; at = (at + 1) & mask) {
        size_t home = home_of(table, table->slot[at].key);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        table->slot[gap] = table->slot[at];
        gap = at;
    }
    table->slot[gap].key = NULL;
    table->n--;
}

static bool look_up(Table *table, const void *key, Known *known, bool take)
{
    pthread_mutex_lock(&table->lock);
    size_t at = table->room ? place_of(table, key) : 0;
    bool there = key && table->room && table->slot[at].key;
    if (there) *known = table->slot[at];
    if (there && take) take_out(table, at);
    pthread_mutex_unlock(&table->lock);
    return there;
}

bool table_find(Table *table, const void *key, Known *known)
{
    return look_up(table, key, known, false);
}

bool table_take(Table *table, const void *key, Known *known)
{
    return look_up(table, key, known, true);
}

bool table_take_device(Table *table, int device, Known *known)
{
    pthread_mutex_lock(&table->lock);
    size_t at = 0;
    while (at < table->room && !(table->slot[at].key && table->slot[at].device == device)) at++;
    bool there = at < table->room;
    if (there) {
        *known = table->slot[at];
        take_out(table, at);
    }
    pthread_mutex_unlock(&table->lock);
    return there;
}
