/* Trouble on a rank: what went wrong first, in a sentence, written to memory that the parent
 * shares. A rank tells one trouble, and the first of all ranks is noted: what follows from it (a
 * peer that waits in vain, an error passed on) never hides it.
 *
 * Interface: rank_fails, last_error (harness.h); trouble_tell, trouble_listen (run.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"
#include "simgpu.h"

Run *rank_run;
int rank_number = -1;
bool rank_done;

RankNote *trouble_note(void)
{
    return &rank_run->note[rank_number];
}

static bool tell(TroubleKind kind, const char *format, va_list args)
{
    RankNote *note = trouble_note();
    int nobody = 0;

    if (atomic_flag_test_and_set(&note->taken)) return false;
    vsnprintf(note->text, sizeof note->text, format, args);
    atomic_store(&note->kind, kind);
    atomic_compare_exchange_strong(&rank_run->first, &nobody, rank_number + 1);
    return true;
}

bool trouble_tell(TroubleKind kind, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    bool told = tell(kind, format, args);
    va_end(args);
    return told;
}

// simgpu's report that a device was full, for the message of a check that fails afterwards.
static char memory_report[2000];

_Noreturn void rank_fails(const char *file, int line, const char *format, ...)
{
    char text[6000];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!rank_run) { // a check in the cmocka process itself
        print_error("%s (%s:%d)\n", text, file, line);
        _fail(file, line);
        abort(); // _fail does not return
    }
    trouble_tell(TROUBLE_CHECK, "%s%s%s (%s:%d)", text, memory_report[0] ? "\n" : "", memory_report,
                 file, line);
    fflush(stdout);
    _exit(1);
}

const char *last_error(void)
{
    const char *line = check_last();

    return line[0] ? line : "it printed no line that says why";
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

// Every report is a mistake of the program but one: a full device is an error that it is told of
// and may deal with.
static void hear_report(const char *title, const char *text, void *arg)
{
    char stripped[6000] = "";

    strip(text, stripped, sizeof stripped);
    if (strcmp(title, "out of device memory") == 0) {
        snprintf(memory_report, sizeof memory_report, "%s", stripped);
        return;
    }
    trouble_tell(TROUBLE_REPORT, "%s", stripped[0] ? stripped : title);
}

static void hear_not_yet(const char *text)
{
    trouble_tell(TROUBLE_NOT_YET, "%s", text);
}

void trouble_listen(void)
{
    simgpu_on_report(hear_report, NULL);
    check_on_not_yet(hear_not_yet);
}
