/* config.c: a model from Hugging Face's config.json, which lib/checkpoint/config.c reads.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "settings.h"

Status plan_read_config(const char *path, PlanOptions *o)
{
    HuggingFaceConfig config;
    const LlamaConfig *sizes = &config.sizes;
    check_set_silent(true);
    Status status = hugging_face_config_read(path, false, &config);
    check_set_silent(false);
    if (status != OK) // after the place in the source: file, line, error
        return plan_refuse("CONFIG=%s", strstr(check_last(), ": ") + 2);
    snprintf(o->model_name, sizeof o->model_name, "%s", config.type);
    o->model = (Gpt2Config){.vocab = sizes->vocab,
                            .max_T = sizes->max_T,
                            .layers = sizes->layers,
                            .heads = sizes->heads,
                            .dim = sizes->dim};
    if (!config.is_llama) return OK;
    o->llama.chosen = true;
    o->llama.kv_heads = sizes->kv_heads;
    o->llama.hidden = sizes->hidden;
    o->llama.tied = sizes->tied;
    // A plan's attention does not leave out tokens outside a window.
    if (config.window < o->seq)
        return plan_refuse("CONFIG=%.200s: sliding_window is %d: SEQ has more tokens, and a "
                           "plan's attention has no window",
                           path, config.window);
    if (config.window < o->model.max_T) o->model.max_T = config.window;
    return OK;
}
