/* engine.c: how far the event simulation of the virtual clock can go: at a thread's clock, and at
 * ranks that have not come. What it makes of the work itself is in ../time_by_hand.c and ../time.c.
 * Work is in small numbers; compute is slowed to 1/2 by a transfer, a transfer to 2/3 by compute.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "time/engine.h"

static const SimMachine machine = {.gpus_per_node = 8,
                                   .slow_compute = {2, 1},
                                   .slow_compute_nic = {2, 1},
                                   .slow_transfer = {3, 2},
                                   .has_link = {true, true, true}};

// ---- Several engines in one process, and when their ranks arrived ----

enum { RANKS = 3, CALLS = 64 };

typedef struct Board {
    SimPs arrived[RANKS][CALLS], until[RANKS];
    bool there[RANKS][CALLS];
    int told; // so often
} Board;

typedef struct Seat {
    Board *board;
    int rank, ranks;
} Seat;

static void arrived(void *arg, const SimCall *call, SimPs when)
{
    Seat *seat = arg;
    assert_false(seat->board->there[seat->rank][call->number]);
    assert_true(when >= seat->board->until[seat->rank]);
    seat->board->there[seat->rank][call->number] = true;
    seat->board->arrived[seat->rank][call->number] = when;
    seat->board->told++;
}

static bool start(void *arg, const SimCall *call, SimPs *when)
{
    Seat *seat = arg;
    bool all = true;
    *when = 0;
    for (int r = 0; r < seat->ranks; r++) {
        bool there = seat->board->there[r][call->number];
        SimPs at = there             ? seat->board->arrived[r][call->number]
                   : r == seat->rank ? SIM_FOREVER
                                     : seat->board->until[r];
        all &= there;
        if (*when < at) *when = at;
    }
    return all;
}

static void until(void *arg, SimPs when, SimPs request)
{
    Seat *seat = arg;
    assert_true(when >= seat->board->until[seat->rank]);
    seat->board->until[seat->rank] = when;
}

static SimPs missing(void *arg, const SimCall *call)
{
    Seat *seat = arg;
    SimPs least = SIM_FOREVER;
    for (int r = 0; r < seat->ranks; r++) {
        bool is_missing = r != seat->rank && !seat->board->there[r][call->number];
        if (is_missing && seat->board->until[r] < least) least = seat->board->until[r];
    }
    return least;
}

static SimEngine *engine_at(Seat *seat)
{
    SimBoard board = {arrived, start, until, missing, seat};
    return sim_engine_new(&machine, &board);
}

// ---- Items ----

static SimItem host(SimEngine *e, SimPs work, SimItem after)
{
    return sim_engine_add(e, &(SimItemSpec){.kind = SIM_ITEM_HOST, .work = work}, &after, 1);
}

static SimItem item(SimEngine *e, SimItemKind kind, SimPs work, uint64_t stream, SimItem a,
                    SimItem b)
{
    SimItem after[] = {a, b};
    return sim_engine_add(e, &(SimItemSpec){.kind = kind, .work = work, .stream = stream}, after,
                          2);
}

static SimItem transfer(SimEngine *e, uint64_t number, SimPs latency, SimPs work, SimItem after)
{
    SimItemSpec spec = {.kind = SIM_ITEM_TRANSFER,
                        .work = work,
                        .latency = latency,
                        .link = SIM_NVLINK,
                        .call = {.comm = 1, .number = number, .from = -1, .to = -1}};
    return sim_engine_add(e, &spec, &after, 1);
}

static void is_at(SimEngine *e, SimItem of, SimPs ready, SimPs begins, SimPs ends)
{
    SimTimes t = {0, 0, 0};
    if (!sim_engine_times(e, of, &t)) fail_msg("item %d has not ended", (int)of);
    if (t.ready != ready || t.start != begins || t.end != ends)
        fail_msg("item %d: ready %d, start %d, end %d; not %d, %d, %d", (int)of, (int)t.ready,
                 (int)t.start, (int)t.end, (int)ready, (int)begins, (int)ends);
}

static void has_not_ended(SimEngine *e, SimItem of)
{
    SimTimes t;
    assert_false(sim_engine_times(e, of, &t));
}

// ---- How far it can go ----

TEST(test_stands_at_a_threads_clock)
{
    SimEngine *e = sim_engine_new(&machine, NULL);
    sim_engine_thread(e, 0, 0);
    SimItem h = host(e, 10, 0);
    SimItem k = item(e, SIM_ITEM_COMPUTE, 100, 5, h, 0);
    sim_engine_thread(e, 0, h);
    sim_engine_run(e, 0);
    has_not_ended(e, k);
    assert_true(sim_engine_waits_for(e, 0));
    assert_int_equal(sim_engine_now(e), 10);
    // At the same instant another is queued, on a lower stream.
    SimItem j = item(e, SIM_ITEM_COMPUTE, 7, 1, h, 0);
    SimItem wait = host(e, 1, k);
    sim_engine_thread(e, 0, wait); // the host waits: nothing more can come before
    sim_engine_run(e, 0);
    is_at(e, j, 10, 10, 17);
    is_at(e, k, 10, 17, 117);
    assert_int_equal(sim_engine_now(e), 118);
    SimItem late = item(e, SIM_ITEM_COMPUTE, 1, 1, host(e, 3, wait), 0);
    sim_engine_thread_gone(e, 0);
    sim_engine_run(e, 0);
    is_at(e, late, 121, 121, 122);
    sim_engine_free(e);
}

TEST(test_forgets)
{
    SimEngine *e = sim_engine_new(&machine, NULL);
    SimItem last = 0;
    for (int i = 0; i < 5000; i++) {
        last = item(e, SIM_ITEM_COMPUTE, 3, 1, last, 0);
        if (i % 100 == 99) {
            sim_engine_run(e, 0);
            assert_int_equal(sim_engine_oldest(e), last + 1);
            sim_engine_forget(e, last);
            assert_int_equal(sim_engine_items(e), 1);
        }
    }
    is_at(e, last, 3 * 4999, 3 * 4999, 3 * 5000);
    sim_engine_free(e);
}

// ---- Two engines ----

TEST(test_ranks_start_together)
{
    Board board = {0};
    Seat a = {&board, 0, 2}, b = {&board, 1, 2};
    SimEngine *one = engine_at(&a), *two = engine_at(&b);
    SimItem k = item(one, SIM_ITEM_COMPUTE, 10, 1, 0, 0), t = transfer(one, 1, 5, 20, k);
    SimItem after = item(one, SIM_ITEM_COMPUTE, 1, 1, t, 0);
    sim_engine_run(one, 0);
    has_not_ended(one, t); // the other may arrive from 0 on
    assert_int_equal(board.arrived[0][1], 10);
    SimItem other = item(two, SIM_ITEM_COMPUTE, 100, 1, 0, 0);
    SimItem u = transfer(two, 1, 5, 20, 0);
    SimItem busy = item(two, SIM_ITEM_COMPUTE, 5, 1, 0, 0);
    sim_engine_run(two, 0);
    sim_engine_run(one, 0);
    sim_engine_run(two, 0);
    is_at(one, t, 10, 15, 35);
    is_at(one, after, 35, 35, 36);
    // On the other rank it is slowed: 20 at 2/3.
    is_at(two, u, 0, 15, 45);
    is_at(two, other, 0, 0, 115);
    is_at(two, busy, 0, 115, 120);
    sim_engine_free(one);
    sim_engine_free(two);
}

// Two ranks that wait for a third, which stands at its clock: nobody passes it by more than the
// latency, and they go on in turns.
TEST(test_none_passes_the_others)
{
    Board board = {0};
    Seat seat[RANKS];
    SimEngine *e[RANKS];
    SimItem t[RANKS];
    for (int r = 0; r < RANKS; r++) {
        seat[r] = (Seat){&board, r, RANKS};
        e[r] = engine_at(&seat[r]);
    }
    sim_engine_thread(e[2], 0, host(e[2], 1000, 0));
    for (int r = 0; r < 2; r++) t[r] = transfer(e[r], 1, 7, 10, 0);
    for (int i = 0; i < 10; i++)
        for (int r = 0; r < RANKS; r++) sim_engine_run(e[r], 0);
    assert_int_equal(board.until[2], 1000);
    assert_int_equal(board.until[0], 1007);
    has_not_ended(e[0], t[0]);
    t[2] = transfer(e[2], 1, 7, 10, host(e[2], 1500, 0));
    sim_engine_thread_gone(e[2], 0);
    for (int r = RANKS - 1; r >= 0; r--) sim_engine_run(e[r], 0);
    for (int r = 0; r < RANKS; r++) sim_engine_run(e[r], 0);
    for (int r = 0; r < RANKS; r++) is_at(e[r], t[r], r == 2 ? 1500 : 0, 1507, 1517);
    for (int r = 0; r < RANKS; r++) sim_engine_free(e[r]);
}

// Hosts that have met go on, although another thread of one of them may still queue something then:
// else nobody could say that they have, as long as that thread sleeps.
TEST(test_a_meeting_ends_where_a_thread_stands)
{
    Board board = {0};
    Seat seat = {&board, 0, 2};
    SimEngine *e = engine_at(&seat);
    SimItem clock = host(e, 10, 0);
    SimItemSpec meet = {.kind = SIM_ITEM_MEET, .call = {.comm = 1, .number = 1}};
    SimItem m = sim_engine_add(e, &meet, &clock, 1);
    sim_engine_thread(e, 0, clock);
    board.until[1] = 5;
    sim_engine_run(e, 0);
    assert_true(sim_engine_waits_for(e, 0));
    assert_int_equal(sim_engine_now(e), 10);
    assert_int_equal(sim_engine_held(e), SIM_HELD_BY_RANKS_BEHIND);
    board.until[1] = 10;
    sim_engine_run(e, 0);
    assert_int_equal(sim_engine_held(e), SIM_HELD_BY_RANKS_AS_FAR);
    has_not_ended(e, m);
    board.there[1][1] = true;
    board.arrived[1][1] = 10;
    sim_engine_run(e, 0);
    is_at(e, m, 10, 10, 10);
    assert_true(sim_engine_waits_for(e, 0));
    assert_int_equal(sim_engine_held(e), SIM_NOT_HELD);
    sim_engine_free(e);
}

// What begins at the instant at which others may still arrive has begun at none: it waits to be
// told that they do not. An engine that has it is not stuck, whatever its ranks have arrived at.
TEST(test_is_stuck_only_where_nothing_begins)
{
    Board board = {0};
    Seat seat = {&board, 0, 2};
    SimEngine *e = engine_at(&seat);
    board.there[1][1] = true;
    board.arrived[1][1] = board.until[1] = 10;
    SimItem first = transfer(e, 1, 5, 20, 0), second = transfer(e, 2, 5, 20, 0);
    sim_engine_run(e, 0);
    assert_int_equal(sim_engine_now(e), 15); // the first starts here, and the second may
    assert_false(sim_engine_is_stuck(e));
    board.until[1] = 11;
    sim_engine_run(e, 0);
    assert_int_equal(sim_engine_now(e), 16);
    assert_false(sim_engine_is_stuck(e)); // it transfers
    board.until[1] = 30;
    SimItem kernel = item(e, SIM_ITEM_COMPUTE, 5, 0, host(e, 35, 0), 0);
    sim_engine_run(e, 0);
    is_at(e, first, 0, 15, 35);
    assert_int_equal(sim_engine_now(e), 35); // the kernel starts here
    assert_false(sim_engine_is_stuck(e));
    board.until[1] = 50;
    sim_engine_run(e, 0);
    is_at(e, kernel, 35, 35, 40);
    assert_true(sim_engine_is_stuck(e)); // nothing is left but the second
    sim_engine_thread(e, 0, 0);
    assert_false(sim_engine_is_stuck(e)); // that thread may call
    sim_engine_thread_gone(e, 0);
    sim_engine_give_up(e);
    assert_false(sim_engine_is_stuck(e));
    sim_engine_run(e, 0);
    is_at(e, second, 0, 45, 65);          // 5 after the last that has happened
    assert_false(sim_engine_is_stuck(e)); // all have ended
    sim_engine_free(e);
}

// One call holds the engine back at an instant, and another's ranks have come meanwhile: it starts
// as soon as the first lets the engine go on.
TEST(test_is_not_stuck_where_ranks_have_come)
{
    Board board = {0};
    Seat seat = {&board, 0, 2};
    SimEngine *e = engine_at(&seat);
    SimItemSpec meet = {.kind = SIM_ITEM_MEET, .call = {.comm = 1, .number = 2}};
    board.until[1] = 10;
    host(e, 10, 0);
    SimItem first = transfer(e, 1, 5, 20, 0), second = sim_engine_add(e, &meet, NULL, 0);
    sim_engine_run(e, 0);
    assert_int_equal(sim_engine_now(e), 10); // the meeting may be here
    assert_true(sim_engine_is_stuck(e));
    board.there[1][1] = true;
    board.arrived[1][1] = 10;
    sim_engine_run(e, 0);
    assert_int_equal(sim_engine_now(e), 10);
    assert_false(sim_engine_is_stuck(e));
    board.until[1] = 40;
    sim_engine_run(e, 0);
    is_at(e, first, 0, 15, 35);
    has_not_ended(e, second);
    assert_true(sim_engine_is_stuck(e));
    sim_engine_free(e);
}

// A meeting takes no resource, and ends for all when the last has come.
TEST(test_hosts_meet)
{
    Board board = {0};
    Seat a = {&board, 0, 2}, b = {&board, 1, 2};
    SimEngine *one = engine_at(&a), *two = engine_at(&b);
    SimItemSpec meet = {.kind = SIM_ITEM_MEET, .latency = 3, .call = {.comm = 1, .number = 4}};
    SimItem m = sim_engine_add(one, &meet, NULL, 0);
    SimItem h = host(two, 50, 0), last = sim_engine_add(two, &meet, &h, 1);
    sim_engine_run(one, 0);
    has_not_ended(one, m);
    sim_engine_run(two, 0);
    is_at(two, last, 50, 53, 53);
    sim_engine_run(one, 0);
    is_at(one, m, 0, 53, 53);
    sim_engine_free(one);
    sim_engine_free(two);
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "clock/engine");
}
