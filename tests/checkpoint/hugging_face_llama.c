/* A Llama in Hugging Face's names: out of any number of ranks and into any other; which rows of
 * ours are which tensor of theirs; files without the prefix, with frequencies, and with a head that
 * is tied; refusals.
 */
#include "checkpoints.h"
#include "files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *model_file(void)
{
    return in_folder(own_folder, "model.safetensors");
}

TEST_BETWEEN(from_world_to_world, own_folder_begin, own_folder_end)
{
    static const int WORLDS[][2] = {{1, 1}, {1, 3}, {3, 1}, {2, 5}, {8, 7}};
    for (size_t i = 0; i < sizeof WORLDS / sizeof WORLDS[0] && ranks_fit(WORLDS[i][0]); i++)
        for (int tied = 0; tied < 2; tied++) {
            Spec spec = spec_llama(2, tied);
            state_export(WORLDS[i][0], spec, llama_export, model_file());
            state_import(WORLDS[i][1], spec, llama_import, model_file());
        }
}

// C = 24; 6 heads of 4 columns and 2 of keys; 17 hidden.
static const struct {
    const char *name;
    int id;        // of ours
    int64_t first; // row of ours
    int64_t rows, columns;
} THEIRS[] = {
    {"model.embed_tokens.weight", 0, 0, 11, 24},
    {"model.layers.0.input_layernorm.weight", 1, 0, 24, 0},
    {"model.layers.0.self_attn.q_proj.weight", 2, 0, 24, 24},
    {"model.layers.0.self_attn.k_proj.weight", 2, 24, 8, 24},
    {"model.layers.0.self_attn.v_proj.weight", 2, 32, 8, 24},
    {"model.layers.0.self_attn.o_proj.weight", 3, 0, 24, 24},
    {"model.layers.0.post_attention_layernorm.weight", 4, 0, 24, 0},
    {"model.layers.0.mlp.gate_proj.weight", 5, 0, 17, 24},
    {"model.layers.0.mlp.up_proj.weight", 5, 17, 17, 24},
    {"model.layers.0.mlp.down_proj.weight", 6, 0, 24, 17},
    {"model.norm.weight", 7, 0, 24, 0},
    {"lm_head.weight", 8, 0, 11, 24},
};
enum { TENSORS = sizeof THEIRS / sizeof THEIRS[0] };

TEST_BETWEEN(each_tensor_has_its_rows, own_folder_begin, own_folder_end)
{
    needs_ranks(3);
    for (int tied = 0; tied < 2; tied++) {
        Spec spec = spec_llama(1, tied);
        Safetensors file;
        state_export(3, spec, llama_export, model_file());
        assert_int_equal(safetensors_open(&file, model_file()), OK);
        assert_string_equal(safetensors_text(&file, "format"), "pt");
        assert_int_equal(file.n, TENSORS - tied);
        for (int t = 0; t < TENSORS - tied; t++) {
            const SafetensorsEntry *entry = safetensors_find(&file, THEIRS[t].name);
            int64_t columns = THEIRS[t].columns > 0 ? THEIRS[t].columns : 1;
            if (entry == NULL) fail_msg("there is no tensor %s", THEIRS[t].name);
            if (entry->ndim != (THEIRS[t].columns > 0 ? 2 : 1) ||
                entry->shape[0] != THEIRS[t].rows ||
                (entry->ndim == 2 && entry->shape[1] != columns))
                fail_msg("%s has another shape", THEIRS[t].name);
            float *got = malloc((size_t)entry->numel * sizeof *got);
            assert_int_equal(safetensors_read(&file, entry, 0, entry->numel, got), OK);
            for (int64_t i = 0; i < entry->numel; i++) {
                float want = state_value(THEIRS[t].id, THEIRS[t].first * columns + i);
                if (got[i] != want)
                    fail_msg("%s: element %lld is %g, want %g", THEIRS[t].name, (long long)i,
                             (double)got[i], (double)want);
            }
            free(got);
        }
        safetensors_close(&file);
    }
}

// ---- Files as others write them ----

// The file of the model once more as "other": names without "model.", and one tensor more of that
// name and of `rows` elements.
static void write_other(const char *extra, int64_t rows)
{
    Safetensors from, to;
    SafetensorsEntry entries[TENSORS + 1];
    int n = 0;
    assert_int_equal(safetensors_open(&from, model_file()), OK);
    for (; n < from.n; n++) {
        entries[n] = from.entries[n];
        if (strncmp(entries[n].name, "model.", 6) == 0) entries[n].name += 6;
    }
    entries[n++] = (SafetensorsEntry){
        .name = (char *)extra, .type = SAFETENSORS_F32, .ndim = 1, .shape = {rows}};
    unlink(in_folder(own_folder, "other"));
    assert_int_equal(safetensors_create(&to, in_folder(own_folder, "other"), entries, n, NULL, 0),
                     OK);
    for (int i = 0; i < n; i++) {
        float *values = calloc((size_t)to.entries[i].numel, sizeof *values);
        for (int k = 0; k < from.n; k++)
            if (strcmp(from.entries[k].name, entries[i].name) == 0 ||
                (strncmp(from.entries[k].name, "model.", 6) == 0 &&
                 strcmp(from.entries[k].name + 6, entries[i].name) == 0))
                assert_int_equal(
                    safetensors_read(&from, &from.entries[k], 0, from.entries[k].numel, values),
                    OK);
        assert_int_equal(safetensors_write(&to, i, 0, to.entries[i].numel, values), OK);
        free(values);
    }
    assert_int_equal(safetensors_finish(&to), OK);
    safetensors_close(&to);
    safetensors_close(&from);
}

TEST_BETWEEN(reads_what_others_write, own_folder_begin, own_folder_end)
{
    needs_ranks(2);
    Spec untied = spec_llama(1, false), tied = spec_llama(1, true);
    state_export(2, untied, llama_export, model_file());
    write_other("layers.0.self_attn.rotary_emb.inv_freq", 2);
    state_import(2, untied, llama_import, in_folder(own_folder, "other"));
    state_export(2, tied, llama_export, model_file());
    write_other("lm_head.weight", 5); // whatever it is: the head is the embedding
    state_import(2, tied, llama_import, in_folder(own_folder, "other"));
}

TEST_BETWEEN(refuses_what_is_another_model, own_folder_begin, own_folder_end)
{
    needs_ranks(2);
    Spec untied = spec_llama(1, false), tied = spec_llama(1, true), keys = untied;
    state_export(2, untied, llama_export, model_file());
    write_other("layers.1.input_layernorm.weight", 24);
    state_refused(2, untied, llama_import, in_folder(own_folder, "other"),
                  "has 13 tensors of parameters, and the model has 12");
    state_export(2, tied, llama_export, model_file());
    write_other("layers.0.self_attn.rotary_emb.inv_freq", 2);
    state_refused(2, untied, llama_import, in_folder(own_folder, "other"),
                  "has no tensor lm_head.weight");
    keys.kv_heads = 3;
    state_export(2, keys, llama_export, model_file());
    write_other("layers.0.self_attn.rotary_emb.inv_freq", 2);
    state_refused(2, untied, llama_import, in_folder(own_folder, "other"),
                  "layers.0.self_attn.k_proj.weight has another shape");
}

SUITE_MAIN("hugging_face_llama")
