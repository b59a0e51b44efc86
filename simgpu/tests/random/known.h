/* known.h: programs written by hand, and what the oracle must say of them, for random.c. */
#ifndef RANDOM_KNOWN_H
#define RANDOM_KNOWN_H

#include "program.h"

typedef struct Known {
    const char *what;
    bool races;
    int n;
    Step step[6];
} Known;

// Whole spans; byte ranges of a dozen bytes.
#define SPAN(buffer, begin, bytes)                                                                 \
    {                                                                                              \
        {                                                                                          \
            buffer, begin, bytes, 1, bytes                                                         \
        }                                                                                          \
    }
// A step on a stream, one that touches a whole span, and the one that most programs are about.
#define ON(kind_, on)                                                                              \
    {                                                                                              \
        .kind = kind_, .stream = on                                                                \
    }
#define TOUCHES(kind_, on, ...)                                                                    \
    {                                                                                              \
        .kind = kind_, .stream = on, .span = SPAN(__VA_ARGS__)                                     \
    }
#define WRITES(on) TOUCHES(MEMSET_ASYNC, on, 0, 0, 8)

enum {
    NULL_0 = 0,
    MINE = 1,
    BLOCK_A = 2,
    BLOCK_B = 3,
    FREE_C = 4,
    FREE_D = 5,
    NULL_1 = 6,
    FREE_F = 8
};

// A program with a race, and one without.
#define STEPS(...)                                                                                 \
    (int)(sizeof((Step[]){__VA_ARGS__}) / sizeof(Step)),                                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define RACES(what_, ...)                                                                          \
    {                                                                                              \
        what_, true, STEPS(__VA_ARGS__)                                                            \
    }
#define ORDERED(what_, ...)                                                                        \
    {                                                                                              \
        what_, false, STEPS(__VA_ARGS__)                                                           \
    }

static const Known known[] = {
    RACES("two streams write the same byte", WRITES(FREE_C),
          TOUCHES(MEMSET_ASYNC, FREE_D, 0, 7, 8)),
    ORDERED("two streams write neighbours", WRITES(FREE_C), TOUCHES(MEMSET_ASYNC, FREE_D, 0, 8, 8)),
    ORDERED("one stream", WRITES(FREE_C), WRITES(FREE_C)),
    RACES("two blocking streams", WRITES(BLOCK_A), WRITES(BLOCK_B)),
    ORDERED("the default stream behind a blocking one", WRITES(BLOCK_A), WRITES(NULL_0)),
    ORDERED("a blocking stream behind the default one", WRITES(NULL_0), WRITES(MINE)),
    RACES("the default stream and a non-blocking one", WRITES(NULL_0), WRITES(FREE_C)),
    ORDERED("two blocking streams with the default stream between", WRITES(BLOCK_A),
            TOUCHES(MEMSET_ASYNC, NULL_0, 0, 32, 8), WRITES(BLOCK_B)),
    RACES("default streams of two devices", WRITES(NULL_0), WRITES(NULL_1)),
    ORDERED("an event", WRITES(FREE_C), ON(RECORD, FREE_C), ON(WAIT, FREE_D), WRITES(FREE_D)),
    RACES("an event recorded too early", ON(RECORD, FREE_C), WRITES(FREE_C), ON(WAIT, FREE_D),
          WRITES(FREE_D)),
    RACES("a wait before the record", WRITES(FREE_C), ON(WAIT, FREE_D), ON(RECORD, FREE_C),
          WRITES(FREE_D)),
    RACES("a wait for the event's first record", ON(RECORD, FREE_C), ON(WAIT, FREE_D),
          WRITES(FREE_C), ON(RECORD, FREE_C), WRITES(FREE_D)),
    RACES("a record taken away by another stream's", WRITES(FREE_C), ON(RECORD, FREE_C),
          ON(RECORD, FREE_D), ON(WAIT, FREE_D), WRITES(FREE_D)),
    ORDERED("the host waits for the stream", WRITES(FREE_C), ON(STREAM_SYNC, FREE_C),
            WRITES(FREE_D)),
    RACES("the host waits for the wrong stream", WRITES(FREE_C), ON(STREAM_SYNC, FREE_D),
          WRITES(FREE_D)),
    RACES("the host waits for another device", WRITES(FREE_C), {.kind = DEVICE_SYNC, .device = 1},
          WRITES(FREE_D)),
    RACES("a query whose answer is ignored", WRITES(FREE_C), ON(STREAM_ASK, FREE_C),
          WRITES(FREE_D)),
    ORDERED("the second query finds it done", WRITES(FREE_C), ON(STREAM_ASK, FREE_C),
            ON(STREAM_ASK, FREE_C), WRITES(FREE_D)),
    RACES("new work between two queries", WRITES(FREE_C), ON(STREAM_ASK, FREE_C),
          TOUCHES(MEMSET_ASYNC, FREE_C, 0, 16, 8), ON(STREAM_ASK, FREE_C), WRITES(FREE_D)),
    RACES("a query about what the host has waited for, and one about new work",
          ON(STREAM_SYNC, FREE_C), ON(STREAM_ASK, FREE_C), WRITES(FREE_C), ON(STREAM_ASK, FREE_C),
          WRITES(FREE_D)),
    RACES("a query about an event, whose answer is ignored", WRITES(FREE_C), ON(RECORD, FREE_C),
          {.kind = EVENT_ASK}, WRITES(FREE_D)),
    ORDERED("the second query about an event", WRITES(FREE_C), ON(RECORD, FREE_C),
            {.kind = EVENT_ASK}, {.kind = EVENT_ASK}, WRITES(FREE_D)),
    RACES("an event recorded again between two queries", WRITES(FREE_C), ON(RECORD, FREE_C),
          {.kind = EVENT_ASK}, ON(RECORD, FREE_C), {.kind = EVENT_ASK}, WRITES(FREE_D)),
    RACES("cudaMemcpy from pageable memory, behind a non-blocking stream", WRITES(FREE_C),
          TOUCHES(SEND, NULL_0, 0, 0, 8)),
    RACES("cudaMemcpy from pageable memory may still run", TOUCHES(SEND, NULL_0, 0, 0, 8),
          WRITES(FREE_C)),
    ORDERED("cudaMemcpy from pageable memory waits for the default stream", WRITES(NULL_0),
            TOUCHES(SEND, NULL_0, 0, 16, 8), WRITES(FREE_C)),
    ORDERED("cudaMemcpy from pinned memory is done", TOUCHES(SEND_PINNED, NULL_0, 0, 0, 8),
            WRITES(FREE_C)),
    ORDERED("columns side by side",
            {.kind = MEMSET_2D_ASYNC, .stream = FREE_C, .span = {{0, 0, 4, 4, 8}}},
            {.kind = MEMSET_2D_ASYNC, .stream = FREE_D, .span = {{0, 4, 4, 4, 8}}}),
    RACES("columns that share a byte",
          {.kind = MEMSET_2D_ASYNC, .stream = FREE_C, .span = {{0, 0, 5, 4, 8}}},
          {.kind = MEMSET_2D_ASYNC, .stream = FREE_D, .span = {{0, 4, 4, 4, 8}}}),
    RACES("memory used on another stream than its allocation's",
          TOUCHES(ALLOC_ASYNC, FREE_C, 6, 0, 64), TOUCHES(MEMSET_ASYNC, FREE_D, 6, 0, 8)),
    RACES("memory freed beside its use", TOUCHES(ALLOC_ASYNC, FREE_C, 6, 0, 64),
          TOUCHES(MEMSET_ASYNC, FREE_C, 6, 0, 8), TOUCHES(FREE_ASYNC, FREE_D, 6, 0, 64)),
    ORDERED("cudaFree waits for the device", WRITES(FREE_C),
            {.kind = FREE, .span = SPAN(0, 0, 64)}),
    RACES("cudaFree of stream-ordered memory does not", TOUCHES(ALLOC_ASYNC, FREE_C, 6, 0, 64),
          TOUCHES(MEMSET_ASYNC, FREE_C, 6, 0, 8), {.kind = FREE, .span = SPAN(6, 0, 64)}),
    RACES("cudaFree does not wait for another device",
          {.kind = PEER_ASYNC, .stream = FREE_F, .span = {{4, 0, 8, 1, 8}, {0, 0, 8, 1, 8}}},
          {.kind = FREE, .span = SPAN(0, 0, 64)}),
    ORDERED("cudaMemcpyPeer after all work of both devices", WRITES(FREE_C),
            {.kind = PEER, .stream = NULL_1, .span = {{4, 0, 8, 1, 8}, {0, 0, 8, 1, 8}}}),
    ORDERED("all work behind cudaMemcpyPeer",
            {.kind = PEER, .stream = NULL_1, .span = {{4, 0, 8, 1, 8}, {0, 0, 8, 1, 8}}},
            WRITES(FREE_C)),
    RACES("cudaMemcpyPeer lets the host go on",
          {.kind = PEER, .stream = NULL_1, .span = {{4, 0, 8, 1, 8}, {0, 0, 8, 1, 8}}},
          TOUCHES(ALLOC_ASYNC, FREE_C, 6, 0, 64), TOUCHES(MEMSET_ASYNC, FREE_C, 6, 0, 8),
          {.kind = FREE, .span = SPAN(6, 0, 64)}),
    RACES("a destroyed stream's work goes on", WRITES(FREE_C), ON(DESTROY, FREE_C), WRITES(FREE_D)),
    RACES("the default stream does not know of a destroyed one", WRITES(BLOCK_A),
          ON(DESTROY, BLOCK_A), WRITES(NULL_0)),
    ORDERED("to wait for the device is to wait for destroyed streams", WRITES(FREE_C),
            ON(DESTROY, FREE_C), {.kind = DEVICE_SYNC}, WRITES(FREE_D)),
    RACES("two copies into the same pinned bytes",
          {.kind = FETCH_PINNED_ASYNC,
           .stream = FREE_C,
           .span = {{PINNED, 0, 8, 1, 8}, {0, 0, 8, 1, 8}}},
          {.kind = FETCH_PINNED_ASYNC,
           .stream = FREE_D,
           .span = {{PINNED, 7, 8, 1, 8}, {0, 0, 8, 1, 8}}}),
    ORDERED("a blocking stream waited for, and with it the default stream", WRITES(NULL_0),
            ON(STREAM_SYNC, BLOCK_A), WRITES(FREE_D)),
    RACES("memory used behind its free", TOUCHES(FREE_ASYNC, FREE_C, 0, 0, 64), WRITES(FREE_C)),
    ORDERED("ranks wait for each other", WRITES(FREE_C),
            {.kind = ALL_REDUCE,
             .stream = FREE_C,
             .other_stream = FREE_F,
             .span = {{0, 32, 4, 1, 4}, {0, 36, 4, 1, 4}, {4, 0, 4, 1, 4}, {4, 4, 4, 1, 4}}},
            ON(STREAM_SYNC, FREE_F), WRITES(FREE_D)),
    RACES("a broadcast's root waits for nobody", TOUCHES(MEMSET_ASYNC, FREE_F, 4, 16, 8),
          {.kind = BROADCAST,
           .stream = FREE_C,
           .other_stream = FREE_F,
           .span = {{0, 32, 4, 1, 4}, {0, 36, 4, 1, 4}, {4, 0, 4, 1, 4}, {4, 4, 4, 1, 4}}},
          ON(STREAM_SYNC, FREE_C), TOUCHES(MEMSET_ASYNC, FREE_C, 4, 16, 8)),
    ORDERED("a receive waits for its send", WRITES(FREE_C), TOUCHES(MESSAGE_SEND, FREE_C, 0, 32, 4),
            TOUCHES(MESSAGE_RECV, FREE_F, 4, 0, 4), ON(STREAM_SYNC, FREE_F), WRITES(FREE_D)),
    RACES("a send waits for nobody", TOUCHES(MEMSET_ASYNC, FREE_F, 4, 16, 8),
          TOUCHES(MESSAGE_SEND, FREE_C, 0, 32, 4), TOUCHES(MESSAGE_RECV, FREE_F, 4, 0, 4),
          ON(STREAM_SYNC, FREE_C), TOUCHES(MEMSET_ASYNC, FREE_C, 4, 16, 8)),
    RACES("what is sent is read until its stream has come past it",
          TOUCHES(MESSAGE_SEND, FREE_C, 0, 0, 8), WRITES(FREE_D),
          TOUCHES(MESSAGE_RECV, FREE_F, 4, 0, 8)),
};

// Programs in which the host would wait for a message before it comes to the receive, and such in
// which it would not.
static const struct {
    const char *what;
    bool waits;
    Step between;
} held_up[] = {
    {"work behind the send", true, WRITES(FREE_C)},
    {"work on another stream", false, WRITES(FREE_D)},
    {"the wrong stream is waited for", false, ON(STREAM_SYNC, FREE_D)},
    {"the stream is waited for", true, ON(STREAM_SYNC, FREE_C)},
    {"the device is waited for", true, {.kind = DEVICE_SYNC, .device = 0}},
    {"the other device is waited for", false, {.kind = DEVICE_SYNC, .device = 1}},
    {"a record", false, ON(RECORD, FREE_C)},
    {"the stream is destroyed", false, ON(DESTROY, FREE_C)},
};

#endif
