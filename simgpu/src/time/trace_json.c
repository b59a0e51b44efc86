/* time/trace_json.c: a trace as Chrome's JSON, one object a line. Numbers are written without the C
 * library's formats, because a program's locale may have a decimal comma.
 *
 * A point is a slice of length 0 here, since arrows only connect slices.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "time/trace_format.h"

__attribute__((format(printf, 2, 3))) static void put(TraceBuffer *b, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) b->full = true;
    if (!b->full) sim_trace_bytes(b, text, (size_t)n);
}

static void put_string(TraceBuffer *b, const char *text)
{
    put(b, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') put(b, "\\");
        if ((unsigned char)*text < ' ')
            put(b, "\\u%04x", (unsigned)*text);
        else
            sim_trace_bytes(b, text, 1);
    }
    put(b, "\"");
}

// Thousandths: "12.345".
static void put_thousandths(TraceBuffer *b, uint64_t n)
{
    put(b, "%llu.%03u", (unsigned long long)(n / 1000), (unsigned)(n % 1000));
}

static void put_place(TraceBuffer *b, char phase, const TraceTrack *track, uint64_t ns)
{
    put(b, "{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u,\"ts\":", phase, (unsigned)track->pid,
        (unsigned)track->tid);
    put_thousandths(b, ns);
}

static void put_track(TraceBuffer *b, const TraceTrack *t)
{
    if (t->kind == TRACE_COUNTER) return; // it needs no declaration
    put(b, "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"%s_name\",\"args\":{\"name\":",
        (unsigned)t->pid, (unsigned)t->tid, t->kind == TRACE_PROCESS ? "process" : "thread");
    put_string(b, t->name);
    put(b, "}}");
}

static void put_notes(TraceBuffer *b, const TraceEvent *e)
{
    put(b, ",\"args\":{");
    for (int i = 0; i < e->n_notes; i++) {
        const TraceNote *note = &e->note[i];
        if (i > 0) put(b, ",");
        put_string(b, note->name);
        put(b, ":");
        switch (note->kind) {
        case TRACE_TEXT: put_string(b, note->text); break;
        case TRACE_COUNT: put(b, "%llu", (unsigned long long)note->count); break;
        case TRACE_REAL: put_thousandths(b, (uint64_t)(note->real * 1000 + 0.5)); break;
        }
    }
    put(b, "}");
}

static void put_flow(TraceBuffer *b, const TraceEvent *e)
{
    char phase = e->flow == TRACE_FLOW_STARTS ? 's' : e->flow == TRACE_FLOW_ENDS ? 'f' : 't';
    put(b, ",\n");
    put_place(b, phase, e->track, e->ns);
    put(b, ",\"bp\":\"e\",\"cat\":");
    put_string(b, e->category);
    put(b, ",\"name\":\"flow\",\"id\":\"0x%llx\"}", (unsigned long long)e->flow_id);
}

static void put_begin(TraceBuffer *b, const TraceEvent *e)
{
    put_place(b, 'B', e->track, e->ns);
    put(b, ",\"cat\":");
    put_string(b, e->category);
    put(b, ",\"name\":");
    put_string(b, e->name);
    put_notes(b, e);
    put(b, "}");
    if (e->flow != TRACE_NO_FLOW) put_flow(b, e);
}

static void put_end(TraceBuffer *b, const TraceEvent *e)
{
    put_place(b, 'E', e->track, e->ns);
    put(b, "}");
}

static void put_point(TraceBuffer *b, const TraceEvent *e)
{
    put_begin(b, e);
    put(b, ",\n");
    put_end(b, e);
}

static void put_counter(TraceBuffer *b, const TraceTrack *track, uint64_t ns, uint64_t value)
{
    put_place(b, 'C', track, ns);
    put(b, ",\"name\":");
    put_string(b, track->name);
    put(b, ",\"args\":{\"bytes\":%llu}}", (unsigned long long)value);
}

const TraceFormat sim_trace_json = {"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n",
                                    ",\n",
                                    "\n]}\n",
                                    put_track,
                                    put_begin,
                                    put_end,
                                    put_point,
                                    put_counter};
