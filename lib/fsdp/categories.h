/* categories.h: tells the log what the units' memory is for (gpulog_category). */
#ifndef SHARDLAB_FSDP_CATEGORIES_H
#define SHARDLAB_FSDP_CATEGORIES_H

#include "fsdp.h"

// Call the first when the root's units have their shards, the second when the root is freed.
void categories_add(const FsdpRoot *root);
void categories_remove(const FsdpRoot *root);

#endif
