/* names.c: what reports call an allocation.
 *
 * A program may give it a name (gpulog_name). Without one, the variable serves that the allocating
 * call stores it in, as the source line of that call has it:
 *
 *   cudaMalloc((void **)&layer->weight, size);       "layer->weight"
 *
 * The names lie in a table in which a new one may push out an old one: then the variable serves.
 *
 * Interface: gpulog_name; books_name, books_forget_name (books.h).
 */
#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "books.h"

#define NAMES 4096
#define NAME 88
#define SOURCE 512

static struct {
    const void *ptr;
    char name[NAME];
} table[NAMES];
static atomic_bool any; // a program that names nothing pays nothing
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *ptr)
{
    return ((uintptr_t)ptr * 0x9e3779b97f4a7c15u) >> 52; // 12 bits: NAMES entries
}

void gpulog_name(const void *ptr, const char *format, ...)
{
    char name[NAME];
    va_list args;
    if (!ptr) return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    table[place_of(ptr)].ptr = ptr;
    memcpy(table[place_of(ptr)].name, name, sizeof name);
    pthread_mutex_unlock(&lock);
    atomic_store(&any, true);
}

void books_forget_name(const void *ptr)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    if (table[place_of(ptr)].ptr == ptr) table[place_of(ptr)].ptr = NULL;
    pthread_mutex_unlock(&lock);
}

static bool given_name(const void *ptr, char *text, size_t size)
{
    // A dying process may hold the lock.
    if (!ptr || pthread_mutex_trylock(&lock)) return false;
    bool known = table[place_of(ptr)].ptr == ptr;
    if (known) snprintf(text, size, "%s", table[place_of(ptr)].name);
    pthread_mutex_unlock(&lock);
    return known;
}

// The first argument of the call that `call` points to the name of; NULL: the line ends before it
// does. *end is set behind it.
static const char *first_argument(const char *call, const char **end)
{
    const char *begin = call;
    while (isalnum((unsigned char)*begin) || *begin == '_') begin++;
    while (*begin == ' ') begin++;
    if (*begin++ != '(') return NULL;
    int depth = 0;
    for (const char *c = begin; *c; c++) {
        if (strchr("([{", *c)) depth++;
        if (strchr(")]}", *c)) depth--;
        if (depth < 0 || (depth == 0 && *c == ',')) {
            *end = c;
            return begin;
        }
    }
    return NULL;
}

// "(void **)&flat->shard" without what is not the variable's name: casts, & and blanks.
static const char *skip_cast(const char *text, const char *end)
{
    for (;;) {
        while (text < end && (*text == ' ' || *text == '&')) text++;
        if (text == end || *text != '(') return text;
        const char *close = memchr(text, ')', (size_t)(end - text));
        bool cast = close && memchr(text, '*', (size_t)(close - text));
        if (!cast) return text;
        text = close + 1;
    }
}

// The variable that the source line's allocating call stores its result in.
static bool stored_in(const char *line, char *text, size_t size)
{
    static const char *const calls[] = {"cudaMalloc", "cudaHostAlloc", "ncclMemAlloc"};
    const char *call = NULL, *end;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0] && !call; i++)
        call = strstr(line, calls[i]);
    const char *begin = call ? first_argument(call, &end) : NULL;
    if (!begin) return false;
    begin = skip_cast(begin, end);
    while (end > begin && end[-1] == ' ') end--;
    if (end <= begin || (size_t)(end - begin) >= size) return false;
    snprintf(text, size, "%.*s", (int)(end - begin), begin);
    return true;
}

bool books_name(const void *ptr, const void *site, char *text, size_t size)
{
    char line[SOURCE];
    if (size == 0) return false;
    text[0] = 0;
    return given_name(ptr, text, size) ||
           (site && gpulog_source(site, line, sizeof line) && stored_in(line, text, size));
}
