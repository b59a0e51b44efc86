/* unit_names.h: what reports call the bytes of the units' buffers: "element 10 of h.0, padding".
 */
#ifndef SHARDLAB_UNIT_NAMES_H
#define SHARDLAB_UNIT_NAMES_H

#include "training.h"

// From here on reports name the elements of the flat parameters of this model's units. One model at
// a time: the last.
void unit_names_of(const Sharded *s);
// No more, before the units are taken off.
void unit_names_end(void);

#endif
