/* train_gpt2 on models and tokens that people have: what it reads and leaves, and that a training
 * goes on with the same numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "example_programs.h"
#include "harness.h"

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
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "%s; $LAUNCH -n 2 $BIN/train_gpt2 --brief --steps 1 %s $DIR/text", table[i].before,
                 table[i].options);
        expect_printed(run_programs(command), table[i].status, table[i].words);
        if (printed_lines() > 2) // and the launcher's
            fail_msg("%s: want one line:\n%s", table[i].options, programs_printed);
    }
}

// ---- Files of tokens ----

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

TEST(refuses_tokens_in_one_line)
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
    };
    needs_ranks(2);
    write_corpus();
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char command[1024];
        snprintf(command, sizeof command, "%s; $LAUNCH -n 2 $BIN/train_gpt2 " SMALL "--steps 3 %s",
                 table[i].before, table[i].options);
        expect_printed(run_programs(command), 2, table[i].words);
        if (printed_lines() > 2) // and the launcher's
            fail_msg("%s: want one line:\n%s", table[i].options, programs_printed);
    }
}

int main(int argc, char **argv)
{
    return example_programs_main(argc, argv, "train_gpt2");
}
