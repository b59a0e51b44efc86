/* fold.c: prints a report that several ranks make once.
 *
 * Ranks run the same program, so they often make the same mistake. If a launcher will say which
 * other ranks made a report (the line "fold reports" in its file, README.md, "For launchers"), each
 * rank adds a line to that file before it prints:
 *
 *     report RANK KEY TITLE
 *
 * and the rank of the first line with a key prints. Two reports have the same key if their class,
 * their title and the places of their calls are equal, which a reader would compare; bytes may
 * differ. For a report without calls its words are compared.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_writer.h"
#include "report/fold.h"

// FNV-1a, of a text and its end.
static uint64_t mix(uint64_t key, const char *text)
{
    do key = (key ^ (unsigned char)*text) * 0x100000001b3;
    while (*text++);
    return key;
}

static uint64_t key_of(const SimgpuReport *report, const char *body, const SimFacts *facts)
{
    char where[256];
    uint64_t key = mix(mix(0xcbf29ce484222325, sim_report_id(report->kind)), report->title);
    for (int i = 0; i < facts->n_calls; i++) {
        const SimFactCall *call = &facts->call[i];
        gpulog_where(call->site, where, sizeof where);
        key = mix(mix(key, call->name ? call->name : ""), where) + (uint64_t)(call->rank + 1);
    }
    return facts->n_calls ? key : mix(key, body);
}

// The rank of the file's first line with the key, or -1; whether ranks fold reports.
static int first_of(FILE *file, uint64_t key, bool *wanted)
{
    char line[512];
    uint64_t other;
    int rank, first = -1;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        if (strcmp(line, "fold reports\n") == 0) *wanted = true;
        if (first < 0 && sscanf(line, "report %d %" SCNx64, &rank, &other) == 2 && other == key)
            first = rank;
    }
    return first;
}

bool sim_report_folded(const SimgpuReport *report, const char *body, const SimFacts *facts)
{
    const char *path = getenv("SIMGPU_WORLD"), *own = getenv("RANK");
    int rank = report->rank >= 0 ? report->rank : own ? atoi(own) : -1, first = -1;
    int fd = path && rank >= 0 ? open(path, O_RDWR | O_APPEND | O_CLOEXEC) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    bool wanted = false;
    if (!file) {
        if (fd >= 0) close(fd);
        return false;
    }
    uint64_t key = key_of(report, body, facts);
    first_of(file, key, &wanted);
    if (wanted && dprintf(fd, "report %d %016" PRIx64 " %.400s\n", rank, key, report->title) > 0)
        first = first_of(file, key, &wanted);
    fclose(file);
    return first >= 0 && first != rank;
}
