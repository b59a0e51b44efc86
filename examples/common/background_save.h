/* background_save.h: a checkpoint that is written while the training goes on.
 *
 * Its files are checkpoint_save's. The shards are copied to host memory, which takes as long as the
 * copy; a thread of each rank then writes its file, and brings it to the disk. Once all ranks have,
 * which they find out between steps, rank 0 adds the index and renames the folder. So a kill at any
 * moment leaves the last checkpoint that was complete, as DIR, or as DIR.old, which a load takes.
 * Of a pipeline each stage does so, after all of them have their indexes: see restage.c.
 */
#ifndef EXAMPLES_BACKGROUND_SAVE_H
#define EXAMPLES_BACKGROUND_SAVE_H

#include "checkpoint.h"
#include "trainer.h"

typedef struct BackgroundSave BackgroundSave;

// All of these are collective, between steps. Begins a save to the folder; one that is not done yet
// is waited for. *save is NULL before the first. After a failure, which has printed its line, no
// save is in progress and the folder is as it was.
Status background_save_begin(BackgroundSave **save, Trainer *t, const char *dir,
                             const CheckpointPosition *position);
// Ends the save if all ranks have written their files; with `wait` it waits for them.
Status background_save_end(BackgroundSave **save, Trainer *t, bool wait);

// This rank's shard of unit u: of the parameters, or of one of their moments.
float *shard_part(const Trainer *t, int u, CheckpointPart part);

#endif
