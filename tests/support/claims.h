/* claims.h: what FSDP promises, each promise as a test body. Suites call them with other models and
 * worlds.
 */
#ifndef CLAIMS_H
#define CLAIMS_H

#include "training.h"

// The same data on every rank: after `steps` of AdamW the parameters are those of one GPU without
// FSDP, within `bound` (0: bitwise equal); for world 1 the losses too, bitwise.
void claim_same_data(Spec spec, int world, int steps, float bound);

// The same with SGD instead of AdamW, and the bound on the distance of all parameters relative to
// their norm.
void claim_same_data_sgd(Spec spec, int world, int steps, float bound);

// Different data on each rank, against one process that computes the micro-batches' gradients one
// after the other: the first step's gradient within 1e-6 of its norm of their plain sum / W; the
// parameters after `steps` of AdamW bitwise where the process sums in the collective's tree
// order.
void claim_different_data(Spec spec, int world, int steps);

// Different data on each rank: the first step's gradient alone, within 1e-6 of its norm.
void claim_first_gradient(Spec spec, int world);

// Padding of parameters, gradients and moments is zero after init, every backward and every step.
void claim_padding(Spec spec, int world);

// Live bytes are exactly 16·padded/W, before and after training.
void claim_live_bytes(Spec spec, int world);

// The peak of a forward alone, and of a whole step, is bounded by shards, activations, and the
// root's and two units' buffers, whatever the depth.
void claim_forward_peak(Spec spec, int world);
void claim_peak(Spec spec, int world);

// Bytes each rank sends in a step: 4·(2 or 3)·(W-1)/W·padded, for reshard_after_forward off and on.
void claim_traffic(Spec spec, int world);

// reshard_after_forward on and off: the same bits, fewer bytes, a higher peak.
void claim_reshard(Spec spec, int world, int steps);

#endif
