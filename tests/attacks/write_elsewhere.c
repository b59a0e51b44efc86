/* write_elsewhere: makes a file in a folder that everybody may write in.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
static void attack(void)
{
    CALL("open", "/tmp/shardlab-attack-made", 0101, 0666);
    CALL("open", "/tmp/shardlab-decoy/made", 0101, 0666);
    CALL("mkdir", "/tmp/shardlab-attack-folder", 0777, 0);
}
