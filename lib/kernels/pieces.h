/* pieces.h: how much of an array, or how many rows of a matrix, are worth one more thread
 * (simgpu_parallel). It depends on the shape alone, since results must not depend on threads.
 */
#ifndef SHARDLAB_PIECES_H
#define SHARDLAB_PIECES_H

#include <stddef.h>

// Numbers of an array: 64 KiB of floats. A multiple of TYPED_BLOCK, so that blocks are the same
// whatever the pieces.
#define PIECE ((size_t)16384)

// Rows of `cols` numbers each.
static inline size_t piece_rows(size_t cols)
{
    return cols == 0 || cols >= PIECE ? 1 : PIECE / cols;
}

// Columns of `rows` numbers each, for sums over rows: whole cache lines of floats, and enough of
// each row to be worth the access to its page.
static inline size_t piece_cols(size_t rows)
{
    const size_t line = 16, least = 32;
    size_t cols = rows == 0 || rows >= PIECE ? 1 : PIECE / rows;
    return cols < least ? least : cols / line * line;
}

#endif
