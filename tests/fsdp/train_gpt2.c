/* train_gpt2 on models and tokens that people have: what it reads and leaves, and that a training
 * goes on with the same numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "example_programs.h"
#include "harness.h"
#include "safetensors.h"

#define SMALL "--layers 2 --dim 32 --heads 4 --context 24 --sample 0 --brief "

// ---- Folders of Hugging Face's ----

// Exported, read by another number of ranks and exported once more by a training that moves
// nothing, the weights are bitwise equal.
TEST(a_model_leaves_and_comes_back)
{
    static const char *const MODELS[] = {"gpt2", "llama", "llama --tied"};
    needs_ranks(3);
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "rm -rf $DIR/model $DIR/again; $LAUNCH -n 2 $BIN/train_gpt2 " SMALL
                 "--model %s --steps 3 --export $DIR/model $DIR/text",
                 MODELS[i]);
        expect_printed(run_programs(command), 0, "exported to ");
        expect_printed(run_programs("printf tokens >$DIR/model/tokenizer.json; "
                                    "$LAUNCH -n 3 $BIN/train_gpt2 --brief --steps 1 --lr 1e-30 "
                                    "--from $DIR/model --export $DIR/again $DIR/text"),
                       0,
                       i == 0   ? "GPT-2 of 34432"
                       : i == 1 ? "Llama of 38560"
                                : "Llama of 30368");
        expect_printed(run_programs("cmp $DIR/model/model.safetensors $DIR/again/model.safetensors "
                                    "&& cmp $DIR/model/tokenizer.json $DIR/again/tokenizer.json && "
                                    "grep float32 $DIR/again/config.json && ls $DIR"),
                       0, "float32");
        if (strstr(programs_printed, ".tmp") != NULL) fail_msg("left: %s", programs_printed);
    }
}

static void refuses(const char *before, const char *options, const char *data, int status,
                    const char *words)
{
    char command[1024];
    snprintf(command, sizeof command, "%s; $LAUNCH -n 2 $BIN/train_gpt2 --brief --steps 3 %s %s",
             before, options, data);
    expect_printed(run_programs(command), status, words);
    if (printed_lines() > 2) // and the launcher's
        fail_msg("%s: want one line:\n%s", options, programs_printed);
}

TEST(refuses_a_folder_in_one_line)
{
    static const struct {
        const char *before, *options, *words;
        int status;
    } table[] = {
        {":", "--from $DIR/model --heads 8", "leave out --model", 2},
        {":", "--from $DIR/model --unsharded", "leave out --unsharded", 2},
        {":", "--from $DIR/model --stages 2", "leave out --stages", 2},
        {":", "--from $DIR/model --sequence 25", "at most 24 tokens", 2},
        {":", "--from $DIR/nothing", "cannot be read", 2},
        {":", "--from $DIR/model/model.safetensors", "name the folder", 2},
        {":", "--export $DIR/model", "it is there already", 2},
        {"sed -i s/gelu_new/relu/ $DIR/model/config.json", "--from $DIR/model",
         "activation_function is \"relu\"", 2},
        {"sed -i s/relu/gelu_new/ $DIR/model/config.json; "
         "sed -i \"s/\\\"n_embd\\\": 32/\\\"n_embd\\\": 36/\" $DIR/model/config.json",
         "--from $DIR/model", "wte.weight has another shape", 1},
        {"sed -i \"s/\\\"n_embd\\\": 36/\\\"n_embd\\\": 30/\" $DIR/model/config.json",
         "--from $DIR/model", "30 columns do not divide among 4 heads", 2},
    };
    needs_ranks(2);
    expect_printed(run_programs("rm -rf $DIR/model; $LAUNCH -n 2 $BIN/train_gpt2 " SMALL
                                "--steps 1 --export $DIR/model $DIR/text"),
                   0, "exported to ");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        refuses(table[i].before, table[i].options, "$DIR/text", table[i].status, table[i].words);
}

// So many tokens as nanoGPT has them.
static void write_tokens(const char *name, int n, int seed)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", programs_folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        uint16_t token = (uint16_t)((i * i + 7 * i + seed * (i / 100)) % 89);
        assert_int_equal(fwrite(&token, sizeof token, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
}

static void write_corpus(void)
{
    write_tokens("train_0.bin", 1500, 3);
    write_tokens("train_1.bin", 700, 5);
    write_tokens("val.bin", 900, 11);
}

#define TOKENS                                                                                     \
    SMALL "--vocab 89 --data \"$DIR/train_*.bin\" --val $DIR/val.bin --val-every 4 "               \
          "--val-sequences 11 "

// The same sequences whatever the number of ranks, and a validation of the same weights that is
// the same in all digits; each world goes on from the same checkpoint with the same sequences.
TEST(tokens_are_the_same_on_any_world)
{
    static const int WORLDS[] = {1, 2, 4};
    double loss[3], val[3], resumed[3];
    char command[1024];
    needs_ranks(4);
    write_corpus();
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "$LAUNCH -n %d $BIN/train_gpt2 " TOKENS
                 "--batch %d --steps 8 --save $DIR/tokens-%d",
                 WORLDS[i], 4 / WORLDS[i], WORLDS[i]);
        expect_printed(run_programs(command), 0, "2200 tokens");
        loss[i] = number_behind("step    8 of 8   loss ");
        // More than an epoch: 1499/24 and 699/24 are 62 + 29 sequences, and 30 steps draw 120.
        snprintf(command, sizeof command,
                 "$LAUNCH -n %d $BIN/train_gpt2 " TOKENS
                 "--batch %d --steps 30 --resume $DIR/tokens-1",
                 WORLDS[i], 4 / WORLDS[i]);
        expect_printed(run_programs(command), 0, "after step 8\n");
        resumed[i] = number_behind("step   30 of 30   loss ");
        snprintf(command, sizeof command,
                 "$LAUNCH -n %d $BIN/train_gpt2 " TOKENS
                 "--batch 1 --steps 9 --lr 1e-30 --resume $DIR/tokens-1",
                 WORLDS[i]);
        expect_printed(run_programs(command), 0, "after step 8\n");
        val[i] = number_behind("validation loss ");
        if (fabs(loss[i] - loss[0]) > 1e-4 || fabs(resumed[i] - resumed[0]) > 1e-4 ||
            val[i] != val[0])
            fail_msg("%d ranks: loss %g, want %g; resumed %g, want %g; validation %.9g, want %.9g",
                     WORLDS[i], loss[i], loss[0], resumed[i], resumed[0], val[i], val[0]);
    }
    snprintf(command, sizeof command,
             "$LAUNCH -n 2 $BIN/train_gpt2 " TOKENS "--batch 2 --steps 30");
    expect_printed(run_programs(command), 0, "step   30 of 30");
    if (fabs(number_behind("step   30 of 30   loss ") - resumed[0]) > 1e-2) // other rates
        fail_msg("without a stop step 30 has another loss than %g:\n%s", resumed[0],
                 programs_printed);
}

// The best is kept, and a worse one later does not replace it.
TEST(keeps_the_best)
{
    needs_ranks(2);
    write_corpus();
    expect_printed(run_programs("$LAUNCH -n 2 $BIN/train_gpt2 " TOKENS
                                "--steps 24 --lr 3e-2 --save $DIR/kept"),
                   0, "the best so far");
    double best = 1e9;
    int at = 0;
    for (const char *c = programs_printed; (c = strstr(c, "\nstep")) != NULL; c++) {
        double loss;
        int step;
        if (sscanf(c, " step %d of 24 validation loss %lf", &step, &loss) != 2) continue;
        if (loss < best) at = step;
        if (loss < best) best = loss;
    }
    if (at == 24) fail_msg("the last step is the best: nothing to be seen\n%s", programs_printed);
    char command[1024], words[64];
    snprintf(command, sizeof command,
             "$LAUNCH -n 1 $BIN/train_gpt2 " TOKENS "--steps %d --lr 1e-30 --resume $DIR/kept-best",
             at + 1);
    snprintf(words, sizeof words, "kept-best after step %d\n", at);
    expect_printed(run_programs(command), 0, words);
    if (number_behind("validation loss ") != best)
        fail_msg("the best loss was %g:\n%s", best, programs_printed);
    expect_printed(run_programs("$LAUNCH -n 1 $BIN/train_gpt2 " TOKENS
                                "--steps 25 --lr 1e-30 --resume $DIR/kept"),
                   0, "validation loss ");
    if (strstr(programs_printed, "the best so far") != NULL)
        fail_msg("the best loss was forgotten:\n%s", programs_printed);
}

TEST(refuses_options_in_one_line)
{
    static const struct {
        const char *before, *options, *words;
    } table[] = {
        {":", "--data $DIR/train_0.bin $DIR/text", "one of them"},
        {":", "--val $DIR/val.bin $DIR/text", "are for files of tokens"},
        {":", "--data $DIR/none.bin", "cannot be opened: No such file"},
        {":", "--data $DIR/train_0.bin --val-every 3", "on what?"},
        {":", "--data $DIR/train_0.bin --vocab 88", "and the model's vocabulary has 88"},
        {":", "--vocab 90 $DIR/text", "and the model's vocabulary has 90"},
        {"head -c 1999 $DIR/train_0.bin >$DIR/cut.bin", "--data $DIR/cut.bin", "it is truncated"},
        {":", "--data $DIR/train_0.bin --val $DIR/cut.bin", "it is truncated"},
        {":", "--generate a", "of which model?"},
        {":", "--from $DIR/none --generate a --save $DIR/none", "--save: nothing is trained"},
        {":", "--from $DIR/none --export $DIR/none --val $DIR/val.bin", "--val: nothing is"},
        {":", "--resume $DIR/none --generate a --stages 2", "--generate is for all of a"},
        {":", "--generate \"\" $DIR/text", "a prompt has a token at least"},
        {":", "--vocab 300 --generate \"7 300\" $DIR/text", "want tokens from 0 to 299"},
        {":", "--recompute-every 2 $DIR/text", "--recompute-every 2: of what?"},
        {":", "--recompute blocks --recompute-every 4 --stages 2 $DIR/text", "has 3 blocks"},
        {":", "--vocab 300 --generate Hello $DIR/text", "tokenize.py encode makes them"},
        {":", "--save-every 2 $DIR/text", "where to?"},
        {":", "--betas 0.9 $DIR/text", "--betas 0.9: want two numbers"},
        {":", "--betas 0.9,1 $DIR/text", "--betas 0.9,1: want two numbers"},
        {":", "--min-lr -1 $DIR/text", "--min-lr -1: want a number of at least 0"},
        {":", "--schedule 1f1b $DIR/text", "cosine, linear or constant, not '1f1b'"},
        {":", "--pipeline 1f1b $DIR/text", "--stages N"},
        {":", "--freeze embed.* $DIR/text", "take --layout per_parameter"},
        {":", "--dropout 1 $DIR/text", "want a probability below 1"},
        {":", "--dropout 0.1 --model llama $DIR/text", "it is for --model gpt2"},
        {":", "--dropout 0.1 --stages 2 $DIR/text", "for neither --stages nor"},
        {":", "--reduce-replicas-once $DIR/text", "is for --replicas N"},
        {":", "--graph --stages 2 $DIR/text", "leave out --stages"},
        {":", "--graph --dtype bf16 $DIR/text", "--graph: leave out --dtype"},
        {":", "--regroup 0 --offload $DIR/text", "--regroup: leave out --dtype"},
        {":", "--graph --uneven $DIR/text", "leave out --uneven"},
        {":", "--graph --clip 0 $DIR/text", "--clip 0"},
        {":", "--graph --spike 2 $DIR/text", "leave out --spike"},
        {":", "--graph --on-nan skip $DIR/text", "--on-nan skip"},
        {":", "--graph --regroup 0 --prefetch 2 $DIR/text", "leave out --prefetch"},
        {":", "--regroup 0 --layout per_parameter $DIR/text", "and --layout"},
        {":", "--regroup -1 $DIR/text", "--regroup"},
    };
    needs_ranks(2);
    write_corpus();
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        refuses(table[i].before, table[i].options, "", 2, table[i].words);
}

// ---- What a model writes ----

// Greedy: as long as the two best logits are apart the tokens are those of forwards of all tokens,
// which `--recompute attention` has no cache for; and on any number of ranks, past the context too.
TEST(a_cache_writes_the_same)
{
    static const char *const MODELS[] = {"--model gpt2", "--model llama", "--attention fused"};
    needs_ranks(3);
    for (size_t i = 0; i < 3; i++) {
        char command[1024], written[PRINTED_BYTES];
        snprintf(command, sizeof command,
                 "rm -rf $DIR/writer; $LAUNCH -n 2 $BIN/train_gpt2 " SMALL
                 "%s --steps 60 --lr 1e-2 --save $DIR/writer $DIR/text",
                 MODELS[i]);
        expect_printed(run_programs(command), 0, "step   60 of 60");
        for (int world = 1; world <= 3; world++) {
            snprintf(command, sizeof command,
                     "$LAUNCH -n %d $BIN/train_gpt2 " SMALL "%s --resume $DIR/writer --generate "
                     "\"Sentence 1\" --temperature 0 --tokens %d %s",
                     world, MODELS[i], i == 0 ? 14 : 40,
                     i == 0 && world == 3 ? "--recompute attention" : "");
            expect_printed(run_programs(command), 0, "Sentence 1");
            if (world == 1) strcpy(written, programs_printed);
            if (strcmp(written, programs_printed) != 0)
                fail_msg("%s\n%s\nand on one rank\n%s", command, programs_printed, written);
        }
    }
}

TEST(draws_by_temperature_and_seed)
{
    static const struct {
        const char *options;
        bool same; // as the first
    } table[] = {{"--temperature 0 --seed 3", true},    {"--temperature 0 --seed 4", true},
                 {"--top-k 1 --seed 4", true},          {"--temperature 1e-6 --seed 5", true},
                 {"--temperature 1.5 --seed 3", false}, {"--temperature 3 --top-k 5", false}};
    char command[1024], first[PRINTED_BYTES], again[PRINTED_BYTES];
    expect_printed(run_programs("rm -rf $DIR/writer; $LAUNCH -n 1 $BIN/train_gpt2 " SMALL
                                "--vocab 300 --steps 2 --save $DIR/writer $DIR/text"),
                   0, "step    2 of 2");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        snprintf(command, sizeof command,
                 "$LAUNCH -n 1 $BIN/train_gpt2 " SMALL "--vocab 300 --resume $DIR/writer "
                 "--generate \"7 8,299\" --tokens 12 %s",
                 table[i].options);
        expect_printed(run_programs(command), 0, "7 8 299 ");
        strcpy(again, programs_printed);
        expect_printed(run_programs(command), 0, again); // the seed decides
        if (i == 0) strcpy(first, again);
        if ((strcmp(first, again) == 0) != table[i].same)
            fail_msg("%s:\n%s\nand %s:\n%s", table[i].options, again, table[0].options, first);
        int n = 0;
        for (char *c = strtok(again, " \n"); c != NULL; c = strtok(NULL, " \n"), n++)
            assert_true(atoi(c) >= 0 && atoi(c) < 300);
        assert_int_equal(n, 15);
    }
    refuses(":", SMALL "--vocab 300 --heads 2 --resume $DIR/writer", "$DIR/text", 1, "has 4 att");
}

#define LAUNCHED "$LAUNCH -n 2 $BIN/train_gpt2 " SMALL
enum { KILLS = 6 };

// Of 10 steps; written down by hand: a line up to step `warm_up`, then down to `least` at step 10.
TEST(rates_follow_the_schedule)
{
    static const struct {
        const char *options;
        int warm_up;
        double least, middle; // the rate half-way down
    } table[] = {
        {"--warmup 4", 4, 1e-4, 0.55e-3},
        {"--warmup 4 --schedule cosine --min-lr 0", 4, 0.0, 0.5e-3},
        {"--warmup 0 --schedule linear --min-lr 2e-4", 0, 2e-4, 0.6e-3},
        {"--warmup 2 --schedule constant", 2, 1e-3, 1e-3},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double rate[LOGGED];
        char command[1024];
        int up = table[i].warm_up, middle = (up + 10) / 2;
        snprintf(command, sizeof command,
                 "$LAUNCH -n 1 $BIN/train_gpt2 " SMALL "--steps 10 --lr 1e-3 --log $DIR/log %s "
                 "$DIR/text",
                 table[i].options);
        expect_printed(run_programs(command), 0, "step   10 of 10");
        assert_int_equal(logged("log", "lr", rate), 10);
        for (int step = 1; step <= 10; step++) {
            double want = step < up        ? 1e-3 * step / up
                          : step == up     ? 1e-3
                          : step == 10     ? table[i].least
                          : step == middle ? table[i].middle
                                           : rate[step - 1];
            bool falls = step <= up || rate[step - 1] <= rate[step - 2];
            if (fabs(rate[step - 1] - want) > 1e-9 || (step > 1 && !falls))
                fail_msg("%s: the rate of step %d is %.9g, want %.9g", table[i].options, step,
                         rate[step - 1], want);
        }
    }
}

// Of two exported models the tensors that are bitwise equal must be those whose names have one of
// the words (NULL ends them), or which are vectors where `vectors`.
static void expect_equal_tensors(const char *one, const char *other, bool vectors,
                                 const char *const *words)
{
    Safetensors a, b;
    char path[2][160];
    snprintf(path[0], sizeof path[0], "%s/%s/model.safetensors", programs_folder, one);
    snprintf(path[1], sizeof path[1], "%s/%s/model.safetensors", programs_folder, other);
    assert_int_equal(safetensors_open(&a, path[0]), OK);
    assert_int_equal(safetensors_open(&b, path[1]), OK);
    assert_int_equal(a.n, b.n);
    for (int i = 0; i < a.n; i++) {
        const SafetensorsEntry *entry = &a.entries[i];
        size_t bytes = (size_t)entry->numel * sizeof(float);
        float *x = malloc(bytes), *y = malloc(bytes);
        assert_int_equal(safetensors_read(&a, entry, 0, entry->numel, x), OK);
        assert_int_equal(
            safetensors_read(&b, safetensors_find(&b, entry->name), 0, entry->numel, y), OK);
        bool want = vectors && entry->ndim == 1;
        for (int w = 0; words[w] != NULL; w++) want |= strstr(entry->name, words[w]) != NULL;
        if ((memcmp(x, y, bytes) == 0) != want)
            fail_msg("%s is %s in %s and %s", entry->name, want ? "not equal" : "equal", one,
                     other);
        free(x);
        free(y);
    }
    safetensors_close(&a);
    safetensors_close(&b);
}

// Decay alone differs, and it shows in matrices alone.
TEST(decay_groups_spare_vectors)
{
    static const char *const NONE[] = {NULL};
    needs_ranks(2);
    expect_printed(run_programs("rm -rf $DIR/decayed $DIR/not; " LAUNCHED
                                "--steps 1 --weight-decay 0 --export $DIR/not $DIR/text; " LAUNCHED
                                "--steps 1 --weight-decay 50 --decay-groups --export $DIR/decayed "
                                "$DIR/text"),
                   0, "decayed");
    expect_equal_tensors("decayed", "not", true, NONE);
}

TEST(what_is_frozen_stays)
{
    static const char *const FROZEN[] = {"wte", "wpe", "h.0.", NULL};
    needs_ranks(2);
    expect_printed(run_programs("rm -rf $DIR/early $DIR/late; " LAUNCHED
                                "--layout per_parameter --steps 2 --export $DIR/early $DIR/text; "
                                "$LAUNCH -n 2 $BIN/train_gpt2 --brief --layout per_parameter "
                                "--steps 4 --from $DIR/early --freeze \"embed.*,h.0.*\" --export "
                                "$DIR/late $DIR/text"),
                   0, "late");
    expect_equal_tensors("early", "late", false, FROZEN);
}

// A rate that is absurd makes weights infinite in the first step, and NaN of all that comes after.
TEST(stops_or_skips_where_there_is_no_number)
{
    double loss[LOGGED], norm[LOGGED], skipped[LOGGED];
    static const char *const NONE[] = {NULL}, *const ALL[] = {"", NULL};
    needs_ranks(2);
    expect_printed(run_programs(LAUNCHED "--steps 5 --lr 1e30 $DIR/text"), 1,
                   "step 2: the gradient's norm is ");
    if (strstr(programs_printed, "stopped before the optimizer") == NULL || printed_lines() > 4)
        fail_msg("want a line:\n%s", programs_printed);
    expect_printed(
        run_programs(LAUNCHED "--steps 5 --lr 1e30 --on-nan skip --log $DIR/log $DIR/text"), 0,
        "step    5 of 5   left out: the gradient's norm is ");
    assert_int_equal(logged("log", "norm", norm), 5);
    assert_true(isfinite(norm[0]) && isnan(norm[1]) && isnan(norm[4]));
    // Every norm is above this one: nothing moves, and the loss of a batch is that of a new model.
    expect_printed(
        run_programs("rm -rf $DIR/new $DIR/skipped $DIR/moved; " LAUNCHED
                     "--steps 1 --spike 1e-9 --on-nan skip --export $DIR/new $DIR/text; " LAUNCHED
                     "--steps 4 --spike 1e-9 --on-nan skip --log $DIR/log "
                     "--export $DIR/skipped $DIR/text; " LAUNCHED
                     "--steps 1 --spike 1e9 --export $DIR/moved $DIR/text"),
        0, "moved");
    expect_equal_tensors("new", "skipped", false, ALL);
    expect_equal_tensors("new", "moved", false, NONE);
    assert_int_equal(logged("log", "loss", loss), 4);
    assert_int_equal(logged("log", "skipped", skipped), 4);
    expect_printed(run_programs(LAUNCHED "--steps 3 --spike 1e-9 $DIR/text"), 1, ", above --spike");
    expect_printed(
        run_programs(LAUNCHED "--steps 3 --spike 1e-9 --on-nan skip --dtype fp16 $DIR/text"), 0,
        "step    3 of 3   left out");
    // A loss scale leaves out steps, too: those that overflow.
    expect_printed(run_programs(LAUNCHED "--steps 3 --lr 1e30 --dtype fp16 $DIR/text"), 0,
                   "step    3 of 3   left out: the gradient's norm is inf");
}

// Over the replicas once a step, with the same numbers.
TEST(replicas_reduce_once)
{
    double loss[2][LOGGED], calls[2];
    needs_ranks(4);
    for (int once = 0; once < 2; once++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "$LAUNCH -n 4 $BIN/train_gpt2 --layers 2 --dim 32 --heads 4 --context 24 "
                 "--sample 0 --steps 6 --replicas 2 --accumulate 3 --log $DIR/log %s $DIR/text",
                 once ? "--reduce-replicas-once" : "--reduce-every-time");
        expect_printed(run_programs(command), 0, "step    6 of 6");
        assert_int_equal(logged("log", "loss", loss[once]), 6);
        calls[once] = number_behind("all-reduce");
        for (int i = 0; i < 6; i++)
            if (fabs(loss[once][i] - loss[0][i]) > 2e-6 * loss[0][i])
                fail_msg("step %d has loss %.9g, want %.9g", i + 1, loss[once][i], loss[0][i]);
    }
    // Of 3 units each, 6 steps of 3 micro-batches; what both have besides is equal.
    if (calls[0] - calls[1] != 3 * 6 * 2)
        fail_msg("%g all-reduces, and %g where the replicas reduce once", calls[0], calls[1]);
}

// The same elements go on any number of ranks, and where a forward runs again: those losses are
// bitwise equal. What is validated or written drops nothing.
TEST(dropout_is_the_same_on_any_world)
{
    static const char *const OPTIONS[] = {
        "--batch 4",
        "--batch 4",
        "--batch 2",
        "--batch 1",
        "--batch 2 --recompute blocks",
        "--batch 1 --accumulate 2 --recompute attention --recompute-every 2"};
    static const int WORLDS[] = {1, 1, 2, 4, 2, 2};
    double loss[LOGGED], first[LOGGED], before[LOGGED], val;
    needs_ranks(4);
    write_corpus();
    for (int i = 0; i < 6; i++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "$LAUNCH -n %d $BIN/train_gpt2 " TOKENS
                 "--steps 6 --lr 1e-30 %s --log $DIR/log %s",
                 WORLDS[i], i == 0 ? "" : "--dropout 0.2", OPTIONS[i]);
        expect_printed(run_programs(command), 0, "step    6 of 6");
        assert_int_equal(logged("log", "loss", loss), 6);
        if (i == 0) val = number_behind("validation loss ");
        assert_true(number_behind("validation loss ") == val);
        for (int step = 0; step < 6; step++) {
            double want = i > 1 ? first[step] : loss[step];
            if (fabs(loss[step] - want) > 1e-6 || (i == 4 && loss[step] != before[step]))
                fail_msg("%s: loss %.9g, want %.9g", command, loss[step], want);
            if (i == 1) assert_true(fabs(loss[step] - first[step]) > 1e-4);
        }
        if (i < 2) memcpy(first, loss, sizeof loss);
        if (i == 2) memcpy(before, loss, sizeof loss);
    }
}

// From one number of stages to another as if there had been no stop. Then one rank exports what two
// stages have left.
#define STAGED                                                                                     \
    "$BIN/train_gpt2 --layers 3 --dim 32 --heads 4 --context 24 --brief --accumulate 3 "           \
    "--schedule constant --log $DIR/log "
#define SAVE_STAGES                                                                                \
    "$LAUNCH -n 4 " STAGED "--batch 2 --stages 2 --resume $DIR/cut --save $DIR/cut $DIR/text "
TEST(stages_resume_as_others)
{
    static const struct {
        int ranks;
        const char *options; // of 12 sequences per step
    } WORLDS[] = {{4, "--batch 1"}, {4, "--batch 2 --stages 2"}, {3, "--batch 4 --stages 3"}};
    static const int FROM[] = {0, 1, 2, 1}, TO[] = {1, 0, 1, 2};
    double want[LOGGED], loss[LOGGED];
    char command[1024];
    needs_ranks(4);
    expect_printed(
        run_programs("rm -f $DIR/log; $LAUNCH -n 4 " STAGED "--batch 1 --steps 8 $DIR/text"), 0,
        "step    8 of 8");
    assert_int_equal(logged("log", "loss", want), 8);
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command,
                 "rm -rf $DIR/cut*; $LAUNCH -n %d " STAGED "%s --steps 4 --save $DIR/cut $DIR/text "
                 "&& rm $DIR/log && $LAUNCH -n %d " STAGED
                 "%s --steps 8 --resume $DIR/cut $DIR/text",
                 WORLDS[FROM[i]].ranks, WORLDS[FROM[i]].options, WORLDS[TO[i]].ranks,
                 WORLDS[TO[i]].options);
        expect_printed(run_programs(command), 0, "step    8 of 8");
        assert_int_equal(logged("log", "loss", loss), 4);
        for (int step = 0; step < 4; step++)
            if (fabs(loss[step] - want[4 + step]) > 1e-5)
                fail_msg("%s\nloss %g, want %g", command, loss[step], want[4 + step]);
    }
    // Killed between the stages' renames: step 5 is complete; a save that fails does not lose it.
    expect_printed(
        run_programs("cd $DIR; cp -r cut-stage-1-of-2 four; " SAVE_STAGES
                     "--steps 5 && mv cut-stage-1-of-2 cut-stage-1-of-2.tmp && "
                     "mv four cut-stage-1-of-2; mkdir -p cut-stage-0-of-2.old/mine; " SAVE_STAGES
                     "--steps 6"),
        1, "after step 5\n");
    expect_printed(run_programs("$LAUNCH -n 1 " STAGED "--resume $DIR/cut --export $DIR/uncut"), 0,
                   "exported to ");
    expect_printed(run_programs("$LAUNCH -n 2 $BIN/train_gpt2 --brief --from $DIR/uncut --stages 2 "
                                "--resume $DIR/cut --steps 6 $DIR/text"),
                   0, "after step 5\n");
    expect_printed(
        run_programs("rm $DIR/cut-stage-1-of-2/rank-0-of-2.safetensors; $LAUNCH -n 1 " STAGED
                     "--resume $DIR/cut --export $DIR/none"),
        1, "cut-stage-1-of-2/rank-0-of-2.safetensors");
    if (printed_lines() > 2) fail_msg("want one line:\n%s", programs_printed);
}

// The files of a save in the background are those of one that is waited for; and whenever the ranks
// are killed, the last complete one is there, from which the training goes on.
TEST(saves_in_the_background)
{
    needs_ranks(2);
    expect_printed(
        run_programs("rm -rf $DIR/back $DIR/front; " LAUNCHED
                     "--steps 5 --save $DIR/back --save-every 2 $DIR/text; mv $DIR/back "
                     "$DIR/last; " LAUNCHED
                     "--steps 5 --save $DIR/front $DIR/text; diff -r $DIR/last $DIR/front "
                     "&& echo equal"),
        0, "equal");
    for (int i = 1; i <= KILLS; i++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "setsid " LAUNCHED "--steps 2000 --save $DIR/back --save-every 1 $DIR/text "
                 ">/dev/null 2>&1 & pid=$!; while [ ! -e $DIR/back ] && kill -0 $pid; do sleep "
                 "0.05; done; sleep 0.%02d; kill -9 -$pid; wait $pid; " LAUNCHED
                 "--generate abc --tokens 1 --resume $DIR/back && grep -o \"step.:[0-9]*\" "
                 "$DIR/back/index.json $DIR/back.old/index.json 2>/dev/null | tail -n 1 | sed "
                 "s/.*step/saved/",
                 17 * i % 100);
        expect_printed(run_programs(command), 0, "abc");
        assert_true(number_behind("saved\":") >= 1);
    }
    expect_printed(run_programs(LAUNCHED "--steps 9 --save /dev/full/c --save-every 2 $DIR/text"),
                   1, "/dev/full/c");
}

TEST(a_log_goes_on_at_its_end)
{
    double loss[2][LOGGED], val[LOGGED], step[LOGGED];
    needs_ranks(2);
    expect_printed(
        run_programs("rm -rf $DIR/logged; " LAUNCHED "--steps 6 --warmup 20 --log "
                     "$DIR/whole $DIR/text; " LAUNCHED
                     "--steps 3 --log $DIR/log --save $DIR/logged $DIR/text; " LAUNCHED
                     "--steps 6 --log $DIR/log --resume $DIR/logged --val-every 6 $DIR/text"),
        0, "after step 3");
    assert_int_equal(logged("whole", "loss", loss[0]), 6);
    assert_int_equal(logged("log", "loss", loss[1]), 6);
    assert_memory_equal(loss[0], loss[1], 6 * sizeof loss[0][0]);
    assert_int_equal(logged("log", "validation_loss", val), 1);
    assert_int_equal(logged("log", "step", step), 7);
    assert_true(step[5] == 6 && step[6] == 6);
    expect_printed(run_programs(LAUNCHED "--steps 2 --log $DIR/none/log $DIR/text"), 2, "--log ");
    expect_printed(run_programs(LAUNCHED "--steps 2 --log /dev/full $DIR/text"), 1,
                   "No space left");
}

TEST(help_is_grouped_in_80_columns)
{
    expect_printed(run_programs("$BIN/train_gpt2 --help"), 0, "\n\nWhat is kept and shown\n");
    int columns = 0, groups = 0;
    for (const char *c = strchr(programs_printed, '\n'); *c != '\0'; c++) {
        columns += ((unsigned char)*c & 0xc0) != 0x80; // a character of UTF-8
        if (*c == '\n') columns = 0;
        groups += c[0] == '\n' && c[1] == '\n';
        if (columns > 80) fail_msg("longer than 80 columns:\n%s", programs_printed);
    }
    assert_int_equal(groups, 6);
}

int main(int argc, char **argv)
{
    return example_programs_main(argc, argv, "train_gpt2");
}
