/* share_gpu.h: more ranks than devices on a host, when SHARE_GPU=1 allows it. */
#ifndef SHARDLAB_SHARE_GPU_H
#define SHARDLAB_SHARE_GPU_H

#include "launch.h"

// Reads SHARE_GPU: 1 is yes; 0, empty or not set is no; anything else is ERR_ARGUMENT. So is, with
// 1, a SHARE_GPU_LIMIT that is not a number of seconds.
Status share_gpu_wanted(bool *wanted);
// The end of a sentence that advises a user who has too few devices: share them; with simgpu, also
// to simulate more, if it can have so many and CUDA_VISIBLE_DEVICES does not restrict them.
const char *share_gpu_advice(int ranks);

// Before the first NCCL call of a rank that shares one of `devices` devices with others: tells NCCL
// to allow it, and begins the time limit.
Status share_gpu_begin(const World *world, int devices);
// Ends the time limit when it has been called as often as share_gpu_begin. Does nothing if no
// device is shared.
void share_gpu_end(void);

#endif
