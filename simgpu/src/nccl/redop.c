/* redop.c: reductions of a program's own: ncclRedOpCreatePreMulSum. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "nccl/describe.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/names.h"
#include "nccl/redop.h"
#include "nccl/reduce.h"
#include "nccl/refuse.h"

#define HERE SIM_SITE
#define HOPPER 9       // the compute capability from which 8-bit floats are reduced
#define FEW_REDOPS 256 // while there are fewer, a destroyed one is not reused

SIM_NCCL(ncclRedOpCreatePreMulSum)
SIM_NCCL(ncclRedOpDestroy)

static bool is_destroyed(ncclComm_t comm, int own)
{
    return own >= 0 && own < comm->n_redops && !comm->redop[own].used;
}

static ncclResult_t refuse_destroyed(ncclComm_t comm, int own, const char *name, const void *site)
{
    char where[256];
    const void *destroyed = comm->redop[own].destroyed;
    gpulog_where(destroyed, where, sizeof where);
    return sim_refuse_of(SIMGPU_LIFETIME, ncclInvalidArgument, name, site, "ncclRedOpDestroy",
                         destroyed, "a reduction is used after it was destroyed",
                         "It was destroyed at %s.\n"
                         "On real GPUs it returns \"invalid argument\", as here, or this is "
                         "another reduction by then.\n"
                         "Is it destroyed before its last use?",
                         where);
}

ncclResult_t sim_check_redop(Call *call)
{
    const char *name = sim_kind(call->signature.kind)->call;
    int op = (int)call->handle;
    bool eight = call->signature.type == ncclFloat8e4m3 || call->signature.type == ncclFloat8e5m2;
    const SimMachine *machine = sim_config()->machine;
    if (eight && machine && machine->gpu.major < HOPPER)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, call->site,
                          "this machine's GPUs cannot reduce this type",
                          "%s is reduced from compute capability 9.0 on (NCCL: \"FP8 reduction "
                          "support begins with sm90\");\nthe GPUs of %s have %d.%d.\n"
                          "On real GPUs it returns \"invalid argument\", as here.\n"
                          "Can it be reduced in another type, or on another machine "
                          "(SIMGPU_MACHINE)?",
                          sim_type_name(call->signature.type), machine->name, machine->gpu.major,
                          machine->gpu.minor);
    if (op >= 0 && op < ncclNumOps) {
        call->signature.op = op;
        return ncclSuccess;
    }
    int own = op - ncclNumOps;
    if (is_destroyed(call->comm, own)) return refuse_destroyed(call->comm, own, name, call->site);
    if (own < 0 || own >= call->comm->n_redops || !call->comm->redop[own].used)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, call->site,
                          "an invalid reduction",
                          "%d is not an ncclRedOp_t of this communicator.\n"
                          "On real GPUs it returns \"invalid argument\", as here.\n"
                          "Was it destroyed already, or made for another communicator?",
                          op);
    if ((int)call->comm->redop[own].type != call->signature.type)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, call->site,
                          "the reduction was made for another type",
                          "It was made for %s and is used with %s.\n"
                          "On real GPUs it returns \"invalid argument\", as here.\n"
                          "Does every type need a reduction of its own?",
                          sim_type_name(call->comm->redop[own].type),
                          sim_type_name(call->signature.type));
    call->signature.op = SIM_PRE_MUL_SUM;
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    const char *name = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = sim_check_usable(comm, name, HERE);
    if (result == ncclSuccess) result = sim_check_not_null(op, "op", name, HERE);
    if (result == ncclSuccess) result = sim_check_not_null(scalar, "scalar", name, HERE);
    if (result != ncclSuccess) return result;
    if ((int)datatype < 0 || datatype >= ncclNumTypes)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "an invalid data type",
                          "%d is not an ncclDataType_t.", (int)datatype);
    bool entered = sim_comm_enter(comm, name, HERE);
    int i = comm->n_redops < FEW_REDOPS ? comm->n_redops : 0;
    while (i < comm->n_redops && comm->redop[i].used) i++;
    if (i == comm->n_redops) {
        RedOp *more = realloc(comm->redop, ((size_t)i + 1) * sizeof *more);
        if (more) comm->redop = more;
        comm->n_redops += more != NULL;
    }
    RedOp made = {.used = true, .type = datatype};
    if (residence == ncclScalarDevice)
        made.device_scalar = scalar;
    else
        memcpy(&made.scalar, scalar, gpulog_element_size(datatype));
    bool has_room = i < comm->n_redops;
    if (has_room) comm->redop[i] = made;
    if (entered) sim_comm_exit(comm);
    if (!has_room) return ncclSystemError;
    *op = (ncclRedOp_t)(ncclNumOps + i);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = sim_check_ready(comm, "ncclRedOpDestroy", HERE);
    if (result != ncclSuccess) return result;
    int i = (int)op - ncclNumOps;
    if (is_destroyed(comm, i)) return refuse_destroyed(comm, i, "ncclRedOpDestroy", HERE);
    if (i < 0 || i >= comm->n_redops)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, "ncclRedOpDestroy", HERE,
                          "an invalid reduction", "%d was not made by ncclRedOpCreatePreMulSum.",
                          (int)op);
    comm->redop[i].used = false;
    comm->redop[i].destroyed = HERE;
    return ncclSuccess;
}
