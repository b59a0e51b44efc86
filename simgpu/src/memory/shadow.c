/* shadow.c: the map of one allocation: which bytes were written, and the last accesses to each.
 *
 * The bytes are in sorted pieces without gaps. All bytes of a piece have the same history: written
 * or not, and the same accesses. An access cuts pieces at its borders, is compared with the
 * accesses of each piece, is added to them, and joins neighbours that have become equal. Finding
 * the first piece takes time logarithmic in the number of pieces; then each piece of the range is
 * visited once.
 *
 * An access without gaps touches consecutive bytes. Of such accesses a piece keeps the last write
 * and the reads since then, except reads that are ordered before a later read. An access that waits
 * for the later read has waited for the earlier one, so the earlier one can be dropped (as in
 * FastTrack, Flanagan and Freund 2009). An access with gaps (the columns of a matrix) is added to
 * every piece from its first byte to its last, and replaces only accesses of its own shape. Whether
 * it shares a byte with another access follows from the two shapes (`meet`).
 */
#include <stdlib.h>
#include <string.h>

#include "core/tree.h"
#include "memory/shadow.h"

// Accesses of a piece, at most. With more, the oldest is dropped, and a race may be missed.
#define MOST_MARKS 64
// A write with more rows than this counts as a write of its gaps, too.
#define ROWS_TOLD_APART 64
#define MOST_STEPS 65536 // of the comparison of two shapes
#define FEW_MARKS 3      // this many marks need no malloc

// ---- Shapes ----

SimShape sim_plain_shape(size_t bytes)
{
    return (SimShape){bytes, 1, bytes, 1, bytes};
}

static void swap(size_t *a, size_t *b)
{
    size_t old = *a;
    *a = *b;
    *b = old;
}

SimShape sim_shape(size_t width, size_t rows, size_t pitch, size_t blocks, size_t stride)
{
    if (width == 0 || rows == 0 || blocks == 0) return sim_plain_shape(0);
    if (pitch == 0) rows = 1;
    if (stride == 0) blocks = 1;
    if (rows == 1 || (blocks > 1 && stride < pitch)) {
        swap(&rows, &blocks);
        swap(&pitch, &stride);
    }
    if (rows > 1 && pitch <= width) {
        width += (rows - 1) * pitch;
        rows = blocks;
        pitch = stride;
        blocks = 1;
        if (rows > 1 && pitch <= width) {
            width += (rows - 1) * pitch;
            rows = 1;
        }
    }
    if (blocks > 1 && stride == rows * pitch) {
        rows *= blocks;
        blocks = 1;
    }
    if (rows == 1) pitch = width;
    if (blocks == 1) stride = (rows - 1) * pitch + width;
    return (SimShape){width, rows, pitch, blocks, stride};
}

static size_t block_bytes(const SimShape *s)
{
    return (s->rows - 1) * s->pitch + s->width;
}

size_t sim_shape_bytes(const SimShape *s)
{
    return (s->blocks - 1) * s->stride + block_bytes(s);
}

bool sim_shape_has_gaps(const SimShape *s)
{
    return s->rows > 1 || s->blocks > 1;
}

// next_in_shape for a shape of one block.
static size_t next_in_block(const SimShape *s, size_t begin, size_t from)
{
    if (from <= begin) return begin;
    size_t row = (from - begin) / s->pitch;
    if (row >= s->rows) row = s->rows - 1;
    size_t start = begin + row * s->pitch;
    if (from - start < s->width) return from;
    return row + 1 < s->rows ? start + s->pitch : SIZE_MAX;
}

// The first byte at or after `from` of a shape that begins at `begin`; SIZE_MAX: there is none.
static size_t next_in_shape(const SimShape *s, size_t begin, size_t from)
{
    if (s->blocks == 1 || from <= begin) return next_in_block(s, begin, from);
    // Blocks may overlap: try all from the first that ends after `from` to the first that begins at
    // or after it.
    size_t ahead = from - begin, length = block_bytes(s), best = SIZE_MAX;
    size_t block = ahead < length ? 0 : (ahead - length) / s->stride + 1;
    for (; block < s->blocks; block++) {
        size_t start = begin + block * s->stride, found = next_in_block(s, start, from);
        if (found < best) best = found;
        if (start >= from) break;
    }
    return best;
}

// Whether both touch a byte of [from, to), and the first such byte. `from` moves to the next byte
// of one shape, then to the next of the other, until both have it.
static bool meet(const SimAccess *a, const SimAccess *b, size_t from, size_t to, size_t *at)
{
    for (int step = 0; step < MOST_STEPS; step++) {
        size_t x = next_in_shape(&a->shape, a->begin, from);
        if (x >= to) return false;
        from = next_in_shape(&b->shape, b->begin, x);
        if (from >= to) return false;
        if (from == x) {
            *at = x;
            return true;
        }
    }
    return false;
}

// ---- Pieces ----

// An access that a piece remembers.
typedef struct Mark {
    SimAccess *access;
    int told; // the slot of the last stream whose conflict with this access was reported, or -1
} Mark;

typedef struct Piece {
    SimTreeNode node; // key: the first byte
    struct Piece *prev, *next;
    size_t end;
    bool written;
    int n, room;
    Mark *mark; // points at `few` or at memory of malloc; the oldest mark first
    Mark few[FEW_MARKS];
} Piece;

// Pieces and accesses come and go with each operation: unused ones are kept here.
struct SimSpare {
    Piece *piece;      // a list by `next`, each with its room for marks
    SimAccess *access; // a list by `spare`
};

struct SimShadow {
    SimTreeNode *places;
    Piece *recent; // touched last
    size_t bytes;
    SimSpare *spare;
};

static size_t begin_of(const Piece *piece)
{
    return piece->node.key;
}

static SimAccess *hold(SimAccess *access)
{
    access->refs++;
    return access;
}

static SimAccess *new_access(SimSpare *spare, const SimAccess *given)
{
    SimAccess *access = spare->access;
    if (access)
        spare->access = access->spare;
    else
        access = malloc(sizeof *access);
    if (!access) return NULL;
    *access = *given;
    access->refs = 1;
    return access;
}

static void release(SimSpare *spare, SimAccess *access)
{
    if (--access->refs > 0) return;
    access->spare = spare->access;
    spare->access = access;
}

static Piece *new_piece(SimSpare *spare)
{
    Piece *piece = spare->piece;
    if (piece) {
        spare->piece = piece->next;
        return piece;
    }
    piece = malloc(sizeof *piece);
    if (!piece) return NULL;
    piece->mark = piece->few;
    piece->room = FEW_MARKS;
    return piece;
}

static void destroy_piece(SimSpare *spare, Piece *piece)
{
    for (int i = 0; i < piece->n; i++) release(spare, piece->mark[i].access);
    piece->next = spare->piece;
    spare->piece = piece;
}

static Piece *add_piece(SimShadow *shadow, size_t begin, size_t end, bool written, Piece *prev)
{
    Piece *piece = new_piece(shadow->spare);
    if (!piece) return NULL;
    piece->node = (SimTreeNode){.key = begin};
    piece->end = end;
    piece->written = written;
    piece->n = 0;
    piece->prev = prev;
    piece->next = NULL;
    if (prev) {
        piece->next = prev->next;
        prev->next = piece;
    }
    if (piece->next) piece->next->prev = piece;
    sim_tree_insert(&shadow->places, &piece->node);
    return piece;
}

SimShadow *sim_shadow_create(size_t bytes, bool written, SimSpare **spare)
{
    if (!*spare) *spare = calloc(1, sizeof **spare);
    SimShadow *shadow = *spare ? calloc(1, sizeof *shadow) : NULL;
    if (!shadow) return NULL;
    shadow->bytes = bytes;
    shadow->spare = *spare;
    shadow->recent = add_piece(shadow, 0, bytes, written, NULL);
    if (shadow->recent) return shadow;
    free(shadow);
    return NULL;
}

static Piece *piece_at(SimShadow *shadow, size_t at)
{
    // The rows of a matrix are looked up one after another: try the recent piece, and the one after
    // the gap.
    const Piece *recent = shadow->recent;
    for (int i = 0; i < 2 && recent && at >= begin_of(recent); i++, recent = recent->next)
        if (at < recent->end) return (Piece *)recent;
    return SIM_TREE_OWNER(sim_tree_floor(shadow->places, at), Piece, node);
}

void sim_shadow_destroy(SimShadow *shadow)
{
    if (!shadow) return;
    for (Piece *piece = piece_at(shadow, 0); piece;) {
        Piece *next = piece->next;
        destroy_piece(shadow->spare, piece);
        piece = next;
    }
    free(shadow);
}

// Makes room for n marks in all; false: no memory.
static bool make_room(Piece *piece, int n)
{
    if (n <= piece->room) return true;
    bool few = piece->mark == piece->few;
    int room = 2 * n;
    Mark *mark = realloc(few ? NULL : piece->mark, (size_t)room * sizeof *mark);
    if (!mark) return false;
    if (few) memcpy(mark, piece->few, sizeof piece->few);
    piece->mark = mark;
    piece->room = room;
    return true;
}

// The piece that begins at `at`, cut there if necessary; without memory, the whole piece.
static Piece *cut(SimShadow *shadow, size_t at)
{
    Piece *piece = piece_at(shadow, at);
    if (begin_of(piece) == at) return piece;
    Piece *rest = add_piece(shadow, at, piece->end, piece->written, piece);
    if (!rest) return piece;
    piece->end = at;
    if (!make_room(rest, piece->n)) return rest;
    rest->n = piece->n;
    for (int i = 0; i < piece->n; i++) {
        rest->mark[i] = piece->mark[i];
        hold(rest->mark[i].access);
    }
    return rest;
}

static bool alike(const Piece *a, const Piece *b)
{
    if (a->written != b->written || a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->mark[i].access != b->mark[i].access || a->mark[i].told != b->mark[i].told)
            return false;
    return true;
}

// Joins equal pieces, from the one before `begin` to the one after `end`.
static void tidy(SimShadow *shadow, size_t begin, size_t end)
{
    Piece *piece = piece_at(shadow, begin);
    if (piece->prev) piece = piece->prev;
    shadow->recent = piece; // it remains: joining destroys only later pieces
    while (piece->next && begin_of(piece) <= end) {
        Piece *next = piece->next;
        if (!alike(piece, next)) {
            piece = next;
            continue;
        }
        sim_tree_remove(&shadow->places, &next->node);
        piece->end = next->end;
        piece->next = next->next;
        if (piece->next) piece->next->prev = piece;
        destroy_piece(shadow->spare, next);
    }
}

// Cuts the pieces at begin and end, and returns the first piece of [begin, end). There is nothing
// to cut at the end of the map.
static Piece *cut_out(SimShadow *shadow, size_t begin, size_t end)
{
    shadow->recent = cut(shadow, begin);
    if (end < shadow->bytes) cut(shadow, end);
    return shadow->recent;
}

// ---- Touches ----

static bool covers(const SimVectorClock *clock, const SimAccess *access)
{
    int slot = access->stream.slot; // the host's slot is in no clock
    return slot < 0 || (slot < clock->n && clock->t[slot] >= access->time);
}

static bool writes(const SimAccess *access)
{
    return access->access != GPU_READ;
}

static void note_conflict(SimFinding *finding, const SimAccess *first, size_t begin, size_t end)
{
    bool same = finding->conflict && finding->first.stream.slot == first->stream.slot &&
                finding->first.time == first->time;
    if (same && begin == finding->end) finding->end = end;
    if (finding->conflict) return;
    finding->conflict = true;
    finding->first = *first;
    finding->begin = begin;
    finding->end = end;
}

static void compare(Piece *piece, const SimAccess *access, const SimVectorClock *clock,
                    SimFinding *finding)
{
    for (int i = 0; i < piece->n; i++) {
        Mark *mark = &piece->mark[i];
        const SimAccess *first = mark->access;
        if (first->stream.slot == access->stream.slot || !(writes(first) || writes(access)) ||
            covers(clock, first))
            continue;
        size_t at = begin_of(piece);
        bool gaps = sim_shape_has_gaps(&first->shape) || sim_shape_has_gaps(&access->shape);
        if (gaps && !meet(access, first, at, piece->end, &at)) continue;
        if (mark->told != access->stream.slot)
            note_conflict(finding, first, at, gaps ? at + 1 : piece->end);
        mark->told = access->stream.slot;
    }
}

static void look_for_unwritten(const Piece *piece, const SimAccess *access, SimFinding *finding)
{
    if (!(access->access & GPU_READ)) return;
    size_t at = next_in_shape(&access->shape, access->begin, begin_of(piece));
    if (at >= piece->end) return;
    if (piece->written) {
        finding->some_written = true;
        return;
    }
    if (!finding->unwritten) finding->unwritten_from = at;
    finding->unwritten += sim_shape_has_gaps(&access->shape) ? 1 : piece->end - at;
}

static bool same_shape(const SimAccess *a, const SimAccess *b)
{
    return a->begin == b->begin && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0;
}

// Whether the piece can forget `first` when it gets `access`.
static bool replaces(const SimAccess *access, const SimAccess *first, const SimVectorClock *clock)
{
    bool gaps = sim_shape_has_gaps(&access->shape);
    if (gaps && !same_shape(access, first)) return false;
    if (writes(access) && !gaps) return true; // it has just been compared with all
    bool ordered = first->stream.slot == access->stream.slot || covers(clock, first);
    return ordered && (writes(access) || !writes(first));
}

static void remember(SimSpare *spare, Piece *piece, SimAccess *access, const SimVectorClock *clock)
{
    int kept = 0;
    for (int i = 0; i < piece->n; i++) {
        if (replaces(access, piece->mark[i].access, clock))
            release(spare, piece->mark[i].access);
        else
            piece->mark[kept++] = piece->mark[i];
    }
    piece->n = kept;
    if (piece->n == MOST_MARKS) {
        release(spare, piece->mark[0].access);
        memmove(piece->mark, piece->mark + 1, (size_t)--piece->n * sizeof *piece->mark);
    }
    if (make_room(piece, piece->n + 1)) piece->mark[piece->n++] = (Mark){hold(access), -1};
}

static void set_written(SimShadow *shadow, size_t begin, size_t end, bool written)
{
    for (Piece *p = cut_out(shadow, begin, end); p && begin_of(p) < end; p = p->next)
        p->written = written;
}

// Marks the rows as written, and not their gaps, unless there are very many rows.
static void set_rows_written(SimShadow *shadow, const SimAccess *access)
{
    const SimShape *s = &access->shape;
    size_t begin = access->begin, end = begin + sim_shape_bytes(s);
    if (s->rows * s->blocks > ROWS_TOLD_APART) {
        set_written(shadow, begin, end, true);
        return;
    }
    for (size_t block = 0; block < s->blocks; block++)
        for (size_t row = 0; row < s->rows; row++) {
            size_t at = begin + block * s->stride + row * s->pitch;
            set_written(shadow, at, at + s->width, true);
        }
}

void sim_shadow_touch(SimShadow *shadow, const SimAccess *given, const SimVectorClock *clock,
                      SimFinding *finding)
{
    size_t begin = given->begin, end = begin + sim_shape_bytes(&given->shape);
    if (begin >= end || end > shadow->bytes) return;
    SimAccess *access = new_access(shadow->spare, given);
    if (!access) return;
    for (Piece *p = cut_out(shadow, begin, end); p && begin_of(p) < end; p = p->next) {
        compare(p, access, clock, finding);
        look_for_unwritten(p, access, finding);
        remember(shadow->spare, p, access, clock);
    }
    if (access->op == GPU_ALLOC)
        set_written(shadow, begin, end, false);
    else if (writes(access))
        set_rows_written(shadow, access);
    release(shadow->spare, access);
    tidy(shadow, begin, end);
    shadow->recent = piece_at(shadow, begin);
}

void sim_shadow_set_written(SimShadow *shadow, size_t begin, size_t bytes, bool written)
{
    if (bytes == 0 || begin > shadow->bytes || bytes > shadow->bytes - begin) return;
    set_written(shadow, begin, begin + bytes, written);
    tidy(shadow, begin, begin + bytes);
    shadow->recent = piece_at(shadow, begin);
}

bool sim_shadow_unwritten(SimShadow *shadow, size_t begin, size_t end, size_t *from, size_t *to)
{
    if (begin >= end || end > shadow->bytes) return false;
    for (Piece *p = piece_at(shadow, begin); p && begin_of(p) < end; p = p->next) {
        if (p->written) continue;
        *from = begin_of(p) > begin ? begin_of(p) : begin;
        *to = p->end < end ? p->end : end;
        return true;
    }
    return false;
}
