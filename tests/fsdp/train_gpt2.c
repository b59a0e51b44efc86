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

int main(int argc, char **argv)
{
    return example_programs_main(argc, argv, "train_gpt2");
}
