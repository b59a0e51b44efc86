/* A model's config.json: read, with the key named that our models do not follow; written; and held
 * against the model that weights are read into.
 */
#include "checkpoints.h"
#include "files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char GPT2[] = "{'model_type': 'gpt2', 'vocab_size': 11, 'n_positions': 9, 'n_embd': "
                           "24, 'n_layer': 1, 'n_head': 3, 'n_inner': null}";
static const char LLAMA[] =
    "{'model_type': 'llama', 'vocab_size': 11, 'max_position_embeddings': 9, 'hidden_size': 24, "
    "'intermediate_size': 17, 'num_hidden_layers': 1, 'num_attention_heads': 6, "
    "'num_key_value_heads': 2, 'rms_norm_eps': 1e-5, 'rope_theta': 500000.0}";

static const char *config_file(void)
{
    return in_folder(own_folder, "config.json");
}

// The object with the keys of `more` in place of its own, as config.json; ' for ".
static void write_config(const char *object, const char *more)
{
    char text[2048];
    snprintf(text, sizeof text, "%.*s%s%s}", (int)strlen(object) - 1, object, *more ? ", " : "",
             more);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\'') *c = '"';
    json_t *all = json_loads(text, 0, NULL); // of a key that is there twice the last
    if (all == NULL) fail_msg("%s is not JSON", text);
    assert_int_equal(json_dump_file(all, config_file(), 0), 0);
    json_decref(all);
}

static void read_config(bool exact, const char *what, const char *says)
{
    HuggingFaceConfig config;
    int lines;
    said_begin();
    Status status = hugging_face_config_read(config_file(), exact, &config);
    char *said = said_end(&lines);
    if (status != (says != NULL ? ERR_IO : OK) || lines != (says != NULL) ||
        (says != NULL && strstr(said, says) == NULL))
        fail_msg("%s: status %d, want \"%s\":\n%s", what, status, says != NULL ? says : "OK", said);
    free(said);
}

TEST_BETWEEN(names_the_key, own_folder_begin, own_folder_end)
{
    static const struct {
        const char *base, *more, *says; // NULL: it is taken
        bool sizes_alone;               // a plan takes it all the same
    } table[] = {
        {GPT2, "", NULL, true},
        {GPT2, "'n_inner': 96, 'activation_function': 'gelu_pytorch_tanh'", NULL, true},
        {GPT2, "'model_type': 'bert'", "model_type is \"bert\": must be gpt2, llama", false},
        {GPT2, "'n_head': 0", "n_head is 0: must be a whole number", false},
        {GPT2, "'n_embd': 24.5", "n_embd is 24.5: must be a whole number", false},
        {GPT2, "'n_inner': 90", "n_inner is 90", false},
        {GPT2, "'vocab_size': null", "vocab_size is null", false},
        {GPT2, "'tie_word_embeddings': false", "tie_word_embeddings is false", false},
        {GPT2, "'activation_function': 'gelu'", "activation_function is \"gelu\"", true},
        {GPT2, "'activation_function': 3", "activation_function is 3", true},
        {GPT2, "'layer_norm_epsilon': 1e-6", "layer_norm_epsilon is", true},
        {GPT2, "'scale_attn_weights': false", "scale_attn_weights is false", true},
        {GPT2, "'scale_attn_by_inverse_layer_idx': true", "by_inverse_layer_idx is true", true},
        {LLAMA, "", NULL, true},
        {LLAMA, "'model_type': 'mistral', 'sliding_window': 4096", NULL, true},
        {LLAMA, "'rope_theta': null, 'rope_scaling': null", NULL, true},
        {LLAMA, "'rope_scaling': {'rope_type': 'default'}", NULL, true},
        {LLAMA, "'model_type': 'qwen2'", "model_type is \"qwen2\"", true},
        {LLAMA, "'attention_bias': true", "attention_bias is true", false},
        {LLAMA, "'head_dim': 8", "head_dim is 8", false},
        {LLAMA, "'hidden_act': 'gelu'", "hidden_act is \"gelu\"", true},
        {LLAMA, "'rms_norm_eps': 'small'", "rms_norm_eps must be a number above 0", false},
        {LLAMA, "'partial_rotary_factor': 0.5", "partial_rotary_factor is 0.5", true},
        {LLAMA, "'rope_scaling': {'type': 'linear', 'factor': 2.0}", "rope_scaling is", true},
        {LLAMA, "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e4}", "rope_parameters is",
         true},
        {LLAMA, "'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0}",
         "low_freq_factor must be a number", true},
        {LLAMA, "'num_local_experts': 8", "num_local_experts is 8", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        write_config(table[i].base, table[i].more);
        read_config(true, table[i].more, table[i].says);
        read_config(false, table[i].more, table[i].sizes_alone ? NULL : table[i].says);
    }
    write_bytes(config_file(), "[1]", 3);
    read_config(true, "an array", "must be an object");
    write_bytes(config_file(), "{\"a\": ", 6);
    read_config(true, "half of it", "cannot be read");
}

TEST_BETWEEN(comes_back_as_written, own_folder_begin, own_folder_end)
{
    static const HuggingFaceConfig LLAMA_3 = {
        .type = "llama",
        .is_llama = true,
        .sizes =
            {.vocab = 11,
             .max_T = 64,
             .layers = 3,
             .heads = 6,
             .kv_heads = 2,
             .dim = 24,
             .hidden = 17,
             .eps = 1e-6f,
             .tied = true,
             .rotary = {.theta = 1e4f, .factor = 8.0f, .low = 1.0f, .high = 4.0f, .trained_T = 32}},
        .window = 64,
    };
    static const HuggingFaceConfig GPT = {
        .type = "gpt2",
        .sizes = {.vocab = 11, .max_T = 9, .layers = 2, .heads = 3, .dim = 24, .eps = 1e-5f}};
    const HuggingFaceConfig *both[] = {&LLAMA_3, &GPT};
    for (int i = 0; i < 2; i++) {
        HuggingFaceConfig got, want = *both[i];
        assert_int_equal(hugging_face_config_write(config_file(), &want, NULL), OK);
        assert_int_equal(hugging_face_config_read(config_file(), true, &got), OK);
        assert_string_equal(got.type, want.type);
        assert_int_equal(got.is_llama, want.is_llama);
        assert_int_equal(got.window, want.window);
        assert_memory_equal(&got.sizes, &want.sizes, sizeof want.sizes);
    }
    // Of a file that it was read from the other keys stay; the weights are floats now.
    write_config(GPT2, "'eos_token_id': 7, 'dtype': 'bfloat16'");
    assert_int_equal(hugging_face_config_write(in_folder(own_folder, "new"), &GPT, config_file()),
                     OK);
    json_t *all = json_load_file(in_folder(own_folder, "new"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(all, "eos_token_id")), 7);
    assert_string_equal(json_string_value(json_object_get(all, "dtype")), "float32");
    json_decref(all);
}

// Weights whose shapes fit, with a config.json of another model in their folder.
TEST_BETWEEN(another_models_config_is_refused, own_folder_begin, own_folder_end)
{
    static const struct {
        bool llama;
        const char *more, *says; // NULL: it is taken
    } table[] = {
        {false, "", NULL},
        {false, "'n_head': 4", "n_head is 4, and the model has 3 heads"},
        {false, "'activation_function': 'relu'", "activation_function is \"relu\""},
        {true, "", NULL},
        {true, "'num_attention_heads': 12, 'num_key_value_heads': 4",
         "num_attention_heads is 12, and the model has 6 heads"},
        {true, "'num_key_value_heads': 3", "num_key_value_heads is 3, and the model has 2"},
        {true, "'rms_norm_eps': 1e-6", "rms_norm_eps is 1e-06, and the model's is 1e-05"},
        {true, "'rope_theta': 1e4", "rope_theta is 10000"},
        {true,
         "'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, "
         "'high_freq_factor': 4.0, 'original_max_position_embeddings': 4}",
         "its factor 8"},
    };
    needs_ranks(2);
    char file[PATH_BYTES + 32];
    snprintf(file, sizeof file, "%s/model.safetensors", own_folder);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        bool llama = table[i].llama;
        Spec spec = llama ? spec_llama(1, false) : spec_gpt2(1);
        StateFile load = llama ? llama_import : gpt2_import;
        unlink(config_file());
        state_export(1, spec, llama ? llama_export : gpt2_export, file);
        write_config(llama ? LLAMA : GPT2, table[i].more);
        const char *path = i % 2 == 0 ? own_folder : file; // the folder, or the file in it
        if (table[i].says == NULL)
            state_import(2, spec, load, path);
        else
            state_refused(2, spec, load, path, table[i].says);
    }
    write_config(LLAMA, "");
    unlink(file);
    state_export(1, spec_gpt2(1), gpt2_export, file);
    state_refused(2, spec_gpt2(1), gpt2_import, file,
                  "model_type is llama, and the model is a GPT");
    state_refused(2, spec_gpt2(1), gpt2_import, config_file(), "is JSON, not weights");
}

SUITE_MAIN("config")
