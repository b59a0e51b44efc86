/* time_by_hand.c: schedules that were computed by hand from simgpu/pages/time.md: the simulator of
 * simgpu/tests/time must find them, and so must simgpu's clock.
 *
 * Times in comments are microseconds. The machine, where a test does not say otherwise: a call
 * costs 1, of NCCL 2; cudaMalloc and cudaMallocHost 5 each, so that programs begin at 10; waking up
 * 3; a kernel takes 1 and 1 for every 1000 bytes or FLOP, a copy with the host too; latency 1;
 * every link 1000 bytes in 1; what overlaps is half as fast.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "time/program.h"

static Program p;

static void begin(int n_ranks, int n_processes)
{
    World *w = &p.world;
    memset(&p, 0, sizeof p);
    w->n_ranks = n_ranks;
    w->n_processes = n_processes;
    for (int r = 0; r < n_ranks; r++) w->process[r] = r % n_processes;
    w->n_comms = 3; // three communicators of all ranks
    for (int i = 0; i < 3; i++) {
        w->comm[i].n = n_ranks;
        for (int r = 0; r < n_ranks; r++) w->comm[i].rank[r] = r;
    }
    for (int i = 0; i < n_ranks * STREAMS; i++) w->made[i] = i;
    Machine *m = &w->machine;
    *m = (Machine){.gpus_per_node = 8,
                   .hbm = 1e9,
                   .peak = 1e9,
                   .bandwidth = {1e9, 1e9, 1e9},
                   .slow_compute = {2, 1},
                   .slow_compute_nic = {3, 2},
                   .slow_transfer = {2, 1}};
    m->launch = m->enqueue = m->sync = m->query = m->kernel = m->copy = m->latency = 1000000;
    m->collective = 2000000;
    m->allocate = m->free = m->pin = 5000000;
    m->wake = 3000000;
}

static int add(Step s)
{
    p.step[p.n] = s;
    return p.n++;
}

static int kernel(int rank, StreamName stream, int bytes)
{
    return add((Step){.kind = KERNEL, .rank = rank, .stream = stream, .read = bytes});
}

static int call(Kind kind, int rank, StreamName stream, int bytes)
{
    return add((Step){.kind = kind, .rank = rank, .stream = stream, .read = bytes, .from = rank});
}

static int record_slot(int rank, StreamName stream, int slot)
{
    return add((Step){.kind = RECORD, .rank = rank, .stream = stream, .slot = slot});
}

static int record(int rank, StreamName stream)
{
    return record_slot(rank, stream, 3);
}

static Call collective(Collective op, int comm, StreamName stream, int bytes)
{
    Call c = {.op = op, .comm = comm, .bytes = bytes};
    for (int i = 0; i < MAX_RANKS; i++) c.stream[i] = stream;
    return c;
}

static Call message(int comm, int from, int to, StreamName stream, int bytes)
{
    Call c = collective(MESSAGE, comm, stream, bytes);
    c.root = from;
    c.to = to;
    return c;
}

static int nccl(Call c)
{
    return add((Step){.kind = NCCL, .n_calls = 1, .call = {c}});
}

static int group(Call a, Call b)
{
    return add((Step){.kind = NCCL, .n_calls = 2, .call = {a, b}});
}

// All-gather of two ranks: it takes 1 for every 2000 bytes.
static int gather(int comm, StreamName stream, int bytes)
{
    return nccl(collective(ALL_GATHER, comm, stream, bytes));
}

// ---- What must come out ----

typedef struct Want {
    int step;
    double us;
} Want;

static void compare(const char *who, const Times *times, const Want *want, int n)
{
    for (int i = 0; i < n; i++) {
        Ps ps = (Ps)(want[i].us * 1e6 + 0.5);
        if (times->at[want[i].step] == ps) continue;
        print_program(stderr, &p);
        fail_msg("%s: step %d ends at %llu ps, by hand at %llu", who, want[i].step,
                 (unsigned long long)times->at[want[i].step], (unsigned long long)ps);
    }
}

static void must_be(const Want *want, int n)
{
    static Times simulated, played;
    simulate(&p, &simulated, NULL);
    compare("the simulator", &simulated, want, n);
    char *message = play(&p, &played);
    if (message) fail_msg("%s", message);
    compare("simgpu", &played, want, n);
}
#define MUST_BE(...) must_be((Want[]){__VA_ARGS__}, sizeof((Want[]){__VA_ARGS__}) / sizeof(Want))

// ---- One rank ----

TEST(test_compute_is_one_at_a_time)
{
    begin(1, 1);
    kernel(0, FREE_A, 4000);            // queued at 11: 11-16
    kernel(0, FREE_B, 2000);            // at 12: 16-19
    int a = record(0, FREE_A);          // at 13
    int b = record(0, FREE_B);          // at 14
    int host = record(0, CLOCK_STREAM); // at 15
    MUST_BE({a, 16}, {b, 19}, {host, 15});
}

TEST(test_engines_work_side_by_side)
{
    begin(1, 1);
    kernel(0, FREE_A, 9000);                       // 11-21
    call(TO_DEVICE_PINNED, 0, FREE_B, 4000);       // at 12: 12-17
    call(FROM_DEVICE_PINNED, 0, BLOCKING_A, 4000); // at 13: 13-18
    call(TO_DEVICE_PINNED, 0, BLOCKING_B, 1000);   // at 14: 17-19
    int a = record(0, FREE_A), b = record(0, FREE_B);
    int c = record(0, BLOCKING_A), d = record(0, BLOCKING_B);
    MUST_BE({a, 21}, {b, 17}, {c, 18}, {d, 19});
}

// Of kernels that are ready together the one on the stream that was made first begins.
TEST(test_a_tie_goes_by_stream)
{
    for (int swapped = 0; swapped < 2; swapped++) {
        begin(1, 1);
        if (swapped) {
            p.world.made[FREE_B] = BLOCKING_A;
            p.world.made[BLOCKING_A] = FREE_B;
        }
        kernel(0, FREE_A, 9000);   // 11-21
        record_slot(0, FREE_A, 0); // 21
        add((Step){.kind = WAIT, .rank = 0, .stream = FREE_B, .slot = 0});
        add((Step){.kind = WAIT, .rank = 0, .stream = BLOCKING_A, .slot = 0});
        kernel(0, FREE_B, 1000);     // ready at 21
        kernel(0, BLOCKING_A, 4000); // ready at 21
        int b = record(0, FREE_B), a = record(0, BLOCKING_A);
        if (swapped)
            MUST_BE({b, 23}, {a, 28});
        else
            MUST_BE({a, 26}, {b, 28});
    }
}

// The default stream of a device counts as made when the device was: here for its first stream.
TEST(test_a_default_stream_is_as_old_as_its_device)
{
    for (int swapped = 0; swapped < 2; swapped++) {
        begin(2, 1);
        if (swapped) {
            p.world.made[0] = STREAMS + BLOCKING_A; // of rank 1, before all of rank 0
            p.world.made[STREAMS + BLOCKING_A] = 0;
        }
        kernel(1, FREE_A, 9000);   // 21-31
        record_slot(1, FREE_A, 0); // 31
        add((Step){.kind = WAIT, .rank = 0, .stream = FREE_A, .from = 1, .slot = 0});
        add((Step){.kind = WAIT, .rank = 1, .stream = LEGACY, .from = 1, .slot = 0});
        // Both are ready at 31, and use the engine from device 1.
        add((Step){.kind = PEER_ASYNC, .rank = 0, .stream = FREE_A, .from = 1, .read = 1000});
        call(FROM_DEVICE_PINNED, 1, LEGACY, 4000);
        int a = record(0, FREE_A), b = record(1, LEGACY);
        if (swapped)
            MUST_BE({b, 36}, {a, 38});
        else
            MUST_BE({a, 33}, {b, 38});
    }
}

TEST(test_default_stream)
{
    begin(1, 1);
    kernel(0, BLOCKING_A, 4000);                 // 11-16
    call(FROM_DEVICE_PINNED, 0, LEGACY, 2000);   // at 12, behind it: 16-19
    call(TO_DEVICE_PINNED, 0, BLOCKING_B, 1000); // at 13, behind that: 19-21
    call(TO_DEVICE_PINNED, 0, FREE_A, 3000);     // at 14: 14-18
    int a = record(0, LEGACY);                   // at 15, behind BLOCKING_B too
    int b = record(0, BLOCKING_B), c = record(0, FREE_A);
    MUST_BE({a, 21}, {b, 21}, {c, 18});
}

TEST(test_the_host_wakes_up)
{
    begin(1, 1);
    kernel(0, FREE_A, 4000);                // 11-16
    call(STREAM_SYNC, 0, FREE_A, 0);        // at 12, returns at 19
    int first = record(0, CLOCK_STREAM);    // 20
    call(DEVICE_SYNC, 0, 0, 0);             // at 21; the record ended at 20: returns at 23
    int second = record(0, CLOCK_STREAM);   // 24
    call(FROM_DEVICE, 0, LEGACY, 4000);     // at 25: 25-30, returns at 33
    int third = record(0, CLOCK_STREAM);    // 34
    add((Step){.kind = MALLOC, .rank = 0}); // 39
    kernel(0, FREE_A, 9000);                // 40-50
    add((Step){.kind = FREE, .rank = 0});   // at 45, returns at 53
    int fourth = record(0, CLOCK_STREAM);
    MUST_BE({first, 20}, {second, 24}, {third, 34}, {fourth, 54});
}

TEST(test_queries)
{
    static Times times;
    begin(1, 1);
    kernel(0, FREE_A, 1000);                        // 11-13
    int early = call(STREAM_QUERY, 0, FREE_A, 0);   // 12
    int on_time = call(STREAM_QUERY, 0, FREE_A, 0); // 13
    int host =
        record(0, CLOCK_STREAM); // a query is no last call, but the clock is its thread's: 14
    simulate(&p, &times, NULL);
    assert_false(times.ready[early]);
    assert_true(times.ready[on_time]);
    MUST_BE({host, 14});
}

static void set_phase(Mode mode, int number)
{
    p.step[p.n - 1].phase[0] = (Phase){mode, number};
}

TEST(test_threads)
{
    begin(1, 1);
    kernel(0, FREE_A, 4000);         // the first thread's: 11-16
    call(STREAM_SYNC, 0, FREE_A, 0); // a new thread's: begins at 11, at 12, returns at 19
    set_phase(NEW_THREAD, 1);
    int new = record(0, CLOCK_STREAM); // 20
    set_phase(NEW_THREAD, 1);
    call(STREAM_QUERY, 0, FREE_A, 0); // another one's: 21
    set_phase(NEW_THREAD, 2);
    call(STREAM_QUERY, 0, FREE_A, 0); // 22
    set_phase(NEW_THREAD, 2);
    int first = record(0, CLOCK_STREAM); // the first thread's, which has joined them: 23
    set_phase(FIRST_THREAD, 3);
    MUST_BE({new, 20}, {first, 23});
}

// ---- Several ranks ----

TEST(test_two_transfers_share)
{
    begin(2, 2);
    gather(0, FREE_A, 8000); // at 12; from 13, alone till 15
    gather(1, FREE_B, 8000); // at 14; from 15
    int a = record(0, FREE_A), b = record(0, FREE_B), c = record(1, FREE_B);
    MUST_BE({a, 19}, {b, 21}, {c, 21});
}

TEST(test_three_transfers_share)
{
    begin(2, 2);
    gather(0, FREE_A, 8000);     // 4; from 13; 2 left at 15, 1 at 17: 20
    gather(1, FREE_B, 8000);     // 4; from 15; 3 left at 17, 2 at 20, 1 at 22: 23
    gather(2, BLOCKING_A, 4000); // 2; from 17; 1 left at 20: 22
    int a = record(0, FREE_A), b = record(0, FREE_B), c = record(0, BLOCKING_A);
    MUST_BE({a, 20}, {b, 23}, {c, 22});
}

// On one communicator they do not share: the second waits, on another stream too.
TEST(test_one_communicator)
{
    begin(2, 2);
    gather(0, FREE_A, 8000); // 13-17
    gather(0, FREE_B, 8000); // arrives at 17: 18-22
    int a = record(0, FREE_A), b = record(0, FREE_B);
    MUST_BE({a, 17}, {b, 22});
}

TEST(test_compute_and_transfers_slow_each_other)
{
    begin(2, 2);
    kernel(0, FREE_A, 4000); // rank 0: 11-; 2 left at 14: 18
    gather(0, FREE_B, 8000); // rank 0 at 13, rank 1 at 12; from 14; rank 0 has 2 left at 18: 20
    int k = record(0, FREE_A), a = record(0, FREE_B), b = record(1, FREE_B);
    MUST_BE({k, 18}, {a, 20}, {b, 18});
}

// Less where all that transfers is on the network: by 3/2 here.
TEST(test_transfers_on_the_network_slow_less)
{
    begin(2, 2);
    p.world.machine.gpus_per_node = 1;
    kernel(0, FREE_A, 4000); // rank 0: 11-; 2 left at 14: 17
    gather(0, FREE_B, 8000); // from 14; rank 0 has 2.5 left at 17: 19.5
    int k = record(0, FREE_A), a = record(0, FREE_B), b = record(1, FREE_B);
    MUST_BE({k, 17}, {a, 19.5}, {b, 18});
}

// Left is rounded up, done is rounded down, in picoseconds.
TEST(test_rounding)
{
    begin(2, 2);
    Machine *m = &p.world.machine;
    m->launch = m->enqueue = m->collective = 1;
    m->allocate = m->pin = 5;
    m->kernel = 1;
    m->latency = 1000;
    m->hbm = m->bandwidth[NVLINK] = 1e12;
    m->slow_compute[0] = 3, m->slow_compute[1] = 2;
    m->slow_transfer[0] = 1, m->slow_transfer[1] = 1;
    kernel(0, FREE_A, 1011 - 1); // 11 ps-; 10 left at 1012: 1027; 8 left at 1016: 1024
    gather(0, FREE_B, 8);        // at 12; from 1012 to 1016
    int k = record(0, FREE_A), a = record(0, FREE_B);
    MUST_BE({k, 1024e-6}, {a, 1016e-6});
}

TEST(test_copies_share_pcie)
{
    begin(2, 2);
    p.world.machine.bandwidth[NVLINK] = 0;
    call(TO_DEVICE_PINNED, 0, FREE_A, 3000); // 11-; 1 left at 14: 16
    gather(0, FREE_B, 8000);                 // from 14; rank 0 has 3 left at 16: 19
    int c = record(0, FREE_A), a = record(0, FREE_B), b = record(1, FREE_B);
    MUST_BE({c, 16}, {a, 19}, {b, 18});
}

TEST(test_a_late_rank)
{
    begin(2, 2);
    add((Step){.kind = MALLOC, .rank = 1}); // 15
    gather(0, FREE_A, 8000);                // at 12 and 17: 18-22
    int a = record(0, FREE_A), b = record(1, FREE_A);
    int host_0 = record(0, CLOCK_STREAM); // the hosts met at 17; a record before this one
    int host_1 = record(1, CLOCK_STREAM);
    add((Step){.kind = FREE, .rank = 1});
    MUST_BE({a, 22}, {b, 22}, {host_0, 19}, {host_1, 19});
}

TEST(test_messages)
{
    begin(2, 2);
    nccl(message(0, 0, 1, FREE_A, 8000)); // at 12: 13-21
    nccl(message(0, 1, 0, FREE_B, 8000)); // behind it on the communicator: 22-30
    int a = record(0, FREE_A), b = record(0, FREE_B);
    MUST_BE({a, 21}, {b, 30});
}

TEST(test_messages_of_a_group)
{
    begin(2, 2);
    kernel(0, FREE_A, 3000);                                               // 11-15
    group(message(0, 0, 1, FREE_A, 8000), message(0, 1, 0, FREE_B, 8000)); // ready together
    gather(0, FREE_A, 8000);
    // Rank 0: at 13 and 15, ready at 15; rank 1: at 12 and 14. From 16 they share: 32.
    // The all-gather arrives at 32: 33-37.
    int a = record(0, FREE_A), b = record(0, FREE_B), c = record(1, FREE_B);
    MUST_BE({a, 37}, {b, 32}, {c, 32});
}

// A group is one kernel of its communicator: its calls start together, after one latency, and share
// the link. On two streams it is for each of them what the other one waits for.
TEST(test_streams_of_a_group)
{
    begin(2, 2);
    kernel(0, FREE_A, 7000); // 11-19
    group(collective(ALL_GATHER, 0, FREE_B, 8000), collective(ALL_GATHER, 0, FREE_A, 8000));
    // Both follow the kernel on rank 0, and share from 20; what comes later on either follows both.
    int a = record(0, FREE_A), b = record(0, FREE_B), c = record(1, FREE_B);
    MUST_BE({a, 28}, {b, 28}, {c, 28});
}

// Ranks on two nodes use the network.
TEST(test_nodes)
{
    begin(3, 3);
    p.world.machine.gpus_per_node = 2;
    p.world.machine.bandwidth[NIC] = 0.5e9;
    nccl(message(0, 0, 1, FREE_A, 4000)); // on NVLink, at 12: 13-17
    nccl(message(0, 1, 2, FREE_A, 4000)); // rank 1 arrives at 17, on the network: 18-26
    gather(1, FREE_B, 3000);              // 2 of 3 at half the speed is 4; ranks at 14, 16, 14: 17-
    // Rank 1: alone on the network till 18; 3 left; shared till 24.
    // Rank 2: the same. Rank 0: alone: 21.
    int a = record(0, FREE_B), b = record(1, FREE_B), c = record(1, FREE_A);
    MUST_BE({a, 21}, {b, 24}, {c, 29});
}

// Two devices of a process: one thread calls for both, one after the other, or a thread for each.
TEST(test_two_devices)
{
    begin(2, 1);             // begin at 10 and 20
    gather(0, FREE_A, 8000); // at 22 and 24: 25-29
    int a = record(1, FREE_A);
    int host = record(0, CLOCK_STREAM); // 26
    gather(0, FREE_A, 8000);            // threads: at 28 each; arrives at 29: 30-34
    set_phase(THREAD_A_DEVICE, 1);
    int b = record(1, FREE_A);
    set_phase(THREAD_A_DEVICE, 1);
    MUST_BE({a, 29}, {host, 26}, {b, 34});
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "time_by_hand");
}
