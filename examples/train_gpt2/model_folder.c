/* model_folder.c: a training that begins with a model of Hugging Face's, and one that leaves such a
 * model: folders of config.json and safetensors. See program.h.
 */
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "program.h"

static char *path_in(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    fail(ERR_MEMORY, "no host memory for a path in %s", folder);
    return NULL;
}

// ---- In ----

Status folder_sizes(Program *p)
{
    TrainerOptions *o = &p->trainer.opt;
    HuggingFaceConfig config;
    const LlamaConfig *sizes = &config.sizes;
    struct stat info;
    if (p->opt.from == NULL) return OK;
    if (stat(p->opt.from, &info) == 0 && !S_ISDIR(info.st_mode))
        return fail(ERR_IO, "--from %s: is a file: name the folder that it is in", p->opt.from);
    char *path = path_in(p->opt.from, "config.json");
    Status status = path != NULL ? hugging_face_config_read(path, true, &config) : ERR_MEMORY;
    free(path);
    TRY(status);
    o->model.vocab = sizes->vocab;
    o->model.max_T = sizes->max_T;
    o->model.layers = sizes->layers;
    o->model.heads = sizes->heads;
    o->model.dim = sizes->dim;
    if (config.is_llama && config.window < sizes->max_T) o->model.max_T = config.window;
    if (config.is_llama)
        o->llama = (LlamaOptions){true,        sizes->kv_heads, sizes->hidden,
                                  sizes->tied, sizes->eps,      sizes->rotary};
    return OK;
}

Status folder_load(Program *p)
{
    const char *from = p->opt.from;
    if (from == NULL || p->opt.resume != NULL) return OK; // the checkpoint has newer weights
    Module *model = p->trainer.model;
    return p->trainer.opt.llama.chosen ? llama_import(from, model) : gpt2_import(from, model);
}

// ---- Out ----

// The files of an export: what is made, and what is copied from the model that it began with: its
// tokens, and how it is asked.
static const char *const FILES[] = {"config.json",
                                    "model.safetensors",
                                    "model.safetensors.tmp",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "tokenizer.model",
                                    "generation_config.json"};
enum { N_MADE = 3, N_FILES = sizeof FILES / sizeof FILES[0] };

Status folder_check_free(const Program *p)
{
    if (p->opt.export_to == NULL || !folder_is_there(p->opt.export_to)) return OK;
    return fail(ERR_ARGUMENT, "--export %s: it is there already: name another folder",
                p->opt.export_to);
}

// A file into another folder; nothing where there is none.
static Status copy_file(const char *from, const char *to, const char *name)
{
    char *source = path_in(from, name), *target = path_in(to, name), bytes[65536];
    FILE *in = source != NULL ? fopen(source, "rb") : NULL;
    FILE *out = in != NULL && target != NULL ? fopen(target, "wb") : NULL;
    bool good = in == NULL || out != NULL;
    for (size_t n; out != NULL && good && (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        good = fwrite(bytes, 1, n, out) == n;
    if (in != NULL) good = !ferror(in) && fclose(in) == 0 && good;
    if (out != NULL) good = fflush(out) == 0 && fsync(fileno(out)) == 0 && fclose(out) == 0 && good;
    free(source);
    free(target);
    return good ? OK : fail(ERR_IO, "%s/%s: cannot be copied to %s", from, name, to);
}

// What an export that was killed has left, if there is nothing else in it.
static void remove_rest(const char *tmp)
{
    for (int i = 0; i < N_FILES; i++) {
        char *path = path_in(tmp, FILES[i]);
        if (path != NULL) unlink(path);
        free(path);
    }
    rmdir(tmp);
}

// A LlamaConfig has a GPT-2's sizes, too.
static HuggingFaceConfig config_of(const TrainerOptions *o)
{
    const LlamaConfig sizes = model_llama_config(&o->model, &o->llama);
    return (HuggingFaceConfig){.is_llama = o->llama.chosen, .sizes = sizes};
}

// What rank 0 adds to the weights.
static Status add_config(const Program *p, const char *tmp)
{
    const HuggingFaceConfig config = config_of(&p->trainer.opt);
    const char *from = p->opt.from;
    char *path = path_in(tmp, "config.json");
    char *like = from != NULL ? path_in(from, "config.json") : NULL;
    Status status = path != NULL && (from == NULL || like != NULL)
                        ? hugging_face_config_write(path, &config, like)
                        : ERR_MEMORY;
    free(like);
    free(path);
    for (int i = N_MADE; i < N_FILES && status == OK && from != NULL; i++)
        status = copy_file(from, tmp, FILES[i]);
    return status;
}

static Status export_to(Program *p, const char *tmp, const char *weights)
{
    Trainer *t = &p->trainer;
    Status status = OK;
    if (t->world.rank == 0) {
        remove_rest(tmp);
        status = folder_make(tmp);
    }
    TRY(checkpoint_agree(&t->ctx, status));
    TRY(t->opt.llama.chosen ? llama_export(weights, t->model) : gpt2_export(weights, t->model));
    if (t->world.rank == 0) {
        status = add_config(p, tmp);
        if (status == OK) status = folder_sync(tmp);
        if (status == OK) status = folder_rename(tmp, p->opt.export_to);
        if (status == OK) status = folder_sync_parent(p->opt.export_to);
        if (status == OK) printf("exported to %s\n", p->opt.export_to);
    }
    return checkpoint_agree(&t->ctx, status);
}

Status folder_export(Program *p)
{
    if (p->opt.export_to == NULL) return OK;
    char *tmp = checkpoint_name(p->opt.export_to, ".tmp");
    char *weights = tmp != NULL ? path_in(tmp, "model.safetensors") : NULL;
    Status status = weights != NULL ? export_to(p, tmp, weights) : ERR_MEMORY;
    if (status != OK && tmp != NULL && p->trainer.world.rank == 0) remove_rest(tmp);
    free(weights);
    free(tmp);
    return status;
}
