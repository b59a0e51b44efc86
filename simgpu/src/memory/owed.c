/* owed.c: bytes of an allocation that are still to be written. See owed.h.
 *
 * A block has a sorted list of pieces that do not overlap. The list is rebuilt when a part of it is
 * paid, cancelled or filled; most blocks have one piece or none.
 */
#include <stdlib.h>
#include <string.h>

#include "memory/heap.h"
#include "memory/owed.h"

#define MOST 64 // pieces of a block; more are paid at once
// An allocation larger than WHOLE is too large to fill: only its two ENDS are poison.
#define WHOLE ((size_t)1 << 30)
#define ENDS ((size_t)64 << 20)
// The marks of a kernel's promise: so many bytes at both ends, and at distances of a page.
#define MARK ((size_t)64)
#define MARKS_APART ((size_t)4 << 10)

typedef struct List {
    SimOwed piece[3 * MOST + 4];
    int n;
} List;

// Whether the second piece begins where the first one ends, and is like it.
static bool goes_on(const SimOwed *a, const SimOwed *b)
{
    if (a->end != b->begin || a->users != b->users) return false;
    return a->lent || (a->value == b->value && a->zeros == b->zeros);
}

static void append(List *list, SimOwed piece)
{
    SimOwed *last = list->n ? &list->piece[list->n - 1] : NULL;
    if (piece.begin >= piece.end) return;
    if (last && goes_on(last, &piece))
        last->end = piece.end;
    else
        list->piece[list->n++] = piece;
}

static void pay(const SimOwed *piece, char *at)
{
    size_t bytes = piece->end - piece->begin;
    if (piece->lent)
        memcpy(at + piece->begin, piece->lent, bytes);
    else if (!piece->zeros || piece->value != 0)
        memset(at + piece->begin, piece->value, bytes);
}

// Ends the borrowing of all pieces of the block.
static void give_back(const SimBlock *block)
{
    for (int i = 0; i < block->n_owed; i++)
        if (block->owed[i].lent) atomic_fetch_sub(block->owed[i].users, 1);
}

// Gives the block the list; pieces for which it has no room are paid.
static void keep(SimBlock *block, char *at, const List *list)
{
    int n = list->n < MOST ? list->n : MOST;
    if (n > block->owed_room) {
        SimOwed *more = realloc(block->owed, (size_t)n * sizeof *more);
        if (more) block->owed = more;
        if (more) block->owed_room = n;
    }
    if (n > block->owed_room) n = block->owed_room;
    for (int i = n; i < list->n; i++) pay(&list->piece[i], at);
    // Adds the new users before it removes the old ones: at 0 the place may be reused.
    for (int i = 0; i < n; i++)
        if (list->piece[i].lent) atomic_fetch_add(list->piece[i].users, 1);
    give_back(block);
    if (n > 0) memcpy(block->owed, list->piece, (size_t)n * sizeof *list->piece);
    block->n_owed = n;
}

static SimOwed part_of(const SimOwed *piece, size_t from, size_t to)
{
    SimOwed part = *piece;
    if (part.begin < from) part.begin = from;
    if (part.end > to) part.end = to;
    if (part.lent) part.lent += part.begin - piece->begin;
    return part;
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

// Borrowed bytes are no poison, which would show by itself: they are paid.
static void mark(const SimOwed *piece, char *at)
{
    if (piece->lent) pay(piece, at);
    if (piece->lent || (piece->zeros && piece->value == 0)) return;
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
        if (piece->begin > from || piece->lent || piece->value != value) return false;
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
            append(&list, (SimOwed){done, part.begin, value, false, NULL, NULL});
            append(&list, (SimOwed){part.begin, part.end, value, part.zeros, NULL, NULL});
            done = part.end;
        }
        if (block->owed[i].end <= to) continue;
        append(&list, (SimOwed){done, to, value, false, NULL, NULL});
        done = to;
        append(&list, part_of(&block->owed[i], to, SIZE_MAX));
    }
    append(&list, (SimOwed){done, to, value, false, NULL, NULL});
    keep(block, at, &list);
    return true;
}

void sim_owed_borrow(SimBlock *block, char *at, size_t from, size_t to, const char *lent,
                     _Atomic uint32_t *users)
{
    List list;
    SimOwed piece = {from, to, 0, false, lent, users};
    bool done = false;
    list.n = 0;
    for (int i = 0; i < block->n_owed; i++) {
        append(&list, part_of(&block->owed[i], 0, from));
        if (!done && block->owed[i].end > from) append(&list, piece);
        done = done || block->owed[i].end > from;
        append(&list, part_of(&block->owed[i], to, SIZE_MAX));
    }
    if (!done) append(&list, piece);
    keep(block, at, &list);
    atomic_fetch_sub(users, 1); // the piece has its own
}

const char *sim_owed_borrowed(const SimBlock *block, size_t from, size_t to)
{
    for (int i = 0; i < block->n_owed; i++) {
        const SimOwed *piece = &block->owed[i];
        if (piece->lent && piece->begin <= from && to <= piece->end)
            return piece->lent + (from - piece->begin);
    }
    return NULL;
}

void sim_owed_return(SimBlock *block, char *at)
{
    List list;
    list.n = 0;
    for (int i = 0; i < block->n_owed; i++) {
        const SimOwed *piece = &block->owed[i];
        if (piece->lent)
            pay(piece, at);
        else
            append(&list, *piece);
    }
    if (block->n_owed) keep(block, at, &list);
}

// Bytes [begin, end) of a new block owe poison or nothing; the memory is fresh from some byte on.
static void owe(List *list, const SimBlock *block, size_t begin, size_t end, bool poison)
{
    SimOwed all = {begin, end, poison ? SIM_POISON : 0, false, NULL, NULL};
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
    give_back(block);
    free(block->owed);
    block->owed = NULL;
    block->n_owed = block->owed_room = 0;
}
