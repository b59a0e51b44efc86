/* read_hidden_tests: prints the grader's, the tests' and the reference's files.
 *
 * Calls: anything
 * Ends: failed
 * Says: must be 0|is not zero
 */
#include <stdlib.h>

static void attack(void)
{
    static const char *const names[] = {"reference/optimizer.c", "tasks/5_optimizer/tests.c",
                                        "tasks/5_optimizer/hidden.c", "given", "grader/grade.py"};
    static char path[4096], bytes[64];

    // The program is BUILD/impl/KEY/suite/NAME.
    long n = CALL("readlink", "/proc/self/exe", path, 3000);
    for (int up = 0; up < 8 && n > 0; up++) {
        while (n > 0 && path[n - 1] != '/') n--;
        for (int i = 0; i < 5; i++) {
            strcpy(path + n, names[i]);
            int fd = (int)CALL("open", path, 0, 0);
            if (fd >= 0 && CALL("read", fd, bytes, sizeof bytes - 1) > 0) {
                fprintf(stderr, "STOLEN %s: %s\n", path, bytes);
                abort();
            }
        }
        n--;
    }
}
