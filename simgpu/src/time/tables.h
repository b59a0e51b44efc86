/* time/tables.h: memory of the clock's tables, outside of the program's heap: they grow with the
 * operations under way, and must not be in a count of the program's heap.
 *
 * Any thread may call its functions.
 */
#ifndef SIMGPU_TABLES_H
#define SIMGPU_TABLES_H

#include <stddef.h>

// As realloc: `count` elements of `size` bytes, at a multiple of 64 bytes, with the old contents.
// Without memory it ends the program, with a line.
void *sim_table_grow(void *table, size_t count, size_t size);
// As free; NULL is allowed.
void sim_table_free(void *table);

#endif
