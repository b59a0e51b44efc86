/* misuse.c: small wrong programs of every class, and small right ones that look alike (misuse/).
 *
 * Every program runs with a process a rank. Of a wrong one the first report must be of its class,
 * come from a rank that it names, and name every line that the program marks with HERE; no rank may
 * report twice, and what the other ranks say must be the same or that they wait in vain. One that
 * hangs where nobody can be sure of it must be noticed, and go on. A right one must end well, which
 * includes its own check of its numbers, without any report.
 *
 * At the end stands the confusion table: the class of the program down, that of its first report
 * across. Whatever lies off the diagonal fails its test.
 *
 * Nothing is left behind: a worker waits for all processes of its program, whose empty folder must
 * be empty at the end; simgpu's shared memory has no names (memfd), and goes with the last process.
 */
#define _GNU_SOURCE // memfd_create

// The programs: they know nothing of what follows.
#include "misuse/call.c"
#include "misuse/comm_order.c"
#include "misuse/deadlock.c"
#include "misuse/graph.c"
#include "misuse/group.c"
#include "misuse/host_dereference.c"
#include "misuse/host_race.c"
#include "misuse/host_race_system.c"
#include "misuse/leak.c"
#include "misuse/lifetime.c"
#include "misuse/mismatch.c"
#include "misuse/nonblocking.c"
#include "misuse/overlap.c"
#include "misuse/pointer.c"
#include "misuse/race.c"
#include "misuse/registered.c"
#include "misuse/threads.c"
#include "misuse/uninitialised.c"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "launch.h"
#include "run.h"
#include "simgpu.h"

enum { MAX_RANKS = 4, JOBS = 2, LINES = 8, PATH = PATH_MAX, ROWS = (int)SIMGPU_NO_MEMORY };
#define NONE SIMGPU_CLASSES       // the column of programs that report nothing
#define LIMIT (RANKS_LIMIT / 2.0) // seconds
#define NOTICED 77                // how a rank ends that has waited long enough for its notice

// The class that each row is about, by its name in WRONG and RIGHT, and in the table's head.
#define CLASSES(ROW)                                                                               \
    ROW(MISMATCH, "misma")                                                                         \
    ROW(COMM_ORDER, "order")                                                                       \
    ROW(DEADLOCK, "deadl")                                                                         \
    ROW(GROUP, "group")                                                                            \
    ROW(POINTER, "point")                                                                          \
    ROW(LIFETIME, "lifet")                                                                         \
    ROW(UNINITIALISED, "unini")                                                                    \
    ROW(RACE, "race")                                                                              \
    ROW(HOST_RACE, "hrace")                                                                        \
    ROW(OVERLAP, "overl")                                                                          \
    ROW(LEAK, "leak")                                                                              \
    ROW(HOST_DEREFERENCE, "deref")                                                                 \
    ROW(CALL, "call")                                                                              \
    ROW(CAPTURE, "captu")                                                                          \
    ROW(NO_MEMORY, "other")                                                                        \
    ROW(SYSTEM, "other")
#define CLASS(class, head) [SIMGPU_##class] = {#class, head},
#define COUNT(class, head) +1
static const struct {
    const char *name, *head;
} classes[] = {[NONE] = {"none", "none"}, CLASSES(CLASS)};
_Static_assert(CLASSES(COUNT) == SIMGPU_CLASSES, "each class has a row");

static Program *programs;
static Program **last_program = &programs;

void enlist(Program *program)
{
    *last_program = program;
    last_program = &program->next;
}

// ---- What a program left, in memory that its processes share with the suite ----

typedef struct Told {
    int count, turn; // of this rank's reports; of its first one among those of all ranks, from 1
    SimgpuClass kind;
    int rank;        // as the report has it
    char text[8192]; // of the first one
    char more[2048]; // titles of the others
} Told;

typedef struct Outcome {
    const Program *program;
    pid_t worker; // 0: it is done
    atomic_int turns;
    atomic_int quiet; // ranks that have heard their notice, and wait to be ended
    Told told[MAX_RANKS];
    RankEnd ends[MAX_RANKS];
    bool stray; // a process was left
    int output; // the file in memory that takes what the ranks print
    int pipe[2];
} Outcome;

static Outcome *running; // in a worker and its ranks

static void hear_report(const SimgpuReport *report, void *arg)
{
    Told *told = arg;
    if (told->count++ > 0) {
        size_t used = strlen(told->more);
        snprintf(told->more + used, sizeof told->more - used, "  then: %s\n", report->title);
        return;
    }
    told->turn = atomic_fetch_add(&running->turns, 1) + 1;
    told->kind = report->kind;
    told->rank = report->rank;
    snprintf(told->text, sizeof told->text, "%s", report->text);
}

ncclUniqueId share_id(int rank, int ranks)
{
    ncclUniqueId id;
    if (rank == 0) NCCL(ncclGetUniqueId(&id));
    hand_id(&id, rank, ranks);
    return id;
}

void hand_id(ncclUniqueId *id, int rank, int ranks)
{
    for (int r = 1; r < ranks && rank == 0; r++)
        CHECK(write(running->pipe[1], id, sizeof *id) == sizeof *id);
    if (rank > 0) CHECK(read(running->pipe[0], id, sizeof *id) == sizeof *id);
}

// ---- Running ----

// Ends a program that hangs as soon as its ranks have said so; a moment later, since nothing must
// end by that.
static void *await_notice(void *arg)
{
    static char text[1 << 16];
    struct timespec moment = {0, 20000000};
    for (int after = 0; after < 15; after += strstr(text, "goes on waiting") != NULL) {
        nanosleep(&moment, NULL);
        ssize_t n = pread(running->output, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
    }
    simgpu_on_report(NULL, NULL); // the end of one rank is no news to the others
    atomic_fetch_add(&running->quiet, 1);
    for (int i = 0; i < 50 && atomic_load(&running->quiet) < running->program->ranks; i++)
        nanosleep(&moment, NULL);
    _exit(NOTICED);
}

// It is no thread of the program's.
static void watch_for_notice(void)
{
    pthread_t thread;
    setenv("SIMGPU_NOTICE_SECONDS", "1", 1);
    CHECK(pthread_create(&thread, NULL, await_notice, NULL) == 0);
    simgpu_helper_threads(1);
}

static int run_rank(const World *world, void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    static const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) signal(faults[i], SIG_DFL);
    dup2(running->output, STDOUT_FILENO);
    dup2(running->output, STDERR_FILENO);
    simgpu_on_report(hear_report, &running->told[world->rank]);
    sanitize_note_threads();
    if (running->program->waits) watch_for_notice();
    running->program->run(world->rank, world->size);
    if (strcmp(running->program->row, "LEAK") != 0) finish();
    return 0;
}

_Noreturn static void work(Outcome *o)
{
    running = o;
    prctl(PR_SET_CHILD_SUBREAPER, 1); // whatever a rank leaves becomes a child of this process
    IGNORE_STATUS(launch_ranks(o->program->ranks, LIMIT * time_factor(), run_rank, NULL, o->ends));
    o->stray = waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
    for (int r = 0; r < o->program->ranks && o->stray; r++) // each rank leads a group of its own
        if (o->ends[r].pid > 1) kill(-o->ends[r].pid, SIGKILL);
    _exit(0);
}

static void start(Outcome *o)
{
    o->output = memfd_create("output", MFD_CLOEXEC);
    assert_true(o->output >= 0);
    assert_int_equal(pipe2(o->pipe, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork(); // not into o at once, which the child shares
    assert_true(pid >= 0);
    if (pid == 0) work(o);
    o->worker = pid;
}

// Waits for one of those that run.
static Outcome *wait_for_any(Outcome **job, int n)
{
    pid_t pid = wait(NULL);
    for (int i = 0; i < n; i++)
        if (job[i]->worker == pid) {
            job[i]->worker = 0;
            close(job[i]->pipe[0]);
            close(job[i]->pipe[1]);
            return job[i];
        }
    fail_msg("a process ended that is none of this suite's programs");
    return NULL;
}

// ---- Judging ----

static char *read_output(const Outcome *o)
{
    off_t length = lseek(o->output, 0, SEEK_END);
    char *text = calloc(1, (size_t)length + 1);
    assert_non_null(text);
    if (pread(o->output, text, (size_t)length, 0) != length) text[0] = '\0';
    return text;
}

static int first_rank(const Outcome *o)
{
    for (int r = 0; r < o->program->ranks; r++)
        if (o->told[r].turn == 1) return r;
    return -1;
}

static SimgpuClass first_class(const Outcome *o)
{
    int rank = first_rank(o);
    return rank < 0 ? NONE : o->told[rank].kind;
}

static SimgpuClass class_of(const Program *p)
{
    int kind = 0;
    while (kind < ROWS && strcmp(classes[kind].name, p->row) != 0) kind++;
    return (SimgpuClass)kind;
}

// Objections to an outcome, one a line.
typedef struct Words {
    char text[1 << 16];
    size_t used;
} Words;

static void add_words(Words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_words(Words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->text + w->used, sizeof w->text - w->used, format, args);
    va_end(args);
    w->used += strlen(w->text + w->used);
}

static char sources[PATH]; // the folder misuse/
static char scratch[PATH]; // where the programs run

static FILE *open_source(const Program *p)
{
    char path[2 * PATH], *copy = strdup(p->file);
    snprintf(path, sizeof path, "%s/%s", sources, basename(copy));
    free(copy);
    return fopen(path, "r");
}

// The lines with a HERE between the program's begin and the next program's.
static int marked_lines(const Program *p, int *lines)
{
    const Program *next = p->next;
    bool same = next && strcmp(next->file, p->file) == 0;
    char *line = NULL;
    size_t size = 0;
    int n = 0;
    FILE *file = open_source(p);
    if (!file) return 0;
    for (int i = 1; getline(&line, &size, file) > 0; i++)
        if (i >= p->line && (!same || i < next->line) && strstr(line, "// HERE") && n < LINES)
            lines[n++] = i;
    free(line);
    fclose(file);
    return n;
}

// Whether the text has "race.c:12" with no digit behind it.
static bool names_line(const char *text, const char *file, int line)
{
    char place[PATH], *copy = strdup(file);
    snprintf(place, sizeof place, "%s:%d", basename(copy), line);
    free(copy);
    size_t length = strlen(place);
    for (const char *at = text; (at = strstr(at, place)); at += length)
        if (!isdigit((unsigned char)at[length])) return true;
    return false;
}

static void judge_wrong(const Outcome *o, Words *w)
{
    const Program *p = o->program;
    SimgpuClass kind = class_of(p);
    int first = first_rank(o), lines[LINES], n = marked_lines(p, lines);
    char digit[2] = {(char)('0' + first), '\0'};
    if (n == 0) add_words(w, "the program marks no line with HERE\n");
    if (first < 0) {
        add_words(w, "nothing was reported\n");
        return;
    }
    const Told *told = &o->told[first];
    if (told->kind != kind)
        add_words(w, "the report is of the class \"%s\"\n", classes[told->kind].name);
    if (!strstr(p->by, digit)) add_words(w, "rank %d reports it, not %s\n", first, p->by);
    if (told->rank >= 0 && told->rank != first)
        add_words(w, "the report says that it is rank %d's, it is rank %d's\n", told->rank, first);
    for (int i = 0; i < n; i++)
        if (!names_line(told->text, p->file, lines[i]))
            add_words(w, "the report does not name line %d\n", lines[i]);
    for (int r = 0; r < p->ranks; r++) {
        if (o->told[r].count > 1) add_words(w, "rank %d reports %d times\n", r, o->told[r].count);
        if (r != first && o->told[r].count && o->told[r].kind != kind &&
            o->told[r].kind != SIMGPU_DEADLOCK)
            add_words(w, "rank %d's report is no consequence of it\n", r);
    }
}

static void judge_right(const Outcome *o, Words *w)
{
    for (int r = 0; r < o->program->ranks; r++) {
        if (o->told[r].count) add_words(w, "rank %d reports something\n", r);
        if (o->ends[r].how != RANK_RETURNED) add_words(w, "rank %d did not come to its end\n", r);
    }
}

// What its ranks said as a notice names the lines, and no rank came to its end.
static void judge_hanging(const Outcome *o, Words *w)
{
    const Program *p = o->program;
    int lines[LINES], n = marked_lines(p, lines), noticed = 0;
    char *output = read_output(o);
    if (n == 0) add_words(w, "the program marks no line with HERE\n");
    for (int i = 0; i < n; i++)
        if (!names_line(output, p->file, lines[i]))
            add_words(w, "the notice does not name line %d\n", lines[i]);
    for (int r = 0; r < p->ranks; r++) {
        if (o->told[r].count) add_words(w, "rank %d reports something\n", r);
        noticed += o->ends[r].how == RANK_EXITED && o->ends[r].code == NOTICED;
    }
    if (!noticed) add_words(w, "nothing was noticed\n");
    free(output);
}

static bool judge(const Outcome *o, Words *w)
{
    const Program *p = o->program;
    w->text[0] = '\0';
    w->used = 0;
    if (p->waits)
        judge_hanging(o, w);
    else if (p->by)
        judge_wrong(o, w);
    else
        judge_right(o, w);
    for (int r = 0; r < p->ranks; r++) {
        if (o->ends[r].how == RANK_TIMED_OUT)
            add_words(w, "rank %d was ended by the time limit\n", r);
        if (o->ends[r].how == RANK_STOPPED)
            add_words(w, "rank %d stayed when another had gone\n", r);
    }
    if (o->stray) add_words(w, "a process was left behind\n");
    char *output = read_output(o);
    if (strstr(output, "Sanitizer:") || strstr(output, "runtime error:"))
        add_words(w, "a sanitizer complains\n");
    if (!w->used) {
        free(output);
        return true;
    }
    for (int r = 0; r < p->ranks; r++)
        if (o->told[r].count)
            add_words(w, "report %d is rank %d's: %s\n%s", o->told[r].turn, r,
                      classes[o->told[r].kind].name, o->told[r].more);
    add_words(w, "It printed:\n%s", output);
    free(output);
    return false;
}

// ---- The table ----

static int table[ROWS + 1][SIMGPU_CLASSES + 1]; // the last row: right programs
static int noticed;                             // programs that may still go on, and a notice

static void print_table(void)
{
    int sum = 0;
    printf("| %-17s", "program");
    for (int c = 0; c <= ROWS; c++) printf("%5s ", classes[c].head);
    printf("%5s\n", classes[NONE].head);
    for (int r = 0; r <= ROWS; r++) {
        int other = 0;
        printf("| %-17s", r < ROWS ? classes[r].name : "right");
        for (int c = 0; c < ROWS; c++) {
            printf(table[r][c] ? "%5d " : "    . ", table[r][c]);
            sum += table[r][c];
        }
        for (int c = ROWS; c < NONE; c++) other += table[r][c];
        printf(other ? "%5d " : "    . ", other);
        printf(table[r][NONE] ? "%5d\n" : "    .\n", table[r][NONE]);
        sum += other + table[r][NONE];
    }
    printf("| %d programs, and %d that may hang\n", sum, noticed);
}

// ---- The tests: one for each row, wrong programs and right ones ----

static void settle(Outcome *o, bool count, Words *objections, Words *all)
{
    const Program *p = o->program;
    const char *verbose = getenv("SHARDLAB_VERBOSE");
    if (verbose && strcmp(verbose, "1") == 0) {
        char *output = read_output(o);
        printf("---- %s, %s, printed:\n%s\n", p->row, p->name, output);
        free(output);
    }
    if (count && p->waits) noticed++;
    if (count && !p->waits) table[p->by ? class_of(p) : ROWS][first_class(o)]++;
    if (!judge(o, objections))
        add_words(all, "%s, %s program %s (%s:%d):\n%s\n", p->row, p->by ? "wrong" : "right",
                  p->name, p->file, p->line, objections->text);
    close(o->output);
}

// Runs the programs of a row, or the right ones of all rows; returns how many there were. What is
// not as it should be goes to all.
static int run_programs(int row, bool all_right, Words *all)
{
    Words *objections = shared_alloc(sizeof *objections);
    Outcome *job[JOBS];
    int n = 0, count = 0;
    for (const Program *p = programs; p || n > 0;) {
        if (p && (all_right ? p->by != NULL : (int)class_of(p) != row)) {
            p = p->next;
        } else if (p && n < JOBS) {
            job[n] = shared_alloc(sizeof *job[n]);
            job[n]->program = p;
            start(job[n++]);
            count++;
            p = p->next;
        } else {
            Outcome *o = wait_for_any(job, n);
            for (int i = 0; i < n; i++)
                if (job[i] == o) job[i] = job[n - 1];
            n--;
            settle(o, !all_right, objections, all);
        }
    }
    return count;
}

// cmocka formats a message in a buffer of a kilobyte: it gets a long one in pieces.
static void fail_with(const Words *all)
{
    for (const char *text = all->text; *text; text += strnlen(text, 900))
        print_error("%.900s", text);
    if (all->used) _fail(__FILE__, __LINE__);
}

static void run_row(int row)
{
    Words *all = shared_alloc(sizeof *all);
    int wrong = 0, right = 0;
    for (const Program *p = programs; p; p = p->next)
        if ((int)class_of(p) == row) (*(p->by ? &wrong : &right))++;
    run_programs(row, false, all);
    if (wrong < 3 || right < 2)
        add_words(all, "only %d wrong and %d right programs\n", wrong, right);
    fail_with(all);
}

// With fewer checks a right program is as right.
TEST(test_right_with_fewer_checks)
{
    Words *all = shared_alloc(sizeof *all);
    setenv("SIMGPU_CHECK", "fast", 1);
    assert_true(run_programs(0, true, all) > 0);
    setenv("SIMGPU_CHECK", "off", 1);
    run_programs(0, true, all);
    setenv("SIMGPU_CHECK", "full", 1);
    fail_with(all);
}

#define ROW(name)                                                                                  \
    TEST(test_##name)                                                                              \
    {                                                                                              \
        run_row(SIMGPU_##name);                                                                    \
    }
ROW(MISMATCH)
ROW(COMM_ORDER)
ROW(DEADLOCK)
ROW(GROUP)
ROW(POINTER)
ROW(LIFETIME)
ROW(UNINITIALISED)
ROW(RACE)
ROW(HOST_RACE)
ROW(OVERLAP)
ROW(LEAK)
ROW(HOST_DEREFERENCE)
ROW(CALL)
ROW(CAPTURE)

// Fails for each entry of a folder whose name holds the words; removes it where that is asked for.
static void expect_none(const char *folder, const char *words, bool remove_it)
{
    char name[PATH] = "";
    DIR *entries = opendir(folder);
    for (struct dirent *e; entries && (e = readdir(entries));) {
        if (e->d_name[0] == '.' || !strstr(e->d_name, words)) continue;
        snprintf(name, sizeof name, "%.255s", e->d_name);
        if (remove_it) unlinkat(dirfd(entries), e->d_name, 0);
    }
    if (entries) closedir(entries);
    if (name[0]) fail_msg("%s/%s was left behind", folder, name);
}

TEST(test_leaves_nothing)
{
    expect_none(scratch, "", true);
    expect_none("/dev/shm", "simgpu", false);
}

static bool known_rows(void)
{
    for (const Program *p = programs; p; p = p->next)
        if ((int)class_of(p) == ROWS || p->ranks > MAX_RANKS) {
            fprintf(stderr, "%s:%d: there is no row %s, or too many ranks\n", p->file, p->line,
                    p->row);
            return false;
        }
    return true;
}

// The sources are found from the root of the kit, where make runs, or beside a build tree there.
static bool find_sources(void)
{
    char self[PATH] = "", beside[2 * PATH];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
    snprintf(beside, sizeof beside, "%s/../simgpu/tests/misuse", dirname(dirname(dirname(self))));
    return realpath("simgpu/tests/misuse", sources) || realpath(beside, sources);
}

int main(int argc, char **argv)
{
    const char *folder = getenv("TMPDIR");
    char warm[64];
    if (!known_rows()) return 2;
    if (!find_sources()) {
        fprintf(stderr, "simgpu/tests/misuse is not here: run this from the kit's folder\n");
        return 2;
    }
    snprintf(scratch, sizeof scratch, "%.900s/simgpu-misuse-XXXXXX",
             folder && *folder ? folder : P_tmpdir);
    if (!mkdtemp(scratch) || chdir(scratch) != 0) {
        perror(scratch);
        return 2;
    }
    // Reading the debug information takes longest the first time: here, and not in each program.
    gpulog_where((const char *)(uintptr_t)main + 1, warm, sizeof warm);
    // As a newcomer has it, whatever the environment says here.
    unsetenv("SIMGPU_REPORT");
    unsetenv("SIMGPU_REPORTS");
    unsetenv("SIMGPU_DEVICES");
    setenv("SIMGPU_CHECK", "full", 1);
    setenv("SIMGPU_THREADS", "1", 0);
    int status = suite_main(argc, argv, "simgpu/misuse");
    if (argc == 1 || strcmp(argv[1], "--list") != 0) print_table();
    if (rmdir(scratch) != 0) perror(scratch);
    return status;
}
