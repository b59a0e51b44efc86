/* describe.c: calls, call sites and ends in words, as the reports and notices of nccl/ have them.
 *
 * A call site is an address in its own process. Ranks usually run the same program: a peer's
 * address minus its program's load address plus ours is a call site that our debug information
 * knows.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "nccl/describe.h"
#include "nccl/kind.h"
#include "nccl/reduce.h"
#include "report/report.h"
#include "runtime/runtime.h"

#define LINE 512

const char *sim_type_name(int type)
{
    static const char *const name[ncclNumTypes] = {
        "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
        "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
        "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
    return type >= 0 && type < ncclNumTypes ? name[type] : "an unknown type";
}

const char *sim_op_name(int op)
{
    static const char *const name[] = {"ncclSum", "ncclProd", "ncclMax",
                                       "ncclMin", "ncclAvg",  "a premultiplied sum"};
    return op >= 0 && op <= SIM_PRE_MUL_SUM ? name[op] : "an unknown operation";
}

void sim_describe_buffer(const void *ptr, char *text, size_t size)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    snprintf(text, size, "%p", ptr);
    if (device) sim_describe(device, offset, text, size);
}

void sim_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

// "ncclAllReduce (count 1000, ncclFloat32, ncclSum)"
static void describe_call(const CallSignature *signature, char *text, size_t size)
{
    const GpuLogKind *kind = sim_kind(signature->kind);
    snprintf(text, size, "%s", kind->call);
    if (sim_is_setup(signature->kind)) return;
    sim_append(text, size, " (count %llu, %s", (unsigned long long)signature->count,
               sim_type_name(signature->type));
    if (kind->reduces) sim_append(text, size, ", %s", sim_op_name(signature->op));
    if (kind->root == ROOT_SENDS || kind->root == ROOT_RECEIVES)
        sim_append(text, size, ", root %d", signature->root);
    if (signature->kind == GPU_SEND) sim_append(text, size, ", to rank %d", signature->root);
    if (signature->kind == GPU_RECV) sim_append(text, size, ", from rank %d", signature->root);
    sim_append(text, size, ")");
}

const void *sim_site_here(const RankSlot *slot, const SharedSite *site)
{
    RankSlot own = {0};
    const void *frame[GPULOG_FRAMES];
    sim_note_program(&own);
    if (slot->program_inode != own.program_inode || slot->program_device != own.program_device)
        return NULL;
    for (int i = 0; i < site->n; i++)
        frame[i] =
            (const void *)((uintptr_t)site->frame[i] - slot->program_base + own.program_base);
    return gpulog_stack(frame, site->n);
}

void sim_describe_site(const RankSlot *slot, const SharedSite *site, char *text, size_t size)
{
    const void *here = sim_site_here(slot, site);
    if (here)
        gpulog_where(here, text, size);
    else
        snprintf(text, size, "%#llx of its program",
                 (unsigned long long)((uintptr_t)site->frame[0] - slot->program_base));
}

void sim_note_desc(int rank, const RankSlot *slot, const CallDesc *desc)
{
    sim_facts_rank_call(rank, sim_kind(desc->signature.kind)->call,
                        sim_site_here(slot, &desc->site), SIM_NO_STREAM);
}

void sim_describe_desc(const RankSlot *slot, const CallDesc *desc, char *text, size_t size)
{
    char call[LINE / 4], where[LINE / 2];
    describe_call(&desc->signature, call, sizeof call);
    sim_describe_site(slot, &desc->site, where, sizeof where);
    snprintf(text, size, "%s at %s", call, where);
}

void sim_describe_waiting(const Call *call, char *text, size_t size)
{
    const char *name = sim_kind(call->signature.kind)->call;
    if (sim_is_message(call->signature.kind))
        snprintf(text, size, "%s (number %llu %s rank %d, as rank %d)", name,
                 (unsigned long long)call->desc.seq,
                 call->signature.kind == GPU_SEND ? "to" : "from", call->signature.root,
                 call->comm->rank);
    else
        snprintf(text, size, "%s (call %llu on the communicator, as rank %d of %d)", name,
                 (unsigned long long)call->desc.seq, call->comm->rank, call->comm->size);
}

void sim_describe_status(int status, char *text, size_t size)
{
    if (status < 0)
        snprintf(text, size, "ended silently (killed, or _exit)");
    else if (WIFSIGNALED(status))
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}

// "in cudaStreamSynchronize at train.c:88 (main)", where the host waits for its sends.
void sim_describe_host_call(const RankSlot *slot, const HostCall *in, char *text, size_t size)
{
    char where[LINE / 2];
    snprintf(text, size, "at %s", in->name);
    if (in->site.n == 0) return;
    sim_describe_site(slot, &in->site, where, sizeof where);
    snprintf(text, size, "in %s at %s", in->name, where);
}

void sim_note_host_call(int rank, const RankSlot *slot, const HostCall *in)
{
    if (in && in->site.n > 0)
        sim_facts_rank_call(rank, in->name, sim_site_here(slot, &in->site), SIM_NO_STREAM);
}
