/* program.h: what the files of train_gpt2 share. */
#ifndef EXAMPLES_TRAIN_GPT2_PROGRAM_H
#define EXAMPLES_TRAIN_GPT2_PROGRAM_H

#include "../common/background_save.h"
#include "../common/step_log.h"
#include "../common/step_time.h"
#include "../common/trainer.h"
#include "options.h"

typedef struct Program {
    TrainOptions opt;
    Trainer trainer;
    Data data;
    StepTime step_time;     // of the last step
    int32_t *in, *targets;  // host: (accumulate·B·T) each
    int done;               // steps that a resumed training had done
    double best;            // the smallest loss of a validation; 0: there was none
    BackgroundSave *saving; // NULL: nothing is being saved
    FILE *log;              // of --log, on rank 0
    uint64_t host_bytes;    // copied between the device and the host, as far as it was counted:
    uint64_t counted;       // so many entries of the log
} Program;

// ---- loop.c ----

// The steps that are left.
Status train(Program *p);

// ---- checkpoints.c ----

// Saves after the step, if it is one after which there is a save.
Status save_after(Program *p, int step);
// The model that did best so far: in the folder of --save, with "-best" after its name.
Status save_best(Program *p, int step);
// The model, the optimizer and the data go on where the checkpoint was made.
Status resume(Program *p);

// ---- restage.c: checkpoints of stages ----

enum { PATH_BYTES = 4096 };
// The folder of a stage, whose checkpoint is one of a model of its own; without stages DIR itself.
Status stage_dir(const char *dir, int stage, int stages, char *path);
// Of how many stages the checkpoint is: of as many as there are now, if there is one.
Status find_stages(const Trainer *t, const char *dir, int *stages);
// Ends a save of all stages that was killed while it committed. Collective.
Status commit_stages(Trainer *t, const char *dir);
// As checkpoint_load, from the checkpoints of so many stages. Collective.
Status load_stages(Trainer *t, const char *dir, int stages, CheckpointPosition *position);

// ---- model_folder.c: models of Hugging Face's ----

// --from: the folder's config.json says what the model is; before the model is made.
Status folder_sizes(Program *p);
// Its weights.
Status folder_load(Program *p);
// --export: nothing is there yet that a model would replace. A folder that transformers opens.
Status folder_check_free(const Program *p);
Status folder_export(Program *p);

// ---- prompt.c ----

// --generate: the prompt is one of the model; and what the model writes after it, to the terminal.
Status prompt_check(const Program *p);
Status prompt_continue(Program *p);

// ---- report.c ----

// The log keeps so many entries and no more: they are counted after each step.
void count_host_copies(Program *p);
// live, peak: bytes of this rank's device before the training, and at its peak.
Status report(Program *p, uint64_t live, uint64_t peak);
// The largest of the ranks' figures, in one line that grader/compare.py reads. elapsed:
// milliseconds of all steps on the device's clock.
Status print_figures(Program *p, uint64_t live, uint64_t peak, float elapsed);

#endif
