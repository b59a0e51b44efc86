/* plan.c: draws random sequences of NCCL calls, plays them, and checks what comes of them. */
#include "plan.h"
#include "draw.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "../numbers.h"
#include "harness.h"

enum { COUNT = 3000 }; // elements, at most

// ---- Plans ----

enum Kind {
    GATHER,
    SCATTER,
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    SHIFT,
    ALL_TO_ALL,
    KINDS,
    PART = KINDS
};

// One call on all ranks of a communicator.
typedef struct Step {
    uint64_t seed, number;
    enum Kind kind;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root, shift;
    int which; // of the two communicators
    size_t count;
    bool in_place, other_stream;
} Step;

static Step plan_step(uint64_t seed, uint64_t number, int world)
{
    static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin};
    uint64_t bits = draw_number(seed, 2, number);
    Step s = {.seed = seed, .number = number};
    s.kind = (enum Kind)(bits % KINDS);
    s.type = (ncclDataType_t)(bits >> 8 & 0xff) % (ncclBfloat16 + 1);
    s.op = ops[bits >> 16 & 3];
    s.root = (int)((bits >> 18 & 0xff) % (unsigned)world);
    s.shift = (int)((bits >> 26 & 0xff) % (unsigned)world);
    s.which = (int)(bits >> 34 & 1);
    s.in_place = bits >> 35 & 1;
    s.other_stream = bits >> 36 & 1;
    // Nothing at all, a few elements, or many.
    size_t most = (bits >> 37 & 7) == 0 ? 1 : (bits >> 37 & 7) < 4 ? 20 : COUNT;
    s.count = (size_t)(bits >> 40) % most;
    return s;
}

// The steps that go into one group; one alone needs none.
static int batch_size(uint64_t seed, uint64_t batch)
{
    uint64_t bits = draw_number(seed, 3, batch);
    return bits & 1 ? 1 : 1 + (int)(bits >> 1) % MAX_BATCH;
}

static bool is_part(uint64_t seed, uint64_t batch)
{
    return draw_number(seed, 4, batch) % 8 == 0;
}

// Element i of what a rank sends. A product of eight stays below 128: half of the ranks give 1.
static double element(const Step *s, int rank, size_t i)
{
    uint64_t bits = draw_number(s->seed ^ s->number << 20, (uint64_t)rank, i);
    if (s->op == ncclProd) return rank % 2 ? 1 : (double)(1 + bits % 2);
    return (double)(bits % 8);
}

static double reduced(const Step *s, int world, size_t i)
{
    double result = element(s, 0, i);
    for (int r = 1; r < world; r++) {
        double x = element(s, r, i);
        result = s->op == ncclSum    ? result + x
                 : s->op == ncclProd ? result * x
                 : s->op == ncclMax  ? fmax(result, x)
                                     : fmin(result, x);
    }
    return result;
}

// ---- Communicators that do not block ----

// A call may be in progress there.
static void begun(ncclResult_t result)
{
    if (result != ncclInProgress) need_nccl(result);
}

// Asks until all that was begun is over.
static void settle(Actor *actor, int n)
{
    for (int a = 0; a < n; a++)
        for (int c = 0; c < 3; c++) {
            ncclComm_t comm = c < 2 ? actor[a].comm[c] : actor[a].part;
            ncclResult_t state = comm ? ncclInProgress : ncclSuccess;
            while (state == ncclInProgress) need_nccl(ncclCommGetAsyncError(comm, &state));
            need_nccl(state);
        }
}

// ---- One rank, whoever plays it ----

static int rank_in(const Actor *a, const Step *s)
{
    return s->which ? a->world - 1 - a->rank : a->rank;
}

// Elements that a rank sends and receives.
static size_t sends(const Step *s, int world)
{
    bool wide = s->kind == SCATTER || s->kind == ALL_TO_ALL;
    return wide ? s->count * (size_t)world : s->count;
}

static size_t receives(const Step *s, int world)
{
    bool wide = s->kind == GATHER || s->kind == ALL_TO_ALL;
    return wide ? s->count * (size_t)world : s->count;
}

static bool works_in_place(const Step *s)
{
    return s->in_place && s->kind != SHIFT && s->kind != ALL_TO_ALL && s->count > 0;
}

static char *new_buffer(size_t bytes)
{
    void *memory;
    need_cuda(cudaMalloc(&memory, bytes + 1));
    return memory;
}

// Makes the buffers of a step and fills the one that is sent.
static void prepare(Actor *a, const Step *s, int k)
{
    size_t width = number_size(s->type), n = sends(s, a->world), m = receives(s, a->world);
    int rank = rank_in(a, s);
    char *host = malloc(n * width + 1);
    check(host != NULL, "no memory");
    for (size_t i = 0; i < n; i++) number_put(host, s->type, i, element(s, rank, i));
    need_cuda(cudaSetDevice(a->rank));
    a->send[k] = a->recv[k] = NULL;
    if (works_in_place(s)) {
        char *whole = new_buffer((n > m ? n : m) * width);
        a->send[k] = whole + (s->kind == GATHER ? (size_t)rank * s->count * width : 0);
        a->recv[k] = whole + (s->kind == SCATTER ? (size_t)rank * s->count * width : 0);
    } else {
        a->send[k] = new_buffer(n * width);
        a->recv[k] = new_buffer(m * width);
    }
    need_cuda(cudaMemcpy(a->send[k], host, n * width, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    free(host);
}

static void shift_messages(const Actor *a, const Step *s, int k, cudaStream_t stream)
{
    ncclComm_t comm = a->comm[s->which];
    int rank = rank_in(a, s);
    int to = (rank + s->shift) % a->world, from = (rank + a->world - s->shift) % a->world;
    need_nccl(ncclGroupStart());
    begun(ncclSend(a->send[k], s->count, s->type, to, comm, stream));
    begun(ncclRecv(a->recv[k], s->count, s->type, from, comm, stream));
    begun(ncclGroupEnd());
}

static void call(const Actor *a, const Step *s, int k)
{
    ncclComm_t c = a->comm[s->which];
    cudaStream_t stream = a->stream[s->other_stream];
    char *x = a->send[k], *y = a->recv[k];
    size_t n = s->count;
    need_cuda(cudaSetDevice(a->rank));
    switch (s->kind) {
    case GATHER: begun(ncclAllGather(x, y, n, s->type, c, stream)); break;
    case SCATTER: begun(ncclReduceScatter(x, y, n, s->type, s->op, c, stream)); break;
    case ALL_REDUCE: begun(ncclAllReduce(x, y, n, s->type, s->op, c, stream)); break;
    case BROADCAST: begun(ncclBroadcast(x, y, n, s->type, s->root, c, stream)); break;
    case REDUCE: begun(ncclReduce(x, y, n, s->type, s->op, s->root, c, stream)); break;
    case SHIFT: shift_messages(a, s, k, stream); break;
    default: begun(ncclAlltoAll(x, y, n, s->type, c, stream)); break;
    }
}

// What element i of the receive buffer must be.
static double wanted(const Actor *a, const Step *s, size_t i)
{
    int rank = rank_in(a, s), world = a->world;
    size_t n = s->count, from = n ? i / n : 0;
    switch (s->kind) {
    case GATHER: return element(s, (int)from, i % n);
    case SCATTER: return reduced(s, world, (size_t)rank * n + i);
    case BROADCAST: return element(s, s->root, i);
    case SHIFT: return element(s, (rank + world - s->shift) % world, i);
    case ALL_TO_ALL: return element(s, (int)from, (size_t)rank * n + i % n);
    default: return reduced(s, world, i);
    }
}

// Waits, compares, and lets the buffers go.
static void verify(Actor *a, const Step *s, int k)
{
    static const char *const names[] = {"all-gather", "reduce-scatter", "all-reduce", "broadcast",
                                        "reduce",     "shift",          "all-to-all"};
    size_t width = number_size(s->type), m = receives(s, a->world);
    char *host = malloc(m * width + 1);
    need_cuda(cudaSetDevice(a->rank));
    need_cuda(cudaStreamSynchronize(a->stream[s->other_stream]));
    bool due = s->kind != REDUCE || rank_in(a, s) == s->root; // elsewhere nothing was written
    if (due) need_cuda(cudaMemcpy(host, a->recv[k], m * width, cudaMemcpyDeviceToHost));
    for (size_t i = 0; due && i < m; i++) {
        double got = number_get(host, s->type, i), want = wanted(a, s, i);
        check(got == want,
              "seed %llu, step %llu, %s of %zu elements of type %d, operation %d%s: element %zu is "
              "%g, must be %g",
              (unsigned long long)s->seed, (unsigned long long)s->number, names[s->kind], s->count,
              (int)s->type, (int)s->op, works_in_place(s) ? ", in place" : "", i, got, want);
    }
    free(host);
    bool in_place = works_in_place(s);
    need_cuda(cudaFree(in_place && s->kind == SCATTER ? a->send[k]
                       : in_place                     ? a->recv[k]
                                                      : a->send[k]));
    if (!in_place) need_cuda(cudaFree(a->recv[k]));
}

// ---- Playing a plan ----

// Ranks do not come at the same time.
static void dawdle(uint64_t seed, uint64_t batch, int rank)
{
    uint64_t bits = draw_number(seed, 5 + (uint64_t)rank, batch);
    struct timespec moment = {0, (long)(bits >> 8) % 400000};
    if (bits % 6 == 0) nanosleep(&moment, NULL);
}

static void play_steps(Actor *actor, int n, const Step *step, int steps)
{
    for (int a = 0; a < n; a++)
        for (int k = 0; k < steps; k++) prepare(&actor[a], &step[k], k);
    bool grouped = n > 1 || steps > 1;
    if (grouped) need_nccl(ncclGroupStart());
    for (int a = 0; a < n; a++)
        for (int k = 0; k < steps; k++) call(&actor[a], &step[k], k);
    if (grouped) begun(ncclGroupEnd());
    settle(actor, n);
    for (int a = 0; a < n; a++)
        for (int k = 0; k < steps; k++) verify(&actor[a], &step[k], k);
}

static int color_of(uint64_t seed, uint64_t batch, int rank)
{
    return (int)(draw_number(seed, 20 + (uint64_t)rank, batch) % 3) - 1; // -1: in no part
}

// Splits all ranks into parts and sums each rank's number, plus 1, over its part.
static void play_part(Actor *actor, int n, uint64_t seed, uint64_t batch)
{
    float *x[MAX_WORLD], got;
    need_nccl(ncclGroupStart());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER; // a child need not block as its parent does
    config.blocking = actor[0].blocks || draw_number(seed, 30, batch) % 2 == 0;
    for (int a = 0; a < n; a++) {
        int color = color_of(seed, batch, actor[a].rank);
        begun(ncclCommSplit(actor[a].comm[0], color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                            -actor[a].rank, &actor[a].part, &config));
    }
    begun(ncclGroupEnd());
    settle(actor, n);
    for (int a = 0; a < n; a++) {
        float own = (float)(actor[a].rank + 1);
        need_cuda(cudaSetDevice(actor[a].rank));
        need_cuda(cudaMalloc((void **)&x[a], sizeof own));
        need_cuda(
            cudaMemcpyAsync(x[a], &own, sizeof own, cudaMemcpyHostToDevice, actor[a].stream[0]));
    }
    need_nccl(ncclGroupStart());
    for (int a = 0; a < n; a++)
        if (actor[a].part)
            begun(ncclAllReduce(x[a], x[a], 1, ncclFloat, ncclSum, actor[a].part,
                                actor[a].stream[0]));
    begun(ncclGroupEnd());
    settle(actor, n);
    for (int a = 0; a < n; a++) {
        int color = color_of(seed, batch, actor[a].rank), sum = 0;
        for (int r = 0; r < actor[a].world; r++)
            if (color_of(seed, batch, r) == color) sum += r + 1;
        if (color < 0) sum = actor[a].rank + 1;
        need_cuda(cudaSetDevice(actor[a].rank));
        need_cuda(cudaStreamSynchronize(actor[a].stream[0]));
        need_cuda(cudaMemcpy(&got, x[a], sizeof got, cudaMemcpyDeviceToHost));
        check(got == (float)sum, "seed %llu, batch %llu: the sum over part %d is %g, must be %d",
              (unsigned long long)seed, (unsigned long long)batch, color, (double)got, sum);
        need_cuda(cudaFree(x[a]));
        if (actor[a].part) need_nccl(ncclCommDestroy(actor[a].part));
        actor[a].part = NULL;
    }
}

typedef struct Batch {
    Actor *actor;
    int n;
    uint64_t seed, batch, first; // the number of its first step
} Batch;

static void *play_batch(void *arg)
{
    const Batch *b = arg;
    Step step[MAX_BATCH];
    int steps = batch_size(b->seed, b->batch);
    dawdle(b->seed, b->batch, b->actor[0].rank);
    if (is_part(b->seed, b->batch)) {
        play_part(b->actor, b->n, b->seed, b->batch);
        return NULL;
    }
    for (int k = 0; k < steps; k++)
        step[k] = plan_step(b->seed, b->first + (uint64_t)k, b->actor[0].world);
    play_steps(b->actor, b->n, step, steps);
    return NULL;
}

// A thread that lives as long as the plan, and plays the batches that it is given.
typedef struct Partner {
    pthread_t thread;
    sem_t turn, done;
    Batch *batch; // NULL: it is over
} Partner;

static void *play_in_turn(void *arg)
{
    Partner *p = arg;
    while (sem_wait(&p->turn) == 0 && p->batch) {
        play_batch(p->batch);
        sem_post(&p->done);
    }
    return NULL;
}

static void give_turn(Partner *p, Batch *batch)
{
    p->batch = batch;
    sem_post(&p->turn);
    if (batch) sem_wait(&p->done);
}

// Threads may use a communicator in turn: some batches have one of their own, some are a partner's.
void play(Actor *actor, int n, uint64_t seed, uint64_t batches)
{
    pthread_t thread;
    Batch b = {actor, n, seed, 0, 0};
    Partner partner;
    bool in_turn = actor[0].in_turn;
    sem_init(&partner.turn, 0, 0);
    sem_init(&partner.done, 0, 0);
    if (in_turn)
        check(pthread_create(&partner.thread, NULL, play_in_turn, &partner) == 0, "no thread");
    for (; b.batch < batches; b.batch++) {
        int who = in_turn ? (int)(draw_number(seed, 6, b.batch) % 3) : 0;
        if (who == 0) play_batch(&b);
        if (who == 1) give_turn(&partner, &b);
        if (who == 2) {
            check(pthread_create(&thread, NULL, play_batch, &b) == 0, "no thread");
            pthread_join(thread, NULL);
        }
        if (!is_part(seed, b.batch)) b.first += (uint64_t)batch_size(seed, b.batch);
    }
    if (!in_turn) return;
    give_turn(&partner, NULL);
    pthread_join(partner.thread, NULL);
}

void equip(Actor *actor, int n)
{
    need_nccl(ncclGroupStart());
    for (int a = 0; a < n; a++)
        begun(ncclCommSplit(actor[a].comm[0], 0, -actor[a].rank, &actor[a].comm[1], NULL));
    begun(ncclGroupEnd());
    settle(actor, n);
    for (int a = 0; a < n; a++) {
        need_cuda(cudaSetDevice(actor[a].rank));
        need_cuda(cudaStreamCreateWithFlags(&actor[a].stream[0], cudaStreamNonBlocking));
        need_cuda(cudaStreamCreate(&actor[a].stream[1]));
    }
}

void strip(Actor *actor, int n)
{
    for (int a = 0; a < n; a++) {
        need_cuda(cudaSetDevice(actor[a].rank));
        need_cuda(cudaStreamDestroy(actor[a].stream[0]));
        need_cuda(cudaStreamDestroy(actor[a].stream[1]));
        need_nccl(ncclCommDestroy(actor[a].comm[1]));
    }
}
