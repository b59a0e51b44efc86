/* time/tables.h: memory of the clock's tables, which is not the program's heap: they grow with what
 * is under way, and who counts the bytes of a program's malloc must not find them there.
 *
 * Any thread may call its functions.
 */
#ifndef SIMGPU_TABLES_H
#define SIMGPU_TABLES_H

#include <stddef.h>

// As realloc: `count` elements of `size` bytes, the old ones kept, at a multiple of 64 bytes. A
// host that has no more memory ends the program, with a line.
void *sim_table_grow(void *table, size_t count, size_t size);
// As free; NULL is allowed.
void sim_table_free(void *table);

#endif
