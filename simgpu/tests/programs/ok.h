/* ok.h: a call that must work, as samples have it: OK(…) for CUDA, NCCL and cuBLAS, MUST for a
 * condition. Whatever fails ends the program with its line.
 */
#ifndef OK_H
#define OK_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
// All three libraries answer 0 when all is well.
#define OK(call)                                                                                   \
    do {                                                                                           \
        int ok_ = (int)(call);                                                                     \
        if (ok_ != 0) {                                                                            \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, ok_);            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
