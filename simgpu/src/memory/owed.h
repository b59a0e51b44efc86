/* owed.h: what an allocation owes: bytes that are to read as poison, as a cudaMemset set them, or
 * as what an all-gather gave, and that nobody has written yet.
 *
 * Fresh memory is poison, and most of it is overwritten before anybody reads it. So the fill is
 * only noted. It is paid (the bytes are written) before an operation reads them, or may leave some
 * of them as they are; what overwrites them all cancels it. Whoever is to use bytes of an
 * allocation comes by contents.c, so nobody else sees memory that is owed: neither the other ranks,
 * whose collectives use what was given to a call here, nor the host, which has no access; managed
 * memory, to which it has, owes nothing.
 *
 * Memory that nobody has touched holds zeros already: there a fill with zeros costs nothing, not
 * even pages.
 *
 * What was gathered is *borrowed*: it lies in memory that several ranks share (nccl/lent.c), and
 * the allocation owes a copy of it. An operation that only reads may read it there. `users` counts
 * the pieces that borrow of one place, over all ranks; at 0 it may be written again.
 *
 * The caller holds the device's lock. `at` is where the block's first byte is to be written.
 */
#ifndef SIMGPU_OWED_H
#define SIMGPU_OWED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_POISON 0xff // a byte of it; four are a NaN
// Fills of fewer bytes are made at once: noting them would cost as much.
#define SIM_OWED_LEAST ((size_t)4 << 10)

struct SimBlock; // memory/heap.h

// Bytes [begin, end) of a block are to hold `value`, or what is at `lent`. `zeros`: nobody has
// touched them yet.
typedef struct SimOwed {
    size_t begin, end;
    unsigned char value;
    bool zeros;
    const char *lent;        // NULL: nothing is borrowed
    _Atomic uint32_t *users; // of the place that it is borrowed of
} SimOwed;

// A block was just taken: it owes nothing, or poison.
void sim_owed_begin(struct SimBlock *block, char *at, bool poison);
void sim_owed_end(struct SimBlock *block); // it is given back
// Bytes [from, to) will be read, or written in part: they are made to hold what they owe.
void sim_owed_pay(struct SimBlock *block, char *at, size_t from, size_t to);
// They will be overwritten, all of them, before anybody reads them.
void sim_owed_cancel(struct SimBlock *block, char *at, size_t from, size_t to);
// The same on the word of a kernel, which may break it: what they owe is written in places, so that
// bytes left out do not go unnoticed.
void sim_owed_mark(struct SimBlock *block, char *at, size_t from, size_t to);
// Whether all of them are to be filled with `value`.
bool sim_owed_are(const struct SimBlock *block, size_t from, size_t to, unsigned char value);
// They hold what is at `lent` from here on: one of its users is theirs now.
void sim_owed_borrow(struct SimBlock *block, char *at, size_t from, size_t to, const char *lent,
                     _Atomic uint32_t *users);
// Where bytes [from, to) are to be read, if all of them are borrowed as one; else NULL.
const char *sim_owed_borrowed(const struct SimBlock *block, size_t from, size_t to);
// What is borrowed is paid.
void sim_owed_return(struct SimBlock *block, char *at);
// They are overwritten with `value`, later; false: not here.
bool sim_owed_fill(struct SimBlock *block, char *at, size_t from, size_t to, unsigned char value);

#endif
