/* A GPT-2 in Hugging Face's names and layout: out of any number of ranks and into any other; their
 * names, their shapes, their types; refusals.
 */
#include "checkpoints.h"
#include "files.h"
#include "host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *model_file(void)
{
    return in_folder(own_folder, "model.safetensors");
}

TEST_BETWEEN(goes_both_ways, own_folder_begin, own_folder_end)
{
    static const int WORLDS[][2] = {{1, 1}, {1, 3}, {3, 1}, {2, 5}, {8, 7}};
    Spec spec = spec_gpt2(2);
    for (size_t i = 0; i < sizeof WORLDS / sizeof WORLDS[0]; i++) {
        state_export(WORLDS[i][0], spec, gpt2_export, model_file());
        state_import(WORLDS[i][1], spec, gpt2_import, model_file());
    }
}

// The file that their side reads: names, shapes, and where an element is. The model's parameters in
// the order of a walk have the numbers below.
TEST_BETWEEN(has_their_names_and_layout, own_folder_begin, own_folder_end)
{
    needs_ranks(2);
    static const struct {
        const char *name;
        int id, ndim;
        int64_t shape[2]; // theirs
        bool turned;
    } table[] = {
        {"transformer.wte.weight", 0, 2, {11, 24}, false},
        {"transformer.wpe.weight", 1, 2, {9, 24}, false},
        {"transformer.h.0.ln_1.weight", 2, 1, {24}, false},
        {"transformer.h.0.attn.c_attn.weight", 4, 2, {24, 72}, true},
        {"transformer.h.0.attn.c_attn.bias", 5, 1, {72}, false},
        {"transformer.h.0.attn.c_proj.weight", 6, 2, {24, 24}, true},
        {"transformer.h.0.mlp.c_fc.weight", 10, 2, {24, 96}, true},
        {"transformer.h.0.mlp.c_proj.weight", 12, 2, {96, 24}, true},
        {"transformer.h.0.mlp.c_proj.bias", 13, 1, {24}, false},
        {"transformer.ln_f.bias", 15, 1, {24}, false},
    };
    Spec spec = spec_gpt2(1);
    Safetensors file;
    state_export(2, spec, gpt2_export, model_file());
    assert_int_equal(safetensors_open(&file, model_file()), OK);
    assert_string_equal(safetensors_text(&file, "format"), "pt");
    assert_int_equal(file.n, 16);
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        const SafetensorsEntry *entry = safetensors_find(&file, table[t].name);
        if (entry == NULL) fail_msg("there is no tensor %s", table[t].name);
        if (entry->ndim != table[t].ndim ||
            memcmp(entry->shape, table[t].shape, (size_t)entry->ndim * sizeof *entry->shape) != 0)
            fail_msg("%s has shape (%lld, %lld)", table[t].name, (long long)entry->shape[0],
                     (long long)entry->shape[1]);
        float *got = malloc((size_t)entry->numel * sizeof *got);
        assert_int_equal(safetensors_read(&file, entry, 0, entry->numel, got), OK);
        int64_t columns = entry->ndim == 2 ? entry->shape[1] : 1;
        for (int64_t i = 0; i < entry->numel; i++) {
            int64_t row = i / columns, column = i % columns;
            int64_t ours = table[t].turned ? column * entry->shape[0] + row : i;
            if (got[i] != state_value(table[t].id, ours))
                fail_msg("%s: element (%lld, %lld) is %g, want %g", table[t].name, (long long)row,
                         (long long)column, (double)got[i], (double)state_value(table[t].id, ours));
        }
        free(got);
    }
    safetensors_close(&file);
}

// ---- Other types, other names ----

// The model's file once more, without "transformer.", each element as type says, with their
// buffers; `extra`: one more tensor of that name.
static void write_as(SafetensorsType type, const char *extra)
{
    Safetensors from, to;
    SafetensorsEntry entries[20];
    int n = 0;
    assert_int_equal(safetensors_open(&from, model_file()), OK);
    for (; n < from.n; n++) {
        entries[n] = from.entries[n];
        entries[n].name += strlen("transformer.");
        entries[n].type = type;
    }
    entries[n++] = (SafetensorsEntry){.name = (char *)"h.0.attn.bias", .ndim = 1, .shape = {1}};
    entries[n++] = (SafetensorsEntry){.name = (char *)"lm_head.weight", .ndim = 1, .shape = {1}};
    if (extra != NULL)
        entries[n++] = (SafetensorsEntry){.name = (char *)extra, .ndim = 1, .shape = {1}};
    assert_int_equal(safetensors_create(&to, in_folder(own_folder, "other"), entries, n, NULL, 0),
                     OK);
    for (int i = 0; i < n; i++) {
        int64_t numel = to.entries[i].numel;
        char *bytes = malloc((size_t)numel * 8);
        for (int64_t e = 0; e < numel; e++) {
            // 0.5, -1.5, 2⁻²⁴ (the smallest float16), …: exact in each type
            uint16_t half = e % 3 == 0 ? 0x3800 : e % 3 == 1 ? 0xbe00 : 0x0001;
            uint16_t brain = e % 3 == 0 ? 0x3f00 : e % 3 == 1 ? 0xbfc0 : 0x3380;
            ((uint16_t *)(void *)bytes)[e] = type == SAFETENSORS_F16 ? half : brain;
        }
        assert_int_equal(safetensors_write(&to, i, 0, numel, bytes), OK);
        free(bytes);
    }
    assert_int_equal(safetensors_finish(&to), OK);
    safetensors_close(&from);
}

static void halves_body(Sharded *s, const Rank *r, void *arg)
{
    static const float WANT[] = {0.5f, -1.5f, 0x1p-24f};
    need(gpt2_import(in_folder(own_folder, "other"), s->model));
    const FlatParam *flat = &fsdp_unit(s->model)->flat; // wte first: its elements are in order
    int64_t n = flat_valid_numel(&flat->layout, 0);
    float *got = fetch(flat->sharded_param.data, (size_t)n);
    for (int64_t i = 0; i < 11 * 24 && i < n; i++)
        check(got[i] == WANT[i % 3], "element %lld is %g, want %g", (long long)i, (double)got[i],
              (double)WANT[i % 3]);
    free(got);
}

TEST_BETWEEN(reads_halves_and_bare_names, own_folder_begin, own_folder_end)
{
    Spec spec = spec_gpt2(1);
    state_export(1, spec, gpt2_export, model_file());
    write_as(SAFETENSORS_F16, NULL);
    run_sharded(spec_gpt2(1), halves_body, 1);
    unlink(in_folder(own_folder, "other"));
    write_as(SAFETENSORS_BF16, NULL);
    run_sharded(spec_gpt2(1), halves_body, 1);
}

TEST_BETWEEN(refuses_other_models, own_folder_begin, own_folder_end)
{
    needs_ranks(2);
    Spec spec = spec_gpt2(1), wide = spec_gpt2(1);
    wide.vocab++;
    state_export(2, spec, gpt2_export, model_file());
    state_refused(2, spec_gpt2(2), gpt2_import, model_file(), "has no tensor h.1.");
    state_refused(2, wide, gpt2_import, model_file(), "wte.weight has another shape");
    state_refused(2, spec, gpt2_import, in_folder(own_folder, "none"), "cannot be opened");
    state_refused(2, spec, gpt2_export, in_folder(own_folder, "none/model"), "cannot be created");
    state_refused(2, spec, gpt2_export, own_folder,
                  "cannot be renamed"); // a folder, which a file does not replace
    char tmp[PATH_BYTES + 8];
    snprintf(tmp, sizeof tmp, "%s.tmp", own_folder);
    if (access(tmp, F_OK) == 0) fail_msg("%s was left", tmp);
    write_as(SAFETENSORS_BF16, "h.1.ln_1.weight");
    state_refused(2, spec, gpt2_import, in_folder(own_folder, "other"), "17 tensors");
    unlink(in_folder(own_folder, "other"));
    write_as(SAFETENSORS_I16, NULL);
    state_refused(2, spec, gpt2_import, in_folder(own_folder, "other"), "is I16, expected");
    Spec two = spec_gpt2(2);
    state_export(2, two, gpt2_export, model_file());
    state_refused(2, spec, gpt2_import, model_file(), "it is of another model");
    if (access(in_folder(own_folder, "model.safetensors.tmp"), F_OK) == 0)
        fail_msg("an export has left its .tmp");
}

// A model of 3.6 MB whose largest parameter has 0.6 MB: no rank holds more than that on the host.
static void memory_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(2);
    Sharded s;
    spec.dim = 192;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    state_fill(&s, 1);
    host_limit(4 * 192 * 192 * sizeof(float) + (256 << 10));
    need(gpt2_export(model_file(), s.model));
    need(gpt2_import(model_file(), s.model));
    host_limit(0);
    state_check(&s, 1, "with little memory");
    sharded_destroy(&s);
}

TEST_BETWEEN(holds_one_parameter_at_most, own_folder_begin, own_folder_end)
{
    run_worlds(memory_body, NULL, 1, 2);
}

SUITE_MAIN("hugging_face")
