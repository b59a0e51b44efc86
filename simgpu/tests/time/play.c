/* play.c: runs a program on simgpu, a process for each of the program's, and takes the times from
 * the clock's spans.
 *
 * Interface: play (program.h).
 */
#include "play.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "time/time.h"

enum { LIMIT = 60 };

Player player;
static struct {
    sem_t ids_are_made;
    ncclUniqueId id[MAX_COMMS];
    Times times;
} * shared; // by the processes of the run

bool is_mine(int rank)
{
    return player.program->world.process[rank] == player.process;
}

// ---- The world ----

static void make_ids(const World *w)
{
    if (player.process == 0) {
        for (int i = 0; i < w->n_comms; i++) need_nccl(ncclGetUniqueId(&shared->id[i]));
        for (int i = 0; i < w->n_processes; i++) sem_post(&shared->ids_are_made);
    }
    while (sem_wait(&shared->ids_are_made)) continue;
}

static void make_comm(const World *w, int number)
{
    const Comm *c = &w->comm[number];
    need_nccl(ncclGroupStart());
    for (int r = 0; r < w->n_ranks; r++) {
        int member = member_of(c, r);
        if (!is_mine(r) || (member < 0 && !c->split)) continue;
        need_cuda(cudaSetDevice(r));
        if (c->split)
            need_nccl(ncclCommSplit(player.comms[0][r], member < 0 ? NCCL_SPLIT_NOCOLOR : 0, member,
                                    &player.comms[number][r], NULL));
        else
            need_nccl(ncclCommInitRank(&player.comms[number][r], c->n, shared->id[number], member));
    }
    need_nccl(ncclGroupEnd());
}

static void make_world(const World *w)
{
    for (int i = 0; i < w->n_ranks * STREAMS; i++) {
        int rank = w->made[i] / STREAMS, stream = w->made[i] % STREAMS;
        bool blocking = stream == BLOCKING_A || stream == BLOCKING_B;
        if (!is_mine(rank) || stream == LEGACY) continue;
        need_cuda(cudaSetDevice(rank));
        need_cuda(cudaStreamCreateWithFlags(&player.streams[rank][stream],
                                            blocking ? cudaStreamDefault : cudaStreamNonBlocking));
    }
    make_ids(w);
    for (int i = 0; i < w->n_comms; i++) make_comm(w, i);
    for (int r = 0; r < w->n_ranks; r++) {
        if (!is_mine(r)) continue;
        need_cuda(cudaSetDevice(r));
        need_cuda(cudaMalloc((void **)&player.device_buffer[r], BUFFER));
        need_cuda(cudaMallocHost((void **)&player.pinned_buffer[r], MAX_BYTES));
    }
}

static void destroy_world(const World *w)
{
    for (int i = 0; i < player.program->n; i++)
        if (player.of_record[i] && !player.program->step[i].again)
            need_cuda(cudaEventDestroy(player.of_record[i]));
    for (int r = 0; r < w->n_ranks; r++) {
        if (!is_mine(r)) continue;
        need_cuda(cudaSetDevice(r));
        for (int i = 0; i < BLOCKS; i++) {
            need_cuda(cudaFree(player.memory[0][r][i]));
            need_cuda(cudaFree(player.memory[1][r][i]));
            need_cuda(cudaFreeHost(player.memory[2][r][i]));
        }
        need_cuda(cudaFree(player.device_buffer[r]));
        need_cuda(cudaFreeHost(player.pinned_buffer[r]));
        for (int i = 0; i < STREAMS; i++)
            if (player.streams[r][i]) need_cuda(cudaStreamDestroy(player.streams[r][i]));
        for (int i = w->n_comms - 1; i >= 0; i--)
            if (player.comms[i][r]) need_nccl(ncclCommDestroy(player.comms[i][r]));
    }
    need_cuda(cudaSetDevice(player.process));
}

// ---- A process ----

// The entries of a device in the log are its calls, in the program's order. Calls that the log does
// not have are passed over. False: there is none any more.
static bool next_in_log(int rank, int *step, int *call)
{
    static struct {
        int step, call;
    } at[MAX_RANKS];
    for (; at[rank].step < player.program->n; at[rank].step++, at[rank].call = 0) {
        const Step *s = &player.program->step[at[rank].step];
        if (is_query(s->kind) || s->kind == PIN || s->kind == UNPIN) continue;
        for (int n = s->kind == NCCL ? s->n_calls : 1; at[rank].call < n; at[rank].call++) {
            if (s->kind == NCCL ? !calls(&player.program->world, &s->call[at[rank].call], rank)
                                : s->rank != rank)
                continue;
            *step = at[rank].step;
            *call = at[rank].call++;
            return true;
        }
    }
    return false;
}

static void hear_span(const SimSpan *span, void *arg)
{
    static bool has_buffer[MAX_RANKS]; // whose allocation is the first entry
    if (!span || strstr(span->entry->name, "Query")) return;
    int rank = span->entry->device, step, call;
    if (!has_buffer[rank]) {
        has_buffer[rank] = true;
        return;
    }
    if (!next_in_log(rank, &step, &call)) return;
    Kind kind = player.program->step[step].kind;
    shared->times.span[step][kind == NCCL ? call * MAX_RANKS + rank : 0] =
        (Span){span->queued, span->returned, span->ready, span->start, span->end};
    if (kind == RECORD) shared->times.at[step] = span->end;
}

static void take_elapsed(void)
{
    cudaEvent_t first[MAX_RANKS] = {NULL};
    for (int i = 0; i < player.program->n; i++) {
        int rank = player.program->step[i].rank;
        float ms;
        if (!player.of_record[i]) continue;
        if (!first[rank]) first[rank] = player.of_record[i];
        need_cuda(cudaEventElapsedTime(&ms, first[rank], player.of_record[i]));
        shared->times.elapsed[i] = (double)ms;
    }
}

static void body(const Rank *r, void *arg)
{
    player.program = arg;
    player.times = &shared->times;
    player.process = r->rank;
    check(r->device == r->rank, "the harness gave rank %d device %d", r->rank, r->device);
    sim_clock_on_span(hear_span, NULL);
    make_world(&player.program->world);
    run_steps();
    for (int rank = 0; rank < player.program->world.n_ranks; rank++)
        if (is_mine(rank)) {
            need_cuda(cudaSetDevice(rank));
            need_cuda(cudaDeviceSynchronize());
        }
    take_elapsed();
    destroy_world(&player.program->world);
}

// What the processes find in their environment.
static void set_environment(const World *w, const char *file)
{
    char slow[32], jitter[64];
    snprintf(slow, sizeof slow, "%d:%d%%", w->slow_rank, w->slow_percent);
    snprintf(jitter, sizeof jitter, "%d%%:%llu", w->jitter_percent,
             (unsigned long long)w->jitter_seed);
    setenv("SIMGPU_MACHINE", file, 1);
    setenv("SIMGPU_CHECK", "fast", 1); // the bytes do not matter here, and so no race does
    if (w->slow_percent) setenv("SIMGPU_SLOW", slow, 1);
    if (w->jitter_percent) setenv("SIMGPU_JITTER", jitter, 1);
}

static void clear_environment(void)
{
    static const char *const names[] = {"SIMGPU_MACHINE", "SIMGPU_CHECK", "SIMGPU_SLOW",
                                        "SIMGPU_JITTER"};
    for (int i = 0; i < 4; i++) unsetenv(names[i]);
}

char *play(const Program *p, Times *times)
{
    char file[] = "/tmp/machine-XXXXXX";
    int fd = mkstemp(file);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) return strdup("no temporary file for the machine");
    write_machine(out, &p->world.machine);
    fclose(out);
    set_environment(&p->world, file);
    if (!shared) shared = shared_alloc(sizeof *shared);
    memset(&shared->times, 0, sizeof shared->times);
    sem_init(&shared->ids_are_made, 1, 0);
    char *message = run_ranks_message(p->world.n_processes, LIMIT, body, (void *)p);
    sem_destroy(&shared->ids_are_made);
    unlink(file);
    clear_environment();
    *times = shared->times;
    return message;
}
