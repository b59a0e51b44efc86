/* tokens.c: files of tokens, mapped; and the order in which their sequences are drawn. See
 * tokens.h.
 */
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mix.h"

enum { HEADER = 256 }; // int32

// ---- Files ----

// Of the words of a header; false: it is none, and the file has tokens alone.
static Status read_header(TokenFile *file)
{
    static const struct {
        int32_t magic, version;
        int width;
    } KINDS[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    int32_t words[3] = {0};
    file->width = 2;
    if (file->bytes >= sizeof words) memcpy(words, file->map, sizeof words);
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (words[0] != KINDS[i].magic) continue;
        file->width = KINDS[i].width;
        file->header = HEADER * sizeof(int32_t);
        if (words[1] != KINDS[i].version)
            return fail(ERR_IO, "%s: its header has version %d, and version %d is read", file->path,
                        words[1], KINDS[i].version);
        file->tokens = words[2];
        int64_t want = (int64_t)file->header + file->tokens * file->width;
        if (file->tokens < 0 || (int64_t)file->bytes != want)
            return fail(ERR_IO,
                        "%s: its header says %d tokens, which is %lld bytes, and it has %zu%s",
                        file->path, words[2], (long long)want, file->bytes,
                        (int64_t)file->bytes < want ? ": it is truncated" : "");
        return OK;
    }
    if (file->bytes % 2 != 0)
        return fail(
            ERR_IO,
            "%s: has %zu bytes, and tokens without a header have two each: it is truncated, "
            "or not a file of tokens",
            file->path, file->bytes);
    file->tokens = (int64_t)file->bytes / 2;
    return OK;
}

static Status map_file(TokenFile *file)
{
    struct stat info;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        if (fd >= 0) close(fd);
        return fail(ERR_IO, "%s: cannot be opened: %s", file->path, strerror(errno));
    }
    void *map = MAP_FAILED;
    if (S_ISREG(info.st_mode) && info.st_size > 0)
        map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return fail(ERR_IO, "%s: cannot be mapped: %s", file->path,
                    !S_ISREG(info.st_mode) ? "it is not a regular file"
                    : info.st_size == 0    ? "it is empty"
                                           : strerror(errno));
    file->map = map;
    file->bytes = (size_t)info.st_size;
    return read_header(file);
}

static int32_t token_at(const TokenFile *file, int64_t i)
{
    const char *tokens = (const char *)file->map + file->header;
    uint16_t narrow;
    uint32_t wide;
    if (file->width == 2) {
        memcpy(&narrow, tokens + 2 * i, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, tokens + 4 * i, sizeof wide);
    return wide > INT32_MAX ? INT32_MAX : (int32_t)wide; // no vocabulary has it
}

// Tokens [first, last) of the file are below vocab.
static Status check_range(const Tokens *tokens, const TokenFile *file, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++)
        if (token_at(file, i) >= tokens->vocab)
            return fail(ERR_IO, "%s: token number %lld is %d, and the model's vocabulary has %d",
                        file->path, (long long)i, token_at(file, i), tokens->vocab);
    return OK;
}

static Status open_file(Tokens *tokens, const char *path)
{
    TokenFile *file = &tokens->files[tokens->n++];
    *file = (TokenFile){.path = strdup(path)};
    if (file->path == NULL) return fail(ERR_MEMORY, "%s: no host memory", path);
    TRY(map_file(file));
    file->sequences = file->tokens > 0 ? (file->tokens - 1) / tokens->T : 0;
    tokens->tokens += file->tokens;
    tokens->sequences += file->sequences;
    return OK;
}

static Status open_all(Tokens *tokens, const char *pattern, const glob_t *found)
{
    tokens->files = calloc(found->gl_pathc, sizeof *tokens->files);
    if (tokens->files == NULL) return fail(ERR_MEMORY, "%s: no host memory", pattern);
    for (size_t i = 0; i < found->gl_pathc; i++) TRY(open_file(tokens, found->gl_pathv[i]));
    if (tokens->sequences == 0)
        return fail(ERR_ARGUMENT, "%s: %lld tokens, and a sequence takes %d and one more", pattern,
                    (long long)tokens->tokens, tokens->T);
    for (int i = 0; i < tokens->n && tokens->tokens <= TOKENS_LOOKED_AT; i++)
        TRY(check_range(tokens, &tokens->files[i], 0, tokens->files[i].tokens));
    return OK;
}

Status tokens_open(Tokens *tokens, const char *pattern, int vocab, int T)
{
    glob_t found;
    *tokens = (Tokens){.T = T, .vocab = vocab};
    if (glob(pattern, GLOB_NOCHECK, NULL, &found) != 0)
        return fail(ERR_IO, "%s: no such file can be looked for", pattern);
    Status status = open_all(tokens, pattern, &found);
    globfree(&found);
    if (status != OK) tokens_close(tokens);
    return status;
}

void tokens_close(Tokens *tokens)
{
    for (int i = 0; i < tokens->n; i++) {
        if (tokens->files[i].map != NULL) munmap(tokens->files[i].map, tokens->files[i].bytes);
        free(tokens->files[i].path);
    }
    free(tokens->files);
    memset(tokens, 0, sizeof *tokens);
}

// ---- Sequences ----

// The file that has the sequence, and its first token there.
static const TokenFile *find_sequence(const Tokens *tokens, int64_t i, int64_t *first)
{
    const TokenFile *file = tokens->files;
    for (; i >= file->sequences; file++) i -= file->sequences;
    *first = i * tokens->T;
    return file;
}

void tokens_sequence(const Tokens *tokens, int64_t i, int32_t *in, int32_t *targets)
{
    int64_t first;
    const TokenFile *file = find_sequence(tokens, i, &first);
    for (int t = 0; t < tokens->T; t++) {
        in[t] = token_at(file, first + t);
        targets[t] = token_at(file, first + t + 1);
    }
}

Status tokens_check_sequence(const Tokens *tokens, int64_t i)
{
    int64_t first;
    const TokenFile *file = find_sequence(tokens, i, &first);
    return check_range(tokens, file, first, first + tokens->T + 1);
}

// A permutation of [0, 4^half) that needs no memory: four rounds of a Feistel network.
static uint64_t permute(uint64_t x, int half, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;
    for (int round = 0; round < 4; round++) {
        uint64_t next = left ^ (mix(key ^ mix(right << 2 | (uint64_t)round)) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

// Of numbers that are too large the permutation is asked again until one is not: as it is one to
// one, what is left is a permutation, too.
int64_t tokens_drawn(const Tokens *tokens, uint64_t seed, uint64_t drawn)
{
    uint64_t n = (uint64_t)tokens->sequences, x = drawn % n, key = mix(seed ^ mix(drawn / n));
    int half = 1;
    while ((uint64_t)1 << 2 * half < n) half++;
    do x = permute(x, half, key);
    while (x >= n);
    return (int64_t)x;
}
