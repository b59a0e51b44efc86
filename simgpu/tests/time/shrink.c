/* shrink.c: whether simulator and simgpu agree about a program, and a smaller program where they do
 * not.
 *
 * Interface: first_difference, try_program, shrink (program.h).
 */
#include "program.h"

#include <stdlib.h>
#include <time.h>

static bool spans_differ(Kind kind, const Span *a, const Span *b)
{
    if (a->queued != b->queued || a->returned != b->returned) return true;
    return has_work(kind) && (a->ready != b->ready || a->start != b->start || a->end != b->end);
}

// Queries are not in the log, and neither is pinned memory.
static bool is_logged(Kind kind)
{
    return !is_query(kind) && kind != PIN && kind != UNPIN;
}

// Whether cudaEventElapsedTime says of a record what the times of the records say, to the last bit
// of a float.
static bool is_elapsed(const Program *p, const Times *want, const Times *got, int at)
{
    int first = 0;
    while (p->step[first].kind != RECORD || p->step[first].rank != p->step[at].rank) first++;
    // Its event may have been recorded again.
    for (int i = first + 1; i < p->n && !want->seen[first]; i++)
        if (p->step[i].kind == RECORD && p->step[i].rank == p->step[at].rank &&
            p->step[i].slot == p->step[first].slot)
            first = i;
    double ms = ((double)want->at[at] - (double)want->at[first]) / 1e9;
    return got->elapsed[at] == (double)(float)ms;
}

int first_difference(const Program *p, const Times *want, const Times *got, int *span)
{
    for (int i = 0; i < p->n; i++) {
        const Step *s = &p->step[i];
        for (*span = 0; *span < MAX_CALLS * MAX_RANKS && is_logged(s->kind); ++*span)
            if (spans_differ(s->kind, &want->span[i][*span], &got->span[i][*span])) return i;
        *span = -1;
        if (s->kind == RECORD && want->seen[i] && !is_elapsed(p, want, got, i)) return i;
        if (is_query(s->kind) && want->ready[i] != got->ready[i]) return i;
    }
    return -1;
}

int try_program(const Program *p, Times *want, Times *got, char **message)
{
    int span;
    simulate(p, want, NULL);
    *message = play(p, got);
    return *message ? -2 : first_difference(p, want, got, &span);
}

// A program that is not small in time is printed as it is then.
enum { SECONDS = 60 };
static time_t deadline;

static bool still_differs(const Program *p)
{
    static Times want, got;
    if (time(NULL) > deadline) return false;
    char *message;
    int at = try_program(p, &want, &got, &message);
    free(message);
    return at >= 0;
}

static bool keep_if_it_differs(Program *p, const Program *smaller)
{
    if (smaller->n >= p->n || !is_valid(smaller) || !still_differs(smaller)) return false;
    *p = *smaller;
    return true;
}

// One thread a process, one call at a time: if it shows there too, it is easier to read.
static void simplify(Program *p)
{
    static Program simpler;
    simpler = *p;
    for (int i = 0; i < simpler.n; i++)
        for (int k = 0; k < MAX_PROCESSES; k++) simpler.step[i].phase[k] = (Phase){FIRST_THREAD, 0};
    if (still_differs(&simpler)) *p = simpler;
}

static bool cut_calls(Program *p)
{
    static Program smaller;
    for (int i = 0; i < p->n; i++)
        for (int c = 0; c < p->step[i].n_calls && p->step[i].n_calls > 1; c++) {
            smaller = *p;
            Step *s = &smaller.step[i];
            s->n_calls--;
            for (int k = c; k < s->n_calls; k++) s->call[k] = s->call[k + 1];
            if (!still_differs(&smaller)) continue;
            *p = smaller;
            return true;
        }
    return false;
}

// Takes away halves, then quarters …, then single steps.
void shrink(Program *p)
{
    static Program smaller;
    deadline = time(NULL) + SECONDS;
    simplify(p);
    for (int size = p->n / 2; size > 0; size = size > 1 ? size / 2 : 0)
        for (int from = p->n - size; from > -size; from -= size) {
            int begin = from > 0 ? from : 0;
            smaller = *p;
            remove_steps(&smaller, begin, from > 0 ? size : from + size);
            keep_if_it_differs(p, &smaller);
        }
    bool smaller_yet = true;
    while (smaller_yet) {
        smaller_yet = cut_calls(p);
        for (int i = p->n - 1; i >= 0; i--) {
            smaller = *p;
            remove_steps(&smaller, i, 1);
            smaller_yet |= keep_if_it_differs(p, &smaller);
        }
    }
}
