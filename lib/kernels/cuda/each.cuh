/* each.cuh: one operation on every element of some arrays.
 *
 * Such a kernel does next to nothing but move memory. A thread moves four floats at once, as a
 * float4, wherever all the arrays are aligned for that at the same index; otherwise one. Whichever
 * way, an element goes through the same few instructions, so its bits do not depend on its place.
 * (Files that promise this are compiled with -fmad=false: whether a product and a sum become one
 * fused operation would be the compiler's choice, and another one in each copy of the loop.)
 *
 * An operation is a struct with the call operator: its parameters are references to one element of
 * each array, `const float &` for an array that is only read.
 *
 *   struct Add {
 *       __device__ void operator()(float &to, const float &from) const { to += from; }
 *   };
 *   launch_each(&launch, Add{}, n, dst, src);
 *
 * Interface: launch_each.
 */
#ifndef SHARDLAB_EACH_CUH
#define SHARDLAB_EACH_CUH

#include <stdint.h>
#include <type_traits>

#include "launch.cuh"

#define EACH_THREADS 256

// Four elements of one array in registers. An array that is only written is not read either: the
// compiler drops a load whose value nobody uses. But having dropped it, it would cut a plain
// *at = v into four stores; __stwb is an ordinary store that stays whole.
template <class Float> struct Four {
    float4 *at;
    float4 v;

    __device__ explicit Four(Float *x) : at((float4 *)(uintptr_t)x), v(*at)
    {
    }
    __device__ void store() const
    {
        if (!std::is_const<Float>::value) __stwb(at, v);
    }
};

template <class Op, class... Float> static __device__ void do_four(Op op, Four<Float>... four)
{
    op(four.v.x...);
    op(four.v.y...);
    op(four.v.z...);
    op(four.v.w...);
    (four.store(), ...);
}

// x… (n): elements [0, head) one by one, then as many fours as there are, then the rest one by one.
// Neighbouring threads take neighbouring elements, so that a warp's loads fall into few sectors.
template <class Op, class... Float>
static __global__ void __launch_bounds__(EACH_THREADS)
    each(Op op, size_t head, size_t n, Float *...x)
{
    size_t first = blockIdx.x * (size_t)EACH_THREADS + threadIdx.x;
    size_t stride = gridDim.x * (size_t)EACH_THREADS;
    size_t fours = (n - head) / 4, tail = head + 4 * fours;

    for (size_t i = first; i < head; i += stride) op(x[i]...);
    for (size_t i = first; i < fours; i += stride) do_four(op, Four<Float>(x + head + 4 * i)...);
    for (size_t i = tail + first; i < n; i += stride) op(x[i]...);
}

// How many elements stand before the first one at a multiple of 16 bytes.
static inline size_t floats_before_aligned(const void *x)
{
    return (16 - (uintptr_t)x % 16) % 16 / 4;
}

// Runs op on the elements of x… (n); without any, no grid is launched.
template <class Op, class First, class... Float>
static inline void launch_each(Launch *launch, Op op, size_t n, First *first, Float *...x)
{
    size_t head = floats_before_aligned(first);
    bool alike = (true && ... && (floats_before_aligned(x) == head));
    if (!alike || head > n) head = n; // then all go one by one
    size_t pieces = head + (n - head) / 4 + (n - head) % 4;
    if (n == 0) return;
    launch_grid(launch, each<Op, First, Float...>, blocks_of(pieces, EACH_THREADS), EACH_THREADS,
                op, head, n, first, x...);
}

#endif
