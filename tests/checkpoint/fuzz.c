/* Safetensors files that are valid, changed at random, and files of random bytes; and indexes of
 * folders of them, likewise. Whatever is in one, it is opened, and then all of it can be read, or
 * it is refused with one line. This program
 * and the code that reads are built with the address sanitizer. SAFETENSORS_FILES=100000 for so
 * many.
 */
#include "draw.h"
#include "files.h"
#include "harness.h"
#include "safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 4096 };

static const char VALID[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
    "\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"c\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[32,40]},"
    "\"d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[40,40]}}";
static const char *const WORDS[] = {"0",
                                    "-1",
                                    "1e3",
                                    "9223372036854775807",
                                    "18446744073709551616",
                                    "4611686018427387904",
                                    "[]",
                                    "{}",
                                    "[[",
                                    "null",
                                    "\"F32\"",
                                    "\"F16\"",
                                    "\"dtype\":",
                                    "\"shape\":",
                                    "\"data_offsets\":",
                                    "\"b\":",
                                    "\\u0000",
                                    "\"",
                                    ",",
                                    ":",
                                    "}",
                                    "{",
                                    "\xff",
                                    "24",
                                    "32",
                                    "[0,24]",
                                    "true"};

static size_t build(unsigned char *bytes, const char *header, size_t length, uint64_t says)
{
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(says >> (8 * i));
    memcpy(bytes + 8, header, length);
    memset(bytes + 8 + length, 7, 40);
    return 8 + length + 40;
}

// Removes up to 12 bytes at a place and puts a word there, in a text of *n bytes.
static void splice(char *text, size_t *n, const char *word)
{
    size_t at = (size_t)draw(0, (int)*n), cut = (size_t)draw(0, 12), length = strlen(word);
    if (cut > *n - at) cut = *n - at;
    if (*n - cut + length > MOST - 64) return;
    memmove(text + at + length, text + at + cut, *n - at - cut);
    memcpy(text + at, word, length);
    *n += length - cut;
}

static size_t draw_file(unsigned char *bytes)
{
    char header[MOST];
    size_t length = strlen(VALID);
    memcpy(header, VALID, length);
    if (draw_chance(10)) { // nothing but random bytes, of which the length may be small
        size_t n = (size_t)draw(0, 200);
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)draw(0, 255);
        if (n > 8 && draw_chance(70)) memset(bytes + 1, 0, 7);
        return n;
    }
    for (int i = draw(0, 3); i > 0; i--) splice(header, &length, draw_of(WORDS));
    for (int i = draw(0, 2); i > 0; i--)
        if (length > 0) header[draw(0, (int)length - 1)] = (char)draw(0, 255);
    uint64_t says = draw_chance(90)   ? length
                    : draw_chance(50) ? draw_word()
                                      : (uint64_t)draw(0, 600);
    size_t n = build(bytes, header, length, says);
    if (draw_chance(10)) n = (size_t)draw(0, (int)n);
    return n;
}

// All of an open file can be read, and its tensors are the data.
static void read_everything(const Safetensors *file, size_t n, int *opened)
{
    int64_t at = 0;
    for (int i = 0; i < file->n; i++) {
        const SafetensorsEntry *entry = &file->entries[i];
        int64_t bytes = entry->end - entry->begin;
        assert_true(entry->begin == at && bytes >= 0);
        char *values = malloc((size_t)bytes + 1);
        assert_int_equal(safetensors_read(file, entry, 0, entry->numel, values), OK);
        assert_true(safetensors_find(file, entry->name) != NULL);
        free(values);
        at = entry->end;
    }
    assert_true(file->data_at + at == (int64_t)n);
    ++*opened;
}

TEST(any_file_is_read_or_refused)
{
    static unsigned char bytes[MOST];
    char folder[PATH_BYTES];
    int opened = 0, refused = 0;
    make_folder(folder);
    const char *path = in_folder(folder, "fuzz.safetensors");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    check_set_silent(true);
    for (int i = 0, n = (int)setting("SAFETENSORS_FILES", 3000); i < n; i++) {
        Safetensors file;
        drawn("file number %d", i);
        size_t length = draw_file(bytes);
        if (ftruncate(fd, (off_t)length) != 0 || pwrite(fd, bytes, length, 0) != (ssize_t)length)
            fail_msg("the test cannot write %s", path);
        Status status = safetensors_open(&file, path);
        if (status == OK) {
            read_everything(&file, length, &opened);
            safetensors_close(&file);
            continue;
        }
        refused++;
        if (status != ERR_IO || strstr(check_last(), path) == NULL ||
            strchr(check_last(), '\n') != NULL)
            fail_msg("file %d: status %d: %s", i, status, check_last());
    }
    check_set_silent(false);
    close(fd);
    remove_folder(folder);
    if (opened < 10 || refused < 10) fail_msg("%d opened, %d refused", opened, refused);
}

// ---- Indexes ----

static const char INDEX[] =
    "{\"metadata\":{\"total_size\":3},\"weight_map\":{\"a\":\"1.safetensors\","
    "\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";
static const char *const INDEX_WORDS[] = {"\"a\":",
                                          "\"b\":",
                                          "\"d\":",
                                          "\"1.safetensors\"",
                                          "\"2.safetensors\"",
                                          "\"3.safetensors\"",
                                          "\"../1.safetensors\"",
                                          "\"weight_map\":",
                                          "\"c\":\"2.safetensors\",",
                                          "{",
                                          "}",
                                          "[]",
                                          "null",
                                          "1e9",
                                          "\"",
                                          ",",
                                          "\\n",
                                          "\\u0000",
                                          "\xff",
                                          ""};

// What is opened is one of the files or both, each tensor once.
static void check_set(const SafetensorsSet *set)
{
    assert_in_range(set->n, 1, 2);
    for (int i = 0; i < set->n; i++)
        for (int e = 0; e < set->files[i].n; e++) {
            const Safetensors *file = NULL;
            const char *name = set->files[i].entries[e].name;
            assert_ptr_equal(safetensors_set_find(set, name, &file), &set->files[i].entries[e]);
            assert_ptr_equal(file, &set->files[i]);
        }
}

TEST(any_index_is_read_or_refused)
{
    char folder[PATH_BYTES], text[MOST];
    int opened = 0, refused = 0;
    make_folder(folder);
    write_header(in_folder(folder, "1.safetensors"),
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                 3);
    write_header(in_folder(folder, "2.safetensors"),
                 "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    check_set_silent(true);
    for (int i = 0, n = (int)setting("SAFETENSORS_FILES", 3000); i < n; i++) {
        SafetensorsSet set;
        size_t length = strlen(INDEX);
        drawn("index number %d", i);
        memcpy(text, INDEX, length);
        for (int edits = draw(0, 3); edits > 0; edits--)
            splice(text, &length, draw_of(INDEX_WORDS));
        if (draw_chance(20) && length > 0) text[draw(0, (int)length - 1)] = (char)draw(0, 255);
        write_bytes(in_folder(folder, "model.safetensors.index.json"), text, length);
        Status status = safetensors_set_open(&set, folder);
        if (status == OK) {
            check_set(&set);
            safetensors_set_close(&set);
            opened++;
            continue;
        }
        refused++;
        if (status != ERR_IO || strstr(check_last(), folder) == NULL ||
            strchr(check_last(), '\n') != NULL)
            fail_msg("index %d: status %d: %s", i, status, check_last());
    }
    check_set_silent(false);
    remove_folder(folder);
    if (opened < 10 || refused < 10) fail_msg("%d opened, %d refused", opened, refused);
}

SUITE_MAIN("fuzz")
