/* narrow.h: a model without FSDP that computes in bf16 or fp16, for oracles of mixed precision: its
 * parameters are what a test rounds, its gradients what it gets back. No cast of lib/kernels has a
 * part in it (half_numbers.h rounds).
 */
#ifndef TESTS_NARROW_H
#define TESTS_NARROW_H

#include "half_numbers.h"
#include "training.h"

// n numbers on the device: zeros; floats rounded to them; and as floats, which the caller frees.
void *alloc_typed(DType type, size_t n);
void send_typed(DType type, void *device, const float *x, size_t n);
float *fetch_typed(DType type, const void *device, size_t n);

typedef struct Narrow {
    Module *model;
    DType type;
    size_t n;          // elements of all parameters
    void *data, *grad; // device (n): parameters and gradients, back to back
} Narrow;

// Takes the model, which computes in `type` from now on; gradients are zero.
void narrow_create(Narrow *w, Module *model, DType type);
void narrow_destroy(Narrow *w);
// Its parameters are the masters (n), rounded.
void narrow_load(Narrow *w, const float *masters);
void narrow_zero(Narrow *w);
// Forward, loss and backward of spec->B sequences, whose tokens' losses count `scale` each; adds to
// the gradients. A float input and the loss's gradient are rounded on the way.
void narrow_pass(Narrow *w, NnRun *run, const Spec *spec, const Batch *batch, float scale);
float *narrow_grads(const Narrow *w); // host (n); free it

#endif
