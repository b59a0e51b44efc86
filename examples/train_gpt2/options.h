/* options.h: the command line of train_gpt2. */
#ifndef EXAMPLES_TRAIN_GPT2_OPTIONS_H
#define EXAMPLES_TRAIN_GPT2_OPTIONS_H

#include "../common/data.h"
#include "../common/trainer.h"

// What is not the trainer's.
typedef struct TrainOptions {
    int sample;                // bytes to generate at the end
    bool brief;                // few lines: neither held-out text nor what each rank sent
    bool figures;              // one line of figures alone, for make compare
    bool attention;            // --attention was given
    bool sizes;                // one of the options was given that say what the model is
    const char *save, *resume; // folders of checkpoints; NULL: none
    const char *generate;      // a prompt; NULL: nothing is generated
    int tokens, top_k;         // to generate; drawn from so many, 0: all
    float temperature;         // 0: the most likely one
    bool trains;               // there is something to learn from
    const char *log;           // file of a line for each step
    const char *from;          // folder of a model of Hugging Face's
    const char *export_to;     // folder to be made of one
    int save_every;            // the same, while the training goes on
    int every;                 // steps from one save to the next; 0: one, at the end
    DataOptions data;
    int val_every;     // steps from one validation to the next
    int val_sequences; // of each
} TrainOptions;

// Reads the command line, after the defaults. --help prints what there is and ends the program.
Status train_options_parse(int argc, char **argv, TrainOptions *o, TrainerOptions *t);

void train_options_help(const char *program);

// Whether they suit each other, the model and the number of ranks. ERR_ARGUMENT, with one line.
Status train_options_check(const TrainOptions *o, TrainerOptions *t, int ranks);

#endif
