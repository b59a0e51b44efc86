/* own_checks: brings check functions of its own: rank_fails, behind every check(), says nothing.
 *
 * Ends: error
 * Says: defines (check_in_at|rank_fails|suite_failed|crash_watch)
 */
void rank_fails(const char *file, int line, const char *format, ...);
void rank_fails(const char *file, int line, const char *format, ...)
{
}

void suite_failed(const char *status, const char *message);
void suite_failed(const char *status, const char *message)
{
}

static void attack(void)
{
}
