/* index.json of a checkpoint: what is written is read again, and whatever else is in it is refused
 * in one line that names the file and the field. Changed at random it is read or refused, and what
 * is read covers each parameter.
 */
#include "checkpoint.h"
#include "files.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEED "18446744073709551615"
static const char GOOD[] =
    "{\"format\":\"shardlab checkpoint\",\"version\":1,\"files\":2,\"parameters\":{"
    "\"a\":{\"shape\":[3,2],\"slices\":[[0,0,4],[1,4,6]]},"
    "\"b\":{\"shape\":[5],\"slices\":[[1,0,5]]}},\"adamw\":{\"t\":7},"
    "\"position\":{\"step\":7,\"data_seed\":\"" SEED "\","
    "\"loss_scale\":{\"scale\":1024.0,\"growth_tracker\":3}}}";

// `old` of GOOD becomes `new`; then `says` is in the line.
static const struct {
    const char *old, *new, *says;
} REFUSED[] = {
    {"}}}", "}}", "index.json: is not JSON at its byte"},
    {"{\"format\"", "{\"files\":2,\"format\"", "index.json: is not JSON at its byte"},
    {"shardlab checkpoint", "pt", "index.json: format must be \"shardlab checkpoint\""},
    {"\"format\"", "\"former\"", "index.json: format must be \"shardlab checkpoint\""},
    {"\"version\":1", "\"version\":2", "index.json: version must be a whole number from 1 to 1"},
    {"\"files\":2", "\"files\":0", "index.json: files must be a whole number from 1 to"},
    {"\"files\":2", "\"files\":2.5", "index.json: files must be a whole number from 1 to"},
    {"\"files\":2", "\"files\":9999999", "index.json: files must be a whole number from 1 to"},
    {"\"parameters\":{", "\"parameters\":[],\"p\":{", "index.json: parameters must be an object"},
    {"[3,2]", "6", "parameter a: shape must be an array of at most"},
    {"[3,2]", "[1,1,1,1,1,1,1,1,6]", "parameter a: shape must be an array of at most"},
    {"[3,2]", "[3,0]", "parameter a: shape[1] must be a whole number from 1 on"},
    {"[3,2]", "[\"3\",2]", "parameter a: shape[0] must be a whole number from 1 on"},
    {"[3,2]", "[4611686018427387904,4]", "parameter a: shape[1] must be a whole number from 1"},
    {"[0,0,4]", "[0,0]",
     "parameter a: slices[0] must be [file, begin, end] with a file from 0 to 1"},
    {"[0,0,4]", "[0,0,4,4]", "parameter a: slices[0] must be [file, begin, end]"},
    {"[0,0,4]", "[2,0,4]", "parameter a: slices[0] must be [file, begin, end]"},
    {"[0,0,4]", "[-1,0,4]", "parameter a: slices[0] must be [file, begin, end]"},
    {"[1,4,6]", "[1,3,6]", "slices[1] is [3, 6); expected one from element 4 to at most 6"},
    {"[1,4,6]", "[1,5,6]", "slices[1] is [5, 6); expected one from element 4 to at most 6"},
    {"[1,4,6]", "[1,4,7]", "slices[1] is [4, 7); expected one from element 4 to at most 6"},
    {"[1,4,6]", "[1,4,4]", "slices[1] is [4, 4); expected one from element 4 to at most 6"},
    {",[1,4,6]", "", "parameter a: slices end at element 4 of 6"},
    {"\"t\":7", "\"t\":-1", "index.json: t must be a whole number from 0 to"},
    {"\"step\":7", "\"step\":\"7\"", "index.json: step must be a whole number from 0 to"},
    {"\"step\":7", "\"step\":-7", "index.json: step must be a whole number from 0 to"},
    {"\"" SEED "\"", "7", "index.json: data_seed must be a whole number, as a text"},
    {SEED, "18446744073709551616", "index.json: data_seed must be a whole number, as a text"},
    {SEED, "-1", "index.json: data_seed must be a whole number, as a text"},
    {SEED, "7 ", "index.json: data_seed must be a whole number, as a text"},
    {"1024.0", "0.0", "index.json: loss_scale: scale must be a positive number"},
    {"1024.0", "\"much\"", "index.json: loss_scale: scale must be a positive number"},
    {"1024.0", "1e300", "index.json: loss_scale: scale must be a positive number"},
    {"_tracker\":3", "_tracker\":-3", "growth_tracker must be a whole number from 0 to"},
    {"\"step\":7", "\"step\":7,\"sequences\":-1", "sequences must be a whole number from 0 to"},
    {"\"step\":7", "\"step\":7,\"best_loss\":\"1\"", "best_loss must be a number"},
    {"\"step\":7", "\"step\":7,\"heads\":0", "heads must be a whole number from 1 to"},
};

// Reads the folder's index. "" or, where it was refused, the line (free it).
static char *read_it(CheckpointIndex *index)
{
    int lines;
    said_begin();
    Status status = index_read(index, own_folder);
    char *said = said_end(&lines);
    if ((status == OK) != (lines == 0) || lines > 1 || (status != OK && status != ERR_IO))
        fail_msg("status %d and %d lines: %s", status, lines, said);
    if (status != OK && (index->entries != NULL || index->dir != NULL || index->n != 0))
        fail_msg("an index that was refused has left something: %s", said);
    return said;
}

static void write_index(const char *text)
{
    write_bytes(in_folder(own_folder, "index.json"), text, strlen(text));
}

TEST_BETWEEN(refuses_in_one_line, own_folder_begin, own_folder_end)
{
    CheckpointIndex index;
    char text[1024], name[120];
    write_index(GOOD);
    free(read_it(&index));
    assert_int_equal(index.n, 2);
    assert_true(index.position.data_seed == UINT64_MAX && index.position.growth_tracker == 3);
    index_free(&index);
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        const char *at = strstr(GOOD, REFUSED[i].old);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - GOOD), GOOD, REFUSED[i].new,
                 at + strlen(REFUSED[i].old));
        write_index(text);
        char *said = read_it(&index);
        if (strstr(said, "/index.json: ") == NULL || strstr(said, REFUSED[i].says) == NULL)
            fail_msg("\"%s\" in place of \"%s\": want a line with \"%s\", got: %s", REFUSED[i].new,
                     REFUSED[i].old, REFUSED[i].says, said);
        free(said);
    }
    memset(name, 'x', sizeof name - 1); // longer than a name can be
    name[sizeof name - 1] = '\0';
    const char *b = strstr(GOOD, "\"b\"");
    snprintf(text, sizeof text, "%.*s\"%s\"%s", (int)(b - GOOD), GOOD, name, b + 3);
    write_index(text);
    char *said = read_it(&index);
    assert_non_null(strstr(said, "a name has at most 79 bytes"));
    free(said);
    assert_int_equal(truncate(in_folder(own_folder, "index.json"), (64 << 20) + 1), 0);
    said = read_it(&index);
    assert_non_null(strstr(said, "index.json: has 67108865 bytes, at most 67108864 are read"));
    free(said);
}

// Some bytes of the text become others, are left out or come twice.
static void change(char *text, uint64_t *state)
{
    static const char BYTES[] = "0123456789-.e\"[]{},:ab\\\001\377";
    uint64_t x = *state = *state * 6364136223846793005u + 1442695040888963407u;
    for (uint64_t left = 1 + (x >> 33) % 4; left > 0; left--) {
        x = *state = *state * 6364136223846793005u + 1442695040888963407u;
        size_t n = strlen(text), at = (x >> 33) % n;
        char byte = BYTES[(x >> 20) % (sizeof BYTES - 1)];
        if (x >> 62 == 0)
            memmove(text + at, text + at + 1, n - at);
        else if (x >> 62 == 1)
            memmove(text + at + 1, text + at, n - at + 1);
        else
            text[at] = byte;
    }
}

TEST_BETWEEN(is_read_or_refused, own_folder_begin, own_folder_end)
{
    uint64_t seed = 15;
    int taken = 0;
    for (int i = 0, n = (int)setting("INDEX_FILES", 1500); i < n; i++) {
        CheckpointIndex index;
        char text[1024];
        strcpy(text, GOOD);
        change(text, &seed);
        write_index(text);
        char *said = read_it(&index);
        taken += said[0] == '\0';
        for (int e = 0; e < index.n; e++) { // of one that was taken
            int64_t at = 0;
            for (int s = 0; s < index.entries[e].n_slices; s++) {
                const CheckpointSlice *slice = &index.entries[e].slices[s];
                if (slice->file < 0 || slice->file >= index.n_files || slice->begin != at ||
                    slice->end <= at)
                    fail_msg("slice %d of %s was taken: %s", s, index.entries[e].name, text);
                at = slice->end;
            }
            if (at != index.entries[e].numel)
                fail_msg("%s is not covered: %s", index.entries[e].name, text);
        }
        if (said[0] == '\0') index_free(&index);
        free(said);
    }
    if (taken == 0) fail_msg("no index was taken");
}

// File 1 of GOOD: elements 4 and 5 of a and all of b, with their moments.
static void write_file(int numel, SafetensorsType type, int left_out)
{
    static const char *const NAMES[] = {"a", "a.adamw.m", "a.adamw.v",
                                        "b", "b.adamw.m", "b.adamw.v"};
    CheckpointLabel label;
    SafetensorsEntry entries[6];
    Safetensors file;
    double values[8] = {0};
    int n = 0;
    for (int i = 0; i < 6; i++)
        if (i != left_out)
            entries[n++] = (SafetensorsEntry){.name = (char *)(uintptr_t)NAMES[i],
                                              .type = i == 4 ? type : SAFETENSORS_F32,
                                              .ndim = 1,
                                              .shape = {i >= 3   ? 5
                                                        : i == 2 ? numel
                                                                 : 2}};
    unlink(in_folder(own_folder, "rank-1-of-2.safetensors"));
    checkpoint_label(&label, 1, 2, 7);
    assert_int_equal(safetensors_create(&file, in_folder(own_folder, "rank-1-of-2.safetensors"),
                                        entries, n, label.texts, 2),
                     OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(safetensors_write(&file, i, 0, entries[i].shape[0], values), OK);
    assert_int_equal(safetensors_finish(&file), OK);
    safetensors_close(&file);
}

static void file_is_refused(const CheckpointIndex *index, const char *says)
{
    int lines;
    said_begin();
    Status status = index_check_file(index, 1);
    char *said = said_end(&lines);
    if (status != ERR_IO || lines != 1 || strstr(said, says) == NULL)
        fail_msg("status %d, %d lines, want one with \"%s\": %s", status, lines, says, said);
    free(said);
}

TEST_BETWEEN(files_are_as_the_index_says, own_folder_begin, own_folder_end)
{
    CheckpointIndex index;
    write_index(GOOD);
    free(read_it(&index));
    write_file(2, SAFETENSORS_F32, -1);
    assert_int_equal(index_check_file(&index, 1), OK);
    write_file(3, SAFETENSORS_F32, -1);
    file_is_refused(&index, "tensor a.adamw.v has 3 elements of F32; expected 2 of F32");
    write_file(2, SAFETENSORS_F16, -1);
    file_is_refused(&index, "tensor b.adamw.m has 5 elements of F16; expected 5 of F32");
    write_file(2, SAFETENSORS_F32, 3);
    file_is_refused(&index, "has no tensor b, of which the index expects 5 elements");
    write_file(2, SAFETENSORS_F32, 1);
    file_is_refused(&index, "has no tensor a.adamw.m, of which the index expects 2 elements");
    index_free(&index);
}

SUITE_MAIN("checkpoint index")
