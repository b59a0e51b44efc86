/* Running a body on W ranks inside one cmocka test. The ranks are forked processes with a
 * communicator and a stream made for them; the parent waits, and turns what the ranks left behind
 * into one message.
 *
 * Which trouble is told: the first, with one exception. A rank that ends silently (_exit, a
 * kill) or by exit() makes simgpu report on the others that they wait in vain; such a report may
 * well come first, and the silent end is still the reason.
 */
#define _GNU_SOURCE // pipe2, F_SETPIPE_SZ
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend.h"
#include "host_memory.h"
#include "pattern.h"
#include "run.h"

#define MAX_WORLD 256
#define OUTPUT_BYTES (256 * 1024) // of a rank's standard error that are kept: the first ones
#define MESSAGE_BYTES (64 * 1024)

// ---- Shared memory ----

void *shared_alloc(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        rank_fails(__FILE__, __LINE__, "no shared memory of %zu bytes: %s", bytes, strerror(errno));
    return memory;
}

static size_t run_bytes(int world)
{
    return sizeof(Run) + (size_t)world * sizeof(RankNote);
}

// ---- In the rank ----

// Everything the rank writes to standard error goes into a pipe that drops what it cannot hold: the
// first words are kept and nobody ever waits for a reader.
static void redirect_output(const Run *run, int rank)
{
    dup2(run->output_in[rank], STDERR_FILENO);
    for (int i = 0; i < run->world; i++) {
        close(run->output[i]);
        close(run->output_in[i]);
    }
}

#define MUST(call, words)                                                                          \
    do {                                                                                           \
        int must_ = (int)(call);                                                                   \
        if (must_ != 0) {                                                                          \
            trouble_tell(TROUBLE_CHECK, "%s: %s (%s:%d)", #call, words(must_), rank_run->file,     \
                         rank_run->line);                                                          \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define CUDA_WORDS(error) cudaGetErrorString((cudaError_t)(error))
#define NCCL_WORDS(error) ncclGetErrorString((ncclResult_t)(error))

// What the body left undone shows here: a failed operation, an error of the communicator.
static int finish_rank(Rank *rank)
{
    ncclResult_t async = ncclSuccess;

    char differs[600];

    MUST(cudaDeviceSynchronize(), CUDA_WORDS);
    if (!backend_agrees(differs, sizeof differs)) {
        trouble_tell(TROUBLE_CHECK, "%s (%s:%d)", differs, rank_run->file, rank_run->line);
        return 1;
    }
    MUST(ncclCommGetAsyncError(rank->comm, &async), NCCL_WORDS);
    if (async != ncclSuccess) {
        trouble_tell(TROUBLE_CHECK, "the communicator has an error after the body: %s (%s:%d)",
                     ncclGetErrorString(async), rank_run->file, rank_run->line);
        return 1;
    }
    MUST(cudaStreamDestroy(rank->stream), CUDA_WORDS);
    if (world_disconnect(rank->comm) != OK) {
        trouble_tell(TROUBLE_CHECK, "%s (%s:%d)", last_error(), rank_run->file, rank_run->line);
        return 1;
    }
    return 0;
}

// A peer that died, as the watch of the communicator has it: like a report, it may follow from what
// happened elsewhere.
static void hear_lost(const char *text)
{
    trouble_tell(TROUBLE_REPORT, "%s", text);
}

static int rank_main(const World *world, void *arg)
{
    Rank rank = {.rank = world->rank, .world = world->size};

    rank_run = arg;
    rank_number = world->rank;
    sanitize_note_threads();
    redirect_output(rank_run, rank_number);
    crash_watch();
    trouble_listen();
    world_on_lost(hear_lost);
    if (world_connect(world, &rank.comm) != OK) {
        trouble_tell(TROUBLE_HARNESS, "cannot connect to the other ranks: %s (%s:%d)", last_error(),
                     rank_run->file, rank_run->line);
        return 1;
    }
    MUST(cudaGetDevice(&rank.device), CUDA_WORDS);
    // Not blocking: nothing may be in order by the grace of the default stream.
    MUST(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), CUDA_WORDS);
    exit_watch();
    if (suite_debug_rank() == rank_number) debug_wait(rank_number, world->size);

    rank_run->body(&rank, rank_run->arg);

    int result = finish_rank(&rank);
    fflush(stdout);
    rank_done = true;
    // A report does not end a rank. Its parent sees by this that there was one.
    return result != 0 || trouble_told() ? 1 : 0;
}

// ---- The message ----

typedef struct Message {
    char *text; // MESSAGE_BYTES
    size_t length;
    const char *status; // for the results: failed, timeout, error
} Message;

static void add(Message *message, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(Message *message, const char *format, ...)
{
    va_list args;
    size_t left = MESSAGE_BYTES - message->length;

    va_start(args, format);
    int n = vsnprintf(message->text + message->length, left, format, args);
    va_end(args);
    if (n > 0) message->length += (size_t)n < left ? (size_t)n : left - 1;
}

static void trim(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) text[--n] = '\0';
}

// The last whole line a rank wrote to standard error: assert() and malloc() explain themselves
// there. A sanitizer does so in its summary, and may say more behind it.
static const char *last_words(char *output)
{
    char *summary = strstr(output, "\nSUMMARY: ");
    if (summary) {
        summary[1 + strcspn(summary + 1, "\n")] = '\0';
        return summary + 1;
    }
    trim(output);
    char *line = strrchr(output, '\n');
    return line ? line + 1 : output;
}

static void add_rule(Message *message)
{
    if (suite_rule()) add(message, "in rule %s: ", suite_rule());
}

static void tell_trouble(Message *message, Run *run, int world, int rank, char *output)
{
    RankNote *note = &run->note[rank];
    TroubleKind kind = atomic_load(&note->kind);

    message->status = kind == TROUBLE_HARNESS ? "error" : "failed";
    if (kind == TROUBLE_NOT_YET) { // the same on every rank, and the sentence has the place
        add(message, "%s", note->text);
        return;
    }
    trim(note->text);
    add_rule(message);
    add(message, "rank %d of %d: %s", rank, world, note->text);
    if (note->place[0]) add(message, " at %s", note->place);
    if (kind == TROUBLE_EXIT) add(message, ": a function of a task must return to its caller");
    if (kind == TROUBLE_CRASH && note->signal == SIGABRT && last_words(output)[0])
        add(message, "; its last words: %s", last_words(output));
    if (kind != TROUBLE_CHECK && kind != TROUBLE_HARNESS)
        add(message, " (%s:%d)", run->file, run->line);
    if (strstr(note->text, HOST_FREED_SHOWN) || strstr(note->text, NOT_AN_ADDRESS))
        add(message, LIKELY "a value was read from host memory that is freed, or that "
                            "nobody has written: who freed it before this use?");
}

// A rank that ended and said nothing.
static void tell_silent_end(Message *message, const Run *run, int world, int rank,
                            const RankEnd *end)
{
    message->status = "failed";
    add_rule(message);
    add(message, "rank %d of %d: ", rank, world);
    if (end->how == RANK_SIGNALLED)
        add(message, "was killed by signal %d (%s)", end->code, strsignal(end->code));
    else
        add(message,
            "ended with status %d, by _exit() or the like: a function of a task must return "
            "to its caller",
            end->code);
    add(message, " (%s:%d)", run->file, run->line);
}

static void tell_limit(Message *message, const Run *run, int world, const RankEnd *ends)
{
    const char *between = "";

    message->status = "timeout";
    add_rule(message);
    add(message, "the test's limit of %g s is over: ", run->whole);
    for (int i = 0; i < world; i++) {
        const char *at = run->note[i].at_limit;
        if (ends[i].how != RANK_TIMED_OUT) continue;
        add(message, "%srank %d %s", between, i,
            at[0] ? at : "did not answer when asked where it is");
        between = "\n";
    }
    add(message, " (%s:%d)", run->file, run->line);
}

static bool ended_silently(const Run *run, int rank, const RankEnd *end)
{
    bool on_its_own = end->how == RANK_EXITED || end->how == RANK_SIGNALLED ||
                      (end->how == RANK_RETURNED && end->code != 0);

    return on_its_own && atomic_load(&run->note[rank].kind) == TROUBLE_NONE;
}

// Whether a rank may say this only because another rank has gone.
static bool may_follow(const Run *run, int rank)
{
    int kind = atomic_load(&run->note[rank].kind);

    return kind == TROUBLE_REPORT || kind == TROUBLE_HARNESS;
}

// The rank whose trouble is the reason of all others; -1: nobody told one.
static int choose_rank(const Run *run, int world)
{
    int first = atomic_load(&run->first) - 1;

    if (first < 0 || first >= world) // none, or a rank has written there: whoever says anything
        for (first = 0; first < world; first++)
            if (atomic_load(&run->note[first].kind) != TROUBLE_NONE) break;
    if (first == world) return -1;
    if (!may_follow(run, first)) return first;
    for (int i = 0; i < world; i++)
        if (atomic_load(&run->note[i].kind) == TROUBLE_EXIT) return i;
    return first;
}

// What the run says, all in all; an empty text: nothing went wrong. What the ranks have told is in
// memory that they may write, all of it: it chooses the words, and never that a test has passed.
static void compose(Message *message, Run *run, int world, const RankEnd *ends, char **outputs)
{
    int chosen = choose_rank(run, world);

    if (chosen < 0 || may_follow(run, chosen))
        for (int i = 0; i < world; i++)
            if (ended_silently(run, i, &ends[i])) {
                tell_silent_end(message, run, world, i, &ends[i]);
                return;
            }
    if (chosen >= 0) {
        tell_trouble(message, run, world, chosen, outputs[chosen]);
        return;
    }
    for (int i = 0; i < world; i++)
        if (ends[i].how == RANK_TIMED_OUT) {
            tell_limit(message, run, world, ends);
            return;
        }
    for (int i = 0; i < world; i++)
        if (ends[i].how != RANK_RETURNED || ends[i].code != 0) {
            tell_silent_end(message, run, world, i, &ends[i]);
            return;
        }
}

// ---- In the parent ----

// A run may take its own limit, unless the whole test has one: then what is left of that.
static void set_limit(Run *run, double own)
{
    if (suite_limit(&run->whole, &run->limit)) return;
    run->limit = run->whole = own * time_factor() * backend_time_factor(run->world);
}

static bool open_outputs(int world, int *read_end, int *write_end)
{
    for (int i = 0; i < world; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
            while (--i >= 0) {
                close(read_end[i]);
                close(write_end[i]);
            }
            return false;
        }
        fcntl(ends[1], F_SETPIPE_SZ, OUTPUT_BYTES); // less is less output, no failure
        read_end[i] = ends[0];
        write_end[i] = ends[1];
    }
    return true;
}

// What a rank wrote, as a string; the pipe is closed.
static char *take_output(int fd)
{
    char *text = malloc(OUTPUT_BYTES + 1);
    size_t length = 0;
    ssize_t n;

    while (text && length < OUTPUT_BYTES &&
           (n = read(fd, text + length, OUTPUT_BYTES - length)) > 0)
        length += (size_t)n;
    close(fd);
    if (text) text[length] = '\0';
    return text ? text : calloc(1, 1);
}

static void show_outputs(int world, char **outputs)
{
    const char *verbose = getenv("SHARDLAB_VERBOSE");

    if (!verbose || strcmp(verbose, "1") != 0) return;
    for (int i = 0; i < world; i++)
        if (outputs[i][0])
            fprintf(stderr, "---- what rank %d of %d wrote to standard error ----\n%s\n", i, world,
                    outputs[i]);
}

static void run_them(Message *message, Run *run)
{
    RankEnd ends[MAX_WORLD] = {{0}};
    int read_end[MAX_WORLD], write_end[MAX_WORLD];
    const int world = run->world; // before a rank could write there
    char *outputs[MAX_WORLD], warm[64];

    message->status = "error";
    if (!open_outputs(world, read_end, write_end)) {
        add(message, "the harness has no pipes for %d ranks: %s", world, strerror(errno));
        return;
    }
    run->output = read_end;
    run->output_in = write_end;
    // Reading the debug information takes longest the first time: here, and not in a dying rank.
    gpulog_where((const char *)(uintptr_t)run_ranks_at + 1, warm, sizeof warm);
    backend_prepare();
    fflush(NULL);
    IGNORE_STATUS(launch_ranks(world, run->limit, rank_main, run, ends));
    for (int i = 0; i < world; i++) {
        close(write_end[i]);
        outputs[i] = take_output(read_end[i]);
    }
    if (ends[0].pid == 0)
        add(message, "the harness could not start the ranks: %s", check_last());
    else
        compose(message, run, world, ends, outputs);
    if (message->text[0]) show_outputs(world, outputs);
    for (int i = 0; i < world; i++) free(outputs[i]);
}

bool ranks_fit(int world)
{
    if (world <= backend_max_world()) return true;
    suite_left_out(world, backend_world_limit());
    return false;
}

void needs_ranks(int world)
{
    if (!ranks_fit(world)) suite_skip();
}

static Message run_world(const char *file, int line, int world, double limit, RankBody body,
                         void *arg)
{
    Message message = {.text = calloc(1, MESSAGE_BYTES), .status = "error"};

    if (!message.text) abort();
    if (world < 1 || world > MAX_WORLD) {
        add(&message, "a test asked for %d ranks: must be 1 to %d (%s:%d)", world, MAX_WORLD, file,
            line);
        return message;
    }
    if (!ranks_fit(world) || !suite_wants_world(world)) return message;
    suite_ran();
    Run *run = shared_alloc(run_bytes(world));
    run->world = world;
    set_limit(run, limit);
    run->file = file;
    run->line = line;
    run->body = body;
    run->arg = arg;
    run_them(&message, run);
    munmap(run, run_bytes(world));
    return message;
}

char *run_ranks_message_at(const char *file, int line, int world, double limit, RankBody body,
                           void *arg)
{
    Message message = run_world(file, line, world, limit, body, arg);

    if (message.text[0]) return message.text;
    free(message.text);
    return NULL;
}

// cmocka formats a message in a buffer of a kilobyte: it gets a long one in pieces.
static void print_failure(const char *text)
{
    for (; *text; text += strnlen(text, 900)) print_error("%.900s", text);
    print_error("\n");
}

static void tell_failure(Message message, const char *file, int line)
{
    if (message.text[0]) {
        suite_failed(message.status, message.text);
        print_failure(message.text);
        free(message.text);
        _fail(file, line);
    }
    free(message.text);
}

void run_ranks_at(const char *file, int line, int world, double limit, RankBody body, void *arg)
{
    tell_failure(run_world(file, line, world, limit, body, arg), file, line);
}

void run_worlds_at(const char *file, int line, RankBody body, void *arg, const int *worlds)
{
    for (; *worlds > 0; worlds++) run_ranks_at(file, line, *worlds, RANKS_LIMIT, body, arg);
}

typedef struct Variable {
    const char *name, *value;
    char *before; // NULL: it was not set
} Variable;

static void set_variable(Variable *v)
{
    const char *set = getenv(v->name);
    v->before = set != NULL ? strdup(set) : NULL;
    setenv(v->name, v->value, 1);
}

static void put_back(Variable *v)
{
    if (v->before != NULL)
        setenv(v->name, v->before, 1);
    else
        unsetenv(v->name);
    free(v->before);
}

// Whatever comes of it, the next run has the variables that this one had before.
static void run_with(Variable *v, int n, const char *file, int line, int world, RankBody body,
                     void *arg)
{
    for (int i = 0; i < n; i++) set_variable(&v[i]);
    Message message = run_world(file, line, world, RANKS_LIMIT, body, arg);
    for (int i = 0; i < n; i++) put_back(&v[i]);
    tell_failure(message, file, line);
}

void run_ranks_small_at(const char *file, int line, int world, RankBody body, void *arg)
{
    // What a test fills is poisoned, which costs its pages: twice what the largest of them needs.
    Variable memory = {backend_memory_variable(), "8M", NULL};
    run_with(&memory, 1, file, line, world, body, arg);
}

void run_ranks_dry_at(const char *file, int line, int world, RankBody body, void *arg)
{
#ifndef BACKEND_CUDA // whose kernels ask nobody whether to run
    Variable dry[] = {{"SIMGPU_DRY", "1", NULL}, {backend_memory_variable(), "1T", NULL}};
    run_with(dry, 2, file, line, world, body, arg);
#endif
}
