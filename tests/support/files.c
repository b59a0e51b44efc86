/* files.c: see files.h. */
#define _GNU_SOURCE // nftw, memfd_create
#include "files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

void make_folder(char folder[PATH_BYTES])
{
    const char *where = getenv("TMPDIR");
    snprintf(folder, PATH_BYTES, "%s/shardlab-test-XXXXXX", where != NULL ? where : "/tmp");
    if (mkdtemp(folder) == NULL) fail_msg("no folder %s can be made", folder);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    return remove(path);
}

void remove_folder(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char own_folder[PATH_BYTES];

int own_folder_begin(void **state)
{
    make_folder(own_folder);
    return 0;
}

int own_folder_end(void **state)
{
    remove_folder(own_folder);
    return 0;
}

const char *in_folder(const char *folder, const char *name)
{
    static char buffers[4][PATH_BYTES + 128];
    static unsigned turn;
    char *path = buffers[turn++ % 4];
    snprintf(path, sizeof buffers[0], "%s/%s", folder, name);
    return path;
}

void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(bytes, 1, n, file) == n;
    if (file == NULL || fclose(file) != 0 || !good) fail_msg("the test cannot write %s", path);
}

void write_header(const char *path, const char *header, size_t data_bytes)
{
    size_t length = strlen(header), n = 8 + length + data_bytes;
    unsigned char *bytes = malloc(n);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++) bytes[8 + length + i] = (unsigned char)i;
    write_bytes(path, bytes, n);
    free(bytes);
}

void cut_file(const char *path, size_t bytes)
{
    FILE *file = fopen(path, "r+"); // truncate(), by name, is refused where Landlock is old

    if (file == NULL || ftruncate(fileno(file), (off_t)bytes) != 0) fail_msg("%s: not cut", path);
    fclose(file);
}

void move_file(const char *from, const char *to)
{
    char bytes[1 << 16];
    size_t n;

    if (rename(from, to) == 0) return;
    // To another folder, which Landlock refuses in its first version.
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (in == NULL || out == NULL) fail_msg("%s cannot be moved to %s", from, to);
    while ((n = fread(bytes, 1, sizeof bytes, in)) > 0)
        if (fwrite(bytes, 1, n, out) != n) fail_msg("%s cannot be written", to);
    fclose(in);
    fclose(out);
    unlink(from);
}

static int kept_error = -1;
static FILE *said;

void said_begin(void)
{
    fflush(stderr);
    said = fdopen(memfd_create("said", MFD_CLOEXEC), "w+");
    kept_error = dup(STDERR_FILENO);
    if (said == NULL || kept_error < 0 || dup2(fileno(said), STDERR_FILENO) < 0)
        fail_msg("standard error cannot be kept");
}

char *said_end(int *lines)
{
    fflush(stderr);
    dup2(kept_error, STDERR_FILENO);
    close(kept_error);
    fseek(said, 0, SEEK_END);
    size_t n = (size_t)ftell(said);
    char *text = calloc(n + 1, 1);
    rewind(said);
    if (fread(text, 1, n, said) != n) fail_msg("what was said cannot be read");
    fclose(said);
    *lines = 0;
    for (size_t i = 0; i < n; i++) *lines += text[i] == '\n';
    return text;
}
