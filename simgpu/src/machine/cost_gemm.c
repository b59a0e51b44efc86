/* machine/cost_gemm.c: the cost of a product of matrices, by its shape and type.
 *
 * C (rows, cols) = A (rows, inner) · B (inner, cols), `batch` times. The library cuts C into tiles.
 * If these are too few for the multiprocessors, it cuts the inner dimension into parts, whose sums
 * a second pass adds. The tiles go to the multiprocessors in waves; the last wave takes as long as
 * a full one. The time of a tile is that of its operations at the multiprocessor's share of the
 * best rate, for a slightly longer inner dimension, in which its pipeline fills and drains. The
 * product takes the least time over tiles and parts, and never less than its bytes take. So
 * efficiency rises with size, in steps.
 *
 * The tiles are CUTLASS's usual ones. The loss of smaller tiles, which load more for each
 * operation, and the fill are assumed, not measured.
 */
#include "machine/figures.h"

typedef struct Tile {
    uint64_t rows, cols;
    double efficiency; // over that of the largest
} Tile;

static const Tile tiles[] = {{256, 128, 1},   {128, 256, 1}, {128, 128, 0.9}, {128, 64, 0.75},
                             {64, 128, 0.75}, {64, 64, 0.6}, {32, 32, 0.3}};
#define TILES (sizeof tiles / sizeof tiles[0])
#define MOST_PARTS 16
#define FILL 64 // elements of the inner dimension

static const uint64_t element_bytes[SIM_TYPES] = {
    [SIM_F64] = 8, [SIM_F32] = 4, [SIM_TF32] = 4, [SIM_BF16] = 2, [SIM_FP8] = 1};

typedef struct Product {
    uint64_t rows, cols, inner, batch;
    SimType type;
} Product;

static uint64_t pieces(uint64_t n, uint64_t size)
{
    return n / size + (n % size != 0);
}

// Picoseconds for the bytes of the operands, and of the sums of `parts` parts, written and read.
static double memory_time(const SimMachine *m, const Product *p, uint64_t parts)
{
    double rows = (double)p->rows, cols = (double)p->cols, inner = (double)p->inner;
    double elements = rows * inner + inner * cols + rows * cols;
    double bytes = elements * (double)element_bytes[p->type];
    if (parts > 1) bytes += 2 * (double)parts * rows * cols * 4;
    return (double)p->batch * bytes * 1e12 / m->figures->hbm;
}

static double waves(double n, uint64_t sms)
{
    double all = n / (double)sms;
    if (all >= 1e15) return all; // a fraction of a wave is nothing there
    double whole = (double)(uint64_t)all;
    return whole < all ? whole + 1 : whole;
}

static double tile_time(const SimMachine *m, const Product *p, const Tile *tile, uint64_t parts)
{
    const SimFigures *f = m->figures;
    double each = (double)pieces(p->rows, tile->rows) * (double)pieces(p->cols, tile->cols);
    double n = waves(each * (double)p->batch * (double)parts, f->sms);
    double depth = (double)(pieces(p->inner, parts) + FILL);
    double flops = 2 * (double)(tile->rows * tile->cols) * depth;
    double rate = m->peak[p->type] * f->gemm_efficiency * tile->efficiency / (double)f->sms;
    double computed = n * (flops * 1e12 / rate), moved = memory_time(m, p, parts);
    return (computed > moved ? computed : moved) + (parts > 1 ? f->kernel : 0);
}

static double tiled(const SimMachine *m, const Product *p)
{
    double least = 0;
    for (uint64_t parts = 1; parts <= MOST_PARTS; parts *= 2)
        for (size_t t = 0; t < TILES; t++) {
            double time = tile_time(m, p, &tiles[t], parts);
            if ((parts == 1 && t == 0) || time < least) least = time;
        }
    return least;
}

static double plain(const SimMachine *m, const Product *p)
{
    double flops = 2 * (double)p->rows * (double)p->cols * (double)p->inner * (double)p->batch;
    double computed = flops * 1e12 / m->peak[p->type], moved = memory_time(m, p, 1);
    return computed > moved ? computed : moved;
}

SimPs sim_cost_gemm(const SimMachine *m, uint64_t rows, uint64_t cols, uint64_t inner,
                    uint64_t batch, SimType type)
{
    Product p = {rows, cols, inner, batch, type};
    double time = 0;
    if (rows > 0 && cols > 0 && batch > 0)
        time = m->figures->gemm == SIM_GEMM_PLAIN ? plain(m, &p) : tiled(m, &p);
    return sim_round(m->figures->kernel + time, 1);
}
