/* Every collective in every type and with every reduction that the type has, in place and not, as a
 * benchmark walks through them. The inputs are small whole numbers, so that each sum is exact in
 * half precision too. One thread, all devices.
 */
#include <cuda_runtime.h>
#include <nccl.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ok.h"

static int devices;
static std::vector<ncclComm_t> comm;
static std::vector<cudaStream_t> stream;
static std::vector<char *> from, to;
static constexpr size_t count = 129, widest = 8;

// ---- Numbers in 16 bits: those here are whole and below 256, exact in both formats ----

static std::uint16_t to_bfloat16(float value)
{
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return std::uint16_t(bits >> 16);
}

static std::uint16_t to_half(float value)
{
    int exponent;
    if (value == 0) return 0;
    float fraction = std::frexp(std::fabs(value), &exponent); // in [0.5, 1)
    unsigned bits = unsigned(exponent + 14) << 10 | (unsigned(std::ldexp(fraction, 11)) & 0x3ff);
    return std::uint16_t(bits | (value < 0 ? 0x8000 : 0));
}

struct Type {
    ncclDataType_t type;
    size_t bytes;
    void (*put)(char *at, int value);
};

template <class T> static void put(char *at, int value)
{
    T x = T(value);
    std::memcpy(at, &x, sizeof x);
}
static void put_half(char *at, int value)
{
    put<std::uint16_t>(at, to_half(float(value)));
}
static void put_bfloat16(char *at, int value)
{
    put<std::uint16_t>(at, to_bfloat16(float(value)));
}

static const Type types[] = {
    {ncclInt8, 1, put<std::int8_t>},   {ncclUint8, 1, put<std::uint8_t>},
    {ncclInt32, 4, put<std::int32_t>}, {ncclUint32, 4, put<std::uint32_t>},
    {ncclInt64, 8, put<std::int64_t>}, {ncclUint64, 8, put<std::uint64_t>},
    {ncclFloat16, 2, put_half},        {ncclFloat32, 4, put<float>},
    {ncclFloat64, 8, put<double>},     {ncclBfloat16, 2, put_bfloat16},
};
static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

// Element i of device d: only one device's is 2 where products are made, so none grows too large.
static int element(ncclRedOp_t op, int d, size_t i)
{
    if (op == ncclProd) return int(i) % devices == d ? 2 : 1;
    if (op == ncclAvg) return int(i % 5);
    return int((i + 3 * size_t(d)) % 7);
}

static int reduced(ncclRedOp_t op, size_t i)
{
    int value = element(op, 0, i);
    for (int d = 1; d < devices; d++) {
        int next = element(op, d, i);
        if (op == ncclSum) value += next;
        if (op == ncclProd) value *= next;
        if (op == ncclMax) value = next > value ? next : value;
        if (op == ncclMin) value = next < value ? next : value;
    }
    return value; // all are alike where an average is made
}

static void fill(const Type &t, ncclRedOp_t op, size_t n)
{
    std::vector<char> host(n * t.bytes);
    for (int d = 0; d < devices; d++) {
        for (size_t i = 0; i < n; i++) t.put(&host[i * t.bytes], element(op, d, i));
        OK(cudaSetDevice(d));
        OK(cudaMemcpyAsync(from[d], host.data(), host.size(), cudaMemcpyHostToDevice, stream[d]));
        OK(cudaMemsetAsync(to[d], 0x55, n * t.bytes, stream[d]));
        OK(cudaStreamSynchronize(stream[d]));
    }
}

template <class Want>
static int differ(int d, const char *memory, const Type &t, size_t n, Want want)
{
    int wrong = 0;
    std::vector<char> host(n * t.bytes), one(t.bytes);
    OK(cudaSetDevice(d));
    OK(cudaStreamSynchronize(stream[d]));
    OK(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) {
        t.put(one.data(), want(i));
        wrong += std::memcmp(one.data(), &host[i * t.bytes], t.bytes) != 0;
    }
    return wrong;
}

template <class Call> static void on_all(Call call)
{
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++) OK(call(d));
    OK(ncclGroupEnd());
}

static int reductions(const Type &t, ncclRedOp_t op)
{
    int wrong = 0, last = devices - 1;
    auto all = [&](size_t i) { return reduced(op, i); };
    for (bool in_place : {false, true}) {
        fill(t, op, count);
        std::vector<char *> &out = in_place ? from : to;
        on_all([&](int d) {
            return ncclAllReduce(from[d], out[d], count, t.type, op, comm[d], stream[d]);
        });
        for (int d = 0; d < devices; d++) wrong += differ(d, out[d], t, count, all);
    }
    fill(t, op, count);
    on_all([&](int d) {
        return ncclReduce(from[d], to[d], count, t.type, op, last, comm[d], stream[d]);
    });
    wrong += differ(last, to[last], t, count, all);
    fill(t, op, count * devices);
    on_all([&](int d) {
        return ncclReduceScatter(from[d], to[d], count, t.type, op, comm[d], stream[d]);
    });
    for (int d = 0; d < devices; d++)
        wrong += differ(d, to[d], t, count,
                        [&](size_t i) { return reduced(op, size_t(d) * count + i); });
    return wrong;
}

static int movements(const Type &t)
{
    int wrong = 0;
    fill(t, ncclSum, count);
    on_all([&](int d) {
        return ncclBroadcast(from[d], to[d], count, t.type, devices - 1, comm[d], stream[d]);
    });
    for (int d = 0; d < devices; d++)
        wrong +=
            differ(d, to[d], t, count, [&](size_t i) { return element(ncclSum, devices - 1, i); });
    fill(t, ncclSum, count * devices);
    on_all([&](int d) { return ncclAllGather(from[d], to[d], count, t.type, comm[d], stream[d]); });
    for (int d = 0; d < devices; d++)
        wrong += differ(d, to[d], t, count * devices,
                        [&](size_t i) { return element(ncclSum, int(i / count), i % count); });
    return wrong;
}

// Every device weighs its input by a number of its own.
static int weighted()
{
    int wrong = 0;
    std::vector<ncclRedOp_t> op(devices);
    const Type &t = types[7];
    fill(t, ncclSum, count);
    for (int d = 0; d < devices; d++) {
        float weight = float(d + 1);
        OK(ncclRedOpCreatePreMulSum(&op[d], &weight, ncclFloat, ncclScalarHostImmediate, comm[d]));
    }
    on_all([&](int d) {
        return ncclAllReduce(from[d], to[d], count, ncclFloat, op[d], comm[d], stream[d]);
    });
    for (int d = 0; d < devices; d++) {
        wrong += differ(d, to[d], t, count, [&](size_t i) {
            int sum = 0;
            for (int e = 0; e < devices; e++) sum += (e + 1) * element(ncclSum, e, i);
            return sum;
        });
        OK(ncclRedOpDestroy(op[d], comm[d]));
    }
    return wrong;
}

int main()
{
    int wrong = 0;
    OK(cudaGetDeviceCount(&devices));
    comm.resize(devices);
    OK(ncclCommInitAll(comm.data(), devices, nullptr));
    for (int d = 0; d < devices; d++) {
        cudaStream_t s;
        char *a, *b;
        OK(cudaSetDevice(d));
        OK(cudaStreamCreate(&s));
        OK(cudaMalloc(&a, count * devices * widest));
        OK(cudaMalloc(&b, count * devices * widest));
        stream.push_back(s);
        from.push_back(a);
        to.push_back(b);
    }
    for (const Type &t : types) {
        wrong += movements(t);
        for (ncclRedOp_t op : ops) wrong += reductions(t, op);
    }
    wrong += weighted();
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaFree(from[d]));
        OK(cudaFree(to[d]));
        OK(cudaStreamDestroy(stream[d]));
        OK(ncclCommDestroy(comm[d]));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
