/* text.c: what a plan prints, in 80 columns whatever its names and numbers are; times in the unit
 * that fits.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

enum { COLUMNS = 80, MOST_LINE = 4000 };

// A character of UTF-8 is one column; its bytes after the first are 10xxxxxx.
static int columns_of(const char *text, size_t length)
{
    int columns = 0;
    for (size_t i = 0; i < length; i++) columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

// Prints a line of words; what is too long for 80 columns goes on in lines that are indented more.
static void print_wrapped(const char *line)
{
    size_t indent = strspn(line, " ");
    int column = columns_of(line, strlen(line)), more = line[indent] == '-' ? 2 : 4;
    if (column <= COLUMNS) {
        puts(line);
        return;
    }
    column = printf("%.*s", (int)indent, line);
    for (const char *word = line + indent; *word;) {
        size_t blanks = strspn(word, " "), length = strcspn(word + blanks, " ");
        int width = columns_of(word, blanks + length);
        if (column > (int)indent + more && column + width > COLUMNS) {
            column = printf("\n%*s", (int)indent + more, "") - 1;
            width -= (int)blanks;
            word += blanks;
            blanks = 0;
        }
        printf("%.*s", (int)(blanks + length), word);
        column += width;
        word += blanks + length;
    }
    puts("");
}

void plan_say(const char *format, ...)
{
    static char line[MOST_LINE]; // of a line that has not ended
    size_t length = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + length, sizeof line - length, format, args);
    va_end(args);
    char *begin = line, *end;
    for (; (end = strchr(begin, '\n')); begin = end + 1) {
        *end = 0;
        print_wrapped(begin);
    }
    memmove(line, begin, strlen(begin) + 1);
}

PlanText plan_time(uint64_t ps)
{
    PlanText text;
    double ms = 1e-9 * (double)ps;
    if (ms < 1)
        snprintf(text.is, sizeof text.is, "%.0f µs", 1e3 * ms);
    else if (ms < 100)
        snprintf(text.is, sizeof text.is, "%.1f ms", ms);
    else if (ms < 10e3)
        snprintf(text.is, sizeof text.is, "%.0f ms", ms);
    else
        snprintf(text.is, sizeof text.is, "%.1f s", 1e-3 * ms);
    return text;
}
