/* random.c: the race checker against an oracle that tries all orders, on random small programs.
 *
 * A program (random/program.h) is drawn from a seed, judged by the oracle (random/oracle.c), which
 * enumerates what a real machine may do, and run on simgpu. The checker must report a race, or a
 * misuse by lifetime, if and only if the oracle finds one, and each report must name two steps that
 * the oracle calls racing. gpulog_race, by which the suites of the tasks judge, must agree too.
 * Where they do not, the program is cut down to what the disagreement needs, and printed.
 *
 * The tester is tested as well: the oracle has right answers for programs written by hand, and an
 * oracle that forgets one of its rules is found out soon.
 *
 * Environment: RANDOM_PROGRAMS=100000 runs so many programs, and with SEED=S draws them from S (the
 * first from S itself; RANDOM_SEED=S is an older name). SEED alone says where the new programs of a
 * usual run begin. RANDOM_FORGET=n makes the oracle forget rules (enum Forget): the programs that
 * show one are examples of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "draw.h"
#include "harness.h"
#include "random/known.h"

enum {
    PROGRAMS = 4000 / SLOWER,      // of a run of the suite, from each of two seeds
    BATCH = 1000,                  // programs of one process
    RANK_PROGRAMS = 1000 / SLOWER, // with a process for each rank
    CLOCK_PROGRAMS = 200 / SLOWER,
    LOG_PROGRAMS = 1500 / SLOWER,
    LOG_BATCH = 250,   // gpulog_race looks through the whole log of its process
    FORGETFUL = 20000, // programs within which a forgotten rule must show
};

typedef struct Tally {
    uint64_t programs, racing, lifetime, too_large, states, most_states, steps;
    uint64_t now;     // the seed of the program that is tried
    int disagreement; // where the batch is to end at the first one
    char text[16000]; // the program, and what was said of it
} Tally;
static Tally *tally;

// One batch of programs.
typedef struct Batch {
    uint64_t seed, n;
    bool log;   // asks gpulog_race, and not the checker
    bool timed; // simgpu keeps its clock
    unsigned forget;
    bool shrinks; // a disagreement's program is made smaller
} Batch;

// ---- A batch, in a process of its own ----

static void describe(const Program *p, const Verdict *v, const Heard *h, Disagreement what)
{
    FILE *out = fmemopen(tally->text, sizeof tally->text, "w");
    if (!out) return;
    fprintf(out, "%s (SEED=%llu RANDOM_PROGRAMS=1)\n", disagreement_names[what],
            (unsigned long long)p->seed);
    print_program(out, p);
    if (v->n)
        print_witness(out, p, v);
    else
        fprintf(out, "the oracle finds no race in %zu states\n", v->states);
    if (h->text[0])
        fprintf(out, "the checker (%d races, %d others):\n%s", h->races, h->others, h->text);
    else
        fprintf(out, "the checker says nothing\n");
    if (h->replayed) fprintf(out, "gpulog_race: %s\n", h->log_races ? h->log_text : "nothing");
    if (h->trouble[0]) fprintf(out, "%s\n", h->trouble);
    fclose(out);
    tally->text[sizeof tally->text - 1] = '\0';
}

// A disagreement that another run of the program alone does not show has to do with what the
// programs before it have left behind in the checker: then all of them are what it takes.
static void disagree(const Batch *b, Program *p, uint64_t at, Disagreement what, const Verdict *v,
                     const Heard *h)
{
    Verdict again;
    Heard heard;
    tally->disagreement = (int)what;
    describe(p, v, h, what);
    if (try_program(p, b->forget, &again, &heard) == what) {
        if (b->shrinks) shrink(p, b->forget, what);
        what = try_program(p, b->forget, &again, &heard);
        describe(p, &again, &heard, what);
        return;
    }
    char note[200];
    snprintf(note, sizeof note,
             "alone it does not show; with the programs before it: SEED=%llu "
             "RANDOM_PROGRAMS=%llu\n",
             (unsigned long long)b->seed, (unsigned long long)at + 1);
    strncat(tally->text, note, sizeof tally->text - strlen(tally->text) - 1);
}

static void count(const Program *p, const Verdict *v)
{
    tally->programs++;
    tally->steps += (uint64_t)p->n;
    tally->racing += v->n > 0;
    tally->lifetime += v->n > 0 && v->pair[0].lifetime;
    tally->too_large += v->too_large;
    tally->states += v->states;
    if (v->states > tally->most_states) tally->most_states = v->states;
}

static void run_batch(const Rank *r, void *arg)
{
    const Batch *b = arg;
    Program p;
    Verdict v;
    Heard h;
    // The first report of a process is printed; here it is only heard.
    if (!freopen("/dev/null", "w", stderr)) check(false, "no /dev/null: %s", strerror(errno));
    machine_start(b->log, b->timed, ALL_RANKS, NULL);
    for (uint64_t i = 0; i < b->n && tally->disagreement == AGREE; i++) {
        tally->now = b->seed + i;
        generate(&p, tally->now);
        Disagreement what = try_program(&p, b->forget, &v, &h);
        count(&p, &v);
        if (what != AGREE) disagree(b, &p, i, what, &v, &h);
    }
    machine_stop();
}

// cmocka prints no more than a thousand characters at once.
static void fail_with(char *text)
{
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) print_error("%s\n", line);
    _fail(__FILE__, __LINE__);
}

// A crash, or a call of the tester's own that failed: which program it was.
static void fail_at(const char *message, const Batch *b)
{
    char text[8400];
    snprintf(text, sizeof text,
             "%s\nin SEED=%llu RANDOM_PROGRAMS=1, or with those before it: "
             "SEED=%llu RANDOM_PROGRAMS=%llu",
             message, (unsigned long long)tally->now, (unsigned long long)b->seed,
             (unsigned long long)(tally->now - b->seed + 1));
    fail_with(text);
}

// Runs programs from the seed on, until oracle and checker disagree; true: they never did.
static bool run_programs(const Batch *all)
{
    uint64_t most = all->log ? LOG_BATCH : BATCH;
    for (uint64_t done = 0; done < all->n && tally->disagreement == AGREE; done += most) {
        Batch b = *all;
        b.seed = all->seed + done;
        b.n = all->n - done < most ? all->n - done : most;
        if (b.timed) unsetenv("SIMGPU_MACHINE");
        char *message = run_ranks_message(1, 120, run_batch, &b);
        setenv("SIMGPU_MACHINE", "none", 1);
        if (message) fail_at(message, &b);
    }
    return tally->disagreement == AGREE;
}

// A process for each rank, with one device. The program cannot be made smaller: both ranks must
// come to its collectives.
static void run_part(const Rank *r, void *arg)
{
    const Batch *b = arg;
    Program whole, part;
    Verdict v;
    Heard h;
    machine_start(false, false, r->rank, r->comm);
    for (uint64_t i = 0; i < b->n; i++) {
        generate(&whole, b->seed + i);
        take_part(&whole, r->rank, &part);
        Disagreement what = try_program(&part, b->forget, &v, &h);
        if (r->rank == 0) count(&part, &v);
        if (what == AGREE) continue;
        describe(&part, &v, &h, what);
        check(false, "%s", tally->text);
    }
    machine_stop();
}

// ---- The oracle itself ----

TEST(test_oracle_knows_what_waits)
{
    for (size_t i = 0; i < sizeof held_up / sizeof held_up[0]; i++) {
        Program p = {.n = 3, .rank = ALL_RANKS};
        p.step[0] = (Step){.kind = MESSAGE_SEND, .stream = FREE_C, .span = SPAN(0, 32, 4)};
        p.step[1] = held_up[i].between;
        p.step[2] = (Step){.kind = MESSAGE_RECV, .stream = FREE_F, .span = SPAN(4, 0, 4)};
        if (waits_in_vain(&p) != held_up[i].waits) fail_msg("%s", held_up[i].what);
    }
}

TEST(test_oracle_knows)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        Program p = {.n = known[i].n, .rank = ALL_RANKS};
        Verdict v;
        memcpy(p.step, known[i].step, sizeof known[i].step);
        if (!is_valid(&p)) fail_msg("%s: the program makes no sense", known[i].what);
        judge(&p, FORGET_NOTHING, &v);
        if (v.too_large) fail_msg("%s: too large", known[i].what);
        if ((v.n > 0) == known[i].races) continue;
        print_program(stderr, &p);
        fail_msg("%s: the oracle finds %d racing pairs", known[i].what, v.n);
    }
}

// ---- The tests ----

// Whether somebody asked for programs of his own. SEED alone is there in every `make test`, whose
// programs are the known ones and some new.
static bool asked_for(void)
{
    return getenv("RANDOM_SEED") || (getenv("RANDOM_PROGRAMS") && getenv("SEED"));
}

static Batch wanted(uint64_t seed, uint64_t n, bool log)
{
    uint64_t asked = setting("RANDOM_SEED", setting("SEED", seed));
    return (Batch){.seed = asked_for() ? asked : seed,
                   .n = setting("RANDOM_PROGRAMS", n),
                   .log = log,
                   .forget = (unsigned)setting("RANDOM_FORGET", FORGET_NOTHING),
                   .shrinks = true};
}

static void print_tally(uint64_t seed)
{
    double each = (double)(tally->programs ? tally->programs : 1);
    printf("%llu programs from SEED=%llu: %llu race (%llu by lifetime), %llu left out as too "
           "large; %.1f steps and %.0f states each, %llu at most\n",
           (unsigned long long)tally->programs, (unsigned long long)seed,
           (unsigned long long)tally->racing, (unsigned long long)tally->lifetime,
           (unsigned long long)tally->too_large, (double)tally->steps / each,
           (double)tally->states / each, (unsigned long long)tally->most_states);
}

static void run_from(uint64_t seed, uint64_t n, bool log)
{
    Batch b = wanted(seed, n, log);
    memset(tally, 0, sizeof *tally);
    bool agreed = run_programs(&b);
    print_tally(b.seed);
    if (!agreed) fail_with(tally->text);
}

TEST(test_same_programs)
{
    run_from(1, PROGRAMS, false);
}

// Other programs every time: what it prints tells which.
TEST(test_new_programs)
{
    if (asked_for()) return; // run already
    run_from(draw_seed(), PROGRAMS, false);
}

TEST(test_ranks)
{
    Batch b = wanted(1, RANK_PROGRAMS, false);
    memset(tally, 0, sizeof *tally);
    char *message = run_ranks_message(N_DEVICES, 600, run_part, &b);
    print_tally(b.seed);
    if (message) fail_with(message);
}

// With the clock queries answer by its time, and what they have answered is what they order. In
// some programs a query takes a tenth of a second, until other threads count as asleep
// (simgpu/pages/time.md, § 8): so of many programs that are asked for it runs one in a hundred.
TEST(test_clock)
{
    Batch b = wanted(1, CLOCK_PROGRAMS, false);
    if (b.n > CLOCK_PROGRAMS) b.n = b.n / 100 > CLOCK_PROGRAMS ? b.n / 100 : CLOCK_PROGRAMS;
    b.timed = true;
    memset(tally, 0, sizeof *tally);
    bool agreed = run_programs(&b);
    print_tally(b.seed);
    if (!agreed) fail_with(tally->text);
}

// The log does not say what cudaMemcpyPeer waits for, but that a first query behind it finds a
// stream done.
static void run_query_behind_peer(const Rank *r, void *arg)
{
    const Program p = {
        .rank = ALL_RANKS,
        .n = 5,
        .step = {WRITES(FREE_C),
                 {.kind = PEER, .stream = NULL_1, .span = {{4, 0, 8, 1, 8}, {0, 16, 8, 1, 8}}},
                 ON(STREAM_SYNC, NULL_1),
                 ON(STREAM_ASK, FREE_C),
                 WRITES(FREE_D)}};
    Verdict v;
    Heard h;
    machine_start(true, false, ALL_RANKS, NULL);
    Disagreement what = try_program(&p, FORGET_NOTHING, &v, &h);
    if (what != AGREE || v.n > 0 || h.log_races) describe(&p, &v, &h, what);
    check(what == AGREE && v.n == 0 && !h.log_races, "%s", tally->text);
    machine_stop();
}

TEST(test_log_has_answers)
{
    char *message = run_ranks_message(1, 60, run_query_behind_peer, NULL);
    if (message) fail_with(message);
}

TEST(test_log_race_agrees)
{
    run_from(1, LOG_PROGRAMS, true);
}

// An oracle that does not know a rule must disagree with the checker, which does.
TEST(test_forgotten_rules_show)
{
    static const struct {
        unsigned rule;
        const char *what;
    } rules[] = {
        {FORGET_LEGACY, "the legacy default stream waits"},
        {FORGET_RERECORD, "a wait follows the last record"},
        {FORGET_PAGEABLE, "a copy from pageable memory may run on"},
        {FORGET_COLLECTIVE, "ranks wait for each other"},
        {FORGET_ROWS, "a 2D copy leaves the gaps alone"},
        {FORGET_LAST_BYTE, "the last byte counts"},
        {FORGET_FREE, "a free is an access"},
        {FORGET_HOST_FREE, "cudaFree is one, too"},
        {FORGET_POOL, "cudaFree does not wait for stream-ordered memory"},
        {FORGET_DESTROY, "a destroyed stream is waited for by nobody but the host"},
        {FORGET_SYNC, "to wait for a blocking stream is to wait for the default stream"},
        {FORGET_PINNED, "pinned memory is memory"},
        {FORGET_SERIAL, "cudaMemcpyPeer waits for both devices"},
        {FORGET_IGNORED, "the first query may find that it is not done"},
        {FORGET_SECOND, "the second query finds it done"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        Batch b = {.seed = 1, .n = FORGETFUL, .forget = rules[i].rule};
        memset(tally, 0, sizeof *tally);
        if (run_programs(&b)) fail_msg("no program of %d shows that %s", FORGETFUL, rules[i].what);
        printf("without \"%s\": program %llu shows it\n", rules[i].what,
               (unsigned long long)tally->programs);
    }
}

int main(int argc, char **argv)
{
    tally = shared_alloc(sizeof *tally);
    setenv("SIMGPU_MACHINE", "none", 1); // the oracle's rule of queries is that without a clock
    return suite_main(argc, argv, "simgpu/random");
}
