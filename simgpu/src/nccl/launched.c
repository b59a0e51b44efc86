/* launched.c: the processes of a launcher's world.
 *
 * If a rank ends after it has joined a communicator, the watcher of every other rank sees it
 * (peer_end.c). If it ends before that, only the process that started it knows. So a launcher may
 * say which process is which rank, in a file that SIMGPU_WORLD names (README.md, "For
 * launchers"):
 *
 *     simgpu-world 1 4        the format, and how many ranks there are
 *     0 7301                  rank 0 is process 7301; a line for each rank, in any order
 *     2 exited 1              rank 2 has ended: exited STATUS, or killed SIGNAL
 *
 * The watcher has a pidfd of each of these processes, so it sees an end at once, without the
 * launcher's line. The line is for a launcher that waits for a rank, since after that another
 * process may get its number. Until every rank has a process, the file is read again and again.
 *
 * [Note: lost ranks] A communicator is lost if a process that was to be one of its ranks has ended.
 * In a world, process r is rank r of a communicator as large as the world, unless a process has
 * joined with another number. Such a communicator is lost if a process that has not joined ends by
 * a signal or with a status other than 0. A process that ends well may have had no rank to bring,
 * if another process brings several: so as long as a process that has joined has threads that may
 * still join, it is not called lost. For any other communicator the joining processes are unknown:
 * it is lost when all living processes have joined and have no thread left that could join.
 *
 * Without SIMGPU_WORLD nothing is known of other processes, and ranks wait (notice.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl/launched.h"
#include "nccl/peer_end.h"
#include "runtime/runtime.h"

#define MAX_ANCESTORS 64

typedef struct Launched {
    int pid;   // 0: not known yet
    int pidfd; // -1: none
    bool ended;
    int status; // as wait() has it; -1: not known
} Launched;

// Under the lock of comm.c, as all functions below but sim_launched_lost and sim_launched_end_of.
static struct {
    bool opened; // SIMGPU_WORLD has been read
    int fd;      // of the file; only with a size
    int size;    // 0: there is no world
    int pid;     // this process
    int self;    // this process's rank, or that of the rank which started it; -1: not known
    uint64_t id; // of the file: the same in all processes of a world
    Launched rank[SIM_MAX_RANKS];
} world = {.fd = -1};

void sim_launched_forked(void)
{
    for (int r = 0; r < world.size; r++)
        if (world.rank[r].pidfd >= 0) close(world.rank[r].pidfd);
    if (world.fd >= 0) close(world.fd);
    memset(&world, 0, sizeof world);
    world.fd = -1;
}

// ---- The file ----

// Reads the whole file (free it); NULL: it cannot be read.
static char *read_file(void)
{
    struct stat st;
    char *text = fstat(world.fd, &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
    ssize_t n = text ? pread(world.fd, text, (size_t)st.st_size, 0) : -1;
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[n] = 0;
    char *last = strrchr(text, '\n'); // a line without its end is still being written
    if (last) last[1] = 0;
    return text;
}

static void note_ended(Launched *rank, int status)
{
    if (rank->pidfd >= 0) close(rank->pidfd);
    rank->pidfd = -1;
    rank->ended = true;
    rank->status = status;
}

static void read_line(const char *line)
{
    int r, number, at = 0;
    char word[16];
    if (sscanf(line, "%d %15s %n", &r, word, &at) != 2 || r < 0 || r >= world.size) return;
    Launched *rank = &world.rank[r];
    if (strcmp(word, "exited") == 0 && sscanf(line + at, "%d", &number) == 1)
        note_ended(rank, (number & 0xff) << 8);
    else if (strcmp(word, "killed") == 0 && sscanf(line + at, "%d", &number) == 1)
        note_ended(rank, number & 0x7f);
    else if (!rank->pid && atoi(word) > 1)
        rank->pid = atoi(word);
}

static void read_lines(void)
{
    char *text = read_file();
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (!end) break;
        *end = 0;
        read_line(line);
        line = end + 1;
    }
    free(text);
}

// The parent of a process; 0: there is no such process.
static int parent_of(int pid)
{
    char path[32], line[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    line[n] = 0;
    const char *at = strrchr(line, ')'); // the second field, the only one that may hold blanks
    return at && sscanf(at, ") %*c %d", &parent) == 1 ? parent : 0;
}

// A launched process may be a shell, say, that starts the program.
static int find_self(void)
{
    int pid = world.pid;
    for (int i = 0; i < MAX_ANCESTORS && pid > 1; i++, pid = parent_of(pid))
        for (int r = 0; r < world.size; r++)
            if (world.rank[r].pid == pid) return r;
    return -1;
}

static bool is_complete(void)
{
    for (int r = 0; r < world.size; r++)
        if (!world.rank[r].pid && !world.rank[r].ended) return false;
    return world.self >= 0;
}

// Reads on. If a number is another process's when it is opened, the file says that its rank ended.
static void read_on(void)
{
    bool fresh[SIM_MAX_RANKS] = {false};
    read_lines();
    for (int r = 0; r < world.size; r++) {
        Launched *rank = &world.rank[r];
        if (!rank->pid || rank->ended || rank->pidfd >= 0 || rank->pid == world.pid) continue;
        rank->pidfd = sim_open_pidfd(rank->pid);
        fresh[r] = rank->pidfd >= 0;
    }
    for (int r = 0; r < world.size; r++)
        if (fresh[r]) {
            read_lines();
            break;
        }
    if (world.self < 0) world.self = find_self();
}

void sim_launched_open(void)
{
    struct stat st;
    char head[64];
    int size = 0;
    if (world.opened) return;
    world.opened = true;
    const char *path = getenv("SIMGPU_WORLD");
    if (!path || !*path) return;
    world.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (world.fd < 0 && errno == EMFILE) sim_no_files_left();
    ssize_t n = world.fd >= 0 ? pread(world.fd, head, sizeof head - 1, 0) : -1;
    head[n > 0 ? n : 0] = 0;
    // It may be the file of a launcher further up, which was not passed down.
    if (sscanf(head, "simgpu-world 1 %d", &size) != 1 || size < 1 || size > SIM_MAX_RANKS ||
        fstat(world.fd, &st) != 0) {
        if (world.fd >= 0) close(world.fd);
        world.fd = -1;
        return;
    }
    world.size = size;
    world.pid = getpid();
    world.id = (uint64_t)st.st_dev << 40 ^ (uint64_t)st.st_ino;
    world.self = -1;
    for (int r = 0; r < size; r++) world.rank[r] = (Launched){.pidfd = -1, .status = -1};
    read_on();
    sim_peers_changed();
}

bool sim_launched_known(void)
{
    return world.size > 0;
}

int sim_launched_self(uint64_t *id)
{
    *id = world.id;
    return world.size ? world.self : -1;
}

// ---- The watcher ----

// Whether it is another process, and not known to have ended.
static bool is_watched(const Launched *rank)
{
    return !rank->ended && rank->pid != world.pid;
}

// poll leaves out descriptors of -1.
int sim_launched_poll(struct pollfd *fds, bool *look)
{
    if (world.size && !is_complete()) *look = true;
    for (int r = 0; r < world.size; r++) {
        const Launched *rank = &world.rank[r];
        fds[r] = (struct pollfd){is_watched(rank) ? rank->pidfd : -1, POLLIN, 0};
        if (is_watched(rank) && rank->pidfd < 0) *look = true;
    }
    return world.size;
}

// Finds out with one call of the kernel which have ended: there may be 256 processes, and each of
// them checks whenever another one joins.
static void find_ended(bool ended[SIM_MAX_RANKS])
{
    struct pollfd fds[SIM_MAX_RANKS];
    bool look = false;
    int n = sim_launched_poll(fds, &look);
    bool any = poll(fds, (nfds_t)n, 0) > 0;
    for (int r = 0; r < n; r++) {
        const Launched *rank = &world.rank[r];
        if (rank->pidfd >= 0)
            ended[r] = any && fds[r].revents;
        else
            ended[r] = rank->pid && is_watched(rank) && sim_is_dead(rank->pid);
    }
}

bool sim_launched_news(void)
{
    bool news = false, ended[SIM_MAX_RANKS];
    if (world.size && !is_complete()) {
        read_on();
        news = true;
    }
    find_ended(ended);
    for (int r = 0; r < world.size; r++) {
        Launched *rank = &world.rank[r];
        if (!ended[r]) continue;
        note_ended(rank, sim_ended_how(rank->pid, rank->pidfd));
        news = true;
    }
    return news;
}

// ---- Lost ranks ----

static bool has_joined(const RankSlot *slot)
{
    return atomic_load(&slot->state) >= RANK_JOINED;
}

// A rank may join before its launcher has written its line. The others read its number in its slot.
static void tell_self(CommShared *shared, int size)
{
    for (int r = 0; shared && r < size; r++) {
        RankSlot *slot = &shared->slot[r];
        if (has_joined(slot) && slot->pid == world.pid && atomic_load(&slot->world_rank) < 0)
            atomic_store(&slot->world_rank, world.self);
    }
}

// Whether launched rank r has joined the communicator, with any number.
static bool has_come(const CommShared *shared, int size, int r)
{
    for (int k = 0; shared && k < size; k++)
        if (has_joined(&shared->slot[k]) && shared->slot[k].world == world.id &&
            atomic_load(&shared->slot[k].world_rank) == r)
            return true;
    return false;
}

// Whether the communicator's ranks, as far as they have joined, are those of the world.
static bool is_worlds(ncclComm_t comm, const CommShared *shared)
{
    if (comm->size != world.size || comm->rank != world.self) return false;
    for (int r = 0; shared && r < comm->size; r++) {
        const RankSlot *slot = &shared->slot[r];
        if (!has_joined(slot)) continue;
        if (slot->world != world.id || atomic_load(&slot->world_rank) != r) return false;
    }
    return true;
}

// Whether a process that has joined may join again, by another thread.
static bool may_come_again(ncclComm_t comm, const CommShared *shared, int pid)
{
    int came[SIM_MAX_RANKS], n = 0;
    const ProcessWaitTable *table = pid == world.pid ? sim_wait_table(NULL) : NULL;
    for (int r = 0; r < comm->size; r++) {
        const RankSlot *slot = &shared->slot[r];
        if (!has_joined(slot) || slot->pid != pid) continue;
        int thread = atomic_load(&slot->thread), i = 0;
        while (i < n && came[i] != thread) i++;
        if (i == n) came[n++] = thread;
        if (comm->wait_table[r]) table = comm->wait_table[r];
    }
    if (!table) return true; // not connected yet: it rings when it is
    return sim_program_threads(pid, table) > n;
}

static bool any_may_come_again(ncclComm_t comm, const CommShared *shared)
{
    for (int r = 0; shared && r < comm->size; r++) {
        const RankSlot *slot = &shared->slot[r];
        if (has_joined(slot) && may_come_again(comm, shared, slot->pid)) return true;
    }
    return false;
}

// Whether all living launched processes have joined.
static bool all_have_come(const CommShared *shared, int size)
{
    for (int r = 0; r < world.size; r++)
        if (!world.rank[r].ended && !has_come(shared, size, r)) return false;
    return true;
}

// Whether the end of launched rank r, which has not joined, means that the communicator is lost.
static bool is_loss(ncclComm_t comm, const CommShared *shared, int r, bool worlds)
{
    if (worlds && world.rank[r].status > 0) return true;
    if (!worlds && !(shared && all_have_come(shared, comm->size))) return false;
    return !any_may_come_again(comm, shared);
}

// Of several, the cause is one that was not ended by a report.
SimLaunchedLoss sim_launched_lost(ncclComm_t comm, CommShared *shared, int *rank)
{
    SimLaunchedLoss loss = LOSS_NONE;
    sim_lock();
    sim_launched_news();
    tell_self(shared, comm->size);
    bool worlds = is_worlds(comm, shared), reported = true;
    for (int r = 0; r < world.size && world.self >= 0 && reported; r++) {
        if (!world.rank[r].ended || has_come(shared, comm->size, r)) continue;
        if (loss == LOSS_NONE) loss = LOSS_POSSIBLE;
        if (!is_loss(comm, shared, r, worlds)) continue;
        loss = LOSS_CERTAIN;
        reported = world.rank[r].status == SIMGPU_FATAL_EXIT << 8;
        *rank = r;
    }
    sim_unlock();
    return loss;
}

bool sim_launched_end_of(int rank, int *pid, int *status)
{
    sim_lock();
    bool ended = rank < world.size && world.rank[rank].ended;
    if (ended) {
        *pid = world.rank[rank].pid;
        *status = world.rank[rank].status;
    }
    sim_unlock();
    return ended;
}
