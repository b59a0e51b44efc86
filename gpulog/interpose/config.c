/* config.c: the GPULOG_* variables, read once, on first use.
 *
 *   GPULOG_POISON    1: fresh device memory holds NaNs, as nothing promises 0    (0)
 *                    (of an allocation above 1 GiB, the first and the last 64 MiB)
 *   GPULOG_MEMORY    bytes that a device holds at most, with K, M, G, T after it   (what it has)
 *   GPULOG_ENTRIES   how many operations the log keeps                           (262144)
 *
 * An invalid value ends the program with one line.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose.h"

#define FATAL_EXIT 86 // as when simgpu ends a program

static Settings config;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void give_up(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "gpulog: %s\n", line);
    if (ftrylockfile(stdout) == 0) fflush(stdout);
    _exit(FATAL_EXIT);
}

// Reads "80G", "64M", "4096"; false: the text is something else.
static bool parse_bytes(const char *text, size_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (unit) end++;
    if (errno || *end || (shift && number >> (64 - shift))) return false;
    *bytes = (size_t)number << shift;
    return true;
}

static size_t read_number(const char *name, size_t otherwise, size_t least, size_t most)
{
    const char *text = getenv(name);
    size_t value;
    if (!text || !*text) return otherwise;
    if (parse_bytes(text, &value) && value >= least && value <= most) return value;
    give_up("%s is \"%.80s\": must be a number from %zu to %zu%s", name, text, least, most,
            most > (size_t)1 << 20 ? ", with K, M, G or T after it" : "");
}

static void read_all(void)
{
    config.poison = read_number("GPULOG_POISON", 0, 0, 1) != 0;
    config.memory = read_number("GPULOG_MEMORY", SIZE_MAX, 4096, (size_t)1 << 50);
    gpulog_reserve(read_number("GPULOG_ENTRIES", 262144, 16, (size_t)1 << 26));
}

const Settings *settings(void)
{
    pthread_once(&once, read_all);
    return &config;
}
