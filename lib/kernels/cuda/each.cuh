/* each.cuh: one operation on each element of some arrays.
 *
 * Such a kernel does little but move memory. A thread moves four elements at once (four floats as a
 * float4) where all the arrays are aligned for that at the same index; otherwise one. Either way an
 * element goes through the same few instructions, so its bits do not depend on its place. (Files
 * that promise this are compiled with -fmad=false: otherwise the compiler would choose, in each
 * copy of the loop, whether to fuse a product and a sum.)
 *
 * An operation is a struct with the call operator. Its parameters are references to one element of
 * each array, `const float &` for an array that is only read. Elements of other types are floats
 * there too (typed.cuh).
 *
 *   struct Add {
 *       __device__ void operator()(float &to, const float &from) const { to += from; }
 *   };
 *   launch_each(&launch, Add{}, n, dst, src);
 */
#ifndef SHARDLAB_EACH_CUH
#define SHARDLAB_EACH_CUH

#include <type_traits>

#include "typed.cuh"

#define EACH_THREADS 256

// Four elements of one array as floats in registers, and one. An array that is only written is not
// read: the compiler drops a load whose value nobody uses.
template <class Number> struct Four {
    Number *at;
    float4 v;

    __device__ explicit Four(Number *x) : at(x), v(load_four(x))
    {
    }
    __device__ void store() const
    {
        if constexpr (!std::is_const<Number>::value) store_four(at, v);
    }
};

template <class Number> struct One {
    Number *at;
    float v;

    __device__ explicit One(Number *x) : at(x), v(*x)
    {
    }
    __device__ void store() const
    {
        if constexpr (!std::is_const<Number>::value) *at = v;
    }
};

template <class Op, class... Number> static __device__ void do_four(Op op, Four<Number>... four)
{
    op(four.v.x...);
    op(four.v.y...);
    op(four.v.z...);
    op(four.v.w...);
    (four.store(), ...);
}

template <class Op, class... Number> static __device__ void do_one(Op op, One<Number>... one)
{
    op(one.v...);
    (one.store(), ...);
}

// x… (n): elements [0, head) one by one, then as many fours as there are, then the rest one by one.
// Neighbouring threads take neighbouring elements, so that a warp reads few sectors.
template <class Op, class... Number>
static __global__ void __launch_bounds__(EACH_THREADS)
    each(Op op, size_t head, size_t n, Number *...x)
{
    size_t first = blockIdx.x * (size_t)EACH_THREADS + threadIdx.x;
    size_t stride = gridDim.x * (size_t)EACH_THREADS;
    size_t fours = (n - head) / 4, tail = head + 4 * fours;

    for (size_t i = first; i < head; i += stride) do_one(op, One<Number>(x + i)...);
    for (size_t i = first; i < fours; i += stride) do_four(op, Four<Number>(x + head + 4 * i)...);
    for (size_t i = tail + first; i < n; i += stride) do_one(op, One<Number>(x + i)...);
}

// The number of elements before the first one at a multiple of the size of four.
template <class Number> static inline size_t before_aligned(const Number *x)
{
    size_t four = 4 * sizeof *x;
    return (four - (uintptr_t)x % four) % four / sizeof *x;
}

// Runs op on the elements of x… (n); if n is 0, launches no grid.
template <class Op, class First, class... Number>
static inline void launch_each(Launch *launch, Op op, size_t n, First *first, Number *...x)
{
    size_t head = before_aligned(first);
    bool alike = (true && ... && (before_aligned(x) == head));
    if (!alike || head > n) head = n; // then all go one by one
    size_t pieces = head + (n - head) / 4 + (n - head) % 4;
    if (n == 0) return;
    launch_grid(launch, each<Op, First, Number...>, blocks_of(pieces, EACH_THREADS), EACH_THREADS,
                op, head, n, first, x...);
}

#endif
