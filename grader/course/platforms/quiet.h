/* quiet.h: check.h whose macros keep no text of the call that failed. The reference that students
 * get as objects (grader/course/release.py) is compiled behind it: with check.h's own macros the
 * objects would hold the reference's calls as strings.
 */
#include "check.h"

#undef TRY
#undef CUDA_TRY
#undef NCCL_TRY
#undef CUBLAS_TRY

#define QUIET_TEXT "a call of the reference"
#define TRY(call)                                                                                  \
    do {                                                                                           \
        Status try_status_ = (call);                                                               \
        if (try_status_ != OK) return check_trace(try_status_, QUIET_TEXT, __FILE__, __LINE__);    \
    } while (0)
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t try_error_ = (call);                                                           \
        if (try_error_ != cudaSuccess)                                                             \
            return check_cuda(try_error_, QUIET_TEXT, __FILE__, __LINE__);                         \
    } while (0)
#define NCCL_TRY(call)                                                                             \
    do {                                                                                           \
        ncclResult_t try_error_ = (call);                                                          \
        if (try_error_ != ncclSuccess)                                                             \
            return check_nccl(try_error_, QUIET_TEXT, __FILE__, __LINE__);                         \
    } while (0)
#define CUBLAS_TRY(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t try_error_ = (call);                                                        \
        if (try_error_ != CUBLAS_STATUS_SUCCESS)                                                   \
            return check_cublas(try_error_, QUIET_TEXT, __FILE__, __LINE__);                       \
    } while (0)
