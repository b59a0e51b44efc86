/* config.c: reads and writes config.json, Hugging Face's description of a model: a GPT-2, or one
 * with Llama's shape. A key that asks for what our models do not do is refused by name.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "checkpoint.h"
#include "internal.h"

typedef struct Keys {
    const char *path;
    json_t *all;
    bool exact;
} Keys;

static Status refuse_key(const Keys *k, const char *key, const char *why)
{
    json_t *value = json_object_get(k->all, key);
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    Status status = fail(ERR_IO, "%s: %s %s%.60s: %s", k->path, key, text != NULL ? "is " : "",
                         text != NULL ? text : "is missing", why);
    free(text);
    return status;
}

static const json_t *value_of(const Keys *k, const char *key)
{
    const json_t *value = json_object_get(k->all, key);
    return json_is_null(value) ? NULL : value;
}

// Reads a whole number of at least 1. If the key is missing or null it is `otherwise`; with 0 the
// key is required.
static Status read_count(const Keys *k, const char *key, int otherwise, int *number)
{
    const json_t *value = value_of(k, key);
    *number = otherwise;
    if (otherwise > 0 && value == NULL) return OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT_MAX)
        return refuse_key(k, key, "must be a whole number from 1");
    *number = (int)json_integer_value(value);
    return OK;
}

// A number above 0 of an object, which `key` of the file may be; missing: `otherwise`.
static Status read_float(const Keys *k, const json_t *object, const char *key, double otherwise,
                         float *number)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_null(value)) value = NULL;
    *number = (float)(json_is_number(value) ? json_number_value(value) : otherwise);
    if ((value == NULL || json_is_number(value)) && *number > 0.0f && isfinite(*number)) return OK;
    return fail(ERR_IO, "%s: %s must be a number above 0", k->path, key);
}

// Checks a text or a flag that is a constant in our models. If it is missing or null, Hugging Face
// takes the first of the words.
static Status need_text(const Keys *k, const char *key, const char *const *words, const char *why)
{
    const json_t *value = value_of(k, key);
    if (!k->exact || value == NULL) return OK;
    for (int i = 0; words[i] != NULL; i++)
        if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0) return OK;
    return refuse_key(k, key, why);
}

static Status need_flag(const Keys *k, const char *key, bool want, const char *why)
{
    const json_t *value = value_of(k, key);
    if (value == NULL || (want ? json_is_true(value) : json_is_false(value))) return OK;
    return refuse_key(k, key, why);
}

static Status read_gpt2(const Keys *k, LlamaConfig *model)
{
    static const char *const GELU[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    int inner, window;
    TRY(read_count(k, "n_layer", 0, &model->layers));
    TRY(read_count(k, "n_head", 0, &model->heads));
    TRY(read_count(k, "n_embd", 0, &model->dim));
    TRY(read_count(k, "n_ctx", 1024, &window));
    TRY(read_count(k, "n_positions", window, &model->max_T));
    TRY(read_count(k, "n_inner", 1, &inner));
    if (inner != 1 && inner != 4LL * model->dim)
        return refuse_key(k, "n_inner", "a GPT-2's feed-forward part has 4 · n_embd columns");
    TRY(need_flag(k, "tie_word_embeddings", true, "a GPT-2's head is its embedding"));
    TRY(need_text(k, "activation_function", GELU, "it is gelu_new here, GELU by tanh"));
    TRY(read_float(k, k->all, "layer_norm_epsilon", 1e-5, &model->eps));
    if (k->exact && model->eps != 1e-5f)
        return refuse_key(k, "layer_norm_epsilon", "it is 1e-5 here");
    if (!k->exact) return OK;
    TRY(need_flag(k, "scale_attn_weights", true, "scores are divided by √(columns of a head)"));
    TRY(need_flag(k, "scale_attn_by_inverse_layer_idx", false, "no block's scores are special"));
    return need_flag(k, "add_cross_attention", false, "there is no encoder");
}

// Refuses keys that make it another model than a Llama.
static Status refuse_other_shapes(const Keys *k, const LlamaConfig *model)
{
    static const char *const others[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                         "quantization_config"};
    static const char *const SILU[] = {"silu", "swish", NULL};
    int head_dim;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (value_of(k, others[i]) != NULL) return refuse_key(k, others[i], "a Llama has none");
    TRY(need_flag(k, "attention_bias", false, "a Llama's products have no bias"));
    TRY(need_flag(k, "mlp_bias", false, "a Llama's products have no bias"));
    TRY(need_text(k, "hidden_act", SILU, "it is silu here, as SwiGLU has it"));
    TRY(read_count(k, "head_dim", model->heads ? model->dim / model->heads : 1, &head_dim));
    if ((long long)head_dim * model->heads != model->dim)
        return refuse_key(k, "head_dim", "a Llama's is hidden_size divided by num_attention_heads");
    return OK;
}

// theta and the kind of scaling: in "rope_parameters" (transformers 5), or beside "rope_scaling".
static Status read_rotary(const Keys *k, RotaryConfig *rotary)
{
    const char *where = value_of(k, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *rope = value_of(k, where);
    const char *kind = json_string_value(json_object_get(rope, "rope_type"));
    const json_t *whole = json_object_get(rope, "rope_theta") ? rope : k->all;
    float low, high, trained, part;
    if (!k->exact) return OK;
    if (kind == NULL) kind = json_string_value(json_object_get(rope, "type"));
    TRY(read_float(k, whole, "rope_theta", 10000.0, &rotary->theta));
    TRY(read_float(k, k->all, "partial_rotary_factor", 1.0, &part));
    if (part != 1.0f) return refuse_key(k, "partial_rotary_factor", "all columns are turned");
    if (rope == NULL || (kind != NULL && strcmp(kind, "default") == 0)) return OK;
    if (kind == NULL && json_object_get(rope, "factor") == NULL) return OK;
    if (kind == NULL || strcmp(kind, "llama3") != 0)
        return refuse_key(k, where, "positions are turned as by \"default\" or \"llama3\" here");
    TRY(read_float(k, rope, "factor", -1.0, &rotary->factor));
    TRY(read_float(k, rope, "low_freq_factor", -1.0, &low));
    TRY(read_float(k, rope, "high_freq_factor", -1.0, &high));
    TRY(read_float(k, rope, "original_max_position_embeddings", -1.0, &trained));
    rotary->low = low;
    rotary->high = high;
    rotary->trained_T = (int)trained;
    return OK;
}

static Status read_llama(const Keys *k, HuggingFaceConfig *config)
{
    LlamaConfig *model = &config->sizes;
    TRY(read_count(k, "num_hidden_layers", 0, &model->layers));
    TRY(read_count(k, "num_attention_heads", 0, &model->heads));
    TRY(read_count(k, "hidden_size", 0, &model->dim));
    TRY(read_count(k, "intermediate_size", 0, &model->hidden));
    TRY(read_count(k, "num_key_value_heads", model->heads, &model->kv_heads));
    TRY(read_count(k, "max_position_embeddings", 2048, &model->max_T));
    TRY(refuse_other_shapes(k, model));
    TRY(read_float(k, k->all, "rms_norm_eps", 1e-6, &model->eps));
    TRY(read_rotary(k, &model->rotary));
    model->tied = json_is_true(value_of(k, "tie_word_embeddings"));
    config->window = model->max_T;
    if (json_is_false(value_of(k, "use_sliding_window"))) return OK;
    return read_count(k, "sliding_window", model->max_T, &config->window);
}

static Status read_keys(const Keys *k, HuggingFaceConfig *config)
{
    static const char *const TYPES[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
    const char *type = json_string_value(json_object_get(k->all, "model_type"));
    size_t i = 0, n = k->exact ? 3 : sizeof TYPES / sizeof TYPES[0];
    while (i < n && (type == NULL || strcmp(type, TYPES[i]) != 0)) i++;
    if (i == n)
        return refuse_key(k, "model_type",
                          k->exact ? "must be gpt2, llama or mistral"
                                   : "must be gpt2, llama, mistral, qwen2 or qwen3");
    *config = (HuggingFaceConfig){.type = TYPES[i], .is_llama = i > 0};
    TRY(read_count(k, "vocab_size", 0, &config->sizes.vocab));
    return i == 0 ? read_gpt2(k, &config->sizes) : read_llama(k, config);
}

Status hugging_face_config_read(const char *path, bool exact, HuggingFaceConfig *config)
{
    json_error_t error;
    Keys keys = {path, json_load_file(path, JSON_REJECT_DUPLICATES, &error), exact};
    if (keys.all == NULL) return fail(ERR_IO, "%s cannot be read: %s", path, shown(error.text));
    Status status = json_is_object(keys.all)
                        ? read_keys(&keys, config)
                        : fail(ERR_IO, "%s: must be an object, as a config.json is", path);
    json_decref(keys.all);
    return status;
}

// ---- Out ----

static json_t *describe_gpt2(const LlamaConfig *c)
{
    return json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:n, s:s, s:f, s:b, s:n, s:n}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "vocab_size",
                     c->vocab, "n_positions", c->max_T, "n_embd", c->dim, "n_layer", c->layers,
                     "n_head", c->heads, "n_inner", "activation_function", "gelu_new",
                     "layer_norm_epsilon", 1e-5, "tie_word_embeddings", 1, "bos_token_id",
                     "eos_token_id");
}

// Writes a float with as few digits as read back to it: 1e-05, not 9.99999974e-06.
static double shortest(float value)
{
    char text[32];
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return strtod(text, NULL);
}

static json_t *describe_llama(const LlamaConfig *c)
{
    const RotaryConfig *r = &c->rotary;
    double theta = r->theta > 0.0f ? (double)r->theta : 500000.0;
    json_t *scaling = NULL;
    if (r->factor > 0.0f)
        scaling =
            json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
                      shortest(r->factor), "low_freq_factor", shortest(r->low), "high_freq_factor",
                      shortest(r->high), "original_max_position_embeddings", r->trained_T);
    return json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:o?, s:b, "
                     "s:b, s:b, s:n, s:n}",
                     "model_type", "llama", "architectures", "LlamaForCausalLM", "vocab_size",
                     c->vocab, "max_position_embeddings", c->max_T, "hidden_size", c->dim,
                     "intermediate_size", c->hidden, "num_hidden_layers", c->layers,
                     "num_attention_heads", c->heads, "num_key_value_heads", c->kv_heads,
                     "hidden_act", "silu", "rms_norm_eps", shortest(c->eps > 0.0f ? c->eps : 1e-5f),
                     "rope_theta", theta, "rope_scaling", scaling, "tie_word_embeddings", c->tied,
                     "attention_bias", 0, "mlp_bias", 0, "bos_token_id", "eos_token_id");
}

Status hugging_face_config_write(const char *path, const HuggingFaceConfig *config,
                                 const char *like)
{
    json_t *all = like != NULL       ? json_load_file(like, 0, NULL)
                  : config->is_llama ? describe_llama(&config->sizes)
                                     : describe_gpt2(&config->sizes);
    if (all == NULL && like != NULL) return fail(ERR_IO, "%s cannot be read", like);
    if (all == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", path);
    if (json_object_get(all, "dtype") != NULL)
        json_object_set_new(all, "dtype", json_string("float32"));
    json_object_set_new(all, "torch_dtype", json_string("float32"));
    bool written = json_dump_file(all, path, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0;
    json_decref(all);
    return written ? OK : fail(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

// ---- Against a model ----

// The first layer that has parameters.
static const LayerNumbers *find_numbers(const Module *m, bool attention)
{
    if (attention ? m->numbers.heads > 0 : m->numbers.eps > 0.0f) return &m->numbers;
    const LayerNumbers *found = NULL;
    for (int i = 0; i < m->n_children && found == NULL; i++)
        found = find_numbers(m->children[i], attention);
    return found;
}

Status hugging_face_config_check(const char *path, const Module *model, bool is_llama)
{
    HuggingFaceConfig config;
    TRY(hugging_face_config_read(path, true, &config));
    const LlamaConfig *c = &config.sizes;
    const LayerNumbers *attention = find_numbers(model, true), *norm = find_numbers(model, false);
    if (config.is_llama != is_llama)
        return fail(ERR_IO, "%s: model_type is %s, and the model is %s", path, config.type,
                    is_llama ? "a Llama" : "a GPT-2");
    if (attention != NULL && attention->heads != c->heads)
        return fail(ERR_IO, "%s: %s is %d, and the model has %d heads", path,
                    is_llama ? "num_attention_heads" : "n_head", c->heads, attention->heads);
    if (!is_llama) return OK;
    if (attention != NULL && attention->kv_heads != c->kv_heads)
        return fail(ERR_IO, "%s: num_key_value_heads is %d, and the model has %d", path,
                    c->kv_heads, attention->kv_heads);
    if (norm != NULL && norm->eps != c->eps)
        return fail(ERR_IO, "%s: rms_norm_eps is %g, and the model's is %g", path, (double)c->eps,
                    (double)norm->eps);
    float theta = attention != NULL ? attention->rotary.theta : 0.0f;
    if (attention == NULL) return OK;
    if ((theta > 0.0f ? theta : 500000.0f) != c->rotary.theta ||
        attention->rotary.factor != c->rotary.factor)
        return fail(ERR_IO, "%s: rope_theta is %g and its factor %g, and the model's are %g and %g",
                    path, (double)c->rotary.theta, (double)c->rotary.factor,
                    theta > 0.0f ? (double)theta : 500000.0, (double)attention->rotary.factor);
    return OK;
}
