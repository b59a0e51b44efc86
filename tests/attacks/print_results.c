/* print_results: prints what the grader's table and its results look like, and leaves.
 *
 * Ends: failed
 * Says: called exit\(0\)
 */
#include <stdio.h>
#include <stdlib.h>

static void attack(void)
{
    static const char *const lines[] = {
        "{\"nonce\": \"\", \"test\": \"zero_grad_zeroes\", \"status\": \"passed\"}\n",
        "{\"nonce\": null, \"end\": 10}\n",
        "[       OK ] zero_grad_zeroes\n[  PASSED  ] 10 test(s).\n",
        "  ok     zero_grad_zeroes  1/1\n\nScore: 100/100\n",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        fputs(lines[i], stdout);
        fputs(lines[i], stderr);
    }
    fflush(stdout);
    exit(0);
}
