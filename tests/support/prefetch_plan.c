/* prefetch_plan.c: see prefetch_plan.h. */
#include "prefetch_plan.h"

void plan_begin(Plan *p)
{
    p->order.n = 0;
    for (int u = 0; u < p->n; u++) p->order.unit[p->order.n++] = u;
}

int64_t plan_in_flight(const Plan *p)
{
    int64_t bytes = 0;
    for (int u = 0; u < p->n; u++) bytes += p->state[u] == COMING ? p->bytes[u] : 0;
    return bytes;
}

static void add(Plan *p, int64_t bytes)
{
    p->live += bytes;
    if (p->live > p->peak) p->peak = p->live;
}

// What was resharded last is freed.
static void drop(Plan *p)
{
    p->live -= p->retired;
    p->retired = 0;
}

static void bring(Plan *p, int u, int state)
{
    if (p->state[u] == AWAY) {
        add(p, p->bytes[u]);
        p->gathers++;
        p->gathered.unit[p->gathered.n++] = u;
    }
    p->state[u] = p->state[u] == HERE ? HERE : state;
}

static void take_away(Plan *p, int u)
{
    drop(p);
    p->state[u] = AWAY;
    p->retired = p->bytes[u];
}

static void prefetch(Plan *p, const PlanList *list)
{
    for (int i = 0; i < list->n; i++) {
        int u = list->unit[i];
        int64_t limit = p->options.limit_bytes;
        if (p->state[u] == AWAY && limit > 0 && plan_in_flight(p) + p->bytes[u] > limit) return;
        bring(p, u, COMING);
    }
}

static void end_pass(Plan *p)
{
    drop(p);
    for (int u = 0; u < p->n; u++)
        if (p->state[u] == COMING) take_away(p, u);
    drop(p);
}

static void pre_forward(Plan *p, int unit)
{
    PlanList ahead = {0, {0}};
    if (p->open++ == 0) p->n_begun = 0;
    bring(p, unit, HERE);
    drop(p);
    p->state[unit] = HERE;
    p->begun[p->n_begun++] = unit;
    p->follows = true;
    for (int i = 0; i < p->n_begun; i++)
        p->follows &= i < p->order.n && p->order.unit[i] == p->begun[i];
    for (int i = p->n_begun; p->follows && i < p->order.n && ahead.n < p->options.forward_depth;
         i++)
        ahead.unit[ahead.n++] = p->order.unit[i];
    prefetch(p, p->forward[unit].n > 0 ? &p->forward[unit] : &ahead);
}

static void post_forward(Plan *p, int unit)
{
    if (p->evaluates || (unit != 0 && !p->keeps_all)) take_away(p, unit);
    p->ended[p->n_ended++] = unit;
    if (--p->open > 0) return;
    if (p->evaluates) p->n_ended = 0;
    p->order.n = 0;
    for (int i = 0; i < p->n_begun; i++) p->order.unit[p->order.n++] = p->begun[i];
    end_pass(p);
}

static void pre_backward(Plan *p, int unit)
{
    PlanList ahead = {0, {0}};
    int at = p->n_ended - 1;
    p->open++;
    drop(p);
    bring(p, unit, HERE);
    p->state[unit] = HERE;
    while (at >= 0 && p->ended[at] != unit) at--;
    if (at >= 0) p->ended[at] = -1 - unit; // this one has had its backward
    for (int i = at - 1; i >= 0 && ahead.n < p->options.backward_depth; i--)
        ahead.unit[ahead.n++] = p->ended[i] < 0 ? -1 - p->ended[i] : p->ended[i];
    prefetch(p, p->backward[unit].n > 0 ? &p->backward[unit] : &ahead);
}

static void post_backward(Plan *p, int unit)
{
    take_away(p, unit);
    if (--p->open > 0) return;
    p->n_ended = 0;
    end_pass(p);
    for (int u = 0; u < p->n; u++) p->state[u] = AWAY;
    p->live = 0;
}

void plan_hook(Plan *p, int unit, HookPoint point)
{
    static void (*const AT[HOOK_POINTS])(Plan *, int) = {pre_forward, post_forward, pre_backward,
                                                         post_backward};
    p->gathered.n = 0;
    AT[point](p, unit);
}
