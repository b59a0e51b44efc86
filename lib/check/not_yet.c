/* The end of a rank that reaches a part of a task that nobody has written. See not_yet.h. */
#include "not_yet.h"

#include <stdio.h>
#include <unistd.h>

static void (*not_yet_hook)(const char *text);

void check_on_not_yet(void (*hook)(const char *text))
{
    not_yet_hook = hook;
}

_Noreturn void check_not_yet(const char *part, const char *file, int line, const char *function)
{
    char text[512];

    snprintf(text, sizeof text, "%s:%d: part %s of %s is not written yet (NOT_YET)", file, line,
             part, function);
    if (not_yet_hook) not_yet_hook(text);
    fflush(stdout);
    fprintf(stderr, "%s\n", text);
    // No exit handlers: what they could say (memory that is still held, a peer left waiting) only
    // follows from this and would hide it.
    _exit(CHECK_NOT_YET_EXIT);
}
