/* Files of tokens: each kind as its authors write it, what is refused in one line, and the order in
 * which sequences are drawn.
 */
#include "files.h"
#include "harness.h"
#include "tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LLM_C_GPT2 = 20240520, LLM_C_LLAMA = 20240801, HEADER_BYTES = 1024, MOST = 4096 };

// A file of tokens first, first + 1 …; magic 0: nanoGPT's. Its header claims `says` of them.
static void write_tokens(const char *name, int magic, int version, int n, int says, int first)
{
    static unsigned char bytes[HEADER_BYTES + 4 * MOST];
    int32_t header[3] = {magic, version, says};
    size_t width = magic == LLM_C_LLAMA ? 4 : 2, at = magic != 0 ? HEADER_BYTES : 0;
    memset(bytes, 0, sizeof bytes);
    if (magic != 0) memcpy(bytes, header, sizeof header);
    for (int i = 0; i < n; i++, at += width) {
        uint32_t token = (uint32_t)(first + i); // the machine is little-endian, as their files are
        memcpy(bytes + at, &token, width);
    }
    write_bytes(in_folder(own_folder, name), bytes, at);
}

TEST_BETWEEN(reads_each_kind, own_folder_begin, own_folder_end)
{
    static const int KINDS[][3] = {{LLM_C_GPT2, 1, 7}, {LLM_C_LLAMA, 7, 100000}, {0, 0, 300}};
    for (int k = 0; k < 3; k++) {
        Tokens tokens;
        int32_t in[5], targets[5];
        int first = KINDS[k][2];
        write_tokens("tokens.bin", KINDS[k][0], KINDS[k][1], 16, 16, first);
        assert_int_equal(tokens_open(&tokens, in_folder(own_folder, "tokens.bin"), 128256, 5), OK);
        assert_int_equal(tokens.tokens, 16);
        assert_int_equal(tokens.sequences, 3); // 5 tokens each, and the one that follows the last
        for (int s = 0; s < 3; s++) {
            tokens_sequence(&tokens, s, in, targets);
            for (int t = 0; t < 5; t++) {
                assert_int_equal(in[t], first + 5 * s + t);
                assert_int_equal(targets[t], first + 5 * s + t + 1);
            }
        }
        tokens_close(&tokens);
    }
}

// Three files of 11, 3 and 21 tokens: 2, 0 and 4 sequences of 5, none of which is of two files.
TEST_BETWEEN(files_are_one_corpus, own_folder_begin, own_folder_end)
{
    static const int WANT[] = {100, 105, 300, 305, 310, 315};
    Tokens tokens;
    int32_t in[5], targets[5];
    write_tokens("train_02.bin", LLM_C_GPT2, 1, 3, 3, 200);
    write_tokens("train_10.bin", 0, 0, 21, 0, 300);
    write_tokens("train_01.bin", LLM_C_LLAMA, 7, 11, 11, 100);
    assert_int_equal(tokens_open(&tokens, in_folder(own_folder, "train_*.bin"), 500, 5), OK);
    assert_int_equal(tokens.sequences, 6);
    for (int s = 0; s < 6; s++) {
        tokens_sequence(&tokens, s, in, targets);
        assert_int_equal(in[0], WANT[s]);
        assert_int_equal(targets[4], WANT[s] + 5);
    }
    tokens_close(&tokens);
}

// Each epoch has every sequence once, in an order of its own and of the seed.
TEST_BETWEEN(an_epoch_draws_each_once, own_folder_begin, own_folder_end)
{
    static const int COUNTS[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000};
    for (size_t k = 0; k < sizeof COUNTS / sizeof COUNTS[0]; k++) {
        Tokens tokens;
        int n = COUNTS[k], same_epochs = 0, same_seeds = 0, in_order = 0;
        char seen[1000];
        write_tokens("tokens.bin", 0, 0, n + 1, 0, 0);
        assert_int_equal(tokens_open(&tokens, in_folder(own_folder, "tokens.bin"), 1 << 16, 1), OK);
        for (int epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int i = 0; i < n; i++) {
                uint64_t drawn = (uint64_t)(epoch * n + i);
                int64_t s = tokens_drawn(&tokens, 42, drawn);
                assert_true(s >= 0 && s < n && !seen[s]);
                seen[s] = 1;
                in_order += s == i;
                same_seeds += s == tokens_drawn(&tokens, 43, drawn);
                same_epochs += epoch > 0 && s == tokens_drawn(&tokens, 42, (uint64_t)i);
            }
        }
        // One of n is expected to be in its place by chance.
        if (n >= 100 && (in_order > 20 || same_seeds > 20 || same_epochs > 20))
            fail_msg("of %d sequences %d are in order, %d as for another seed, %d as in the epoch "
                     "before",
                     n, in_order, same_seeds, same_epochs);
        tokens_close(&tokens);
    }
}

static void refused(const char *name, int vocab, int T, Status want, const char *says)
{
    Tokens tokens;
    int lines;
    said_begin();
    Status status = tokens_open(&tokens, in_folder(own_folder, name), vocab, T);
    char *said = said_end(&lines);
    if (status != want || lines != 1 || strstr(said, says) == NULL)
        fail_msg("status %d, want %d with one line that has \"%s\":\n%s", status, want, says, said);
    free(said);
}

TEST_BETWEEN(refuses_in_one_line, own_folder_begin, own_folder_end)
{
    refused("none_*.bin", 100, 4, ERR_IO, "none_*.bin: cannot be opened");
    refused(".", 100, 4, ERR_IO, "it is not a regular file");
    write_tokens("empty", 0, 0, 0, 0, 0);
    refused("empty", 100, 4, ERR_IO, "it is empty");
    write_tokens("cut", LLM_C_GPT2, 1, 20, 21, 0);
    refused("cut", 100, 4, ERR_IO,
            "says 21 tokens, which is 1066 bytes, and it has 1064: it is trunc");
    write_tokens("longer", LLM_C_LLAMA, 7, 20, 19, 0);
    refused("longer", 100, 4, ERR_IO, "says 19 tokens, which is 1100 bytes, and it has 1104");
    write_tokens("minus", LLM_C_LLAMA, 7, 20, -20, 0);
    refused("minus", 100, 4, ERR_IO, "says -20 tokens");
    cut_file(in_folder(own_folder, "cut"), 12);
    refused("cut", 100, 4, ERR_IO, "and it has 12: it is truncated");
    write_tokens("newer", LLM_C_GPT2, 2, 20, 20, 0);
    refused("newer", 100, 4, ERR_IO, "version 2, and version 1 is read");
    write_bytes(in_folder(own_folder, "odd"), "abcdefg", 7);
    refused("odd", 1 << 16, 1, ERR_IO, "has 7 bytes, and tokens without a header have two each");
    write_tokens("short", 0, 0, 4, 0, 0);
    refused("short", 100, 4, ERR_ARGUMENT, "4 tokens, and a sequence takes 4 and one more");
    write_tokens("high", LLM_C_GPT2, 1, 20, 20, 81);
    refused("high", 100, 4, ERR_IO, "token number 19 is 100, and the model's vocabulary has 100");
    // And of a file that is too long to be looked through, in the sequence that has it.
    Tokens tokens;
    assert_int_equal(tokens_open(&tokens, in_folder(own_folder, "high"), 101, 4), OK);
    tokens.vocab = 97;
    assert_int_equal(tokens_check_sequence(&tokens, 2), OK); // tokens 8 to 12: 89 to 93
    tokens.vocab = 93;
    assert_int_equal(tokens_check_sequence(&tokens, 2), ERR_IO);
    tokens_close(&tokens);
}

SUITE_MAIN("token_files")
