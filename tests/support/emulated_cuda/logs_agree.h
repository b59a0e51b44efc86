/* logs_agree.h: on emulated CUDA two parties keep a log of the same calls, each by itself: simgpu,
 * in the part of NVIDIA's libraries, and the interposer in front of it. They must agree.
 *
 * inner_gpulog_* are simgpu's own log, while gpulog_* are the interposer's.
 */
#ifndef SHARDLAB_LOGS_AGREE_H
#define SHARDLAB_LOGS_AGREE_H

#include "gpulog.h"

__typeof__(gpulog_length) inner_gpulog_length;
__typeof__(gpulog_get) inner_gpulog_get;
__typeof__(gpulog_traffic) inner_gpulog_traffic;
__typeof__(gpulog_reset_traffic) inner_gpulog_reset_traffic;
__typeof__(gpulog_live_bytes) inner_gpulog_live_bytes;
__typeof__(gpulog_peak_bytes) inner_gpulog_peak_bytes;
__typeof__(gpulog_reset_peak) inner_gpulog_reset_peak;
__typeof__(gpulog_own_code) inner_gpulog_own_code;
__typeof__(gpulog_name_stream) inner_gpulog_name_stream;
__typeof__(gpulog_name_elements) inner_gpulog_name_elements;

// Whether both logs of this process hold the same: every entry, traffic, live and peak bytes.
// False: text holds the first difference.
bool logs_agree(char *text, size_t size);

// For a process whose threads make calls at the same time, which each of the two may write down in
// another order: from here on only each thread's own order is compared, and not the peak, which
// depends on the order between threads.
void logs_in_any_order(void);

#endif
