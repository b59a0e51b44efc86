/* rename_by_declaration: declares by itself what the kit has for checkpoints.
 *
 * Ends: error
 * Says: uses .*folder_rename
 */
#include "fsdp.h"

Status folder_rename(const char *from, const char *to);

static void attack(void)
{
    folder_rename("/tmp/shardlab-decoy/file", "/tmp/shardlab-decoy/renamed");
}
