/* check.c: reports what is wrong with a cuBLAS call; the names of the states. */
#include <stdarg.h>
#include <stdio.h>

#include "blas.h"

cublasStatus_t simblas_refuse(Call call, cublasStatus_t status, const char *format, ...)
{
    char what[512], where[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    gpulog_where(call.site, where, sizeof where);
    sim_facts_call(call.name, call.site, SIM_NO_STREAM);
    sim_report(SIMGPU_CALL, "a cuBLAS call with a wrong argument",
               "%s, called at %s:\n%s\n"
               "On a GPU nothing is computed, and it returns %s, as here.\n"
               "Do you check the status of every cuBLAS call, and is this argument what you meant?",
               call.name, where, what, cublasGetStatusName(status));
    return status;
}

static cublasStatus_t refuse_destroyed(Call call, const void *handle, const void *destroyed)
{
    char where[256], end[256];
    gpulog_where(call.site, where, sizeof where);
    gpulog_where(destroyed, end, sizeof end);
    sim_facts_call(call.name, call.site, SIM_NO_STREAM);
    sim_facts_call("cublasDestroy", destroyed, SIM_NO_STREAM);
    sim_report(SIMGPU_LIFETIME, "a cuBLAS handle is used after it was destroyed",
               "%s, called at %s,\nwas given the handle %p, destroyed at\n%s.\n"
               "On a GPU it returns CUBLAS_STATUS_NOT_INITIALIZED, as here, or it is a crash.\n"
               "Is it destroyed before its last use?",
               call.name, where, handle, end);
    return CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t simblas_check_handle(Call call, cublasHandle_t handle)
{
    if (simblas_is_handle(handle)) return CUBLAS_STATUS_SUCCESS;
    const void *destroyed = simblas_destroyed_at(handle);
    if (destroyed) return refuse_destroyed(call, handle, destroyed);
    return simblas_refuse(call, CUBLAS_STATUS_NOT_INITIALIZED, "the handle %p %s.", (void *)handle,
                          handle == NULL ? "is NULL: cublasCreate was not called, or failed"
                                         : "was never created, or is destroyed already");
}

cublasStatus_t simblas_check_pointer(Call call, const char *argument, const void *ptr)
{
    if (ptr != NULL) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "%s is NULL.", argument);
}

cublasStatus_t simblas_check_size(Call call, const char *argument, long long n)
{
    if (n >= 0) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "%s is %lld, less than 0.", argument,
                          n);
}

cublasStatus_t simblas_check_increment(Call call, const char *argument, int64_t inc)
{
    if (inc != 0) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "%s is 0.", argument);
}

cublasStatus_t simblas_check_turn(Call call, const char *argument, cublasOperation_t turn)
{
    if (turn == CUBLAS_OP_N || turn == CUBLAS_OP_T || turn == CUBLAS_OP_C)
        return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                          "%s is %d; it must be CUBLAS_OP_N, CUBLAS_OP_T or CUBLAS_OP_C.", argument,
                          (int)turn);
}

cublasStatus_t simblas_check_fill(Call call, cublasFillMode_t uplo)
{
    if (uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER)
        return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                          "uplo is %d; it must be CUBLAS_FILL_MODE_LOWER or "
                          "CUBLAS_FILL_MODE_UPPER.",
                          (int)uplo);
}

cublasStatus_t simblas_check_diagonal(Call call, cublasDiagType_t diag)
{
    if (diag == CUBLAS_DIAG_NON_UNIT || diag == CUBLAS_DIAG_UNIT) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                          "diag is %d; it must be CUBLAS_DIAG_NON_UNIT or CUBLAS_DIAG_UNIT.",
                          (int)diag);
}

cublasStatus_t simblas_check_side(Call call, cublasSideMode_t side)
{
    if (side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                          "side is %d; it must be CUBLAS_SIDE_LEFT or CUBLAS_SIDE_RIGHT.",
                          (int)side);
}

cublasStatus_t simblas_check_leading(Call call, const char *argument, int64_t ld, int64_t rows,
                                     const char *rows_are)
{
    if (ld >= (rows > 1 ? rows : 1)) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(
        call, CUBLAS_STATUS_INVALID_VALUE,
        "%s is %lld, but the matrix has %lld rows (%s) as it lies in memory.\n"
        "Matrices are column-major here: a row-major (R,C) matrix looks like C rows of R columns,\n"
        "with leading dimension C.",
        argument, (long long)ld, (long long)rows, rows_are);
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "a cuBLAS status that does not exist";
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was used as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "the device lacks a feature that the call needs";
    case CUBLAS_STATUS_MAPPING_ERROR: return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR: return "the license check failed";
    }
    return "unknown status";
}
