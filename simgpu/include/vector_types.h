/* vector_types.h: char1 … double4, of one to four equal parts, and dim3. Sizes and alignment are
 * CUDA's; a vector of two or four is aligned as a whole, up to 16 bytes.
 */
#if defined(__VECTOR_TYPES_H__) && !defined(SIMGPU_VECTOR_TYPES)
#error "NVIDIA's vector_types.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __VECTOR_TYPES_H__
#define __VECTOR_TYPES_H__
#define SIMGPU_VECTOR_TYPES

#include "crt/host_defines.h"

// VECTORS(name, what each part is, alignment of two, of four) for all of them.
#define SIMGPU_ALL_VECTORS(VECTORS)                                                                \
    VECTORS(char, signed char, 2, 4)                                                               \
    VECTORS(uchar, unsigned char, 2, 4)                                                            \
    VECTORS(short, short, 4, 8)                                                                    \
    VECTORS(ushort, unsigned short, 4, 8)                                                          \
    VECTORS(int, int, 8, 16)                                                                       \
    VECTORS(uint, unsigned int, 8, 16)                                                             \
    VECTORS(long, long int, 16, 16)                                                                \
    VECTORS(ulong, unsigned long int, 16, 16)                                                      \
    VECTORS(longlong, long long int, 16, 16)                                                       \
    VECTORS(ulonglong, unsigned long long int, 16, 16)                                             \
    VECTORS(float, float, 8, 16)                                                                   \
    VECTORS(double, double, 16, 16)

#define SIMGPU_VECTOR(name, align, part, ...)                                                      \
    struct align name {                                                                            \
        part __VA_ARGS__;                                                                          \
    };                                                                                             \
    typedef struct name name;
#define SIMGPU_VECTORS(name, part, two, four)                                                      \
    SIMGPU_VECTOR(name##1, , part, x)                                                              \
    SIMGPU_VECTOR(name##2, __align__(two), part, x, y)                                             \
    SIMGPU_VECTOR(name##3, , part, x, y, z)                                                        \
    SIMGPU_VECTOR(name##4, __align__(four), part, x, y, z, w)
SIMGPU_ALL_VECTORS(SIMGPU_VECTORS)
#undef SIMGPU_VECTOR
#undef SIMGPU_VECTORS

struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    constexpr operator uint3() const
    {
        return uint3{x, y, z};
    }
#endif
};
typedef struct dim3 dim3;

#endif
