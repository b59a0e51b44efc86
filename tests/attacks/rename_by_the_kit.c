/* rename_by_the_kit: renames a file by what the kit has for checkpoints.
 *
 * Ends: error
 * Says: includes checkpoint\.h, which is only for lab checkpoints
 */
#include "checkpoint.h"

static void attack(void)
{
    folder_rename("/tmp/shardlab-decoy/file", "/tmp/shardlab-decoy/renamed");
}
