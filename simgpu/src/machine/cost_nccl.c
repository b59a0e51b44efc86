/* machine/cost_nccl.c: the cost of a collective.
 *
 * `model nccl` is NCCL's own: it gives every algorithm and protocol a latency and a bandwidth, and
 * the call takes the pair that is fastest for its bytes (NVIDIA/nccl 2.30.7, src/graph/tuning.cc,
 * whose constants these are). That model leaves out the launch, so that a constant and a term with
 * the root of the bytes come on top, which are fitted to published sweeps (bench/published). `model
 * plain` is for hand calculations.
 *
 * Interface: sim_cost_collective (machine.h).
 */
#include <math.h>

#include "collectives.h"
#include "machine/figures.h"

typedef enum Algorithm { TREE, RING, NVLS, NVLS_TREE, PAT, ALGORITHMS } Algorithm;
typedef enum Protocol { LL, LL128, SIMPLE, PROTOCOLS } Protocol;
typedef enum Wire { WIRE_NVLINK, WIRE_PCI, WIRE_NET, WIRES } Wire;

static const char *const algorithm_names[] = {"tree", "ring", "nvls", "nvlstree", "pat"};
static const char *const protocol_names[] = {"ll", "ll128", "simple"};

// Nanoseconds.
static const int base_latency[ALGORITHMS][PROTOCOLS] = {
    [TREE] = {6800, 14000, 8400}, [RING] = {6600, 14000, 8400}, [PAT] = {8000, 8000, 8000}};
static const int wire_latency[WIRES][ALGORITHMS][PROTOCOLS] = {
    [WIRE_NVLINK] = {[TREE] = {600, 1250, 4000},
                     [RING] = {600, 1900, 3400},
                     [NVLS] = {0, 0, 25000},
                     [NVLS_TREE] = {0, 0, 25000},
                     [PAT] = {0, 0, 4000}},
    [WIRE_PCI] = {[TREE] = {1000, 1900, 4000}, [RING] = {1000, 2500, 5700}, [PAT] = {0, 0, 4000}},
    [WIRE_NET] = {[TREE] = {5000, 8500, 14000},
                  [RING] = {2700, 4000, 14000},
                  [NVLS] = {0, 0, 18000},
                  [NVLS_TREE] = {0, 0, 20900},
                  [PAT] = {0, 0, 14000}},
};

// GB/s, for one node, two, more; by generation (of LL on several nodes: volta stands for hosts of
// Intel, ampere for those of AMD).
static const double most_ll[4][3] = {
    {39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
// The same per channel.
static const double most_ring_ll128[4] = {20, 20, 36.7, 40};
static const double most_tree_ll128[4][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
static const double most_tree[4][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
static const double most_nvls_tree[4][3] = {{0}, {0}, {0, 57.7, 45.5}, {0, 96, 80}};
static const double nvls_efficiency[4] = {0, 0, .85, .74};

// The part of a tree's bandwidth that an all-reduce gets, by log2(bytes / 64).
static const double tree_factor[PROTOCOLS][23] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};

typedef struct Call {
    const SimMachine *m;
    const SimFigures *f;
    GpuLogRoute route;
    int ranks, nodes;
    double per_node; // ranks
    int steps;
    uint64_t bytes;
    Wire inside; // of a node
} Call;

static double least(double a, double b)
{
    return a < b ? a : b;
}
static double most(double a, double b)
{
    return a > b ? a : b;
}
static int by_nodes(const Call *c)
{
    return c->nodes < 3 ? c->nodes - 1 : 2;
}
static bool gathers(const Call *c)
{
    return c->route == ROUTE_RING;
}
static bool all_reduces(const Call *c)
{
    return c->route == ROUTE_RING_TWICE;
}
static int log2_below(uint64_t n)
{
    int log = 0;
    while (n >>= 1) log++;
    return log;
}

// ---- Bandwidth: GB/s ----

static bool is_enabled(const Call *c, Algorithm a, Protocol p)
{
    bool nvlink = c->inside == WIRE_NVLINK || c->per_node == 1;
    switch (a) {
    case RING: return p != LL128 || nvlink;
    case TREE: return all_reduces(c) && (p != LL128 || nvlink);
    case PAT: return gathers(c) && p == SIMPLE && c->nodes == c->ranks;
    case NVLS:
        return (gathers(c) || all_reduces(c)) && p == SIMPLE && c->nodes == 1 &&
               c->f->nvls.channels >= 2;
    default:
        return all_reduces(c) && p == SIMPLE && c->nodes > 1 && c->per_node > 1 &&
               c->f->nvls.channels >= 2;
    }
}

// The graph of fewer GPUs has a channel for each of them, and the same sum.
static double nvls_bandwidth(const Call *c, Algorithm a)
{
    const SimGraph *g = &c->f->nvls;
    double all = (double)g->channels, channels = least(all, c->per_node);
    double intra = g->intra / 1e9 * all / channels, inter = g->inter / 1e9 * all / channels;
    intra = intra * nvls_efficiency[c->f->generation] * (channels - 1) / channels;
    intra *= all_reduces(c) ? 2 : (c->per_node - 1) / c->per_node;
    if (a == NVLS_TREE) {
        intra = least(intra, c->nodes == 2 ? 2 * inter : inter);
        intra = least(intra, most_nvls_tree[c->f->generation][by_nodes(c)]);
    }
    return channels * intra;
}

static double ring_bandwidth(const Call *c, Protocol p, double bus, double channels)
{
    int row = c->nodes == 1 ? (int)c->f->generation : c->f->cpu == SIM_AMD ? 1 : 0;
    if (p == LL) return least(most_ll[row][by_nodes(c)], bus * .5);
    if (p == LL128) return least(bus * .92, channels * most_ring_ll128[c->f->generation]);
    return bus;
}

static double tree_bandwidth(const Call *c, Protocol p, double bus, double channels)
{
    int row = c->nodes == 1 ? (int)c->f->generation : c->f->cpu == SIM_AMD ? 1 : 0, n = by_nodes(c);
    SimGeneration generation = c->f->generation;
    bus = least(bus * .92, channels * most_tree[generation][n]);
    if (p == LL) bus = least(bus / 3.8, most_ll[row][n]);
    if (p == LL128)
        bus = least(bus * (c->nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                    channels * most_tree_ll128[generation][n]);
    return c->per_node == 1 ? bus * .85 : bus; // one GPU handles all of its node's traffic
}

// Of the whole buffer.
static double bandwidth(const Call *c, Algorithm a, Protocol p)
{
    const SimGraph *ring = &c->f->ring;
    double channels = (double)ring->channels;
    double bus = channels * ((c->nodes <= 2 ? ring->intra : ring->inter) / 1e9);
    double whole = (double)c->ranks / (double)c->steps;
    switch (a) {
    case RING: return ring_bandwidth(c, p, bus, channels) * whole;
    case PAT: return bus * .75;
    case TREE: {
        int log = log2_below(c->bytes >> 6);
        bus = tree_bandwidth(c, p, bus, channels) * .5;
        return log < 23 ? bus * tree_factor[p][log] : bus;
    }
    default: return nvls_bandwidth(c, a) * (gathers(c) ? 1 : whole);
    }
}

// ---- Latency: nanoseconds ----

static double ring_latency(const Call *c, Protocol p, double inside, double between)
{
    Wire wire = c->nodes == 1 ? c->inside : WIRE_NET;
    if (c->route == ROUTE_CHAIN) return wire_latency[wire][RING][p];
    double overhead = c->nodes == 1 ? 0 : c->f->cpu == SIM_AMD ? 2000 : 1000;
    int far = (all_reduces(c) ? 2 : 1) * (c->nodes - 1);
    if (p == SIMPLE) overhead *= 3;
    return (double)(c->steps - far) * most(inside, overhead) + (double)far * between;
}

static double latency(const Call *c, Algorithm a, Protocol p)
{
    double inside = wire_latency[c->inside][a][p];
    double between = wire_latency[WIRE_NET][c->per_node == 1 ? TREE : a][p];
    double base = base_latency[a][p], logs = log2_below((uint64_t)c->nodes);
    between += c->f->net_latency / 1000 * (p == SIMPLE ? 2 : 1);
    switch (a) {
    case RING: base += ring_latency(c, p, inside, between); break;
    case TREE: return base + 2 * ((double)(c->ranks / c->nodes - 1) * inside + logs * between);
    case NVLS: return inside;
    case NVLS_TREE: return inside + 2 * logs * between;
    default: return base + logs * (between / 3.5) + (double)c->ranks * 2800;
    }
    bool plateau = p == SIMPLE && c->nodes > 1 && all_reduces(c) &&
                   c->bytes / (c->f->ring.channels * (uint64_t)c->ranks) >= 64;
    return plateau ? base * 1.4 : base;
}

// ---- Both models ----

static SimCollectiveCost by_nccl(const Call *c, SimCollectiveCost cost)
{
    double best = 0, best_latency = 0;
    for (int a = 0; a < ALGORITHMS; a++)
        for (int p = 0; p < PROTOCOLS; p++) {
            if (!is_enabled(c, a, p)) continue;
            double start = latency(c, a, p) * 1000;
            double time = start + (double)c->bytes * 1000 / bandwidth(c, a, p);
            if (best > 0 && time >= best) continue;
            best = time;
            best_latency = start;
            cost.algorithm = algorithm_names[a];
            cost.protocol = protocol_names[p];
        }
    cost.latency = sim_round(best_latency + c->f->nccl_constant, 1000);
    cost.work = sim_round(best - best_latency + c->f->nccl_root * sqrt((double)c->bytes), 1);
    return cost;
}

static SimCollectiveCost by_hand(const Call *c, SimCollectiveCost cost)
{
    double moved = (double)c->bytes * (double)c->steps * 1e12;
    cost.latency = sim_round(c->f->latency, 1000);
    cost.work = sim_round(moved / ((double)c->ranks * c->f->link[cost.link]), 1);
    cost.algorithm = "ring";
    return cost;
}

// A send and its receive: one message over the link.
static SimCollectiveCost message(const Call *c, SimCollectiveCost cost)
{
    Wire wire = c->nodes == 1 ? c->inside : WIRE_NET;
    double start = c->f->latency;
    if (c->f->model == SIM_MODEL_NCCL)
        start = c->f->nccl_constant +
                (double)(base_latency[RING][SIMPLE] + wire_latency[wire][RING][SIMPLE]) * 1000;
    cost.latency = sim_round(start, 1000);
    cost.work = sim_round((double)c->bytes * 1e12 / c->f->link[cost.link], 1);
    cost.algorithm = "p2p";
    cost.protocol = c->f->model == SIM_MODEL_NCCL ? "simple" : "";
    return cost;
}

static int steps_of(GpuLogRoute route, int ranks)
{
    switch (route) {
    case ROUTE_RING: return ranks - 1;
    case ROUTE_RING_TWICE: return 2 * (ranks - 1);
    case ROUTE_CHAIN:
    case ROUTE_PAIR: return ranks;
    }
    return 0;
}

SimCollectiveCost sim_cost_collective(const SimMachine *m, GpuOp op, int ranks, int nodes,
                                      uint64_t bytes)
{
    if (!m->has_link[SIM_NIC] || nodes < 1) nodes = 1;
    if (nodes > ranks) nodes = ranks;
    GpuLogRoute route = gpulog_kind(op)->route;
    Call c = {.m = m, .f = m->figures, .route = route, .ranks = ranks, .nodes = nodes};
    c.steps = steps_of(route, ranks);
    c.per_node = (double)ranks / (double)nodes;
    c.bytes = bytes;
    c.inside = m->has_link[SIM_NVLINK] ? WIRE_NVLINK : WIRE_PCI;
    SimLink link = nodes > 1 ? SIM_NIC : m->has_link[SIM_NVLINK] ? SIM_NVLINK : SIM_PCIE;
    SimCollectiveCost cost = {.link = link, .protocol = "", .ideal = m->figures->link[link]};
    if (route == ROUTE_PAIR) return message(&c, cost);
    return m->figures->model == SIM_MODEL_PLAIN ? by_hand(&c, cost) : by_nccl(&c, cost);
}
