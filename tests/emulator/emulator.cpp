/* emulator.cpp: runs every thread of a CUDA grid on the CPU, to test kernels where there is no GPU.
 *
 * Blocks run one after the other. A thread of a block runs straight on until it must wait: at a
 * barrier for the block, at a shuffle for its warp. Then the next thread runs, on a stack of its
 * own (a fiber): most kernels' threads never wait, and then share one stack. The last to arrive
 * does not wait, and lets the others go.
 *
 * What a GPU would do undefined things with ends the program here with one line: threads that wait
 * at different barriers, a barrier that some threads left the kernel without, a shuffle of less
 * than a whole warp, a pointer in no range that the launcher declared. A missing barrier shows in
 * another way: EMULATOR_SEED=n has threads and blocks run in another order (0: in their own; where
 * n is odd, a warp runs on as far as it can before another one does), and __shared__ memory begins
 * each block as NaNs.
 *
 * It shows nothing of what needs true concurrency, or a GPU's memory model: a missing fence, lanes
 * of a warp that exchange through memory with no __syncwarp, a wait for another block.
 *
 * Interface: emulator.h; threadIdx, blockIdx, blockDim, gridDim.
 */
#include <cuda_runtime.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simgpu.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

#define MOST_THREADS 1024
#define WARP 32

// What runs whenever a thread waits: half the time of a training's kernels.
#define ALWAYS_INLINE static inline __attribute__((always_inline))

// ---- One kernel_X: its ranges ----

static thread_local SimgpuOp op;
static thread_local char *usable_of_range[GPULOG_RANGES]; // as simgpu gave it
static thread_local GpuRange declared[GPULOG_RANGES];
static thread_local int n_declared;
static thread_local const char *kernel_name;

[[noreturn]] static void refuse(const char *what)
{
    fflush(stdout);
    fprintf(stderr, "emulator: %s: %s (block %u,%u, thread %u,%u)\n", kernel_name, what, blockIdx.x,
            blockIdx.y, threadIdx.x, threadIdx.y);
    abort();
}

// A captured kernel_X: what a launch of its graph does again. It lives as long as the process.
struct Grid {
    dim3 grid, block;
    void (*thread)(void *packed);
    void (*look_up)(void *packed);
    void *packed;
    size_t packed_bytes, bytes;
    char *shared;
    Grid *next;
};
struct Captured {
    const char *name;
    const void *site;
    int n_ranges;
    GpuRange range[GPULOG_RANGES];
    Grid *first, **last;
};
static thread_local Captured *captured;

static cudaError_t run_again(Captured *c, cudaStream_t stream)
{
    emulator_begin(c->name, stream, c->site, c->n_ranges, c->range);
    for (Grid *g = c->first; g && simgpu_ready(&op); g = g->next) {
        void *packed = malloc(g->packed_bytes);
        if (!packed) abort();
        memcpy(packed, g->packed, g->packed_bytes);
        g->look_up(packed);
        emulator_run(g->grid, g->block, g->thread, packed, g->shared, g->bytes);
        free(packed);
    }
    return emulator_end();
}

static void note_captured(const char *name, cudaStream_t stream, const void *site, int n_ranges,
                          const GpuRange *ranges)
{
    captured = (Captured *)calloc(1, sizeof *captured);
    if (!captured) abort();
    captured->name = name;
    captured->site = site;
    captured->n_ranges = n_ranges;
    memcpy(captured->range, ranges, (size_t)n_ranges * sizeof *ranges);
    captured->last = &captured->first;
    const SimgpuArg args[] = {{(uint64_t)(uintptr_t)captured, 0, SimgpuArg::SIMGPU_ARG_WORD},
                              {(uint64_t)(uintptr_t)stream, 0, SimgpuArg::SIMGPU_ARG_WORD}};
    simgpu_note_call((const void *)run_again, 2, args);
}

bool emulator_captures(void)
{
    return op.captured;
}

cudaError_t emulator_capture(const dim3 &grid, const dim3 &block, void (*thread)(void *packed),
                             void (*look_up)(void *packed), const void *packed, size_t packed_bytes,
                             char *shared, size_t bytes)
{
    void *own = malloc(packed_bytes);
    if (!own) abort();
    memcpy(own, packed, packed_bytes);
    *captured->last =
        new Grid{grid, block, thread, look_up, own, packed_bytes, bytes, shared, NULL};
    captured->last = &(*captured->last)->next;
    return cudaSuccess;
}

void emulator_begin(const char *name, cudaStream_t stream, const void *site, int n_ranges,
                    const GpuRange *ranges)
{
    if (simgpu_captures) note_captured(name, stream, site, n_ranges, ranges);
    op = simgpu_begin(name, stream, site);
    kernel_name = name;
    n_declared = n_ranges;
    for (int i = 0; i < n_ranges; i++) {
        void *ptr = (void *)ranges[i].ptr, *usable = NULL;
        size_t bytes = ranges[i].bytes;
        if (ranges[i].access == GPU_READ) usable = (void *)simgpu_read(&op, ptr, bytes);
        if (ranges[i].access == GPU_WRITE) usable = simgpu_write(&op, ptr, bytes);
        if (ranges[i].access == GPU_UPDATE) usable = simgpu_update(&op, ptr, bytes);
        declared[i] = ranges[i];
        usable_of_range[i] = (char *)usable;
    }
}

cudaError_t emulator_end(void)
{
    return simgpu_end(&op);
}

const void *emulator_pointer(const void *pointer)
{
    if (pointer == NULL || !simgpu_ready(&op)) return NULL;
    for (int i = 0; i < n_declared; i++) {
        size_t offset = (size_t)((const char *)pointer - (const char *)declared[i].ptr);
        if (offset == 0 || offset < declared[i].bytes) return usable_of_range[i] + offset;
    }
    refuse("it was given a pointer that lies in no range it declared");
}

// ---- Fibers ----

// A stack each, with a page between that nobody may touch. They begin at different offsets into a
// page, or all would fall into the same few lines of the cache.
#define STACK_BYTES ((size_t)64 * 1024)
#define STACK_STEP 192

struct Fiber {
    void *stack_pointer; // while it does not run
    char *top;
};

// Saves what a call must keep, leaves the stack pointer in *from, and goes on at `to`.
extern "C" void emulator_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n"
    ".type emulator_switch, @function\n"
    ".globl emulator_switch\n"
    "emulator_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n"
    ".size emulator_switch, . - emulator_switch\n");
#define SAVED_WORDS 6
#elif defined(__aarch64__)
asm(".text\n"
    ".type emulator_switch, %function\n"
    ".globl emulator_switch\n"
    "emulator_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n    str x9, [x0]\n"
    "    mov sp, x1\n"
    "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n"
    ".size emulator_switch, . - emulator_switch\n");
#else
#error "emulator_switch is written for x86-64 and aarch64"
#endif

static Fiber fibers[MOST_THREADS];
static Fiber *idle[MOST_THREADS]; // a stack of those that run no thread
static int n_idle, n_fibers;      // n_fibers: how many have memory
static void *main_stack_pointer;  // of emulator_run, while fibers run

static void run_threads(void);

// A fiber that has not begun: switching to it calls run_threads.
static void rewind_fiber(Fiber *fiber)
{
    void **at = (void **)fiber->top;
#if defined(__x86_64__)
    *--at = NULL; // where run_threads would return to: never
    *--at = (void *)run_threads;
    for (int i = 0; i < SAVED_WORDS; i++) *--at = NULL;
#else
    at -= 20;
    memset(at, 0, 20 * sizeof *at);
    at[11] = (void *)run_threads; // x30
#endif
    fiber->stack_pointer = at;
}

static Fiber *take_fiber(void)
{
    if (n_idle > 0) return idle[--n_idle];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = STACK_BYTES + 2 * page;
    char *memory = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        refuse("there is no memory for the stack of a thread");
    Fiber *fiber = &fibers[n_fibers];
    fiber->top = memory + bytes - (size_t)n_fibers * STACK_STEP % page;
    n_fibers++;
    rewind_fiber(fiber);
    return fiber;
}

// ---- Threads of the block that runs ----

enum State { FRESH, READY, RUNNING, AT_BLOCK, AT_WARP, GONE };

struct Thread {
    State state;
    Fiber *fiber;
    dim3 index;
};

struct Warp {
    int arrived, line;
    unsigned round;         // how often it has met: even and odd rounds have places of their own,
    uint64_t bits[2][WARP]; // because a fast lane may be one round ahead of a slow one's reading
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // one grid at a time
static Thread threads[MOST_THREADS];
static Warp warps[MOST_THREADS / WARP];
static int order[MOST_THREADS]; // in which threads run
static bool warps_hurry;        // order has whole warps, and the running one goes first
static int n_threads, n_gone, n_runnable, at_block, block_line;
static int cursor;  // the place in `order` to look from
static int current; // the thread that runs
static bool trapped;
static void (*thread_body)(void *packed);
static void *thread_packed;
static char *shared_memory; // (shared_bytes) of the block
static size_t shared_bytes;

ALWAYS_INLINE bool runnable(int place)
{
    State state = threads[order[place]].state;
    return state == FRESH || state == READY;
}

// The next thread that can go on, in order, beginning behind the last; -1: there is none.
ALWAYS_INLINE int next_thread(void)
{
    if (n_runnable == 0) return -1;
    if (warps_hurry && cursor >= 0)
        for (int place = cursor / WARP * WARP, end = place + WARP; place < end; place++)
            if (runnable(place)) return order[cursor = place];
    do cursor = cursor + 1 < n_threads ? cursor + 1 : 0;
    while (!runnable(cursor));
    return order[cursor];
}

// Makes t the running thread; one that has not begun runs on `fiber`, or on a fresh one.
ALWAYS_INLINE void choose(int t, Fiber *fiber)
{
    if (threads[t].state == FRESH) threads[t].fiber = fiber != NULL ? fiber : take_fiber();
    threads[t].state = RUNNING;
    n_runnable--;
    current = t;
    threadIdx = threads[t].index;
    // The next one's stack is in no near cache.
    if (cursor + 1 < n_threads) {
        Thread *then = &threads[order[cursor + 1]];
        if (then->state == READY) __builtin_prefetch(then->fiber->stack_pointer);
    }
}

[[noreturn]] static void refuse_deadlock(void)
{
    refuse("its threads wait at different barriers, or for threads that left the kernel");
}

// A fiber's life: runs the chosen thread to its end, then the next one that has not begun, on the
// same stack, until the block is done or a thread that waited can go on.
static void run_threads(void)
{
    for (;;) {
        Fiber *fiber = threads[current].fiber;
        thread_body(thread_packed);
        threads[current].state = GONE;
        n_gone++;
        int next = next_thread();
        if (next < 0 && n_gone < n_threads) refuse_deadlock();
        if (next >= 0) choose(next, fiber);
        if (next >= 0 && threads[next].fiber == fiber) continue;
        idle[n_idle++] = fiber;
        emulator_switch(&fiber->stack_pointer,
                        next >= 0 ? threads[next].fiber->stack_pointer : main_stack_pointer);
    }
}

// The running thread waits in `state` until another one makes it READY.
ALWAYS_INLINE void wait_as(State state)
{
    Thread *me = &threads[current];
    int mine = current;
    me->state = state;
    int next = next_thread();
    if (next < 0) refuse_deadlock();
    choose(next, NULL);
    emulator_switch(&me->fiber->stack_pointer, threads[next].fiber->stack_pointer);
    if (current != mine) refuse("the emulator mixed up its threads");
}

static void let_go(int first, int end, State state)
{
    for (int t = first; t < end; t++)
        if (threads[t].state == state) {
            threads[t].state = READY;
            n_runnable++;
        }
}

void emulator_meet_block(int line)
{
    if (at_block > 0 && line != block_line) refuse("its threads wait at different barriers");
    if (n_gone > 0) refuse("it has threads that left before a barrier of the block");
    block_line = line;
    if (++at_block < n_threads) return wait_as(AT_BLOCK);
    at_block = 0;
    let_go(0, n_threads, AT_BLOCK);
}

unsigned emulator_lane(void)
{
    return (unsigned)current % WARP;
}

const uint64_t *emulator_meet_warp(unsigned mask, uint64_t bits, int line)
{
    int first = current / WARP * WARP;
    Warp *warp = &warps[current / WARP];
    unsigned round = warp->round % 2;
    if (mask != 0xffffffffu) refuse("a shuffle or barrier of less than a whole warp");
    if (warp->arrived > 0 && line != warp->line)
        refuse("lanes of a warp wait at different shuffles or barriers");
    warp->line = line;
    warp->bits[round][emulator_lane()] = bits;
    if (++warp->arrived < WARP) {
        wait_as(AT_WARP);
    } else {
        warp->arrived = 0;
        warp->round++;
        let_go(first, first + WARP, AT_WARP);
    }
    return warp->bits[round];
}

void emulator_trap(void)
{
    trapped = true;
    void *abandoned;
    emulator_switch(&abandoned, main_stack_pointer);
    abort(); // nobody comes back here
}

// ---- Grids ----

// The number behind `seed` in a fixed sequence (the constants are those of Knuth's MMIX).
static uint64_t step(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

// out (n) = 0 … n-1, in an order that seed gives; in theirs where it is 0.
static void shuffle(int *out, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) out[i] = i;
    if (seed == 0) return;
    for (int i = n - 1; i > 0; i--) {
        int other = (int)(step(&seed) % (uint64_t)(i + 1)), kept = out[i];
        out[i] = out[other];
        out[other] = kept;
    }
}

// The threads' indices, and the order in which they run.
static void prepare_threads(const dim3 &block, uint64_t seed)
{
    n_threads = (int)(block.x * block.y * block.z);
    int t = 0;
    for (unsigned z = 0; z < block.z; z++)
        for (unsigned y = 0; y < block.y; y++)
            for (unsigned x = 0; x < block.x; x++) threads[t++].index = dim3(x, y, z);
    warps_hurry = seed % 2 == 1;
    shuffle(order, n_threads, seed);
    if (!warps_hurry) return;
    int warp_order[MOST_THREADS / WARP], lane_order[WARP];
    shuffle(warp_order, n_threads / WARP, seed);
    shuffle(lane_order, WARP, seed);
    for (int i = 0; i < n_threads; i++)
        order[i] = warp_order[i / WARP] * WARP + lane_order[i % WARP];
}

static void run_block(void)
{
    if (shared_bytes > 0) memset(shared_memory, 0xff, shared_bytes);
    for (int t = 0; t < n_threads; t++) threads[t].state = FRESH;
    for (int w = 0; w < n_threads / WARP; w++) warps[w].arrived = 0;
    n_runnable = n_threads;
    n_gone = at_block = 0;
    cursor = -1;
    int first = next_thread();
    choose(first, NULL);
    emulator_switch(&main_stack_pointer, threads[first].fiber->stack_pointer);
}

// After a trap, fibers hold threads that will never end.
static void forget_threads(void)
{
    n_idle = 0;
    for (int i = 0; i < n_fibers; i++) {
        rewind_fiber(&fibers[i]);
        idle[n_idle++] = &fibers[i];
    }
}

static bool run_grid(const dim3 &grid, const dim3 &block, uint64_t seed)
{
    int n_blocks = (int)(grid.x * grid.y * grid.z);
    int *block_order = (int *)malloc((size_t)n_blocks * sizeof *block_order);
    if (block_order == NULL) refuse("there is no memory for the order of its blocks");
    shuffle(block_order, n_blocks, seed);
    prepare_threads(block, seed);
    gridDim = grid;
    blockDim = block;
    trapped = false;
    for (int i = 0; i < n_blocks && !trapped; i++) {
        unsigned b = (unsigned)block_order[i];
        blockIdx = dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
        run_block();
    }
    free(block_order);
    if (trapped) forget_threads();
    return !trapped;
}

cudaError_t emulator_run(const dim3 &grid, const dim3 &block, void (*thread)(void *packed),
                         void *packed, char *shared, size_t bytes)
{
    if (!simgpu_ready(&op)) return op.error;
    size_t n = (size_t)block.x * block.y * block.z;
    if (n == 0 || n > MOST_THREADS || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
        grid.z > 65535)
        return op.error = cudaErrorInvalidConfiguration;
    if (n % WARP != 0) refuse("its blocks are not whole warps");
    const char *seed = getenv("EMULATOR_SEED");
    pthread_mutex_lock(&lock);
    thread_body = thread;
    thread_packed = packed;
    shared_memory = shared;
    shared_bytes = bytes;
    bool done = run_grid(grid, block, seed != NULL ? strtoull(seed, NULL, 10) : 0);
    pthread_mutex_unlock(&lock);
    if (!done) {
        fflush(stdout);
        op.error = cudaErrorLaunchFailure;
    }
    return op.error;
}
