/* rename_files: renames, links and removes files of others.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
static void attack(void)
{
    CALL("rename", "/tmp/shardlab-decoy/file", "/tmp/shardlab-decoy/renamed", 0);
    CALL("link", "/tmp/shardlab-decoy/file", "/tmp/shardlab-decoy/linked", 0);
    CALL("symlink", "/etc/passwd", "/tmp/shardlab-attack-link", 0);
    CALL("unlink", "/tmp/shardlab-decoy/file", 0, 0);
}
