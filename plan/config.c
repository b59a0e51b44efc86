/* config.c: a model as Hugging Face describes it (config.json): a GPT-2, or what has a Llama's
 * shape, Mistral's and Qwen's models among them. What a plan would get wrong is refused by its key.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "settings.h"

typedef struct Config {
    const char *path;
    json_t *keys;
} Config;

static Status refuse_key(const Config *c, const char *key, const char *why)
{
    json_t *value = json_object_get(c->keys, key);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    Status status = plan_refuse("CONFIG=%.200s: %s %s%.60s: %s", c->path, key, text ? "is " : "",
                                text ? text : "is missing", why);
    free(text);
    return status;
}

// A whole number from 1 on. `otherwise`: where the key is missing or null; 0: it has to be there.
static Status read_count(const Config *c, const char *key, int otherwise, int *number)
{
    json_t *value = json_object_get(c->keys, key);
    *number = otherwise;
    if (otherwise > 0 && (!value || json_is_null(value))) return OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT_MAX)
        return refuse_key(c, key, "must be a whole number from 1");
    *number = (int)json_integer_value(value);
    return OK;
}

static bool is_true(const Config *c, const char *key)
{
    return json_is_true(json_object_get(c->keys, key));
}

static Status read_gpt2(const Config *c, Gpt2Config *model)
{
    int inner, window;
    TRY(read_count(c, "n_layer", 0, &model->layers));
    TRY(read_count(c, "n_head", 0, &model->heads));
    TRY(read_count(c, "n_embd", 0, &model->dim));
    TRY(read_count(c, "n_ctx", 1024, &window));
    TRY(read_count(c, "n_positions", window, &model->max_T));
    TRY(read_count(c, "n_inner", 1, &inner));
    if (inner != 1 && inner != 4LL * model->dim)
        return refuse_key(c, "n_inner", "a GPT-2's feed-forward part has 4 · n_embd columns");
    if (json_is_false(json_object_get(c->keys, "tie_word_embeddings")))
        return refuse_key(c, "tie_word_embeddings", "a GPT-2's head is its embedding");
    return OK;
}

// What makes it another model than a Llama.
static Status refuse_other_shapes(const Config *c, const Gpt2Config *model)
{
    static const char *const others[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                         "quantization_config"};
    int head_dim;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_t *value = json_object_get(c->keys, others[i]);
        if (value && !json_is_null(value)) return refuse_key(c, others[i], "a Llama has none");
    }
    if (is_true(c, "attention_bias"))
        return refuse_key(c, "attention_bias", "a Llama's products have no bias");
    if (is_true(c, "mlp_bias")) return refuse_key(c, "mlp_bias", "a Llama's products have no bias");
    TRY(read_count(c, "head_dim", model->heads ? model->dim / model->heads : 1, &head_dim));
    if ((long long)head_dim * model->heads != model->dim)
        return refuse_key(c, "head_dim", "a Llama's is hidden_size divided by num_attention_heads");
    return OK;
}

static Status read_llama(const Config *c, PlanOptions *o)
{
    Gpt2Config *model = &o->model;
    LlamaOptions *llama = &o->llama;
    int window;
    TRY(read_count(c, "num_hidden_layers", 0, &model->layers));
    TRY(read_count(c, "num_attention_heads", 0, &model->heads));
    TRY(read_count(c, "hidden_size", 0, &model->dim));
    TRY(read_count(c, "intermediate_size", 0, &llama->hidden));
    TRY(read_count(c, "num_key_value_heads", model->heads, &llama->kv_heads));
    TRY(read_count(c, "max_position_embeddings", 2048, &model->max_T));
    TRY(refuse_other_shapes(c, model));
    llama->chosen = true;
    llama->tied = is_true(c, "tie_word_embeddings");
    // What a window leaves out a plan's attention computes.
    if (json_is_false(json_object_get(c->keys, "use_sliding_window"))) return OK;
    TRY(read_count(c, "sliding_window", model->max_T, &window));
    if (window < o->seq)
        return refuse_key(c, "sliding_window", "SEQ has more tokens, and a Llama sees them all");
    if (window < model->max_T) model->max_T = window;
    return OK;
}

static Status read_keys(const Config *c, PlanOptions *o)
{
    const char *type = json_string_value(json_object_get(c->keys, "model_type"));
    bool gpt2 = type && strcmp(type, "gpt2") == 0;
    bool llama = type && (strcmp(type, "llama") == 0 || strcmp(type, "mistral") == 0 ||
                          strcmp(type, "qwen2") == 0 || strcmp(type, "qwen3") == 0);
    if (!gpt2 && !llama)
        return refuse_key(c, "model_type", "must be gpt2, llama, mistral, qwen2 or qwen3");
    snprintf(o->model_name, sizeof o->model_name, "%s", type);
    TRY(read_count(c, "vocab_size", 0, &o->model.vocab));
    return gpt2 ? read_gpt2(c, &o->model) : read_llama(c, o);
}

Status plan_read_config(const char *path, PlanOptions *o)
{
    json_error_t error;
    Config c = {path, json_load_file(path, 0, &error)};
    if (!c.keys) return plan_refuse("CONFIG=%.200s cannot be read: %s", path, error.text);
    Status status =
        json_is_object(c.keys)
            ? read_keys(&c, o)
            : plan_refuse("CONFIG=%.200s: must be an object, as a config.json is", path);
    json_decref(c.keys);
    return status;
}
