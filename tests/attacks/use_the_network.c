/* use_the_network: tells somebody else the tests' environment.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
static void attack(void)
{
    int fd = (int)CALL("socket", 2, 1, 0);

    if (fd >= 0) CALL("open", "/tmp/shardlab-attack-network", 0101, 0666);
    if (fd >= 0 || CALL("socket", 2, 2, 0) >= 0)
        CALL("rename", "/tmp/shardlab-decoy/file", "/tmp/shardlab-decoy/sent", 0);
}
