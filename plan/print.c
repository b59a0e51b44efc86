/* print.c: the plan as a table. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

// The settings of labs 3, 4, 6, 7 and 8.
static void print_labs(const PlanOptions *o)
{
    if (o->stages > 1)
        plan_say("; %d stages of %d GPU%s, %s", o->stages, plan_places(o), plural(plan_places(o)),
                 o->schedule == PIPELINE_1F1B ? "1F1B" : "GPipe");
    if (o->recompute != RECOMPUTE_NONE)
        plan_say("; %s recomputed", o->recompute == RECOMPUTE_BLOCKS ? "blocks" : "attention");
    if (o->recompute_every > 1) plan_say(" (1 of %d)", o->recompute_every);
    if (o->prefetches) plan_say("; prefetch depth %d", o->prefetch);
    if (o->per_parameter) plan_say("; sharded per parameter");
    if (o->fp8) plan_say("; matrices gathered in FP8");
    if (o->offload) plan_say("; shards in host memory");
    if (o->graph) plan_say("; a graph");
    if (o->regroups) plan_say("; all-gathers regrouped");
    if (o->regroup > 0) plan_say(" within %d MiB", o->regroup);
}

static void print_head(const Plan *plan)
{
    const PlanOptions *o = plan->options;
    int nodes = (o->gpus + o->machine->gpus_per_node - 1) / o->machine->gpus_per_node;
    plan_say("%s, %.3f billion parameters, on %d GPU%s (%d node%s of %s), %s", o->model_name,
             1e-9 * (double)plan->parameters, o->gpus, plural(o->gpus), nodes, plural(nodes),
             o->machine->name, o->strategy_name);
    if (o->replicas > 1) plan_say(", %d replicas", o->replicas);
    plan_say("\n%d sequence%s of %d token%s per step: %d", o->batch, plural(o->batch), o->seq,
             plural(o->seq), o->micro);
    if (o->accumulate > 1) plan_say(" · %d micro-batches", o->accumulate);
    plan_say(" on each GPU; %s", o->tf32 ? "products in TF32" : plan_type_name(o->dtype));
    if (o->fp8_products) plan_say(" with products in FP8");
    if (o->mixed) plan_say(", reductions in %s", plan_type_name(o->reduce_dtype));
    if (o->reshard_ranks > 0) plan_say("; slices of %d ranks until the backward", o->reshard_ranks);
    if (o->reduce_every_time) plan_say("; each micro-batch reduces");
    print_labs(o);
    if (o->slow > 0) plan_say("; rank %d takes %d %% longer", o->slow_rank, o->slow);
    if (o->compiled) plan_say("; compiled");
    if (o->fused_loss) plan_say("; fused loss");
    plan_say("; %s attention\n", o->model.attention == ATTENTION_PLAIN ? "plain"
                                 : o->flash1 ? "the first FlashAttention's"
                                             : "fused");
    plan_say("Ran %s: rank", o->run == PLAN_EXECUTED ? "with all arithmetic"
                             : o->all                ? "dry, all ranks"
                                                     : "dry, one rank of each kind");
    for (int i = 0; i < plan->ranks.n; i++)
        plan_say("%s %d", i ? "," : "", plan->ranks.record[i]->rank);
    plan_say("\n");
}

static const PlanRecord *fullest(const Plan *plan)
{
    const PlanRecord *most = plan->ranks.record[0];
    for (int i = 1; i < plan->ranks.n; i++)
        if (plan->ranks.record[i]->peak > most->peak) most = plan->ranks.record[i];
    return most;
}

static void print_memory(const Plan *plan)
{
    const PlanOptions *o = plan->options;
    const PlanRecord *r = fullest(plan);
    uint64_t memory = o->machine->memory;
    plan_say("\nMemory of a GPU, in GiB (rank %d)        at the peak   between steps\n", r->rank);
    for (int i = 0; i < GPU_CATEGORIES; i++)
        if (r->at_peak[i] || r->held[i])
            plan_say("  %-34s %14.3f %15.3f\n", gpulog_category_name((GpuCategory)i),
                     plan_gib(r->at_peak[i]), plan_gib(r->held[i]));
    plan_say("  %-34s %14.3f   reached at %s\n", "together", plan_gib(r->peak), r->peak_where);
    plan_say("It %s: %.1f GiB live, at least %.1f with what the allocator, CUDA and NCCL need "
             "(1.20 times as much where there is room), of %.1f that a GPU of %.0f GiB offers.\n",
             plan_fits(o, r->peak) ? "fits" : "does not fit", plan_gib(r->peak),
             plan_gib(plan_reserved(o, r->peak)), plan_gib(plan_offered(o)), plan_gib(memory));
    if (r->peak > memory)
        plan_say("The memory is exceeded first at %s, by %.3f GiB, and at the peak by %.3f GiB.\n",
                 r->over_where, plan_gib(r->over), plan_gib(r->peak - memory));
}

static void print_time(const Plan *plan)
{
    const PlanOptions *o = plan->options;
    const PlanTimes *t = &plan->times;
    double seconds = 1e-12 * (double)t->step, tokens = (double)o->batch * o->seq / o->gpus;
    double rate = 1 / (seconds * plan_peak(o) * o->gpus);
    uint64_t least = plan_range(o, t->step, 0), most = plan_range(o, t->step, 1);
    plan_say("\nA step takes %s: %.0f", plan_step_time(o, t->step).is, tokens / seconds);
    if (most > 0)
        plan_say(" (%.0f to %.0f)", 1e12 * tokens / (double)most, 1e12 * tokens / (double)least);
    plan_say(" tokens/s per GPU (rank %d)\n", t->rank);
    if (most > 0) plan_say("  In brackets: the range that held 8 of 10 published steps.\n");
    plan_say(
        "  MFU %.1f %% of %.0f TFLOP/s: 6 FLOP per parameter and token, and the causal half of "
        "attention; %.1f %% where all of attention counts, as PaLM's and MPT's\n",
        100 * plan->useful * rate, 1e-12 * plan_peak(o),
        100 * plan_useful(o, plan->parameters, true) * rate);
    plan_say("  computes %s, communicates %s, of which exposed %s; idle %s",
             plan_time(t->compute).is, plan_time(t->communication).is, plan_time(t->exposed).is,
             plan_time(t->idle).is);
    if (t->overhead > 0)
        plan_say("; %s more, as of published steps on several nodes", plan_time(t->overhead).is);
    plan_say("\n\n");
    plan_say("  %-16s %7s %11s %9s %12s %12s\n", "", "calls", "ms", "slowed", "GFLOP", "MB");
    for (int i = 0; i < PLAN_TIME_KINDS; i++) {
        const PlanShare *s = &t->share[i];
        if (!s->calls) continue;
        uint64_t slowed = s->time > s->work ? s->time - s->work : 0;
        plan_say("  %-16s %7llu %11.1f %7.1f %% %12.1f %12.1f\n", plan_kind_name((PlanKind)i),
                 (unsigned long long)s->calls, 1e-9 * (double)s->time,
                 plan_percent(slowed, s->work), 1e-9 * (double)s->flops, 1e-6 * (double)s->bytes);
    }
    plan_say("  (MB: read and written; of collectives, sent. slowed: longer, by what overlaps. The "
             "streams' times add up to more than the step.)\n");
    for (int link = 0; link < SIM_LINKS; link++) {
        static const char *const names[SIM_LINKS] = {"NVLink", "PCIe", "network"};
        if (t->link_messages[link])
            plan_say("  %s: %llu collectives, %.1f MB sent by this rank\n", names[link],
                     (unsigned long long)t->link_messages[link],
                     1e-6 * (double)t->link_bytes[link]);
    }
}

// ---- Why ----

// Elements of a rank's shards.
static double offloaded(const Plan *plan)
{
    const PlanRecord *r = plan->ranks.record[0];
    double sum = 0;
    for (int i = 0; i < r->n_units; i++) sum += (double)r->unit[i].shard;
    return sum;
}

static void print_roofline(const Plan *plan)
{
    double peak = plan_peak(plan->options), flat = plan->options->machine->peak[SIM_F32],
           hbm = plan_hbm(plan->options->machine);
    plan_say("\nWhy\n  A GPU reads %.2f TB/s: kernels of fewer than %.0f FLOP per byte wait for "
             "memory.\n",
             1e-12 * hbm, peak / hbm);
    for (int i = 0; i <= PLAN_KERNEL; i++) {
        const PlanShare *s = &plan->times.share[i];
        if (!s->calls || !s->bytes) continue;
        bool tensor =
            i == PLAN_PRODUCT || (i == PLAN_ATTENTION && plan->options->dtype != DTYPE_F32);
        double ridge = (tensor ? peak : flat) / hbm,
               intensity = (double)s->flops / (double)s->bytes;
        plan_say("  - %s: %.1f FLOP per byte, %s; %.0f TFLOP/s\n", plan_kind_name((PlanKind)i),
                 intensity, intensity < ridge ? "bound by memory" : "bound by arithmetic",
                 s->time ? (double)s->flops / (double)s->time : 0.0);
    }
}

// The number of tokens from which a unit's all-gather hides behind a unit's forward.
static void print_hiding(const Plan *plan)
{
    const PlanOptions *o = plan->options;
    const PlanShare *gather = &plan->times.share[PLAN_ALL_GATHER],
                    *product = &plan->times.share[PLAN_PRODUCT];
    if (!gather->calls || !product->time || !plan->formulas[0].gather_calls) return;
    double rate = (double)product->flops / (double)product->time; // FLOP per ps
    double unit = (double)gather->work / (double)gather->calls, each = (double)plan_block_flops(o);
    const char *formula = o->llama.chosen ? "2·C·(2·C + 2·K + 3·F)" : "24·C²";
    plan_say("  - A unit's all-gather takes %s if nothing slows it. A block's forward needs "
             "%s = %.3g FLOP per token, at %.0f TFLOP/s. It hides the all-gather from %.0f tokens "
             "per GPU on (time · rate / FLOP per token); this plan has %d.\n",
             plan_time((uint64_t)unit).is, formula, each, rate, unit * rate / each,
             o->micro * o->seq);
}

static void print_latency(const Plan *plan)
{
    for (int i = PLAN_ALL_GATHER; i <= PLAN_ALL_REDUCE; i++) {
        const PlanShare *s = &plan->times.share[i];
        if (!s->calls || !s->work) continue;
        plan_say("  - %s: %.0f %% of its time is latency (%s%s%s, %d ranks on %d node%s)\n",
                 plan_kind_name((PlanKind)i), plan_percent(s->latency, s->work),
                 s->algorithm ? s->algorithm : "", s->protocol && *s->protocol ? " " : "",
                 s->protocol ? s->protocol : "", s->ranks, s->nodes, plural(s->nodes));
    }
}

static void print_host(const Plan *plan)
{
    const PlanTimes *t = &plan->times;
    if (plan_percent(t->host, t->step) >= 1)
        plan_say("  - The GPU waits for the host's calls for %s, %.0f %% of the step: %s.\n",
                 plan_time(t->host).is, plan_percent(t->host, t->step),
                 plan_percent(t->host, t->step) >= 20 ? "host-bound" : "not host-bound");
    else
        plan_say("  - The host is ahead of the GPU: not host-bound.\n");
}

static void print_notes(const Plan *plan)
{
    if (!plan->ranks.notes || !*plan->ranks.notes) return;
    if (plan->options->run != PLAN_ALONE)
        fputs(plan->ranks.notes, stderr);
    else if (plan->options->verbose)
        plan_say("\nRead on the host, as zeros (CLIP=yes for the other branch of clipping):\n%s",
                 plan->ranks.notes);
}

void plan_print(const Plan *plan)
{
    print_head(plan);
    print_memory(plan);
    print_time(plan);
    print_roofline(plan);
    print_hiding(plan);
    print_latency(plan);
    print_host(plan);
    if (plan->options->offload)
        plan_say(
            "  - The optimizer's step is the host's, and not in this time: 28 bytes per element, "
            "%.2f GB.\n",
            28e-9 * offloaded(plan));
    plan_advise(plan);
    print_notes(plan);
}
