/* params.h: parameters that are not treated as the others: frozen, or without decay. */
#ifndef EXAMPLES_PARAMS_H
#define EXAMPLES_PARAMS_H

#include "nn.h"
#include "per_parameter.h"

#define Status CHECKED_STATUS // as check.h says

// Freezes the parameters whose names fit one of the shell's patterns, by commas: "embed.*,h.0.*".
// ERR_ARGUMENT for a pattern that none fits, or where nothing would be left to train.
Status params_freeze(Module *model, const char *patterns);

// Weight decay for matrices alone: neither biases nor the weights of normalisations have some.
extern const ParamGroups PARAMS_DECAY_MATRICES;

#undef Status

#endif
