/* rank_record.c: what a rank keeps of its own log: how much memory lives, for what and because of
 * which line, the messages of the last step, its operations.
 *
 * An allocation's category is what was said of it last: a free has it in the log, of what lives
 * the process knows it.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

static uint64_t hash(uint64_t so_far, uint64_t x)
{
    for (int i = 0; i < 8; i++) so_far = (so_far ^ (x >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    return so_far;
}

static uint64_t hash_entry(uint64_t so_far, const GpuLogEntry *e)
{
    for (const char *c = e->name; *c; c++) so_far = hash(so_far, (unsigned char)*c);
    so_far = hash(so_far, e->bytes);
    so_far = hash(so_far, e->sent);
    so_far = hash(so_far, e->flops);
    so_far = hash(so_far, e->stream_number);
    for (int i = 0; i < e->n_ranges; i++) so_far = hash(so_far, e->range[i].bytes);
    return so_far;
}

// ---- Memory ----

typedef struct Live {
    const void *ptr;
    int at; // the entry that allocated it
} Live;

// What each allocation is for, category (n) by entry. A table of what lives, by address.
static bool find_categories(const PlanRecord *r, unsigned char *category)
{
    size_t room = 1;
    while (room < 2 * (size_t)r->n + 2) room *= 2;
    Live *live = calloc(room, sizeof *live);
    if (!live) return false;
    for (int i = 0; i < r->n; i++) {
        const GpuLogEntry *e = &r->entry[i];
        if (e->op != GPU_ALLOC && e->op != GPU_FREE) continue;
        size_t slot = ((uintptr_t)e->range[0].ptr >> 8) * 0x9e3779b97f4a7c15u >> 20 & (room - 1);
        while (live[slot].ptr && live[slot].ptr != e->range[0].ptr) slot = (slot + 1) & (room - 1);
        if (e->op == GPU_FREE) {
            if (live[slot].ptr) category[live[slot].at] = (unsigned char)e->category;
            continue; // the slot stays: the address may come again
        }
        live[slot] = (Live){e->range[0].ptr, i};
        category[i] = (unsigned char)gpulog_category_of(e->range[0].ptr);
    }
    free(live);
    return true;
}

// Walks through the log; what an entry brought past the peak, or past the memory, is named later.
static void count_memory(PlanRecord *r, const unsigned char *category, uint64_t memory)
{
    uint64_t live = 0, each[GPU_CATEGORIES] = {0};
    int at_peak = -1, over = -1;
    for (int i = 0; i < r->n; i++) {
        const GpuLogEntry *e = &r->entry[i];
        if (i == r->first) memcpy(r->held, each, sizeof each);
        if (e->op == GPU_ALLOC) {
            live += e->bytes;
            each[category[i]] += e->bytes;
        } else if (e->op == GPU_FREE) {
            live -= e->bytes;
            each[e->category] -= e->bytes;
        }
        for (int c = 0; c < GPU_CATEGORIES && i >= r->first; c++)
            if (each[c] > r->most[c]) r->most[c] = each[c];
        if (live > r->peak) {
            r->peak = live;
            at_peak = i;
            memcpy(r->at_peak, each, sizeof each);
        }
        if (live > memory && over < 0) {
            r->over = live - memory;
            over = i;
        }
    }
    if (at_peak >= 0) gpulog_where(r->entry[at_peak].site, r->peak_where, sizeof r->peak_where);
    if (over >= 0) gpulog_where(r->entry[over].site, r->over_where, sizeof r->over_where);
}

// ---- The step ----

static void count_step(PlanRecord *r)
{
    for (int i = r->first; i < r->n; i++) {
        const GpuLogEntry *e = &r->entry[i];
        if (gpulog_is_collective(e->op)) {
            r->traffic[e->op].calls++;
            r->traffic[e->op].bytes += e->bytes;
            r->traffic[e->op].sent += e->sent;
        }
        if (e->op == GPU_COPY && (e->to != GPULOG_HOST || e->from != GPULOG_HOST)) {
            int way = e->from == GPULOG_HOST ? 1 : e->to == GPULOG_HOST ? 2 : 0;
            r->copies[way]++;
            r->copied[way] += e->bytes;
        }
        switch (plan_kind_of(e)) {
        case PLAN_PRODUCT: r->products += plan_flops_of(e); break;
        case PLAN_ATTENTION: r->attention += e->flops; break;
        default: r->other += e->flops; break;
        }
    }
}

void plan_record(PlanRecord *r, uint64_t first, uint64_t memory)
{
    uint64_t length = gpulog_length();
    r->first = (int)first;
    r->order = UINT64_C(0xcbf29ce484222325);
    r->full = length > PLAN_ENTRIES;
    for (uint64_t i = 0; i < length && !r->full; i++) {
        if (!gpulog_get(i, &r->entry[i])) r->full = true;
        r->order = hash_entry(r->order, &r->entry[i]);
        r->n = (int)i + 1;
    }
    unsigned char *category = calloc((size_t)r->n + 1, 1);
    if (r->full || !category || !find_categories(r, category)) {
        free(category);
        return;
    }
    count_memory(r, category, memory);
    count_step(r);
    free(category);
    r->done = true;
}
