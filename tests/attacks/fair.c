/* fair: is no attack. It uses what a task may well use, beyond what the reference does, and must
 * lose nothing by it.
 *
 * Ends: failed
 * Says: after fsdp_zero_grad: element
 */
#define _GNU_SOURCE
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local int depth;
static atomic_int calls;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Of the task alone, and yet somebody forgot to make it static.
int helper_of_mine(int x);
int helper_of_mine(int x)
{
    return x + depth;
}

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static const char *name_of(int value)
{
    switch (value) { // a table of jumps or of addresses
    case 0: return "zero";
    case 1: return "one";
    case 2: return "two";
    case 3: return "three";
    case 4: return "four";
    default: return "many";
    }
}

static void print_things(const int *v)
{
    struct timespec now;
    char text[64], *copy;

    errno = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "%d %g %s", v[0], pow(2, sqrt(v[1])), getenv("HOME") ? "h" : "");
    copy = strdup(text);
    if (copy != NULL && isdigit((unsigned char)copy[0]))
        fprintf(stderr, "%s %s %ld %s\n", copy, strerror(errno), strtol(copy, NULL, 10),
                name_of(v[2]));
    free(copy);
    printf("%f %d\n", fmaxf(1, floorf(2.5f)), toupper(text[0]));
    puts(text);
    putchar('\n');
    fflush(stdout);
}

static void attack(void)
{
    int v[3] = {3, 1, 2}, *p = malloc(12);

    qsort(v, 3, sizeof *v, by_value);
    assert(v[0] == 1);
    p = realloc(p, 24);
    if (p == NULL) return;
    memset(p, 0, 24);
    memmove(p + 1, p, 8);
    if (memcmp(p, p + 1, 8) != 0 || isnan(v[0] * 1.0) || isinf(sin(v[0]))) abort();
    free(p);
    atomic_fetch_add(&calls, 1);
    pthread_mutex_lock(&mutex);
    if (helper_of_mine(abs(v[2])) == 0) exit(1);
    pthread_mutex_unlock(&mutex);
    print_things(v);
}
