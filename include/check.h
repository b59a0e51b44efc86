/* check.h: how an error travels in ShardLab.
 *
 * A function that can fail returns a Status: OK, or what kind of thing went wrong. The macros below
 * call something, and if it fails print one line (file, line, call, rank, the library's own
 * words) and return the Status to the caller, who does the same. So an error prints its own stack,
 * innermost line first, and nothing is ever ignored by accident.
 *
 *   Status fill(float *x, size_t n, cudaStream_t stream) {
 *       CUDA_TRY(cudaMemsetAsync(x, 0, n * sizeof *x, stream));   // a CUDA call
 *       NCCL_TRY(ncclBroadcast(x, x, n, ncclFloat, 0, comm, stream));
 *       TRY(fill_rest(x));                                        // a function of ours
 *       return OK;
 *   }
 *
 * CUBLAS_TRY is for files that include <cublas_v2.h>. It is not included here: with <math.h>, which
 * it includes, it takes as long to compile as everything else in a short file.
 */
#ifndef SHARDLAB_CHECK_H
#define SHARDLAB_CHECK_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

typedef enum Status {
    OK = 0,
    ERR_ARGUMENT, // a caller's mistake: a bad size, a null pointer, a call out of turn
    ERR_MEMORY,   // host or device memory ran out
    ERR_CUDA,     // a CUDA call failed
    ERR_NCCL,     // an NCCL call failed
    ERR_CUBLAS,   // a cuBLAS call failed
    ERR_IO,       // a file or a pipe
} Status;

// A Status that the caller must not ignore: the compiler warns if it does. A header has all its
// functions, and pointers to functions, return it by `#define Status CHECKED_STATUS` before them
// and `#undef Status` after them.
#define CHECKED_STATUS __attribute__((warn_unused_result)) Status

// One line on stderr, "[rank R] file:line: what the format says", and `status` back: for
// `return fail(ERR_ARGUMENT, "W is %d, must be at least 1", W);`
#define fail(status, ...) check_fail((status), __FILE__, __LINE__, __VA_ARGS__)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        Status try_status_ = (call);                                                               \
        if (try_status_ != OK) return check_trace(try_status_, #call, __FILE__, __LINE__);         \
    } while (0)
// Ignores a Status on purpose: the error cannot be returned, and the call that failed has printed
// its line.
#define IGNORE_STATUS(call)                                                                        \
    do {                                                                                           \
        Status ignored_ = (call);                                                                  \
        (void)ignored_;                                                                            \
    } while (0)
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t try_error_ = (call);                                                           \
        if (try_error_ != cudaSuccess) return check_cuda(try_error_, #call, __FILE__, __LINE__);   \
    } while (0)
#define NCCL_TRY(call)                                                                             \
    do {                                                                                           \
        ncclResult_t try_error_ = (call);                                                          \
        if (try_error_ != ncclSuccess) return check_nccl(try_error_, #call, __FILE__, __LINE__);   \
    } while (0)
#define CUBLAS_TRY(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t try_error_ = (call);                                                        \
        if (try_error_ != CUBLAS_STATUS_SUCCESS)                                                   \
            return check_cublas(try_error_, #call, __FILE__, __LINE__);                            \
    } while (0)

// The rank printed in front of every line; -1 (nothing printed) until somebody sets it.
void check_set_rank(int rank);

// While this is on, nothing is printed: for work that every rank does in the same way, such as
// reading the command line, so that one rank's line is enough.
void check_set_silent(bool on);

// The innermost line of the error that this thread saw last, without the rank in front of it: the
// error itself, not the callers that passed it on. "": nothing has failed yet.
const char *check_last(void);
// How many errors have begun on this thread: each has one innermost line.
unsigned check_errors(void);

Status check_fail(Status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
Status check_trace(Status status, const char *call, const char *file, int line);
Status check_cuda(cudaError_t error, const char *call, const char *file, int line);
Status check_nccl(ncclResult_t error, const char *call, const char *file, int line);
// `error`: a cublasStatus_t.
Status check_cublas(int error, const char *call, const char *file, int line);

#endif
