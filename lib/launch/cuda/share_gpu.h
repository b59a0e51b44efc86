/* share_gpu.h: more ranks than devices on a host, when SHARE_GPU=1 allows it. */
#ifndef SHARDLAB_SHARE_GPU_H
#define SHARDLAB_SHARE_GPU_H

#include "launch.h"

// What SHARE_GPU says: 1 is yes; 0, nothing or not set is no; anything else is ERR_ARGUMENT, and so
// is, with 1, a SHARE_GPU_LIMIT that makes no sense.
Status share_gpu_wanted(bool *wanted);
// Advice for who has too few devices, as the end of a sentence: to share, and with simgpu more
// devices, if it can have so many and CUDA_VISIBLE_DEVICES does not say which of them are seen.
const char *share_gpu_advice(int ranks);

// Before the first NCCL call of a rank that shares one of `devices` devices with others: tells NCCL
// to allow it, and begins the time limit.
Status share_gpu_begin(const World *world, int devices);
// The time limit is off when this has come as often as share_gpu_begin. Does nothing where nobody
// shares.
void share_gpu_end(void);

#endif
