/* handle.c: cuBLAS handles, their settings, and properties of the library.
 *
 * Handles are in a table, so that a destroyed or invented handle is recognised without a read of
 * the memory at its address.
 */
#include "blas.h"

#define MAX_HANDLES 4096
static struct cublasContext handles[MAX_HANDLES];
static int used; // so many were ever alive: the pages of the others are not touched
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

// ---- Handles ----

const void *simblas_destroyed_at(const struct cublasContext *handle)
{
    bool was = handle >= handles && handle < handles + MAX_HANDLES && !handle->alive;
    return was ? handle->destroyed : NULL;
}

bool simblas_is_handle(const struct cublasContext *handle)
{
    return handle >= handles && handle < handles + MAX_HANDLES && handle->alive;
}

static void visit_handles(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&handles_lock)) return;
    for (int i = 0; i < used; i++)
        if (handles[i].alive) sim_leak_note(leaks, THING_BLAS, &handles[i], 0, handles[i].site);
    pthread_mutex_unlock(&handles_lock);
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    const Call call = SIMBLAS_CALL("cublasCreate");
    static SimHooks hooks = {.visit = visit_handles};
    CHECK(simblas_check_pointer(call, "handle", handle));
    *handle = NULL;
    sim_hooks_add(&hooks);
    pthread_mutex_lock(&handles_lock);
    // A destroyed handle is not reused soon, so that a use of it is found.
    for (int tries = 0; tries < MAX_HANDLES && *handle == NULL; tries++) {
        static int next;
        int i = next++ % MAX_HANDLES;
        if (handles[i].alive) continue;
        handles[i] =
            (struct cublasContext){.alive = true, .site = SIM_SITE, .device = sim_current_device()};
        *handle = &handles[i];
        if (used <= i) used = i + 1;
    }
    pthread_mutex_unlock(&handles_lock);
    if (*handle != NULL) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_ALLOC_FAILED,
                          "%d handles are alive already. Is there a cublasDestroy missing?",
                          MAX_HANDLES);
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    CHECK(simblas_check_handle(SIMBLAS_CALL("cublasDestroy"), handle));
    pthread_mutex_lock(&handles_lock);
    handle->alive = false;
    handle->destroyed = SIM_SITE;
    pthread_mutex_unlock(&handles_lock);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    const Call call = SIMBLAS_CALL("cublasGetVersion");
    CHECK(simblas_check_pointer(call, "version", version));
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

// No product here needs a workspace, so it is only checked.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                     size_t workspaceSizeInBytes)
{
    const Call call = SIMBLAS_CALL("cublasSetWorkspace");
    size_t offset;
    CHECK(simblas_check_handle(call, handle));
    if (workspaceSizeInBytes == 0 || sim_device_of(workspace, &offset) != NULL)
        return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "workspace %p is not device memory.",
                          workspace);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId)
{
    CHECK(simblas_check_handle(SIMBLAS_CALL("cublasSetStream"), handle));
    handle->stream = streamId;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *streamId)
{
    const Call call = SIMBLAS_CALL("cublasGetStream");
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "streamId", streamId));
    *streamId = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode)
{
    const Call call = SIMBLAS_CALL("cublasGetPointerMode");
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "mode", mode));
    *mode = handle->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
    const Call call = SIMBLAS_CALL("cublasSetPointerMode");
    CHECK(simblas_check_handle(call, handle));
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "mode %d does not exist.",
                              (int)mode);
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- Settings without an effect here: products are always in full precision ----

#define REMEMBERED(Name, T, field, argument)                                                       \
    cublasStatus_t cublasGet##Name(cublasHandle_t handle, T *argument)                             \
    {                                                                                              \
        const Call call = SIMBLAS_CALL("cublasGet" #Name);                                         \
        CHECK(simblas_check_handle(call, handle));                                                 \
        CHECK(simblas_check_pointer(call, #argument, argument));                                   \
        *argument = handle->field;                                                                 \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    cublasStatus_t cublasSet##Name(cublasHandle_t handle, T argument)                              \
    {                                                                                              \
        CHECK(simblas_check_handle(SIMBLAS_CALL("cublasSet" #Name), handle));                      \
        handle->field = argument;                                                                  \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }

REMEMBERED(AtomicsMode, cublasAtomicsMode_t, atomics, mode)
REMEMBERED(MathMode, cublasMath_t, math, mode)
REMEMBERED(SmCountTarget, int, multiprocessors, smCountTarget)
REMEMBERED(EmulationStrategy, cublasEmulationStrategy_t, emulation, strategy)

// ---- The library ----

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    const Call call = SIMBLAS_CALL("cublasGetProperty");
    static const int version[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
    CHECK(simblas_check_pointer(call, "value", value));
    if (type != MAJOR_VERSION && type != MINOR_VERSION && type != PATCH_LEVEL)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "there is no property %d.",
                              (int)type);
    *value = version[type];
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasGetCudartVersion(void)
{
    return CUDART_VERSION;
}

// There is no log of this kind: gpulog.h has one.
cublasStatus_t cublasLoggerConfigure(int logIsOn, int logToStdOut, int logToStdErr,
                                     const char *logFileName)
{
    return CUBLAS_STATUS_SUCCESS;
}

static cublasLogCallback log_callback;
cublasStatus_t cublasSetLoggerCallback(cublasLogCallback userCallback)
{
    log_callback = userCallback;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetLoggerCallback(cublasLogCallback *userCallback)
{
    CHECK(simblas_check_pointer(SIMBLAS_CALL("cublasGetLoggerCallback"), "userCallback",
                                userCallback));
    *userCallback = log_callback;
    return CUBLAS_STATUS_SUCCESS;
}
