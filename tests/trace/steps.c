/* steps.c: what every rank did in three steps of training, operation by operation, for the plots of
 * the results page (grader/page.py). It asserts nothing.
 *
 * A GPT-2 of six blocks, each block a unit, is trained with AdamW on four ranks. Behind each step a
 * rank reads its log (gpulog.h) into shared memory: which memory came and went and what for, every
 * collective, the waits of streams, and marks where the passes of units begin and end. The cmocka
 * process, which never runs the code under test, prints the trace as lines "TRACE {…}" of JSON;
 * grader/trace.py says what they hold.
 *
 * [Note: marks] A mark must not depend on how hooks are filled in. So the `forward` and `backward`
 * of the units' modules are wrapped, which are no part of any task: a hook's operations stand
 * between one unit's end and the next one's beginning.
 *
 * [Note: what for] Memory that was there before the first step is what a rank keeps: shards,
 * gradients, moments. Memory that parameters' data (or grad) pointed into while a unit ran, that an
 * all-gather wrote or a reduce-scatter read, is an unsharded parameter (or gradient). Sizes that
 * theory speaks of are counted from the modules' shapes, without the code under test.
 *
 * Lines "CATEGORIES {…}" compare this with what the given code told the log (gpulog_category):
 * tests/grader/test_categories.py reads them.
 *
 * [Note: when] Times are those of a modelled machine, worked out from the ranks' logs by the cmocka
 * process (times.h). Where there is no clock, rows have none. What prefetching hides shows beside
 * the same training without it.
 *
 * Interface: two tests, "steps" and "steps_without_prefetch".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "times.h"
#include "training.h"

#define WORLD 4 // and the most that SHARDLAB_TRACE_WORLD may ask for
#define STEPS 3
#define BLOCKS 6
#define UNITS (BLOCKS + 1) // the root is the last
#define MAX_ROWS 4000      // of a rank, all steps together
#define MAX_NOTES 4000
#define MAX_LIVE 2048
#define MAX_STREAMS 16
#define MAX_EVENTS 256

// 62 columns: neither a block's nor the root's elements are a multiple of W, so there is padding.
static const Spec SMALL = {
    .gpt2 = true, .layers = BLOCKS, .B = 1, .T = 8, .dim = 62, .heads = 2, .vocab = 61};

// The model of `make demo-oom`, for the picture of the README (grader/devtools/figure.py): with
// SHARDLAB_TRACE_WORLD=W in the environment it is trained on W ranks, 1 being the unsharded model.
static const Spec DEMO = {
    .gpt2 = true, .layers = BLOCKS, .B = 1, .T = 64, .dim = 256, .heads = 8, .vocab = 256};

static Spec spec;
static int world;
// Every forward forgets those that ended before it, so that no backward knows what comes next.
static bool no_prefetch;

enum { KEPT, PARAMS, GRADS, REST }; // what memory is for

// [kind, stream, what, unit, bytes, sent, begin, end]
typedef struct Row {
    char kind;  // + alloc, - free, c collective, k kernels and copies, r record, w wait, m mark
    int stream; // 0 compute, 1 gather, 2 reduce, 3 another
    int what;   // +, -: what for; c: which, from all-gather on; r, w: the record's number; m: mark
    int unit;   // -1: none, or not known
    int64_t bytes; // k: how many
    int64_t sent;
    int first, last; // entries of the log
} Row;

// What a rank hands back.
typedef struct Trace {
    int rows, begin[STEPS + 1];
    int64_t live[STEPS + 1],
        peak[STEPS];          // between steps, and the highest of each; as gpulog has it
    bool full;                // there was no room for all
    int unsharded, temporary; // unsharded parameters freed, and what of it counts as temporary
    Row row[MAX_ROWS];
    TimesLog log;
} Trace;

// A rank's own: what it notes while it trains.
typedef struct Live {
    const char *ptr;
    size_t bytes;
    int row, what, unit; // the row that allocated it, -1: before the first step
} Live;

typedef struct Note {
    uint64_t at; // operations before it
    const void *ptr;
    int what, unit;
    char mark; // 0: a pointer's note
} Note;

static struct {
    Module *unit[UNITS];
    Status (*forward[UNITS])(Module *, NnRun *, const void *, void *);
    Status (*backward[UNITS])(Module *, NnRun *, const void *, void *);
    Note note[MAX_NOTES];
    int notes, read; // read: how many the reading of the log has passed
    Live live[MAX_LIVE];
    int lives;
    cudaStream_t stream[3];
    cudaEvent_t event[MAX_EVENTS];
    int record[MAX_EVENTS], events, records;
    uint64_t next; // of the log
    Trace *trace;
} t;

// ---- While training ----

static void note(char mark, const void *ptr, int what, int unit)
{
    if (t.notes == MAX_NOTES) {
        t.trace->full = true;
        return;
    }
    t.note[t.notes++] = (Note){gpulog_length(), ptr, what, unit, mark};
}

// Notes where the parameters at and below a module are, but for those of other units.
static void note_params(const Module *m, int unit, bool grads)
{
    for (int i = 0; i < m->n_params; i++) {
        if (m->params[i]->data.data != NULL) note(0, m->params[i]->data.data, PARAMS, unit);
        if (grads && m->params[i]->grad.data != NULL) note(0, m->params[i]->grad.data, GRADS, unit);
    }
    for (int i = 0; i < m->n_children; i++) {
        bool other = false;
        for (int u = 0; u < UNITS; u++) other = other || t.unit[u] == m->children[i];
        if (!other) note_params(m->children[i], unit, grads);
    }
}

static int unit_number(const Module *m)
{
    for (int u = 0; u < UNITS; u++)
        if (t.unit[u] == m) return u;
    return -1;
}

static Status marked_forward(Module *m, NnRun *run, const void *in, void *out)
{
    int unit = unit_number(m);
    note('F', NULL, 0, unit);
    note_params(m, unit, false);
    Status status = t.forward[unit](m, run, in, out);
    if (no_prefetch) fsdp_clear_post_forward(fsdp_unit(m)->root);
    note('f', NULL, 0, unit);
    return status;
}

static Status marked_backward(Module *m, NnRun *run, const void *dout, void *din)
{
    int unit = unit_number(m);
    note('B', NULL, 0, unit);
    note_params(m, unit, true);
    Status status = t.backward[unit](m, run, dout, din);
    note('b', NULL, 0, unit);
    return status;
}

static void wrap_units(Module *model)
{
    int n = 0;
    for (int i = 0; i < model->n_children && n < BLOCKS; i++)
        if (strncmp(model->children[i]->name, "h.", 2) == 0) t.unit[n++] = model->children[i];
    check(n == BLOCKS, "the model has %d blocks, want %d", n, BLOCKS);
    t.unit[BLOCKS] = model;
    for (int u = 0; u < UNITS; u++) {
        t.forward[u] = t.unit[u]->forward;
        t.backward[u] = t.unit[u]->backward;
        t.unit[u]->forward = marked_forward;
        t.unit[u]->backward = marked_backward;
    }
}

// ---- Reading the log ----

static int add_row(Row row)
{
    Trace *trace = t.trace;
    if (trace->rows >= MAX_ROWS) {
        trace->full = true;
        return -1;
    }
    row.first = row.last = (int)t.next;
    trace->row[trace->rows] = row;
    return trace->rows++;
}

static int stream_of(cudaStream_t stream)
{
    for (int i = 0; i < 3; i++)
        if (t.stream[i] == stream) return i;
    return 3;
}

static Live *live_at(const void *ptr)
{
    for (int i = 0; i < t.lives; i++)
        if ((const char *)ptr >= t.live[i].ptr &&
            (const char *)ptr < t.live[i].ptr + t.live[i].bytes)
            return &t.live[i];
    return NULL;
}

// What the memory at ptr is for: the first that says so is right. Memory for several units is
// nobody's.
static void set_purpose(const void *ptr, int what, int unit)
{
    Live *live = live_at(ptr);
    if (live == NULL || live->what == KEPT) return;
    if (live->what == REST) live->what = what;
    if (unit >= 0 && live->unit != unit) live->unit = live->unit == -1 ? unit : -2;
    if (live->row >= 0) {
        t.trace->row[live->row].what = live->what;
        t.trace->row[live->row].unit = live->unit < 0 ? -1 : live->unit;
    }
}

static void read_alloc(const GpuLogEntry *e, int stream, bool training)
{
    Live live = {e->range[0].ptr, e->range[0].bytes, -1, training ? REST : KEPT, -1};
    if (training) live.row = add_row((Row){'+', stream, REST, -1, (int64_t)live.bytes, 0, 0, 0});
    if (t.lives == MAX_LIVE)
        t.trace->full = true;
    else
        t.live[t.lives++] = live;
}

static void read_free(const GpuLogEntry *e, int stream)
{
    Live *live = live_at(e->range[0].ptr);
    if (live == NULL) return; // older than the training
    t.trace->unsharded += live->what == PARAMS;
    t.trace->temporary += live->what == PARAMS && e->category == GPU_TEMPORARY;
    add_row((Row){'-', stream, live->what, live->unit < 0 ? -1 : live->unit, (int64_t)live->bytes,
                  0, 0, 0});
    *live = t.live[--t.lives];
}

// A collective's unit is that of the whole buffer it writes or reads.
static void read_collective(const GpuLogEntry *e, int stream)
{
    const void *whole = e->op == GPU_REDUCE_SCATTER ? e->range[0].ptr : e->range[1].ptr;
    if (e->n_ranges > 1 && e->op == GPU_ALL_GATHER) set_purpose(whole, PARAMS, -1);
    if (e->n_ranges > 1 && e->op == GPU_REDUCE_SCATTER) set_purpose(whole, GRADS, -1);
    const Live *live = e->n_ranges > 1 ? live_at(whole) : NULL;
    int from = live != NULL && live->row >= 0 ? live->row : -1;
    // `unit` is the row of the allocation until name_collectives.
    add_row((Row){'c', stream, (int)e->op - GPU_ALL_GATHER, from, (int64_t)e->bytes,
                  (int64_t)e->sent, 0, 0});
}

static void read_record(const GpuLogEntry *e, int stream)
{
    int i = 0;
    while (i < t.events && t.event[i] != e->event) i++;
    if (i == MAX_EVENTS) return;
    if (i == t.events) t.event[t.events++] = e->event;
    t.record[i] = t.records++;
    add_row((Row){'r', stream, t.record[i], -1, 0, 0, 0, 0});
}

static void read_wait(const GpuLogEntry *e, int stream)
{
    for (int i = 0; i < t.events; i++)
        if (t.event[i] == e->event) add_row((Row){'w', stream, t.record[i], -1, 0, 0, 0, 0});
}

// Kernels and copies of a stream back to back are one row.
static void read_work(int stream)
{
    Trace *trace = t.trace;
    Row *last = trace->rows > 0 ? &trace->row[trace->rows - 1] : NULL;
    if (last != NULL && last->kind == 'k' && last->stream == stream) {
        last->bytes++;
        last->last = (int)t.next;
    } else {
        add_row((Row){'k', stream, 0, -1, 1, 0, 0, 0});
    }
}

static void read_entry(const GpuLogEntry *e, bool training)
{
    int stream = stream_of(e->stream);
    if (e->op == GPU_ALLOC) read_alloc(e, stream, training);
    if (e->op == GPU_FREE) read_free(e, stream);
    if (!training) return;
    if (gpulog_is_collective(e->op)) read_collective(e, stream);
    if (e->op >= GPU_COPY && e->op <= GPU_BLAS) read_work(stream);
    if (e->op == GPU_EVENT_RECORD) read_record(e, stream);
    if (e->op == GPU_STREAM_WAIT) read_wait(e, stream);
}

static void read_notes(uint64_t until)
{
    for (; t.read < t.notes && t.note[t.read].at <= until; t.read++) {
        const Note *n = &t.note[t.read];
        if (n->mark)
            add_row((Row){'m', 0, n->mark, n->unit, 0, 0, 0, 0});
        else
            set_purpose(n->ptr, n->what, n->unit);
    }
}

static void read_log(bool training)
{
    GpuLogEntry entry;
    uint64_t end = gpulog_length();
    for (; t.next < end; t.next++) {
        read_notes(t.next);
        if (gpulog_get(t.next, &entry))
            read_entry(&entry, training);
        else
            t.trace->full = true;
    }
    read_notes(end);
}

// The rows of a step are complete: what was for which unit is known now.
static void name_collectives(Trace *trace, int first)
{
    for (int i = first; i < trace->rows; i++) {
        Row *row = &trace->row[i];
        if (row->kind == 'c') row->unit = row->unit >= 0 ? trace->row[row->unit].unit : -1;
    }
}

// ---- Training ----

static void train(const Rank *r, Sharded *s, const Batch *batch, size_t before)
{
    Trace *trace = t.trace;
    read_log(false);
    trace->rows = 0; // what was freed on the way
    for (int step = 0; step < STEPS; step++) {
        trace->begin[step] = trace->rows;
        trace->live[step] = (int64_t)(gpulog_live_bytes(r->device) - before);
        gpulog_reset_peak(r->device);
        train_batch(&spec, &s->run, s->model, batch);
        note('O', NULL, 0, -1);
        need(fsdp_adamw_step(&s->adamw));
        need(fsdp_zero_grad(s->model, &s->ctx));
        note('o', NULL, 0, -1);
        trace->peak[step] = (int64_t)(gpulog_peak_bytes(r->device) - before);
        read_log(true);
        name_collectives(trace, trace->begin[step]);
    }
    trace->begin[STEPS] = trace->rows;
    times_copy(&trace->log);
    trace->live[STEPS] = (int64_t)(gpulog_live_bytes(r->device) - before);
}

static void body(const Rank *r, void *arg)
{
    Sharded s;
    Batch batch = batch_create(&spec, (uint64_t)r->rank);
    size_t before = gpulog_live_bytes(r->device);
    t.trace = (Trace *)arg + r->rank;
    t.next = gpulog_length();
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    t.stream[0] = r->stream;
    t.stream[1] = s.ctx.all_gather_stream;
    t.stream[2] = s.ctx.reduce_scatter_stream;
    wrap_units(s.model);
    train(r, &s, &batch, before);
    sharded_destroy(&s);
    batch_destroy(&batch);
}

// ---- Printing ----

static int64_t numel_of(const Param *param)
{
    int64_t n = 1;
    for (int i = 0; i < param->ndim; i++) n *= param->shape[i];
    return n;
}

// Elements of a module but for those of its blocks; the head's are the embedding's.
static int64_t own_numel(const Module *m)
{
    int64_t n = 0;
    if (strcmp(m->name, "head") == 0) return 0;
    for (int i = 0; i < m->n_params; i++) n += numel_of(m->params[i]);
    for (int i = 0; i < m->n_children; i++)
        if (strncmp(m->children[i]->name, "h.", 2) != 0) n += own_numel(m->children[i]);
    return n;
}

static void print_unit(const Module *m, const char *name, bool last)
{
    int64_t n = own_numel(m);
    printf("[\"%s\", %" PRId64 ", %" PRId64 "]%s", name, n, (n + world - 1) / world * world,
           last ? "" : ", ");
}

static void print_head(void)
{
    Module *model = spec_create(&spec);
    printf("\nTRACE {\"world\": %d, \"steps\": %d, \"units\": [", world, STEPS);
    for (int i = 0; i < model->n_children; i++)
        if (strncmp(model->children[i]->name, "h.", 2) == 0)
            print_unit(model->children[i], model->children[i]->name, false);
    print_unit(model, "root", true);
    printf("]}\n");
    module_destroy(model);
}

// A rank may have written anything to its trace: what is printed stays within it.
static int within(int value, int most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

// When a row's operations began and the last of them ended, in nanoseconds; 0, 0: it is not known.
static void print_times(const Row *row, const Times *times)
{
    int first = within(row->first, TIMES_MOST - 1), last = within(row->last, TIMES_MOST - 1);
    if (times == NULL)
        printf("0,0");
    else
        printf("%" PRId64 ",%" PRId64, times[first].begin / 1000, times[last].end / 1000);
}

static void print_row(const Row *row, const Times *times)
{
    if (row->kind == 'm') {
        printf("[\"%c\",%d]", strchr("FfBbOo", row->what) && row->what > 0 ? (char)row->what : 'o',
               row->unit);
        return;
    }
    printf("[\"%c\",%d,%d,%d,%" PRId64 ",%" PRId64 ",", row->kind, row->stream, row->what,
           row->unit, row->bytes, row->sent);
    print_times(row, times);
    printf("]");
}

static void print_step(const Trace *trace, int rank, int step, const Times *times)
{
    int begin = within(trace->begin[step], MAX_ROWS),
        end = within(trace->begin[step + 1], MAX_ROWS);
    printf("TRACE {\"rank\": %d, \"step\": %d, \"full\": %s, \"live\": [%" PRId64 ", %" PRId64
           "], \"peak\": %" PRId64 ", \"rows\": [",
           rank, step, trace->full ? "true" : "false", trace->live[step], trace->live[step + 1],
           trace->peak[step]);
    const char *comma = "";
    for (int i = begin; i < end; i++) {
        const Row *row = &trace->row[i];
        // Streams are drawn for rank 0 alone.
        if (rank > 0 && (row->kind == 'k' || row->kind == 'r' || row->kind == 'w')) continue;
        if (row->kind == 0 || strchr("+-ckrwm", row->kind) == NULL) continue;
        printf("%s", comma);
        print_row(row, times);
        comma = ",";
    }
    printf("]}\n");
}

// NULL: there are none; on standard error, why.
static Times *find_times(const Trace *books)
{
    Times *times = calloc((size_t)world * TIMES_MOST, sizeof *times);
    TimesLog *logs = calloc((size_t)world, sizeof *logs);
    assert_true(times != NULL && logs != NULL);
    for (int rank = 0; rank < world; rank++) logs[rank] = books[rank].log;
    const char *wrong = times_replay("tests/trace/picture.machine", logs, world, times);
    free(logs);
    if (wrong == NULL) return times;
    fprintf(stderr, "no times: %s\n", wrong);
    free(times);
    return NULL;
}

static void trace_steps(void)
{
    Trace *books = shared_alloc(WORLD * sizeof *books);
    const char *wanted = getenv("SHARDLAB_TRACE_WORLD");
    spec = wanted != NULL ? DEMO : SMALL;
    world = wanted != NULL ? atoi(wanted) : WORLD;
    assert_in_range(world, 1, WORLD);
    run_ranks_limit(world, 30, body, books);
    print_head();
    Times *times = find_times(books);
    for (int rank = 0; rank < world; rank++)
        for (int step = 0; step < STEPS; step++)
            print_step(&books[rank], rank, step,
                       times != NULL ? times + (size_t)rank * TIMES_MOST : NULL);
    for (int rank = 0; rank < world; rank++)
        printf("CATEGORIES {\"rank\": %d, \"unsharded\": %d, \"temporary\": %d}\n", rank,
               books[rank].unsharded, books[rank].temporary);
    fflush(stdout);
    free(times);
}

TEST(steps)
{
    trace_steps();
}

TEST(steps_without_prefetch)
{
    no_prefetch = true;
    trace_steps();
}

SUITE_MAIN("trace")
