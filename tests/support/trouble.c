/* Trouble on a rank: what went wrong first, in a sentence, written to memory that the parent
 * shares. A rank tells one trouble, and the first of all ranks is noted: what follows from it (a
 * peer that waits in vain, an error passed on) never hides it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "not_yet.h"
#include "pattern.h"
#include "run.h"

Run *rank_run;
int rank_number = -1;
bool rank_done, device_is_filled;
static bool has_told; // in memory that is the rank's alone

RankNote *trouble_note(void)
{
    return &rank_run->note[rank_number];
}

__attribute__((format(printf, 2, 0))) static bool
note_first_trouble(TroubleKind kind, const char *format, va_list args)
{
    RankNote *note = trouble_note();
    int nobody = 0;

    has_told = true;
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
    bool told = note_first_trouble(kind, format, args);
    va_end(args);
    return told;
}

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
    const char *report = device_is_filled ? "" : backend_memory_report();
    // The cause of what a comparison found stands last, on a line of its own.
    const char *cause = strstr(text, LIKELY);
    int n = cause ? (int)(cause - text) : (int)strlen(text);
    trouble_tell(TROUBLE_CHECK, "%.*s%s%s (%s:%d)%s", n, text, report[0] ? "\n" : "", report, file,
                 line, cause ? cause : "");
    fflush(stdout);
    _exit(1);
}
bool trouble_told(void)
{
    return has_told;
}

unsigned failure_begins(void)
{
    check_set_silent(true);
    return check_errors();
}

void failed_at(const char *file, int line, const char *call, unsigned before, Status status,
               Status want, const char *words)
{
    static const char *const NAME[] = {"OK",       "ERR_ARGUMENT", "ERR_MEMORY", "ERR_CUDA",
                                       "ERR_NCCL", "ERR_CUBLAS",   "ERR_IO"};
    unsigned lines = check_errors() - before;
    const char *said = lines > 0 ? check_last() : ""; // else it is an earlier call's

    check_set_silent(false);
    if (lines == 0 && status == want)
        rank_fails(file, line,
                   "%s: %s, and no line: every function that returns a Status prints one where it "
                   "fails (return fail(%s, \"what is wrong, and with what\"))",
                   call, NAME[want], NAME[want]);
    if (status != want || strstr(said, words) == NULL)
        rank_fails(file, line, "%s: status %d and \"%s\" (%s), want %s%s%s%s", call, (int)status,
                   said, (unsigned)status <= ERR_IO ? NAME[status] : "no Status", NAME[want],
                   words[0] ? " and a line with: " : "", words,
                   status != OK ? ""
                                : LIKELY "a check is missing, or a call that fails here is left "
                                         "out, or its status is ignored");
    if (lines > 1 && want == ERR_ARGUMENT) // else callers may say what it means for them
        rank_fails(file, line, "%s: %u lines for one failure, the last of them \"%s\"; want one",
                   call, lines, said);
}

const char *last_error(void)
{
    const char *line = check_last();

    return line[0] ? line : "it printed no line that says why";
}

static char holding[80]; // "; 1.1 looks right", of each part of which it was said

void part_holds(const char *part)
{
    size_t used = strlen(holding);
    char said[24];

    snprintf(said, sizeof said, "; %s looks right", part);
    if (strstr(holding, said) == NULL) snprintf(holding + used, sizeof holding - used, "%s", said);
}

static void hear_not_yet(const char *text)
{
    trouble_tell(TROUBLE_NOT_YET, "%s%s", text, holding);
}

void check_leaks(void)
{
    backend_count_leaks();
}

void trouble_listen(void)
{
    backend_listen();
    check_on_not_yet(hear_not_yet);
}
