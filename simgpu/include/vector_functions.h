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

SIMGPU_MAKE(char1, (signed char x), x)
SIMGPU_MAKE(char2, (signed char x, signed char y), x, y)
SIMGPU_MAKE(char3, (signed char x, signed char y, signed char z), x, y, z)
SIMGPU_MAKE(char4, (signed char x, signed char y, signed char z, signed char w), x, y, z, w)
SIMGPU_MAKE(uchar1, (unsigned char x), x)
SIMGPU_MAKE(uchar2, (unsigned char x, unsigned char y), x, y)
SIMGPU_MAKE(uchar3, (unsigned char x, unsigned char y, unsigned char z), x, y, z)
SIMGPU_MAKE(uchar4, (unsigned char x, unsigned char y, unsigned char z, unsigned char w), x, y, z,
            w)
SIMGPU_MAKE(short1, (short x), x)
SIMGPU_MAKE(short2, (short x, short y), x, y)
SIMGPU_MAKE(short3, (short x, short y, short z), x, y, z)
SIMGPU_MAKE(short4, (short x, short y, short z, short w), x, y, z, w)
SIMGPU_MAKE(ushort1, (unsigned short x), x)
SIMGPU_MAKE(ushort2, (unsigned short x, unsigned short y), x, y)
SIMGPU_MAKE(ushort3, (unsigned short x, unsigned short y, unsigned short z), x, y, z)
SIMGPU_MAKE(ushort4, (unsigned short x, unsigned short y, unsigned short z, unsigned short w), x, y,
            z, w)
SIMGPU_MAKE(int1, (int x), x)
SIMGPU_MAKE(int2, (int x, int y), x, y)
SIMGPU_MAKE(int3, (int x, int y, int z), x, y, z)
SIMGPU_MAKE(int4, (int x, int y, int z, int w), x, y, z, w)
SIMGPU_MAKE(uint1, (unsigned int x), x)
SIMGPU_MAKE(uint2, (unsigned int x, unsigned int y), x, y)
SIMGPU_MAKE(uint3, (unsigned int x, unsigned int y, unsigned int z), x, y, z)
SIMGPU_MAKE(uint4, (unsigned int x, unsigned int y, unsigned int z, unsigned int w), x, y, z, w)
SIMGPU_MAKE(long1, (long int x), x)
SIMGPU_MAKE(long2, (long int x, long int y), x, y)
SIMGPU_MAKE(long3, (long int x, long int y, long int z), x, y, z)
SIMGPU_MAKE(long4, (long int x, long int y, long int z, long int w), x, y, z, w)
SIMGPU_MAKE(ulong1, (unsigned long int x), x)
SIMGPU_MAKE(ulong2, (unsigned long int x, unsigned long int y), x, y)
SIMGPU_MAKE(ulong3, (unsigned long int x, unsigned long int y, unsigned long int z), x, y, z)
SIMGPU_MAKE(ulong4,
            (unsigned long int x, unsigned long int y, unsigned long int z, unsigned long int w), x,
            y, z, w)
SIMGPU_MAKE(longlong1, (long long int x), x)
SIMGPU_MAKE(longlong2, (long long int x, long long int y), x, y)
SIMGPU_MAKE(longlong3, (long long int x, long long int y, long long int z), x, y, z)
SIMGPU_MAKE(longlong4, (long long int x, long long int y, long long int z, long long int w), x, y,
            z, w)
SIMGPU_MAKE(ulonglong1, (unsigned long long int x), x)
SIMGPU_MAKE(ulonglong2, (unsigned long long int x, unsigned long long int y), x, y)
SIMGPU_MAKE(ulonglong3,
            (unsigned long long int x, unsigned long long int y, unsigned long long int z), x, y, z)
SIMGPU_MAKE(ulonglong4,
            (unsigned long long int x, unsigned long long int y, unsigned long long int z,
             unsigned long long int w),
            x, y, z, w)
SIMGPU_MAKE(float1, (float x), x)
SIMGPU_MAKE(float2, (float x, float y), x, y)
SIMGPU_MAKE(float3, (float x, float y, float z), x, y, z)
SIMGPU_MAKE(float4, (float x, float y, float z, float w), x, y, z, w)
SIMGPU_MAKE(double1, (double x), x)
SIMGPU_MAKE(double2, (double x, double y), x, y)
SIMGPU_MAKE(double3, (double x, double y, double z), x, y, z)
SIMGPU_MAKE(double4, (double x, double y, double z, double w), x, y, z, w)

#undef SIMGPU_MAKE

#endif
