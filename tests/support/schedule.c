/* schedule.c: intervals of compute and of communication, and what they have in common. See
 * schedule.h.
 */
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>

// Intervals in order that do not overlap.
typedef struct Union {
    Times *part;
    int n;
} Union;

static int by_begin(const void *a, const void *b)
{
    int64_t x = ((const Times *)a)->begin, y = ((const Times *)b)->begin;
    return x < y ? -1 : x > y;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Of the entries whose operation is in [from, to].
static Union unite(const TimesLog *log, const Times *times, int first, int end, GpuOp from,
                   GpuOp to)
{
    Union u = {calloc((size_t)(end - first) + 1, sizeof *u.part), 0};
    int n = 0;
    if (u.part == NULL) return u;
    for (int i = first; i < end; i++)
        if (log->entry[i].op >= from && log->entry[i].op <= to && times[i].end > times[i].begin)
            u.part[n++] = times[i];
    qsort(u.part, (size_t)n, sizeof *u.part, by_begin);
    for (int i = 0; i < n; i++) {
        if (u.n > 0 && u.part[i].begin <= u.part[u.n - 1].end)
            u.part[u.n - 1].end = later(u.part[u.n - 1].end, u.part[i].end);
        else
            u.part[u.n++] = u.part[i];
    }
    return u;
}

static int64_t length(const Union *u)
{
    int64_t sum = 0;
    for (int i = 0; i < u->n; i++) sum += u->part[i].end - u->part[i].begin;
    return sum;
}

static int64_t common(const Union *a, const Union *b)
{
    int64_t sum = 0;
    for (int i = 0, k = 0; i < a->n && k < b->n;) {
        const Times *x = &a->part[i], *y = &b->part[k];
        int64_t begin = later(x->begin, y->begin), end = x->end < y->end ? x->end : y->end;
        if (end > begin) sum += end - begin;
        if (x->end < y->end)
            i++;
        else
            k++;
    }
    return sum;
}

static int64_t last_end(const TimesLog *log, const Times *times, int first, int end)
{
    int64_t last = 0;
    for (int i = first; i < end; i++)
        if (log->entry[i].op >= GPU_COPY && log->entry[i].op <= GPU_RECV)
            last = later(last, times[i].end);
    return last;
}

Schedule schedule_of(const TimesLog *log, const Times *times, int first, int end)
{
    if (end > log->n) end = log->n;
    if (first < 0) first = 0;
    if (first > end) first = end;
    Union compute = unite(log, times, first, end, GPU_COPY, GPU_BLAS);
    Union moved = unite(log, times, first, end, GPU_ALL_GATHER, GPU_RECV);
    Schedule s = {.compute = length(&compute), .communication = length(&moved)};
    s.exposed = s.communication - common(&moved, &compute);
    s.step = last_end(log, times, first, end) - last_end(log, times, 0, first);
    free(compute.part);
    free(moved.part);
    return s;
}

const char *time_words(double microseconds)
{
    static char text[2][32];
    static int turn;
    bool small = microseconds < 1e3;

    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "%.1f %s", small ? microseconds : microseconds / 1e3,
             small ? "µs" : "ms");
    return text[turn];
}
