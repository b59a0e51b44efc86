/* time.c: simgpu's clock against an independent simulator, on random programs of several ranks.
 *
 * A world of processes, devices, communicators and a machine is drawn from a seed, and ten random
 * programs that run in it one after the other (time/generate.c). The simulator (time/simulate.c),
 * which was written from simgpu/pages/time.md alone, says when each of their events is recorded and
 * what each query answers; simgpu must say the same, to the picosecond. Where it does not, the
 * program is cut down to what the difference needs, and printed.
 *
 * Environment: TIME_PROGRAMS=10000 runs so many programs, and with SEED=S draws the first world
 * from S, the next from S + 1. TIME_DETAILS=1 prints with a difference the whole program and what
 * the simulator thinks of every operation.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "draw.h"
#include "harness.h"
#include "time/program.h"

enum {
    SECTIONS = 10,           // programs of a world
    AT_ONCE = 8,             // worlds
    PROGRAMS = 500 / SLOWER, // of a run of the suite
    FORGETFUL = 1000,        // programs within which a forgotten rule must show
};

static Program program;
static Times want, got;

static void describe_spans(FILE *out, int at, int span)
{
    static const char *const who[] = {"simgpu", "the simulator"};
    const Span *two[] = {&got.span[at][span], &want.span[at][span]};
    if (program.step[at].kind == NCCL)
        fprintf(out, ", call %d, rank %d", span / MAX_RANKS, span % MAX_RANKS);
    fprintf(out, ", in picoseconds:\n");
    for (int i = 0; i < 2; i++)
        fprintf(out, "%14s: queued %llu, returned %llu; ready %llu, from %llu to %llu\n", who[i],
                (unsigned long long)two[i]->queued, (unsigned long long)two[i]->returned,
                (unsigned long long)two[i]->ready, (unsigned long long)two[i]->start,
                (unsigned long long)two[i]->end);
}

static void describe(FILE *out, int at)
{
    int span;
    first_difference(&program, &want, &got, &span);
    print_step(out, &program, at);
    fprintf(out, "step %d", at);
    if (span >= 0)
        describe_spans(out, at, span);
    else if (program.step[at].kind == RECORD)
        fprintf(out, ": cudaEventElapsedTime says %.9g ms; the record ends at %llu ps\n",
                got.elapsed[at], (unsigned long long)want.at[at]);
    else
        fprintf(out, ": simgpu answers \"%s\", the simulator \"%s\"\n",
                got.ready[at] ? "ready" : "not ready", want.ready[at] ? "ready" : "not ready");
    if (getenv("TIME_DETAILS")) print_program(out, &program);
    if (getenv("TIME_DETAILS")) simulate(&program, &want, out);
}

static void print_failure(char *message, int at)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    int n = program.n;
    fprintf(out, "SEED=%llu TIME_PROGRAMS=%d:\n", (unsigned long long)program.seed, SECTIONS);
    if (at >= 0) {
        describe(out, at);
        shrink(&program);
        at = try_program(&program, &want, &got, &message);
        fprintf(out, "%d of %d steps are left:\n", program.n, n);
        if (at >= 0) print_program(out, &program);
        if (at >= 0) describe(out, at);
        if (at == -1)
            fprintf(out, "but they do not show it: simgpu's times are not always the same\n");
    }
    if (at == -2) fprintf(out, "%s\n", message);
    fclose(out);
    fwrite(text, 1, size, stderr);
    free(text);
    free(message);
}

// Calls whose times were compared, and queries.
static uint64_t compared(void)
{
    uint64_t n = 0;
    for (int i = 0; i < program.n; i++) {
        n += is_query(program.step[i].kind);
        for (int k = 0; k < MAX_CALLS * MAX_RANKS; k++) n += want.span[i][k].queued > 0;
    }
    return n;
}

// What the processes that run the worlds share.
typedef struct Progress {
    atomic_ulong next, calls; // world; calls whose times were equal
    atomic_bool differs;
} Progress;

// Runs worlds until there is none left; whether all times were equal.
static bool run_some(Progress *p, uint64_t seed, uint64_t worlds, bool same)
{
    for (uint64_t w; !p->differs && (w = atomic_fetch_add(&p->next, 1)) < worlds;) {
        char *message;
        generate(&program, seed + (same ? 0 : w), SECTIONS);
        int at = try_program(&program, &want, &got, &message);
        if (at != -1) p->differs = true;
        if (at != -1) print_failure(message, at);
        if (at != -1) return false;
        p->calls += compared();
    }
    return true;
}

// Several worlds at once: most of their time they wait until a thread that sleeps outside of simgpu
// counts as asleep (pages/time.md, § 8).
static void run_drawn_worlds(uint64_t seed, uint64_t programs, bool same)
{
    uint64_t worlds = (programs + SECTIONS - 1) / SECTIONS;
    Progress *p = shared_alloc(sizeof *p);
    pid_t runner[AT_ONCE];
    int status, bad = 0;
    fflush(NULL);
    for (int i = 0; i < AT_ONCE; i++) {
        runner[i] = fork();
        assert_true(runner[i] >= 0);
        if (runner[i] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run_some(p, seed, worlds, same) ? 0 : 1);
    }
    for (int i = 0; i < AT_ONCE; i++)
        bad += waitpid(runner[i], &status, 0) != runner[i] || status != 0;
    if (bad) fail_msg("simgpu's times are not the simulator's");
    assert_true(p->next >= worlds && p->calls > 0);
    print_message("%llu programs, %llu calls: all times equal\n", (unsigned long long)programs,
                  (unsigned long long)p->calls);
}

TEST(test_random_programs)
{
    if (getenv("TIME_PROGRAMS"))
        run_drawn_worlds(setting("SEED", 1), setting("TIME_PROGRAMS", 0), false);
    else
        run_drawn_worlds(draw_word() >> 16, PROGRAMS, false);
}

// Programs with which simgpu hung, or differed, once: a thread waited, in its first call, for the
// receiver of a message on another stream of its group, and a query in the same process waited for
// that thread; a thread that had only asked called when another one had ended later than that; one
// that had its answer, and one whose first call was logged and not recorded, were passed by. Each
// runs several times at once, since what came of it was a matter of real time.
TEST(test_programs_of_old)
{
    static const uint64_t seeds[] = {UINT64_C(43137518237917), 810061, 374};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        run_drawn_worlds(seeds[i], AT_ONCE * SECTIONS, true);
}

// What the random programs are made of: the simulator alone, so that a change of the generator that
// loses a kind of step, or overlap, does not go unseen.
TEST(test_programs_are_what_they_should_be)
{
    int kinds[KINDS] = {0}, ops[COLLECTIVES] = {0}, modes[MODES] = {0};
    int groups = 0, ready = 0, not_ready = 0, at_0 = 0;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        generate(&program, seed, SECTIONS);
        assert_true(is_valid(&program));
        simulate(&program, &want, NULL);
        for (int i = 0; i < program.n; i++) {
            const Step *s = &program.step[i];
            kinds[s->kind]++;
            for (int c = 0; c < s->n_calls; c++) ops[s->call[c].op]++;
            groups += s->n_calls > 1;
            for (int k = 0; k < program.world.n_processes; k++) modes[s->phase[k].mode]++;
            ready += is_query(s->kind) && want.ready[i];
            not_ready += is_query(s->kind) && !want.ready[i];
            at_0 += s->kind == RECORD && want.at[i] == 0;
        }
    }
    for (int i = 0; i < KINDS; i++)
        if (kinds[i] < 20) fail_msg("only %d of %s", kinds[i], kind_names[i]);
    for (int i = 0; i < COLLECTIVES; i++)
        if (ops[i] < 100) fail_msg("only %d of %s", ops[i], collective_names[i]);
    for (int i = 0; i < MODES; i++) assert_true(modes[i] > 100);
    assert_true(groups > 100 && ready > 50 && not_ready > 50 && at_0 == 0);
}

// Programs that would not show a clock which has forgotten a rule of the contract test nothing: so
// a simulator that forgets it must soon be found out by one that does not.
TEST(test_forgotten_rules_show)
{
    for (int rule = 1; rule < RULES; rule++) {
        int at = -1, span;
        for (uint64_t seed = 1; at < 0 && seed <= FORGETFUL / SECTIONS; seed++) {
            generate(&program, seed, SECTIONS);
            simulate(&program, &want, NULL);
            forgotten = (Rule)rule;
            simulate(&program, &got, NULL);
            forgotten = NO_RULE;
            at = first_difference(&program, &want, &got, &span);
        }
        if (at < 0) fail_msg("nothing shows that a rule is forgotten: %s", rule_names[rule]);
    }
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "time");
}
