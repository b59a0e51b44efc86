/* stream.c: the cudaStream* calls, except those that queue something (runtime/stream_calls.c).
 *
 * Interface: cudaStreamCreate, cudaStreamCreateWithFlags, cudaStreamCreateWithPriority,
 * cudaStreamDestroy, cudaStreamSynchronize, cudaStreamQuery, cudaStreamGetFlags,
 * cudaStreamGetPriority, cudaStreamGetDevice,
 * cudaStreamGetId.
 */
#include <stdlib.h>

#include "core/error.h"
#include "memory/allocation.h"
#include "report/hooks.h"
#include "streams/handles.h"
#include "time/time.h"

static int streams_made;

static cudaError_t create_stream(cudaStream_t *stream, unsigned flags, int priority,
                                 const void *site)
{
    if (!stream || (flags & ~(unsigned)cudaStreamNonBlocking))
        return sim_leave(cudaErrorInvalidValue);
    int device = sim_current_device();
    if (!sim_device(device)) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_make(device, flags, priority);
    if (s) sim_stream_link(s);
    if (s) {
        gpulog_forget_stream(s); // a name that the handle got while it had no stream
        s->site = site;
        s->number = ++streams_made;
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (!s) return sim_leave(cudaErrorMemoryAllocation);
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
    SIM_ENTER();
    return create_stream(pStream, cudaStreamDefault, 0, SIM_SITE);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    SIM_ENTER();
    return create_stream(pStream, flags, 0, SIM_SITE);
}

// As documented, a priority outside the range becomes the nearest one in it.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    SIM_ENTER();
    return create_stream(pStream, flags,
                         priority > 0    ? 0
                         : priority < -5 ? -5
                                         : priority,
                         SIM_SITE);
}

// As documented, the stream's remaining work is still done. No call can wait for it by the stream
// any more, but cudaDeviceSynchronize does.
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    bool own = s && s == stream;
    int device = own ? s->device : 0;
    uint32_t number = own ? s->order : 0;
    if (own) sim_capture_stream_ends(s);
    if (own) sim_stream_end(s);
    if (own) s->destroyed = SIM_SITE;
    pthread_mutex_unlock(&sim_streams_lock);
    if (own) sim_clock_forget_stream(device, number);
    return own ? cudaSuccess : sim_report_stream("cudaStreamDestroy", stream, SIM_SITE);
}

// The stream's clock does not move: else a query would order what waits for the stream.
static bool is_stream_early(struct CUstream_st *s)
{
    SimVectorClock before = {0, NULL};
    sim_join_before(s, &before);
    bool early = sim_is_early(&before, &s->asked);
    if (early) sim_vector_clock_join(&s->asked, &before);
    free(before.t);
    return early;
}

// Whether a query of a stream is too early by the virtual clock. False: there is no clock, or no
// such stream.
static bool is_stream_unready(GpuLogEntry entry, cudaStream_t stream)
{
    if (!sim_clock_on()) return false;
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    SimVectorClock before = {0, NULL};
    bool known = false;
    if (s) {
        sim_join_before(s, &before);
        known = sim_host_knows(&before);
        sim_put_stream(&entry, s);
    }
    pthread_mutex_unlock(&sim_streams_lock);
    bool unready = s && sim_is_unready(&before, &entry, known);
    free(before.t);
    return unready;
}

// The host waits for a stream: cudaStreamSynchronize, and a query that finds it done.
static cudaError_t wait_for_stream(const char *call, cudaStream_t stream, bool query,
                                   const void *site)
{
    SIM_ENTER_AS(call, site);
    if (!sim_device(sim_current_device())) return sim_leave(cudaErrorInvalidDevice);
    GpuLogEntry entry = {.op = GPU_STREAM_SYNC, .name = call, .host_waits = true, .site = site};
    SimCaptureFault fault = {.error = cudaSuccess};
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    if (s && simgpu_captures) fault = sim_capture_wait_stream(s);
    pthread_mutex_unlock(&sim_streams_lock);
    if (fault.error != cudaSuccess) return sim_report_capture(&fault, call, site);
    if (simgpu_captures && sim_unsafe_hook(call, site) != cudaSuccess) return cudaPeekAtLastError();
    if (query && is_stream_unready(entry, stream)) return sim_leave(cudaErrorNotReady);
    pthread_mutex_lock(&sim_streams_lock);
    s = sim_stream_of_handle(stream);
    bool idle = false, early = false;
    if (s && query) early = is_stream_early(s);
    if (s && !early) {
        sim_catch_up(s);
        idle = sim_host_knows(&s->clock);
        sim_put_stream(&entry, s);
        sim_await_undone(&s->clock, sim_clock_before_wait, entry);
        sim_host_joins(&s->clock);
        sim_note((SimNote){.kind = NOTE_HOST_WAIT, .stream = sim_stream_id(s), .site = site});
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (!s) return sim_report_stream(call, stream, site);
    if (early) return sim_leave(cudaErrorNotReady);
    if (!query) sim_pools_after_wait(entry.device);
    for (const SimHooks *hooks = sim_hooks(); idle && hooks; hooks = hooks->next)
        if (hooks->idle_wait) hooks->idle_wait(call, stream, site);
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return wait_for_stream("cudaStreamSynchronize", stream, false, SIM_SITE);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return wait_for_stream("cudaStreamQuery", stream, true, SIM_SITE);
}

// Copies the properties of a stream for a query; false: there is no such stream.
static bool copy_of(cudaStream_t handle, struct CUstream_st *seen)
{
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(handle);
    if (s) *seen = *s;
    pthread_mutex_unlock(&sim_streams_lock);
    return s != NULL;
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!flags) return sim_leave(cudaErrorInvalidValue);
    if (!copy_of(hStream, &s)) return sim_report_stream("cudaStreamGetFlags", hStream, SIM_SITE);
    *flags = s.flags;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!priority) return sim_leave(cudaErrorInvalidValue);
    if (!copy_of(hStream, &s)) return sim_report_stream("cudaStreamGetPriority", hStream, SIM_SITE);
    *priority = s.priority;
    return cudaSuccess;
}

// The number of a stream, which no later stream gets.
cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long *streamId)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!streamId) return sim_leave(cudaErrorInvalidValue);
    if (!copy_of(hStream, &s)) return sim_report_stream("cudaStreamGetId", hStream, SIM_SITE);
    *streamId = s.order + 1ull;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int *device)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    if (!copy_of(hStream, &s)) return sim_report_stream("cudaStreamGetDevice", hStream, SIM_SITE);
    *device = s.device;
    return cudaSuccess;
}
