/* play_calls.c: a program's calls of CUDA and NCCL.
 *
 * Every record has an event of its own, unless the step says otherwise, so that all of them can be
 * read in the end.
 *
 * Interface: call_cuda, call_all (play.h).
 */
#include "play.h"
#include "simgpu.h"

// ---- Calls of one rank ----

static cudaError_t kernel(const Step *s, char *device, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel", stream);
    simgpu_read(&op, device, (size_t)s->read);
    simgpu_write(&op, device + MAX_BYTES, (size_t)s->write);
    simgpu_update(&op, device + 2 * MAX_BYTES, (size_t)s->update);
    if (s->flops) simgpu_cost(&op, (uint64_t)s->flops, GPU_F32);
    return simgpu_end(&op);
}

static void copy_between(const Step *s, cudaStream_t stream)
{
    int to = s->rank;
    for (int r = 0; r < player.program->world.n_ranks && s->from == s->rank; r++)
        if (is_mine(r) && r != s->from) to = r;
    need_cuda(cudaMemcpyPeerAsync(player.device_buffer[to], to,
                                  player.device_buffer[s->from] + MAX_BYTES, s->from,
                                  (size_t)s->read, stream));
}

static void copy(const Step *s, cudaStream_t stream)
{
    char *device = player.device_buffer[s->rank], *pinned = player.pinned_buffer[s->rank];
    char *pageable = player.pageable_buffer[s->rank];
    size_t bytes = (size_t)s->read;
    enum cudaMemcpyKind to = cudaMemcpyHostToDevice, from = cudaMemcpyDeviceToHost;
    switch (s->kind) {
    case COPY_ASYNC:
        need_cuda(cudaMemcpyAsync(device, device + MAX_BYTES, bytes, cudaMemcpyDefault, stream));
        break;
    case TO_DEVICE_PINNED: need_cuda(cudaMemcpyAsync(device, pinned, bytes, to, stream)); break;
    case TO_DEVICE_PAGEABLE: need_cuda(cudaMemcpyAsync(device, pageable, bytes, to, stream)); break;
    case TO_DEVICE: need_cuda(cudaMemcpy(device, pageable, bytes, to)); break;
    case FROM_DEVICE_PINNED: need_cuda(cudaMemcpyAsync(pinned, device, bytes, from, stream)); break;
    case FROM_DEVICE_PAGEABLE:
        need_cuda(cudaMemcpyAsync(pageable, device, bytes, from, stream));
        break;
    case FROM_DEVICE: need_cuda(cudaMemcpy(pageable, device, bytes, from)); break;
    default: copy_between(s, stream); break;
    }
}

static void change_memory(const Step *s, cudaStream_t stream)
{
    int kind = s->kind <= FREE_ASYNC ? 0 : s->kind <= FREE ? 1 : 2;
    void **block = &player.memory[kind][s->rank][s->slot], *old = *block;
    *block = NULL;
    switch (s->kind) {
    case ALLOC_ASYNC: need_cuda(cudaMallocAsync(block, 64, stream)); break;
    case FREE_ASYNC: need_cuda(cudaFreeAsync(old, stream)); break;
    case MALLOC: need_cuda(cudaMalloc(block, 64)); break;
    case FREE: need_cuda(cudaFree(old)); break;
    case PIN: need_cuda(cudaMallocHost(block, 64)); break;
    default: need_cuda(cudaFreeHost(old)); break;
    }
}

static void record(const Step *s, int at, cudaStream_t stream)
{
    cudaEvent_t *event = &player.events[s->rank][s->slot];
    if (!s->again) need_cuda(cudaEventCreate(event));
    player.of_record[at] = *event;
    need_cuda(cudaEventRecord(*event, stream));
}

static void query(int at, cudaError_t answer)
{
    check(answer == cudaSuccess || answer == cudaErrorNotReady, "step %d, a query: %s", at,
          cudaGetErrorString(answer));
    player.times->ready[at] = answer == cudaSuccess;
}

void call_cuda(const Step *s, int at)
{
    cudaStream_t stream = player.streams[s->rank][s->stream];
    cudaEvent_t event = player.events[s->kind == WAIT ? s->from : s->rank][s->slot % EVENTS];
    char *device = player.device_buffer[s->rank];
    need_cuda(cudaSetDevice(s->rank));
    switch (s->kind) {
    case KERNEL: need_cuda(kernel(s, device, stream)); break;
    case MEMSET_ASYNC: need_cuda(cudaMemsetAsync(device, 0, (size_t)s->read, stream)); break;
    case MEMSET: need_cuda(cudaMemset(device, 0, (size_t)s->read)); break;
    case ALLOC_ASYNC:
    case FREE_ASYNC:
    case MALLOC:
    case FREE:
    case PIN:
    case UNPIN: change_memory(s, stream); break;
    case RECORD: record(s, at, stream); break;
    case WAIT: need_cuda(cudaStreamWaitEvent(stream, event, 0)); break;
    case STREAM_SYNC: need_cuda(cudaStreamSynchronize(stream)); break;
    case EVENT_SYNC: need_cuda(cudaEventSynchronize(event)); break;
    case DEVICE_SYNC: need_cuda(cudaDeviceSynchronize()); break;
    case STREAM_QUERY: query(at, cudaStreamQuery(stream)); break;
    case EVENT_QUERY: query(at, cudaEventQuery(event)); break;
    default: copy(s, stream); break;
    }
}

// ---- Calls of NCCL ----

static ncclResult_t call_nccl(const Step *s, int number, int rank)
{
    const Call *c = &s->call[number];
    const Comm *members = &player.program->world.comm[c->comm];
    int member = member_of(members, rank);
    size_t all = (size_t)c->bytes / sizeof(float), each = all / (size_t)members->n;
    float *send = (float *)(player.device_buffer[rank] + (3 + 2 * number) * MAX_BYTES);
    float *recv = send + MAX_BYTES / sizeof *send;
    ncclComm_t comm = player.comms[c->comm][rank];
    cudaStream_t stream = player.streams[rank][c->stream[member]];
    switch (c->op) {
    case ALL_GATHER: return ncclAllGather(send, recv, each, ncclFloat, comm, stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, each, ncclFloat, ncclSum, comm, stream);
    case ALL_REDUCE: return ncclAllReduce(send, recv, all, ncclFloat, ncclSum, comm, stream);
    case BROADCAST: return ncclBroadcast(send, recv, all, ncclFloat, c->root, comm, stream);
    case REDUCE: return ncclReduce(send, recv, all, ncclFloat, ncclSum, c->root, comm, stream);
    default:
        if (member == c->root) return ncclSend(send, all, ncclFloat, c->to, comm, stream);
        return ncclRecv(recv, all, ncclFloat, c->root, comm, stream);
    }
}

void call_all(const Step *s, int only_rank)
{
    int n = 0;
    for (int grouped = 0; grouped < 2; grouped++) { // first they are counted
        if (grouped && n > 1) need_nccl(ncclGroupStart());
        for (int i = 0; i < s->n_calls; i++)
            for (int r = 0; r < player.program->world.n_ranks; r++) {
                if (!is_mine(r) || (only_rank >= 0 && r != only_rank)) continue;
                if (!calls(&player.program->world, &s->call[i], r)) continue;
                if (!grouped) n++;
                if (!grouped) continue;
                need_cuda(cudaSetDevice(r));
                need_nccl(call_nccl(s, i, r));
            }
    }
    if (n > 1) need_nccl(ncclGroupEnd());
}
