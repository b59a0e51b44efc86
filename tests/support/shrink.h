/* shrink.h: the smallest case that still fails. A case is a row of whole numbers, of which each has
 * a least value: what the test would leave out first.
 */
#ifndef TESTS_SHRINK_H
#define TESTS_SHRINK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Gene {
    const char *name;
    int least, most;
} Gene;

// Whether the case of these values fails.
typedef bool (*FailsFn)(const int *values, void *arg);

// Lowers the n values, one at a time and as far as it goes, while the case still fails; until it
// fails with no lower value of any of them alone. (Of one that has more than 16 values some are
// tried: the least, by half of the way to it …, the next.) Returns how many cases it has tried.
int shrink(const Gene *genes, int n, int *values, FailsFn fails, void *arg);

// "world=3 layout=1": the values that are not the least ones.
const char *case_text(const Gene *genes, int n, const int *values, char *text, size_t size);
// The values of such a text; what it does not name gets its least value. False, with a line on
// stderr, for a name or a value that there is not.
bool case_read(const Gene *genes, int n, int *values, const char *text);

#endif
