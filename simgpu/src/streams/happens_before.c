/* happens_before.c: which operations are ordered before another one. See streams.h.
 *
 * The clock of a stream says what is done before its next operation, that of an event what is done
 * after a wait for it, and that of the host what the program knows to be done. Operation a is
 * ordered before b if b's clock covers a's number. A wait takes the larger of two clocks, element
 * by element.
 */
#include <stdlib.h>

#include "core/error.h"
#include "memory/allocation.h"
#include "memory/pinned.h"
#include "streams/handles.h"
#include "time/time.h"

SimUndone sim_undone;

void sim_join_before(const struct CUstream_st *s, SimVectorClock *clock)
{
    sim_vector_clock_join(clock, &s->clock);
    sim_vector_clock_join(clock, &sim_host_clock);
    if (s->is_default) {
        for (struct CUstream_st *o = sim_device_streams[s->device].streams; o; o = o->next)
            if (o->blocking) sim_vector_clock_join(clock, &o->clock);
    } else if (s->blocking && sim_device_streams[s->device].null) {
        sim_vector_clock_join(clock, &sim_device_streams[s->device].null->clock);
    }
}

void sim_catch_up(struct CUstream_st *s)
{
    sim_join_before(s, &s->clock);
}

void sim_await_undone(const SimVectorClock *clock, void (*tell)(GpuLogEntry *), GpuLogEntry entry)
{
    SimVectorClock copy = {0, NULL};
    const char *call = entry.name;
    const void *site = entry.site;
    if (atomic_load(&sim_undone.n) == 0) return;
    sim_vector_clock_assign(&copy, clock);
    pthread_mutex_unlock(&sim_streams_lock);
    if (tell) tell(&entry);
    void (*wait)(const SimVectorClock *, const char *, const void *) =
        atomic_load(&sim_undone.wait);
    wait(&copy, call, site);
    free(copy.t);
    pthread_mutex_lock(&sim_streams_lock);
}

bool sim_is_unready(const SimVectorClock *clock, const GpuLogEntry *query, bool known)
{
    if (sim_clock_query(query, known)) return false;
    if (atomic_load(&sim_undone.n) > 0) {
        void (*check)(const SimVectorClock *, const char *, const void *) =
            atomic_load(&sim_undone.check);
        check(clock, query->name, query->site);
    }
    return true;
}

bool sim_host_knows(const SimVectorClock *clock)
{
    return sim_vector_clock_covers(&sim_host_clock, clock);
}

bool sim_is_early(const SimVectorClock *clock, const SimVectorClock *asked)
{
    if (sim_clock_on() || sim_config()->check == CHECK_OFF) return false;
    for (int i = 0; i < clock->n; i++)
        if (clock->t[i] > sim_vector_clock_part(&sim_host_clock, i) &&
            clock->t[i] > sim_vector_clock_part(asked, i))
            return true;
    return false;
}

// A call that only passes the order on does not wait itself.
static bool only_orders(GpuOp op)
{
    return op == GPU_EVENT_RECORD || op == GPU_STREAM_WAIT || op == GPU_ALLOC || op == GPU_FREE;
}

void sim_host_joins(const SimVectorClock *clock)
{
    sim_vector_clock_join(&sim_host_clock, clock);
    sim_pinned_deliver(&sim_host_clock);
}

void sim_put_stream(GpuLogEntry *entry, struct CUstream_st *s)
{
    entry->device = s->device;
    entry->blocking_stream = s->blocking;
    entry->stream = s->is_default ? NULL : s;
    entry->stream_number = s->order;
}

cudaError_t sim_stream_begin(SimgpuOp *op)
{
    if (!sim_device(sim_current_device())) return sim_leave(cudaErrorInvalidDevice);
    SimCaptureFault fault = {.error = cudaSuccess};
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(op->entry.stream);
    if (s) {
        sim_put_stream(&op->entry, s);
        if (simgpu_captures) fault = sim_capture_operation(op, s);
    }
    if (s && !op->captured && fault.error == cudaSuccess) {
        sim_catch_up(s);
        if (!only_orders(op->entry.op))
            sim_await_undone(&s->clock, sim_clock_before_operation, op->entry);
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (!s) return sim_report_stream(op->entry.name, op->entry.stream, op->entry.site);
    if (fault.error == cudaSuccess) return cudaSuccess;
    return sim_report_capture(&fault, op->entry.name, op->entry.site);
}

void sim_stream_place(const SimgpuOp *op, int *slot, uint64_t *time)
{
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_op(op);
    *slot = sim_stream_slot(s);
    *time = s->clock.t[*slot] + 1;
    pthread_mutex_unlock(&sim_streams_lock);
}

SimOpPlace sim_op_place(const SimgpuOp *op)
{
    pthread_mutex_lock(&sim_streams_lock);
    const struct CUstream_st *s = sim_stream_of_op(op);
    SimOpPlace place = {sim_stream_id(s), s->clock.t[sim_stream_slot(s)] + 1};
    pthread_mutex_unlock(&sim_streams_lock);
    return place;
}

void sim_stream_ran(SimgpuOp *op)
{
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_op(op);
    s->clock.t[sim_stream_slot(s)]++;
    if (op->entry.host_waits) sim_host_joins(&s->clock);
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_stream_begun(const SimgpuOp *op)
{
    pthread_mutex_lock(&sim_streams_lock);
    sim_host_joins(&sim_stream_of_op(op)->clock);
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_moment_hold(const SimgpuOp *op, SimMoment *moment)
{
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_op(op);
    *moment = (SimMoment){sim_stream_id(s), s->clock.t[sim_stream_slot(s)] + 1, sim_next_order(),
                          &s->clock};
}

void sim_moment_hold_host(SimMoment *moment)
{
    pthread_mutex_lock(&sim_streams_lock);
    *moment = (SimMoment){{.slot = SIM_HOST_SLOT}, 0, sim_next_order(), &sim_host_clock};
}

void sim_stream_start(const SimgpuOp *op, SimVectorClock *start, int *slot)
{
    pthread_mutex_lock(&sim_streams_lock);
    const struct CUstream_st *s = sim_stream_of_op(op);
    *start = (SimVectorClock){0, NULL};
    sim_vector_clock_assign(start, &s->clock);
    *slot = sim_stream_slot(s);
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_stream_learn(int slot, const SimVectorClock *clock)
{
    pthread_mutex_lock(&sim_streams_lock);
    sim_vector_clock_join(&sim_stream_in_slot(slot)->clock, clock);
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_stream_will_wait(int device, cudaStream_t handle, const char *call)
{
    if (atomic_load(&sim_undone.n) == 0) return;
    GpuLogEntry entry = {.name = call};
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_on(device, handle);
    if (s) sim_put_stream(&entry, s);
    pthread_mutex_unlock(&sim_streams_lock);
    if (s) sim_clock_before_operation(&entry);
}

void sim_stream_merge(int device, cudaStream_t a, cudaStream_t b)
{
    cudaStream_t handle[2] = {a, b};
    struct CUstream_st *s[2];
    pthread_mutex_lock(&sim_streams_lock);
    for (int i = 0; i < 2; i++) {
        s[i] = sim_stream_on(device, handle[i]);
        if (s[i]) sim_catch_up(s[i]);
    }
    if (s[0] && s[1]) {
        sim_vector_clock_join(&s[0]->clock, &s[1]->clock);
        sim_vector_clock_join(&s[1]->clock, &s[0]->clock);
    }
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_stream_after_device(const SimgpuOp *op, int device)
{
    pthread_mutex_lock(&sim_streams_lock);
    SimVectorClock *clock = &sim_stream_of_op(op)->clock;
    for (struct CUstream_st *s = sim_device_streams[device].streams; s; s = s->next)
        sim_vector_clock_join(clock, &s->clock);
    if (sim_device_streams[device].null)
        sim_vector_clock_join(clock, &sim_device_streams[device].null->clock);
    sim_vector_clock_join(clock, &sim_device_streams[device].destroyed);
    sim_await_undone(clock, NULL, op->entry);
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_stream_before_device(const SimgpuOp *op, int device)
{
    pthread_mutex_lock(&sim_streams_lock);
    const SimVectorClock *clock = &sim_stream_of_op(op)->clock;
    for (struct CUstream_st *s = sim_device_streams[device].streams; s; s = s->next)
        sim_vector_clock_join(&s->clock, clock);
    if (sim_device_streams[device].null)
        sim_vector_clock_join(&sim_device_streams[device].null->clock, clock);
    sim_vector_clock_join(&sim_device_streams[device].fence, clock);
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_moment_release(void)
{
    pthread_mutex_unlock(&sim_streams_lock);
}

void sim_device_wait(int device, const char *call, const void *site)
{
    SimVectorClock all = {0, NULL};
    GpuLogEntry entry = {.op = GPU_DEVICE_SYNC, .name = call, .device = device, .site = site};
    pthread_mutex_lock(&sim_streams_lock);
    for (struct CUstream_st *s = sim_device_streams[device].streams; s; s = s->next)
        sim_vector_clock_join(&all, &s->clock);
    if (sim_device_streams[device].null)
        sim_vector_clock_join(&all, &sim_device_streams[device].null->clock);
    sim_vector_clock_join(&all, &sim_device_streams[device].destroyed);
    sim_await_undone(&all, sim_clock_before_wait, entry);
    sim_host_joins(&all);
    pthread_mutex_unlock(&sim_streams_lock);
    free(all.t);
    sim_pools_after_wait(device);
}

void sim_stream_deliver(const SimgpuOp *op)
{
    pthread_mutex_lock(&sim_streams_lock);
    sim_pinned_deliver(&sim_stream_of_op(op)->clock);
    pthread_mutex_unlock(&sim_streams_lock);
}
