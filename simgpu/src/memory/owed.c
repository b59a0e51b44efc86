/* owed.c: fills that an allocation owes. See owed.h.
 *
 * A block has a list of pieces, sorted and apart. It is built anew where something of it is paid,
 * cancelled or filled; most blocks have one piece, or none any more.
 *
 * Interface: sim_owed_begin, sim_owed_end, sim_owed_pay, sim_owed_cancel, sim_owed_mark,
 * sim_owed_are, sim_owed_fill.
 */
#include <stdlib.h>
#include <string.h>

#include "memory/heap.h"
#include "memory/owed.h"

#define MOST 64 // pieces of a block; what is beyond them is paid at once
// An allocation larger than WHOLE is too large to be filled: both ENDS are poison.
#define WHOLE ((size_t)1 << 30)
#define ENDS ((size_t)64 << 20)
// What is marked: so many bytes at both ends, and at distances of a page.
#define MARK ((size_t)64)
#define MARKS_APART ((size_t)4 << 10)

typedef struct List {
    SimOwed piece[3 * MOST + 4];
    int n;
} List;

static void append(List *list, SimOwed piece)
{
    SimOwed *last = list->n ? &list->piece[list->n - 1] : NULL;
    if (piece.begin >= piece.end) return;
    if (last && last->end == piece.begin && last->value == piece.value &&
        last->zeros == piece.zeros)
        last->end = piece.end;
    else
        list->piece[list->n++] = piece;
}

static void pay(const SimOwed *piece, char *at)
{
    if (piece->zeros && piece->value == 0) return;
    memset(at + piece->begin, piece->value, piece->end - piece->begin);
}

// Makes the list the block's own; what it has no room for is paid.
static void keep(SimBlock *block, char *at, const List *list)
{
    int n = list->n < MOST ? list->n : MOST;
    if (n > block->owed_room) {
        SimOwed *more = realloc(block->owed, (size_t)n * sizeof *more);
        if (more) block->owed = more;
        if (more) block->owed_room = n;
    }
    if (n > block->owed_room) n = block->owed_room;
    if (n > 0) memcpy(block->owed, list->piece, (size_t)n * sizeof *list->piece);
    block->n_owed = n;
    for (int i = n; i < list->n; i++) pay(&list->piece[i], at);
}

static SimOwed part_of(const SimOwed *piece, size_t from, size_t to)
{
    return (SimOwed){piece->begin > from ? piece->begin : from, piece->end < to ? piece->end : to,
                     piece->value, piece->zeros};
}

void sim_owed_pay(SimBlock *block, char *at, size_t from, size_t to)
{
    List list;
    list.n = 0;
    if (!block->n_owed) return;
    for (int i = 0; i < block->n_owed; i++) {
        SimOwed part = part_of(&block->owed[i], from, to);
        append(&list, part_of(&block->owed[i], 0, from));
        if (part.begin < part.end) pay(&part, at);
        append(&list, part_of(&block->owed[i], to, SIZE_MAX));
    }
    keep(block, at, &list);
}

void sim_owed_cancel(SimBlock *block, char *at, size_t from, size_t to)
{
    List list;
    list.n = 0;
    if (!block->n_owed) return;
    for (int i = 0; i < block->n_owed; i++) {
        append(&list, part_of(&block->owed[i], 0, from));
        append(&list, part_of(&block->owed[i], to, SIZE_MAX));
    }
    keep(block, at, &list);
}

static void mark(const SimOwed *piece, char *at)
{
    if (piece->zeros && piece->value == 0) return;
    for (size_t i = piece->begin; i + MARK < piece->end; i += MARKS_APART)
        memset(at + i, piece->value, MARK);
    size_t n = piece->end - piece->begin;
    if (n > MARK) n = MARK;
    memset(at + piece->end - n, piece->value, n);
}

void sim_owed_mark(SimBlock *block, char *at, size_t from, size_t to)
{
    for (int i = 0; i < block->n_owed; i++) {
        SimOwed part = part_of(&block->owed[i], from, to);
        if (part.begin < part.end) mark(&part, at);
    }
    sim_owed_cancel(block, at, from, to);
}

bool sim_owed_are(const SimBlock *block, size_t from, size_t to, unsigned char value)
{
    for (int i = 0; i < block->n_owed && from < to; i++) {
        const SimOwed *piece = &block->owed[i];
        if (piece->end <= from) continue;
        if (piece->begin > from || piece->value != value) return false;
        from = piece->end;
    }
    return from >= to;
}

bool sim_owed_fill(SimBlock *block, char *at, size_t from, size_t to, unsigned char value)
{
    List list;
    size_t done = from;
    list.n = 0;
    if (block->managed || to - from < SIM_OWED_LEAST) return false;
    for (int i = 0; i < block->n_owed; i++) {
        SimOwed part = part_of(&block->owed[i], from, to);
        append(&list, part_of(&block->owed[i], 0, from));
        if (part.begin < part.end) {
            append(&list, (SimOwed){done, part.begin, value, false});
            append(&list, (SimOwed){part.begin, part.end, value, part.zeros});
            done = part.end;
        }
        if (block->owed[i].end <= to) continue;
        append(&list, (SimOwed){done, to, value, false});
        done = to;
        append(&list, part_of(&block->owed[i], to, SIZE_MAX));
    }
    append(&list, (SimOwed){done, to, value, false});
    keep(block, at, &list);
    return true;
}

// Bytes [begin, end) of a new block: poison or nothing, on memory that is fresh from some byte on.
static void owe(List *list, const SimBlock *block, size_t begin, size_t end, bool poison)
{
    SimOwed all = {begin, end, poison ? SIM_POISON : 0, false};
    if (poison) append(list, part_of(&all, 0, block->fresh));
    all.zeros = true;
    append(list, part_of(&all, block->fresh, SIZE_MAX));
}

void sim_owed_begin(SimBlock *block, char *at, bool poison)
{
    List list;
    size_t bytes = block->asked, ends = bytes <= WHOLE ? bytes / 2 : ENDS;
    list.n = 0;
    owe(&list, block, 0, ends, poison);
    owe(&list, block, ends, bytes - ends, poison && bytes <= WHOLE);
    owe(&list, block, bytes - ends, bytes, poison);
    keep(block, at, &list);
}

void sim_owed_end(SimBlock *block)
{
    free(block->owed);
    block->owed = NULL;
    block->n_owed = block->owed_room = 0;
}
