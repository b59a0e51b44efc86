/* share_gpu.h: more ranks than devices on a host, when SHARE_GPU=1 allows it. */
#ifndef SHARDLAB_SHARE_GPU_H
#define SHARDLAB_SHARE_GPU_H

#include "launch.h"

// What SHARE_GPU says: 1 is yes; 0, nothing or not set is no; anything else is ERR_ARGUMENT, and so
// is, with 1, a SHARE_GPU_LIMIT that makes no sense.
Status share_gpu_wanted(bool *wanted);

// Before the first NCCL call of a rank that shares one of `devices` devices with others: tells NCCL
// to allow it, and begins the time limit.
Status share_gpu_begin(const World *world, int devices);
// The time limit is off when this has come as often as share_gpu_begin. Does nothing where nobody
// shares.
void share_gpu_end(void);

#endif
