/* box_muller.h: normal numbers from random words (Box and Muller 1958). Given code: no task changes
 * it.
 *
 * The values of a model must be bitwise equal wherever they are made, and the C library's log, cos
 * and sin differ in their last bits from one library to another. So this code has its own
 * polynomials, and uses only conversions, sums, products, quotients and square roots in a fixed
 * order, each of which IEEE 754 defines to the last bit.
 */
#ifndef SHARDLAB_BOX_MULLER_H
#define SHARDLAB_BOX_MULLER_H

#include <stddef.h>
#include <stdint.h>

// Makes n blocks of four independent normals (mean 0, variance 1) from n blocks of four random
// words: words (4n), out (4n), which do not overlap. In a block words 0,1 make elements 0,1 and
// words 2,3 make elements 2,3: words a, b make r·cos φ and r·sin φ, where r = √(-2·ln u),
// u = (a + 1) / 2³² and φ = 2π·b / 2³². Each is off by at most 0.51 units in the last place, at
// most 6.661 in magnitude, and bitwise equal on every machine and for every n.
//
// Many blocks in one call take a sixth of the time of one call for each.
void box_muller4(const uint32_t *words, float *out, size_t n);

#endif
