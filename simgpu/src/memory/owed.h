/* owed.h: bytes that an allocation *owes*: they are to read as poison, as the value of a
 * cudaMemset, or as the result of an all-gather, and are not written yet.
 *
 * Fresh memory is poison, and most of it is overwritten before it is read. So the fill is only
 * noted. It is *paid* (the bytes are written) before an operation reads them or may leave some of
 * them as they are; an operation that overwrites all of them cancels it. Every use of bytes of an
 * allocation goes through contents.c, so nothing sees bytes that are owed: not the other ranks,
 * whose collectives use what a call here was given, and not the host, which has no access. Managed
 * memory, to which the host has access, owes nothing.
 *
 * Memory that was never touched holds zeros already: there a fill with zeros costs nothing, not
 * even pages.
 *
 * Gathered bytes are *borrowed*: they are in memory that several ranks share (nccl/lent.c), and the
 * allocation owes a copy of them. An operation that only reads may read them there. `users` counts
 * the pieces that borrow from one place, over all ranks; at 0 it may be written again.
 *
 * The caller holds the device's lock. `at` is the address of the block's first byte.
 */
#ifndef SIMGPU_OWED_H
#define SIMGPU_OWED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_POISON 0xff // a byte of it; four are a NaN
// Fills of fewer bytes are written at once: a note would cost as much.
#define SIM_OWED_LEAST ((size_t)4 << 10)

struct SimBlock; // memory/heap.h

// Bytes [begin, end) of a block are to hold `value`, or the bytes at `lent`. `zeros`: they were
// never touched.
typedef struct SimOwed {
    size_t begin, end;
    unsigned char value;
    bool zeros;
    const char *lent;        // NULL: nothing is borrowed
    _Atomic uint32_t *users; // of the place from which it borrows
} SimOwed;

// A block was just allocated: it owes nothing, or poison.
void sim_owed_begin(struct SimBlock *block, char *at, bool poison);
void sim_owed_end(struct SimBlock *block); // it is freed
// Bytes [from, to) will be read, or written in part: pays what they owe.
void sim_owed_pay(struct SimBlock *block, char *at, size_t from, size_t to);
// All of them will be overwritten before they are read: cancels what they owe.
void sim_owed_cancel(struct SimBlock *block, char *at, size_t from, size_t to);
// The same, when a kernel only claims to overwrite them: first writes what they owe in some places,
// so that bytes that the kernel leaves out are found.
void sim_owed_mark(struct SimBlock *block, char *at, size_t from, size_t to);
// Whether all of them owe `value`.
bool sim_owed_are(const struct SimBlock *block, size_t from, size_t to, unsigned char value);
// From now on they borrow the bytes at `lent`: they are one of its users.
void sim_owed_borrow(struct SimBlock *block, char *at, size_t from, size_t to, const char *lent,
                     _Atomic uint32_t *users);
// Where bytes [from, to) can be read, if all of them are borrowed together; else NULL.
const char *sim_owed_borrowed(const struct SimBlock *block, size_t from, size_t to);
// Pays all that is borrowed.
void sim_owed_return(struct SimBlock *block, char *at);
// From now on they owe `value`; false: they do not, and the caller must write it.
bool sim_owed_fill(struct SimBlock *block, char *at, size_t from, size_t to, unsigned char value);

#endif
