/* registered.c: memory that NCCL allocates, and memory that is registered with it.
 *
 * On GPUs registered memory makes calls faster and changes nothing else. So simgpu only checks
 * whether a registration would work. It remembers registrations that have ended, to report one that
 * is ended twice.
 */
#include <stdlib.h>

#include "memory/allocation.h"
#include "memory/pinned.h"
#include "nccl/group.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/names.h"
#include "nccl/refuse.h"
#include "nccl/registered.h"
#include "runtime/runtime.h"

#define HERE SIM_SITE

SIM_NCCL(ncclMemAlloc)
SIM_NCCL(ncclMemFree)
SIM_NCCL(ncclCommRegister)
SIM_NCCL(ncclCommDeregister)
SIM_NCCL(ncclCommWindowRegister)
SIM_NCCL(ncclCommWindowDeregister)

typedef struct Registered { // the program has its address, as a handle
    struct Registered *next;
    bool window;
    const void *gone; // where the registration ended; NULL: it has not
} Registered;

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    cudaError_t error = sim_malloc("cudaMalloc", ptr, size, MEMORY_OF_NCCL, HERE);
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *ptr)
{
    cudaError_t error = sim_free(ptr, true, HERE);
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static Registered *new_registered(ncclComm_t comm, bool window)
{
    Registered *made = malloc(sizeof *made);
    if (!made) return NULL;
    sim_lock();
    *made = (Registered){.next = comm->registered, .window = window};
    comm->registered = made;
    sim_unlock();
    return made;
}

void sim_registered_free(ncclComm_t comm)
{
    for (Registered *r = comm->registered, *next; r; r = next) {
        next = r->next;
        free(r);
    }
}

// Refuses memory that is not a device's, or exceeds its allocation; *offset: in that allocation.
static ncclResult_t check_range(const void *buff, size_t size, const char *name, const void *site,
                                SimMemoryKind *kind, size_t *offset)
{
    const void *base;
    size_t bytes = sim_allocation_of(buff, &base, kind);
    if (!bytes)
        return sim_refuse(SIMGPU_POINTER, ncclUnhandledCudaError, name, site,
                          "the memory to register is not device memory",
                          "%p is not in any allocation of a device.\n"
                          "On real GPUs it returns \"unhandled cuda error\", as here.\n"
                          "Is it host memory, or was it freed?",
                          buff);
    *offset = (size_t)((const char *)buff - (const char *)base);
    if (size <= bytes - *offset) return ncclSuccess;
    return sim_refuse(SIMGPU_POINTER, ncclUnhandledCudaError, name, site,
                      "the memory to register runs past the end of its allocation",
                      "%zu bytes from byte %zu of an allocation of %zu bytes.\n"
                      "On real GPUs it returns \"unhandled cuda error\", or registers\n"
                      "another allocation's memory.\n"
                      "Is the size in bytes, and that of this rank?",
                      size, *offset, bytes);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    const char *name = "ncclCommRegister";
    SimMemoryKind kind;
    size_t offset;
    bool inside;
    ncclResult_t result = sim_check_usable(comm, name, HERE);
    if (result == ncclSuccess) result = sim_check_not_null(handle, "handle", name, HERE);
    if (result != ncclSuccess) return result;
    *handle = NULL;
    if (buff && sim_pinned(buff, 1, &inside)) return ncclSuccess; // NCCL skips it, too
    result = check_range(buff, size, name, HERE, &kind, &offset);
    if (result != ncclSuccess) return result;
    *handle = new_registered(comm, false);
    return *handle ? ncclSuccess : ncclSystemError;
}

// Ends a registration.
static ncclResult_t deregister(ncclComm_t comm, const void *handle, bool window, const char *name,
                               const void *site)
{
    char where[256];
    const void *gone = NULL;
    bool found = false;
    ncclResult_t result = sim_check_comm(comm, name, site);
    if (result != ncclSuccess || !handle) return result;
    sim_lock();
    for (Registered *r = comm->registered; r && !found; r = r->next) {
        found = r == handle && r->window == window;
        if (!found) continue;
        gone = r->gone;
        if (!gone) r->gone = site;
    }
    sim_unlock();
    if (found && !gone) return ncclSuccess;
    if (!found)
        return sim_refuse(SIMGPU_POINTER, ncclInvalidUsage, name, site,
                          "this handle is not a registration",
                          "This communicator returned no handle %p.\n"
                          "On real GPUs it returns \"invalid usage\", as here, or crashes.\n"
                          "Is it another rank's, of another communicator, or the memory's address?",
                          handle);
    gpulog_where(gone, where, sizeof where);
    return sim_refuse_of(SIMGPU_LIFETIME, ncclInvalidUsage, name, site, name, gone,
                         "a registration is removed twice",
                         "It was removed at %s.\n"
                         "On real GPUs it returns \"invalid usage\", as here, or crashes.\n"
                         "Do two owners remove it?",
                         where);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return deregister(comm, handle, false, "ncclCommDeregister", HERE);
}

static ncclResult_t check_window(const void *buff, size_t size, const char *name, const void *site)
{
    SimMemoryKind kind;
    size_t offset;
    if (!buff || !size)
        return sim_refuse(SIMGPU_POINTER, ncclInvalidArgument, name, site,
                          "a window without memory",
                          "%zu bytes at %p.\n"
                          "On real GPUs it returns \"invalid argument\", as here, and the other\n"
                          "ranks wait.",
                          size, buff);
    ncclResult_t result = check_range(buff, size, name, site, &kind, &offset);
    if (result != ncclSuccess) return result;
    if (kind != MEMORY_OF_NCCL)
        return sim_refuse(SIMGPU_POINTER, ncclUnhandledCudaError, name, site,
                          "a window of memory that is not from ncclMemAlloc",
                          "A window takes memory from ncclMemAlloc; memory from cudaMalloc\n"
                          "cannot be registered (NCCL's guide, \"User Buffer Registration\").\n"
                          "On real GPUs it returns \"unhandled cuda error\", as here, and the\n"
                          "other ranks wait.");
    if (offset % NCCL_WIN_REQUIRED_ALIGNMENT == 0) return ncclSuccess;
    return sim_refuse(
        SIMGPU_POINTER, ncclInvalidArgument, name, site, "a misaligned window",
        "It begins at byte %zu of its allocation; NCCL_WIN_REQUIRED_ALIGNMENT is %d.\n"
        "On real GPUs it returns \"invalid argument\", as here, and the other ranks\n"
        "wait.",
        offset, NCCL_WIN_REQUIRED_ALIGNMENT);
}

void sim_window_made(const Call *call)
{
    *call->window = (ncclWindow_t)(void *)new_registered(call->comm, true);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags)
{
    const char *name = "ncclCommWindowRegister";
    ncclResult_t result = sim_check_usable(comm, name, HERE);
    if (result == ncclSuccess) result = sim_check_not_null(win, "win", name, HERE);
    if (result == ncclSuccess) result = check_window(buff, size, name, HERE);
    if (result != ncclSuccess) return sim_grouped_error(result);
    *win = NULL; // until all ranks have come
    Call call = {.comm = comm, .signature.kind = CALL_WINDOW, .site = HERE, .window = win};
    return sim_submit(&call);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return deregister(comm, win, true, "ncclCommWindowDeregister", HERE);
}
