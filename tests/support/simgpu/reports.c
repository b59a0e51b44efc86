/* reports.c: simgpu explains every misuse; its report becomes the rank's trouble. Emulated
 * CUDA, which runs on simgpu, listens too.
 */
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "run.h"
#include "simgpu.h"

static char memory_report[2000];

const char *backend_memory_report(void)
{
    return memory_report;
}

// A report without what stands in front of every line but its first ("simgpu: rank 1 |   "): in a
// test's message, which names the rank already, that is noise.
static void strip(const char *text, char *out, size_t size)
{
    size_t used = 0;

    for (const char *line = text; *line && used + 1 < size; line += *line == '\n') {
        size_t n = strcspn(line, "\n");
        const char *bar = line == text ? NULL : memchr(line, '|', n);
        size_t skip = bar ? (size_t)(bar + 1 - line) : 0;
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", used > 0 ? "\n" : "",
                                 (int)(n - skip), line + skip);
        line += n;
    }
}

static bool leaks_count; // backend_count_leaks

// Every report is a mistake of the program but two: a full device is an error that it is told of
// and may deal with; and leaks are told in the output alone, but in a test that asks for them: one
// event that is never destroyed must not cost every test.
static void hear_report(const SimgpuReport *report, void *arg)
{
    char stripped[6000] = "";

    strip(report->text, stripped, sizeof stripped);
    if (report->kind == SIMGPU_NO_MEMORY) {
        snprintf(memory_report, sizeof memory_report, "%.*s", (int)sizeof memory_report - 1,
                 stripped);
        return;
    }
    if (report->kind == SIMGPU_LEAK && !leaks_count) return;
    trouble_tell(TROUBLE_REPORT, "%s", stripped[0] ? stripped : report->title);
}

void backend_count_leaks(void)
{
    leaks_count = true;
}

void backend_listen(void)
{
    simgpu_on_report(hear_report, NULL);
}

static void ignore_report(const SimgpuReport *report, void *arg)
{
}

void backend_ignore_reports(void)
{
    simgpu_on_report(ignore_report, NULL);
}

bool backend_pinned_bytes(size_t *bytes)
{
    *bytes = simgpu_pinned_bytes();
    return true;
}
