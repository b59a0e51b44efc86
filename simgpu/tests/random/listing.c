/* listing.c: a random program as text that could be pasted into a C file.
 *
 * Interface: print_program, print_witness (program.h).
 */
#include "program.h"

static const char *const buffer_names[ALL_BUFFERS] = {"a", "b", "c", "d",     "e",
                                                      "f", "g", "h", "pinned"};
static const char *const event_names[N_EVENTS] = {"p", "q", "r"};

static const char *stream_name(int stream)
{
    return stream_facts[stream].name;
}

// "a + 12"
static const char *place(const Span *s, char text[16])
{
    if (s->begin)
        snprintf(text, 16, "%s + %d", buffer_names[s->buffer], s->begin);
    else
        snprintf(text, 16, "%s", buffer_names[s->buffer]);
    return text;
}

static void print_kernel(FILE *out, const Step *s)
{
    char a[16], b[16], c[16];
    int n = s->span[0].bytes / 4;
    const char *call = kind_facts[s->kind].call, *stream = stream_name(s->stream);
    place(&s->span[0], a);
    place(&s->span[1], b);
    place(&s->span[2], c);
    if (s->kind == ADD)
        fprintf(out, "%s(F(%s), F(%s), %d, %s);", call, a, b, n, stream);
    else if (s->kind == SUM2)
        fprintf(out, "%s(F(%s), F(%s), F(%s), %d, %s);", call, a, b, c, n, stream);
    else
        fprintf(out, "%s(F(%s), 1, %d, %s);", call, a, n, stream);
}

static void print_memory_call(FILE *out, const Step *s)
{
    char a[16], b[16], tail[40] = "";
    const Span *x = &s->span[0], *y = &s->span[1];
    const char *call = kind_facts[s->kind].call;
    if (!kind_facts[s->kind].legacy_only)
        snprintf(tail, sizeof tail, ", %s", stream_name(s->stream));
    place(x, a);
    place(y, b);
    switch (s->kind) {
    case MEMSET_ASYNC:
    case MEMSET: fprintf(out, "%s(%s, 0, %d%s);", call, a, x->bytes, tail); break;
    case MEMSET_2D_ASYNC:
        fprintf(out, "%s(%s, %d, 0, %d, %d%s);", call, a, x->pitch, x->bytes, x->rows, tail);
        break;
    case COPY_ASYNC:
    case COPY:
    case SEND_PINNED_ASYNC:
    case SEND_PINNED:
    case FETCH_PINNED_ASYNC:
    case FETCH_PINNED:
        fprintf(out, "%s(%s, %s, %d, cudaMemcpyDefault%s);", call, a, b, x->bytes, tail);
        break;
    case COPY_2D_ASYNC:
    case COPY_2D:
        fprintf(out, "%s(%s, %d, %s, %d, %d, %d, cudaMemcpyDefault%s);", call, a, x->pitch, b,
                y->pitch, x->bytes, x->rows, tail);
        break;
    case PEER_ASYNC:
    case PEER:
        fprintf(out, "%s(%s, %d, %s, %d, %d%s);", call, a, buffer_device[x->buffer], b,
                buffer_device[y->buffer], x->bytes, tail);
        break;
    case SEND_ASYNC:
    case SEND:
        fprintf(out, "%s(%s, pageable, %d, cudaMemcpyDefault%s);", call, a, x->bytes, tail);
        break;
    default: fprintf(out, "%s(pageable, %s, %d, cudaMemcpyDefault%s);", call, a, x->bytes, tail);
    }
}

static void print_collective(FILE *out, const Step *s)
{
    char a[16], b[16];
    fprintf(out, "ncclGroupStart();");
    for (int r = 0; r < N_DEVICES; r++) {
        const Span *send = &s->span[2 * r], *recv = &s->span[2 * r + 1];
        int count = (s->kind == REDUCE_SCATTER ? recv : send)->bytes / 4;
        fprintf(out, " %s(F(%s), F(%s), %d, ncclFloat, %scomm[%d], %s);", kind_facts[s->kind].call,
                place(send, a), place(recv, b), count,
                s->kind == BROADCAST    ? "0, "
                : s->kind == ALL_GATHER ? ""
                                        : "ncclSum, ",
                r, stream_name(r ? s->other_stream : s->stream));
    }
    fprintf(out, " ncclGroupEnd();");
}

static void print_message(FILE *out, const Step *s)
{
    char a[16];
    bool sends = s->kind == MESSAGE_SEND;
    fprintf(out, "%s(F(%s), %d, ncclFloat, %d, comm[%d], %s);", kind_facts[s->kind].call,
            place(&s->span[0], a), s->span[0].bytes / 4, sends, !sends, stream_name(s->stream));
}

static void print_order(FILE *out, const Step *s)
{
    const char *call = kind_facts[s->kind].call;
    switch (s->kind) {
    case RECORD:
        fprintf(out, "%s(%s, %s);", call, event_names[s->event], stream_name(s->stream));
        break;
    case WAIT:
        fprintf(out, "%s(%s, %s, 0);", call, stream_name(s->stream), event_names[s->event]);
        break;
    case EVENT_ASK:
    case EVENT_SYNC: fprintf(out, "%s(%s);", call, event_names[s->event]); break;
    case EVENT_QUERY: fprintf(out, "while (%s(%s)) continue;", call, event_names[s->event]); break;
    case STREAM_QUERY:
        fprintf(out, "while (%s(%s)) continue;", call, stream_name(s->stream));
        break;
    case DEVICE_SYNC: fprintf(out, "%s();", call); break;
    default: fprintf(out, "%s(%s);", call, stream_name(s->stream));
    }
}

static void print_step(FILE *out, const Step *s)
{
    const char *call = kind_facts[s->kind].call;
    if (is_collective(s->kind))
        print_collective(out, s);
    else if (is_message(s->kind))
        print_message(out, s);
    else if (kind_facts[s->kind].orders)
        print_order(out, s);
    else if (s->kind <= SUM2)
        print_kernel(out, s);
    else if (s->kind == ALLOC_ASYNC)
        fprintf(out, "%s(&%s, %d, %s);", call, buffer_names[s->span[0].buffer], BUFFER_BYTES,
                stream_name(s->stream));
    else if (s->kind == FREE_ASYNC)
        fprintf(out, "%s(%s, %s);", call, buffer_names[s->span[0].buffer], stream_name(s->stream));
    else if (s->kind == FREE)
        fprintf(out, "%s(%s);", call, buffer_names[s->span[0].buffer]);
    else
        print_memory_call(out, s);
}

void print_program(FILE *out, const Program *p)
{
    int device = 0;
    if (p->rank != ALL_RANKS)
        fprintf(out, "// what rank %d does, in a process of its own\n", p->rank);
    fprintf(out,
            "// a, b, c, d: %d bytes each on device 0; e, f on device 1; F(x) is (float *)(x)\n"
            "// streams: blocking_*: cudaStreamDefault, free_*: cudaStreamNonBlocking\n",
            BUFFER_BYTES);
    for (int i = 0; i < p->n; i++) {
        int due = p->rank != ALL_RANKS ? p->rank : device_of(&p->step[i]);
        if (due != device) fprintf(out, "        cudaSetDevice(%d);\n", due);
        device = due;
        fprintf(out, "/* %2d */ ", i);
        if (p->step[i].thread) fprintf(out, "/* in thread %d */ ", p->step[i].thread);
        print_step(out, &p->step[i]);
        fprintf(out, "\n");
    }
}

void print_witness(FILE *out, const Program *p, const Verdict *v)
{
    if (v->n == 0) return;
    fprintf(out, "the oracle's racing pairs:");
    for (int i = 0; i < v->n; i++)
        fprintf(out, " %d-%d%s", v->pair[i].a, v->pair[i].b,
                v->pair[i].lifetime ? " (lifetime)" : "");
    fprintf(out, "\nas an example, when the steps");
    for (int i = 0; i < v->n_order; i++) fprintf(out, " %d", v->order[i]);
    fprintf(out, "%s are done (and no other work),\n%d and %d can run in either order or at once\n",
            v->n_order ? "" : " (none)", v->pair[0].a, v->pair[0].b);
}
