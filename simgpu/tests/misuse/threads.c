/* threads.c: ranks whose calls come from threads. A communicator belongs to a device, and any
 * thread may use it next: so a wait is hopeless only where every thread that could make the missing
 * call waits too. Where one lives, a notice says who waits for whom.
 */
#include <pthread.h>
#include <unistd.h>

#include "program.h"

enum { TEAM = 2, STEPS = 4 };
#define SUM(x, comm) NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL))

// A process with two threads, and two communicators that both may use: of one process's two
// devices, or of two processes.
typedef struct Team {
    ncclComm_t comm[TEAM];
    int device[TEAM]; // of each communicator
    float *x[TEAM];
    pthread_barrier_t step;
    ncclUniqueId id;
} Team;

typedef struct Teammate {
    Team *team;
    int number, step;
    pthread_t thread;
} Teammate;

HELPER void start_mates(Team *team, Teammate *mate, void *(*work)(void *), int step)
{
    for (int t = 0; t < TEAM; t++) {
        mate[t] = (Teammate){.team = team, .number = t, .step = step};
        CHECK(pthread_create(&mate[t].thread, NULL, work, &mate[t]) == 0);
    }
}

HELPER void join_mates(Teammate *mate)
{
    for (int t = 0; t < TEAM; t++) pthread_join(mate[t].thread, NULL);
}

HELPER Team two_devices(void)
{
    Team team;
    NCCL(ncclCommInitAll(team.comm, TEAM, NULL));
    for (int d = 0; d < TEAM; d++) {
        CUDA(cudaSetDevice(d));
        team.device[d] = d;
        team.x[d] = filled(N, 1);
    }
    CHECK(pthread_barrier_init(&team.step, NULL, TEAM) == 0);
    return team;
}

HELPER Team two_communicators(int rank, int ranks)
{
    Team team;
    team.comm[0] = join(rank, ranks);
    NCCL(ncclCommSplit(team.comm[0], 0, rank, &team.comm[1], NULL));
    for (int c = 0; c < TEAM; c++) {
        team.device[c] = rank;
        team.x[c] = filled(N, 1);
    }
    CHECK(pthread_barrier_init(&team.step, NULL, TEAM) == 0);
    return team;
}

HELPER void finish_team(Team *team)
{
    for (int c = 0; c < TEAM; c++) {
        CUDA(cudaSetDevice(team->device[c]));
        CUDA(cudaDeviceSynchronize());
    }
    for (int c = 0; c < TEAM; c++) NCCL(ncclCommDestroy(team->comm[c]));
    for (int c = 0; c < TEAM; c++) {
        CUDA(cudaSetDevice(team->device[c]));
        CUDA(cudaDeviceReset());
    }
    pthread_barrier_destroy(&team->step);
}

HELPER void sum_on(Team *team, int c)
{
    CUDA(cudaSetDevice(team->device[c]));
    SUM(team->x[c], team->comm[c]);
}

HELPER void *swap_every_step(void *arg)
{
    Teammate *mate = arg;
    for (int step = 0; step < STEPS; step++) {
        if (mate->number == 1) usleep(10000);
        sum_on(mate->team, (mate->number + step) % TEAM);
        pthread_barrier_wait(&mate->team->step);
    }
    return NULL;
}

HELPER void expect_sums(Team *team)
{
    for (int c = 0; c < TEAM; c++) {
        CUDA(cudaSetDevice(team->device[c]));
        expect(team->x[c], N, 1 << STEPS);
    }
}

HELPER void swap_and_finish(Team team)
{
    Teammate mate[TEAM];
    start_mates(&team, mate, swap_every_step, 0);
    join_mates(mate);
    expect_sums(&team);
    finish_team(&team);
}

RIGHT(GROUP, threads_swap_devices, 1)
{
    swap_and_finish(two_devices());
}

RIGHT(COMM_ORDER, threads_swap_communicators, 2)
{
    swap_and_finish(two_communicators(rank, ranks));
}

HELPER void *one_sum(void *arg)
{
    Teammate *mate = arg;
    if (mate->number == mate->step % 2) usleep(10000);
    sum_on(mate->team, mate->number);
    return NULL;
}

// Each step has threads of its own, of which the one or the other is late.
HELPER void sum_and_finish(Team team, int first)
{
    Teammate mate[TEAM];
    for (int step = 0; step < STEPS; step++) {
        start_mates(&team, mate, one_sum, step + first);
        join_mates(mate);
    }
    expect_sums(&team);
    finish_team(&team);
}

RIGHT(GROUP, fresh_threads_every_step, 1)
{
    sum_and_finish(two_devices(), 0);
}

RIGHT(COMM_ORDER, fresh_threads_on_two_communicators, 2)
{
    sum_and_finish(two_communicators(rank, ranks), rank);
}

// One thread makes all ranks' calls, one after the other: the first waits for the second.
HELPER void *sum_on_both(void *arg);

// The program's first thread lives, but it only waits for the other one's end.
WRONG(DEADLOCK, loop_without_a_group_in_a_thread, 1, "0")
{
    Team team = two_devices();
    Teammate mate = {.team = &team};
    CHECK(pthread_create(&mate.thread, NULL, sum_on_both, &mate) == 0);
    pthread_join(mate.thread, NULL);
    finish_team(&team);
}

HELPER void *sum_on_both(void *arg)
{
    Team *team = ((Teammate *)arg)->team;
    for (int d = 0; d < TEAM; d++) {
        CUDA(cudaSetDevice(d));
        SUM(team->x[d], team->comm[d]); // HERE
    }
    return NULL;
}

// Nobody else is there: what could come, this thread would have to do.
WRONG(GROUP, loop_without_a_group_after_threads, 1, "0")
{
    Team team = two_devices();
    Teammate mate[TEAM];
    start_mates(&team, mate, one_sum, 0);
    join_mates(mate);
    for (int d = 0; d < TEAM; d++) {
        CUDA(cudaSetDevice(d));
        SUM(team.x[d], team.comm[d]); // HERE
    }
    finish_team(&team);
}

// The second thread has its device, and the two communicators the other way round.
HELPER void *second_device(void *arg);

// All threads of the program wait, so none is left that could help.
WRONG(COMM_ORDER, two_threads_in_both_orders, 1, "0")
{
    Team pair[2] = {two_devices()};
    Teammate mate = {.team = pair};
    NCCL(ncclCommInitAll(pair[1].comm, TEAM, NULL));
    CHECK(pthread_create(&mate.thread, NULL, second_device, &mate) == 0);
    CUDA(cudaSetDevice(0));
    SUM(pair->x[0], pair[0].comm[0]); // HERE
    SUM(pair->x[0], pair[1].comm[0]);
    pthread_join(mate.thread, NULL);
}

HELPER void *second_device(void *arg)
{
    Team *pair = ((Teammate *)arg)->team; // pair[0], pair[1]: communicators of both devices
    CUDA(cudaSetDevice(1));
    SUM(pair->x[1], pair[1].comm[1]); // HERE
    SUM(pair->x[1], pair[0].comm[1]);
    return NULL;
}

HELPER void *sum_in_some_order(void *arg);
HELPER void *sum_in_another_order(void *arg);

// The program's first thread might still do something.
HANGS(COMM_ORDER, threads_in_both_orders_beside_another, 2)
{
    Team team = two_communicators(rank, ranks);
    Teammate mate = {.team = &team, .number = rank};
    CHECK(pthread_create(&mate.thread, NULL, sum_in_another_order, &mate) == 0);
    for (;;) pause();
}

HELPER void *sum_in_another_order(void *arg)
{
    Teammate *mate = arg;
    Team *team = mate->team;
    int first = mate->number;
    CUDA(cudaSetDevice(team->device[0]));
    SUM(team->x[0], team->comm[first]); // HERE
    SUM(team->x[0], team->comm[1 - first]);
    return NULL;
}

// The threads of a team go through two communicators in different orders on two processes, while
// the programs' first threads wait for the end of theirs.
WRONG(COMM_ORDER, threads_in_both_orders, 2, "0 1")
{
    Team team = two_communicators(rank, ranks);
    Teammate mate = {.team = &team, .number = rank};
    CHECK(pthread_create(&mate.thread, NULL, sum_in_some_order, &mate) == 0);
    pthread_join(mate.thread, NULL);
}

HELPER void *sum_in_some_order(void *arg)
{
    Teammate *mate = arg;
    Team *team = mate->team;
    int first = mate->number;
    CUDA(cudaSetDevice(team->device[0]));
    SUM(team->x[0], team->comm[first]); // HERE
    SUM(team->x[0], team->comm[1 - first]);
    return NULL;
}

RIGHT(COMM_ORDER, threads_in_one_order, 2)
{
    Team team = two_communicators(rank, ranks);
    Teammate mate = {.team = &team, .number = 0};
    CHECK(pthread_create(&mate.thread, NULL, sum_in_some_order, &mate) == 0);
    pthread_join(mate.thread, NULL);
    expect(team.x[0], N, 4);
    finish_team(&team);
}

// One thread of the team finds nothing to do and returns.
HELPER void *sum_or_return(void *arg);

WRONG(DEADLOCK, thread_returns_early, 1, "0")
{
    Team team = two_devices();
    Teammate mate[TEAM];
    start_mates(&team, mate, sum_or_return, 1);
    join_mates(mate);
    finish_team(&team);
}

HELPER void *sum_or_return(void *arg)
{
    Teammate *mate = arg;
    Team *team = mate->team;
    int d = mate->number;
    if (d == mate->step) return NULL;
    CUDA(cudaSetDevice(d));
    SUM(team->x[d], team->comm[d]); // HERE
    return NULL;
}

HELPER void *join_or_return(void *arg);

// One thread returns before it has made its communicator.
HANGS(DEADLOCK, thread_returns_without_joining, 1)
{
    Team team;
    Teammate mate[TEAM];
    NCCL(ncclGetUniqueId(&team.id));
    start_mates(&team, mate, join_or_return, 1);
    join_mates(mate);
}

HELPER void *join_or_return(void *arg)
{
    Teammate *mate = arg;
    Team *team = mate->team;
    int d = mate->number;
    if (d == mate->step) return NULL;
    CUDA(cudaSetDevice(d));
    NCCL(ncclCommInitRank(&team->comm[d], TEAM, team->id, d)); // HERE
    return NULL;
}

RIGHT(DEADLOCK, every_thread_joins, 1)
{
    Team team;
    Teammate mate[TEAM];
    NCCL(ncclGetUniqueId(&team.id));
    start_mates(&team, mate, join_or_return, TEAM);
    join_mates(mate);
    for (int d = 0; d < TEAM; d++) NCCL(ncclCommDestroy(team.comm[d]));
}

RIGHT(DEADLOCK, no_thread_returns_early, 1)
{
    Team team = two_devices();
    Teammate mate[TEAM];
    start_mates(&team, mate, sum_or_return, TEAM);
    join_mates(mate);
    finish_team(&team);
}

// ---- Two threads inside one communicator, which takes one call at a time ----

// Of one communicator of two ranks. The second thread comes while the first is inside.
typedef struct Shared {
    ncclComm_t comm, other; // `other`: a child, or the same
    float *x, *y;
    pthread_mutex_t turn;
    pthread_t second;
} Shared;

HELPER void one_communicator(int rank, int ranks, void *(*work)(void *), Shared *at)
{
    Shared s = {.comm = join(rank, ranks), .x = filled(N, 1), .y = filled(N, 1)};
    s.other = s.comm;
    CHECK(pthread_mutex_init(&s.turn, NULL) == 0);
    *at = s;
    if (work) CHECK(pthread_create(&at->second, NULL, work, at) == 0);
}

HELPER void finish_shared(Shared *s, float value)
{
    pthread_join(s->second, NULL);
    expect(s->x, N, value);
    expect(s->y, N, value);
    NCCL(ncclCommDestroy(s->comm));
    pthread_mutex_destroy(&s->turn);
}

HELPER void *sum_later(void *arg);

// Rank 1 comes late, so rank 0's first call waits when the second begins.
WRONG(COMM_ORDER, two_threads_inside_one_communicator, 2, "0")
{
    Shared s;
    if (rank == 0) {
        one_communicator(rank, ranks, sum_later, &s);
        SUM(s.x, s.comm); // HERE
        finish_shared(&s, 2);
    } else {
        one_communicator(rank, ranks, NULL, &s);
        usleep(300000);
        for (int i = 0; i < 2; i++) SUM(i ? s.y : s.x, s.comm);
    }
}

HELPER void *sum_later(void *arg)
{
    Shared *s = arg;
    usleep(100000);
    SUM(s->y, s->other); // HERE
    return NULL;
}

HELPER void *sum_in_turn(void *arg)
{
    Shared *s = arg;
    CUDA(cudaSetDevice(0));
    for (int step = 0; step < STEPS; step++) {
        pthread_mutex_lock(&s->turn);
        SUM(s->y, s->comm);
        pthread_mutex_unlock(&s->turn);
        usleep(1000);
    }
    return NULL;
}

// Calls of one size: whichever thread comes first, they fit.
RIGHT(COMM_ORDER, two_threads_in_turn, 1)
{
    Shared s;
    one_communicator(rank, ranks, sum_in_turn, &s);
    for (int step = 0; step < STEPS; step++) {
        pthread_mutex_lock(&s.turn);
        SUM(s.x, s.comm);
        pthread_mutex_unlock(&s.turn);
        usleep(1000);
    }
    finish_shared(&s, 1);
}

// The second thread only asks, which is no operation.
HELPER void *asks(void *arg)
{
    Shared *s = arg;
    for (int i = 0; i < 200; i++) {
        ncclResult_t state;
        int count;
        NCCL(ncclCommGetAsyncError(s->comm, &state));
        NCCL(ncclCommCount(s->comm, &count));
        CHECK(state == ncclSuccess && count == 2);
        usleep(1000);
    }
    return NULL;
}

RIGHT(COMM_ORDER, a_thread_watches_the_other, 2)
{
    Shared s;
    one_communicator(rank, ranks, asks, &s);
    usleep(100000 * (useconds_t)rank);
    SUM(s.x, s.comm);
    SUM(s.y, s.comm);
    finish_shared(&s, 2);
}

HELPER void *receives(void *arg);

// One thread sends and another receives, on the same communicator.
WRONG(COMM_ORDER, a_thread_sends_and_one_receives, 2, "0")
{
    Shared s;
    if (rank == 0) {
        one_communicator(rank, ranks, receives, &s);
        usleep(100000);
        NCCL(ncclSend(s.x, N, ncclFloat, 1, s.comm, NULL)); // HERE
        finish_shared(&s, 1);
    } else {
        one_communicator(rank, ranks, NULL, &s);
        usleep(300000);
        NCCL(ncclRecv(s.x, N, ncclFloat, 0, s.comm, NULL));
        NCCL(ncclSend(s.y, N, ncclFloat, 0, s.comm, NULL));
    }
}

HELPER void *receives(void *arg)
{
    Shared *s = arg;
    NCCL(ncclRecv(s->y, N, ncclFloat, 1, s->comm, NULL)); // HERE
    return NULL;
}

RIGHT(COMM_ORDER, a_thread_sends_and_receives_in_a_group, 2)
{
    Shared s;
    one_communicator(rank, ranks, NULL, &s);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(s.x, N, ncclFloat, 1 - rank, s.comm, NULL));
    NCCL(ncclRecv(s.y, N, ncclFloat, 1 - rank, s.comm, NULL));
    NCCL(ncclGroupEnd());
    expect(s.y, N, 1);
    NCCL(ncclCommDestroy(s.comm));
}

HELPER void *destroys(void *arg);

// A group's calls come from one thread: the other's may not come in between.
WRONG(COMM_ORDER, a_call_between_anothers_group, 1, "0")
{
    Shared s;
    one_communicator(rank, ranks, sum_later, &s);
    NCCL(ncclGroupStart());
    SUM(s.x, s.comm); // HERE
    usleep(300000);
    NCCL(ncclGroupEnd());
    finish_shared(&s, 1);
}

WRONG(COMM_ORDER, destroyed_while_a_thread_is_inside, 2, "0")
{
    Shared s;
    one_communicator(rank, ranks, rank == 0 ? destroys : NULL, &s);
    usleep(300000 * (useconds_t)rank);
    SUM(s.x, s.comm); // HERE
    pthread_join(s.second, NULL);
}

HELPER void *destroys(void *arg)
{
    Shared *s = arg;
    usleep(100000);
    NCCL(ncclCommDestroy(s->comm)); // HERE
    return NULL;
}

HELPER void sums_with_a_child(int rank, int ranks, int share);

// Of communicators that share their resources one thread may be inside one.
WRONG(COMM_ORDER, parent_and_its_sharing_child_at_once, 2, "0 1")
{
    sums_with_a_child(rank, ranks, 1);
}

HELPER void sums_with_a_child(int rank, int ranks, int share)
{
    Shared s;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = share;
    CUDA(cudaSetDevice(rank));
    s = (Shared){.x = filled(N, 1), .y = filled(N, 1)};
    NCCL(ncclCommInitRankConfig(&s.comm, ranks, share_id(rank, ranks), rank, &config));
    NCCL(ncclCommSplit(s.comm, 0, rank, &s.other, NULL));
    CHECK(pthread_create(&s.second, NULL, sum_later, &s) == 0);
    usleep(300000 * (useconds_t)rank);
    SUM(s.x, s.comm); // HERE
    pthread_join(s.second, NULL);
    expect(s.x, N, 2);
    expect(s.y, N, 2);
    NCCL(ncclCommDestroy(s.other));
    NCCL(ncclCommDestroy(s.comm));
}

RIGHT(COMM_ORDER, parent_and_child_at_once, 2)
{
    sums_with_a_child(rank, ranks, 0);
}

HELPER void *makes_a_reduction(void *arg);

WRONG(COMM_ORDER, a_reduction_made_while_a_thread_is_inside, 2, "0")
{
    Shared s;
    one_communicator(rank, ranks, rank == 0 ? makes_a_reduction : NULL, &s);
    usleep(300000 * (useconds_t)rank);
    SUM(s.x, s.comm); // HERE
    pthread_join(s.second, NULL);
}

HELPER void *makes_a_reduction(void *arg)
{
    Shared *s = arg;
    float half = 0.5f;
    ncclRedOp_t scaled;
    usleep(100000);
    NCCL(ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat, ncclScalarHostImmediate, // HERE
                                  s->comm));
    return NULL;
}
