/* report_json.c: a report as a JSON object of one line, and the file of SIMGPU_REPORT.
 *
 *   {"class": "lifetime", "title": …, "rank": 1, "device": 1, "pid": 77, "follows": false,
 *    "calls": [{"call": "cudaFree", "file": "prog.c", "line": 12, "function": "main",
 *               "path": "in drop (lib/drop.c:7)", "stream": "default", "stream_name": null,
 *               "rank": 0}],
 *    "ranges": [{"allocation": "x", "where": "prog.c:9 (main)", "elements": "element 0 of x",
 *                "begin": 0, "end": 4}],
 *    "hardware": …, "question": …, "read": …, "text": …}
 *
 * Unknown values are left out, or null. A call has `rank` if it is another rank's; begin and end
 * are bytes of the allocation. Every line is appended by one write, so that ranks can share a file.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_writer.h"
#include "report/report_json.h"

#define FOLD 2048

// ---- JSON ----

// Text to which a piece is added completely or not at all.
typedef struct Json {
    char *text;
    size_t size, used;
    bool full;
} Json;

static void put(Json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(Json *j, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = j->full ? 0 : vsnprintf(j->text + j->used, j->size - j->used, format, args);
    va_end(args);
    j->full = j->full || n < 0 || (size_t)n >= j->size - j->used;
    if (!j->full) j->used += (size_t)n;
}

// The number of bytes of the UTF-8 character at c; 0: it is not well-formed. Source files may have
// any bytes.
static int character(const unsigned char *c)
{
    int n = c[0] < 0x80 ? 1 : c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : (c[0] & 0xf0) == 0xe0 ? 3 : 0;
    if (c[0] >= 0xf0 && c[0] < 0xf5) n = 4;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    if (n == 3 && ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0))) return 0;
    if (n == 4 && ((c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90))) return 0;
    return n;
}

static void put_string(Json *j, const char *text)
{
    put(j, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = character(c);
        if (*c == '"' || *c == '\\')
            put(j, "\\%c", *c);
        else if (*c == '\n')
            put(j, "\\n");
        else if (*c < 0x20 || *c == 0x7f)
            put(j, "\\u%04x", *c);
        else if (n == 0)
            put(j, "?");
        else
            put(j, "%.*s", n, (const char *)c);
        c += n ? n : 1;
    }
    put(j, "\"");
}

static void put_member(Json *j, const char *name, const char *text)
{
    put(j, ", \"%s\": ", name);
    if (text && *text)
        put_string(j, text);
    else
        put(j, "null");
}

// ---- Sentences of the body ----

static bool tells_of_hardware(const char *sentence)
{
    static const char *const begins[] = {"On a GPU", "On real GPUs", "On real hardware",
                                         "On a machine with a GPU"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(sentence, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

// Whether a sentence ends at text[i]: a full stop or question mark before a blank, or a line that
// the next one does not continue.
static bool ends_at(const char *text, size_t i)
{
    if (text[i] == '\n') return isupper((unsigned char)text[i + 1]);
    bool stop = text[i] == '.' || text[i] == '?';
    bool bracket = stop && text[i + 1] == ')';
    const char *next = text + i + (bracket ? 2 : 1);
    if (!stop || (*next && !isspace((unsigned char)*next))) return false;
    while (isspace((unsigned char)*next)) next++;
    return !bracket || !*next || isupper((unsigned char)*next);
}

// Collects the sentences about hardware, or those that ask.
static void gather(const char *body, bool asking, char *out, size_t size)
{
    size_t used = 0, begin = 0;
    out[0] = 0;
    for (size_t i = 0; body[i]; i++) {
        if (!ends_at(body, i) && body[i + 1]) continue;
        while (isspace((unsigned char)body[begin])) begin++;
        bool wanted = asking ? body[i] == '?' : tells_of_hardware(body + begin);
        for (size_t c = begin; wanted && c <= i && used + 2 < size; c++) {
            if (c == begin && used) out[used++] = ' ';
            out[used++] = body[c] == '\n' ? ' ' : body[c];
        }
        out[used] = 0;
        begin = i + 1;
    }
}

// ---- Facts ----

// Splits "prog.c:12 (main)" into file, line, function; any other text is the file.
static void put_place(Json *j, const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    char *blank = strchr(where, ' ');
    if (blank) *blank = 0;
    char *colon = strrchr(where, ':'), *function = blank ? blank + 2 : NULL;
    bool known = colon && function && strlen(function) > 1;
    if (known) {
        *colon = 0;
        function[strlen(function) - 1] = 0;
    }
    put_member(j, "file", known ? where : NULL);
    if (known)
        put(j, ", \"line\": %d", atoi(colon + 1));
    else
        put(j, ", \"line\": null");
    put_member(j, "function", known ? function : where);
}

static void put_calls(Json *j, const SimFacts *facts)
{
    char stream[32], path[512];
    put(j, ", \"calls\": [");
    for (int i = 0; i < facts->n_calls; i++) {
        const SimFactCall *call = &facts->call[i];
        put(j, "%s{\"call\": ", i ? ", " : "");
        put_string(j, call->name ? call->name : "");
        put_place(j, call->site);
        gpulog_call_path(call->site, path, sizeof path);
        put_member(j, "path", path);
        snprintf(stream, sizeof stream, "%p", (void *)call->stream);
        bool is_default = !call->stream || call->stream == cudaStreamLegacy;
        if (call->stream != SIM_NO_STREAM)
            put_member(j, "stream",
                       is_default                            ? "default"
                       : call->stream == cudaStreamPerThread ? "per thread"
                                                             : stream);
        put_member(j, "stream_name", call->stream_name);
        if (call->rank >= 0) put(j, ", \"rank\": %d", call->rank);
        put(j, "}");
    }
    put(j, "]");
}

static void put_range(Json *j, const SimFactRange *range)
{
    char name[128], where[256], elements[256] = "";
    size_t begin = (size_t)range->ptr;
    bool known = range->base != NULL;
    if (known) {
        begin -= (size_t)range->base;
        gpulog_name_of(range->base, range->made, name, sizeof name);
        gpulog_where(range->made, where, sizeof where);
        if (range->bytes)
            gpulog_elements(range->base, range->allocated, begin, begin + range->bytes, elements,
                            sizeof elements);
    }
    put(j, "{\"allocation\": ");
    put_string(j, !known ? "" : name[0] ? name : "unnamed");
    put_member(j, "where", known ? where : NULL);
    put_member(j, "elements", elements);
    put(j, ", \"begin\": %zu, \"end\": %zu}", begin, begin + range->bytes);
}

static void put_ranges(Json *j, const SimFacts *facts)
{
    put(j, ", \"ranges\": [");
    for (int i = 0; i < facts->n_ranges; i++) {
        if (i) put(j, ", ");
        put_range(j, &facts->range[i]);
    }
    put(j, "]");
}

void sim_record(const SimgpuReport *report, const char *body, const SimFacts *facts, char *text,
                size_t size)
{
    char said[FOLD], page[96] = "";
    const char *section = sim_report_page(report->kind);
    Json j = {text, size - 1, 0, false}; // a byte for the line's end
    put(&j, "{\"class\": \"%s\", \"title\": ", sim_report_id(report->kind));
    put_string(&j, report->title);
    if (report->rank >= 0)
        put(&j, ", \"rank\": %d", report->rank);
    else
        put(&j, ", \"rank\": null");
    put(&j, ", \"device\": %d, \"pid\": %d, \"follows\": %s", report->device, (int)getpid(),
        report->follows ? "true" : "false");
    put_calls(&j, facts);
    put_ranges(&j, facts);
    gather(body, false, said, sizeof said);
    put_member(&j, "hardware", said);
    gather(body, true, said, sizeof said);
    put_member(&j, "question", said);
    if (section) snprintf(page, sizeof page, "simgpu/pages/mistakes.md, \"%s\"", section);
    put_member(&j, "read", page);
    Json whole = j;
    put_member(&j, "text", report->text);
    put(&j, "}");
    if (!j.full) return;
    text[whole.used] = 0; // the text alone is too long
    whole.full = false;
    put(&whole, ", \"text\": null}");
}

// ---- The file ----

static const char *_Atomic file; // SIMGPU_REPORT; NULL: none, or not read yet
static atomic_bool told;

static void tell_unwritable(const char *path, int reason)
{
    if (!atomic_exchange(&told, true))
        dprintf(STDERR_FILENO, "simgpu: SIMGPU_REPORT: %s cannot be written: %s\n", path,
                strerror(reason));
}

// The file is not made here: without a report there is none.
static void check_writable(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK), reason = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 || reason == ENXIO) return; // a pipe may get its reader later
    if (reason == ENOENT) {
        char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
        if (slash) slash[slash == folder] = '\0';
        reason = access(slash ? folder : ".", W_OK | X_OK) ? errno : 0;
        free(folder);
    }
    if (reason) tell_unwritable(path, reason);
}

// A copy of the name: the program may change its environment.
void sim_record_begin(void)
{
    const char *text = getenv("SIMGPU_REPORT");
    if (!text || !*text) return;
    check_writable(text);
    file = strdup(text);
}

void sim_record_write(const char *record)
{
    const char *path = file;
    if (!path) return;
    size_t n = strlen(record);
    char *line = malloc(n + 2);
    if (!line) return;
    memcpy(line, record, n);
    line[n] = '\n';
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    ssize_t written = fd < 0 ? -1 : write(fd, line, n + 1);
    int reason = errno;
    if (fd >= 0) close(fd);
    free(line);
    if (written < 0) tell_unwritable(path, reason);
}
