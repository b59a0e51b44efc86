/* The safetensors files of lib/checkpoint: what is written is read again, by slices in any order;
 * and what is not as the format says is refused with one line that names the file and the field.
 */
#include "safetensors.h"
#include "files.h"
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- What is written is read ----

static const SafetensorsEntry THREE[] = {
    {.name = (char *)"a", .type = SAFETENSORS_F32, .ndim = 2, .shape = {3, 5}},
    {.name = (char *)"b.\"odd\" name", .type = SAFETENSORS_BF16, .ndim = 1, .shape = {7}},
    {.name = (char *)"empty", .type = SAFETENSORS_I64, .ndim = 2, .shape = {0, 9}},
    {.name = (char *)"one", .type = SAFETENSORS_F64, .ndim = 0},
};

static void write_three(const char *path)
{
    const SafetensorsText texts[] = {{(char *)"format", (char *)"pt"}};
    float a[15];
    uint16_t b[7];
    double one = 2.5;
    Safetensors file;
    for (int i = 0; i < 15; i++) a[i] = (float)i / 8;
    for (int i = 0; i < 7; i++) b[i] = (uint16_t)(1000 + i);
    assert_int_equal(safetensors_create(&file, path, THREE, 4, texts, 1), OK);
    assert_int_equal(safetensors_write(&file, 3, 0, 1, &one), OK);
    assert_int_equal(safetensors_write(&file, 0, 10, 5, a + 10), OK); // in any order
    assert_int_equal(safetensors_write(&file, 1, 0, 7, b), OK);
    assert_int_equal(safetensors_write(&file, 0, 0, 10, a), OK);
    assert_int_equal(safetensors_finish(&file), OK);
}

TEST_BETWEEN(reads_what_was_written, own_folder_begin, own_folder_end)
{
    const char *path = in_folder(own_folder, "three.safetensors");
    Safetensors file;
    float a[4];
    uint16_t b[7];
    double one = 0;
    write_three(path);
    assert_int_equal(safetensors_open(&file, path), OK);
    assert_int_equal(file.n, 4);
    assert_int_equal(file.data_at % 8, 0);
    assert_string_equal(safetensors_text(&file, "format"), "pt");
    assert_null(safetensors_text(&file, "other"));
    assert_null(safetensors_find(&file, "c"));
    const SafetensorsEntry *entry = safetensors_find(&file, "a");
    assert_true(entry->ndim == 2 && entry->shape[0] == 3 && entry->shape[1] == 5);
    assert_int_equal(safetensors_read(&file, entry, 9, 4, a), OK);
    for (int i = 0; i < 4; i++) assert_true(a[i] == (float)(9 + i) / 8);
    entry = safetensors_find(&file, "b.\"odd\" name");
    assert_true(entry != NULL && entry->type == SAFETENSORS_BF16);
    assert_int_equal(safetensors_read(&file, entry, 0, 7, b), OK);
    for (int i = 0; i < 7; i++) assert_int_equal(b[i], 1000 + i);
    entry = safetensors_find(&file, "one");
    assert_true(entry->ndim == 0 && entry->numel == 1);
    assert_int_equal(safetensors_read(&file, entry, 0, 1, &one), OK);
    assert_true(one == 2.5);
    assert_int_equal(safetensors_find(&file, "empty")->numel, 0);
    said_begin();
    assert_int_equal(safetensors_read(&file, entry, 1, 1, &one), ERR_ARGUMENT);
    int lines;
    free(said_end(&lines));
    assert_int_equal(lines, 1);
    safetensors_close(&file);
    safetensors_close(&file); // once more is fine
}

// The bytes of a small file, by hand from the format's description.
TEST_BETWEEN(writes_the_format, own_folder_begin, own_folder_end)
{
    static const char HEADER[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    const SafetensorsEntry x = {.name = (char *)"x", .ndim = 1, .shape = {2}};
    const char *path = in_folder(own_folder, "x.safetensors");
    const float values[2] = {1.0f, -2.0f};
    unsigned char bytes[256];
    Safetensors file;
    assert_int_equal(safetensors_create(&file, path, &x, 1, NULL, 0), OK);
    assert_int_equal(safetensors_write(&file, 0, 0, 2, values), OK);
    assert_int_equal(safetensors_finish(&file), OK);
    FILE *stream = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    size_t length = bytes[0];
    for (int i = 1; i < 8; i++) assert_int_equal(bytes[i], 0);
    assert_true(length % 8 == 0 && length >= strlen(HEADER));
    assert_int_equal(n, 8 + length + 8);
    assert_memory_equal(bytes + 8, HEADER, strlen(HEADER));
    for (size_t i = strlen(HEADER); i < length; i++) assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + length, "\0\0\x80\x3f\0\0\0\xc0", 8);
}

// ---- What is not as the format says ----

#define T(dtype, shape, offsets)                                                                   \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

TEST_BETWEEN(refuses_what_is_wrong, own_folder_begin, own_folder_end)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says; // two words or fewer that the line must have, apart from the file's name
    } table[] = {
        {"", 0, "'{'"},
        {"[]", 0, "'{'"},
        {" {}", 0, "'{'"},
        {"{", 0, "not JSON"},
        {"{} {}", 0, "not JSON"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[0,4]") "}", 4, "uplicate"},
        {"{\"a\\u0000b\":" T("F32", "[1]", "[0,4]") "}", 4, "not JSON"},
        {"{\"\xff\":" T("F32", "[1]", "[0,4]") "}", 4, "not JSON"},
        {"{\"a\":3}", 0, "tensor a: must be an object"},
        {"{\"a\":[]}", 0, "tensor a: must be an object"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor a: shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
         "tensor a: has a field more"},
        {"{\"a\":" T("F33", "[1]", "[0,4]") "}", 4, "tensor a: dtype F33 is unknown"},
        {"{\"a\":" T("f32", "[1]", "[0,4]") "}", 4, "tensor a: dtype f32 is unknown"},
        {"{\"a\":" T("F32", "1", "[0,4]") "}", 4, "tensor a: shape"},
        {"{\"a\":" T("F32", "[1.0]", "[0,4]") "}", 4, "tensor a: shape[0]"},
        {"{\"a\":" T("F32", "[1,-1]", "[0,4]") "}", 4, "tensor a: shape[1]"},
        {"{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", 4, "tensor a: shape[0]"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "9 dimensions"},
        {"{\"a\":" T("F32", "[99999999999999999999]", "[0,4]") "}", 4, "not JSON"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "64 bits"},
        {"{\"a\":" T("F64", "[2305843009213693952]", "[0,0]") "}", 0, "64 bits"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "tensor a: data_offsets must be two"},
        {"{\"a\":" T("F32", "[1]", "[0,4,8]") "}", 4, "tensor a: data_offsets must be two"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "tensor a: data_offsets [4, 0]"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "tensor a: data_offsets [-4, 0]"},
        {"{\"a\":" T("F32", "[1]", "[-9223372036854775808,9223372036854775807]") "}", 4,
         "tensor a: data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[0,5]") "}", 5, "tensor a: data_offsets hold 5 bytes"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 7, "it is truncated"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 9, "describes 8 bytes"},
        {"{}", 1, "describes 0 bytes"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 12,
         "tensor b: begins at byte 8"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "tensor a: begins at byte 4"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[4,12]") "}", 12,
         "tensor b: begins at byte 4 of the data, inside of tensor a"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 4,
         "inside of tensor"},
        {"{\"__metadata__\":3}", 0, "__metadata__ must be"},
        {"{\"__metadata__\":{\"k\":3}}", 0, "__metadata__: k must be a text"},
        {"{\"two\\nlines\":3}", 0, "tensor two?lines"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *path = in_folder(own_folder, "wrong.safetensors");
        Safetensors file;
        int lines;
        write_header(path, table[i].header, table[i].data);
        said_begin();
        Status status = safetensors_open(&file, path);
        char *said = said_end(&lines);
        if (status != ERR_IO || lines != 1 || strstr(said, path) == NULL ||
            strstr(said, table[i].says) == NULL)
            fail_msg("%s (%zu bytes of data): status %d, want one line that has '%s', not: %s",
                     table[i].header, table[i].data, status, table[i].says, said);
        assert_true(file.path == NULL);
        free(said);
    }
}

// What is wrong with the first eight bytes, or with the file itself.
TEST_BETWEEN(refuses_what_is_no_file, own_folder_begin, own_folder_end)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } table[] = {
        {"", 0, "has 0 bytes"},
        {"\2\0\0\0\0\0\0", 7, "has 7 bytes"},
        {"\3\0\0\0\0\0\0\0{}", 10, "header length 3, and only 2 bytes follow"},
        {"\1\0\200\0\0\0\0\0{}", 10, "header length 8388609; at most 8388608"},
        {"\377\377\377\377\377\377\377\377{}", 10, "header length 18446744073709551615"},
        {"\370\377\377\377\377\377\377\377{}", 10, "header length"}, // and 8 more are 0
    };
    const char *path = in_folder(own_folder, "short.safetensors");
    Safetensors file;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int lines;
        write_bytes(path, table[i].bytes, table[i].n);
        said_begin();
        Status status = safetensors_open(&file, path);
        char *said = said_end(&lines);
        if (status != ERR_IO || lines != 1 || strstr(said, table[i].says) == NULL)
            fail_msg("file %zu: status %d, want one line that has '%s', not: %s", i, status,
                     table[i].says, said);
        free(said);
    }
    int lines;
    said_begin();
    assert_int_equal(safetensors_open(&file, in_folder(own_folder, "missing")), ERR_IO);
    assert_int_equal(safetensors_open(&file, own_folder), ERR_IO);
    assert_int_equal(mkfifo(in_folder(own_folder, "pipe"), 0600), 0);
    assert_int_equal(safetensors_open(&file, in_folder(own_folder, "pipe")), ERR_IO);
    free(said_end(&lines));
    assert_int_equal(lines, 3);
}

// An empty list of tensors is a file; blanks may fill up the header; F8 and BOOL are known.
TEST_BETWEEN(takes_what_is_right, own_folder_begin, own_folder_end)
{
    static const char *const HEADERS[] = {
        "{}", "{}        ", "{\"__metadata__\":{}}",
        "{\"b\":" T("BOOL", "[2]", "[2,4]") ",\"a\":" T("F8_E4M3", "[2,1]", "[0,2]") "}"};
    static const size_t DATA[] = {0, 0, 0, 4};
    for (size_t i = 0; i < 4; i++) {
        Safetensors file;
        write_header(in_folder(own_folder, "right"), HEADERS[i], DATA[i]);
        assert_int_equal(safetensors_open(&file, in_folder(own_folder, "right")), OK);
        if (file.n == 2) assert_string_equal(file.entries[0].name, "a"); // in the order of data
        safetensors_close(&file);
    }
}

// ---- Writing that fails leaves nothing ----

TEST_BETWEEN(removes_what_is_not_finished, own_folder_begin, own_folder_end)
{
    const SafetensorsEntry twice[] = {{.name = (char *)"a", .ndim = 1, .shape = {1}},
                                      {.name = (char *)"a", .ndim = 1, .shape = {1}}};
    const char *path = in_folder(own_folder, "half.safetensors");
    const float values[16] = {0};
    Safetensors file;
    int lines;
    said_begin();
    assert_int_equal(safetensors_create(&file, path, THREE, 4, NULL, 0), OK);
    assert_int_equal(safetensors_create(&file, path, THREE, 1, NULL, 0), ERR_IO); // it is there
    unlink(path);
    assert_int_equal(safetensors_create(&file, path, twice, 2, NULL, 0), ERR_ARGUMENT);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(safetensors_create(&file, path, THREE, 4, NULL, 0), OK);
    assert_int_equal(safetensors_write(&file, 0, 10, 6, values), ERR_ARGUMENT);
    assert_int_equal(safetensors_write(&file, 4, 0, 1, values), ERR_ARGUMENT);
    assert_int_equal(safetensors_write(&file, 0, 0, 15, values), OK);
    assert_int_equal(safetensors_finish(&file), ERR_ARGUMENT); // the others are missing
    assert_int_equal(access(path, F_OK), -1);
    free(said_end(&lines));
    assert_int_equal(lines, 5);
}

TEST_BETWEEN(a_full_disk_is_one_line, own_folder_begin, own_folder_end)
{
    const SafetensorsEntry large = {.name = (char *)"a", .ndim = 1, .shape = {1 << 16}};
    const char *path = in_folder(own_folder, "full.safetensors");
    float *values = calloc(1 << 16, sizeof *values);
    struct rlimit before, small;
    Safetensors file;
    int lines;
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){100000, before.rlim_max};
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(safetensors_create(&file, path, &large, 1, NULL, 0), OK);
    said_begin();
    setrlimit(RLIMIT_FSIZE, &small);
    Status status = safetensors_write(&file, 0, 0, 1 << 16, values);
    setrlimit(RLIMIT_FSIZE, &before);
    char *said = said_end(&lines);
    signal(SIGXFSZ, was);
    assert_int_equal(status, ERR_IO);
    assert_int_equal(lines, 1);
    if (strstr(said, path) == NULL || strstr(said, "cannot write") == NULL) fail_msg("%s", said);
    safetensors_close(&file);
    assert_int_equal(access(path, F_OK), -1);
    free(said);
    free(values);
}

SUITE_MAIN("safetensors")
