/* rank_record.c: what a rank keeps of its own log: how much memory lives, its purpose and the line
 * that caused it, the messages of the last step, and its operations. Layers and micro-batches
 * repeat their operations, so an entry is kept as the number of an equal one.
 *
 * An allocation's category is the last one that it was given: the log has it with a free, the
 * process knows that of live memory.
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

// ---- What is kept ----

typedef struct Live {
    const void *ptr;
    int at; // the entry that allocated it
} Live;

enum { SLOTS = 4 * PLAN_ALIKE };

typedef struct Keeping {
    PlanRecord *record;
    unsigned char *category; // (n) the category of an entry's allocation
    bool *is_logits;         // (n) it allocates logits in floats, or their gradient
    Live *live;              // (room), by address
    size_t room;             // a power of two
    uint32_t *slot;          // (SLOTS) by hash: number in record->alike, from 1
} Keeping;

static Live *live_slot(Keeping *k, const void *ptr)
{
    size_t at = ((uintptr_t)ptr >> 8) * 0x9e3779b97f4a7c15u >> 20 & (k->room - 1);
    while (k->live[at].ptr && k->live[at].ptr != ptr) at = (at + 1) & (k->room - 1);
    return &k->live[at];
}

static bool is_named(const GpuLogEntry *e, const char *name)
{
    return e->op == GPU_KERNEL && strcmp(e->name, name) == 0;
}

// The loss's largest operands are the logits, and their gradient if it has its own memory.
static void find_logits(Keeping *k, const GpuLogEntry *e)
{
    size_t most = 0;
    for (int i = 0; i < e->n_ranges; i++)
        if (e->range[i].bytes > most) most = e->range[i].bytes;
    for (int i = 0; i < e->n_ranges; i++) {
        Live *live = live_slot(k, e->range[i].ptr);
        if (live->ptr && e->range[i].bytes == most) k->is_logits[live->at] = true;
    }
}

// Finds the category of each allocation.
static void find_categories(Keeping *k, bool fused_loss)
{
    GpuLogEntry e;
    for (int i = 0; i < k->record->n && gpulog_get((uint64_t)i, &e); i++) {
        if (fused_loss && is_named(&e, "kernel_cross_entropy")) find_logits(k, &e);
        if (e.op != GPU_ALLOC && e.op != GPU_FREE) continue;
        Live *live = live_slot(k, e.range[0].ptr);
        if (e.op == GPU_FREE) {
            if (live->ptr) k->category[live->at] = (unsigned char)e.category;
            continue; // the slot stays: the address may come again
        }
        *live = (Live){e.range[0].ptr, i};
        k->category[i] = (unsigned char)gpulog_category_of(e.range[0].ptr);
    }
}

// A fused loss has no logits in floats: it reads the head's logits, and writes their gradient in
// the type that the head's backward reads. So these take no memory, casts from and to them move
// nothing, and the loss moves half as much.
static void fuse_loss(Keeping *k, int i, GpuLogEntry *e)
{
    if (e->op == GPU_ALLOC) {
        live_slot(k, e->range[0].ptr)->at = i;
        if (k->is_logits[i]) e->bytes = e->range[0].bytes = 0;
        return;
    }
    for (int j = 0; j < e->n_ranges; j++) {
        const Live *live = live_slot(k, e->range[j].ptr);
        if (!live->ptr || !k->is_logits[live->at]) continue;
        e->range[j].bytes /= 2;
        if (is_named(e, "kernel_cast")) e->n_ranges = 0;
        if (e->op == GPU_FREE) e->bytes = 0;
    }
}

// Keeps the entry as the number of the first equal one, with its own fields.
static void keep(Keeping *k, int i, GpuLogEntry *e)
{
    PlanRecord *r = k->record;
    uint64_t touched = 0, word[sizeof *e / sizeof(uint64_t)], sum = 0;
    PlanEntry own = {0, (uint32_t)e->launch, e->event, e->collective.call, e->collective.group};
    for (int j = 0; j < e->n_ranges; j++)
        touched += e->range[j].bytes * (e->range[j].access == GPU_UPDATE ? 2 : 1);
    memset(e->range, 0, sizeof e->range);
    e->range[0] = (GpuRange){NULL, touched, GPU_READ};
    e->n_ranges = 1;
    e->index = e->launch = e->collective.call = e->collective.group = 0;
    e->event = NULL;
    e->site = e->scope = NULL;
    memcpy(word, e, sizeof word);
    for (size_t j = 0; j < sizeof word / sizeof word[0]; j++)
        sum = (sum ^ word[j]) * UINT64_C(0x9e3779b97f4a7c15) ^ sum >> 29;
    uint32_t *slot = &k->slot[sum % SLOTS];
    while (*slot && memcmp(&r->alike[*slot - 1], e, sizeof *e) != 0)
        slot = slot == &k->slot[SLOTS - 1] ? k->slot : slot + 1;
    if (!*slot && r->n_alike == PLAN_ALIKE) r->full = true;
    if (r->full) return;
    if (!*slot) {
        r->alike[r->n_alike] = *e;
        *slot = (uint32_t)++r->n_alike;
    }
    own.alike = *slot - 1;
    r->entry[i] = own;
}

static void keep_all(Keeping *k, bool fused_loss)
{
    PlanRecord *r = k->record;
    GpuLogEntry e;
    for (int i = 0; i < r->n && !r->full; i++) {
        if (!gpulog_get((uint64_t)i, &e)) r->full = true;
        r->order = hash_entry(r->order, &e);
        if (fused_loss) fuse_loss(k, i, &e);
        keep(k, i, &e);
    }
}

const GpuLogEntry *plan_entry(const PlanRecord *r, int i)
{
    return &r->alike[r->entry[i].alike];
}

PlanKind plan_kind_of(const GpuLogEntry *e)
{
    switch (e->op) {
    case GPU_BLAS: return PLAN_PRODUCT;
    case GPU_COPY: return PLAN_COPY;
    case GPU_ALL_GATHER: return PLAN_ALL_GATHER;
    case GPU_REDUCE_SCATTER: return PLAN_REDUCE_SCATTER;
    case GPU_ALL_REDUCE: return PLAN_ALL_REDUCE;
    default: break;
    }
    if (gpulog_is_collective(e->op)) return PLAN_MESSAGE;
    if (strstr(e->name, "attention")) return PLAN_ATTENTION;
    return strstr(e->name, "adamw") || strstr(e->name, "sgd") ? PLAN_OPTIMIZER : PLAN_KERNEL;
}

uint64_t plan_flops_of(const GpuLogEntry *e)
{
    const GpuProduct *p = &e->product;
    return p->batch ? 2 * p->rows * p->cols * p->inner * p->batch : e->flops;
}

// ---- Memory ----

// The source line of the call.
static void name_site(int i, char text[PLAN_TEXT])
{
    GpuLogEntry e;
    if (i >= 0 && gpulog_get((uint64_t)i, &e)) gpulog_where(e.site, text, PLAN_TEXT);
}

// Walks through the log; the entries that exceed the peak, or the memory, are named later.
static void count_memory(PlanRecord *r, const unsigned char *category, uint64_t memory)
{
    uint64_t live = 0, each[GPU_CATEGORIES] = {0};
    int at_peak = -1, over = -1;
    for (int i = 0; i < r->n; i++) {
        const GpuLogEntry *e = plan_entry(r, i);
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
    name_site(at_peak, r->peak_where);
    name_site(over, r->over_where);
}

// ---- The step ----

static void count_step(PlanRecord *r)
{
    for (int i = r->first; i < r->n; i++) {
        const GpuLogEntry *e = plan_entry(r, i);
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

void plan_record(PlanRecord *r, uint64_t first, const PlanOptions *o)
{
    uint64_t length = gpulog_length();
    r->first = (int)first;
    r->order = UINT64_C(0xcbf29ce484222325);
    r->full = length > PLAN_ENTRIES;
    if (r->full) return;
    r->n = (int)length;
    size_t n = (size_t)length + 1;
    Keeping k = {.record = r, .room = 1};
    while (k.room < 2 * n) k.room *= 2;
    k.category = calloc(n, sizeof *k.category);
    k.is_logits = calloc(n, sizeof *k.is_logits);
    k.live = calloc(k.room, sizeof *k.live);
    k.slot = calloc(SLOTS, sizeof *k.slot);
    if (k.category && k.is_logits && k.live && k.slot) {
        find_categories(&k, o->fused_loss);
        keep_all(&k, o->fused_loss);
        r->done = !r->full;
    }
    if (r->done) {
        count_memory(r, k.category, o->machine->memory);
        count_step(r);
    }
    free(k.category);
    free(k.is_logits);
    free(k.live);
    free(k.slot);
}
