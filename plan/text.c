/* text.c: a plan's output, in 80 columns whatever its names and numbers are; times in a fitting
 * unit.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "machine/figures.h"
#include "plan.h"

enum { COLUMNS = 80, MOST_LINE = 4000 };

// A character of UTF-8 is one column; its bytes after the first are 10xxxxxx.
static int columns_of(const char *text, size_t length)
{
    int columns = 0;
    for (size_t i = 0; i < length; i++) columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

// Prints a line of words; what exceeds 80 columns continues in further lines with more indent.
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
    static char line[MOST_LINE]; // the line that has not ended
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

double plan_gib(uint64_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

double plan_percent(uint64_t part, uint64_t of)
{
    return of ? 100.0 * (double)part / (double)of : 0.0;
}

// The decimals of a time and of its range: 1 below 100 ms and from 10 s on, 0 in between.
#define SECONDS UINT64_C(10000000000000)
static int digits_of(uint64_t ps)
{
    return ps < SECONDS / 100 || ps >= SECONDS;
}

static double unit_of(uint64_t ps)
{
    return ps < SECONDS ? 1e-9 : 1e-12;
}

uint64_t plan_range(const PlanOptions *o, uint64_t ps, int end)
{
    const SimFitted *f = &o->machine->figures->fitted;
    if (f->most.num == 0 || o->efficiency > 0) return 0; // custom kernels have no known range
    return (uint64_t)((double)ps * (end ? (double)f->most.num / (double)f->most.den : f->least));
}

PlanText plan_time(uint64_t ps)
{
    PlanText text;
    snprintf(text.is, sizeof text.is, ps < SECONDS ? "%.*f ms" : "%.*f s", digits_of(ps),
             unit_of(ps) * (double)ps);
    return text;
}

PlanText plan_step_time(const PlanOptions *o, uint64_t ps)
{
    PlanText text = plan_time(ps);
    size_t n = strlen(text.is);
    uint64_t least = plan_range(o, ps, 0), most = plan_range(o, ps, 1);
    if (most > 0)
        snprintf(text.is + n, sizeof text.is - n, " (%.*f to %.*f)", digits_of(ps),
                 unit_of(ps) * (double)least, digits_of(ps), unit_of(ps) * (double)most);
    return text;
}
