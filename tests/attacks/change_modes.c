/* change_modes: changes modes, times and attributes, of a file of others and of the program.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
static void attack(void)
{
    CALL("chmod", "/tmp/shardlab-decoy/file", 0, 0);
    CALL("utime", "/tmp/shardlab-decoy/file", 0, 0);
    call("setxattr", (long)"/tmp/shardlab-decoy/file", (long)"user.a", (long)"b", 1, 0, 0);
    CALL("chmod", "/proc/self/exe", 0, 0);
}
