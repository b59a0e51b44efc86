/* options.c: numbers on the command line of an example. See options.h.
 */
#include "options.h"

#include <math.h>
#include <stdlib.h>

Status parse_int(const char *name, const char *text, int low, int *value)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || number < low || number > 0x7fffffff)
        return fail(ERR_ARGUMENT, "--%s %s: want a whole number of at least %d", name, text, low);
    *value = (int)number;
    return OK;
}

Status parse_float(const char *name, const char *text, float *value)
{
    char *end;
    *value = strtof(text, &end);
    if (*text == '\0' || *end != '\0' || !(*value > 0.0f) || isinf(*value))
        return fail(ERR_ARGUMENT, "--%s %s: want a number above 0", name, text);
    return OK;
}
