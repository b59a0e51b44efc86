/* json.c: the plan as an object of JSON. Bytes, picoseconds, FLOP: whole numbers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

static void write_number(FILE *file, const char *name, uint64_t number)
{
    fprintf(file, "\"%s\": %llu, ", name, (unsigned long long)number);
}

static void write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": \"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        if ((unsigned char)*text >= ' ') fputc(*text, file);
    }
    fprintf(file, "\", ");
}

static void write_rank(FILE *file, const PlanRecord *r, int places)
{
    fprintf(file, "    {");
    write_number(file, "rank", (uint64_t)r->rank);
    write_number(file, "stage", (uint64_t)(r->rank / places));
    write_number(file, "operations", (uint64_t)r->n);
    write_number(file, "order", r->order);
    write_number(file, "peak", r->peak);
    write_text(file, "peak_where", r->peak_where);
    write_number(file, "over", r->over);
    write_text(file, "over_where", r->over_where);
    write_number(file, "products", r->products);
    write_number(file, "attention", r->attention);
    write_number(file, "other", r->other);
    static const char *const ways[] = {"copies_within", "copies_to_device", "copies_to_host"};
    for (int i = 0; i < 3; i++)
        fprintf(file, "\"%s\": [%llu, %llu], ", ways[i], (unsigned long long)r->copies[i],
                (unsigned long long)r->copied[i]);
    fprintf(file, "\n     \"memory\": {");
    for (int i = 0; i < GPU_CATEGORIES; i++)
        fprintf(file, "%s\"%s\": [%llu, %llu, %llu]", i ? ", " : "",
                gpulog_category_name((GpuCategory)i), (unsigned long long)r->at_peak[i],
                (unsigned long long)r->held[i], (unsigned long long)r->most[i]);
    fprintf(file, "},\n     \"messages\": {");
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++)
        fprintf(file, "%s\"%s\": [%llu, %llu, %llu]", op > GPU_ALL_GATHER ? ", " : "",
                gpulog_op_name((GpuOp)op), (unsigned long long)r->traffic[op].calls,
                (unsigned long long)r->traffic[op].bytes, (unsigned long long)r->traffic[op].sent);
    fprintf(file, "},\n     \"units\": [");
    for (int i = 0; i < r->n_units; i++) {
        const PlanUnit *u = &r->unit[i];
        fprintf(file, "%s{", i ? ", " : "");
        write_text(file, "name", u->name);
        write_number(file, "numel", (uint64_t)u->numel);
        write_number(file, "padded", (uint64_t)u->padded);
        write_number(file, "shard", (uint64_t)u->shard);
        fprintf(file, "\"valid\": %llu}", (unsigned long long)u->valid);
    }
    fprintf(file, "]}");
}

static void write_times(FILE *file, const PlanTimes *t)
{
    fprintf(file, "  \"times\": {");
    write_number(file, "rank", (uint64_t)t->rank);
    write_number(file, "step", t->step);
    write_number(file, "overhead", t->overhead);
    write_number(file, "compute", t->compute);
    write_number(file, "communication", t->communication);
    write_number(file, "exposed", t->exposed);
    write_number(file, "idle", t->idle);
    write_number(file, "host", t->host);
    fprintf(file, "\n    \"kinds\": {");
    for (int i = 0; i < PLAN_TIME_KINDS; i++) {
        const PlanShare *s = &t->share[i];
        fprintf(file, "%s\"%s\": [%llu, %llu, %llu, %llu, %llu, %llu]", i ? ", " : "",
                plan_kind_name((PlanKind)i), (unsigned long long)s->calls,
                (unsigned long long)s->time, (unsigned long long)s->work,
                (unsigned long long)s->flops, (unsigned long long)s->bytes,
                (unsigned long long)s->latency);
    }
    fprintf(file, "}},\n");
}

static void write_formulas(FILE *file, const PlanFormulas *f, double useful)
{
    fprintf(file, "{");
    write_number(file, "parameters", f->parameters);
    write_number(file, "products", f->products);
    write_number(file, "attention", f->attention);
    write_number(file, "sharded parameters", f->params);
    write_number(file, "sharded gradients", f->grads);
    write_number(file, "optimizer state", f->state);
    write_number(file, "unsharded parameters", f->most_params);
    write_number(file, "unsharded gradients", f->most_grads);
    write_number(file, "slices", f->slices);
    write_number(file, "activations", f->activations);
    write_number(file, "gather_calls", f->gather_calls);
    write_number(file, "gather_sent", f->gather_sent);
    write_number(file, "scatter_calls", f->scatter_calls);
    write_number(file, "scatter_sent", f->scatter_sent);
    write_number(file, "reduce_sent", f->reduce_sent);
    write_number(file, "sent_messages", f->sent_messages);
    write_number(file, "copies", f->copies);
    write_number(file, "copied", f->copied);
    fprintf(file, "\"useful\": %.0f}", useful);
}

static void write_plan(FILE *file, const Plan *plan)
{
    const PlanOptions *o = plan->options;
    double seconds = 1e-12 * (double)plan->times.step;
    fprintf(file, "{\n  ");
    write_text(file, "model", o->model_name);
    write_text(file, "machine", o->machine->name);
    write_text(file, "strategy", o->strategy_name);
    write_text(file, "dtype", plan_dtype_name(o));
    write_text(file, "reduce_dtype", plan_type_name(o->reduce_dtype));
    write_number(file, "gpus", (uint64_t)o->gpus);
    write_number(file, "replicas", (uint64_t)o->replicas);
    write_number(file, "batch", (uint64_t)o->batch);
    write_number(file, "micro", (uint64_t)o->micro);
    write_number(file, "accumulate", (uint64_t)o->accumulate);
    write_number(file, "seq", (uint64_t)o->seq);
    write_number(file, "reshard_ranks", (uint64_t)o->reshard_ranks);
    write_text(file, "reduce", o->reduce_every_time ? "each" : "once");
    write_text(file, "recompute", plan_recompute_name(o));
    write_number(file, "recompute_every", (uint64_t)o->recompute_every);
    write_number(file, "prefetch", o->prefetches ? (uint64_t)o->prefetch : 1);
    write_text(file, "offload", o->offload ? "yes" : "no");
    write_text(file, "layout", o->per_parameter ? "per_parameter" : "flat");
    write_text(file, "gather", o->fp8 ? "fp8" : "usual");
    write_text(file, "schedule", o->schedule == PIPELINE_1F1B ? "1f1b" : "gpipe");
    write_text(file, "loss", o->fused_loss ? "fused" : "float");
    write_text(file, "graph", o->graph ? "yes" : "no");
    write_text(file, "regroup", o->regroups ? "yes" : "no");
    write_number(file, "memory_of_gpu", o->machine->memory);
    write_number(file, "reserved", plan_reserved(o, plan_most_memory(plan)));
    write_number(file, "offered", plan_offered(o));
    write_number(file, "memory_bandwidth", (uint64_t)plan_hbm(o->machine)); // bytes/s
    fprintf(file, "\n  \"tokens_per_second_per_gpu\": %.3f, \"mfu\": %.6f,\n",
            (double)o->batch * o->seq / o->gpus / seconds,
            plan->useful / (seconds * plan_peak(o) * o->gpus));
    fprintf(file, "  \"formulas\": "); // of the first stage; those of each are below
    write_formulas(file, &plan->formulas[0], plan->useful);
    fprintf(file, ",\n  \"stages\": [");
    for (int s = 0; s < o->stages; s++) {
        fprintf(file, "%s", s ? ",\n    " : "");
        write_formulas(file, &plan->formulas[s], plan->useful);
    }
    fprintf(file, "],\n");
    uint64_t step = plan->times.step; // a range of 0 to 0: not known
    fprintf(file, "  \"range\": [%llu, %llu],\n", (unsigned long long)plan_range(o, step, 0),
            (unsigned long long)plan_range(o, step, 1));
    write_times(file, &plan->times);
    fprintf(file, "  \"ranks\": [\n");
    for (int i = 0; i < plan->ranks.n; i++) {
        write_rank(file, plan->ranks.record[i], plan_places(o));
        fprintf(file, "%s\n", i < plan->ranks.n - 1 ? "," : "");
    }
    fprintf(file, "  ]\n}\n");
}

Status plan_write_json(const Plan *plan)
{
    const char *path = plan->options->json;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!path) return OK;
    if (file) write_plan(file, plan);
    if (file && fclose(file) == 0) return OK;
    fprintf(stderr, "plan: JSON=%s cannot be written: %s\n", path, strerror(errno));
    return ERR_IO;
}
