/* names.c: what reports call an allocation, its bytes, and a stream.
 *
 * A program may give it a name (gpulog_name). Without one, the variable serves that the allocating
 * call stores it in, as the source line of that call has it:
 *
 *   cudaMalloc((void **)&layer->weight, size);       "layer->weight"
 *
 * The names lie in a table in which a new one may push out an old one: then the variable serves.
 *
 * A stream's name is kept for as long as the process lives, because a report may be about a stream
 * that is destroyed; its handle leads to it only until then.
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
#define STREAMS 256 // that have a name at a time
#define TEXTS 1024  // different names of streams
#define PAST 1024   // streams that had one
#define SOURCE 512

typedef struct Named {
    const void *ptr;
    char name[NAME];
} Named;
// A pointer's place in the table has the number of its entry, from 1. The entries are one after the
// other, so that few names touch few pages.
static Named entries[NAMES];
static uint16_t table[NAMES], n_entries;
static atomic_bool any; // a program that names nothing pays nothing
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *ptr)
{
    return ((uintptr_t)ptr * 0x9e3779b97f4a7c15u) >> 52; // 12 bits: NAMES entries
}

// The entry of a pointer that has a name; NULL: it has none. Called with the lock held.
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

void sim_log_forget_name(const void *ptr)
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

bool sim_log_name(const void *ptr, const void *site, char *text, size_t size)
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
// Streams that were destroyed, in that order, under the lock: a log's reader may come later.
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

const char *sim_log_stream_name(cudaStream_t stream)
{
    int n = atomic_load_explicit(&n_named, memory_order_acquire);
    if (!stream) return NULL;
    for (int i = 0; i < n; i++)
        if (atomic_load_explicit(&named[i].stream, memory_order_acquire) == stream)
            return atomic_load_explicit(&named[i].name, memory_order_relaxed);
    return NULL;
}

const char *sim_log_stream_name_of(const GpuLogEntry *entry)
{
    const char *name = NULL;
    if (!entry->stream) return NULL;
    pthread_mutex_lock(&lock);
    for (uint64_t i = n_past > PAST ? n_past - PAST : 0; i < n_past && !name; i++)
        if (past[i % PAST].stream == entry->stream && entry->index < past[i % PAST].until)
            name = past[i % PAST].name;
    pthread_mutex_unlock(&lock);
    return name ? name : sim_log_stream_name(entry->stream);
}

void sim_log_forget_stream(cudaStream_t stream)
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

bool sim_log_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
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
