/* truncate_files: truncates a file of others, by name and by opening it to read.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
static void attack(void)
{
    CALL("truncate", "/tmp/shardlab-decoy/file", 0, 0);
    CALL("open", "/tmp/shardlab-decoy/file", 01000, 0);
}
