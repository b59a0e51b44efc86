/* categories.h: what the units' memory is for, told to the log (gpulog_category). */
#ifndef SHARDLAB_FSDP_CATEGORIES_H
#define SHARDLAB_FSDP_CATEGORIES_H

#include "fsdp.h"

// The root's units have their shards from here on; and the root is gone.
void categories_add(const FsdpRoot *root);
void categories_remove(const FsdpRoot *root);

#endif
