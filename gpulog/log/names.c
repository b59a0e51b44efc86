/* names.c: the names that reports use for an allocation, its bytes, and a stream.
 *
 * A program may name an allocation (gpulog_name). Otherwise reports use the variable that stores
 * the result in the source line of the allocating call:
 *
 *   cudaMalloc((void **)&layer->weight, size);       "layer->weight"
 *
 * A new name may push an old one out of the table; reports then use the variable.
 *
 * A stream's name is kept until the process ends, because a report may be about a destroyed stream;
 * the stream's handle finds it only until the stream is destroyed.
 */
#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "log_writer.h"

#define NAMES 4096
#define NAME 88
#define STREAMS 256 // with a name at one time
#define TEXTS 1024  // different names of streams
#define PAST 1024   // destroyed streams with a name
#define SOURCE 512

typedef struct Named {
    const void *ptr;
    char name[NAME];
} Named;
// A pointer's slot has the number of its entry, from 1. The entries are contiguous, so that few
// names touch few pages.
static Named entries[NAMES];
static uint16_t table[NAMES], n_entries;
static atomic_bool any; // without names no call searches the table
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *ptr)
{
    return ((uintptr_t)ptr * 0x9e3779b97f4a7c15u) >> 52; // 12 bits: NAMES entries
}

// The entry of a named pointer; NULL: it has no name. Called with the lock held.
static Named *named_as(const void *ptr)
{
    size_t number = table[place_of(ptr)];
    return number && entries[number - 1].ptr == ptr ? &entries[number - 1] : NULL;
}

// ---- Allocations ----

void gpulog_name(const void *ptr, const char *format, ...)
{
    char name[NAME];
    va_list args;
    if (!ptr) return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    uint16_t *number = &table[place_of(ptr)];
    if (*number == 0) *number = ++n_entries; // at most one per place
    entries[*number - 1].ptr = ptr;
    memcpy(entries[*number - 1].name, name, sizeof name);
    pthread_mutex_unlock(&lock);
    atomic_store(&any, true);
}

void gpulog_forget_name(const void *ptr)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    Named *entry = named_as(ptr);
    if (entry) entry->ptr = NULL;
    pthread_mutex_unlock(&lock);
}

static bool given_name(const void *ptr, char *text, size_t size)
{
    // A dying process may hold the lock.
    if (!ptr || pthread_mutex_trylock(&lock)) return false;
    const Named *entry = named_as(ptr);
    if (entry) snprintf(text, size, "%s", entry->name);
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

// The first argument of the call whose name is at `call`; NULL: the line ends within it. *end is
// set to the place after it.
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

// Skips casts, & and blanks in front of the variable's name: "(void **)&flat->shard".
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

// The variable in which the allocating call of a source line stores its result.
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

bool gpulog_name_of(const void *ptr, const void *site, char *text, size_t size)
{
    char line[SOURCE];
    if (size == 0) return false;
    text[0] = 0;
    return given_name(ptr, text, size) ||
           (site && gpulog_source(site, line, sizeof line) && stored_in(line, text, size));
}

// ---- Streams ----

static struct {
    _Atomic(cudaStream_t) stream; // NULL: free
    const char *_Atomic name;
} named[STREAMS];
static atomic_int n_named; // slots ever used
static char *texts[TEXTS]; // under the lock
static int n_texts;
// Destroyed streams, oldest first, under the lock: a reader of the log may still ask for them.
static struct {
    cudaStream_t stream;
    const char *name;
    uint64_t until; // the first entry of the log that is not of this stream
} past[PAST];
static uint64_t n_past;

// The one copy of a text; NULL: there is no room for it.
static const char *keep_text(const char *text)
{
    for (int i = 0; i < n_texts; i++)
        if (strcmp(texts[i], text) == 0) return texts[i];
    char *copy = n_texts < TEXTS ? strdup(text) : NULL;
    if (copy) texts[n_texts++] = copy;
    return copy;
}

// The slot of a stream, or a free one for it; STREAMS: there is none.
static int slot_of(cudaStream_t stream)
{
    int unused = STREAMS, n = atomic_load(&n_named);
    for (int i = 0; i < n; i++) {
        cudaStream_t known = atomic_load(&named[i].stream);
        if (known == stream) return i;
        if (!known && unused == STREAMS) unused = i;
    }
    return unused < STREAMS || n == STREAMS ? unused : n;
}

static bool has_handle_of_its_own(cudaStream_t stream)
{
    return stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
}

void gpulog_name_stream(cudaStream_t stream, const char *format, ...)
{
    char text[NAME];
    va_list args;
    if (!has_handle_of_its_own(stream)) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    const char *name = keep_text(text);
    int slot = slot_of(stream);
    if (name && slot < STREAMS) {
        atomic_store(&named[slot].name, name);
        atomic_store(&named[slot].stream, stream);
        if (slot == atomic_load(&n_named)) atomic_store(&n_named, slot + 1);
    }
    pthread_mutex_unlock(&lock);
}

const char *gpulog_name_of_stream(cudaStream_t stream)
{
    int n = atomic_load_explicit(&n_named, memory_order_acquire);
    if (!stream) return NULL;
    for (int i = 0; i < n; i++)
        if (atomic_load_explicit(&named[i].stream, memory_order_acquire) == stream)
            return atomic_load_explicit(&named[i].name, memory_order_relaxed);
    return NULL;
}

const char *gpulog_name_of_entrys_stream(const GpuLogEntry *entry)
{
    const char *name = NULL;
    if (!entry->stream) return NULL;
    pthread_mutex_lock(&lock);
    for (uint64_t i = n_past > PAST ? n_past - PAST : 0; i < n_past && !name; i++)
        if (past[i % PAST].stream == entry->stream && entry->index < past[i % PAST].until)
            name = past[i % PAST].name;
    pthread_mutex_unlock(&lock);
    return name ? name : gpulog_name_of_stream(entry->stream);
}

void gpulog_forget_stream(cudaStream_t stream)
{
    if (atomic_load_explicit(&n_named, memory_order_relaxed) == 0) return;
    uint64_t until = gpulog_length();
    pthread_mutex_lock(&lock);
    int slot = slot_of(stream);
    if (slot < STREAMS && atomic_load(&named[slot].stream) == stream) {
        past[n_past % PAST].stream = stream;
        past[n_past % PAST].name = atomic_load(&named[slot].name);
        past[n_past++ % PAST].until = until;
        atomic_store(&named[slot].stream, NULL);
    }
    pthread_mutex_unlock(&lock);
}

// ---- Elements ----

static struct {
    GpuElements fn;
    void *arg;
} elements;

void gpulog_name_elements(GpuElements fn, void *arg)
{
    pthread_mutex_lock(&lock);
    elements.fn = fn;
    elements.arg = arg;
    pthread_mutex_unlock(&lock);
}

bool gpulog_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                     size_t size)
{
    if (size == 0) return false;
    text[0] = 0;
    if (pthread_mutex_trylock(&lock)) return false;
    GpuElements fn = elements.fn;
    void *arg = elements.arg;
    pthread_mutex_unlock(&lock);
    if (fn && fn(ptr, bytes, begin, end, text, size, arg)) return true;
    text[0] = 0;
    return false;
}
