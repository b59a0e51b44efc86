/* where.c: from a call site to the line that a report names.
 *
 * A call site is a stack of return addresses (stack.c), and a report should not always name the
 * innermost: if a program's line calls given code that calls CUDA, the author can change only the
 * program's line. So a report names
 *
 *   1. the innermost frame in the program's own code (gpulog_own_code),
 *   2. else the innermost frame with a line,
 *   3. else the innermost frame.
 *
 * Below its source line a report lists the calls from there to the operation and, if the line is in
 * a helper, the helper's caller (gpulog_call_path).
 *
 * The text of a line is shown if the source file can be read and is not newer than the program: an
 * edited file would show another line.
 */
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log_writer.h"

#define OWN 32       // source files that a program may declare as its own
#define PATH_SHOWN 3 // functions that a report lists

// ---- The program's own code ----

static const void *own[OWN]; // a function of each source file
static atomic_int n_own;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void gpulog_own_code(const void *function)
{
    if (!function) return;
    pthread_mutex_lock(&lock);
    int n = atomic_load(&n_own);
    if (n < OWN) {
        own[n] = function;
        atomic_store(&n_own, n + 1);
    }
    pthread_mutex_unlock(&lock);
}

bool gpulog_line_is_own(const GpuLogLine *of)
{
    GpuLogLine line;
    int n = atomic_load(&n_own);
    for (int i = 0; i < n && of->unit; i++)
        if (gpulog_line((const char *)own[i] + 1, &line) && line.unit == of->unit) return true;
    return false;
}

// ---- Frames ----

// Whether the instruction before the address is a call. Code without a frame pointer can lead the
// walk to addresses that no call returns to.
static bool follows_call(const void *address)
{
#if defined(__x86_64__)
    const unsigned char *c = address;
    static const int lengths[] = {2, 3, 4, 6, 7}; // of an indirect call: FF /2
    if (c[-5] == 0xe8) return true;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const unsigned char *call = c - lengths[i];
        if (call[0] == 0xff && (call[1] & 0x38) == 0x10) return true;
    }
    return false;
#else
    uint32_t before;
    memcpy(&before, (const char *)address - sizeof before, sizeof before);
    return (before & 0xfc000000u) == 0x94000000u || (before & 0xfffffc1fu) == 0xd63f0000u;
#endif
}

// The frames of a call site that can be trusted, and their lines; a report names frame `named`. n
// is 0 if nothing can be looked up.
typedef struct Frames {
    int n, named;
    bool is_own;
    GpuLogLine line[GPULOG_FRAMES];
} Frames;

static void look_up(const void *site, Frames *f)
{
    const void *frame[GPULOG_FRAMES];
    int n = gpulog_frames(site, frame);
    bool has_line = false, done = false;
    f->n = f->named = 0;
    f->is_own = false;
    while (!done && f->n < n && gpulog_line(frame[f->n], &f->line[f->n])) {
        const GpuLogLine *line = &f->line[f->n];
        // An address outside all functions has no code to look at.
        if (f->n > 0 && (!line->function[0] || !follows_call(frame[f->n]))) break;
        if (f->is_own) {
            done = true; // the caller of the named frame is known, too
        } else if (gpulog_line_is_own(line)) {
            f->named = f->n;
            f->is_own = true;
        } else if (!has_line && line->path[0]) {
            f->named = f->n;
            has_line = true;
            done = atomic_load(&n_own) == 0;
        }
        f->n++;
    }
}

void gpulog_where(const void *site, char *text, size_t size)
{
    Frames f;
    if (!site) {
        snprintf(text, size, "an unknown place");
        return;
    }
    look_up(site, &f);
    if (f.n)
        snprintf(text, size, "%s", f.line[f.named].text);
    else
        snprintf(text, size, "%p", site);
}

bool gpulog_is_own(const void *site)
{
    Frames f;
    if (!site || atomic_load(&n_own) == 0) return false;
    look_up(site, &f);
    return f.is_own;
}

// "flat_zero_padding (reference/flat_param.c:127)"; without a line the function alone.
static void say_frame(const GpuLogLine *line, char *text, size_t size)
{
    const char *end = line->path[0] ? strchr(line->text, ' ') : NULL;
    if (end)
        snprintf(text, size, "%s (%.*s)", line->function[0] ? line->function : "?",
                 (int)(end - line->text), line->text);
    else
        snprintf(text, size, "%s", line->function[0] ? line->function : "unnamed code");
}

bool gpulog_call_path(const void *site, char *text, size_t size)
{
    Frames f;
    char one[300];
    size_t used = 0;
    if (size == 0) return false;
    text[0] = 0;
    if (!site) return false;
    look_up(site, &f);
    for (int i = f.named - 1, shown = 0; i >= 0 && used < size; i--, shown++) {
        if (shown >= PATH_SHOWN && i > 0) continue; // the last of them is the operation's caller
        say_frame(&f.line[i], one, sizeof one);
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", shown ? ", " : "in ",
                                 shown > PATH_SHOWN ? "…, " : "", one);
    }
    int caller = f.named + 1;
    if (f.is_own && caller < f.n && gpulog_line_is_own(&f.line[caller]) && used < size) {
        say_frame(&f.line[caller], one, sizeof one);
        used += (size_t)snprintf(text + used, size - used, "%scalled by %s", used ? "; " : "", one);
    }
    return used > 0;
}

// ---- The line itself ----

// Opens the source file; -1: it cannot be read, is not a plain file, or is newer than the program.
static int open_source(const char *path)
{
    struct stat file, program;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    bool good = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
                stat("/proc/self/exe", &program) == 0 && file.st_mtime <= program.st_mtime;
    if (good) return fd;
    close(fd);
    return -1;
}

// Reads line number `line`, from 1 on, without the blanks at its ends; false: there is none.
static bool read_line(int fd, int line, char *text, size_t size)
{
    char block[4096];
    size_t used = 0;
    ssize_t n;
    int at = 1;
    while (at <= line && (n = read(fd, block, sizeof block)) > 0)
        for (ssize_t i = 0; i < n && at <= line; i++) {
            bool blank = isspace((unsigned char)block[i]);
            if (block[i] == '\n')
                at++;
            else if (at == line && used + 1 < size && (used > 0 || !blank))
                text[used++] = blank ? ' ' : block[i];
        }
    while (used > 0 && text[used - 1] == ' ') used--;
    text[used] = 0;
    return used > 0;
}

bool gpulog_source(const void *site, char *text, size_t size)
{
    Frames f;
    if (size == 0) return false;
    text[0] = 0;
    if (!site) return false;
    look_up(site, &f);
    const GpuLogLine *named = &f.line[f.named];
    if (!f.n || !named->path[0]) return false;
    int fd = open_source(named->path);
    if (fd < 0) return false;
    bool found = read_line(fd, named->line, text, size);
    close(fd);
    return found;
}
