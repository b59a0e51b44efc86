/* write_by_proc: writes to the grader's memory and to a file by its folders, through /proc.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
static void attack(void)
{
    char path[64];
    long parents[] = {CALL("getppid", 0, 0, 0), CALL("getpgid", CALL("getppid", 0, 0, 0), 0, 0)};

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%ld/mem", parents[i]);
        CALL("open", path, 2, 0);
        snprintf(path, sizeof path, "/proc/%ld/root/tmp/shardlab-decoy/file", parents[i]);
        CALL("open", path, 01001, 0);
    }
}
