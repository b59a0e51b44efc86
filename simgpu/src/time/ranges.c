/* ranges.c: NVTX's ranges of each thread. See ranges.h. */
#include <stdlib.h>
#include <string.h>

#include "time/ranges.h"

static _Thread_local const SimScope *innermost;
static _Thread_local int depth; // of ranges that were pushed, drawn or not

static int is_drawn(void)
{
    static const char *path;
    static int asked;
    if (!asked) path = getenv("SIMGPU_TRACE");
    asked = 1;
    return path && *path;
}

const SimScope *sim_scope(void)
{
    return innermost;
}

int sim_scope_push(const char *name)
{
    size_t length = name ? strlen(name) : 0;
    SimScope *scope = is_drawn() ? malloc(sizeof *scope + length + 1) : NULL;
    if (scope) {
        char *own = (char *)(scope + 1);
        memcpy(own, name ? name : "", length);
        own[length] = '\0';
        *scope = (SimScope){own, innermost, innermost ? innermost->depth + 1 : 1};
        innermost = scope;
    }
    return depth++;
}

int sim_scope_pop(void)
{
    if (depth == 0) return -1;
    if (innermost) innermost = innermost->outer;
    return --depth;
}
