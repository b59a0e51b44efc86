/* vector_functions.h: make_float2(x, y) and the like, for every type of vector_types.h. */
#if defined(__VECTOR_FUNCTIONS_H__) && !defined(SIMGPU_VECTOR_FUNCTIONS)
#error "NVIDIA's vector_functions.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __VECTOR_FUNCTIONS_H__
#define __VECTOR_FUNCTIONS_H__
#define SIMGPU_VECTOR_FUNCTIONS

#include "vector_types.h"

#define SIMGPU_MAKE(type, arguments, ...)                                                          \
    static __inline__ type make_##type arguments                                                   \
    {                                                                                              \
        type v = {__VA_ARGS__};                                                                    \
        return v;                                                                                  \
    }
#define SIMGPU_MAKES(name, part, two, four)                                                        \
    SIMGPU_MAKE(name##1, (part x), x)                                                              \
    SIMGPU_MAKE(name##2, (part x, part y), x, y)                                                   \
    SIMGPU_MAKE(name##3, (part x, part y, part z), x, y, z)                                        \
    SIMGPU_MAKE(name##4, (part x, part y, part z, part w), x, y, z, w)
SIMGPU_ALL_VECTORS(SIMGPU_MAKES)
#undef SIMGPU_MAKES
#undef SIMGPU_MAKE

#endif
