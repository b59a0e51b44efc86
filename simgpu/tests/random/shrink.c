/* shrink.c: whether oracle and checker agree about a program, and a smaller program where they do
 * not.
 *
 * Interface: compare, try_program, shrink, disagreement_names (program.h).
 */
#include "program.h"

const char *const disagreement_names[] = {
    "they agree",
    "the checker missed a race",
    "the checker reported a race where there is none",
    "a report of the checker's names no two steps that race, or is of the wrong class",
    "the checker reported something else",
    "gpulog_race missed a race",
    "gpulog_race found a race where there is none",
    "a call failed",
};

static bool names_a_pair(const Verdict *v, unsigned named, bool lifetime)
{
    for (int i = 0; i < v->n; i++)
        if (v->pair[i].lifetime == lifetime && (named >> v->pair[i].a & 1) &&
            (named >> v->pair[i].b & 1))
            return true;
    return false;
}

Disagreement compare(const Program *p, const Verdict *v, const Heard *h)
{
    if (v->too_large) return AGREE;
    if (h->trouble[0]) return TROUBLE;
    if (h->replayed) { // what a call refuses is not in the log
        if (v->use_after_free || h->log_races == h->log_should) return AGREE;
        return h->log_races ? LOG_ALARM : LOG_MISSED;
    }
    if (v->n > 0 && h->races == 0) return MISSED;
    if (v->n == 0 && h->races > 0) return FALSE_ALARM;
    // A call that refuses freed memory does nothing, and so neither does it wait: what is told
    // after the first report may follow from that.
    int sure = v->use_after_free ? 1 : MAX_HEARD;
    for (int i = 0; i < h->races && i < sure; i++)
        if (!names_a_pair(v, h->named[i], h->lifetime[i])) return WRONG_PAIR;
    return h->others > 0 ? STRAY : AGREE;
}

Disagreement try_program(const Program *p, unsigned forget, Verdict *v, Heard *h)
{
    Program told = *p;
    run_program(p, h);
    told.timed = h->timed;
    told.not_ready = h->not_ready;
    if (h->replayed) {
        Program logged = told;
        logged.timed = true; // each answer to a query is in the log
        judge(&logged, forget | LOG_FORGETS, v);
        h->log_should = v->n > 0;
    }
    judge(&told, forget, v);
    return compare(p, v, h);
}

// A report of the wrong pair is clearer without a right one beside it.
static bool still(const Program *p, unsigned forget, Disagreement what)
{
    Verdict v;
    Heard h;
    Disagreement now = try_program(p, forget, &v, &h);
    return now == what || (what == WRONG_PAIR && now == FALSE_ALARM);
}

// Takes away one step, or two that need each other; false: none can go.
static bool cut(Program *p, unsigned forget, Disagreement what)
{
    for (int i = p->n - 1; i >= 0; i--) {
        Program shorter = *p;
        if (remove_step(&shorter, i) && still(&shorter, forget, what)) {
            *p = shorter;
            return true;
        }
    }
    for (int i = p->n - 1; i > 0; i--)
        for (int j = i - 1; j >= 0; j--) {
            Program shorter = *p;
            if (remove_step(&shorter, i) && remove_step(&shorter, j) &&
                still(&shorter, forget, what)) {
                *p = shorter;
                return true;
            }
        }
    return false;
}

// A memset is easier to read than a kernel or a copy.
static void plain(Program *p, unsigned forget, Disagreement what)
{
    for (int i = 0; i < p->n; i++) {
        Program simpler = *p;
        Step *s = &simpler.step[i];
        if (s->kind > COPY_ASYNC || s->kind == MEMSET_ASYNC || s->kind == MEMSET) continue;
        if (!(kind_facts[s->kind].writes & 1)) continue;
        if (buffer_device[s->span[0].buffer] != stream_facts[s->stream].device) continue;
        s->kind = MEMSET_ASYNC;
        if (s->span[0].rows == 1 && is_valid(&simpler) && still(&simpler, forget, what))
            *p = simpler;
    }
}

void shrink(Program *p, unsigned forget, Disagreement what)
{
    while (cut(p, forget, what)) continue;
    plain(p, forget, what);
}
