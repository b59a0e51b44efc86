/* Models of Hugging Face's in folders: several files and their index. Read on any number of ranks;
 * what is wrong with an index is one line that names the file and the field, and changes nothing.
 */
#include "checkpoints.h"
#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 3 };

static char model[PATH_BYTES + 32];

static int begin(void **state)
{
    if (own_folder_begin(state) != 0) return -1;
    snprintf(model, sizeof model, "%s/model", own_folder);
    return mkdir(model, 0777);
}

static const char *in_model(const char *name)
{
    return in_folder(model, name);
}

// ---- Models ----

typedef struct Case {
    Spec spec;
    Status (*save)(const char *path, Module *root);
    Status (*load)(const char *path, Module *root);
    const char *path; // what is loaded
} Case;

static const char *part_name(int i)
{
    static char buffers[2][40];
    static unsigned turn;
    char *name = buffers[turn++ % 2];
    snprintf(name, sizeof buffers[0], "model-%05d-of-%05d.safetensors", i + 1, PARTS);
    return name;
}

// The tensors i, i + PARTS, … of the file as a file of their own.
static void write_part(const Safetensors *from, int i)
{
    SafetensorsEntry entries[64];
    Safetensors to;
    int n = 0;
    for (int e = i; e < from->n; e += PARTS) entries[n++] = from->entries[e];
    unlink(in_model(part_name(i)));
    assert_int_equal(safetensors_create(&to, in_model(part_name(i)), entries, n, NULL, 0), OK);
    for (int k = 0; k < n; k++) {
        const SafetensorsEntry *entry = &from->entries[i + k * PARTS];
        float *values = malloc((size_t)entry->numel * sizeof *values);
        assert_int_equal(safetensors_read(from, entry, 0, entry->numel, values), OK);
        assert_int_equal(safetensors_write(&to, k, 0, entry->numel, values), OK);
        free(values);
    }
    assert_int_equal(safetensors_finish(&to), OK);
    safetensors_close(&to);
}

// The model as files and an index. No two tensors in a row are in one file, and a parameter of ours
// that is several tensors is in several.
static void write_parts(void)
{
    Safetensors from;
    assert_int_equal(safetensors_open(&from, in_folder(own_folder, "one")), OK);
    assert_true(from.n < 64);
    for (int i = 0; i < PARTS; i++) write_part(&from, i);
    FILE *index = fopen(in_model("model.safetensors.index.json"), "w");
    assert_non_null(index);
    fprintf(index, "{\"metadata\": {\"total_size\": 1e9}, \"weight_map\": {");
    for (int e = 0; e < from.n; e++)
        fprintf(index, "%s\n\"%s\": \"%s\"", e > 0 ? "," : "", from.entries[e].name,
                part_name(e % PARTS));
    fprintf(index, "}}\n");
    fclose(index);
    safetensors_close(&from);
}

static Case gpt2_case(void)
{
    return (Case){.spec = spec_gpt2(2), .save = gpt2_export, .load = gpt2_import, .path = model};
}

static Case llama_case(bool tied)
{
    return (Case){
        .spec = spec_llama(2, tied), .save = llama_export, .load = llama_import, .path = model};
}

TEST_BETWEEN(reads_the_files_of_a_folder, begin, own_folder_end)
{
    needs_ranks(2);
    static const int WORLDS[] = {1, 3, 8};
    const Case cases[] = {gpt2_case(), llama_case(false), llama_case(true)};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Case c = cases[i];
        state_export(2, c.spec, c.save, in_folder(own_folder, "one"));
        write_parts();
        for (size_t w = 0; w < sizeof WORLDS / sizeof WORLDS[0]; w++)
            state_import(WORLDS[w], c.spec, c.load, c.path);
    }
}

// model.safetensors comes before an index, as in transformers.
TEST_BETWEEN(reads_the_one_file_of_a_folder, begin, own_folder_end)
{
    char slash[PATH_BYTES + 40];
    Case c = llama_case(false);
    state_export(1, c.spec, c.save, in_folder(own_folder, "one"));
    write_bytes(in_model("model.safetensors.index.json"), "{", 1);
    assert_int_equal(rename(in_folder(own_folder, "one"), in_model("model.safetensors")), 0);
    snprintf(slash, sizeof slash, "%s/", model);
    c.path = slash;
    state_import(2, c.spec, c.load, c.path);
}

// ---- What is refused ----

TEST_BETWEEN(refuses_a_folder_on_all_ranks, begin, own_folder_end)
{
    needs_ranks(3);
    Case c = llama_case(false), other = llama_case(false);
    state_refused(3, c.spec, c.load, c.path,
                  "model: has neither model.safetensors nor model.safetensors.index.json");
    state_export(2, c.spec, c.save, in_folder(own_folder, "one"));
    write_parts();
    other.spec.layers = 3;
    state_refused(3, other.spec, other.load, other.path,
                  "model.safetensors.index.json: has no tensor layers.2.");
    other = c;
    other.spec.kv_heads = 3;
    state_refused(3, other.spec, other.load, other.path,
                  ".safetensors: tensor layers.0.self_attn.k_proj.weight has another shape");
    unlink(in_model(part_name(1)));
    state_refused(3, c.spec, c.load, c.path, "model-00002-of-00003.safetensors: cannot be opened");
    write_bytes(in_model(part_name(1)), "cut", 3);
    state_refused(3, c.spec, c.load, c.path, "model-00002-of-00003.safetensors: has 3 bytes");
}

// Two files: a and b in one, c in the other.
static void write_two_files(void)
{
    write_header(in_model("1.safetensors"),
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                 3);
    write_header(in_model("2.safetensors"),
                 "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
}

#define MAP(text) "{\"weight_map\":" text "}"
static const struct {
    const char *index, *says;
} REFUSED[] = {
    {"", "index.json: is not JSON at its byte"},
    {"{\"weight_map\":", "index.json: is not JSON at its byte"},
    {"[]", "index.json: weight_map must be an object"},
    {"{}", "index.json: weight_map must be an object"},
    {MAP("[\"a\"]"), "index.json: weight_map must be an object"},
    {MAP("{}"), "index.json: weight_map must be an object"},
    {MAP("{\"a\":1}"), "weight_map: tensor a: its file is no text"},
    {MAP("{\"a\":\"\"}"), "weight_map: tensor a: its file is ;"},
    {MAP("{\"a\":\".safetensors\"}"), "weight_map: tensor a: its file is .safetensors;"},
    {MAP("{\"a\":\"1.bin\"}"), "weight_map: tensor a: its file is 1.bin;"},
    {MAP("{\"a\":\"../model/1.safetensors\"}"), "tensor a: its file is ../model/1.safetensors;"},
    {MAP("{\"a\":\"/1.safetensors\"}"), "tensor a: its file is /1.safetensors;"},
    {MAP("{\"a\\n\":\"1\\n.safetensors\"}"), "tensor a?: its file is 1?.safetensors;"},
    {MAP("{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}"), "index.json: is not JSON"},
    {MAP("{\"a\":\"3.safetensors\"}"), "model/3.safetensors: cannot be opened"},
    {MAP("{\"a\":\"folder.safetensors\"}"), "model/folder.safetensors: is not a regular file"},
    {MAP("{\"a\":\"1.safetensors\"}"), "1.safetensors: tensor b is not in the weight_map of"},
    {MAP("{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"2.safetensors\"}"),
     "1.safetensors: has tensor b, which is in 2.safetensors by the weight_map of"},
    {MAP("{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\","
         "\"d\":\"2.safetensors\"}"),
     "index.json: weight_map: tensor d is not in 2.safetensors"},
};

// Opens the folder and has it refused in one line.
static void set_is_refused(const char *says)
{
    SafetensorsSet set;
    int lines;
    said_begin();
    Status status = safetensors_set_open(&set, model);
    char *said = said_end(&lines);
    if (status != ERR_IO || lines != 1 || strstr(said, says) == NULL)
        fail_msg("status %d and %d lines, want ERR_IO and one line with \"%s\":\n%s", status, lines,
                 says, said);
    assert_true(set.path == NULL && set.files == NULL && set.n == 0);
    free(said);
}

TEST_BETWEEN(refuses_an_index_in_one_line, begin, own_folder_end)
{
    SafetensorsSet set;
    const Safetensors *file = NULL;
    const char *index = "model.safetensors.index.json";
    char good[256];
    write_two_files();
    assert_int_equal(mkdir(in_model("folder.safetensors"), 0777), 0);
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        write_bytes(in_model(index), REFUSED[i].index, strlen(REFUSED[i].index));
        set_is_refused(REFUSED[i].says);
    }
    snprintf(good, sizeof good, "%s",
             MAP("{\"c\":\"2.safetensors\",\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}"));
    write_bytes(in_model(index), good, strlen(good));
    assert_int_equal(safetensors_set_open(&set, model), OK);
    assert_int_equal(set.n, 2);
    assert_int_equal(safetensors_set_find(&set, "a", &file)->numel, 2);
    assert_non_null(strstr(file->path, "1.safetensors"));
    assert_null(safetensors_set_find(&set, "d", NULL));
    safetensors_set_close(&set);
}

// An index that is no file, or a link to nothing; one that is too long, or names too many files.
TEST_BETWEEN(refuses_what_is_no_index, begin, own_folder_end)
{
    const char *index = "model.safetensors.index.json";
    assert_int_equal(mkdir(in_model(index), 0777), 0);
    set_is_refused("index.json: is not a regular file");
    assert_int_equal(rmdir(in_model(index)), 0);
    assert_int_equal(mkfifo(in_model(index), 0600), 0);
    set_is_refused("index.json: is not a regular file");
    unlink(in_model(index));
    assert_int_equal(symlink("nothing", in_model(index)), 0);
    set_is_refused("index.json: cannot be examined");
    unlink(in_model(index));
    write_bytes(in_model(index), "{}", 2);
    assert_int_equal(truncate(in_model(index), (16 << 20) + 1), 0);
    set_is_refused("index.json: has 16777217 bytes, at most 16777216 are read");
    FILE *many = fopen(in_model(index), "w");
    assert_non_null(many);
    fprintf(many, "{\"weight_map\": {");
    for (int i = 0; i < 513; i++) fprintf(many, "%s\"%d\":\"%d.safetensors\"", i ? "," : "", i, i);
    fprintf(many, "}}");
    fclose(many);
    set_is_refused("index.json: weight_map: names more than 512 files");
}

SUITE_MAIN("folders")
