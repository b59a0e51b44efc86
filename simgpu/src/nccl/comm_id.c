/* comm_id.c: how the ranks of a communicator find the memory that they share.
 *
 * The memory has no name in any file system, and it is gone with its last user, however that one
 * ends (memory/shared_memory.h). ncclGetUniqueId makes it, and the id says where it is: process,
 * handle, and a random nonce that the memory holds, too. The others open /proc/PID/fd/N, which
 * Linux allows to the same user.
 *
 * With NCCL_COMM_ID=host:port in the environment every process makes the same id for itself, so the
 * id cannot name a process. Then rank 0 makes the shared memory and listens on a Unix socket in the
 * abstract namespace (again no file) whose name is made of that text and the user. A thread of rank
 * 0, the *server*, gives the memory's handle to every peer of its job that connects, and the socket
 * closes when all have come. Peers that come before rank 0 try again, at growing intervals, without
 * a limit: a rank may have much to do before it comes (notice.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "memory/shared_memory.h"
#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/diagnose.h"
#include "nccl/launched.h"
#include "nccl/lent.h"
#include "report/report.h"
#include "runtime/runtime.h"

struct IdServer {
    pthread_t thread;
    int listener, shared_fd, peers;
    uint64_t job;
    atomic_bool stop;
};

// Takes over the handle and CommShared, mapped. Another thread's rank may have mapped it already.
static SharedMap *keep_shared(int fd, CommShared *shared)
{
    sim_lock();
    for (SharedMap *map = sim_shared_maps; map && shared->nonce; map = map->next)
        if (map->shared->nonce == shared->nonce) {
            map->refs++;
            sim_unlock();
            munmap(shared, sizeof(CommShared));
            sim_shared_close(fd);
            return map;
        }
    SharedMap *map = calloc(1, sizeof *map);
    if (map) {
        *map = (SharedMap){.next = sim_shared_maps, .shared = shared, .fd = fd, .refs = 1};
        if (!shared->nonce) { // new: its first user sets the nonce
            atomic_store(&shared->other_rank, -1);
            while (!shared->nonce)
                if (getrandom(&shared->nonce, sizeof shared->nonce, 0) < 0) shared->nonce = 0;
        }
        sim_shared_maps = map;
    }
    sim_unlock();
    return map;
}

// Takes the handle over; NULL: it is not that of the communicator with the nonce.
static SharedMap *join_shared(int fd, uint64_t nonce)
{
    void *at = MAP_FAILED;
    if (sim_shared_bytes(fd) == SIM_SHARED_BYTES)
        at = sim_shared_map(fd, NULL, 0, sizeof(CommShared));
    if (at != MAP_FAILED && (!nonce || ((CommShared *)at)->nonce == nonce))
        return keep_shared(fd, at);
    if (at != MAP_FAILED) munmap(at, sizeof(CommShared));
    sim_shared_close(fd);
    return NULL;
}

static SharedMap *find_known(uint64_t nonce)
{
    SharedMap *found = NULL;
    sim_lock();
    for (SharedMap *map = sim_shared_maps; map && !found; map = map->next)
        if (map->shared->nonce == nonce) found = map;
    if (found) found->refs++;
    sim_unlock();
    return found;
}

void sim_shared_release(SharedMap *map, bool offered)
{
    sim_lock();
    if (offered && !map->offered) {
        sim_unlock();
        return;
    }
    if (offered) map->offered = false;
    bool last = --map->refs == 0;
    for (SharedMap **link = &sim_shared_maps; last && *link; link = &(*link)->next)
        if (*link == map) {
            *link = map->next;
            break;
        }
    sim_unlock();
    if (!last) return;
    sim_lent_unmap(map);
    munmap(map->shared, sizeof(CommShared));
    sim_shared_close(map->fd);
    free(map);
}

void sim_comm_id_withdraw(const CommId *id)
{
    SharedMap *map = find_known(id->nonce);
    if (!map) return;
    sim_shared_release(map, true);
    sim_shared_release(map, false);
}

static SharedMap *make_shared(void)
{
    void *at;
    int fd =
        sim_shared_make("simgpu-nccl", SIM_SHARED_BYTES, sizeof(CommShared), &at, "a communicator");
    return fd == -1 ? NULL : keep_shared(fd, at);
}

ncclResult_t sim_comm_id_offer(CommId *id)
{
    SharedMap *map = make_shared();
    if (!map) {
        sim_report(SIMGPU_SYSTEM, "NCCL: no shared memory for a communicator",
                   "memfd_create or mmap failed: %s.", strerror(errno));
        return ncclSystemError;
    }
    map->offered = true;
    map->then = sim_traces();
    *id = (CommId){.magic = "SIMGPU", .pid = getpid(), .fd = map->fd, .nonce = map->shared->nonce};
    return ncclSuccess;
}

// ---- NCCL_COMM_ID ----

static socklen_t socket_name(struct sockaddr_un *name, const char *text)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    // A path that begins with a zero byte is an abstract name.
    int n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "simgpu-%u-%s",
                     (unsigned)getuid(), text);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void pause_for(double *seconds)
{
    struct timespec t = {0, (long)(*seconds * 1e9)};
    nanosleep(&t, NULL);
    *seconds = *seconds * 1.5 < 0.2 ? *seconds * 1.5 : 0.2;
}

#define OTHER_JOB (-2) // in place of a handle

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

// A number that all ranks of a job have, and no other job on this host: the launcher's, Slurm's, or
// else that of the session.
static uint64_t job_of_process(void)
{
    static const char *const names[] = {
        "SIMGPU_JOB",  "SLURM_JOB_ID",        "SLURM_STEP_ID",          "PMIX_NAMESPACE",
        "MASTER_PORT", "TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid"};
    uint64_t none = UINT64_C(0xcbf29ce484222325), hash = none, world;
    sim_lock();
    bool launched = sim_launched_known();
    sim_launched_self(&world);
    sim_unlock();
    if (launched) return world;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value) hash = mix_text(mix_text(hash, names[i]), value);
        if (value && i == 0) return hash;
    }
    return hash != none ? hash : (uint64_t)getsid(0);
}

static bool give_handle(int to, int handle)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {&handle, sizeof handle};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &handle, sizeof handle);
    if (handle < 0 || !sim_shared_is_file(handle))
        message.msg_control = NULL, message.msg_controllen = 0;
    return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof handle;
}

static int take_handle(int from)
{
    int handle;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {&handle, sizeof handle};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != sizeof handle) return -1;
    if (handle == OTHER_JOB || !sim_shared_is_file(handle)) return handle;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head && (message.msg_flags & MSG_CTRUNC)) sim_no_files_left(); // no descriptor was free
    if (!head || head->cmsg_type != SCM_RIGHTS) return -1;
    memcpy(&handle, CMSG_DATA(head), sizeof handle);
    return handle;
}

static bool same_user(int socket)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

// Whether the peer is of this job and has received the handle.
static bool serve_one(const struct IdServer *server, int peer)
{
    uint64_t job = 0;
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 1},
               sizeof(struct timeval));
    if (recv(peer, &job, sizeof job, MSG_WAITALL) != sizeof job) return false;
    bool ours = job == server->job;
    return give_handle(peer, ours ? server->shared_fd : OTHER_JOB) && ours;
}

static void *serve(void *arg)
{
    struct IdServer *server = arg;
    double interval = 0.001;
    int served = 0;
    while (served < server->peers) {
        int peer = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 && errno == EMFILE) sim_no_files_left();
        if (peer < 0 && atomic_load(&server->stop)) break;
        if (peer < 0) {
            pause_for(&interval);
            continue;
        }
        if (same_user(peer)) served += serve_one(server, peer);
        close(peer);
    }
    close(server->listener);
    return NULL;
}

// The memory's handle; OTHER_JOB: rank 0 of another job is there; -1: no rank 0 is.
static int fetch_shared(const char *text)
{
    struct sockaddr_un name;
    socklen_t size = socket_name(&name, text);
    int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;
    if (to < 0 && errno == EMFILE) sim_no_files_left();
    if (to < 0) return -1;
    uint64_t job = job_of_process();
    if (connect(to, (struct sockaddr *)&name, size) == 0 && same_user(to) &&
        send(to, &job, sizeof job, MSG_NOSIGNAL) == sizeof job)
        fd = take_handle(to);
    close(to);
    return fd;
}

static ncclResult_t start_server(const char *text, ncclComm_t comm)
{
    struct IdServer *server = calloc(1, sizeof *server);
    if (!server) return ncclSystemError;
    *server = (struct IdServer){
        .shared_fd = comm->map->fd, .peers = comm->size - 1, .job = job_of_process()};
    server->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0 && errno == EMFILE) sim_no_files_left();
    struct sockaddr_un name;
    socklen_t size = socket_name(&name, text);
    if (bind(server->listener, (struct sockaddr *)&name, size) != 0) {
        bool taken = errno == EADDRINUSE; // another communicator may just be meeting there
        comm->place_taken = taken && fetch_shared(text) == OTHER_JOB;
        if (!taken)
            sim_report(SIMGPU_SYSTEM, "ncclCommInitRank: rank 0 cannot listen",
                       "NCCL_COMM_ID=%s: %s.", text, strerror(errno));
        close(server->listener);
        free(server);
        return taken ? ncclInProgress : ncclSystemError;
    }
    listen(server->listener, SIM_MAX_RANKS);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) {
        simgpu_helper_threads(1);
        comm->server = server;
        return ncclSuccess;
    }
    close(server->listener);
    free(server);
    return ncclSystemError;
}

void sim_comm_id_served(struct IdServer *server, bool stop)
{
    if (!server) return;
    if (stop) {
        atomic_store(&server->stop, true);
        shutdown(server->listener, SHUT_RDWR); // wakes it
    }
    pthread_join(server->thread, NULL);
    simgpu_helper_threads(-1);
    free(server);
}

// ---- Either way ----

static ncclResult_t find_by_text(const CommId *id, ncclComm_t comm)
{
    if (comm->rank != 0) {
        int fd = fetch_shared(id->text);
        comm->place_taken = fd == OTHER_JOB;
        if (fd < 0) return ncclInProgress;
        comm->map = join_shared(fd, 0);
        return comm->map ? ncclSuccess : ncclSystemError;
    }
    comm->map = make_shared();
    if (!comm->map) return ncclSystemError;
    ncclResult_t result = comm->size == 1 ? ncclSuccess : start_server(id->text, comm);
    if (result == ncclSuccess) return result;
    sim_shared_release(comm->map, false);
    comm->map = NULL;
    return result;
}

// The process that made the id may be ending: its files are gone before its process is. If a
// launcher's world is known, that will be known in a moment, and end this process.
static void await_loss(ncclComm_t comm)
{
    sim_lock();
    bool known = sim_launched_known();
    sim_unlock();
    sim_diagnose_never_joined(comm, NULL);
    for (int naps = 0; known && naps < 50; naps++) {
        sim_nap(sim_ticket(), 20);
        sim_diagnose_never_joined(comm, NULL);
    }
}

ncclResult_t sim_comm_id_find(const CommId *id, ncclComm_t comm)
{
    if (id->by_text) {
        snprintf(comm->meets_at, sizeof comm->meets_at, "NCCL_COMM_ID=%s", id->text);
        return find_by_text(id, comm);
    }
    snprintf(comm->meets_at, sizeof comm->meets_at, "the id that process %d made", id->pid);
    comm->map = find_known(id->nonce);
    if (comm->map) return ncclSuccess;
    int fd = sim_open_fd(id->pid, id->fd);
    if (fd != -1) comm->map = join_shared(fd, id->nonce);
    if (comm->map) return ncclSuccess;
    sim_comm_await_end(comm);
    await_loss(comm);
    sim_report(
        SIMGPU_DEADLOCK, "ncclCommInitRank: the communicator of this id has ended",
        "The id was made by process %d, which has ended, or has closed it, or is another user's.\n"
        "On real GPUs this hangs, or fails after a time limit.\n"
        "Is the id of an earlier job, or was it used for a communicator already?",
        id->pid);
    return ncclSystemError;
}
