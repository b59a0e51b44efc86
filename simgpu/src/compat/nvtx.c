/* nvtx.c: NVTX's ranges, which a trace shows (time/ranges.h). A range that is started and ended
 * counts as one that its thread pushes and pops. Marks and names of other things are accepted and
 * not shown.
 *
 * Interface: nvtx3/nvToolsExt.h.
 */
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>

#include "compat/compat.h"
#include "time/ranges.h"

static const char *message_of(const nvtxEventAttributes_t *e)
{
    if (!e) return "";
    if (e->messageType == NVTX_MESSAGE_TYPE_ASCII) return e->message.ascii;
    if (e->messageType == NVTX_MESSAGE_TYPE_REGISTERED) return (const char *)e->message.registered;
    return "";
}

int nvtxRangePushA(const char *message)
{
    return sim_scope_push(message);
}

int nvtxRangePushEx(const nvtxEventAttributes_t *eventAttrib)
{
    return sim_scope_push(message_of(eventAttrib));
}

int nvtxRangePop(void)
{
    return sim_scope_pop();
}

nvtxRangeId_t nvtxRangeStartA(const char *message)
{
    return (nvtxRangeId_t)sim_scope_push(message) + 1;
}

nvtxRangeId_t nvtxRangeStartEx(const nvtxEventAttributes_t *eventAttrib)
{
    return nvtxRangeStartA(message_of(eventAttrib));
}

void nvtxRangeEnd(nvtxRangeId_t id)
{
    sim_scope_pop();
}

void nvtxMarkA(const char *message)
{
}

void nvtxMarkEx(const nvtxEventAttributes_t *eventAttrib)
{
}

void nvtxNameOsThreadA(uint32_t threadId, const char *name)
{
}

void nvtxNameCategoryA(uint32_t category, const char *name)
{
}

void nvtxInitialize(const void *reserved)
{
}

// ---- Domains: all are one; a registered string is its text ----

nvtxDomainHandle_t nvtxDomainCreateA(const char *name)
{
    static char only;
    return (nvtxDomainHandle_t)(void *)&only;
}

void nvtxDomainDestroy(nvtxDomainHandle_t domain)
{
}

nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t domain, const char *string)
{
    return (nvtxStringHandle_t)(void *)strdup(string ? string : "");
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *eventAttrib)
{
    return nvtxRangePushEx(eventAttrib);
}

int nvtxDomainRangePop(nvtxDomainHandle_t domain)
{
    return sim_scope_pop();
}

nvtxRangeId_t nvtxDomainRangeStartEx(nvtxDomainHandle_t domain,
                                     const nvtxEventAttributes_t *eventAttrib)
{
    return nvtxRangeStartEx(eventAttrib);
}

void nvtxDomainRangeEnd(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
    sim_scope_pop();
}

void nvtxDomainMarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *eventAttrib)
{
}
