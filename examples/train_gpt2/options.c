/* options.c: the command line of train_gpt2. See options.h.
 *
 * A new option is one row of train_options_parse, a line of help.c, and what it does not go with in
 * train_options_check.
 */
#include "options.h"

#include <stdlib.h>

#include "../common/graph_steps.h"
#include "../common/options.h"

// The choices of an option, as the enums have them.
static const char *const MODELS[] = {"gpt2", "llama", NULL};
static const char *const ATTENTIONS[] = {"plain", "fused", NULL};
static const char *const STRATEGIES[] = {"ddp", "zero1", "zero2", "zero3", NULL};
static const char *const RECOMPUTES[] = {"none", "blocks", "attention", NULL};
static const char *const LAYOUTS[] = {"flat", "per_parameter", NULL};
static const char *const GATHERS[] = {"usual", "fp8", NULL};
static const char *const PIPELINES[] = {"gpipe", "1f1b", NULL};
static const char *const RATES[] = {"cosine", "linear", "constant", NULL};
static const char *const ON_NAN[] = {"go-on", "stop", "skip", NULL};
static const char *const DTYPES[] = {"float", "bf16", "fp16", NULL};

static void set_defaults(TrainOptions *o, TrainerOptions *t)
{
    *o = (TrainOptions){.sample = 240, .val_sequences = 32, .tokens = 64, .temperature = 1.0f};
    *t = (TrainerOptions){
        .model = {.vocab = 256, .max_T = 64, .layers = 6, .heads = 8, .dim = 256},
        .adamw = {.lr = 1.5e-3f, .eps = 1e-8f, .weight_decay = 0.1f},
        .B = 2,
        .steps = 700,
        .clip = 1.0f,
        .on_nan = ON_NAN_STOP,
        .strategy = STRATEGY_ZERO3,
        .replicas = 1,
        .accumulate = 1,
        .stages = 1,
    };
}

// Where the data come from.
static Status check_data(const TrainOptions *o, const char *program)
{
    const DataOptions *data = &o->data;
    const char *unused = o->save != NULL ? "--save" : data->val != NULL ? "--val" : NULL;
    if (!o->trains && (o->generate != NULL || o->export_to != NULL))
        return unused == NULL
                   ? OK
                   : fail(ERR_ARGUMENT, "%s: nothing is trained: name texts, or --data", unused);
    if (!o->trains)
        return fail(ERR_ARGUMENT, "no text file: %s [options] FILE…, or --data FILE (--help)",
                    program);
    if (data->train != NULL && data->n_files > 0)
        return fail(ERR_ARGUMENT, "--data %s and the text %s: one of them", data->train,
                    data->files[0]);
    if (data->train == NULL && (data->val != NULL || data->in_order))
        return fail(ERR_ARGUMENT, "--val and --in-order are for files of tokens: --data FILE");
    if (data->train != NULL && data->val == NULL && o->val_every > 0)
        return fail(ERR_ARGUMENT, "--val-every %d: on what? (--val FILE)", o->val_every);
    return OK;
}

Status train_options_parse(int argc, char **argv, TrainOptions *o, TrainerOptions *t)
{
    int model = 0, seed = 42, rest;
    bool least = false, warm_up = false; // 0 is given, not left out
    float betas[] = {0.9f, 0.95f};
    bool strategy = false, mixed = false, prefetches = false, schedule = false, sample = false,
         help;
    const Option options[] = {
        // name, kind, value, low, choices, given
        {"steps", OPTION_INT, &t->steps, 1, NULL, NULL},
        {"layers", OPTION_INT, &t->model.layers, 1, NULL, &o->sizes},
        {"heads", OPTION_INT, &t->model.heads, 1, NULL, &o->sizes},
        {"dim", OPTION_INT, &t->model.dim, 1, NULL, &o->sizes},
        {"vocab", OPTION_INT, &t->model.vocab, 1, NULL, &o->sizes},
        {"context", OPTION_INT, &t->model.max_T, 1, NULL, &o->sizes},
        {"batch", OPTION_INT, &t->B, 1, NULL, NULL},
        {"sequence", OPTION_INT, &t->T, 1, NULL, NULL},
        {"lr", OPTION_FLOAT, &t->adamw.lr, 0, NULL, NULL},
        {"min-lr", OPTION_NUMBER, &t->rate.least, 0, NULL, &least},
        {"warmup", OPTION_INT, &t->rate.warm_up, 0, NULL, &warm_up},
        {"schedule", OPTION_CHOICE, &t->rate.kind, 0, RATES, NULL},
        {"betas", OPTION_PAIR, betas, 0, NULL, NULL},
        {"weight-decay", OPTION_NUMBER, &t->adamw.weight_decay, 0, NULL, NULL},
        {"decay-groups", OPTION_FLAG, &t->decay_groups, 0, NULL, NULL},
        {"clip", OPTION_FLOAT, &t->clip, 0, NULL, NULL},
        {"on-nan", OPTION_CHOICE, &t->on_nan, 0, ON_NAN, NULL},
        {"spike", OPTION_FLOAT, &t->spike, 0, NULL, NULL},
        {"dropout", OPTION_NUMBER, &t->dropout, 0, NULL, NULL},
        {"freeze", OPTION_TEXT, &t->freeze, 0, NULL, NULL},
        {"sample", OPTION_INT, &o->sample, 0, NULL, &sample},
        {"seed", OPTION_INT, &seed, 0, NULL, NULL},
        {"model", OPTION_CHOICE, &model, 0, MODELS, &o->sizes},
        {"attention", OPTION_CHOICE, &t->model.attention, 0, ATTENTIONS, &o->attention},
        {"kv-heads", OPTION_INT, &t->llama.kv_heads, 1, NULL, &o->sizes},
        {"hidden", OPTION_INT, &t->llama.hidden, 1, NULL, &o->sizes},
        {"tied", OPTION_FLAG, &t->llama.tied, 0, NULL, &o->sizes},
        {"keep", OPTION_FLAG, &t->keep, 0, NULL, NULL},
        {"unsharded", OPTION_FLAG, &t->unsharded, 0, NULL, NULL},
        {"strategy", OPTION_CHOICE, &t->strategy, 0, STRATEGIES, &strategy},
        {"replicas", OPTION_INT, &t->replicas, 1, NULL, &strategy},
        {"accumulate", OPTION_INT, &t->accumulate, 1, NULL, &strategy},
        {"reduce-every-time", OPTION_FLAG, &t->reduce_every_time, 0, NULL, NULL},
        {"reduce-replicas-once", OPTION_FLAG, &t->reduce_replicas_once, 0, NULL, NULL},
        {"reshard-ranks", OPTION_INT, &t->reshard_ranks, 0, NULL, &strategy},
        {"prefetch", OPTION_INT, &t->prefetch, 0, NULL, &prefetches},
        {"graph", OPTION_FLAG, &t->graph, 0, NULL, NULL},
        {"regroup", OPTION_INT, &t->regroup, 0, NULL, &t->regroups},
        {"recompute", OPTION_CHOICE, &t->recompute, 0, RECOMPUTES, NULL},
        {"recompute-every", OPTION_INT, &t->recompute_every, 1, NULL, NULL},
        {"offload", OPTION_FLAG, &t->offload, 0, NULL, NULL},
        {"layout", OPTION_CHOICE, &t->layout, 0, LAYOUTS, NULL},
        {"gather", OPTION_CHOICE, &t->gather, 0, GATHERS, NULL},
        {"stages", OPTION_INT, &t->stages, 1, NULL, &strategy},
        {"pipeline", OPTION_CHOICE, &t->schedule, 0, PIPELINES, &schedule},
        {"uneven", OPTION_FLAG, &t->uneven, 0, NULL, NULL},
        {"dtype", OPTION_CHOICE, &t->policy.param_dtype, 0, DTYPES, &mixed},
        {"reduce-dtype", OPTION_CHOICE, &t->policy.reduce_dtype, 0, DTYPES, &mixed},
        {"save", OPTION_TEXT, &o->save, 0, NULL, NULL},
        {"every", OPTION_INT, &o->every, 1, NULL, NULL},
        {"save-every", OPTION_INT, &o->save_every, 1, NULL, NULL},
        {"resume", OPTION_TEXT, &o->resume, 0, NULL, NULL},
        {"data", OPTION_TEXT, &o->data.train, 0, NULL, NULL},
        {"val", OPTION_TEXT, &o->data.val, 0, NULL, NULL},
        {"in-order", OPTION_FLAG, &o->data.in_order, 0, NULL, NULL},
        {"val-every", OPTION_INT, &o->val_every, 1, NULL, NULL},
        {"val-sequences", OPTION_INT, &o->val_sequences, 1, NULL, NULL},
        {"from", OPTION_TEXT, &o->from, 0, NULL, NULL},
        {"export", OPTION_TEXT, &o->export_to, 0, NULL, NULL},
        {"generate", OPTION_TEXT, &o->generate, 0, NULL, NULL},
        {"tokens", OPTION_INT, &o->tokens, 1, NULL, NULL},
        {"temperature", OPTION_NUMBER, &o->temperature, 0, NULL, NULL},
        {"top-k", OPTION_INT, &o->top_k, 0, NULL, NULL},
        {"log", OPTION_TEXT, &o->log, 0, NULL, NULL},
        {"figures", OPTION_FLAG, &o->figures, 0, NULL, NULL},
        {"brief", OPTION_FLAG, &o->brief, 0, NULL, NULL},
    };
    set_defaults(o, t);
    TRY(options_parse(options, sizeof options / sizeof options[0], argc, argv, &rest, &help));
    if (help) {
        train_options_help(argv[0]);
        exit(0);
    }
    o->data.files = argv + rest;
    o->data.n_files = argc - rest;
    o->trains = o->data.train != NULL || o->data.n_files > 0;
    TRY(check_data(o, argv[0]));
    if (schedule && t->stages == 1)
        return fail(ERR_ARGUMENT, "--pipeline is the order of its stages: --stages N");
    if (sample && o->sample > 0 && t->stages > 1)
        return fail(ERR_ARGUMENT, "--sample %d: only the last stage of a pipeline has logits",
                    o->sample);
    if (t->stages > 1 || o->data.train != NULL || o->generate != NULL) o->sample = 0;
    if (!o->trains && o->from == NULL && o->resume == NULL)
        return fail(ERR_ARGUMENT,
                    "of which model? (--from DIR, --resume DIR, or texts to learn from)");
    if (o->val_every == 0 && o->data.val != NULL) o->val_every = t->steps < 10 ? 1 : t->steps / 10;
    t->adamw.beta1 = betas[0];
    t->adamw.beta2 = betas[1];
    if (least && t->rate.least == 0.0f) t->rate.least = -1.0f;
    if (warm_up && t->rate.warm_up == 0) t->rate.warm_up = -1;
    if (t->reduce_replicas_once) t->reduce_every_time = true;
    t->llama.chosen = model == 1;
    t->mixed = mixed;
    t->prefetches = prefetches;
    t->strategic = strategy || mixed || prefetches || t->offload;
    t->seed = (uint64_t)seed;
    return OK;
}

static Status check_stages(const TrainerOptions *t, int ranks)
{
    if (t->stages == 1) return OK;
    if (ranks % t->stages != 0)
        return fail(ERR_ARGUMENT, "--stages %d does not divide %d ranks", t->stages, ranks);
    if (t->stages > t->model.layers)
        return fail(ERR_ARGUMENT, "--stages %d: the model has %d blocks (--layers)", t->stages,
                    t->model.layers);
    if (t->mixed && t->policy.param_dtype == DTYPE_F16)
        return fail(ERR_ARGUMENT,
                    "--stages does not go with --dtype fp16: the loss scale would look "
                    "at one stage's gradients");
    if (t->reshard_ranks > 0)
        return fail(ERR_ARGUMENT,
                    "--stages does not go with --reshard-ranks: a unit has one slice, "
                    "and several micro-batches are in flight");
    return OK;
}

// What goes with a model of Hugging Face's, and with --generate.
static Status check_folders(const TrainOptions *o, const TrainerOptions *t)
{
    const char *folder = o->export_to != NULL ? "--export" : o->from != NULL ? "--from" : NULL;
    // With --resume, --from says the sizes alone: a stage's weights are the checkpoint's.
    bool all = o->export_to != NULL || (o->from != NULL && o->resume == NULL);
    if (o->from != NULL && o->sizes)
        return fail(ERR_ARGUMENT,
                    "--from %s: its config.json says what the model is: leave out --model, "
                    "--layers, --heads, --dim, --vocab, --context, --kv-heads, --hidden and --tied",
                    o->from);
    if (folder != NULL && t->unsharded)
        return fail(ERR_ARGUMENT, "%s is for FSDP: leave out --unsharded", folder);
    if ((all || o->generate != NULL) && t->stages > 1)
        return fail(ERR_ARGUMENT,
                    "%s is for all of a model: leave out --stages (--save, then --resume goes from "
                    "any number of stages to any other)",
                    all ? folder : "--generate");
    return OK;
}

Status train_options_check(const TrainOptions *o, TrainerOptions *t, int ranks)
{
    TRY(check_folders(o, t));
    if (t->T == 0) t->T = t->model.max_T;
    TRY(model_check(&t->llama, o->attention));
    if (t->T > t->model.max_T)
        return fail(ERR_ARGUMENT, "--sequence %d: the model takes at most %d tokens (--context)",
                    t->T, t->model.max_T);
    if (t->unsharded && ranks != 1)
        return fail(ERR_ARGUMENT, "--unsharded wants one rank, not %d", ranks);
    if (t->unsharded && (o->save != NULL || o->resume != NULL))
        return fail(ERR_ARGUMENT, "--unsharded has no checkpoints: leave out --save and --resume");
    if ((o->every > 0 || o->save_every > 0) && o->save == NULL)
        return fail(ERR_ARGUMENT, "%s %d: where to? (--save DIR)",
                    o->every > 0 ? "--every" : "--save-every",
                    o->every > 0 ? o->every : o->save_every);
    if (t->strategic && (t->unsharded || t->keep))
        return fail(ERR_ARGUMENT,
                    "--strategy, --replicas, --accumulate, --dtype, --prefetch and --offload go "
                    "neither with --unsharded nor with --keep (zero2 keeps)");
    if ((t->decay_groups || t->freeze != NULL) && t->unsharded)
        return fail(ERR_ARGUMENT,
                    "--decay-groups and --freeze are for FSDP: leave out --unsharded");
    if (t->freeze != NULL && t->layout == 0)
        return fail(ERR_ARGUMENT,
                    "--freeze %s: a flat unit trains as one: take --layout per_parameter",
                    t->freeze);
    if (t->dropout >= 1.0f)
        return fail(ERR_ARGUMENT, "--dropout %g: want a probability below 1", (double)t->dropout);
    if (t->dropout > 0.0f &&
        (t->llama.chosen || t->model.attention != 0 || t->stages > 1 || t->graph))
        return fail(ERR_ARGUMENT,
                    "--dropout %g: it is for --model gpt2 with --attention plain, and for neither "
                    "--stages nor --graph",
                    (double)t->dropout);
    if (t->reduce_replicas_once && (t->replicas == 1 || t->stages > 1))
        return fail(ERR_ARGUMENT, "--reduce-replicas-once is for --replicas N, without --stages");
    if (t->recompute != RECOMPUTE_NONE && t->unsharded)
        return fail(ERR_ARGUMENT, "--recompute wants units: leave out --unsharded");
    if (t->recompute_every > 0 && t->recompute == RECOMPUTE_NONE)
        return fail(ERR_ARGUMENT, "--recompute-every %d: of what? (--recompute blocks)",
                    t->recompute_every);
    if (t->layout > 0 && t->reshard_ranks > 0)
        return fail(ERR_ARGUMENT,
                    "--reshard-ranks keeps a slice of a flat unit: leave --layout out");
    if (t->layout > 0 && t->unsharded)
        return fail(ERR_ARGUMENT, "--unsharded shards nothing: leave --layout out");
    if (t->gather > 0 && t->layout == 0)
        return fail(ERR_ARGUMENT,
                    "--gather fp8 has a scale for each parameter: take --layout per_parameter");
    if (t->gather > 0 && t->strategy == STRATEGY_DDP)
        return fail(ERR_ARGUMENT, "--strategy ddp gathers nothing: leave --gather out");
    if (t->gather > 0 && t->offload)
        return fail(ERR_ARGUMENT,
                    "--gather fp8 finds its scales in shards on the device: leave --offload out");
    if (t->strategy == STRATEGY_DDP && t->replicas > 1)
        return fail(ERR_ARGUMENT,
                    "--strategy ddp has a replica on every rank: leave --replicas out");
    if (t->strategy == STRATEGY_ZERO1 && t->reduce_every_time)
        return fail(ERR_ARGUMENT, "--strategy zero1 keeps gradients to the last micro-batch: leave "
                                  "--reduce-every-time out");
    if (t->strategy == STRATEGY_DDP && t->offload)
        return fail(ERR_ARGUMENT, "--strategy ddp keeps all on the device: leave --offload out");
    if (t->reshard_ranks > 0 && t->offload)
        return fail(ERR_ARGUMENT, "--reshard-ranks keeps slices on the device: leave --offload "
                                  "out, or --reshard-ranks");
    if (t->recompute == RECOMPUTE_ATTENTION && (t->llama.chosen || t->model.attention != 0))
        return fail(ERR_ARGUMENT, "--recompute attention: fused attention keeps no weights, so "
                                  "leave it out, or take --attention plain");
    TRY(check_stages(t, ranks));
    if (t->recompute_every > t->model.layers / t->stages)
        return fail(ERR_ARGUMENT, "--recompute-every %d: a stage has %d blocks", t->recompute_every,
                    t->model.layers / t->stages);
    TRY(graph_steps_check(t));
    ranks /= t->stages; // of a stage
    if (t->replicas > ranks || ranks % t->replicas != 0)
        return fail(ERR_ARGUMENT, "--replicas %d does not divide %d ranks", t->replicas, ranks);
    if (t->replicas > 1 && t->replicas == ranks)
        return fail(ERR_ARGUMENT,
                    "--replicas %d leaves no rank to shard with: leave it out, or "
                    "take --strategy ddp",
                    t->replicas);
    int shards = ranks / t->replicas, slice = t->reshard_ranks;
    if (slice > 0 &&
        (t->strategy != STRATEGY_ZERO3 || slice == 1 || slice >= shards || shards % slice != 0))
        return fail(ERR_ARGUMENT,
                    "--reshard-ranks %d: it is for zero3, and divides the %d ranks that shard, but "
                    "is neither 1 (take zero2) nor all of them (leave it out)",
                    slice, shards);
    return OK;
}
