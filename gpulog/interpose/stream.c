/* stream.c: streams, and the host's waits for streams and devices.
 *
 * What the log needs of a stream is noted when the program makes it. For other streams, CUDA tells
 * whether they are blocking and, from 12.8 on, their device.
 *
 * Interface: stream_facts, stream_reset; the wrapped cudaStream*, cudaDeviceSynchronize,
 * cudaDeviceReset, cudaSetDevice, cudaLaunchHostFunc, cudaStreamAddCallback.
 */
#include "interpose.h"

__typeof__(cudaGetLastError) __real_cudaGetLastError;
WRAPPED(cudaStreamCreate);
WRAPPED(cudaStreamCreateWithFlags);
WRAPPED(cudaStreamCreateWithPriority);
WRAPPED(cudaStreamDestroy);
WRAPPED(cudaStreamSynchronize);
WRAPPED(cudaStreamQuery);
WRAPPED(cudaDeviceSynchronize);
WRAPPED(cudaDeviceReset);
WRAPPED(cudaSetDevice);
WRAPPED(cudaLaunchHostFunc);
WRAPPED(cudaStreamAddCallback);

static Table streams = EMPTY_TABLE;

// Streams are numbered as they are made, a device's default stream when the device is first used.
static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t numbered, of_default[GPULOG_DEVICES];

static uint32_t number_of_default(int device)
{
    if (device < 0 || device >= GPULOG_DEVICES) return 0;
    pthread_mutex_lock(&numbers_lock);
    if (of_default[device] == 0) of_default[device] = ++numbered;
    uint32_t number = of_default[device];
    pthread_mutex_unlock(&numbers_lock);
    return number;
}

static uint32_t next_number(int device)
{
    number_of_default(device);
    pthread_mutex_lock(&numbers_lock);
    uint32_t number = ++numbered;
    pthread_mutex_unlock(&numbers_lock);
    return number;
}

uint32_t stream_next_number(int device)
{
    return next_number(device);
}

static Known ask_stream(cudaStream_t stream, int current)
{
    unsigned int flags = cudaStreamDefault;
    Known known = {.key = stream, .device = current};
    if (cudaStreamGetFlags(stream, &flags) != cudaSuccess) __real_cudaGetLastError();
#if CUDART_VERSION >= 12080
    if (cudaStreamGetDevice(stream, &known.device) != cudaSuccess) __real_cudaGetLastError();
#endif
    known.blocking = !(flags & cudaStreamNonBlocking);
    return known;
}

// The default stream is NULL in the log, whatever name the call used. Each thread has a stream of
// its own under the name cudaStreamPerThread: in the log all threads share one.
void stream_facts(GpuLogEntry *entry, cudaStream_t stream, int current)
{
    bool is_default = stream == NULL || stream == cudaStreamLegacy;
    Known known = {.device = current, .blocking = true};
    if (!is_default && stream != cudaStreamPerThread && !table_find(&streams, stream, &known))
        known = ask_stream(stream, current);
    entry->stream = is_default ? NULL : stream;
    entry->device = known.device;
    entry->blocking_stream = known.blocking;
    entry->stream_number = is_default ? number_of_default(known.device) : known.number;
}

static cudaError_t note_stream(cudaError_t made, const cudaStream_t *stream, unsigned int flags)
{
    if (made != cudaSuccess) return made;
    gpulog_forget_stream(*stream); // drops a name that the handle got while no stream had it
    table_put(&streams, (Known){.key = *stream,
                                .device = current_device(),
                                .number = next_number(current_device()),
                                .blocking = !(flags & cudaStreamNonBlocking)});
    return made;
}

cudaError_t __wrap_cudaStreamCreate(cudaStream_t *pStream)
{
    return note_stream(__real_cudaStreamCreate(pStream), pStream, cudaStreamDefault);
}

cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    return note_stream(__real_cudaStreamCreateWithFlags(pStream, flags), pStream, flags);
}

cudaError_t __wrap_cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags,
                                                int priority)
{
    return note_stream(__real_cudaStreamCreateWithPriority(pStream, flags, priority), pStream,
                       flags);
}

// Forgets the stream first: once it is destroyed, another thread may get the same handle.
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream)
{
    Known known;
    bool ours = table_take(&streams, stream, &known);
    gpulog_forget_stream(stream);
    cudaError_t error = __real_cudaStreamDestroy(stream);
    if (ours && error != cudaSuccess) table_put(&streams, known);
    return error;
}

void stream_reset(int device)
{
    Known known;
    while (table_take_device(&streams, device, &known))
        gpulog_forget_stream((cudaStream_t)(uintptr_t)known.key);
}

static cudaError_t waited(cudaError_t error, const char *name, cudaStream_t stream,
                          const void *site)
{
    if (error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(GPU_STREAM_SYNC, name, stream, site);
    entry.host_waits = true;
    write_entry(&entry);
    return cudaSuccess;
}

cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream)
{
    const char *name = "cudaStreamSynchronize";
    return waited(WAITING(name, SITE, __real_cudaStreamSynchronize(stream)), name, stream, SITE);
}

// A query that finds the stream done is a wait that took no time.
cudaError_t __wrap_cudaStreamQuery(cudaStream_t stream)
{
    return waited(__real_cudaStreamQuery(stream), "cudaStreamQuery", stream, SITE);
}

cudaError_t __wrap_cudaDeviceSynchronize(void)
{
    const char *name = "cudaDeviceSynchronize";
    cudaError_t error = WAITING(name, SITE, __real_cudaDeviceSynchronize());
    if (error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(GPU_DEVICE_SYNC, name, NULL, SITE);
    entry.host_waits = true;
    write_entry(&entry);
    return cudaSuccess;
}

// Choosing a device counts as using it.
cudaError_t __wrap_cudaSetDevice(int device)
{
    cudaError_t error = __real_cudaSetDevice(device);
    if (error == cudaSuccess) number_of_default(device);
    return error;
}

cudaError_t __wrap_cudaDeviceReset(void)
{
    int device = current_device();
    cudaError_t error = WAITING("cudaDeviceReset", SITE, __real_cudaDeviceReset());
    if (error != cudaSuccess) return error;
    memory_reset(device);
    stream_reset(device);
    event_reset(device);
    return cudaSuccess;
}

cudaError_t __wrap_cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    cudaError_t error = __real_cudaLaunchHostFunc(stream, fn, userData);
    if (error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(GPU_KERNEL, "cudaLaunchHostFunc", stream, SITE);
    write_entry(&entry);
    return cudaSuccess;
}

cudaError_t __wrap_cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                         void *userData, unsigned int flags)
{
    cudaError_t error = __real_cudaStreamAddCallback(stream, callback, userData, flags);
    if (error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(GPU_KERNEL, "cudaStreamAddCallback", stream, SITE);
    write_entry(&entry);
    return cudaSuccess;
}
