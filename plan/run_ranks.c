/* run_ranks.c: the processes that run the ranks: a few dry steps of the example's trainer, each
 * rank alone among phantoms, or all of them.
 *
 * Parameters get storage and no values (checkpoint_storage_only, like PyTorch's to_empty), unless
 * values are asked for. A rank's stderr is kept until the rank has ended.
 */
#define _GNU_SOURCE
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint.h"
#include "launch.h"
#include "plan.h"
#include "simgpu_nccl.h"

#define LIMIT_SECONDS 600
#define AT_A_TIME 4 // processes of ranks that run alone: each has its log in full

typedef struct Job {
    const PlanOptions *options;
    const int *ranks; // ranks that run
    PlanRecord *const *record;
    const int *said; // memfds in the place of stderr
} Job;

// ---- In a rank ----

// Makes the mesh's splits, as any rank does.
static void split_as(ncclComm_t comm, void *arg)
{
    const PlanOptions *o = arg;
    bool staged = o->stages > 1, ddp = o->strategic && o->strategy == STRATEGY_DDP;
    ProcessGroup part;
    PipelineMesh stages;
    Mesh mesh;
    int ranks = 0;
    if (staged && pipeline_mesh(&stages, comm, o->stages) != OK) return;
    ncclComm_t group = staged ? stages.group.comm : comm;
    ncclCommCount(group, &ranks); // one: the size of the part is not known yet
    if (ranks > 1 && mesh_2d(&mesh, group, ddp ? ranks : o->replicas) == OK) {
        if (o->reshard_ranks > 0 && mesh.shard.size > 1 &&
            group_split(&part, &mesh.shard, o->reshard_ranks) == OK)
            IGNORE_STATUS(group_destroy(&part));
        IGNORE_STATUS(mesh_destroy(&mesh, group));
    }
    if (staged) IGNORE_STATUS(pipeline_mesh_destroy(&stages));
}

static TrainerOptions trainer_options(const PlanOptions *o)
{
    // The norm in a dry run is 0: above -1 and no other limit.
    return (TrainerOptions){.model = o->model,
                            .llama = o->llama,
                            .adamw = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f},
                            .B = o->micro,
                            .T = o->seq,
                            .steps = PLAN_STEPS,
                            .clip = o->clip && !o->graph ? -1.0f : FLT_MAX,
                            .strategic = o->strategic,
                            .strategy = o->strategy,
                            .replicas = o->replicas,
                            .accumulate = o->accumulate,
                            .reduce_every_time = o->reduce_every_time,
                            .reshard_ranks = o->reshard_ranks,
                            .layout = o->per_parameter,
                            .gather = o->fp8,
                            .prefetches = o->prefetches,
                            .prefetch = o->prefetch,
                            .recompute = o->recompute,
                            .recompute_every = o->recompute_every,
                            .offload = o->offload,
                            .stages = o->stages,
                            .schedule = o->schedule,
                            .graph = o->graph,
                            .regroups = o->regroups,
                            .regroup = o->regroup,
                            .mixed = o->mixed,
                            .policy = {.param_dtype = o->dtype, .reduce_dtype = o->reduce_dtype}};
}

static Status train(Trainer *t, const PlanOptions *o, PlanRecord *record)
{
    size_t tokens = (size_t)o->accumulate * (size_t)o->micro * (size_t)o->seq;
    int32_t *batch = calloc(2 * tokens, sizeof *batch);
    uint64_t first = 0;
    float loss;
    Status status = batch ? OK : fail(ERR_MEMORY, "no host memory for %zu tokens", tokens);
    for (int step = 1; step <= PLAN_STEPS && status == OK; step++) {
        first = gpulog_length();
        status = trainer_step(t, step, batch, batch + tokens, &loss);
    }
    if (status == OK) plan_record(record, first, o);
    free(batch);
    return status;
}

static void record_units(PlanRecord *record, const Module *model)
{
    FsdpUnit *units[PLAN_UNITS];
    int n = fsdp_units(model, units, PLAN_UNITS);
    record->n_units = n < PLAN_UNITS ? n : PLAN_UNITS;
    for (int i = 0; i < record->n_units; i++) {
        const FlatLayout *layout = &units[i]->flat.layout;
        PlanUnit *u = &record->unit[i];
        snprintf(u->name, sizeof u->name, "%s", units[i]->flat.name);
        u->numel = layout->numel;
        u->padded = layout->padded;
        u->shard = layout->shard_numel;
        u->valid = flat_valid_numel(layout, layout->rank);
    }
}

static Status run_rank(const World *world, const PlanOptions *o, PlanRecord *record)
{
    Trainer t = {.opt = trainer_options(o), .world = *world};
    float scale = 2.0f; // an fp16 model's loss scale: no step of a plan overflows and is left out
    int tracker = 0;
    if (o->run != PLAN_EXECUTED) plan_host_dry();
    TRY(world_connect(world, &t.comm));
    simgpu_phantom_splits(split_as, (void *)(uintptr_t)o);
    t.model = model_create(&o->model, &o->llama);
    if (t.model == NULL) return ERR_ARGUMENT;
    if (!o->values) checkpoint_storage_only(t.model);
    TRY(trainer_create(&t));
    if (o->run != PLAN_EXECUTED) TRY(plan_ties(o, &t));
    trainer_scale(&t, &scale, &tracker, true);
    record_units(record, t.model);
    TRY(train(&t, o, record));
    TRY(trainer_destroy(&t));
    return world_disconnect(t.comm);
}

static int body(const World *place, void *arg)
{
    const Job *job = arg;
    const PlanOptions *o = job->options;
    World world = *place;
    dup2(job->said[place->rank], STDERR_FILENO);
    world.rank = job->ranks[place->rank];
    world.size = o->gpus;
    if (o->run == PLAN_ALONE) { // one device is enough
        world.local_rank = 0;
        world.local_size = 1;
        world.rendezvous = NULL;
    }
    job->record[place->rank]->rank = world.rank;
    return run_rank(&world, o, job->record[place->rank]) == OK ? 0 : 1;
}

// ---- Around them ----

static void set_environment(const PlanOptions *o)
{
    static const char *const settings[] = {"SIMGPU_TRACE",        "SIMGPU_SLOW",  "SIMGPU_JITTER",
                                           "SIMGPU_MEMORY",       "SIMGPU_CHECK", "SIMGPU_PHANTOMS",
                                           "CUDA_VISIBLE_DEVICES"};
    char number[32];
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) unsetenv(settings[i]);
    snprintf(number, sizeof number, "%d", PLAN_ENTRIES);
    setenv("SIMGPU_MACHINE", o->machine_name, 1);
    setenv("SIMGPU_LOG", number, 1);
    setenv("TF32", o->tf32 ? "1" : "0", 1);
    setenv("SIMGPU_DRY", o->run == PLAN_EXECUTED ? "0" : "1", 1);
    setenv("SIMGPU_THREADS", "1", 1);
    if (o->run != PLAN_ALONE) return;
    setenv("SIMGPU_PHANTOMS", "1", 1);
    setenv("SIMGPU_DEVICES", "1", 1);
    setenv("SIMGPU_MEMORY", "6T", 1);
    setenv("NCCL_COMM_ID", "phantoms:1", 1);
}

static char *text_of(int fd)
{
    off_t length = lseek(fd, 0, SEEK_END);
    char *text = length < 0 ? NULL : calloc((size_t)length + 1, 1);
    if (text && pread(fd, text, (size_t)length, 0) < 0) text[0] = 0;
    return text;
}

// Prints why the run ended, in the words of the rank that failed first by itself.
static Status print_first_failure(const Job *job, const RankEnd *ends, int n)
{
    int which = 0;
    for (int i = n - 1; i >= 0; i--)
        if ((ends[i].how != RANK_RETURNED || ends[i].code != 0) && ends[i].how != RANK_STOPPED)
            which = i;
    char *text = text_of(job->said[which]);
    if (job->options->candidate && text && strstr(text, "out of device memory")) {
        free(text);
        return ERR_MEMORY;
    }
    fprintf(stderr, "%splan: rank %d of %d %s\n", text ? text : "", job->ranks[which],
            job->options->gpus,
            ends[which].how == RANK_TIMED_OUT ? "did not end in time" : "failed");
    free(text);
    return ERR_ARGUMENT;
}

static Status run_all(const Job *job, int n, PlanRanks *all)
{
    RankEnd ends[PLAN_KINDS];
    int most = job->options->run == PLAN_ALONE ? AT_A_TIME : n;
    set_environment(job->options);
    for (int i = 0; i < n; i += most) {
        Job part = {job->options, job->ranks + i, job->record + i, job->said + i};
        int m = n - i < most ? n - i : most;
        if (launch_ranks(m, LIMIT_SECONDS, body, &part, ends) != OK)
            return print_first_failure(&part, ends, m);
    }
    all->notes = text_of(job->said[0]);
    for (int i = 0; i < n; i++) {
        if (all->record[i]->done) continue;
        fprintf(stderr,
                "plan: rank %d made more than %d calls of CUDA, NCCL and cuBLAS: take a "
                "smaller model, or fewer micro-batches\n",
                job->ranks[i], PLAN_ENTRIES);
        return ERR_ARGUMENT;
    }
    return OK;
}

Status plan_run(const PlanOptions *o, const int *ranks, int n, PlanRanks *all)
{
    int said[PLAN_KINDS];
    const Job job = {o, ranks, all->record, said};
    Status status = OK;
    *all = (PlanRanks){.n = n};
    for (int i = 0; i < n; i++) {
        void *memory = mmap(NULL, sizeof(PlanRecord), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        said[i] = memfd_create("plan-stderr", MFD_CLOEXEC);
        all->record[i] = memory == MAP_FAILED ? NULL : memory;
        if (memory == MAP_FAILED || said[i] < 0)
            status = fail(ERR_MEMORY, "no host memory for the log of a rank");
    }
    if (status == OK) status = run_all(&job, n, all);
    for (int i = 0; i < n; i++)
        if (said[i] >= 0) close(said[i]);
    return status;
}

void plan_free(PlanRanks *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->record[i]) munmap(all->record[i], sizeof(PlanRecord));
    free(all->notes);
    *all = (PlanRanks){0};
}
