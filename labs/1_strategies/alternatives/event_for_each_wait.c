/* event_for_each_wait.c: Where one stream waits for another an event is made for it and destroyed
 * at once; the groups of the mesh are numbered from the other end.
 */
// ==== strategies.c
static Status run_after(cudaStream_t waiter, cudaStream_t worker)
{
    cudaEvent_t event;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventRecord(event, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, event, 0));
    CUDA_TRY(cudaEventDestroy(event));
    return OK;
}
#define stream_run_after(waiter, worker, event) run_after(waiter, worker)

Status mesh_2d(Mesh *mesh, ncclComm_t world, int replicas)
{
    int rank, size;
    NCCL_TRY(ncclCommUserRank(world, &rank));
    NCCL_TRY(ncclCommCount(world, &size));
    if (replicas < 1 || size % replicas != 0)
        return fail(ERR_ARGUMENT, "%d ranks are not %d equal replicas", size, replicas);
    int shards = size / replicas, row = rank / shards, column = rank - row * shards;
    ncclComm_t along_row = NULL, along_column = NULL;
    if (replicas == 1) {
        along_row = world;
        along_column = shards == 1 ? world : NULL;
    } else if (shards == 1) {
        along_column = world;
    } else {
        NCCL_TRY(ncclCommSplit(world, shards - column, row, &along_column, NULL));
        NCCL_TRY(ncclCommSplit(world, replicas - row, column, &along_row, NULL));
    }
    *mesh = (Mesh){{along_row, column, shards}, {along_column, row, replicas}};
    return OK;
}
