/* own_cmocka: runs the group of tests in cmocka's place, and none of them.
 *
 * Ends: error
 * Says: defines _cmocka_run_group_tests|defines _fail
 */
#include <stddef.h>

int _cmocka_run_group_tests(const char *name, const void *tests, size_t n, void *setup, void *end);
int _cmocka_run_group_tests(const char *name, const void *tests, size_t n, void *setup, void *end)
{
    return 0;
}

void _fail(const char *file, int line);
void _fail(const char *file, int line)
{
}

static void attack(void)
{
}
