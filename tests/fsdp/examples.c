/* The example programs, run as their users run them: what they print, and what they say of bad
 * input.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "example_programs.h"
#include "harness.h"

// ---- The pair that is made to be read as a diff ----

TEST(before_and_after_agree_on_one_rank)
{
    expect_printed(run_programs("$BIN/before_fsdp $DIR/text"), 0, "step 30");
    char *before = strdup(programs_printed);
    expect_printed(run_programs("$LAUNCH -n 1 $BIN/after_fsdp $DIR/text"), 0, "step 30");
    if (strcmp(before, programs_printed) != 0)
        fail_msg("without FSDP:\n%s\nwith FSDP on one rank:\n%s", before, programs_printed);
    free(before);
}

TEST(after_trains_on_four)
{
    needs_ranks(4);
    expect_printed(run_programs("$LAUNCH -n 4 $BIN/after_fsdp $DIR/text"), 0, "step 30");
    if (!(number_behind("step 30  loss") < number_behind("step  5  loss")))
        fail_msg("the loss did not fall:\n%s", programs_printed);
}

// FSDP in one file. On a simgpu that reports anything the exit status is not 0.
TEST(one_file_trains_on_three)
{
    needs_ranks(3);
    expect_printed(run_programs("$LAUNCH -n 3 $BIN/fsdp_300 $DIR/text"), 0, "step 100");
    if (!(number_behind("step 100  loss") < 4.0) || strstr(programs_printed, "simgpu:") != NULL)
        fail_msg("the loss did not fall, or there is a report:\n%s", programs_printed);
}

// ---- The demo ----

#ifndef EMULATED_CUDA
TEST(demo_beats_byte_frequencies)
{
    needs_ranks(4);
    expect_printed(
        run_programs(
            "$LAUNCH -n 4 $BIN/train_gpt2 --layers 2 --dim 64 --heads 4 --context 32 --batch 4 "
            "--steps 250 --lr 3e-3 --sample 40 $DIR/text"),
        0, "a sample");
    double loss = number_behind("held-out text "), frequency = number_behind("model's ");
    if (!(loss < frequency - 0.3))
        fail_msg("the loss on held-out text is %g, that of byte frequencies %g", loss, frequency);
    assert_non_null(strstr(programs_printed, "reduce-scatter"));
    assert_non_null(strstr(programs_printed, "one GPU without FSDP"));
}
#endif

// The same training with each strategy and attention. Losses are printed with four digits; the
// bits are lab 1's tests'.
TEST(strategies_train_alike)
{
    static const char *const FLAGS[] = {"",
                                        "--strategy ddp --accumulate 2",
                                        "--strategy zero1 --accumulate 2",
                                        "--strategy zero2 --accumulate 2 --reduce-every-time",
                                        "--strategy zero3 --replicas 2 --accumulate 2",
                                        "--strategy zero3 --reshard-ranks 2 --accumulate 2",
                                        "--prefetch 2 --accumulate 2",
                                        "--attention fused --accumulate 2"};
    enum { N_FLAGS = sizeof FLAGS / sizeof FLAGS[0] };
    char command[256];
    double loss[N_FLAGS];
    needs_ranks(4);
    for (int i = 0; i < N_FLAGS; i++) {
        // Without accumulation the batch of a rank is as large as two micro-batches.
        snprintf(
            command, sizeof command,
            "$LAUNCH -n 4 $BIN/train_gpt2 --layers 2 --dim 32 --heads 2 --context 24 --batch %d "
            "--steps 6 --sample 0 $DIR/text %s",
            i == 0 ? 4 : 2, FLAGS[i]);
        expect_printed(run_programs(command), 0, "held-out text ");
        loss[i] = number_behind("held-out text ");
        if (!(fabs(loss[i] - loss[0]) < 1e-3))
            fail_msg("%s: the loss on held-out text is %g, with FSDP alone %g", FLAGS[i], loss[i],
                     loss[0]);
    }
}

// Batches of unequal length: the loss is the mean over tokens, whatever the strategy; and what does
// not go together is one line.
TEST(uneven_batches_train_alike)
{
    static const char train[] = "$LAUNCH -n 4 $BIN/train_gpt2 --layers 2 --dim 32 --heads 2 "
                                "--context 24 --batch 5 --steps 6 --sample 0 --brief $DIR/text";
    char command[320];
    needs_ranks(4);
    snprintf(command, sizeof command, "%s --uneven --accumulate 2 --strategy zero1", train);
    expect_printed(run_programs(command), 0, "step    6 of 6");
    double want = number_behind("step    6 of 6   loss ");
    snprintf(command, sizeof command, "%s --uneven --accumulate 2 --reshard-ranks 2", train);
    expect_printed(run_programs(command), 0, "step    6 of 6");
    double got = number_behind("step    6 of 6   loss ");
    if (!(fabs(got - want) < 1e-3))
        fail_msg("with batches of unequal length the loss is %g, and with ZeRO-1 %g", got, want);
    // Reports of simgpu's would end it: the loss scale reaches the micro-batch's logits alone.
    snprintf(command, sizeof command, "%s --uneven --accumulate 2 --dtype fp16", train);
    expect_printed(run_programs(command), 0, "step    6 of 6");
    snprintf(command, sizeof command, "%s --reshard-ranks 3", train);
    expect_printed(run_programs(command), 2,
                   "--reshard-ranks 3: it is for zero3, and divides the 4 ranks");
    snprintf(command, sizeof command, "%s --reshard-ranks 2 --strategy zero2", train);
    expect_printed(run_programs(command), 2, "--reshard-ranks 2: it is for zero3");
    snprintf(command, sizeof command, "%s --prefetch 2 --keep", train);
    expect_printed(run_programs(command), 2, "go neither with --unsharded nor with --keep");
}

// Six steps and, resumed, six more are twelve (within the warm-up, whose rate does not depend on
// --steps); `train` is the program and its sizes, `saving` how it saves.
static void goes_on_as_without_a_stop(const char *train, const char *saving, const char *dir)
{
    char command[512];
    snprintf(command, sizeof command, "$LAUNCH -n 2 %s --steps 12", train);
    expect_printed(run_programs(command), 0, "step   12 of 12");
    double want = number_behind("step   12 of 12   loss ");
    snprintf(command, sizeof command, "$LAUNCH -n 2 %s --steps 6 %s %s", train, saving, dir);
    expect_printed(run_programs(command), 0, "step    6 of 6");
    snprintf(command, sizeof command, "$LAUNCH -n 2 %s --steps 12 --resume %s", train, dir);
    expect_printed(run_programs(command), 0, "after step 6\n");
    double got = number_behind("step   12 of 12   loss ");
    if (strstr(programs_printed, "step    6") != NULL || got != want)
        fail_msg("resumed, step 12 has loss %g, and without a stop %g:\n%s", got, want,
                 programs_printed);
}

// And other ranks go on from the same checkpoint.
TEST(resumes_where_it_stopped)
{
    needs_ranks(3);
    goes_on_as_without_a_stop("$BIN/train_gpt2 --layers 2 --dim 32 --heads 2 --context 24 "
                              "--sample 0 --offload $DIR/text",
                              "--every 4 --save", "$DIR/checkpoint");
    if (strstr(programs_printed, "uninitialised") != NULL)
        fail_msg("shards without values are copied to the host:\n%s", programs_printed);
    expect_printed(
        run_programs(
            "$LAUNCH -n 3 $BIN/train_gpt2 --layers 2 --dim 32 --heads 2 --context 24 --sample 0 "
            "--steps 8 --resume $DIR/checkpoint $DIR/text"),
        0, "step    8 of 8");
    expect_printed(
        run_programs(
            "$LAUNCH -n 2 $BIN/train_gpt2 --layers 2 --dim 16 --heads 2 --context 24 --sample 0 "
            "--steps 8 --resume $DIR/checkpoint $DIR/text"),
        1, "has another shape than the model");
    expect_printed(
        run_programs("$BIN/train_gpt2 --layers 2 --dim 32 --heads 2 --context 24 --steps 6 "
                     "--resume $DIR/checkpoint $DIR/text"),
        1, "nothing is left");
}

// ---- A Llama, with the options of a GPT-2 ----

// By launches and under a plan each of 30 losses is the eager step's, bitwise.
TEST(graphs_train_the_same)
{
    static const struct {
        int ranks;
        const char *strategy;
    } table[] = {{1, ""},
                 {2, "--strategy ddp"},
                 {2, "--accumulate 2 --strategy zero1 --val-every 9"},
                 {3, "--accumulate 2 --strategy zero2"},
                 {4, "--tied --model llama"},
                 {4, "--replicas 2 --accumulate 2 --reduce-replicas-once"},
                 {8, "--recompute blocks"}};
    static const char *const WAYS[] = {"", "--graph", "--regroup 0", "--graph --regroup 1"};
    needs_ranks(8);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double loss[2][LOGGED];
        for (int way = 0; way < 4; way += way == 0 && table[i].ranks != 4 ? 3 : 1) {
            char command[1024];
            snprintf(command, sizeof command,
                     "rm -f $DIR/log; $LAUNCH -n %d $BIN/train_gpt2 --layers 2 --dim 32 "
                     "--heads 4 --context 24 --sample 0 --brief --steps 30 --schedule cosine --log "
                     "$DIR/log %s %s $DIR/text",
                     table[i].ranks, table[i].strategy, WAYS[way]);
            expect_printed(run_programs(command), 0, "step   30 of 30");
            assert_int_equal(logged("log", "loss", loss[way > 0]), 30);
            for (int k = 0; k < 30 && way > 0; k++)
                if (loss[1][k] != loss[0][k])
                    fail_msg("%d ranks, %s %s: step %d has loss %.9g, want %.9g", table[i].ranks,
                             table[i].strategy, WAYS[way], k + 1, loss[1][k], loss[0][k]);
        }
    }
}

#ifndef BACKEND_CUDA
// Units so large that a plan merges reductions, which the last micro-batch alone has.
TEST(reductions_of_micro_batches_are_merged)
{
    static const char *const WAYS[] = {"", "--regroup 0", "--regroup 0 --graph"};
    double loss[3][LOGGED];
    needs_ranks(2);
    for (int way = 0; way < 3; way++) {
        char command[512];
        snprintf(command, sizeof command,
                 "rm -f $DIR/log; SIMGPU_TRACE=$DIR/trace.json $LAUNCH -n 2 $BIN/train_gpt2 "
                 "--layers 4 --dim 512 --heads 4 --context 8 --batch 1 --accumulate 2 --sample 0 "
                 "--brief --steps 2 --log $DIR/log %s $DIR/text && "
                 "echo reduced by $(grep -o -m1 regroup_reduce $DIR/trace.json || echo units)",
                 WAYS[way]);
        expect_printed(run_programs(command), 0,
                       way > 0 ? "reduced by regroup_reduce" : "reduced by units");
        assert_int_equal(logged("log", "loss", loss[way]), 2);
        for (int k = 0; k < 2; k++)
            if (loss[way][k] != loss[0][k])
                fail_msg("%s: step %d has loss %.9g, want %.9g", WAYS[way], k + 1, loss[way][k],
                         loss[0][k]);
    }
}
#endif

static const char LLAMA[] = "$BIN/train_gpt2 --model llama --layers 2 --dim 32 --heads 4 "
                            "--context 24 --sample 0 $DIR/text";

#ifndef EMULATED_CUDA // where its 280 steps take minutes on the CPU
// Clipped at each step, which the norm of all parameters decides; that of the head, too.
TEST(a_llama_trains_alike)
{
    static const struct {
        const char *launch, *flags;
        double bound;
    } table[] = {
        {"", "--unsharded --batch 4", 0.0},
        {"$LAUNCH -n 2 ", "--batch 2", 1e-3},
        {"$LAUNCH -n 4 ", "--batch 1 --strategy ddp", 1e-3},
        {"$LAUNCH -n 2 ", "--batch 1 --strategy zero2 --accumulate 2", 1e-3},
        {"$LAUNCH -n 4 ", "--batch 1 --strategy zero1 --replicas 2", 1e-3},
        {"$LAUNCH -n 4 ", "--batch 1 --reshard-ranks 2 --prefetch 2", 1e-3},
        {"$LAUNCH -n 2 ", "--batch 2 --dtype bf16", 5e-2},
    };
    needs_ranks(4);
    for (int tied = 0; tied < 2; tied++) {
        double want = 0.0;
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
            char command[512];
            snprintf(command, sizeof command, "%s%s --brief --steps 20 --lr 1e-2 --clip 0.3 %s %s",
                     table[i].launch, LLAMA, table[i].flags, tied ? "--tied" : "");
            expect_printed(run_programs(command), 0,
                           tied ? "Llama of 30368 parameters" : "Llama of 38560");
            double loss = number_behind("step   20 of 20   loss ");
            if (i == 0) want = loss;
            if (!(fabs(loss - want) <= table[i].bound))
                fail_msg("%s: the loss is %g, and without FSDP %g", command, loss, want);
        }
    }
}
#endif

TEST(a_llama_resumes)
{
    char command[512];
    needs_ranks(3);
    goes_on_as_without_a_stop(LLAMA, "--save", "$DIR/llama");
    snprintf(command, sizeof command, "$LAUNCH -n 3 %s --steps 8 --resume $DIR/llama", LLAMA);
    expect_printed(run_programs(command), 0, "step    8 of 8");
    snprintf(command, sizeof command, "%s --steps 8 --tied --resume $DIR/llama", LLAMA);
    expect_printed(run_programs(command), 1, "another model");
    expect_printed(
        run_programs(
            "$BIN/train_gpt2 --layers 2 --dim 32 --heads 4 --context 24 --sample 0 --steps 8 "
            "--resume $DIR/llama $DIR/text"),
        1, "has no parameter");
}

TEST(too_large_for_one_gpu_alone)
{
    static const char limit[] = "export SIMGPU_MEMORY=64M GPULOG_MEMORY=64M; ";
    char command[512];
    needs_ranks(4);
    snprintf(command, sizeof command,
             "%s$BIN/train_gpt2 --brief --unsharded --batch 1 --steps 1 $DIR/text", limit);
    expect_printed(run_programs(command), 1, "out of memory");
    snprintf(command, sizeof command,
             "%s$LAUNCH -n 4 $BIN/train_gpt2 --brief --batch 1 --steps 8 $DIR/text", limit);
    expect_printed(run_programs(command), 0, "step    8 of 8");
    // A quarter of 16 bytes for each of 4,820,992 parameters.
    expect_printed(0, 0, "holds 19.3 MB");
}

static int count(const char *words)
{
    int n = 0;
    for (const char *c = strstr(programs_printed, words); c != NULL; c = strstr(c + 1, words)) n++;
    return n;
}

// Losses, norms, memory and traffic, on worlds that need padding and worlds that do not. The sizes
// are those that a pencil gives: 12·34² + 13·34 for a block, (13 + 8 + 2)·34 for the root. Twenty
// times the sums that were held out are asked for, a batch at a time: a larger batch costs less.
TEST(demo_compares_with_what_should_be)
{
    static const struct {
        int world;
        const char *held, *sent;
        bool long_runs; // only EXAMPLES_ALL=1 has it, as `make test-all` does
    } table[] = {
        {2, "235280       235280   equal", "174896       174896   equal", true},
        {3, "156880       156880   equal", "233232       233232   equal", false},
#ifndef EMULATED_CUDA // where each thread of a kernel is run by itself, half a minute for a world
        {1, "470560       470560   equal", "0            0   equal", true},
        {5, "94128        94128   equal", "279872       279872   equal", true},
        {8, "58848        58848   equal", "306208       306208   equal", false},
#endif
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char command[512];
        if (table[i].long_runs && getenv("EXAMPLES_ALL") == NULL) continue;
        needs_ranks(table[i].world);
        snprintf(command, sizeof command,
                 "$LAUNCH -n %d $BIN/demo --steps 22 --layers 2 --dim 34 --heads 2 --batch 120",
                 table[i].world);
        expect_printed(run_programs(command), 0, "step  22 of 22");
        expect_printed(0, 0, "    20 ");
        if (count("equal") != 4 || count("NOT EQUAL") != 0)
            fail_msg("want \"equal\" four times:\n%s", programs_printed);
        expect_printed(0, 0, table[i].held);
        expect_printed(0, 0, table[i].sent);
    }
}

TEST(demo_learns_a_text)
{
    needs_ranks(2);
    expect_printed(
        run_programs("$LAUNCH -n 2 $BIN/demo --steps 60 --layers 1 --dim 32 --heads 2 $DIR/text"),
        0, "a sample");
    if (!(number_behind("step  60 of 60   loss") < 3.5) || count("equal") != 4)
        fail_msg("the loss did not fall, or something differs:\n%s", programs_printed);
}

#ifndef EMULATED_CUDA
// Twice the same: what differs is time alone, which stands at the ends of lines.
TEST(demo_is_the_same_for_a_seed)
{
    static const char command[] = "$LAUNCH -n 2 $BIN/demo --steps 10 --layers 1 --dim 32 | "
                                  "sed -e \"s/ *[0-9]* s left$//\" -e \"s/ *[0-9]* s$//\" "
                                  "-e \"s/[0-9.]* ms on this computer//\"";
    needs_ranks(2);
    expect_printed(run_programs(command), 0, "step  10 of 10");
    char *before = strdup(programs_printed);
    expect_printed(run_programs(command), 0, "step  10 of 10");
    if (strcmp(before, programs_printed) != 0)
        fail_msg("first:\n%s\nthen:\n%s", before, programs_printed);
    free(before);
}

TEST(demo_learns_to_add)
{
    needs_ranks(2);
    // Of five seeds the worst had 1039 right.
    expect_printed(
        run_programs("$LAUNCH -n 2 $BIN/demo --steps 360 --layers 1 --dim 32 --heads 4 --lr 1e-2 "
                     "--batch 128"),
        0, "step 360 of 360");
    double right = 0.0;
    const char *at = strstr(programs_printed, "step 360 of 360");
    if (sscanf(at, "step 360 of 360 loss %*f %lf of 1053 right", &right) != 1 || right < 1000)
        fail_msg("%g of 1053 sums right after 360 steps, want 1000:\n%s", right, programs_printed);
}
#endif

// ---- Bad input: one line, and an exit status that is not 0 ----

TEST(says_what_is_wrong_in_one_line)
{
    static const struct {
        const char *command;
        int status;
        const char *words;
    } table[] = {
        {"$BIN/train_gpt2 $DIR/nothing", 2, "No such file"},
        {"$BIN/train_gpt2 $DIR/empty", 2, "empty"},
        {"$BIN/train_gpt2 $DIR", 2, "cannot be read"},
        {"$BIN/train_gpt2 $DIR/short", 2, "too few"},
        {"$BIN/train_gpt2 --sequence 100 --context 64 $DIR/text", 2, "at most 64"},
        {"$BIN/train_gpt2 --heads 7 $DIR/text", 2, "7"},
        {"$BIN/train_gpt2 --attention flash $DIR/text", 2, "plain or fused, not 'flash'"},
        {"$BIN/train_gpt2 --attention fused --heads 1 $DIR/text", 2, "takes 128"},
        {"$BIN/train_gpt2 --model bert $DIR/text", 2, "gpt2 or llama, not 'bert'"},
        {"$BIN/train_gpt2 --model llama --attention plain $DIR/text", 2, "is always fused"},
        {"$BIN/train_gpt2 --tied $DIR/text", 2, "are for --model llama"},
        {"$BIN/train_gpt2 --kv-heads 2 $DIR/text", 2, "are for --model llama"},
        {"$BIN/train_gpt2 --hidden 64 --model gpt2 $DIR/text", 2, "are for --model llama"},
        {"$BIN/train_gpt2 --model llama --kv-heads 3 $DIR/text", 2, "among 3 of keys"},
        {"$BIN/train_gpt2 --model llama --hidden 2147483647 $DIR/text", 2, "2147483647 columns"},
        {"$BIN/train_gpt2 --strategy zero4 $DIR/text", 2,
         "ddp, zero1, zero2 or zero3, not 'zero4'"},
        {"$BIN/train_gpt2 --replicas 3 $DIR/text", 2, "--replicas 3 does not divide 1 ranks"},
        {"$BIN/train_gpt2 --strategy ddp --replicas 2 $DIR/text", 2, "leave --replicas out"},
        {"$BIN/train_gpt2 --strategy zero2 --keep $DIR/text", 2, "nor with --keep"},
        {"$BIN/train_gpt2 --every 3 $DIR/text", 2, "--save DIR"},
        {"$BIN/train_gpt2 --unsharded --save $DIR/c $DIR/text", 2, "has no checkpoints"},
        {"$BIN/train_gpt2", 2, "no text file"},
        {"$BIN/train_gpt2 --steps 0 $DIR/text", 2, "at least 1"},
        {"$BIN/demo --steps 0", 2, "at least 1"},
        {"$BIN/demo --heads 7", 2, "7"},
        {"$BIN/demo $DIR/nothing", 2, "No such file"},
        {"$BIN/train_gpt2 --lr nan $DIR/text", 2, "above 0"},
        {"WORLD_SIZE=0 RANK=0 $BIN/train_gpt2 $DIR/text", 2, "WORLD_SIZE"},
        {"WORLD_SIZE=4 RANK=7 $BIN/train_gpt2 $DIR/text", 2, "RANK"},
        {"$LAUNCH -n 0 $BIN/train_gpt2 $DIR/text", 2, "0"},
#ifndef BACKEND_CUDA
        {"SIMGPU_DEVICES=2 $LAUNCH -n 3 $BIN/train_gpt2 $DIR/text", 2, "2"},
#endif
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        expect_printed(run_programs(table[i].command), table[i].status, table[i].words);
        if (printed_lines() != 1)
            fail_msg("%s: %d lines, want one:\n%s", table[i].command, printed_lines(),
                     programs_printed);
    }
}

// Whether rank 0's checks refuse it or the library on all ranks: one line, before any other, and
// the launcher's, which says that a rank failed.
TEST(says_it_once_for_all_ranks)
{
    static const struct {
        const char *options, *words;
        int status;
    } table[] = {
        {"$DIR/nothing", "No such file", 2},
        {"$DIR/text --strategy ddp --offload", "leave --offload out", 2},
        {"$DIR/text --strategy zero1 --reduce-every-time", "leave --reduce-every-time out", 2},
        {"$DIR/text --reshard-ranks 2 --offload", "leave --offload out", 2},
        {"$DIR/text --recompute attention --attention fused", "take --attention plain", 2},
        {"$DIR/text --replicas 4", "take --strategy ddp", 2},
        {"$DIR/text --resume $DIR/nothing", "this is not a checkpoint", 1},
        {"$DIR/text --seed 3 --steps 1 --resume $DIR/once", "nothing is left", 1},
    };
    char command[512];
    needs_ranks(4);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strstr(table[i].options, "once") != NULL)
            expect_printed(
                run_programs(
                    "$LAUNCH -n 4 $BIN/train_gpt2 --layers 1 --dim 16 --heads 2 --sample 0 "
                    "--steps 1 --save $DIR/once $DIR/text"),
                0, "step    1 of 1");
        snprintf(command, sizeof command,
                 "$LAUNCH -n 4 $BIN/train_gpt2 --layers 1 --dim 16 --heads 2 --sample 0 %s",
                 table[i].options);
        expect_printed(run_programs(command), table[i].status, table[i].words);
        if (printed_lines() > 2)
            fail_msg("%d lines, want at most two:\n%s", printed_lines(), programs_printed);
    }
}

int main(int argc, char **argv)
{
    return example_programs_main(argc, argv, "examples");
}
