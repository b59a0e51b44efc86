/* costs.c: what things cost on a machine: values calculated by hand, NCCL's model against another
 * one written from its description, what must grow with size, and the same bits from every
 * compiler.
 */
#include <math.h>

#include "machine/figures.h"
#include "print_costs.h"
#include "round_machine.h"

static const SimMachine *machine(const char *name)
{
    char error[300];
    const SimMachine *m = sim_machine(name, error, sizeof error);
    if (!m) fail_msg("%s", error);
    return m;
}

// ---- By hand ----

static void equal(const char *what, SimPs got, SimPs want)
{
    if (got != want)
        fail_msg("%s takes %llu ps, not %llu", what, (unsigned long long)got,
                 (unsigned long long)want);
}

TEST(test_kernels_and_copies_by_hand)
{
    const SimMachine *m = round_machine();
    equal("an empty kernel", sim_cost_kernel(m, 0, 0, SIM_F32), 2000000);
    equal("a kernel of a megabyte", sim_cost_kernel(m, 1000000, 0, SIM_F32), 3000000);
    equal("a kernel of a byte", sim_cost_kernel(m, 1, 0, SIM_F32), 2000001);
    equal("a kernel of 4 MFLOP", sim_cost_kernel(m, 1000000, 4000000, SIM_F32), 4000000);
    equal("the same in double", sim_cost_kernel(m, 1000000, 4000000, SIM_F64), 6000000);
    equal("4 MFLOP on tensor cores", sim_cost_fused(m, 1000, 4000000, SIM_BF16), 2400000);
    equal("a copy of a megabyte", sim_cost_copy(m, SIM_COPY_TO_DEVICE, 1000000), 103000000);
    equal("a copy back", sim_cost_copy(m, SIM_COPY_FROM_DEVICE, 1000000), 103000000);
    equal("a copy to a peer", sim_cost_copy(m, SIM_COPY_PEER, 1000000), 13000000);
    equal("a plain product", sim_cost_gemm(m, 1000, 1000, 1000, 1, SIM_F32), 1002000000);
    equal("a batch of them", sim_cost_gemm(m, 1000, 1000, 1000, 3, SIM_F32), 3002000000);
    equal("a flat product", sim_cost_gemm(m, 1000, 1000, 1, 1, SIM_F32), 2000000 + 4008000);
    equal("a product of nothing", sim_cost_gemm(m, 0, 1000, 1000, 1, SIM_F32), 2000000);
}

// Of an A100's 312 TFLOP/s 61.5 % is 191.88; 2 TB/s are 2 MB per microsecond.
TEST(test_fused_kernels_by_hand)
{
    const SimMachine *m = machine("a100x8");
    SimPs start = sim_cost_kernel(m, 0, 0, SIM_BF16);
    equal("an empty kernel", sim_cost_fused(m, 0, 0, SIM_BF16), start);
    equal("191.88 GFLOP but for one", sim_cost_fused(m, 0, 191879999999, SIM_BF16),
          start + 1000000000);
    equal("two gigabytes", sim_cost_fused(m, 2000000000, 1000, SIM_BF16), start + 1000000000);
    equal("312 GFLOP", sim_cost_kernel(m, 0, 312000000000, SIM_BF16), start + 1000000000);
}

TEST(test_collectives_by_hand)
{
    const SimMachine *m = round_machine();
    static const struct {
        GpuOp op;
        int ranks, nodes;
        SimPs work;
        SimLink link;
    } rows[] = {
        {GPU_ALL_GATHER, 4, 1, 7500000, SIM_NVLINK},
        {GPU_REDUCE_SCATTER, 2, 1, 5000000, SIM_NVLINK},
        {GPU_ALL_REDUCE, 4, 1, 15000000, SIM_NVLINK},
        {GPU_BROADCAST, 4, 1, 10000000, SIM_NVLINK},
        {GPU_REDUCE, 3, 1, 10000000, SIM_NVLINK},
        {GPU_ALL_GATHER, 8, 2, 175000000, SIM_NIC},
        {GPU_SEND, 2, 1, 10000000, SIM_NVLINK},
        {GPU_RECV, 2, 2, 200000000, SIM_NIC},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SimCollectiveCost c =
            sim_cost_collective(m, rows[i].op, rows[i].ranks, rows[i].nodes, 1000000);
        equal("a collective's latency", c.latency, 10000000);
        equal(gpulog_op_name(rows[i].op), c.work, rows[i].work);
        assert_int_equal(c.link, rows[i].link);
    }
}

// A laptop has no network: any number of ranks is on one node, and PCIe is between them.
TEST(test_without_a_network)
{
    SimCollectiveCost c = sim_cost_collective(machine("laptop"), GPU_ALL_REDUCE, 8, 4, 1 << 20);
    assert_int_equal(c.link, SIM_PCIE);
    assert_string_equal(c.algorithm, "ring");
    c = sim_cost_collective(machine("one-nic"), GPU_ALL_REDUCE, 8, 8, 1 << 20);
    assert_int_equal(c.link, SIM_NIC);
}

// ---- NCCL's model ---- Once more, from its description: every term of the least over algorithms
// and protocols in microseconds and GB/s.

typedef long double Real;

typedef struct World {
    int ranks, nodes, row; // row: 0 one node, 1 two, 2 more
    int generation;        // 0 Volta … 3 Blackwell
    bool amd, nvlink;
    Real channels, intra, inter, nvls_channels, nvls_intra, nvls_inter, constant, root;
} World;

static const Real ll_max[] = {39, 39, 20.4L, 87.7L, 22.5L, 19, 141, 45, 35, 282, 90, 70};
static const Real tree_max[] = {26.5L, 18.5L, 10, 24, 23.6L, 17.8L,
                                38.7L, 41.4L, 36, 70, 42.8L, 24};
static const Real tree_ll128_max[] = {20, 20, 20, 20, 20, 20, 36.7L, 36.7L, 29, 55.6L, 31.67L, 20};
static const Real nvls_tree_max[] = {0, 0, 0, 0, 0, 0, 0, 57.7L, 45.5L, 0, 96, 80};
static const Real ring_ll128_max[] = {20, 20, 36.7L, 40};
// Tenths, by log2(bytes / 64) from 0 to 22; o: 1.
static const char *const factors[] = {"oooo987777654456789oooo", "ooooo9888766666689999oo",
                                      "99999998766555567877899"};

static Real factor(int protocol, uint64_t bytes)
{
    int n = 0;
    for (uint64_t b = bytes / 64; b > 1; b /= 2) n++;
    char tenths = n > 22 ? 'o' : factors[protocol][n];
    return tenths == 'o' ? 1 : (Real)(tenths - '0') / 10;
}

static int steps_of(GpuOp op, int n)
{
    if (op == GPU_ALL_REDUCE) return 2 * (n - 1);
    return op == GPU_ALL_GATHER || op == GPU_REDUCE_SCATTER ? n - 1 : n;
}

static Real oracle_ring(const World *w, GpuOp op, int protocol, uint64_t bytes)
{
    static const Real near_nvlink[] = {.6L, 1.9L, 3.4L}, near_pci[] = {1, 2.5L, 5.7L};
    static const Real far_many[] = {2.7L, 4, 14}, far_one[] = {5, 8.5L, 14};
    static const Real base[] = {6.6L, 14, 8.4L};
    int n = w->ranks, steps = steps_of(op, n);
    Real bus = w->channels * (w->nodes > 2 ? w->inter : w->intra);
    int row = w->nodes == 1 ? w->generation : w->amd;
    if (protocol == 0) bus = fminl(ll_max[3 * row + w->row], bus / 2);
    if (protocol == 1) bus = fminl(bus * .92L, w->channels * ring_ll128_max[w->generation]);
    Real near = (w->nvlink ? near_nvlink : near_pci)[protocol];
    Real far = (w->ranks == w->nodes ? far_one : far_many)[protocol], latency = base[protocol];
    if (op == GPU_BROADCAST || op == GPU_REDUCE) {
        latency += w->nodes == 1 ? near : far_many[protocol];
    } else {
        int k = (op == GPU_ALL_REDUCE ? 2 : 1) * (w->nodes - 1);
        Real overhead = w->nodes == 1 ? 0 : (w->amd ? 2 : 1) * (protocol == 2 ? 3 : 1);
        latency += (Real)(steps - k) * fmaxl(near, overhead) + (Real)k * far;
    }
    if (protocol == 2 && w->nodes > 1 && op == GPU_ALL_REDUCE &&
        bytes / ((uint64_t)w->channels * (uint64_t)n) >= 64)
        latency *= 1.4L;
    return latency + (Real)bytes / (1000 * bus * (Real)n / (Real)steps);
}

static Real oracle_tree(const World *w, int protocol, uint64_t bytes)
{
    static const Real near_nvlink[] = {.6L, 1.25L, 4}, near_pci[] = {1, 1.9L, 4};
    static const Real far[] = {5, 8.5L, 14}, base[] = {6.8L, 14, 8.4L};
    int row = w->nodes == 1 ? w->generation : w->amd, at = 3 * w->generation + w->row;
    Real bus = fminl(w->channels * (w->nodes > 2 ? w->inter : w->intra) * .92L,
                     w->channels * tree_max[at]);
    if (protocol == 0) bus = fminl(bus / 3.8L, ll_max[3 * row + w->row]);
    if (protocol == 1)
        bus = fminl(bus * (w->nodes == 1 ? 7 / 9.0L : 120 / 128.0L),
                    w->channels * tree_ll128_max[at]);
    if (w->ranks == w->nodes) bus *= .85L;
    Real near = (w->nvlink ? near_nvlink : near_pci)[protocol];
    Real latency = base[protocol] + 2 * ((Real)(w->ranks / w->nodes - 1) * near +
                                         floorl(log2l((Real)w->nodes)) * far[protocol]);
    return latency + (Real)bytes / (1000 * bus / 2 * factor(protocol, bytes));
}

static Real oracle_nvls(const World *w, GpuOp op, uint64_t bytes)
{
    static const Real efficiency[] = {0, 0, .85L, .74L};
    bool reduces = op == GPU_ALL_REDUCE, tree = w->nodes > 1;
    Real ppn = (Real)w->ranks / (Real)w->nodes, sum = w->nvls_channels * w->nvls_intra;
    Real channels = fminl(w->nvls_channels, ppn);
    if (channels < 2 || (tree && !reduces)) return INFINITY;
    Real each = sum / channels * efficiency[w->generation] * (channels - 1) / channels *
                (reduces ? 2 : (ppn - 1) / ppn);
    Real latency = 25;
    if (tree) {
        Real inter = w->nvls_inter * w->nvls_channels / channels;
        each = fminl(each, w->nodes == 2 ? 2 * inter : inter);
        each = fminl(each, nvls_tree_max[3 * w->generation + w->row]);
        latency += 2 * floorl(log2l((Real)w->nodes)) * 20.9L;
    }
    Real whole = reduces ? (Real)w->ranks / (Real)steps_of(op, w->ranks) : 1;
    return latency + (Real)bytes / (1000 * channels * each * whole);
}

static Real oracle_pat(const World *w, uint64_t bytes)
{
    if (w->ranks != w->nodes) return INFINITY;
    Real bus = w->channels * (w->nodes > 2 ? w->inter : w->intra) * .75L;
    return 8 + floorl(log2l((Real)w->nodes)) * (14 / 3.5L) + 2.8L * (Real)w->ranks +
           (Real)bytes / (1000 * bus);
}

// Microseconds.
static Real oracle(const World *w, GpuOp op, uint64_t bytes)
{
    Real least = INFINITY;
    bool ll128 = w->nvlink || w->ranks == w->nodes;
    for (int p = 0; p < 3; p++) {
        if (p == 1 && !ll128) continue;
        least = fminl(least, oracle_ring(w, op, p, bytes));
        if (op == GPU_ALL_REDUCE) least = fminl(least, oracle_tree(w, p, bytes));
    }
    if (op != GPU_BROADCAST && op != GPU_REDUCE && w->nvls_channels > 0)
        least = fminl(least, oracle_nvls(w, op, bytes));
    if (op == GPU_ALL_GATHER || op == GPU_REDUCE_SCATTER)
        least = fminl(least, oracle_pat(w, bytes));
    return w->constant + least + w->root * sqrtl((Real)bytes);
}

static const struct {
    const char *name;
    int gpus_per_node;
    World world;
} worlds[] = {
    {"a100x8",
     8,
     {.generation = 1,
      .amd = true,
      .nvlink = true,
      .channels = 12,
      .intra = 20,
      .inter = 15,
      .constant = 30.7L,
      .root = .0095L}},
    {"h100x8",
     8,
     {.generation = 2,
      .nvlink = true,
      .channels = 12,
      .intra = 30,
      .inter = 30,
      .nvls_channels = 8,
      .nvls_intra = 40,
      .nvls_inter = 40,
      .constant = 19.1L,
      .root = .0047L}},
    {"b200x8",
     8,
     {.generation = 3,
      .nvlink = true,
      .channels = 12,
      .intra = 60,
      .inter = 30,
      .nvls_channels = 8,
      .nvls_intra = 80,
      .nvls_inter = 80,
      .constant = 27.9L,
      .root = .0085L}},
    {"laptop", 0, {.generation = 1, .channels = 2, .intra = 6, .constant = 30.7L, .root = .0095L}},
    {"one-nic",
     1,
     {.generation = 1,
      .amd = true,
      .channels = 2,
      .intra = 11.75L,
      .inter = 11.75L,
      .constant = 30.7L,
      .root = .0095L}},
};

static void compare(const char *name, const SimMachine *m, const World *w, GpuOp op, uint64_t bytes)
{
    SimCollectiveCost c = sim_cost_collective(m, op, w->ranks, w->nodes, bytes);
    Real want = oracle(w, op, bytes) * 1e6L, got = (Real)(c.latency + c.work);
    // Each of the two parts is rounded up; a double has 16 digits.
    if (fabsl(got - want) > 2 + want * 1e-13L)
        fail_msg("%s of %llu bytes on %s, %d ranks on %d nodes: %.0Lf ps (%s, %s), not %.0Lf",
                 gpulog_op_name(op), (unsigned long long)bytes, name, w->ranks, w->nodes, got,
                 c.algorithm, c.protocol, want);
}

TEST(test_the_model_of_nccl)
{
    static const GpuOp ops[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_ALL_REDUCE, GPU_BROADCAST,
                                GPU_REDUCE};
    static const int ranks[] = {2, 3, 4, 5, 8, 16, 24, 64, 1024};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
            for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
                for (uint64_t bytes = 4; bytes < (uint64_t)1 << 36; bytes += bytes / 3 + 4) {
                    World w = worlds[i].world;
                    int per_node = worlds[i].gpus_per_node;
                    w.ranks = ranks[r];
                    w.nodes = per_node ? (w.ranks + per_node - 1) / per_node : 1;
                    w.row = w.nodes < 3 ? w.nodes - 1 : 2;
                    compare(worlds[i].name, machine(worlds[i].name), &w, ops[o], bytes);
                }
}

// Figures of the description: a sweep's largest all-reduce, and the latency of long rings.
TEST(test_known_figures)
{
    const SimMachine *h200 = machine("h200x8"), *h100 = machine("h100x8");
    uint64_t bytes = (uint64_t)16 << 30;
    SimCollectiveCost c = sim_cost_collective(h200, GPU_ALL_REDUCE, 8, 1, bytes);
    assert_string_equal(c.algorithm, "nvls");
    double bus = (double)bytes * 2 * 7 / 8 / (double)(c.latency + c.work) * 1e3;
    if (bus < 462 || bus > 480) fail_msg("an all-reduce of 16 GiB on 8 H200 has %.1f GB/s", bus);
    c = sim_cost_collective(h200, GPU_ALL_GATHER, 8, 1, bytes);
    bus = (double)bytes * 7 / 8 / (double)c.work * 1e3;
    if (bus < 354 || bus > 362) fail_msg("an all-gather of 16 GiB on 8 H200 has %.1f GB/s", bus);
    static const struct {
        int ranks;
        double ms;
    } rings[] = {{128, .29}, {512, 1.1}, {1024, 2.2}};
    for (size_t i = 0; i < 3; i++) {
        int n = rings[i].ranks;
        // The least of them, at a size at which NCCL takes its plain protocol.
        c = sim_cost_collective(h100, GPU_ALL_GATHER, n, n / 8, 400000000);
        double ms = ((double)c.latency / 1e6 - 19.1) / 1e3;
        if (fabs(ms - rings[i].ms) > .06 * rings[i].ms)
            fail_msg("a ring of %d has %.2f ms of latency, not %.2f", n, ms, rings[i].ms);
    }
}

// Published sweeps of 8 GPUs, to which the constants were fitted: 10 % on average.
TEST(test_sweeps)
{
    static const char *const names[] = {"a100x8", "h200x8"};
    for (int i = 0; i < 2; i++) {
        char path[80], line[200];
        unsigned long long bytes;
        double us, sum = 0;
        int n = 0;
        snprintf(path, sizeof path, "bench/published/nccl_%s.csv", names[i]);
        round_machine();
        FILE *file = fopen(path, "r");
        if (!file) fail_msg("no %s", path);
        while (fgets(line, sizeof line, file)) {
            if (sscanf(line, "%llu,%lf", &bytes, &us) != 2) continue;
            SimCollectiveCost c =
                sim_cost_collective(machine(names[i]), GPU_ALL_REDUCE, 8, 1, bytes);
            sum += fabs((double)(c.latency + c.work) / 1e6 / us - 1);
            n++;
        }
        fclose(file);
        assert_int_equal(n, 20);
        if (sum / n > 0.10) fail_msg("%s: %.1f %% on average", names[i], 100 * sum / n);
    }
}

// ---- What grows ----

TEST(test_collectives_grow_with_bytes)
{
    static const GpuOp ops[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_BROADCAST, GPU_SEND};
    for (const char *const *name = sim_machine_names(); *name; name++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (int n = 2; n <= 16; n *= 2) {
                SimPs last = 0;
                for (uint64_t bytes = 1; bytes < (uint64_t)1 << 34; bytes += bytes / 5 + 1) {
                    SimCollectiveCost c = sim_cost_collective(
                        machine(*name), ops[o], ops[o] == GPU_SEND ? 2 : n,
                        (n + machine(*name)->gpus_per_node - 1) / machine(*name)->gpus_per_node,
                        bytes);
                    // 1 ps, because latency and work are rounded up each.
                    if (c.latency + c.work + 1 < last)
                        fail_msg("%s on %s, %d ranks: %llu bytes take less than fewer",
                                 gpulog_op_name(ops[o]), *name, n, (unsigned long long)bytes);
                    last = c.latency + c.work;
                    assert_true(c.latency >= 1000 && c.work >= 1);
                }
            }
}

TEST(test_products_grow)
{
    static const SimType types[] = {SIM_F64, SIM_F32, SIM_TF32, SIM_BF16, SIM_FP8};
    for (const char *const *name = sim_machine_names(); *name; name++)
        for (int draw = 0; draw < 4000; draw++) {
            const SimMachine *m = machine(*name);
            uint64_t size[4], more[4];
            for (int i = 0; i < 4; i++) size[i] = 1 + (uint64_t)rand() % (i < 3 ? 3000 : 20);
            memcpy(more, size, sizeof more);
            more[draw % 4] += 1 + (uint64_t)rand() % 300;
            SimType type = types[draw / 4 % 5];
            SimPs a = sim_cost_gemm(m, size[0], size[1], size[2], size[3], type);
            SimPs b = sim_cost_gemm(m, more[0], more[1], more[2], more[3], type);
            if (b < a) fail_msg("on %s a larger product takes less (draw %d)", *name, draw);
        }
}

// A large product runs at about the best rate that was measured, a small one far below; a row more
// than fills the last wave costs a wave.
TEST(test_products_have_tiles_and_waves)
{
    const SimMachine *m = machine("a100x8");
    double n = 16384, large = (double)sim_cost_gemm(m, 16384, 16384, 16384, 1, SIM_BF16);
    double rate = 2 * n * n * n / large;
    if (rate < 265 || rate > 271.2) fail_msg("a large product runs at %.1f TFLOP/s", rate);
    double small = (double)sim_cost_gemm(m, 256, 256, 256, 1, SIM_BF16) - 2e6;
    if (2 * 256.0 * 256 * 256 / small > 100) fail_msg("a small product takes %.0f ps", small);
    // 108 multiprocessors: 12 x 9 tiles of (256, 128) are a wave.
    SimPs wave = sim_cost_gemm(m, 3072, 1152, 8192, 1, SIM_BF16);
    SimPs row = sim_cost_gemm(m, 3073, 1152, 8192, 1, SIM_BF16);
    if (row < wave + wave / 20)
        fail_msg("a row more takes %llu after %llu", (unsigned long long)row,
                 (unsigned long long)wave);
    // What is read bounds a matrix times a vector: 2 x 8192 x 8192 bytes at 2 TB/s.
    SimPs vector = sim_cost_gemm(m, 8192, 1, 8192, 1, SIM_BF16);
    if (vector < 2000000 + 67108864)
        fail_msg("a vector's product takes %llu ps", (unsigned long long)vector);
}

// ---- The same bits ----

TEST(test_every_compiler_gives_the_same)
{
    static const char *const script =
        "set -e; t=$(mktemp -d); trap 'rm -rf $t' EXIT; cat >$t/want\n"
        "printf '#include \"clock/print_costs.h\"\\nint main(void) { print_costs(stdout); }' "
        ">$t/main.c\n"
        "sh simgpu/machines/texts.sh simgpu/machines/*.machine >$t/texts.c\n"
        "for flags in -O0 '-O2 -march=native' '-O3 -funroll-loops'; do\n"
        "  timeout 100 ${CC:-cc} -std=gnu11 $flags -ffp-contract=off -Isimgpu/src "
        "-Igpulog/include\\\n"
        "    -Igpulog/log -Isimgpu/include -Isimgpu/tests $t/main.c gpulog/log/collectives.c\\\n"
        "    simgpu/src/machine/*.c $t/texts.c -lm -pthread -o $t/costs\n"
        "  $t/costs >$t/got; cmp $t/want $t/got || { echo \"differs with $flags\"; exit 1; }\n"
        "done";
    round_machine();
    FILE *pipe = popen(script, "w");
    assert_non_null(pipe);
    print_costs(pipe);
    assert_int_equal(pclose(pipe), 0);
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "clock/costs");
}
